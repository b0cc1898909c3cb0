/* Leases in the core: bounds and recall, what no peer may say, the horizon over a restart. */
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- bounds ---- */

static void small_bounds(struct core *c)
{
    lease_options(c);
    c->config.lease.peer_bytes = 10 * 4096;
    c->config.lease.idle_bytes = 4 * 4096;
    c->config.lease.max_leases = 20;
    c->config.lease.peer_leases = 12;
    c->config.lease.max_serves = 2;
}

static void put_many(struct core *c, int count)
{
    char key[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(c, 1, key, 1, 0), 0);
    }
}

static void test_quota(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    core_open(&c, 64 * MIB, small_bounds);
    core_attach(&c, 1);
    put_many(&c, 30);
    assert_int_equal(core_put(&c, 1, "large", MIB, 0), 0);
    assert_int_equal(lease_one(&c, 5, "large"), 0); /* above the bound, alone */
    assert_int_equal(lease_one(&c, 5, "k0"), BERTH_EQUOTA);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease_one(&c, 1, key), 0);
    }
    assert_int_equal(lease_one(&c, 1, "k11"), BERTH_EQUOTA);
    assert_int_equal(grants[0].figure[0], 4096);
    assert_int_equal(grants[0].figure[1], 10 * 4096);
    assert_int_equal(grants[0].figure[2], 10 * 4096);
    for (int i = 0; i < 9; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease_one(&c, 2, key), 0);
    }
    assert_int_equal(lease_one(&c, 2, "k9"), BERTH_EQUOTA); /* the table is full */
    assert_int_equal(grants[0].figure[1], 20);
    core_tick(&c, HOLD);
    assert_int_equal(lease_one(&c, 1, "k11"), 0);
    assert_int_equal(lease_serve(&c, 1, grants[0].lease, 1), 0);
    assert_int_equal(lease_serve(&c, 1, grants[0].lease, 2), 0);
    assert_int_equal(lease_serve(&c, 1, grants[0].lease, 3), -EAGAIN);
    core_close(&c);
}

static void test_recall(void **unused)
{
    (void)unused;
    struct core c;
    uint64_t id[8];
    char key[32];
    core_open(&c, 64 * MIB, small_bounds);
    core_attach(&c, 1);
    put_many(&c, 30);
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease_one(&c, (uint16_t)(1 + i % 2), key), 0);
        id[i] = grants[0].lease;
    }
    assert_int_equal(n_recalled, 0); /* all are in flight */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lease_renew(&c, (uint16_t)(1 + i % 2), id[i], false), 0);
    }
    assert_int_equal(n_recalled, 0); /* at the bound */
    assert_int_equal(lease_renew(&c, 1, id[4], false), 0);
    assert_int_equal(n_recalled, 1); /* the oldest idle one */
    assert_int_equal(recalled_ids[0], id[0]);
    assert_int_equal(recalled.peer, 1);
    assert_int_equal(core_status(&c).leased_idle_bytes, 5 * 4096);
    assert_int_equal(lease_renew(&c, 1, id[0], false), BERTH_ESTALE);
    assert_int_equal(lease_renew(&c, 1, id[0], true), 0); /* a transfer that had just begun */
    assert_int_equal(lease_renew(&c, 2, id[1], true), 0); /* in flight again: idle no longer */
    assert_int_equal(lease_renew(&c, 2, id[5], false), 0);
    assert_int_equal(n_recalled, 1);
    /* What is served from a slot keeps its lease busy; it is idle when that has ended. */
    assert_int_equal(lease_serve(&c, 1, id[6], 1), 0);
    lease_done(&c, 1, 1, false);
    assert_int_equal(n_recalled, 2);
    assert_int_equal(recalled_ids[1], id[2]);
    uint64_t idle = core_status(&c).leased_idle_bytes;
    assert_int_equal(lease_serve(&c, 2, id[3], 2), 0); /* an idle one is busy while something is served from it */
    assert_int_equal(core_status(&c).leased_idle_bytes, idle - 4096);
    lease_done(&c, 2, 2, false);
    assert_int_equal(core_status(&c).leased_idle_bytes, idle);
    /* A peer over its bound is asked for its own. */
    for (int i = 10; i < 16; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease_one(&c, 2, key), 0);
    }
    assert_int_equal(lease_one(&c, 2, "k20"), BERTH_EQUOTA);
    assert_int_equal(n_recalled, 3);
    assert_int_equal(recalled.peer, 2);
    assert_int_equal(recalled_ids[2], id[3]);
    core_close(&c);
}

static void test_hostile_words(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    const uint64_t bad[] = {0, 1, id ^ 1, id + (1u << 24), id - (1u << 24), UINT64_MAX, id ^ UINT64_C(1) << 63};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lease_renew(&c, 1, bad[i], true), BERTH_ESTALE);
        assert_int_equal(lease_serve(&c, 1, bad[i], 3), BERTH_ESTALE);
        lease_release(&c, 1, bad[i], UINT32_MAX);
    }
    lease_release(&c, 2, id, 1); /* another peer's */
    assert_int_equal(core_status(&c).leases, 1);
    struct key_ref k = lease_key("a", 0);
    const struct lease_event events[] = {
        {.peer = 1, .keys = &k, .n = 0},
        {.peer = 1, .keys = &k, .n = LEASE_KEYS_MAX + 1},
        {.peer = 1, .keys = &k, .n = 1, .flags = 1},
        {.peer = 1, .n = 1},
    };
    for (unsigned i = 0; i < 4; i++) {
        lease_give(&c, EV_LEASE, events[i]);
        assert_int_equal(leased.status, -EINVAL);
        assert_int_equal(leased.n, 0);
        lease_give(&c, EV_RELEASE, (struct lease_event){.peer = 1, .n = events[i].n});
        lease_give(&c, EV_SERVE_BEGIN, (struct lease_event){.peer = 1, .n = events[i].n});
    }
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1, .ttl_ns = INT64_MAX});
    assert_int_equal(grants[0].duration_ns, 30 * SECOND);
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1, .ttl_ns = INT64_MIN});
    assert_int_equal(grants[0].duration_ns, 5 * SECOND);
    lease_release(&c, 1, id, UINT32_MAX);
    lease_release(&c, 1, id, 1); /* an id is used up */
    assert_int_equal(core_status(&c).counter[NODE_LEASE_RELEASES], 1);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    assert_true(grants[0].lease != id);
    core_close(&c);
}

/* ---- the horizon ---- */

static void test_answer_waits_for_the_horizon(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lmdb_ops.meta(c.index, META_LEASE_HORIZON), 0);
    c.hold_commits = true;
    struct key_ref k = lease_key("a", 0);
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1});
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 2, .keys = &k, .n = 1});
    assert_int_equal(n_leased, 0);
    lease_give(&c, EV_PEER_GONE, (struct lease_event){.peer = 2}); /* nobody to answer to any more */
    assert_int_equal(core_put(&c, 1, "b", 1, 0), 1000);
    c.fail_commits = 1; /* a put fails it: it goes again */
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(n_leased, 0);
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(n_leased, 1);
    assert_int_equal(grants[0].status, 0);
    assert_int_equal(core_status(&c).leases, 1);
    c.hold_commits = false;
    int64_t horizon = (int64_t)lmdb_ops.meta(c.index, META_LEASE_HORIZON);
    assert_true(horizon >= c.now.boot + HOLD);
    uint64_t commits = core_status(&c).counter[NODE_COMMITS];
    assert_int_equal(lease_one(&c, 1, "a"), 0); /* covered: no commit for each */
    assert_int_equal(core_status(&c).counter[NODE_COMMITS], commits);
    for (int i = 0; i < 100; i++) { /* and it is moved ahead of need while leases are out */
        core_tick(&c, SECOND);
        assert_int_equal(lease_one(&c, 1, "a"), 0);
        assert_true((int64_t)lmdb_ops.meta(c.index, META_LEASE_HORIZON) >= c.now.boot + HOLD);
    }
    assert_in_range(core_status(&c).counter[NODE_COMMITS] - commits, 10, 50);
    core_close(&c);
}

static void test_index_that_takes_no_commit(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    c.fail_commits = 4;
    assert_int_equal(lease_one(&c, 1, "a"), -EAGAIN);
    assert_int_equal(core_status(&c).leases, 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    core_close(&c);
}

/* Moving the horizon ahead of need must not become a commit a turn where none succeeds. */
static void test_failing_commits_do_not_spin(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    c.fail_commits = 100000;
    core_tick(&c, 4 * SECOND);
    assert_int_equal(lease_renew(&c, 1, grants[0].lease, true), 0); /* the horizon still reaches that far */
    assert_true(core_status(&c).counter[NODE_COMMIT_FAILED] > 0);
    uint64_t commits = core_status(&c).counter[NODE_COMMITS];
    for (int i = 0; i < 10; i++) {
        core_turn(&c);
    }
    assert_in_range(core_status(&c).counter[NODE_COMMITS] - commits, 0, 1);
    c.fail_commits = 0;
    core_tick(&c, 2 * SECOND);
    assert_int_equal(lease_renew(&c, 1, grants[0].lease, true), 0);
    core_close(&c);
}

static int32_t put_waiting(struct core *c, const char *key, uint32_t size)
{
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + 1);
    m->head.deadline = c->now.mono + 1000 * SECOND;
    m->object = (struct msg_object){.size = size, .key_size = 1};
    memcpy(m + 1, key, 1);
    const struct msg_reply *r = core_request(c, 1, &m->head);
    return r ? r->status : 1000;
}

/* After SIGKILL: what was in use is not used again before the horizon, whoever removes it; what was free is. */
static void test_restart_with_leases(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    core_open(&c, 4 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, NS_R), 0);
    assert_int_equal(core_put(&c, 1, "b", 2 * MIB, 0), 0);
    assert_int_equal(core_create(&c, 1, "draft", 10, 0, &t), 0);
    uint32_t a = core_find(&c, "a", NS_R), b = core_find(&c, "b", 0);
    assert_int_equal(lease_ns(&c, 1, "a", NS_R), 0);
    uint64_t id = grants[0].lease;
    core_crash(&c, (uint64_t[]){1}, 1);
    core_attach(&c, 1);
    core_check(&c);
    int64_t closed = core_status(&c).closed_ns;
    assert_true(closed >= HOLD && closed <= 3 * HOLD);   /* what was promised, and no more than a step beyond */
    assert_int_equal(core_put(&c, 1, "a", 20, NS_R), 0); /* the class has free slots */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "b", 0), 0);
    assert_int_equal(core_state(&c, a), SLOT_RETIRED);
    assert_int_equal(core_state(&c, b), SLOT_RETIRED);
    assert_int_equal(lease_renew(&c, 1, id, true), BERTH_ESTALE); /* of another incarnation */
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, (uint32_t)(sizeof *m + sizeof t));
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    assert_int_equal(core_state(&c, t.slot), SLOT_RETIRED);
    core_check(&c);
    assert_int_equal(core_put(&c, 1, "c", 2 * MIB, 0), BERTH_EFULL); /* no longer than an eviction takes */
    assert_int_equal(put_waiting(&c, "c", 2 * MIB), 1000);
    uint64_t waits = c.next_id;
    assert_int_equal(lease_ns(&c, 1, "a", NS_R), 0);
    core_tick(&c, core_status(&c).closed_ns - 10000);
    assert_int_equal(core_state(&c, a), SLOT_RETIRED);
    assert_null(core_reply(&c, waits));
    core_check(&c);
    core_tick(&c, SECOND);
    assert_int_equal(core_state(&c, a), SLOT_FREE);
    assert_int_equal(core_state(&c, t.slot), SLOT_FREE);
    assert_int_equal(core_status(&c).closed_ns, 0);
    assert_non_null(core_reply(&c, waits));
    assert_int_equal(core_reply(&c, waits)->status, 0);
    core_check(&c);
    core_close(&c);
}

static void stop(struct core *c)
{
    core_event(c, (struct node_event){.kind = EV_STOP});
    core_turn(c);
    assert_int_equal(lease_one(c, 1, "a"), BERTH_ENODE);
    c->config.clean = true;
    core_crash(c, NULL, 0);
    c->config.clean = false;
}

static void test_clean_stop(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    core_crash(&c, NULL, 0);
    assert_int_equal(core_status(&c).closed_ns, 0); /* no peer was ever served */
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    stop(&c);
    assert_true(core_status(&c).closed_ns >= HOLD); /* a lease was out */
    stop(&c);
    assert_true(core_status(&c).closed_ns > 0); /* and the next clean stop does not forget it */
    core_tick(&c, 120 * SECOND);
    assert_int_equal(core_status(&c).closed_ns, 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    lease_release(&c, 1, grants[0].lease, 1);
    stop(&c);
    assert_int_equal(core_status(&c).closed_ns, 0); /* all was given back */
    core_close(&c);
}

/* A horizon that no node can have written delays, and not for ever. */
static void test_horizon_that_can_not_be(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    struct batch *b = batch_create();
    batch_meta(b, META_LEASE_HORIZON, UINT64_MAX - 5);
    assert_int_equal(lmdb_ops.commit(c.index, b), 0);
    batch_destroy(b);
    core_crash(&c, NULL, 0);
    assert_in_range(core_status(&c).closed_ns, 100 * SECOND, 120 * SECOND);
    core_close(&c);
}

static void test_configuration(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    struct node *n;
    static const struct lease_config bad[] = {{.ttl_max_ns = LEASE_TTL_LIMIT_NS + 1},
                                              {.ttl_ns = 2 * SECOND, .ttl_max_ns = SECOND},
                                              {.ttl_ns = -1},
                                              {.grace_ns = 1},
                                              {.grace_ns = LEASE_GRACE_LIMIT_NS + 1},
                                              {.rho_ppm = LEASE_RHO_LIMIT_PPM + 1},
                                              {.max_leases = LEASE_TABLE_LIMIT},
                                              {.max_serves = UINT32_MAX}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct node_config config = c.config;
        config.lease = bad[i];
        assert_int_equal(node_create(&n, &config), -EINVAL);
    }
    core_close(&c);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_answer_waits_for_the_horizon),
        cmocka_unit_test(test_index_that_takes_no_commit),
        cmocka_unit_test(test_failing_commits_do_not_spin),
        cmocka_unit_test(test_restart_with_leases),
        cmocka_unit_test(test_clean_stop),
        cmocka_unit_test(test_horizon_that_can_not_be),
        cmocka_unit_test(test_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
