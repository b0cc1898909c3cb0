/* Pulls that can't be answered yet, over processes of their own: this node stops and starts again, a member is down,
 * the owner gives no more leases for now, this node's pool has no room yet. What can come by the deadline is waited
 * for. */
#include "tests/support/berthds.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECONDS(n) ((n)*INT64_C(1000000000))
#define UNTIL berth_deadline(SECONDS(30))
#define SIZE 5000u

static void put(unsigned node, const char *key)
{
    uint8_t data[SIZE];
    payload_fill(data, sizeof data, key);
    assert_int_equal(berth_put(berthds.b[node], key_of(key), data, sizeof data, NULL), 0);
}

struct waiter {
    pthread_t thread;
    struct berth *b;
    const char *key;
    int64_t deadline;
    unsigned kind; /* get, get_into, an operation of a queue */
    long rc;
    bool good;
};

static long get(struct waiter *w, unsigned flags)
{
    struct berth_view v;
    long rc = berth_get(w->b, key_of(w->key), &v, flags, w->deadline);
    if (rc == 0) {
        w->good = payload_is(v.data, v.size, w->key);
        berth_release(w->b, &v, 1);
    }
    return rc;
}

static long get_queued(struct waiter *w, unsigned flags)
{
    uint8_t data[SIZE];
    struct berth_op op = {.opcode = BERTH_OP_GET_INTO,
                          .key = key_of(w->key),
                          .data = data,
                          .size = sizeof data,
                          .flags = flags,
                          .deadline = w->deadline},
                    *done;
    struct berth_queue *q;
    if (berth_queue_open(w->b, 1, &q) || berth_submit(q, &op, 1) != 1 ||
        berth_reap(q, &done, 1, w->deadline + SECONDS(5)) != 1) {
        return -EPROTO;
    }
    berth_queue_close(q);
    w->good = op.result == SIZE && payload_is(data, SIZE, w->key);
    return op.result < 0 ? op.result : 0;
}

static void *wait_for(void *arg)
{
    struct waiter *w = arg;
    uint8_t data[SIZE];
    unsigned flags = BERTH_PEERS | BERTH_WAIT;
    if (w->kind == 1) {
        w->rc = berth_get_into(w->b, key_of(w->key), data, sizeof data, flags, w->deadline);
        w->good = w->rc == SIZE && payload_is(data, SIZE, w->key);
        w->rc = w->rc < 0 ? w->rc : 0;
    } else {
        w->rc = w->kind ? get_queued(w, flags) : get(w, flags);
    }
    return NULL;
}

static void start(struct waiter *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(pthread_create(&w[i].thread, NULL, wait_for, &w[i]), 0);
    }
}

static void join(struct waiter *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        pthread_join(w[i].thread, NULL);
    }
}

struct now {
    unsigned node;
    double requests;
};

static bool asked(void *arg)
{
    const struct now *a = arg;
    return daemon_number(berthds.b[a->node], "pull.now.requests") >= a->requests;
}

static void await_requests(unsigned node, unsigned n)
{
    struct now a = {.node = node, .requests = n};
    assert_true(eventually(asked, &a, BERTHDS_SOON_MS));
}

/* Asked by clients of another process, which attach again: the next node is asked. */
static void test_own_node_stops(void **unused)
{
    (void)unused;
    berthds_start(2, 2, "1h", "60s");
    struct waiter w[6];
    for (unsigned i = 0; i < 6; i++) {
        w[i] =
            (struct waiter){.b = daemon_open(&berthds.d[1], "waits"), .key = "later", .deadline = UNTIL, .kind = i % 3};
    }
    start(w, 6);
    await_requests(1, 6);
    assert_int_equal(daemon_stop(&berthds.d[1]), 0);
    daemon_again(&berthds.d[1]);
    put(0, "later");
    join(w, 6);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(w[i].rc, 0);
        assert_true(w[i].good);
        berth_close(w[i].b);
    }
    berthds_end();
}

/* A home that is down may have it, which nobody can say: who waits goes on, until it is back, or time is up. */
static void test_member_is_down(void **unused)
{
    (void)unused;
    struct berth_view v;
    berthds_start(3, 2, "1h", "60s");
    put(2, "there");
    berthds_quiet();
    berthds_kill(2);
    struct waiter w[4];
    static const char *const keys[] = {"there", "later", "there", "later"};
    for (unsigned i = 0; i < 4; i++) {
        w[i] =
            (struct waiter){.b = daemon_open(&berthds.d[1], "waits"), .key = keys[i], .deadline = UNTIL, .kind = i % 3};
    }
    start(w, 4);
    await_requests(1, 4);
    assert_int_equal(berth_get(berthds.b[0], key_of("there"), &v, BERTH_PEERS, UNTIL), BERTH_EUNSURE);
    int64_t until = berth_deadline(SECONDS(1));
    assert_int_equal(berth_get(berthds.b[0], key_of("there"), &v, BERTH_PEERS | BERTH_WAIT, until), -ETIMEDOUT);
    assert_true(berth_deadline(0) >= until);
    put(0, "later");
    berthds_again(2);
    join(w, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(w[i].rc, 0);
        assert_true(w[i].good);
        berth_close(w[i].b);
    }
    berthds_end();
}

#define LARGE (1u << 20)
#define BATCH 7u

static void put_large(unsigned node, const char *key)
{
    static uint8_t data[LARGE];
    payload_fill(data, sizeof data, key);
    assert_int_equal(berth_put(berthds.b[node], key_of(key), data, sizeof data, NULL), 0);
}

/* Objects of 7 MiB together, where an owner gives one peer leases on 4 MiB: they come in turns. */
static void test_lease_quota(void **unused)
{
    (void)unused;
    static char text[2 * BATCH][8];
    struct berth_key keys[2 * BATCH];
    struct berth_view v[BATCH];
    berthds_start(2, 1, "1h", "60s"); /* of some keys the owner is the home, too, and gives leases unasked */
    for (unsigned i = 0; i < 2 * BATCH; i++) {
        snprintf(text[i], sizeof text[i], "b%u", i);
        keys[i] = key_of(text[i]);
        put_large(0, text[i]);
    }
    berthds_quiet();
    assert_int_equal(berth_get_many(berthds.b[1], keys, BATCH, v, BERTH_PEERS, UNTIL), BATCH);
    for (unsigned i = 0; i < BATCH; i++) {
        assert_int_equal(v[i].status, 0);
        assert_true(payload_is(v[i].data, v[i].size, text[i]));
    }
    berth_release(berthds.b[1], v, BATCH);
    assert_int_equal(berth_prefix(berthds.b[1], keys + BATCH, BATCH, v, BERTH_PEERS, UNTIL), BATCH);
    for (unsigned i = 0; i < BATCH; i++) {
        assert_true(payload_is(v[i].data, v[i].size, text[BATCH + i]));
    }
    berth_release(berthds.b[1], v, BATCH);
    berthds_end();
}

static bool timed_out(void *arg)
{
    return daemon_number(berthds.b[1], "counters.timeouts") > *(double *)arg;
}

static void expect_figures(int code)
{
    struct berth_error_info e;
    assert_int_equal(berth_error(NULL, &e), code);
    assert_true(e.figure[0] >= SIZE && e.figure[0] < LARGE); /* asked */
    assert_true(e.figure[1] < LARGE);                        /* free */
    assert_true(e.figure[3] >= 8 * LARGE);                   /* in use */
}

/* Readers keep all of this node's pool. */
static void test_no_room(void **unused)
{
    (void)unused;
    static uint8_t data[LARGE];
    struct berth_view v[64], none;
    unsigned n = 0;
    int rc = 0;
    berthds_start(2, 2, "1h", "60s");
    put(0, "comes");
    for (size_t size = LARGE; size >= 4096; size /= 2) {
        for (rc = 0; rc == 0 && n < 64; n += rc == 0) {
            char key[16];
            snprintf(key, sizeof key, "full%u", n);
            rc = berth_put(berthds.b[1], key_of(key), data, size, NULL);
            rc = rc ? rc : berth_get(berthds.b[1], key_of(key), &v[n], 0, BERTH_NOW);
        }
    }
    assert_int_equal(rc, BERTH_EFULL);
    assert_int_equal(berth_get(berthds.b[1], key_of("comes"), &none, BERTH_PEERS, berth_deadline(SECONDS(1) / 4)),
                     -ETIMEDOUT);
    expect_figures(-ETIMEDOUT);
    assert_int_equal(berth_get(berthds.b[1], key_of("comes"), &none, BERTH_PEERS, BERTH_FOREVER), BERTH_EFULL);
    expect_figures(BERTH_EFULL);
    double before = daemon_number(berthds.b[1], "counters.timeouts");
    struct waiter w = {.b = daemon_open(&berthds.d[1], "waits"), .key = "comes", .deadline = UNTIL};
    start(&w, 1);
    assert_true(eventually(timed_out, &before, BERTHDS_SOON_MS)); /* the node has given it up once, and goes on */
    berth_release(berthds.b[1], v, n);
    join(&w, 1);
    assert_int_equal(w.rc, 0);
    assert_true(w.good);
    berth_close(w.b);
    berthds_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_node_stops),
        cmocka_unit_test(test_member_is_down),
        cmocka_unit_test(test_lease_quota),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
