/* Purges: what goes and what stays, drafts, crashes between any two commits, commits that fail, removals for homes. */
#include "tests/support/leases.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define L 77u /* the lineage that is purged */
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

static int put(struct core *c, uint64_t session, const char *key, uint64_t lineage, uint32_t ns)
{
    struct msg_token t;
    int e = core_grant(c, session, 100, &t);
    if (e) {
        return e;
    }
    uint32_t n = (uint32_t)strlen(key);
    struct msg_put *m = (struct msg_put *)core_message(c, MSG_PUT, (uint32_t)sizeof *m + n);
    m->token = t;
    m->object = (struct msg_object){.checksum = 99, .size = 100, .lineage = lineage, .ns = ns, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    return r ? r->status : 1000;
}

static int create(struct core *c, uint64_t session, const char *key, uint64_t lineage, struct msg_token *out)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + n);
    m->object = (struct msg_object){.size = 100, .lineage = lineage, .key_size = (uint16_t)n};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    if (r && r->status == 0) {
        *out = *(const struct msg_token *)(r + 1);
    }
    return r ? r->status : 1000;
}

static struct msg_purge *purge_message(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    uint32_t n = prefix ? (uint32_t)strlen(prefix) : 0;
    struct msg_purge *m = (struct msg_purge *)core_message(c, MSG_PURGE, (uint32_t)sizeof *m + n);
    m->kind = kind;
    m->lineage = lineage;
    m->ns = ns;
    m->prefix_size = (uint16_t)n;
    if (n) {
        memcpy(m + 1, prefix, n);
    }
    return m;
}

static void settle(struct core *c)
{
    for (unsigned i = 0; i < 64 && node_timer(c->node) <= c->now.mono; i++) {
        core_tick(c, 0);
    }
    core_turn(c);
}

/* Its answer; fails the test if none has come when the node is at rest. */
static struct msg_purged answer(struct core *c, uint64_t id)
{
    settle(c);
    const struct msg_reply *r = core_reply(c, id);
    assert_non_null(r);
    assert_int_equal(r->status, 0);
    assert_int_equal(r->head.bytes, sizeof *r + sizeof(struct msg_purged));
    core_check(c);
    return *(const struct msg_purged *)(r + 1);
}

static uint64_t ask(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    struct msg_purge *m = purge_message(c, kind, lineage, ns, prefix);
    uint64_t id = m->head.id;
    core_request(c, 1, &m->head);
    return id;
}

static struct msg_purged purge(struct core *c, uint32_t kind, uint64_t lineage, uint32_t ns, const char *prefix)
{
    return answer(c, ask(c, kind, lineage, ns, prefix));
}

static bool here(const struct core *c, const char *key)
{
    return core_find(c, key, 0) != SLOT_NONE;
}

static int count_row(void *arg, const struct purge_row *row)
{
    (void)row;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned marks(const struct core *c)
{
    unsigned n = 0;
    assert_int_equal(lmdb_ops.purges(c->index, count_row, &n), 0);
    return n;
}

static void test_kinds(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(put(&c, 1, "a/1", L, 0), 0);
    assert_int_equal(put(&c, 1, "a/2", L + 1, 0), 0);
    assert_int_equal(put(&c, 1, "b", 0, 0), 0);
    assert_int_equal(put(&c, 1, "a", 0, 0), 0);
    assert_int_equal(put(&c, 1, "a/1", L, NS_R), 0);
    assert_int_equal(put(&c, 1, "x", 0, NS_R), 0);
    struct msg_purged p = purge(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 2 && p.bytes == 200 && p.held == 0 && p.drafts == 0 && p.untold == 0);
    assert_true(!here(&c, "a/1") && core_find(&c, "a/1", NS_R) == SLOT_NONE && here(&c, "a/2") && here(&c, "b"));
    p = purge(&c, PURGE_PREFIX, 0, 0, "a/");
    assert_true(p.removed == 1 && !here(&c, "a/2") && here(&c, "a") && here(&c, "b"));
    p = purge(&c, PURGE_PREFIX, 0, 0, "a/");
    assert_int_equal(p.removed, 0);
    p = purge(&c, PURGE_NAMESPACE, 0, NS_R, NULL);
    assert_true(p.removed == 1 && core_find(&c, "x", NS_R) == SLOT_NONE && here(&c, "b"));
    p = purge(&c, PURGE_NAMESPACE, 0, 0, NULL);
    assert_int_equal(p.removed, 2);
    assert_int_equal(core_status(&c).objects, 0);
    struct msg_purge *m = purge_message(&c, PURGE_NAMESPACE, 0, 12345, NULL);
    assert_int_equal(core_request(&c, 1, &m->head)->status, -EINVAL);
    assert_int_equal(marks(&c), 0);
    assert_int_equal(core_status(&c).counter[NODE_PURGES], 5);
    assert_int_equal(core_status(&c).counter[NODE_PURGED], 6);
    core_close(&c);
}

static void test_held(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(put(&c, 1, "k", L, 0), 0);
    assert_int_equal(put(&c, 1, "held", L, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "held", "x", 0), 0);
    struct msg_purged p = purge(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 1 && p.held == 1 && here(&c, "held"));
    p = purge(&c, PURGE_NAMESPACE, 0, 0, NULL);
    assert_true(p.removed == 0 && p.held == 1);
    assert_int_equal(core_label(&c, 1, MSG_DROP, "held", "x", 0), 0);
    p = purge(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.removed == 1 && p.held == 0 && !here(&c, "held"));
    core_close(&c);
}

/* A hold that is not committed yet decides first. */
static void test_busy(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(put(&c, 1, "a", L, 0), 0);
    assert_int_equal(put(&c, 1, "b", L, 0), 0);
    core_attach(&c, 2);
    for (unsigned kind = PURGE_LINEAGE; kind <= PURGE_PREFIX; kind += 2) {
        c.hold_commits = true;
        uint64_t id = kind == PURGE_LINEAGE ? ask(&c, kind, L, 0, NULL) : ask(&c, kind, 0, 0, "a");
        assert_int_equal(core_label(&c, 2, MSG_HOLD, "a", "x", 0), 1000);
        core_commit(&c); /* the mark: the pass comes to a key whose hold is on its way */
        core_turn(&c);
        core_tick(&c, 0);
        assert_true(here(&c, "a") && node_timer(c.node) > c.now.mono); /* it waits, and does not spin */
        c.hold_commits = false;
        core_commit(&c);
        struct msg_purged p = answer(&c, id);
        assert_true(p.held == 1 && p.removed == (kind == PURGE_LINEAGE) && here(&c, "a") && !here(&c, "b"));
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
    assert_int_equal(create(&c, 1, "d1", L, &old[0]), 0);
    assert_int_equal(create(&c, 2, "d2", L, &old[1]), 0);
    assert_int_equal(create(&c, 1, "other", L + 1, &other), 0);
    assert_int_equal(core_grant(&c, 1, 100, &grant), 0);
    struct msg_wait *w = (struct msg_wait *)core_message(&c, MSG_WAIT, sizeof *w + sizeof(struct msg_wait_key) + 8);
    w->head.deadline = INT64_MAX;
    w->count = 1;
    *(struct msg_wait_key *)(w + 1) = (struct msg_wait_key){.key_size = 2};
    memcpy((struct msg_wait_key *)(w + 1) + 1, "d2", 2);
    uint64_t waits = w->head.id;
    assert_null(core_request(&c, 1, &w->head));
    struct msg_purged p = purge(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_true(p.drafts == 2 && p.removed == 0);
    assert_int_equal(*(const uint8_t *)(core_reply(&c, waits) + 1), WAIT_ABORTED);
    assert_int_equal(core_seal(&c, 2, &old[1], 1), BERTH_EPURGED);
    struct msg_token group[2] = {other, old[0]};
    assert_int_equal(core_seal(&c, 1, group, 2), BERTH_EPURGED); /* all or nothing */
    assert_false(here(&c, "other") || here(&c, "d1") || here(&c, "d2"));
    assert_int_equal(core_seal(&c, 1, &other, 1), 0);
    assert_int_equal(create(&c, 1, "d1", L, &old[0]), 0); /* newer */
    assert_int_equal(core_seal(&c, 1, &old[0], 1), 0);
    assert_int_equal(core_put_token(&c, 1, &grant, "granted", 100, 0), 0); /* a slot is no draft */
    assert_true(here(&c, "d1") && here(&c, "granted"));
    p = purge(&c, PURGE_NAMESPACE, 0, 0, NULL);
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
    assert_int_equal(create(&c, 1, "d", L, &t), 0);
    assert_int_equal(purge(&c, PURGE_LINEAGE, L, 0, NULL).drafts, 1);
    core_crash(&c, &one, 1);
    core_attach(&c, 1);
    core_check(&c);
    assert_int_equal(core_seal(&c, 1, &t, 1), BERTH_EPURGED);
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    assert_int_equal(create(&c, 1, "d", L, &next), 0);
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
    assert_int_equal(put(&c, 1, "r", L, NS_R), 0);
    assert_int_equal(create(&c, 2, "early", L, &t), 0);
    c.hold_commits = true;
    assert_int_equal(core_seal(&c, 2, &t, 1), 1000); /* flies */
    uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_int_equal(put(&c, 2, "late", L, 0), 1000);
    assert_int_equal(put(&c, 2, "r", L, NS_R), 1000); /* replaces what is to go */
    for (unsigned i = 0; i < 8; i++) {
        core_commit(&c);
        core_turn(&c);
    }
    c.hold_commits = false;
    core_commit(&c);
    struct msg_purged p = answer(&c, id);
    assert_int_equal(p.removed, 1);
    assert_true(!here(&c, "early") && here(&c, "late") && core_find(&c, "r", NS_R) != SLOT_NONE);
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
    assert_int_equal(create(&c, 2, "d", L, &t), 0);
    c.hold_commits = true;
    c.fail_commits = 1;
    assert_int_equal(core_seal(&c, 2, &t, 1), 1000);
    uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(answer(&c, id).removed, 0);
    assert_int_equal(core_seal(&c, 2, &t, 1), BERTH_EPURGED);
    core_check(&c);
    core_close(&c);
}

static void test_views(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    assert_int_equal(put(&c, 1, "k", L, 0), 0);
    uint32_t slot = core_find(&c, "k", 0);
    c.pinned[slot] = 1;
    assert_int_equal(purge(&c, PURGE_LINEAGE, L, 0, NULL).removed, 1);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    core_tick(&c, 10 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_RETIRED);
    c.pinned[slot] = 0;
    core_tick(&c, 10 * SECOND);
    assert_int_equal(core_state(&c, slot), SLOT_FREE);
    core_close(&c);
}

static void put_many(struct core *c, uint32_t n)
{
    char key[32];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "many/%05u", i);
        assert_int_equal(put(c, 1, key, L, 0), 0);
    }
}

/* In steps: while it goes on others are answered. */
static void test_steps(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    core_attach(&c, 2);
    for (unsigned kind = PURGE_LINEAGE; kind <= PURGE_PREFIX; kind += 2) {
        put_many(&c, 2000);
        c.hold_commits = true;
        uint64_t id = kind == PURGE_LINEAGE ? ask(&c, kind, L, 0, NULL) : ask(&c, kind, 0, 0, "many/");
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
        assert_int_equal(answer(&c, id).removed, 2000);
    }
    core_close(&c);
}

static void finish_after(struct core *c)
{
    settle(c);
    core_tick(c, SECOND);
    settle(c);
    core_check(c);
    assert_int_equal(marks(c), 0);
    assert_int_equal(core_status(c).purges, 0);
}

/* Killed before or after each of its commits: once its mark is in the index it is finished by the next node. */
static void crash_at(unsigned kind, uint32_t commits, bool applied, bool *whole)
{
    struct core c;
    begin(&c);
    put_many(&c, MANY);
    assert_int_equal(put(&c, 1, "other", L + 1, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "many/00007", "x", 0), 0);
    c.hold_commits = true;
    uint64_t id = kind == PURGE_LINEAGE ? ask(&c, kind, L, 0, NULL) : ask(&c, kind, 0, 0, "many/");
    for (uint32_t i = 0; i < commits && !core_reply(&c, id); i++) {
        core_commit(&c);
        core_turn(&c);
    }
    *whole = core_reply(&c, id);
    bool marked = commits > 0 || applied;
    if (applied && c.flying) {
        assert_int_equal(lmdb_ops.commit(c.index, c.flying), 0);
    }
    c.hold_commits = false;
    const uint64_t one = 1;
    core_crash(&c, &one, 1);
    core_attach(&c, 1);
    finish_after(&c);
    assert_int_equal(core_status(&c).objects, marked ? 2 : MANY + 1);
    assert_true(here(&c, "other") && here(&c, "many/00007") && here(&c, "many/00100") == !marked);
    assert_int_equal(put(&c, 1, "many/new", L, 0), 0);
    bool lineage = kind == PURGE_LINEAGE;
    struct msg_purge *m = purge_message(&c, kind, lineage ? L : 0, 0, lineage ? NULL : "many/");
    m->head.id = id;
    m->head.flags = MSG_AGAIN;
    uint32_t replies = c.n_replies;
    core_request(&c, 1, &m->head);
    settle(&c);
    assert_true(c.n_replies > replies);
    assert_int_equal(c.reply[c.n_replies - 1]->status, marked ? BERTH_EUNKNOWN : 0);
    assert_int_equal(here(&c, "many/new"), marked); /* it is not done twice */
    core_close(&c);
}

static void test_crashes(void **unused)
{
    (void)unused;
    for (unsigned kind = PURGE_LINEAGE; kind <= PURGE_PREFIX; kind += 2) {
        bool whole = false;
        for (uint32_t commits = 0; !whole; commits++) {
            assert_true(commits < 20);
            crash_at(kind, commits, false, &whole);
            crash_at(kind, commits, true, &whole);
        }
    }
}

/* Whatever commit fails, it is tried again. */
static void test_failing_commits(void **unused)
{
    (void)unused;
    for (unsigned homes = 0; homes < 2; homes++) {
        for (uint32_t fail = 0; fail < 6; fail++) {
            struct core c;
            core_open(&c, 64 * MIB, homes ? with_homes : lease_options);
            core_attach(&c, 1);
            put_many(&c, MANY);
            c.hold_commits = true;
            uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
            for (uint32_t i = 0; !core_reply(&c, id); i++) {
                assert_true(i < 50);
                c.fail_commits = i == fail;
                core_commit(&c);
                core_turn(&c);
            }
            c.hold_commits = false;
            core_commit(&c);
            assert_int_equal(answer(&c, id).removed, MANY);
            assert_int_equal(core_status(&c).tombstones, homes ? MANY : 0);
            const uint64_t one = 1;
            core_crash(&c, &one, 1);
            finish_after(&c);
            assert_int_equal(core_status(&c).tombstones, homes ? MANY : 0);
            core_close(&c);
        }
    }
}

/* Sent again over a new connection while it is under way: it is answered there, once. */
static void test_again(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    put_many(&c, MANY);
    c.hold_commits = true;
    uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
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
    assert_int_equal(answer(&c, id).removed, MANY);
    assert_int_equal(core_status(&c).counter[NODE_PURGES], 1);
    core_close(&c);
}

static void test_many_purges(void **unused)
{
    (void)unused;
    struct core c;
    begin(&c);
    put_many(&c, MANY);
    c.hold_commits = true;
    uint64_t first = ask(&c, PURGE_LINEAGE, L, 0, NULL), last = 0;
    for (unsigned i = 1; i < 16; i++) {
        last = ask(&c, PURGE_PREFIX, 0, 0, "many/");
        assert_null(core_reply(&c, last));
    }
    assert_int_equal(core_status(&c).purges, 16);
    struct msg_purge *m = purge_message(&c, PURGE_LINEAGE, L, 0, NULL);
    assert_int_equal(core_request(&c, 1, &m->head)->status, -EAGAIN);
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(answer(&c, first).removed, MANY);
    assert_int_equal(answer(&c, last).removed, 0);
    core_close(&c);
}

/* Each key's removal goes to its homes, by batches; a restart knows them. */
static void test_homes(void **unused)
{
    (void)unused;
    struct core c;
    core_open(&c, 64 * MIB, with_homes);
    core_attach(&c, 1);
    put_many(&c, MANY);
    assert_int_equal(purge(&c, PURGE_PREFIX, 0, 0, "many/").untold, 0);
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
    put_many(&c, CROWD + 1000);
    uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
    settle(&c);
    assert_null(core_reply(&c, id));
    uint64_t waiting = core_status(&c).tombstones_unknown;
    assert_true(waiting >= CROWD && waiting <= CROWD + 512);
    assert_true(node_timer(c.node) > c.now.mono); /* it does not spin */
    core_tick(&c, SECOND / 2);
    assert_null(core_reply(&c, id));
    if (acknowledged) {
        acknowledge_all(&c);
        core_tick(&c, SECOND / 10);
        struct msg_purged p = answer(&c, id);
        assert_true(p.removed == CROWD + 1000 && p.untold == 0 && told_gone == 0);
    } else {
        core_tick(&c, SECOND);
        struct msg_purged p = answer(&c, id);
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
    assert_int_equal(put(&c, 1, "k", L, 0), 0);
    uint64_t counter = c.headers[core_find(&c, "k", 0)].version;
    c.hold_commits = true;
    uint64_t id = ask(&c, PURGE_LINEAGE, L, 0, NULL);
    core_event(&c, (struct node_event){.kind = EV_SEEN, .counter = counter + 1000000000});
    core_event(&c, (struct node_event){.kind = EV_TAKE, .key = lease_key("k", 0), .counter = counter});
    c.hold_commits = false;
    core_commit(&c);
    assert_int_equal(answer(&c, id).removed, 1);
    assert_false(here(&c, "k"));
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
    assert_int_equal(create(&c, NODE_PULLER, "copy", L, &t), 0);
    assert_int_equal(purge(&c, PURGE_LINEAGE, L, 0, NULL).drafts, 1);
    struct node_seal_origin *m = (struct node_seal_origin *)core_message(&c, NODE_SEAL_ORIGIN, sizeof *m);
    *m = (struct node_seal_origin){
        .head = m->head, .token = t, .checksum = 99, .lineage = L, .counter = 1000, .region = 1234};
    core_event(&c, (struct node_event){.kind = EV_REQUEST, .session = NODE_PULLER, .message = &m->head});
    assert_int_equal(core_reply(&c, m->head.id)->status, -ENOENT);
    assert_false(here(&c, "copy"));
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
        cmocka_unit_test(test_crashes),
        cmocka_unit_test(test_failing_commits),
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
