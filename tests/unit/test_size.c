/* Sizes as people write them. */
#include "store/berth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)

static void accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"007", 7},
        {"10B", 10},
        {"10 b", 10},
        {"64K", 64 * KIB},
        {"64k", 64 * KIB},
        {"64KiB", 64 * KIB},
        {"64 kib", 64 * KIB},
        {"64KB", 64000},
        {"64kb", 64000},
        {"2M", 2 * KIB * KIB},
        {"2MiB", 2 * KIB * KIB},
        {"2MB", 2000000},
        {"3G", 3 * KIB * KIB * KIB},
        {"3GiB", 3 * KIB * KIB * KIB},
        {"3GB", UINT64_C(3000000000)},
        {"4T", 4 * KIB * KIB * KIB * KIB},
        {"4TiB", 4 * KIB * KIB * KIB * KIB},
        {"4TB", UINT64_C(4000000000000)},
        {"1.5K", 1536},
        {".5K", 512},
        {"1.K", 1024},
        {"0.25 MiB", 256 * KIB},
        {"1.0000000000000000000000000000000000000", 1},
        {"0.0", 0},
        {"1.1 KB", 1100},
        {"1e3", 1000},
        {"1E3", 1000},
        {"1e+3", 1000},
        {"1e3K", 1000 * KIB},
        {"2.5e1", 25},
        {"1000e-3", 1},
        {"0e99999999999999999999", 0},
        {"\t1", 0}, /* marks the end of the good ones */
    };
    for (unsigned i = 0; good[i].text[0] != '\t'; i++) {
        uint64_t bytes = 99;
        int rc = berth_parse_size(good[i].text, &bytes);
        if (rc != 0 || bytes != good[i].bytes) {
            fail_msg("'%s': %d, %llu", good[i].text, rc, (unsigned long long)bytes);
        }
    }
}

static void to_the_last_byte(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_int_equal(berth_parse_size("18446744073709551615", &bytes), 0);
    assert_int_equal(bytes, UINT64_MAX);
    assert_int_equal(berth_parse_size("16777215TiB", &bytes), 0);
    assert_int_equal(bytes, UINT64_C(16777215) << 40);
    assert_int_equal(berth_parse_size("0.000000000000000000000001e24", &bytes), 0);
    assert_int_equal(bytes, 1);
}

static void refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",      " ",       "K",   "KiB", ".",   ".K",     "-1",   "+1",    " 1",  "1 ",  "1X",
        "1KiBs", "1 K B",   "1Ki", "1e",  "1e+", "1.2.3",  "0x10", "1,5K",  "1.5", "0.1", "0.3K",
        "1e-1",  "1.0001K", "NaN", "inf", "1KK", "1 KiB ", "--",   "1e1.5", "1/2",
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 99;
        int rc = berth_parse_size(bad[i], &bytes);
        bool blank_end = strcmp(bad[i], "1 ") == 0;
        if (blank_end ? rc != 0 : rc != -EINVAL || bytes != 99) {
            fail_msg("'%s': %d, %llu", bad[i], rc, (unsigned long long)bytes);
        }
    }
    uint64_t bytes;
    assert_int_equal(berth_parse_size(NULL, &bytes), -EINVAL);
    assert_int_equal(berth_parse_size("1", NULL), -EINVAL);
}

static void out_of_range(void **state)
{
    (void)state;
    static const char *const large[] = {
        "18446744073709551616",
        "16777216TiB",
        "1e20",
        "1e99999999999999999999",
        "99999999999999999999999999999999999999",
        "18446744073710MB",
    };
    for (unsigned i = 0; i < sizeof large / sizeof large[0]; i++) {
        uint64_t bytes = 99;
        int rc = berth_parse_size(large[i], &bytes);
        if (rc != -ERANGE || bytes != 99) {
            fail_msg("'%s': %d, %llu", large[i], rc, (unsigned long long)bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(to_the_last_byte),
        cmocka_unit_test(refused),
        cmocka_unit_test(out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
