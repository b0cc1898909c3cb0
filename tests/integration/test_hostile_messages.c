/* test_hostile_messages.c: whole messages that say what they must not: tokens that are another session's, stale or of
 * the wrong kind, values out of range, and random ones with bytes changed.
 */
#include "tests/support/draw.h"
#include "tests/support/hostile.h"

#include "store/berth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define RANDOM_NS 3000000000
#define TOKENS 64u
#define LINEAGE UINT64_C(0x0101010101010101) /* no three changed bytes make it 0, which the bystander's objects have */

static _Alignas(64) uint8_t message[RING_MESSAGE_MAX], reply[RING_MESSAGE_MAX];

static int ask(struct hand *h, void *m, size_t bytes)
{
    return hostile_ask(h, m, bytes, reply);
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
    hostile_gone();
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
    assert_int_equal(try_put(&h, a, "k", 1, 100), -EINVAL);   /* not granted */
    assert_int_equal(try_put(&h, g, "k", 1, 4097), -EINVAL);  /* more than it holds */
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
    hostile_gone();
}

/* ---- segments, waits ---- */

static int try_sums(struct hand *h, struct msg_token t, uint32_t n)
{
    struct msg_sums *m = (struct msg_sums *)message;
    *m = (struct msg_sums){.head = {.op = MSG_SUMS}, .token = t, .count = n};
    memset(m + 1, 'x', n * sizeof(uint64_t));
    return ask(h, m, sizeof *m + n * sizeof(uint64_t));
}

static int try_segments(struct hand *h, const char *key, uint32_t size, uint8_t shift)
{
    struct msg_create *m = (struct msg_create *)message;
    *m = (struct msg_create){.head = {.op = MSG_CREATE}, .object = {.size = size, .key_size = 4, .segment = shift}};
    memcpy(m + 1, key, 4);
    return ask(h, m, sizeof *m + 4);
}

/* Lists for what is not one's own, has no segments, or has others; and seals that they do not prove. */
static void test_segments_of_others(void **unused)
{
    (void)unused;
    struct hand mine, theirs;
    hand_attach(&mine);
    hand_attach(&theirs);
    assert_int_equal(try_segments(&theirs, "segs", 10000, 12), 0);
    struct msg_token t = first_token(), grant = granted(&mine);
    struct msg_token bad[] = {t, grant, t, t, {0}};
    bad[2].gen++;
    bad[3].slot = UINT32_MAX;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(try_sums(&mine, bad[i], 3), BERTH_ESTALE);
    }
    assert_int_equal(try_sums(&theirs, t, 0), -EINVAL);
    assert_int_equal(try_sums(&theirs, t, 2), -EINVAL);
    assert_int_equal(try_sums(&theirs, t, SEGMENTS_MAX), -EINVAL);
    assert_int_equal(try_sums(&theirs, t, SEGMENTS_MAX + 1), -EINVAL);
    assert_int_equal(try_sums(&theirs, t, 3), 0);
    assert_int_equal(try_seal(&theirs, t, t, 1, 0), BERTH_ECORRUPT);
    static const uint8_t shifts[] = {1, 11, 31, 63, 255};
    for (unsigned i = 0; i < sizeof shifts; i++) {
        assert_int_equal(try_segments(&mine, "none", 10000, shifts[i]), -EINVAL);
    }
    assert_int_equal(try_segments(&mine, "many", (SEGMENTS_MAX << 12) + 1, 12), -EINVAL);
    hand_close(&theirs);
    hand_close(&mine);
    hostile_gone();
}

static uint32_t wait_message(uint32_t first, uint32_t count)
{
    struct msg_wait *m = (struct msg_wait *)message;
    uint8_t *at = (uint8_t *)(m + 1);
    *m = (struct msg_wait){.head = {.op = MSG_WAIT, .deadline = INT64_MAX}, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct msg_wait_key k = {.key_size = 8};
        uint64_t key = first + i;
        memcpy(at, &k, sizeof k);
        memcpy(at + sizeof k, &key, 8);
        at += sizeof k + 8;
    }
    return m->head.bytes = (uint32_t)(at - message);
}

/* As many waits as a session may have: it is refused more, others are not, and their end is the session's. */
static void test_waits_without_end(void **unused)
{
    (void)unused;
    struct hand h[2];
    struct ring_end out, in;
    uint32_t refused = 0, sent = 0;
    hand_attach(&h[0]);
    ring_request_producer(&out, h[0].ring);
    ring_reply_consumer(&in, h[0].ring);
    for (int64_t end = hostile_now() + 20000000000; refused < 10 && hostile_now() < end;) {
        uint32_t bytes = wait_message(sent * 64, sent % 64 + 1);
        ((struct msg_head *)message)->id = sent + 1;
        sent += ring_push(&out, message, bytes) == 0;
        hostile_bell(&h[0]);
        while (ring_pop(&in, reply) > 0) {
            assert_int_equal(((struct msg_reply *)reply)->status, -EAGAIN);
            refused++;
        }
    }
    assert_true(refused >= 10);
    assert_true(sent >= 256);
    bystander_works();
    hand_attach(&h[1]);
    uint32_t bytes = wait_message(0, MSG_WAIT_KEYS);
    ((struct msg_head *)message)->deadline = 0;
    assert_int_equal(ask(&h[1], message, bytes), 0);
    hand_close(&h[1]);
    hand_close(&h[0]);
    hostile_gone();
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
        struct msg_query q = {
            .head = {.op = MSG_QUERY}, .what = i % QUERY_KINDS, .offset = i < 10 ? i : UINT32_MAX - i};
        int e = ask(&h, &q, sizeof q);
        assert_true(e == -EINVAL || (e == 0 && q.offset < 10));
    }
    struct {
        struct msg_namespace m;
        char name[4];
    } n = {{.head = {.op = MSG_NAMESPACE}, .name_size = 4}, "a\0b"};
    assert_int_equal(ask(&h, &n, sizeof n), -EINVAL);
    hand_close(&h);
    hostile_gone();
}

/* ---- random ---- */

static struct msg_token known[TOKENS];
static uint32_t n_known;

#define BODY(type, extra, ...) \
    (*(struct type *)message = (struct type){__VA_ARGS__}, (uint32_t)(sizeof(struct type) + (extra)))

/* Right in its lengths; its bytes behind the fixed part are what lies there. */
static uint32_t body(uint16_t op, uint16_t key, uint32_t n)
{
    struct msg_object object = {.size = draw_below(60000), .key_size = key};
    object.lineage = draw_below(2) * LINEAGE;
    object.segment = (uint8_t)(draw_below(4) ? 0 : draw_below(8) ? 12 + draw_below(4) : draw_below(256));
    uint32_t sums = object.segment < 32 ? segments_of(object.size, object.segment) * 8 : 0;
    switch (op) {
    case MSG_GRANT:
        return BODY(msg_grant, 0, .size = object.size, .count = n);
    case MSG_PUT:
        return BODY(msg_put, key + sums, .object = object, .want = n - 1, .token = known[draw_below(TOKENS)]);
    case MSG_CREATE:
        return BODY(msg_create, key, .object = object);
    case MSG_SUMS:
        return BODY(msg_sums, n * 8, .count = n, .token = known[draw_below(TOKENS)]);
    case MSG_WAIT:
        for (uint32_t i = 0; i < 4; i++) {
            memcpy(message + sizeof(struct msg_wait) + i * 16, &(struct msg_wait_key){.key_size = 1 + i}, 8);
        }
        return BODY(msg_wait, n * 16, .count = n, .flags = draw_below(4));
    case MSG_SEAL:
        return BODY(msg_seal, n * sizeof(struct msg_member), .count = n);
    case MSG_ABORT:
    case MSG_RESUME:
        return BODY(msg_tokens, n * sizeof(struct msg_token), .count = n);
    case MSG_REMOVE:
    case MSG_STAT:
    case MSG_FIND:
        return BODY(msg_key, key, .key_size = key);
    case MSG_HOLD:
    case MSG_DROP:
        return BODY(msg_hold, key + n, .key_size = key, .label_size = (uint16_t)n);
    case MSG_LIST:
        return BODY(msg_list, key, .max = n * 100, .prefix_size = key);
    case MSG_NAMESPACE:
        return BODY(msg_namespace, 1, .name_size = 1);
    case MSG_GROW:
        return BODY(msg_grow, 0, .entries = n * PINS_SEGMENT);
    case MSG_QUERY:
        return BODY(msg_query, 0, .what = draw_below(QUERY_KINDS), .offset = draw_below(4) ? 0 : draw_below(5000));
    case MSG_PURGE:
        return BODY(msg_purge, 0, .kind = PURGE_LINEAGE, .lineage = LINEAGE);
    default:
        return BODY(msg_head, 0, .op = op);
    }
}

/* Tokens that were given to somebody at some time. */
static void fill_tokens(uint16_t op, uint32_t n)
{
    size_t fixed = op == MSG_SEAL ? sizeof(struct msg_seal) : sizeof(struct msg_tokens);
    size_t each = op == MSG_SEAL ? sizeof(struct msg_member) : sizeof(struct msg_token);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(message + fixed + i * each, &known[draw_below(TOKENS)], sizeof(struct msg_token));
    }
}

static uint32_t any_message(void)
{
    static const uint16_t ops[] = {MSG_GRANT, MSG_PUT,  MSG_CREATE, MSG_SEAL,      MSG_ABORT, MSG_REMOVE, MSG_HOLD,
                                   MSG_DROP,  MSG_STAT, MSG_LIST,   MSG_FIND,      MSG_GROW,  MSG_QUERY,  MSG_RESUME,
                                   MSG_PUT,   MSG_SUMS, MSG_CREATE, MSG_NAMESPACE, MSG_WAIT,  MSG_PURGE,  MSG_DETACH};
    struct msg_head *m = (struct msg_head *)message;
    uint16_t op = ops[draw_below(draw_below(20) ? 20 : 21)];
    uint32_t key = 1 + draw_below(draw_below(9) ? 3 : KEY_MAX), n = 1 + draw_below(4);
    for (uint32_t i = 0; i < 1024; i++) {
        message[i] = (uint8_t)('a' + draw_below(4));
    }
    uint32_t bytes = body(op, (uint16_t)key, n);
    if (op == MSG_SEAL || op == MSG_ABORT || op == MSG_RESUME) {
        fill_tokens(op, n);
    }
    bytes = bytes < sizeof message ? bytes : (uint32_t)sizeof message;
    m->bytes = bytes;
    m->op = op;
    m->flags =
        (uint16_t)((draw_below(8) == 0 ? MSG_AGAIN : 0) | (op == MSG_CREATE && draw_below(4) == 0 ? MSG_JOIN : 0) |
                   (op == MSG_STAT && draw_below(4) == 0 ? MSG_PEERS : 0));
    m->stamp = draw_below(8) ? 0 : draw();
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
    struct msg_head *m = (struct msg_head *)message;
    bool takes = m->op == MSG_PURGE && ((const struct msg_purge *)m)->lineage == 0;
    m->op = m->op == MSG_REVOKE || takes ? MSG_PAD : m->op; /* by their right: who pins a key, what the bystander has */
}

static void read_replies(struct ring_end *in)
{
    while (ring_pop(in, reply) > 0) {
        const struct msg_reply *r = (const struct msg_reply *)reply;
        bool gives = r->head.op == MSG_GRANT || r->head.op == MSG_PUT || r->head.op == MSG_CREATE;
        for (uint32_t i = 0; gives && r->status == 0 && i < r->count; i++) {
            memcpy(&known[n_known++ % TOKENS], reply + sizeof *r + i * sizeof(struct msg_token),
                   sizeof(struct msg_token));
        }
    }
}

static long talk(struct hand *h, int64_t end)
{
    struct ring_end out, in;
    long sent = 0;
    ring_request_producer(&out, h->ring);
    ring_reply_consumer(&in, h->ring);
    for (uint32_t most = 20 + draw_below(3000); most > 0 && hostile_now() < end && !hostile_cut(h, 0); most--) {
        uint32_t bytes = any_message();
        if (draw_below(4) == 0) {
            mutate(bytes);
        }
        sent += ring_push(&out, message, bytes) == 0;
        if (draw_below(8) == 0) {
            hostile_bell(h);
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
    int64_t end = hostile_now() + RANDOM_NS;
    long sent = 0;
    while (hostile_now() < end) {
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
    hostile_gone();
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_others),      cmocka_unit_test(test_tokens_used_wrongly),
        cmocka_unit_test(test_segments_of_others),    cmocka_unit_test(test_waits_without_end),
        cmocka_unit_test(test_messages_out_of_range), cmocka_unit_test(test_random_messages),
    };
    return cmocka_run_group_tests(tests, hostile_setup, hostile_teardown);
}
