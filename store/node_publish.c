/* node_publish.c: after the commit: headers, lookup, retire (PROTOCOLS rules 13 and 14: commit, project, answer). */
#include "store/node_internal.h"

static void finish_header(struct node *n, const struct effect *e, const struct member *m, uint64_t group)
{
    struct slot_header *h = header_of(n, m->slot);
    __atomic_store_n(&h->version, e->counter, __ATOMIC_RELAXED);
    h->checksum = m->checksum;
    atomic_store_explicit(&h->group, group, memory_order_relaxed);
    uint8_t flags = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_TAIL;
    if (m->old != SLOT_NONE && slot_held(n, m->old)) {
        flags |= SLOT_HELD;
    }
    flags |= e->n - e->kept > 1 ? SLOT_GROUPED : 0;
    atomic_store_explicit(&h->flags, flags, memory_order_relaxed);
}

static void make_ready(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    slot_store(h, word_gen(slot_load(h)), SLOT_READY);
}

static bool in_lookup(struct node *n, const struct member *m, uint32_t slot)
{
    uint8_t buf[KEY_MAX];
    return lookup_find(n->c.lookup, m->hash, slot_key(n, slot, buf), NULL, NULL) == slot;
}

static void project(struct node *n, const struct member *m)
{
    bool in_place = m->old != SLOT_NONE && in_lookup(n, m, m->old);
    bool stored = lookup_store(n->c.lookup, m->hash, in_place ? m->old : SLOT_NONE, m->slot);
    n->counters[NODE_INDEX_ONLY] += !stored;
    if (m->old != SLOT_NONE && !in_place) {
        /* The old one was in the index only. Its count goes after the new entry is there, or a reader would see
         * neither. */
        lookup_clear(n->c.lookup, m->hash, m->old);
        n->counters[NODE_INDEX_ONLY]--;
    }
}

static void renew_expiries(struct node *n, uint32_t slot)
{
    struct record r;
    uint8_t buf[KEY_MAX];
    if (n->c.index->get(n->c.ix, slot_key(n, slot, buf), &r) == 0) {
        for (uint32_t i = 0; i < r.n_holds; i++) {
            if (r.holds[i].expiry) {
                expiry_add(n, r.holds[i].expiry, slot, false);
            }
        }
    }
}

static struct evict_hint hint_of(struct node *n, const struct member *first, uint32_t count, uint32_t position)
{
    const struct member *m = &first[position];
    struct evict_hint hint = {.parent = m->parent,
                              .prefix = first->parent,
                              .position = position,
                              .count = count,
                              .above = SLOT_NONE,
                              .priority = m->priority};
    if (position && !m[-1].kept && m->parent == slot_key_tag(n, m[-1].slot)) {
        hint.above = m[-1].slot;
    }
    return hint;
}

static void settle(struct node *n, const struct effect *e, const struct member *first, uint32_t count,
                   uint32_t position)
{
    const struct member *m = &first[position];
    const struct slot_header *h = header_of(n, m->slot);
    n->mark[m->slot] &= (uint8_t)~MARK_BUSY;
    wait_published(n, m);
    slot_insert(n, m->slot, hint_of(n, first, count, position));
    if (m->ttl_s) {
        expiry_add(n, n->now.boot + (int64_t)m->ttl_s * 1000000000, m->slot, true);
    }
    if (slot_held(n, m->slot)) {
        renew_expiries(n, m->slot);
    }
    /* Pulled: not to be told by its region, for a peer gives back what was put here and evicted, too. */
    bool copy = e->session == NODE_PULLER;
    n->counters[copy ? NODE_COPIES : NODE_PUTS]++;
    n->counters[copy ? NODE_COPY_BYTES : NODE_PUT_BYTES] += h->size;
}

static void retire_old(struct node *n, const struct member *m)
{
    if (m->old != SLOT_NONE) {
        n->mark[m->old] &= (uint8_t)~MARK_BUSY;
        slot_uncount(n, m->old);
        slot_retire(n, m->old);
        n->counters[NODE_REPLACED]++;
    }
}

/* Members say "ready when my leader is" until all are projected; the leader's state word is the one moment at which the
 * whole group becomes visible. Old versions retire after it, and the links go last. */
static void publish_group(struct node *n, const struct effect *e, const struct member *m, uint32_t count,
                          uint32_t leader)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!m[i].kept) {
            finish_header(n, e, &m[i], i == leader ? 0 : (uint64_t)m[leader].slot + 1);
            if (i != leader) {
                make_ready(n, m[i].slot);
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!m[i].kept) {
            project(n, &m[i]);
        }
    }
    make_ready(n, m[leader].slot);
    for (uint32_t i = 0; i < count; i++) {
        if (!m[i].kept) {
            retire_old(n, &m[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!m[i].kept) {
            atomic_store_explicit(&header_of(n, m[i].slot)->group, 0, memory_order_release);
        }
    }
    n->counters[NODE_GROUPS]++;
}

void publish(struct node *n, const struct effect *e, const struct member *m, uint32_t count)
{
    uint32_t leader = UINT32_MAX, sealed = 0;
    for (uint32_t i = 0; i < count; i++) {
        leader = !m[i].kept && leader == UINT32_MAX ? i : leader;
        sealed += !m[i].kept;
    }
    if (sealed > 1) {
        publish_group(n, e, m, count, leader);
    } else {
        finish_header(n, e, &m[leader], 0);
        make_ready(n, m[leader].slot);
        project(n, &m[leader]);
        retire_old(n, &m[leader]);
    }
    n->published = e->counter;
    n->request++;
    for (uint32_t i = count; i-- > 0;) { /* deepest first: the first of a prefix is the most recent */
        if (!m[i].kept) {
            settle(n, e, m, count, i);
        }
    }
    node_whatif_sealed(n, e->session, m, count);
    n->counters[NODE_SEALS]++;
}

void unpublish(struct node *n, const struct member *m)
{
    if (n->counters[NODE_INDEX_ONLY] && !in_lookup(n, m, m->old)) {
        n->counters[NODE_INDEX_ONLY]--;
    }
    lookup_clear(n->c.lookup, m->hash, m->old);
    n->mark[m->old] &= (uint8_t)~MARK_BUSY;
    slot_uncount(n, m->old);
    slot_retire(n, m->old);
}
