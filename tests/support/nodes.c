#include "tests/support/nodes.h"
#include "tests/support/ports.h"

#include "store/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct berth *node[NODES_MAX];
struct daemon nodes_daemon;
static bool daemon_runs;
static char list[512];
static uint16_t port[NODES_MAX];

static void name_nodes(unsigned n)
{
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        port[i] = free_port();
        at += (size_t)snprintf(list + at, sizeof list - at, "%sn%u=tcp://127.0.0.1:%u", i ? "," : "", i, port[i]);
    }
}

static void open_embedded(unsigned i, const char *more)
{
    char url[1024];
    snprintf(url, sizeof url,
             "embedded:?pool=64MiB&lock=off&log-level=error&name=n%u&listen=tcp://127.0.0.1:%u&peers=%s%s", i, port[i],
             list, more);
    int rc = berth_open(&node[i], url, NULL);
    if (rc) {
        fail_msg("%s: %s", url, berth_error_name(rc));
    }
}

static void open_daemon(unsigned i)
{
    static char listen[64], name[8];
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", port[i]);
    snprintf(name, sizeof name, "n%u", i);
    const char *extra[] = {"--pool",   "64MiB", "--lock",  "off", "--name", name,
                           "--listen", listen,  "--peers", list,  NULL};
    daemon_start(&nodes_daemon, extra);
    daemon_runs = true;
    node[i] = daemon_open(&nodes_daemon, "test");
}

static bool told(void *b)
{
    return daemon_number(b, "home.queued") == 0;
}

void nodes_settle(unsigned i)
{
    assert_true(eventually(told, node[i], 20000));
}

struct wish {
    struct berth *b;
    const char *key;
};

static bool there(void *arg)
{
    struct wish *w = arg;
    struct berth_view v;
    int rc = berth_get(w->b, key_of(w->key), &v, BERTH_PEERS, berth_deadline(SECONDS(10)));
    if (rc == 0) {
        berth_release(w->b, &v, 1);
    }
    return rc == 0;
}

/* Each pair has a key of its own, so that it is their own connection that is waited for. */
static void meet(unsigned n)
{
    for (unsigned i = 0; i < n * n; i++) {
        char key[32];
        snprintf(key, sizeof key, "hello%u-%u", i / n, i % n);
        nodes_put(i / n, key, 100, 0);
        struct wish w = {.b = node[i % n], .key = key};
        assert_true(eventually(there, &w, 20000));
    }
}

void nodes_open(unsigned n, const char *more)
{
    name_nodes(n);
    for (unsigned i = 0; i < n; i++) {
        open_embedded(i, more);
    }
    meet(n);
}

void nodes_open_daemon(unsigned n)
{
    name_nodes(n);
    for (unsigned i = 0; i + 1 < n; i++) {
        open_embedded(i, "");
    }
    open_daemon(n - 1);
    meet(n);
}

void nodes_end(unsigned i)
{
    berth_close(node[i]);
    node[i] = NULL;
}

static void check_node(struct berth *b)
{
    char *text = NULL;
    assert_int_equal(berth_query(b, BERTH_CHECK, NULL, &text), 0);
    if (!strstr(text, "\"differences\": 0") || !strstr(text, "\"invariant\": null")) {
        fail_msg("%s", text);
    }
    free(text);
}

int nodes_close(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES_MAX; i++) {
        if (node[i]) {
            check_node(node[i]);
            nodes_end(i);
        }
    }
    if (daemon_runs) {
        daemon_runs = false;
        daemon_end(&nodes_daemon);
    }
    return 0;
}

void nodes_put(unsigned i, const char *key, size_t size, uint32_t segment)
{
    struct berth_put_opts o = {.size = sizeof o, .segment = segment};
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(node[i], key_of(key), data, size, &o), 0);
    free(data);
}

void nodes_damage(unsigned i, const char *key, uint64_t at)
{
    struct berth_view v;
    assert_int_equal(berth_get(node[i], key_of(key), &v, 0, BERTH_NOW), 0);
    assert_true(at < v.size);
    node[i]->writable[(const uint8_t *)v.data - node[i]->pool + (ptrdiff_t)at] ^= 1;
    berth_release(node[i], &v, 1);
}

double nodes_sent(unsigned i)
{
    return daemon_number(node[i], "remote.bytes_sent");
}
