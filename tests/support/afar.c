#include "tests/support/afar.h"

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

const char *const afar_names[NODES] = {"a", "b"};
struct daemon afar_daemon[NODES];
struct berth *afar_node[NODES];
char afar_address[NODES][64];
uint8_t afar_got[LARGE + 64];
static char peers[256], config[64];

/* ---- nodes ---- */

/* Below the range that the kernel gives out by itself, so that a port that was free a moment ago still is. */
uint16_t afar_port(void)
{
    static uint32_t next;
    next = next ? next : (uint32_t)getpid() * 89u;
    for (;;) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint16_t p = (uint16_t)(12000 + next++ % 18000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        a.sin_port = htons(p);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        int e = bind(fd, (struct sockaddr *)&a, sizeof a);
        close(fd);
        if (e == 0) {
            return p;
        }
    }
}

static bool quiet(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        if (daemon_number(afar_node[i], "home.queued") != 0 || daemon_number(afar_node[i], "home.missing") != 0 ||
            daemon_number(afar_node[i], "home.current") != NODES) {
            return false;
        }
    }
    return true;
}

/* The homes know of all that was put. */
void afar_settle(void)
{
    assert_true(eventually(quiet, NULL, SOON_MS));
}

int afar_start(void **unused)
{
    (void)unused;
    snprintf(config, sizeof config, "/tmp/berth-remote-%d.ini", (int)getpid());
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fputs("[namespace turned]\nreplaceable = yes\n[namespace models]\nreplaceable = yes\n", file);
    assert_int_equal(fclose(file), 0);
    peers[0] = '\0';
    for (unsigned i = 0; i < NODES; i++) {
        size_t used = strlen(peers);
        snprintf(afar_address[i], sizeof afar_address[i], "tcp://127.0.0.1:%u", afar_port());
        snprintf(peers + used, sizeof peers - used, "%s%s=%s", i ? "," : "", afar_names[i], afar_address[i]);
    }
    for (unsigned i = 0; i < NODES; i++) {
        daemon_start(&afar_daemon[i], (const char *[]){"--pool", "48M", "--lock", "off", "--name", afar_names[i],
                                                       "--peers", peers, "--homes", "1", "--config", config, NULL});
        afar_node[i] = daemon_open(&afar_daemon[i], "test");
    }
    afar_settle();
    return 0;
}

int afar_end(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        char *text = NULL;
        if (afar_node[i] && berth_query(afar_node[i], BERTH_CHECK, NULL, &text) == 0) {
            assert_true(strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null"));
        }
        free(text);
        berth_close(afar_node[i]);
        afar_node[i] = NULL;
        if (afar_daemon[i].pid > 0) {
            kill(afar_daemon[i].pid, SIGCONT);
        }
        daemon_end(&afar_daemon[i]);
    }
    unlink(config);
    return 0;
}

void afar_put(unsigned node, const char *key, size_t size, uint32_t segment)
{
    struct berth_put_opts o = {.size = sizeof o, .segment = segment};
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(afar_node[node], key_of(key), data, size, &o), 0);
    free(data);
}

/* ---- the client ---- */

int64_t afar_now(void)
{
    return berth_deadline(0);
}

struct berth *afar_client(const char *url)
{
    struct berth *c;
    int rc = berth_open(&c, url, NULL);
    if (rc) {
        struct berth_error_info e;
        berth_error(NULL, &e);
        fail_msg("%s: %s", url ? url : "(none)", e.sentence);
    }
    return c;
}

long afar_into(struct berth *c, const char *key, int64_t ns)
{
    return berth_get_into(c, key_of(key), afar_got, sizeof afar_got, 0, ns == BERTH_FOREVER ? ns : berth_deadline(ns));
}

void afar_reads(struct berth *c, const char *key, size_t size)
{
    memset(afar_got, 0xee, size + 1);
    long n = afar_into(c, key, SECONDS(20));
    if (n != (long)size) {
        fail_msg("%s: %ld, %s", key, n, n < 0 ? berth_error_name((int)n) : "bytes");
    }
    assert_true(payload_is(afar_got, size, key));
    assert_int_equal(afar_got[size], 0xee);
}

bool afar_comes(void *arg)
{
    struct afar_wish *w = arg;
    w->rc = afar_into(w->c, w->key, SECONDS(5));
    return w->rc == w->want;
}

void afar_reads_soon(struct berth *c, const char *key, long want)
{
    struct afar_wish w = {.c = c, .key = key, .want = want};
    if (!eventually(afar_comes, &w, SOON_MS)) {
        fail_msg("%s: %s", key, berth_error_name((int)w.rc));
    }
    if (want >= 0) {
        assert_true(payload_is(afar_got, (size_t)want, key));
    }
}

void afar_kill(unsigned i)
{
    berth_close(afar_node[i]);
    afar_node[i] = NULL;
    daemon_kill(&afar_daemon[i]);
}

void afar_again(unsigned i)
{
    daemon_again(&afar_daemon[i]);
    afar_node[i] = daemon_open(&afar_daemon[i], "test");
}
