/* Homes by weighted rendezvous hashing: shares as the weights, exact minimality, the same everywhere. */
#include "replication/rendezvous.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 64u
#define KEYS 200000u
#define CHOSEN UINT64_C(0xc8cdac16633a7a65) /* what test_same_everywhere chooses: changes only with the protocol */

static struct rendezvous_member member[MEMBERS];

static uint64_t name_id(uint32_t i)
{
    char name[16];
    int size = snprintf(name, sizeof name, "node-%u", i);
    return rendezvous_id(name, (uint32_t)size);
}

static struct rendezvous *make(uint32_t n, uint32_t k)
{
    struct rendezvous *r = NULL;
    assert_int_equal(rendezvous_create(&r, member, n, k), 0);
    return r;
}

static void fill(uint32_t most)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        member[i] = (struct rendezvous_member){.id = name_id(i), .weight = 1 + draw_below(most), .state = MEMBER_IN};
    }
}

static uint64_t place_of(uint64_t i)
{
    struct home_key key = {.data = &i, .size = sizeof i};
    return rendezvous_place(&key);
}

/* Each share lies within 5 standard deviations of its expectation, and chi-square is plausible. */
static void check_shares(uint32_t n, uint32_t most)
{
    fill(most);
    struct rendezvous *r = make(n, 1);
    uint32_t had[MEMBERS] = {0};
    for (uint64_t i = 0; i < KEYS; i++) {
        uint16_t home;
        assert_int_equal(rendezvous_homes(r, place_of(i * 7919 + n), &home), 1);
        had[home]++;
    }
    double all = 0, chi = 0;
    for (uint32_t i = 0; i < n; i++) {
        all += member[i].weight;
    }
    for (uint32_t i = 0; i < n; i++) {
        double share = member[i].weight / all, want = share * KEYS;
        assert_true(fabs(had[i] - want) < 5 * sqrt(want * (1 - share)) + 1);
        chi += (had[i] - want) * (had[i] - want) / want;
    }
    assert_true(chi < (n - 1) + 6 * sqrt(2.0 * (n - 1)));
    rendezvous_destroy(r);
}

static void test_shares(void **state)
{
    (void)state;
    check_shares(64, 1);
    check_shares(64, 8);
    check_shares(5, 100);
    check_shares(2, 1);
    check_shares(12, RENDEZVOUS_WEIGHT_MAX / 64);
}

/* The second home, given the first, is chosen as if the first were not there. */
static void test_second(void **state)
{
    (void)state;
    fill(1);
    uint32_t n = 4, had[4][4] = {{0}};
    struct rendezvous *r = make(n, 2);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint16_t home[HOMES_MAX];
        assert_int_equal(rendezvous_homes(r, place_of(i), home), 2);
        had[home[0]][home[1]]++;
    }
    for (uint32_t a = 0; a < n; a++) {
        assert_int_equal(had[a][a], 0);
        for (uint32_t b = 0; b < n; b++) {
            double want = KEYS / 12.0;
            assert_true(a == b || fabs(had[a][b] - want) < 5 * sqrt(want));
        }
    }
    rendezvous_destroy(r);
}

static bool among(const uint16_t *home, uint32_t k, uint16_t m)
{
    for (uint32_t i = 0; i < k; i++) {
        if (home[i] == m) {
            return true;
        }
    }
    return false;
}

/* The list with member `gone` against the list without: a key that did not have it keeps its homes, in their order; one
 * that had it keeps the others and gets one more. Read backwards, the same holds for a member that comes. */
static void check_minimal(uint32_t n, uint32_t k, uint16_t gone)
{
    struct rendezvous *with = make(n, k);
    uint8_t before = member[gone].state;
    member[gone].state = MEMBER_LEAVING;
    struct rendezvous *without = make(n, k);
    member[gone].state = before;
    assert_true(rendezvous_revision(with) != rendezvous_revision(without));
    uint32_t moved = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint16_t a[HOMES_MAX], b[HOMES_MAX];
        uint32_t na = rendezvous_homes(with, place_of(i), a), nb = rendezvous_homes(without, place_of(i), b), at = 0;
        assert_int_equal(na, k);
        assert_int_equal(nb, n - 1 < k ? n - 1 : k);
        assert_false(among(b, nb, gone));
        for (uint32_t j = 0; j < na; j++) {
            if (a[j] != gone) {
                assert_int_equal(b[at++], a[j]);
            }
        }
        moved += at != na;
    }
    assert_true(moved > 0);
    rendezvous_destroy(with);
    rendezvous_destroy(without);
}

static void test_minimal(void **state)
{
    (void)state;
    fill(9);
    for (uint32_t k = 1; k <= HOMES_MAX; k++) {
        check_minimal(64, k, 17);
        check_minimal(5, k, 0);
        check_minimal(3, k, 2);
    }
}

/* More weight takes keys from others and moves none between them. */
static void test_weight(void **state)
{
    (void)state;
    fill(4);
    struct rendezvous *before = make(10, 1);
    member[3].weight += 5;
    struct rendezvous *after = make(10, 1);
    uint32_t moved = 0;
    for (uint64_t i = 0; i < 50000; i++) {
        uint16_t a, b;
        rendezvous_homes(before, place_of(i), &a);
        rendezvous_homes(after, place_of(i), &b);
        assert_true(a == b || b == 3);
        moved += a != b;
    }
    assert_true(moved > 0);
    rendezvous_destroy(before);
    rendezvous_destroy(after);
}

/* The order of the list is no matter, and what was chosen once is part of the protocol. */
static void test_same_everywhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        member[i] = (struct rendezvous_member){.id = name_id(i), .weight = 1 + i};
    }
    struct rendezvous *r = make(8, 3);
    for (uint32_t i = 0; i < 4; i++) {
        struct rendezvous_member m = member[i];
        member[i] = member[7 - i];
        member[7 - i] = m;
    }
    struct rendezvous *s = make(8, 3);
    assert_true(rendezvous_revision(r) == rendezvous_revision(s));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint16_t a[HOMES_MAX], b[HOMES_MAX];
        uint8_t bytes[8] = {(uint8_t)i, (uint8_t)(i >> 8)};
        struct home_key key = {.data = bytes, .size = 8, .space = i % 3, .route = i % 5 == 0 ? i : 0};
        assert_int_equal(rendezvous_homes(r, rendezvous_place(&key), a), 3);
        assert_int_equal(rendezvous_homes(s, rendezvous_place(&key), b), 3);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(a[j], 7 - b[j]);
            sum = sum * 31 + a[j];
        }
    }
    assert_true(sum == CHOSEN);
    rendezvous_destroy(r);
    rendezvous_destroy(s);
}

static void test_place(void **state)
{
    (void)state;
    struct home_key a = {.data = "key", .size = 3}, b = a, c = {.data = "other", .size = 5, .route = 7};
    b.space = 1;
    assert_true(rendezvous_place(&a) != rendezvous_place(&b));
    a.route = b.route = 7;
    assert_true(rendezvous_place(&a) == rendezvous_place(&b));
    assert_true(rendezvous_place(&a) == rendezvous_place(&c));
}

static void test_refused(void **state)
{
    (void)state;
    struct rendezvous *r = NULL;
    fill(1);
    assert_int_equal(rendezvous_create(&r, member, 0, 1), -EINVAL);
    assert_int_equal(rendezvous_create(&r, member, MEMBERS_MAX + 1, 1), -EINVAL);
    assert_int_equal(rendezvous_create(&r, member, 3, 0), -EINVAL);
    assert_int_equal(rendezvous_create(&r, member, 3, HOMES_MAX + 1), -EINVAL);
    member[1].weight = 0;
    assert_int_equal(rendezvous_create(&r, member, 3, 1), -EINVAL);
    member[1].weight = RENDEZVOUS_WEIGHT_MAX + 1;
    assert_int_equal(rendezvous_create(&r, member, 3, 1), -EINVAL);
    fill(1);
    member[2].id = member[0].id;
    assert_int_equal(rendezvous_create(&r, member, 3, 1), -EINVAL);
    fill(1);
    member[2].state = 2;
    assert_int_equal(rendezvous_create(&r, member, 3, 1), -EINVAL);
    assert_null(r);
    for (uint32_t i = 0; i < 3; i++) {
        member[i].state = MEMBER_LEAVING;
    }
    r = make(3, 2);
    uint16_t home[HOMES_MAX];
    assert_int_equal(rendezvous_homes(r, 1, home), 0);
    assert_int_equal(rendezvous_count(r), 3);
    assert_true(rendezvous_member_id(r, 1) == member[1].id);
    assert_true(rendezvous_member_id(r, 3) == 0);
    rendezvous_destroy(r);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),  cmocka_unit_test(test_second),          cmocka_unit_test(test_minimal),
        cmocka_unit_test(test_weight),  cmocka_unit_test(test_same_everywhere), cmocka_unit_test(test_place),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
