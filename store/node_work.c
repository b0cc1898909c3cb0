/* node_work.c: what one commit carries, from decision to answer (group commit, PROTOCOLS rule 16).
 *
 * Two works: `open` collects while `flying` is at the committer. A key with an uncommitted effect is pending: a request
 * on it stalls its session until the commit has succeeded or failed, so that no decision ever rests on what may not
 * happen.
 */
#include "store/node_internal.h"
#include "store/node_origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER_AHEAD 1000000u /* versions are microseconds: meta is written about once a second */

bool work_init(struct node *n)
{
    n->open = &n->work[0];
    n->work[0].batch = batch_create();
    n->work[1].batch = batch_create();
    return n->work[0].batch && n->work[1].batch;
}

void work_free(struct node *n)
{
    for (unsigned i = 0; i < 2; i++) {
        batch_destroy(n->work[i].batch);
        free(n->work[i].effects);
        free(n->work[i].members);
    }
}

bool work_full(const struct node *n)
{
    return n->open->puts >= BATCH_MAX;
}

static bool room_for(void **array, uint32_t used, uint32_t *room, size_t each)
{
    if (used < *room) {
        return true;
    }
    uint32_t bigger = *room ? *room * 2 : 256;
    void *p = realloc(*array, bigger * each);
    if (!p) {
        return false;
    }
    *array = p;
    *room = bigger;
    return true;
}

struct effect *effect_add(struct node *n, enum effect_kind kind, uint64_t session, const struct msg_head *head,
                          int64_t taken)
{
    struct work *w = n->open;
    if (!room_for((void **)&w->effects, w->n_effects, &w->effects_room, sizeof *w->effects)) {
        return NULL;
    }
    if (w->n_effects == 0) {
        w->opened = n->now.mono;
    }
    struct effect *e = &w->effects[w->n_effects++];
    *e = (struct effect){.kind = kind, .session = session, .taken = taken, .first = w->n_members};
    if (head) {
        const struct session *s = session_find(n, session);
        e->head = *head;
        e->connection = s ? s->connection : 0;
    }
    w->puts += kind != EFFECT_EVICT;
    return e;
}

static bool holds(const struct work *w, uint64_t session, uint64_t id)
{
    for (uint32_t i = 0; i < w->n_effects; i++) {
        if (w->effects[i].session == session && w->effects[i].head.id == id) {
            return true;
        }
    }
    return false;
}

bool work_holds(const struct node *n, uint64_t session, uint64_t id)
{
    return holds(n->open, session, id) || (n->flying && holds(n->flying, session, id));
}

bool member_add(struct node *n, struct effect *e, const struct member *m)
{
    struct work *w = n->open;
    if (!room_for((void **)&w->members, w->n_members, &w->members_room, sizeof *w->members)) {
        return false;
    }
    if (!m->kept && !pending_add(&n->pending, m->hash.home)) {
        return false;
    }
    w->members[w->n_members++] = *m;
    e->n++;
    return true;
}

void work_undo(struct node *n, struct effect *e)
{
    struct work *w = n->open;
    for (uint32_t i = e->first; i < e->first + e->n; i++) {
        if (!w->members[i].kept) {
            pending_drop(&n->pending, w->members[i].hash.home);
        }
    }
    w->n_members = e->first;
    w->puts -= e->kind != EFFECT_EVICT;
    w->n_effects--;
}

uint64_t counter_next(struct node *n)
{
    uint64_t wall = n->now.wall_us <= COUNTER_SEEN_MAX ? n->now.wall_us : 0; /* of a clock before 1970 */
    n->counter = (n->counter > wall ? n->counter : wall) + 1;
    return n->counter;
}

void work_turn(struct node *n)
{
    struct work *w = n->open;
    if (n->flying || (w->n_effects == 0 && batch_count(w->batch) == 0)) {
        return;
    }
    if (n->counter > n->counter_kept) {
        if (batch_meta(w->batch, META_COUNTER, n->counter + COUNTER_AHEAD)) {
            return; /* without memory now: the next turn tries again */
        }
        n->counter_kept = n->counter + COUNTER_AHEAD;
    }
    struct node_command *c = command_add(n, CMD_COMMIT, 0);
    if (!c) {
        return;
    }
    c->batch = w->batch;
    w->started = n->now.mono;
    n->flying = w;
    n->open = w == &n->work[0] ? &n->work[1] : &n->work[0];
    n->counters[NODE_COMMITS]++;
    n->counters[NODE_COMMIT_OPS] += batch_count(w->batch);
}

static void release_kept(struct node *n, const struct effect *e, const struct member *m)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (m[i].kept) {
            slot_release(n, m[i].slot);
            n->counters[NODE_KEPT]++;
        }
    }
}

static void answer_seal(struct node *n, const struct effect *e, const struct member *m)
{
    if (e->head.op == MSG_PUT) {
        struct msg_token grants[4];
        struct session *s = session_find(n, e->session);
        uint32_t pages = slabs_pages_for(n->slabs, header_of(n, m->slot)->size);
        uint32_t got = s && !n->silent ? grant_some(n, s, pages, e->want, grants) : 0;
        struct msg_reply *r = reply_add(n, e->session, &e->head, 0, got * (uint32_t)sizeof *grants);
        if (r) {
            r->count = got;
            r->counter = e->counter;
            r->region = n->c.super->region_id;
            r->figure[0] = (uint64_t)pages * PAGE_BYTES;
            memcpy(r + 1, grants, got * sizeof *grants);
        }
        return;
    }
    struct msg_reply *r = reply_add(n, e->session, &e->head, (int32_t)e->kept, (e->n + 7) / 8);
    if (r) {
        r->count = e->n;
        r->counter = e->counter;
        r->region = e->head.op == NODE_SEAL_ORIGIN ? slot_region(n, m->slot) : n->c.super->region_id;
        for (uint32_t i = 0; i < e->n; i++) {
            ((uint8_t *)(r + 1))[i / 8] |= (uint8_t)(m[i].kept << (i % 8));
        }
    }
}

static void complete_hold(struct node *n, const struct effect *e, const struct member *m)
{
    struct slot_header *h = header_of(n, m->old);
    bool was = slot_held(n, m->old);
    if (e->kind == EFFECT_HOLD) {
        atomic_fetch_or_explicit(&h->flags, SLOT_HELD, memory_order_relaxed);
        n->held += !was;
        if (e->expiry) {
            expiry_add(n, e->expiry, m->old, false);
        }
    } else if (e->last_hold) {
        atomic_fetch_and_explicit(&h->flags, (uint8_t)~SLOT_HELD, memory_order_relaxed);
        n->held -= was;
    }
    slot_return(n, m->old);
    if (e->session != CONTROL_SESSION) {
        reply_add(n, e->session, &e->head, 0, 0);
    }
}

static void complete(struct node *n, const struct effect *e, const struct member *m)
{
    switch (e->kind) {
    case EFFECT_SEAL:
        publish(n, e, m, e->n);
        tell_sealed(n, e, m);
        release_kept(n, e, m);
        answer_seal(n, e, m);
        break;
    case EFFECT_REMOVE:
        tell_gone(n, e, m);
        node_whatif_gone(n, e, m);
        unpublish(n, m);
        if (e->tomb) {
            tomb_keep(n, e->tomb);
        }
        fate_add(n, m->hash, (struct fate){.kind = FATE_REMOVED, .counter = header_of(n, m->old)->version});
        n->counters[NODE_REMOVED]++;
        reply_add(n, e->session, &e->head, 0, 0);
        break;
    case EFFECT_EVICT:
        tell_gone(n, e, m);
        node_whatif_gone(n, e, m);
        for (uint32_t i = 0; i < e->n; i++) {
            fate_add(n, m[i].hash,
                     (struct fate){.kind = e->need ? FATE_EVICTED : FATE_OUTDATED,
                                   .need = (uint8_t)e->need,
                                   .counter = header_of(n, m[i].old)->version});
            n->evicting -= slot_bytes(n, m[i].old);
            share_evicting(n, m[i].old, false);
            n->counters[NODE_EVICTED]++;
            n->counters[NODE_EVICTED_BYTES] += slot_bytes(n, m[i].old);
            unpublish(n, &m[i]);
        }
        n->evicting_slots -= e->n;
        break;
    case EFFECT_HOLD:
    case EFFECT_DROP:
    case EFFECT_EXPIRE:
        complete_hold(n, e, m);
        break;
    case EFFECT_TAKE:
        take_complete(n, e, m);
        break;
    case EFFECT_PURGE_MARK:
    case EFFECT_PURGE:
    case EFFECT_PURGE_END:
        purge_complete(n, e, m);
        break;
    case EFFECT_NAMESPACE: {
        names_add(n, e->name, e->ns, e->flags);
        pending_drop(&n->pending, e->pend);
        struct msg_reply *r = reply_add(n, e->session, &e->head, (int32_t)e->flags, 0);
        if (r) {
            r->counter = e->ns;
        }
        break;
    }
    case EFFECT_NOTHING:
        break;
    }
}

/* A delete must always work: what the commit refused goes again, in a batch that holds nothing that needs room. */
static void send_again(struct node *n, const struct effect *e, const struct member *m)
{
    struct effect *again = effect_add(n, e->kind, e->session, &e->head, e->taken);
    if (!again) {
        free(e->tomb);
        for (uint32_t i = 0; i < e->n; i++) {
            free(m[i].tomb);
        }
        return;
    }
    again->connection = e->connection;
    again->counter = e->counter;
    again->tomb = e->tomb;
    again->pend = e->pend;
    again->need = e->need;
    if (e->tomb) {
        tomb_write(n, e->tomb);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        uint8_t buf[KEY_MAX];
        if (!member_add(n, again, &m[i])) {
            free(m[i].tomb);
            continue;
        }
        if (m[i].tomb) {
            tomb_write(n, m[i].tomb);
        }
        batch_delete(n->open->batch, slot_key(n, m[i].old, buf));
    }
    const struct session *s = session_find(n, e->session);
    if (s) { /* the row that says so went with the batch that failed */
        batch_session(n->open->batch, s->id, &s->row);
    }
}

static void fail_seal(struct node *n, const struct effect *e, const struct member *m, int32_t status)
{
    struct session *s = session_find(n, e->session);
    for (uint32_t i = 0; i < e->n; i++) {
        n->mark[m[i].slot] &= (uint8_t)~MARK_BUSY;
        if (m[i].old != SLOT_NONE) {
            slot_return(n, m[i].old);
        }
        /* Of a PUT the client keeps nothing; drafts stay its own, to be sealed again. */
        list_push(n, s ? &s->drafts : &n->orphan.drafts, m[i].slot);
        struct session *owner = s ? s : &n->orphan;
        owner->draft_bytes += slot_bytes(n, m[i].slot);
        n->draft_bytes += slot_bytes(n, m[i].slot);
        *(e->head.op == MSG_PUT ? &n->grants : &n->drafts) += 1;
        fate_add(n, m[i].hash, (struct fate){.kind = FATE_PUT_FAILED, .error = (int16_t)status});
        if (e->head.op != MSG_PUT && purge_covers(n, m[i].slot, e->counter)) {
            purge_draft(n, m[i].slot);
        }
        if (e->head.op == MSG_PUT || !s || s->dead) {
            draft_abort(n, owner, m[i].slot);
            wait_lost(n, m[i].hash, s && !s->dead ? WAIT_ABORTED : WAIT_DIED);
        }
    }
    refuse(n, e->session, &e->head, status);
}

static void fail(struct node *n, const struct effect *e, const struct member *m, int32_t status)
{
    switch (e->kind) {
    case EFFECT_SEAL:
        fail_seal(n, e, m, status);
        break;
    case EFFECT_REMOVE:
    case EFFECT_EVICT:
        send_again(n, e, m);
        break;
    case EFFECT_PURGE:
        send_again(n, e, m);
        purge_failed(n, e);
        break;
    case EFFECT_PURGE_MARK:
    case EFFECT_PURGE_END:
        purge_failed(n, e);
        break;
    case EFFECT_HOLD:
    case EFFECT_DROP:
    case EFFECT_EXPIRE:
        slot_return(n, m->old);
        if (e->session != CONTROL_SESSION) {
            refuse(n, e->session, &e->head, status);
        }
        break;
    case EFFECT_TAKE:
        take_failed(n, e, m);
        break;
    case EFFECT_NAMESPACE:
        pending_drop(&n->pending, e->pend);
        refuse(n, e->session, &e->head, status);
        break;
    case EFFECT_NOTHING:
        break;
    }
}

static void work_phases(struct node *n, const struct work *w, const struct effect *e)
{
    if (e->session != CONTROL_SESSION) {
        node_phase(n, PHASE_BATCH, w->started - e->taken);
        node_phase(n, PHASE_COMMIT, n->now.mono - w->started);
        answered(n, &e->head);
        n->last_answers++;
    }
}

/* A client that attached again since has sent the request again: that one is answered. */
static bool heard(const struct node *n, const struct effect *e)
{
    const struct session *s = session_find(n, e->session);
    return s && s->attached && s->connection == e->connection;
}

/* Rows of sessions and namespaces that may have been in a batch which was refused for its puts: they fit the reserve.
 */
static void write_rows_again(struct node *n)
{
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        if (n->session[i]->id != NODE_PULLER) { /* has no row */
            batch_session(n->open->batch, n->session[i]->id, &n->session[i]->row);
        }
    }
    for (uint32_t i = 0; i < n->n_names; i++) {
        batch_namespace(n->open->batch, n->names[i].name, n->names[i].id, n->names[i].flags);
    }
}

static void write_notes(struct node *n)
{
    for (unsigned i = 0; i < META_NUMBERS; i++) {
        if (n->has_note[i]) {
            batch_meta(n->open->batch, (enum meta_number)i, n->noted[i]);
        }
    }
}

void note_event(struct node *n, enum meta_number which, uint64_t value)
{
    if ((which == META_IN_TOUCH || which == META_SETTLED) && !n->stopping) {
        n->noted[which] = value;
        n->has_note[which] = true;
        batch_meta(n->open->batch, which, value);
    }
}

void work_committed(struct node *n, struct batch *batch, int32_t status)
{
    struct work *w = n->flying;
    if (!w || batch != w->batch) {
        return;
    }
    n->flying = NULL;
    n->last_answers = 0;
    int32_t shown = status == -ENOSPC ? BERTH_EINDEXFULL : status;
    if (status) {
        n->counters[NODE_COMMIT_FAILED]++;
        n->counter_kept = 0; /* its META may have been in there */
        tombs_failed(n, w);
        write_notes(n);
        if (status == -ENOSPC && w->puts) {
            write_rows_again(n);
        }
    }
    for (uint32_t i = 0; i < w->n_effects; i++) {
        const struct effect *e = &w->effects[i];
        const struct member *m = e->n ? &w->members[e->first] : NULL;
        for (uint32_t k = 0; k < e->n; k++) {
            if (!m[k].kept) {
                pending_drop(&n->pending, m[k].hash.home);
            }
        }
        n->silent = !heard(n, e);
        if (status) {
            fail(n, e, m, shown);
        } else {
            complete(n, e, m);
        }
        n->silent = false;
        work_phases(n, w, e);
    }
    batch_clear(w->batch);
    w->n_effects = w->n_members = w->puts = 0;
    int64_t horizon = w->horizon;
    w->horizon = 0;
    horizon_committed(n, horizon, status);
    purges_turn(n); /* before them: a key that is always written would stop it for ever */
    session_unstall(n);
}
