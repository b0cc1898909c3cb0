#include "tests/support/wired.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of two members the one that sorts lower connects: that is the relay's near end. */
static const char *name_of(unsigned which)
{
    return which == NEAR ? "a-near" : "b-far";
}

void wired_init(struct wired *d)
{
    memset(d, 0, sizeof *d);
    d->port[NEAR] = free_port();
    d->port[FAR] = free_port();
    relay_start(&d->relay, d->port[FAR]);
    snprintf(d->list, sizeof d->list, "%s=tcp://127.0.0.1:%u,%s=tcp://127.0.0.1:%u", name_of(NEAR), d->port[NEAR],
             name_of(FAR), d->relay.port);
}

void wired_embed(struct wired *d, unsigned which, const char *more)
{
    char url[512];
    snprintf(url, sizeof url,
             "embedded:?pool=64MiB&lock=off&log-level=error&name=%s&listen=tcp://127.0.0.1:%u&peers=%s%s",
             name_of(which), d->port[which], d->list, more);
    if (berth_open(&d->b[which], url, NULL) != 0) {
        struct berth_error_info e;
        berth_error(NULL, &e);
        fail_msg("%s: %s", url, e.sentence);
    }
}

void wired_daemon(struct wired *d, unsigned which, struct daemon *daemon, const char *pool, const char *const *more)
{
    const char *flags[23] = {"--pool",      pool,   "--lock",  "off",   "--name",  name_of(which),
                             "--log-level", "info", "--peers", d->list, "--listen"};
    unsigned n = 11;
    snprintf(d->listen[which], sizeof d->listen[which], "tcp://127.0.0.1:%u", d->port[which]);
    flags[n++] = d->listen[which];
    for (unsigned i = 0; more && more[i]; i++) {
        flags[n++] = more[i];
    }
    flags[n] = NULL;
    daemon_start(daemon, flags);
    d->as[which] = daemon;
    d->b[which] = daemon_open(daemon, "test");
}

static json_t *other_of(struct wired *d, unsigned which)
{
    char *text = NULL;
    json_t *found = NULL, *one;
    size_t i;
    assert_int_equal(berth_query(d->b[which], BERTH_STATUS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(root, "peers"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "name")), name_of(1 - which)) == 0) {
            found = json_incref(one);
        }
    }
    json_decref(root);
    free(text);
    assert_non_null(found);
    return found;
}

void wired_text(struct wired *d, unsigned which, const char *field, char *out, size_t size)
{
    json_t *o = other_of(d, which);
    snprintf(out, size, "%s", json_string_value(json_object_get(o, field)));
    json_decref(o);
}

double wired_number(struct wired *d, unsigned which, const char *field)
{
    json_t *o = other_of(d, which);
    double v = json_number_value(json_object_get(o, field));
    json_decref(o);
    return v;
}

struct wanted {
    struct wired *d;
    unsigned which;
    const char *state;
};

static bool is_so(void *arg)
{
    struct wanted *w = arg;
    char state[32];
    wired_text(w->d, w->which, "state", state, sizeof state);
    return strcmp(state, w->state) == 0;
}

bool wired_is(struct wired *d, unsigned which, const char *state, int timeout_ms)
{
    struct wanted w = {d, which, state};
    return eventually(is_so, &w, timeout_ms);
}

static bool told(void *b)
{
    return daemon_number(b, "home.queued") == 0;
}

void wired_meet(struct wired *d)
{
    assert_true(wired_is(d, NEAR, "up", 20000));
    assert_true(wired_is(d, FAR, "up", 20000));
    assert_true(eventually(told, d->b[NEAR], 20000));
    assert_true(eventually(told, d->b[FAR], 20000));
}

void wired_put(struct wired *d, unsigned which, const char *key, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(d->b[which], key_of(key), data, size, NULL), 0);
    assert_true(eventually(told, d->b[which], 20000));
    free(data);
}

void wired_end(struct wired *d)
{
    relay_all(&d->relay, RELAY_FREE);
    for (unsigned i = 0; i < 2; i++) {
        berth_close(d->b[i]);
        if (d->as[i]) {
            daemon_end(d->as[i]);
        }
    }
    relay_stop(&d->relay);
}
