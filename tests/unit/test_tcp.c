/* test_tcp.c: the TCP transport between two contexts of one process: transfers, messages, cancelling, addresses. What a
 * hostile or broken peer does to it: test_tcp_hostile.c. */
#include "tests/support/draw.h"
#include "tests/support/tcp_node.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define POOL (16u * MIB)

static struct tcp_node a, b; /* a reads, b owns */
static struct tcp_node *both[] = {&a, &b};

static void begin(const struct transport_config *reader, const struct transport_config *owner)
{
    tcp_node_open(&b, owner, POOL);
    tcp_node_open(&a, reader, 0);
    tcp_nodes_pair(&a, &b);
}

static void end(void)
{
    tcp_node_close(&a);
    tcp_node_close(&b);
}

static struct transport_stats stats_of(struct tcp_node *n)
{
    struct transport_stats s;
    tcp_transport.stats(n->ctx, &s);
    return s;
}

static void finish(struct tcp_job *j)
{
    tcp_nodes_until(both, 2, tcp_job_done, j);
}

static bool all_served(void *unused)
{
    (void)unused;
    return b.served == b.admitted && stats_of(&a).in_flight == 0 && stats_of(&b).serving == 0;
}

static void round_trip(uint64_t offset, uint64_t bytes, uint32_t parts)
{
    struct tcp_job j;
    tcp_job_init(&j, &a, offset, bytes, parts);
    tcp_job_post(&j);
    finish(&j);
    if (!tcp_job_is_right(&j, b.pool)) {
        fail_msg("%llu bytes at %llu in %u parts: status %d", (unsigned long long)bytes, (unsigned long long)offset,
                 parts, j.t.status);
    }
    assert_true(j.t.posted_ns <= j.t.asked_ns && j.t.asked_ns <= j.t.first_ns && j.t.first_ns <= j.t.completed_ns);
    tcp_job_free(&j);
}

/* ---- transfers ---- */

static const struct transport_config by_send = {.sendfile_queue = UINT32_MAX},
                                     by_sendfile = {.sendfile_queue = 1, .sendfile_min = 1, .sendfile_max = UINT32_MAX},
                                     tiny_socket = {.socket_buffer = 8192, .chunk = 5000},
                                     tiny_window = {.window = 65536, .source_window = 65536};

static void sizes_with(const struct transport_config *reader, const struct transport_config *owner)
{
    static const uint64_t sizes[] = {1,     55,    56,    57,    4095,    4096,        4097,    16384,
                                     16385, 65536, 65537, 99999, 2 * MIB, 2 * MIB + 1, 5000001, POOL};
    begin(reader, owner);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        round_trip((POOL - sizes[i]) / 3, sizes[i], 1);
    }
    tcp_nodes_until(both, 2, all_served, NULL);
    assert_int_equal(b.served_errors, 0);
    struct transport_stats s = stats_of(&a), o = stats_of(&b);
    assert_int_equal(s.posted, sizeof sizes / sizeof *sizes);
    assert_int_equal(s.completed, s.posted);
    assert_int_equal(o.served, s.posted);
    assert_int_equal(s.failed + o.serve_errors + s.protocol + o.protocol, 0);
    end();
}

static void sizes(void **unused)
{
    (void)unused;
    sizes_with(NULL, NULL);
    sizes_with(NULL, &by_send);
    sizes_with(&tiny_window, NULL);
}

static void sizes_by_sendfile(void **unused)
{
    (void)unused;
    sizes_with(NULL, &by_sendfile);
    sizes_with(&tiny_socket, &by_sendfile);
}

static void sizes_through_small_sockets(void **unused)
{
    (void)unused;
    sizes_with(&tiny_socket, &tiny_socket);
}

static void a_large_one(void **unused)
{
    (void)unused;
    tcp_node_open(&b, NULL, 64 * MIB);
    tcp_node_open(&a, NULL, 0);
    tcp_nodes_pair(&a, &b);
    round_trip(0, 64 * MIB, 1);
    assert_true(a.most_flying <= 8 * MIB);
    end();
}

static void scatter(void **unused)
{
    (void)unused;
    begin(NULL, NULL);
    for (int i = 0; i < 200; i++) {
        uint64_t bytes = 1 + draw_below(draw_below(4) ? 40000 : 3 * MIB);
        round_trip(draw_below(POOL - (uint32_t)bytes), bytes, 1 + draw_below(64));
    }
    end();
}

static void bad_requests(void **unused)
{
    struct tcp_job j;
    (void)unused;
    begin(NULL, NULL);
    tcp_job_init(&j, &a, 0, 4096, 2);
    j.t.bytes = 4097;
    assert_int_equal(tcp_transport.read(a.ctx, a.c, &j.t), -EINVAL);
    j.t.bytes = 4095;
    assert_int_equal(tcp_transport.read(a.ctx, a.c, &j.t), -EINVAL);
    j.t.bytes = 0;
    assert_int_equal(tcp_transport.read(a.ctx, a.c, &j.t), -EINVAL);
    j.t.bytes = 4096;
    assert_int_equal(tcp_transport.cancel(a.ctx, &j.t), -ENOENT);
    assert_int_equal(j.t.state, TRANSFER_IDLE);
    static const uint64_t beyond[] = {POOL - 4095, POOL, POOL + 4096, UINT64_MAX, UINT64_MAX - 4094};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) { /* the owner's pool ends before */
        j.t.offset = beyond[i];
        j.completions = 0;
        tcp_job_post(&j);
        assert_int_equal(tcp_transport.read(a.ctx, a.c, &j.t), -EBUSY);
        finish(&j);
        assert_int_equal(j.t.status, -EINVAL);
        assert_true(tcp_job_is_poison(&j));
    }
    assert_int_equal(b.admitted, 0);
    tcp_job_free(&j);
    round_trip(POOL - 4096, 4096, 1);
    end();
}

static void refused(void **unused)
{
    static const int answers[][2] = {{-ESTALE, -ESTALE}, {-4100, -4100}, {-70000, -EIO}};
    (void)unused;
    begin(NULL, NULL);
    for (int i = 0; i < 6; i++) {
        struct tcp_job j;
        b.admit_answer = answers[i % 3][0];
        tcp_job_init(&j, &a, 0, i < 3 ? 100 : MIB, 1);
        tcp_job_post(&j);
        finish(&j);
        assert_int_equal(j.t.status, answers[i % 3][1]);
        assert_true(tcp_job_is_poison(&j));
        tcp_job_free(&j);
    }
    b.admit_answer = 0;
    round_trip(5, MIB, 1);
    tcp_nodes_until(both, 2, all_served, NULL);
    assert_int_equal(b.served, 1);
    end();
}

/* More requests than there are ids, large and small, in flight together. */
static void many(void **unused)
{
    enum { N = 1500 };
    struct tcp_job *j = calloc(N, sizeof *j);
    (void)unused;
    begin(NULL, NULL);
    for (int i = 0; i < N; i++) {
        uint64_t bytes = 1 + draw_below(draw_below(3) ? 8192 : 100000);
        tcp_job_init(&j[i], &a, draw_below(POOL - (uint32_t)bytes), bytes, 1 + draw_below(3));
        tcp_job_post(&j[i]);
    }
    for (int i = 0; i < N; i++) {
        finish(&j[i]);
        assert_true(tcp_job_is_right(&j[i], b.pool));
        tcp_job_free(&j[i]);
    }
    tcp_nodes_until(both, 2, all_served, NULL);
    assert_true(a.most_flying > 0 && a.most_flying <= 8 * MIB);
    free(j);
    end();
}

/* Small reads one after another during a large one: none waits for its end, but only for a bounded number of its
 * bytes. */
static void small_during_large(void **unused)
{
    struct tcp_job large;
    (void)unused;
    begin(NULL, NULL);
    tcp_job_init(&large, &a, 0, POOL, 1);
    tcp_job_post(&large);
    uint64_t passed = 0;
    int n = 0;
    while (!tcp_job_done(&large) && n < 1000) {
        struct tcp_job j;
        uint64_t before = large.t.received;
        tcp_job_init(&j, &a, 8192, 4096, 1);
        tcp_job_post(&j);
        finish(&j);
        assert_true(tcp_job_is_right(&j, b.pool));
        tcp_job_free(&j);
        if (!tcp_job_done(&large)) {
            uint64_t now = large.t.received - before;
            passed = now > passed ? now : passed;
            n++;
        }
    }
    printf("%d small reads, at most %llu bytes of the large one during one\n", n, (unsigned long long)passed);
    assert_true(n >= 3);
    assert_true(passed <= 4 * MIB);
    finish(&large);
    assert_true(tcp_job_is_right(&large, b.pool));
    tcp_job_free(&large);
    end();
}

/* Two bulk reads share a lane chunk by chunk: the short one does not wait for the long one. */
static void bulk_in_turn(void **unused)
{
    struct tcp_job large, middle;
    (void)unused;
    begin(NULL, NULL);
    tcp_job_init(&large, &a, 0, POOL, 1);
    tcp_job_init(&middle, &a, 0, MIB, 1);
    tcp_job_post(&large);
    tcp_job_post(&middle);
    finish(&middle);
    assert_true(tcp_job_is_right(&middle, b.pool));
    assert_true(large.t.received <= 8 * MIB);
    finish(&large);
    tcp_job_free(&large);
    tcp_job_free(&middle);
    end();
}

/* ---- giving up ---- */

static void cancel_in_the_middle(void **unused)
{
    static const uint64_t sizes_[] = {12000, 300000, POOL};
    (void)unused;
    begin(&tiny_socket, &tiny_socket);
    for (int i = 0; i < 30; i++) {
        struct tcp_job j;
        uint64_t bytes = sizes_[i % 3];
        tcp_job_init(&j, &a, 0, bytes, 1 + (uint32_t)i % 5);
        j.cancel_at = 1 + draw_below((uint32_t)(bytes < 2 * MIB ? bytes : 2 * MIB) - 1);
        tcp_job_post(&j);
        finish(&j);
        assert_int_equal(j.t.status, j.progressed < bytes || j.disorder == 0 ? -ECANCELED : 0);
        assert_int_equal(j.t.state, TRANSFER_COMPLETED);
        tcp_job_poison(&j);
        round_trip(3, 40000, 1); /* the stream is in step */
        tcp_nodes_until(both, 2, all_served, NULL);
        assert_true(tcp_job_is_poison(&j));
        assert_int_equal(j.completions, 1);
        tcp_job_free(&j);
    }
    assert_true(stats_of(&a).bytes_drained > 0);
    assert_true(b.served_errors > 0);
    assert_int_equal(a.closed + b.closed, 0);
    end();
}

static void cancel_what_waits(void **unused)
{
    struct tcp_job j[4];
    (void)unused;
    begin(&tiny_window, NULL);
    for (int i = 0; i < 4; i++) {
        tcp_job_init(&j[i], &a, 0, MIB, 1);
        tcp_job_post(&j[i]);
    }
    assert_int_equal(stats_of(&a).waiting, 4);
    assert_int_equal(tcp_transport.cancel(a.ctx, &j[2].t), 0);
    assert_int_equal(j[2].t.status, -ECANCELED);
    assert_int_equal(j[2].t.asked_ns, 0);
    assert_int_equal(tcp_transport.cancel(a.ctx, &j[2].t), -ENOENT);
    finish(&j[0]);
    finish(&j[1]);
    finish(&j[3]);
    tcp_nodes_until(both, 2, all_served, NULL);
    assert_int_equal(b.admitted, 3);
    assert_int_equal(stats_of(&a).waiting, 0);
    assert_true(a.most_flying <= 65536);
    for (int i = 0; i < 4; i++) {
        tcp_job_free(&j[i]);
    }
    end();
}

static void deadlines(void **unused)
{
    struct tcp_job j[3];
    struct tcp_node *alone[] = {&a};
    struct timespec t;
    (void)unused;
    begin(&tiny_window, NULL);
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (int i = 0; i < 3; i++) {
        tcp_job_init(&j[i], &a, 0, i == 1 ? 100 : MIB, 1);
        j[i].t.deadline = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 20000000 * (i + 1);
        tcp_job_post(&j[i]);
    }
    for (int i = 0; i < 3; i++) { /* the owner does nothing */
        tcp_nodes_until(alone, 1, tcp_job_done, &j[i]);
        assert_int_equal(j[i].t.status, -ETIMEDOUT);
        assert_true(j[i].t.completed_ns >= j[i].t.deadline);
        assert_true(tcp_job_is_poison(&j[i]));
    }
    round_trip(9, 3 * MIB, 1);
    for (int i = 0; i < 3; i++) {
        assert_true(tcp_job_is_poison(&j[i]));
        tcp_job_free(&j[i]);
    }
    end();
}

static bool has_some(void *job)
{
    return ((struct tcp_job *)job)->t.received > 0;
}

static void disconnecting(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        struct tcp_node *who = i % 2 ? &a : &b;
        struct tcp_job j, k;
        begin(NULL, i < 2 ? &by_send : &by_sendfile);
        tcp_job_init(&j, &a, 0, POOL, 1);
        tcp_job_init(&k, &a, 0, 4096, 1);
        tcp_job_post(&j);
        tcp_nodes_until(both, 2, has_some, &j);
        tcp_job_post(&k);
        assert_int_equal(tcp_transport.fence(who->ctx, who->c), -EAGAIN);
        if (who == &a) {
            assert_int_equal(j.completions + k.completions, 2);
        }
        finish(&j);
        assert_int_equal(j.t.status, -ECONNRESET);
        assert_int_equal(k.t.status, -ECONNRESET);
        tcp_job_poison(&j);
        tcp_nodes_until(both, 2, all_served, NULL);
        assert_int_equal(b.served_status, -ECONNRESET);
        assert_true(tcp_job_is_poison(&j));
        assert_int_equal(who->closed, 0);
        assert_int_equal(a.closed + b.closed, 1);
        assert_int_equal(stats_of(&a).connections + stats_of(&b).connections, 0);
        tcp_job_free(&j);
        tcp_job_free(&k);
        end();
    }
}

/* The owner ends a serve at any moment: the reader never takes what came for the object. */
static void stopped(void **unused)
{
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct tcp_job j;
        begin(&tiny_socket, i % 2 ? &tiny_socket : &by_sendfile);
        tcp_job_init(&j, &a, 0, i % 3 ? 200000 : 12000, 1);
        tcp_job_post(&j);
        for (uint32_t turns = draw_below(12); turns > 0; turns--) {
            tcp_nodes_turn(both, 2, 0);
        }
        int e = b.admitted ? tcp_transport.stop(b.ctx, b.c, b.last_token, -ESTALE) : -ENOENT;
        if (e == 0) {
            memset(b.pool, 0xEE, 200000); /* the slot has another object now */
        }
        finish(&j);
        if (e == 0) {
            assert_true(j.t.status == -ESTALE || j.t.status == -ECONNRESET);
            static const char other[32] = {[0 ... 31] = (char)0xEE};
            bool saw = memmem(j.memory, j.t.received + TCP_GAP, other, sizeof other) != NULL;
            assert_false(saw && i % 2); /* sendfile's pages change in the socket, copies do not */
        } else {
            assert_true(tcp_job_is_right(&j, b.pool));
        }
        tcp_nodes_until(both, 2, all_served, NULL);
        tcp_job_free(&j);
        end();
    }
}

/* ---- destinations that are no memory ---- */

static void no_memory(void **unused)
{
    (void)unused;
    begin(NULL, NULL);
    for (int i = 0; i < 8; i++) {
        struct tcp_job j;
        uint64_t bytes = i % 2 ? 16384 : MIB, hole = (uint64_t)(i / 2 % 2) * 8192;
        uint8_t *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(to != MAP_FAILED);
        if (i < 4) {
            mprotect(to + hole, bytes - hole, PROT_NONE);
        } else {
            munmap(to + hole, bytes - hole);
        }
        tcp_job_init(&j, &a, 0, bytes, 1);
        j.to[0].iov_base = to;
        tcp_job_post(&j);
        finish(&j);
        assert_int_equal(j.t.status, -EFAULT);
        assert_true(j.t.received <= hole);
        round_trip(1, MIB, 1);
        round_trip(2, 5000, 1);
        assert_int_equal(a.closed, 0);
        tcp_job_free(&j);
        munmap(to, bytes);
    }
    end();
}

/* ---- messages ---- */

static bool has_message(void *count)
{
    return b.messages == *(int *)count;
}

static void messages(void **unused)
{
    static const size_t sizes_[] = {1, 2, 55, 56, 57, 16383, 16384, 16385, TRANSPORT_MESSAGE_MAX};
    uint8_t *m = malloc(TRANSPORT_MESSAGE_MAX + 1);
    (void)unused;
    begin(NULL, NULL);
    for (size_t i = 0; i < TRANSPORT_MESSAGE_MAX; i++) {
        m[i] = (uint8_t)draw();
    }
    for (int i = 0; i < (int)(sizeof sizes_ / sizeof *sizes_); i++) {
        int expected = i + 1;
        assert_int_equal(tcp_transport.send(a.ctx, a.c, m, sizes_[i]), 0);
        tcp_nodes_until(both, 2, has_message, &expected);
        assert_int_equal(b.message_bytes, sizes_[i]);
        assert_memory_equal(b.message, m, sizes_[i]);
    }
    assert_int_equal(tcp_transport.send(a.ctx, a.c, m, 0), -EMSGSIZE);
    assert_int_equal(tcp_transport.send(a.ctx, a.c, m, TRANSPORT_MESSAGE_MAX + 1), -EMSGSIZE);
    free(m);
    end();
}

/* Numbered messages of random sizes among small and large transfers, until the queue is full, again and again. */
static void back_pressure(void **unused)
{
    struct tcp_job j[20];
    uint8_t *m = calloc(1, TRANSPORT_MESSAGE_MAX);
    uint32_t number = 0;
    (void)unused;
    begin(&(struct transport_config){.message_queue = 300000}, NULL);
    for (int round = 0; round < 20; round++) {
        tcp_job_init(&j[round], &a, 0, round % 2 ? 10000 : 2 * MIB, 1);
        tcp_job_post(&j[round]);
        for (;;) {
            memcpy(m, &number, sizeof number);
            int e = tcp_transport.send(a.ctx, a.c, m, 4 + draw_below(60000));
            if (e == -EAGAIN) {
                break;
            }
            assert_int_equal(e, 0);
            number++;
        }
        int rooms = a.rooms;
        while (a.rooms == rooms) {
            tcp_nodes_turn(both, 2, 1000);
        }
        assert_int_equal(a.rooms, rooms + 1);
    }
    int expected = (int)number;
    tcp_nodes_until(both, 2, has_message, &expected);
    assert_int_equal(b.disorder, 0);
    for (int i = 0; i < 20; i++) {
        finish(&j[i]);
        assert_true(tcp_job_is_right(&j[i], b.pool));
        tcp_job_free(&j[i]);
    }
    assert_true(stats_of(&a).send_refused >= 20);
    free(m);
    end();
}

/* Bursts of small messages, of which some end just behind what one turn takes: none is left lying in the buffer. */
static void bursts(void **unused)
{
    int sent = 0;
    (void)unused;
    begin(NULL, NULL);
    for (int n = 2200; n < 2700; n += 11) {
        for (int i = 0; i < n; i++, sent++) {
            assert_int_equal(tcp_transport.send(a.ctx, a.c, &sent, sizeof sent), 0);
        }
        tcp_nodes_until(both, 2, has_message, &sent);
    }
    assert_int_equal(b.disorder, 0);
    end();
}

/* Both sides read from each other at once, over one connection. */
static void both_ways(void **unused)
{
    enum { N = 60 };
    struct tcp_job j[2 * N];
    (void)unused;
    tcp_node_open(&b, NULL, POOL);
    tcp_node_open(&a, NULL, POOL);
    tcp_nodes_pair(&a, &b);
    for (int i = 0; i < 2 * N; i++) {
        uint64_t bytes = 1 + draw_below(i % 3 ? 20000 : MIB);
        tcp_job_init(&j[i], i % 2 ? &b : &a, draw_below(POOL - (uint32_t)bytes), bytes, 2);
        tcp_job_post(&j[i]);
    }
    for (int i = 0; i < 2 * N; i++) {
        finish(&j[i]);
        assert_true(tcp_job_is_right(&j[i], i % 2 ? a.pool : b.pool));
        tcp_job_free(&j[i]);
    }
    end();
}

/* flush sends at once: the other side has it without a turn here. */
static void flushing(void **unused)
{
    int one = 1, two = 2;
    struct tcp_node *other[] = {&b};
    (void)unused;
    begin(NULL, NULL);
    assert_int_equal(tcp_transport.send(a.ctx, a.c, "x", 1), 0);
    tcp_transport.flush(a.ctx);
    tcp_nodes_until(other, 1, has_message, &one);
    /* Without flush the descriptor says that a turn is due. */
    assert_int_equal(tcp_transport.send(a.ctx, a.c, "y", 1), 0);
    tcp_nodes_turn((struct tcp_node *[]){&a}, 1, 10000);
    tcp_nodes_until(other, 1, has_message, &two);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(sizes_by_sendfile),
        cmocka_unit_test(sizes_through_small_sockets),
        cmocka_unit_test(a_large_one),
        cmocka_unit_test(scatter),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(refused),
        cmocka_unit_test(many),
        cmocka_unit_test(small_during_large),
        cmocka_unit_test(bulk_in_turn),
        cmocka_unit_test(cancel_in_the_middle),
        cmocka_unit_test(cancel_what_waits),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(disconnecting),
        cmocka_unit_test(stopped),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(messages),
        cmocka_unit_test(back_pressure),
        cmocka_unit_test(bursts),
        cmocka_unit_test(both_ways),
        cmocka_unit_test(flushing),
    };
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
