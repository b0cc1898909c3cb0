/* The codec of peer messages: every fault by its name, on both sides; room; the most of everything; the head of a
 * stream. */
#include "tests/support/draw.h"
#include "tests/support/wire_case.h"

#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct wire_case in, out;
static uint8_t buffer[WIRE_MESSAGE_MAX + 64];

/* A right message of the op with one item at most, no flag, status 0, answers FOUND with a lease: offsets are known. */
static size_t plain(unsigned op)
{
    wire_case_make(&in, op, true);
    in.m.head.flags = 0;
    if (op == WIRE_ASK)
        in.m.ask.ttl = 0;
    if (in.n > 1)
        in.n = 1;
    if (op == WIRE_HELLO)
        in.m.hello.version_max = UINT16_MAX;
    in.item[0].key.size = op == WIRE_LEASE || op == WIRE_ASK ? 9 : in.item[0].key.size;
    if (op == WIRE_PUBLISH) {
        in.item[0].entry.key.size = 9;
        in.item[0].entry.kind = WIRE_OBJECT;
        in.item[0].entry.size = 1;
        in.item[0].entry.past = 0;
    }
    if (op == WIRE_ANSWER)
        in.item[0].answer.flags = WIRE_LEASED_TOO;
    if (op == WIRE_PUBLISHED)
        in.item[0].published.counter = 7;
    return wire_case_encode(&in, buffer, sizeof buffer);
}

struct spoil {
    unsigned op;
    unsigned at, width;
    uint64_t value;
    enum wire_fault fault;
};

#define MAX64 UINT64_MAX

static const struct spoil spoils[] = {
    {WIRE_PING, 4, 2, 0, WIRE_FAULT_OP},
    {WIRE_PING, 4, 2, 7, WIRE_FAULT_OP},
    {WIRE_PING, 4, 2, WIRE_OPS, WIRE_FAULT_OP},
    {WIRE_PING, 4, 2, 48, WIRE_FAULT_OP}, /* of the TCP transport once; no message */
    {WIRE_PING, 4, 2, 0xffff, WIRE_FAULT_OP},
    {WIRE_PING, 6, 2, 1, WIRE_FAULT_FLAG},
    {WIRE_HELLO, 6, 2, 2, WIRE_FAULT_FLAG},
    {WIRE_LEASE, 6, 2, 8, WIRE_FAULT_FLAG},
    {WIRE_LEASE, 6, 2, 2, WIRE_FAULT_FLAG}, /* FRESH is a question to the home, not to an owner (rule 27) */
    {WIRE_ASK, 6, 2, 2, WIRE_FAULT_FLAG},
    {WIRE_PUBLISH, 6, 2, 0x8000, WIRE_FAULT_FLAG},
    {WIRE_LEASED, 6, 2, 1, WIRE_FAULT_FLAG},
    {WIRE_PING, 8, 4, 1, WIRE_FAULT_COUNT},
    {WIRE_LEASE, 8, 4, 0, WIRE_FAULT_COUNT},
    {WIRE_LEASE, 8, 4, 257, WIRE_FAULT_COUNT},
    {WIRE_LEASE, 8, 4, 0xffffffff, WIRE_FAULT_COUNT},
    {WIRE_LEASE, 8, 4, 2, WIRE_FAULT_SHORT},
    {WIRE_RELEASE, 8, 4, 0, WIRE_FAULT_COUNT},
    {WIRE_RELEASE, 8, 4, 1025, WIRE_FAULT_COUNT},
    {WIRE_PUBLISH, 8, 4, 0, WIRE_FAULT_LONG},
    {WIRE_ANSWER, 8, 4, 257, WIRE_FAULT_COUNT},
    {WIRE_ANSWER, 8, 4, 0, WIRE_FAULT_LONG},
    {WIRE_PING, 12, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_PING, 16, 8, 1, WIRE_FAULT_ID},
    {WIRE_HELLO, 16, 8, 1, WIRE_FAULT_ID},
    {WIRE_RELEASE, 16, 8, 1, WIRE_FAULT_ID},
    {WIRE_LEASE, 16, 8, 0, WIRE_FAULT_ID},
    {WIRE_LEASED, 16, 8, 0, WIRE_FAULT_ID},
    {WIRE_PING, 24, 8, UINT64_C(1) << 63, WIRE_FAULT_COUNTER},
    {WIRE_PING, 32, 8, 1, WIRE_FAULT_TIME},
    {WIRE_LEASED, 32, 8, 1, WIRE_FAULT_TIME},
    {WIRE_LEASE, 32, 8, UINT64_C(1) << 63, WIRE_FAULT_TIME},
    {WIRE_HELLO, 40, 8, 1, WIRE_FAULT_MAGIC},
    {WIRE_HELLO, 48, 4, 0x00010000, WIRE_FAULT_VERSION}, /* 0..1 */
    {WIRE_HELLO, 48, 4, 0x00020003, WIRE_FAULT_VERSION}, /* 3..2 */
    {WIRE_WELCOME, 48, 4, 0x00030002, WIRE_FAULT_VERSION},
    {WIRE_HELLO, 52, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_HELLO, 96, 8, UINT64_C(1) << 63, WIRE_FAULT_RANGE},
    {WIRE_HELLO, 112, 8, UINT64_C(1) << 63, WIRE_FAULT_TIME},
    {WIRE_HELLO, 120, 8, MAX64, WIRE_FAULT_TIME},
    {WIRE_HELLO, 136, 4, 4095, WIRE_FAULT_SIZE},
    {WIRE_HELLO, 140, 1, 64, WIRE_FAULT_NAME},
    {WIRE_HELLO, 141, 1, 64, WIRE_FAULT_NAME},
    {WIRE_HELLO, 141, 1, 0, WIRE_FAULT_NAME},
    {WIRE_HELLO, 142, 2, 256, WIRE_FAULT_NAME},
    {WIRE_HELLO, 142, 2, 254, WIRE_FAULT_LONG},
    {WIRE_HELLO, 144, 1, 0x20, WIRE_FAULT_NAME},
    {WIRE_HELLO, 144 + 63, 1, 0x0a, WIRE_FAULT_NAME},
    {WIRE_HELLO, 144 + 126, 1, 0x7f, WIRE_FAULT_NAME},
    {WIRE_HELLO, 144 + 127, 1, 0xc3, WIRE_FAULT_NAME},
    {WIRE_REFUSE, 40, 4, 0, WIRE_FAULT_STATUS},
    {WIRE_REFUSE, 40, 4, 1, WIRE_FAULT_STATUS},
    {WIRE_REFUSE, 40, 4, 0x80000000, WIRE_FAULT_STATUS},
    {WIRE_REFUSE, 44, 2, 256, WIRE_FAULT_NAME},
    {WIRE_REFUSE, 46, 2, 1, WIRE_FAULT_RESERVED},
    {WIRE_REFUSE, 48, 1, 0x1b, WIRE_FAULT_NAME},
    {WIRE_LEASE, 40, 8, UINT64_C(30000000001), WIRE_FAULT_TIME},
    {WIRE_LEASE, 52, 2, 0, WIRE_FAULT_KEY},
    {WIRE_LEASE, 52, 2, 481, WIRE_FAULT_KEY},
    {WIRE_LEASE, 52, 2, 480, WIRE_FAULT_SHORT},
    {WIRE_LEASE, 54, 2, 1, WIRE_FAULT_RESERVED},
    {WIRE_LEASED, 40, 4, 1, WIRE_FAULT_STATUS},
    {WIRE_LEASED, 40, 4, 0xffffffff, WIRE_FAULT_COUNT}, /* refused as a whole, and yet an item */
    {WIRE_LEASED, 44, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_LEASED, 48, 4, 1, WIRE_FAULT_STATUS},
    {WIRE_LEASED, 48, 4, 0xffffe000, WIRE_FAULT_STATUS}, /* -8192 */
    {WIRE_LEASED, 48, 4, 0xffffffff, WIRE_FAULT_LONG},   /* of an error nothing follows */
    {WIRE_LEASED, 56, 8, 0, WIRE_FAULT_LEASE},
    {WIRE_LEASED, 64, 4, 0xffffffff, WIRE_FAULT_SLOT},
    {WIRE_LEASED, 68, 1, 31, WIRE_FAULT_SEGMENT},
    {WIRE_LEASED, 69, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_LEASED, 72, 8, UINT64_C(1) << 56, WIRE_FAULT_GENERATION},
    {WIRE_LEASED, 80, 8, MAX64, WIRE_FAULT_RANGE},
    {WIRE_LEASED, 88, 8, (1u << 30) + 1, WIRE_FAULT_RANGE},
    {WIRE_LEASED, 96, 8, MAX64, WIRE_FAULT_COUNTER},
    {WIRE_LEASED, 128, 8, 0, WIRE_FAULT_TIME},
    {WIRE_LEASED, 128, 8, UINT64_C(30000000001), WIRE_FAULT_TIME},
    {WIRE_RENEW, 40, 8, 0, WIRE_FAULT_LEASE},
    {WIRE_RENEW, 48, 4, 2, WIRE_FAULT_FLAG},
    {WIRE_RENEW, 52, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_RENEWED, 48, 4, 0xffffffff, WIRE_FAULT_USE},
    {WIRE_RENEWED, 56, 8, 0, WIRE_FAULT_TIME},
    {WIRE_RELEASE, 40, 8, 0, WIRE_FAULT_LEASE},
    {WIRE_RELEASE, 52, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_RECALL, 40, 8, 0, WIRE_FAULT_LEASE},
    {WIRE_STATE, 40, 4, 0xffffffff, WIRE_FAULT_SLOT},
    {WIRE_STATE, 44, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_STATE, 48, 8, UINT64_C(1) << 56, WIRE_FAULT_GENERATION},
    {WIRE_SUMS, 40, 4, 0xffffffff, WIRE_FAULT_SLOT},
    {WIRE_SUMS, 44, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_SUMS, 48, 8, UINT64_C(1) << 56, WIRE_FAULT_GENERATION},
    {WIRE_SUMMED, 48, 4, 1, WIRE_FAULT_STATUS},
    {WIRE_SUMMED, 48, 4, 0xffffffff, WIRE_FAULT_COUNT}, /* of an error there is no list */
    {WIRE_SUMMED, 52, 2, 0, WIRE_FAULT_COUNT},
    {WIRE_SUMMED, 52, 2, 1025, WIRE_FAULT_COUNT},
    {WIRE_SUMMED, 52, 2, 1024, WIRE_FAULT_SHORT},
    {WIRE_SUMMED, 54, 2, 1, WIRE_FAULT_RESERVED},
    {WIRE_ASK, 48, 8, 1, WIRE_FAULT_USE}, /* a ttl without WANT */
    {WIRE_ASK, 48, 8, UINT64_C(30000000001), WIRE_FAULT_TIME},
    {WIRE_ANSWER, 48, 1, 0, WIRE_FAULT_ENUM},
    {WIRE_ANSWER, 48, 1, 4, WIRE_FAULT_ENUM},
    {WIRE_ANSWER, 49, 1, 8, WIRE_FAULT_FLAG},  /* MORE of FOUND */
    {WIRE_ANSWER, 49, 1, 32, WIRE_FAULT_FLAG}, /* unknown */
    {WIRE_ANSWER, 50, 1, 0, WIRE_FAULT_MEMBER},
    {WIRE_ANSWER, 50, 1, 9, WIRE_FAULT_MEMBER},
    {WIRE_ANSWER, 48, 3, 0x010202, WIRE_FAULT_MEMBER}, /* ABSENT names nobody */
    {WIRE_ANSWER, 48, 3, 0x000002, WIRE_FAULT_FLAG},   /* and is SURE */
    {WIRE_ANSWER, 48, 3, 0x000302, WIRE_FAULT_FLAG},   /* without a lease */
    {WIRE_ANSWER, 48, 3, 0x000003, WIRE_FAULT_MEMBER}, /* LEARNING without MORE names somebody */
    {WIRE_ANSWER, 48, 3, 0x410003, WIRE_FAULT_MEMBER},
    {WIRE_ANSWER, 48, 3, 0x010203, WIRE_FAULT_FLAG}, /* is not SURE */
    {WIRE_ANSWER, 48, 3, 0x011003, WIRE_FAULT_USE},  /* EVERYONE names nobody */
    {WIRE_ANSWER, 48, 3, 0x001803, WIRE_FAULT_USE},  /* EVERYONE and MORE */
    {WIRE_ANSWER, 51, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_ANSWER, 52, 2, 0xffff, WIRE_FAULT_MEMBER},
    {WIRE_ANSWER, 54, 1, 2, WIRE_FAULT_FLAG},
    {WIRE_ANSWER, 55, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_ANSWER, 56, 8, MAX64, WIRE_FAULT_COUNTER},
    {WIRE_ANSWER, 72, 8, (1u << 30) + 1, WIRE_FAULT_RANGE},
    {WIRE_PUBLISH, 92, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_PUBLISH, 96, 1, 0, WIRE_FAULT_ENUM},
    {WIRE_PUBLISH, 96, 1, 4, WIRE_FAULT_ENUM},
    {WIRE_PUBLISH, 96, 1, 2, WIRE_FAULT_USE}, /* gone, and yet a size */
    {WIRE_PUBLISH, 97, 1, 2, WIRE_FAULT_FLAG},
    {WIRE_PUBLISH, 98, 1, 1, WIRE_FAULT_USE}, /* here, and yet an eviction's past */
    {WIRE_PUBLISH, 100, 4, 1, WIRE_FAULT_USE},
    {WIRE_PUBLISH, 99, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_PUBLISH, 104, 8, MAX64, WIRE_FAULT_COUNTER},
    {WIRE_PUBLISH, 104, 8, 0, WIRE_FAULT_COUNTER},
    {WIRE_PUBLISH, 120, 8, (1u << 30) + 1, WIRE_FAULT_RANGE},
    {WIRE_PUBLISH, 148, 2, 0, WIRE_FAULT_KEY},
    {WIRE_PUBLISHED, 6, 2, 2, WIRE_FAULT_FLAG},
    {WIRE_PUBLISHED, 60, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_PUBLISHED, 64, 1, 3, WIRE_FAULT_ENUM},
    {WIRE_PUBLISHED, 64, 1, 2, WIRE_FAULT_USE}, /* FULL, and yet a counter */
    {WIRE_PUBLISHED, 65, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_PUBLISHED, 66, 1, 1, WIRE_FAULT_USE}, /* SUPERSEDED, and yet a past */
    {WIRE_PUBLISHED, 68, 4, 1, WIRE_FAULT_USE},
    {WIRE_PUBLISHED, 67, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_PUBLISHED, 72, 8, MAX64, WIRE_FAULT_COUNTER},
    {WIRE_MEMBERS, 6, 2, 1, WIRE_FAULT_FLAG},
    {WIRE_MEMBERS, 40, 4, 1024, WIRE_FAULT_MEMBER},
    {WIRE_MEMBERS, 44, 4, 1, WIRE_FAULT_RESERVED},
    {WIRE_LISTED, 48, 8, 0, WIRE_FAULT_RANGE},
    {WIRE_LISTED, 56, 2, 0, WIRE_FAULT_MEMBER},
    {WIRE_LISTED, 56, 2, 1025, WIRE_FAULT_MEMBER},
    {WIRE_LISTED, 58, 1, 0, WIRE_FAULT_MEMBER},
    {WIRE_LISTED, 58, 1, 9, WIRE_FAULT_MEMBER},
    {WIRE_LISTED, 59, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_LISTED, 64, 4, 0, WIRE_FAULT_RANGE},
    {WIRE_LISTED, 64, 4, 65536, WIRE_FAULT_RANGE},
    {WIRE_LISTED, 68, 1, 0, WIRE_FAULT_NAME},
    {WIRE_LISTED, 68, 1, 64, WIRE_FAULT_NAME},
    {WIRE_LISTED, 69, 1, 1, WIRE_FAULT_RESERVED},
    {WIRE_LISTED, 70, 2, 256, WIRE_FAULT_NAME},
    {WIRE_LISTED, 72, 1, ' ', WIRE_FAULT_NAME},
    {WIRE_CORRUPT, 40, 8, 0, WIRE_FAULT_LEASE},
    {WIRE_CORRUPT, 68, 2, 481, WIRE_FAULT_KEY},
};

static void test_faults(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        const struct spoil *s = &spoils[i];
        size_t n = plain(s->op);
        struct wire_reader r;
        assert_int_equal(wire_open(&r, &out.m, buffer, n), 0);
        uint64_t le = htole64(s->value);
        memcpy(buffer + s->at, &le, s->width);
        memset(&out.m, 0x5a, sizeof out.m);
        int err = wire_open(&r, &out.m, buffer, n);
        if (err != -EBADMSG || r.fault != s->fault)
            fail_msg("spoil %zu (%s at %u): %d, %s; not %s", i, wire_name(s->op), s->at, err, wire_fault_text(r.fault),
                     wire_fault_text(s->fault));
        for (size_t k = 0; k < sizeof out.m; k++)
            assert_int_equal(((uint8_t *)&out.m)[k], 0x5a);
    }
}

/* A buffer with any room less than the message takes: nothing behind it is written, and the item that had no room
 * leaves a message that can be ended. */
static void test_room(void **unused)
{
    (void)unused;
    for (const unsigned *op = wire_case_ops; *op; op++) {
        do {
            wire_case_make(&in, *op, false);
        } while (in.n > 4);
        size_t n = wire_case_encode(&in, buffer, sizeof buffer);
        for (size_t room = 0; room < n; room++) {
            uint8_t *block = malloc(room ? room : 1);
            assert_non_null(block);
            struct wire_writer w;
            int err = wire_begin(&w, block, room, &in.m);
            uint32_t k = 0;
            while (!err && k < in.n)
                err = wire_add(&w, &in.item[k++]);
            assert_int_equal(err, -ENOSPC);
            assert_int_equal(w.fault, WIRE_FAULT_ROOM);
            if (k > 1) {
                long had = wire_end(&w);
                assert_true(had > 0 && (size_t)had <= room);
                assert_int_equal(wire_case_decode(&out, block, (size_t)had), 0);
                assert_int_equal(out.n, k - 1);
            }
            free(block);
        }
    }
}

static void test_most(void **unused)
{
    (void)unused;
    for (const unsigned *op = wire_case_ops; *op; op++) {
        wire_case_make(&in, *op, true);
        struct wire_writer w;
        assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &in.m), 0);
        for (uint32_t i = 0; i < in.n; i++)
            assert_int_equal(wire_add(&w, &in.item[i]), 0);
        assert_int_equal(wire_add(&w, &in.item[0]), in.n ? -E2BIG : -EINVAL);
        assert_int_equal(w.fault, WIRE_FAULT_COUNT);
        long n = wire_end(&w);
        assert_true(n > 0);
        assert_int_equal(wire_case_decode(&out, buffer, (size_t)n), 0);
        assert_int_equal(out.n, in.n);
    }
    assert_int_equal(WIRE_MESSAGE_MAX, 262144);
    assert_int_equal(WIRE_KEYS_MAX, 256);
    assert_int_equal(WIRE_MISSING_MAX, 64);
    assert_int_equal(WIRE_HEAD, 40);
}

/* The sender's own faults never leave it. */
static void test_encoder_refuses(void **unused)
{
    (void)unused;
    struct wire_writer w;
    plain(WIRE_LEASE);
    struct wire_message m = in.m;
    m.head.op = 7;
    assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &m), -EINVAL);
    assert_int_equal(w.fault, WIRE_FAULT_OP);
    assert_int_equal(wire_add(&w, &in.item[0]), -EINVAL);
    assert_int_equal(wire_end(&w), -EINVAL);
    m = in.m;
    m.head.flags = 8;
    assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &m), -EINVAL);
    assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &in.m), 0);
    assert_int_equal(wire_end(&w), -EINVAL); /* no keys */
    struct wire_item item = in.item[0];
    item.key.size = 0;
    assert_int_equal(wire_add(&w, &item), -EINVAL);
    item.key.size = 65536 + 9; /* 9 in 16 bits */
    assert_int_equal(wire_add(&w, &item), -EINVAL);
    assert_int_equal(w.fault, WIRE_FAULT_KEY);
    assert_int_equal(wire_add(&w, &in.item[0]), 0);
    assert_int_equal(wire_end(&w), WIRE_HEAD + 8 + 8 + 9);
    plain(WIRE_LEASED);
    in.item[0].leased.lease.duration = 0;
    assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &in.m), 0);
    assert_int_equal(wire_add(&w, &in.item[0]), -EINVAL);
    assert_int_equal(w.fault, WIRE_FAULT_TIME);
    in.m.status = -EAGAIN;
    assert_int_equal(wire_begin(&w, buffer, sizeof buffer, &in.m), 0);
    assert_int_equal(wire_add(&w, &in.item[0]), -EINVAL); /* refused as a whole */
    assert_int_equal(wire_end(&w), WIRE_HEAD + 8);
}

static void test_stamp(void **unused)
{
    (void)unused;
    size_t n = plain(WIRE_STATE);
    wire_stamp(buffer, 77, 88, 99);
    struct wire_reader r;
    assert_int_equal(wire_open(&r, &out.m, buffer, n), 0);
    assert_int_equal(out.m.head.id, 77);
    assert_int_equal(out.m.head.counter, 88);
    assert_int_equal(out.m.head.time_left, 99);
    assert_int_equal(out.m.state.slot, in.m.state.slot);
}

/* What is no message at all is called so, wherever it is cut; a head that is cut off is short. */
static void test_no_message(void **unused)
{
    (void)unused;
    static const struct {
        const char *bytes;
        size_t n;
        enum wire_fault fault;
    } cases[] = {
        {"GET / HTTP/1.1\r\n", 4, WIRE_FAULT_SIZE},
        {"GET / HTTP/1.1\r\n", 16, WIRE_FAULT_SIZE},
        {"\x27\0\0\0", 4, WIRE_FAULT_SIZE},
        {"\1\0\4\0", 4, WIRE_FAULT_SIZE},
        {"\x28\0\0\0\x07\0\0\0", 8, WIRE_FAULT_OP},
        {"\x28\0\0\0\x04\0\1\0", 8, WIRE_FAULT_FLAG},
        {"\x28\0\0\0\x06\0\0\0", 8, WIRE_FAULT_SHORT},
        {"", 0, WIRE_FAULT_SHORT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wire_reader r;
        uint8_t *block = malloc(cases[i].n ? cases[i].n : 1);
        assert_non_null(block);
        memcpy(block, cases[i].bytes, cases[i].n);
        assert_int_equal(wire_open(&r, &out.m, block, cases[i].n), -EBADMSG);
        assert_int_equal(r.fault, cases[i].fault);
        free(block);
    }
}

static void test_within(void **unused)
{
    (void)unused;
    struct wire_lease l = {.offset = 4096, .size = 100};
    assert_true(wire_lease_within(&l, 4196));
    assert_false(wire_lease_within(&l, 4195));
    assert_false(wire_lease_within(&l, 50));
    l.offset = UINT64_MAX;
    assert_false(wire_lease_within(&l, 4196));
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),          cmocka_unit_test(test_room),  cmocka_unit_test(test_most),
        cmocka_unit_test(test_encoder_refuses), cmocka_unit_test(test_stamp), cmocka_unit_test(test_no_message),
        cmocka_unit_test(test_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
