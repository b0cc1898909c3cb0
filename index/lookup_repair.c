/* lookup_repair.c: makes the table say what the index says, in place, while readers probe it.
 *
 * A node that was killed leaves counts that are at least what they should be, and entries of before or after the commit
 * that it was projecting. Right entries stay where they are; an entry of an older slot of the same key becomes the new
 * one in place; what is missing is added; what no record confirmed is cleared last, and the exact counts are stored
 * after it.
 */
#include "index/lookup.h"
#include "index/lookup_hash.h"

#include <errno.h>
#include <stdlib.h>

struct waiting {
    struct key_hash hash;
    uint32_t slot;
};

struct lookup_repair {
    struct lookup *l;
    uint64_t n_buckets; /* those behind the last home too */
    uint8_t *kept;      /* a bucket: one bit a way */
    uint32_t *passed;   /* what it is to be */
    uint32_t *ask;
    struct waiting *waiting; /* found no room beside what may be cleared; index only until then */
    size_t n_waiting, room;
    uint64_t changed;
};

int lookup_repair_begin(struct lookup *l, struct lookup_repair **out)
{
    struct lookup_repair *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->l = l;
    r->n_buckets = l->mask + LOOKUP_PROBES;
    r->kept = calloc(r->n_buckets, sizeof *r->kept);
    r->passed = calloc(r->n_buckets, sizeof *r->passed);
    r->ask = calloc(r->n_buckets, sizeof *r->ask);
    if (!r->kept || !r->passed || !r->ask) {
        free(r->kept);
        free(r->passed);
        free(r->ask);
        free(r);
        return -ENOMEM;
    }
    *out = r;
    return 0;
}

/* Whether an entry is of another slot that has the same key as `slot`. */
static bool older(const struct lookup *l, uint64_t entry, struct key_hash hash, uint32_t slot)
{
    uint8_t buf[KEY_MAX];
    struct key_ref key;
    uint32_t other = lookup_entry_slot(entry);
    return lookup_entry_tagged(entry, hash) && other < l->n_headers && slot < l->n_headers &&
           lookup_key(l, &l->headers[slot], buf, &key) && lookup_key_equal(l, &l->headers[other], key);
}

struct place {
    unsigned probe, way;
    bool found;
};

/* Where the key is to lie: its entry, else its older one, else room; none of them kept yet. */
static struct place choose(const struct lookup_repair *r, uint64_t home, struct key_hash hash, uint32_t slot)
{
    struct place old = {0}, room = {0};
    for (unsigned probe = 0; probe < LOOKUP_PROBES; probe++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            uint64_t e = atomic_load_explicit(&r->l->buckets[home + probe].entry[i], memory_order_relaxed);
            struct place here = {probe, i, true};
            if (r->kept[home + probe] & 1u << i)
                continue;
            if (e == lookup_entry(hash, slot))
                return here;
            if (e == 0 && !room.found)
                room = here;
            else if (e != 0 && !old.found && older(r->l, e, hash, slot))
                old = here;
        }
    }
    return old.found ? old : room;
}

static void keep_at(struct lookup_repair *r, uint64_t home, struct place p, uint64_t value)
{
    struct lookup_bucket *b = &r->l->buckets[home];
    _Atomic uint64_t *entry = &b[p.probe].entry[p.way];
    for (unsigned i = 0; i < p.probe; i++) {
        r->passed[home + i]++;
        if (atomic_load_explicit(&b[i].passed, memory_order_relaxed) == 0)
            atomic_store_explicit(&b[i].passed, 1, memory_order_release);
    }
    r->kept[home + p.probe] |= (uint8_t)(1u << p.way);
    if (atomic_load_explicit(entry, memory_order_relaxed) == value)
        return;
    atomic_store_explicit(entry, value, memory_order_release);
    r->changed++;
}

/* No memory for the list only costs those keys their entry. */
static void wait_for_room(struct lookup_repair *r, struct key_hash hash, uint32_t slot)
{
    if (r->n_waiting == r->room) {
        size_t room = r->room ? r->room * 2 : 64;
        struct waiting *list = realloc(r->waiting, room * sizeof *list);
        if (!list)
            return;
        r->waiting = list;
        r->room = room;
    }
    r->waiting[r->n_waiting++] = (struct waiting){hash, slot};
}

void lookup_repair_ahead(const struct lookup_repair *r, struct key_hash hash)
{
    uint64_t home = hash.home & r->l->mask;
    __builtin_prefetch(&r->l->buckets[home]);
    __builtin_prefetch(&r->kept[home]);
}

void lookup_repair_keep(struct lookup_repair *r, struct key_hash hash, uint32_t slot)
{
    uint64_t home = hash.home & r->l->mask;
    struct place p = choose(r, home, hash, slot);
    if (p.found) {
        keep_at(r, home, p, lookup_entry(hash, slot));
        return;
    }
    r->ask[home]++;
    if (atomic_load_explicit(&r->l->buckets[home].ask, memory_order_relaxed) == 0)
        atomic_store_explicit(&r->l->buckets[home].ask, 1, memory_order_release);
    wait_for_room(r, hash, slot);
}

static void clear_unconfirmed(struct lookup_repair *r)
{
    for (uint64_t b = 0; b < r->n_buckets; b++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            _Atomic uint64_t *entry = &r->l->buckets[b].entry[i];
            if (r->kept[b] & 1u << i || atomic_load_explicit(entry, memory_order_relaxed) == 0)
                continue;
            atomic_store_explicit(entry, 0, memory_order_release);
            r->changed++;
        }
    }
}

static void place_waiting(struct lookup_repair *r)
{
    for (size_t i = 0; i < r->n_waiting; i++) {
        const struct waiting *w = &r->waiting[i];
        uint64_t home = w->hash.home & r->l->mask;
        struct place p = choose(r, home, w->hash, w->slot);
        if (!p.found)
            continue;
        keep_at(r, home, p, lookup_entry(w->hash, w->slot));
        r->ask[home]--;
    }
}

uint64_t lookup_repair_end(struct lookup_repair *r)
{
    clear_unconfirmed(r);
    place_waiting(r);
    for (uint64_t b = 0; b < r->n_buckets; b++) {
        struct lookup_bucket *bucket = &r->l->buckets[b];
        atomic_store_explicit(&bucket->passed, r->passed[b], memory_order_release);
        atomic_store_explicit(&bucket->ask, r->ask[b], memory_order_release);
    }
    uint64_t changed = r->changed;
    free(r->waiting);
    free(r->ask);
    free(r->passed);
    free(r->kept);
    free(r);
    return changed;
}
