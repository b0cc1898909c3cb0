/* lookup_hash.h: the hash of lookup, inline, and how an entry is made of it: for those who probe the table in a hurry.
 */
#ifndef BERTH_INDEX_LOOKUP_HASH_H
#define BERTH_INDEX_LOOKUP_HASH_H

#include "index/lookup.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static inline struct key_hash lookup_hash_inline(uint64_t seed, struct key_ref key)
{
    /* An odd constant keeps the seeds of different namespaces different. */
    return (struct key_hash){
        .home = XXH3_64bits_withSeed(key.data, key.size, seed + key.ns * UINT64_C(0x9e3779b97f4a7c15))};
}

static inline uint64_t lookup_entry(struct key_hash hash, uint32_t slot)
{
    return (hash.home & ~UINT64_C(0xffffffff)) | (slot + 1u);
}

/* Whether a loaded entry bears the hash's tag; an empty one may too, its slot is SLOT_NONE. */
static inline bool lookup_entry_tagged(uint64_t entry, struct key_hash hash)
{
    return entry >> 32 == hash.home >> 32;
}

static inline uint32_t lookup_entry_slot(uint64_t entry)
{
    return (uint32_t)entry - 1u;
}

#endif
