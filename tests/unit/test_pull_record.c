/* What the puller says of its pulls: phases that add up, sources whose sums are the totals, causes of failures. */
#include "tests/support/pull_steps.h"

#include <errno.h>

static struct pull_source source(uint16_t member)
{
    struct pull_source from;
    pull_source(s->p, member, &from);
    return from;
}

static struct pull_status status(void)
{
    struct pull_status st;
    pull_status(s->p, &st);
    return st;
}

static void read_ends(uint64_t id, int rc, uint64_t received, int64_t began, int64_t ended)
{
    script_event(s, &(struct pull_event){.kind = EV_PULL_READ,
                                         .id = id,
                                         .status = rc,
                                         .received = received,
                                         .copied = received,
                                         .began = began,
                                         .ended = ended});
}

static void adds_up(const struct pull_result *r)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < PULL_TOTAL; i++) {
        assert_true(r->phase_ns[i] >= 0);
        sum += r->phase_ns[i];
    }
    assert_int_equal(sum, r->phase_ns[PULL_TOTAL]);
}

/* Each step of a replica takes a time of its own; the caller had asked 1 ms before. */
static void every_phase(void **state)
{
    (void)state;
    struct pull_key k = {.key = {.data = "k", .size = 1}};
    struct pull_request r = {
        .id = 1, .keys = &k, .n_keys = 1, .sample = 1, .deadline = INT64_MAX, .asked = s->now.mono_after - MS};
    script_request(s, &r);
    script_pass(s, 2 * MS);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_pass(s, 3 * MS);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    script_pass(s, 4 * MS);
    script_reserved(s, take(CMD_PULL_RESERVE), 700);
    int64_t posted = s->now.mono_after;
    script_pass(s, 30 * MS);
    read_ends(take(CMD_PULL_READ), 0, 1000, posted + 5 * MS, posted + 11 * MS);
    script_pass(s, 7 * MS);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    script_pass(s, 8 * MS);
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), 0);
    const struct pull_result *out = &script_take(s, CMD_PULL_DONE)->result[0];
    static const int64_t want[PULL_PHASES] = {
        [PULL_PREPARE] = 1,  [PULL_HOME] = 2,      [PULL_ADMIT] = 3, [PULL_REGISTER] = 4, [PULL_QUEUE] = 5,
        [PULL_TRANSFER] = 6, [PULL_COMPLETE] = 19, [PULL_PROOF] = 7, [PULL_PUBLISH] = 8,  [PULL_TOTAL] = 55};
    for (unsigned i = 0; i < PULL_PHASES; i++) {
        if (out->phase_ns[i] != want[i] * MS) {
            fail_msg("%s: %lld ns", pull_phase_names[i], (long long)out->phase_ns[i]);
        }
        assert_int_equal(status().phase[i].count, i != PULL_PAUSE);
    }
    adds_up(out);
    assert_int_equal(out->copied, 1000);
}

/* A transport that says nonsense of its times changes no sum. */
static void times_that_cannot_be(void **state)
{
    static const int64_t times[][2] = {{INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}, {1, 1}, {-5, -9}};
    (void)state;
    for (unsigned i = 0; i < sizeof times / sizeof times[0]; i++) {
        char key[2] = {(char)('a' + i)};
        script_pull(s, i + 1, key, PULL_BUFFER, 0, 0);
        script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
        script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
        script_pass(s, 3 * MS);
        read_ends(take(CMD_PULL_READ), 0, UINT64_MAX, times[i][0], times[i][1]);
        script_hashed(s, take(CMD_PULL_HASH), SUM);
        const struct pull_result *out = &script_take(s, CMD_PULL_DONE)->result[0];
        adds_up(out);
        assert_int_equal(out->phase_ns[PULL_TOTAL], 3 * MS);
        assert_int_equal(out->copied, 1000);
    }
}

/* Bytes that came in vain are counted too, at the member that they came from; so is whose fault it was. */
static void sources(void **state)
{
    (void)state;
    struct pull_answer a = {.says = HOME_FOUND, .n_locations = 2, .location = {{3, {5, 1}}, {2, {5, 1}}}};
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = take(CMD_PULL_ASK), .answers = &a, .n = 1});
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    read_ends(take(CMD_PULL_READ), -ECONNRESET, 400, 0, 0);
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = take(CMD_PULL_ASK), .answers = &a, .n = 1});
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    assert_int_equal(source(2).in_flight, 1000);
    read_ends(take(CMD_PULL_READ), 0, 0, 0, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    const struct pull_result *out = &script_take(s, CMD_PULL_DONE)->result[0];
    assert_int_equal(out->member, 2);
    assert_int_equal(out->moved, 1400);
    assert_int_equal(out->copied, 400);
    assert_int_equal(source(3).bytes, 400);
    assert_int_equal(source(3).fault[FAULT_LOST], 1);
    assert_int_equal(source(3).transfers, 0);
    assert_int_equal(source(2).bytes, 1000);
    assert_int_equal(source(2).transfers, 1);
    assert_int_equal(source(2).in_flight, 0);
    assert_int_equal(source(2).leases, 1);
    assert_string_equal(source(2).transport, "loop");
    assert_int_equal(status().counter[PULL_MOVED_BYTES], 1400);
    assert_int_equal(status().counter[PULL_COPIED_BYTES], 400);
    assert_int_equal(status().counter[PULL_VERIFIED], 1);
    assert_int_equal(source(77).bytes, 0);
}

static void fail_as(enum pull_cause cause, int rc)
{
    const struct kept *k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->result[0].status, rc);
    struct pull_status st = status();
    if (st.cause[cause] == 0) {
        fail_msg("not counted as %s", pull_cause_names[cause]);
    }
    uint64_t all = 0;
    for (unsigned i = 0; i < PULL_CAUSES; i++) {
        all += st.cause[i];
    }
    assert_int_equal(all, st.counter[PULL_FAILED]);
}

static void causes(void **state)
{
    (void)state;
    for (unsigned home = 0; home < 2; home++) {
        if (home == 0) {
            script_pull(s, 1, "a", PULL_BUFFER, 0, 0);
        }
        script_says(s, take(CMD_PULL_ASK), HOME_ABSENT, NULL, 0);
    }
    fail_as(CAUSE_ABSENT, -ENOENT);
    script_pull(s, 2, "b", PULL_BUFFER, 0, 0);
    script_event(s, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = 2});
    fail_as(CAUSE_CANCELED, -ECANCELED);
    script_pull(s, 3, "c", PULL_BUFFER, 0, s->now.mono_after + MS);
    script_pass(s, 2 * MS);
    fail_as(CAUSE_DEADLINE, -ETIMEDOUT);
    struct pull_key k = {.key = {.data = "d", .size = 1}, .buffer = 4, .room = 10};
    script_request(
        s, &(struct pull_request){
               .id = 4, .keys = &k, .n_keys = 1, .destination = PULL_BUFFER, .sample = 1, .deadline = INT64_MAX});
    while (script_count(s, CMD_PULL_ASK) > 1) {
        take(CMD_PULL_ASK);
    }
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    fail_as(CAUSE_ROOM, -ENOSPC);
    script_request(s, &(struct pull_request){.id = 5, .keys = &k, .n_keys = 1, .flags = 1u << 30});
    fail_as(CAUSE_OTHER, -EINVAL);
    script_member(s, EV_PULL_DOWN, 1, 0);
    script_member(s, EV_PULL_DOWN, 2, 0);
    script_pull(s, 6, "e", PULL_BUFFER, 0, 0);
    fail_as(CAUSE_UNSURE, BERTH_EUNSURE);
}

/* The only source is lost in the middle of it. */
static void lost(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    uint64_t read = take(CMD_PULL_READ);
    script_member(s, EV_PULL_DOWN, 3, 0);
    read_ends(read, -ECONNRESET, 7, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    }
    fail_as(CAUSE_LOST, BERTH_EUNSURE);
    assert_int_equal(source(3).bytes, 7);
}

static void stale(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    for (unsigned i = 0; i < 4; i++) {
        script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
        script_grant(s, take(CMD_PULL_LEASE), 1, 5 + i, 1000);
        read_ends(take(CMD_PULL_READ), -ESTALE, 0, 0, 0);
    }
    fail_as(CAUSE_STALE, BERTH_ENOTNOW);
    assert_int_equal(source(3).fault[FAULT_STALE], 4);
}

/* Two wait for one transfer: its bytes are one's, its phases both's, each has its own total. */
static void shared(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_REPLICA, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_pass(s, MS);
    script_pull(s, 2, "k", PULL_REPLICA, 0, 0);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
    script_reserved(s, take(CMD_PULL_RESERVE), 700);
    script_pass(s, 2 * MS);
    read_ends(take(CMD_PULL_READ), 0, 1000, 0, 0);
    script_hashed(s, take(CMD_PULL_HASH), SUM);
    script_status(s, EV_PULL_SEALED, take(CMD_PULL_SEAL), 0);
    struct pull_result first = script_take(s, CMD_PULL_DONE)->result[0];
    struct pull_result second = script_take(s, CMD_PULL_DONE)->result[0];
    assert_false(first.shared);
    assert_true(second.shared);
    assert_int_equal(first.moved + second.moved, 1000);
    assert_int_equal(second.copied, 0);
    adds_up(&first);
    assert_int_equal(second.phase_ns[PULL_TRANSFER], first.phase_ns[PULL_TRANSFER]);
    assert_int_equal(second.phase_ns[PULL_TOTAL], 2 * MS);
    assert_int_equal(status().counter[PULL_SHARED], 1);
    assert_int_equal(status().phase[PULL_TRANSFER].count, 1);
    assert_int_equal(status().phase[PULL_TOTAL].count, 2);
}

/* Whoever only looks whether it is there moves nothing: no transfer, verified or not. One of 0 bytes is one. */
static void looks(void **state)
{
    (void)state;
    struct pull_range none = {0};
    struct pull_key k = {.key = {.data = "k", .size = 1}, .n_ranges = 1, .ranges = &none, .buffer = 4};
    for (unsigned i = 0; i < 2; i++) {
        struct pull_request r = {
            .id = i + 1, .keys = &k, .n_keys = 1, .destination = PULL_BUFFER, .sample = i, .deadline = INT64_MAX};
        script_request(s, &r);
        if (i == 0) {
            script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
            script_grant(s, take(CMD_PULL_LEASE), 1, 5, 1000);
        }
        expect_done(i + 1, 0);
    }
    struct pull_status st = status();
    assert_int_equal(st.counter[PULL_DONE], 2);
    assert_int_equal(st.counter[PULL_DONE_BYTES], 0);
    assert_int_equal(st.counter[PULL_TRANSFERS] + st.counter[PULL_VERIFIED] + st.counter[PULL_UNVERIFIED], 0);
    assert_int_equal(source(3).transfers, 0);
    script_pull(s, 3, "e", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    struct pull_grant g = {.terms = script_terms(s, 6, 0)};
    g.terms.checksum = UINT64_C(0x2d06800538d394c2); /* XXH3-64 of nothing */
    script_event(s, &(struct pull_event){.kind = EV_PULL_LEASED, .id = take(CMD_PULL_LEASE), .grants = &g, .n = 1});
    expect_done(3, 0);
    assert_int_equal(status().counter[PULL_TRANSFERS], 1);
    assert_int_equal(status().counter[PULL_VERIFIED], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_phase, fresh, end),
        cmocka_unit_test_setup_teardown(times_that_cannot_be, fresh, end),
        cmocka_unit_test_setup_teardown(sources, fresh, end),
        cmocka_unit_test_setup_teardown(causes, fresh, end),
        cmocka_unit_test_setup_teardown(lost, fresh, end),
        cmocka_unit_test_setup_teardown(stale, fresh, end),
        cmocka_unit_test_setup_teardown(shared, fresh, end),
        cmocka_unit_test_setup_teardown(looks, fresh, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
