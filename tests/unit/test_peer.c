/* A connection that is up: requests and their ends, the other side's faults, keep-alive. */
#include "tests/support/pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct pair p;

static int setup(void **unused)
{
    (void)unused;
    pair_init(&p);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    pair_close(&p);
    return 0;
}

static struct peer_stats stats(unsigned side)
{
    struct peer_stats s;
    peer_stats(p.side[side].peer, &s);
    return s;
}

/* ---- requests ---- */

static void test_request(void **unused)
{
    (void)unused;
    pair_up(&p);
    peer_counter(p.side[0].peer, 500);
    peer_counter(p.side[0].peer, 400); /* never back */
    assert_int_equal(pair_lease(&p, 0, 3, WIRE_WAIT, p.now + 70 * MS, 11), 0);
    assert_int_equal(stats(0).pending, 1);
    p.now += 10 * MS;
    pair_all(&p);
    assert_int_equal(p.side[1].requests, 1);
    assert_int_equal(p.side[1].request.head.op, WIRE_LEASE);
    assert_int_equal(p.side[1].request.head.flags, WIRE_WAIT);
    assert_int_equal(p.side[1].request.head.time_left, 70 * MS);
    assert_int_equal(p.side[1].deadline, p.now + 70 * MS);
    assert_int_equal(stats(1).counter, 500);
    assert_int_equal(stats(1).serving, 1);
    assert_int_equal(pair_answer(&p, 1, 0, -ENOENT, false), 0);
    pair_all(&p);
    assert_int_equal(p.side[0].ended[11], 1);
    assert_int_equal(p.side[0].status[11], 0);
    assert_int_equal(p.side[0].answer.head.count, 3);
    assert_int_equal(stats(0).pending, 0);
    assert_int_equal(stats(1).serving, 0);
    assert_int_equal(pair_lease(&p, 1, 1, 0, INT64_MAX, 12), 0); /* the other way, for ever, refused as a whole */
    pair_all(&p);
    assert_int_equal(p.side[0].deadline, INT64_MAX);
    assert_int_equal(pair_answer(&p, 0, 0, BERTH_EFULL, true), 0);
    pair_all(&p);
    assert_int_equal(p.side[1].status[12], BERTH_EFULL);
    assert_int_equal(pair_release(&p, 0), 0);
    pair_all(&p);
    assert_int_equal(p.side[1].request.head.op, WIRE_RELEASE);
    assert_int_equal(p.side[1].request.head.counter, 500);
}

static void test_wrong_calls(void **unused)
{
    (void)unused;
    pair_open(&p);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 1), -ENOTCONN);
    assert_int_equal(pair_release(&p, 0), -ENOTCONN);
    pair_close(&p);
    pair_init(&p);
    p.config[1].self.largest = WIRE_MESSAGE_MIN;
    pair_up(&p);
    assert_int_equal(pair_lease(&p, 0, 256, 0, INT64_MAX, 1), -EMSGSIZE);
    assert_int_equal(pair_lease(&p, 1, 256, 0, INT64_MAX, 1), 0);
    assert_int_equal(pair_lease(&p, 0, 1, 0, p.now, 1), -ETIMEDOUT);
    uint8_t bytes[WIRE_HELLO_MAX];
    struct wire_writer w;
    struct wire_message m = {.head = {.op = WIRE_STATED, .id = 1}};
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    long n = wire_end(&w);
    assert_int_equal(peer_ask(p.side[0].peer, bytes, (size_t)n, INT64_MAX, INT64_MAX, 1, p.now, NULL), -EINVAL);
    assert_int_equal(peer_tell(p.side[0].peer, bytes, (size_t)n), -EINVAL);
    assert_int_equal(peer_answer(p.side[0].peer, bytes, (size_t)n, 1), -ENOENT);
    pair_all(&p); /* now request 1 is open here: a LEASE, which STATED does not answer */
    assert_int_equal(peer_answer(p.side[0].peer, bytes, (size_t)n, 1), -EINVAL);
    assert_int_equal(peer_answer(p.side[0].peer, bytes, 7, 1), -EINVAL);
    assert_int_equal(pair_answer(&p, 0, 0, -ENOENT, false), 0);
    pair_all(&p);
    assert_int_equal(p.side[1].ended[1], 1);
}

static void test_pressure(void **unused)
{
    (void)unused;
    p.config[0].pending_max = 5;
    pair_up(&p);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, i), 0);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 5), -EAGAIN);
    assert_int_equal(stats(0).again, 1);
    pair_all(&p);
    assert_int_equal(pair_answer(&p, 1, 2, -ENOENT, false), 0); /* out of order */
    pair_all(&p);
    assert_int_equal(p.side[0].ended[2], 1);
    assert_int_equal(p.side[0].answered, 1);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 5), 0);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 6), -EAGAIN);
}

/* 1,024 under way, one of them for ever: ids go around its place. */
static void test_full_table(void **unused)
{
    (void)unused;
    pair_up(&p);
    for (unsigned i = 0; i < PEER_PENDING_MAX; i++)
        assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, i), 0);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 5000), -EAGAIN);
    pair_all(&p);
    assert_int_equal(p.side[1].n_open, PEER_PENDING_MAX);
    while (p.side[1].n_open > 1)
        pair_answer(&p, 1, 1, -ENOENT, false);
    pair_all(&p);
    assert_int_equal(stats(0).pending, 1);
    for (unsigned i = 0; i < 3000; i++) {
        assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 10000 + i), 0);
        pair_all(&p);
        assert_int_equal(pair_answer(&p, 1, 1, -ENOENT, false), 0);
        pair_all(&p);
        assert_int_equal(p.side[0].ended[10000 + i], 1);
    }
    assert_int_equal(stats(1).busy, 0);
    assert_int_equal(pair_answer(&p, 1, 0, -ENOENT, false), 0);
    pair_all(&p);
    assert_int_equal(p.side[0].ended[0], 1);
}

/* Who gives up and asks on does not pile up work here: what finds its place taken is answered -EAGAIN. */
static void test_busy(void **unused)
{
    (void)unused;
    pair_up(&p);
    for (unsigned i = 0; i < PEER_PENDING_MAX; i++)
        assert_int_equal(pair_lease(&p, 0, 1, 0, p.now + 10 * MS, i), 0);
    pair_all(&p);
    p.now += 10 * MS;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].answered, PEER_PENDING_MAX);
    assert_int_equal(p.side[0].status[17], -ETIMEDOUT);
    assert_int_equal(pair_lease(&p, 0, 1, 0, INT64_MAX, 3000), 0);
    pair_all(&p);
    assert_int_equal(p.side[0].status[3000], -EAGAIN);
    assert_int_equal(stats(1).busy, 1);
    assert_int_equal(stats(1).serving, PEER_PENDING_MAX);
    assert_int_equal(pair_answer(&p, 1, 7, -ENOENT, false), 0); /* late: dropped, counted */
    pair_all(&p);
    assert_int_equal(stats(0).strays, 1);
    assert_int_equal(p.side[0].answered, PEER_PENDING_MAX + 1);
    assert_int_equal(p.side[0].closes, 0);
}

static void test_timeout(void **unused)
{
    (void)unused;
    pair_up(&p);
    assert_int_equal(pair_lease(&p, 0, 1, 0, p.now + 50 * MS, 1), 0);
    assert_int_equal(pair_lease(&p, 0, 1, 0, p.now + 20 * MS, 2), 0);
    assert_int_equal(peer_timer(p.side[0].peer), p.now + 20 * MS);
    p.now += 20 * MS - 1;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].answered, 0);
    p.now++;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].status[2], -ETIMEDOUT);
    assert_int_equal(p.side[0].ended[1], 0);
    assert_int_equal(peer_timer(p.side[0].peer), p.now + 30 * MS);
    assert_int_equal(stats(0).timeouts, 1);
}

/* ---- the other side's faults ---- */

static void expect_closed(int32_t status, const char *text)
{
    assert_int_equal(p.side[0].closes, 1);
    assert_int_equal(p.side[0].close_status, status);
    assert_non_null(strstr(p.side[0].text, text));
    assert_int_equal(p.side[0].ended[1], 1); /* what was under way */
    assert_int_equal(p.side[0].status[1], status == BERTH_ENODE ? BERTH_ENODE : -ECONNRESET);
    pair_event(&p, 0, PEER_EV_CLOSED, 0);
    assert_int_equal(p.side[0].downs, 1);
    assert_int_equal(p.side[0].down_status, status);
}

static void up_and_asked(void)
{
    pair_close(&p);
    pair_init(&p);
    pair_up(&p);
    assert_int_equal(pair_lease(&p, 0, 2, 0, INT64_MAX, 1), 0);
    pair_forget(&p, 0);
}

static void test_faults(void **unused)
{
    (void)unused;
    struct wire_message m = {.head = {.op = WIRE_STATED, .id = 1}};
    up_and_asked(); /* another op's answer */
    pair_inject_message(&p, 0, &m);
    expect_closed(-EPROTO, "STATED");
    up_and_asked(); /* the same, refused as a whole, so that no count gives it away */
    m = (struct wire_message){.head = {.op = WIRE_STATED, .id = 1}, .status = -ENOENT};
    pair_inject_message(&p, 0, &m);
    expect_closed(-EPROTO, "STATED");
    up_and_asked(); /* too few items */
    m = (struct wire_message){.head = {.op = WIRE_LEASED, .id = 1}};
    pair_inject_message(&p, 0, &m);
    expect_closed(-EPROTO, "does not answer LEASE of 2");
    up_and_asked(); /* not a message at all */
    pair_inject(&p, 0, "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n", 43);
    expect_closed(-EPROTO, wire_fault_text(WIRE_FAULT_SIZE));
    up_and_asked(); /* a request id twice */
    m = (struct wire_message){.head = {.op = WIRE_STATE, .id = 9}};
    pair_inject_message(&p, 0, &m);
    assert_int_equal(p.side[0].requests, 1);
    pair_inject_message(&p, 0, &m);
    expect_closed(-EPROTO, "STATE has a request id");
    assert_int_equal(p.side[0].requests, 1);
    up_and_asked(); /* a second HELLO */
    m = (struct wire_message){.head = {.op = WIRE_HELLO},
                              .hello = {.version_min = 1, .version_max = 1, .largest = 4096, .node = {"x", 1}}};
    pair_inject_message(&p, 0, &m);
    expect_closed(-EPROTO, "no place");
}

/* An answer that nobody waits for is no fault. A run may have fewer items. */
static void test_strays(void **unused)
{
    (void)unused;
    pair_up(&p);
    struct wire_message m = {.head = {.op = WIRE_LEASED, .id = 3}};
    pair_inject_message(&p, 0, &m);
    m = (struct wire_message){.head = {.op = WIRE_PONG}, .token = 77};
    pair_inject_message(&p, 0, &m);
    assert_int_equal(stats(0).strays, 2);
    assert_int_equal(p.side[0].closes, 0);
    assert_int_equal(pair_lease(&p, 0, 5, WIRE_PREFIX, INT64_MAX, 1), 0);
    m = (struct wire_message){.head = {.op = WIRE_LEASED, .id = 1 + PEER_PENDING_MAX}}; /* the place, another id */
    pair_inject_message(&p, 0, &m);
    assert_int_equal(stats(0).strays, 3);
    assert_int_equal(p.side[0].ended[1], 0);
    m = (struct wire_message){.head = {.op = WIRE_LEASED, .id = 1}};
    pair_inject_message(&p, 0, &m);
    assert_int_equal(p.side[0].ended[1], 1);
    assert_int_equal(p.side[0].answer.head.count, 0);
}

/* Messages for which nothing larger than a greeting may be sent, before anybody said who he is. */
static void test_large_before_up(void **unused)
{
    (void)unused;
    uint8_t bytes[WIRE_HELLO_MAX * 2], key[KEY_MAX] = {0};
    struct wire_writer w;
    struct wire_message m = {.head = {.op = WIRE_LEASE, .id = 1}};
    struct wire_item item = {.key = {.data = key, .size = KEY_MAX}};
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(wire_add(&w, &item), 0);
    pair_open(&p);
    pair_inject(&p, 1, bytes, (size_t)wire_end(&w));
    assert_int_equal(p.side[1].close_status, -EPROTO);
    assert_string_equal(p.side[1].text, wire_fault_text(WIRE_FAULT_SIZE));
}

/* ---- ends ---- */

static void test_goodbye(void **unused)
{
    (void)unused;
    up_and_asked();
    assert_int_equal(peer_stop(p.side[1].peer, p.now), 0);
    pair_drain(&p, 1);
    assert_int_equal(peer_stop(p.side[1].peer, p.now), 0); /* once more: nothing */
    pair_all(&p);
    assert_int_equal(p.side[1].closes, 1);
    expect_closed(BERTH_ENODE, "'node-b' has stopped");
    pair_event(&p, 1, PEER_EV_CLOSED, -EPIPE);
    assert_int_equal(p.side[1].down_status, 0);
    pair_event(&p, 1, PEER_EV_TICK, 0); /* and after the end nothing */
    assert_int_equal(pair_lease(&p, 1, 1, 0, INT64_MAX, 3), -ENOTCONN);
}

static void test_closed(void **unused)
{
    (void)unused;
    static const int32_t status[] = {0, -ECONNRESET, -ENETUNREACH};
    for (unsigned i = 0; i < 3; i++) {
        up_and_asked();
        pair_event(&p, 0, PEER_EV_CLOSED, status[i]);
        assert_int_equal(p.side[0].closes, 0);
        assert_int_equal(p.side[0].status[1], -ECONNRESET);
        assert_int_equal(p.side[0].downs, 1);
        assert_int_equal(p.side[0].down_status, status[i] ? status[i] : -ECONNRESET);
    }
    pair_close(&p);
    pair_init(&p);
    pair_open(&p);
    pair_event(&p, 0, PEER_EV_CLOSED, -ECONNREFUSED);
    assert_int_equal(p.side[0].down_status, -ECONNREFUSED);
}

static void test_undrained(void **unused)
{
    (void)unused;
    pair_open(&p);
    struct peer_event opened = {.kind = PEER_EV_OPENED};
    assert_int_equal(peer_event(p.side[0].peer, &opened, p.now), 0);
    assert_int_equal(peer_event(p.side[0].peer, &opened, p.now), -EBUSY);
    pair_drain(&p, 0);
    assert_int_equal(peer_event(p.side[0].peer, &opened, p.now), 0); /* a second one: nothing */
    assert_null(peer_command(p.side[0].peer));
}

/* The other side is told the deadline; what it answers later is heard until this side stops to wait. */
static void test_late_answer(void **unused)
{
    (void)unused;
    struct wire_message m = {.head = {.op = WIRE_LEASED, .id = 1, .count = 1}};
    for (unsigned late = 0; late < 2; late++) {
        pair_close(&p);
        pair_init(&p);
        pair_up(&p);
        int64_t deadline = p.now + 100 * MS, until = p.now + 300 * MS;
        assert_int_equal(pair_lease_until(&p, 0, 1, 0, deadline, deadline - 1, 5), -EINVAL);
        assert_int_equal(pair_lease_until(&p, 0, 1, 0, deadline, until, 5), 0);
        struct pair_side *s = &p.side[0];
        assert_int_equal(wire_peek(s->queue[s->head % PAIR_QUEUE].bytes).time_left, 100 * MS);
        pair_forget(&p, 0);
        p.now = late ? until : until - 1;
        pair_event(&p, 0, PEER_EV_TICK, 0);
        assert_int_equal(s->ended[5], late);
        m.status = -ENOENT;
        m.head.count = 0;
        pair_inject_message(&p, 0, &m);
        assert_int_equal(s->ended[5], 1);
        assert_int_equal(s->status[5], late ? -ETIMEDOUT : -ENOENT);
        assert_int_equal(stats(0).strays, late);
    }
}

/* ---- keep-alive ---- */

static void test_ping(void **unused)
{
    (void)unused;
    pair_up(&p);
    int64_t began = p.now;
    assert_int_equal(peer_timer(p.side[0].peer), began + PEER_SILENCE_NS);
    p.now = began + PEER_SILENCE_NS - 1;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(stats(0).pings, 0);
    p.now++;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(stats(0).pings, 1);
    p.now += 3 * MS;
    pair_all(&p);
    assert_int_equal(stats(0).rtt_ns, 3 * MS);
    assert_int_equal(peer_timer(p.side[0].peer), p.now + PEER_SILENCE_NS);
    for (unsigned i = 0; i < 100; i++) { /* an hour of silence but for this */
        p.now += PEER_SILENCE_NS;
        pair_event(&p, 0, PEER_EV_TICK, 0);
        pair_event(&p, 1, PEER_EV_TICK, 0);
        pair_all(&p);
    }
    assert_int_equal(p.side[0].closes + p.side[1].closes, 0);
    assert_int_equal(stats(0).strays + stats(1).strays, 0);
}

static void test_silent(void **unused)
{
    (void)unused;
    up_and_asked();
    int64_t began = p.now;
    assert_int_equal(pair_lease(&p, 0, 1, 0, began + PEER_GONE_NS, 2), 0); /* two ends at once: it takes one */
    while (!p.side[0].closes) {
        p.now = peer_timer(p.side[0].peer);
        assert_true(p.now <= began + PEER_GONE_NS);
        pair_event(&p, 0, PEER_EV_TICK, 0);
    }
    assert_int_equal(p.now, began + PEER_GONE_NS);
    assert_int_equal(stats(0).pings, 2);
    expect_closed(BERTH_ENODE, "nothing heard of 'node-b' for 3000 ms");
    assert_int_equal(p.side[0].status[2], -ETIMEDOUT);
}

/* A process that was stopped for a minute asks before it gives up; and payload is a sign of life. */
static void test_stopped(void **unused)
{
    (void)unused;
    pair_up(&p);
    p.now += 60000 * MS;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].closes, 0);
    assert_int_equal(stats(0).pings, 1);
    pair_all(&p);
    assert_int_equal(peer_timer(p.side[0].peer), p.now + PEER_SILENCE_NS);
    for (unsigned i = 0; i < 10; i++) {
        p.now += PEER_SILENCE_NS - 1;
        peer_event(p.side[0].peer, &(struct peer_event){.kind = PEER_EV_ALIVE, .at = p.now}, p.now);
        pair_event(&p, 0, PEER_EV_TICK, 0);
    }
    assert_int_equal(stats(0).pings, 1);
    p.now += 60000 * MS;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    p.now += PEER_GONE_NS - PEER_SILENCE_NS - 1;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].closes, 0);
    p.now++;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].close_status, BERTH_ENODE);
}

/* What was received is said later: it counts from when it came, not from when it is said, and what came before a PING
 * answers no PING. */
static void test_alive_late(void **unused)
{
    (void)unused;
    pair_up(&p);
    int64_t heard = p.now + PEER_SILENCE_NS - 10 * MS;
    p.now += PEER_SILENCE_NS;
    peer_event(p.side[0].peer, &(struct peer_event){.kind = PEER_EV_ALIVE, .at = heard}, p.now);
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(stats(0).pings, 0);
    assert_int_equal(peer_timer(p.side[0].peer), heard + PEER_SILENCE_NS);
    p.now = heard + PEER_SILENCE_NS;
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(stats(0).pings, 1);
    p.now = heard + PEER_GONE_NS;
    peer_event(p.side[0].peer, &(struct peer_event){.kind = PEER_EV_ALIVE, .at = heard - 1}, p.now);
    peer_event(p.side[0].peer, &(struct peer_event){.kind = PEER_EV_ALIVE, .at = heard}, p.now);
    pair_event(&p, 0, PEER_EV_TICK, 0);
    assert_int_equal(p.side[0].close_status, BERTH_ENODE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_request),    T(test_wrong_calls), T(test_pressure), T(test_full_table),      T(test_busy),
        T(test_timeout),    T(test_faults),      T(test_strays),   T(test_large_before_up), T(test_goodbye),
        T(test_closed),     T(test_undrained),   T(test_ping),     T(test_silent),          T(test_stopped),
        T(test_alive_late), T(test_late_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
