/* node_take.c: a version of this region takes a greater counter (PROTOCOLS rule 28: SUPERSEDED, once).
 *
 * The object stays where it is: slot, generation and bytes are the same, only the number in record and header is
 * another. That keeps "equal versions mean equal bytes": the new number is above everything given or seen here and is
 * given to these bytes only; the old one was given to them and is never given again. A reader that loads the number
 * gets one of the two, and both name what it reads. Members of one seal have one number, which says that they belong
 * together, so all of them take the new one with the same commit; a reader that meets some with the old and some with
 * the new one starts again, as in any group that is being published (rule 13).
 *
 * After a crash between commit and header the record's number goes into the header (node_recover.c).
 */
#include "store/node_internal.h"

#include <string.h>

/* Only what may be renumbered now: an uncommitted effect of the key decides over it. */
static bool may_take(const struct node *n, uint32_t slot, uint64_t counter)
{
    const struct slot_header *h = header_of(n, slot);
    return word_state(slot_load(h)) == SLOT_READY && !busy(n, slot) && h->version == counter && h->region == 0 &&
           !purge_covers(n, slot, counter); /* a greater counter would save it from that */
}

static bool take_slot(struct node *n, struct effect *e, uint32_t slot)
{
    struct record r;
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, slot, buf);
    struct member m = {.slot = SLOT_NONE, .old = slot, .hash = lookup_hash(n->c.super->hash_seed, key)};
    return !pending_has(&n->pending, m.hash.home) && n->c.index->get(n->c.ix, key, &r) == 0 && member_add(n, e, &m);
}

static bool grouped(const struct node *n, uint32_t slot)
{
    return atomic_load_explicit(&header_of(n, slot)->flags, memory_order_relaxed) & SLOT_GROUPED;
}

/* The object, and all that were sealed with it: nothing links them but their number, so all headers are looked at. */
static bool take_seal(struct node *n, struct effect *e, uint32_t slot)
{
    uint64_t counter = header_of(n, slot)->version, cursor = 0;
    if (!grouped(n, slot)) {
        return take_slot(n, e, slot);
    }
    for (uint32_t s; (s = slabs_next(n->slabs, &cursor)) != SLOT_NONE;) {
        const struct slot_header *h = header_of(n, s);
        bool mine = word_state(slot_load(h)) == SLOT_READY && h->version == counter && h->region == 0;
        if (mine && (!may_take(n, s, counter) || !take_slot(n, e, s))) {
            return false;
        }
    }
    return true;
}

static void write_records(struct node *n, struct effect *e)
{
    e->counter = counter_next(n);
    for (uint32_t i = e->first; i < e->first + e->n; i++) {
        uint32_t slot = n->open->members[i].old;
        struct record r;
        uint8_t buf[KEY_MAX];
        struct key_ref key = slot_key(n, slot, buf);
        mark_busy(n, slot);
        if (n->c.index->get(n->c.ix, key, &r) == 0) {
            r.counter = e->counter;
            batch_put(n->open->batch, key, &r);
        }
    }
}

static void take_object(struct node *n, struct key_ref key, uint64_t counter)
{
    uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
    struct effect *e = slot != SLOT_NONE && may_take(n, slot, counter)
                           ? effect_add(n, EFFECT_TAKE, CONTROL_SESSION, NULL, n->now.mono)
                           : NULL;
    if (!e) {
        return;
    }
    if (take_seal(n, e, slot)) {
        write_records(n, e);
    } else {
        work_undo(n, e);
    }
}

static void take_removal(struct node *n, struct key_ref key, uint64_t counter)
{
    struct tomb *t = tomb_to_take(n, key, counter);
    struct effect *e = t ? effect_add(n, EFFECT_TAKE, CONTROL_SESSION, NULL, n->now.mono) : NULL;
    struct member m = {.slot = SLOT_NONE, .old = SLOT_NONE, .hash = lookup_hash(n->c.super->hash_seed, key)};
    if (!e) {
        return;
    }
    if (!member_add(n, e, &m)) {
        work_undo(n, e);
        return;
    }
    e->counter = counter_next(n);
    e->tomb = t;
    t->taking = true;
    struct tombstone_row row = {.counter = e->counter, .taken = true};
    batch_tombstone(n->open->batch, key, &row);
}

void take_event(struct node *n, const struct node_event *ev)
{
    if (!ev->key.data || ev->key.size == 0 || ev->key.size > KEY_MAX || n->start_status || n->stopping) {
        return;
    }
    if (ev->removal) {
        take_removal(n, ev->key, ev->counter);
    } else {
        take_object(n, ev->key, ev->counter);
    }
}

void take_complete(struct node *n, const struct effect *e, const struct member *m)
{
    if (e->tomb) {
        tomb_taken(n, e->tomb, e->counter);
        tell_removed(n, e->tomb);
        n->counters[NODE_TAKEN]++;
        return;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        __atomic_store_n(&header_of(n, m[i].old)->version, e->counter, __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        slot_return(n, m[i].old);
        tell_taken(n, m[i].old);
        n->counters[NODE_TAKEN]++;
    }
}

void take_failed(struct node *n, const struct effect *e, const struct member *m)
{
    if (e->tomb) {
        e->tomb->taking = false;
        return;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        slot_return(n, m[i].old);
    }
}
