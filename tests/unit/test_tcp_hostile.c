/* test_tcp_hostile.c: the TCP transport against peers that break the protocol; and its codec. */
#include "replication/tcp_internal.h"
#include "tests/support/draw.h"
#include "tests/support/tcp_hand.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define POOL (1u << 20)
#define MS 1000000LL

static struct tcp_node n;
static struct tcp_node *one[] = {&n};

static struct transport_stats stats(void)
{
    struct transport_stats s;
    tcp_transport.stats(n.ctx, &s);
    return s;
}

/* ---- codec ---- */

static void codec(void **unused)
{
    static const struct frame good[] = {
        {.type = FRAME_MESSAGE, .length = TRANSPORT_MESSAGE_MAX},
        {.type = FRAME_READ,
         .flags = FRAME_BULK,
         .request = 1,
         .lease = 2,
         .generation = 3,
         .offset = 4,
         .bytes = 6,
         .allowed = 5},
        {.type = FRAME_GRANT, .request = UINT64_MAX, .allowed = 5},
        {.type = FRAME_CANCEL, .request = 9},
        {.type = FRAME_DONE, .request = 9},
        {.type = FRAME_DATA, .flags = FRAME_LAST, .request = 9, .offset = 1, .length = FRAME_DATA_MAX},
        {.type = FRAME_DATA, .flags = FRAME_LAST | FRAME_ERROR, .request = 9, .length = 2},
    };
    static const struct frame bad[] = {
        {.type = 0},
        {.type = 7},
        {.type = FRAME_MESSAGE},
        {.type = FRAME_MESSAGE, .length = TRANSPORT_MESSAGE_MAX + 1},
        {.type = FRAME_MESSAGE, .length = 1, .flags = 1},
        {.type = FRAME_MESSAGE, .length = 1, .lease = 1},
        {.type = FRAME_READ, .request = 1, .bytes = 0, .allowed = 0},
        {.type = FRAME_READ, .request = 1, .bytes = 5, .allowed = 6},
        {.type = FRAME_READ, .request = 1, .bytes = TRANSPORT_TRANSFER_MAX + 1, .allowed = 6},
        {.type = FRAME_READ, .flags = 2, .request = 1, .bytes = 5, .allowed = 5},
        {.type = FRAME_READ, .request = 1, .bytes = 5, .allowed = 5, .length = 1},
        {.type = FRAME_GRANT, .request = 1, .allowed = TRANSPORT_TRANSFER_MAX + 1},
        {.type = FRAME_CANCEL, .request = 1, .offset = 1},
        {.type = FRAME_DONE, .request = 1, .bytes = 1},
        {.type = FRAME_DATA, .request = 1, .length = 0},
        {.type = FRAME_DATA, .request = 1, .length = FRAME_DATA_MAX + 1},
        {.type = FRAME_DATA, .request = 1, .length = 5, .flags = FRAME_ERROR},
        {.type = FRAME_DATA, .request = 1, .length = 0, .flags = FRAME_ERROR | FRAME_LAST},
        {.type = FRAME_DATA, .request = 1, .length = FRAME_ERROR_MAX + 1, .flags = FRAME_ERROR | FRAME_LAST},
        {.type = FRAME_DATA, .request = 1, .length = 1, .offset = TRANSPORT_TRANSFER_MAX + 1},
    };
    uint8_t head[FRAME_BYTES];
    struct frame f;
    (void)unused;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *why = NULL;
        frame_encode(head, &good[i]);
        assert_int_equal(frame_decode(head, &f, &why), 0);
        assert_int_equal(memcmp(&f.request, &good[i].request, sizeof f - offsetof(struct frame, request)), 0);
        assert_int_equal(f.type + 100 * f.flags, good[i].type + 100 * good[i].flags);
        assert_int_equal(f.length, good[i].length);
        head[3] = 1;
        assert_int_equal(frame_decode(head, &f, &why), -EPROTO);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *why = NULL;
        frame_encode(head, &bad[i]);
        if (frame_decode(head, &f, &why) != -EPROTO || !why) {
            fail_msg("bad frame %zu was taken", i);
        }
    }
}

/* The bytes of a READ, as they are on the wire: a change of the layout is a change of the protocol. */
static void layout(void **unused)
{
    static const uint8_t expected[FRAME_BYTES] = {2, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3,
                                                  0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0,
                                                  0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 5};
    uint8_t head[FRAME_BYTES];
    (void)unused;
    frame_encode(head, &(struct frame){FRAME_READ, FRAME_BULK, 0, 0x0201, 3, 4, 5, 6, 5});
    assert_memory_equal(head, expected, sizeof head);
}

/* ---- a peer that breaks the protocol ---- */

static bool was_closed(void *unused)
{
    (void)unused;
    return n.closed > 0;
}

static void expect_protocol_end(const char *cause)
{
    tcp_nodes_until(one, 1, was_closed, NULL);
    if (n.status != -EPROTO || !strstr(n.why, cause)) {
        fail_msg("closed with %d, '%s', and not for '%s'", n.status, n.why, cause);
    }
    assert_int_equal(stats().protocol, 1);
    assert_int_equal(stats().connections, 0);
    assert_int_equal(stats().in_flight, 0);
}

#define READ_(...)                                                   \
    {                                                                \
        .type = FRAME_READ, .lease = 7, .generation = 8, __VA_ARGS__ \
    }

static void bad_reader(void **unused)
{
    static const struct {
        const char *cause;
        struct frame f[3];
        bool bulk_lane;
    } cases[] = {
        {"in use",
         {READ_(.flags = 1, .request = 512, .bytes = POOL, .allowed = 1),
          READ_(.flags = 1, .request = 1024, .bytes = 1, .allowed = 1)},
         false},
        {"in use", {READ_(.request = 0, .bytes = 1, .allowed = 1)}, false},
        {"too much on the control lane", {READ_(.request = 5, .bytes = 131073, .allowed = 131073)}, false},
        {"too much on the control lane", {READ_(.request = 5, .bytes = 4000, .allowed = 1)}, false},
        {"GRANT", {{.type = FRAME_GRANT, .request = 5, .allowed = 5}}, false},
        {"GRANT",
         {READ_(.flags = 1, .request = 5, .bytes = 10, .allowed = 1),
          {.type = FRAME_GRANT, .request = 5, .allowed = 11}},
         false},
        {"GRANT",
         {READ_(.flags = 1, .request = 5, .bytes = 10, .allowed = 2),
          {.type = FRAME_GRANT, .request = 5, .allowed = 1}},
         false},
        {"CANCEL", {{.type = FRAME_CANCEL, .request = 5}}, false},
        {"DONE", {{.type = FRAME_DONE, .request = 5}}, false},
        {"DONE",
         {READ_(.flags = 1, .request = 5, .bytes = 10, .allowed = 2), {.type = FRAME_DONE, .request = 5}},
         false},
        {"not open", {{.type = FRAME_DATA, .request = 5, .length = 5}}, false},
        {"not open", {{.type = FRAME_DATA, .request = 5, .length = 5}}, true},
        {"bulk lane", {READ_(.flags = 1, .request = 5, .bytes = 10, .allowed = 2)}, true},
        {"bulk lane", {{.type = FRAME_MESSAGE, .length = 1}}, true},
        {"no known type", {{.type = 99}}, false},
        {"bad length", {{.type = FRAME_MESSAGE, .length = TRANSPORT_MESSAGE_MAX + 1}}, false},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hand h;
        tcp_node_open(&n, NULL, POOL);
        hand_connect(&h);
        for (int k = 0; k < 3 && cases[i].f[k].type; k++) {
            hand_say_frame(cases[i].bulk_lane ? h.bulk : h.control, &cases[i].f[k]);
        }
        expect_protocol_end(cases[i].cause);
        assert_int_equal(n.served, n.admitted);
        assert_true(hand_is_closed(h.control) && hand_is_closed(h.bulk));
        hand_hang_up(&h);
    }
}

/* The node reads; we answer. bulk: a read of 1 MiB, else of 4096 bytes. */
static void bad_owner_case(size_t i, bool bulk, bool data_on_bulk, struct frame f, size_t payload, const char *cause)
{
    struct hand h;
    struct tcp_job j;
    uint8_t head[FRAME_BYTES], zero[8192] = {0};
    struct frame got;
    const char *why;
    tcp_node_open(&n, NULL, 0);
    hand_be_connected(&h);
    tcp_job_init(&j, &n, 0, bulk ? POOL : 4096, 1);
    tcp_job_post(&j);
    assert_int_equal(hand_hear(h.control, head, sizeof head), sizeof head);
    assert_int_equal(frame_decode(head, &got, &why), 0);
    assert_int_equal(got.type, FRAME_READ);
    f.type = FRAME_DATA;
    f.request += got.request;
    hand_say_frame(data_on_bulk ? h.bulk : h.control, &f);
    if (payload) {
        hand_say(data_on_bulk ? h.bulk : h.control, zero, payload);
        hand_say_frame(data_on_bulk ? h.bulk : h.control, &f);
    }
    expect_protocol_end(cause);
    if (j.completions != 1 || j.t.status != (payload == j.t.bytes ? 0 : -ECONNRESET)) {
        fail_msg("case %zu: status %d", i, j.t.status);
    }
    tcp_job_free(&j);
    hand_hang_up(&h);
}

static void bad_owner(void **unused)
{
    static const struct {
        const char *cause;
        struct frame f;
        size_t payload;
        bool bulk, data_on_bulk;
    } cases[] = {
        {"not open", {.request = 1, .length = 5}, 0, false, false},
        {"not open", {.request = 512, .length = 5}, 0, true, true},
        {"wrong lane", {.length = 5}, 0, false, true},
        {"wrong lane", {.length = 5}, 0, true, false},
        {"wrong offset", {.length = 5, .offset = 1}, 0, true, true},
        {"wrong offset", {.length = 5, .offset = 0}, 5, true, true},
        {"wrong offset", {.length = 1, .offset = 5, .flags = FRAME_LAST | FRAME_ERROR}, 0, true, true},
        {"beyond", {.length = 4097, .flags = FRAME_LAST}, 0, false, false},
        {"beyond", {.length = POOL + 1}, 0, true, true},
        {"ends where", {.length = 4095, .flags = FRAME_LAST}, 0, false, false},
        {"ends where", {.length = 4096}, 0, false, false},
        {"not open", {.length = 4096, .flags = FRAME_LAST}, 4096, false, false},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad_owner_case(i, cases[i].bulk, cases[i].data_on_bulk, cases[i].f, cases[i].payload, cases[i].cause);
    }
}

/* Data that lies in the read-ahead buffer before its READ was sent must not reach a destination. */
static struct tcp_job early;

static void post_early(void *env, struct connection *c, const void *bytes, size_t size)
{
    (void)env, (void)bytes, (void)size;
    if (early.completions == 0 && early.t.state == TRANSFER_IDLE) {
        assert_int_equal(tcp_transport.read(n.ctx, c, &early.t), 0);
    }
}

static void data_before_read(void **unused)
{
    struct hand h;
    uint8_t bytes[FRAME_BYTES + 4 + FRAME_BYTES + 100] = {0};
    (void)unused;
    tcp_node_open(&n, NULL, 0);
    hand_be_connected(&h);
    ((struct tcp *)n.ctx)->events.message = post_early;
    tcp_job_init(&early, &n, 0, 100, 1);
    frame_encode(bytes, &(struct frame){.type = FRAME_MESSAGE, .length = 4});
    frame_encode(bytes + FRAME_BYTES + 4,
                 &(struct frame){.type = FRAME_DATA, .flags = FRAME_LAST, .request = REQUESTS_MAX, .length = 100});
    hand_say(h.control, bytes, sizeof bytes); /* the first request's id can be guessed */
    expect_protocol_end("before it was asked for");
    assert_int_equal(early.completions, 1);
    assert_true(tcp_job_is_poison(&early));
    tcp_job_free(&early);
    hand_hang_up(&h);
}

/* A peer that keeps what was cancelled open for ever is let go, and with it the window that it holds. */
static void never_ends(void **unused)
{
    struct hand h;
    struct tcp_job j;
    (void)unused;
    tcp_node_open(&n, &(struct transport_config){.silence_ns = 200 * MS}, 0);
    hand_be_connected(&h);
    tcp_job_init(&j, &n, 0, POOL, 1);
    tcp_job_post(&j);
    assert_int_equal(tcp_transport.cancel(n.ctx, &j.t), 0);
    assert_int_equal(stats().in_flight, POOL);
    tcp_nodes_until(one, 1, was_closed, NULL);
    assert_int_equal(n.status, -ETIMEDOUT);
    assert_int_equal(stats().in_flight, 0);
    tcp_job_free(&j);
    hand_hang_up(&h);
}

/* Random frames, good and bad ones: whatever comes, the node stays whole and every serve ends once. */
static void random_frames(void **unused)
{
    (void)unused;
    for (int round = 0; round < 150; round++) {
        struct hand h;
        tcp_node_open(&n, NULL, POOL);
        hand_connect(&h);
        for (int i = 0; i < 40 && !n.closed; i++) {
            struct frame f = {.type = (uint8_t)(1 + draw_below(6)), .request = draw_below(3) * 512 + draw_below(3)};
            f.flags = f.type == FRAME_READ && draw_below(2);
            f.lease = f.type == FRAME_READ ? 7 : 0;
            f.generation = f.type == FRAME_READ ? 8 : 0;
            f.bytes = f.type == FRAME_READ ? 1 + draw_below(30000) : 0;
            f.allowed = f.type == FRAME_READ ? f.bytes : f.type == FRAME_GRANT ? draw_below(30000) : 0;
            f.length = f.type == FRAME_MESSAGE || f.type == FRAME_DATA ? 1 + draw_below(64) : 0;
            uint8_t head[FRAME_BYTES];
            frame_encode(head, &f);
            if (draw_below(10) == 0) {
                head[draw_below(FRAME_BYTES)] ^= (uint8_t)(1u << draw_below(8));
            }
            if (send(draw_below(8) ? h.control : h.bulk, head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
                break;
            }
            tcp_nodes_turn(one, 1, 0);
        }
        close(h.control), close(h.bulk);
        tcp_nodes_until(one, 1, was_closed, NULL);
        assert_int_equal(n.served, n.admitted);
        tcp_node_close(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codec),         cmocka_unit_test(layout),           cmocka_unit_test(bad_reader),
        cmocka_unit_test(bad_owner),     cmocka_unit_test(data_before_read), cmocka_unit_test(never_ends),
        cmocka_unit_test(random_frames),
    };
    hand_node = &n;
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
