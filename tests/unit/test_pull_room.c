/* The puller: copies for which this node's pool has no room yet. */
#include "tests/support/pull_steps.h"

#include <errno.h>

static uint64_t expect_reserve(int64_t until)
{
    const struct kept *k = script_take(s, CMD_PULL_RESERVE);
    assert_int_equal(k->c.deadline, until);
    return k->c.id;
}

static void expect_no_room(uint64_t id, int status)
{
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->c.id, id);
    assert_int_equal(k->result[0].status, status);
    assert_true(k->result[0].no_room && k->result[0].size == 10);
}

/* The pool has no room for now: who has a deadline waits for it, others a second of their own, whenever they came. */
static void room_is_waited_for(void **state)
{
    (void)state;
    s->n_homes = 1;
    int64_t from = s->now.mono_after;
    script_pull(s, 1, "k", PULL_REPLICA, 0, 0);
    script_pull(s, 2, "k", PULL_REPLICA, 0, from + 100 * MS);
    script_pull(s, 3, "k", PULL_REPLICA, 0, from + 5000 * MS);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    uint64_t reserve = expect_reserve(from + 1000 * MS);
    script_pass(s, 100 * MS);
    expect_no_room(2, -ETIMEDOUT);
    script_pass(s, 300 * MS);
    script_pull(s, 4, "k", PULL_REPLICA, 0, 0);
    script_pass(s, 600 * MS);
    script_status(s, EV_PULL_RESERVED, reserve, -EAGAIN);
    expect_no_room(1, BERTH_EFULL);
    reserve = expect_reserve(from + 1400 * MS);
    script_pass(s, 400 * MS);
    script_status(s, EV_PULL_RESERVED, reserve, -EAGAIN);
    expect_no_room(4, BERTH_EFULL);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(st.cause[CAUSE_ROOM], 3);
    script_reserved(s, expect_reserve(from + 2400 * MS), 7);
    finish(take(CMD_PULL_READ));
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), 0);
    expect_done(3, 0);
}

/* Nobody wants it any more when the time is over; who comes before that waits for its own time and no longer. */
static void room_that_nobody_waits_for(void **state)
{
    (void)state;
    s->n_homes = 1;
    int64_t from = s->now.mono_after;
    for (unsigned again = 0; again < 2; again++) {
        script_pull(s, 5, "q", PULL_REPLICA, 0, from + 10 * MS);
        if (!again) { /* the lease is there still */
            script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
            script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
        }
        uint64_t reserve = expect_reserve(from + 1000 * MS);
        script_pass(s, 10 * MS);
        expect_done(5, -ETIMEDOUT);
        if (again) {
            script_pull(s, 6, "q", PULL_REPLICA, 0, 0);
        }
        script_pass(s, 990 * MS);
        script_status(s, EV_PULL_RESERVED, reserve, -EAGAIN);
        assert_int_equal(script_count(s, CMD_PULL_RESERVE), again);
        from = s->now.mono_after;
    }
    uint64_t reserve = expect_reserve(from + 10 * MS);
    script_pass(s, 10 * MS);
    script_status(s, EV_PULL_RESERVED, reserve, -EAGAIN);
    expect_no_room(6, BERTH_EFULL);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(st.transfers, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh_narrow, end)
    const struct CMUnitTest tests[] = {CASE(room_is_waited_for), CASE(room_that_nobody_waits_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
