/* Purges over crashes between any two commits, and over commits that fail. */
#include "tests/support/purges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MANY 600u

static void with_homes(struct core *c)
{
    lease_options(c);
    c->config.publish = true;
    c->config.tombstone_ns = 10 * SECOND;
}

static void finish_after(struct core *c)
{
    purge_settle(c);
    core_tick(c, SECOND);
    purge_settle(c);
    core_check(c);
    assert_int_equal(purge_marks(c), 0);
    assert_int_equal(core_status(c).purges, 0);
}

/* Killed before or after each of its commits: once its mark is in the index it is finished by the next node. */
static void crash_at(unsigned kind, uint32_t commits, bool applied, bool *whole)
{
    struct core c;
    core_open(&c, 64 * MIB, lease_options);
    core_attach(&c, 1);
    purge_fill(&c, MANY);
    assert_int_equal(purge_put(&c, 1, "other", L + 1, 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "many/00007", "x", 0), 0);
    c.hold_commits = true;
    uint64_t id = kind == PURGE_LINEAGE ? purge_ask(&c, kind, L, 0, NULL) : purge_ask(&c, kind, 0, 0, "many/");
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
    assert_true(purge_here(&c, "other") && purge_here(&c, "many/00007") && purge_here(&c, "many/00100") == !marked);
    assert_int_equal(purge_put(&c, 1, "many/new", L, 0), 0);
    bool lineage = kind == PURGE_LINEAGE;
    struct msg_purge *m = purge_message(&c, kind, lineage ? L : 0, 0, lineage ? NULL : "many/");
    m->head.id = id;
    m->head.flags = MSG_AGAIN;
    uint32_t replies = c.n_replies;
    core_request(&c, 1, &m->head);
    purge_settle(&c);
    assert_true(c.n_replies > replies);
    assert_int_equal(c.reply[c.n_replies - 1]->status, marked ? BERTH_EUNKNOWN : 0);
    assert_int_equal(purge_here(&c, "many/new"), marked); /* it is not done twice */
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
            purge_fill(&c, MANY);
            c.hold_commits = true;
            uint64_t id = purge_ask(&c, PURGE_LINEAGE, L, 0, NULL);
            for (uint32_t i = 0; !core_reply(&c, id); i++) {
                assert_true(i < 50);
                c.fail_commits = i == fail;
                core_commit(&c);
                core_turn(&c);
            }
            c.hold_commits = false;
            core_commit(&c);
            assert_int_equal(purge_answer(&c, id).removed, MANY);
            assert_int_equal(core_status(&c).tombstones, homes ? MANY : 0);
            const uint64_t one = 1;
            core_crash(&c, &one, 1);
            finish_after(&c);
            assert_int_equal(core_status(&c).tombstones, homes ? MANY : 0);
            core_close(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crashes), cmocka_unit_test(test_failing_commits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
