/* node_recover.c: warm restart: index, headers and lookup of an earlier node fitted together (PROTOCOLS rules 14 and
 * 19).
 *
 * The index is the truth. A record counts if its slot still has its generation; the header is made to fit it, and a
 * state word that says READY already is not written, since clients may be reading the slot now. A seal that was
 * committed but not yet projected is published as it would have been, group by group: what readers see changes at one
 * moment. READY and RETIRED slots without a record go through the normal retire; WRITING ones stay their session's if
 * it lives.
 */
#include "store/amount.h"
#include "store/node_ahead.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kept { /* a record that counts */
    uint64_t counter;
    uint64_t parent;
    int64_t ttl_end; /* boot; 0: it has no ttl */
    uint32_t slot;
    uint16_t region;
    uint8_t priority;
    bool unfinished; /* not READY yet, or its group link stands */
};
_Static_assert(sizeof(struct kept) <= 32, "glibc's qsort sorts pointers to what is larger, which takes twice as long");

#define AHEAD 8u /* objects whose place in the lookup is asked for before its turn */

struct recovery {
    struct node *n;
    struct kept *kept;
    uint64_t n_kept, room;
    struct ahead ahead;
    struct key_hash hash[AHEAD]; /* of the next ones of kept, by number */
    struct lookup_repair *repair;
    uint64_t counter;
    bool stuck; /* the key of a record is no key, or does not find it: no delete would */
    int status;
};

static bool keep(struct recovery *r, const struct kept *k)
{
    if (r->n_kept == r->room) {
        uint64_t room = r->room ? r->room * 2 : 1024;
        struct kept *p = realloc(r->kept, room * sizeof *p);
        if (!p) {
            r->status = -ENOMEM;
            return false;
        }
        r->kept = p;
        r->room = room;
    }
    r->kept[r->n_kept++] = *k;
    return true;
}

/* A header is a client-readable, node-written thing, but the node that wrote it may have been killed in the middle. */
static bool header_whole(struct node *n, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    uint32_t cell;
    lookup_cells(n->c.lookup, h, &cell);
    return cell != SLOT_NONE && h->size <= slot_bytes(n, slot);
}

/* Its cells are its own from here on, if the header is whole and nobody else has them. */
static bool claim_cells(struct node *n, uint32_t slot)
{
    uint32_t cell, cells = lookup_cells(n->c.lookup, header_of(n, slot), &cell);
    if (!header_whole(n, slot)) {
        return false;
    }
    if (cells && !(n->mark[slot] & MARK_CLAIMED)) {
        if (tails_claim(n->tails, cell, cells)) {
            return false;
        }
        n->mark[slot] |= MARK_CLAIMED;
    }
    return true;
}

/* A slot whose cells are not its own has none, and no key. */
static void forget_cells(struct slot_header *h)
{
    atomic_fetch_and_explicit(&h->flags, (uint8_t)~SLOT_TAIL, memory_order_relaxed);
    h->key_size = 0;
    h->tier_segment = 0;
}

/* The checksums of segments lie beside the index, as headers do: its own checksum proves them. */
static bool segments_fit(const struct node *n, const struct record *r)
{
    const struct slot_header *h = header_of(n, r->slot);
    if (slot_segment(h) != r->segment || (r->segment && h->size != r->size)) {
        return false;
    }
    return slot_sums(n, r->slot) == NULL || slot_sums_checksum(n, r->slot) == r->checksum;
}

static bool record_fits(struct node *n, struct key_ref key, const struct record *r)
{
    if (r->slot >= n->max_headers || !slabs_is_slot(n->slabs, r->slot) || (n->mark[r->slot] & MARK_SEEN)) {
        return false;
    }
    uint64_t word = slot_load(header_of(n, r->slot));
    uint8_t buf[KEY_MAX];
    if (word_gen(word) != r->generation || word_state(word) == SLOT_FREE || word_state(word) == SLOT_RETIRED ||
        r->size > slot_bytes(n, r->slot) || !header_whole(n, r->slot) || !region_known(n, r->region) ||
        !claim_cells(n, r->slot) || !segments_fit(n, r)) {
        return false;
    }
    struct key_ref has = slot_key(n, r->slot, buf);
    return has.size == key.size && has.ns == key.ns && memcmp(has.data, key.data, key.size) == 0;
}

static void fit_flags(struct slot_header *h, const struct record *r)
{
    uint8_t flags = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_TAIL;
    flags |= (uint8_t)((r->n_holds ? SLOT_HELD : 0) | (r->grouped ? SLOT_GROUPED : 0));
    atomic_store_explicit(&h->flags, flags, memory_order_relaxed);
}

static void fit_header(struct node *n, const struct record *r)
{
    struct slot_header *h = header_of(n, r->slot);
    h->version = r->counter;
    h->checksum = r->checksum;
    h->lineage = r->lineage;
    h->size = r->size;
    h->region = r->region;
    fit_flags(h, r);
}

/* Clients may be reading it: only what may change under them does. The version is another where the node went between
 * the commit that gave it a greater counter and the header (node_take.c). */
static void fit_ready_header(struct node *n, const struct record *r)
{
    struct slot_header *h = header_of(n, r->slot);
    fit_flags(h, r);
    if (h->version < r->counter && h->region == 0 && r->region == 0) {
        __atomic_store_n(&h->version, r->counter, __ATOMIC_RELAXED);
    }
}

static void find_expiries(struct node *n, const struct record *r)
{
    for (uint32_t i = 0; i < r->n_holds; i++) {
        if (r->holds[i].expiry) {
            expiry_add(n, r->holds[i].expiry, r->slot, false);
        }
    }
}

static enum node_fate dropped_for(struct node *n, struct key_ref key, const struct record *r)
{
    if (r && tomb_above(n, key, r->counter, region_of(n, r->region))) {
        return FATE_REMOVED;
    }
    bool beyond = r && n->c.shrunk && r->slot < n->max_headers && !slabs_is_slot(n->slabs, r->slot);
    return beyond ? FATE_SHRUNK : FATE_LOST;
}

static void drop_record(struct recovery *rec, struct key_ref key, const struct record *r)
{
    struct node *n = rec->n;
    struct record found;
    n->counters[NODE_RECOVERED_DROPPED]++;
    if (n->c.index->get(n->c.ix, key, &found) == -ENOENT) {
        rec->stuck = true;
    } else {
        batch_delete(n->open->batch, key);
        fate_add(n, lookup_hash(n->c.super->hash_seed, key),
                 (struct fate){.kind = (uint8_t)dropped_for(n, key, r), .counter = r ? r->counter : 0});
    }
}

static int each_record(void *arg, struct key_ref key, const struct record *r)
{
    struct recovery *rec = arg;
    struct node *n = rec->n;
    if (!r || !r->ready || !record_fits(n, key, r) || tomb_above(n, key, r->counter, region_of(n, r->region))) {
        drop_record(rec, key, r);
        return 0;
    }
    n->mark[r->slot] |= MARK_SEEN;
    struct slot_header *h = header_of(n, r->slot);
    bool ready = word_state(slot_load(h)) == SLOT_READY;
    bool linked = atomic_load_explicit(&h->group, memory_order_relaxed) != 0;
    if (ready) {
        fit_ready_header(n, r);
    } else {
        fit_header(n, r);
    }
    find_expiries(n, r);
    rec->counter = r->counter > rec->counter ? r->counter : rec->counter;
    struct kept k = {.counter = r->counter,
                     .region = r->region,
                     .parent = r->parent,
                     .priority = r->priority,
                     .ttl_end = ttl_end(n, r),
                     .slot = r->slot,
                     .unfinished = !ready || linked};
    return keep(rec, &k) ? 0 : 1;
}

static int by_counter(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    if (x->counter != y->counter) {
        return x->counter < y->counter ? -1 : 1;
    }
    if (x->region != y->region) {
        return x->region < y->region ? -1 : 1;
    }
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* Into buckets of some neighbours each, since counters are nearly as dense as objects are many: a million are in order
 * after a quarter of the time that qsort takes for them. Counters of other regions, or few, may all fall into one
 * bucket, which is qsort's then. */
static void sort_into(struct kept *to, const struct recovery *r, uint32_t *end, uint64_t low, unsigned shift,
                      uint64_t buckets)
{
    for (uint64_t i = 0; i < r->n_kept; i++) {
        end[(r->kept[i].counter - low) >> shift]++;
    }
    for (uint64_t b = 0, sum = 0; b < buckets; b++) {
        uint32_t count = end[b];
        end[b] = (uint32_t)sum;
        sum += count;
    }
    for (uint64_t i = 0; i < r->n_kept; i++) {
        to[end[(r->kept[i].counter - low) >> shift]++] = r->kept[i];
    }
    for (uint64_t b = 0, begin = 0; b < buckets; begin = end[b++]) {
        if (end[b] - begin > 1) {
            qsort(to + begin, end[b] - begin, sizeof *to, by_counter);
        }
    }
}

/* The order of sealing. As much memory as qsort would take; without it, qsort does what it can. */
static void sort_kept(struct recovery *r)
{
    uint64_t low = UINT64_MAX, high = 0, buckets;
    unsigned shift = 0;
    for (uint64_t i = 0; i < r->n_kept; i++) {
        low = r->kept[i].counter < low ? r->kept[i].counter : low;
        high = r->kept[i].counter > high ? r->kept[i].counter : high;
    }
    while ((high - low) >> shift > r->n_kept / 8) {
        shift++;
    }
    buckets = ((high - low) >> shift) + 1;
    struct kept *to = malloc(r->n_kept * sizeof *to);
    uint32_t *end = calloc(buckets, sizeof *end);
    if (to && end) {
        sort_into(to, r, end, low, shift, buckets);
        free(r->kept);
        r->kept = to;
        r->room = r->n_kept;
    } else {
        free(to);
        qsort(r->kept, r->n_kept, sizeof *r->kept, by_counter);
    }
    free(end);
}

/* Which member was its leader: the one that a link names, else any that is not READY. */
static uint64_t leader_of(const struct node *n, const struct kept *k, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t link = atomic_load_explicit(&header_of(n, k[i].slot)->group, memory_order_relaxed);
        if (word_state(slot_load(header_of(n, k[i].slot))) == SLOT_READY && link) {
            return link - 1;
        }
    }
    return k[0].slot;
}

/* Members of one counter, at least one of them unfinished: link, make ready, and the leader last. */
static void finish_group(struct recovery *rec, const struct kept *k, uint64_t count)
{
    struct node *n = rec->n;
    uint64_t leader = leader_of(n, k, count);
    for (uint64_t i = 0; i < count; i++) {
        struct slot_header *h = header_of(n, k[i].slot);
        if (word_state(slot_load(h)) == SLOT_READY) {
            continue;
        }
        bool leads = k[i].slot == leader;
        atomic_store_explicit(&h->group, leads ? 0 : leader + 1, memory_order_relaxed);
        if (!leads) {
            slot_store(h, word_gen(slot_load(h)), SLOT_READY);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        lookup_repair_keep(rec->repair, slot_hash(n, k[i].slot), k[i].slot);
    }
    for (uint64_t i = 0; i < count; i++) {
        struct slot_header *h = header_of(n, k[i].slot);
        if (k[i].slot == leader && word_state(slot_load(h)) != SLOT_READY) {
            slot_store(h, word_gen(slot_load(h)), SLOT_READY);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        atomic_store_explicit(&header_of(n, k[i].slot)->group, 0, memory_order_release);
    }
}

static bool same_seal(const struct kept *a, const struct kept *b)
{
    return a->counter == b->counter && a->region == b->region;
}

/* Its parent may come later. What its uses were, and in which group it came, is not known any more. */
static void insert_kept(struct node *n, const struct kept *k)
{
    slot_insert(n, k->slot, (struct evict_hint){.above = SLOT_NONE, .priority = k->priority});
}

/* Of kept in order, one after the other: the headers of the ones after the next come, then the places of the next. */
static struct key_hash next_hash(struct recovery *rec, uint64_t i)
{
    struct node *n = rec->n;
    struct key_hash hash = rec->hash[i % AHEAD];
    if (i + 2 * AHEAD < rec->n_kept) {
        __builtin_prefetch(header_of(n, rec->kept[i + 2 * AHEAD].slot));
    }
    if (i + AHEAD < rec->n_kept) {
        uint32_t slot = rec->kept[i + AHEAD].slot;
        struct key_hash *ahead = &rec->hash[i % AHEAD];
        *ahead = slot_hash(n, slot);
        lookup_repair_ahead(rec->repair, *ahead);
        n->policy->ahead(n->evict, slot_key_tag(n, slot));
    }
    return hash;
}

static void publish_kept(struct recovery *rec)
{
    struct node *n = rec->n;
    if (rec->n_kept == 0) {
        return;
    }
    sort_kept(rec); /* the order of sealing stands for that of use */
    n->policy->expect(n->evict, (uint32_t)rec->n_kept);
    for (uint64_t i = 0; i < AHEAD && i < rec->n_kept; i++) {
        rec->hash[i] = slot_hash(n, rec->kept[i].slot);
    }
    for (uint64_t i = 0, end; i < rec->n_kept; i = end) {
        bool unfinished = false;
        for (end = i; end < rec->n_kept && same_seal(&rec->kept[end], &rec->kept[i]); end++) {
            unfinished |= rec->kept[end].unfinished;
        }
        if (unfinished) {
            finish_group(rec, &rec->kept[i], end - i);
        }
        for (uint64_t k = i; k < end; k++) {
            uint32_t slot = rec->kept[k].slot;
            struct key_hash hash = next_hash(rec, k);
            if (!unfinished) {
                lookup_repair_keep(rec->repair, hash, slot);
            }
            insert_kept(n, &rec->kept[k]);
        }
    }
    for (uint64_t i = 0; i < rec->n_kept; i++) { /* now that all of them are there */
        n->policy->link(n->evict, rec->kept[i].slot, rec->kept[i].parent);
        node_whatif_recovered(n, rec->kept[i].slot, rec->kept[i].parent, rec->kept[i].priority);
        if (rec->kept[i].ttl_end) {
            expiry_add(n, rec->kept[i].ttl_end, rec->kept[i].slot, true);
        }
    }
    n->counters[NODE_RECOVERED] = rec->n_kept;
}

static void adopt_draft(struct node *n, struct session *s, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    if (!claim_cells(n, slot)) {
        forget_cells(h);
        s = &n->orphan; /* nothing that a seal could name: it goes after the quarantine */
    }
    list_push(n, &s->drafts, slot);
    s->draft_bytes += slot_bytes(n, slot);
    n->draft_bytes += slot_bytes(n, slot);
    bool grant = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_GRANT;
    *(grant ? &n->grants : &n->drafts) += 1;
    bool purged = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_PURGED;
    if (!grant && h->key_size && s != &n->orphan && !purged) {
        writing_add(n, slot);
    } else if (!grant && h->key_size) {
        lost_add(n, slot_hash(n, slot), purged ? WAIT_ABORTED : WAIT_DIED);
    }
}

static void adopt_retired(struct node *n, uint32_t slot)
{
    if (!claim_cells(n, slot)) {
        forget_cells(header_of(n, slot));
    }
    slot_retire(n, slot);
}

static void sort_out_slots(struct node *n)
{
    uint64_t cursor = 0;
    for (uint32_t slot; (slot = slabs_next(n->slabs, &cursor)) != SLOT_NONE;) {
        n->mark[slot] |= MARK_OLD;
        region_recover(n, slot);
        if (n->mark[slot] & MARK_SEEN) {
            continue;
        }
        struct slot_header *h = header_of(n, slot);
        if (word_state(slot_load(h)) == SLOT_WRITING) {
            struct session *s = session_find(n, h->version);
            adopt_draft(n, s ? s : &n->orphan, slot);
        } else {
            adopt_retired(n, slot);
        }
        n->mark[slot] &= (uint8_t)~MARK_CLAIMED;
    }
    n->orphan.quarantine_end = n->now.mono + n->c.quarantine_ns;
}

static int each_session(void *arg, uint64_t id, const struct session_row *row)
{
    struct node *n = arg;
    struct session *s = session_find(n, id);
    if (s) {
        s->row = *row;
    } else {
        batch_end_session(n->open->batch, id);
    }
    return 0;
}

static int each_name(void *arg, const char *name, uint32_t id, uint32_t flags)
{
    return names_add(arg, name, id, flags) ? 0 : 1;
}

static int fit_together(struct recovery *rec)
{
    struct node *n = rec->n;
    struct index_usage usage;
    int e = lookup_repair_begin(n->c.lookup, &rec->repair);
    if (e) {
        return e;
    }
    n->c.index->usage(n->c.ix, &usage);
    rec->room = usage.records < n->max_headers ? usage.records : n->max_headers;
    rec->kept = rec->room ? malloc(rec->room * sizeof *rec->kept) : NULL;
    rec->room = rec->kept ? rec->room : 0;
    rec->ahead = (struct ahead){.n = n, .each = each_record, .arg = rec};
    e = n->c.index->each(n->c.ix, ahead_push, &rec->ahead);
    e = e ? e : ahead_drain(&rec->ahead);
    if (e < 0 || rec->status) {
        lookup_repair_end(rec->repair);
        return e < 0 ? e : rec->status;
    }
    publish_kept(rec);
    lookup_repair_end(rec->repair); /* clears entries of slots without a record, which may be retired now */
    sort_out_slots(n);
    for (uint64_t i = 0; i < rec->n_kept; i++) {
        n->mark[rec->kept[i].slot] &= (uint8_t) ~(MARK_SEEN | MARK_CLAIMED);
    }
    tails_recovered(n->tails);
    return 0;
}

/* A class that would cost no less than others is not made, whoever asked for it. */
static void name_unused_classes(struct node *n)
{
    char size[AMOUNT_SIZE], why[160];
    for (uint32_t i = 0; i < n->c.n_classes; i++) {
        if (slabs_class_unused(n->slabs, n->c.classes[i], why, sizeof why)) {
            node_log(n, 1, "class %s is not used: %s", amount((uint64_t)n->c.classes[i] * PAGE_BYTES, size), why);
        }
    }
}

static void say_recovered(struct node *n)
{
    uint64_t dropped = n->counters[NODE_RECOVERED_DROPPED], drafts = n->drafts + n->grants;
    if (n->c.first || (n->c.clean && !(n->objects || drafts || dropped || n->fresh.count))) {
        return;
    }
    /* After a clean stop every record has its object, or it is damage; a killed node may have been retiring. */
    node_log(n, dropped && n->c.clean ? 1 : 2,
             "recovered %llu object%s, %llu draft%s, dropped %llu record%s, retired %u slot%s",
             (unsigned long long)n->objects, plural(n->objects), (unsigned long long)drafts, plural(drafts),
             (unsigned long long)dropped, plural(dropped), n->fresh.count, plural(n->fresh.count));
}

int recover(struct node *n)
{
    struct recovery rec = {.n = n};
    int e = n->c.index->namespaces(n->c.ix, each_name, n);
    shares_configure(n);
    n->counter = n->c.index->meta(n->c.ix, META_COUNTER);
    e = e < 0 ? e : tombs_recover(n);
    e = e < 0 ? e : purges_recover(n);
    if (!n->c.first && e >= 0) {
        uint32_t dropped = slabs_recover(n->slabs);
        if (dropped) {
            node_log(n, 1, "dropped what contradicted others in the slab directory: %u", dropped);
        }
        horizon_recover(n);
        e = n->c.index->sessions(n->c.ix, each_session, n);
        e = e < 0 ? e : fit_together(&rec);
    }
    n->counter = rec.counter > n->counter ? rec.counter : n->counter;
    free(rec.kept);
    if (e == -EBADMSG) {
        snprintf(n->start_why, sizeof n->start_why, "the index is damaged: remove the region");
        return e;
    }
    if (e < 0) {
        snprintf(n->start_why, sizeof n->start_why, "the index of the region can't be read: %s", berth_error_text(e));
        return e;
    }
    if (rec.stuck) {
        node_log(n, 1, "the index is damaged: remove the region");
    }
    name_unused_classes(n);
    say_recovered(n);
    return 0;
}
