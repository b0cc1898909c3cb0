/* stat.h: counters of local reads, which no message tells the node of: it adds up the lanes of the pin files. */
#ifndef BERTH_STORE_STAT_H
#define BERTH_STORE_STAT_H

#include "store/client.h"
#include "store/thread.h"

/* One get in 1,024 is timed: the first after every 64th turn. */
#define STAT_TURNS (1024u / THREAD_TURN)

static inline struct stat_lane *stat_lane(struct berth *b, const struct client_thread *t)
{
    return (struct stat_lane *)((uint8_t *)b->pins + t->lane_at);
}

/* A thread's own lane has one writer: no locked operation. */
static inline void stat_add(struct berth *b, const struct client_thread *t, enum lane_counter which, uint64_t n)
{
    _Atomic uint64_t *c = &stat_lane(b, t)->counter[which];
    if (__builtin_expect(t->shared, 0)) {
        atomic_fetch_add_explicit(c, n, memory_order_relaxed);
    } else {
        atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
    }
}

/* A get of a thread that has a lane of its own: it alone loads and stores these in this process, and the node reads the
 * file. Plain additions, of one instruction each, are on the way of every get. */
static inline void stat_hit(struct berth *b, const struct client_thread *t, uint64_t bytes)
{
    uint64_t *counter = (uint64_t *)stat_lane(b, t)->counter;
    counter[LANE_HITS]++;
    counter[LANE_HIT_BYTES] += bytes;
}

static inline void stat_get_ns(struct berth *b, const struct client_thread *t, int64_t ns)
{
    unsigned bucket = ns > 0 ? 63u - (unsigned)__builtin_clzll((unsigned long long)ns) : 0;
    stat_add(b, t, LANE_SAMPLES, 1);
    atomic_fetch_add_explicit(&stat_lane(b, t)->get_ns[bucket < 31 ? bucket : 31], 1, memory_order_relaxed);
}

#endif
