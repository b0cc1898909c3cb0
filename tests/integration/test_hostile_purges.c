/* test_hostile_purges.c: questions about other capacities, and purges, that say what they must not: kinds, lengths and
 * places out of range are refused by name, and nothing is answered, purged or written with them.
 */
#include "tests/support/hostile.h"

#include "store/berth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PINS 600u

static _Alignas(64) uint8_t message[RING_MESSAGE_MAX], reply[RING_MESSAGE_MAX];

static int ask(struct hand *h, void *m, size_t bytes)
{
    return hostile_ask(h, m, bytes, reply);
}

static void put(struct hand *h, const char *key, uint64_t lineage)
{
    struct msg_grant grant = {.head = {.op = MSG_GRANT}, .size = 100, .count = 1};
    struct msg_put *m = (struct msg_put *)message;
    uint16_t size = (uint16_t)strlen(key);
    assert_int_equal(ask(h, &grant, sizeof grant), 0);
    *m = (struct msg_put){.head = {.op = MSG_PUT}, .object = {.size = 100, .key_size = size, .lineage = lineage}};
    memcpy(&m->token, reply + sizeof(struct msg_reply), sizeof m->token);
    memcpy(m + 1, key, size);
    assert_int_equal(ask(h, m, sizeof *m + size), 0);
}

/* ---- questions ---- */

static int try_query(struct hand *h, uint32_t what, uint32_t offset, uint32_t ns, uint16_t key_size, size_t more)
{
    struct msg_query *q = (struct msg_query *)message;
    memset(message, 0, sizeof message);
    *q = (struct msg_query){.head = {.op = MSG_QUERY}, .what = what, .offset = offset, .ns = ns, .key_size = key_size};
    return ask(h, q, sizeof *q + more);
}

static void refused_at(struct hand *h, const uint32_t offset[3])
{
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(try_query(h, QUERY_WHATIF, offset[i], 0, 0, 0), -EINVAL);
        bystander_works();
    }
}

/* A client with so many pins that their list is longer than a message. */
static struct berth *pin_many(struct hand *h)
{
    static struct berth_view view[PINS];
    char url[128], name[32];
    struct berth *b;
    snprintf(url, sizeof url, "unix:%s", hand_path);
    assert_int_equal(berth_open(&b, url, NULL), 0);
    for (unsigned i = 0; i < PINS; i++) {
        int n = snprintf(name, sizeof name, "one-of-many-that-are-pinned-%u", i);
        put(h, name, 0);
        assert_int_equal(berth_get(b, (struct berth_key){.data = name, .size = (uint32_t)n}, &view[i], 0, 0), 0);
    }
    return b;
}

/* whatif: a key that it doesn't ask for is not looked at; kinds, lengths and places that there are none of. */
static void test_whatif_out_of_range(void **unused)
{
    (void)unused;
    static const uint32_t kinds[] = {QUERY_KINDS, QUERY_KINDS + 1, 0x10005, 0x80000005, UINT32_MAX};
    const struct msg_reply *r = (const struct msg_reply *)reply;
    struct hand h;
    hand_attach(&h);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, 0, 0), 0);
    uint64_t length = r->figure[0];
    assert_in_range(length, 100, RING_MESSAGE_MAX);
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(try_query(&h, kinds[i], 0, 0, 0, 0), -EINVAL);
    }
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, UINT32_MAX, KEY_MAX, KEY_MAX), 0);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, KEY_MAX + 1, KEY_MAX + 1), -EINVAL);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, UINT16_MAX, 0), -EINVAL);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, 1, 0), -EINVAL);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, 0, 1), -EINVAL);
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, 0, 4000), -EINVAL);
    /* Nothing is left of a text that was had; of one that was not, no place lies beyond its end. */
    assert_int_equal(try_query(&h, QUERY_WHATIF, 0, 0, 0, 0), 0);
    refused_at(&h, (const uint32_t[]){1, (uint32_t)length - 1, (uint32_t)length});
    struct berth *b = pin_many(&h);
    assert_int_equal(try_query(&h, QUERY_PINS, 0, 0, 0, 0), 0);
    assert_true(r->head.flags & MSG_HAS_MORE);
    refused_at(&h, (const uint32_t[]){(uint32_t)r->figure[0] + 1, 1u << 31, UINT32_MAX});
    berth_close(b);
    hand_close(&h);
    hostile_gone();
}

/* ---- purges ---- */

static int try_purge(struct hand *h, struct msg_purge p, size_t more)
{
    memset(message, 0, sizeof message);
    memcpy(message, &p, sizeof p);
    ((struct msg_head *)message)->op = MSG_PURGE;
    memset(message + sizeof p, 'p', more);
    return ask(h, message, sizeof p + more);
}

static uint64_t removed(void)
{
    struct msg_purged did;
    memcpy(&did, reply + sizeof(struct msg_reply), sizeof did);
    return did.removed;
}

/* What is wrong in one field takes nothing with it: neither what the rest of it means, nor anything else. */
static void test_purges_out_of_range(void **unused)
{
    (void)unused;
    const struct msg_purge wrong[] = {
        {.kind = 0},
        {.kind = 0, .ns = 0, .lineage = 9},
        {.kind = PURGE_KINDS},
        {.kind = PURGE_KINDS, .prefix_size = 1},
        {.kind = 0x80000000u | PURGE_NAMESPACE},
        {.kind = 0x80000000u | PURGE_PREFIX, .prefix_size = 1},
        {.kind = UINT32_MAX, .ns = 1},
        {.kind = PURGE_LINEAGE},
        {.kind = PURGE_LINEAGE, .lineage = 9, .ns = 1},
        {.kind = PURGE_LINEAGE, .lineage = 9, .prefix_size = 1},
        {.kind = PURGE_NAMESPACE, .lineage = 9},
        {.kind = PURGE_NAMESPACE, .prefix_size = 1},
        {.kind = PURGE_NAMESPACE, .ns = UINT32_MAX}, /* there is no such one */
        {.kind = PURGE_PREFIX},
        {.kind = PURGE_PREFIX, .ns = UINT32_MAX, .prefix_size = 1},
        {.kind = PURGE_PREFIX, .lineage = 9, .prefix_size = 1},
        {.kind = PURGE_PREFIX, .prefix_size = KEY_MAX + 1},
        {.kind = PURGE_PREFIX, .prefix_size = UINT16_MAX},
        {.kind = PURGE_PREFIX, .prefix_size = 1, .reserved = {1}},
        {.kind = PURGE_PREFIX, .prefix_size = 1, .reserved = {0, 0, UINT16_MAX}},
    };
    struct msg_purge good = {.kind = PURGE_PREFIX, .prefix_size = 1};
    struct hand h;
    hand_attach(&h);
    put(&h, "purged", 9);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t prefix = wrong[i].prefix_size <= KEY_MAX + 1 ? wrong[i].prefix_size : 0;
        assert_int_equal(try_purge(&h, wrong[i], prefix), -EINVAL);
    }
    static const size_t lengths[] = {0, 2, KEY_MAX, 4000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(try_purge(&h, good, lengths[i]), -EINVAL);
    }
    bystander_works();
    assert_int_equal(try_purge(&h, good, 1), 0);
    assert_int_equal(removed(), 1);
    assert_int_equal(try_purge(&h, good, 1), 0);
    assert_int_equal(removed(), 0);
    hand_close(&h);
    hostile_gone();
}

/* More than may be under way, each of which goes through all keys, of which no reply is read; then it is gone. */
static void test_purges_without_end(void **unused)
{
    (void)unused;
    struct msg_purge p = {.head = {.bytes = sizeof p, .op = MSG_PURGE}, .kind = PURGE_LINEAGE, .lineage = UINT64_MAX};
    struct ring_end out, in;
    struct hand h;
    uint32_t refused = 0;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    ring_reply_consumer(&in, h.ring);
    for (int64_t end = hostile_now() + 20000000000; refused == 0 && hostile_now() < end;) {
        for (unsigned i = 0; i < 64; i++) {
            p.head.id++;
            ring_push(&out, &p, sizeof p); /* or it is full */
        }
        hostile_bell(&h);
        while (ring_pop(&in, reply) > 0) {
            const struct msg_reply *r = (const struct msg_reply *)reply;
            assert_true(r->status == 0 || r->status == -EAGAIN);
            refused += r->status == -EAGAIN;
        }
    }
    assert_true(refused > 0);
    bystander_works();
    hand_close(&h);
    hostile_gone();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatif_out_of_range),
        cmocka_unit_test(test_purges_out_of_range),
        cmocka_unit_test(test_purges_without_end),
    };
    return cmocka_run_group_tests(tests, hostile_setup, hostile_teardown);
}
