/* slot.h: the state word of a slot header.
 *
 * 8 bits of state, 56 of generation. The generation grows at every return to FREE, aborts included: a token or an
 * index record that names (slot, generation) can never mean a later use of the slot.
 */
#ifndef BERTH_STORE_SLOT_H
#define BERTH_STORE_SLOT_H

#include "store/layout.h"

#include <stdbool.h>

enum slot_state {
    SLOT_FREE = 0,    /* nobody's; the allocator may hand it out */
    SLOT_WRITING = 1, /* a session's: granted, or a draft */
    SLOT_READY = 2,   /* sealed, readable under a pin */
    SLOT_RETIRED = 3  /* out of the index; waits until nobody reads it */
};

static inline uint64_t slot_word(uint64_t gen, enum slot_state state)
{
    return gen << 8 | (uint64_t)state;
}

static inline uint64_t word_gen(uint64_t word)
{
    return word >> 8;
}

static inline enum slot_state word_state(uint64_t word)
{
    return (enum slot_state)(word & 0xff);
}

/* The pin protocol (pin.h) needs this load after its exchange, and the store of RETIRED before the node's fence,
 * in one total order: both seq_cst. */
static inline uint64_t slot_load(const struct slot_header *h)
{
    return atomic_load_explicit(&h->word, memory_order_seq_cst);
}

static inline void slot_store(struct slot_header *h, uint64_t gen, enum slot_state state)
{
    atomic_store_explicit(&h->word, slot_word(gen, state), memory_order_seq_cst);
}

#endif
