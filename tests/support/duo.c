#include "tests/support/duo.h"
#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct wish {
    struct berth *b;
    const char *key;
};

static bool got(void *arg)
{
    struct wish *w = arg;
    struct berth_view v;
    if (berth_get(w->b, key_of(w->key), &v, BERTH_PEERS, berth_deadline(INT64_C(5000000000))) != 0) {
        return false;
    }
    berth_release(w->b, &v, 1);
    return true;
}

void duo_start(struct duo *d)
{
    static const char *const name[] = {"a", "b"};
    unsigned port[2] = {free_port(), free_port()};
    *d = (struct duo){0};
    snprintf(d->list, sizeof d->list, "a=tcp://127.0.0.1:%u,b=tcp://127.0.0.1:%u", port[0], port[1]);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(d->listen[i], sizeof d->listen[i], "tcp://127.0.0.1:%u", port[i]);
        const char *extra[] = {"--pool",   "32MiB",      "--lock",  "off",   "--name", name[i],
                               "--listen", d->listen[i], "--peers", d->list, NULL};
        daemon_start(&d->daemon[i], extra);
        d->b[i] = daemon_open(&d->daemon[i], "test");
    }
    for (unsigned i = 0; i < 2; i++) {
        struct wish w = {.b = d->b[!i], .key = i ? "hello-b" : "hello-a"};
        assert_int_equal(berth_put(d->b[i], key_of(w.key), w.key, 7, NULL), 0);
        assert_true(eventually(got, &w, 20000));
    }
}

void duo_end(struct duo *d)
{
    for (unsigned i = 0; i < 2; i++) {
        if (d->daemon[i].pid) {
            assert_int_equal(query_number(d->b[i], BERTH_CHECK, "differences"), 0);
        }
        berth_close(d->b[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        daemon_end(&d->daemon[i]);
    }
}

struct aim {
    struct berth *b;
    const char *path;
    double want, is;
};

static bool is_there(void *arg)
{
    struct aim *a = arg;
    a->is = daemon_number(a->b, a->path);
    return a->is >= a->want;
}

void duo_becomes(struct duo *d, unsigned node, const char *path, double want)
{
    struct aim a = {.b = d->b[node], .path = path, .want = want};
    if (!eventually(is_there, &a, 20000) || a.is != want) {
        fail_msg("%s of node %u: %.0f, not %.0f", path, node, a.is, want);
    }
}

static bool told(void *b)
{
    return daemon_number(b, "home.queued") == 0;
}

void duo_put(struct duo *d, unsigned node, const char *key, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(d->b[node], key_of(key), data, size, NULL), 0);
    free(data);
    assert_true(eventually(told, d->b[node], 20000));
}

double duo_metric(struct duo *d, unsigned node, const char *line)
{
    return daemon_metric(d->b[node], line);
}

char *duo_cli_status(struct duo *d, unsigned node)
{
    const char *bin = getenv("BERTH_BIN");
    char command[700];
    size_t room = 1u << 20;
    char *text = malloc(room);
    snprintf(command, sizeof command, "%s/berth --node %s status --json", bin ? bin : "build/release/bin",
             d->daemon[node].node);
    FILE *f = popen(command, "r");
    assert_true(f && text);
    text[fread(text, 1, room - 1, f)] = '\0';
    assert_int_equal(pclose(f), 0);
    return text;
}
