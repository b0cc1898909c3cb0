/* node_admin.c: remove, hold, drop, namespaces: effects on keys that are sealed (PROTOCOLS rules 10 and 17). */
#include "store/node_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void session_mark_applied(struct node *n, struct session *s, uint64_t id)
{
    s->row.applied = id;
    batch_session(n->open->batch, s->id, &s->row);
}

/* Its answer is lost. */
bool applied_before(struct node *n, const struct session *s, const struct msg_head *m)
{
    if (!(m->flags & MSG_AGAIN) || m->id > s->row.applied) {
        return false;
    }
    refuse(n, s->id, m, BERTH_EUNKNOWN);
    return true;
}

struct target {
    struct key_ref key;
    struct member member;
    struct record record;
};

/* Finds what a request is about. 0; -EAGAIN: the key is pending; -ENOENT. */
static int32_t find_target(struct node *n, struct key_ref key, bool with_record, struct target *t)
{
    *t = (struct target){.key = key, .member = {.slot = SLOT_NONE}};
    t->member.hash = lookup_hash(n->c.super->hash_seed, key);
    if (pending_has(&n->pending, t->member.hash.home)) {
        return -EAGAIN;
    }
    t->member.old = key_slot(n, t->member.hash, key, NULL);
    if (t->member.old == SLOT_NONE) {
        return -ENOENT;
    }
    return with_record ? n->c.index->get(n->c.ix, key, &t->record) : 0;
}

static struct effect *target_effect(struct node *n, enum effect_kind kind, struct session *s, const struct msg_head *m,
                                    int64_t taken, const struct target *t)
{
    struct effect *e = effect_add(n, kind, s ? s->id : CONTROL_SESSION, m, taken);
    if (e && !member_add(n, e, &t->member)) {
        work_undo(n, e);
        return NULL;
    }
    if (e) {
        mark_busy(n, t->member.old);
    }
    return e;
}

/* The row behind the effect: a full index applies a long batch of deletes piece by piece, in order. */
static void finish(struct node *n, struct session *s, const struct msg_head *m, int64_t taken, int32_t status)
{
    if (status == 0) {
        session_mark_applied(n, s, m->id);
    } else if (status == -EAGAIN) {
        session_stall(n, s, m, taken);
    } else if (status == -ENOENT) {
        reply_add(n, s->id, m, status, 0);
    } else if (status) {
        refuse(n, s->id, m, status);
    }
}

void request_remove(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_key *p = (const struct msg_key *)m;
    struct target t;
    if (applied_before(n, s, m)) {
        return;
    }
    int32_t status = find_target(n, (struct key_ref){.data = p + 1, .size = p->key_size, .ns = p->ns}, false, &t);
    if (status == 0) {
        bool any = p->counter == 0 && p->region == 0;
        bool same = p->counter == header_of(n, t.member.old)->version && p->region == slot_region(n, t.member.old);
        status = slot_held(n, t.member.old) ? BERTH_EHELD : any || same ? 0 : BERTH_EVERSION;
    }
    struct tomb *tomb = status || !n->c.publish ? NULL : tomb_make(t.key, t.member.hash.home, 0);
    bool whole = tomb || !n->c.publish;
    struct effect *e = status || !whole ? NULL : target_effect(n, EFFECT_REMOVE, s, m, taken, &t);
    if (status == 0 && !e) {
        free(tomb);
        status = -ENOMEM;
    }
    if (status == 0 && tomb) {
        e->tomb = tomb;
        e->counter = tomb->counter = counter_next(n);
        tomb_write(n, tomb); /* before the delete: should a full index take them apart, a start ends the removal */
    }
    if (status == 0) {
        batch_delete(n->open->batch, t.key);
    }
    finish(n, s, m, taken, status);
}

static int label_at(const struct record *r, const char *label, uint32_t size)
{
    for (int i = 0; i < r->n_holds; i++) {
        if (r->holds[i].label_size == size && memcmp(r->holds[i].label, label, size) == 0) {
            return i;
        }
    }
    return -1;
}

void request_hold(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_hold *p = (const struct msg_hold *)m;
    const char *label = (const char *)(p + 1) + p->key_size;
    struct target t;
    if (applied_before(n, s, m)) {
        return;
    }
    int32_t status = find_target(n, (struct key_ref){.data = p + 1, .size = p->key_size, .ns = p->ns}, true, &t);
    int at = status ? -1 : label_at(&t.record, label, p->label_size);
    if (status == 0 && at < 0 && t.record.n_holds == HOLDS_MAX) {
        status = BERTH_EHOLDS;
    }
    struct effect *e = status ? NULL : target_effect(n, EFFECT_HOLD, s, m, taken, &t);
    if (status == 0 && !e) {
        status = -ENOMEM;
    }
    if (e) {
        struct hold *h = &t.record.holds[at < 0 ? t.record.n_holds++ : at];
        bool endless = p->ttl_ns <= 0 || p->ttl_ns > INT64_MAX - n->now.boot;
        h->expiry = e->expiry = endless ? 0 : n->now.boot + p->ttl_ns;
        h->label_size = (uint8_t)p->label_size;
        memcpy(h->label, label, p->label_size);
        batch_put(n->open->batch, t.key, &t.record);
        n->counters[NODE_HOLDS]++;
    }
    finish(n, s, m, taken, status);
}

static void cut_hold(struct record *r, int at)
{
    r->n_holds--;
    memmove(&r->holds[at], &r->holds[at + 1], (size_t)(r->n_holds - at) * sizeof *r->holds);
}

void request_drop(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_hold *p = (const struct msg_hold *)m;
    struct target t;
    if (applied_before(n, s, m)) {
        return;
    }
    int32_t status = find_target(n, (struct key_ref){.data = p + 1, .size = p->key_size, .ns = p->ns}, true, &t);
    int at = status ? -1 : label_at(&t.record, (const char *)(p + 1) + p->key_size, p->label_size);
    if (status == 0 && at < 0) {
        struct msg_reply *r = reply_add(n, s->id, m, -ENOENT, 0);
        if (r) {
            r->counter = 1; /* the key is there, the label is not */
        }
        return;
    }
    struct effect *e = status ? NULL : target_effect(n, EFFECT_DROP, s, m, taken, &t);
    if (status == 0 && !e) {
        status = -ENOMEM;
    }
    if (e) {
        cut_hold(&t.record, at);
        e->last_hold = t.record.n_holds == 0;
        batch_put(n->open->batch, t.key, &t.record);
        n->counters[NODE_DROPS]++;
    }
    finish(n, s, m, taken, status);
}

/* ---- expiries: a heap by time; what a later hold or a drop made void is found out when its time comes ---- */

static void sift_down(struct node *n, uint32_t i)
{
    struct expiry *x = n->expiries;
    for (uint32_t child; (child = 2 * i + 1) < n->n_expiries; i = child) {
        child += child + 1 < n->n_expiries && x[child + 1].boot < x[child].boot;
        if (x[i].boot <= x[child].boot) {
            return;
        }
        struct expiry t = x[i];
        x[i] = x[child];
        x[child] = t;
    }
}

int64_t ttl_end(const struct node *n, const struct record *r)
{
    int64_t old_us = (int64_t)(n->now.wall_us - r->created_us); /* the wall clock may have been set back */
    int64_t end = n->now.boot + ((int64_t)r->ttl_s * 1000000 - (old_us > 0 ? old_us : 0)) * 1000;
    return r->ttl_s == 0 ? 0 : end > 0 ? end : 1;
}

bool expiry_add(struct node *n, int64_t boot, uint32_t slot, bool ttl)
{
    if (n->n_expiries == n->expiries_room) {
        uint32_t room = n->expiries_room ? n->expiries_room * 2 : 64;
        struct expiry *p = realloc(n->expiries, room * sizeof *p);
        if (!p) {
            return false;
        }
        n->expiries = p;
        n->expiries_room = room;
    }
    struct expiry *x = n->expiries;
    uint32_t i = n->n_expiries++;
    x[i] = (struct expiry){.boot = boot, .slot = slot, .ttl = ttl, .gen = word_gen(slot_load(header_of(n, slot)))};
    for (uint32_t up; i && x[up = (i - 1) / 2].boot > x[i].boot; i = up) {
        struct expiry t = x[i];
        x[i] = x[up];
        x[up] = t;
    }
    return true;
}

/* false: not now, its key is pending. */
static bool expire(struct node *n, const struct expiry *x)
{
    uint8_t buf[KEY_MAX];
    struct target t;
    if (slot_load(header_of(n, x->slot)) != slot_word(x->gen, SLOT_READY)) {
        return true; /* removed or replaced since: the new one has an expiry of its own */
    }
    if (x->ttl) {
        n->policy->expire(n->evict, x->slot); /* one that is not in the policy now is found again by slot_return */
        return true;
    }
    int32_t status = find_target(n, slot_key(n, x->slot, buf), true, &t);
    if (status) {
        return status != -EAGAIN;
    }
    uint32_t before = t.record.n_holds;
    for (int i = t.record.n_holds - 1; i >= 0; i--) {
        if (t.record.holds[i].expiry && t.record.holds[i].expiry <= n->now.boot) {
            cut_hold(&t.record, i);
        }
    }
    if (t.record.n_holds == before) {
        return true; /* renewed */
    }
    struct effect *e = target_effect(n, EFFECT_EXPIRE, NULL, NULL, n->now.mono, &t);
    if (!e) {
        return false;
    }
    e->last_hold = t.record.n_holds == 0;
    batch_put(n->open->batch, t.key, &t.record);
    n->counters[NODE_HOLDS_EXPIRED] += before - t.record.n_holds;
    return true;
}

void expiry_run(struct node *n)
{
    while (n->n_expiries && n->expiries[0].boot <= n->now.boot && !work_full(n)) {
        struct expiry x = n->expiries[0];
        if (!expire(n, &x)) {
            return; /* the commit that its key waits for calls again */
        }
        n->expiries[0] = n->expiries[--n->n_expiries];
        sift_down(n, 0);
    }
}

/* ---- namespaces ---- */

static const struct names *names_find(const struct node *n, uint32_t ns)
{
    for (uint32_t i = 0; i < n->n_names; i++) {
        if (n->names[i].id == ns) {
            return &n->names[i];
        }
    }
    return NULL;
}

bool names_known(const struct node *n, uint32_t ns)
{
    return ns == 0 || names_find(n, ns);
}

bool names_replaceable(const struct node *n, uint32_t ns)
{
    const struct names *x = n->n_names ? names_find(n, ns) : NULL;
    return x && x->flags & NAMESPACE_REPLACEABLE;
}

bool node_namespace_replaceable(const struct node *n, uint32_t ns)
{
    return names_replaceable(n, ns);
}

uint64_t node_replaceable(const struct node *n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n->n_names; i++) {
        const struct names *x = &n->names[i];
        sum += x->flags & NAMESPACE_REPLACEABLE ? XXH3_64bits(x->name, strlen(x->name)) : 0;
    }
    return sum;
}

static struct names *names_named(const struct node *n, const char *name, size_t size)
{
    for (uint32_t i = 0; i < n->n_names; i++) {
        if (strlen(n->names[i].name) == size && memcmp(n->names[i].name, name, size) == 0) {
            return &n->names[i];
        }
    }
    return NULL;
}

bool names_add(struct node *n, const char *name, uint32_t id, uint32_t flags)
{
    struct names *x = names_named(n, name, strlen(name));
    if (!x) {
        if (n->n_names == n->names_room) {
            uint32_t room = n->names_room ? n->names_room * 2 : 16;
            struct names *p = realloc(n->names, room * sizeof *p);
            if (!p) {
                return false;
            }
            n->names = p;
            n->names_room = room;
        }
        x = &n->names[n->n_names++];
        snprintf(x->name, sizeof x->name, "%s", name);
    }
    x->id = id;
    x->flags = flags;
    return true;
}

uint64_t node_seen(const struct node *n)
{
    return n->counter;
}

uint32_t node_namespace_id(const char *name, size_t size)
{
    uint64_t hash = XXH3_64bits(name, size);
    uint32_t low = (uint32_t)hash, high = (uint32_t)(hash >> 32);
    return size == 0 ? 0 : low ? low : high ? high : 1;
}

const char *node_namespace_numbered(const struct node *n)
{
    for (uint32_t i = 0; i < n->n_names; i++) {
        if (n->names[i].id != node_namespace_id(n->names[i].name, strlen(n->names[i].name))) {
            return n->names[i].name;
        }
    }
    return NULL;
}

uint32_t names_id(const struct node *n, const char *name)
{
    const struct names *x = names_named(n, name, strlen(name));
    return x ? x->id : node_namespace_id(name, strlen(name));
}

int names_configure(struct node *n)
{
    for (uint32_t i = 0; i < n->c.n_namespaces; i++) {
        const struct node_namespace *c = &n->c.namespaces[i];
        const struct names *x = names_named(n, c->name, strlen(c->name));
        uint32_t id = names_id(n, c->name);
        const struct names *other = x ? NULL : names_find(n, id);
        if (other) {
            snprintf(n->start_why, sizeof n->start_why, "the namespaces '%s' and '%s' have the same id: rename one",
                     c->name, other->name);
            return -EEXIST;
        }
        uint32_t flags = c->replaceable ? NAMESPACE_REPLACEABLE : 0;
        if (!names_add(n, c->name, id, flags) || batch_namespace(n->open->batch, c->name, id, flags)) {
            return -ENOMEM;
        }
    }
    return 0;
}

void request_namespace(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct msg_namespace *p = (const struct msg_namespace *)m;
    const struct names *x = names_named(n, (const char *)(p + 1), p->name_size);
    if (x) {
        struct msg_reply *r = reply_add(n, s->id, m, (int32_t)x->flags, 0);
        if (r) {
            r->counter = x->id;
        }
        return;
    }
    if (!s->writable) {                             /* a reader may ask for a name, but not make one */
        reply_add(n, s->id, m, BERTH_EREADONLY, 0); /* how a probe learns that there is none: nothing was refused */
        return;
    }
    uint32_t id = node_namespace_id((const char *)(p + 1), p->name_size);
    if (names_known(n, id)) {
        refuse(n, s->id, m, -EEXIST);
        return;
    }
    uint64_t pend = id | UINT64_C(1) << 63; /* two names of one id wait for each other, too */
    if (pending_has(&n->pending, pend)) {
        session_stall(n, s, m, taken);
        return;
    }
    struct effect *e = effect_add(n, EFFECT_NAMESPACE, s->id, m, taken);
    if (!e || !pending_add(&n->pending, pend)) {
        refuse(n, s->id, m, -ENOMEM);
        return;
    }
    e->pend = pend;
    e->ns = id;
    memcpy(e->name, p + 1, p->name_size);
    batch_namespace(n->open->batch, e->name, e->ns, 0);
}
