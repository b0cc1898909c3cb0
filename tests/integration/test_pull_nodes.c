/* Objects pulled by key from other nodes: embedded ones of this process, and a berthd. */
#include "tests/support/daemon.h"
#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES 3u
#define SECONDS(n) ((n)*INT64_C(1000000000))
#define BIG (40u << 20) /* more than one READ */

static struct berth *node[NODES];
static char list[512];
static uint16_t port[NODES];

static void open_node(unsigned i, const char *more)
{
    char url[1024];
    snprintf(url, sizeof url,
             "embedded:?pool=64MiB&lock=off&log-level=error&name=n%u&listen=tcp://127.0.0.1:%u&peers=%s%s", i, port[i],
             list, more);
    int rc = berth_open(&node[i], url, NULL);
    if (rc) {
        struct berth_error_info e;
        berth_error(NULL, &e);
        fail_msg("%s: %s", url, e.sentence);
    }
}

static void name_nodes(unsigned n)
{
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        port[i] = free_port();
        at += (size_t)snprintf(list + at, sizeof list - at, "%sn%u=tcp://127.0.0.1:%u", i ? "," : "", i, port[i]);
    }
}

static void open_nodes(unsigned n)
{
    name_nodes(n);
    for (unsigned i = 0; i < n; i++) {
        open_node(i, "");
    }
}

static void check_node(struct berth *b)
{
    char *text = NULL;
    assert_int_equal(berth_query(b, BERTH_CHECK, NULL, &text), 0);
    if (!strstr(text, "\"differences\": 0") || !strstr(text, "\"invariant\": null")) {
        fail_msg("%s", text);
    }
    free(text);
}

static int close_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++) {
        if (node[i]) {
            check_node(node[i]);
        }
        berth_close(node[i]);
        node[i] = NULL;
    }
    return 0;
}

static void put(struct berth *b, const char *key, size_t size)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(b, key_of(key), data, size, NULL), 0);
    free(data);
}

struct wish {
    struct berth *b;
    const char *key;
    struct berth_view v;
    unsigned flags;
    int rc;
};

static bool got(void *arg)
{
    struct wish *w = arg;
    w->rc = berth_get(w->b, key_of(w->key), &w->v, w->flags, berth_deadline(SECONDS(10)));
    return w->rc == 0;
}

/* Until the nodes have found each other. */
static struct berth_view want(struct berth *b, const char *key, unsigned flags)
{
    struct wish w = {.b = b, .key = key, .flags = flags};
    if (!eventually(got, &w, 20000)) {
        fail_msg("%s: %s", key, berth_error_name(w.rc));
    }
    return w.v;
}

/* Each pair has a key of its own, so that it is their own connection that is waited for. */
static void meet(unsigned n)
{
    for (unsigned i = 0; i < n * n; i++) {
        char key[16];
        snprintf(key, sizeof key, "hello%u-%u", i / n, i % n);
        put(node[i / n], key, 100);
        struct berth_view v = want(node[i % n], key, BERTH_PEERS);
        assert_true(payload_is(v.data, v.size, key));
        berth_release(node[i % n], &v, 1);
    }
}

static bool told(void *b)
{
    return daemon_number(b, "home.queued") == 0;
}

/* A put returns when its own node has it; others find it once its homes have heard of it (PROTOCOLS rule 30). */
static void settle(unsigned i)
{
    assert_true(eventually(told, node[i], 20000));
}

static void bytes_and_version(void **state)
{
    static const size_t sizes[] = {0, 1, 4095, 4097, 1u << 20, 5u << 20};
    (void)state;
    open_nodes(2);
    meet(2);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char key[16];
        struct berth_view a, b, again;
        snprintf(key, sizeof key, "k%u", i);
        put(node[0], key, sizes[i]);
        settle(0);
        assert_int_equal(berth_get(node[0], key_of(key), &a, 0, BERTH_NOW), 0);
        assert_int_equal(berth_get(node[1], key_of(key), &b, 0, BERTH_NOW), -ENOENT);
        assert_int_equal(berth_get(node[1], key_of(key), &b, BERTH_PEERS | BERTH_VERIFY, berth_deadline(SECONDS(10))),
                         0);
        assert_int_equal(b.size, sizes[i]);
        assert_true(payload_is(b.data, b.size, key));
        assert_int_equal(b.checksum, a.checksum);
        assert_int_equal(b.version.counter, a.version.counter);
        assert_int_equal(b.version.region, a.version.region);
        assert_int_equal(berth_get(node[1], key_of(key), &again, 0, BERTH_NOW), 0); /* it is here now */
        assert_ptr_equal(again.data, b.data);
        berth_release(node[1], &again, 1);
        berth_release(node[1], &b, 1);
        berth_release(node[0], &a, 1);
    }
}

static void large_object(void **state)
{
    (void)state;
    open_nodes(2);
    meet(2);
    put(node[0], "large", BIG);
    struct berth_view v = want(node[1], "large", BERTH_PEERS);
    assert_int_equal(v.size, BIG);
    assert_true(payload_is(v.data, v.size, "large"));
    berth_release(node[1], &v, 1);
}

static void misses(void **state)
{
    struct berth_view v;
    (void)state;
    open_nodes(2);
    meet(2);
    int rc = berth_get(node[1], key_of("nowhere"), &v, BERTH_PEERS, berth_deadline(SECONDS(5)));
    assert_int_equal(rc, -ENOENT);
    char to[8];
    struct berth_error_info e;
    struct berth_range range = {.size = 5, .data = to};
    for (unsigned i = 0; i < 3; i++) {
        long now = i == 0   ? berth_get(node[1], key_of("nowhere"), &v, BERTH_PEERS, BERTH_NOW)
                   : i == 1 ? berth_get_into(node[1], key_of("nowhere"), to, 8, BERTH_PEERS, BERTH_NOW)
                            : berth_get_range(node[1], key_of("nowhere"), &range, 1, BERTH_PEERS, BERTH_NOW);
        assert_int_equal(now, -ETIMEDOUT);
        berth_error(node[1], &e);
        assert_non_null(strstr(e.sentence, "BERTH_NOW"));
    }
    assert_int_equal(berth_get(node[1], key_of("nowhere"), &v, BERTH_PEERS | BERTH_LOCAL, BERTH_FOREVER), -EINVAL);
    berth_error(node[1], &e);
    assert_non_null(strstr(e.sentence, "BERTH_LOCAL"));
    struct berth_key key = key_of("nowhere");
    const unsigned both = BERTH_PEERS | BERTH_LOCAL;
    assert_int_equal(berth_get_many(node[1], &key, 1, &v, both, BERTH_FOREVER), -EINVAL);
    assert_int_equal(berth_prefix(node[1], &key, 1, &v, both, BERTH_FOREVER), -EINVAL);
    assert_int_equal(berth_get_into(node[1], key, to, 8, both, BERTH_FOREVER), -EINVAL);
    assert_int_equal(berth_get_range(node[1], key, &range, 1, both, BERTH_FOREVER), -EINVAL);
    struct berth_queue *q;
    struct berth_op op = {.opcode = BERTH_OP_GET, .key = key, .view = &v, .flags = both}, *done;
    assert_int_equal(berth_queue_open(node[1], 1, &q), 0);
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, &done, 1, BERTH_FOREVER), 1);
    assert_int_equal(op.result, -EINVAL);
    berth_queue_close(q);
}

/* What a peer's lease says of a key; nothing of it comes here. */
static void stat_at_peers(void **state)
{
    struct berth_view v;
    struct berth_stat here, there;
    struct berth_error_info e;
    (void)state;
    open_nodes(2);
    meet(2);
    put(node[0], "far", 70000);
    settle(0);
    const struct berth_key far = key_of("far");
    assert_int_equal(berth_stat(node[0], far, &here), 0);
    assert_int_equal(berth_stat(node[1], far, &there), -ENOENT);
    assert_int_equal(berth_stat_peers(node[1], far, &there, berth_deadline(SECONDS(20))), 0);
    assert_int_equal(there.size, here.size);
    assert_int_equal(there.version.counter, here.version.counter);
    assert_int_equal(there.version.region, here.version.region);
    assert_int_equal(there.checksum, here.checksum);
    assert_int_equal(there.segment, here.segment);
    assert_int_equal(there.key_size, 3);
    assert_int_equal(there.slot_bytes, 0);
    assert_int_equal(berth_get(node[1], far, &v, 0, BERTH_NOW), -ENOENT);
    assert_int_equal(berth_stat_peers(node[0], far, &there, BERTH_NOW), 0); /* it is here */
    assert_int_equal(there.slot_bytes, here.slot_bytes);
    assert_int_equal(berth_stat_peers(node[1], far, &there, BERTH_NOW), -ETIMEDOUT);
    berth_error(node[1], &e);
    assert_non_null(strstr(e.sentence, "BERTH_NOW"));
    assert_int_equal(berth_stat_peers(node[1], key_of("none"), &there, berth_deadline(SECONDS(20))), -ENOENT);
    assert_int_equal(berth_stat_peers(node[1], far, NULL, BERTH_FOREVER), -EINVAL);
    v = want(node[1], "far", BERTH_PEERS);
    berth_release(node[1], &v, 1);
    assert_int_equal(berth_stat_peers(node[1], far, &there, BERTH_FOREVER), 0);
    assert_true(there.slot_bytes > 0);
}

static void many_from_all(void **state)
{
    enum { N = 256 };
    static char name[N][16];
    static struct berth_key keys[N];
    static struct berth_view v[N];
    (void)state;
    open_nodes(3);
    meet(3);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "m%u", i);
        keys[i] = key_of(name[i]);
        put(node[i % 3], name[i], 1000 + i * 50);
    }
    for (unsigned i = 0; i < 3; i++) {
        settle(i);
    }
    assert_int_equal(berth_get_many(node[1], keys, N, v, BERTH_PEERS, berth_deadline(SECONDS(20))), N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(v[i].size, 1000 + i * 50);
        assert_true(payload_is(v[i].data, v[i].size, name[i]));
    }
    berth_release(node[1], v, N);
    assert_int_equal(berth_get_many(node[1], keys, N, v, 0, BERTH_NOW), N);
    berth_release(node[1], v, N);
}

static void prefixes(void **state)
{
    enum { N = 300 };
    static char name[N][16];
    static struct berth_key keys[N];
    static struct berth_view v[N];
    (void)state;
    open_nodes(2);
    meet(2);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "p%u", i);
        keys[i] = key_of(name[i]);
        if (i != 290) {
            put(node[i < 10 ? 1 : 0], name[i], 500);
        }
    }
    settle(0);
    assert_int_equal(berth_prefix(node[1], keys, N, v, BERTH_PEERS, berth_deadline(SECONDS(20))), 290);
    for (unsigned i = 0; i < 290; i++) {
        assert_true(payload_is(v[i].data, v[i].size, name[i]));
    }
    berth_release(node[1], v, 290);
}

static void into_memory(void **state)
{
    enum { SIZE = 3 << 20 };
    static uint8_t buffer[SIZE + 16];
    struct berth_view v;
    struct berth_error_info e;
    (void)state;
    open_nodes(2);
    meet(2);
    put(node[0], "into", SIZE);
    settle(0);
    double pulled = daemon_number(node[1], "local.pulled"), misses = daemon_number(node[1], "local.misses");
    double hits = daemon_number(node[1], "local.hits");
    memset(buffer, 0xee, sizeof buffer);
    assert_int_equal(berth_get_into(node[1], key_of("into"), buffer, SIZE - 1, BERTH_PEERS, berth_deadline(SECONDS(9))),
                     -ENOSPC);
    berth_error(node[1], &e);
    assert_int_equal(e.figure[0], SIZE);
    assert_int_equal(buffer[0], 0xee);
    assert_int_equal(berth_get_into(node[1], key_of("into"), buffer, sizeof buffer, BERTH_PEERS | BERTH_VERIFY,
                                    berth_deadline(SECONDS(9))),
                     SIZE);
    assert_true(payload_is(buffer, SIZE, "into"));
    assert_int_equal(buffer[SIZE], 0xee);
    assert_int_equal(berth_get(node[1], key_of("into"), &v, 0, BERTH_NOW), -ENOENT); /* no room was taken for it */
    assert_int_equal(
        berth_get_into(node[1], key_of("hello0-1"), buffer, sizeof buffer, BERTH_PEERS, berth_deadline(SECONDS(9))),
        100);
    assert_true(payload_is(buffer, 100, "hello0-1"));
    /* Each counted once: one was too large and one is not in the pool, one was pulled, one was here. */
    assert_int_equal(daemon_number(node[1], "local.misses") - misses, 2);
    assert_int_equal(daemon_number(node[1], "local.pulled") - pulled, 1);
    assert_int_equal(daemon_number(node[1], "local.hits") - hits, 1);
}

static long reap_one(struct berth_queue *q, struct berth_op *op)
{
    struct berth_op *out = NULL;
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, berth_deadline(SECONDS(20))), 1);
    assert_ptr_equal(out, op);
    return op->result;
}

static void queues(void **state)
{
    static uint8_t buffer[1000];
    struct berth_queue *q;
    struct berth_view v;
    int64_t until = berth_deadline(SECONDS(10));
    (void)state;
    open_nodes(2);
    meet(2);
    put(node[0], "q0", 1000);
    put(node[0], "q1", 1000);
    put(node[0], "q2", 1000);
    put(node[0], "q3", 1000);
    settle(0);
    assert_int_equal(berth_queue_open(node[1], 8, &q), 0);
    struct berth_op op = {
        .opcode = BERTH_OP_GET, .key = key_of("q0"), .view = &v, .flags = BERTH_PEERS, .deadline = until};
    assert_int_equal(reap_one(q, &op), 0);
    assert_true(payload_is(v.data, v.size, "q0"));
    berth_release(node[1], &v, 1);
    struct berth_record record;
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                           .key = key_of("q1"),
                           .data = buffer,
                           .size = sizeof buffer,
                           .flags = BERTH_PEERS,
                           .deadline = until,
                           .record = &record};
    assert_int_equal(reap_one(q, &op), 1000);
    assert_string_equal(record.source, "n0");
    assert_int_equal(record.copied, 1000);
    assert_int_equal(record.copied_out, 0); /* the kernel wrote into the buffer */
    assert_int_equal(record.phase_ns[BERTH_PHASE_REGISTER] + record.phase_ns[BERTH_PHASE_PUBLISH], 0);
    assert_true(payload_is(buffer, 1000, "q1"));
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .key = key_of("q2"), .deadline = until};
    assert_int_equal(reap_one(q, &op), 0);
    assert_int_equal(reap_one(q, &op), BERTH_KEPT);
    struct berth_key keys[] = {key_of("q3"), key_of("nowhere"), key_of("q2")};
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .data = keys, .n = 3, .deadline = until};
    assert_int_equal(reap_one(q, &op), 2);
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("q3"), .view = &v};
    assert_int_equal(reap_one(q, &op), 0);
    berth_release(node[1], &v, 1);
    berth_queue_close(q);
}

/* A pull that waits for what nobody has is ended by a cancel; both complete. */
static void cancelled(void **state)
{
    static uint8_t buffer[1000];
    struct berth_queue *q;
    struct berth_op *out[2];
    (void)state;
    open_nodes(2);
    meet(2);
    assert_int_equal(berth_queue_open(node[1], 8, &q), 0);
    struct berth_op op = {.opcode = BERTH_OP_GET_INTO,
                          .key = key_of("nowhere"),
                          .data = buffer,
                          .size = sizeof buffer,
                          .flags = BERTH_PEERS | BERTH_WAIT,
                          .deadline = BERTH_FOREVER};
    struct berth_op cancel = {.opcode = BERTH_OP_CANCEL, .data = &op};
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, out, 1, BERTH_NOW), 0);
    assert_int_equal(berth_submit(q, &cancel, 1), 1);
    for (long n = 0; n < 2;) {
        long more = berth_reap(q, out, 2, berth_deadline(SECONDS(10)));
        assert_true(more > 0);
        n += more;
    }
    assert_int_equal(op.result, -ECANCELED);
    assert_int_equal(cancel.result, 0);
    assert_int_equal(reap_one(q, &cancel), -ENOENT);
    berth_queue_close(q);
}

struct puller {
    pthread_t thread;
    struct berth *b;
    const char *prefix;
};

static void *pull_all(void *arg)
{
    struct puller *p = arg;
    for (unsigned i = 0; i < 60; i++) {
        char key[16];
        struct berth_view v;
        snprintf(key, sizeof key, "%s%u", p->prefix, i);
        int rc = berth_get(p->b, key_of(key), &v, BERTH_PEERS | BERTH_VERIFY, berth_deadline(SECONDS(20)));
        if (rc || !payload_is(v.data, v.size, key)) {
            return p;
        }
        berth_release(p->b, &v, 1);
    }
    return NULL;
}

static void both_ways_at_once(void **state)
{
    (void)state;
    open_nodes(2);
    meet(2);
    for (unsigned i = 0; i < 60; i++) {
        char key[16];
        snprintf(key, sizeof key, "a%u", i);
        put(node[0], key, 50000 + i);
        snprintf(key, sizeof key, "b%u", i);
        put(node[1], key, 50000 + i);
    }
    settle(0);
    settle(1);
    struct puller p[] = {{.b = node[0], .prefix = "b"}, {.b = node[1], .prefix = "a"}, {.b = node[1], .prefix = "a"}};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&p[i].thread, NULL, pull_all, &p[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        void *bad;
        pthread_join(p[i].thread, &bad);
        assert_null(bad);
    }
}

/* The owner, a process of its own, dies: what only it had is an error within the deadline, what another has comes. */
static void owner_is_killed(void **state)
{
    static struct daemon d;
    static char listen[64], peers[sizeof list];
    struct berth_view v;
    (void)state;
    name_nodes(3);
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", port[2]);
    snprintf(peers, sizeof peers, "%s", list);
    const char *extra[] = {"--pool",   "32MiB", "--lock",  "off", "--name", "n2",
                           "--listen", listen,  "--peers", peers, NULL};
    daemon_start(&d, extra);
    open_node(0, "");
    open_node(1, "");
    node[2] = daemon_open(&d, "test");
    meet(3);
    put(node[2], "both", 200000);
    put(node[2], "only", 200000);
    v = want(node[0], "both", BERTH_PEERS);
    berth_release(node[0], &v, 1);
    settle(0);
    settle(2);
    berth_close(node[2]);
    node[2] = NULL;
    daemon_kill(&d);
    v = want(node[1], "both", BERTH_PEERS); /* from node 0 */
    assert_true(payload_is(v.data, v.size, "both"));
    berth_release(node[1], &v, 1);
    int64_t until = berth_deadline(SECONDS(5));
    int rc = berth_get(node[1], key_of("only"), &v, BERTH_PEERS, until);
    assert_true(rc == BERTH_EUNSURE || rc == BERTH_ENOTNOW || rc == -ETIMEDOUT);
    assert_true(berth_deadline(0) < until + SECONDS(1));
    daemon_end(&d);
}

static void alone(void **state)
{
    struct berth_view v;
    struct berth_key key = key_of("k");
    (void)state;
    assert_int_equal(berth_open(&node[0], "embedded:?pool=32MiB&lock=off&log-level=error", NULL), 0);
    assert_int_equal(berth_get(node[0], key, &v, BERTH_PEERS, BERTH_FOREVER), -ENOENT);
    assert_int_equal(berth_get_many(node[0], &key, 1, &v, BERTH_PEERS, BERTH_FOREVER), 0);
    assert_int_equal(v.status, -ENOENT);
    assert_int_equal(berth_prefix(node[0], &key, 1, &v, BERTH_PEERS, BERTH_FOREVER), 0);
    assert_int_equal(berth_get_into(node[0], key, &v, sizeof v, BERTH_PEERS, BERTH_FOREVER), -ENOENT);
}

/* Not "an argument is out of range": the sentence says where an id comes from. */
static bool noted(void *b)
{
    return daemon_number(b, "counters.pasts_noted") > 0;
}

/* What was evicted at one node and is put again at another: its homes have heard of the first, and tell the second. */
static void evicted_elsewhere(void **state)
{
    (void)state;
    open_nodes(NODES);
    meet(NODES);
    char key[16];
    for (unsigned i = 0; i < 40; i++) { /* of 2 MiB: more than the pool has room for */
        snprintf(key, sizeof key, "block%u", i);
        put(node[0], key, 2 << 20);
    }
    settle(0);
    assert_true(daemon_number(node[1], "counters.pasts_told") + daemon_number(node[2], "counters.pasts_told") > 0);
    for (unsigned i = 0; i < 16; i++) {
        snprintf(key, sizeof key, "block%u", i);
        struct berth_key k = key_of(key);
        uint8_t present;
        if (berth_exists(node[0], &k, 1, &present, 0) == 0)
            put(node[1], key, 2 << 20);
    }
    assert_true(eventually(noted, node[1], 20000));
}

static void unknown_namespace(void **state)
{
    (void)state;
    static uint8_t into[16];
    struct berth_key key = {.data = "k", .size = 1, .ns = 77};
    struct berth_view v;
    struct berth_range range = {.size = 1, .data = into};
    open_nodes(2);
    int64_t until = berth_deadline(SECONDS(20));
    long rc[] = {berth_get(node[0], key, &v, BERTH_PEERS, until),
                 berth_get_into(node[0], key, into, sizeof into, BERTH_PEERS, until),
                 berth_get_range(node[0], key, &range, 1, BERTH_PEERS, until), berth_put(node[0], key, "x", 1, NULL)};
    for (unsigned i = 0; i < sizeof rc / sizeof *rc; i++) {
        assert_int_equal(rc[i], -EINVAL);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct berth_error_info e;
        assert_int_equal(i ? berth_get(node[0], key, &v, BERTH_PEERS, until) : berth_put(node[0], key, "x", 1, NULL),
                         -EINVAL);
        berth_error(node[0], &e);
        if (!strstr(e.sentence, "take the id from berth_namespace")) {
            fail_msg("%s", e.sentence);
        }
    }
    assert_int_equal(berth_get(node[0], key, &v, 1u << 30, until), -EINVAL); /* another reason, another sentence */
    struct berth_error_info e;
    berth_error(node[0], &e);
    assert_null(strstr(e.sentence, "berth_namespace"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, close_nodes)
    const struct CMUnitTest tests[] = {
        CASE(alone),
        CASE(bytes_and_version),
        CASE(large_object),
        CASE(misses),
        CASE(many_from_all),
        CASE(prefixes),
        CASE(into_memory),
        CASE(queues),
        CASE(cancelled),
        CASE(both_ways_at_once),
        CASE(owner_is_killed),
        CASE(stat_at_peers),
        CASE(evicted_elsewhere),
        CASE(unknown_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
