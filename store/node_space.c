/* node_space.c: slots to write into: grants, drafts, and who waits for room. */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void fill_token(const struct node *n, uint32_t slot, struct msg_token *out)
{
    const struct slot_header *h = header_of(n, slot);
    *out = (struct msg_token){.gen = word_gen(slot_load(h)), .slot = slot, .page = h->page};
}

/* One object that is larger than the quota is possible all the same: alone. */
static bool over_quota(const struct node *n, const struct session *s, uint32_t pages)
{
    return s->draft_bytes && s->draft_bytes + (uint64_t)pages * PAGE_BYTES > n->c.draft_quota;
}

/* A slot as near to who asks as there is room. */
static uint32_t take_slot(struct node *n, const struct session *s, uint32_t pages)
{
    bool near = s->place > 0 && s->place <= n->c.n_places;
    slabs_prefer(n->slabs, near ? n->c.places[s->place - 1] : (struct slabs_place){0, 0});
    return slabs_alloc(n->slabs, pages, NULL);
}

uint32_t grant_some(struct node *n, struct session *s, uint32_t pages, uint32_t count, struct msg_token *out)
{
    uint32_t got = 0;
    while (got < count && !over_quota(n, s, pages) && !n->waiters) { /* who waits for room comes first */
        uint32_t slot = take_slot(n, s, pages);
        if (slot == SLOT_NONE) {
            break;
        }
        draft_add(n, s, slot, true);
        fill_token(n, slot, &out[got++]);
    }
    n->counters[NODE_GRANTS] += got;
    return got;
}

static void answer_grant(struct node *n, struct session *s, const struct msg_head *m, uint32_t pages, uint32_t first)
{
    const struct msg_grant *g = (const struct msg_grant *)m;
    struct msg_reply *r = reply_add(n, s->id, m, 0, g->count * (uint32_t)sizeof(struct msg_token));
    if (!r) {
        slabs_free(n->slabs, first);
        return;
    }
    struct msg_token *t = (struct msg_token *)(r + 1);
    draft_add(n, s, first, true);
    fill_token(n, first, t);
    n->counters[NODE_GRANTS]++;
    uint32_t got = 1 + grant_some(n, s, pages, g->count - 1, t + 1);
    r->count = got;
    r->figure[0] = (uint64_t)pages * PAGE_BYTES;
    reply_shrink(r, got * (uint32_t)sizeof *t);
    answered(n, m);
}

static void answer_create(struct node *n, struct session *s, const struct msg_head *m, uint32_t pages, uint32_t slot)
{
    const struct msg_create *p = (const struct msg_create *)m;
    struct key_ref key = {.data = p + 1, .size = p->object.key_size, .ns = p->object.ns};
    bool written = pending_has(&n->writing, lookup_hash(n->c.super->hash_seed, key).home);
    if (written && (m->flags & MSG_JOIN)) { /* another came while this one waited for room */
        slabs_free(n->slabs, slot);
        reply_add(n, s->id, m, MSG_WRITING, 0);
        return;
    }
    draft_add(n, s, slot, false);
    int32_t status = slot_set_object(n, slot, &p->object, p + 1);
    struct msg_reply *r = status ? NULL : reply_add(n, s->id, m, 0, sizeof(struct msg_token));
    if (!r) {
        draft_abort(n, s, slot);
        refuse(n, s->id, m, status ? status : -ENOMEM);
        return;
    }
    fill_token(n, slot, (struct msg_token *)(r + 1));
    r->count = 1;
    r->figure[0] = (uint64_t)pages * PAGE_BYTES;
    r->figure[1] = written ? MSG_WRITING : 0;
    writing_add(n, slot);
    n->counters[NODE_CREATES]++;
    answered(n, m);
}

static void room_figures(const struct node *n, uint32_t pages, uint64_t figure[4])
{
    struct slabs_usage u;
    slabs_usage(n->slabs, &u);
    figure[0] = (uint64_t)pages * PAGE_BYTES;
    figure[1] = u.free_bytes;
    figure[2] = u.largest_bytes;
    uint64_t kept = n->pinned_seen + n->retired_bytes + n->lease.ready_bytes; /* what is two of these counts twice */
    figure[3] = kept < u.used_bytes ? kept : u.used_bytes;
}

void node_room(const struct node *n, uint64_t size, uint64_t figure[4])
{
    room_figures(n, slabs_pages_for(n->slabs, size), figure);
}

static void refuse_full(struct node *n, uint64_t session, const struct msg_head *m, uint32_t pages, int32_t status)
{
    uint64_t figure[4];
    room_figures(n, pages, figure);
    fate_refused(n, m, status);
    n->counters[status == -ETIMEDOUT ? NODE_TIMEOUTS : NODE_REFUSED_FULL]++;
    struct msg_reply *r = reply_add(n, session, m, status, 0);
    if (r) {
        r->counter = figure[0];
        r->region = figure[1];
        r->figure[0] = figure[2];
        r->figure[1] = figure[3];
    }
}

/* Bytes asked, the quota, and what the session has of it. */
static void refuse_quota(struct node *n, const struct session *s, const struct msg_head *m, uint32_t pages)
{
    n->counters[NODE_REFUSED_QUOTA]++;
    fate_refused(n, m, BERTH_EQUOTA);
    struct msg_reply *r = reply_add(n, s->id, m, BERTH_EQUOTA, 0);
    if (r) {
        r->counter = (uint64_t)pages * PAGE_BYTES;
        r->region = n->c.draft_quota;
        r->figure[0] = s->draft_bytes;
    }
}

static void wait_for_room(struct node *n, struct session *s, const struct msg_head *m, uint32_t pages, int64_t taken)
{
    struct waiter *w = malloc(sizeof *w);
    struct msg_head *copy = malloc(m->bytes);
    if (!w || !copy) {
        free(w);
        free(copy);
        refuse(n, s->id, m, -ENOMEM);
        return;
    }
    memcpy(copy, m, m->bytes);
    *w = (struct waiter){.session = s->id, .taken = taken, .pages = pages, .message = copy};
    *n->waiters_end = w;
    n->waiters_end = &w->next;
    n->n_waiters++;
    n->retry_at = n->now.mono;
    waiters_run(n);
}

static void serve(struct node *n, struct session *s, const struct msg_head *m, uint32_t pages, uint32_t slot,
                  int64_t taken)
{
    node_phase(n, PHASE_SPACE, n->now.mono - taken);
    if (m->op == MSG_GRANT) {
        answer_grant(n, s, m, pages, slot);
    } else {
        answer_create(n, s, m, pages, slot);
    }
}

static void want_room(struct node *n, struct session *s, const struct msg_head *m, uint32_t size, int64_t taken)
{
    uint32_t pages = slabs_pages_for(n->slabs, size);
    if (pages == 0) {
        refuse(n, s->id, m, -E2BIG);
        return;
    }
    if (over_quota(n, s, pages)) {
        refuse_quota(n, s, m, pages);
        return;
    }
    uint32_t slot = n->waiters ? SLOT_NONE : take_slot(n, s, pages);
    if (slot == SLOT_NONE) {
        wait_for_room(n, s, m, pages, taken);
    } else {
        serve(n, s, m, pages, slot, taken);
    }
}

void request_grant(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    want_room(n, s, m, ((const struct msg_grant *)m)->size, taken);
}

void request_create(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_create *p = (const struct msg_create *)m;
    if (!names_known(n, p->object.ns)) {
        refuse(n, s->id, m, -EINVAL);
        return;
    }
    struct key_ref key = {.data = p + 1, .size = p->object.key_size, .ns = p->object.ns};
    struct key_hash hash = lookup_hash(n->c.super->hash_seed, key);
    bool there = key_slot(n, hash, key, NULL) != SLOT_NONE;
    if (there && !names_replaceable(n, p->object.ns) && pending_has(&n->pending, hash.home)) {
        session_stall(n, s, m, taken); /* it may be about to go */
        return;
    }
    if (there && !names_replaceable(n, p->object.ns)) {
        n->counters[NODE_KEPT]++;
        reply_add(n, s->id, m, BERTH_KEPT, 0);
        return;
    }
    if ((m->flags & MSG_JOIN) && (there ? pending_has(&n->writing, hash.home) : key_written(n, hash))) {
        reply_add(n, s->id, m, MSG_WRITING, 0);
        return;
    }
    want_room(n, s, m, p->object.size, taken);
}

static void waiter_free(struct node *n, struct waiter **at)
{
    struct waiter *w = *at;
    *at = w->next;
    if (n->waiters_end == &w->next) {
        n->waiters_end = at;
    }
    n->n_waiters--;
    free(w->message);
    free(w);
}

/* true: answered, and gone. */
static bool waiter_step(struct node *n, struct waiter *w)
{
    struct session *s = session_find(n, w->session);
    if (!s || !s->attached) {
        return true; /* its client sends again, or is dead */
    }
    if (over_quota(n, s, w->pages)) { /* others that it waits for were served first */
        refuse_quota(n, s, w->message, w->pages);
        return true;
    }
    uint32_t slot = take_slot(n, s, w->pages);
    if (slot != SLOT_NONE) {
        serve(n, s, w->message, w->pages, slot, w->taken);
        return true;
    }
    if (w->message->deadline && n->now.mono >= w->message->deadline) {
        refuse_full(n, w->session, w->message, w->pages, -ETIMEDOUT);
        return true;
    }
    if (w->retry <= n->now.mono) {
        w->retry = n->now.mono + RETRY_NS;
        w->tried = 0;
    }
    if (!evict_start(n, w) && w->message->deadline == 0) {
        refuse_full(n, w->session, w->message, w->pages, BERTH_EFULL);
        return true;
    }
    return false;
}

void waiters_run(struct node *n)
{
    /* Whoever waits for a size that can't be had must not hold up the others. */
    for (struct waiter **at = &n->waiters; *at;) {
        if (waiter_step(n, *at)) {
            waiter_free(n, at);
        } else {
            at = &(*at)->next;
        }
    }
    if (n->waiters && n->retry_at <= n->now.mono) {
        n->retry_at = n->now.mono + RETRY_NS;
        n->rescan = n->waiting.count > 0;
    }
}

void waiters_drop(struct node *n, uint64_t session)
{
    for (struct waiter **at = &n->waiters; *at;) {
        if ((*at)->session == session) {
            waiter_free(n, at);
        } else {
            at = &(*at)->next;
        }
    }
}
