/* The codec of peer messages: what goes in comes out, field by field; what is cut, changed or too much is refused by
 * the name of its fault or decodes to values in range; nothing is read or written out of bounds (blocks are of
 * exactly the size, so that a sanitizer sees it).
 */
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
static uint8_t buffer[WIRE_MESSAGE_MAX];

static void *exactly(const void *data, size_t n)
{
    void *block = malloc(n ? n : 1);
    assert_non_null(block);
    memcpy(block, data, n);
    return block;
}

/* What is decoded, as text. */
static char *told(const struct wire_case *w, const uint8_t *data, size_t n)
{
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(wire_case_describe(w, data, file), n);
    fclose(file);
    return text;
}

static void expect_same(size_t n)
{
    static uint8_t again[WIRE_MESSAGE_MAX];
    uint8_t *block = exactly(buffer, n);
    assert_int_equal(wire_case_decode(&out, block, n), 0);
    char *was = told(&in, buffer, n), *is = told(&out, block, n);
    assert_string_equal(was, is);
    assert_int_equal(wire_case_encode(&out, again, sizeof again), n);
    assert_memory_equal(again, buffer, n);
    free(was);
    free(is);
    free(block);
}

static void test_round_trip(void **unused)
{
    (void)unused;
    for (const unsigned *op = wire_case_ops; *op; op++) {
        for (unsigned i = 0; i < 200; i++) {
            wire_case_make(&in, *op, false);
            expect_same(wire_case_encode(&in, buffer, sizeof buffer));
        }
        wire_case_make(&in, *op, true);
        size_t n = wire_case_encode(&in, buffer, sizeof buffer);
        assert_true(n <= WIRE_MESSAGE_MAX);
        if (*op <= WIRE_REFUSE)
            assert_true(n <= WIRE_HELLO_MAX);
        expect_same(n);
    }
}

static void test_ops(void **unused)
{
    (void)unused;
    unsigned known = 0;
    for (unsigned op = 0; op < 70000; op++)
        known += wire_known(op);
    for (const unsigned *op = wire_case_ops; *op; op++) {
        known--;
        assert_true(wire_known(*op));
        unsigned reply = wire_reply_of(*op);
        assert_int_equal(reply != 0, wire_class(*op) == WIRE_REQUEST);
        assert_true(!reply || wire_class(reply) == WIRE_REPLY);
    }
    assert_int_equal(known, 0);
    for (unsigned f = 0; f < WIRE_FAULT_KINDS; f++)
        assert_true(strlen(wire_fault_text(f)) > 5);
}

/* Cut anywhere, or with a byte more: refused. */
static void test_truncated(void **unused)
{
    (void)unused;
    for (const unsigned *op = wire_case_ops; *op; op++) {
        do {
            wire_case_make(&in, *op, false);
        } while (in.n > 5);
        size_t n = wire_case_encode(&in, buffer, sizeof buffer);
        for (size_t cut = 0; cut < n; cut++) {
            uint8_t *block = exactly(buffer, cut);
            struct wire_reader r;
            assert_int_equal(wire_open(&r, &out.m, block, cut), -EBADMSG);
            assert_int_equal(r.fault, WIRE_FAULT_SHORT);
            if (cut >= WIRE_HEAD) { /* a head that says so as well: its items or body are short */
                uint32_t said = htole32((uint32_t)cut);
                memcpy(block, &said, 4);
                assert_int_equal(wire_open(&r, &out.m, block, cut), -EBADMSG);
            }
            free(block);
        }
        buffer[n] = 0;
        struct wire_reader r;
        assert_int_equal(wire_open(&r, &out.m, buffer, n + 1), -EBADMSG);
        assert_int_equal(r.fault, WIRE_FAULT_LONG);
        uint32_t said = htole32((uint32_t)n + 1);
        memcpy(buffer, &said, 4);
        assert_int_equal(wire_open(&r, &out.m, buffer, n + 1), -EBADMSG);
    }
}

/* ---- what is accepted is in range: a second list of the bounds ---- */

static void lease_in_range(const struct wire_lease *l)
{
    assert_true(l->id != 0 && l->slot != UINT32_MAX && l->segment <= 30);
    assert_true(l->generation < UINT64_C(1) << 56 && l->size <= 1u << 30);
    assert_true(l->offset + l->size <= INT64_MAX && l->version.counter <= INT64_MAX);
    assert_true(l->duration >= 1 && l->duration <= UINT64_C(30000000000));
}

static void key_in_range(const struct key_ref *k, const uint8_t *data, size_t n)
{
    const uint8_t *p = k->data;
    assert_true(k->size >= 1 && k->size <= 480 && p >= data && p + k->size <= data + n);
}

static void text_in_range(const struct wire_text *t, size_t most, const uint8_t *data, size_t n)
{
    const uint8_t *p = (const uint8_t *)t->data;
    assert_true(t->size <= most && p >= data && p + t->size <= data + n);
    for (unsigned i = 0; i < t->size; i++)
        assert_true(p[i] >= 0x20 && p[i] < 0x7f);
}

static void item_in_range(unsigned op, const struct wire_item *i, const uint8_t *data, size_t n)
{
    switch (op) {
    case WIRE_LEASE:
    case WIRE_ASK:
        key_in_range(&i->key, data, n);
        break;
    case WIRE_LEASED:
        assert_true(i->leased.status <= 0 && i->leased.status >= -8191);
        if (i->leased.status == 0)
            lease_in_range(&i->leased.lease);
        break;
    case WIRE_RENEWED:
        assert_true(i->renewed.status == 0 ? i->renewed.duration > 0 : i->renewed.duration == 0);
        assert_true(i->renewed.duration <= UINT64_C(30000000000));
        break;
    case WIRE_ANSWER:
        assert_true(i->answer.kind >= 1 && i->answer.kind <= 3 && i->answer.flags <= 31 && i->answer.n <= 64);
        assert_true(i->answer.kind != WIRE_FOUND || (i->answer.n >= 1 && i->answer.n <= 8));
        for (unsigned k = 0; k < i->answer.n; k++) {
            const struct wire_location *l = &i->answer.at[k % WIRE_OWNERS_MAX];
            assert_true((i->answer.kind == WIRE_FOUND ? l->member : i->answer.missing[k]) != UINT16_MAX);
            assert_true(i->answer.kind != WIRE_FOUND || (l->size <= 1u << 30 && l->version.counter <= INT64_MAX));
        }
        if (i->answer.flags & WIRE_LEASED_TOO)
            lease_in_range(&i->answer.lease);
        break;
    case WIRE_PUBLISH:
        key_in_range(&i->entry.key, data, n);
        assert_true(i->entry.kind >= 1 && i->entry.kind <= 3 && i->entry.size <= 1u << 30);
        assert_true(i->entry.version.counter >= 1 && i->entry.version.counter <= INT64_MAX);
        break;
    case WIRE_LISTED:
        assert_true(i->member.weight >= 1 && i->member.weight <= 65535 && i->member.name.size >= 1);
        text_in_range(&i->member.name, 63, data, n);
        text_in_range(&i->member.address, 255, data, n);
        break;
    case WIRE_PUBLISHED:
        assert_true(i->published.kind <= 2 && i->published.counter <= INT64_MAX);
        break;
    default:
        break;
    }
}

static void in_range(const struct wire_case *w, const uint8_t *data, size_t n)
{
    const struct wire_message *m = &w->m;
    assert_true(m->head.bytes == n && m->head.count == w->n && m->head.counter <= INT64_MAX);
    assert_true(m->head.time_left <= INT64_MAX && m->status <= 0 && m->status >= -8191);
    for (uint32_t i = 0; i < w->n; i++)
        item_in_range(m->head.op, &w->item[i], data, n);
    if (m->status)
        return;
    if (m->head.op == WIRE_HELLO || m->head.op == WIRE_WELCOME) {
        text_in_range(&m->hello.cluster, 63, data, n);
        text_in_range(&m->hello.node, 63, data, n);
        text_in_range(&m->hello.address, 255, data, n);
        assert_true(m->hello.version_min >= 1 && m->hello.version_min <= m->hello.version_max);
    } else if (m->head.op == WIRE_REFUSE) {
        text_in_range(&m->refuse.sentence, 255, data, n);
        assert_true(m->refuse.code < 0);
    } else if (m->head.op == WIRE_CORRUPT) {
        key_in_range(&m->corrupt.key, data, n);
    } else if (m->head.op == WIRE_MEMBERS) {
        assert_true(m->from < 1024);
    } else if (m->head.op == WIRE_LISTED) {
        assert_true(m->listed.revision && m->listed.total >= 1 && m->listed.total <= 1024);
        assert_true(m->listed.homes >= 1 && m->listed.homes <= 8);
    }
}

/* One byte at a time has other values: refused by name, or in range and the same bytes when encoded again, so that no
 * byte of a message is ignored. */
static void test_changed(void **unused)
{
    (void)unused;
    static uint8_t again[WIRE_MESSAGE_MAX];
    unsigned accepted = 0, refused = 0;
    for (const unsigned *op = wire_case_ops; *op; op++) {
        for (unsigned round = 0; round < 4; round++) {
            do {
                wire_case_make(&in, *op, false);
            } while (in.n > 3);
            size_t n = wire_case_encode(&in, buffer, sizeof buffer);
            uint8_t *block = exactly(buffer, n);
            for (size_t at = 0; at < n; at++) {
                for (unsigned k = 0; k < 12; k++) {
                    block[at] = k < 8 ? (uint8_t)(buffer[at] ^ 1u << k) : (uint8_t)draw();
                    struct wire_reader r;
                    if (wire_open(&r, &out.m, block, n) == 0) {
                        assert_int_equal(wire_case_decode(&out, block, n), 0);
                        in_range(&out, block, n);
                        assert_int_equal(wire_case_encode(&out, again, sizeof again), n);
                        assert_memory_equal(again, block, n);
                        accepted++;
                    } else {
                        assert_true(r.fault > WIRE_FAULT_NONE && r.fault < WIRE_FAULT_ROOM);
                        refused++;
                    }
                }
                block[at] = buffer[at];
            }
            free(block);
        }
    }
    assert_true(accepted > 10000 && refused > 10000);
}

/* Bytes at random behind a good head. */
static void test_noise(void **unused)
{
    (void)unused;
    uint32_t ops = 0;
    while (wire_case_ops[ops])
        ops++;
    for (unsigned i = 0; i < 20000; i++) {
        unsigned op = wire_case_ops[draw_below(ops)];
        uint32_t n = WIRE_HEAD + draw_below(300);
        uint8_t *block = malloc(n);
        assert_non_null(block);
        for (uint32_t k = 0; k < n; k++)
            block[k] = draw_below(2) ? (uint8_t)draw() : 0;
        struct wire_message m = {.head = {.bytes = n, .op = (uint16_t)op, .count = draw_below(4)}};
        uint32_t le[4] = {htole32(n), htole32(op), htole32(m.head.count), 0};
        memcpy(block, le, sizeof le);
        wire_stamp(block, wire_class(op) == WIRE_ONE_WAY ? 0 : 1, 1, 0);
        if (wire_case_decode(&out, block, n) == 0)
            in_range(&out, block, n);
        free(block);
    }
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_ops),   cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_changed),    cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
