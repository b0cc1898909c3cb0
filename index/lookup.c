/* lookup.c: the table that readers probe without a lock; one thread of the node writes it. */
#include "index/lookup.h"
#include "index/lookup_hash.h"

#include <errno.h>
#include <string.h>

#define LOAD_NUMERATOR 3u
#define LOAD_DENOMINATOR 4u

static uint64_t table_bytes(uint64_t n_buckets)
{
    return LOOKUP_BUCKETS_OFFSET + (n_buckets + LOOKUP_PROBES - 1) * sizeof(struct lookup_bucket);
}

uint64_t lookup_bytes(uint64_t objects)
{
    uint64_t n = 1;
    while (n * LOOKUP_WAYS * LOAD_NUMERATOR / LOAD_DENOMINATOR < objects)
        n *= 2;
    return table_bytes(n);
}

void lookup_format(void *map, uint64_t bytes, const uint8_t uuid[16], uint64_t seed)
{
    struct lookup_super *super = map;
    uint64_t n = 1;
    while (table_bytes(n * 2) <= bytes)
        n *= 2;
    memset((uint8_t *)map + LOOKUP_BUCKETS_OFFSET, 0, table_bytes(n) - LOOKUP_BUCKETS_OFFSET);
    *super =
        (struct lookup_super){.format = LAYOUT_FORMAT, .fingerprint = LAYOUT_FINGERPRINT, .seed = seed, .n_buckets = n};
    memcpy(super->uuid, uuid, sizeof super->uuid);
    atomic_thread_fence(memory_order_release);
    super->magic = LOOKUP_MAGIC;
}

int lookup_attach(struct lookup *l, void *map, uint64_t bytes)
{
    struct lookup_super *super = map;
    if (bytes < table_bytes(1) || super->magic != LOOKUP_MAGIC || super->format != LAYOUT_FORMAT ||
        super->fingerprint != LAYOUT_FINGERPRINT)
        return -EPROTO;
    uint64_t n = super->n_buckets;
    if (n == 0 || (n & (n - 1)) != 0 || n > bytes / sizeof(struct lookup_bucket) || table_bytes(n) > bytes)
        return -EPROTO;
    l->super = super;
    l->buckets = (struct lookup_bucket *)((uint8_t *)map + LOOKUP_BUCKETS_OFFSET);
    l->mask = n - 1;
    l->seed = super->seed;
    return 0;
}

struct key_hash lookup_hash(uint64_t seed, struct key_ref key)
{
    return lookup_hash_inline(seed, key);
}

/* The cells that hold a long key's rest, or NULL: key size and cell come from shared memory. */
static const uint8_t *key_rest(const struct lookup *l, const struct slot_header *h, uint32_t size)
{
    uint32_t cells = (size - KEY_HEAD + TAIL_CELL - 1) / TAIL_CELL, tail = h->tail;
    if (!l->tails || cells > l->n_tails || tail > l->n_tails - cells ||
        !(atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_TAIL))
        return NULL;
    return l->tails + (size_t)tail * TAIL_CELL;
}

/* key and key_last are adjacent: an inline key runs through both. */
static const uint8_t *key_head(const struct slot_header *h)
{
    return (const uint8_t *)h + offsetof(struct slot_header, key);
}

bool lookup_key_equal(const struct lookup *l, const struct slot_header *h, struct key_ref key)
{
    bool split = key.size > KEY_HEAD && h->key_size == (key.size | KEY_SPLIT);
    if ((h->key_size != key.size && !split) || h->ns != key.ns)
        return false;
    if (key.size <= KEY_INLINE && !split)
        return memcmp(key_head(h), key.data, key.size) == 0;
    if (key.size > KEY_MAX || memcmp(key_head(h), key.data, KEY_HEAD) != 0)
        return false;
    const uint8_t *rest = key_rest(l, h, key.size);
    return rest && memcmp(rest, (const uint8_t *)key.data + KEY_HEAD, key.size - KEY_HEAD) == 0;
}

bool lookup_key(const struct lookup *l, const struct slot_header *h, uint8_t buf[KEY_MAX], struct key_ref *out)
{
    uint32_t size = slot_key_size(h);
    bool split = h->key_size & KEY_SPLIT;
    if (size == 0 || size > KEY_MAX || (split && size <= KEY_HEAD))
        return false;
    const void *data = key_head(h);
    if (size > KEY_INLINE || split) {
        const uint8_t *rest = key_rest(l, h, size);
        if (!rest)
            return false;
        memcpy(buf, key_head(h), KEY_HEAD);
        memcpy(buf + KEY_HEAD, rest, size - KEY_HEAD);
        data = buf;
    }
    *out = (struct key_ref){.data = data, .size = size, .ns = h->ns};
    return true;
}

uint32_t lookup_cells(const struct lookup *l, const struct slot_header *h, uint32_t *cell)
{
    uint32_t size = slot_key_size(h), shift = slot_segment(h), segments = segments_of(h->size, shift);
    bool split = segments > 0 && size > KEY_HEAD && size <= KEY_INLINE;
    bool possible = size <= KEY_MAX && (shift == 0 || segments_possible(h->size, shift));
    uint32_t cells = possible ? cells_of_key(size, segments) + cells_of_segments(segments) : 0;
    bool has = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_TAIL;
    *cell = h->tail;
    if (!possible || has != (cells > 0) || split != ((h->key_size & KEY_SPLIT) != 0) ||
        (cells > 0 && (cells > l->n_tails || *cell > l->n_tails - cells))) {
        *cell = SLOT_NONE;
        return 0;
    }
    if (cells == 0)
        *cell = 0;
    return cells;
}

const uint64_t *lookup_sums(const struct lookup *l, const struct slot_header *h, uint32_t *count)
{
    uint32_t n = segments_of(h->size, slot_segment(h)), cell;
    *count = 0;
    if (n == 0)
        return NULL;
    uint32_t cells = lookup_cells(l, h, &cell);
    *count = UINT32_MAX;
    if (cells == 0 || !l->tails)
        return NULL;
    const void *list = l->tails + (size_t)(cell + cells_of_key(slot_key_size(h), n)) * TAIL_CELL;
    if (XXH3_64bits(list, n * sizeof(uint64_t)) != h->checksum)
        return NULL;
    *count = n;
    return list;
}

static bool same_hash(const struct lookup *l, const struct slot_header *h, struct key_hash hash)
{
    uint8_t buf[KEY_MAX];
    struct key_ref key;
    if (!lookup_key(l, h, buf, &key))
        return false;
    struct key_hash other = lookup_hash_inline(l->seed, key);
    return other.home == hash.home;
}

uint32_t lookup_find(const struct lookup *l, struct key_hash hash, struct key_ref key, bool *ask, bool *collides)
{
    const struct lookup_bucket *b = &l->buckets[hash.home & l->mask];
    bool asks = atomic_load_explicit(&b->ask, memory_order_acquire) > 0, other = false;
    uint32_t found = SLOT_NONE;
    for (unsigned probe = 0; probe < LOOKUP_PROBES && found == SLOT_NONE; probe++, b++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            uint64_t e = atomic_load_explicit(&b->entry[i], memory_order_acquire);
            uint32_t slot = lookup_entry_slot(e);
            if (!lookup_entry_tagged(e, hash) || slot >= l->n_headers)
                continue;
            if (lookup_key_equal(l, &l->headers[slot], key)) {
                found = slot;
                break;
            }
            other = other || same_hash(l, &l->headers[slot], hash);
        }
        if (atomic_load_explicit(&b->passed, memory_order_acquire) == 0)
            break;
    }
    if (ask)
        *ask = found == SLOT_NONE && asks;
    if (collides)
        *collides = other;
    return found;
}

bool lookup_has(const struct lookup *l, struct key_hash hash, uint32_t slot)
{
    const struct lookup_bucket *b = &l->buckets[hash.home & l->mask];
    for (unsigned probe = 0; probe < LOOKUP_PROBES; probe++, b++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            if (atomic_load_explicit(&b->entry[i], memory_order_acquire) == lookup_entry(hash, slot))
                return true;
        }
        if (atomic_load_explicit(&b->passed, memory_order_acquire) == 0)
            break;
    }
    return false;
}

/* Only one thread writes, so a count is changed by a load and a store: no locked instruction. */
static void count(_Atomic uint32_t *n, int by)
{
    uint32_t v = atomic_load_explicit(n, memory_order_relaxed);
    if (by > 0 || v > 0) /* a file that an earlier node left may count too few */
        atomic_store_explicit(n, v + (uint32_t)by, memory_order_release);
}

/* The entry with this value in home's eight buckets, first of all; its bucket in *at. 0 finds room. */
static _Atomic uint64_t *entry_at(struct lookup_bucket *home, uint64_t value, unsigned *at)
{
    for (unsigned probe = 0; probe < LOOKUP_PROBES; probe++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            if (atomic_load_explicit(&home[probe].entry[i], memory_order_relaxed) == value) {
                *at = probe;
                return &home[probe].entry[i];
            }
        }
    }
    return NULL;
}

bool lookup_store(struct lookup *l, struct key_hash hash, uint32_t old, uint32_t slot)
{
    struct lookup_bucket *home = &l->buckets[hash.home & l->mask];
    unsigned at;
    if (old != SLOT_NONE) {
        _Atomic uint64_t *entry = entry_at(home, lookup_entry(hash, old), &at);
        if (entry) {
            atomic_store_explicit(entry, lookup_entry(hash, slot), memory_order_release);
            return true;
        }
    }
    _Atomic uint64_t *entry = entry_at(home, 0, &at);
    if (!entry) {
        if (old == SLOT_NONE) /* else it is counted already */
            count(&home->ask, 1);
        return false;
    }
    for (unsigned i = 0; i < at; i++)
        count(&home[i].passed, 1);
    atomic_store_explicit(entry, lookup_entry(hash, slot), memory_order_release);
    if (old != SLOT_NONE) /* was in the index only */
        count(&home->ask, -1);
    return true;
}

void lookup_clear(struct lookup *l, struct key_hash hash, uint32_t slot)
{
    struct lookup_bucket *home = &l->buckets[hash.home & l->mask];
    unsigned at;
    _Atomic uint64_t *entry = entry_at(home, lookup_entry(hash, slot), &at);
    if (!entry) {
        count(&home->ask, -1);
        return;
    }
    atomic_store_explicit(entry, 0, memory_order_release);
    for (unsigned i = 0; i < at; i++)
        count(&home[i].passed, -1);
}

int lookup_each(const struct lookup *l, int (*each)(void *arg, uint32_t slot), void *arg)
{
    for (uint64_t b = 0; b < l->mask + LOOKUP_PROBES; b++) {
        for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
            uint64_t e = atomic_load_explicit(&l->buckets[b].entry[i], memory_order_acquire);
            int rc = e == 0 ? 0 : each(arg, lookup_entry_slot(e));
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}
