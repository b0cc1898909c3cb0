/* Leases in the core, on a clock of the test's own: grant, renewal, end, release, eviction, serves. */
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- grants, and how long they last ---- */

static void test_lease_tells_all(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(lease_one(&c, 3, "a"), -ENOENT);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    struct key_ref k[4] = {lease_key("a", 0), lease_key("b", 0), lease_key("a", 7), {.data = "x", .size = KEY_MAX + 1}};
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 3, .keys = k, .n = 4, .ttl_ns = 2 * SECOND});
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(leased.n, 4);
    assert_int_equal(grants[0].status, 0);
    assert_int_equal(grants[0].slot, slot);
    assert_int_equal(grants[0].generation, word_gen(slot_load(&c.headers[slot])));
    assert_int_equal(grants[0].offset, c.headers[slot].page * PAGE_BYTES);
    assert_int_equal(grants[0].size, 5000);
    assert_int_equal(grants[0].counter, c.headers[slot].version);
    assert_int_equal(grants[0].region, 7);
    assert_int_equal(grants[0].checksum, 99);
    assert_int_equal(grants[0].duration_ns, 2 * SECOND);
    assert_int_equal(grants[1].status, -ENOENT);
    assert_int_equal(grants[2].status, -ENOENT);
    assert_int_equal(grants[3].status, -EINVAL);
    assert_int_equal(core_status(&c).leases, 1);
    assert_int_equal(core_status(&c).leased_bytes, 8192);
    struct node_lease_info info;
    uint32_t cursor = 0;
    assert_true(node_leases_next(c.node, &cursor, &info));
    assert_true(info.slot == slot && info.peer == 3 && info.incarnation == 100 && info.in_flight);
    assert_in_range(info.left_ns, 2 * SECOND, 2271000000);
    assert_false(node_leases_next(c.node, &cursor, &info));
    core_close(&c);
}

/* One tick before the end the slot is still there, at the end it is free: on `raw`, whatever the other clocks do. */
static void test_end_is_exact(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    lease_release(&c, 1, grants[0].lease, 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0); /* another one, the horizon lies there already: decided in its event */
    struct node_lease_info info;
    uint32_t cursor = 0;
    assert_true(node_leases_next(c.node, &cursor, &info));
    int64_t end = c.now.raw + info.left_ns;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    c.now.mono += 100 * SECOND; /* slewed, stopped: these say nothing */
    c.now.boot += 100 * SECOND;
    core_turn(&c);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    assert_int_equal(node_timer(c.node), c.now.mono + (end - c.now.raw));
    c.now.raw = end - 101; /* an event of the test's core takes 100 ns */
    core_event(&c, (struct node_event){.kind = EV_TICK});
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    assert_int_equal(core_status(&c).leases, 1);
    core_check(&c);
    c.now.raw = end - 100;
    core_event(&c, (struct node_event){.kind = EV_TICK});
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    assert_int_equal(core_status(&c).leases, 0);
    core_check(&c);
    core_close(&c);
}

/* The hold is never less than ttl * (1 + rho) + grace, to the nanosecond. */
static void test_hold_has_its_margin(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    struct key_ref any = lease_key("a", 0); /* moves the horizon as far as it ever has to be: the others don't wait */
    lease_give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &any, .n = 1, .ttl_ns = 90 * SECOND});
    static const int64_t ttl[] = {1, 999999, 1234567891, 5 * SECOND, 90 * SECOND};
    for (unsigned i = 0; i < 5; i++) {
        struct key_ref k = lease_key("a", 0);
        struct lease_event ev = {.peer = (uint16_t)(10 + i), .incarnation = 1, .keys = &k, .n = 1, .ttl_ns = ttl[i]};
        core_event(&c, (struct node_event){.kind = EV_LEASE, .lease = &ev});
        int64_t given = grants[0].duration_ns, left = 0;
        assert_int_equal(given, ttl[i] < 30 * SECOND ? ttl[i] : 30 * SECOND);
        struct node_lease_info info;
        for (uint32_t cursor = 0; node_leases_next(c.node, &cursor, &info);) {
            left = info.peer == 10 + i ? info.left_ns : left;
        }
        assert_true(left * 100 >= given * 101 + 25 * SECOND);
        assert_true(left <= given + given / 100 + 250020000);
    }
    core_check(&c);
    core_close(&c);
}

static void test_renewal_moves_the_end(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    for (int i = 0; i < 10; i++) {
        core_tick(&c, 4 * SECOND);
        assert_int_equal(lease_renew(&c, 1, id, false), 0);
        assert_int_equal(again[0].duration_ns, 5 * SECOND);
    }
    assert_int_equal(core_status(&c).leased_idle_bytes, 4096);
    /* A renewal for less never shortens what the reader was told before. */
    struct lease_ref r = {.id = id};
    lease_give(&c, EV_RENEW, (struct lease_event){.peer = 1, .ref = &r, .n = 1, .ttl_ns = 1});
    core_tick(&c, 5 * SECOND);
    assert_int_equal(core_status(&c).leases, 1);
    core_tick(&c, SECOND);
    assert_int_equal(core_status(&c).leases, 0);
    assert_int_equal(lease_renew(&c, 1, id, true), BERTH_ESTALE);
    assert_int_equal(core_status(&c).counter[NODE_LEASE_EXPIRED], 1);
    assert_int_equal(core_status(&c).counter[NODE_LEASE_RENEWALS], 11);
    core_close(&c);
}

static void test_retired_is_renewed_for_transfers_only(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, NS_R), 0);
    uint32_t old = core_find(&c, "a", NS_R);
    assert_int_equal(lease_ns(&c, 1, "a", NS_R), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(core_put(&c, 1, "a", 20, NS_R), 0); /* a replace succeeds, the old slot waits */
    assert_int_equal(core_state(&c, old), SLOT_RETIRED);
    assert_int_equal(lease_renew(&c, 1, id, false), BERTH_ESTALE);
    for (uint32_t i = 0; i < 12; i++) {
        core_tick(&c, 4 * SECOND);
        assert_int_equal(lease_renew(&c, 1, id, true), 0);
    }
    assert_int_equal(lease_renew(&c, 1, id, true), BERTH_ESTALE); /* not for ever */
    assert_int_equal(core_state(&c, old), SLOT_RETIRED);
    core_tick(&c, HOLD);
    assert_int_equal(core_state(&c, old), SLOT_FREE);
    assert_int_equal(core_status(&c).retired, 0);
    core_check(&c);
    core_close(&c);
}

static uint32_t n_revoked;
static void (*other_commands)(struct core *c, const struct node_command *k);

static void count_revoked(struct core *c, const struct node_command *k)
{
    if (k->kind == CMD_REVOKE) {
        n_revoked = k->n_slots;
    } else {
        other_commands(c, k);
    }
}

/* Objects of the key whose readers a revoke would end. */
static uint32_t revoked(struct core *c, const char *key)
{
    other_commands = c->other;
    c->other = count_revoked;
    n_revoked = 0;
    core_key(c, 1, MSG_REVOKE, key, NS_R);
    c->other = other_commands;
    return n_revoked;
}

/* Readers of a removed object are found whether it waits for a scan, for a reader, or for a lease. */
static void test_revoke_finds_what_is_leased(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, NS_R), 0);
    assert_int_equal(lease_ns(&c, 1, "a", NS_R), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", NS_R), 0);
    assert_int_equal(revoked(&c, "a"), 1);
    assert_int_equal(core_put(&c, 1, "a", 20, NS_R), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", NS_R), 0);
    assert_int_equal(core_put(&c, 1, "a", 30, NS_R), 0);
    assert_int_equal(revoked(&c, "a"), 2); /* nobody reads the second: its slot is free */
    core_close(&c);
}

/* A key with an uncommitted effect is leased as it stands, and the effect waits for the lease as any other does. */
static void test_pending_keys(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease_one(&c, 2, "a"), 0); /* moves the horizon */
    lease_release(&c, 2, grants[0].lease, 0);
    uint32_t slot = core_find(&c, "a", 0);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, "new", 10, 0), 1000);
    assert_int_equal(lease_one(&c, 2, "new"), -ENOENT); /* before */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 1000);
    assert_int_equal(lease_one(&c, 2, "a"), 0); /* before */
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    assert_int_equal(lease_one(&c, 2, "new"), 0);
    assert_int_equal(lease_one(&c, 2, "a"), -ENOENT);
    core_tick(&c, 6 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    core_close(&c);
}

/* ---- release, eviction ---- */

static void low_watermark(struct core *c)
{
    lease_options(c);
    c->config.high_bytes = 100 * 4096;
    c->config.low_bytes = 90 * 4096;
}

static void test_uses_are_touches(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    core_open(&c, 64 * MIB, low_watermark);
    core_attach(&c, 1);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 1, 0), 0);
    }
    assert_int_equal(lease_one(&c, 1, "k0"), 0);
    lease_release(&c, 1, grants[0].lease, 3);
    assert_int_equal(lease_one(&c, 1, "k1"), 0);
    lease_release(&c, 1, grants[0].lease, 0);
    assert_int_equal(lease_one(&c, 1, "k2"), 0); /* and one that is still leased */
    assert_int_equal(core_put(&c, 1, "k100", 1, 0), 0);
    core_turn(&c);
    assert_int_equal(core_status(&c).objects, 90);
    assert_true(core_find(&c, "k0", 0) != SLOT_NONE); /* read by a peer */
    assert_true(core_find(&c, "k1", 0) != SLOT_NONE); /* leased: that is a use, before it is told how many there were */
    assert_true(core_find(&c, "k2", 0) != SLOT_NONE);
    assert_true(core_find(&c, "k3", 0) == SLOT_NONE);
    assert_int_equal(core_status(&c).counter[NODE_LEASE_USES], 3);
    core_check(&c);
    core_close(&c);
}

/* More leased objects than one look at victims shows: those behind them are found. */
static void test_eviction_passes_over_leased_slots(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    core_open(&c, 4 * MIB, lease_options); /* 1024 slots of a page */
    core_attach(&c, 1);
    for (int i = 0; i < 1024; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 4096, 0), 0);
        if (i < 600) {
            struct key_ref k = lease_key(key, 0);
            struct lease_event ev = {.peer = (uint16_t)(1 + i / 150), .incarnation = 1, .keys = &k, .n = 1};
            core_event(&c, (struct node_event){.kind = EV_LEASE, .lease = &ev});
            core_turn(&c);
        }
    }
    assert_int_equal(core_status(&c).leases, 600);
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "new%d", i);
        assert_int_equal(core_put(&c, 1, key, 4096, 0), 0);
    }
    for (int i = 0; i < 600; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_true(core_find(&c, key, 0) != SLOT_NONE);
    }
    core_check(&c);
    assert_int_equal(core_put(&c, 1, "large", MIB, 0), BERTH_EFULL); /* no window without a lease in it */
    assert_int_equal(core_status(&c).retired, 0);                    /* and none of the leased was given up for it */
    core_tick(&c, HOLD);
    assert_int_equal(core_put(&c, 1, "large", MIB, 0), 0);
    core_check(&c);
    core_close(&c);
}

/* ---- peers that go, serves ---- */

static void test_peer_gone(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    lease_give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1, .connection = 9}); /* another connection of it */
    assert_int_equal(lease_renew(&c, 1, id, true), 0);
    lease_give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1});
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    assert_int_equal(lease_renew(&c, 1, id, true), BERTH_ESTALE);
    struct lease_ref r = {.id = id}; /* the peer that came again is another one */
    lease_give(&c, EV_RELEASE, (struct lease_event){.peer = 1, .connection = 2, .incarnation = 101, .ref = &r, .n = 1});
    core_tick(&c, 5 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    core_tick(&c, SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    core_close(&c);
}

static void test_serve_outlives_its_lease(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(lease_serve(&c, 1, id, 1000), 0);
    assert_int_equal(sending.slot, slot);
    assert_int_equal(sending.size, 10);
    assert_int_equal(lease_serve(&c, 1, id, 1000), -EEXIST);
    assert_int_equal(lease_serve(&c, 1, id, 1001), 0);
    assert_int_equal(lease_serve(&c, 2, id, 1002), BERTH_ESTALE); /* another peer's lease */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    core_tick(&c, 100 * SECOND);
    assert_int_equal(core_status(&c).serves, 2);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    assert_int_equal(lease_serve(&c, 1, id, 1003), BERTH_ESTALE); /* nothing new is sent under it */
    lease_done(&c, 1, 1000, false);
    lease_done(&c, 1, 1000, false);
    lease_done(&c, 2, 1001, false);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    lease_done(&c, 1, 1001, false);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    assert_int_equal(core_status(&c).leases, 0);
    core_close(&c);
}

static void test_serve_after_release_and_reset(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    for (int reset = 0; reset < 2; reset++) {
        assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
        uint32_t slot = core_find(&c, "a", 0);
        assert_int_equal(lease_one(&c, 1, "a"), 0);
        uint64_t id = grants[0].lease;
        assert_int_equal(lease_serve(&c, 1, id, 5), 0);
        assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
        lease_release(&c, 1, id, 1); /* given back while bytes are on their way: a lie, or two messages that crossed */
        assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
        lease_done(&c, 1, 5, reset);
        assert_int_equal(core_state(&c, slot), reset ? SLOT_RETIRED : SLOT_FREE);
        core_tick(&c, HOLD);
        assert_int_equal(core_state(&c, slot), SLOT_FREE);
    }
    /* A connection that goes takes its serves along, and leaves the slot until the lease's end. */
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease_one(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(lease_serve(&c, 1, id, 6), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    lease_give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1});
    assert_int_equal(core_status(&c).serves, 0);
    lease_release(&c, 1, id, 0);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    core_tick(&c, HOLD);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    core_close(&c);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lease_tells_all),
        cmocka_unit_test(test_end_is_exact),
        cmocka_unit_test(test_hold_has_its_margin),
        cmocka_unit_test(test_renewal_moves_the_end),
        cmocka_unit_test(test_retired_is_renewed_for_transfers_only),
        cmocka_unit_test(test_revoke_finds_what_is_leased),
        cmocka_unit_test(test_pending_keys),
        cmocka_unit_test(test_uses_are_touches),
        cmocka_unit_test(test_eviction_passes_over_leased_slots),
        cmocka_unit_test(test_peer_gone),
        cmocka_unit_test(test_serve_outlives_its_lease),
        cmocka_unit_test(test_serve_after_release_and_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
