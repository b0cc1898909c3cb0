#include "tests/support/berthds.h"

#include "replication/rendezvous.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct berthds berthds;

static const char *const names[BERTHDS_MAX] = {"n0", "n1", "n2", "n3"};
static char address[BERTHDS_MAX][64], peers[512], config[64];
static struct rendezvous *list;

/* Ports that were free a moment ago: kept open together, so that they differ. */
static void pick_ports(void)
{
    int fd[BERTHDS_MAX];
    peers[0] = '\0';
    for (unsigned i = 0; i < berthds.n; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof at;
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd[i], (struct sockaddr *)&at, size), 0);
        assert_int_equal(getsockname(fd[i], (struct sockaddr *)&at, &size), 0);
        snprintf(address[i], sizeof address[i], "tcp://127.0.0.1:%u", ntohs(at.sin_port));
        size_t used = strlen(peers);
        snprintf(peers + used, sizeof peers - used, "%s%s=%s", i ? "," : "", names[i], address[i]);
    }
    for (unsigned i = 0; i < berthds.n; i++) {
        close(fd[i]);
    }
}

static void open_client(unsigned i)
{
    berthds.b[i] = daemon_open(&berthds.d[i], "test");
    assert_int_equal(berth_namespace(berthds.b[i], "weights", &berthds.ns[i]), 0);
}

void berthds_start(unsigned n, unsigned homes, const char *tombstones, const char *fresh)
{
    struct rendezvous_member m[BERTHDS_MAX];
    const char *k = homes == 1 ? "1" : homes == 2 ? "2" : "3";
    memset(&berthds, 0, sizeof berthds);
    berthds.n = n;
    berthds.homes = homes;
    snprintf(config, sizeof config, "/tmp/berth-berthds-%d.ini", (int)getpid());
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs("[namespace weights]\nreplaceable = yes\n", file);
    assert_int_equal(fclose(file), 0);
    pick_ports();
    for (unsigned i = 0; i < n; i++) {
        daemon_start(&berthds.d[i], (const char *[]){"--pool", "16M", "--lock", "off", "--name", names[i], "--listen",
                                                     address[i], "--peers", peers, "--homes", k, "--config", config,
                                                     "--tombstones", tombstones, "--fresh", fresh, NULL});
        open_client(i);
        m[i] = (struct rendezvous_member){.id = rendezvous_id(names[i], 2), .weight = 1};
    }
    assert_int_equal(rendezvous_create(&list, m, n, homes), 0);
    berthds_quiet();
}

void berthds_end(void)
{
    for (unsigned i = 0; i < berthds.n; i++) {
        char *text = NULL;
        if (berthds.b[i] && berth_query(berthds.b[i], BERTH_CHECK, NULL, &text) == 0) {
            assert_true(strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null"));
        }
        free(text);
        berth_close(berthds.b[i]);
        daemon_end(&berthds.d[i]);
    }
    rendezvous_destroy(list);
    list = NULL;
    unlink(config);
}

void berthds_kill(unsigned i)
{
    berth_close(berthds.b[i]);
    berthds.b[i] = NULL;
    daemon_kill(&berthds.d[i]);
}

void berthds_again(unsigned i)
{
    daemon_again(&berthds.d[i]);
    open_client(i);
}

void berthds_freeze(unsigned i, bool frozen)
{
    assert_int_equal(kill(berthds.d[i].pid, frozen ? SIGSTOP : SIGCONT), 0);
}

static unsigned running(void)
{
    unsigned up = 0;
    for (unsigned i = 0; i < berthds.n; i++) {
        up += berthds.b[i] != NULL;
    }
    return up;
}

static bool quiet(void *unused)
{
    (void)unused;
    unsigned up = running();
    for (unsigned i = 0; i < berthds.n; i++) {
        struct berth *b = berthds.b[i];
        if (b && (daemon_number(b, "home.held") != 0 || daemon_number(b, "home.queued") != 0 ||
                  daemon_number(b, "home.missing") != berthds.n - up || daemon_number(b, "home.current") != up)) {
            return false;
        }
    }
    return true;
}

void berthds_quiet(void)
{
    if (!eventually(quiet, NULL, BERTHDS_SOON_MS)) {
        for (unsigned i = 0; i < berthds.n; i++) {
            struct berth *b = berthds.b[i];
            if (b) {
                print_message("n%u: held %g, queued %g, missing %g, current %g\n", i, daemon_number(b, "home.held"),
                              daemon_number(b, "home.queued"), daemon_number(b, "home.missing"),
                              daemon_number(b, "home.current"));
            }
        }
        fail_msg("the homes do not come to rest");
    }
}

bool berthds_home(unsigned i, struct berth_key key)
{
    uint16_t home[HOMES_MAX];
    struct home_key k = {.data = key.data, .size = key.size, .space = key.ns};
    uint32_t n = rendezvous_homes(list, rendezvous_place(&k), home);
    for (uint32_t j = 0; j < n; j++) {
        if (home[j] == i) {
            return true;
        }
    }
    return false;
}
