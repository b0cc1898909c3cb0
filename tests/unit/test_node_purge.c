/* Purges: what goes and what stays, drafts, the order of things, removals for homes. */
#include "tests/support/purges.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 600u
#define CROWD 8192u /* removals that a purge lets wait for homes: half of those that are kept */

static uint32_t told_removed, told_gone;

static void hear(struct core *c, const struct node_command *k)
{
    (void)c;
    for (uint32_t i = 0; k->kind == CMD_PUBLISHED && i < k->n_published; i++) {
        told_removed += k->published[i].kind == PUBLISH_REMOVED;
        told_gone += k->published[i].kind == PUBLISH_GONE;
    }
}

static void with_homes(struct core *c)
{
    lease_options(c);
    c->other = hear;
    c->config.publish = true;
    c->config.tombstone_ns = 10 * SECOND;
    told_removed = told_gone = 0;
}

static void begin(struct core *c)
{
    core_open(c, 64 * MIB, lease_options);
    core_attach(c, 1);
}

static void test_kinds(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(purge_put(&c, 1, "a/1", L, 0), 0);
    assert_int_equal(purge_put(&c, 1, "a/2", L + 1, 0), 0);
    assert_int_equal(purge_put(&c, 1, "b", 0, 0), 0);
    assert_int_equal(purge_put(&c, 1, "a", 0, 0), 0);
    assert_int_equal(purge_put(&c, 1, "a/1", L, NS_R), 0);
    assert_int_equal(purge_put(&c, 1, "x", 0, NS_R), 0);
    struct msg_purged p = purge_run(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 2 && p.bytes == 200 && p.held == 0 && p.drafts == 0 && p.untold == 0);
    assert_true(!purge_here(&c, "a/1") && core_find(&c, "a/1", NS_R) == SLOT_NONE && purge_here(&c, "a/2") &&
                purge_here(&c, "b"));
    p = purge_run(&c, PURGE_PREFIX, 0, 0, "a/");
    assert_true(p.removed == 1 && !purge_here(&c, "a/2") && purge_here(&c, "a") && purge_here(&c, "b"));
    p = purge_run(&c, PURGE_PREFIX, 0, 0, "a/");
    assert_int_equal(p.removed, 0);
    p = purge_run(&c, PURGE_NAMESPACE, 0, NS_R, NULL);
    assert_true(p.removed == 1 && core_find(&c, "x", NS_R) == SLOT_NONE && purge_here(&c, "b"));
    p = purge_run(&c, PURGE_NAMESPACE, 0, 0, NULL);
    assert_int_equal(p.removed, 2);
    assert_int_equal(core_status(&c).objects, 0);
    struct msg_purge *m = purge_message(&c, PURGE_NAMESPACE, 0, 12345, NULL);
    assert_int_equal(core_request(&c, 1, &m->head)->status, -EINVAL);
    assert_int_equal(purge_marks(&c), 0);
    assert_int_equal(core_status(&c).counter[NODE_PURGES], 5);
    assert_int_equal(core_status(&c).counter[NODE_PURGED], 6);
    core_close(&c);
}

static void test_held(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(purge_put(&c, 1, "k", L, 0), 0);
    assert_int_equal(purge_put(&c, 1, "held", L, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "held", "x", 0), 0);
    struct msg_purged p = purge_run(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 1 && p.held == 1 && purge_here(&c, "held"));
    p = purge_run(&c, PURGE_NAMESPACE, 0, 0, NULL);
    assert_true(p.removed == 0 && p.held == 1);
    assert_int_equal(core_label(&c, 1, MSG_DROP, "held", "x", 0), 0);
    p = purge_run(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 1 && p.held == 0 && !purge_here(&c, "held"));
    core_close(&c);
}

/* A hold that is not committed yet decides first. */
static void test_busy(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(purge_put(&c, 1, "a", L, 0), 0);
    assert_int_equal(purge_put(&c, 1, "b", L, 0), 0);
    core_attach(&c, 2);
    for (unsigned kind = PURGE_LINEAGE; kind <= PURGE_PREFIX; kind += 2) {
        c.hold_commits = true;
        uint64_t id = kind == PURGE_LINEAGE ? purge_ask(&c, kind, L, 0, NULL) : purge_ask(&c, kind, 0, 0, "a");
        assert_int_equal(core_label(&c, 2, MSG_HOLD, "a", "x", 0), 1000);
        core_commit(&c); /* the mark: the pass comes to a key whose hold is on its way */
        core_turn(&c);
        core_tick(&c, 0);
        assert_true(purge_here(&c, "a") && node_timer(c.node) > c.now.mono); /* it waits, and does not spin */
        c.hold_commits = false;
        core_commit(&c);
        struct msg_purged p = purge_answer(&c, id);
        assert_true(p.held == 1 && p.removed == (kind == PURGE_LINEAGE) && purge_here(&c, "a") && !purge_here(&c, "b"));
    }
    core_close(&c);
}

static void test_drafts(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token old[2], other, grant;
    begin(&c);
    core_attach(&c, 2);
    assert_int_equal(purge_create(&c, 1, "d1", L, &old[0]), 0);
    assert_int_equal(purge_create(&c, 2, "d2", L, &old[1]), 0);
    assert_int_equal(purge_create(&c, 1, "other", L + 1, &other), 0);
    assert_int_equal(core_grant(&c, 1, 100, &grant), 0);
    struct msg_wait *w = (struct msg_wait *)core_message(&c, MSG_WAIT, sizeof *w + sizeof(struct msg_wait_key) + 8);
    w->head.deadline = INT64_MAX;
    w->count = 1;
    *(struct msg_wait_key *)(w + 1) = (struct msg_wait_key){.key_size = 2};
    memcpy((struct msg_wait_key *)(w + 1) + 1, "d2", 2);
    uint64_t waits = w->head.id;
    assert_null(core_request(&c, 1, &w->head));
    struct msg_purged p = purge_run(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.drafts == 2 && p.removed == 0);
    assert_int_equal(*(const uint8_t *)(core_reply(&c, waits) + 1), WAIT_ABORTED);
    assert_int_equal(core_seal(&c, 2, &old[1], 1), BERTH_EPURGED);
    struct msg_token group[2] = {other, old[0]};
    assert_int_equal(core_seal(&c, 1, group, 2), BERTH_EPURGED); /* all or nothing */
    assert_false(purge_here(&c, "other") || purge_here(&c, "d1") || purge_here(&c, "d2"));
    assert_int_equal(core_seal(&c, 1, &other, 1), 0);
    assert_int_equal(purge_create(&c, 1, "d1", L, &old[0]), 0); /* newer */
    assert_int_equal(core_seal(&c, 1, &old[0], 1), 0);
    assert_int_equal(core_put_token(&c, 1, &grant, "granted", 100, 0), 0); /* a slot is no draft */
    assert_true(purge_here(&c, "d1") && purge_here(&c, "granted"));
    p = purge_run(&c, PURGE_NAMESPACE, 0, 0, NULL);
    assert_true(p.removed == 3 && p.drafts == 0); /* d2 failed already */
    core_check(&c);
    core_close(&c);
}

/* A flagged draft stays so over a restart, and the next use of its slot is not flagged. */
static void test_drafts_and_crash(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t, next;
    begin(&c);
    const uint64_t one = 1;
    assert_int_equal(purge_create(&c, 1, "d", L, &t), 0);
    assert_int_equal(purge_run(&c, PURGE_LINEAGE, L, 0, NULL).drafts, 1);
    core_crash(&c, &one, 1);
    core_attach(&c, 1);
    core_check(&c);
    assert_int_equal(core_seal(&c, 1, &t, 1), BERTH_EPURGED);
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    assert_int_equal(purge_create(&c, 1, "d", L, &next), 0);
    assert_int_equal(next.slot, t.slot);
    assert_int_equal(core_seal(&c, 1, &next, 1), 0);
    core_close(&c);
}

/* What was decided before it goes, though it is committed later; what comes after it stays. */
static void test_order(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    begin(&c);
    core_attach(&c, 2);
    assert_int_equal(purge_put(&c, 1, "r", L, NS_R), 0);
    assert_int_equal(purge_create(&c, 2, "early", L, &t), 0);
    c.hold_commits = true;
    assert_int_equal(core_seal(&c, 2, &t, 1), 1000); /* flies */
    uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_int_equal(purge_put(&c, 2, "late", L, 0), 1000);
    assert_int_equal(purge_put(&c, 2, "r", L, NS_R), 1000); /* replaces what is to go */
    for (unsigned i = 0; i < 8; i++) {
        core_commit(&c);
        core_turn(&c);
    }
    c.hold_commits = false;
    core_commit(&c);
    struct msg_purged p = purge_answer(&c, id);
    assert_int_equal(p.removed, 1);
    assert_true(!purge_here(&c, "early") && purge_here(&c, "late") && core_find(&c, "r", NS_R) != SLOT_NONE);
    core_close(&c);
}

/* Its seal fails in a commit that was under way when the purge came: then it is a draft that is older. */
static void test_seal_fails(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    begin(&c);
    core_attach(&c, 2);
    assert_int_equal(purge_create(&c, 2, "d", L, &t), 0);
    c.hold_commits = true;
    c.fail_commits = 1;
    assert_int_equal(core_seal(&c, 2, &t, 1), 1000);
    uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(purge_answer(&c, id).removed, 0);
    assert_int_equal(core_seal(&c, 2, &t, 1), BERTH_EPURGED);
    core_check(&c);
    core_close(&c);
}

static void test_views(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(purge_put(&c, 1, "k", L, 0), 0);
    uint32_t slot = core_find(&c, "k", 0);
    c.pinned[slot] = 1;
    assert_int_equal(purge_run(&c, PURGE_LINEAGE, L, 0, NULL).removed, 1);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    core_tick(&c, 10 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    c.pinned[slot] = 0;
    core_tick(&c, 10 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    core_close(&c);
}

/* In steps: while it goes on others are answered. */
static void test_steps(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    core_attach(&c, 2);
    for (unsigned kind = PURGE_LINEAGE; kind <= PURGE_PREFIX; kind += 2) {
        purge_fill(&c, 2000);
        c.hold_commits = true;
        uint64_t id = kind == PURGE_LINEAGE ? purge_ask(&c, kind, L, 0, NULL) : purge_ask(&c, kind, 0, 0, "many/");
        uint32_t commits = 0, left = 2000;
        for (; !core_reply(&c, id); commits++) {
            assert_true(commits < 50);
            core_commit(&c);
            uint32_t now = (uint32_t)core_status(&c).objects;
            assert_true(left - now <= 256);
            left = now;
            core_turn(&c);
            if (commits == 2) {
                assert_true(left > 0);
                assert_int_equal(core_key(&c, 2, MSG_STAT, "many/01999", 0), 0);
            }
        }
        assert_true(commits >= 2000 / 256);
        c.hold_commits = false;
        core_commit(&c);
        assert_int_equal(purge_answer(&c, id).removed, 2000);
    }
    core_close(&c);
}

/* Sent again over a new connection while it is under way: it is answered there, once. */
static void test_again(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    purge_fill(&c, MANY);
    c.hold_commits = true;
    uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
    core_commit(&c);
    core_turn(&c);
    core_event(&c, (struct node_event){.kind = EV_DETACHED, .session = 1});
    core_attach(&c, 1);
    struct msg_purge *m = purge_message(&c, PURGE_LINEAGE, L, 0, NULL);
    m->head.id = id;
    m->head.flags = MSG_AGAIN;
    assert_null(core_request(&c, 1, &m->head));
    for (uint32_t i = 0; i < 20; i++) {
        core_commit(&c);
        core_turn(&c);
    }
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(purge_answer(&c, id).removed, MANY);
    assert_int_equal(core_status(&c).counter[NODE_PURGES], 1);
    core_close(&c);
}

static void test_many_purges(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    purge_fill(&c, MANY);
    c.hold_commits = true;
    uint64_t first = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL), last = 0;
    for (unsigned i = 1; i < 16; i++) {
        last = purge_ask(&c, PURGE_PREFIX, 0, 0, "many/");
        assert_null(core_reply(&c, last));
    }
    assert_int_equal(core_status(&c).purges, 16);
    struct msg_purge *m = purge_message(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_int_equal(core_request(&c, 1, &m->head)->status, -EAGAIN);
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(purge_answer(&c, first).removed, MANY);
    assert_int_equal(purge_answer(&c, last).removed, 0);
    core_close(&c);
}

/* Each key's removal goes to its homes, by batches; a restart knows them. */
static void test_homes(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, with_homes);
    core_attach(&c, 1);
    purge_fill(&c, MANY);
    assert_int_equal(purge_run(&c, PURGE_PREFIX, 0, 0, "many/").untold, 0);
    assert_true(told_removed == MANY && told_gone == 0);
    assert_int_equal(core_status(&c).tombstones_unknown, MANY);
    const uint64_t one = 1;
    core_crash(&c, &one, 1);
    assert_int_equal(core_status(&c).tombstones_unknown, MANY);
    core_close(&c);
}

static void acknowledge_all(struct core *c)
{
    struct node_publication p;
    uint8_t buf[KEY_MAX];
    for (uint64_t cursor = 0; node_objects_next(c->node, &cursor, buf, &p);) {
        if (p.kind == PUBLISH_REMOVED && p.fresh) {
            core_event(
                c, (struct node_event){.kind = EV_KNOWN, .key = p.key, .counter = p.counter, .home = 0, .homes = 1});
        }
    }
}

/* It goes on as fast as homes acknowledge; where nobody does it goes on without them after a second, and says so. */
static void crowd(bool acknowledged)
{
    struct core c;
    core_open(&c, 64 * MIB, with_homes);
    core_attach(&c, 1);
    purge_fill(&c, CROWD + 1000);
    uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
    purge_settle(&c);
    assert_null(core_reply(&c, id));
    uint64_t waiting = core_status(&c).tombstones_unknown;
    assert_true(waiting >= CROWD && waiting <= CROWD + 512);
    assert_true(node_timer(c.node) > c.now.mono); /* it does not spin */
    core_tick(&c, SECOND / 2);
    assert_null(core_reply(&c, id));
    if (acknowledged) {
        acknowledge_all(&c);
        core_tick(&c, SECOND / 10);
        struct msg_purged p = purge_answer(&c, id);
        assert_true(p.removed == CROWD + 1000 && p.untold == 0 && told_gone == 0);
    } else {
        core_tick(&c, SECOND);
        struct msg_purged p = purge_answer(&c, id);
        assert_true(p.removed == CROWD + 1000 && p.untold == CROWD + 1000 - waiting && told_gone == p.untold);
    }
    assert_int_equal(core_status(&c).counter[NODE_TOMBSTONES_LOST], 0);
    core_close(&c);
}

static void test_crowd(void **unused)
{
    (void)unused;
    crowd(true);
    crowd(false);
}

/* A home asks for a greater number of an object that is to go: it goes all the same. */
static void test_take(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, with_homes);
    core_attach(&c, 1);
    assert_int_equal(purge_put(&c, 1, "k", L, 0), 0);
    uint64_t counter = c.headers[core_find(&c, "k", 0)].version;
    c.hold_commits = true;
    uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = counter + 1000000000});
    core_event(&c, (struct node_event){.kind = EV_TAKE, .key = lease_key("k", 0), .counter = counter});
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(purge_answer(&c, id).removed, 1);
    assert_false(purge_here(&c, "k"));
    core_close(&c);
}

/* A pull that was under way: its copy does not come back after the purge. */
static void test_copy_under_way(void **unused)
{
    (void)unused;
    struct core c;
    struct msg_token t;
    begin(&c);
    core_attach(&c, NODE_PULLER);
    assert_int_equal(purge_create(&c, NODE_PULLER, "copy", L, &t), 0);
    assert_int_equal(purge_run(&c, PURGE_LINEAGE, L, 0, NULL).drafts, 1);
    struct node_seal_origin *m = (struct node_seal_origin *)core_message(&c, NODE_SEAL_ORIGIN, sizeof *m);
    *m = (struct node_seal_origin){
        .head = m->head, .token = t, .checksum = 99, .lineage = L, .counter = 1000, .region = 1234};
    core_event(&c, (struct node_event){.kind = EV_REQUEST, .session = NODE_PULLER, .message = &m->head});
    assert_int_equal(core_reply(&c, m->head.id)->status, -ENOENT);
    assert_false(purge_here(&c, "copy"));
    core_close(&c);
}

static void test_readers_may_not(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    struct session_row row = {.pid = 1, .name = "reader"};
    core_event(&c, (struct node_event){.kind = EV_ATTACH, .session = 3, .row = &row});
    struct msg_purge *m = purge_message(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_int_equal(core_request(&c, 3, &m->head)->status, BERTH_EREADONLY);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_drafts_and_crash),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_seal_fails),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_many_purges),
        cmocka_unit_test(test_homes),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_copy_under_way),
        cmocka_unit_test(test_readers_may_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
