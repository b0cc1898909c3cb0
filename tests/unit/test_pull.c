/* The puller step by step: each path from a request to its end, sources that fail, bytes that are late or wrong. */
#include "tests/support/pull_steps.h"

#include <errno.h>

/* From the request to a READ that is posted, under a lease of generation 5 from member 3. */
static uint64_t to_posted(uint64_t id, const char *key, enum pull_destination d, uint32_t flags, int64_t deadline)
{
    script_pull(s, id, key, d, flags, deadline);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    if (d == PULL_REPLICA) {
        script_reserved(s, take(CMD_PULL_RESERVE), 700 + id);
    }
    return take(CMD_PULL_READ);
}

/* Done, all its keys with this status, and nothing else is. */
static void expect_only(uint64_t id, int status)
{
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->c.id, id);
    for (uint32_t i = 0; i < k->c.n; i++) {
        assert_int_equal(k->result[i].status, status);
    }
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
}

static void expect_unsure(uint64_t id, uint32_t unasked)
{
    assert_int_equal(s->kept[0].c.kind, CMD_PULL_DONE);
    assert_int_equal(s->kept[0].result[0].unasked, unasked);
    expect_only(id, BERTH_EUNSURE);
}

static void expect_nothing(void)
{
    assert_int_equal(s->n_kept, 0);
}

static void shortest_way_to_a_buffer(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 1);
    assert_int_equal(k->c.flags, ASK_WANT_LEASE);
    expect_nothing();
    script_pass(s, 2 * MS);
    script_found(s, k->c.id, 1, 3, 5);
    k = script_take(s, CMD_PULL_LEASE);
    assert_int_equal(k->c.member, 3);
    script_grant(s, k->c.id, 1, 5, 1000);
    k = script_take(s, CMD_PULL_READ);
    assert_int_equal(k->c.member, 3);
    assert_int_equal(k->c.generation, 5);
    assert_int_equal(k->c.offset, 4096);
    assert_int_equal(k->c.length, 1000);
    assert_int_equal(k->c.target.name, 1);
    assert_int_equal(k->c.target.at, 100);
    script_pass(s, 3 * MS);
    script_event(s, &(struct pull_event){.kind = EV_PULL_READ, .id = k->c.id, .copied = 1000});
    k = script_take(s, CMD_PULL_HASH);
    assert_int_equal(k->c.n, 1);
    assert_int_equal(k->part[0].at, 100);
    assert_int_equal(k->part[0].length, 1000);
    script_hashed(s, k->c.id, SUM);
    k = script_take(s, CMD_PULL_DONE);
    const struct pull_result *r = &k->result[0];
    assert_int_equal(r->status, 0);
    assert_int_equal(r->member, 3);
    assert_string_equal(r->transport, "loop");
    assert_int_equal(r->requests, 2);
    assert_int_equal(r->moved, 1000);
    assert_int_equal(r->copied, 1000);
    assert_int_equal(r->version.counter, 5);
    assert_true(r->verified);
    assert_int_equal(r->phase_ns[PULL_HOME], 2 * MS);
    assert_int_equal(r->phase_ns[PULL_TRANSFER], 3 * MS);
    assert_int_equal(r->phase_ns[PULL_TOTAL], 5 * MS);
    expect_nothing();
    /* The lease is still good: the next one costs no request. */
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    uint64_t read = take(CMD_PULL_READ);
    expect_nothing();
    /* and no HASH where the transport hashed in passing. */
    uint64_t sum = SUM;
    script_event(s, &(struct pull_event){.kind = EV_PULL_READ, .id = read, .sums = &sum});
    expect_only(2, 0);
}

static void one_request_where_the_home_is_an_owner(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    uint64_t ask = take(CMD_PULL_ASK);
    struct pull_answer a = {.says = HOME_FOUND, .n_locations = 1, .location = {{1, {5, 1}}}, .granted = true};
    a.grant.terms = script_terms(s, 5, 10);
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = ask, .answers = &a, .n = 1});
    assert_int_equal(script_take(s, CMD_PULL_READ)->c.member, 1);
    expect_nothing();
}

static void own_table_first(void **state)
{
    (void)state;
    s->homes[1] = 0;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 0);
    assert_int_equal(k->c.flags, 0);
}

static void local_replica(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_REPLICA, 0, 0);
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    const struct kept *k = script_take(s, CMD_PULL_SEAL);
    assert_int_equal(k->c.token, 701);
    expect_nothing();
    script_status(s, EV_PULL_SEALED, k->c.id, 0);
    expect_only(1, 0);
    expect_nothing();
    /* A pool that had it by then, and one without room. */
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    script_status(s, EV_PULL_RESERVED, take(CMD_PULL_RESERVE), BERTH_KEPT);
    expect_only(2, BERTH_KEPT);
    script_pull(s, 3, "k", PULL_REPLICA, 0, 0);
    script_status(s, EV_PULL_RESERVED, take(CMD_PULL_RESERVE), BERTH_EFULL);
    expect_only(3, BERTH_EFULL);
    expect_nothing();
}

static void batch_is_one_request_each(void **state)
{
    (void)state;
    script_pull(s, 1, "abcde", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.n, 5);
    assert_string_equal(k->key[4], "e");
    script_found(s, k->c.id, 5, 3, 5);
    k = script_take(s, CMD_PULL_LEASE);
    assert_int_equal(k->c.n, 5);
    uint64_t id = k->c.id;
    struct pull_grant g[5] = {{.status = -ENOENT}};
    for (int i = 1; i < 5; i++) {
        g[i].terms = script_terms(s, 5, 10);
    }
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = id, .grants = g, .n = 5});
    assert_int_equal(script_count(s, CMD_PULL_READ), 4);
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0); /* the other home, for the first */
    for (int i = 0; i < 4; i++) {
        script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
        script_hashed(s, take(CMD_PULL_HASH), SUM);
    }
    k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->result[0].status, -ENOENT);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(k->result[i].status, 0);
    }
    assert_int_equal(k->c.run, 0);
}

/* A request and the word that another event follows. */
static void one_of_several(uint64_t id, const char *key)
{
    struct pull_key k = {.key = {.data = key, .size = 1}, .buffer = id, .room = 1u << 30};
    struct pull_request r = {
        .id = id, .keys = &k, .n_keys = 1, .destination = PULL_BUFFER, .sample = 1, .deadline = INT64_MAX};
    script_event(s, &(struct pull_event){.kind = EV_PULL_REQUEST, .request = &r, .more = true});
}

static void requests_in_a_row_are_one_request_each(void **state)
{
    (void)state;
    one_of_several(1, "a");
    one_of_several(2, "b");
    expect_nothing();
    script_pull(s, 3, "c", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.n, 3);
    expect_nothing();
    script_found(s, k->c.id, 3, 3, 5);
    k = script_take(s, CMD_PULL_LEASE);
    assert_int_equal(k->c.n, 3);
    expect_nothing();
    script_grant(s, k->c.id, 3, 5, 1000);
    assert_int_equal(script_count(s, CMD_PULL_READ), 3);
    for (uint64_t id = 1; id <= 3; id++) {
        script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
        script_hashed(s, take(CMD_PULL_HASH), SUM);
        expect_only(id, 0);
    }
    one_of_several(4, "d");
    expect_nothing();
    script_pass(s, 1); /* any other event ends the row */
    assert_int_equal(script_take(s, CMD_PULL_ASK)->c.n, 1);
}

static void waiters_come_and_go(void **state)
{
    (void)state;
    int64_t deadline = s->now.mono_after + 50 * MS;
    uint64_t read = to_posted(1, "k", PULL_REPLICA, 0, 0);
    script_pull(s, 2, "k", PULL_REPLICA, 0, deadline);
    script_pull(s, 3, "k", PULL_REPLICA, 0, 0);
    expect_nothing();
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 1});
    expect_only(1, -ECANCELED);
    script_pass(s, 50 * MS);
    expect_only(2, -ETIMEDOUT);
    expect_nothing();
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), 0);
    expect_only(3, 0);
    expect_nothing();
}

static void last_waiter_takes_the_transfer_with_it(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_REPLICA, 0, 0);
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 1});
    expect_only(1, -ECANCELED);
    assert_int_equal(take(CMD_PULL_CANCEL_READ), read);
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0); /* one that comes before it is quiet begins afterwards */
    expect_nothing();                           /* the slot is not given back yet */
    script_status(s, EV_PULL_READ, read, -ECANCELED);
    assert_int_equal(script_take(s, CMD_PULL_ABORT)->c.token, 701);
    assert_int_equal(script_count(s, CMD_PULL_RESERVE), 1);
    script_status(s, EV_PULL_READ, read, 0); /* doubled */
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 2});
    expect_only(2, -ECANCELED);
    uint64_t reserve = take(CMD_PULL_RESERVE);
    expect_nothing();
    script_reserved(s, reserve, 55); /* nobody wants it any more */
    assert_int_equal(script_take(s, CMD_PULL_ABORT)->c.token, 55);
    expect_nothing();
}

static void buffers_share_the_search_not_the_transfer(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    uint64_t ask = take(CMD_PULL_ASK);
    expect_nothing();
    script_found(s, ask, 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    assert_int_equal(script_count(s, CMD_PULL_READ), 2);
    s->n_kept = 0;
}

static void buffer_is_given_back_when_quiet(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_BUFFER, 0, s->now.mono_after + 20 * MS);
    script_pass(s, 20 * MS);
    assert_int_equal(take(CMD_PULL_CANCEL_READ), read);
    expect_nothing();
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 1});
    expect_nothing();
    script_status(s, EV_PULL_READ, read, 0);
    expect_only(1, -ETIMEDOUT);
    read = (script_pull(s, 2, "k", PULL_BUFFER, 0, 0), take(CMD_PULL_READ));
    script_status(s, EV_PULL_READ, read, 0);
    uint64_t hash = take(CMD_PULL_HASH);
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 2});
    expect_nothing(); /* somebody reads it */
    script_hashed(s, hash, SUM);
    expect_only(2, -ECANCELED);
}

static void late_is_asked_again_and_bounded(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_BUFFER, 0, 0);
    for (int i = 0; i < 4; i++) {
        s->now.raw += 5000 * MS; /* the check's clock alone: no timer sees it before the completion */
        script_status(s, EV_PULL_READ, read, 0);
        if (i == 3) {
            break;
        }
        assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
        script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
        script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
        read = take(CMD_PULL_READ);
    }
    expect_only(1, BERTH_ENOTNOW);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(st.counter[PULL_LATE], 4);
}

/* D counts from before the question. */
static void time_of_the_question_counts(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    uint64_t lease = take(CMD_PULL_LEASE);
    script_pass(s, 1000 * MS);
    script_grant(s, lease, 1, 5, 1000);
    uint64_t read = take(CMD_PULL_READ);
    s->now.raw += 4000 * MS;
    script_status(s, EV_PULL_READ, read, 0);
    assert_int_equal(script_count(s, CMD_PULL_HASH), 0);
    assert_int_equal(script_count(s, CMD_PULL_ASK), 1);
}

static void state_of_slot(int status, uint64_t generation)
{
    uint64_t id = take(CMD_PULL_STATE);
    script_event(s, &(struct pull_event){.kind = EV_PULL_STATED, .id = id, .status = status, .generation = generation});
}

static void wrong_checksum_of_another_generation(void **state)
{
    (void)state;
    static const struct {
        int status;
        uint64_t generation;
    } cases[] = {{0, 6}, {-ENOENT, 0}};
    uint64_t read = to_posted(1, "k", PULL_BUFFER, 0, 0);
    for (int i = 0; i < 2; i++) {
        script_status(s, EV_PULL_READ, read, 0);
        script_hashed(s, take(CMD_PULL_HASH), 1);
        state_of_slot(cases[i].status, cases[i].generation);
        script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
        script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
        read = take(CMD_PULL_READ);
    }
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->result[0].status, 0);
    assert_int_equal(k->result[0].stale, 2);
    assert_int_equal(k->result[0].moved, 3000);
}

static void wrong_checksum_of_the_same_generation(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_BUFFER, 0, 0);
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), 1);
    state_of_slot(0, 5);
    read = take(CMD_PULL_READ);
    expect_nothing();
    script_status(s, EV_PULL_READ, read, 0);
    script_hashed(s, take(CMD_PULL_HASH), 1);
    state_of_slot(0, 5);
    const struct kept *k = script_take(s, CMD_PULL_CORRUPT);
    assert_int_equal(k->c.member, 3);
    assert_int_equal(k->c.generation, 5);
    assert_string_equal(k->key[0], "k");
    /* The next source; there it is right. */
    script_found(s, take(CMD_PULL_ASK), 1, 2, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    script_status(s, EV_PULL_READ, take(CMD_PULL_READ), 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    expect_only(1, 0);
}

static void corrupt_everywhere(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_BUFFER, 0, 0);
    for (int i = 0; i < 2; i++) {
        script_status(s, EV_PULL_READ, read, 0);
        script_hashed(s, take(CMD_PULL_HASH), 1);
        state_of_slot(0, 5);
        read = i == 0 ? take(CMD_PULL_READ) : 0;
    }
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5); /* it is not asked again */
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    expect_only(1, BERTH_ECORRUPT);
}

static void nowhere(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 2);
    script_says(s, k->c.id, HOME_ABSENT, NULL, 0);
    expect_only(1, -ENOENT);
    /* A home that can't be reached was needed. */
    script_member(s, EV_PULL_DOWN, 1, 0);
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    expect_unsure(2, 1 + 1);
    /* An owner that is named and can't be reached. */
    script_pull(s, 3, "k", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 4, 5);
    expect_unsure(3, 4 + 1);
    expect_nothing();
}

static void one_absent_is_enough_where_it_is_said_so(void **state)
{
    (void)state;
    pull_destroy(s->p);
    s->config.absent_homes = 1;
    script_start(s);
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    expect_only(1, -ENOENT);
}

static void learning_homes(void **state)
{
    (void)state;
    static const uint16_t first[] = {1, 3, 4}, second[] = {2, 3};
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, first, 3);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, second, 2);
    const struct kept *k = script_take(s, CMD_PULL_LEASE); /* the one that both miss */
    assert_int_equal(k->c.member, 3);
    struct pull_grant g = {.status = -ENOENT};
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = k->c.id, .grants = &g, .n = 1});
    expect_only(1, -ENOENT);
    /* One that both miss and nobody reaches: unsure, at once. */
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, first, 3);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, &first[2], 1);
    expect_unsure(2, 4 + 1);
    /* More than can be named: the home says nothing, which is no fault of its. */
    script_pull(s, 3, "k", PULL_BUFFER, 0, 0);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, NULL, PULL_MISSING_MAX + 1);
    script_says(s, take(CMD_PULL_ASK), HOME_LEARNING, NULL, PULL_MISSING_MAX + 1);
    expect_unsure(3, 0);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(st.counter[PULL_BAD_ANSWERS], 0);
    expect_nothing();
}

static void next_source(void **state)
{
    (void)state;
    uint64_t read = to_posted(1, "k", PULL_REPLICA, 0, 0);
    script_status(s, EV_PULL_READ, read, -ECONNRESET);
    assert_int_equal(script_take(s, CMD_PULL_ABORT)->c.token, 701);
    uint64_t ask = take(CMD_PULL_ASK);
    struct pull_answer a = {.says = HOME_FOUND, .n_locations = 2, .location = {{3, {5, 1}}, {2, {5, 1}}}};
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = ask, .answers = &a, .n = 1});
    const struct kept *k = script_take(s, CMD_PULL_LEASE);
    assert_int_equal(k->c.member, 2);
    script_member(s, EV_PULL_DOWN, 2, 0); /* which does not answer, and is the other home */
    expect_unsure(1, 2 + 1);
    expect_nothing();
}

/* The only one that a home names has it no more: whether another does only a home that is sure can say. */
static void found_by_an_unsure_home(void **state)
{
    (void)state;
    for (unsigned unsure = 0; unsure < 2; unsure++) {
        struct pull_answer a = {.says = HOME_FOUND, .n_locations = 1, .location = {{3, {5, 1}}}, .unsure = unsure != 0};
        script_pull(s, 1 + unsure, unsure ? "l" : "k", PULL_BUFFER, 0, 0);
        for (unsigned home = 0; home < 2; home++) {
            uint64_t ask = take(CMD_PULL_ASK);
            script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = ask, .answers = &a, .n = 1});
            if (home == 0) {
                struct pull_grant none = {.status = -ENOENT};
                uint64_t lease = take(CMD_PULL_LEASE);
                script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = lease, .grants = &none, .n = 1});
            }
        }
        expect_only(1 + unsure, unsure ? BERTH_EUNSURE : -ENOENT);
    }
}

static void silent_peer(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    uint64_t first = take(CMD_PULL_ASK);
    script_pass(s, 2000 * MS);
    assert_int_equal(script_take(s, CMD_PULL_ASK)->c.member, 2);
    /* What comes too late is kept for the next one. */
    struct pull_answer a = {.says = HOME_FOUND, .n_locations = 1, .location = {{1, {5, 1}}}, .granted = true};
    a.grant.terms = script_terms(s, 5, 10);
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = first, .answers = &a, .n = 1});
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    assert_int_equal(script_count(s, CMD_PULL_RESERVE), 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, end)
    const struct CMUnitTest tests[] = {
        CASE(shortest_way_to_a_buffer),
        CASE(one_request_where_the_home_is_an_owner),
        CASE(own_table_first),
        CASE(local_replica),
        CASE(batch_is_one_request_each),
        CASE(requests_in_a_row_are_one_request_each),
        CASE(waiters_come_and_go),
        CASE(last_waiter_takes_the_transfer_with_it),
        CASE(buffers_share_the_search_not_the_transfer),
        CASE(buffer_is_given_back_when_quiet),
        CASE(late_is_asked_again_and_bounded),
        CASE(time_of_the_question_counts),
        CASE(wrong_checksum_of_another_generation),
        CASE(wrong_checksum_of_the_same_generation),
        CASE(corrupt_everywhere),
        CASE(nowhere),
        CASE(one_absent_is_enough_where_it_is_said_so),
        CASE(learning_homes),
        CASE(next_source),
        CASE(found_by_an_unsure_home),
        CASE(silent_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
