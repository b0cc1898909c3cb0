/* The ring: order and wrap-around under random sizes, back-pressure, two threads, and ends that lie. */
#include "store/msg.h"
#include "store/ring.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;
static struct ring_shared *shared;
static uint8_t message[RING_MESSAGE_MAX], taken[RING_MESSAGE_MAX];

static uint32_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return (uint32_t)(*s >> 16);
}

/* A message whose every byte follows from its id. */
static uint32_t make(uint8_t *m, uint64_t id, uint32_t bytes)
{
    struct msg_head head = {.bytes = bytes, .op = MSG_PUT, .id = id};
    memset(m, (int)(id * 7 + 1), bytes);
    memcpy(m, &head, sizeof head);
    return bytes;
}

static void check(const uint8_t *m, long n, uint64_t id)
{
    struct msg_head head;
    memcpy(&head, m, sizeof head);
    assert_int_equal(head.id, id);
    assert_int_equal(head.bytes, n);
    for (long i = sizeof head; i < n; i++) {
        if (m[i] != (uint8_t)(id * 7 + 1)) {
            fail_msg("byte %ld of message %llu", i, (unsigned long long)id);
        }
    }
}

static uint32_t random_size(uint64_t *s)
{
    uint32_t r = next_random(s);
    uint32_t most = r % 8 ? 512 : RING_MESSAGE_MAX;
    return (uint32_t)sizeof(struct msg_head) + next_random(s) % (most - (uint32_t)sizeof(struct msg_head) + 1);
}

static int fresh(void **state)
{
    (void)state;
    memset(shared, 0, sizeof *shared);
    return 0;
}

static void keeps_order_and_bytes(void **state)
{
    (void)state;
    struct ring_end out, in;
    uint64_t sent = 0, got = 0;
    ring_request_producer(&out, shared);
    ring_request_consumer(&in, shared);
    for (unsigned i = 0; i < 20000; i++) {
        if (next_random(&seed) % 3) {
            uint32_t n = make(message, sent, random_size(&seed));
            long room = ring_room(&out);
            int rc = ring_push(&out, message, n);
            assert_int_equal(rc, (long)((n + RING_ALIGN - 1) & ~(RING_ALIGN - 1)) <= room ? 0 : -EAGAIN);
            sent += rc == 0;
        } else {
            struct msg_head head;
            long ahead = ring_peek(&in, &head);
            long n = ring_pop(&in, taken);
            assert_int_equal(ahead, n);
            if (n == 0) {
                assert_int_equal(sent, got);
                continue;
            }
            assert_int_equal(head.id, got);
            check(taken, n, got++);
        }
    }
    assert_true(sent > 1000);
}

static void says_when_full(void **state)
{
    (void)state;
    struct ring_end out, in;
    ring_reply_producer(&out, shared);
    ring_reply_consumer(&in, shared);
    make(message, 1, 64);
    unsigned n = 0;
    while (ring_push(&out, message, 64) == 0) {
        n++;
    }
    assert_int_equal(n, RING_REPLY_BYTES / 64);
    assert_int_equal(ring_room(&out), 0);
    assert_int_equal(ring_push(&out, message, 64), -EAGAIN);
    assert_int_equal(ring_pop(&in, taken), 64);
    assert_int_equal(ring_room(&out), 64);
    assert_int_equal(ring_push(&out, message, 64), 0);
}

static void refuses_sizes_that_no_message_has(void **state)
{
    (void)state;
    struct ring_end out;
    ring_request_producer(&out, shared);
    make(message, 1, 64);
    assert_int_equal(ring_push(&out, message, sizeof(struct msg_head) - 1), -EAGAIN);
    assert_int_equal(ring_push(&out, message, RING_MESSAGE_MAX + 1), -EAGAIN);
    assert_int_equal(atomic_load(&shared->request_tail), 0);
}

/* The largest message has room in an empty ring wherever the indices stand. */
static void largest_fits_anywhere(void **state)
{
    (void)state;
    struct ring_end out, in;
    ring_request_producer(&out, shared);
    ring_request_consumer(&in, shared);
    for (unsigned i = 0; i < RING_REQUEST_BYTES / RING_ALIGN; i++) {
        make(message, i, RING_MESSAGE_MAX);
        assert_true(ring_room(&out) >= (long)RING_MESSAGE_MAX);
        assert_int_equal(ring_push(&out, message, RING_MESSAGE_MAX), 0);
        assert_int_equal(ring_pop(&in, taken), RING_MESSAGE_MAX);
        make(message, i, 64);
        assert_int_equal(ring_push(&out, message, 64), 0);
        assert_int_equal(ring_pop(&in, taken), 64);
    }
}

/* ---- the other end writes what it likes ---- */

static void set_head(uint32_t at, uint32_t bytes, uint16_t op)
{
    struct msg_head head = {.bytes = bytes, .op = op};
    memcpy(shared->request + at, &head, sizeof head);
}

static void consumer_bounds_what_it_reads(void **state)
{
    (void)state;
    static const struct {
        uint64_t tail;
        uint32_t bytes;
        uint16_t op;
    } bad[] = {
        {RING_REQUEST_BYTES + 64, 64, MSG_PUT}, /* more than fits */
        {UINT64_MAX - 63, 64, MSG_PUT},         /* behind the head */
        {63, 63, MSG_PUT},                      /* between two messages */
        {64, 0, MSG_PUT},                       /* shorter than a head */
        {64, 31, MSG_PUT},
        {64, 65, MSG_PUT}, /* longer than what is there */
        {64, UINT32_MAX, MSG_PUT},
        {64, UINT32_MAX - 62, MSG_PUT},                       /* its padded length wraps to 0 */
        {RING_REQUEST_BYTES, RING_MESSAGE_MAX + 64, MSG_PUT}, /* longer than a message */
        {RING_REQUEST_BYTES, 64, MSG_PAD},                    /* a pad that does not reach the end */
        {128, RING_REQUEST_BYTES, MSG_PAD},                   /* a pad longer than what is there */
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ring_end in;
        struct msg_head head;
        memset(shared, 0, sizeof *shared);
        ring_request_consumer(&in, shared);
        set_head(0, bad[i].bytes, bad[i].op);
        atomic_store(&shared->request_tail, bad[i].tail);
        assert_int_equal(ring_peek(&in, &head), -EPROTO);
        assert_int_equal(ring_pop(&in, taken), -EPROTO);
        assert_int_equal(in.mine, 0);
    }
}

static void message_may_not_wrap(void **state)
{
    (void)state;
    struct ring_end in;
    const uint64_t at = RING_REQUEST_BYTES - 64;
    atomic_store(&shared->request_head, at);
    ring_request_consumer(&in, shared);
    set_head((uint32_t)at, 128, MSG_PUT);
    atomic_store(&shared->request_tail, at + 128);
    assert_int_equal(ring_pop(&in, taken), -EPROTO);
}

/* A ring of pads only: each is skipped once, none for ever. */
static void pads_end(void **state)
{
    (void)state;
    struct ring_end in;
    atomic_store(&shared->request_head, RING_REQUEST_BYTES - 128);
    ring_request_consumer(&in, shared);
    set_head(RING_REQUEST_BYTES - 128, 128, MSG_PAD);
    atomic_store(&shared->request_tail, RING_REQUEST_BYTES);
    assert_int_equal(ring_pop(&in, taken), 0);
    assert_int_equal(atomic_load(&shared->request_head), RING_REQUEST_BYTES);
    /* Where every message has room a pad is nonsense, and a way to keep the consumer busy for ever. */
    set_head(0, RING_REQUEST_BYTES, MSG_PAD);
    atomic_store(&shared->request_tail, 2 * RING_REQUEST_BYTES);
    assert_int_equal(ring_pop(&in, taken), -EPROTO);
}

static void producer_bounds_what_it_reads(void **state)
{
    (void)state;
    static const uint64_t bad[] = {64, UINT64_MAX, UINT64_MAX - RING_REPLY_BYTES - 63, 1};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ring_end out;
        memset(shared, 0, sizeof *shared);
        ring_reply_producer(&out, shared);
        atomic_store(&shared->reply_head, bad[i]);
        make(message, 1, 64);
        assert_int_equal(ring_room(&out), -EPROTO);
        assert_int_equal(ring_push(&out, message, 64), -EPROTO);
    }
}

/* What was checked is what is copied: a length that changes after the head was read changes nothing. */
static void random_ring_never_leads_outside(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        struct ring_end in;
        uint32_t start = next_random(&seed) % 4096 * RING_ALIGN;
        atomic_store(&shared->request_head, start);
        ring_request_consumer(&in, shared);
        for (uint32_t at = 0; at < RING_REQUEST_BYTES; at += RING_ALIGN) {
            set_head(at, next_random(&seed) % (i % 2 ? 4096 : 300000), (uint16_t)(next_random(&seed) % 3));
        }
        atomic_store(&shared->request_tail, start + (uint64_t)(next_random(&seed) % 4097) * RING_ALIGN);
        long n;
        unsigned steps = 0;
        while ((n = ring_pop(&in, taken)) > 0) {
            struct msg_head head;
            memcpy(&head, taken, sizeof head);
            assert_int_equal(head.bytes, n);
            assert_true(n <= (long)RING_MESSAGE_MAX);
            assert_true(++steps <= RING_REQUEST_BYTES / RING_ALIGN);
        }
        assert_true(n == 0 || n == -EPROTO);
    }
}

/* ---- two threads ---- */

#define STREAM 40000u

static void *produce(void *arg)
{
    uint8_t *m = malloc(RING_MESSAGE_MAX);
    struct ring_end out;
    uint64_t s = *(uint64_t *)arg;
    ring_request_producer(&out, shared);
    for (uint64_t id = 0; m && id < STREAM; id++) {
        uint32_t n = make(m, id, (uint32_t)sizeof(struct msg_head) + next_random(&s) % 1000);
        while (ring_push(&out, m, n) == -EAGAIN) {}
    }
    free(m);
    return NULL;
}

static void streams_between_threads(void **state)
{
    (void)state;
    pthread_t thread;
    struct ring_end in;
    ring_request_consumer(&in, shared);
    assert_int_equal(pthread_create(&thread, NULL, produce, &seed), 0);
    for (uint64_t id = 0; id < STREAM;) {
        long n = ring_pop(&in, taken);
        assert_true(n >= 0);
        if (n) {
            check(taken, n, id++);
        }
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    struct timespec t;
    const char *given = getenv("BERTH_SEED");
    clock_gettime(CLOCK_REALTIME, &t);
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)t.tv_nsec << 20 | 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    shared = aligned_alloc(4096, sizeof *shared);
    if (!shared) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keeps_order_and_bytes, fresh),
        cmocka_unit_test_setup(says_when_full, fresh),
        cmocka_unit_test_setup(refuses_sizes_that_no_message_has, fresh),
        cmocka_unit_test_setup(largest_fits_anywhere, fresh),
        cmocka_unit_test_setup(consumer_bounds_what_it_reads, fresh),
        cmocka_unit_test_setup(message_may_not_wrap, fresh),
        cmocka_unit_test_setup(pads_end, fresh),
        cmocka_unit_test_setup(producer_bounds_what_it_reads, fresh),
        cmocka_unit_test_setup(random_ring_never_leads_outside, fresh),
        cmocka_unit_test_setup(streams_between_threads, fresh),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(shared);
    return failed;
}
