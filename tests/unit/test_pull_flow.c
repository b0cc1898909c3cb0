/* The puller: windows, READs in flight, leases that are renewed, recalled or lost meanwhile. */
#include "tests/support/pull_steps.h"

#include <errno.h>
#include <xxhash.h>

/* Five keys more, of `size` each, while a large transfer fills the window. */
static uint64_t five_more(uint64_t size, uint64_t *second)
{
    uint64_t first = to_read(1, "k", 8 * MIB);
    *second = take(CMD_PULL_READ);
    assert_int_equal(script_count(s, CMD_PULL_READ), 0); /* the source's window */
    script_pull(s, 2, "abcde", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    script_found(s, k->c.id, 5, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 5, 5, size);
    return first;
}

static void windows_are_shared_fairly(void **state)
{
    (void)state;
    uint64_t second, first = five_more(128 << 10, &second);
    assert_int_equal(script_count(s, CMD_PULL_READ), 0);
    script_status(s, EV_PULL_READ, first, 0);
    const struct kept *k = script_take(s, CMD_PULL_READ); /* the large one's turn, then the other request's, then .. */
    bool large = k->c.length == MIB;
    script_status(s, EV_PULL_READ, second, 0);
    assert_true(script_count(s, CMD_PULL_READ) >= 1);
    if (large) {
        assert_int_equal(script_take(s, CMD_PULL_READ)->c.length, 128 << 10);
    }
    struct pull_status st;
    pull_status(s->p, &st);
    assert_true(st.window_bytes <= 2 * MIB);
    s->n_kept = 0;
}

static void small_ones_pass_a_full_window(void **state)
{
    (void)state;
    uint64_t second, first = five_more(64 << 10, &second);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(script_count(s, CMD_PULL_READ), 4); /* an eighth of the source's window */
    assert_int_equal(st.window_bytes, 2 * MIB + (256 << 10));
    uint64_t small = take(CMD_PULL_READ);
    script_status(s, EV_PULL_READ, first, 0); /* they take no room from the large one */
    assert_int_equal(script_count(s, CMD_PULL_READ), 4);
    script_status(s, EV_PULL_READ, small, 0);
    assert_int_equal(script_count(s, CMD_PULL_READ), 5);
    assert_null(pull_check(s->p));
    s->n_kept = 0;
}

static bool read_sums(uint64_t id, const char *key, uint32_t flags, uint32_t sample, uint64_t size)
{
    struct pull_key k = {.key = {.data = key, .size = 1}, .buffer = id, .room = 1u << 30};
    script_request(s, &(struct pull_request){.id = id,
                                             .keys = &k,
                                             .n_keys = 1,
                                             .destination = PULL_BUFFER,
                                             .flags = flags,
                                             .sample = sample,
                                             .deadline = INT64_MAX});
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, size);
    bool sum = script_take(s, CMD_PULL_READ)->c.sum;
    s->n_kept = 0;
    return sum;
}

static void sums_only_where_they_are_wanted(void **state)
{
    (void)state;
    assert_true(read_sums(1, "a", 0, 1, 4096));
    assert_true(read_sums(2, "b", PULL_VERIFY, 0, 4096));
    assert_false(read_sums(3, "c", 0, 16, 4096)); /* hashed afterwards, if it is one of those */
    assert_false(read_sums(4, "d", 0, 0, 4096));
    assert_false(read_sums(5, "e", 0, 1, MIB + 1)); /* two READs: the sum of one is of no use */
}

static void long_transfers_renew(void **state)
{
    (void)state;
    uint64_t read = to_read(1, "k", 8 * MIB);
    take(CMD_PULL_READ);
    script_pass(s, 2500 * MS);
    const struct kept *k = script_take(s, CMD_PULL_RENEW);
    assert_int_equal(k->c.member, 3);
    uint64_t renew = k->c.id;
    script_pass(s, 1500 * MS);
    script_event(s, &(struct pull_event){.kind = EV_PULL_RENEWED, .id = renew, .ttl_ns = 5000 * MS});
    script_pass(s, 1000 * MS);
    script_status(s, EV_PULL_READ, read, 0);
    assert_int_equal(script_count(s, CMD_PULL_READ), 1); /* it goes on: 2,500 + 5,000 is the end now */
    assert_int_equal(script_count(s, CMD_PULL_CANCEL_READ), 0);
    script_pass(s, 2000 * MS);
    assert_int_equal(script_count(s, CMD_PULL_RENEW), 1);
    script_pass(s, 2000 * MS); /* and without a reply it is over */
    assert_int_equal(script_count(s, CMD_PULL_CANCEL_READ), 2);
    assert_int_equal(script_count(s, CMD_PULL_DONE), 0);
    s->n_kept = 0;
}

static void no_post_without_time(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    uint64_t lease = take(CMD_PULL_LEASE);
    struct lease_terms t = script_terms(s, 5, 10 * MIB);
    t.ttl_ns = 5 * MS; /* 1 MiB takes 11 ms by estimate */
    grant_terms(lease, &t);
    assert_int_equal(script_count(s, CMD_PULL_READ), 0);
    uint64_t renew = take(CMD_PULL_RENEW);
    script_event(s, &(struct pull_event){.kind = EV_PULL_RENEWED, .id = renew, .ttl_ns = 5000 * MS});
    assert_int_equal(script_count(s, CMD_PULL_READ), 2);
    s->n_kept = 0;
}

static void recall_and_release(void **state)
{
    (void)state;
    uint64_t read = to_read(1, "k", 10), lease = 1;
    script_event(s, &(struct pull_event){.kind = EV_PULL_RECALL, .member = 3, .leases = &lease, .n = 1});
    finish(read);
    expect_done(1, 0);
    script_pull(s, 2, "q", PULL_BUFFER, 0, 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    assert_int_equal(s->kept[0].c.kind, CMD_PULL_RELEASE); /* rides in front of the LEASE */
    assert_int_equal(s->kept[1].c.kind, CMD_PULL_LEASE);
    const struct kept *k = script_take(s, CMD_PULL_RELEASE);
    assert_int_equal(k->c.n, 1);
    assert_int_equal(k->release[0].lease, 1);
    assert_int_equal(k->release[0].uses, 1);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    finish(take(CMD_PULL_READ));
    expect_done(2, 0);
    script_pass(s, 1000 * MS); /* idle */
    script_pass(s, 50 * MS);
    assert_int_equal(script_take(s, CMD_PULL_RELEASE)->release[0].lease, 2);
    struct pull_status st;
    pull_status(s->p, &st);
    assert_int_equal(st.leases.granted, st.leases.ended);
}

static void lost_connection(void **state)
{
    (void)state;
    uint64_t read = to_read(1, "k", 10);
    script_member(s, EV_PULL_DOWN, 3, 0);
    script_member(s, EV_PULL_UP, 3, 7); /* the same incarnation: only the connection was lost */
    script_status(s, EV_PULL_READ, read, 0);
    assert_int_equal(script_count(s, CMD_PULL_HASH), 0);
    script_found(s, take(CMD_PULL_ASK), 1, 3, 5);
    script_grant(s, take(CMD_PULL_LEASE), 1, 5, 10);
    finish(take(CMD_PULL_READ));
    expect_done(1, 0);
    /* Another incarnation says so itself. */
    script_member(s, EV_PULL_UP, 3, 8);
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0);
    assert_int_equal(script_count(s, CMD_PULL_ASK), 1);
    s->n_kept = 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh_narrow, end)
    const struct CMUnitTest tests[] = {
        CASE(windows_are_shared_fairly), CASE(small_ones_pass_a_full_window), CASE(sums_only_where_they_are_wanted),
        CASE(long_transfers_renew),      CASE(no_post_without_time),          CASE(recall_and_release),
        CASE(lost_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
