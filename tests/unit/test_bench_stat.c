#include "tools/bench/bench_stat.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct bench_stat s, t; /* large */

static int set_up(void **state)
{
    (void)state;
    memset(&s, 0, sizeof(s));
    memset(&t, 0, sizeof(t));
    return 0;
}

static void near(double is, double wanted)
{
    if (fabs(is - wanted) > 0.01 * wanted)
        fail_msg("%g, not %g within 1 %%", is, wanted);
}

static void percentiles_are_near(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 10000; i++)
        stat_note(&s, i * 1000, 1);
    near(stat_mean(&s), 5000.5);
    near(stat_percentile(&s, 0.5), 5000);
    near(stat_percentile(&s, 0.99), 9900);
    near(stat_percentile(&s, 0.999), 9990);
}

static void every_magnitude_has_its_place(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        set_up(NULL);
        stat_note(&s, 1ull << bit, 1);
        near(stat_percentile(&s, 0.5) * 1000, (double)(1ull << bit));
    }
    set_up(NULL);
    stat_note(&s, UINT64_MAX, 1);
    near(stat_percentile(&s, 0.5) * 1000, (double)UINT64_MAX);
    set_up(NULL);
    stat_note(&s, 0, 1);
    assert_true(stat_percentile(&s, 0.5) == 0);
}

static void batches_count_as_their_operations(void **state)
{
    (void)state;
    stat_note(&s, 20000, 64);
    stat_note(&t, 1000000, 1);
    stat_merge(&s, &t);
    assert_int_equal(s.count, 65);
    near(stat_percentile(&s, 0.5), 20);
    near(stat_percentile(&s, 0.999), 1000);
    near(stat_mean(&s), (64 * 20 + 1000) / 65.0);
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    assert_true(stat_mean(&s) == 0 && stat_percentile(&s, 0.99) == 0);
}

static void the_median_is_in_the_middle(void **state)
{
    double odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2};

    (void)state;
    assert_true(median(odd, 3) == 5);
    assert_true(median(even, 4) == 2.5);
}

/* Costs of a machine that is slow in every other turn; the case takes twice its baseline's time in each. */
static void fill_turns(double *ours, double *base, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        base[i] = i % 2 ? 100 : 300;
        ours[i] = 2 * base[i] * (1 + (double)i * 1e-4);
    }
}

static void stray_slices_count_on_neither_side(void **state)
{
    static double ours[BENCH_SLICES], base[BENCH_SLICES];
    static struct bench_turns turns;
    static const size_t counts[] = {3, 4, 7, 100, BENCH_SLICES};

    (void)state;
    for (unsigned k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
        size_t n = counts[k], stray = (n + 1) / 4;
        double plain;

        fill_turns(ours, base, n);
        turns_choose(&turns, ours, base, n);
        plain = turns_mean(&turns, ours) / turns_mean(&turns, base);
        for (size_t i = 0; i < stray; i++) {
            ours[i] *= 1000;
            base[n - 1 - i] *= 1000;
        }
        turns_choose(&turns, ours, base, n);
        assert_int_equal(turns.n, n - 2 * stray);
        for (size_t i = 0; i < turns.n; i++)
            assert_in_range(turns.which[i], stray, n - 1 - stray);
        near(turns_mean(&turns, ours) / turns_mean(&turns, base), plain);
        assert_true(turns_mean(&turns, ours) < 1000 && turns_mean(&turns, base) < 500);
    }
}

/* Each mean is the time over the work of the same turns. */
static void figures_divide_to_the_ratio(void **state)
{
    double ours[] = {400, 50, 10, 1, 40, 9}, base[] = {20, 10, 10, 10, 20, 3};
    struct bench_turns turns;

    (void)state;
    turns_choose(&turns, ours, base, 6); /* quotients 20, 5, 1, 0.1, 2, 3: without 20 and 0.1 */
    assert_int_equal(turns.n, 4);
    near(turns_mean(&turns, ours), (50 + 10 + 40 + 9) / 4.0);
    near(turns_mean(&turns, base), (10 + 10 + 20 + 3) / 4.0);
    turns_choose(&turns, ours, base, 1);
    assert_true(turns.n == 1 && turns_mean(&turns, ours) == 400);
    turns_choose(&turns, ours, base, 2);
    assert_true(turns.n == 2 && turns_mean(&turns, base) == 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(percentiles_are_near, set_up),
        cmocka_unit_test_setup(every_magnitude_has_its_place, set_up),
        cmocka_unit_test_setup(batches_count_as_their_operations, set_up),
        cmocka_unit_test_setup(nothing_is_nothing, set_up),
        cmocka_unit_test(the_median_is_in_the_middle),
        cmocka_unit_test(stray_slices_count_on_neither_side),
        cmocka_unit_test(figures_divide_to_the_ratio),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
