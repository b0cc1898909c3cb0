/* Waiting at the core: what settles a key, who is told, and the bounds. */
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define LATE 10000000000

static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};

static void open_core(struct core *c)
{
    core_open(c, 64 * MIB, NULL);
    for (uint64_t i = 1; i <= 4; i++) {
        core_attach(c, i);
    }
}

/* Sends a WAIT for keys, a word each; the request's id. wait_ns 0: does not wait. */
static uint64_t wait_for(struct core *c, uint64_t session, const char *keys, uint32_t flags, int64_t wait_ns)
{
    struct msg_wait *m = (struct msg_wait *)core_message(c, MSG_WAIT, RING_MESSAGE_MAX);
    uint8_t *at = (uint8_t *)(m + 1);
    m->flags = flags;
    m->head.deadline = wait_ns == INT64_MAX ? INT64_MAX : wait_ns ? c->now.mono + wait_ns : 0;
    for (const char *key = keys; *key; m->count++) {
        size_t n = strcspn(key, " ");
        struct msg_wait_key k = {.key_size = (uint16_t)n};
        memcpy(at, &k, sizeof k);
        memcpy(at + sizeof k, key, n);
        at += sizeof k + ((n + 7) & ~(size_t)7);
        key += n + (key[n] == ' ');
    }
    m->head.bytes = (uint32_t)(at - (uint8_t *)m);
    uint64_t id = m->head.id;
    core_request(c, session, &m->head);
    core_check(c);
    return id;
}

/* The states of a reply as digits, or "-" while there is none. */
static const char *told(struct core *c, uint64_t id)
{
    static char text[MSG_WAIT_KEYS + 1];
    const struct msg_reply *r = core_reply(c, id);
    core_check(c);
    if (!r) {
        return "-";
    }
    assert_true(r->status >= 0);
    int ready = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        uint8_t state = ((const uint8_t *)(r + 1))[i];
        text[i] = (char)('0' + state);
        ready += state == WAIT_READY;
    }
    text[r->count] = '\0';
    assert_int_equal(r->status, ready);
    return text;
}

static int abort_draft(struct core *c, uint64_t session, struct msg_token t)
{
    struct msg_tokens *m = (struct msg_tokens *)core_message(c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    return core_request(c, session, &m->head)->status;
}

static void test_ready(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t;
    open_core(&c);
    assert_int_equal(core_put(&c, 1, "there", 10, 0), 0);
    assert_string_equal(told(&c, wait_for(&c, 2, "there", 0, INT64_MAX)), "1");
    assert_string_equal(told(&c, wait_for(&c, 2, "there absent", 0, 0)), "10");
    assert_int_equal(core_create(&c, 1, "draft", 10, 0, &t), 0);
    uint64_t draft = wait_for(&c, 2, "draft", 0, LATE), both = wait_for(&c, 3, "draft put draft there", 0, LATE);
    uint64_t mine = wait_for(&c, 1, "draft", 0, LATE); /* the one who writes it, by another thread */
    assert_string_equal(told(&c, draft), "-");
    c.hold_commits = true;
    assert_int_equal(core_seal(&c, 1, &t, 1), 1000);
    assert_string_equal(told(&c, draft), "-"); /* not before the commit */
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_string_equal(told(&c, draft), "1");
    assert_string_equal(told(&c, mine), "1");
    assert_string_equal(told(&c, both), "-");
    assert_int_equal(core_put(&c, 1, "put", 10, 0), 0); /* nobody wrote it before */
    assert_string_equal(told(&c, both), "1111");
    core_close(&c);
}

static void test_time_is_up(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t;
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "a", 10, 0, &t), 0);
    assert_int_equal(node_timer(c.node), INT64_MAX);
    uint64_t late = wait_for(&c, 2, "a", 0, 3 * LATE), soon = wait_for(&c, 2, "a b", 0, LATE);
    uint64_t never = wait_for(&c, 3, "b", 0, INT64_MAX);
    int64_t at = node_timer(c.node);
    assert_true(at > c.now.mono && at <= c.now.mono + LATE);
    core_tick(&c, at - c.now.mono - 1000);
    assert_string_equal(told(&c, soon), "-");
    core_tick(&c, 1000);
    assert_string_equal(told(&c, soon), "00");
    assert_true(node_timer(c.node) > at);
    core_tick(&c, 2 * LATE);
    assert_string_equal(told(&c, late), "0");
    assert_string_equal(told(&c, never), "-");
    assert_int_equal(node_timer(c.node), INT64_MAX);
    uint64_t past = wait_for(&c, 2, "a", 0, 1); /* over when it comes */
    core_tick(&c, 1000);
    assert_string_equal(told(&c, past), "0");
    core_close(&c);
}

static void test_given_up(void **state)
{
    (void)state;
    struct core c;
    struct msg_token a, b;
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "k", 10, 0, &a), 0);
    uint64_t w = wait_for(&c, 3, "k", 0, LATE);
    assert_int_equal(core_create(&c, 2, "k", 10, 0, &b), 0);
    assert_int_equal(abort_draft(&c, 1, a), 1);
    assert_string_equal(told(&c, w), "-"); /* another writes it still */
    assert_int_equal(abort_draft(&c, 2, b), 1);
    assert_string_equal(told(&c, w), "2");
    /* a writer that dies is known dead at once, not after the quarantine */
    assert_int_equal(core_create(&c, 1, "k", 10, 0, &a), 0);
    w = wait_for(&c, 3, "k", 0, LATE);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 1});
    assert_string_equal(told(&c, w), "3");
    w = wait_for(&c, 3, "k", MSG_WAIT_WRITTEN, LATE);
    assert_string_equal(told(&c, w), "0");
    assert_int_equal(core_create(&c, 2, "k", 10, 0, &b), 0);
    w = wait_for(&c, 3, "k", MSG_WAIT_WRITTEN, LATE);
    core_tick(&c, 2000000000); /* the dead one's slot goes, the other's stays */
    assert_string_equal(told(&c, w), "-");
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 2, .status = 1}); /* a clean close */
    assert_string_equal(told(&c, w), "2");
    core_close(&c);
}

/* Of a prefix nothing is to come behind a key that is lost: the answer does not wait for the others. */
static void test_run(void **state)
{
    (void)state;
    struct core c;
    struct msg_token a, b;
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "a", 10, 0, &a), 0);
    assert_int_equal(core_create(&c, 1, "b", 10, 0, &b), 0);
    uint64_t all = wait_for(&c, 2, "a b c b", 0, LATE), run = wait_for(&c, 3, "a b c b", MSG_WAIT_RUN, LATE);
    assert_int_equal(core_seal(&c, 1, &a, 1), 0);
    assert_string_equal(told(&c, run), "-");
    assert_int_equal(abort_draft(&c, 1, b), 1);
    assert_string_equal(told(&c, run), "1202");
    assert_string_equal(told(&c, all), "-");
    assert_int_equal(core_put(&c, 1, "c", 10, 0), 0);
    assert_string_equal(told(&c, all), "1212");
    core_close(&c);
}

/* The one whose seal or put is at the committer dies, or its connection goes: who waits hears all the same. */
static void test_writer_goes_while_committing(void **state)
{
    (void)state;
    for (unsigned fails = 0; fails < 2; fails++) {
        for (unsigned kind = 0; kind < 4; kind++) {
            struct core c;
            struct msg_token t;
            open_core(&c);
            bool put = kind / 2;
            assert_int_equal(put ? core_grant(&c, 1, 10, &t) : core_create(&c, 1, "k", 10, 0, &t), 0);
            uint64_t w = wait_for(&c, 2, "k", 0, LATE);
            c.hold_commits = true;
            c.fail_commits = (int)fails;
            assert_int_equal(put ? core_put_token(&c, 1, &t, "k", 10, 0) : core_seal(&c, 1, &t, 1), 1000);
            core_event(&c, (struct node_event){.kind = kind % 2 ? EV_DEAD : EV_DETACHED, .session = 1});
            assert_string_equal(told(&c, w), "-");
            c.hold_commits = false;
            core_commit(&c);
            core_turn(&c);
            bool open = !put && kind % 2 == 0; /* a draft of a client that lives: it may seal it again */
            assert_string_equal(told(&c, w), !fails ? "1" : open ? "-" : kind % 2 ? "3" : "2");
            core_close(&c);
        }
    }
}

/* A group of which one member is kept: all are ready. */
static void test_group(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t[3];
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "a", 10, 0, &t[0]), 0);
    assert_int_equal(core_create(&c, 1, "b", 10, 0, &t[1]), 0);
    assert_int_equal(core_create(&c, 1, "c", 10, 0, &t[2]), 0);
    uint64_t w = wait_for(&c, 2, "a b c", 0, LATE), b = wait_for(&c, 2, "b", 0, LATE);
    assert_int_equal(core_put(&c, 3, "b", 10, 0), 0);
    assert_string_equal(told(&c, b), "1");
    assert_int_equal(core_seal(&c, 1, t, 3), 1);
    assert_string_equal(told(&c, w), "111");
    core_close(&c);
}

static const struct msg_reply *create(struct core *c, uint64_t session, const char *key, uint16_t flags, uint32_t ns,
                                      uint32_t size)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + n);
    m->object = (struct msg_object){.size = size, .ns = ns, .key_size = (uint16_t)n};
    m->head.flags = flags;
    m->head.deadline = INT64_MAX;
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, session, &m->head);
    core_check(c);
    return r;
}

static void test_create_says_so(void **state)
{
    (void)state;
    struct core c;
    open_core(&c);
    const struct msg_reply *r = create(&c, 1, "k", MSG_JOIN, 0, 10);
    assert_true(r->status == 0 && r->figure[1] == 0);
    struct msg_token first = *(const struct msg_token *)(r + 1);
    r = create(&c, 2, "k", MSG_JOIN, 0, 10);
    assert_true(r->status == MSG_WRITING && r->count == 0);
    r = create(&c, 2, "k", 0, 0, 10);
    assert_true(r->status == 0 && r->count == 1 && r->figure[1] == MSG_WRITING);
    assert_int_equal(abort_draft(&c, 2, *(const struct msg_token *)(r + 1)), 1);
    assert_int_equal(create(&c, 2, "k", MSG_JOIN, 0, 10)->status, MSG_WRITING);
    c.hold_commits = true;
    assert_int_equal(core_seal(&c, 1, &first, 1), 1000);
    assert_int_equal(create(&c, 2, "k", MSG_JOIN, 0, 10)->status, MSG_WRITING); /* still on its way */
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(create(&c, 2, "k", MSG_JOIN, 0, 10)->status, BERTH_KEPT);
    /* a put on its way has no draft */
    assert_int_equal(core_grant(&c, 1, 10, &first), 0);
    c.hold_commits = true;
    assert_int_equal(core_put_token(&c, 1, &first, "put", 10, 0), 1000);
    assert_int_equal(create(&c, 2, "put", MSG_JOIN, 0, 10)->status, MSG_WRITING);
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    core_close(&c);
}

static void with_namespace(struct core *c)
{
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
}

static void test_create_of_a_replaceable_key(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_namespace);
    core_attach(&c, 1);
    core_attach(&c, 2);
    assert_int_equal(core_put(&c, 1, "k", 10, 1), 0);
    assert_int_equal(create(&c, 1, "k", MSG_JOIN, 1, 10)->status, 0); /* it is there, but nobody writes it */
    assert_int_equal(create(&c, 2, "k", MSG_JOIN, 1, 10)->status, MSG_WRITING);
    assert_int_equal(create(&c, 2, "k", 0, 1, 10)->figure[1], MSG_WRITING);
    core_close(&c);
}

/* Two that join wait for room: when it comes one of them gets it, the other hears of that one. */
static void test_joining_for_room(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t[40];
    uint32_t n = 0;
    open_core(&c);
    while (core_create(&c, 1, (char[]){'f', (char)('0' + n), 0}, 2 * MIB, 0, &t[n]) == 0) {
        n++;
    }
    uint64_t second = c.next_id + 2;
    assert_null(create(&c, 2, "k", MSG_JOIN, 0, 2 * MIB));
    assert_null(create(&c, 3, "k", MSG_JOIN, 0, 2 * MIB));
    assert_int_equal(abort_draft(&c, 1, t[0]), 1);
    assert_int_equal(abort_draft(&c, 1, t[1]), 1);
    core_tick(&c, 1000000000);
    assert_int_equal(core_reply(&c, second - 1)->status, 0);
    assert_int_equal(core_reply(&c, second)->status, MSG_WRITING);
    core_check(&c);
    core_close(&c);
}

static void with_little_lookup(struct core *c)
{
    lookup_format(c->lookup_map, lookup_bytes(8), c->super.uuid, 42);
    assert_int_equal(lookup_attach(&c->lookup, c->lookup_map, lookup_bytes(8)), 0);
}

/* Keys that found no room in lookup are ready all the same. */
static void test_index_only(void **state)
{
    (void)state;
    struct core c;
    struct node_status s;
    core_open(&c, 64 * MIB, with_little_lookup);
    core_attach(&c, 1);
    core_attach(&c, 2);
    for (unsigned i = 0; i < 200; i++) {
        char key[8];
        snprintf(key, sizeof key, "%u", i);
        uint64_t w = wait_for(&c, 2, key, 0, LATE);
        assert_int_equal(core_put(&c, 1, key, 10, 0), 0);
        assert_string_equal(told(&c, w), "1");
        assert_string_equal(told(&c, wait_for(&c, 2, key, 0, LATE)), "1");
    }
    node_status(c.node, &s);
    assert_true(s.counter[NODE_INDEX_ONLY] > 0);
    core_close(&c);
}

static void test_sessions_that_go(void **state)
{
    (void)state;
    struct core c;
    struct msg_token t;
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "k", 10, 0, &t), 0);
    uint64_t a = wait_for(&c, 2, "k", 0, LATE), b = wait_for(&c, 3, "k", 0, LATE), d = wait_for(&c, 4, "k", 0, LATE);
    core_event(&c, (struct node_event){.kind = EV_DETACHED, .session = 2});
    core_check(&c);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 3});
    core_check(&c);
    core_attach(&c, 2);
    uint64_t again = wait_for(&c, 2, "k", 0, LATE);
    assert_int_equal(core_seal(&c, 1, &t, 1), 0);
    assert_null(core_reply(&c, a));
    assert_null(core_reply(&c, b));
    assert_string_equal(told(&c, d), "1");
    assert_string_equal(told(&c, again), "1");
    core_close(&c);
}

/* After a restart the drafts of clients that live are written still, those of others are not. */
static void test_restart(void **state)
{
    (void)state;
    struct core c;
    struct msg_token a, b;
    open_core(&c);
    assert_int_equal(core_create(&c, 1, "a", 10, 0, &a), 0);
    assert_int_equal(core_create(&c, 2, "b", 10, 0, &b), 0);
    wait_for(&c, 3, "a b", 0, LATE);
    core_crash(&c, (uint64_t[]){1, 3}, 2);
    core_attach(&c, 3);
    uint64_t w = wait_for(&c, 3, "a", MSG_WAIT_WRITTEN, LATE);
    assert_string_equal(told(&c, w), "-");
    assert_string_equal(told(&c, wait_for(&c, 3, "b", MSG_WAIT_WRITTEN, LATE)), "0");
    core_attach(&c, 1);
    assert_int_equal(core_seal(&c, 1, &a, 1), 0);
    assert_string_equal(told(&c, w), "1");
    /* a wait of before the restart that comes after the writer's end, in it or behind it */
    struct msg_token d[2];
    int64_t began = c.now.mono;
    assert_int_equal(core_create(&c, 1, "d", 10, 0, &d[0]), 0);
    assert_int_equal(core_create(&c, 3, "e", 10, 0, &d[1]), 0);
    core_crash(&c, (uint64_t[]){3}, 1);
    core_attach(&c, 3);
    core_attach(&c, 4);
    assert_int_equal(abort_draft(&c, 3, d[1]), 1);
    struct {
        struct msg_wait m;
        struct msg_wait_key k[4];
    } again = {{.count = 2}, {{.key_size = 1}, {.ns = 'd'}, {.key_size = 1}, {.ns = 'e'}}};
    for (unsigned i = 0; i < 2; i++) {
        again.m.head = (struct msg_head){.bytes = sizeof again, .op = MSG_WAIT, .flags = MSG_AGAIN, .id = ++c.next_id};
        again.m.head.deadline = INT64_MAX;
        again.m.head.stamp = (uint64_t)(i ? c.now.mono : began);
        core_request(&c, 4, &again.m.head);
        assert_string_equal(told(&c, c.next_id), i ? "-" : "32");
    }
    core_attach(&c, 1);
    /* adopted, and never seen again */
    assert_int_equal(core_create(&c, 1, "c", 10, 0, &a), 0);
    core_crash(&c, (uint64_t[]){1, 3}, 2);
    core_attach(&c, 3);
    w = wait_for(&c, 3, "c", 0, LATE);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 1});
    assert_string_equal(told(&c, w), "3");
    core_close(&c);
}

/* One session has so many waits, and no more; what it gives back it can have again. */
static void test_bounds(void **state)
{
    (void)state;
    struct core c;
    open_core(&c);
    uint64_t first = c.next_id + 1;
    for (unsigned i = 0; i < 256; i++) {
        assert_string_equal(told(&c, wait_for(&c, 1, "k", 0, i % 2 ? LATE : INT64_MAX)), "-");
    }
    assert_int_equal(core_reply(&c, wait_for(&c, 1, "k", 0, LATE))->status, -EAGAIN);
    assert_string_equal(told(&c, wait_for(&c, 2, "k", 0, LATE)), "-");
    core_tick(&c, LATE);
    assert_string_equal(told(&c, wait_for(&c, 1, "k", 0, LATE)), "-");
    assert_int_equal(core_put(&c, 2, "k", 10, 0), 0);
    for (unsigned i = 0; i < 256; i++) {
        assert_string_equal(told(&c, first + i), i % 2 ? "0" : "1");
    }
    char keys[256 * 4 + 1] = "";
    for (unsigned i = 0; i < 256; i++) {
        snprintf(keys + 4 * i, 5, "%3x ", i + 256);
    }
    for (unsigned i = 0; i < 64; i++) {
        assert_string_equal(told(&c, wait_for(&c, 1, keys, 0, LATE)), "-");
    }
    assert_int_equal(core_reply(&c, wait_for(&c, 1, "x", 0, LATE))->status, -EAGAIN);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 1});
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_time_is_up),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_writer_goes_while_committing),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_create_says_so),
        cmocka_unit_test(test_create_of_a_replaceable_key),
        cmocka_unit_test(test_joining_for_room),
        cmocka_unit_test(test_sessions_that_go),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_index_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
