#include "tools/replay/content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const uint64_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 4096, 4097, 16384};

static void every_wrong_byte_is_counted(void **state)
{
    _Alignas(64) uint8_t data[16384];

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        content_fill(data, sizes[i], 42);
        assert_int_equal(content_bad(data, sizes[i], 42), 0);
        for (uint64_t at = 0; at < sizes[i]; at += sizes[i] / 61 + 1) {
            data[at] ^= 0x10;
            assert_int_equal(content_bad(data, sizes[i], 42), 1);
            data[at] ^= 0x10;
        }
        if (sizes[i]) {
            data[0] ^= 1;
            data[sizes[i] - 1] ^= 2;
            assert_int_equal(content_bad(data, sizes[i], 42), sizes[i] == 1 ? 1 : 2);
        }
    }
}

static void another_block_or_a_shifted_one_is_wrong(void **state)
{
    _Alignas(64) uint8_t data[8192];

    (void)state;
    content_fill(data, sizeof(data), 42);
    assert_true(content_bad(data, 4096, 43) > 3000);
    for (unsigned shift = 64; shift <= 4096; shift += 64)
        assert_true(content_bad(data + shift, 4096, 42) > 3000);
}

static void keys_differ_by_block_and_size(void **state)
{
    uint8_t key[4][CONTENT_KEY];

    (void)state;
    content_key(1, 4096, key[0]);
    content_key(2, 4096, key[1]);
    content_key(1, 8192, key[2]);
    content_key(1, 4096, key[3]);
    assert_memory_not_equal(key[0], key[1], CONTENT_KEY);
    assert_memory_not_equal(key[0], key[2], CONTENT_KEY);
    assert_memory_equal(key[0], key[3], CONTENT_KEY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_byte_is_counted),
        cmocka_unit_test(another_block_or_a_shifted_one_is_wrong),
        cmocka_unit_test(keys_differ_by_block_and_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
