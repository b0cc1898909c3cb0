/* find.h: from key to pinned slot without a call, a lock or a system call. All of it is inlined into the readers. */
#ifndef BERTH_STORE_FIND_H
#define BERTH_STORE_FIND_H

#include "index/lookup_hash.h"
#include "store/pin.h"

#include <emmintrin.h>
#include <string.h>

#define FIND_TRIES 64u /* a slot that changes underneath, or a group on its way: then the node is asked */

/* ThreadSanitizer knows no vector loads of atomics, and no header that is read between two equal loads of its word. */
#if defined(__SANITIZE_THREAD__)
#define FIND_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIND_TSAN 1
#endif
#endif
#ifndef FIND_TSAN
#define FIND_TSAN 0
#endif

struct wanted { /* a key on its way through a lookup */
    const uint8_t *key;
    uint32_t size, ns;
    const struct lookup_bucket *home;
    uint32_t tag;
};

struct found {
    uint32_t slot;
    uint32_t entry;
};

static inline void find_start(const struct lookup *l, struct wanted *w, const struct berth_key *key)
{
    struct key_ref ref = {.data = key->data, .size = key->size, .ns = key->ns};
    struct key_hash h = lookup_hash_inline(l->seed, ref);
    *w = (struct wanted){.key = key->data,
                         .size = key->size,
                         .ns = key->ns,
                         .home = &l->buckets[h.home & l->mask],
                         .tag = (uint32_t)(h.home >> 32)};
    __builtin_prefetch(w->home);
}

/* Bit i + 1: entry i has this tag: the place of 8 bytes in the bucket, whose first are `passed` and `ask`. */
static inline unsigned find_match(const struct lookup_bucket *b, uint32_t tag)
{
#if FIND_TSAN
    unsigned bits = 0;
    for (unsigned i = 0; i < LOOKUP_WAYS; i++) {
        bits |= (unsigned)(atomic_load_explicit(&b->entry[i], memory_order_acquire) >> 32 == tag) << (i + 1);
    }
    return bits;
#else
    /* A hint, loaded again as an atomic before it is used: no order is needed here. */
    const __m128 *v = (const __m128 *)b;
    __m128i low = _mm_castps_si128(_mm_shuffle_ps(v[0], v[1], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i high = _mm_castps_si128(_mm_shuffle_ps(v[2], v[3], _MM_SHUFFLE(3, 1, 3, 1)));
    __m128i want = _mm_set1_epi32((int)tag);
    unsigned bits = (unsigned)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(low, want))) |
                    (unsigned)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(high, want))) << 4;
    return bits & ~1u;
#endif
}

static inline const _Atomic uint64_t *find_entry(const struct lookup_bucket *b, unsigned match)
{
    return (const _Atomic uint64_t *)(const void *)b + (unsigned)__builtin_ctz(match);
}

/* Slot of an entry that has the tag, or SLOT_NONE. */
static inline uint32_t find_slot(const struct lookup *l, uint64_t entry, uint32_t tag)
{
    uint32_t slot = (uint32_t)entry - 1;
    return entry >> 32 == tag && slot < l->n_headers ? slot : SLOT_NONE;
}

/* Slot of the first entry with the tag on the way from home: nearly always the key's. */
static inline uint32_t find_first(const struct lookup *l, const struct wanted *w)
{
    for (uint32_t i = 0; i < LOOKUP_PROBES; i++) {
        const struct lookup_bucket *bucket = w->home + i;
        unsigned match = find_match(bucket, w->tag);
        if (__builtin_expect(match != 0, 1)) {
            /* Another key's by now, or empty: what the header says under the pin decides. */
            uint32_t slot = (uint32_t)atomic_load_explicit(find_entry(bucket, match), memory_order_acquire) - 1;
            return slot < l->n_headers ? slot : SLOT_NONE;
        }
        if (atomic_load_explicit(&bucket->passed, memory_order_acquire) == 0) {
            break;
        }
    }
    return SLOT_NONE;
}

static inline const struct slot_header *find_header(const struct lookup *l, uint32_t slot)
{
    return &l->headers[slot];
}

static inline void find_prefetch(const struct slot_header *h)
{
    __builtin_prefetch(h);
    __builtin_prefetch((const uint8_t *)h + 64);
}

static inline uint64_t find_load8(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t find_load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Equality of n bytes, 1 to KEY_INLINE, in overlapping pieces: no call, no byte beyond either side. */
static inline bool find_bytes_equal(const uint8_t *a, const uint8_t *b, uint32_t n)
{
    if (__builtin_expect(n >= 16, 1)) {
        __m128i same = _mm_set1_epi8(-1);
        for (uint32_t i = 0; i + 16 < n; i += 16) {
            same = _mm_and_si128(same, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(a + i)),
                                                      _mm_loadu_si128((const __m128i *)(b + i))));
        }
        same = _mm_and_si128(same, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(a + n - 16)),
                                                  _mm_loadu_si128((const __m128i *)(b + n - 16))));
        return _mm_movemask_epi8(same) == 0xffff;
    }
    if (n >= 8) {
        return ((find_load8(a) ^ find_load8(b)) | (find_load8(a + n - 8) ^ find_load8(b + n - 8))) == 0;
    }
    if (n >= 4) {
        return ((find_load4(a) ^ find_load4(b)) | (find_load4(a + n - 4) ^ find_load4(b + n - 4))) == 0;
    }
    return a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1];
}

/* The same for a key of KEY_INLINE bytes at most, without a call: false also where the header has it split. */
static inline bool find_same_short(const struct slot_header *h, const struct wanted *w)
{
    return h->key_size == w->size && h->ns == w->ns &&
           find_bytes_equal((const uint8_t *)h + offsetof(struct slot_header, key), w->key, w->size);
}

/* As lookup_key_equal says. */
static inline bool find_same_key(const struct lookup *l, const struct slot_header *h, const struct wanted *w)
{
    if (__builtin_expect(w->size <= KEY_INLINE && !(h->key_size & KEY_SPLIT), 1)) {
        return find_same_short(h, w);
    }
    return lookup_key_equal(l, h, (struct key_ref){.data = w->key, .size = w->size, .ns = w->ns});
}

/* A member of a group is ready when its leader is: all of them at one moment (PROTOCOLS rule 13). The link goes after
 * the leader's flip, so a leader that is not READY under a link that is gone by now was replaced since. */
static inline bool find_group_ready(const struct lookup *l, const struct slot_header *h)
{
    uint64_t link = atomic_load_explicit(&h->group, memory_order_acquire);
    if (__builtin_expect(link == 0, 1)) {
        return true;
    }
    if (link <= l->n_headers && word_state(slot_load(find_header(l, (uint32_t)link - 1))) == SLOT_READY) {
        return true;
    }
    return atomic_load_explicit(&h->group, memory_order_acquire) == 0;
}

static inline bool find_ready(const struct lookup *l, const struct slot_header *h)
{
    return word_state(slot_load(h)) == SLOT_READY && find_group_ready(l, h);
}

/* What to do with one entry of the key's tag. */
enum find_step { STEP_DONE, STEP_OTHER, STEP_AGAIN, STEP_FULL };

static inline enum find_step find_pin_entry(struct berth *b, struct client_thread *t, const struct wanted *w,
                                            const _Atomic uint64_t *at, struct found *out)
{
    const struct lookup *l = &b->lookup;
    uint64_t seen = atomic_load_explicit(at, memory_order_acquire);
    uint32_t slot = find_slot(l, seen, w->tag);
    if (slot == SLOT_NONE) {
        return STEP_OTHER;
    }
    const struct slot_header *h = find_header(l, slot);
    find_prefetch(h);
    uint32_t entry = pin_take(b, t, slot);
    if (__builtin_expect(entry == PIN_NONE, 0)) {
        return STEP_FULL;
    }
    bool ready = find_ready(l, h);
    if (__builtin_expect(ready && find_same_key(l, h, w), 1)) {
        *out = (struct found){.slot = slot, .entry = entry};
        return STEP_DONE;
    }
    pin_drop(b, t, entry);
    /* Ready, another key, and the entry still says so: two keys with one tag. */
    return ready && atomic_load_explicit(at, memory_order_acquire) == seen ? STEP_OTHER : STEP_AGAIN;
}

/* Ready now, without a pin: nothing of the header counts unless its word is the same before and after. */
static inline enum find_step find_peek_entry(const struct lookup *l, const struct wanted *w, const _Atomic uint64_t *at)
{
    uint64_t seen = atomic_load_explicit(at, memory_order_acquire);
    uint32_t slot = find_slot(l, seen, w->tag);
    if (slot == SLOT_NONE) {
        return STEP_OTHER;
    }
    const struct slot_header *h = find_header(l, slot);
    uint64_t word = slot_load(h);
    if (word_state(word) != SLOT_READY || !find_group_ready(l, h)) {
        return STEP_AGAIN;
    }
    bool same = find_same_key(l, h, w);
    atomic_thread_fence(memory_order_acquire);
    if (slot_load(h) != word) {
        return STEP_AGAIN;
    }
    if (same) {
        return STEP_DONE;
    }
    return atomic_load_explicit(at, memory_order_acquire) == seen ? STEP_OTHER : STEP_AGAIN;
}

/* One walk over home and the buckets behind it, as far as entries passed them. */
static inline enum find_step find_pin_walk(struct berth *b, struct client_thread *t, const struct wanted *w,
                                           struct found *out)
{
    for (uint32_t i = 0; i < LOOKUP_PROBES; i++) {
        const struct lookup_bucket *bucket = w->home + i;
        for (unsigned m = find_match(bucket, w->tag); m; m &= m - 1) {
            enum find_step step = find_pin_entry(b, t, w, find_entry(bucket, m), out);
            if (step != STEP_OTHER) {
                return step;
            }
        }
        if (atomic_load_explicit(&bucket->passed, memory_order_acquire) == 0) {
            break;
        }
    }
    return STEP_OTHER;
}

static inline enum find_step find_peek_walk(const struct lookup *l, const struct wanted *w)
{
    for (uint32_t i = 0; i < LOOKUP_PROBES; i++) {
        const struct lookup_bucket *bucket = w->home + i;
        for (unsigned m = find_match(bucket, w->tag); m; m &= m - 1) {
            enum find_step step = find_peek_entry(l, w, find_entry(bucket, m));
            if (step != STEP_OTHER) {
                return step;
            }
        }
        if (atomic_load_explicit(&bucket->passed, memory_order_acquire) == 0) {
            break;
        }
    }
    return STEP_OTHER;
}

/* Whether a miss must ask the node. Loaded before the walk: a key of the index only that gets an entry has its count
 * lowered after the entry is there, so a walk that missed the entry has seen the count. */
static inline bool find_must_ask(const struct wanted *w)
{
    return atomic_load_explicit(&w->home->ask, memory_order_acquire) != 0;
}

#endif
