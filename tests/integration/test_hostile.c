/* test_hostile.c: clients that write whatever they like into their own ring, pin table and descriptors. The node lives, another
 * client works on unharmed, nothing stays behind when they are gone, and index, slots and lookup still agree.
 */
#include "tests/support/child.h"
#include "tests/support/daemon.h"
#include "tests/support/draw.h"
#include "tests/support/hand.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 20000u
#define SCRIBBLE_NS 500000000
#define RANDOM_NS 3000000000
#define TOKENS 64u

static struct daemon d;
static struct child bystander;
static struct berth *watcher;
static _Atomic long *work; /* the bystander's, shared with it */
static _Atomic int *stop;
static _Alignas(64) uint8_t message[RING_MESSAGE_MAX], reply[RING_MESSAGE_MAX];

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- somebody who only wants to work ---- */

static int work_on(void *arg)
{
    struct berth *b = NULL;
    char key[32], data[SIZE];
    (void)arg;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    while (!*stop) {
        struct berth_view v;
        struct berth_draft draft;
        snprintf(key, sizeof key, "bystander-%ld", (long)*work);
        payload_fill(data, sizeof data, key);
        CHECK(berth_put(b, key_of(key), data, sizeof data, NULL) == 0);
        CHECK(berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER) == 0);
        CHECK(payload_is(v.data, v.size, key));
        CHECK(berth_remove(b, key_of(key), NULL) == 0);
        CHECK(payload_is(v.data, v.size, key));
        berth_release(b, &v, 1);
        CHECK(berth_create(b, key_of(key), SIZE, NULL, &draft) == 0);
        payload_fill(draft.data, SIZE, key);
        CHECK(berth_seal(b, &draft, 1) == 0);
        CHECK(berth_remove(b, key_of(key), NULL) == 0);
        *work += 1;
    }
    berth_close(b);
    return 0;
}

static bool has_worked(void *arg)
{
    return *work > *(long *)arg + 2;
}

static bool nothing_is_left(void *arg)
{
    (void)arg;
    return daemon_number(watcher, "slots.drafts") <= 1 && daemon_number(watcher, "slots.retired") <= 2
           && daemon_number(watcher, "node.attached") == 2;
}

static void bystander_works(void)
{
    long before = *work;
    daemon_says(&d, "what it never says", 20); /* takes what it has logged: a full pipe would stop it */
    assert_true(eventually(has_worked, &before, 20000));
}

static void goes_on(void)
{
    bystander_works();
    assert_true(eventually(nothing_is_left, NULL, 20000));
    assert_int_equal(query_number(watcher, BERTH_CHECK, "differences"), 0);
}

static int setup(void **unused)
{
    (void)unused;
    work = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stop = (_Atomic int *)(work + 8);
    daemon_start(&d, (const char *[]){"--pool", "32MiB", "--draft-quota", "4MiB", "--quarantine", "50ms", NULL});
    snprintf(hand_path, sizeof hand_path, "%s", d.socket);
    child_start(&bystander, work_on, NULL);
    watcher = daemon_open(&d, "watcher");
    goes_on();
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    *stop = 1;
    int e = child_wait(&bystander);
    bool rest = daemon_number(watcher, "pool.used_bytes") != daemon_number(watcher, "pool.sealed_bytes");
    berth_close(watcher);
    daemon_end(&d);
    return e || rest;
}

/* ---- helpers of the attacks ---- */

static void ring_bell(const struct hand *h)
{
    uint64_t one = 1;
    if (write(h->got[5], &one, sizeof one) < 0) {
        return; /* full: it rings */
    }
}

/* Whether the node has hung up, now or within so long. */
static bool cut(const struct hand *h, int timeout_ms)
{
    struct pollfd p = {.fd = h->socket, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static void expect_cut(struct hand *h)
{
    ring_bell(h);
    assert_true(cut(h, 20000));
    hand_close(h);
}

static int ask(struct hand *h, void *m, size_t bytes)
{
    static uint64_t id = 1000;
    hand_ask(h, ++id, m, (uint32_t)bytes, reply);
    assert_int_equal(((struct msg_reply *)reply)->head.id, id);
    return ((struct msg_reply *)reply)->status;
}

static struct msg_token first_token(void)
{
    struct msg_token t;
    memcpy(&t, reply + sizeof(struct msg_reply), sizeof t);
    return t;
}

static struct msg_token granted(struct hand *h)
{
    struct msg_grant m = {.head = {.op = MSG_GRANT}, .size = 100, .count = 1};
    assert_int_equal(ask(h, &m, sizeof m), 0);
    return first_token();
}

static int try_create(struct hand *h, const char *key, uint16_t key_size)
{
    struct msg_create *m = (struct msg_create *)message;
    *m = (struct msg_create){.head = {.op = MSG_CREATE}, .object = {.size = 100, .key_size = key_size}};
    memcpy(m + 1, key, key_size);
    return ask(h, m, sizeof *m + key_size);
}

static int try_put(struct hand *h, struct msg_token t, const char *key, uint16_t key_size, uint32_t size)
{
    struct msg_put *m = (struct msg_put *)message;
    *m = (struct msg_put){.head = {.op = MSG_PUT}, .token = t, .object = {.size = size, .key_size = key_size}};
    memcpy(m + 1, key, key_size);
    return ask(h, m, sizeof *m + key_size);
}

static int try_seal(struct hand *h, struct msg_token a, struct msg_token b, uint32_t n, uint16_t flags)
{
    struct {
        struct msg_seal m;
        struct msg_member member[2];
    } s = {{.head = {.op = MSG_SEAL, .flags = flags}, .count = n}, {{.token = a}, {.token = b}}};
    return ask(h, &s, sizeof s.m + n * sizeof s.member[0]);
}

static int try_tokens(struct hand *h, uint16_t op, struct msg_token t, uint32_t n)
{
    struct {
        struct msg_tokens m;
        struct msg_token token;
    } s = {{.head = {.op = op}, .count = n}, t};
    return ask(h, &s, sizeof s.m + n * sizeof s.token);
}

/* ---- indices and lengths ---- */

static void test_indices_out_of_range(void **unused)
{
    (void)unused;
    static const uint64_t bad[] = {
        1, 63, 65, RING_REQUEST_BYTES + 64, RING_REQUEST_BYTES * 2, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 63};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hand h;
        hand_attach(&h);
        atomic_store(&h.ring->request_tail, bad[i]);
        expect_cut(&h);
        hand_attach(&h);
        hand_works(&h, 1);
        uint64_t head = atomic_load(&h.ring->reply_tail) - bad[i];
        atomic_store(&h.ring->reply_head, head);
        struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = 2}, .what = QUERY_METRICS};
        struct ring_end out;
        ring_request_producer(&out, h.ring);
        assert_int_equal(ring_push(&out, &q, sizeof q), 0);
        /* What only looks like a ring that is nearly full is not served; the rest is nonsense. */
        ring_bell(&h);
        assert_true(bad[i] < RING_REPLY_BYTES || cut(&h, 20000));
        hand_close(&h);
    }
    goes_on();
}

static void test_lengths_out_of_range(void **unused)
{
    (void)unused;
    static const uint32_t bad[] = {0, 1, 31, 129, RING_MESSAGE_MAX + 1, RING_REQUEST_BYTES, UINT32_MAX, UINT32_MAX - 62};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (uint16_t op = MSG_PAD; op < MSG_OPS; op += 5) {
            struct hand h;
            hand_attach(&h);
            *(struct msg_head *)h.ring->request = (struct msg_head){.bytes = bad[i], .op = op};
            atomic_store(&h.ring->request_tail, bad[i] == RING_MESSAGE_MAX + 1 ? RING_REQUEST_BYTES : 128);
            expect_cut(&h);
        }
    }
    goes_on();
}

/* ---- a second thread writes while the node reads ---- */

struct scribbler {
    struct ring_shared *ring;
    size_t from, to; /* bytes of it */
    uint64_t seed;
    _Atomic int end;
};

static void *scribble(void *arg)
{
    struct scribbler *s = arg;
    uint64_t x = s->seed | 1;
    while (!s->end) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        size_t at = s->from + (x >> 8) % ((s->to - s->from) / 8) * 8;
        uint64_t what = x & 1 ? x : x & 2 ? (x >> 20) % 256 : (x >> 20) % RING_REQUEST_BYTES & ~UINT64_C(63);
        atomic_store_explicit((_Atomic uint64_t *)((uint8_t *)s->ring + at), what, memory_order_relaxed);
    }
    return NULL;
}

static void send_valid(struct hand *h, struct ring_end *out, uint64_t id)
{
    static const char key[] = "scribbled";
    struct msg_create *m = (struct msg_create *)message;
    *m = (struct msg_create){.head = {.bytes = sizeof *m + 9, .op = MSG_CREATE, .id = id}, .object = {.size = 100, .key_size = 9}};
    memcpy(m + 1, key, 9);
    ring_push(out, m, m->head.bytes); /* full or broken, whatever */
    atomic_store(&h->ring->reply_head, atomic_load(&h->ring->reply_tail));
    ring_bell(h);
}

static void scribble_over(size_t from, size_t to)
{
    int64_t end = now() + SCRIBBLE_NS;
    while (now() < end) {
        struct hand h;
        pthread_t t;
        struct ring_end out;
        hand_attach(&h);
        struct scribbler s = {.ring = h.ring, .from = from, .to = to, .seed = draw()};
        ring_request_producer(&out, h.ring);
        assert_int_equal(pthread_create(&t, NULL, scribble, &s), 0);
        for (uint64_t id = 1; now() < end && !cut(&h, 0); id++) {
            send_valid(&h, &out, id);
        }
        s.end = 1;
        pthread_join(t, NULL);
        hand_close(&h);
    }
    goes_on();
}

static void test_scribbling_over_the_whole_ring(void **unused)
{
    (void)unused;
    scribble_over(offsetof(struct ring_shared, request_tail), sizeof(struct ring_shared));
}

static void test_messages_change_while_they_are_copied(void **unused)
{
    (void)unused;
    scribble_over(offsetof(struct ring_shared, request), offsetof(struct ring_shared, request) + 4096);
}

static void test_touches_out_of_range(void **unused)
{
    (void)unused;
    struct hand h;
    hand_attach(&h);
    for (unsigned i = 0; i < RING_TOUCHES; i++) {
        atomic_store(&h.ring->touch[i], i % 4 ? (uint32_t)draw() : UINT32_MAX - i % 3);
    }
    for (unsigned i = 0; i < 50; i++) {
        atomic_store(&h.ring->touch_tail, draw_below(3) ? draw() : atomic_load(&h.ring->touch_tail) + draw_below(20000));
        hand_works(&h, i + 1);
    }
    hand_close(&h);
    goes_on();
}

/* ---- too much of everything ---- */

/* Requests without end, of which no reply is ever read; then the same client is gone. */
static void test_replies_never_read(void **unused)
{
    (void)unused;
    struct hand h;
    struct ring_end out;
    uint64_t id = 0;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    int64_t end = now() + SCRIBBLE_NS;
    while (now() < end) {
        struct msg_grant g = {.head = {.bytes = sizeof g, .op = MSG_GRANT, .id = ++id, .deadline = INT64_MAX}, .size = 1, .count = 9};
        struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = id}, .what = (uint32_t)id % QUERY_KINDS};
        int e = id % 2 ? ring_push(&out, &g, sizeof g) : ring_push(&out, &q, sizeof q);
        assert_true(e == 0 || e == -EAGAIN);
        ring_bell(&h);
    }
    assert_true(id > 1000 && !cut(&h, 0));
    bystander_works();
    hand_close(&h);
    goes_on();
}

/* ---- tokens ---- */

static void test_tokens_of_others(void **unused)
{
    (void)unused;
    struct hand mine, theirs;
    hand_attach(&mine);
    hand_attach(&theirs);
    struct msg_token grant = granted(&theirs);
    assert_int_equal(try_create(&theirs, "draft", 5), 0);
    struct msg_token draft = first_token();
    for (unsigned i = 0; i < 6; i++) {
        struct msg_token t[] = {grant, draft, draft, draft, draft, {0}};
        t[2].gen |= UINT64_C(0xff) << 56;
        t[3].gen--;
        t[4].slot = UINT32_MAX;
        t[5].slot = 8 * 256; /* the header behind the last */
        assert_int_equal(try_put(&mine, t[i], "stolen", 6, 100), BERTH_ESTALE);
        assert_int_equal(try_seal(&mine, t[i], t[i], 1, 0), BERTH_ESTALE);
        assert_true(try_seal(&mine, t[i], t[i], 1, MSG_AGAIN) < 0);
        assert_int_equal(try_tokens(&mine, MSG_ABORT, t[i], 1), 0);
        assert_int_equal(try_tokens(&mine, MSG_RESUME, t[i], 1), 0);
    }
    assert_int_equal(try_seal(&theirs, draft, draft, 1, 0), 0);
    assert_int_equal(try_put(&theirs, grant, "granted", 7, 100), 0);
    hand_close(&theirs);
    hand_close(&mine);
    goes_on();
}

static void test_tokens_used_wrongly(void **unused)
{
    (void)unused;
    struct hand h;
    struct msg_token a, b, g;
    hand_attach(&h);
    g = granted(&h);
    assert_int_equal(try_create(&h, "wrong", 5), 0);
    a = first_token();
    assert_int_equal(try_create(&h, "other", 5), 0);
    b = first_token();
    assert_int_equal(try_put(&h, a, "k", 1, 100), -EINVAL); /* not granted */
    assert_int_equal(try_put(&h, g, "k", 1, 4097), -EINVAL); /* more than it holds */
    assert_int_equal(try_seal(&h, g, g, 1, 0), BERTH_ESTALE); /* without a key */
    assert_int_equal(try_seal(&h, g, g, 1, MSG_AGAIN), BERTH_ESTALE);
    assert_int_equal(try_seal(&h, a, a, 2, 0), -EINVAL); /* twice in one group */
    assert_int_equal(try_seal(&h, a, g, 2, MSG_AGAIN), BERTH_ESTALE);
    assert_int_equal(try_seal(&h, a, b, 2, 0), 0);
    assert_int_equal(try_seal(&h, a, b, 2, 0), BERTH_ESTALE); /* and again */
    assert_int_equal(try_seal(&h, a, b, 2, MSG_AGAIN), 0);
    assert_int_equal(try_create(&h, "third", 5), 0);
    assert_true(try_seal(&h, first_token(), a, 2, MSG_AGAIN) <= 1); /* with one that is sealed */
    g = granted(&h);
    assert_int_equal(try_put(&h, g, "wrong", 5, 1), BERTH_KEPT);
    assert_int_equal(try_put(&h, g, "wrong", 5, 1), BERTH_ESTALE);
    hand_close(&h);
    goes_on();
}

/* ---- messages that say too much ---- */

static void test_messages_out_of_range(void **unused)
{
    (void)unused;
    static const char key[512] = "k";
    struct hand h;
    hand_attach(&h);
    struct msg_token g = granted(&h);
    assert_int_equal(try_create(&h, key, 0), -EINVAL);
    assert_int_equal(try_create(&h, key, BERTH_KEY_MAX + 1), -EINVAL);
    assert_int_equal(try_put(&h, g, key, 0, 100), -EINVAL);
    assert_int_equal(try_put(&h, g, key, BERTH_KEY_MAX + 1, 100), -EINVAL);
    assert_int_equal(try_put(&h, g, key, BERTH_KEY_MAX, 100), 0); /* zeros are as good as other bytes */
    for (uint32_t n = PINS_CAPACITY - 1; n <= PINS_CAPACITY + 1; n++) {
        struct msg_grow grow = {.head = {.op = MSG_GROW}, .entries = n};
        assert_int_equal(ask(&h, &grow, sizeof grow), n > PINS_CAPACITY ? -EINVAL : 0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        struct msg_query q = {.head = {.op = MSG_QUERY}, .what = i % QUERY_KINDS, .offset = i < 10 ? i : UINT32_MAX - i};
        int e = ask(&h, &q, sizeof q);
        assert_true(e == -EINVAL || (e == 0 && q.offset < 10));
    }
    struct {
        struct msg_namespace m;
        char name[4];
    } n = {{.head = {.op = MSG_NAMESPACE}, .name_size = 4}, "a\0b"};
    assert_int_equal(ask(&h, &n, sizeof n), -EINVAL);
    hand_close(&h);
    goes_on();
}

/* ---- random ---- */

static struct msg_token known[TOKENS];
static uint32_t n_known;

/* A message of any operation, right in its lengths, with tokens that were given to somebody at some time. */
static uint32_t any_message(void)
{
    static const uint16_t ops[] = {MSG_GRANT, MSG_PUT,  MSG_CREATE, MSG_SEAL,      MSG_ABORT, MSG_REMOVE, MSG_HOLD,
                                   MSG_DROP,  MSG_STAT, MSG_LIST,   MSG_FIND,      MSG_GROW,  MSG_QUERY,  MSG_RESUME,
                                   MSG_PUT,   MSG_PUT,  MSG_CREATE, MSG_NAMESPACE, MSG_SEAL,  MSG_DETACH};
    struct msg_head *m = (struct msg_head *)message;
    uint16_t op = ops[draw_below(draw_below(20) ? 19 : 20)], key = (uint16_t)(1 + draw_below(draw_below(9) ? 3 : KEY_MAX));
    uint32_t n = 1 + draw_below(4), bytes = sizeof *m;
    struct msg_object object = {.size = draw_below(60000), .key_size = key};
    memset(message, 0, 4096);
    for (uint32_t i = 0; i < 2048; i++) {
        message[256 + i] = (uint8_t)('a' + draw_below(4));
    }
#define BODY(type, extra, ...) (*(struct type *)message = (struct type){__VA_ARGS__}, bytes = (uint32_t)(sizeof(struct type) + (extra)))
    switch (op) {
    case MSG_GRANT: BODY(msg_grant, 0, .size = object.size, .count = n); break;
    case MSG_PUT: BODY(msg_put, key, .object = object, .want = n - 1, .token = known[draw_below(TOKENS)]); break;
    case MSG_CREATE: BODY(msg_create, key, .object = object); break;
    case MSG_SEAL: BODY(msg_seal, n * sizeof(struct msg_member), .count = n); break;
    case MSG_ABORT:
    case MSG_RESUME: BODY(msg_tokens, n * sizeof(struct msg_token), .count = n); break;
    case MSG_REMOVE:
    case MSG_STAT:
    case MSG_FIND: BODY(msg_key, key, .key_size = key); break;
    case MSG_HOLD:
    case MSG_DROP: BODY(msg_hold, key + n, .key_size = key, .label_size = (uint16_t)n); break;
    case MSG_LIST: BODY(msg_list, key, .max = n * 100, .prefix_size = key); break;
    case MSG_NAMESPACE: BODY(msg_namespace, 1, .name_size = 1); break;
    case MSG_GROW: BODY(msg_grow, 0, .entries = n * PINS_SEGMENT); break;
    case MSG_QUERY: BODY(msg_query, 0, .what = draw_below(QUERY_KINDS)); break;
    default: break;
    }
#undef BODY
    uint32_t fixed = op == MSG_SEAL ? sizeof(struct msg_seal) : sizeof(struct msg_tokens);
    uint32_t each = op == MSG_SEAL ? sizeof(struct msg_member) : sizeof(struct msg_token);
    for (uint32_t i = 0; (op == MSG_SEAL || op == MSG_ABORT || op == MSG_RESUME) && i < n; i++) {
        memcpy(message + fixed + i * each, &known[draw_below(TOKENS)], sizeof(struct msg_token));
    }
    m->bytes = bytes;
    m->op = op;
    m->flags = draw_below(8) == 0;
    m->deadline = draw_below(3) ? 0 : (int64_t)(draw() >> 1);
    m->id = draw_below(16) ? draw_below(100000) : draw();
    return bytes;
}

static void mutate(uint32_t bytes)
{
    for (uint32_t i = draw_below(4); i > 0; i--) {
        uint32_t at = draw_below(2) ? draw_below(128) % bytes : draw_below(bytes);
        message[at] = draw_below(2) ? (uint8_t)draw() : (uint8_t)(draw_below(2) * 255);
    }
    ((struct msg_head *)message)->op %= MSG_REVOKE; /* it would end whoever pins a key by its right */
}

static void read_replies(struct ring_end *in)
{
    while (ring_pop(in, reply) > 0) {
        const struct msg_reply *r = (const struct msg_reply *)reply;
        bool gives = r->head.op == MSG_GRANT || r->head.op == MSG_PUT || r->head.op == MSG_CREATE;
        for (uint32_t i = 0; gives && r->status == 0 && i < r->count; i++) {
            memcpy(&known[n_known++ % TOKENS], reply + sizeof *r + i * sizeof(struct msg_token), sizeof(struct msg_token));
        }
    }
}

static long talk(struct hand *h, int64_t end)
{
    struct ring_end out, in;
    long sent = 0;
    ring_request_producer(&out, h->ring);
    ring_reply_consumer(&in, h->ring);
    for (uint32_t most = 20 + draw_below(3000); most > 0 && now() < end && !cut(h, 0); most--) {
        uint32_t bytes = any_message();
        if (draw_below(4) == 0) {
            mutate(bytes);
        }
        sent += ring_push(&out, message, bytes) == 0;
        if (draw_below(8) == 0) {
            ring_bell(h);
        }
        if (draw_below(16) == 0) {
            read_replies(&in);
        }
    }
    return sent;
}

static void test_random_messages(void **unused)
{
    (void)unused;
    int64_t end = now() + RANDOM_NS;
    long sent = 0;
    while (now() < end) {
        struct hand h[2];
        hand_attach(&h[0]);
        hand_attach(&h[1]);
        sent += talk(&h[0], end);
        sent += talk(&h[1], end);
        sent += talk(&h[0], end);
        hand_close(&h[0]);
        hand_close(&h[1]);
    }
    assert_true(sent > 1000 && n_known > 0);
    goes_on();
}

/* ---- descriptors ---- */

/* The doorbell made blocking, and emptied before the node can read it; the client's own eventfd full and blocking. */
static void test_descriptors_that_block(void **unused)
{
    (void)unused;
    struct hand h;
    struct ring_end out;
    uint64_t most = UINT64_MAX - 1, id = 0, count;
    hand_attach(&h);
    ring_request_producer(&out, h.ring);
    assert_int_equal(write(h.wake, &most, sizeof most), sizeof most);
    fcntl(h.wake, F_SETFL, 0);
    fcntl(h.got[5], F_SETFL, 0);
    int64_t end = now() + SCRIBBLE_NS;
    while (now() < end) {
        struct msg_query q = {.head = {.bytes = sizeof q, .op = MSG_QUERY, .id = ++id}, .what = QUERY_METRICS};
        ring_push(&out, &q, sizeof q);
        atomic_store(&h.ring->client_sleeping, 1);
        atomic_store(&h.ring->reply_head, atomic_load(&h.ring->reply_tail));
        for (unsigned i = 0; i < 100; i++) {
            struct iovec to = {.iov_base = &count, .iov_len = sizeof count};
            ring_bell(&h);
            preadv2(h.got[5], &to, 1, -1, RWF_NOWAIT); /* the node may have been faster */
        }
    }
    bystander_works();
    hand_close(&h);
    goes_on();
}

/* Its own pin table is all that a client may cut short, to its own loss. */
static void test_pin_table_cut_short(void **unused)
{
    (void)unused;
    struct hand h;
    hand_attach(&h);
    for (unsigned i = 0; i < 3; i++) {
        struct msg_grow grow = {.head = {.op = MSG_GROW}, .entries = PINS_CAPACITY};
        struct msg_query q = {.head = {.op = MSG_QUERY}, .what = QUERY_PINS};
        uint32_t high = UINT32_MAX;
        static const off_t length[] = {0, 100, 1 << 30};
        assert_int_equal(ftruncate(h.got[4], length[i]), 0);
        assert_int_equal(pwrite(h.got[4], &high, sizeof high, offsetof(struct pins_file, high_water)), sizeof high);
        assert_int_equal(ask(&h, &grow, sizeof grow), 0);
        assert_int_equal(ask(&h, &q, sizeof q), 0);
        bystander_works();
    }
    hand_close(&h);
    goes_on();
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices_out_of_range),
        cmocka_unit_test(test_lengths_out_of_range),
        cmocka_unit_test(test_scribbling_over_the_whole_ring),
        cmocka_unit_test(test_messages_change_while_they_are_copied),
        cmocka_unit_test(test_touches_out_of_range),
        cmocka_unit_test(test_replies_never_read),
        cmocka_unit_test(test_tokens_of_others),
        cmocka_unit_test(test_tokens_used_wrongly),
        cmocka_unit_test(test_messages_out_of_range),
        cmocka_unit_test(test_random_messages),
        cmocka_unit_test(test_descriptors_that_block),
        cmocka_unit_test(test_pin_table_cut_short),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
