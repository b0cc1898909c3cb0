/* The record codec: what it writes to the byte, and that it believes nothing that is not whole. */
#include "index/record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static uint64_t seed, state;

static uint64_t draw(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static struct record random_record(unsigned holds)
{
    struct record r;
    memset(&r, 0, sizeof r);
    r.counter = draw();
    r.created_us = draw();
    r.checksum = draw();
    r.lineage = draw();
    r.parent = draw();
    r.generation = draw() >> 8;
    r.slot = (uint32_t)(draw() % SLOT_NONE);
    r.size = (uint32_t)(draw() % (OBJECT_MAX + 1u));
    r.ttl_s = (uint32_t)draw();
    r.region = (uint16_t)draw();
    r.priority = (uint8_t)draw();
    r.segment = draw() & 63;
    r.tier = draw() & 3;
    r.ready = draw() & 1;
    r.n_holds = (uint8_t)holds;
    for (unsigned i = 0; i < holds; i++) {
        r.holds[i].expiry = (int64_t)(draw() >> 1);
        r.holds[i].label_size = (uint8_t)(1 + draw() % LABEL_MAX);
        for (unsigned k = 0; k < r.holds[i].label_size; k++)
            r.holds[i].label[k] = (char)draw();
    }
    return r;
}

static void test_round_trip(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t bytes[RECORD_MAX], again[RECORD_MAX];
        struct record in = random_record(i % (HOLDS_MAX + 1)), out;
        uint32_t n = record_encode(bytes, &in);
        assert_int_equal(record_decode(bytes, n, &out), 0);
        assert_int_equal(out.n_holds, in.n_holds);
        assert_int_equal(record_encode(again, &out), n);
        assert_memory_equal(bytes, again, n);
    }
}

static void test_layout(void **unused)
{
    (void)unused;
    uint8_t b[RECORD_MAX];
    struct record r = {.counter = 1,
                       .created_us = 2,
                       .checksum = 3,
                       .lineage = 4,
                       .parent = 5,
                       .generation = 0x060708,
                       .slot = 7,
                       .size = 0x01020304,
                       .ttl_s = 9,
                       .region = 0x0a0b,
                       .priority = 11,
                       .segment = 12,
                       .tier = 2,
                       .ready = true,
                       .n_holds = 1};
    r.holds[0] = (struct hold){.expiry = 13, .label_size = 2, .label = "ab"};
    assert_int_equal(record_encode(b, &r), RECORD_FIXED + 11);
    assert_int_equal(b[0], 1);
    assert_int_equal(b[8], 2);
    assert_int_equal(b[16], 3);
    assert_int_equal(b[24], 4);
    assert_int_equal(b[32], 5);
    assert_memory_equal(b + 40, "\x08\x07\x06\0\0\0\0\x05", 8);
    assert_int_equal(b[48], 7);
    assert_memory_equal(b + 52,
                        "\x04\x03\x02\x01\x0b\x0a\x0b\x0c\x09\0\0\0\x0d\0\0\0\0\0\0\0\x02"
                        "ab",
                        23);
    struct record out;
    assert_int_equal(record_decode(b, RECORD_FIXED + 11, &out), 0);
    assert_true(out.counter == 1 && out.created_us == 2 && out.checksum == 3 && out.lineage == 4 && out.parent == 5);
    assert_true(out.generation == 0x060708 && out.slot == 7 && out.size == 0x01020304 && out.ttl_s == 9);
    assert_true(out.region == 0x0a0b && out.priority == 11 && out.segment == 12 && out.tier == 2 && out.ready);
    assert_true(out.n_holds == 1 && out.holds[0].expiry == 13 && out.holds[0].label_size == 2);
    assert_memory_equal(out.holds[0].label, "ab", 2);
}

static void test_largest(void **unused)
{
    (void)unused;
    uint8_t b[RECORD_MAX];
    struct record r = random_record(HOLDS_MAX), out;
    for (unsigned i = 0; i < HOLDS_MAX; i++)
        r.holds[i].label_size = LABEL_MAX;
    assert_int_equal(record_encode(b, &r), RECORD_MAX);
    assert_int_equal(record_decode(b, RECORD_MAX, &out), 0);
    assert_int_equal(out.n_holds, HOLDS_MAX);
}

static void refused(const uint8_t *bytes, uint32_t n)
{
    struct record out, before;
    memset(&out, 0x5a, sizeof out);
    before = out;
    assert_int_equal(record_decode(bytes, n, &out), -EBADMSG);
    assert_memory_equal(&out, &before, sizeof out);
}

static void test_cut_short(void **unused)
{
    (void)unused;
    uint8_t b[RECORD_MAX];
    struct record r = random_record(2), out;
    uint32_t n = record_encode(b, &r), one = RECORD_FIXED + 9 + r.holds[0].label_size;
    for (uint32_t i = 0; i < n; i++) {
        if (i == RECORD_FIXED || i == one)
            assert_int_equal(record_decode(b, i, &out), 0); /* ends with a whole hold */
        else
            refused(b, i);
    }
}

static void damaged(uint32_t at, uint8_t value, unsigned holds)
{
    uint8_t b[RECORD_MAX];
    struct record r = random_record(holds);
    uint32_t n = record_encode(b, &r);
    b[at] = value;
    refused(b, n);
}

static void test_damaged(void **unused)
{
    (void)unused;
    damaged(47, 0x20, 0); /* unknown flag */
    damaged(47, 0x80, 0);
    damaged(47, 4 << 1, 0);             /* a tier that no header can name */
    damaged(55, 0x80, 0);               /* larger than any object */
    damaged(59, 64, 0);                 /* segment */
    damaged(RECORD_FIXED + 8, 0, 1);    /* hold without a label */
    damaged(RECORD_FIXED + 8, 64, 1);   /* label beyond its end */
    damaged(RECORD_FIXED + 7, 0xff, 1); /* no time */
    uint8_t b[RECORD_MAX + 10];
    struct record r = random_record(0);
    record_encode(b, &r);
    memset(b + 48, 0xff, 4); /* no slot */
    refused(b, RECORD_FIXED);
    for (unsigned i = 0; i <= HOLDS_MAX; i++) /* one hold too many, each valid */
        memcpy(b + RECORD_FIXED + i * 10, "\1\0\0\0\0\0\0\0\1x", 10);
    record_encode(b, &r);
    refused(b, RECORD_FIXED + (HOLDS_MAX + 1) * 10);
}

static void test_noise(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t b[RECORD_MAX], again[RECORD_MAX];
        struct record r = random_record((unsigned)(draw() % 4)), out;
        uint32_t n = record_encode(b, &r);
        b[draw() % n] ^= (uint8_t)(1u << draw() % 8);
        if (record_decode(b, n, &out) != 0)
            continue;
        assert_int_equal(record_encode(again, &out), n); /* what is believed says all that stood there */
        assert_memory_equal(b, again, n);
    }
}

static void test_key(void **unused)
{
    (void)unused;
    uint8_t a[RECORD_KEY_MAX], b[RECORD_KEY_MAX];
    struct key_ref out;
    char longest[KEY_MAX];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(record_key(a, (struct key_ref){"k", 1, 0x01020304}), 5);
    assert_memory_equal(a, "\1\2\3\4k", 5);
    assert_int_equal(record_key(b, (struct key_ref){"a", 1, 0x01020400}), 5);
    assert_true(memcmp(a, b, 5) < 0); /* namespaces do not interleave */
    assert_int_equal(record_key(a, (struct key_ref){longest, KEY_MAX, 9}), RECORD_KEY_MAX);
    assert_int_equal(record_key_parse(a, RECORD_KEY_MAX, &out), 0);
    assert_int_equal(out.ns, 9);
    assert_int_equal(out.size, KEY_MAX);
    assert_ptr_equal(out.data, a + 4);
    assert_int_equal(record_key_parse(a, 4, &out), -EBADMSG);
    assert_int_equal(record_key_parse(a, 0, &out), -EBADMSG);
    assert_int_equal(record_key_parse(a, RECORD_KEY_MAX + 1, &out), -EBADMSG);
}

int main(void)
{
    const char *given = getenv("BERTH_SEED");
    seed = state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_layout),  cmocka_unit_test(test_largest),
        cmocka_unit_test(test_cut_short),  cmocka_unit_test(test_damaged), cmocka_unit_test(test_noise),
        cmocka_unit_test(test_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
