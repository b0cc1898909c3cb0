/* evict_heap.c: see evict_heap.h. Four children a node: an entry's children lie in one cache line or two. */
#include "store/evict_heap.h"

#include <stdlib.h>

#define WAYS 4u
#define ROOM_MIN 64u

static bool resize(struct evict_heap *h, uint32_t room)
{
    struct evict_entry *at = realloc(h->at, (size_t)room * sizeof *at);
    if (!at) {
        return false;
    }
    h->at = at;
    h->room = room;
    return true;
}

static uint32_t room_for(uint32_t n)
{
    return n + n / 16 + ROOM_MIN;
}

bool evict_heap_push(struct evict_heap *h, uint32_t slot, uint64_t stamp)
{
    if (h->n == h->room && !resize(h, room_for(h->n))) {
        return false;
    }
    struct evict_entry e = {.slot = slot, .stamp_low = (uint32_t)stamp, .stamp_high = (uint16_t)(stamp >> 32)};
    uint32_t i = h->n++;
    while (i > 0 && stamp < entry_stamp(&h->at[(i - 1) / WAYS])) {
        h->at[i] = h->at[(i - 1) / WAYS];
        i = (i - 1) / WAYS;
    }
    h->at[i] = e;
    return true;
}

static uint32_t least_child(const struct evict_heap *h, uint32_t i)
{
    uint32_t best = i * WAYS + 1, end = best + WAYS < h->n ? best + WAYS : h->n;
    for (uint32_t k = best + 1; k < end; k++) {
        best = entry_stamp(&h->at[k]) < entry_stamp(&h->at[best]) ? k : best;
    }
    return best;
}

void evict_heap_pop(struct evict_heap *h)
{
    struct evict_entry last = h->at[--h->n];
    uint32_t i = 0;
    while (i * WAYS + 1 < h->n) {
        uint32_t child = least_child(h, i);
        if (entry_stamp(&last) <= entry_stamp(&h->at[child])) {
            break;
        }
        h->at[i] = h->at[child];
        i = child;
    }
    if (h->n) {
        h->at[i] = last;
    }
    if (h->room > 4 * ROOM_MIN && h->n < h->room / 2) {
        resize(h, room_for(h->n));
    }
}

void evict_heap_free(struct evict_heap *h)
{
    free(h->at);
    *h = (struct evict_heap){0};
}

bool evict_heap_ordered(const struct evict_heap *h)
{
    for (uint32_t i = 1; i < h->n; i++) {
        if (entry_stamp(&h->at[i]) < entry_stamp(&h->at[(i - 1) / WAYS])) {
            return false;
        }
    }
    return true;
}
