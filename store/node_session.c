/* node_session.c: sessions: attach, death, quarantine, resume, stalled requests (PROTOCOLS rules 6, 9, 10). */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct session *session_find(const struct node *n, uint64_t id)
{
    struct session *s = n->chain[id % SESSION_CHAINS];
    while (s && s->id != id) {
        s = s->chain;
    }
    return s;
}

struct session *session_add(struct node *n, uint64_t id)
{
    if (n->n_sessions == n->sessions_room) {
        uint32_t room = n->sessions_room ? n->sessions_room * 2 : 64;
        struct session **p = realloc(n->session, room * sizeof *p);
        if (!p) {
            return NULL;
        }
        n->session = p;
        n->sessions_room = room;
    }
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->id = id;
    s->drafts = (struct slot_list){SLOT_NONE, SLOT_NONE, 0};
    s->chain = n->chain[id % SESSION_CHAINS];
    n->chain[id % SESSION_CHAINS] = s;
    s->index = n->n_sessions;
    n->session[n->n_sessions++] = s;
    return s;
}

void session_free(struct node *n, struct session *s)
{
    struct session **at = &n->chain[s->id % SESSION_CHAINS];
    while (*at != s) {
        at = &(*at)->chain;
    }
    *at = s->chain;
    n->session[s->index] = n->session[--n->n_sessions];
    n->session[s->index]->index = s->index;
    free(s->stalled);
    free(s);
}

void session_stall(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    if (s->stalled == m) {
        return; /* still the same request, tried again in vain */
    }
    struct msg_head *copy = malloc(m->bytes);
    if (!copy) {
        refuse(n, s->id, m, -ENOMEM);
        return;
    }
    memcpy(copy, m, m->bytes);
    s->stalled = copy;
    s->stalled_at = taken;
    n->counters[NODE_STALLS]++;
}

/* Stalled requests run again; one that stalls again stays as it is. */
void session_unstall(struct node *n)
{
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        struct session *s = n->session[i];
        struct msg_head *m = s->stalled;
        if (!m) {
            continue;
        }
        s->stalled = NULL;
        request_run(n, s, m, s->stalled_at);
        free(m);
    }
}

static void drop_stalled(struct session *s)
{
    free(s->stalled);
    s->stalled = NULL;
}

static void attach(struct node *n, const struct node_event *ev)
{
    struct session *s = session_find(n, ev->session);
    if (!s) {
        s = session_add(n, ev->session);
        if (!s) {
            return;
        }
        n->counters[NODE_SESSIONS_OPENED]++;
    }
    if (ev->row) {
        uint64_t applied = s->row.applied;
        s->row = *ev->row;
        s->row.applied = applied;
        batch_session(n->open->batch, s->id, &s->row);
    }
    s->attached = true;
    s->connection++;
    s->writable = ev->writable;
}

static void abort_drafts(struct node *n, struct session *s)
{
    for (uint32_t slot = s->drafts.head; slot != SLOT_NONE;) {
        uint32_t next = n->next[slot];
        bool grant = atomic_load_explicit(&header_of(n, slot)->flags, memory_order_relaxed) & SLOT_GRANT;
        n->counters[NODE_ABORTED_WRITES] += !grant;
        fate_draft(n, slot, s->dead || s == &n->orphan ? FATE_DIED : FATE_ABORTED, 0);
        draft_abort(n, s, slot);
        slot = next;
    }
}

static void bury(struct node *n, struct session *s)
{
    abort_drafts(n, s);
    batch_end_session(n->open->batch, s->id);
    command_add(n, CMD_CLOSED, s->id);
    session_free(n, s);
    n->counters[NODE_SESSIONS_DEAD]++;
}

static void died(struct node *n, struct session *s, bool clean)
{
    drop_stalled(s);
    waiters_drop(n, s->id);
    waits_drop(n, s->id);
    s->attached = false;
    n->rescan = n->waiting.count > 0; /* its pins are gone */
    for (uint32_t slot = s->drafts.head; slot != SLOT_NONE; slot = n->next[slot]) {
        writing_lost(n, slot, clean ? WAIT_ABORTED : WAIT_DIED); /* its slots may wait for the quarantine, others not */
    }
    if (clean) {
        bury(n, s);
        return;
    }
    s->dead = true;
    /* Its process is gone, but a device may still write into its slots. */
    s->quarantine_end = n->now.mono + n->c.quarantine_ns;
}

static void pinned(struct node *n, struct session *s, uint64_t bytes)
{
    bool refused = n->c.pin_quota && bytes > n->c.pin_quota;
    if (refused == s->refused) {
        return;
    }
    struct node_command *c = command_add(n, CMD_REFUSE, s->id);
    if (c) {
        c->flag = refused;
        s->refused = refused;
        n->counters[NODE_REFUSED_QUOTA] += refused;
    }
}

void session_event(struct node *n, const struct node_event *ev)
{
    struct session *s = session_find(n, ev->session);
    if (ev->kind == EV_ADOPT) {
        if (!s) {
            session_add(n, ev->session);
        }
        return;
    }
    if (ev->kind == EV_ATTACH) {
        attach(n, ev);
        return;
    }
    if (!s || s->dead) {
        return;
    }
    if (ev->kind == EV_DETACHED) {
        s->attached = false;
        drop_stalled(s);
        waiters_drop(n, s->id);
        waits_drop(n, s->id);
    } else if (ev->kind == EV_DEAD) {
        died(n, s, ev->status == 1);
    } else {
        pinned(n, s, ev->bytes);
    }
}

void session_timers(struct node *n)
{
    for (uint32_t i = n->n_sessions; i-- > 0;) {
        struct session *s = n->session[i];
        if (s->dead && n->now.mono >= s->quarantine_end) {
            bury(n, s);
        }
    }
    if (n->orphan.drafts.count && n->now.mono >= n->orphan.quarantine_end) {
        abort_drafts(n, &n->orphan);
    }
}

bool node_session_ready(const struct node *n, uint64_t session)
{
    const struct session *s = session_find(n, session);
    return s && s->attached && !s->stalled && !n->stopping;
}

static int by_slot(const void *a, const void *b)
{
    uint32_t x = ((const struct msg_token *)a)->slot, y = ((const struct msg_token *)b)->slot;
    return (x > y) - (x < y);
}

/* The client lists what it still knows; what it does not know (a reply that was lost) is given back. */
void request_resume(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_tokens *p = (const struct msg_tokens *)m;
    struct msg_token *known = arena_take(n, (p->count + 1) * sizeof *known);
    if (!known) {
        refuse(n, s->id, m, -ENOMEM);
        return;
    }
    memcpy(known, p + 1, p->count * sizeof *known);
    qsort(known, p->count, sizeof *known, by_slot);
    for (uint32_t slot = s->drafts.head; slot != SLOT_NONE;) {
        uint32_t next = n->next[slot];
        struct msg_token key = {.slot = slot};
        const struct msg_token *t = bsearch(&key, known, p->count, sizeof key, by_slot);
        if (!t || t->gen != word_gen(slot_load(header_of(n, slot)))) {
            draft_abort(n, s, slot);
        }
        slot = next;
    }
    struct msg_reply *r = reply_add(n, s->id, m, 0, 0);
    if (r) {
        r->count = s->drafts.count;
    }
}
