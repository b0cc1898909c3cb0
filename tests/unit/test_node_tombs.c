/* Removals that are kept until their homes have them, and versions that take a greater counter: over crashes, failing
 * commits and bounds. */
#include "index/batch.h"
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define T (10 * SECOND)

static struct node_publication last; /* told */
static char last_key[KEY_MAX + 1];
static uint32_t n_told;

static void hear(struct core *c, const struct node_command *k)
{
    (void)c;
    for (uint32_t i = 0; k->kind == CMD_PUBLISHED && i < k->n_published; i++) {
        last = k->published[i];
        memset(last_key, 0, sizeof last_key);
        memcpy(last_key, last.key.data, last.key.size);
        n_told++;
    }
}

static void options(struct core *c)
{
    lease_options(c);
    c->other = hear;
    c->config.publish = true;
    c->config.tombstone_ns = T;
    n_told = 0;
}

static void begin(struct core *c)
{
    core_open(c, 64 * MIB, options);
    core_attach(c, 1);
}

static void crash(struct core *c)
{
    const uint64_t none = 0;
    core_crash(c, &none, 0);
    core_attach(c, 2);
}

static void settle(struct core *c)
{
    core_turn(c);
    core_check(c);
}

/* The removal of a key as a listing has it; NULL: there is none. */
static const struct node_publication *listed(struct core *c, const char *key)
{
    static struct node_publication p;
    static uint8_t buf[KEY_MAX];
    for (uint64_t cursor = 0; node_objects_next(c->node, &cursor, buf, &p);) {
        if (p.kind == PUBLISH_REMOVED && p.key.size == strlen(key) && memcmp(buf, key, p.key.size) == 0) {
            return &p;
        }
    }
    return NULL;
}

static void known(struct core *c, const char *key, uint64_t counter, uint8_t home)
{
    core_event(c, (struct node_event){
                      .kind = EV_KNOWN, .key = lease_key(key, 0), .counter = counter, .home = home, .homes = 2});
    settle(c);
}

static uint64_t removed(struct core *c, uint64_t session, const char *key)
{
    assert_int_equal(core_put(c, session, key, 100, 0), 0);
    assert_int_equal(core_key(c, session, MSG_REMOVE, key, 0), 0);
    assert_true(last.kind == PUBLISH_REMOVED && last.fresh && !last.again);
    return last.counter;
}

static void test_kept_until_known(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t counter = removed(&c, 1, "k");
    assert_true(listed(&c, "k")->counter == counter && listed(&c, "k")->fresh);
    crash(&c); /* nobody had heard of it */
    assert_true(listed(&c, "k")->counter == counter && listed(&c, "k")->fresh);
    core_tick(&c, 3 * T);
    assert_non_null(listed(&c, "k")); /* however long it takes */
    known(&c, "k", counter, 0);
    known(&c, "k", counter, 0);
    known(&c, "k", counter - 1, 1); /* of another one */
    assert_true(listed(&c, "k")->fresh);
    crash(&c); /* who has heard is not kept */
    known(&c, "k", counter, 1);
    assert_true(listed(&c, "k")->fresh);
    known(&c, "k", counter, 0);
    assert_false(listed(&c, "k")->fresh);
    assert_int_equal(core_status(&c).tombstones, 1);
    assert_int_equal(core_status(&c).tombstones_unknown, 0);
    core_tick(&c, T / 2);
    crash(&c); /* T begins anew: homes may have forgotten while nobody was there to tell them */
    assert_false(listed(&c, "k")->fresh);
    assert_int_equal(core_status(&c).tombstones_unknown, 1);
    core_tick(&c, 3 * T);
    known(&c, "k", counter, 0);
    known(&c, "k", counter, 1);
    core_tick(&c, T - SECOND);
    assert_non_null(listed(&c, "k")); /* T after the last home had it */
    core_tick(&c, 2 * SECOND);
    assert_null(listed(&c, "k"));
    crash(&c);
    assert_null(listed(&c, "k"));
    core_close(&c);
}

/* What is put after a removal stands beside it: older copies elsewhere are gone all the same. */
static void test_put_again(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t first = removed(&c, 1, "k");
    assert_int_equal(core_put(&c, 1, "k", 100, 0), 0);
    settle(&c);
    assert_int_equal(listed(&c, "k")->counter, first);
    crash(&c);
    assert_int_equal(listed(&c, "k")->counter, first);
    assert_true(core_find(&c, "k", 0) != SLOT_NONE);
    c.hold_commits = true;
    known(&c, "k", first, 0); /* what it says of the first is not written any more, ended with it */
    assert_int_equal(core_key(&c, 2, MSG_REMOVE, "k", 0), 1000);
    known(&c, "k", first, 1);
    c.hold_commits = false;
    core_commit(&c);
    settle(&c);
    assert_int_equal(last.kind, PUBLISH_REMOVED);
    uint64_t second = last.counter;
    known(&c, "k", first, 0);
    known(&c, "k", first, 1);
    assert_true(listed(&c, "k")->counter == second && listed(&c, "k")->fresh);
    assert_int_equal(core_status(&c).tombstones, 1);
    crash(&c);
    assert_int_equal(listed(&c, "k")->counter, second);
    core_close(&c);
}

/* The row and the record go together; a start ends what a full index took apart. */
static void test_commits(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(core_put(&c, 1, "k", 100, 0), 0);
    c.fail_commits = 2;
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k", 0), 0); /* the delete goes again, and the row with it */
    settle(&c);
    assert_int_equal(core_find(&c, "k", 0), SLOT_NONE);
    uint64_t counter = listed(&c, "k")->counter;
    c.fail_commits = 1;
    known(&c, "k", counter, 0);
    known(&c, "k", counter, 1); /* the commit that says so fails; it is written again */
    crash(&c);
    assert_false(listed(&c, "k")->fresh);

    assert_int_equal(core_put(&c, 2, "both", 100, 0), 0);
    struct batch *b = batch_create();
    batch_tombstone(b, lease_key("both", 0),
                    &(struct tombstone_row){.counter = c.headers[core_find(&c, "both", 0)].version + 1});
    assert_int_equal(lmdb_ops.commit(c.index, b), 0);
    batch_destroy(b);
    crash(&c);
    assert_int_equal(core_find(&c, "both", 0), SLOT_NONE);
    assert_non_null(listed(&c, "both"));

    assert_int_equal(core_put(&c, 2, "late", 100, 0), 0);
    c.hold_commits = true;
    core_key(&c, 2, MSG_REMOVE, "late", 0);
    core_turn(&c);
    c.hold_commits = false;
    c.flying = NULL; /* never applied */
    crash(&c);
    assert_true(core_find(&c, "late", 0) != SLOT_NONE);
    assert_null(listed(&c, "late"));
    core_close(&c);
}

static int seal_copy(struct core *c, const char *key, uint64_t counter, uint64_t region)
{
    struct msg_token t;
    assert_int_equal(core_create(c, NODE_PULLER, key, 100, 0, &t), 0);
    struct node_seal_origin *m = (struct node_seal_origin *)core_message(c, NODE_SEAL_ORIGIN, sizeof *m);
    m->token = t;
    m->counter = counter;
    m->region = region;
    core_event(c, (struct node_event){.kind = EV_REQUEST, .session = NODE_PULLER, .message = &m->head});
    core_turn(c);
    const struct msg_reply *r = core_reply(c, m->head.id);
    int status = r ? r->status : 1000;
    if (status < 0) {
        struct msg_tokens *a = (struct msg_tokens *)core_message(c, MSG_ABORT, sizeof *a + sizeof(struct msg_token));
        a->count = 1;
        memcpy(a + 1, &t, sizeof t);
        core_request(c, NODE_PULLER, &a->head);
    }
    return status;
}

/* What is known of an old removal does not overwrite a newer one that is not committed yet. */
static void test_newer_under_way(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t first = removed(&c, 1, "k");
    assert_int_equal(core_put(&c, 1, "k", 100, 0), 0);
    c.hold_commits = true;
    assert_int_equal(core_put(&c, 1, "x", 100, 0),
                     1000); /* a commit that is under way: the removal waits in the next */
    core_turn(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k", 0), 1000);
    known(&c, "k", first, 0);
    known(&c, "k", first, 1);
    c.hold_commits = false;
    core_commit(&c);
    settle(&c);
    uint64_t second = listed(&c, "k")->counter;
    assert_true(second > first);
    crash(&c);
    assert_true(listed(&c, "k")->counter == second && listed(&c, "k")->fresh);
    core_close(&c);
}

static void test_copies_below(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    core_event(&c, (struct node_event){.kind = EV_ATTACH, .session = NODE_PULLER, .writable = true});
    uint64_t counter = removed(&c, 1, "k");
    assert_int_equal(seal_copy(&c, "k", counter - 1, 99), -ENOENT);
    assert_int_equal(seal_copy(&c, "k", counter, 7), -ENOENT);
    assert_int_equal(core_find(&c, "k", 0), SLOT_NONE);
    assert_int_equal(seal_copy(&c, "k", counter + 1, 99), 0);
    assert_true(core_find(&c, "k", 0) != SLOT_NONE);
    settle(&c);
    core_close(&c);
}

static void test_bounds(void **unused)
{
    (void)unused;
    struct core c;
    char key[KEY_MAX + 1];
    uint64_t counter = 0;
    begin(&c);
    memset(key, 'x', KEY_MAX);
    key[KEY_MAX] = 0;
    uint32_t room = (64u << 20) / 32 / (64 + KEY_MAX); /* a 32nd of the index */
    for (uint32_t i = 0; i < room; i++) {
        snprintf(key, 9, "%08u", i);
        key[8] = 'x';
        counter = i == 5 ? removed(&c, 1, key) : (removed(&c, 1, key), counter);
    }
    assert_int_equal(core_status(&c).tombstones, room);
    assert_int_equal(core_status(&c).counter[NODE_TOMBSTONES_LOST], 0);
    memcpy(key, "00000005", 8);
    known(&c, key, counter, 0);
    known(&c, key, counter, 1);
    memcpy(key, "a0000000", 8);
    removed(&c, 1, key); /* the known one makes room */
    settle(&c);
    memcpy(key, "00000005", 8);
    assert_null(listed(&c, key));
    assert_int_equal(core_status(&c).counter[NODE_TOMBSTONES_LOST], 0);
    memcpy(key, "b0000000", 8);
    removed(&c, 1, key); /* then the oldest */
    settle(&c);
    assert_int_equal(core_status(&c).counter[NODE_TOMBSTONES_LOST], 1);
    memcpy(key, "00000000", 8);
    assert_null(listed(&c, key));
    memcpy(key, "00000001", 8);
    assert_non_null(listed(&c, key));
    uint64_t n = core_status(&c).tombstones;
    crash(&c);
    assert_int_equal(core_status(&c).tombstones, n);
    core_close(&c);
}

/* ---- a greater counter ---- */

static void take(struct core *c, const char *key, uint32_t ns, uint64_t counter, bool removal)
{
    core_event(c,
               (struct node_event){.kind = EV_TAKE, .key = lease_key(key, ns), .counter = counter, .removal = removal});
}

static void test_take(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(core_put(&c, 1, "k", 100, NS_R), 0);
    uint32_t slot = core_find(&c, "k", NS_R);
    uint64_t old = c.headers[slot].version, word = slot_load(&c.headers[slot]);
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = old + 1000000});
    take(&c, "k", NS_R, old + 1, false); /* of another version */
    settle(&c);
    assert_int_equal(c.headers[slot].version, old);
    uint32_t before = n_told;
    c.hold_commits = true;
    take(&c, "k", NS_R, old, false);
    core_turn(&c);
    assert_int_equal(c.headers[slot].version, old); /* not before it is committed */
    take(&c, "k", NS_R, old, false);                /* once */
    c.hold_commits = false;
    core_commit(&c);
    settle(&c);
    uint64_t taken = c.headers[slot].version;
    assert_true(taken > old + 1000000);
    assert_int_equal(core_find(&c, "k", NS_R), slot);
    assert_true(slot_load(&c.headers[slot]) == word);
    assert_int_equal(n_told, before + 1);
    assert_true(last.kind == PUBLISH_SEALED && last.counter == taken && last.fresh && last.again);
    __atomic_store_n(&c.headers[slot].version, old, __ATOMIC_RELAXED); /* as if killed before the header */
    crash(&c);
    assert_int_equal(c.headers[slot].version, taken);
    core_check(&c);
    core_close(&c);
}

static void test_take_fails(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(core_put(&c, 1, "k", 100, 0), 0);
    uint32_t slot = core_find(&c, "k", 0);
    uint64_t old = c.headers[slot].version;
    c.fail_commits = 1;
    take(&c, "k", 0, old, false);
    settle(&c);
    assert_int_equal(c.headers[slot].version, old);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "k", "x", 0), 0);
    take(&c, "k", 0, old, false); /* its hold stays */
    settle(&c);
    assert_true(c.headers[slot].version > old);
    assert_int_equal(core_status(&c).held, 1);
    core_check(&c);
    core_close(&c);
}

/* Who was sealed together has one number, before and after; and it is one after a crash, too. */
static void test_take_group(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t[3];
    uint32_t slot[3];
    char key[8];
    begin(&c);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "g%u", i);
        assert_int_equal(core_create(&c, 1, key, 100, NS_R, &t[i]), 0);
    }
    assert_int_equal(core_seal(&c, 1, t, 3), 0);
    assert_int_equal(core_put(&c, 1, "other", 100, NS_R), 0);
    uint64_t other = c.headers[core_find(&c, "other", NS_R)].version;
    for (unsigned i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "g%u", i);
        slot[i] = core_find(&c, key, NS_R);
    }
    uint64_t old = c.headers[slot[0]].version;
    crash(&c); /* that they are a group is in the index, too */
    uint32_t before = n_told;
    take(&c, "g1", NS_R, old, false);
    settle(&c);
    uint64_t taken = c.headers[slot[0]].version;
    assert_true(taken > old && c.headers[slot[1]].version == taken && c.headers[slot[2]].version == taken);
    assert_int_equal(c.headers[core_find(&c, "other", NS_R)].version, other);
    assert_int_equal(n_told, before + 3);
    take(&c, "g2", NS_R, old, false);
    settle(&c);
    assert_int_equal(c.headers[slot[2]].version, taken);
    __atomic_store_n(&c.headers[slot[2]].version, old, __ATOMIC_RELAXED);
    crash(&c);
    assert_int_equal(c.headers[slot[2]].version, taken);
    core_close(&c);
}

static void test_take_removal(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t counter = removed(&c, 1, "k");
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = counter + 1000000});
    take(&c, "k", 0, counter, true);
    settle(&c);
    assert_true(last.kind == PUBLISH_REMOVED && last.counter > counter + 1000000 && last.again);
    uint64_t taken = last.counter;
    assert_string_equal(last_key, "k");
    take(&c, "k", 0, taken, true); /* once */
    settle(&c);
    assert_int_equal(listed(&c, "k")->counter, taken);
    crash(&c);
    assert_true(listed(&c, "k")->counter == taken && listed(&c, "k")->again && listed(&c, "k")->fresh);
    take(&c, "k", 0, taken, true);
    settle(&c);
    assert_int_equal(listed(&c, "k")->counter, taken);
    known(&c, "k", taken, 0);
    known(&c, "k", taken, 1);
    assert_false(listed(&c, "k")->fresh);
    core_close(&c);
}

/* A removal that an own put has followed stays below it: a greater number would end the put. */
static void test_take_removal_put_since(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t counter = removed(&c, 1, "k");
    assert_int_equal(core_put(&c, 1, "k", 100, 0), 0);
    settle(&c);
    uint32_t slot = core_find(&c, "k", 0), told = n_told;
    uint64_t put = c.headers[slot].version;
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = put + 1000000});
    take(&c, "k", 0, counter, true);
    settle(&c);
    assert_int_equal(listed(&c, "k")->counter, counter);
    assert_int_equal(n_told, told);
    assert_true(core_find(&c, "k", 0) == slot && c.headers[slot].version == put);
    take(&c, "k", 0, put, false); /* it takes one itself, and stays */
    settle(&c);
    assert_true(c.headers[slot].version > put + 1000000 && core_find(&c, "k", 0) == slot);
    core_close(&c);
}

/* Homes have it, and the key is busy when its time is over: nothing is due before that has ended. */
static void test_due_and_busy(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    uint64_t counter = removed(&c, 1, "k");
    known(&c, "k", counter, 0);
    known(&c, "k", counter, 1);
    core_tick(&c, T - SECOND);
    c.hold_commits = true;
    core_put(&c, 1, "k", 100, 0);
    core_tick(&c, 2 * SECOND);
    assert_non_null(listed(&c, "k"));
    assert_true(node_timer(c.node) > c.now.mono);
    c.hold_commits = false;
    core_commit(&c);
    settle(&c);
    core_tick(&c, SECOND);
    assert_null(listed(&c, "k"));
    core_check(&c);
    core_close(&c);
}

static void test_notes(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    c.fail_commits = 1;
    core_event(&c, (struct node_event){.kind = EV_NOTE, .meta = META_IN_TOUCH, .counter = 17});
    core_event(&c, (struct node_event){.kind = EV_NOTE, .meta = META_COUNTER, .counter = 18}); /* not a shell's */
    settle(&c);
    assert_int_equal(lmdb_ops.meta(c.index, META_IN_TOUCH), 17);
    assert_true(lmdb_ops.meta(c.index, META_COUNTER) != 18);
    core_close(&c);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_until_known),
        cmocka_unit_test(test_put_again),
        cmocka_unit_test(test_commits),
        cmocka_unit_test(test_newer_under_way),
        cmocka_unit_test(test_copies_below),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_take_fails),
        cmocka_unit_test(test_take_group),
        cmocka_unit_test(test_take_removal),
        cmocka_unit_test(test_take_removal_put_since),
        cmocka_unit_test(test_due_and_busy),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
