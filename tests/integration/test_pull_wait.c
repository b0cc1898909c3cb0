/* Waiting for keys of other nodes: until they are sealed there, or here, given up, their writer has ended, or time is
 * up. */
#include "tests/support/child.h"
#include "tests/support/nodes.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIZE 100000u
#define UNTIL berth_deadline(SECONDS(20))

struct waiter {
    pthread_t thread;
    struct berth *b;
    const char *key;
    uint8_t *buffer; /* NULL: get */
    long rc;
    bool good;
    struct berth_view v;
};

static void *wait_for(void *arg)
{
    struct waiter *w = arg;
    unsigned flags = BERTH_PEERS | BERTH_WAIT | BERTH_VERIFY;
    if (w->buffer) {
        w->rc = berth_get_into(w->b, key_of(w->key), w->buffer, SIZE, flags, UNTIL);
        w->good = w->rc == SIZE && payload_is(w->buffer, SIZE, w->key);
        return NULL;
    }
    w->rc = berth_get(w->b, key_of(w->key), &w->v, flags, UNTIL);
    w->good = w->rc == 0 && payload_is(w->v.data, w->v.size, w->key);
    if (w->rc == 0) {
        berth_release(w->b, &w->v, 1);
    }
    return NULL;
}

static void start(struct waiter *w)
{
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for, w), 0);
}

static void join(struct waiter *w)
{
    pthread_join(w->thread, NULL);
}

struct count {
    struct berth *b;
    double before;
};

static struct count waits_of(unsigned i)
{
    return (struct count){.b = node[i], .before = daemon_number(node[i], "counters.waits")};
}

static bool more(void *arg)
{
    struct count *c = arg;
    return daemon_number(c->b, "counters.waits") > c->before;
}

/* Until somebody waits at this node who did not when it was counted. */
static void await_waiter(struct count *c)
{
    assert_true(eventually(more, c, 20000));
}

static void create(unsigned i, const char *key, struct berth_draft *d)
{
    struct berth_put_opts o = {.size = sizeof o, .segment = 4096};
    assert_int_equal(berth_create(node[i], key_of(key), SIZE, &o, d), 0);
    payload_fill(d->data, SIZE, key);
}

static void sealed_elsewhere(void **state)
{
    static uint8_t buffer[SIZE];
    struct berth_draft d;
    (void)state;
    nodes_open(2, "");
    struct waiter w[] = {{.b = node[1], .key = "k"}, {.b = node[1], .key = "k", .buffer = buffer}};
    struct count c = waits_of(0);
    create(0, "k", &d);
    start(&w[0]);
    start(&w[1]);
    await_waiter(&c);
    assert_int_equal(berth_seal(node[0], &d, 1), 0);
    join(&w[0]);
    join(&w[1]);
    assert_true(w[0].good);
    assert_true(w[1].good);
}

static void put_elsewhere_by_nobody_yet(void **state)
{
    (void)state;
    nodes_open(2, "");
    struct waiter w = {.b = node[1], .key = "later"};
    struct count c = waits_of(1);
    start(&w);
    await_waiter(&c);
    nodes_put(0, "later", SIZE, 0);
    join(&w);
    assert_true(w.good);
}

static void put_here(void **state)
{
    static uint8_t buffer[SIZE];
    (void)state;
    nodes_open(2, "");
    struct waiter w[] = {{.b = node[1], .key = "here"}, {.b = node[1], .key = "here", .buffer = buffer}};
    struct count c = waits_of(1);
    start(&w[0]);
    start(&w[1]);
    await_waiter(&c);
    nodes_put(1, "here", SIZE, 0);
    join(&w[0]);
    join(&w[1]);
    assert_true(w[0].good);
    assert_true(w[1].good);
}

/* A draft at each node, given up: who waits at node 1 hears of it. */
static void given_up(void **state)
{
    struct berth_draft d;
    (void)state;
    nodes_open(2, "");
    for (unsigned i = 0; i < 2; i++) {
        struct waiter w = {.b = node[1], .key = i ? "mine" : "theirs"};
        struct count c = waits_of(i);
        create(i, w.key, &d);
        start(&w);
        await_waiter(&c);
        assert_int_equal(berth_abort(node[i], &d, 1), 0);
        join(&w);
        assert_int_equal(w.rc, BERTH_EABORTED);
    }
}

static int writes_and_waits(void *arg)
{
    struct berth *b;
    struct berth_draft d;
    (void)arg;
    CHECK(berth_open(&b, nodes_daemon.node, NULL) == 0);
    CHECK(berth_create(b, key_of("orphan"), SIZE, NULL, &d) == 0);
    child_tell('c');
    child_hear();
    return 0;
}

static void writer_dies(void **state)
{
    struct child c;
    (void)state;
    nodes_open_daemon(2);
    child_start(&c, writes_and_waits, NULL);
    assert_int_equal(parent_hear(&c, 20000), 'c');
    struct waiter w = {.b = node[0], .key = "orphan"};
    struct count waits = waits_of(1);
    start(&w);
    await_waiter(&waits);
    child_kill(&c);
    join(&w);
    assert_int_equal(w.rc, BERTH_EDIED);
}

static void time_is_up(void **state)
{
    struct berth_draft d;
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    create(0, "slow", &d);
    int64_t until = berth_deadline(SECONDS(1) / 3);
    assert_int_equal(berth_get(node[1], key_of("slow"), &v, BERTH_PEERS | BERTH_WAIT, until), -ETIMEDOUT);
    assert_true(berth_deadline(0) >= until && berth_deadline(0) < until + SECONDS(2));
    assert_int_equal(berth_seal(node[0], &d, 1), 0);
    assert_int_equal(berth_get(node[1], key_of("slow"), &v, BERTH_PEERS | BERTH_WAIT, UNTIL), 0);
    berth_release(node[1], &v, 1);
}

static void in_a_queue(void **state)
{
    struct berth_queue *q;
    struct berth_op *out;
    struct berth_view v;
    struct berth_draft d;
    (void)state;
    nodes_open(2, "");
    create(0, "q", &d);
    assert_int_equal(berth_queue_open(node[1], 4, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_GET,
                          .key = key_of("q"),
                          .view = &v,
                          .flags = BERTH_PEERS | BERTH_WAIT,
                          .deadline = BERTH_FOREVER};
    struct count c = waits_of(0);
    assert_int_equal(berth_submit(q, &op, 1), 1);
    await_waiter(&c);
    assert_int_equal(berth_seal(node[0], &d, 1), 0);
    assert_int_equal(berth_reap(q, &out, 1, UNTIL), 1);
    assert_int_equal(op.result, 0);
    assert_true(payload_is(v.data, v.size, "q"));
    berth_release(node[1], &v, 1);
    berth_queue_close(q);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, nodes_close)
    const struct CMUnitTest tests[] = {
        CASE(sealed_elsewhere), CASE(put_elsewhere_by_nobody_yet),
        CASE(put_here),         CASE(given_up),
        CASE(writer_dies),      CASE(time_is_up),
        CASE(in_a_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
