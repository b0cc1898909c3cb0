/* Replicas under the versions of other regions, and what the homes are told. */
#include "store/read.h"
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct told {
    enum node_publication_kind kind;
    char key[KEY_MAX + 1];
    uint64_t counter, region, size;
};
static struct told told[2048];
static uint32_t n_told, n_commands;

static void hear(struct core *c, const struct node_command *k)
{
    (void)c;
    if (k->kind != CMD_PUBLISHED) {
        return;
    }
    n_commands++;
    assert_in_range(k->n_published, 1, PUBLISH_MAX);
    for (uint32_t i = 0; i < k->n_published; i++) {
        const struct node_publication *p = &k->published[i];
        struct told *t = &told[n_told++ % 2048];
        *t = (struct told){.kind = p->kind, .counter = p->counter, .region = p->region, .size = p->size};
        memcpy(t->key, p->key.data, p->key.size);
    }
}

static void publishing(struct core *c)
{
    lease_options(c);
    c->other = hear;
    c->config.publish = true;
    c->config.high_bytes = 100 * 4096;
    c->config.low_bytes = 90 * 4096;
    n_told = n_commands = 0;
}

static void attach_puller(struct core *c)
{
    core_event(c, (struct node_event){.kind = EV_ATTACH, .session = NODE_PULLER, .writable = true});
    core_turn(c);
}

static struct node_seal_origin *origin_message(struct core *c, const struct msg_token *t, uint64_t counter,
                                               uint64_t region)
{
    struct node_seal_origin *m = (struct node_seal_origin *)core_message(c, NODE_SEAL_ORIGIN, sizeof *m);
    m->token = *t;
    m->checksum = 77;
    m->lineage = 55;
    m->counter = counter;
    m->region = region;
    return m;
}

static int32_t send(struct core *c, uint64_t session, struct node_seal_origin *m)
{
    core_event(c, (struct node_event){.kind = EV_REQUEST, .session = session, .message = &m->head});
    core_turn(c);
    const struct msg_reply *r = core_reply(c, m->head.id);
    return r ? r->status : 1000;
}

static int32_t pull(struct core *c, const char *key, uint32_t ns, uint64_t counter, uint64_t region)
{
    struct msg_token t;
    int e = core_create(c, NODE_PULLER, key, 10, ns, &t);
    return e ? e : send(c, NODE_PULLER, origin_message(c, &t, counter, region));
}

static uint64_t region_of_key(struct core *c, const char *key, uint32_t ns)
{
    const struct slot_header *h = &c->headers[core_find(c, key, ns)];
    return h->region ? c->super.region_ids[h->region] : c->super.region_id;
}

/* What a client that maps these files is told. */
static struct berth_version seen_by_a_reader(struct core *c, const char *key)
{
    static struct berth b;
    static uint8_t pool[PAGE_BYTES];
    struct berth_view v;
    b.slots.base = &c->super;
    b.pool = pool; /* nothing is read there */
    b.region_id = c->super.region_id;
    uint32_t slot = core_find(c, key, 0);
    read_view(&b, &c->headers[slot], (struct found){.slot = slot}, &v);
    return v.version;
}

static void test_replica_keeps_its_version(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    attach_puller(&c);
    uint64_t counter = c.now.wall_us + 1000000000;
    assert_int_equal(pull(&c, "a", 0, counter, 1234), 0);
    const struct msg_reply *r = core_reply(&c, c.next_id);
    assert_int_equal(r->counter, counter);
    assert_int_equal(r->region, 1234);
    uint32_t slot = core_find(&c, "a", 0);
    assert_int_equal(c.headers[slot].version, counter);
    assert_int_equal(c.headers[slot].lineage, 55);
    assert_int_equal(c.headers[slot].checksum, 77);
    assert_int_equal(region_of_key(&c, "a", 0), 1234);
    assert_true(seen_by_a_reader(&c, "a").counter == counter && seen_by_a_reader(&c, "a").region == 1234);
    core_check(&c);
    assert_int_equal(lease_one(&c, 1, "a"), 0); /* a replica is leased as what it is */
    assert_int_equal(grants[0].counter, counter);
    assert_int_equal(grants[0].region, 1234);
    assert_int_equal(core_put(&c, 1, "b", 1, 0), 0); /* ours go on from what was seen (rule 28) */
    assert_true(c.headers[core_find(&c, "b", 0)].version > counter);
    assert_int_equal(seen_by_a_reader(&c, "b").region, 7);
    assert_int_equal(pull(&c, "a", 0, counter + 5, 99), BERTH_KEPT); /* content-addressed */
    assert_int_equal(pull(&c, "b", 0, counter + 5, 99), BERTH_KEPT);
    core_crash(&c, (uint64_t[]){1}, 1); /* and over a restart */
    core_check(&c);
    assert_int_equal(core_find(&c, "a", 0), slot);
    assert_int_equal(region_of_key(&c, "a", 0), 1234);
    core_attach(&c, 1);
    struct msg_key *m = (struct msg_key *)core_message(&c, MSG_STAT, (uint32_t)sizeof *m + 1);
    m->key_size = 1;
    memcpy(m + 1, "a", 1);
    r = core_request(&c, 1, &m->head);
    assert_int_equal(((const struct msg_stat *)(r + 1))->region, 1234);
    core_close(&c);
}

/* What comes back from a peer is a copy, also where this node put it once; what a client puts is none. */
static void test_copies_are_not_puts(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    attach_puller(&c);
    assert_int_equal(core_put(&c, 1, "mine", 10, 0), 0);
    struct berth_version first = seen_by_a_reader(&c, "mine");
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "mine", 0), 0);
    assert_int_equal(pull(&c, "mine", 0, first.counter, first.region), 0);
    assert_int_equal(pull(&c, "theirs", 0, first.counter, 1234), 0);
    assert_int_equal(core_status(&c).counter[NODE_PUTS], 1);
    assert_int_equal(core_status(&c).counter[NODE_PUT_BYTES], 10);
    assert_int_equal(core_status(&c).counter[NODE_COPIES], 2);
    assert_int_equal(core_status(&c).counter[NODE_COPY_BYTES], 20);
    core_close(&c);
}

static void test_newer_wins_where_it_may_be_replaced(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    attach_puller(&c);
    uint64_t t = c.now.wall_us * 2;
    assert_int_equal(pull(&c, "a", NS_R, t, 50), 0);
    assert_int_equal(pull(&c, "a", NS_R, t, 50), BERTH_KEPT);
    assert_int_equal(pull(&c, "a", NS_R, t - 1, 99), BERTH_KEPT); /* never back */
    assert_int_equal(pull(&c, "a", NS_R, t, 49), BERTH_KEPT);
    assert_int_equal(region_of_key(&c, "a", NS_R), 50);
    assert_int_equal(pull(&c, "a", NS_R, t, 51), 0);
    assert_int_equal(region_of_key(&c, "a", NS_R), 51);
    assert_int_equal(core_put(&c, 1, "a", 3, NS_R), 0);
    assert_int_equal(region_of_key(&c, "a", NS_R), 7);
    assert_true(c.headers[core_find(&c, "a", NS_R)].version > t);
    assert_int_equal(pull(&c, "a", NS_R, t + 1000000, 7), 0); /* our own, back from a replica */
    assert_int_equal(c.headers[core_find(&c, "a", NS_R)].region, 0);
    core_check(&c);
    core_close(&c);
}

static void test_region_table_is_bounded(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    attach_puller(&c);
    for (uint32_t i = 1; i < REGIONS_MAX; i++) {
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(pull(&c, key, 0, 1000 + i, 10000 + i), 0);
    }
    assert_int_equal(pull(&c, "more", 0, 9, 5), BERTH_EQUOTA);
    assert_int_equal(core_status(&c).drafts, 1); /* still the puller's */
    assert_int_equal(pull(&c, "known", 0, 9, 10001), 0);
    uint32_t slot = core_find(&c, "k7", 0);
    c.pinned[slot] = 1;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k7", 0), 0);
    assert_int_equal(pull(&c, "more2", 0, 9, 5), BERTH_EQUOTA); /* a reader may still look it up */
    c.pinned[slot] = 0;
    core_tick(&c, 2 * SECOND);
    assert_int_equal(pull(&c, "more3", 0, 9, 5), 0);
    assert_int_equal(c.super.region_ids[c.headers[core_find(&c, "more3", 0)].region], 5);
    core_check(&c);
    core_crash(&c, NULL, 0); /* uses are counted again */
    core_attach(&c, 1);
    attach_puller(&c);
    core_tick(&c, 2 * SECOND); /* the old puller's drafts are gone */
    assert_int_equal(core_status(&c).drafts, 0);
    assert_int_equal(pull(&c, "more4", 0, 9, 6), BERTH_EQUOTA);
    assert_int_equal(pull(&c, "known2", 0, 9, 5), 0);
    core_check(&c);
    core_close(&c);
}

static void test_only_the_puller_and_only_sound_versions(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    attach_puller(&c);
    assert_int_equal(core_create(&c, 1, "mine", 10, 0, &t), 0);
    assert_int_equal(send(&c, 1, origin_message(&c, &t, 5, 5)), -EOPNOTSUPP);
    assert_int_equal(send(&c, NODE_PULLER, origin_message(&c, &t, 5, 5)), BERTH_ESTALE);
    assert_int_equal(pull(&c, "a", 0, 0, 5), -EINVAL);
    assert_int_equal(pull(&c, "a", 0, 5, 0), -EINVAL);
    assert_int_equal(pull(&c, "a", 0, UINT64_MAX, 5), -EINVAL);
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = UINT64_MAX});
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = COUNTER_SEEN_MAX + 1});
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = COUNTER_SEEN_MAX - 10});
    assert_int_equal(core_put(&c, 1, "b", 1, 0), 0);
    assert_int_equal(c.headers[core_find(&c, "b", 0)].version, COUNTER_SEEN_MAX - 9);
    /* A commit that fails leaves the draft, whoever's version it gets in the end. */
    assert_int_equal(core_create(&c, NODE_PULLER, "c", 10, 0, &t), 0);
    c.fail_commits = 1;
    assert_int_equal(send(&c, NODE_PULLER, origin_message(&c, &t, 5, 5)), BERTH_EINDEXFULL);
    core_check(&c);
    assert_int_equal(send(&c, NODE_PULLER, origin_message(&c, &t, 6, 6)), 0);
    assert_int_equal(region_of_key(&c, "c", 0), 6);
    core_check(&c);
    core_close(&c);
}

static const struct told *last(uint32_t back)
{
    return &told[(n_told - 1 - back) % 2048];
}

static void test_homes_are_told(void **unused)
{
    (void)unused;
    struct core c;
    char key[KEY_MAX + 1];
    core_open(&c, 64 * MIB, publishing);
    core_attach(&c, 1);
    memset(key, 'q', KEY_MAX);
    key[KEY_MAX] = 0;
    assert_int_equal(core_put(&c, 1, key, 5, 0), 0);
    assert_int_equal(n_told, 1);
    assert_true(last(0)->kind == PUBLISH_SEALED && last(0)->size == 5 && last(0)->region == 7);
    assert_string_equal(last(0)->key, key);
    assert_int_equal(last(0)->counter, c.headers[core_find(&c, key, 0)].version);
    assert_int_equal(core_put(&c, 1, key, 5, 0), BERTH_KEPT);
    assert_int_equal(n_told, 1);
    uint64_t version = last(0)->counter;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, key, 0), 0);
    assert_int_equal(n_told, 2);
    assert_true(last(0)->kind == PUBLISH_REMOVED && last(0)->counter > version && last(0)->region == 7);
    c.fail_commits = 1;
    assert_int_equal(core_put(&c, 1, "no", 5, 0), BERTH_EINDEXFULL);
    assert_int_equal(n_told, 2); /* after the commit, or not at all */
    for (int i = 0; i < 101; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_put(&c, 1, key, 1, 0), 0);
    }
    core_turn(&c);
    uint32_t gone = 0, objects = 0;
    for (uint32_t i = 2; i < n_told; i++) {
        gone += told[i].kind == PUBLISH_GONE;
    }
    assert_int_equal(gone, 11);
    assert_int_equal(n_told, 2 + 101 + 11);
    struct node_publication p;
    uint8_t buf[KEY_MAX];
    for (uint64_t cursor = 0; node_objects_next(c.node, &cursor, buf, &p);) {
        if (p.kind == PUBLISH_REMOVED) { /* behind the objects */
            assert_int_equal(objects, 90);
            assert_true(p.fresh && p.counter > version);
            continue;
        }
        objects++;
        assert_true(p.key.size >= 2 && buf[0] == 'k' && p.counter && p.region == 7);
    }
    assert_int_equal(objects, 90);
    core_close(&c);
}

/* One commit's news come together, however many answers stand between them. */
static void test_news_of_one_commit(void **unused)
{
    (void)unused;
    struct core c;
    char key[32];
    struct msg_token t[40];
    core_open(&c, 64 * MIB, publishing);
    core_attach(&c, 1);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, "first", 1, 0), 1000);
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(core_create(&c, 1, key, 10, 0, &t[i]), 0);
        assert_int_equal(core_seal(&c, 1, &t[i], 1), 1000);
    }
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(n_commands, 1);
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(n_told, 41);
    assert_int_equal(n_commands, 2);
    core_close(&c);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replica_keeps_its_version),
        cmocka_unit_test(test_copies_are_not_puts),
        cmocka_unit_test(test_newer_wins_where_it_may_be_replaced),
        cmocka_unit_test(test_region_table_is_bounded),
        cmocka_unit_test(test_only_the_puller_and_only_sound_versions),
        cmocka_unit_test(test_homes_are_told),
        cmocka_unit_test(test_news_of_one_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
