/* The core alone: put, keep, replace, group, remove, hold, evict, stall, failure, death, restart. */
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

static void with_namespace(struct core *c)
{
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
}

static struct node_status status(struct core *c)
{
    struct node_status s;
    node_status(c->node, &s);
    return s;
}

static void test_put_keeps_and_replaces(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_namespace);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 100, 0), 0);
    uint32_t first = core_find(&c, "a", 0);
    assert_int_equal(core_put(&c, 1, "a", 200, 0), BERTH_KEPT);
    assert_int_equal(core_find(&c, "a", 0), first);
    core_check(&c);
    assert_int_equal(core_put(&c, 1, "a", 100, NS_R), 0);
    uint32_t old = core_find(&c, "a", NS_R);
    c.pinned[old] = 1;
    assert_int_equal(core_put(&c, 1, "a", 300, NS_R), 0);
    assert_true(core_find(&c, "a", NS_R) != old);
    assert_int_equal(word_state(slot_load(&c.headers[old])), SLOT_RETIRED); /* somebody reads the old one */
    core_check(&c);
    c.pinned[old] = 0;
    core_tick(&c, 2000000000);
    assert_int_equal(word_state(slot_load(&c.headers[old])), SLOT_FREE);
    core_check(&c);
    core_close(&c);
}

static void test_group(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    struct msg_token t[3];
    assert_int_equal(core_put(&c, 1, "k1", 10, 0), 0);
    assert_int_equal(core_create(&c, 1, "k1", 10, 0, &t[0]), BERTH_KEPT);
    assert_int_equal(core_create(&c, 1, "k2", 10, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "k3", 70000, 0, &t[1]), 0);
    assert_int_equal(core_create(&c, 1, "k4", 0, 0, &t[2]), 0);
    assert_int_equal(core_find(&c, "k2", 0), SLOT_NONE);
    core_check(&c);
    assert_int_equal(core_put(&c, 1, "k3", 1, 0), 0); /* somebody else was first */
    assert_int_equal(core_seal(&c, 1, t, 3), 1);      /* one was kept */
    assert_true(core_find(&c, "k2", 0) != SLOT_NONE && core_find(&c, "k4", 0) != SLOT_NONE);
    assert_int_equal(c.headers[core_find(&c, "k2", 0)].version, c.headers[core_find(&c, "k4", 0)].version);
    assert_int_equal(core_seal(&c, 1, t, 3), BERTH_ESTALE);
    core_check(&c);
    assert_int_equal(core_create(&c, 1, "twice", 1, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "twice", 1, 0, &t[1]), 0);
    assert_int_equal(core_seal(&c, 1, t, 2), -EINVAL);
    assert_int_equal(core_seal(&c, 1, t, 1), 0);
    assert_int_equal(core_seal(&c, 1, t + 1, 1), 1);
    core_check(&c);
    core_close(&c);
}

static void test_remove_and_hold(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_namespace);
    core_attach(&c, 1);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), -ENOENT);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "a", "x", 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "a", "y", 5000000000), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), BERTH_EHELD);
    assert_int_equal(core_label(&c, 1, MSG_DROP, "a", "z", 0), -ENOENT);
    assert_int_equal(core_label(&c, 1, MSG_DROP, "a", "x", 0), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), BERTH_EHELD);
    core_check(&c);
    core_crash(&c, (uint64_t[]){1}, 1); /* holds survive the node */
    core_attach(&c, 1);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), BERTH_EHELD);
    core_tick(&c, 6000000000); /* y ends by real time */
    assert_int_equal(status(&c).held, 0);
    core_check(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    core_check(&c);
    core_close(&c);
}

static void test_hold_passes_to_the_new_version(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_namespace);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, NS_R), 0);
    uint32_t n = 1, k = 1;
    struct msg_hold *m = (struct msg_hold *)core_message(&c, MSG_HOLD, (uint32_t)sizeof *m + n + k);
    m->ns = NS_R;
    m->key_size = m->label_size = 1;
    m->ttl_ns = 1000000000;
    memcpy(m + 1, "ax", 2);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 0);
    assert_int_equal(core_put(&c, 1, "a", 20, NS_R), 0);
    assert_int_equal(status(&c).held, 1);
    core_check(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", NS_R), BERTH_EHELD);
    core_tick(&c, 2000000000);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", NS_R), 0);
    core_check(&c);
    core_close(&c);
}

/* A3 in the core: small objects fill the pool, larger ones still go in, and no put evicts more than it may. */
static void test_small_objects_make_room(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 256 * MIB, NULL);
    core_attach(&c, 1);
    char key[32];
    for (int i = 0; i < 65536 + 100; i++) {
        snprintf(key, sizeof key, "small-%d", i);
        assert_int_equal(core_put(&c, 1, key, 4096, 0), 0);
    }
    core_check(&c);
    static const uint32_t sizes[] = {64u << 10, MIB, 16 * MIB, 4096};
    for (int s = 0; s < 4; s++) {
        uint64_t bound = s == 3 ? 16 * MIB : sizes[s] * 2 > 2 * MIB ? sizes[s] * 2 : 2 * MIB;
        for (int i = 0; i < 100; i++) {
            uint64_t before = status(&c).counter[NODE_EVICTED_BYTES];
            snprintf(key, sizeof key, "big-%d-%d", s, i);
            int e = core_put(&c, 1, key, sizes[s], 0);
            assert_int_equal(e, 0);
            assert_true(status(&c).counter[NODE_EVICTED_BYTES] - before <= bound);
        }
        core_check(&c);
    }
    core_close(&c);
}

static void test_pinned_pool_refuses_with_figures(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    char key[32];
    for (int i = 0; i < 16384; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 4096, 0), 0);
        c.pinned[core_find(&c, key, 0)] = i % 2;
    }
    assert_int_equal(core_put(&c, 1, "large", 64u << 10, 0), BERTH_EFULL);
    const struct msg_reply *r = core_reply(&c, c.next_id);
    assert_int_equal(r->counter, 64u << 10);
    assert_int_equal(r->figure[1], 8192 * 4096);
    assert_int_equal(core_put(&c, 1, "small", 4096, 0), 0); /* the unpinned half may go */
    core_check(&c);
    memset(c.pinned, 0, c.super.max_headers);
    assert_int_equal(core_put(&c, 1, "large", 64u << 10, 0), 0);
    core_check(&c);
    core_close(&c);
}

static void low_watermark(struct core *c)
{
    c->config.high_bytes = 100 * 4096;
    c->config.low_bytes = 90 * 4096;
}

static void test_watermark_evicts_the_oldest(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, low_watermark);
    core_attach(&c, 1);
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 1, 0), 0);
    }
    assert_int_equal(status(&c).objects, 100);
    uint32_t used = core_find(&c, "k0", 0);
    core_event(&c, (struct node_event){.kind = EV_TOUCH, .session = 1, .slots = &used, .n_slots = 1});
    c.pinned[core_find(&c, "k1", 0)] = 1;
    assert_int_equal(core_put(&c, 1, "k100", 1, 0), 0);
    core_turn(&c);
    assert_int_equal(status(&c).objects, 90);
    assert_true(core_find(&c, "k0", 0) != SLOT_NONE && core_find(&c, "k1", 0) != SLOT_NONE);
    assert_true(core_find(&c, "k2", 0) == SLOT_NONE && core_find(&c, "k99", 0) != SLOT_NONE);
    core_check(&c);
    core_close(&c);
}

static void test_pending_key_stalls(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    core_attach(&c, 2);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, "a", 1, 0), 1000);
    assert_int_equal(core_put(&c, 2, "a", 2, 0), 1000);
    assert_false(node_session_ready(c.node, 2));
    uint64_t second = c.next_id;
    c.fail_commits = 1; /* the first put's commit fails: the second is decided anew, and wins */
    core_commit(&c);
    core_turn(&c);
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(core_reply(&c, second - 2)->status, BERTH_EINDEXFULL);
    assert_int_equal(core_reply(&c, second)->status, 0);
    assert_int_equal(c.headers[core_find(&c, "a", 0)].size, 2);
    core_check(&c);
    core_close(&c);
}

static void test_death_and_quarantine(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    struct msg_token t;
    for (uint64_t s = 1; s <= 10; s++) {
        core_attach(&c, s);
        assert_int_equal(core_create(&c, s, "k", 4 * MIB, 0, &t), 0);
        core_event(&c, (struct node_event){.kind = EV_DEAD, .session = s, .status = s % 2});
        core_turn(&c);
        assert_int_equal(word_state(slot_load(&c.headers[t.slot])), s % 2 ? SLOT_FREE : SLOT_WRITING);
        core_check(&c);
        core_tick(&c, 1100000000);
        assert_int_equal(word_state(slot_load(&c.headers[t.slot])), SLOT_FREE);
        core_check(&c);
    }
    assert_int_equal(status(&c).counter[NODE_ABORTED_WRITES], 10);
    assert_int_equal(c.closed, 10);
    assert_int_equal(status(&c).draft_bytes, 0);
    core_close(&c);
}

static void test_restart_keeps_what_lives(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    core_attach(&c, 2);
    char key[KEY_MAX + 1];
    memset(key, 'q', KEY_MAX);
    key[KEY_MAX] = 0;
    assert_int_equal(core_put(&c, 1, key, 5, 0), 0);
    assert_int_equal(core_put(&c, 1, "b", 5, 0), 0);
    struct msg_token t, lost, u;
    assert_int_equal(core_create(&c, 1, "draft", 5, 0, &t), 0);
    assert_int_equal(core_create(&c, 2, "lost", 5, 0, &lost), 0);
    assert_int_equal(core_grant(&c, 1, 5, &u), 0);
    c.hold_commits = true;
    assert_int_equal(core_put_token(&c, 1, &u, "in flight", 5, 0), 1000);
    assert_int_equal(lmdb_ops.commit(c.index, c.flying), 0); /* committed, but never projected */
    c.hold_commits = false;
    core_crash(&c, (uint64_t[]){1}, 1);
    core_check(&c);
    core_attach(&c, 1);
    assert_true(core_find(&c, key, 0) != SLOT_NONE && core_find(&c, "b", 0) != SLOT_NONE);
    assert_true(core_find(&c, "in flight", 0) == u.slot);
    assert_int_equal(core_seal(&c, 1, &t, 1), 0); /* the draft of a client that lives is still its own */
    core_tick(&c, 1100000000);
    assert_int_equal(word_state(slot_load(&c.headers[lost.slot])), SLOT_FREE);
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_keeps_and_replaces),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_remove_and_hold),
        cmocka_unit_test(test_hold_passes_to_the_new_version),
        cmocka_unit_test(test_small_objects_make_room),
        cmocka_unit_test(test_pinned_pool_refuses_with_figures),
        cmocka_unit_test(test_watermark_evicts_the_oldest),
        cmocka_unit_test(test_pending_key_stalls),
        cmocka_unit_test(test_death_and_quarantine),
        cmocka_unit_test(test_restart_keeps_what_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
