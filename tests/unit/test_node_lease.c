/* Leases in the core, on a clock of the test's own: grant, renewal, end, serves, bounds, recall, the horizon. */
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define SECOND INT64_C(1000000000)
#define HOLD INT64_C(5301000000) /* 5 s * 1.01 + 250 ms, and a moment */

/* What the node said last of each kind, copied. */
static struct lease_answer leased, renewed, served, recalled;
static struct lease_grant grants[LEASE_KEYS_MAX], again[LEASE_KEYS_MAX], sending;
static uint64_t recalled_ids[1024];
static uint32_t n_leased, n_renewed, n_recalled, n_served;

static void keep(struct core *c, const struct node_command *k)
{
    (void)c;
    const struct lease_answer *a = k->lease;
    switch (k->kind) {
    case CMD_LEASED:
        leased = *a;
        memcpy(grants, a->grant, a->n * sizeof *grants);
        n_leased++;
        break;
    case CMD_RENEWED:
        renewed = *a;
        memcpy(again, a->grant, a->n * sizeof *again);
        n_renewed++;
        break;
    case CMD_SERVE:
        served = *a;
        sending = *a->grant;
        n_served++;
        break;
    case CMD_RECALL:
        recalled = *a;
        memcpy(&recalled_ids[n_recalled], a->id, a->n * sizeof *a->id);
        n_recalled += a->n;
        break;
    default:
        break;
    }
}

static void options(struct core *c)
{
    static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
    c->other = keep;
    n_leased = n_renewed = n_recalled = n_served = 0;
}

static void give(struct core *c, enum node_event_kind kind, struct lease_event ev)
{
    ev.connection = ev.connection ? ev.connection : ev.peer;
    ev.incarnation = ev.incarnation ? ev.incarnation : 100;
    core_event(c, (struct node_event){.kind = kind, .lease = &ev});
    core_turn(c);
    core_check(c);
}

static struct key_ref key_of(const char *key, uint32_t ns)
{
    return (struct key_ref){.data = key, .size = (uint32_t)strlen(key), .ns = ns};
}

/* Leases one key; the lease is in grants[0]. */
static int32_t lease_ns(struct core *c, uint16_t peer, const char *key, uint32_t ns)
{
    struct key_ref k = key_of(key, ns);
    uint32_t before = n_leased;
    give(c, EV_LEASE, (struct lease_event){.peer = peer, .keys = &k, .n = 1, .request = 77});
    assert_int_equal(n_leased, before + 1);
    assert_int_equal(leased.peer, peer);
    assert_int_equal(leased.request, 77);
    return leased.status ? leased.status : grants[0].status;
}

static int32_t lease(struct core *c, uint16_t peer, const char *key)
{
    return lease_ns(c, peer, key, 0);
}

static int32_t renew(struct core *c, uint16_t peer, uint64_t id, bool in_flight)
{
    struct lease_ref r = {.id = id, .in_flight = in_flight};
    give(c, EV_RENEW, (struct lease_event){.peer = peer, .ref = &r, .n = 1});
    return renewed.status ? renewed.status : again[0].status;
}

static void release(struct core *c, uint16_t peer, uint64_t id, uint32_t uses)
{
    struct lease_ref r = {.id = id, .uses = uses};
    give(c, EV_RELEASE, (struct lease_event){.peer = peer, .ref = &r, .n = 1});
}

static int32_t serve(struct core *c, uint16_t peer, uint64_t id, uint64_t token)
{
    struct lease_ref r = {.id = id};
    uint32_t before = n_served;
    give(c, EV_SERVE_BEGIN, (struct lease_event){.peer = peer, .ref = &r, .n = 1, .token = token});
    assert_int_equal(n_served, before + 1);
    assert_int_equal(served.token, token);
    return served.status;
}

static void done(struct core *c, uint16_t peer, uint64_t token, bool reset)
{
    give(c, EV_SERVE_END, (struct lease_event){.peer = peer, .token = token, .reset = reset});
}

static enum slot_state state(const struct core *c, uint32_t slot)
{
    return word_state(slot_load(&c->headers[slot]));
}

static struct node_status status(struct core *c)
{
    struct node_status s;
    node_status(c->node, &s);
    return s;
}

/* ---- grants, and how long they last ---- */

static void test_lease_tells_all(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(lease(&c, 3, "a"), -ENOENT);
    assert_int_equal(core_put(&c, 1, "a", 5000, 0), 0);
    struct key_ref k[4] = {key_of("a", 0), key_of("b", 0), key_of("a", 7), {.data = "x", .size = KEY_MAX + 1}};
    give(&c, EV_LEASE, (struct lease_event){.peer = 3, .keys = k, .n = 4, .ttl_ns = 2 * SECOND});
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
    assert_int_equal(status(&c).leases, 1);
    assert_int_equal(status(&c).leased_bytes, 8192);
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
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    release(&c, 1, grants[0].lease, 0);
    assert_int_equal(lease(&c, 1, "a"), 0); /* another one, the horizon lies there already: decided in its event */
    struct node_lease_info info;
    uint32_t cursor = 0;
    assert_true(node_leases_next(c.node, &cursor, &info));
    int64_t end = c.now.raw + info.left_ns;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    c.now.mono += 100 * SECOND; /* slewed, stopped: these say nothing */
    c.now.boot += 100 * SECOND;
    core_turn(&c);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    assert_int_equal(node_timer(c.node), c.now.mono + (end - c.now.raw));
    c.now.raw = end - 101; /* an event of the test's core takes 100 ns */
    core_event(&c, (struct node_event){.kind = EV_TICK});
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    assert_int_equal(status(&c).leases, 1);
    core_check(&c);
    c.now.raw = end - 100;
    core_event(&c, (struct node_event){.kind = EV_TICK});
    assert_int_equal(state(&c, slot), SLOT_FREE);
    assert_int_equal(status(&c).leases, 0);
    core_check(&c);
    core_close(&c);
}

/* The hold is never less than ttl * (1 + rho) + grace, to the nanosecond. */
static void test_hold_has_its_margin(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    static const int64_t ttl[] = {1, 999999, 1234567891, 5 * SECOND, 90 * SECOND};
    for (unsigned i = 0; i < 5; i++) {
        struct key_ref k = key_of("a", 0);
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
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    for (int i = 0; i < 10; i++) {
        core_tick(&c, 4 * SECOND);
        assert_int_equal(renew(&c, 1, id, false), 0);
        assert_int_equal(again[0].duration_ns, 5 * SECOND);
    }
    assert_int_equal(status(&c).leased_idle_bytes, 4096);
    /* A renewal for less never shortens what the reader was told before. */
    struct lease_ref r = {.id = id};
    give(&c, EV_RENEW, (struct lease_event){.peer = 1, .ref = &r, .n = 1, .ttl_ns = 1});
    core_tick(&c, 5 * SECOND);
    assert_int_equal(status(&c).leases, 1);
    core_tick(&c, SECOND);
    assert_int_equal(status(&c).leases, 0);
    assert_int_equal(renew(&c, 1, id, true), BERTH_ESTALE);
    assert_int_equal(status(&c).counter[NODE_LEASE_EXPIRED], 1);
    assert_int_equal(status(&c).counter[NODE_LEASE_RENEWALS], 11);
    core_close(&c);
}

static void test_retired_is_renewed_for_transfers_only(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 1), 0);
    uint32_t old = core_find(&c, "a", 1);
    assert_int_equal(lease_ns(&c, 1, "a", 1), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(core_put(&c, 1, "a", 20, 1), 0); /* a replace succeeds, the old slot waits */
    assert_int_equal(state(&c, old), SLOT_RETIRED);
    assert_int_equal(renew(&c, 1, id, false), BERTH_ESTALE);
    for (uint32_t i = 0; i < 12; i++) {
        core_tick(&c, 4 * SECOND);
        assert_int_equal(renew(&c, 1, id, true), 0);
    }
    assert_int_equal(renew(&c, 1, id, true), BERTH_ESTALE); /* not for ever */
    assert_int_equal(state(&c, old), SLOT_RETIRED);
    core_tick(&c, HOLD);
    assert_int_equal(state(&c, old), SLOT_FREE);
    assert_int_equal(status(&c).retired, 0);
    core_check(&c);
    core_close(&c);
}

/* A key with an uncommitted effect is leased as it stands, and the effect waits for the lease as any other does. */
static void test_pending_keys(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease(&c, 2, "a"), 0); /* moves the horizon */
    release(&c, 2, grants[0].lease, 0);
    uint32_t slot = core_find(&c, "a", 0);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, "new", 10, 0), 1000);
    assert_int_equal(lease(&c, 2, "new"), -ENOENT); /* before */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 1000);
    assert_int_equal(lease(&c, 2, "a"), 0); /* before */
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    assert_int_equal(lease(&c, 2, "new"), 0);
    assert_int_equal(lease(&c, 2, "a"), -ENOENT);
    core_tick(&c, 6 * SECOND);
    assert_int_equal(state(&c, slot), SLOT_FREE);
    core_close(&c);
}

/* ---- release, eviction ---- */

static void low_watermark(struct core *c)
{
    options(c);
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
    assert_int_equal(lease(&c, 1, "k0"), 0);
    release(&c, 1, grants[0].lease, 3);
    assert_int_equal(lease(&c, 1, "k1"), 0);
    release(&c, 1, grants[0].lease, 0);
    assert_int_equal(lease(&c, 1, "k2"), 0); /* and one that is still leased */
    assert_int_equal(core_put(&c, 1, "k100", 1, 0), 0);
    core_turn(&c);
    assert_int_equal(status(&c).objects, 90);
    assert_true(core_find(&c, "k0", 0) != SLOT_NONE); /* read by a peer */
    assert_true(core_find(&c, "k1", 0) == SLOT_NONE); /* leased, never read */
    assert_true(core_find(&c, "k2", 0) != SLOT_NONE);
    assert_int_equal(status(&c).counter[NODE_LEASE_USES], 3);
    core_check(&c);
    core_close(&c);
}

/* More leased objects than one look at victims shows: those behind them are found. */
static void test_eviction_passes_over_leased_slots(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    core_open(&c, 4 * MIB, options); /* 1024 slots of a page */
    core_attach(&c, 1);
    for (int i = 0; i < 1024; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 4096, 0), 0);
        if (i < 600) {
            struct key_ref k = key_of(key, 0);
            struct lease_event ev = {.peer = (uint16_t)(1 + i / 150), .incarnation = 1, .keys = &k, .n = 1};
            core_event(&c, (struct node_event){.kind = EV_LEASE, .lease = &ev});
            core_turn(&c);
        }
    }
    assert_int_equal(status(&c).leases, 600);
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
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1, .connection = 9}); /* another connection of it */
    assert_int_equal(renew(&c, 1, id, true), 0);
    give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1});
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    assert_int_equal(renew(&c, 1, id, true), BERTH_ESTALE);
    struct lease_ref r = {.id = id}; /* the peer that came again is another one */
    give(&c, EV_RELEASE, (struct lease_event){.peer = 1, .connection = 2, .incarnation = 101, .ref = &r, .n = 1});
    core_tick(&c, 5 * SECOND);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    core_tick(&c, SECOND);
    assert_int_equal(state(&c, slot), SLOT_FREE);
    core_close(&c);
}

static void test_serve_outlives_its_lease(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(serve(&c, 1, id, 1000), 0);
    assert_int_equal(sending.slot, slot);
    assert_int_equal(sending.size, 10);
    assert_int_equal(serve(&c, 1, id, 1000), -EEXIST);
    assert_int_equal(serve(&c, 1, id, 1001), 0);
    assert_int_equal(serve(&c, 2, id, 1002), BERTH_ESTALE); /* another peer's lease */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    core_tick(&c, 100 * SECOND);
    assert_int_equal(status(&c).serves, 2);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    assert_int_equal(serve(&c, 1, id, 1003), BERTH_ESTALE); /* nothing new is sent under it */
    done(&c, 1, 1000, false);
    done(&c, 1, 1000, false);
    done(&c, 2, 1001, false);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    done(&c, 1, 1001, false);
    assert_int_equal(state(&c, slot), SLOT_FREE);
    assert_int_equal(status(&c).leases, 0);
    core_close(&c);
}

static void test_serve_after_release_and_reset(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    for (int reset = 0; reset < 2; reset++) {
        assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
        uint32_t slot = core_find(&c, "a", 0);
        assert_int_equal(lease(&c, 1, "a"), 0);
        uint64_t id = grants[0].lease;
        assert_int_equal(serve(&c, 1, id, 5), 0);
        assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
        release(&c, 1, id, 1); /* given back while bytes are on their way: a lie, or two messages that crossed */
        assert_int_equal(state(&c, slot), SLOT_RETIRED);
        done(&c, 1, 5, reset);
        assert_int_equal(state(&c, slot), reset ? SLOT_RETIRED : SLOT_FREE);
        core_tick(&c, HOLD);
        assert_int_equal(state(&c, slot), SLOT_FREE);
    }
    /* A connection that goes takes its serves along, and leaves the slot until the lease's end. */
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    assert_int_equal(serve(&c, 1, id, 6), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    give(&c, EV_PEER_GONE, (struct lease_event){.peer = 1});
    assert_int_equal(status(&c).serves, 0);
    release(&c, 1, id, 0);
    assert_int_equal(state(&c, slot), SLOT_RETIRED);
    core_tick(&c, HOLD);
    assert_int_equal(state(&c, slot), SLOT_FREE);
    core_close(&c);
}

/* ---- bounds ---- */

static void small_bounds(struct core *c)
{
    options(c);
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
    assert_int_equal(lease(&c, 5, "large"), 0); /* above the bound, alone */
    assert_int_equal(lease(&c, 5, "k0"), BERTH_EQUOTA);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease(&c, 1, key), 0);
    }
    assert_int_equal(lease(&c, 1, "k11"), BERTH_EQUOTA);
    assert_int_equal(grants[0].figure[0], 4096);
    assert_int_equal(grants[0].figure[1], 10 * 4096);
    assert_int_equal(grants[0].figure[2], 10 * 4096);
    for (int i = 0; i < 9; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease(&c, 2, key), 0);
    }
    assert_int_equal(lease(&c, 2, "k9"), BERTH_EQUOTA); /* the table is full */
    assert_int_equal(grants[0].figure[1], 20);
    core_tick(&c, HOLD);
    assert_int_equal(lease(&c, 1, "k11"), 0);
    assert_int_equal(serve(&c, 1, grants[0].lease, 1), 0);
    assert_int_equal(serve(&c, 1, grants[0].lease, 2), 0);
    assert_int_equal(serve(&c, 1, grants[0].lease, 3), -EAGAIN);
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
        assert_int_equal(lease(&c, (uint16_t)(1 + i % 2), key), 0);
        id[i] = grants[0].lease;
    }
    assert_int_equal(n_recalled, 0); /* all are in flight */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(renew(&c, (uint16_t)(1 + i % 2), id[i], false), 0);
    }
    assert_int_equal(n_recalled, 0); /* at the bound */
    assert_int_equal(renew(&c, 1, id[4], false), 0);
    assert_int_equal(n_recalled, 1); /* the oldest idle one */
    assert_int_equal(recalled_ids[0], id[0]);
    assert_int_equal(recalled.peer, 1);
    assert_int_equal(status(&c).leased_idle_bytes, 5 * 4096);
    assert_int_equal(renew(&c, 1, id[0], false), BERTH_ESTALE);
    assert_int_equal(renew(&c, 1, id[0], true), 0); /* a transfer that had just begun */
    assert_int_equal(renew(&c, 2, id[1], true), 0); /* in flight again: idle no longer */
    assert_int_equal(renew(&c, 2, id[5], false), 0);
    assert_int_equal(n_recalled, 1);
    /* What is served from a slot keeps its lease busy; it is idle when that has ended. */
    assert_int_equal(serve(&c, 1, id[6], 1), 0);
    done(&c, 1, 1, false);
    assert_int_equal(n_recalled, 2);
    assert_int_equal(recalled_ids[1], id[2]);
    /* A peer over its bound is asked for its own. */
    for (int i = 10; i < 16; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(lease(&c, 2, key), 0);
    }
    assert_int_equal(lease(&c, 2, "k20"), BERTH_EQUOTA);
    assert_int_equal(n_recalled, 3);
    assert_int_equal(recalled.peer, 2);
    assert_int_equal(recalled_ids[2], id[3]);
    core_close(&c);
}

static void test_hostile_words(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    uint64_t id = grants[0].lease;
    const uint64_t bad[] = {0, 1, id ^ 1, id + (1u << 24), id - (1u << 24), UINT64_MAX, id ^ UINT64_C(1) << 63};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(renew(&c, 1, bad[i], true), BERTH_ESTALE);
        assert_int_equal(serve(&c, 1, bad[i], 3), BERTH_ESTALE);
        release(&c, 1, bad[i], UINT32_MAX);
    }
    release(&c, 2, id, 1); /* another peer's */
    assert_int_equal(status(&c).leases, 1);
    struct key_ref k = key_of("a", 0);
    const struct lease_event events[] = {
        {.peer = 1, .keys = &k, .n = 0},
        {.peer = 1, .keys = &k, .n = LEASE_KEYS_MAX + 1},
        {.peer = 1, .keys = &k, .n = 1, .flags = 1},
        {.peer = 1, .n = 1},
    };
    for (unsigned i = 0; i < 4; i++) {
        give(&c, EV_LEASE, events[i]);
        assert_int_equal(leased.status, -EINVAL);
        assert_int_equal(leased.n, 0);
        give(&c, EV_RELEASE, (struct lease_event){.peer = 1, .n = events[i].n});
        give(&c, EV_SERVE_BEGIN, (struct lease_event){.peer = 1, .n = events[i].n});
    }
    give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1, .ttl_ns = INT64_MAX});
    assert_int_equal(grants[0].duration_ns, 30 * SECOND);
    give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1, .ttl_ns = INT64_MIN});
    assert_int_equal(grants[0].duration_ns, 5 * SECOND);
    release(&c, 1, id, UINT32_MAX);
    release(&c, 1, id, 1); /* an id is used up */
    assert_int_equal(status(&c).counter[NODE_LEASE_RELEASES], 1);
    assert_int_equal(lease(&c, 1, "a"), 0);
    assert_true(grants[0].lease != id);
    core_close(&c);
}

/* ---- the horizon ---- */

static void test_answer_waits_for_the_horizon(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    assert_int_equal(lmdb_ops.meta(c.index, META_LEASE_HORIZON), 0);
    c.hold_commits = true;
    struct key_ref k = key_of("a", 0);
    give(&c, EV_LEASE, (struct lease_event){.peer = 1, .keys = &k, .n = 1});
    give(&c, EV_LEASE, (struct lease_event){.peer = 2, .keys = &k, .n = 1});
    assert_int_equal(n_leased, 0);
    give(&c, EV_PEER_GONE, (struct lease_event){.peer = 2}); /* nobody to answer to any more */
    assert_int_equal(core_put(&c, 1, "b", 1, 0), 1000);
    c.fail_commits = 1; /* a put fails it: it goes again */
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(n_leased, 0);
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(n_leased, 1);
    assert_int_equal(grants[0].status, 0);
    assert_int_equal(status(&c).leases, 1);
    c.hold_commits = false;
    int64_t horizon = (int64_t)lmdb_ops.meta(c.index, META_LEASE_HORIZON);
    assert_true(horizon >= c.now.boot + HOLD);
    uint64_t commits = status(&c).counter[NODE_COMMITS];
    assert_int_equal(lease(&c, 1, "a"), 0); /* covered: no commit for each */
    assert_int_equal(status(&c).counter[NODE_COMMITS], commits);
    for (int i = 0; i < 100; i++) { /* and it is moved ahead of need while leases are out */
        core_tick(&c, SECOND);
        assert_int_equal(lease(&c, 1, "a"), 0);
        assert_true((int64_t)lmdb_ops.meta(c.index, META_LEASE_HORIZON) >= c.now.boot + HOLD);
    }
    assert_in_range(status(&c).counter[NODE_COMMITS] - commits, 1, 5);
    core_close(&c);
}

static void test_index_that_takes_no_commit(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    c.fail_commits = 4;
    assert_int_equal(lease(&c, 1, "a"), -EAGAIN);
    assert_int_equal(status(&c).leases, 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
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
    core_open(&c, 4 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 1), 0);
    assert_int_equal(core_put(&c, 1, "b", 2 * MIB, 0), 0);
    assert_int_equal(core_create(&c, 1, "draft", 10, 0, &t), 0);
    uint32_t a = core_find(&c, "a", 1), b = core_find(&c, "b", 0);
    assert_int_equal(lease_ns(&c, 1, "a", 1), 0);
    uint64_t id = grants[0].lease;
    core_crash(&c, (uint64_t[]){1}, 1);
    core_attach(&c, 1);
    core_check(&c);
    int64_t closed = status(&c).closed_ns;
    assert_true(closed >= HOLD && closed <= 120 * SECOND);
    assert_int_equal(core_put(&c, 1, "a", 20, 1), 0); /* the class has free slots */
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "b", 0), 0);
    assert_int_equal(state(&c, a), SLOT_RETIRED);
    assert_int_equal(state(&c, b), SLOT_RETIRED);
    assert_int_equal(renew(&c, 1, id, true), BERTH_ESTALE); /* of another incarnation */
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, (uint32_t)(sizeof *m + sizeof t));
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    assert_int_equal(state(&c, t.slot), SLOT_RETIRED);
    core_check(&c);
    assert_int_equal(core_put(&c, 1, "c", 2 * MIB, 0), BERTH_EFULL); /* no longer than an eviction takes */
    assert_int_equal(put_waiting(&c, "c", 2 * MIB), 1000);
    uint64_t waits = c.next_id;
    assert_int_equal(lease_ns(&c, 1, "a", 1), 0);
    core_tick(&c, status(&c).closed_ns - 10000);
    assert_int_equal(state(&c, a), SLOT_RETIRED);
    assert_null(core_reply(&c, waits));
    core_check(&c);
    core_tick(&c, SECOND);
    assert_int_equal(state(&c, a), SLOT_FREE);
    assert_int_equal(state(&c, t.slot), SLOT_FREE);
    assert_int_equal(status(&c).closed_ns, 0);
    assert_non_null(core_reply(&c, waits));
    assert_int_equal(core_reply(&c, waits)->status, 0);
    core_check(&c);
    core_close(&c);
}

static void stop(struct core *c)
{
    core_event(c, (struct node_event){.kind = EV_STOP});
    core_turn(c);
    assert_int_equal(lease(c, 1, "a"), BERTH_ENODE);
    c->config.clean = true;
    core_crash(c, NULL, 0);
    c->config.clean = false;
}

static void test_clean_stop(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    core_crash(&c, NULL, 0);
    assert_int_equal(status(&c).closed_ns, 0); /* no peer was ever served */
    assert_int_equal(lease(&c, 1, "a"), 0);
    stop(&c);
    assert_true(status(&c).closed_ns >= HOLD); /* a lease was out */
    stop(&c);
    assert_true(status(&c).closed_ns > 0); /* and the next clean stop does not forget it */
    core_tick(&c, 120 * SECOND);
    assert_int_equal(status(&c).closed_ns, 0);
    assert_int_equal(lease(&c, 1, "a"), 0);
    release(&c, 1, grants[0].lease, 1);
    stop(&c);
    assert_int_equal(status(&c).closed_ns, 0); /* all was given back */
    core_close(&c);
}

/* A horizon that no node can have written delays, and not for ever. */
static void test_horizon_that_can_not_be(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
    core_attach(&c, 1);
    assert_int_equal(core_put(&c, 1, "a", 10, 0), 0);
    struct batch *b = batch_create();
    batch_meta(b, META_LEASE_HORIZON, UINT64_MAX - 5);
    assert_int_equal(lmdb_ops.commit(c.index, b), 0);
    batch_destroy(b);
    core_crash(&c, NULL, 0);
    assert_in_range(status(&c).closed_ns, 100 * SECOND, 120 * SECOND);
    core_close(&c);
}

static void test_configuration(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, options);
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
        cmocka_unit_test(test_lease_tells_all),
        cmocka_unit_test(test_end_is_exact),
        cmocka_unit_test(test_hold_has_its_margin),
        cmocka_unit_test(test_renewal_moves_the_end),
        cmocka_unit_test(test_retired_is_renewed_for_transfers_only),
        cmocka_unit_test(test_pending_keys),
        cmocka_unit_test(test_uses_are_touches),
        cmocka_unit_test(test_eviction_passes_over_leased_slots),
        cmocka_unit_test(test_peer_gone),
        cmocka_unit_test(test_serve_outlives_its_lease),
        cmocka_unit_test(test_serve_after_release_and_reset),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_answer_waits_for_the_horizon),
        cmocka_unit_test(test_index_that_takes_no_commit),
        cmocka_unit_test(test_restart_with_leases),
        cmocka_unit_test(test_clean_stop),
        cmocka_unit_test(test_horizon_that_can_not_be),
        cmocka_unit_test(test_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
