/* EV_DROP_COPY: a copy goes if it still has the version that was named, in use or not. */
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void drop(struct core *c, const char *key, uint64_t counter, uint64_t region)
{
    core_event(
        c, (struct node_event){.kind = EV_DROP_COPY, .key = lease_key(key, 0), .counter = counter, .region = region});
}

static void settle(struct core *c)
{
    for (int i = 0; i < 8; i++) {
        core_turn(c);
    }
    core_check(c);
}

static void test_version_decides(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    uint64_t counter = c.headers[slot].version;
    drop(&c, "a", counter + 1, 7);
    drop(&c, "a", counter, 8);
    drop(&c, "b", counter, 7);
    core_event(&c, (struct node_event){.kind = EV_DROP_COPY, .counter = counter, .region = 7});
    settle(&c);
    assert_int_equal(core_find(&c, "a", 0), slot);
    drop(&c, "a", counter, 7);
    drop(&c, "a", counter, 7); /* while the first is not committed */
    settle(&c);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    assert_int_equal(core_status(&c).counter[NODE_COPIES_DROPPED], 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    core_close(&c);
}

static void test_leased(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t word;
    assert_true(node_leased(c.node, slot, &word));
    assert_int_equal(word, slot_load(&c.headers[slot]));
    assert_false(node_leased(c.node, slot + 1, &word));
    assert_false(node_leased(c.node, UINT32_MAX, &word));
    drop(&c, "a", c.headers[slot].version, 7);
    settle(&c);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    lease_release(&c, 1, grants[0].lease, 0);
    settle(&c);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    assert_false(node_leased(c.node, slot, &word));
    core_close(&c);
}

/* Damaged is damaged: a hold keeps no bytes that are wrong, and its end finds nothing to do. */
static void test_held(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "a", "x", 5 * SECOND), 0);
    assert_int_equal(core_status(&c).held, 1);
    drop(&c, "a", c.headers[slot].version, 7);
    settle(&c);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    assert_int_equal(core_status(&c).held, 0);
    assert_int_equal(core_status(&c).counter[NODE_HOLDS_LOST], 1); /* and it shows */
    assert_int_equal(node_holds_lost(c.node), 1);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    core_tick(&c, 6 * SECOND);
    settle(&c);
    assert_true(core_find(&c, "a", 0) != SLOT_NONE);
    core_close(&c);
}

static void test_failing_commit(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    c.fail_commits = 1;
    drop(&c, "a", c.headers[slot].version, 7);
    settle(&c);
    assert_int_equal(core_state(&c, slot), SLOT_FREE); /* it goes with the next */
    core_close(&c);
}

/* No create, put or seal is kept on what an uncommitted effect takes away. */
static void test_nothing_is_kept_on_it(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token granted, made;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    core_attach(&c, 2);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    assert_int_equal(core_grant(&c, 1, 5000, &granted), 0);
    c.hold_commits = true;
    drop(&c, "a", c.headers[core_find(&c, "a", 0)].version, 7);
    core_turn(&c);
    assert_int_equal(core_create(&c, 2, "a", 100, 0, &made), 1000);
    uint64_t create = c.next_id;
    assert_int_equal(core_put_token(&c, 1, &granted, "a", 5000, 0), 1000);
    uint64_t put = c.next_id;
    c.hold_commits = false;
    core_commit(&c);
    settle(&c);
    assert_non_null(core_reply(&c, create));
    assert_int_equal(core_reply(&c, create)->status, 0);
    assert_non_null(core_reply(&c, put));
    assert_int_equal(core_reply(&c, put)->status, 0);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_decides),
        cmocka_unit_test(test_leased),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_failing_commit),
        cmocka_unit_test(test_nothing_is_kept_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
