/* Case A4: with the index map full, deletes and evictions still work, and nothing that was committed is lost. */
#include "tests/support/daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct daemon d;

static struct berth_key long_key(char key[256], int i)
{
    memset(key, 'k', 200);
    snprintf(key + 190, 16, "%09d", i);
    return (struct berth_key){.data = key, .size = 200};
}

static int put(struct berth *b, int i)
{
    char key[256];
    return berth_put(b, long_key(key, i), "x", 1, NULL);
}

static int count_found(struct berth *b, int from, int to)
{
    char key[256];
    uint8_t there;
    int n = 0;
    for (int i = from; i < to; i++) {
        struct berth_key k = long_key(key, i);
        n += (int)berth_exists(b, &k, 1, &there, 0);
    }
    return n;
}

static void test_full_index(void **state)
{
    (void)state;
    const char *extra[] = {"--pool", "256MiB", "--index-size", "1MiB", NULL};
    char key[256];
    daemon_start(&d, extra);
    struct berth *b = daemon_open(&d, "parent");
    int n = 0, e;
    while ((e = put(b, n)) == 0) {
        n++;
        assert_true(n < 60000);
    }
    assert_int_equal(e, BERTH_EINDEXFULL);
    struct berth_error_info info;
    berth_error(b, &info);
    assert_non_null(strstr(info.sentence, "index"));
    assert_non_null(strstr(info.sentence, "index-size"));
    assert_true(n > 100);
    double used = daemon_number(b, "pool.used_bytes");
    for (int i = 0; i < 500; i++) {
        assert_int_equal(put(b, 100000 + i), BERTH_EINDEXFULL);
    }
    assert_true(daemon_number(b, "pool.used_bytes") <=
                used + 64 * 4096); /* failed puts gave their slots back; grants stay */
    assert_int_equal(count_found(b, 0, n), n);
    for (int i = 0; i < n / 2; i++) { /* deletes always work */
        assert_int_equal(berth_remove(b, long_key(key, i), NULL), 0);
    }
    int again = 0;
    while (again < n / 4 && put(b, 200000 + again) == 0) {
        again++;
    }
    assert_true(again > n / 8);
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    assert_int_equal(daemon_stop(&d), 0);
    daemon_again(&d);
    b = daemon_open(&d, "parent");
    assert_int_equal(count_found(b, n / 2, n), n - n / 2);
    assert_int_equal(count_found(b, 200000, 200000 + again), again);
    berth_close(b);
    assert_int_equal(daemon_stop(&d), 0);
    d.extra[3] = "8MiB"; /* a larger map takes what the smaller one held, and more */
    daemon_again(&d);
    b = daemon_open(&d, "parent");
    assert_int_equal(count_found(b, n / 2, n), n - n / 2);
    for (int i = 0; i < n; i++) {
        assert_int_equal(put(b, 300000 + i), 0);
    }
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
