/* node_seal.c: PUT and SEAL: from tokens to an uncommitted effect (PROTOCOLS rules 9, 10, 12, 13).
 *
 * Nothing is changed before every member was checked: a refused seal leaves drafts and index as they were.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <string.h>

struct sealing { /* one member on its way through the checks */
    struct msg_token token;
    uint64_t checksum;
};

uint32_t key_slot(const struct node *n, struct key_hash hash, struct key_ref key, bool *collides)
{
    bool ask = false;
    uint32_t slot = lookup_find(n->c.lookup, hash, key, &ask, collides);
    if (slot == SLOT_NONE && ask) {
        struct record r;
        if (n->c.index->get(n->c.ix, key, &r) == 0 && r.slot < n->max_headers &&
            slot_load(header_of(n, r.slot)) == slot_word(r.generation, SLOT_READY)) {
            slot = r.slot;
        }
    }
    return slot;
}

void record_of_slot(const struct node *n, uint32_t slot, uint64_t counter, uint64_t checksum, struct record *out)
{
    const struct slot_header *h = header_of(n, slot);
    memset(out, 0, offsetof(struct record, holds));
    out->counter = counter;
    out->created_us = n->now.wall_us;
    out->checksum = checksum;
    out->lineage = h->lineage;
    out->parent = atomic_load_explicit(&h->group, memory_order_relaxed);
    out->generation = word_gen(slot_load(h));
    out->slot = slot;
    out->size = h->size;
    out->region = h->region;
    out->ttl_s = (uint32_t)(h->checksum >> 8);
    out->priority = (uint8_t)h->checksum;
    out->segment = (uint8_t)slot_segment(h);
    out->ready = true;
}

/* A seal that was sent again after a re-attach: its first sending may have been applied. */
static int32_t sealed_before(const struct node *n, const struct msg_token *t)
{
    if (t->slot >= n->max_headers || !slabs_is_slot(n->slabs, t->slot)) {
        return BERTH_EUNKNOWN; /* it came back, and its slab was given up since */
    }
    uint64_t word = slot_load(header_of(n, t->slot));
    if (word == slot_word(t->gen, SLOT_READY)) {
        return 0;
    }
    /* Sealed and gone since, or its key existed and the slot came back: the answer is lost. */
    return word_gen(word) >= t->gen ? BERTH_EUNKNOWN : BERTH_ESTALE;
}

static int32_t check_member(struct node *n, const struct session *s, const struct msg_head *m,
                            const struct msg_token *t)
{
    if (token_valid(n, s, t) && (n->mark[t->slot] & MARK_SEEN)) {
        return -EINVAL; /* twice in one group */
    }
    if (token_valid(n, s, t) && !busy(n, t->slot)) {
        return 0;
    }
    if (token_valid(n, s, t)) {
        return -EAGAIN; /* its first sending is at the committer */
    }
    return m->flags & MSG_AGAIN ? sealed_before(n, t) : BERTH_ESTALE;
}

/* The index proves the list in tails at a restart, so nothing is sealed that it does not prove now. */
static int32_t check_sums(const struct node *n, const struct sealing *in)
{
    bool segments = slot_sums(n, in->token.slot) != NULL;
    return segments && slot_sums_checksum(n, in->token.slot) != in->checksum ? BERTH_ECORRUPT : 0;
}

static bool same_key(const struct node *n, uint32_t slot, struct key_ref key)
{
    return lookup_key_equal(n->c.lookup, header_of(n, slot), key);
}

/* Decides one member whose header has its key. 0, or -EAGAIN if the key is pending, or a refusal. */
static int32_t decide(struct node *n, const struct effect *e, const struct sealing *in, struct member *out)
{
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, in->token.slot, buf);
    *out = (struct member){.slot = in->token.slot, .old = SLOT_NONE, .checksum = in->checksum};
    out->hash = lookup_hash(n->c.super->hash_seed, key);
    out->parent = atomic_load_explicit(&header_of(n, in->token.slot)->group, memory_order_relaxed);
    if (!out->parent && e->n) { /* none is named: the one before it in its group is taken for it */
        out->parent = slot_key_tag(n, n->open->members[e->first + e->n - 1].slot);
    }
    out->ttl_s = (uint32_t)(header_of(n, in->token.slot)->checksum >> 8);
    out->priority = (uint8_t)header_of(n, in->token.slot)->checksum;
    if (pending_has(&n->pending, out->hash.home)) {
        /* Of this very group: the same key twice, or two keys of one hash. */
        for (uint32_t i = e->first; i < e->first + e->n; i++) {
            const struct member *o = &n->open->members[i];
            if (!o->kept && o->hash.home == out->hash.home) {
                return same_key(n, o->slot, key) ? -EINVAL : BERTH_EHASH;
            }
        }
        return -EAGAIN;
    }
    bool collides = false;
    uint32_t old = key_slot(n, out->hash, key, &collides);
    if (old == SLOT_NONE && collides) {
        return BERTH_EHASH;
    }
    if (old != SLOT_NONE && names_replaceable(n, key.ns)) {
        out->old = old;
    } else {
        out->kept = old != SLOT_NONE;
    }
    return 0;
}

static int32_t write_record(struct node *n, const struct effect *e, const struct member *m)
{
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, m->slot, buf);
    struct record r, old;
    record_of_slot(n, m->slot, e->counter, m->checksum, &r);
    r.parent = m->parent;
    r.grouped = e->n - e->kept > 1;
    if (m->old != SLOT_NONE && slot_held(n, m->old) &&
        n->c.index->get(n->c.ix, key, &old) == 0) { /* holds are of the key, and go with it (rule 17) */
        r.n_holds = old.n_holds;
        memcpy(r.holds, old.holds, sizeof r.holds);
    }
    return batch_put(n->open->batch, key, &r);
}

/* Every member is decided: the point of no return. Drafts leave their session, replaced slots the policy. Members that
 * are kept wait for the commit like the others: if it fails, all of them are drafts again. A grant stays one until it
 * is published: should the node die before the commit, its PUT comes again and must find it. */
static void take_effect(struct node *n, struct session *s, struct effect *e, uint64_t counter)
{
    e->counter = counter ? counter : counter_next(n);
    for (uint32_t i = e->first; i < e->first + e->n; i++) {
        struct member *m = &n->open->members[i];
        draft_remove(n, s, m->slot);
        n->mark[m->slot] |= MARK_BUSY;
        if (m->kept) {
            continue;
        }
        if (m->old != SLOT_NONE) {
            mark_busy(n, m->old);
        }
        write_record(n, e, m);
    }
}

static void answer_kept(struct node *n, struct session *s, struct effect *e)
{
    uint32_t count = e->n, first = e->first;
    struct effect done = *e;
    uint32_t pages = slabs_pages_for(n->slabs, header_of(n, n->open->members[first].slot)->size);
    for (uint32_t i = 0; i < count; i++) {
        draft_abort(n, s, n->open->members[first + i].slot);
        n->counters[NODE_KEPT]++;
    }
    work_undo(n, e);
    if (done.head.op == MSG_PUT) {
        struct msg_token grants[4];
        uint32_t got = grant_some(n, s, pages, done.want, grants);
        struct msg_reply *r = reply_add(n, s->id, &done.head, BERTH_KEPT, got * (uint32_t)sizeof *grants);
        if (r) {
            r->count = got;
            r->figure[0] = (uint64_t)pages * PAGE_BYTES;
            memcpy(r + 1, grants, got * sizeof *grants);
        }
    } else {
        struct msg_reply *r = reply_add(n, s->id, &done.head, (int32_t)count, (count + 7) / 8);
        if (r) {
            r->count = count;
            memset(r + 1, 0xff, (count + 7) / 8);
        }
    }
    answered(n, &done.head);
}

/* A replica that is not newer than what is here: a node never goes back (rule 28). */
static void keep_newer(const struct node *n, const struct node_seal_origin *origin, struct member *m)
{
    if (origin && m->old != SLOT_NONE &&
        !version_newer(origin->counter, origin->region, header_of(n, m->old)->version, slot_region(n, m->old))) {
        m->old = SLOT_NONE;
        m->kept = true;
    }
}

/* 0: an effect or an answer; -EAGAIN: stall; else a refusal. origin: NULL: a new version of this region. */
static int32_t seal_members(struct node *n, struct session *s, const struct msg_head *m, int64_t taken,
                            const struct sealing *in, uint32_t count, uint32_t want,
                            const struct node_seal_origin *origin)
{
    struct effect *e = effect_add(n, EFFECT_SEAL, s->id, m, taken);
    if (!e) {
        return -ENOMEM;
    }
    e->want = want;
    int32_t status = 0;
    for (uint32_t i = 0; i < count && status == 0; i++) {
        struct member member;
        status = check_member(n, s, m, &in[i].token);
        status = status ? status : check_sums(n, &in[i]);
        status = status ? status : decide(n, e, &in[i], &member);
        if (status == 0) {
            keep_newer(n, origin, &member);
        }
        if (status == 0 && !member_add(n, e, &member)) {
            status = -ENOMEM;
        }
        if (status == 0) {
            n->mark[member.slot] |= MARK_SEEN;
            e->kept += member.kept;
        }
    }
    for (uint32_t i = e->first; i < e->first + e->n; i++) {
        n->mark[n->open->members[i].slot] &= (uint8_t)~MARK_SEEN;
    }
    if (status) {
        work_undo(n, e);
    } else if (e->kept == e->n) {
        answer_kept(n, s, e);
    } else {
        take_effect(n, s, e, origin ? origin->counter : 0);
    }
    return status;
}

static bool is_grant(const struct node *n, uint32_t slot)
{
    return atomic_load_explicit(&header_of(n, slot)->flags, memory_order_relaxed) & SLOT_GRANT;
}

/* What the first sending of this PUT did, from what it left. */
static void answer_again(struct node *n, struct session *s, const struct msg_head *m, uint32_t slot)
{
    struct msg_reply *r = reply_add(n, s->id, m, 0, 0);
    if (r) {
        r->counter = header_of(n, slot)->version;
        r->region = slot_region(n, slot);
    }
}

void request_put(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_put *p = (const struct msg_put *)m;
    if (work_full(n)) {
        session_stall(n, s, m, taken);
        return;
    }
    int32_t status = check_member(n, s, m, &p->token);
    if (status == -EAGAIN) {
        session_stall(n, s, m, taken);
        return;
    }
    if (status == 0 && !token_valid(n, s, &p->token)) {
        answer_again(n, s, m, p->token.slot);
        return;
    }
    if (status == 0 && (!is_grant(n, p->token.slot) || p->object.size > slot_bytes(n, p->token.slot) ||
                        !names_known(n, p->object.ns))) {
        status = -EINVAL;
    }
    if (status) {
        refuse(n, s->id, m, status);
        return;
    }
    slot_drop_key(n, p->token.slot); /* a stalled PUT comes twice: its key is there already */
    status = slot_set_object(n, p->token.slot, &p->object, p + 1);
    uint64_t *sums = status ? NULL : slot_sums(n, p->token.slot);
    if (sums) {
        memcpy(sums, (const uint8_t *)(p + 1) + p->object.key_size, msg_put_sums(p) * sizeof *sums);
    }
    struct sealing in = {.token = p->token, .checksum = p->object.checksum};
    status = status ? status : seal_members(n, s, m, taken, &in, 1, p->want, NULL);
    if (status == -EAGAIN) {
        session_stall(n, s, m, taken);
    } else if (status) {
        draft_abort(n, s, p->token.slot); /* a refused PUT leaves its client nothing to give back */
        fate_refused(n, m, status);
        refuse(n, s->id, m, status);
    }
}

/* Sent again after its first sending was applied, which a member that is READY under its token says. The others were
 * kept: they came back, or do so now, where the node went between commit and answer. */
static bool answer_seal_again(struct node *n, struct session *s, const struct msg_seal *p)
{
    const struct msg_member *in = (const struct msg_member *)(p + 1);
    uint32_t ready = 0, first = 0;
    for (uint32_t i = 0; (p->head.flags & MSG_AGAIN) && i < p->count; i++) {
        if (sealed_before(n, &in[i].token) == 0) {
            first = ready++ ? first : i;
        }
    }
    if (!ready) {
        return false;
    }
    struct msg_reply *r = reply_add(n, s->id, &p->head, (int32_t)(p->count - ready), (p->count + 7) / 8);
    if (r) {
        r->count = p->count;
        r->counter = header_of(n, in[first].token.slot)->version;
        r->region = slot_region(n, in[first].token.slot);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        bool kept = sealed_before(n, &in[i].token) != 0;
        if (kept && token_valid(n, s, &in[i].token) && !busy(n, in[i].token.slot)) {
            draft_abort(n, s, in[i].token.slot);
        }
        if (r) {
            ((uint8_t *)(r + 1))[i / 8] |= (uint8_t)(kept << (i % 8));
        }
    }
    return true;
}

int32_t check_draft(struct node *n, const struct session *s, const struct msg_head *m, const struct msg_token *t)
{
    if (token_valid(n, s, t)) {
        const struct slot_header *h = header_of(n, t->slot);
        bool purged = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_PURGED;
        return is_grant(n, t->slot) ? BERTH_ESTALE : purged ? BERTH_EPURGED : 0;
    }
    return m->flags & MSG_AGAIN ? sealed_before(n, t) : BERTH_ESTALE;
}

/* Checksums of a draft's segments, ahead of its SEAL: the same again changes nothing. */
void request_sums(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_sums *p = (const struct msg_sums *)m;
    const struct slot_header *h = token_valid(n, s, &p->token) ? header_of(n, p->token.slot) : NULL;
    if (!h || busy(n, p->token.slot) || is_grant(n, p->token.slot)) {
        refuse(n, s->id, m, BERTH_ESTALE);
    } else if (segments_of(h->size, slot_segment(h)) != p->count) {
        refuse(n, s->id, m, -EINVAL);
    } else {
        memcpy(slot_sums(n, p->token.slot), p + 1, p->count * sizeof(uint64_t));
        reply_add(n, s->id, m, 0, 0);
    }
}

void request_seal(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_seal *p = (const struct msg_seal *)m;
    const struct msg_member *members = (const struct msg_member *)(p + 1);
    if (work_full(n)) {
        session_stall(n, s, m, taken);
        return;
    }
    if (answer_seal_again(n, s, p)) {
        return;
    }
    struct sealing *in = arena_take(n, p->count * sizeof *in);
    int32_t status = in ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < p->count && status == 0; i++) {
        in[i] = (struct sealing){.token = members[i].token, .checksum = members[i].checksum};
        status = check_draft(n, s, m, &in[i].token);
        if (token_valid(n, s, &in[i].token) && !busy(n, in[i].token.slot)) {
            region_drop(n, in[i].token.slot); /* an origin that failed before */
        }
    }
    status = status ? status : seal_members(n, s, m, taken, in, p->count, 0, NULL);
    if (status == -EAGAIN) {
        session_stall(n, s, m, taken);
        return;
    }
    for (uint32_t i = 0; i < p->count && status; i++) {
        if (token_valid(n, s, &members[i].token)) {
            fate_draft(n, members[i].token.slot, FATE_PUT_FAILED, status);
        }
    }
    if (status) {
        refuse(n, s->id, m, status);
    }
}

int32_t seal_origin(struct node *n, struct session *s, const struct node_seal_origin *p, int64_t taken)
{
    struct sealing in = {.token = p->token, .checksum = p->checksum};
    return seal_members(n, s, &p->head, taken, &in, 1, 0, p);
}

void request_abort(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_tokens *p = (const struct msg_tokens *)m;
    const struct msg_token *t = (const struct msg_token *)(p + 1);
    uint32_t given = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        if (token_valid(n, s, &t[i]) && !busy(n, t[i].slot)) {
            fate_draft(n, t[i].slot, FATE_ABORTED, 0);
            draft_abort(n, s, t[i].slot);
            given++;
        }
    }
    n->counters[NODE_ABORTS] += given;
    reply_add(n, s->id, m, (int32_t)given, 0);
    n->retry_at = n->now.mono;
}
