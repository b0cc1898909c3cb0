/* test_remote_client.c: "tcp://": objects of two nodes read by a process that has neither node nor pool. */
#include "tests/support/afar.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- reading ---- */

static void test_reads_from_each(void **unused)
{
    static const size_t sizes[] = {0, 1, 4095, 4097, 1u << 20, LARGE};
    (void)unused;
    char key[16];
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "k%u", i);
        afar_put(i % 2, key, sizes[i / 2], i % 4 == 3 ? 1u << 20 : 0);
    }
    afar_settle();
    for (unsigned at = 0; at < NODES; at++) {
        struct berth *c = afar_client(afar_address[at]);
        for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            struct berth_view v;
            struct berth_stat st;
            snprintf(key, sizeof key, "k%u", i);
            afar_reads(c, key, sizes[i / 2]);
            afar_reads(c, key, sizes[i / 2]); /* under the lease of before */
            assert_int_equal(berth_get(afar_node[i % 2], key_of(key), &v, 0, BERTH_NOW), 0);
            assert_int_equal(berth_stat(c, key_of(key), &st), 0);
            assert_int_equal(st.size, v.size);
            assert_int_equal(st.segment, i % 4 == 3 ? 1u << 20 : 0);
            assert_int_equal(st.checksum, v.checksum);
            assert_int_equal(st.version.counter, v.version.counter);
            assert_int_equal(st.version.region, v.version.region);
            assert_int_equal(st.key_size, strlen(key));
            berth_release(afar_node[i % 2], &v, 1);
        }
        berth_close(c);
    }
}

static void says(struct berth *c, const char *word)
{
    struct berth_error_info e;
    berth_error(c, &e);
    if (!strstr(e.sentence, word)) {
        fail_msg("'%s' has no '%s'", e.sentence, word);
    }
}

/* What a call with BERTH_LOCAL said, and an operation says. */
static void no_pool(struct berth *c, struct berth_op *op, int said)
{
    struct berth_queue *q;
    struct berth_op *done;
    assert_int_equal(said, -EINVAL);
    says(c, "BERTH_LOCAL");
    assert_int_equal(berth_queue_open(c, 1, &q), 0);
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &done, 1, BERTH_FOREVER), 1);
    assert_int_equal(op->result, -EINVAL);
    berth_queue_close(q);
}

static void test_what_is_not_there(void **unused)
{
    (void)unused;
    struct berth_error_info e;
    struct berth_stat st;
    afar_put(0, "here", 3000, 0);
    afar_put(1, "there", 3000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    assert_int_equal(afar_into(c, "nowhere", SECONDS(20)), -ENOENT);
    assert_int_equal(berth_stat(c, key_of("nowhere"), &st), -ENOENT);
    struct berth_key keys[] = {key_of("here"), key_of("nowhere"), key_of("there")};
    uint8_t present[3] = {9, 9, 9};
    assert_int_equal(berth_exists(c, keys, 3, present, 0), 2);
    assert_true(present[0] == 1 && present[1] == 0 && present[2] == 1);
    memset(afar_got, 0xee, 3000);
    assert_int_equal(berth_get_into(c, key_of("here"), afar_got, 2999, 0, berth_deadline(SECONDS(20))), -ENOSPC);
    berth_error(c, &e);
    assert_int_equal(e.figure[0], 3000);
    assert_int_equal(afar_got[0], 0xee);
    assert_int_equal(berth_get_into(c, key_of("here"), afar_got, sizeof afar_got, 0, BERTH_NOW), -ETIMEDOUT);
    says(c, "BERTH_NOW");
    struct berth_range range = {.size = 5, .data = afar_got};
    assert_int_equal(berth_get_range(c, key_of("here"), &range, 1, 0, BERTH_NOW), -ETIMEDOUT);
    says(c, "BERTH_NOW");
    struct berth_op op = {
        .opcode = BERTH_OP_GET_INTO, .key = key_of("here"), .data = afar_got, .size = 1, .flags = BERTH_LOCAL};
    no_pool(c, &op, (int)berth_get_into(c, key_of("here"), afar_got, 3000, BERTH_LOCAL, BERTH_FOREVER));
    no_pool(c, &op, (int)berth_get_range(c, key_of("here"), &range, 1, BERTH_LOCAL | BERTH_PEERS, BERTH_FOREVER));
    no_pool(c, &op, (int)berth_exists(c, keys, 3, present, BERTH_LOCAL));
    struct berth_view view;
    assert_int_equal(berth_get(c, key_of("here"), &view, 0, BERTH_FOREVER), -EOPNOTSUPP);
    says(c, "berth_get_into");
    assert_int_equal(berth_get_into(c, key_of("here"), NULL, 5, 0, berth_deadline(SECONDS(20))), -EINVAL);
    assert_int_equal(berth_get_into(c, key_of("here"), afar_got, sizeof afar_got, BERTH_FRESH | BERTH_VERIFY,
                                    berth_deadline(SECONDS(20))),
                     3000);
    assert_int_equal(berth_remove(afar_node[0], key_of("here"), NULL), 0);
    afar_settle();
    assert_int_equal(
        berth_get_into(c, key_of("here"), afar_got, sizeof afar_got, BERTH_FRESH, berth_deadline(SECONDS(20))),
        -ENOENT);
    int64_t from = afar_now();
    assert_int_equal(berth_get_into(c, key_of("later"), afar_got, sizeof afar_got, BERTH_WAIT, berth_deadline(MS(300))),
                     -ETIMEDOUT);
    assert_true(afar_now() - from < SECONDS(5));
    berth_close(c);
}

static void *put_later(void *key)
{
    afar_put(1, key, 5000, 0);
    return NULL;
}

static void test_waits_for_a_key(void **unused)
{
    (void)unused;
    pthread_t t;
    struct berth *c = afar_client(afar_address[0]);
    assert_int_equal(afar_into(c, "late", SECONDS(20)), -ENOENT);
    assert_int_equal(pthread_create(&t, NULL, put_later, (void *)(uintptr_t) "late"), 0);
    assert_int_equal(
        berth_get_into(c, key_of("late"), afar_got, sizeof afar_got, BERTH_WAIT, berth_deadline(SECONDS(20))), 5000);
    assert_true(payload_is(afar_got, 5000, "late"));
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
    afar_put(0, "plain", 300000, 0);
    afar_put(1, "plain1", 300000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    check_ranges(c, "plain", 300000, 1, 0);
    check_ranges(c, "plain1", 300000, 100, 0);
    check_ranges(c, "plain", 300000, 3001, 0); /* several messages */
    check_ranges(c, "plain1", 300000, 10, BERTH_VERIFY);
    struct berth_range beyond[] = {{.offset = 0, .size = 1, .data = afar_got},
                                   {.offset = 299999, .size = 2, .data = afar_got + 1}};
    assert_int_equal(berth_get_range(c, key_of("plain"), beyond, 2, 0, berth_deadline(SECONDS(20))), -ERANGE);
    berth_error(c, &e);
    assert_true(e.figure[0] == 300000 && e.figure[1] == 1 && e.figure[2] == 299999 && e.figure[3] == 2);
    beyond[1] = (struct berth_range){.offset = UINT64_MAX, .size = UINT64_MAX, .data = afar_got};
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
    struct berth *c = afar_client(afar_address[1]);
    assert_int_equal(berth_namespace(afar_node[0], "models", &there), 0);
    assert_int_equal(berth_namespace(c, "models", &ns), 0);
    assert_int_equal(ns, there);
    assert_int_equal(berth_namespace(c, "", &ns), 0);
    assert_int_equal(ns, 0);
    assert_int_equal(berth_namespace(c, "no blanks", &ns), -EINVAL);
    struct berth_key key = key_of("m");
    key.ns = there;
    assert_int_equal(berth_put(afar_node[0], key, "one", 3, NULL), 0);
    afar_settle();
    assert_int_equal(berth_get_into(c, key, afar_got, sizeof afar_got, 0, berth_deadline(SECONDS(20))), 3);
    assert_memory_equal(afar_got, "one", 3);
    assert_int_equal(berth_put(afar_node[0], key, "three", 5, NULL), 0);
    afar_settle();
    assert_int_equal(berth_get_into(c, key, afar_got, sizeof afar_got, BERTH_FRESH, berth_deadline(SECONDS(20))), 5);
    assert_memory_equal(afar_got, "three", 5);
    assert_int_equal(berth_get_into(c, key, afar_got, sizeof afar_got, 0, berth_deadline(SECONDS(20))),
                     5);                                       /* and never less */
    assert_int_equal(afar_into(c, "m", SECONDS(20)), -ENOENT); /* not of the default namespace */
    berth_close(c);
}

/* Puts the key again and again, each time full of another byte, until it is told to stop. */
struct writer {
    struct berth_key key;
    _Atomic bool stop;
};

static void *replace(void *arg)
{
    struct writer *w = arg;
    static uint8_t bytes[100000];
    for (unsigned i = 0; !w->stop; i++) {
        memset(bytes, (int)(i % 251), sizeof bytes);
        if (berth_put(afar_node[0], w->key, bytes, sizeof bytes, NULL)) {
            return w;
        }
    }
    return NULL;
}

/* More ranges than one request takes are of one version all the same. */
static void test_ranges_of_one_version(void **unused)
{
    enum { N = 2500 };
    static struct berth_range r[N];
    static uint8_t to[N];
    struct writer w = {.key = key_of("turns")};
    pthread_t t;
    void *bad;
    unsigned good = 0;
    (void)unused;
    struct berth *c = afar_client(afar_address[1]);
    assert_int_equal(berth_namespace(afar_node[0], "turned", &w.key.ns), 0);
    for (unsigned i = 0; i < N; i++) {
        r[i] = (struct berth_range){.offset = i * 39u, .size = 1, .data = &to[i]};
    }
    assert_int_equal(pthread_create(&t, NULL, replace, &w), 0);
    for (unsigned i = 0; i < 200 && good < 20; i++) {
        long n = berth_get_range(c, w.key, r, N, BERTH_FRESH, berth_deadline(SECONDS(20)));
        assert_true(n == N || n == BERTH_ENOTNOW || n == -ENOENT);
        for (unsigned k = 1; n == N && k < N; k++) {
            assert_int_equal(to[k], to[0]);
        }
        good += n == N;
    }
    w.stop = true;
    pthread_join(t, &bad);
    assert_null(bad);
    assert_true(good > 0);
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
            afar_put(i % 2, key[i], 1000 + i, 0);
        }
        op[i] = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                                  .key = key_of(key[i]),
                                  .data = room[i],
                                  .size = sizeof room[i],
                                  .deadline = berth_deadline(SECONDS(60))};
    }
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
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

/* Straight to its place: nothing is copied out of a pool. */
static void came_from(const struct berth_record *r, unsigned node, uint64_t least)
{
    assert_string_equal(r->source, afar_names[node]);
    assert_string_equal(r->transport, "tcp");
    assert_true(r->bytes >= least);
    assert_int_equal(r->copied, r->bytes);
    assert_int_equal(r->copied_out, 0);
    assert_int_equal(r->member, node);
    assert_true(r->lease != 0);
    assert_true(r->phase_ns[BERTH_PHASE_TRANSFER] > 0 && r->phase_ns[BERTH_PHASE_TOTAL] > 0);
}

static void test_records(void **unused)
{
    struct berth_queue *q;
    struct berth_record record;
    int64_t until = berth_deadline(SECONDS(30));
    (void)unused;
    afar_put(1, "r", 10000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    assert_int_equal(berth_queue_open(c, 8, &q), 0);
    struct berth_range r = {.offset = 5, .size = 17, .data = afar_got};
    struct berth_op op = {
        .opcode = BERTH_OP_GET_RANGE, .key = key_of("r"), .ranges = &r, .n = 1, .deadline = until, .record = &record};
    memset(&record, 0xee, sizeof record);
    assert_int_equal(reap_one(q, &op), 17);
    came_from(&record, 1, 17);
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                           .key = key_of("r"),
                           .data = afar_got,
                           .size = sizeof afar_got,
                           .deadline = until,
                           .flags = BERTH_VERIFY,
                           .record = &record};
    assert_int_equal(reap_one(q, &op), 10000);
    came_from(&record, 1, 10000);
    assert_int_equal(record.flags, BERTH_RECORD_VERIFIED);
    berth_queue_close(q);
    berth_close(c);
}

static void test_queue_operations(void **unused)
{
    struct berth_queue *q;
    struct berth_stat st;
    struct berth_op *out[2];
    int64_t until = berth_deadline(SECONDS(30));
    (void)unused;
    afar_put(1, "o", 10000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    assert_int_equal(berth_queue_open(c, 8, &q), 0);
    assert_true(berth_queue_fd(q) >= 0);
    struct berth_range r[] = {{.offset = 5, .size = 7, .data = afar_got + 100},
                              {.offset = 9990, .size = 10, .data = afar_got}};
    uint8_t whole[10000];
    payload_fill(whole, sizeof whole, "o");
    struct berth_op op = {.opcode = BERTH_OP_GET_RANGE, .key = key_of("o"), .ranges = r, .n = 2, .deadline = until};
    assert_int_equal(reap_one(q, &op), 17);
    assert_memory_equal(afar_got + 100, whole + 5, 7);
    assert_memory_equal(afar_got, whole + 9990, 10);
    op = (struct berth_op){.opcode = BERTH_OP_STAT, .key = key_of("o"), .stat = &st};
    assert_int_equal(reap_one(q, &op), 0);
    assert_int_equal(st.size, 10000);
    op = (struct berth_op){.opcode = BERTH_OP_NOP};
    assert_int_equal(reap_one(q, &op), 0);
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .key = key_of("o"), .deadline = until};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    op = (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of("new"), .data = afar_got, .size = 5};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    struct berth_view v;
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("o"), .view = &v, .flags = BERTH_PEERS};
    assert_int_equal(reap_one(q, &op), -EOPNOTSUPP);
    op = (struct berth_op){
        .opcode = BERTH_OP_GET_INTO, .key = key_of("o"), .data = afar_got, .size = 10, .deadline = until};
    assert_int_equal(reap_one(q, &op), -ENOSPC);
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                           .key = key_of("nowhere"),
                           .data = afar_got,
                           .size = sizeof afar_got,
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
    struct berth *c = afar_client(afar_address[0]);
    afar_put(0, "x", 100, 0);
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
    afar_reads_soon(c, "x", 100);
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
        afar_put(i % 2, key, 30000 + i, 0);
    }
    afar_settle();
    struct berth *c = afar_client(afar_address[1]);
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
    if (!good || berth_open(&c, afar_address[0], NULL)) {
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
    afar_put(1, "f", 100, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    afar_reads(c, "f", 100);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(in_child(c));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    afar_reads(c, "f", 100);
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
    afar_put(0, "l", 1000, 0);
    afar_settle();
    struct berth *c = afar_client(afar_address[0]);
    afar_reads(c, "l", 1000);
    berth_close(c);
    assert_true(eventually(no_leases, afar_node[0], SOON_MS));
    pid_t pid = fork();
    if (pid == 0) {
        struct berth *own = NULL;
        bool good = berth_open(&own, afar_address[1], NULL) == 0 && afar_into(own, "l", SECONDS(20)) == 1000;
        if (good) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(eventually(no_leases, afar_node[0], SOON_MS));
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_from_each),  cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_waits_for_a_key),  cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_replaced),         cmocka_unit_test(test_ranges_of_one_version),
        cmocka_unit_test(test_queues),           cmocka_unit_test(test_records),
        cmocka_unit_test(test_queue_operations), cmocka_unit_test(test_what_needs_a_node),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_fork),
        cmocka_unit_test(test_leases_end),
    };
    return cmocka_run_group_tests(tests, afar_start, afar_end);
}
