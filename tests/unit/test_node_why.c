/* What a node remembers of keys that are not here, and of puts that failed. */
#include "store/node_internal.h"
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct node_why why(const struct core *c, const char *key)
{
    struct node_why w;
    node_why(c->node, lease_key(key, 0), &w);
    return w;
}

static void begin(struct core *c, uint64_t pool)
{
    core_open(c, pool, lease_options);
    core_attach(c, 1);
}

static void test_states(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    begin(&c, 64 * MIB);
    struct node_why w = why(&c, "k");
    assert_true(!w.here && !w.written && w.fate == FATE_NONE && w.since_us);
    assert_int_equal(core_create(&c, 1, "k", 100, 0, &t), 0);
    w = why(&c, "k");
    assert_true(!w.here && w.written && w.fate == FATE_NONE);
    assert_int_equal(core_seal(&c, 1, &t, 1), 0);
    w = why(&c, "k");
    uint64_t version = c.headers[t.slot].version;
    assert_true(w.here && !w.written && w.fate == FATE_NONE && w.size == 100 && w.counter == version && w.region == 7);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k", 0), 0);
    w = why(&c, "k");
    assert_true(!w.here && w.fate == FATE_REMOVED && w.gone_counter == version && w.gone_us >= w.since_us);
    assert_int_equal(core_put(&c, 1, "k", 50, 0), 0);
    w = why(&c, "k");
    assert_true(w.here && w.fate == FATE_REMOVED && w.created_us > w.gone_us);
    assert_int_equal(why(&c, "other").fate, FATE_NONE);
    struct node_why elsewhere;
    node_why(c.node, lease_key("k", NS_R), &elsewhere);
    assert_true(!elsewhere.here && elsewhere.fate == FATE_NONE);
    core_close(&c);
}

static void test_drafts(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    begin(&c, 64 * MIB);
    core_attach(&c, 2);
    assert_int_equal(core_create(&c, 1, "a", 100, 0, &t), 0);
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    assert_int_equal(why(&c, "a").fate, FATE_ABORTED);
    assert_int_equal(core_create(&c, 2, "b", 100, 0, &t), 0);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 2});
    core_tick(&c, 5 * SECOND);
    assert_int_equal(why(&c, "b").fate, FATE_DIED);

    /* A commit that fails, and what the client then gives up: the error is what is remembered. */
    assert_int_equal(core_create(&c, 1, "f", 100, 0, &t), 0);
    c.fail_commits = 1;
    assert_int_equal(core_seal(&c, 1, &t, 1), BERTH_EINDEXFULL);
    m = (struct msg_tokens *)core_message(&c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    struct node_why w = why(&c, "f");
    assert_true(w.fate == FATE_PUT_FAILED && w.error == BERTH_EINDEXFULL);
    core_close(&c);
}

static int ask_slot(struct core *c, const char *key, uint32_t size, uint32_t count)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_grant *m = (struct msg_grant *)core_message(c, MSG_GRANT, (uint32_t)sizeof *m + n);
    m->size = size;
    m->count = count;
    m->key_size = (uint16_t)n;
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, 1, &m->head);
    return r ? r->status : 1000;
}

static void quota(struct core *c)
{
    lease_options(c);
    c->config.draft_quota = 4 * MIB;
}

static void test_no_room(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    char key[16];
    begin(&c, 8 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "held%u", i);
        assert_int_equal(core_put(&c, 1, key, 2 * MIB, 0), 0);
        assert_int_equal(core_label(&c, 1, MSG_HOLD, key, "x", 0), 0);
    }
    assert_int_equal(core_create(&c, 1, "created", 2 * MIB, 0, &t), BERTH_EFULL);
    assert_int_equal(ask_slot(&c, "put", 2 * MIB, 1), BERTH_EFULL);
    struct node_why w = why(&c, "created");
    assert_true(w.fate == FATE_PUT_FAILED && w.error == BERTH_EFULL && w.gone_counter == 0);
    w = why(&c, "put");
    assert_true(w.fate == FATE_PUT_FAILED && w.error == BERTH_EFULL);
    core_close(&c);
    core_open(&c, 8 * MIB, quota);
    core_attach(&c, 1);
    assert_int_equal(ask_slot(&c, "first", 3 * MIB, 1), 0);
    assert_int_equal(ask_slot(&c, "second", 3 * MIB, 1), BERTH_EQUOTA);
    assert_true(why(&c, "first").fate == FATE_NONE && why(&c, "second").error == BERTH_EQUOTA);
    core_close(&c);
}

static void watermark(struct core *c)
{
    lease_options(c);
    c->config.high_bytes = 6 * MIB;
    c->config.low_bytes = 4 * MIB;
}

static void test_evictions(void **unused)
{
    (void)unused;
    struct core c;
    char key[16];
    core_open(&c, 8 * MIB, watermark);
    core_attach(&c, 1);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "w%u", i);
        assert_int_equal(core_put(&c, 1, key, 2 * MIB, 0), 0);
    }
    core_tick(&c, 0);
    assert_true(why(&c, "w0").fate == FATE_EVICTED && why(&c, "w0").need == NEED_WATERMARK);
    assert_true(why(&c, "w3").here && why(&c, "w3").fate == FATE_NONE);
    core_close(&c);

    begin(&c, 8 * MIB);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "s%u", i);
        assert_int_equal(core_put(&c, 1, key, 2 * MIB, 0), 0);
    }
    assert_true(why(&c, "s0").fate == FATE_EVICTED && why(&c, "s0").need == NEED_SIZE && why(&c, "s0").gone_counter);
    assert_int_equal(core_put(&c, 1, "s5", 2 * MIB, 0), 0); /* two had gone for one */
    assert_int_equal(core_put(&c, 1, "small", 64 << 10, 0), 0);
    unsigned others = 0;
    for (unsigned i = 0; i < 6; i++) {
        snprintf(key, sizeof key, "s%u", i);
        others += why(&c, key).fate == FATE_EVICTED && why(&c, key).need == NEED_OTHER;
    }
    assert_int_equal(others, 1);
    struct slot_header *h = &c.headers[core_find(&c, "small", 0)];
    core_event(&c, (struct node_event){
                       .kind = EV_DROP_COPY, .key = lease_key("small", 0), .counter = h->version, .region = 7});
    core_turn(&c);
    assert_int_equal(why(&c, "small").fate, FATE_OUTDATED);
    core_close(&c);
}

/* The table is as large as it is; the newest are in it. */
static void test_bound(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c, 8 * MIB);
    assert_int_equal(core_status(&c).remembered, 0);
    assert_int_equal(core_status(&c).remembered_bytes, 2 * MIB);
    for (uint32_t i = 0; i < 4 * FATES_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", i);
        fate_add(c.node, lookup_hash(42, lease_key(key, 0)), (struct fate){.kind = FATE_REMOVED, .counter = i + 1});
        fate_add(c.node, lookup_hash(42, lease_key(key, 0)), (struct fate){.kind = FATE_PURGED, .counter = i + 1});
    }
    uint64_t known = core_status(&c).remembered;
    assert_true(known > FATES_MAX * 9 / 10 && known <= FATES_MAX);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", 4 * FATES_MAX - 1 - i);
        struct node_why w = why(&c, key);
        found += w.fate == FATE_PURGED && w.gone_counter == 4 * FATES_MAX - i;
    }
    assert_int_equal(found, 1000);
    assert_int_equal(why(&c, "0").fate, FATE_NONE);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),    cmocka_unit_test(test_drafts), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_evictions), cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
