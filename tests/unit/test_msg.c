/* msg_check: every operation, right, truncated, too long, with counts and enums out of range, reserved. */
#include "store/msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static _Alignas(8) uint8_t buffer[RING_MESSAGE_MAX + 64];
static struct msg_head *const head = (struct msg_head *)buffer;

#define AS(type) ((type *)(void *)buffer)

static void begin(enum msg_op op, size_t bytes)
{
    memset(buffer, 0, sizeof buffer);
    *head = (struct msg_head){.bytes = (uint32_t)bytes, .op = (uint16_t)op, .id = 1};
}

/* Two keys: into a buffer, one of them with a range. */
static void make_pull(void)
{
    begin(MSG_PULL, sizeof(struct msg_pull) + 2 * (sizeof(struct msg_pull_key) + 8) + sizeof(struct msg_pull_range));
    AS(struct msg_pull)->count = 2;
    AS(struct msg_pull)->kind = MSG_PULL_BUFFER;
    AS(struct msg_pull)->buffer = 4096;
    struct msg_pull_key *k = (struct msg_pull_key *)(AS(struct msg_pull) + 1);
    *k = (struct msg_pull_key){.key_size = 5, .n_ranges = 1};
    k = (struct msg_pull_key *)(uintptr_t)msg_pull_next(k);
    *k = (struct msg_pull_key){.key_size = 6, .to = 8, .room = 100};
}

static void make_later(unsigned op)
{
    if (op == MSG_PULL) {
        make_pull();
        return;
    }
    if (op == MSG_CANCEL) {
        begin(op, sizeof(struct msg_cancel));
        return;
    }
    begin(op, sizeof(struct msg_head));
    if (op == MSG_BUFFER) {
        begin(op, sizeof(struct msg_buffer));
        AS(struct msg_buffer)->kind = MSG_BUFFER_REGISTER;
        AS(struct msg_buffer)->cookie = 7;
        AS(struct msg_buffer)->offset = 8192;
        AS(struct msg_buffer)->bytes = 1;
    }
    if (op == MSG_PURGE) {
        begin(op, sizeof(struct msg_purge) + 5);
        AS(struct msg_purge)->kind = PURGE_PREFIX;
        AS(struct msg_purge)->ns = 3;
        AS(struct msg_purge)->prefix_size = 5;
    }
    if (op == MSG_PUBLISHED) {
        begin(op, sizeof(struct msg_published) + 2 * sizeof(struct msg_token));
        AS(struct msg_published)->count = 2;
    }
    if (op == MSG_SUMS) {
        begin(op, sizeof(struct msg_sums) + 3 * sizeof(uint64_t));
        AS(struct msg_sums)->count = 3;
    }
    if (op == MSG_WAIT) {
        begin(op, sizeof(struct msg_wait) + 2 * (sizeof(struct msg_wait_key) + 8));
        AS(struct msg_wait)->count = 2;
        for (unsigned i = 0; i < 2; i++) {
            ((struct msg_wait_key *)(AS(struct msg_wait) + 1))[2 * i].key_size = (uint16_t)(5 + i);
        }
    }
}

static void make_name(unsigned op)
{
    begin(op, sizeof(struct msg_namespace) + 5);
    AS(struct msg_namespace)->name_size = 5;
    memset(AS(struct msg_namespace) + 1, 'n', NAME_MAX_BYTES);
}

/* A right message of each operation. */
static uint32_t make(unsigned op)
{
    switch (op) {
    case MSG_GRANT:
        begin(op, sizeof(struct msg_grant));
        AS(struct msg_grant)->size = 4096;
        AS(struct msg_grant)->count = 3;
        break;
    case MSG_PUT:
        begin(op, sizeof(struct msg_put) + 5);
        AS(struct msg_put)->object = (struct msg_object){.size = 9, .key_size = 5};
        AS(struct msg_put)->want = 2;
        break;
    case MSG_CREATE:
        begin(op, sizeof(struct msg_create) + 5);
        AS(struct msg_create)->object = (struct msg_object){.size = 9, .key_size = 5};
        break;
    case MSG_SEAL:
        begin(op, sizeof(struct msg_seal) + 3 * sizeof(struct msg_member));
        AS(struct msg_seal)->count = 3;
        break;
    case MSG_ABORT:
    case MSG_RESUME:
        begin(op, sizeof(struct msg_tokens) + 2 * sizeof(struct msg_token));
        AS(struct msg_tokens)->count = 2;
        break;
    case MSG_REMOVE:
    case MSG_STAT:
    case MSG_FIND:
    case MSG_REVOKE:
        begin(op, sizeof(struct msg_key) + 5);
        AS(struct msg_key)->key_size = 5;
        break;
    case MSG_HOLD:
    case MSG_DROP:
        begin(op, sizeof(struct msg_hold) + 5 + 2);
        AS(struct msg_hold)->key_size = 5;
        AS(struct msg_hold)->label_size = 2;
        break;
    case MSG_LIST:
        begin(op, sizeof(struct msg_list) + 5 + 2);
        AS(struct msg_list)->max = 10;
        AS(struct msg_list)->prefix_size = 5;
        AS(struct msg_list)->after_size = 2;
        break;
    case MSG_NAMESPACE:
        make_name(op);
        break;
    case MSG_GROW:
        begin(op, sizeof(struct msg_grow));
        AS(struct msg_grow)->entries = 8192;
        break;
    case MSG_QUERY:
        begin(op, sizeof(struct msg_query) + 5);
        AS(struct msg_query)->key_size = 5;
        break;
    default:
        make_later(op);
    }
    return head->bytes;
}

/* Every operation that is not reserved, 0 behind the last. */
static unsigned next_op(unsigned op)
{
    static const unsigned beyond[] = {MSG_CANCEL, MSG_PURGE, MSG_WAIT, MSG_PULL, MSG_BUFFER, MSG_PUBLISHED};
    for (unsigned i = 0; op + 1 >= MSG_OPS && i < sizeof beyond / sizeof beyond[0]; i++) {
        if (beyond[i] > op) {
            return beyond[i];
        }
    }
    return op + 1 < MSG_OPS ? op + 1 : 0;
}

static int check(void)
{
    return msg_check(head, head->bytes);
}

static void right_ones_pass(void **state)
{
    (void)state;
    for (unsigned op = 1; op; op = next_op(op)) {
        make(op);
        if (check() != 0) {
            fail_msg("operation %u", op);
        }
    }
}

static void lengths_must_add_up(void **state)
{
    (void)state;
    for (unsigned op = 1; op; op = next_op(op)) {
        uint32_t whole = make(op);
        for (uint32_t n = 0; n <= whole + 64; n++) {
            make(op);
            head->bytes = n;
            if (n != whole && check() != -EINVAL) {
                fail_msg("operation %u with %u bytes instead of %u", op, n, whole);
            }
            make(op); /* the length that was copied, and the one that the message claims */
            if (n != whole && msg_check(head, n) != -EINVAL) {
                fail_msg("operation %u of which %u bytes came", op, n);
            }
        }
    }
}

static void operations_out_of_range(void **state)
{
    (void)state;
    for (unsigned op = 0; op <= UINT16_MAX; op++) {
        bool later = op >= MSG_CANCEL && op < MSG_CODES && op == MSG_RANGE;
        int want = later ? -EOPNOTSUPP : (op > 0 && op < MSG_OPS) || (op >= MSG_CANCEL && op < MSG_CODES) ? 0 : -EINVAL;
        make(op);
        if (check() != want) {
            fail_msg("operation %u: %d", op, check());
        }
    }
}

static void buffers_and_publications(void **state)
{
    (void)state;
    make(MSG_BUFFER);
    struct msg_buffer *b = AS(struct msg_buffer), good = *b;
    struct msg_buffer bad[] = {good, good, good, good, good, good};
    bad[0].kind = 0;
    bad[1].kind = 3;
    bad[2].number = 1;
    bad[3].offset = 1;
    bad[4].bytes = 0;
    bad[5].bytes = UINT64_MAX;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *b = bad[i];
        assert_int_equal(check(), -EINVAL);
    }
    *b = (struct msg_buffer){.head = good.head, .kind = MSG_BUFFER_UNREGISTER, .number = 3};
    assert_int_equal(check(), 0);
    b->bytes = 1;
    assert_int_equal(check(), -EINVAL);
    make(MSG_PUBLISHED);
    AS(struct msg_published)->key_size = 5; /* a key and tokens */
    assert_int_equal(check(), -EINVAL);
    make(MSG_PUBLISHED);
    AS(struct msg_published)->ns = 1; /* of no key */
    assert_int_equal(check(), -EINVAL);
    begin(MSG_PUBLISHED, sizeof(struct msg_published));
    assert_int_equal(check(), -EINVAL); /* neither */
    begin(MSG_PUBLISHED, sizeof(struct msg_published) + 5);
    AS(struct msg_published)->key_size = 5;
    AS(struct msg_published)->ns = 1;
    assert_int_equal(check(), 0);
    AS(struct msg_head)->flags = MSG_ANEW;
    assert_int_equal(check(), 0);
    AS(struct msg_head)->flags = MSG_JOIN;
    assert_int_equal(check(), -EINVAL);
    make(MSG_PUBLISHED);
    AS(struct msg_head)->flags = MSG_ANEW; /* of a key only */
    assert_int_equal(check(), -EINVAL);
    make_pull();
    AS(struct msg_pull)->kind = MSG_PULL_REGISTERED;
    assert_int_equal(check(), 0);
    AS(struct msg_pull)->buffer = UINT64_C(1) << 32;
    assert_int_equal(check(), -EINVAL);
}

static void flags_and_deadlines(void **state)
{
    (void)state;
    for (unsigned op = 1; op; op = next_op(op)) {
        make(op);
        head->flags = MSG_AGAIN;
        assert_int_equal(check(), 0);
        for (unsigned flag = 2; flag <= 0x8000; flag <<= 1) {
            head->flags = (uint16_t)flag;
            bool own = (op == MSG_CREATE && flag == MSG_JOIN) || (op == MSG_STAT && flag == MSG_PEERS);
            assert_int_equal(check(), own ? 0 : -EINVAL);
        }
        make(op);
        head->deadline = -1;
        assert_int_equal(check(), -EINVAL);
        head->deadline = INT64_MAX;
        assert_int_equal(check(), 0);
    }
}

/* A name is text wherever it is kept: a byte that ends it, or that is special in settings, would make it another one.
 */
static void names_are_text(void **state)
{
    (void)state;
    static const char good[] = "abcxyzABCXYZ0123456789._-";
    uint8_t *name = (uint8_t *)(AS(struct msg_namespace) + 1);
    for (unsigned byte = 0; byte < 256; byte++) {
        for (unsigned i = 0; i < 5; i += 4) {
            make(MSG_NAMESPACE);
            name[i] = (uint8_t)byte;
            bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
            bool fine = byte && (letter || strchr(good, (int)byte));
            assert_int_equal(check(), fine ? 0 : -EINVAL);
        }
    }
}

/* Sets one field to each value in turn: the last `bad` of them must be refused, the others not. The length follows by
 * `per` bytes a unit, so that only the value itself can be wrong. */
#define FIELD(op, type, field, base, per, ...)                                                       \
    do {                                                                                             \
        static const uint64_t values_[] = {__VA_ARGS__};                                             \
        for (unsigned i_ = 0; i_ < sizeof values_ / sizeof values_[0]; i_++) {                       \
            uint32_t whole_ = make(op);                                                              \
            uint64_t bytes_ = whole_ - (uint64_t)(base) * (per) + values_[i_] * (per);               \
            AS(type)->field = (__typeof__(AS(type)->field))values_[i_];                              \
            head->bytes = bytes_ < RING_MESSAGE_MAX ? (uint32_t)bytes_ : RING_MESSAGE_MAX;           \
            int want_ = i_ < GOOD ? 0 : -EINVAL;                                                     \
            if (check() != want_) {                                                                  \
                fail_msg(#op " with " #field " %llu: %d", (unsigned long long)values_[i_], check()); \
            }                                                                                        \
        }                                                                                            \
    } while (0)

static void counts_have_bounds(void **state)
{
    (void)state;
#define GOOD 2
    FIELD(MSG_GRANT, struct msg_grant, count, 3, 0, 1, 64, 0, 65, UINT32_MAX);
    FIELD(MSG_GRANT, struct msg_grant, size, 4096, 0, 0, OBJECT_MAX, OBJECT_MAX + 1u, UINT32_MAX);
    FIELD(MSG_PUT, struct msg_put, want, 2, 0, 0, 4, 5, UINT32_MAX);
    FIELD(MSG_PUT, struct msg_put, object.key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_PUT, struct msg_put, object.size, 9, 0, 0, OBJECT_MAX, OBJECT_MAX + 1u, UINT32_MAX);
    FIELD(MSG_CREATE, struct msg_create, object.key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_CREATE, struct msg_create, object.size, 9, 0, 0, OBJECT_MAX, OBJECT_MAX + 1u, UINT32_MAX);
    FIELD(MSG_SEAL, struct msg_seal, count, 3, sizeof(struct msg_member), 1, GROUP_MAX, 0, GROUP_MAX + 1, UINT32_MAX,
          UINT32_MAX / 24 + 2);
    FIELD(MSG_SUMS, struct msg_sums, count, 3, sizeof(uint64_t), 1, SEGMENTS_MAX, 0, SEGMENTS_MAX + 1, UINT32_MAX,
          UINT32_MAX / 8 + 2);
    FIELD(MSG_WAIT, struct msg_wait, flags, 0, 0, 0, MSG_WAIT_WRITTEN | MSG_WAIT_RUN, 4, UINT32_MAX);
    FIELD(MSG_ABORT, struct msg_tokens, count, 2, sizeof(struct msg_token), 0, 2 * GROUP_MAX, 2 * GROUP_MAX + 1,
          UINT32_MAX, UINT32_MAX / 16 + 2);
    FIELD(MSG_RESUME, struct msg_tokens, count, 2, sizeof(struct msg_token), 0, 2 * GROUP_MAX, 2 * GROUP_MAX + 1);
    FIELD(MSG_REMOVE, struct msg_key, key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_STAT, struct msg_key, key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_FIND, struct msg_key, key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_REVOKE, struct msg_key, key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_HOLD, struct msg_hold, key_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_HOLD, struct msg_hold, label_size, 2, 1, 1, LABEL_MAX, 0, LABEL_MAX + 1, UINT16_MAX);
    FIELD(MSG_HOLD, struct msg_hold, ttl_ns, 0, 0, 0, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX);
    FIELD(MSG_DROP, struct msg_hold, label_size, 2, 1, 1, LABEL_MAX, 0, LABEL_MAX + 1, UINT16_MAX);
    FIELD(MSG_LIST, struct msg_list, max, 10, 0, 1, UINT32_MAX, 0);
    FIELD(MSG_LIST, struct msg_list, prefix_size, 5, 1, 0, KEY_MAX, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_LIST, struct msg_list, after_size, 2, 1, 0, KEY_MAX, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_NAMESPACE, struct msg_namespace, name_size, 5, 1, 1, NAME_MAX_BYTES, 0, NAME_MAX_BYTES + 1, UINT32_MAX);
    FIELD(MSG_GROW, struct msg_grow, entries, 0, 0, 1, PINS_CAPACITY, 0, PINS_CAPACITY + 1, UINT32_MAX);
    FIELD(MSG_GRANT, struct msg_grant, key_size, 0, 1, 0, KEY_MAX, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_PURGE, struct msg_purge, prefix_size, 5, 1, 1, KEY_MAX, 0, KEY_MAX + 1, UINT16_MAX);
    FIELD(MSG_PURGE, struct msg_purge, ns, 0, 0, 0, UINT32_MAX);
    FIELD(MSG_QUERY, struct msg_query, what, 0, 0, 0, QUERY_KINDS - 1, QUERY_KINDS, UINT32_MAX);
    FIELD(MSG_QUERY, struct msg_query, key_size, 5, 1, 0, KEY_MAX, KEY_MAX + 1, UINT16_MAX);
#undef GOOD
}

static void fields_of_later_versions(void **state)
{
    (void)state;
#define GOOD 1
    FIELD(MSG_PUT, struct msg_put, reserved, 0, 0, 0, 1);
    FIELD(MSG_GRANT, struct msg_grant, reserved, 0, 0, 0, 1);
    FIELD(MSG_PURGE, struct msg_purge, lineage, 0, 0, 0, 1);
    FIELD(MSG_PURGE, struct msg_purge, reserved[0], 0, 0, 0, 1);
    FIELD(MSG_PURGE, struct msg_purge, reserved[2], 0, 0, 0, 1);
    FIELD(MSG_SEAL, struct msg_seal, reserved, 0, 0, 0, 1);
    FIELD(MSG_ABORT, struct msg_tokens, reserved, 0, 0, 0, 1);
    FIELD(MSG_REMOVE, struct msg_key, reserved, 0, 0, 0, 1);
    FIELD(MSG_LIST, struct msg_list, reserved, 0, 0, 0, 1);
    FIELD(MSG_NAMESPACE, struct msg_namespace, reserved, 0, 0, 0, 1);
    FIELD(MSG_GROW, struct msg_grow, reserved, 0, 0, 0, 1);
    FIELD(MSG_QUERY, struct msg_query, reserved, 0, 0, 0, 1);
    FIELD(MSG_STAT, struct msg_key, counter, 0, 0, 0, 1);
    FIELD(MSG_STAT, struct msg_key, region, 0, 0, 0, 1);
    FIELD(MSG_FIND, struct msg_key, counter, 0, 0, 0, 1);
    FIELD(MSG_REVOKE, struct msg_key, region, 0, 0, 0, 1);
    FIELD(MSG_DROP, struct msg_hold, ttl_ns, 0, 0, 0, 1);
    FIELD(MSG_CREATE, struct msg_create, object.checksum, 0, 0, 0, 1);
    FIELD(MSG_SUMS, struct msg_sums, reserved, 0, 0, 0, 1);
#undef GOOD
    make(MSG_REMOVE);
    AS(struct msg_key)->counter = AS(struct msg_key)->region = 7;
    assert_int_equal(check(), 0);
}

/* Each kind has its own fields and no others: nothing that is left out makes a purge one of more. */
static void purges_say_what(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 6; kind++) {
        for (unsigned bits = 0; bits < 8; bits++) {
            make(MSG_PURGE);
            struct msg_purge *p = AS(struct msg_purge);
            p->kind = kind;
            p->lineage = bits & 1 ? 7 : 0;
            p->ns = bits & 2 ? 7 : 0;
            p->prefix_size = bits & 4 ? 5 : 0;
            head->bytes = (uint32_t)sizeof *p + p->prefix_size;
            bool fine = kind == PURGE_LINEAGE     ? bits == 1
                        : kind == PURGE_NAMESPACE ? (bits & 5) == 0
                                                  : kind == PURGE_PREFIX && (bits & 5) == 4;
            assert_int_equal(check(), fine ? 0 : -EINVAL);
        }
    }
    make(MSG_QUERY);
    AS(struct msg_query)->what = QUERY_WHY;
    assert_int_equal(check(), 0);
    AS(struct msg_query)->key_size = 0;
    head->bytes -= 5;
    assert_int_equal(check(), -EINVAL);
}

/* Segments: a power of two within bounds, and no more of them than an object can have; a PUT brings them all. */
static void segments_have_bounds(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 256; shift++) {
        for (unsigned i = 0; i < 3; i++) {
            uint64_t size = shift < 31 ? ((uint64_t)SEGMENTS_MAX << shift) + i - 1 : 1;
            size = size < OBJECT_MAX ? size : OBJECT_MAX;
            bool fine = shift == 0 || (shift >= 12 && shift <= 30 && size <= (uint64_t)SEGMENTS_MAX << shift);
            make(MSG_CREATE);
            AS(struct msg_create)->object.size = (uint32_t)size;
            AS(struct msg_create)->object.segment = (uint8_t)shift;
            assert_int_equal(check(), fine ? 0 : -EINVAL);
            make(MSG_PUT);
            AS(struct msg_put)->object.size = (uint32_t)size;
            AS(struct msg_put)->object.segment = (uint8_t)shift;
            head->bytes += fine ? msg_put_sums(AS(struct msg_put)) * 8 : 0;
            assert_int_equal(check(), fine ? 0 : -EINVAL);
            head->bytes--;
            assert_int_equal(check(), -EINVAL);
        }
    }
}

/* Keys of a WAIT: each within bounds and within the message, which ends with the last. */
static void waits_have_bounds(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned size = 0; size <= UINT16_MAX; size++) {
            make(MSG_WAIT);
            ((struct msg_wait_key *)(AS(struct msg_wait) + 1))[2 * i].key_size = (uint16_t)size;
            assert_int_equal(check(), size >= 1 && size <= 8 ? 0 : -EINVAL);
        }
        make(MSG_WAIT);
        ((struct msg_wait_key *)(AS(struct msg_wait) + 1))[2 * i].reserved = 1;
        assert_int_equal(check(), -EINVAL);
    }
    static const uint32_t bad[] = {0, 1, 3, 257, UINT32_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        make(MSG_WAIT);
        AS(struct msg_wait)->count = bad[i];
        assert_int_equal(check(), -EINVAL);
    }
    make(MSG_WAIT);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) + 2);
}

static void pulls_have_bounds(void **state)
{
    (void)state;
#define REFUSED(change)                                                                    \
    do {                                                                                   \
        make_pull();                                                                       \
        struct msg_pull *m = AS(struct msg_pull);                                          \
        struct msg_pull_key *k = (struct msg_pull_key *)(m + 1);                           \
        struct msg_pull_range *r = (struct msg_pull_range *)(uintptr_t)msg_pull_ranges(k); \
        (void)k, (void)r;                                                                  \
        change;                                                                            \
        assert_int_equal(check(), -EINVAL);                                                \
    } while (0)
    make_pull();
    assert_int_equal(check(), 0);
    assert_int_equal(msg_reply_max(head),
                     sizeof(struct msg_reply) + 2 * sizeof(struct msg_pulled) + sizeof(struct msg_unasked));
    AS(struct msg_pull)->flags |= MSG_PULL_RECORD;
    assert_int_equal(check(), 0);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) +
                                              2 * (sizeof(struct msg_pulled) + sizeof(struct msg_pull_record)) +
                                              sizeof(struct msg_unasked));
    REFUSED(m->count = 0);
    REFUSED(m->count = 1);
    REFUSED(m->count = 3);
    REFUSED(m->count = MSG_PULL_KEYS + 1);
    REFUSED(m->count = UINT32_MAX);
    REFUSED(m->flags = MSG_PULL_FLAGS + 1);
    REFUSED(m->kind = MSG_PULL_KINDS);
    REFUSED(m->kind = MSG_PULL_REPLICA);
    REFUSED(m->buffer = 0);
    REFUSED(m->buffer = UINT64_MAX);
    REFUSED(k->key_size = 0);
    REFUSED(k->key_size = KEY_MAX + 1);
    REFUSED(k->key_size = UINT16_MAX);
    REFUSED(k->n_ranges = 0);
    REFUSED(k->n_ranges = 2);
    REFUSED(k->n_ranges = UINT16_MAX);
    REFUSED(k->to = 1);
    REFUSED(k->room = 1);
    REFUSED(r->offset = (uint64_t)OBJECT_MAX + 1);
    REFUSED(r->length = (uint64_t)OBJECT_MAX + 1);
    REFUSED(r->length = UINT64_MAX);
    REFUSED(r->to = UINT64_MAX);
#undef REFUSED
}

/* Every reply fits a message, and a request that passed has a reply that can be reserved. */
static void replies_are_bounded(void **state)
{
    (void)state;
    for (unsigned op = 1; op; op = next_op(op)) {
        make(op);
        uint32_t most = msg_reply_max(head);
        assert_true(most >= sizeof(struct msg_reply));
        assert_true(most <= RING_MESSAGE_MAX);
    }
    make(MSG_GRANT);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) + 3 * sizeof(struct msg_token));
    make(MSG_PUT);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) + 2 * sizeof(struct msg_token));
    make(MSG_CREATE);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) + sizeof(struct msg_token));
    make(MSG_SEAL);
    assert_int_equal(msg_reply_max(head), sizeof(struct msg_reply) + 1);
}

/* Random bytes behind a right head: refused or accepted, but never read beyond what came (the sanitizer's part). */
static void random_bodies(void **state)
{
    uint64_t s = *(const uint64_t *)*state;
    for (unsigned i = 0; i < 200000; i++) {
        uint32_t bytes = (uint32_t)(sizeof(struct msg_head) + s % 200);
        struct msg_head *m = malloc(bytes);
        assert_non_null(m);
        for (uint32_t k = 0; k < bytes; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            ((uint8_t *)m)[k] = (uint8_t)(s >> (s >> 62 ? 60 : 33));
        }
        m->bytes = bytes;
        m->op = (uint16_t)(s >> 40) % 40;
        m->flags = 0;
        m->deadline = 0;
        int rc = msg_check(m, bytes);
        assert_true(rc == 0 || rc == -EINVAL || rc == -EOPNOTSUPP);
        if (rc == 0) {
            assert_true(msg_reply_max(m) <= RING_MESSAGE_MAX);
        }
        free(m);
    }
}

int main(void)
{
    struct timespec t;
    const char *given = getenv("BERTH_SEED");
    clock_gettime(CLOCK_REALTIME, &t);
    static uint64_t seed;
    static uint64_t *where = &seed;
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)t.tv_nsec << 20 | 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ones_pass),          cmocka_unit_test(lengths_must_add_up),
        cmocka_unit_test(buffers_and_publications), cmocka_unit_test(operations_out_of_range),
        cmocka_unit_test(flags_and_deadlines),      cmocka_unit_test(names_are_text),
        cmocka_unit_test(counts_have_bounds),       cmocka_unit_test(fields_of_later_versions),
        cmocka_unit_test(purges_say_what),          cmocka_unit_test(segments_have_bounds),
        cmocka_unit_test(waits_have_bounds),        cmocka_unit_test(pulls_have_bounds),
        cmocka_unit_test(replies_are_bounded),      cmocka_unit_test_prestate(random_bodies, where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
