/* read.h: pinning one key or a batch, beneath the functions of berth.h. */
#ifndef BERTH_STORE_READ_H
#define BERTH_STORE_READ_H

#include "store/find.h"
#include "store/stat.h"
#include "store/touch.h"

#define READ_BATCH 32u /* keys whose cache misses overlap */

/* Among the flags of functions here, never of public calls. Each get counts once: as a hit, as pulled, or as a miss. */
#define READ_LOOK (1u << 30)   /* that it is not here is no miss yet: the caller asks further, and counts */
#define READ_PULLED (1u << 29) /* a pull brought it: what is found counts as pulled */

/* After a first walk that did not end in a pin: again, bounded, then by asking the node. 0 or a negative error,
 * recorded for nothing but a missing node. */
int read_pin_slowly(struct berth *b, struct client_thread *t, const struct wanted *w, int64_t deadline,
                    struct found *out);

/* Pins n keys, READ_BATCH at most: all hashes, then all buckets, then all headers are on their way before the first is
 * looked at. status[i]: 0 or a negative error. */
void read_pin_batch(struct berth *b, struct client_thread *t, const struct berth_key *keys, uint32_t n,
                    int64_t deadline, struct found *out, int *status);

/* Whether lookup has the key ready now; false may also mean that only the node knows. */
bool read_there(struct berth *b, struct client_thread *t, const struct berth_key *key);

/* 1 ready, 0 not, for n keys, READ_BATCH at most. */
void read_peek_batch(struct berth *b, struct client_thread *t, const struct berth_key *keys, uint32_t n,
                     uint8_t *present);

/* What get, get_into and get_range begin with: 0, or the error recorded. out: where the result goes. */
int read_check_get(struct berth *b, const struct berth_key *key, const void *out, unsigned flags);
/* Pins and accepts one key, waiting for it where flags say so, counted and touched: 0, or the error recorded. */
int read_pin(struct berth *b, struct client_thread *t, const struct berth_key *key, unsigned flags, int64_t deadline,
             struct found *f);

/* The reads of a queue's operation, arguments checked, for flags that never ask peers nor wait; count: READ_LOOK,
 * READ_PULLED or 0. As the public calls return. */
int read_get(struct berth *b, const struct berth_key *key, struct berth_view *view, unsigned flags, unsigned count,
             int64_t deadline);
long read_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags, unsigned count,
               int64_t deadline);
long read_range(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                unsigned flags, unsigned count, int64_t deadline);
/* A get that READ_LOOK left uncounted, and that got its bytes by a pull without the pool, or nothing. */
static inline void read_count_pulled(struct berth *b, struct client_thread *t, uint64_t bytes)
{
    stat_add(b, t, LANE_PULLED, 1);
    stat_add(b, t, LANE_PULLED_BYTES, bytes);
}
static inline void read_count_missed(struct berth *b, struct client_thread *t)
{
    stat_add(b, t, LANE_MISSES, 1);
}

/* What pulls brought of a batch. Where a call looks again and again, it may be more than what it ends with. */
struct read_brought {
    size_t n;
    uint64_t bytes;
};
/* Tells the node that v[0 .. n) are used, and of a run that each is the parent of the next; counts `found` of them, as
 * pulled where they are in *got. */
void read_touch_views(struct berth *b, struct client_thread *t, const struct berth_view *v, size_t n, bool run);
void read_count_views(struct berth *b, struct client_thread *t, const struct berth_view *v, size_t found, size_t n,
                      const struct read_brought *got);

/* A set of segments. */
struct read_segments {
    uint64_t bits[SEGMENTS_MAX / 64];
};

/* Whether the payload under a pin is what was sealed: those of its segments that `some` has, or all (NULL); where it
 * has none, all of it. */
bool read_whole(const struct berth *b, const struct slot_header *h, const struct read_segments *some);

static inline const uint8_t *read_payload(const struct berth *b, const struct slot_header *h)
{
    return b->pool + (uint64_t)h->page * PAGE_BYTES;
}

static inline bool read_bounded(const struct berth *b, const struct slot_header *h)
{
    return (uint64_t)h->page * PAGE_BYTES + h->size <= b->pool_bytes;
}

/* Whether this handle may have what it pinned, and with BERTH_VERIFY whether the payload is whole: 0, or why not. */
int read_accept_slowly(struct berth *b, struct client_thread *t, struct found f, unsigned flags);

static inline bool read_plain(const struct berth *b, const struct slot_header *h)
{
    return read_bounded(b, h) && (!b->lineage || h->lineage == b->lineage);
}

static inline int read_accept(struct berth *b, struct client_thread *t, struct found f, unsigned flags)
{
    bool plain = !(flags & BERTH_VERIFY) && read_plain(b, find_header(&b->lookup, f.slot));
    return __builtin_expect(plain, 1) ? 0 : read_accept_slowly(b, t, f, flags);
}

static inline bool read_refused(const struct berth *b)
{
    return atomic_load_explicit(&b->pins->refuse, memory_order_relaxed);
}

_Static_assert(offsetof(struct slot_header, lineage) == offsetof(struct slot_header, checksum) + 8 &&
                   offsetof(struct berth_view, lineage) == offsetof(struct berth_view, checksum) + 8,
               "copied as one");

/* Of a version that another region gave: under the pin the entry stays. */
static inline uint64_t read_region(const struct berth *b, uint16_t index)
{
    const struct slots_super *s = b->slots.base;
    return index < REGIONS_MAX ? atomic_load_explicit(&s->region_ids[index], memory_order_relaxed) : 0;
}

/* The reserved fields stay as they are: every store between two pins costs, since the exchange drains them all. */
static inline void read_view(const struct berth *b, const struct slot_header *h, struct found f, struct berth_view *v)
{
    uint64_t counter = __atomic_load_n(&h->version, __ATOMIC_RELAXED), region = b->region_id;
    uint32_t size = h->size;
    if (__builtin_expect(h->region != 0, 0)) {
        region = read_region(b, h->region);
    }
    v->data = read_payload(b, h);
    v->size = size;
    v->version.counter = counter;
    v->version.region = region;
    memcpy(&v->checksum, &h->checksum, 16);
    v->slot = f.slot;
    v->entry = f.entry;
    v->status = 0;
}

#endif
