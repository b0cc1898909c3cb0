/* test_remote_client.c: "tcp://": objects of two nodes read by a process that has neither node nor pool. */
#include "tests/support/draw.h"
#include "tests/support/remote.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 2u
#define SECONDS(n) ((n)*INT64_C(1000000000))
#define MS(n) ((n)*INT64_C(1000000))
#define SOON_MS 30000
#define LARGE (9u << 20)
#define CLIENTS 256u /* that a node takes */

static const char *const names[NODES] = {"a", "b"};
static struct daemon d[NODES];
static struct berth *b[NODES]; /* local handles */
static char address[NODES][64], peers[256];
static uint8_t got[LARGE + 64];

/* ---- nodes ---- */

/* Below the range that the kernel gives out by itself, so that a port that was free a moment ago still is. */
static uint16_t free_port(void)
{
    static uint32_t next;
    next = next ? next : (uint32_t)getpid() * 89u;
    for (;;) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint16_t p = (uint16_t)(12000 + next++ % 18000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        a.sin_port = htons(p);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        int e = bind(fd, (struct sockaddr *)&a, sizeof a);
        close(fd);
        if (e == 0) {
            return p;
        }
    }
}

static bool quiet(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        if (daemon_number(b[i], "home.queued") != 0 || daemon_number(b[i], "home.missing") != 0 ||
            daemon_number(b[i], "home.current") != NODES) {
            return false;
        }
    }
    return true;
}

/* The homes know of all that was put. */
static void settle(void)
{
    assert_true(eventually(quiet, NULL, SOON_MS));
}

static int start_nodes(void **unused)
{
    (void)unused;
    peers[0] = '\0';
    for (unsigned i = 0; i < NODES; i++) {
        size_t used = strlen(peers);
        snprintf(address[i], sizeof address[i], "tcp://127.0.0.1:%u", free_port());
        snprintf(peers + used, sizeof peers - used, "%s%s=%s", i ? "," : "", names[i], address[i]);
    }
    for (unsigned i = 0; i < NODES; i++) {
        daemon_start(&d[i], (const char *[]){"--pool", "48M", "--lock", "off", "--name", names[i], "--peers", peers,
                                             "--homes", "1", NULL});
        b[i] = daemon_open(&d[i], "test");
    }
    settle();
    return 0;
}

static int end_nodes(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        char *text = NULL;
        if (b[i] && berth_query(b[i], BERTH_CHECK, NULL, &text) == 0) {
            assert_true(strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null"));
        }
        free(text);
        berth_close(b[i]);
        b[i] = NULL;
        if (d[i].pid > 0) {
            kill(d[i].pid, SIGCONT);
        }
        daemon_end(&d[i]);
    }
    return 0;
}

static void put(unsigned node, const char *key, size_t size, uint32_t segment)
{
    struct berth_put_opts o = {.size = sizeof o, .segment = segment};
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(b[node], key_of(key), data, size, &o), 0);
    free(data);
}

/* ---- the client ---- */

static int64_t now_ns(void)
{
    return berth_deadline(0);
}

static struct berth *client(const char *url)
{
    struct berth *c;
    int rc = berth_open(&c, url, NULL);
    if (rc) {
        struct berth_error_info e;
        berth_error(NULL, &e);
        fail_msg("%s: %s", url ? url : "(none)", e.sentence);
    }
    return c;
}

static long into(struct berth *c, const char *key, int64_t ns)
{
    return berth_get_into(c, key_of(key), got, sizeof got, 0, ns == BERTH_FOREVER ? ns : berth_deadline(ns));
}

static void reads(struct berth *c, const char *key, size_t size)
{
    memset(got, 0xee, size + 1);
    long n = into(c, key, SECONDS(20));
    if (n != (long)size) {
        fail_msg("%s: %ld, %s", key, n, n < 0 ? berth_error_name((int)n) : "bytes");
    }
    assert_true(payload_is(got, size, key));
    assert_int_equal(got[size], 0xee);
}

struct wish {
    struct berth *c;
    const char *key;
    long want, rc;
};

static bool comes(void *arg)
{
    struct wish *w = arg;
    w->rc = into(w->c, w->key, SECONDS(5));
    return w->rc == w->want;
}

static void reads_soon(struct berth *c, const char *key, long want)
{
    struct wish w = {.c = c, .key = key, .want = want};
    if (!eventually(comes, &w, SOON_MS)) {
        fail_msg("%s: %s", key, berth_error_name((int)w.rc));
    }
    if (want >= 0) {
        assert_true(payload_is(got, (size_t)want, key));
    }
}

/* ---- reading ---- */

static void test_reads_from_each(void **unused)
{
    static const size_t sizes[] = {0, 1, 4095, 4097, 1u << 20, LARGE};
    (void)unused;
    char key[16];
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "k%u", i);
        put(i % 2, key, sizes[i / 2], 0);
    }
    settle();
    for (unsigned at = 0; at < NODES; at++) {
        struct berth *c = client(address[at]);
        for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            struct berth_view v;
            struct berth_stat st;
            snprintf(key, sizeof key, "k%u", i);
            reads(c, key, sizes[i / 2]);
            reads(c, key, sizes[i / 2]); /* under the lease of before */
            assert_int_equal(berth_get(b[i % 2], key_of(key), &v, 0, BERTH_NOW), 0);
            assert_int_equal(berth_stat(c, key_of(key), &st), 0);
            assert_int_equal(st.size, v.size);
            assert_int_equal(st.checksum, v.checksum);
            assert_int_equal(st.version.counter, v.version.counter);
            assert_int_equal(st.version.region, v.version.region);
            assert_int_equal(st.key_size, strlen(key));
            berth_release(b[i % 2], &v, 1);
        }
        berth_close(c);
    }
}

static void test_what_is_not_there(void **unused)
{
    (void)unused;
    struct berth_error_info e;
    struct berth_stat st;
    put(0, "here", 3000, 0);
    put(1, "there", 3000, 0);
    settle();
    struct berth *c = client(address[0]);
    assert_int_equal(into(c, "nowhere", SECONDS(20)), -ENOENT);
    assert_int_equal(berth_stat(c, key_of("nowhere"), &st), -ENOENT);
    struct berth_key keys[] = {key_of("here"), key_of("nowhere"), key_of("there")};
    uint8_t present[3] = {9, 9, 9};
    assert_int_equal(berth_exists(c, keys, 3, present, 0), 2);
    assert_true(present[0] == 1 && present[1] == 0 && present[2] == 1);
    memset(got, 0xee, 3000);
    assert_int_equal(berth_get_into(c, key_of("here"), got, 2999, 0, berth_deadline(SECONDS(20))), -ENOSPC);
    berth_error(c, &e);
    assert_int_equal(e.figure[0], 3000);
    assert_int_equal(got[0], 0xee);
    assert_int_equal(berth_get_into(c, key_of("here"), got, sizeof got, 0, BERTH_NOW), -ETIMEDOUT);
    assert_int_equal(berth_get_into(c, key_of("here"), NULL, 5, 0, berth_deadline(SECONDS(20))), -EINVAL);
    assert_int_equal(
        berth_get_into(c, key_of("here"), got, sizeof got, BERTH_FRESH | BERTH_VERIFY, berth_deadline(SECONDS(20))),
        3000);
    assert_int_equal(berth_remove(b[0], key_of("here"), NULL), 0);
    settle();
    assert_int_equal(berth_get_into(c, key_of("here"), got, sizeof got, BERTH_FRESH, berth_deadline(SECONDS(20))),
                     -ENOENT);
    int64_t from = now_ns();
    assert_int_equal(berth_get_into(c, key_of("later"), got, sizeof got, BERTH_WAIT, berth_deadline(MS(300))),
                     -ETIMEDOUT);
    assert_true(now_ns() - from < SECONDS(5));
    berth_close(c);
}

static void *put_later(void *key)
{
    put(1, key, 5000, 0);
    return NULL;
}

static void test_waits_for_a_key(void **unused)
{
    (void)unused;
    pthread_t t;
    struct berth *c = client(address[0]);
    assert_int_equal(into(c, "late", SECONDS(20)), -ENOENT);
    assert_int_equal(pthread_create(&t, NULL, put_later, (void *)(uintptr_t) "late"), 0);
    assert_int_equal(berth_get_into(c, key_of("late"), got, sizeof got, BERTH_WAIT, berth_deadline(SECONDS(20))), 5000);
    assert_true(payload_is(got, 5000, "late"));
    pthread_join(t, NULL);
    berth_close(c);
}

static void check_ranges(struct berth *c, const char *key, size_t size, unsigned n, unsigned flags)
{
    uint8_t *whole = malloc(size), *to = calloc(n, 64);
    struct berth_range *r = calloc(n, sizeof *r);
    long sum = 0;
    payload_fill(whole, size, key);
    for (unsigned i = 0; i < n; i++) {
        r[i].size = draw_below(64);
        r[i].offset = draw_below((uint32_t)(size - r[i].size + 1));
        r[i].data = r[i].size ? to + 64 * (size_t)((i * 7919u) % n) : NULL; /* in no order: 7919 is no divisor */
        sum += (long)r[i].size;
    }
    assert_int_equal(berth_get_range(c, key_of(key), r, n, flags, berth_deadline(SECONDS(20))), sum);
    for (unsigned i = 0; i < n; i++) {
        if (r[i].size) {
            assert_memory_equal(r[i].data, whole + r[i].offset, r[i].size);
        }
    }
    free(whole);
    free(to);
    free(r);
}

static void test_ranges(void **unused)
{
    (void)unused;
    struct berth_error_info e;
    put(0, "plain", 300000, 0);
    put(1, "plain1", 300000, 0);
    settle();
    struct berth *c = client(address[0]);
    check_ranges(c, "plain", 300000, 1, 0);
    check_ranges(c, "plain1", 300000, 100, 0);
    check_ranges(c, "plain", 300000, 3001, 0); /* several messages */
    check_ranges(c, "plain1", 300000, 10, BERTH_VERIFY);
    struct berth_range beyond[] = {{.offset = 0, .size = 1, .data = got},
                                   {.offset = 299999, .size = 2, .data = got + 1}};
    assert_int_equal(berth_get_range(c, key_of("plain"), beyond, 2, 0, berth_deadline(SECONDS(20))), -ERANGE);
    berth_error(c, &e);
    assert_true(e.figure[0] == 300000 && e.figure[1] == 1 && e.figure[2] == 299999 && e.figure[3] == 2);
    beyond[1] = (struct berth_range){.offset = UINT64_MAX, .size = UINT64_MAX, .data = got};
    assert_int_equal(berth_get_range(c, key_of("plain"), beyond, 2, 0, berth_deadline(SECONDS(20))), -ERANGE);
    assert_int_equal(berth_get_range(c, key_of("plain"), beyond, 0, 0, berth_deadline(SECONDS(20))), -EINVAL);
    struct berth_range none = {.offset = 300000};
    assert_int_equal(berth_get_range(c, key_of("plain"), &none, 1, 0, berth_deadline(SECONDS(20))), 0);
    berth_close(c);
}

/* A newer version of a replaceable namespace is seen by who asks for it. */
static void test_replaced(void **unused)
{
    (void)unused;
    uint32_t ns, there;
    struct berth *c = client(address[1]);
    assert_int_equal(berth_namespace(b[0], "models", &there), 0);
    assert_int_equal(berth_namespace(c, "models", &ns), 0);
    assert_int_equal(ns, there);
    assert_int_equal(berth_namespace(c, "", &ns), 0);
    assert_int_equal(ns, 0);
    assert_int_equal(berth_namespace(c, "no blanks", &ns), -EINVAL);
    struct berth_key key = key_of("m");
    key.ns = there;
    assert_int_equal(berth_put(b[0], key, "one", 3, NULL), 0);
    settle();
    assert_int_equal(berth_get_into(c, key, got, sizeof got, 0, berth_deadline(SECONDS(20))), 3);
    assert_memory_equal(got, "one", 3);
    assert_int_equal(into(c, "m", SECONDS(20)), -ENOENT); /* not of the default namespace */
    berth_close(c);
}

/* ---- queues ---- */

#define MANY 2000u /* more than a node's puller takes at a time */

static void test_queues(void **unused)
{
    static char key[MANY][16];
    static struct berth_op op[MANY];
    static uint8_t room[MANY][2048];
    struct berth_op *done[MANY];
    struct berth_queue *q;
    (void)unused;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key[i], sizeof key[i], "q%u", i % 100);
        if (i < 100) {
            put(i % 2, key[i], 1000 + i, 0);
        }
        op[i] = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                                  .key = key_of(key[i]),
                                  .data = room[i],
                                  .size = sizeof room[i],
                                  .deadline = berth_deadline(SECONDS(60))};
    }
    settle();
    struct berth *c = client(address[0]);
    assert_int_equal(berth_queue_open(c, MANY, &q), 0);
    assert_int_equal(berth_submit(q, op, MANY), MANY);
    for (unsigned n = 0; n < MANY;) {
        long more = berth_reap(q, done, MANY, berth_deadline(SECONDS(60)));
        assert_true(more > 0);
        n += (unsigned)more;
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(op[i].result, 1000 + i % 100);
        assert_true(payload_is(room[i], 1000 + i % 100, key[i]));
    }
    berth_queue_close(q);
    berth_close(c);
}

static long reap_one(struct berth_queue *q, struct berth_op *op)
{
    struct berth_op *out = NULL;
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, berth_deadline(SECONDS(20))), 1);
    assert_ptr_equal(out, op);
    return op->result;
}

static void test_queue_operations(void **unused)
{
    struct berth_queue *q;
    struct berth_stat st;
    struct berth_op *out[2];
    int64_t until = berth_deadline(SECONDS(30));
    (void)unused;
    put(1, "o", 10000, 0);
    settle();
    struct berth *c = client(address[0]);
    assert_int_equal(berth_queue_open(c, 8, &q), 0);
    assert_true(berth_queue_fd(q) >= 0);
    struct berth_range r[] = {{.offset = 5, .size = 7, .data = got + 100}, {.offset = 9990, .size = 10, .data = got}};
    uint8_t whole[10000];
    payload_fill(whole, sizeof whole, "o");
    struct berth_op op = {.opcode = BERTH_OP_GET_RANGE, .key = key_of("o"), .ranges = r, .n = 2, .deadline = until};
    assert_int_equal(reap_one(q, &op), 17);
    assert_memory_equal(got + 100, whole + 5, 7);
    assert_memory_equal(got, whole + 9990, 10);
    op = (struct berth_op){.opcode = BERTH_OP_STAT, .key = key_of("o"), .stat = &st};
    assert_int_equal(reap_one(q, &op), 0);
    assert_int_equal(st.size, 10000);
    op = (struct berth_op){.opcode = BERTH_OP_NOP};
    assert_int_equal(reap_one(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .key = key_of("o"), .deadline = until};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    op = (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of("new"), .data = got, .size = 5};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    struct berth_view v;
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("o"), .view = &v, .flags = BERTH_PEERS};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO, .key = key_of("o"), .data = got, .size = 10, .deadline = until};
    assert_int_equal(reap_one(q, &op), -ENOSPC);
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                           .key = key_of("nowhere"),
                           .data = got,
                           .size = sizeof got,
                           .flags = BERTH_WAIT,
                           .deadline = BERTH_FOREVER};
    struct berth_op cancel = {.opcode = BERTH_OP_CANCEL, .data = &op};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, out, 1, BERTH_NOW), 0);
    assert_int_equal(berth_submit(q, &cancel, 1), 1);
    for (long n = 0; n < 2;) {
        long more = berth_reap(q, out, 2, berth_deadline(SECONDS(20)));
        assert_true(more > 0);
        n += more;
    }
    assert_int_equal(op.result, -ECANCELED);
    assert_int_equal(cancel.result, 0);
    assert_int_equal(berth_submit(q, &op, 1), 1); /* ended by the close */
    berth_queue_close(q);
    berth_close(c);
}

/* ---- what needs a node ---- */

static void needs_a_node(struct berth *c, long rc)
{
    struct berth_error_info e;
    assert_int_equal(rc, -EOPNOTSUPP);
    berth_error(c, &e);
    assert_non_null(strstr(e.sentence, "unix:"));
}

static void test_what_needs_a_node(void **unused)
{
    (void)unused;
    struct berth_key key = key_of("x");
    struct berth_view v = {0};
    struct berth_draft draft = {0};
    struct berth_cursor cursor = {0};
    static struct berth_entry entry[1];
    char *text = NULL;
    struct berth *c = client(address[0]);
    put(0, "x", 100, 0);
    needs_a_node(c, berth_get(c, key, &v, 0, BERTH_FOREVER));
    needs_a_node(c, berth_get(c, key, &v, BERTH_PEERS, BERTH_FOREVER));
    needs_a_node(c, berth_get_many(c, &key, 1, &v, BERTH_PEERS, BERTH_FOREVER));
    needs_a_node(c, berth_prefix(c, &key, 1, &v, BERTH_PEERS, BERTH_FOREVER));
    needs_a_node(c, berth_put(c, key, "y", 1, NULL));
    needs_a_node(c, berth_create(c, key, 1, NULL, &draft));
    needs_a_node(c, berth_seal(c, &draft, 1));
    needs_a_node(c, berth_abort(c, &draft, 1));
    needs_a_node(c, berth_list(c, 0, NULL, 0, &cursor, entry, 1));
    needs_a_node(c, berth_remove(c, key, NULL));
    needs_a_node(c, berth_hold(c, key, "h", 0));
    needs_a_node(c, berth_drop(c, key, "h"));
    needs_a_node(c, berth_revoke(c, key));
    for (int what = BERTH_STATUS; what <= BERTH_METRICS; what++) {
        needs_a_node(c, berth_query(c, (enum berth_question)what, NULL, &text));
    }
    berth_release(c, &v, 1);
    reads_soon(c, "x", 100);
    berth_close(c);
}

/* ---- threads, forks, closes ---- */

struct reader {
    pthread_t thread;
    struct berth *c;
    unsigned seed;
};

static void *read_many(void *arg)
{
    struct reader *r = arg;
    uint8_t *room = malloc(40000);
    for (unsigned i = 0; room && i < 60; i++) {
        char key[16];
        unsigned k = (unsigned)rand_r(&r->seed) % 20;
        snprintf(key, sizeof key, "t%u", k);
        long n = berth_get_into(r->c, key_of(key), room, 40000, i % 2 ? BERTH_VERIFY : 0, berth_deadline(SECONDS(30)));
        if (n != (long)(30000 + k) || !payload_is(room, (size_t)n, key)) {
            free(room);
            return r;
        }
    }
    free(room);
    return NULL;
}

static void test_threads(void **unused)
{
    (void)unused;
    struct reader r[8];
    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "t%u", i);
        put(i % 2, key, 30000 + i, 0);
    }
    settle();
    struct berth *c = client(address[1]);
    for (unsigned i = 0; i < 8; i++) {
        r[i] = (struct reader){.c = c, .seed = i};
        assert_int_equal(pthread_create(&r[i].thread, NULL, read_many, &r[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        void *bad;
        pthread_join(r[i].thread, &bad);
        assert_null(bad);
    }
    berth_close(c);
}

static int in_child(struct berth *c)
{
    static uint8_t room[200];
    struct berth_key key = key_of("f");
    uint8_t present;
    struct berth_stat st;
    bool good = berth_get_into(c, key, room, sizeof room, 0, BERTH_FOREVER) == BERTH_EFORKED &&
                berth_exists(c, &key, 1, &present, 0) == BERTH_EFORKED && berth_stat(c, key, &st) == BERTH_EFORKED;
    berth_close(c);
    if (!good || berth_open(&c, address[0], NULL)) {
        return 1;
    }
    good = berth_get_into(c, key, room, sizeof room, 0, berth_deadline(SECONDS(20))) == 100;
    berth_close(c);
    return good ? 0 : 2;
}

static void test_fork(void **unused)
{
    (void)unused;
    int status;
    put(1, "f", 100, 0);
    settle();
    struct berth *c = client(address[0]);
    reads(c, "f", 100);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(in_child(c));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    reads(c, "f", 100);
    berth_close(c);
}

static bool no_leases(void *node)
{
    return daemon_number(node, "remote.leases") == 0;
}

/* The leases of who closes, and of who is killed, end. */
static void test_leases_end(void **unused)
{
    (void)unused;
    int status;
    put(0, "l", 1000, 0);
    settle();
    struct berth *c = client(address[0]);
    reads(c, "l", 1000);
    berth_close(c);
    assert_true(eventually(no_leases, b[0], SOON_MS));
    pid_t pid = fork();
    if (pid == 0) {
        struct berth *own = NULL;
        bool good = berth_open(&own, address[1], NULL) == 0 && into(own, "l", SECONDS(20)) == 1000;
        if (good) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(eventually(no_leases, b[0], SOON_MS));
}

/* ---- nodes that stop, die, come back ---- */

static void test_paused_owner(void **unused)
{
    (void)unused;
    put(1, "paused", 5u << 20, 0);
    put(0, "awake", 1000, 0);
    settle();
    struct berth *c = client(address[0]);
    reads(c, "paused", 5u << 20);
    assert_int_equal(kill(d[1].pid, SIGSTOP), 0);
    int64_t from = now_ns();
    long rc = into(c, "paused", MS(700)); /* a good lease: the transfer itself hangs */
    int64_t took = now_ns() - from;
    assert_int_equal(rc, -ETIMEDOUT);
    assert_true(took >= MS(600) && took < SECONDS(5));
    from = now_ns();
    rc = into(c, "paused", BERTH_FOREVER); /* nobody is waited for that says nothing */
    assert_true(rc < 0 && now_ns() - from < SECONDS(20));
    assert_int_equal(kill(d[1].pid, SIGCONT), 0);
    reads_soon(c, "paused", 5u << 20);
    reads_soon(c, "awake", 1000);
    berth_close(c);
}

static void kill_node(unsigned i)
{
    berth_close(b[i]);
    b[i] = NULL;
    daemon_kill(&d[i]);
}

static void start_again(unsigned i)
{
    daemon_again(&d[i]);
    b[i] = daemon_open(&d[i], "test");
}

static void test_killed_and_back(void **unused)
{
    (void)unused;
    char key[2][16];
    struct berth_stat st;
    for (unsigned i = 0; i < NODES; i++) {
        snprintf(key[i], sizeof key[i], "on-%s", names[i]);
        put(i, key[i], 100000, 0);
    }
    settle();
    struct berth *c = client(address[0]);
    for (unsigned round = 0; round < 4; round++) {
        unsigned dies = round % 2; /* the one that it was told of, too */
        reads_soon(c, key[0], 100000);
        reads_soon(c, key[1], 100000);
        kill_node(dies);
        int64_t from = now_ns();
        long rc = into(c, key[dies], SECONDS(10));
        assert_true(rc == BERTH_EUNSURE || rc == BERTH_ENOTNOW || rc == BERTH_ENODE);
        assert_true(now_ns() - from < MS(1900)); /* refused connections say so, before a request is given up */
        start_again(dies);
        reads_soon(c, key[dies], 100000);
        settle();
    }
    kill_node(0);
    kill_node(1);
    assert_int_equal(into(c, key[0], SECONDS(10)), BERTH_ENODE);
    assert_int_equal(berth_stat(c, key_of(key[0]), &st), BERTH_ENODE);
    start_again(0);
    start_again(1);
    reads_soon(c, key[1], 100000);
    berth_close(c);
    settle();
}

/* A fleet with another list is another one to a client: homes are chosen by the list. */
static void test_another_list(void **unused)
{
    (void)unused;
    static struct daemon one;
    char listen[64], more[256];
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", free_port());
    snprintf(more, sizeof more, "one=%s,two=tcp://127.0.0.1:%u", listen, free_port());
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--name", "one", "--listen", listen, NULL});
    struct berth *c = client(listen);
    assert_int_equal(into(c, "nowhere", SECONDS(10)), -ENOENT);
    daemon_end(&one);
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--name", "one", "--listen", listen, "--peers",
                                        more, NULL});
    struct wish w = {.c = c, .key = "nowhere", .want = BERTH_ERESTART};
    assert_true(eventually(comes, &w, SOON_MS));
    berth_close(c);
    daemon_end(&one);
}

/* ---- opening ---- */

static void opens_not(const char *url, int code, const char *sentence)
{
    struct berth *c = NULL;
    struct berth_error_info e;
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = MS(1500)};
    int64_t from = now_ns();
    int rc = berth_open(&c, url, &o);
    if (rc == 0) {
        berth_close(c);
    }
    berth_error(NULL, &e);
    if (rc != code || !strstr(e.sentence, sentence)) {
        fail_msg("%s: %s, '%s'", url, berth_error_name(rc), e.sentence);
    }
    assert_true(now_ns() - from < SECONDS(10));
}

/* Says so much to whoever connects, and then nothing. */
struct stranger {
    int fd;
    pthread_t thread;
    const char *says;
    char url[64];
};

static void *accept_one(void *arg)
{
    struct stranger *s = arg;
    int fd = accept(s->fd, NULL, NULL);
    char byte;
    if (fd >= 0 && send(fd, s->says, strlen(s->says), MSG_NOSIGNAL) >= 0) {
        while (recv(fd, &byte, 1, 0) > 0) {
            continue;
        }
    }
    close(fd);
    return NULL;
}

static void stranger_start(struct stranger *s, const char *says, int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *at = family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t size = family == AF_INET6 ? sizeof v6 : sizeof v4;
    s->says = says;
    s->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, at, size), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(getsockname(s->fd, at, &size), 0);
    unsigned port = ntohs(family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    snprintf(s->url, sizeof s->url, family == AF_INET6 ? "tcp://[::1]:%u" : "tcp://127.0.0.1:%u", port);
    assert_int_equal(pthread_create(&s->thread, NULL, accept_one, s), 0);
}

static void stranger_end(struct stranger *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
}

static void test_opens_not(void **unused)
{
    static const char *const says[] = {"", "HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n<html>................</html>",
                                       "220 mail.example ESMTP, of which a client understands not a single word....."};
    (void)unused;
    char url[128];
    snprintf(url, sizeof url, "%s?cluster=another", address[0]);
    opens_not(url, -EACCES, "of the cluster 'berth'");
    snprintf(url, sizeof url, "%s?pool=64MiB", address[0]);
    opens_not(url, -EINVAL, "'pool' is no setting");
    snprintf(url, sizeof url, "%s?verify=sometimes", address[0]);
    opens_not(url, -EINVAL, "verify");
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", free_port());
    opens_not(url, BERTH_ENODE, "refused");
    opens_not("tcp://", -EINVAL, "HOST:PORT");
    opens_not("tcp://127.0.0.1", -EINVAL, "HOST:PORT");
    opens_not("tcp://[::1", -EINVAL, "HOST");
    opens_not("tcp://host.invalid:7400", BERTH_ENODE, "host.invalid");
    opens_not("tcp://192.0.2.1:7400", -EACCES, "peer-trust=network");
    opens_not("tcp://192.0.2.1:7400?peer-trust=network", BERTH_ENODE, "192.0.2.1");
    opens_not("verbs://127.0.0.1:7400", -EOPNOTSUPP, "later version");
    for (unsigned i = 0; i < sizeof says / sizeof *says; i++) {
        struct stranger s;
        stranger_start(&s, says[i], i ? AF_INET : AF_INET6);
        opens_not(s.url, BERTH_ENODE, s.url);
        stranger_end(&s);
    }
}

static void test_by_name_and_v6(void **unused)
{
    (void)unused;
    static struct daemon one;
    char listen[64], url[64];
    unsigned port = free_port();
    put(1, "named", 100, 0);
    settle();
    snprintf(url, sizeof url, "tcp://localhost:%s", strrchr(address[0], ':') + 1);
    struct berth *c = client(url);
    reads(c, "named", 100);
    berth_close(c);
    snprintf(listen, sizeof listen, "tcp://[::1]:%u", port);
    daemon_start(&one, (const char *[]){"--pool", "8M", "--lock", "off", "--listen", listen, NULL});
    struct berth *local = daemon_open(&one, "test");
    assert_int_equal(berth_put(local, key_of("six"), "6", 1, NULL), 0);
    setenv("BERTH_NODE", listen, 1);
    c = client(NULL);
    unsetenv("BERTH_NODE");
    reads_soon(c, "nowhere", -ENOENT);
    assert_int_equal(into(c, "six", SECONDS(20)), 1);
    assert_int_equal(got[0], '6');
    berth_close(c);
    berth_close(local);
    daemon_end(&one);
}

/* ---- who is let in, and what for ---- */

static void test_client_writes_nothing(void **unused)
{
    (void)unused;
    static struct remote r;
    static const uint8_t region[16] = {7};
    struct peer_config member;
    put(0, "mine", 100, 0);
    settle();
    remote_open(&r, address[0], "thief");
    struct wire_message m = {.head = {.op = WIRE_PUBLISH}};
    m.publish.stream = 1;
    m.publish.owner_region = 99;
    m.publish.owner_incarnation = 1;
    m.publish.home_region = r.node.region_id;
    m.publish.home_incarnation = r.node.incarnation;
    m.publish.revision = r.node.revision;
    struct wire_item item = {.entry = {.kind = WIRE_OBJECT,
                                       .key = {.data = "mine", .size = 4},
                                       .version = {.counter = INT64_MAX, .region = 9}}};
    assert_true(remote_ask(&r, &m, &item, 1) < 0);
    remote_close(&r);
    struct berth *c = client(address[0]);
    reads(c, "mine", 100);
    berth_close(c);
    /* No member, but it says that it is one. */
    peer_config_init(&member);
    snprintf(member.self.cluster, sizeof member.self.cluster, "berth");
    snprintf(member.self.node, sizeof member.self.node, "stranger");
    snprintf(member.self.address, sizeof member.self.address, "tcp://127.0.0.1:1");
    memcpy(member.self.region, region, sizeof region);
    member.self.revision = r.node.revision;
    member.self.incarnation = 1;
    assert_false(remote_greet(&r, address[0], &member.self));
    assert_non_null(strstr(r.why, "not in the member list"));
    remote_close(&r);
}

static void test_members_in_parts(void **unused)
{
    (void)unused;
    static struct remote r;
    remote_open(&r, address[1], "lister");
    struct wire_message m = {.head = {.op = WIRE_MEMBERS}};
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, NODES);
    assert_int_equal(r.answer.listed.total, NODES);
    assert_int_equal(r.answer.listed.homes, 1);
    assert_int_equal(r.answer.listed.revision, r.node.revision);
    m.from = 1;
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, 1);
    m.from = 2;
    assert_int_equal(remote_ask(&r, &m, NULL, 0), 0);
    assert_int_equal(r.n, 0);
    remote_close(&r);
}

struct again {
    const char *url;
    struct berth *c;
};

static bool lets_in(void *arg)
{
    struct again *a = arg;
    return berth_open(&a->c, a->url, NULL) == 0;
}

static void test_too_many_clients(void **unused)
{
    (void)unused;
    struct rlimit files;
    char name[32];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct remote **r = calloc(CLIENTS, sizeof *r);
    struct berth *c = client(address[0]);
    for (unsigned i = 0; i < CLIENTS - 1; i++) {
        r[i] = malloc(sizeof **r);
        assert_non_null(r[i]);
        snprintf(name, sizeof name, "client%u", i);
        remote_open(r[i], address[0], name);
        for (unsigned k = i >= 64 ? i - 64 : 0; k < i; k++) {
            remote_turn(r[k], 0); /* it answers keep-alives */
        }
    }
    opens_not(address[0], -EUSERS, "as many clients as it takes, 256");
    put(0, "full", 100, 0);
    reads_soon(c, "full", 100);
    for (unsigned i = 0; i < CLIENTS - 1; i++) {
        remote_close(r[i]);
        free(r[i]);
    }
    free(r);
    berth_close(c);
    struct again again = {.url = address[0]};
    assert_true(eventually(lets_in, &again, SOON_MS)); /* the others' places are free again */
    reads(again.c, "full", 100);
    berth_close(again.c);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_from_each),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_waits_for_a_key),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_queue_operations),
        cmocka_unit_test(test_what_needs_a_node),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_leases_end),
        cmocka_unit_test(test_paused_owner),
        cmocka_unit_test(test_killed_and_back),
        cmocka_unit_test(test_another_list),
        cmocka_unit_test(test_opens_not),
        cmocka_unit_test(test_by_name_and_v6),
        cmocka_unit_test(test_client_writes_nothing),
        cmocka_unit_test(test_members_in_parts),
        cmocka_unit_test(test_too_many_clients),
    };
    return cmocka_run_group_tests(tests, start_nodes, end_nodes);
}
