#include "tests/support/nodes.h"

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

struct nodes nodes;

static const char *const names[NODES_MAX] = {"n0", "n1", "n2", "n3"};
static char address[NODES_MAX][64], peers[512], config[64];
static struct rendezvous *list;

/* Ports that were free a moment ago: kept open together, so that they differ. */
static void pick_ports(void)
{
    int fd[NODES_MAX];
    peers[0] = '\0';
    for (unsigned i = 0; i < nodes.n; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof at;
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd[i], (struct sockaddr *)&at, size), 0);
        assert_int_equal(getsockname(fd[i], (struct sockaddr *)&at, &size), 0);
        snprintf(address[i], sizeof address[i], "tcp://127.0.0.1:%u", ntohs(at.sin_port));
        size_t used = strlen(peers);
        snprintf(peers + used, sizeof peers - used, "%s%s=%s", i ? "," : "", names[i], address[i]);
    }
    for (unsigned i = 0; i < nodes.n; i++) {
        close(fd[i]);
    }
}

static void open_client(unsigned i)
{
    nodes.b[i] = daemon_open(&nodes.d[i], "test");
    assert_int_equal(berth_namespace(nodes.b[i], "weights", &nodes.ns[i]), 0);
}

void nodes_start(unsigned n, unsigned homes, const char *tombstones, const char *fresh)
{
    struct rendezvous_member m[NODES_MAX];
    const char *k = homes == 1 ? "1" : homes == 2 ? "2" : "3";
    memset(&nodes, 0, sizeof nodes);
    nodes.n = n;
    nodes.homes = homes;
    snprintf(config, sizeof config, "/tmp/berth-nodes-%d.ini", (int)getpid());
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs("[namespace weights]\nreplaceable = yes\n", file);
    assert_int_equal(fclose(file), 0);
    pick_ports();
    for (unsigned i = 0; i < n; i++) {
        daemon_start(&nodes.d[i], (const char *[]){"--pool", "16M", "--lock", "off", "--name", names[i], "--listen",
                                                   address[i], "--peers", peers, "--homes", k, "--config", config,
                                                   "--tombstones", tombstones, "--fresh", fresh, NULL});
        open_client(i);
        m[i] = (struct rendezvous_member){.id = rendezvous_id(names[i], 2), .weight = 1};
    }
    assert_int_equal(rendezvous_create(&list, m, n, homes), 0);
    nodes_quiet();
}

void nodes_end(void)
{
    for (unsigned i = 0; i < nodes.n; i++) {
        char *text = NULL;
        if (nodes.b[i] && berth_query(nodes.b[i], BERTH_CHECK, NULL, &text) == 0) {
            assert_true(strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null"));
        }
        free(text);
        berth_close(nodes.b[i]);
        daemon_end(&nodes.d[i]);
    }
    rendezvous_destroy(list);
    list = NULL;
    unlink(config);
}

void nodes_kill(unsigned i)
{
    berth_close(nodes.b[i]);
    nodes.b[i] = NULL;
    daemon_kill(&nodes.d[i]);
}

void nodes_again(unsigned i)
{
    daemon_again(&nodes.d[i]);
    open_client(i);
}

void nodes_freeze(unsigned i, bool frozen)
{
    assert_int_equal(kill(nodes.d[i].pid, frozen ? SIGSTOP : SIGCONT), 0);
}

static unsigned running(void)
{
    unsigned up = 0;
    for (unsigned i = 0; i < nodes.n; i++) {
        up += nodes.b[i] != NULL;
    }
    return up;
}

static bool quiet(void *unused)
{
    (void)unused;
    unsigned up = running();
    for (unsigned i = 0; i < nodes.n; i++) {
        struct berth *b = nodes.b[i];
        if (b && (daemon_number(b, "home.held") != 0 || daemon_number(b, "home.queued") != 0 ||
                  daemon_number(b, "home.missing") != nodes.n - up || daemon_number(b, "home.current") != up)) {
            return false;
        }
    }
    return true;
}

void nodes_quiet(void)
{
    if (!eventually(quiet, NULL, NODES_SOON_MS)) {
        for (unsigned i = 0; i < nodes.n; i++) {
            struct berth *b = nodes.b[i];
            if (b) {
                print_message("n%u: held %g, queued %g, missing %g, current %g\n", i, daemon_number(b, "home.held"),
                              daemon_number(b, "home.queued"), daemon_number(b, "home.missing"),
                              daemon_number(b, "home.current"));
            }
        }
        fail_msg("the homes do not come to rest");
    }
}

bool nodes_home(unsigned i, struct berth_key key)
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
