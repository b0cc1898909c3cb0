/* evict_heap.h: a heap of slots by a stamp of 48 bits, the smallest first. Part of the deterministic core.
 *
 * 10 bytes an entry, and at most a sixteenth and 64 entries of room beside them; what shrinks to less than half gives
 * its memory back. Equal stamps come in an order that depends on the calls alone.
 */
#ifndef BERTH_STORE_EVICT_HEAP_H
#define BERTH_STORE_EVICT_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct evict_entry {
    uint32_t slot;
    uint32_t stamp_low;
    uint16_t stamp_high;
} __attribute__((packed));

struct evict_heap {
    struct evict_entry *at;
    uint32_t n, room; /* entries */
};

static inline uint64_t entry_stamp(const struct evict_entry *e)
{
    return (uint64_t)e->stamp_high << 32 | e->stamp_low;
}

/* false without memory: nothing has changed. */
bool evict_heap_push(struct evict_heap *h, uint32_t slot, uint64_t stamp);
/* The smallest; n must not be 0. */
void evict_heap_pop(struct evict_heap *h);
void evict_heap_free(struct evict_heap *h);
/* Whether every entry is at least its parent. */
bool evict_heap_ordered(const struct evict_heap *h);

#endif
