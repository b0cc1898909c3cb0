/* Case A1: clients that die, or close, between create and seal leave no space booked. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OBJECT (8u << 20)
#define ROUNDS 50

static struct daemon d;

static int unfinished(void *arg)
{
    bool killed = arg;
    struct berth *b = NULL;
    struct berth_draft draft;
    struct berth_put_opts o = {.size = sizeof o, .deadline = berth_deadline(20000000000)};
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(berth_create(b, key_of("unfinished"), OBJECT, &o, &draft) == 0);
    memset(draft.data, 'x', OBJECT / 2);
    if (killed) {
        raise(SIGKILL);
    }
    berth_close(b);
    return 0;
}

static bool all_aborted(void *arg)
{
    return daemon_number(arg, "counters.aborted_writes") == ROUNDS;
}

static void rounds(bool killed)
{
    const char *extra[] = {"--pool", "64MiB", "--quarantine", "200ms", NULL};
    daemon_start(&d, extra);
    struct berth *b = daemon_open(&d, "parent");
    assert_int_equal(berth_put(b, key_of("sealed"), "kept", 4, NULL), 0);
    double baseline = daemon_number(b, "pool.used_bytes");
    for (int i = 0; i < ROUNDS; i++) {
        struct child c;
        child_start(&c, unfinished, (void *)(uintptr_t)killed);
        assert_int_equal(child_wait(&c), killed ? 128 + SIGKILL : 0);
    }
    assert_true(eventually(all_aborted, b, 10000));
    assert_int_equal(daemon_number(b, "pool.used_bytes"), baseline);
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of("unfinished"), &v, 0, BERTH_FOREVER), -ENOENT);
    char *data = malloc(OBJECT), key[16];
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "whole-%d", i);
        payload_fill(data, OBJECT, key);
        assert_int_equal(berth_put(b, key_of(key), data, OBJECT, NULL), 0);
    }
    free(data);
    assert_int_equal(daemon_number(b, "counters.evicted"), 0);
    assert_int_equal(berth_get(b, key_of("sealed"), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
    berth_release(b, &v, 1);
    berth_close(b);
    daemon_end(&d);
}

static void test_killed(void **state)
{
    (void)state;
    rounds(true);
}

static void test_closed(void **state)
{
    (void)state;
    rounds(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed), cmocka_unit_test(test_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
