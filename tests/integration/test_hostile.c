/* test_hostile.c: clients that write whatever they like into their own ring, pin table and descriptors. The node lives,
 * another client works on unharmed, nothing stays behind when they are gone, and index, slots and lookup still agree.
 */
#include "tests/support/draw.h"
#include "tests/support/hostile.h"

#include "store/berth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#define SCRIBBLE_NS 500000000

static _Alignas(64) uint8_t message[RING_MESSAGE_MAX], reply[RING_MESSAGE_MAX];

static void expect_cut(struct hand *h)
{
    hostile_bell(h);
    assert_true(hostile_cut(h, 20000));
    hand_close(h);
}

/* ---- indices and lengths ---- */

static void test_indices_out_of_range(void **unused)
{
    (void)unused;
    static const uint64_t bad[] = {
        1, 63, 65, RING_REQUEST_BYTES + 64, RING_REQUEST_BYTES * 2, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 63};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hand h;
        hand_attach(&h);
        atomic_store(&h.ring->request_tail, bad[i]);
        expect_cut(&h);
        hand_attach(&h);
        hand_works(&h, 1);
        uint64_t head = atomic_load(&h.ring->reply_tail) - bad[i];
        atomic_store(&h.ring->reply_head, head);
        struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = 2}, .what = QUERY_METRICS};
        struct ring_end out;
        ring_request_producer(&out, h.ring);
        assert_int_equal(ring_push(&out, &q, sizeof q), 0);
        /* What only looks like a ring that is nearly full is not served; the rest is nonsense. */
        hostile_bell(&h);
        assert_true(bad[i] < RING_REPLY_BYTES || hostile_cut(&h, 20000));
        hand_close(&h);
    }
    hostile_gone();
}

static void test_lengths_out_of_range(void **unused)
{
    (void)unused;
    static const uint32_t bad[] = {
        0, 1, 31, 129, RING_MESSAGE_MAX + 1, RING_REQUEST_BYTES, UINT32_MAX, UINT32_MAX - 62};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (uint16_t op = MSG_PAD; op < MSG_OPS; op += 5) {
            struct hand h;
            hand_attach(&h);
            *(struct msg_head *)h.ring->request = (struct msg_head){.bytes = bad[i], .op = op};
            atomic_store(&h.ring->request_tail, bad[i] == RING_MESSAGE_MAX + 1 ? RING_REQUEST_BYTES : 128);
            expect_cut(&h);
        }
    }
    hostile_gone();
}

/* ---- a second thread writes while the node reads ---- */

struct scribbler {
    struct ring_shared *ring;
    size_t from, to; /* bytes of it */
    uint64_t seed;
    _Atomic int end;
};

static void *scribble(void *arg)
{
    struct scribbler *s = arg;
    uint64_t x = s->seed | 1;
    while (!s->end) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        size_t at = s->from + (x >> 8) % ((s->to - s->from) / 8) * 8;
        uint64_t what = x & 1 ? x : x & 2 ? (x >> 20) % 256 : (x >> 20) % RING_REQUEST_BYTES & ~UINT64_C(63);
        atomic_store_explicit((_Atomic uint64_t *)((uint8_t *)s->ring + at), what, memory_order_relaxed);
    }
    return NULL;
}

static void send_valid(struct hand *h, struct ring_end *out, uint64_t id)
{
    static const char key[] = "scribbled";
    struct msg_create *m = (struct msg_create *)message;
    *m = (struct msg_create){.head = {.bytes = sizeof *m + 9, .op = MSG_CREATE, .id = id},
                             .object = {.size = 100, .key_size = 9}};
    memcpy(m + 1, key, 9);
    ring_push(out, m, m->head.bytes); /* full or broken, whatever */
    atomic_store(&h->ring->reply_head, atomic_load(&h->ring->reply_tail));
    hostile_bell(h);
}

static void scribble_over(size_t from, size_t to)
{
    int64_t end = hostile_now() + SCRIBBLE_NS;
    while (hostile_now() < end) {
        struct hand h;
        pthread_t t;
        struct ring_end out;
        hand_attach(&h);
        struct scribbler s = {.ring = h.ring, .from = from, .to = to, .seed = draw()};
        ring_request_producer(&out, h.ring);
        assert_int_equal(pthread_create(&t, NULL, scribble, &s), 0);
        for (uint64_t id = 1; hostile_now() < end && !hostile_cut(&h, 0); id++) {
            send_valid(&h, &out, id);
        }
        s.end = 1;
        pthread_join(t, NULL);
        hand_close(&h);
    }
    hostile_gone();
}

static void test_scribbling_over_the_whole_ring(void **unused)
{
    (void)unused;
    scribble_over(offsetof(struct ring_shared, request_tail), sizeof(struct ring_shared));
}

static void test_messages_change_while_they_are_copied(void **unused)
{
    (void)unused;
    scribble_over(offsetof(struct ring_shared, request), offsetof(struct ring_shared, request) + 4096);
}

static void test_touches_out_of_range(void **unused)
{
    (void)unused;
    struct hand h;
    hand_attach(&h);
    for (unsigned i = 0; i < RING_TOUCHES; i++) {
        atomic_store(&h.ring->touch[i], i % 4 ? (uint32_t)draw() : UINT32_MAX - i % 3);
    }
    for (unsigned i = 0; i < 50; i++) {
        atomic_store(&h.ring->touch_tail,
                     draw_below(3) ? draw() : atomic_load(&h.ring->touch_tail) + draw_below(20000));
        hand_works(&h, i + 1);
    }
    hand_close(&h);
    hostile_gone();
}

/* ---- too much of everything ---- */

/* Requests without end, of which no reply is ever read; then the same client is gone. */
static void test_replies_never_read(void **unused)
{
    (void)unused;
    struct hand h;
    struct ring_end out;
    uint64_t id = 0;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    int64_t end = hostile_now() + SCRIBBLE_NS;
    while (hostile_now() < end) {
        struct msg_grant g = {
            .head = {.bytes = sizeof g, .op = MSG_GRANT, .id = ++id, .deadline = INT64_MAX}, .size = 1, .count = 9};
        struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = id},
                              .what = (uint32_t)id % QUERY_KINDS};
        int e = id % 2 ? ring_push(&out, &g, sizeof g) : ring_push(&out, &q, sizeof q);
        assert_true(e == 0 || e == -EAGAIN);
        hostile_bell(&h);
    }
    assert_true(id > 1000 && !hostile_cut(&h, 0));
    bystander_works();
    hand_close(&h);
    hostile_gone();
}

/* ---- descriptors ---- */

/* The doorbell made blocking, and emptied before the node can read it; the client's own eventfd full and blocking. */
static void test_descriptors_that_block(void **unused)
{
    (void)unused;
    struct hand h;
    struct ring_end out;
    uint64_t most = UINT64_MAX - 1, id = 0, count;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    assert_int_equal(write(h.wake, &most, sizeof most), sizeof most);
    fcntl(h.wake, F_SETFL, 0);
    fcntl(h.got[5], F_SETFL, 0);
    int64_t end = hostile_now() + SCRIBBLE_NS;
    while (hostile_now() < end) {
        for (unsigned i = 0; i < 4; i++) {
            struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = ++id}, .what = QUERY_METRICS};
            struct iovec to = {.iov_base = &count, .iov_len = sizeof count};
            ring_push(&out, &q, sizeof q);
            atomic_store(&h.ring->client_sleeping, 1);
            atomic_store(&h.ring->reply_head, atomic_load(&h.ring->reply_tail));
            hostile_bell(&h);
            preadv2(h.got[5], &to, 1, -1, RWF_NOWAIT); /* the node may have been faster */
        }
        assert_true(bystander_finishes()); /* and nothing that would wake a node that waits for the bell */
    }
    hand_close(&h);
    hostile_gone();
}

/* Its own pin table is all that a client may cut short, to its own loss. */
static void test_pin_table_cut_short(void **unused)
{
    (void)unused;
    struct hand h;
    hand_attach(&h);
    for (unsigned i = 0; i < 3; i++) {
        struct msg_grow grow = {.head = {.op = MSG_GROW}, .entries = PINS_CAPACITY};
        struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_PINS};
        uint32_t high = UINT32_MAX;
        static const off_t length[] = {0, 100, 1 << 30};
        assert_int_equal(ftruncate(h.got[4], length[i]), 0);
        assert_int_equal(pwrite(h.got[4], &high, sizeof high, offsetof(struct pins_file, high_water)), sizeof high);
        assert_int_equal(hostile_ask(&h, &grow, sizeof grow, reply), 0);
        assert_int_equal(hostile_ask(&h, &q, sizeof q, reply), 0);
        bystander_works();
    }
    hand_close(&h);
    hostile_gone();
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices_out_of_range),
        cmocka_unit_test(test_lengths_out_of_range),
        cmocka_unit_test(test_scribbling_over_the_whole_ring),
        cmocka_unit_test(test_messages_change_while_they_are_copied),
        cmocka_unit_test(test_touches_out_of_range),
        cmocka_unit_test(test_replies_never_read),
        cmocka_unit_test(test_descriptors_that_block),
        cmocka_unit_test(test_pin_table_cut_short),
    };
    return cmocka_run_group_tests(tests, hostile_setup, hostile_teardown);
}
