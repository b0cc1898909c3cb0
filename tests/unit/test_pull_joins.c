/* The puller: searches and transfers that are shared by requests that came at different times, and FRESH at a node that
 * has the newest copy itself. Each was found by tests/sim/nodes. */
#include "tests/support/pull_steps.h"

#include <errno.h>

/* Two runs share the search for a key. That the home passed it over in the one, where it lies behind the end, leaves it
 * to be asked for in the other, where it is the first. */
static void prefix_shares_a_search(void **state)
{
    (void)state;
    s->n_homes = 1;
    for (uint64_t i = 0; i < 2; i++) {
        enum pull_destination d = i ? PULL_REPLICA : PULL_BUFFER;
        script_pull(s, 10 * i + 1, "ab", d, PULL_PREFIX, 0);
        uint64_t ask = take(CMD_PULL_ASK);
        script_pull(s, 10 * i + 2, "b", d, PULL_PREFIX, 0);
        assert_int_equal(script_count(s, CMD_PULL_ASK), 0);
        answers(ask, "AS", 0);
        expect_done(10 * i + 1, -ENOENT);
        const struct kept *k = script_take(s, CMD_PULL_ASK);
        assert_string_equal(k->key[0], "b");
        answers(k->c.id, "A", 0);
        while (script_count(s, CMD_PULL_ASK)) { /* what was said before it asked does not count for it */
            answers(take(CMD_PULL_ASK), "A", 0);
        }
        expect_done(10 * i + 2, -ENOENT);
    }
}

/* The same where the other run is joined after the home had passed the key over. */
static void prefix_joins_what_was_passed_over(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        enum pull_destination d = i ? PULL_REPLICA : PULL_BUFFER;
        const char *keys = i ? "cd" : "ab";
        script_pull(s, 10 * i + 1, keys, d, PULL_PREFIX, 0);
        answers(take(CMD_PULL_ASK), "AS", 0);
        const struct kept *k = script_take(s, CMD_PULL_ASK); /* the first, at the other home */
        assert_int_equal(k->key[0][0], keys[0]);
        script_pull(s, 10 * i + 2, keys + 1, d, PULL_PREFIX, 0);
        k = script_take(s, CMD_PULL_ASK);
        assert_int_equal(k->key[0][0], keys[1]);
    }
}

/* Who joins a search after the home was asked is not told what it said: the key may have come to be since. */
static void nowhere_counts_from_the_question_on(void **state)
{
    (void)state;
    s->n_homes = 1;
    for (int i = 0; i < 2; i++) {
        enum pull_destination d = i ? PULL_BUFFER : PULL_REPLICA;
        uint64_t first = 10 + 2 * (uint64_t)i;
        script_pull(s, first, "k", d, 0, 0);
        uint64_t ask = take(CMD_PULL_ASK);
        script_pull(s, first + 1, "k", d, 0, 0);
        assert_int_equal(script_count(s, CMD_PULL_ASK), 0);
        answers(ask, "A", 0);
        expect_done(first, -ENOENT);
        answers(take(CMD_PULL_ASK), "A", 0); /* now it counts */
        expect_done(first + 1, -ENOENT);
    }
    assert_int_equal(s->n_kept, 0);
}

/* Found, read, and not kept: this node has removed that version. Twice, and it counts as nowhere; but not for who came
 * when it was read already, since a newer one may have come to be. */
static void removed_here_meanwhile(void **state)
{
    (void)state;
    s->n_homes = 1;
    for (uint64_t round = 0; round < 2; round++) {
        if (round == 0)
            script_pull(s, 1, "k", PULL_REPLICA, 0, 0);
        script_found(s, take(CMD_PULL_ASK), 1, 2, 7);
        script_grant(s, take(CMD_PULL_LEASE), 1, 7, 10);
        script_reserved(s, take(CMD_PULL_RESERVE), 701 + round);
        finish(take(CMD_PULL_READ));
        if (round == 1)
            script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
        script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), -ENOENT);
    }
    expect_done(1, -ENOENT);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 8);
    script_grant(s, take(CMD_PULL_LEASE), 1, 8, 11);
    script_reserved(s, take(CMD_PULL_RESERVE), 703);
    finish(take(CMD_PULL_READ));
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), 0);
    expect_done(2, 0);
}

/* FRESH at a node that has the newest copy itself: where the home knows of no newer one, that is the answer. */
static void fresh_at_the_owner(void **state)
{
    (void)state;
    s->n_homes = 1;
    struct pull_key k = {.key = {.data = "k", .size = 1}, .flags = PULL_REPLACEABLE, .room = 100, .here = {7, 1}};
    struct pull_request r = {.id = 1,
                             .keys = &k,
                             .n_keys = 1,
                             .destination = PULL_BUFFER,
                             .flags = PULL_FRESH,
                             .sample = 1,
                             .deadline = INT64_MAX};
    script_request(s, &r);
    script_found(s, take(CMD_PULL_ASK), 1, 0, 7);
    expect_done(1, BERTH_KEPT);
    r.id = 2;
    script_request(s, &r);
    uint16_t self = 0;
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, &self, 1);
    expect_done(2, BERTH_KEPT);
    r.id = 3;
    script_request(s, &r);
    answers(take(CMD_PULL_ASK), "A", 0); /* it was removed, and this node has not heard of it */
    expect_done(3, -ENOENT);
    r.id = 4;
    script_request(s, &r);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 8); /* a newer one is elsewhere */
    assert_int_equal(script_count(s, CMD_PULL_LEASE), 1);
    script_grant(s, take(CMD_PULL_LEASE), 1, 8, 10);
    finish(take(CMD_PULL_READ));
    expect_done(4, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, end)
    const struct CMUnitTest tests[] = {
        CASE(prefix_shares_a_search),
        CASE(prefix_joins_what_was_passed_over),
        CASE(nowhere_counts_from_the_question_on),
        CASE(removed_here_meanwhile),
        CASE(fresh_at_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
