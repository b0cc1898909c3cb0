/* Queues of asynchronous operations against an embedded node. */
#include "store/client.h"
#include "tests/support/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void queue_puts_and_gets(void **state)
{
    (void)state;
    enum { N = 500, DEPTH = 64 };
    struct berth_queue *q;
    static struct berth_op ops[N];
    static char name[N][16];
    assert_int_equal(berth_queue_open(embedded, DEPTH, &q), 0);
    memset(ops, 0, sizeof ops);
    unsigned submitted = 0, done = 0;
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "q%u", i);
        ops[i] =
            (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of(name[i]), .data = name[i], .size = 16, .user = i};
    }
    while (done < N) {
        int n = submitted < N ? berth_submit(q, ops + submitted, N - submitted) : 0;
        assert_true(n >= 0 || n == BERTH_EBUSY_RING);
        submitted += n > 0 ? (unsigned)n : 0;
        assert_true(submitted - done <= DEPTH);
        struct berth_op *out[16];
        long got = berth_reap(q, out, 16, berth_deadline(INT64_C(10000000000)));
        assert_true(got > 0);
        for (long i = 0; i < got; i++) {
            assert_int_equal(out[i]->result, 0);
            expect(name[out[i]->user], name[out[i]->user], 16);
        }
        done += (unsigned)got;
    }
    struct berth_op *out;
    assert_int_equal(berth_reap(q, &out, 1, BERTH_FOREVER), 0); /* nothing is in flight */
    berth_queue_close(q);
}

static long run_op(struct berth_queue *q, struct berth_op *op)
{
    struct berth_op *out = NULL;
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, berth_deadline(INT64_C(10000000000))), 1);
    assert_ptr_equal(out, op);
    return op->result;
}

static void queue_runs_every_operation(void **state)
{
    (void)state;
    struct berth_queue *q;
    struct berth_view v;
    struct berth_draft d;
    struct berth_stat st;
    char buffer[8];
    assert_int_equal(berth_queue_open(embedded, 1, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_NOP};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_CREATE, .key = key_of("o"), .size = 4, .draft = &d};
    assert_int_equal(run_op(q, &op), 0);
    memcpy(d.data, "data", 4);
    op = (struct berth_op){.opcode = BERTH_OP_SEAL, .draft = &d, .n = 1};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_CREATE, .key = key_of("p"), .size = 4, .draft = &d};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_ABORT, .draft = &d, .n = 1};
    assert_int_equal(run_op(q, &op), 0);
    struct berth_draft group[2] = {{.data = buffer}, {.data = buffer}};
    op = (struct berth_op){.opcode = BERTH_OP_CREATE, .key = key_of("o"), .size = 4, .draft = &group[0]};
    assert_int_equal(run_op(q, &op), BERTH_KEPT);
    op = (struct berth_op){.opcode = BERTH_OP_SEAL, .draft = group, .n = 1};
    assert_int_equal(run_op(q, &op), 1); /* it was kept: there is no draft */
    op = (struct berth_op){.opcode = BERTH_OP_CREATE, .key = key_of("r"), .size = 4, .draft = &group[1]};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_SEAL, .draft = group, .n = 2};
    assert_int_equal(run_op(q, &op), 1);
    op = (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of("o"), .data = "x", .size = 1};
    assert_int_equal(run_op(q, &op), BERTH_KEPT);
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("o"), .view = &v, .flags = BERTH_VERIFY};
    assert_int_equal(run_op(q, &op), 0);
    assert_memory_equal(v.data, "data", 4);
    berth_release(embedded, &v, 1);
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO, .key = key_of("o"), .data = buffer, .size = sizeof buffer};
    assert_int_equal(run_op(q, &op), 4);
    op = (struct berth_op){.opcode = BERTH_OP_STAT, .key = key_of("o"), .stat = &st};
    assert_int_equal(run_op(q, &op), 0);
    assert_int_equal(st.size, 4);
    op = (struct berth_op){.opcode = BERTH_OP_HOLD, .key = key_of("o"), .label = "me"};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_REMOVE, .key = key_of("o")};
    assert_int_equal(run_op(q, &op), BERTH_EHELD);
    op = (struct berth_op){.opcode = BERTH_OP_DROP, .key = key_of("o"), .label = "me"};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_REMOVE, .key = key_of("o"), .version = st.version};
    assert_int_equal(run_op(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("o"), .view = &v};
    assert_int_equal(run_op(q, &op), -ENOENT);
    berth_queue_close(q);
}

static void queue_refuses_what_it_does_not_know(void **state)
{
    (void)state;
    struct berth_queue *q;
    struct berth_stat st;
    assert_int_equal(berth_queue_open(embedded, 1, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_PURGE};
    assert_int_equal(run_op(q, &op), -EOPNOTSUPP);
    op = (struct berth_op){.opcode = BERTH_OP_CANCEL};
    assert_int_equal(run_op(q, &op), -EINVAL);
    op = (struct berth_op){.opcode = BERTH_OP_CANCEL, .data = &st};
    assert_int_equal(run_op(q, &op), -ENOENT);
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .key = key_of("o"), .deadline = BERTH_FOREVER};
    assert_int_equal(run_op(q, &op), -ENOENT); /* no peers */
    op = (struct berth_op){.opcode = BERTH_OPCODES};
    assert_int_equal(run_op(q, &op), -EINVAL);
    op = (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of("o"), .size = 1};
    assert_int_equal(run_op(q, &op), -EINVAL);
    berth_queue_close(q);
    assert_int_equal(berth_queue_open(embedded, 0, &q), -EINVAL);
    assert_int_equal(berth_queue_open(embedded, 4097, &q), -EINVAL);
    berth_queue_close(NULL);
}

/* Put, remove and put again of one key in one queue: in the order of submission, whatever lookup says meanwhile. */
static void queue_keeps_order(void **state)
{
    (void)state;
    enum { N = 300 };
    struct berth_queue *q;
    static struct berth_op ops[N];
    assert_int_equal(berth_queue_open(embedded, N, &q), 0);
    for (unsigned i = 0; i < N; i++) {
        ops[i] = (struct berth_op){.opcode = i % 2 ? BERTH_OP_REMOVE : BERTH_OP_PUT, .key = key_of("same")};
        ops[i].data = i % 2 ? NULL : "x";
        ops[i].size = i % 2 ? 0 : 1;
        ops[i].result = -1;
    }
    unsigned done = 0, submitted = 0;
    while (done < N) {
        int n = submitted < N ? berth_submit(q, ops + submitted, N - submitted) : 0;
        submitted += n > 0 ? (unsigned)n : 0;
        struct berth_op *out[N];
        long got = berth_reap(q, out, N, berth_deadline(INT64_C(10000000000)));
        assert_true(got > 0);
        done += (unsigned)got;
    }
    for (unsigned i = 0; i < N; i++) {
        if (ops[i].result != 0) {
            fail_msg("operation %u: %ld", i, ops[i].result);
        }
    }
    berth_queue_close(q);
}

static void queue_descriptor_becomes_readable(void **state)
{
    (void)state;
    struct berth_queue *q;
    assert_int_equal(berth_queue_open(embedded, 8, &q), 0);
    struct pollfd p = {.fd = berth_queue_fd(q), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    for (unsigned i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "fd%u", i);
        struct berth_op op = {.opcode = BERTH_OP_PUT, .key = key_of(name), .data = name, .size = 4}, *out;
        assert_int_equal(berth_submit(q, &op, 1), 1);
        long n;
        do {
            assert_int_equal(poll(&p, 1, 10000), 1);
            n = berth_reap(q, &out, 1, BERTH_NOW);
        } while (n == 0);
        assert_int_equal(n, 1);
        assert_int_equal(op.result, 0);
    }
    berth_queue_close(q);
}

static void closed_queue_waits_and_releases(void **state)
{
    (void)state;
    struct berth_queue *q;
    struct berth_view v;
    put_new("c", "x", 1);
    assert_int_equal(berth_queue_open(embedded, 8, &q), 0);
    struct berth_op ops[2] = {{.opcode = BERTH_OP_GET, .key = key_of("c"), .view = &v},
                              {.opcode = BERTH_OP_PUT, .key = key_of("c2"), .data = "y", .size = 1}};
    assert_int_equal(berth_submit(q, ops, 2), 2);
    berth_queue_close(q);
    assert_null(v.data);
    expect("c2", "y", 1);
}

static void full_queue_says_so(void **state)
{
    (void)state;
    struct berth_queue *q;
    struct berth_op ops[3] = {{.opcode = BERTH_OP_NOP}, {.opcode = BERTH_OP_NOP}, {.opcode = BERTH_OP_NOP}}, *out[3];
    assert_int_equal(berth_queue_open(embedded, 2, &q), 0);
    assert_int_equal(berth_submit(q, ops, 3), 2);
    assert_int_equal(berth_submit(q, ops + 2, 1), BERTH_EBUSY_RING);
    assert_int_equal(berth_reap(q, out, 3, BERTH_NOW), 2);
    assert_int_equal(berth_submit(q, ops + 2, 1), 1);
    berth_queue_close(q);
}

static pid_t reaper;

static bool reaper_sleeps(void)
{
    char path[64], stat[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", reaper);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    close(fd);
    const char *state = n > 0 ? strrchr(stat, ')') : NULL;
    return state && state[2] == 'S';
}

static void *submit_one(void *arg)
{
    static struct berth_op op = {.opcode = BERTH_OP_NOP};
    bool dozes = false;
    while (!dozes) { /* until the other thread sleeps in its call, for good and not for a lock */
        sched_yield();
        pthread_mutex_lock(&embedded->lock);
        dozes = (embedded->calls.dozing || embedded->calls.driving) && reaper_sleeps();
        pthread_mutex_unlock(&embedded->lock);
    }
    berth_submit(arg, &op, 1);
    return NULL;
}

/* A thread that waits for one operation of the queue learns of another's that another thread completes at once. */
static void reap_wakes_for_other_threads(void **state)
{
    (void)state;
    struct berth_queue *q;
    struct berth_view v[80];
    static uint8_t data[MIB];
    unsigned n_views = 0;
    for (; n_views < 80; n_views++) { /* all of the pool is pinned */
        char name[16];
        snprintf(name, sizeof name, "w%u", n_views);
        if (berth_put(embedded, key_of(name), data, sizeof data, NULL) != 0) {
            break;
        }
        assert_int_equal(berth_get(embedded, key_of(name), &v[n_views], 0, 0), 0);
    }
    assert_int_equal(berth_queue_open(embedded, 8, &q), 0);
    struct berth_put_opts o = {.size = sizeof o, .deadline = berth_deadline(INT64_C(20000000000))};
    struct berth_op wait = {.opcode = BERTH_OP_PUT,
                            .key = key_of("wait"),
                            .data = data,
                            .size = sizeof data,
                            .put = &o},
                    *out;
    assert_int_equal(berth_submit(q, &wait, 1), 1);
    pthread_t thread;
    reaper = gettid();
    assert_int_equal(pthread_create(&thread, NULL, submit_one, q), 0);
    long n = berth_reap(q, &out, 1, berth_deadline(INT64_C(30000000000)));
    pthread_join(thread, NULL);
    assert_int_equal(n, 1);
    assert_int_equal(out->opcode, BERTH_OP_NOP);
    assert_true(berth_deadline(0) < o.deadline); /* it was not the put's end that ended the reap */
    berth_release(embedded, v, n_views);
    assert_int_equal(berth_reap(q, &out, 1, berth_deadline(INT64_C(30000000000))), 1);
    assert_ptr_equal(out, &wait);
    assert_int_equal(wait.result, 0);
    berth_queue_close(q);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, embedded_open, embedded_close)
    const struct CMUnitTest tests[] = {
        CASE(queue_puts_and_gets), CASE(queue_runs_every_operation),        CASE(queue_refuses_what_it_does_not_know),
        CASE(queue_keeps_order),   CASE(queue_descriptor_becomes_readable), CASE(closed_queue_waits_and_releases),
        CASE(full_queue_says_so),  CASE(reap_wakes_for_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
