/* Case A3: a pool full of small objects takes large ones, evicting no more than it may; half pinned, it says figures.
 */
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define POOL (256u * MIB)
#define SMALL (POOL / 4096)

static struct daemon d;
static char *data;

static int put(struct berth *b, const char *what, int i, uint32_t size)
{
    char key[32];
    snprintf(key, sizeof key, "%s-%d", what, i);
    payload_fill(data, size, key);
    return berth_put(b, key_of(key), data, size, NULL);
}

static struct berth *start(void)
{
    const char *extra[] = {"--pool", "256MiB", "--high", "100%", "--low", "100%", NULL};
    daemon_start(&d, extra);
    return daemon_open(&d, "parent");
}

static void test_full_of_small(void **state)
{
    (void)state;
    struct berth *b = start();
    static const uint32_t sizes[] = {64u << 10, MIB, 16 * MIB, 4096};
    for (uint32_t i = 0; i < SMALL; i++) {
        assert_int_equal(put(b, "small", (int)i, 4096), 0);
    }
    for (int s = 0; s < 4; s++) {
        /* A put that is smaller than what fills the pool takes at least one of those. */
        uint64_t bound = s == 3 ? 16 * MIB : 2 * sizes[s] > 2 * MIB ? 2 * sizes[s] : 2 * MIB;
        for (int i = 0; i < 100; i++) {
            double before = daemon_number(b, "counters.evicted_bytes");
            char what[16];
            snprintf(what, sizeof what, "size-%d", s);
            assert_int_equal(put(b, what, i, sizes[s]), 0);
            assert_true(daemon_number(b, "counters.evicted_bytes") - before <= (double)bound);
        }
    }
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
}

static void test_half_pinned(void **state)
{
    (void)state;
    struct berth *b = start();
    static struct berth_view v[SMALL / 2];
    uint32_t pinned = 0;
    for (uint32_t i = 0; i < SMALL - 64; i++) {
        assert_int_equal(put(b, "small", (int)i, 4096), 0);
        char key[32];
        snprintf(key, sizeof key, "small-%u", i);
        if (i % 2) {
            assert_int_equal(berth_get(b, key_of(key), &v[pinned++], 0, BERTH_FOREVER), 0);
        }
    }
    assert_int_equal(put(b, "large", 0, MIB), BERTH_EFULL);
    struct berth_error_info e;
    berth_error(b, &e);
    assert_int_equal(e.figure[0], MIB);
    assert_true(e.figure[2] < MIB);
    assert_true(e.figure[3] >= (uint64_t)pinned * 4096 / 2);
    assert_int_equal(put(b, "little", 0, 4096), 0);
    berth_release(b, v, pinned);
    assert_int_equal(put(b, "large", 0, MIB), 0);
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
}

/* What is pinned and has been evicted is in use once. */
static void test_counted_once(void **state)
{
    (void)state;
    struct berth *b;
    struct berth_view v;
    struct berth_error_info e;
    assert_int_equal(berth_open(&b, "embedded:?pool=32MiB&lock=off&log-level=error", NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put(b, "tiny", i, 2), 0);
    }
    assert_int_equal(put(b, "large", 1, 20 * MIB), 0);
    assert_int_equal(berth_get(b, key_of("large-1"), &v, 0, BERTH_FOREVER), 0);
    assert_int_equal(put(b, "large", 2, 20 * MIB), BERTH_EFULL);
    berth_error(b, &e);
    assert_in_range(e.figure[3], 20 * MIB, 21 * MIB);
    berth_release(b, &v, 1);
    berth_close(b);
}

int main(void)
{
    data = malloc(20 * MIB);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_of_small), cmocka_unit_test(test_half_pinned),
                                       cmocka_unit_test(test_counted_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
