/* Row 4 of the field's failures: a transfer that is given up is not over. The caller's buffer is its own as soon as the
 * call returns: what comes later lands nowhere. At the owner the slot stays in use until the transfer has ended, though
 * the object is removed and the lease over.
 */
#include "tests/support/wired.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define SIZE (6 * MIB)
#define MS INT64_C(1000000)

static struct wired d;
static uint8_t *buffer;

static int setup(void **unused)
{
    (void)unused;
    buffer = malloc(SIZE);
    wired_init(&d);
    wired_embed(&d, FAR, "&lease=500ms");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    return buffer ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    wired_end(&d);
    free(buffer);
    return 0;
}

static bool serves_nothing(void *b)
{
    return daemon_number(b, "remote.serving") == 0;
}

static bool is_filled_with(uint8_t byte)
{
    for (size_t i = 0; i < SIZE; i++) {
        if (buffer[i] != byte) {
            return false;
        }
    }
    return true;
}

/* Into the caller's memory, given up after different times; every byte that comes later would show. */
static void test_buffer_is_quiet(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {SIZE, MIB, 20000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        wired_put(&d, FAR, key, sizes[i]);
    }
    for (unsigned i = 0; i < 12; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i % 3);
        int64_t slow = 2000000 / (1 + 20 * (i % 3));
        relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, i % 4 == 3 ? RELAY_HOLD : slow);
        long rc =
            berth_get_into(d.b[NEAR], key_of(key), buffer, SIZE, BERTH_PEERS, berth_deadline((30 + 40 * (i % 5)) * MS));
        memset(buffer, 0x5a, SIZE); /* it is the caller's again */
        assert_true(rc == -ETIMEDOUT || rc == BERTH_ENOTNOW || rc == BERTH_EUNSURE || rc == (long)sizes[i % 3]);
        relay_all(&d.relay, RELAY_FREE);
        assert_true(eventually(serves_nothing, d.b[FAR], 20000));
        assert_true(is_filled_with(0x5a));
        assert_true(wired_is(&d, NEAR, "up", 20000));
    }
    assert_true(berth_get_into(d.b[NEAR], key_of("k0"), buffer, SIZE, BERTH_PEERS, berth_deadline(20000 * MS)) == SIZE);
    assert_true(payload_is(buffer, SIZE, "k0"));
}

/* A replica's slot that was given up is another object's next: the late bytes must not be in that one. */
static void test_replica_slot_is_quiet(void **unused)
{
    (void)unused;
    struct berth_view v;
    wired_put(&d, FAR, "far", SIZE);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 1000000);
    for (unsigned i = 0; i < 6; i++) {
        char key[16];
        int rc = berth_get(d.b[NEAR], key_of("far"), &v, BERTH_PEERS, berth_deadline(150 * MS));
        assert_true(rc < 0);
        snprintf(key, sizeof key, "near%u", i);
        uint8_t *data = malloc(SIZE);
        assert_non_null(data);
        payload_fill(data, SIZE, key);
        assert_int_equal(berth_put(d.b[NEAR], key_of(key), data, SIZE, NULL), 0);
        free(data);
    }
    relay_all(&d.relay, RELAY_FREE);
    assert_true(eventually(serves_nothing, d.b[FAR], 20000));
    for (unsigned i = 0; i < 6; i++) {
        char key[16];
        snprintf(key, sizeof key, "near%u", i);
        assert_int_equal(berth_get(d.b[NEAR], key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
        assert_true(payload_is(v.data, v.size, key));
        berth_release(d.b[NEAR], &v, 1);
    }
}

struct slow_get {
    pthread_t thread;
    long rc;
};

static void *get(void *arg)
{
    struct slow_get *g = arg;
    g->rc = berth_get_into(d.b[NEAR], key_of("kept"), buffer, SIZE, BERTH_PEERS, berth_deadline(20000 * MS));
    return NULL;
}

static bool serves(void *b)
{
    return daemon_number(b, "remote.serving") >= 1;
}

/* Nothing gets through any more, the lease is over and the object removed; its memory is not given to the next ones as
 * long as the transfer stands. */
static void test_slot_is_kept(void **unused)
{
    (void)unused;
    struct slow_get g;
    wired_put(&d, FAR, "kept", SIZE);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 1000000);
    assert_int_equal(pthread_create(&g.thread, NULL, get, &g), 0);
    assert_true(eventually(serves, d.b[FAR], 20000));
    assert_int_equal(berth_remove(d.b[FAR], key_of("kept"), NULL), 0);
    relay_rate(&d.relay, RELAY_CONTROL, RELAY_OUT, RELAY_HOLD); /* no renewal, and no word that it has it all */
    int64_t until = berth_deadline(1500 * MS);
    while (berth_deadline(0) < until) {
        if (daemon_number(d.b[FAR], "remote.serving") >= 1) {
            assert_true(daemon_number(d.b[FAR], "slots.retired") >= 1);
        }
    }
    assert_int_equal(daemon_number(d.b[FAR], "remote.serving"), 1);
    daemon_retired(d.b[FAR], 1);
    relay_all(&d.relay, RELAY_FREE);
    pthread_join(g.thread, NULL);
    assert_true(g.rc < 0 || (g.rc == SIZE && payload_is(buffer, SIZE, "kept")));
    assert_true(eventually(serves_nothing, d.b[FAR], 20000));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_buffer_is_quiet), T(test_replica_slot_is_quiet), T(test_slot_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
