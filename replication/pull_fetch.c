/* pull_fetch.c: one transfer of one key to one destination, from the first step to the last. */
#include "replication/pull_internal.h"

#include <errno.h>
#include <string.h>

#define LEASES_PAUSE 16 /* of the shortest pauses is the longest one until an owner is asked for a lease again .. */
#define LEASES_SOON 32u /* .. of the first so many; then it is that of WAIT, so that large batches cost little */

struct fetch *fetch_find(struct puller *p, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&p->fetches_by_id, id); l; l = pull_table_next(l)) {
        struct fetch *f = CONTAINER(l, struct fetch, by_id);
        if (f->id == id) {
            return f;
        }
    }
    return NULL;
}

void fetch_free(struct puller *p, struct fetch *f)
{
    struct out *outs[] = {&f->reserve, &f->hash, &f->seal, &f->abort, &f->corrupt, &f->watch};
    for (unsigned i = 0; i < sizeof outs / sizeof outs[0]; i++) {
        list_remove(&outs[i]->node);
    }
    list_remove(&f->all);
    key_drop(f->key);
    pad_drop(p, f);
    if (f->asked != &f->whole) {
        free(f->asked);
    }
    free(f->parts);
    free(f->expect);
    free(f);
}

static struct item *first_item(const struct fetch *f)
{
    return CONTAINER(f->items.next, struct item, node);
}

static void take_flags(struct fetch *f)
{
    f->fresh = false;
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        struct item *i = CONTAINER(n, struct item, node);
        f->fresh = f->fresh || (i->request->flags & PULL_FRESH);
    }
    fetch_hold(f);
}

/* ---- a lease ---- */

static bool lease_serves(struct puller *p, const struct fetch *f, const struct reader_lease *l)
{
    if (!(f->key->flags & PULL_REPLACEABLE)) {
        return true;
    }
    return version_compare(l->terms.version, floor_get(p, f->key)) >= 0 && p->check - l->granted < p->config.fresh_ns;
}

void fetch_begin(struct puller *p, struct fetch *f)
{
    take_flags(f);
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        CONTAINER(n, struct item, node)->late = false;
    }
    fetch_phase(p, f, PULL_PAUSE);
    f->state = FETCH_SEEK;
    f->renewed = f->blocked = f->has_piece_sum = f->served = false;
    int64_t need = read_first_estimate(p, p->config.read_bytes);
    bool ask = f->fresh || f->removed; /* leases that are here may be as old as the one that was refused */
    struct reader_lease *l = ask ? NULL : leases_find(p->leases, pull_key_ref(f->key), p->check, need, f->avoid);
    if (l && lease_serves(p, f, l)) {
        p->counter[PULL_LEASE_HITS]++;
        fetch_located(p, f, l);
    } else {
        seek_join(p, f);
    }
}

void fetch_again(struct puller *p, struct fetch *f)
{
    timers_clear(&p->timers, &f->timer);
    fetch_begin(p, f);
}

/* Members of another lineage want other bytes. */
static void cut_lineage(struct puller *p, struct fetch *f)
{
    for (struct list *n = f->items.next, *next; n != &f->items; n = next) {
        next = n->next;
        struct item *i = CONTAINER(n, struct item, node);
        if (i->round <= f->round && i->request->lineage && i->request->lineage != f->record.lineage) {
            fetch_detach(p, f, i, BERTH_ELINEAGE);
        }
    }
}

static void record_source(struct puller *p, struct fetch *f)
{
    const struct lease_terms *t = &f->lease->terms;
    f->record.member = f->lease->member;
    f->record.transport = p->members[f->lease->member].transport;
    f->record.lease = t->lease;
    f->record.size = t->size;
    f->record.version = t->version;
    f->record.checksum = t->checksum;
    f->record.lineage = t->lineage;
    f->record.segment_log2 = t->segment_log2;
}

static int place_ranges(struct puller *p, struct fetch *f)
{
    uint64_t size = f->record.size;
    bool explicit = false;
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        const struct request *r = CONTAINER(n, struct item, node)->request;
        explicit = explicit || (r->flags & PULL_VERIFY) || r->sample == 1;
    }
    pad_drop(p, f);
    if (f->asked == &f->whole) {
        f->whole = (struct pull_range){.length = size};
        if (f->destination == PULL_BUFFER && size > f->room) {
            return -ENOSPC;
        }
    }
    for (uint32_t i = 0; i < f->n_asked; i++) {
        const struct pull_range *r = &f->asked[i];
        if (r->offset > size || r->length > size - r->offset) {
            return -ERANGE;
        }
    }
    f->verifiable = prove_ranges(f) || (prove_wanted(p, f) && pad_ranges(p, f));
    f->total = 0;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        f->total += f->ranges[i].length;
    }
    bool proven = p->members[f->lease->member].proven;
    return !f->verifiable && f->total > 0 && (explicit || !proven) && !(p->config.unsafe & UNSAFE_NO_VERIFY)
               ? -EOPNOTSUPP
               : 0;
}

static void fetch_go(struct puller *p, struct fetch *f)
{
    int e = place_ranges(p, f);
    if (e < 0) {
        fetch_stop(p, f, AFTER_END, e);
        return;
    }
    if (f->destination == PULL_BUFFER) {
        read_begin(p, f);
        return;
    }
    fetch_phase(p, f, PULL_REGISTER);
    f->state = FETCH_RESERVE;
    f->reserving = true;
    f->full_since = f->full_since ? f->full_since : p->mono;
    out_add(p, &f->reserve, CMD_PULL_RESERVE);
}

void fetch_named(struct puller *p, struct fetch *f)
{
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        item_located(p, CONTAINER(n, struct item, node));
    }
}

void fetch_located(struct puller *p, struct fetch *f, struct reader_lease *l)
{
    lease_take(p->leases, l);
    f->lease = l;
    record_source(p, f);
    if (f->destination == PULL_BUFFER) {
        uint64_t want = list_empty(&f->items) ? 0 : first_item(f)->request->lineage;
        if (want && want != f->record.lineage) {
            fetch_stop(p, f, AFTER_END, BERTH_ELINEAGE);
            return;
        }
    } else {
        cut_lineage(p, f);
        if (!fetch_wanted(f)) {
            fetch_stop(p, f, AFTER_END, -ECANCELED);
            return;
        }
    }
    fetch_named(p, f);
    if (f->hold) {
        f->state = FETCH_HELD;
        fetch_phase(p, f, PULL_PAUSE);
    } else {
        fetch_go(p, f);
    }
}

void fetch_release(struct puller *p, struct fetch *f)
{
    fetch_hold(f);
    if (f->hold) {
        return;
    }
    if (f->state == FETCH_HELD) {
        fetch_go(p, f);
    } else if (f->seek) {
        seek_go_on(p, f->seek);
    }
}

/* Items that came too late for this round need not wait for the end of its pauses. */
static bool promote(struct fetch *f)
{
    bool any = false;
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        struct item *i = CONTAINER(n, struct item, node);
        any = any || i->round > f->round;
        i->round = f->round;
    }
    return any;
}

static void pause_for(struct puller *p, struct fetch *f, enum pull_phase phase, int64_t most)
{
    unsigned shift = f->waits < 20 ? f->waits : 20;
    int64_t ns = p->config.wait_min_ns << shift;
    f->waits++;
    p->counter[PULL_WAITS]++;
    f->state = FETCH_PAUSE;
    fetch_phase(p, f, phase);
    timers_set(&p->timers, &f->timer, p->mono + (ns < most ? ns : most));
}

/* WAIT: a key that is nowhere, or is being written, may come, and so may a member that could not be asked. Others that
 * share the transfer are told now. */
static bool pause_fetch(struct puller *p, struct fetch *f, int told)
{
    if (f->lost && f->last_look) {
        return false;
    }
    for (struct list *n = f->items.next, *next; n != &f->items; n = next) {
        next = n->next;
        struct item *i = CONTAINER(n, struct item, node);
        bool waits = i->request->flags & PULL_WAIT;
        if (i->round <= f->round && !waits && f->destination == PULL_REPLICA) {
            fetch_detach(p, f, i, told);
        } else if (!waits && f->destination == PULL_BUFFER) {
            return false;
        }
    }
    if (!fetch_wanted(f)) {
        return false;
    }
    memset(f->avoid, 0, sizeof f->avoid);
    f->worst = 0;
    f->full_since = 0;
    bool later = promote(f);
    if (later || f->lost) { /* what was under way may have missed what came before the loss */
        f->last_look = f->lost;
        fetch_begin(p, f);
        return true;
    }
    if (p->config.watch && !f->watching && !f->fresh) { /* FRESH passes over what is here, so that is no news to it */
        f->watching = true;
        out_add(p, &f->watch, CMD_PULL_WATCH);
    }
    pause_for(p, f, PULL_PAUSE, p->config.wait_max_ns);
    return true;
}

/* Its owner has given this node as many leases as one peer gets: what other pulls are through with goes back with the
 * next question. */
static void pause_for_leases(struct puller *p, struct fetch *f)
{
    int64_t soon = p->config.wait_min_ns * LEASES_PAUSE, most = p->config.wait_max_ns;
    promote(f);
    pause_for(p, f, PULL_ADMIT, soon < most && f->waits < LEASES_SOON ? soon : most);
}

/* Who joined after the homes were asked is not told that the key was nowhere then: it may have come to be since. */
static void put_off_late(struct fetch *f)
{
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        struct item *i = CONTAINER(n, struct item, node);
        if (i->late && !i->left && i->round <= f->round) {
            i->round = f->round + 1;
        }
    }
}

static bool is_here(struct puller *p, const struct fetch *f)
{
    struct pull_key k;
    key_show(f->key, &k);
    return p->config.here && !f->fresh && p->config.here(p->config.env, &k);
}

/* What is not known now may be known later, but for a client that reaches nobody, or the wrong ones. */
static bool may_come(const struct puller *p, const struct fetch *f, int status)
{
    bool hopeless = status == BERTH_EUNSURE && p->config.hopeless && p->config.hopeless(p->config.env);
    return !hopeless && f->worst != BERTH_ECORRUPT;
}

void fetch_unlocated(struct puller *p, struct fetch *f, int status)
{
    bool nowhere = status == -ENOENT || status == -EBUSY, open = nowhere || status == BERTH_EUNSURE;
    if (open && is_here(p, f)) {
        fetch_stop(p, f, AFTER_END, BERTH_KEPT);
        return;
    }
    if (status == BERTH_EQUOTA) {
        pause_for_leases(p, f);
        return;
    }
    if (status == -ENOENT) {
        put_off_late(f);
    }
    int why = f->worst ? f->worst : nowhere ? -ENOENT : status;
    if (open && may_come(p, f, status) && pause_fetch(p, f, why)) {
        return;
    }
    fetch_stop(p, f, AFTER_END, open && f->lost && !f->worst ? f->lost : why);
}

/* What it was told may be newer than the look that is under way, if one is: there is another one after it. */
void fetch_watched(struct puller *p, const struct pull_event *ev)
{
    struct fetch *f = fetch_find(p, ev->id);
    if (!f) {
        return;
    }
    bool lost = ev->status == BERTH_EABORTED || ev->status == BERTH_EDIED;
    f->watching = f->watching && ev->n > 0;
    if (ev->status && !lost) {
        return;
    }
    f->lost = lost ? ev->status : f->lost;
    f->waits = 0; /* homes hear of it in a moment */
    if (f->state == FETCH_PAUSE) {
        f->last_look = f->lost;
        fetch_again(p, f);
    }
}

/* ---- ends ---- */

static void bury(struct puller *p, struct fetch *f)
{
    f->state = FETCH_ENDED;
    timers_clear(&p->timers, &f->timer);
    p->n_timers--;
    pull_table_remove(&p->fetches_by_id, &f->by_id);
    if (f->destination == PULL_REPLICA) {
        pull_table_remove(&p->fetches_by_key, &f->by_key);
    }
    list_remove(&f->all);
    list_push(&p->dead_fetches, &f->all);
}

static void give_results(struct puller *p, struct fetch *f, int status)
{
    bool shared = false;
    for (struct list *n = f->items.next, *next; n != &f->items; n = next) {
        next = n->next;
        struct item *i = CONTAINER(n, struct item, node);
        if (i->round > f->round) {
            i->joined = p->mono; /* its own begins now */
            continue;
        }
        f->record.shared = shared;
        if (shared) {
            f->record.moved = f->record.copied = 0;
        }
        shared = true;
        list_remove(&i->node);
        item_done(p, i, f, i->left ? i->left : status);
    }
}

static void fetch_finish(struct puller *p, struct fetch *f, int status)
{
    fetch_phases_end(p, f);
    if (status == 0) {
        floor_set(p, f->key, f->record.version);
    } else if (status == -ENOENT) { /* this node has removed it, after that version: a newer one may be there since */
        put_off_late(f);
    }
    give_results(p, f, status);
    if (list_empty(&f->items)) {
        bury(p, f);
        return;
    }
    f->round++;
    f->stale = f->waits = f->rereads = 0;
    f->worst = f->lost = 0;
    f->source_lost = f->removed = false;
    f->record = (struct pull_result){.member = PULL_MEMBER_NONE};
    memset(f->avoid, 0, sizeof f->avoid);
    fetch_begin(p, f);
}

static void drop_lease(struct puller *p, struct fetch *f)
{
    if (f->lease) {
        lease_leave(p->leases, f->lease, f->served, p->mono);
        f->lease = NULL;
    }
}

void fetch_quiet(struct puller *p, struct fetch *f)
{
    if (f->n_reads > 0 || f->hashing || f->reserving) {
        return;
    }
    if (f->reserved) {
        f->reserved = false;
        f->abort_token = f->target.name;
        out_add(p, &f->abort, CMD_PULL_ABORT);
    }
    drop_lease(p, f);
    if (f->after == AFTER_RETRY && fetch_wanted(f)) {
        fetch_begin(p, f);
    } else {
        fetch_finish(p, f, f->after == AFTER_RETRY ? -ECANCELED : f->end);
    }
}

void fetch_stop(struct puller *p, struct fetch *f, enum fetch_after after, int status)
{
    if (f->state == FETCH_ENDED) {
        return;
    }
    bool ending = f->state == FETCH_QUIET && f->after == AFTER_END;
    if (!ending) {
        f->after = after;
        f->end = status;
    }
    if (f->state == FETCH_QUIET) {
        return; /* it goes on when it is quiet */
    }
    seek_leave(p, f);
    rpc_forget_fetch(f);
    flow_remove(p, f);
    timers_clear(&p->timers, &f->timer);
    read_cancel_all(p, f);
    f->state = FETCH_QUIET;
    fetch_phase(p, f, PULL_COMPLETE);
    fetch_quiet(p, f);
}

/* The bytes are of no use, but the owner may have better ones. */
void fetch_stale(struct puller *p, struct fetch *f)
{
    p->counter[PULL_STALE]++;
    fetch_fault_at(p, f, FAULT_STALE);
    f->rereads = 0;
    f->stale++;
    f->record.stale = f->stale < 255 ? (uint8_t)f->stale : 255;
    if (f->lease) {
        lease_end(p->leases, f->lease);
    }
    bool more = f->stale <= PULL_STALE_MAX;
    fetch_stop(p, f, more ? AFTER_RETRY : AFTER_END, more ? 0 : BERTH_ENOTNOW);
}

void fetch_fault(struct puller *p, struct fetch *f, int worst)
{
    if (f->worst != BERTH_ECORRUPT) {
        f->worst = worst;
    }
    p->counter[PULL_NEXT_SOURCE]++;
    fetch_fault_at(p, f, worst == BERTH_ECORRUPT ? FAULT_CORRUPT : FAULT_LOST);
    f->source_lost = f->source_lost || worst != BERTH_ECORRUPT;
    f->record.unasked = worst != BERTH_ECORRUPT ? f->lease->member + 1u : f->record.unasked;
    f->rereads = 0;
    bit_set(f->avoid, f->lease->member);
    fetch_stop(p, f, AFTER_RETRY, 0);
}

void fetch_timer(struct puller *p, struct fetch *f)
{
    if (f->state == FETCH_PAUSE) {
        fetch_again(p, f);
    } else if (f->state == FETCH_READ) {
        read_timer(p, f);
    }
}

/* ---- the local replica ---- */

/* This node has removed the key after that version: the lease was from before. Once; what is found then is all there
 * is. */
static bool removed_since(struct puller *p, struct fetch *f, int status)
{
    if (status == -ENOENT && f->removed && f->lease) {
        lease_end(p->leases, f->lease); /* not for who is put off either */
    }
    if (status != -ENOENT || f->removed) {
        return false;
    }
    f->removed = true;
    fetch_stale(p, f);
    return true;
}

void fetch_reserved(struct puller *p, const struct pull_event *ev)
{
    struct fetch *f = fetch_find(p, ev->id);
    if (!f || !f->reserving) {
        return;
    }
    f->reserving = false;
    f->reserved = ev->status == 0;
    f->full_since = ev->status == -EAGAIN ? f->full_since : 0;
    f->target = (struct pull_target){.kind = PULL_REPLICA, .name = ev->token};
    if (f->state == FETCH_QUIET) {
        fetch_quiet(p, f);
    } else if (f->reserved) {
        read_begin(p, f);
    } else if (!fetch_waits_for_room(p, f, ev->status) && !removed_since(p, f, ev->status)) {
        fetch_stop(p, f, AFTER_END, ev->status > 0 ? BERTH_KEPT : ev->status);
    }
}

void fetch_accept(struct puller *p, struct fetch *f)
{
    if (version_compare(f->record.version, floor_get(p, f->key)) < 0) {
        fetch_stale(p, f); /* a newer one was returned meanwhile */
        return;
    }
    f->served = !fetch_only_looks(f);
    p->counter[PULL_TRANSFERS] += f->served;
    p->members[f->record.member].sums.transfers += f->served;
    if (f->destination == PULL_BUFFER) {
        drop_lease(p, f);
        fetch_finish(p, f, 0);
        return;
    }
    fetch_phase(p, f, PULL_PUBLISH);
    f->state = FETCH_SEAL;
    out_add(p, &f->seal, CMD_PULL_SEAL);
}

void fetch_sealed(struct puller *p, const struct pull_event *ev)
{
    struct fetch *f = fetch_find(p, ev->id);
    if (!f || f->state != FETCH_SEAL || !f->reserved) {
        return;
    }
    f->reserved = false;
    if (ev->status == 0 && version_compare(f->record.version, floor_get(p, f->key)) < 0) {
        fetch_stale(p, f); /* a newer one was returned during the seal */
        return;
    }
    if (removed_since(p, f, ev->status)) {
        return;
    }
    drop_lease(p, f);
    fetch_finish(p, f, ev->status > 0 ? BERTH_KEPT : ev->status);
}
