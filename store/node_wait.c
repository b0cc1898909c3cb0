/* node_wait.c: who waits for a key to become ready, and which keys are being written.
 *
 * `writing` counts the drafts of a key from CREATE until they are published, given up, or their writer's process has
 * ended: a draft of a dead session can't be sealed any more, even though its slot is kept for the quarantine. A key
 * that is waited for stands in a chain by its hash; where nobody waits, a put costs one comparison.
 *
 * Keys are told apart by their 64 bits of hash here. Two that share them wake each other's waiters: those look, miss,
 * and wait again.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>

struct wait_key {
    uint64_t home;
    struct wait_key *next, **at; /* of its chain; at is NULL once it is settled */
    struct wait_call *call;
    uint8_t state; /* msg_wait_state */
};

struct wait_call {
    struct wait_call *next, **at; /* of all */
    struct wait_call *done;
    uint64_t session;
    struct msg_head head;
    uint32_t count, left; /* keys; those that are not settled */
    bool run, ended;      /* MSG_WAIT_RUN; it is in the list of those to be answered now */
    struct wait_key key[];
};

static struct wait_key **chain_of(const struct node *n, uint64_t home)
{
    return &n->waited[(uint32_t)(home >> 17) & (WAIT_CHAINS - 1)];
}

static void key_link(struct node *n, struct wait_call *w, struct wait_key *k)
{
    struct wait_key **at = chain_of(n, k->home);
    k->next = *at;
    k->at = at;
    if (k->next) {
        k->next->at = &k->next;
    }
    *at = k;
    w->left++;
}

static void key_unlink(struct wait_key *k)
{
    *k->at = k->next;
    if (k->next) {
        k->next->at = k->at;
    }
    k->at = NULL;
}

/* ---- one WAIT ---- */

static void call_link(struct node *n, struct session *s, struct wait_call *w)
{
    w->next = n->waits;
    w->at = &n->waits;
    if (w->next) {
        w->next->at = &w->next;
    }
    n->waits = w;
    n->n_waited += w->count;
    s->waits++;
    s->waited += w->count;
    n->wait_at = !w->next || w->head.deadline < n->wait_at ? w->head.deadline : n->wait_at;
}

/* Out of the list and the accounts, and gone. */
static void call_free(struct node *n, struct wait_call *w)
{
    struct session *s = session_find(n, w->session);
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->key[i].at) {
            key_unlink(&w->key[i]);
        }
    }
    *w->at = w->next;
    if (w->next) {
        w->next->at = w->at;
    }
    n->n_waited -= w->count;
    if (s) {
        s->waits--;
        s->waited -= w->count;
    }
    free(w);
}

static void call_answer(struct node *n, const struct wait_call *w)
{
    bool silent = n->silent; /* of the effect that wakes it, whose session may be gone: not of who waits */
    n->silent = false;
    struct msg_reply *r = reply_add(n, w->session, &w->head, 0, w->count);
    n->silent = silent;
    if (!r) {
        return;
    }
    r->count = w->count;
    for (uint32_t i = 0; i < w->count; i++) {
        ((uint8_t *)(r + 1))[i] = w->key[i].state;
        r->status += w->key[i].state == WAIT_READY;
    }
    answered(n, &w->head);
}

bool key_written(const struct node *n, struct key_hash hash)
{
    return pending_has(&n->writing, hash.home) || pending_has(&n->pending, hash.home);
}

void lost_add(struct node *n, struct key_hash hash, enum msg_wait_state state)
{
    n->lost[n->n_lost++ % LOST_KEYS] = (struct lost_key){.home = hash.home, .at = n->now.mono, .state = (uint8_t)state};
}

/* Whether the key lost its writer since this time: of a WAIT that came again after a restart, or behind the abort. */
static uint8_t lost_since(const struct node *n, uint64_t home, uint64_t stamp)
{
    for (uint32_t i = 1; i <= LOST_KEYS && i <= n->n_lost; i++) {
        const struct lost_key *k = &n->lost[(n->n_lost - i) % LOST_KEYS];
        if ((uint64_t)k->at <= stamp) {
            break; /* the others are older */
        }
        if (k->home == home) {
            return k->state;
        }
    }
    return WAIT_OPEN;
}

static void look_at(struct node *n, struct wait_call *w, uint32_t i, struct key_ref key, bool written_only)
{
    struct key_hash hash = lookup_hash(n->c.super->hash_seed, key);
    struct wait_key *k = &w->key[i];
    *k = (struct wait_key){.home = hash.home, .call = w};
    bool written = key_written(n, hash);
    if (key_slot(n, hash, key, NULL) != SLOT_NONE) {
        k->state = WAIT_READY;
    } else if (!written) {
        k->state = lost_since(n, hash.home, w->head.stamp);
    }
    if (k->state == WAIT_OPEN && (written || !written_only)) {
        key_link(n, w, k);
    }
    w->ended |= w->run && (k->state == WAIT_ABORTED || k->state == WAIT_DIED);
}

static bool waits_possible(struct node *n, const struct session *s, uint32_t count)
{
    if (!n->waited) {
        n->waited = calloc(WAIT_CHAINS, sizeof(struct wait_key *));
    }
    return n->waited && s->waits < WAITS_SESSION && count <= WAITED_SESSION - s->waited &&
           count <= WAITED_MAX - n->n_waited;
}

void request_wait(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_wait *p = (const struct msg_wait *)m;
    struct wait_call *w = waits_possible(n, s, p->count) ? calloc(1, sizeof *w + p->count * sizeof w->key[0]) : NULL;
    if (!w) {
        refuse(n, s->id, m, -EAGAIN);
        return;
    }
    w->session = s->id;
    w->head = *m;
    w->count = p->count;
    w->run = p->flags & MSG_WAIT_RUN;
    call_link(n, s, w);
    const uint8_t *at = (const uint8_t *)(p + 1);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct msg_wait_key *k = msg_wait_next(&at);
        look_at(n, w, i, (struct key_ref){.data = k + 1, .size = k->key_size, .ns = k->ns},
                p->flags & MSG_WAIT_WRITTEN);
    }
    n->counters[NODE_WAITS]++;
    if (w->left == 0 || w->ended || m->deadline <= n->now.mono) {
        call_answer(n, w);
        call_free(n, w);
    }
}

/* ---- what wakes it ---- */

/* A call may wait for one key twice: none is answered, and gone, before the whole chain has been walked. */
static void settle(struct node *n, uint64_t home, enum msg_wait_state state)
{
    struct wait_call *done = NULL, **end = &done;
    for (struct wait_key **at = chain_of(n, home); *at;) {
        struct wait_key *k = *at;
        if (k->home != home) {
            at = &k->next;
            continue;
        }
        key_unlink(k);
        k->state = (uint8_t)state;
        struct wait_call *w = k->call;
        w->left--;
        if (!w->ended && (w->left == 0 || (w->run && state != WAIT_READY))) {
            w->ended = true;
            *end = w;
            end = &w->done;
        }
    }
    while (done) {
        struct wait_call *w = done;
        done = w->done;
        call_answer(n, w);
        call_free(n, w);
    }
}

void writing_add(struct node *n, uint32_t slot)
{
    if (pending_add(&n->writing, slot_hash(n, slot).home)) { /* without memory nobody hears of it */
        n->mark[slot] |= MARK_WRITES;
        n->n_writing++;
    }
}

static void writing_remove(struct node *n, uint32_t slot, uint64_t home)
{
    n->mark[slot] &= (uint8_t)~MARK_WRITES;
    n->n_writing--;
    pending_drop(&n->writing, home);
}

void writing_lost(struct node *n, uint32_t slot, enum msg_wait_state state)
{
    if (n->mark[slot] & MARK_WRITES) {
        struct key_hash hash = slot_hash(n, slot);
        writing_remove(n, slot, hash.home);
        wait_lost(n, hash, state);
    }
}

void wait_lost(struct node *n, struct key_hash hash, enum msg_wait_state state)
{
    if (key_written(n, hash)) {
        return;
    }
    lost_add(n, hash, state);
    if (n->n_waited) {
        settle(n, hash.home, state);
    }
}

void wait_published(struct node *n, const struct member *m)
{
    if (n->mark[m->slot] & MARK_WRITES) {
        writing_remove(n, m->slot, m->hash.home);
    }
    if (n->n_waited) {
        settle(n, m->hash.home, WAIT_READY);
    }
}

void waits_drop(struct node *n, uint64_t session)
{
    for (struct wait_call *w = n->waits, *next; w; w = next) {
        next = w->next;
        if (w->session == session) {
            call_free(n, w);
        }
    }
}

void waits_expire(struct node *n)
{
    if (!n->waits || n->now.mono < n->wait_at) {
        return;
    }
    n->wait_at = INT64_MAX;
    for (struct wait_call *w = n->waits, *next; w; w = next) {
        next = w->next;
        if (w->head.deadline <= n->now.mono) {
            call_answer(n, w);
            call_free(n, w);
        } else if (w->head.deadline < n->wait_at) {
            n->wait_at = w->head.deadline;
        }
    }
}

void waits_free(struct node *n)
{
    while (n->waits) {
        call_free(n, n->waits);
    }
    free(n->waited);
}

const char *waits_check(const struct node *n)
{
    uint32_t keys = 0, of_sessions = 0;
    for (const struct wait_call *w = n->waits; w; w = w->next) {
        const struct session *s = session_find(n, w->session);
        keys += w->count;
        if (!s || !s->attached || w->left == 0) {
            return "somebody waits who is gone, or for nothing";
        }
    }
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        of_sessions += n->session[i]->waited;
    }
    return keys == n->n_waited && keys == of_sessions ? NULL : "counted keys are not those that are waited for";
}
