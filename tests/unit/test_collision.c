/* test_collision.c: keys that are not the same and have one 64-bit hash: refused as such, never taken for each other.
 */
#include "tests/support/collide.h"
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};
static char victim[COLLIDE_BYTES + 1], crafted[3][COLLIDE_BYTES + 1];

static void with_namespace(struct core *c)
{
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
}

static void begin(struct core *c, uint32_t ns)
{
    core_open(c, 16 * MIB, with_namespace);
    core_attach(c, 1);
    collide_texts(victim, crafted, c->super.hash_seed, ns);
    struct key_ref key = {.data = victim, .size = COLLIDE_BYTES, .ns = ns};
    struct key_hash hash = lookup_hash(c->super.hash_seed, key);
    for (unsigned i = 0; i < 3; i++) {
        struct key_ref other = {.data = crafted[i], .size = COLLIDE_BYTES, .ns = ns};
        assert_true(lookup_hash(c->super.hash_seed, other).home == hash.home);
        assert_memory_not_equal(crafted[i], victim, COLLIDE_BYTES);
    }
}

static void again(struct core *c)
{
    core_crash(c, (uint64_t[]){1}, 1);
    core_attach(c, 1);
    core_check(c);
}

static void test_put(void **state)
{
    (void)state;
    struct core c;
    for (unsigned replaces = 0; replaces < 2; replaces++) {
        uint32_t ns = replaces ? NS_R : 0;
        begin(&c, ns);
        assert_int_equal(core_put(&c, 1, victim, 100, ns), 0);
        uint32_t slot = core_find(&c, victim, ns);
        for (int round = 0; round < 2; round++) {
            for (unsigned i = 0; i < 3; i++) {
                assert_int_equal(core_put(&c, 1, crafted[i], 50, ns), BERTH_EHASH);
                assert_int_equal(core_find(&c, crafted[i], ns), SLOT_NONE);
                assert_int_equal(core_key(&c, 1, MSG_REMOVE, crafted[i], ns), -ENOENT);
                assert_int_equal(core_key(&c, 1, MSG_FIND, crafted[i], ns), -ENOENT);
            }
            assert_int_equal(core_find(&c, victim, ns), slot);
            assert_int_equal(core_key(&c, 1, MSG_FIND, victim, ns), 0);
            core_check(&c);
            again(&c);
        }
        assert_int_equal(core_key(&c, 1, MSG_REMOVE, victim, ns), 0);
        assert_int_equal(core_put(&c, 1, crafted[1], 50, ns), 0); /* the hash is free again */
        assert_int_equal(core_put(&c, 1, victim, 100, ns), BERTH_EHASH);
        assert_int_equal(core_find(&c, victim, ns), SLOT_NONE);
        again(&c);
        assert_true(core_find(&c, crafted[1], ns) != SLOT_NONE);
        core_close(&c);
    }
}

static void test_holds(void **state)
{
    (void)state;
    struct core c;
    begin(&c, 0);
    assert_int_equal(core_put(&c, 1, victim, 100, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, crafted[0], "x", 0), -ENOENT);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, victim, "x", 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_DROP, crafted[2], "x", 0), -ENOENT);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, victim, 0), BERTH_EHELD);
    again(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, victim, 0), BERTH_EHELD);
    core_close(&c);
}

/* Of one group: it says what is wrong with it, and leaves its drafts. */
static void test_group(void **state)
{
    (void)state;
    struct core c;
    begin(&c, 0);
    struct msg_token t[3];
    assert_int_equal(core_create(&c, 1, victim, 10, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "another", 10, 0, &t[1]), 0);
    assert_int_equal(core_create(&c, 1, crafted[0], 10, 0, &t[2]), 0);
    assert_int_equal(core_seal(&c, 1, t, 3), BERTH_EHASH);
    assert_int_equal(core_find(&c, victim, 0), SLOT_NONE);
    assert_int_equal(core_find(&c, "another", 0), SLOT_NONE);
    core_check(&c);
    assert_int_equal(core_seal(&c, 1, t, 2), 0);
    assert_int_equal(core_seal(&c, 1, t + 2, 1), BERTH_EHASH);
    core_check(&c);
    assert_int_equal(core_create(&c, 1, "twice", 1, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "twice", 1, 0, &t[1]), 0);
    assert_int_equal(core_seal(&c, 1, t, 2), -EINVAL); /* one key is another mistake */
    core_close(&c);
}

/* The first is at the committer: the second waits, and is refused by what came of it. */
static void test_pending(void **state)
{
    (void)state;
    struct core c;
    begin(&c, 0);
    struct msg_token t;
    assert_int_equal(core_grant(&c, 1, 10, &t), 0);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, victim, 10, 0), 1000);
    assert_int_equal(core_put_token(&c, 1, &t, crafted[0], 10, 0), 1000);
    uint64_t id = c.next_id;
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_non_null(core_reply(&c, id));
    assert_int_equal(core_reply(&c, id)->status, BERTH_EHASH);
    assert_true(core_find(&c, victim, 0) != SLOT_NONE);
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_holds),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
