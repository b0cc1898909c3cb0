/* How two nodes begin: version and features from both sides, every refusal with its sentence, nobody waits for ever. */
#include "replication/address.h"
#include "tests/support/pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct pair p;

static int setup(void **unused)
{
    (void)unused;
    pair_init(&p);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    pair_close(&p);
    return 0;
}

static void test_up(void **unused)
{
    (void)unused;
    p.config[0].self.features = 0x0f0;
    p.config[1].self.features = 0x3c0;
    p.config[0].self.version_max = 9;
    p.config[1].self.version_min = 2;
    p.config[1].self.version_max = 5;
    pair_up(&p);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(p.side[i].version, 5);
        assert_int_equal(p.side[i].features, 0x0c0);
        assert_string_equal(p.side[i].other.node, i ? "node-a" : "node-b");
        assert_string_equal(p.side[i].other.address, i ? "tcp://10.0.0.1:7400" : "tcp://10.0.0.2:7400");
        assert_int_equal(p.side[i].other.region_id, i ? 100 : 101);
        assert_int_equal(p.side[i].other.incarnation, i ? 7 : 8);
        assert_memory_equal(p.side[i].other.region, p.config[1 - i].self.region, 16);
        assert_false(p.side[i].other.client);
    }
}

/* Either side may be the newer one. */
static void test_newer(void **unused)
{
    (void)unused;
    for (unsigned newer = 0; newer < 2; newer++) {
        pair_init(&p);
        p.config[newer].self.version_min = 2;
        p.config[newer].self.version_max = 6;
        p.config[newer].self.features = UINT64_MAX;
        p.config[1 - newer].self.version_max = 4;
        pair_up(&p);
        assert_int_equal(p.side[0].version, 4);
        assert_int_equal(p.side[1].version, 4);
        assert_int_equal(p.side[0].features, 0);
        pair_close(&p);
    }
    pair_init(&p);
}

/* Both end with this code, and say a sentence that has each of these words. */
static void expect_refused(int32_t code, const char *a, const char *b)
{
    pair_open(&p);
    pair_event(&p, 0, PEER_EV_OPENED, 0);
    pair_event(&p, 1, PEER_EV_OPENED, 0);
    pair_all(&p);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(p.side[i].ups, 0);
        assert_int_equal(p.side[i].closes, 1);
        pair_event(&p, i, PEER_EV_CLOSED, 0);
        assert_int_equal(p.side[i].downs, 1);
        assert_int_equal(p.side[i].down_status, code);
        assert_non_null(strstr(p.side[i].text, a));
        assert_non_null(strstr(p.side[i].text, b));
    }
    pair_close(&p);
}

static void test_no_common_version(void **unused)
{
    (void)unused;
    for (unsigned newer = 0; newer < 2; newer++) {
        pair_init(&p);
        p.config[newer].self.version_min = 5;
        p.config[newer].self.version_max = 6;
        p.config[1 - newer].self.version_max = 4;
        expect_refused(BERTH_EFORMAT, newer ? "'node-b' speaks 5 to 6" : "'node-b' speaks 4 to 4",
                       newer ? "'node-a' 4 to 4" : "'node-a' 5 to 6");
    }
}

static void test_refused(void **unused)
{
    (void)unused;
    snprintf(p.config[0].self.cluster, WIRE_NAME_MAX, "other");
    expect_refused(-EACCES, "'fleet'", "'other'");
    pair_init(&p);
    memcpy(p.config[0].self.region, p.config[1].self.region, 16);
    expect_refused(-EADDRINUSE, "'node-a'", "same region");
}

/* Both sides anew, with settings that are the same. */
static void alike(void)
{
    pair_init(&p);
    for (unsigned i = 0; i < 2; i++) {
        p.config[i].self.tombstone_ns = INT64_C(3600000000000);
        p.config[i].self.fresh_ns = INT64_C(60000000000);
    }
}

/* Members with other `tombstones`, `fresh` or replaceable namespaces refuse each other, and both say which, and what to
 * do. */
static void test_memory(void **unused)
{
    (void)unused;
    static const char *const remedy = "must be the same on all nodes: compare `berthd --print-config` on both";
    alike();
    p.config[0].self.tombstone_ns += 500000000;
    expect_refused(BERTH_EVERSION, "'tombstones' is 3600s on 'node-b' and 3600500000000ns on 'node-a'", remedy);
    alike();
    p.config[0].self.fresh_ns = INT64_C(1000000000);
    expect_refused(BERTH_EVERSION, "'fresh' is 60s on 'node-b' and 1s on 'node-a'", remedy);
    alike();
    p.config[1].self.replaceable = 5;
    expect_refused(BERTH_EVERSION, "other namespaces are 'replaceable' on 'node-b' than on 'node-a'",
                   "those too that a region has from before");
    alike();
    p.config[0].self.replaceable = p.config[1].self.replaceable = 5;
    pair_up(&p);
    pair_close(&p);
    alike();
    p.config[0].self.revision = 5;
    expect_refused(BERTH_EVERSION, "the member lists of 'node-b' and 'node-a' differ", remedy);
    alike();
    p.config[0].self.client = true; /* a client says neither */
    p.config[0].self.address[0] = '\0';
    p.config[0].self.pool_bytes = 0;
    p.config[0].self.tombstone_ns = p.config[0].self.fresh_ns = 0;
    pair_up(&p);
}

/* The longest names do not cut the sentence off. */
static void test_long_names(void **unused)
{
    (void)unused;
    for (unsigned list = 0; list < 2; list++) {
        pair_init(&p);
        for (unsigned i = 0; i < 2; i++) {
            memset(p.config[i].self.node, 'a' + (int)i, WIRE_NAME_MAX);
            p.config[i].self.tombstone_ns = INT64_MAX - i;
        }
        p.config[0].self.revision = list;
        expect_refused(BERTH_EVERSION, list ? "the member lists of" : "'tombstones' is 9223372036854775806ns",
                       "`berthd --print-config` on both");
    }
}

/* A HELLO of version 1 has neither: its node hears that there is no common version. */
static void test_older(void **unused)
{
    (void)unused;
    alike();
    p.config[0].self.tombstone_ns = p.config[0].self.fresh_ns = 0;
    p.config[0].self.version_min = p.config[0].self.version_max = 1;
    expect_refused(BERTH_EFORMAT, "'node-b' speaks 4 to 4", "'node-a' 1 to 1");
}

static const char *const unreachable[] = {
    "",
    "0.0.0.0",
    "0.0.0.0:7400",
    "tcp://0.0.0.0:7400",
    "[::]",
    "[::]:7400",
    "tcp://[::]:7400",
    "::",
    "0:0:0:0:0:0:0:0",
    "[0::0]:1",
    "[::%eth0]:7400",
    ":7400",
    "tcp://",
    "tcp://:7400",
    "*:7400",
    "0:7400",
    "tcp://0x0:7400",
    "00.0.0.0:1",
    "0.0:1",
    "[::ffff:0.0.0.0]:1",
    "[]:7400",
};

/* An address that nobody can reach is refused by both sides, and not taken for one's own. */
static void test_addresses(void **unused)
{
    (void)unused;
    static const char *const good[] = {"10.1.2.3", "tcp://10.1.2.3:7400", "[fe80::1%eth0]:7400", "::1",
                                       "[::1]:1",  "node-a.rack-0:7400",  "verbs://node0:1",     "0a.example:1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(address_reachable(good[i]));
    for (size_t i = 0; i < sizeof unreachable / sizeof *unreachable; i++) {
        struct peer_config config = p.config[1];
        struct peer *made;
        snprintf(config.self.address, sizeof config.self.address, "%s", unreachable[i]);
        assert_int_equal(peer_create(&made, &config, p.now), -EADDRNOTAVAIL);
        struct wire_hello h = {.version_min = WIRE_VERSION,
                               .version_max = WIRE_VERSION,
                               .largest = 4096,
                               .region = {9},
                               .cluster = {"fleet", 5},
                               .node = {"node-c", 6},
                               .address = {unreachable[i], (uint16_t)strlen(unreachable[i])}};
        for (unsigned side = 0; side < 2; side++) {
            pair_open(&p);
            pair_event(&p, side, PEER_EV_OPENED, 0);
            pair_forget(&p, side);
            struct wire_message m = {.head = {.op = side ? WIRE_HELLO : WIRE_WELCOME}, .hello = h};
            pair_inject_message(&p, side, &m);
            assert_int_equal(p.side[side].ups, 0);
            assert_int_equal(p.side[side].close_status, -EADDRNOTAVAIL);
            struct pair_side *s = &p.side[side];
            assert_int_equal(wire_peek(s->queue[s->head % PAIR_QUEUE].bytes).op, WIRE_REFUSE);
            pair_close(&p);
            pair_init(&p);
        }
    }
}

/* What only a WELCOME can do wrong. */
static void test_bad_welcome(void **unused)
{
    (void)unused;
    for (unsigned what = 0; what < 3; what++) {
        pair_init(&p);
        p.config[0].self.features = 3;
        pair_open(&p);
        pair_event(&p, 0, PEER_EV_OPENED, 0);
        struct wire_message m = {.head = {.op = what == 2 ? WIRE_HELLO : WIRE_WELCOME},
                                 .hello = {.version_min = what == 0 ? 5 : 4,
                                           .version_max = what == 0 ? 5 : 4,
                                           .features = what == 1 ? 4 : 1,
                                           .largest = 4096,
                                           .region = {9},
                                           .cluster = {"fleet", 5},
                                           .node = {"node-c", 6},
                                           .address = {"10.0.0.9:1", 10}}};
        pair_inject_message(&p, 0, &m);
        assert_int_equal(p.side[0].ups, 0);
        assert_int_equal(p.side[0].closes, 1);
        assert_int_equal(p.side[0].close_status, what == 2 ? -EPROTO : BERTH_EFORMAT);
        pair_close(&p);
    }
}

static void test_client(void **unused)
{
    (void)unused;
    struct peer *made;
    p.config[1].self.client = true; /* a client does not listen, and has no address */
    assert_int_equal(peer_create(&made, &p.config[1], p.now), -EINVAL);
    p.config[0].self.client = true;
    assert_int_equal(peer_create(&made, &p.config[0], p.now), -EINVAL);
    pair_init(&p);
    p.config[0].self.client = true;
    p.config[0].self.address[0] = '\0';
    p.config[0].self.pool_bytes = 0;
    pair_up(&p);
    assert_true(p.side[1].other.client);
    assert_false(p.side[0].other.client);
}

/* Of a client these are 0; who says otherwise is told which. */
static void test_client_overstates(void **unused)
{
    (void)unused;
    static const char *const word[] = {"a member list's revision", "'tombstones'", "'fresh'", "a pool",
                                       "'replaceable' namespaces"};
    for (unsigned i = 0; i < 5; i++) {
        pair_init(&p);
        struct peer_identity *c = &p.config[0].self;
        c->client = true;
        c->address[0] = '\0';
        c->pool_bytes = i == 3 ? 4096 : 0;
        c->revision = i == 0;
        c->tombstone_ns = i == 1 ? INT64_MAX : 0;
        c->fresh_ns = i == 2;
        c->replaceable = i == 4 ? 77 : 0;
        expect_refused(-EPROTO, "client 'node-a' says that it has", word[i]);
    }
}

static int32_t unfit_whoever(void *env, const struct peer_identity *other, char *why, size_t size)
{
    (void)env;
    (void)other;
    snprintf(why, size, "something else");
    return -EACCES;
}

/* Whatever else is wrong with it: a node of another version hears of the version. */
static void test_version_first(void **unused)
{
    (void)unused;
    for (unsigned other = 1; other <= 5; other += 4) {
        for (unsigned what = 0; what < 5; what++) {
            alike();
            struct peer_identity *o = &p.config[0].self;
            o->version_min = o->version_max = (uint16_t)other;
            if (other == 1) /* its HELLO has neither */
                o->tombstone_ns = o->fresh_ns = 0;
            o->revision = what == 0;
            if (what == 1)
                snprintf(o->cluster, sizeof o->cluster, "other");
            if (what == 2)
                memcpy(o->region, p.config[1].self.region, sizeof o->region);
            if (what == 3)
                p.config[1].fit = unfit_whoever;
            o->client = what == 4; /* with a pool, which a client has not */
            o->address[0] = what == 4 ? '\0' : o->address[0];
            expect_refused(BERTH_EFORMAT, "no common version: 'node-b' speaks 4 to 4",
                           other == 1 ? "'node-a' 1 to 1" : "'node-a' 5 to 5");
        }
    }
}

static void test_config(void **unused)
{
    (void)unused;
    struct peer *made;
    for (unsigned i = 0; i < 8; i++) {
        struct peer_config c = p.config[0];
        switch (i) {
        case 0:
            c.self.node[0] = '\0';
            break;
        case 1:
            c.self.node[0] = ' ';
            break;
        case 2:
            c.pending_max = PEER_PENDING_MAX + 1;
            break;
        case 3:
            c.pending_max = 0;
            break;
        case 4:
            c.gone_ns = c.silence_ns;
            break;
        case 5:
            c.self.largest = WIRE_MESSAGE_MAX + 1;
            break;
        case 6:
            c.self.largest = WIRE_MESSAGE_MIN - 1;
            break;
        default:
            memset(c.self.cluster, 'x', sizeof c.self.cluster);
            break;
        }
        assert_int_equal(peer_create(&made, &c, p.now), -EINVAL);
    }
}

/* Nobody who connects and says nothing, or whom nobody answers, keeps us longer than hello_ns. */
static void test_hello_timeout(void **unused)
{
    (void)unused;
    for (unsigned opened = 0; opened < 2; opened++) {
        pair_init(&p);
        pair_open(&p);
        int64_t began = p.now;
        for (unsigned i = 0; i < 2; i++) {
            p.now = began;
            if (opened)
                pair_event(&p, i, PEER_EV_OPENED, 0);
            assert_int_equal(peer_timer(p.side[i].peer), began + PEER_HELLO_NS);
            p.now = began + PEER_HELLO_NS - 1;
            pair_event(&p, i, PEER_EV_TICK, 0);
            assert_int_equal(p.side[i].closes, 0);
            p.now++;
            pair_event(&p, i, PEER_EV_TICK, 0);
            assert_int_equal(p.side[i].close_status, BERTH_ENODE);
            assert_int_equal(peer_timer(p.side[i].peer), INT64_MAX);
            pair_event(&p, i, PEER_EV_CLOSED, 0);
            assert_int_equal(p.side[i].down_status, BERTH_ENODE);
        }
        pair_close(&p);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_up),
        T(test_newer),
        T(test_no_common_version),
        T(test_refused),
        T(test_addresses),
        T(test_bad_welcome),
        T(test_client),
        T(test_client_overstates),
        T(test_version_first),
        T(test_config),
        T(test_hello_timeout),
        T(test_memory),
        T(test_long_names),
        T(test_older),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
