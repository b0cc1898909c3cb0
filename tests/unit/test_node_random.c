/* The core alone under random messages of three sessions, all of them well formed and most of them wrong: tokens that
 * are stale, another session's or given twice, requests that are sent again without need; pins, commits that fail,
 * clients that die, nodes that crash before or after a commit. After every few steps every invariant of the core is
 * proved, and no slot that somebody pins has been used again.
 */
#include "tests/support/core.h"
#include "tests/support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB (1u << 20)
#define SESSIONS 3u
#define TOKENS 64u
#define PINS 32u
#define KEYS 48u
#define RUNS 30u
#define POOL_MIB 24u /* the largest */
#define HEADERS (POOL_MIB * MIB / PAGE_BYTES)
#define STEPS 2000u
#define WALL_S 20 /* on a machine that is busy with other things fewer runs do */

struct pin {
    uint64_t session, gen;
    uint32_t slot;
};

struct life {
    struct core c;
    uint64_t session[SESSIONS];
    uint32_t who; /* whose message is made */
    bool attached[SESSIONS];
    uint64_t next_session;
    struct msg_token token[TOKENS]; /* of any session, good or stale */
    uint32_t n_tokens;
    uint32_t replies_seen;
    struct pin pin[PINS];
    uint32_t n_pins;
    uint32_t steps;
};

static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};

static void options(struct core *c)
{
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
    c->config.publish = draw_below(2);
    c->config.tombstone_ns = 1 + draw_below(1000000000);
    c->config.draft_quota = c->config.super->pool_bytes / 2;
    c->config.high_bytes = c->config.super->pool_bytes * 3 / 4;
    c->config.low_bytes = c->config.super->pool_bytes / 2;
}

/* ---- parts of messages ---- */

static uint32_t any_key(uint8_t *out)
{
    uint32_t i = draw_below(KEYS);
    uint32_t size = i % 8 == 0 ? KEY_MAX : i % 8 == 1 ? KEY_INLINE + 1 : 1 + i;
    memset(out, 'k', size);
    out[0] = (uint8_t)i;
    return size;
}

static uint32_t any_size(void)
{
    static const uint32_t most[] = {1, 4096, 4096, 20000, 20000, 100000, 300000, 3u << 20};
    return draw_below(most[draw_below(8)] + 1);
}

static int64_t any_deadline(const struct life *l)
{
    switch (draw_below(4)) {
    case 0:
        return INT64_MAX;
    case 1:
        return l->c.now.mono + draw_below(100000000);
    default:
        return 0;
    }
}

/* One that the session may use for this, if there is one. */
static struct msg_token good_token(const struct life *l, uint64_t session, bool grant)
{
    uint32_t start = draw_below(l->n_tokens);
    for (uint32_t i = 0; i < l->n_tokens; i++) {
        const struct msg_token *t = &l->token[(start + i) % l->n_tokens];
        const struct slot_header *h = &l->c.headers[t->slot];
        bool is_grant = atomic_load(&h->flags) & SLOT_GRANT;
        if (slot_load(h) == slot_word(t->gen, SLOT_WRITING) && h->version == session && is_grant == grant) {
            return *t;
        }
    }
    return l->token[start];
}

static struct msg_token any_token(const struct life *l, bool grant)
{
    if (l->n_tokens == 0) {
        return (struct msg_token){.gen = draw_below(4), .slot = draw_below(l->c.super.max_headers + 2)};
    }
    struct msg_token t = good_token(l, l->session[l->who], grant);
    switch (draw_below(64)) {
    case 0:
        t.gen |= UINT64_C(0xff) << 56;
        break;
    case 1:
        t.gen++;
        break;
    case 2:
        t.slot = UINT32_MAX - draw_below(2);
        break;
    case 3:
        t.slot = l->c.super.max_headers;
        break;
    case 4:
    case 5:
    case 6:
        t = good_token(l, l->session[l->who], !grant);
        break;
    case 7:
    case 8:
    case 9:
        t = l->token[draw_below(l->n_tokens)];
        break;
    default:
        break;
    }
    return t;
}

static uint64_t any_counter(const struct life *l)
{
    return draw_below(8) ? 0 : l->c.headers[draw_below(64)].version;
}

/* ---- messages ---- */

/* What a seal of this draft must say, mostly. */
static uint64_t any_checksum(const struct life *l, const struct msg_token *t)
{
    const struct slot_header *h = t->slot < l->c.super.max_headers ? &l->c.headers[t->slot] : NULL;
    uint32_t cell, cells = h && draw_below(16) ? lookup_cells(&l->c.lookup, h, &cell) : 0;
    uint32_t segments = cells ? segments_of(h->size, slot_segment(h)) : 0;
    const uint8_t *list = l->c.tails + (cells ? (cell + cells_of_key(slot_key_size(h), segments)) * TAIL_CELL : 0);
    return segments ? XXH3_64bits(list, segments * 8) : draw();
}

static struct msg_head *sums_message(struct life *l)
{
    struct msg_token t = any_token(l, false);
    const struct slot_header *h = t.slot < l->c.super.max_headers ? &l->c.headers[t.slot] : NULL;
    uint32_t n = h && draw_below(16) ? segments_of(h->size, slot_segment(h)) : draw_below(9);
    n = n >= 1 && n <= SEGMENTS_MAX ? n : 1;
    struct msg_sums *m = (struct msg_sums *)core_message(&l->c, MSG_SUMS, (uint32_t)sizeof *m + n * 8);
    m->token = t;
    m->count = n;
    memset(m + 1, (int)draw_below(256), n * 8);
    return &m->head;
}

static struct msg_head *wait_message(struct life *l)
{
    uint32_t n = 1 + draw_below(6), bytes = sizeof(struct msg_wait);
    struct msg_wait *m = (struct msg_wait *)core_message(&l->c, MSG_WAIT, RING_MESSAGE_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct msg_wait_key *k = (struct msg_wait_key *)((uint8_t *)m + bytes);
        *k = (struct msg_wait_key){.ns = draw_below(2), .key_size = (uint16_t)any_key((uint8_t *)(k + 1))};
        bytes += (uint32_t)sizeof *k + ((k->key_size + 7u) & ~7u);
    }
    m->count = n;
    m->flags = draw_below(4);
    m->head.bytes = bytes;
    return &m->head;
}

static struct msg_head *object_message(struct life *l, uint16_t op)
{
    static const uint64_t zeros[SEGMENTS_MAX];
    uint8_t key[KEY_MAX];
    uint32_t n = any_key(key), fixed = op == MSG_PUT ? sizeof(struct msg_put) : sizeof(struct msg_create);
    struct msg_head *m = core_message(&l->c, op, fixed + KEY_MAX + sizeof zeros);
    struct msg_object *o = op == MSG_PUT ? &((struct msg_put *)m)->object : &((struct msg_create *)m)->object;
    *o = (struct msg_object){
        .lineage = draw_below(3), .parent = draw_below(3), .size = any_size(), .key_size = (uint16_t)n};
    o->ns = draw_below(16) ? draw_below(2) : draw_below(9);
    o->ttl_s = draw_below(2);
    o->priority = (uint8_t)draw_below(256);
    if (op == MSG_PUT) {
        ((struct msg_put *)m)->token = any_token(l, true);
        ((struct msg_put *)m)->want = draw_below(5);
        o->checksum = draw();
        o->size = draw_below(8) ? o->size % 4097 : o->size;
    }
    uint8_t shift = (uint8_t)(draw_below(3) ? 0 : 12 + draw_below(3));
    o->segment = shift && segments_possible(o->size, shift) ? shift : 0;
    uint32_t list = op == MSG_PUT ? segments_of(o->size, o->segment) * 8 : 0;
    o->checksum = list && draw_below(16) ? XXH3_64bits(zeros, list) : o->checksum;
    m->bytes = fixed + n + list;
    memcpy((uint8_t *)m + fixed, key, n);
    return m;
}

static struct msg_head *grant_message(struct life *l)
{
    struct msg_grant *m = (struct msg_grant *)core_message(&l->c, MSG_GRANT, sizeof *m);
    m->size = any_size();
    m->count = 1 + draw_below(draw_below(8) ? 3 : 64);
    return &m->head;
}

static struct msg_head *seal_message(struct life *l)
{
    uint32_t n = 1 + draw_below(draw_below(8) ? 3 : 30);
    struct msg_seal *m =
        (struct msg_seal *)core_message(&l->c, MSG_SEAL, (uint32_t)(sizeof *m + n * sizeof(struct msg_member)));
    struct msg_member *in = (struct msg_member *)(m + 1);
    m->count = n;
    for (uint32_t i = 0; i < n; i++) {
        in[i].token = any_token(l, false);
        in[i].checksum = any_checksum(l, &in[i].token);
    }
    return &m->head;
}

static struct msg_head *tokens_message(struct life *l, uint16_t op)
{
    uint32_t n = draw_below(op == MSG_ABORT ? 4 : 40);
    struct msg_tokens *m =
        (struct msg_tokens *)core_message(&l->c, op, (uint32_t)(sizeof *m + n * sizeof(struct msg_token)));
    m->count = n;
    for (uint32_t i = 0; i < n; i++) {
        ((struct msg_token *)(m + 1))[i] = any_token(l, draw_below(2));
    }
    return &m->head;
}

static struct msg_head *key_message(struct life *l, uint16_t op)
{
    uint8_t key[KEY_MAX];
    uint32_t n = any_key(key);
    struct msg_key *m = (struct msg_key *)core_message(&l->c, op, (uint32_t)sizeof *m + n);
    if (op == MSG_REMOVE && (m->counter = any_counter(l)) != 0) {
        m->region = l->c.super.region_id;
    }
    m->ns = draw_below(2);
    m->key_size = (uint16_t)n;
    memcpy(m + 1, key, n);
    return &m->head;
}

static struct msg_head *hold_message(struct life *l, uint16_t op)
{
    uint8_t key[KEY_MAX];
    uint32_t n = any_key(key);
    struct msg_hold *m = (struct msg_hold *)core_message(&l->c, op, (uint32_t)sizeof *m + n + 1);
    m->ttl_ns = op == MSG_HOLD && draw_below(4) ? draw_below(1000000000) : 0;
    m->ns = draw_below(2);
    m->key_size = (uint16_t)n;
    m->label_size = 1;
    memcpy(m + 1, key, n);
    ((uint8_t *)(m + 1))[n] = (uint8_t)('a' + draw_below(20));
    return &m->head;
}

static struct msg_head *list_message(struct life *l)
{
    uint8_t key[KEY_MAX];
    uint32_t after = draw_below(2) ? any_key(key) : 0;
    struct msg_list *m = (struct msg_list *)core_message(&l->c, MSG_LIST, (uint32_t)sizeof *m + after);
    m->ns = draw_below(3);
    m->max = 1 + draw_below(100);
    m->after_size = (uint16_t)after;
    memcpy(m + 1, key, after);
    return &m->head;
}

static struct msg_head *namespace_message(struct life *l)
{
    struct msg_namespace *m = (struct msg_namespace *)core_message(&l->c, MSG_NAMESPACE, (uint32_t)sizeof *m + 2);
    m->name_size = 2;
    memcpy(m + 1, (char[]){'n', (char)('a' + draw_below(6))}, 2);
    return &m->head;
}

static struct msg_head *any_message(struct life *l)
{
    switch (draw_below(24)) {
    case 20:
    case 21:
        return sums_message(l);
    case 22:
    case 23:
        return wait_message(l);
    case 0:
    case 1:
        return grant_message(l);
    case 2:
    case 3:
    case 4:
    case 5:
        return object_message(l, MSG_PUT);
    case 6:
    case 7:
    case 8:
    case 9:
        return object_message(l, MSG_CREATE);
    case 10:
    case 11:
    case 12:
        return seal_message(l);
    case 13:
        return tokens_message(l, draw_below(8) ? MSG_ABORT : MSG_RESUME);
    case 14:
    case 15:
        return key_message(l, MSG_REMOVE);
    case 16:
        return key_message(l, draw_below(2) ? MSG_STAT : MSG_FIND);
    case 17:
        return hold_message(l, MSG_HOLD);
    case 18:
        return hold_message(l, MSG_DROP);
    default:
        return draw_below(2) ? list_message(l) : namespace_message(l);
    }
}

/* ---- steps ---- */

/* Tokens of every reply that has come since, over those that were known. */
static void learn_tokens(struct life *l)
{
    l->replies_seen = l->replies_seen > l->c.n_replies ? 0 : l->replies_seen;
    for (; l->replies_seen < l->c.n_replies; l->replies_seen++) {
        const struct msg_reply *r = l->c.reply[l->replies_seen];
        bool gives =
            r->head.op == MSG_GRANT || r->head.op == MSG_CREATE || r->head.op == MSG_PUT || r->head.op == MSG_FIND;
        for (uint32_t i = 0; gives && i < r->count; i++) {
            uint32_t at = l->n_tokens < TOKENS ? l->n_tokens++ : draw_below(TOKENS);
            l->token[at] = ((const struct msg_token *)(r + 1))[i];
        }
    }
}

static void request(struct life *l)
{
    uint32_t i = l->who = draw_below(SESSIONS);
    struct msg_head *m = any_message(l);
    m->deadline = any_deadline(l);
    m->flags = (uint16_t)((draw_below(8) ? 0 : MSG_AGAIN) | (m->op == MSG_CREATE && draw_below(2) ? MSG_JOIN : 0));
    m->stamp = draw_below(8) ? m->stamp : draw();
    if (node_session_ready(l->c.node, l->session[i])) {
        core_request(&l->c, l->session[i], m);
    }
    learn_tokens(l);
}

static void pin(struct life *l)
{
    uint8_t key[KEY_MAX];
    uint32_t n = any_key(key), i = draw_below(SESSIONS);
    uint32_t slot = node_find(l->c.node, (struct key_ref){.data = key, .size = n, .ns = draw_below(2)});
    if (slot == SLOT_NONE || l->n_pins == PINS || word_state(slot_load(&l->c.headers[slot])) != SLOT_READY) {
        return;
    }
    l->c.pinned[slot]++;
    l->pin[l->n_pins++] =
        (struct pin){.session = l->session[i], .gen = word_gen(slot_load(&l->c.headers[slot])), .slot = slot};
}

static void unpin(struct life *l, uint32_t at)
{
    l->c.pinned[l->pin[at].slot]--;
    l->pin[at] = l->pin[--l->n_pins];
}

static void check_pins(const struct life *l)
{
    for (uint32_t i = 0; i < l->n_pins; i++) {
        uint64_t word = slot_load(&l->c.headers[l->pin[i].slot]);
        assert_true(word_gen(word) == l->pin[i].gen);
        assert_true(word_state(word) == SLOT_READY || word_state(word) == SLOT_RETIRED);
    }
}

/* Within a generation a slot goes from FREE over WRITING and READY to RETIRED and never back; every return to FREE
 * begins another. So its word only ever grows, crashes included. */
static void check_words(const struct life *l)
{
    static uint64_t seen[HEADERS];
    for (uint32_t i = 0; i < l->c.super.max_headers; i++) {
        uint64_t word = slot_load(&l->c.headers[i]);
        assert_true(l->steps == 0 || word >= seen[i]);
        seen[i] = word;
    }
}

static void unpin_all_of(struct life *l, uint64_t session)
{
    for (uint32_t i = l->n_pins; i-- > 0;) {
        if (l->pin[i].session == session) {
            unpin(l, i);
        }
    }
}

static void attach(struct life *l, uint32_t i)
{
    core_attach(&l->c, l->session[i]);
    l->attached[i] = true;
}

static void detach(struct life *l)
{
    uint32_t i = draw_below(SESSIONS);
    core_event(&l->c, (struct node_event){.kind = EV_DETACHED, .session = l->session[i]});
    l->attached[i] = false;
    if (draw_below(2)) {
        attach(l, i);
        l->who = i;
        core_request(&l->c, l->session[i], tokens_message(l, MSG_RESUME));
    }
}

static void die(struct life *l)
{
    uint32_t i = draw_below(SESSIONS);
    unpin_all_of(l, l->session[i]);
    core_event(&l->c, (struct node_event){.kind = EV_DEAD, .session = l->session[i], .status = (int)draw_below(2)});
    l->session[i] = l->next_session++;
    attach(l, i);
}

static void crash(struct life *l)
{
    uint64_t alive[SESSIONS];
    uint32_t n = 0;
    if (l->c.flying && draw_below(2)) { /* committed, but nobody was told */
        assert_int_equal(lmdb_ops.commit(l->c.index, l->c.flying), 0);
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (draw_below(4)) {
            alive[n++] = l->session[i];
        } else {
            unpin_all_of(l, l->session[i]);
            l->session[i] = l->next_session++;
        }
    }
    core_crash(&l->c, alive, n);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        attach(l, i);
    }
}

static void touch(struct life *l)
{
    uint32_t slots[16];
    for (uint32_t i = 0; i < 16; i++) {
        slots[i] = draw_below(l->c.super.max_headers) | (draw_below(4) ? 0 : TOUCH_CHILD);
    }
    core_event(&l->c, (struct node_event){
                          .kind = EV_TOUCH, .session = l->session[0], .slots = slots, .n_slots = draw_below(17)});
}

static void step(struct life *l)
{
    switch (draw_below(64)) {
    case 19:
    case 20:
        core_judge(&l->c);
        break;
    case 0:
    case 1:
    case 2:
    case 3:
        pin(l);
        break;
    case 4:
    case 5:
    case 6:
        if (l->n_pins) {
            unpin(l, draw_below(l->n_pins));
        }
        break;
    case 7:
    case 8:
        core_tick(&l->c, draw_below(200000000));
        break;
    case 9:
        touch(l);
        break;
    case 10:
        l->c.fail_commits += draw_below(8) == 0;
        break;
    case 11:
    case 12:
        l->c.hold_commits = !l->c.hold_commits;
        break;
    case 13:
    case 14:
    case 15:
        core_commit(&l->c);
        break;
    case 16:
        detach(l);
        break;
    case 17:
        if (draw_below(8) == 0) {
            die(l);
        }
        break;
    case 18:
        if (draw_below(32) == 0) {
            crash(l);
        }
        break;
    default:
        request(l);
        break;
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (!l->attached[i] && draw_below(8) == 0) {
            attach(l, i);
        }
    }
}

/* ---- a life ---- */

static void settle(struct life *l)
{
    l->c.hold_commits = false;
    l->c.fail_commits = 0;
    for (int i = 0; i < 20; i++) {
        core_commit(&l->c);
        core_tick(&l->c, 2000000000);
    }
    assert_null(l->c.flying);
}

static void test_random_lives(void **state)
{
    (void)state;
    static struct life l;
    time_t end = time(NULL) + WALL_S;
    uint32_t runs = 0;
    for (; runs < RUNS && time(NULL) < end; runs++) {
        l = (struct life){.next_session = 1};
        core_open(&l.c, (POOL_MIB / 3) * (1 + draw_below(3)) * (uint64_t)MIB, options);
        for (uint32_t i = 0; i < SESSIONS; i++) {
            l.session[i] = l.next_session++;
            attach(&l, i);
        }
        for (; l.steps < STEPS; l.steps++) {
            step(&l);
            check_pins(&l);
            if (l.steps % 8 == 0) {
                check_words(&l);
                core_check(&l.c);
            }
        }
        settle(&l);
        core_check(&l.c);
        for (uint32_t i = 0; i < SESSIONS; i++) {
            unpin_all_of(&l, l.session[i]);
            core_event(&l.c, (struct node_event){.kind = EV_DEAD, .session = l.session[i]});
        }
        settle(&l);
        core_check(&l.c);
        struct node_status st;
        node_status(l.c.node, &st);
        assert_int_equal(st.drafts + st.grants + st.retired + st.sessions + st.waiting, 0);
        assert_int_equal(st.slabs.used_bytes, st.sealed_bytes); /* nothing is left of anybody */
        core_close(&l.c);
    }
    assert_true(runs > 0);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_lives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
