/* A reader's leases: when they start and end, what is given back, and what a lost connection takes. */
#include "replication/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#define MS INT64_C(1000000)

static struct leases *ls;
static const struct key_ref key = {.data = "k", .size = 1};

static int fresh(void **state)
{
    (void)state;
    struct leases_config c = {.max_leases = 4, .max_bytes = 1000, .idle_ns = 1000 * MS};
    return leases_create(&ls, &c);
}

static int end(void **state)
{
    (void)state;
    leases_destroy(ls);
    return 0;
}

static struct lease_terms terms(uint64_t id)
{
    return (struct lease_terms){.lease = id, .generation = 3, .size = 100, .ttl_ns = 5000 * MS};
}

static struct reader_lease *add(uint16_t member, uint64_t id, const char *name, int64_t start)
{
    struct lease_terms t = terms(id);
    return leases_add(ls, member, 1, (struct key_ref){.data = name, .size = (uint32_t)strlen(name)}, &t, start, start);
}

static uint64_t released(uint16_t member)
{
    struct lease_release r = {0};
    return leases_release(ls, member, &r) ? r.lease : 0;
}

/* A stop of 12 ms between any two readings makes no start late and no check early. */
static void clock_order(void **state)
{
    (void)state;
    int64_t suspended = 777 * MS;
    for (int stop = 0; stop < 4; stop++) {
        int64_t at[4], t = 1000 * MS;
        for (int i = 0; i < 4; i++) {
            t += i == stop ? 12 * MS : 100;
            at[i] = t;
        }
        struct reader_now n = {at[0], at[1], at[2] + suspended, at[3]};
        assert_true(reader_start(n) <= at[0] + suspended);
        assert_true(reader_check(n) >= at[0] + suspended);
    }
}

static void posts_and_accepts_before_its_end(void **state)
{
    (void)state;
    struct reader_lease *l = add(1, 1, "k", 0);
    assert_true(lease_may_post(l, 0, 4999 * MS));
    assert_false(lease_may_post(l, 0, 5000 * MS));
    assert_false(lease_may_post(l, 4000 * MS, 1000 * MS));
    assert_true(lease_may_accept(l, 5000 * MS - 1));
    assert_false(lease_may_accept(l, 5000 * MS));
    assert_ptr_equal(leases_find(ls, key, 0, MS, NULL), l);
    assert_null(leases_find(ls, key, 4999 * MS, 2 * MS, NULL));
    uint64_t skip[LEASE_MEMBERS_MAX / 64] = {2};
    assert_null(leases_find(ls, key, 0, MS, skip));
}

static void renewal_never_takes_time(void **state)
{
    (void)state;
    struct reader_lease *l = add(1, 1, "k", 0);
    lease_renewed(l, 1000 * MS, 5000 * MS);
    assert_int_equal(l->deadline, 6000 * MS);
    lease_renewed(l, 500 * MS, 5000 * MS);
    lease_renewed(l, 2000 * MS, LEASE_TTL_MAX_NS + 1);
    lease_renewed(l, 2000 * MS, -1);
    assert_int_equal(l->deadline, 6000 * MS);
    assert_int_equal(l->granted, 0);
}

static void refuses_bad_terms(void **state)
{
    (void)state;
    struct lease_terms t = terms(1);
    uint64_t sums[4] = {0};
    t.ttl_ns = 0;
    assert_false(lease_terms_good(&t));
    t.ttl_ns = LEASE_TTL_MAX_NS + 1;
    assert_false(lease_terms_good(&t));
    t = terms(1);
    t.offset = UINT64_MAX - 50;
    assert_false(lease_terms_good(&t));
    t = terms(1);
    t.size = OBJECT_MAX + 1ull;
    assert_false(lease_terms_good(&t));
    t = terms(1);
    t.sums = sums;
    t.n_sums = 4;
    t.segment_log2 = 5;
    t.checksum = XXH3_64bits(sums, sizeof sums);
    assert_true(lease_terms_good(&t));
    sums[3] = 1; /* a list that the checksum does not prove */
    assert_false(lease_terms_good(&t));
    sums[3] = 0;
    t.n_sums = 0; /* segments without their list */
    assert_false(lease_terms_good(&t));
    t.n_sums = 4;
    t.segment_log2 = 6;
    assert_false(lease_terms_good(&t));
    t.segment_log2 = 200;
    assert_false(lease_terms_good(&t));
    assert_null(leases_add(ls, 1, 1, key, &t, 0, 0));
    t = terms(1);
    assert_null(leases_add(ls, LEASE_MEMBERS_MAX, 1, key, &t, 0, 0));
}

static void one_id_is_one_lease(void **state)
{
    (void)state;
    struct reader_lease *l = add(1, 1, "k", 0);
    assert_ptr_equal(add(1, 1, "k", MS), l);
    assert_int_equal(l->deadline, 5001 * MS);
    assert_null(add(1, 1, "other", MS));
    struct lease_terms t = terms(1);
    t.generation++;
    assert_null(leases_add(ls, 1, 1, key, &t, 0, 0));
    assert_ptr_not_equal(add(2, 1, "k", 0), l);
}

static void idle_ones_end_by_timer(void **state)
{
    (void)state;
    struct reader_lease *l = add(1, 1, "k", 0);
    lease_take(ls, l);
    leases_tick(ls, 2000 * MS);
    assert_int_equal(leases_releasing(ls, 1), 0);
    assert_int_equal(leases_timer(ls), INT64_MAX);
    lease_leave(ls, l, true, 2000 * MS);
    assert_int_equal(leases_timer(ls), 3000 * MS);
    leases_tick(ls, 3000 * MS - 1);
    assert_int_equal(leases_releasing(ls, 1), 0);
    leases_tick(ls, 3000 * MS);
    struct lease_release r;
    assert_true(leases_release(ls, 1, &r));
    assert_int_equal(r.uses, 1);
    assert_false(leases_release(ls, 1, &r));
    assert_null(leases_find(ls, key, 3000 * MS, MS, NULL));
}

static void least_recently_used_goes_first(void **state)
{
    (void)state;
    static const char *names[] = {"a", "b", "c", "d", "e"};
    struct reader_lease *l[5];
    for (uint32_t i = 0; i < 5; i++) {
        l[i] = add(1, i + 1, names[i], 0);
        lease_take(ls, l[i]);
    }
    leases_tick(ls, 0);
    assert_int_equal(leases_releasing(ls, 1), 0); /* all are used */
    lease_leave(ls, l[2], true, MS);
    assert_int_equal(released(1), 3);
    lease_leave(ls, l[1], true, MS);
    lease_leave(ls, l[0], true, MS);
    assert_int_equal(released(1), 0);
    struct lease_terms big = terms(9);
    big.size = 900;
    assert_non_null(leases_add(ls, 1, 1, key, &big, 0, 0));
    leases_tick(ls, 0); /* 1,100 idle bytes, five leases */
    assert_int_equal(released(1), 2);
    assert_int_equal(released(1), 0);
}

static void lost_connection_takes_all(void **state)
{
    (void)state;
    struct reader_lease *used = add(1, 1, "k", 0);
    lease_take(ls, used);
    add(1, 2, "idle", 0);
    add(1, 3, "leaving", 0);
    leases_recall(ls, 1, 3);
    struct reader_lease *other = add(2, 1, "k", 0);
    leases_lost(ls, 1);
    assert_ptr_equal(leases_find(ls, key, 0, MS, NULL), other);
    assert_false(lease_may_accept(used, 0));
    assert_false(lease_may_post(used, 0, 0));
    lease_leave(ls, used, true, 0);
    assert_int_equal(released(1), 0); /* the owner forgot them at its fence */
    leases_incarnation(ls, 2, 1);
    assert_non_null(leases_find(ls, key, 0, MS, NULL));
    leases_incarnation(ls, 2, 2);
    assert_null(leases_find(ls, key, 0, MS, NULL));
    struct leases_usage u;
    leases_usage(ls, &u);
    assert_int_equal(u.granted, 4);
    assert_int_equal(u.ended, 4);
    assert_int_equal(u.lost, 3);
    assert_int_equal(u.good + u.used + u.releasing + u.bytes, 0);
}

static void recalled_one_serves_its_user_only(void **state)
{
    (void)state;
    struct reader_lease *l = add(1, 1, "k", 0);
    lease_take(ls, l);
    leases_recall(ls, 1, 1);
    leases_recall(ls, 1, 99);
    leases_recall(ls, LEASE_MEMBERS_MAX, 1);
    assert_null(leases_find(ls, key, 0, MS, NULL));
    assert_true(lease_may_accept(l, 0));
    assert_int_equal(released(1), 0);
    lease_leave(ls, l, true, 0);
    assert_int_equal(released(1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_order),
        cmocka_unit_test_setup_teardown(posts_and_accepts_before_its_end, fresh, end),
        cmocka_unit_test_setup_teardown(renewal_never_takes_time, fresh, end),
        cmocka_unit_test_setup_teardown(refuses_bad_terms, fresh, end),
        cmocka_unit_test_setup_teardown(one_id_is_one_lease, fresh, end),
        cmocka_unit_test_setup_teardown(idle_ones_end_by_timer, fresh, end),
        cmocka_unit_test_setup_teardown(least_recently_used_goes_first, fresh, end),
        cmocka_unit_test_setup_teardown(lost_connection_takes_all, fresh, end),
        cmocka_unit_test_setup_teardown(recalled_one_serves_its_user_only, fresh, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
