/* test_amount.c: bytes in sentences, each in a unit of its own size. */
#include "store/amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_units(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {65536, "64 KiB"},
        {65537, "64.0 KiB"},
        {8u << 20, "8.0 MiB"},
        {128u << 20, "128 MiB"},
        {(128u << 20) + 100000, "128.1 MiB"},
        {UINT64_C(25) << 29, "12.50 GiB"},
        {UINT64_MAX, "17179869184.00 GiB"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[AMOUNT_SIZE];
        assert_ptr_equal(amount(cases[i].bytes, out), out);
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_units)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
