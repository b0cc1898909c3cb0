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

/* ---- segments and cells ---- */

static inline uint32_t slot_key_size(const struct slot_header *h)
{
    return h->key_size & ~KEY_SPLIT;
}

/* log2 of the segment size; 0: one segment, without a checksum of its own. */
static inline uint32_t slot_segment(const struct slot_header *h)
{
    return h->tier_segment & 63u;
}

/* Whether objects of this size can have such segments. */
static inline bool segments_possible(uint64_t size, uint32_t shift)
{
    return shift >= SEGMENT_SHIFT_MIN && shift <= SEGMENT_SHIFT_MAX && size <= (uint64_t)SEGMENTS_MAX << shift;
}

/* Segments of an object, the last one may be shorter; 0 where shift is. */
static inline uint32_t segments_of(uint64_t size, uint32_t shift)
{
    return shift ? (uint32_t)((size + (UINT64_C(1) << shift) - 1) >> shift) : 0;
}

/* Cells of tails that the rest of a key takes: of one that fits the header none, unless segments need `tail`. */
static inline uint32_t cells_of_key(uint32_t key_size, uint32_t segments)
{
    return key_size > (segments ? KEY_HEAD : KEY_INLINE) ? (key_size - KEY_HEAD + TAIL_CELL - 1) / TAIL_CELL : 0;
}

static inline uint32_t cells_of_segments(uint32_t segments)
{
    return (segments * (uint32_t)sizeof(uint64_t) + TAIL_CELL - 1) / TAIL_CELL;
}

#endif
