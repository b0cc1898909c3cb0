/* BERTH_WAIT and BERTH_JOIN: a process that reads while another writes, gives up, dies, or finds its node gone. Nothing
 * sleeps to let the other get on: who must wait is seen waiting in the node's count of waits. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define LONG INT64_C(60000000000)
#define SHORT INT64_C(50000000)

static struct daemon node;
static struct berth *b;

static const char *const flags[] = {"--pool", "32MiB", "--lock", "off", NULL};

static int start(void **state)
{
    (void)state;
    daemon_start(&node, flags);
    b = daemon_open(&node, "test");
    return 0;
}

static int stop(void **state)
{
    (void)state;
    bool clean = query_number(b, BERTH_CHECK, "differences") == 0;
    berth_close(b);
    daemon_end(&node);
    return clean ? 0 : -1;
}

/* ---- a writer: does one thing at each word that it hears ---- */

static int writer(void *arg)
{
    const char *key = arg;
    struct berth *own = NULL;
    struct berth_draft d[2] = {{0}};
    char second[64];
    snprintf(second, sizeof second, "%s-2", key);
    CHECK(berth_open(&own, node.node, NULL) == 0);
    for (char word; (word = child_hear()) != 0;) {
        int rc = 0;
        switch (word) {
        case 'c':
            rc = berth_create(own, key_of(key), 1000, NULL, &d[0]);
            break;
        case '2':
            rc = berth_create(own, key_of(second), 1000, NULL, &d[1]);
            break;
        case 's':
            payload_fill(d[0].data, 1000, key);
            rc = berth_seal(own, &d[0], 1);
            break;
        case 'g':
            payload_fill(d[0].data, 1000, key);
            payload_fill(d[1].data, 1000, second);
            rc = berth_seal(own, d, 2);
            break;
        case 'p':
            rc = berth_put(own, key_of(key), "put", 3, NULL);
            break;
        case 'a':
            rc = berth_abort(own, &d[0], 1);
            break;
        case 'q':
            berth_close(own);
            break;
        default:
            break;
        }
        CHECK(rc >= 0);
        child_tell(word);
    }
    return 0;
}

static void tell(struct child *c, char word)
{
    parent_tell(c, word);
    assert_int_equal(parent_hear(c, 20000), word);
}

/* ---- a reader on a thread of the test ---- */

enum what { GET, INTO, RANGE, MANY, PREFIX, CREATE, QUEUE_GET, QUEUE_INTO, QUEUE_RANGE, QUEUE_CREATE, WHATS };

struct reader {
    pthread_t thread;
    struct berth *own;
    enum what what;
    const char *key[4];
    size_t n;
    int64_t deadline;
    long result;
    int status[4];
    struct berth_draft draft;
    char data[2000];
};

static double waits(void)
{
    return daemon_number(b, "counters.waits");
}

static long by_queue(struct reader *r, struct berth_view *v, const struct berth_put_opts *o,
                     const struct berth_range *range)
{
    struct berth_queue *q;
    struct berth_op op = {.key = key_of(r->key[0]),
                          .flags = r->what == QUEUE_CREATE ? 0 : BERTH_WAIT,
                          .deadline = r->deadline,
                          .view = v,
                          .put = o,
                          .draft = &r->draft,
                          .data = r->data,
                          .size = r->what == QUEUE_CREATE ? 1000 : sizeof r->data,
                          .ranges = range,
                          .n = 1},
                    *done;
    op.opcode = (uint16_t[]){BERTH_OP_GET, BERTH_OP_GET_INTO, BERTH_OP_GET_RANGE, BERTH_OP_CREATE}[r->what - QUEUE_GET];
    CHECK(berth_queue_open(r->own, 4, &q) == 0);
    CHECK(berth_submit(q, &op, 1) == 1);
    struct berth_op put = {.opcode = BERTH_OP_PUT, .key = key_of("beside"), .data = "x", .size = 1};
    CHECK(berth_submit(q, &put, 1) == 1); /* who waits holds nobody up */
    long got = 0;
    while (got < 2) {
        long n = berth_reap(q, &done, 1, berth_deadline(2 * LONG));
        CHECK(n == 1);
        got += n;
    }
    CHECK(put.result >= 0);
    berth_queue_close(q);
    return op.result;
}

static void *read_it(void *arg)
{
    struct reader *r = arg;
    struct berth_view v[4] = {{0}};
    struct berth_key keys[4];
    struct berth_range range = {.offset = 1, .size = 2, .data = r->data + 1};
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_JOIN, .deadline = r->deadline};
    for (size_t i = 0; i < r->n; i++) {
        keys[i] = key_of(r->key[i]);
    }
    switch (r->what) {
    case GET:
        r->result = berth_get(r->own, keys[0], v, BERTH_WAIT | BERTH_VERIFY, r->deadline);
        break;
    case INTO:
        r->result = berth_get_into(r->own, keys[0], r->data, sizeof r->data, BERTH_WAIT, r->deadline);
        break;
    case RANGE:
        r->result = berth_get_range(r->own, keys[0], &range, 1, BERTH_WAIT, r->deadline);
        break;
    case MANY:
        r->result = berth_get_many(r->own, keys, r->n, v, BERTH_WAIT, r->deadline);
        break;
    case PREFIX:
        r->result = berth_prefix(r->own, keys, r->n, v, BERTH_WAIT, r->deadline);
        break;
    case CREATE:
        r->result = berth_create(r->own, keys[0], 1000, &o, &r->draft);
        break;
    default:
        r->result = by_queue(r, v, &o, &range);
        break;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->status[i] = v[i].status;
    }
    berth_release(r->own, v, 4);
    return NULL;
}

static bool is_waiting(void *arg)
{
    return waits() > *(double *)arg;
}

static void start_reader(struct reader *r, enum what what, const char *a, const char *a2, const char *a3, int64_t ns)
{
    *r = (struct reader){.what = what, .key = {a, a2, a3}, .n = a3 ? 3 : a2 ? 2 : 1};
    r->own = daemon_open(&node, "reader");
    r->deadline = ns == BERTH_FOREVER ? ns : berth_deadline(ns);
    assert_int_equal(pthread_create(&r->thread, NULL, read_it, r), 0);
}

/* Returns once it waits. */
static void begin_three(struct reader *r, enum what what, const char *a, const char *a2, const char *a3, int64_t ns)
{
    double before = waits();
    start_reader(r, what, a, a2, a3, ns);
    assert_true(eventually(is_waiting, &before, 20000));
}

static void begin(struct reader *r, enum what what, const char *a, const char *a2, int64_t ns)
{
    begin_three(r, what, a, a2, NULL, ns);
}

static long end(struct reader *r)
{
    pthread_join(r->thread, NULL);
    if (r->what == CREATE || r->what == QUEUE_CREATE) {
        berth_abort(r->own, &r->draft, 1);
    }
    berth_close(r->own);
    return r->result;
}

static const long success[WHATS] = {
    [INTO] = 1000,         [RANGE] = 2,         [MANY] = 1,        [PREFIX] = 1,
    [CREATE] = BERTH_KEPT, [QUEUE_INTO] = 1000, [QUEUE_RANGE] = 2, [QUEUE_CREATE] = BERTH_KEPT};

/* ---- one key, by every call ---- */

static void sealed(void **state)
{
    (void)state;
    for (unsigned what = 0; what < WHATS; what++) {
        char key[16];
        struct child c;
        struct reader r;
        snprintf(key, sizeof key, "sealed%u", what);
        child_start(&c, writer, key);
        tell(&c, 'c');
        begin(&r, what, key, NULL, what % 2 ? LONG : BERTH_FOREVER);
        tell(&c, 's');
        assert_int_equal(end(&r), success[what]);
        child_kill(&c);
    }
}

/* A key that nobody writes yet. */
static void put_later(void **state)
{
    (void)state;
    for (unsigned what = 0; what < WHATS; what++) {
        char key[16];
        struct reader r;
        snprintf(key, sizeof key, "later%u", what);
        if (what == CREATE || what == QUEUE_CREATE) { /* nobody to join: it has its draft at once */
            continue;
        }
        begin(&r, what, key, NULL, LONG);
        char data[1000];
        payload_fill(data, sizeof data, key);
        assert_int_equal(berth_put(b, key_of(key), data, sizeof data, NULL), 0);
        assert_int_equal(end(&r), success[what]);
    }
}

/* How the writer goes: gives up, closes, is killed. */
static void lost(void **state)
{
    (void)state;
    static const int code[] = {BERTH_EABORTED, BERTH_EABORTED, BERTH_EDIED};
    for (unsigned what = 0; what < WHATS; what++) {
        for (unsigned how = 0; how < 3; how++) {
            char key[16];
            struct child c;
            struct reader r;
            snprintf(key, sizeof key, "lost%u-%u", what, how);
            child_start(&c, writer, key);
            tell(&c, 'c');
            begin(&r, what, key, NULL, LONG);
            if (how < 2) {
                tell(&c, how ? 'q' : 'a');
            }
            child_kill(&c);
            long rc = end(&r);
            bool create = what == CREATE || what == QUEUE_CREATE; /* its turn: a draft of its own */
            bool many = what == MANY || what == PREFIX;
            assert_int_equal(rc, create || many ? 0 : code[how]);
            if (what == MANY) {
                assert_int_equal(r.status[0], code[how]);
            }
        }
    }
}

static void time_is_up(void **state)
{
    (void)state;
    struct child c;
    child_start(&c, writer, "slow");
    tell(&c, 'c');
    for (unsigned what = 0; what < WHATS; what++) {
        struct reader r;
        int64_t from = berth_deadline(0);
        start_reader(&r, what, "slow", NULL, NULL, SHORT); /* which may be over before it gets to wait */
        assert_int_equal(end(&r), what == MANY || what == PREFIX ? 0 : -ETIMEDOUT);
        assert_true(berth_deadline(0) - from >= SHORT);
        if (what == MANY) {
            assert_int_equal(r.status[0], -ETIMEDOUT);
        }
    }
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of("slow"), &v, BERTH_WAIT, BERTH_NOW), -ENOENT);
    assert_int_equal(berth_get(b, key_of("slow"), &v, BERTH_WAIT, 1), -ETIMEDOUT);
    assert_int_equal(berth_get_many(b, &(struct berth_key){.data = "slow", .size = 4}, 1, &v, BERTH_WAIT, BERTH_NOW),
                     0);
    assert_int_equal(v.status, -ENOENT);
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_JOIN};
    struct berth_draft d;
    assert_int_equal(berth_create(b, key_of("slow"), 10, &o, &d), -ETIMEDOUT);
    assert_null(d.data);
    o.flags = 0;
    assert_int_equal(berth_create(b, key_of("slow"), 10, &o, &d), 0); /* told, and on its way all the same */
    assert_int_equal(d.status, BERTH_WRITING);
    assert_int_equal(berth_abort(b, &d, 1), 0);
    child_kill(&c);
}

/* ---- several keys ---- */

static void groups(void **state)
{
    (void)state;
    for (unsigned what = MANY; what <= PREFIX; what++) {
        char key[16], second[32];
        struct child c;
        struct reader r;
        snprintf(key, sizeof key, "group%u", what);
        snprintf(second, sizeof second, "%s-2", key);
        child_start(&c, writer, key);
        tell(&c, 'c');
        tell(&c, '2');
        begin(&r, what, key, second, LONG);
        tell(&c, 'g');
        assert_int_equal(end(&r), 2);
        child_kill(&c);
    }
}

/* The first is given up: of the run nothing is left to wait for. The second is: the first is waited for still, and no
 * longer what lies behind it, which nobody ever writes. */
static void runs_that_end(void **state)
{
    (void)state;
    for (unsigned second = 0; second < 2; second++) {
        struct child a, c;
        struct reader r;
        char first[16], other[16];
        snprintf(first, sizeof first, "run%u-a", second);
        snprintf(other, sizeof other, "run%u-b", second);
        child_start(&a, writer, first);
        child_start(&c, writer, other);
        tell(&a, 'c');
        tell(&c, 'c');
        begin_three(&r, PREFIX, first, other, "never", LONG);
        tell(second ? &c : &a, 'a');
        tell(second ? &a : &c, 's');
        assert_int_equal(end(&r), second ? 1 : 0);
        assert_true(berth_deadline(0) < r.deadline);
        child_kill(&a);
        child_kill(&c);
    }
}

/* The run so far at the deadline, pinned, beyond what one message can wait for. */
static void long_lists(void **state)
{
    (void)state;
    enum { N = 700 };
    static struct berth_view v[N];
    static struct berth_key keys[N];
    static char names[N][BERTH_KEY_MAX];
    for (unsigned i = 0; i < N; i++) {
        memset(names[i], 'x', sizeof names[i]);
        snprintf(names[i], sizeof names[i], "%u", i);
        keys[i] = (struct berth_key){.data = names[i], .size = sizeof names[i]};
        if (i != 300 && i != 650) {
            assert_int_equal(berth_put(b, keys[i], names[i], 4, NULL), 0);
        }
    }
    assert_int_equal(berth_prefix(b, keys, N, v, BERTH_WAIT, berth_deadline(SHORT)), 300);
    berth_release(b, v, 300);
    assert_int_equal(berth_get_many(b, keys, N, v, BERTH_WAIT, berth_deadline(SHORT)), N - 2);
    assert_int_equal(v[300].status, -ETIMEDOUT);
    assert_int_equal(v[650].status, -ETIMEDOUT);
    berth_release(b, v, N);
    assert_int_equal(berth_put(b, keys[300], names[300], 4, NULL), 0);
    assert_int_equal(berth_put(b, keys[650], names[650], 4, NULL), 0);
    assert_int_equal(berth_prefix(b, keys, N, v, BERTH_WAIT, berth_deadline(SHORT)), N);
    berth_release(b, v, N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(berth_remove(b, keys[i], NULL), 0);
    }
    assert_int_equal(berth_get_many(b, keys, N, v, BERTH_WAIT, berth_deadline(SHORT)), 0);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(v[i].status, -ETIMEDOUT);
    }
}

/* ---- many who join ---- */

/* The writer dies: one of those who joined writes it, the others find it there. */
static void one_of_many_goes_on(void **state)
{
    (void)state;
    enum { N = 6 };
    struct child c;
    static struct reader r[N];
    child_start(&c, writer, "herd");
    tell(&c, 'c');
    for (unsigned i = 0; i < N; i++) {
        begin(&r[i], CREATE, "herd", NULL, LONG);
    }
    child_kill(&c);
    int drafts = 0;
    for (unsigned i = 0; i < N;
         i++) { /* the one that has the draft is anywhere among them: each that ends is looked at */
        struct timespec t;
        unsigned at = N;
        while (at == N) {
            clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec = (t.tv_nsec + 1000000) % 1000000000;
            for (unsigned k = 0; k < N && at == N; k++) {
                at = r[k].own && pthread_timedjoin_np(r[k].thread, NULL, &t) == 0 ? k : N;
            }
        }
        if (r[at].result == 0) {
            drafts++;
            payload_fill(r[at].draft.data, 1000, "herd");
            assert_int_equal(berth_seal(r[at].own, &r[at].draft, 1), 0);
        } else {
            assert_int_equal(r[at].result, BERTH_KEPT);
        }
        berth_close(r[at].own);
        r[at].own = NULL;
    }
    assert_int_equal(drafts, 1);
}

/* ---- the node goes ---- */

/* It restarts under those who wait: they go on by themselves, and hear what their keys come to afterwards. */
static void node_restarts(void **state)
{
    (void)state;
    for (unsigned killed = 0; killed < 2; killed++) {
        struct child a, c;
        static struct reader r[4];
        char first[16], other[16];
        snprintf(first, sizeof first, "again%u-a", killed);
        snprintf(other, sizeof other, "again%u-b", killed);
        child_start(&a, writer, first);
        child_start(&c, writer, other);
        tell(&a, 'c');
        tell(&c, 'c');
        begin(&r[0], GET, first, NULL, LONG);
        begin(&r[1], QUEUE_GET, first, NULL, BERTH_FOREVER);
        begin(&r[2], CREATE, first, NULL, LONG);
        begin(&r[3], GET, other, NULL, LONG);
        if (killed) {
            daemon_kill(&node);
        } else {
            assert_int_equal(daemon_stop(&node), 0);
        }
        daemon_again(&node);
        tell(&a, 's');
        assert_int_equal(end(&r[0]), 0);
        assert_int_equal(end(&r[1]), 0);
        assert_int_equal(end(&r[2]), BERTH_KEPT);
        child_kill(&c);
        assert_int_equal(end(&r[3]), BERTH_EDIED);
        child_kill(&a);
    }
}

/* It does not come back: a clear answer after the handle's time-out. */
static void node_is_gone(void **state)
{
    (void)state;
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = 300000000};
    struct reader r = {.what = GET, .key = {"none"}, .n = 1, .deadline = BERTH_FOREVER};
    double before = waits();
    assert_int_equal(berth_open(&r.own, node.node, &o), 0);
    assert_int_equal(pthread_create(&r.thread, NULL, read_it, &r), 0);
    assert_true(eventually(is_waiting, &before, 20000));
    daemon_kill(&node);
    assert_int_equal(end(&r), BERTH_ENODE);
    daemon_again(&node);
}

/* It is stopped and does not say that the time is up: the run so far all the same. */
static void node_is_late(void **state)
{
    (void)state;
    struct reader r;
    assert_int_equal(berth_put(b, key_of("late"), "x", 1, NULL), 0);
    begin(&r, PREFIX, "late", "late-2", 20 * SHORT);
    assert_int_equal(kill(node.pid, SIGSTOP), 0);
    pthread_join(r.thread, NULL);
    assert_int_equal(kill(node.pid, SIGCONT), 0);
    assert_int_equal(r.result, 1);
    berth_close(r.own);
}

/* More requests on one handle than a session's table of promised replies has places, while one of it waits. */
static void who_waits_holds_up_nobody(void **state)
{
    (void)state;
    struct reader r;
    begin(&r, GET, "held-up", NULL, LONG);
    struct berth *own = r.own; /* its thread waits: the handle serves others */
    for (unsigned i = 0; i < 6000; i++) {
        struct berth_stat st;
        assert_int_equal(berth_stat(own, key_of("none"), &st), -ENOENT);
    }
    assert_int_equal(berth_put(own, key_of("held-up"), "x", 1, NULL), 0);
    assert_true(berth_deadline(0) < r.deadline);
    assert_int_equal(end(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed),        cmocka_unit_test(put_later),
        cmocka_unit_test(lost),          cmocka_unit_test(time_is_up),
        cmocka_unit_test(groups),        cmocka_unit_test(runs_that_end),
        cmocka_unit_test(long_lists),    cmocka_unit_test(one_of_many_goes_on),
        cmocka_unit_test(node_restarts), cmocka_unit_test(node_is_gone),
        cmocka_unit_test(node_is_late),  cmocka_unit_test(who_waits_holds_up_nobody),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
