/* Slots that are retired while scans are long: they gather, share a scan, and nobody who needs them waits for it. */
#include "tests/support/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define MS INT64_C(1000000)

static struct node_status status(const struct core *c)
{
    struct node_status st;
    node_status(c->node, &st);
    return st;
}

static void open_with(struct core *c, int64_t scan_ns, unsigned objects)
{
    char key[16];
    core_open(c, 16 * MIB, NULL);
    core_attach(c, 1);
    for (unsigned i = 0; i < objects; i++) {
        snprintf(key, sizeof key, "%u", i);
        assert_int_equal(core_put(c, 1, key, 1, 0), 0);
    }
    c->scan_ns = scan_ns;
}

static void remove_some(struct core *c, unsigned first, unsigned count)
{
    char key[16];
    for (unsigned i = first; i < first + count; i++) {
        snprintf(key, sizeof key, "%u", i);
        assert_int_equal(core_key(c, 1, MSG_REMOVE, key, 0), 0);
    }
}

static void test_short_scans_follow_each_other(void **state)
{
    (void)state;
    struct core c;
    open_with(&c, MS / 20, 10);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t before = status(&c).counter[NODE_SCANS];
        remove_some(&c, i, 1);
        assert_int_equal(status(&c).counter[NODE_SCANS], before + 1);
        assert_int_equal(status(&c).retired, 0);
    }
    core_close(&c);
}

static void test_long_scans_are_shared(void **state)
{
    (void)state;
    struct core c;
    open_with(&c, MS, 300);
    remove_some(&c, 0, 1);
    assert_int_equal(status(&c).retired, 0);
    uint64_t before = status(&c).counter[NODE_SCANS];
    int64_t at = c.now.mono;
    remove_some(&c, 1, 200);
    assert_true(c.now.mono < at + MS); /* no scan */
    assert_int_equal(status(&c).retired, 200);
    assert_in_range(node_timer(c.node), at + 14 * MS, at + 16 * MS);
    core_tick(&c, 13 * MS);
    assert_int_equal(status(&c).retired, 200);
    core_tick(&c, 3 * MS);
    assert_int_equal(status(&c).retired, 0);
    assert_int_equal(status(&c).counter[NODE_SCANS], before + 1);
    c.scan_ns = 100 * MS; /* however long one was */
    core_tick(&c, 20 * MS);
    remove_some(&c, 201, 1);
    at = c.now.mono;
    remove_some(&c, 202, 1);
    assert_in_range(node_timer(c.node), at + 49 * MS, at + 50 * MS);
    core_tick(&c, 50 * MS);
    assert_int_equal(status(&c).retired, 0);
    core_check(&c);
    core_close(&c);
}

/* One that waits for memory finds what gathers, and evicts nothing. */
static void test_who_needs_them_does_not_wait(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t;
    open_with(&c, MS, 0);
    assert_int_equal(core_create(&c, 1, "half", 8 * MIB, 0, &t), 0);
    assert_int_equal(core_seal(&c, 1, &t, 1), 0);
    assert_int_equal(core_put(&c, 1, "small", 1, 0), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "small", 0), 0); /* a scan of a millisecond */
    int64_t at = c.now.mono;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "half", 0), 0);
    assert_int_equal(status(&c).retired, 1);
    assert_true(c.now.mono < at + MS);
    assert_int_equal(core_create(&c, 1, "more", 8 * MIB, 0, &t), 0);
    assert_int_equal(core_seal(&c, 1, &t, 1), 0);
    assert_int_equal(core_create(&c, 1, "other", 4 * MIB, 0, &t), 0);
    assert_true(c.now.mono < at + 14 * MS);
    assert_int_equal(status(&c).counter[NODE_EVICTED], 0);
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_scans_follow_each_other),
        cmocka_unit_test(test_long_scans_are_shared),
        cmocka_unit_test(test_who_needs_them_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
