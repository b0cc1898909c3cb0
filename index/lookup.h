/* lookup.h: the shared hash table from key to slot that readers use without a system call or a lock.
 *
 * A projection of the index, written by the node alone. Entries are single 8-byte atomics that never move between
 * buckets: a replace stores the new slot in place, a bucket's `passed` is raised before an entry behind it is stored
 * and lowered after it was cleared. So a reader that probes home, then on while passed > 0, sees every entry that was
 * there throughout, without a sequence word. It loads home's `ask` first of all: an index-only key that gets an entry
 * later has its `ask` lowered after the entry was stored, so that who loads 0 before probing finds the entry, who loads
 * it after probing might miss both. What an entry says is a hint: only the header under a validated pin proves it.
 */
#ifndef BERTH_INDEX_LOOKUP_H
#define BERTH_INDEX_LOOKUP_H

#include "index/record.h"
#include "store/slot.h"

struct lookup { /* one process's view of the table and of what its entries point to */
    struct lookup_super *super;
    struct lookup_bucket *buckets;
    const struct slot_header *headers;
    const uint8_t *tails; /* cells; NULL where keys are all short */
    uint64_t mask;
    uint64_t seed;
    uint32_t n_headers;
    uint32_t n_tails;
};

struct key_hash {
    uint64_t home; /* the low bits choose the bucket, the upper half is the tag */
};

/* Bytes of the file for a table that holds `objects` at 3/4 load. */
uint64_t lookup_bytes(uint64_t objects);
void lookup_format(void *map, uint64_t bytes, const uint8_t uuid[16], uint64_t seed);
/* -EPROTO if magic, format, fingerprint or sizes do not fit `bytes`. */
int lookup_attach(struct lookup *l, void *map, uint64_t bytes);

/* XXH3-64, the namespace in the seed. lookup_hash.h has it inline. */
struct key_hash lookup_hash(uint64_t seed, struct key_ref key);

/* Cells of tails that an object's header says are its own: *cell the first, the number returned (0: none). What a
 * header says is not believed: a run that is no run of this file is 0 cells with *cell SLOT_NONE. */
uint32_t lookup_cells(const struct lookup *l, const struct slot_header *h, uint32_t *cell);

/* Checksums of the object's segments, *count of them, if it has segments and its cells hold the list whose XXH3-64 its
 * header's checksum is; else NULL with *count 0 for an object without segments or of no bytes, UINT32_MAX for a list
 * that proves nothing. Only under a validated pin, or for the node. */
const uint64_t *lookup_sums(const struct lookup *l, const struct slot_header *h, uint32_t *count);

/* Whether the header's key is this key. Only under a validated pin, or between two equal loads of its word. */
bool lookup_key_equal(const struct lookup *l, const struct slot_header *h, struct key_ref key);

/* The header's key, its bytes in place or put together in buf; the same conditions. false: it has none that can be one.
 */
bool lookup_key(const struct lookup *l, const struct slot_header *h, uint8_t buf[KEY_MAX], struct key_ref *out);

/* The key is looked for soon: its bucket begins to come. */
static inline void lookup_ahead(const struct lookup *l, struct key_hash hash)
{
    __builtin_prefetch(&l->buckets[hash.home & l->mask]);
}

/* The node's side. FIND: slot, or SLOT_NONE with *ask true if the key may be in the index only. A key with the same 64
 * bits that is not this key sets *collides (PROTOCOLS rule 5). Either pointer may be NULL. */
uint32_t lookup_find(const struct lookup *l, struct key_hash hash, struct key_ref key, bool *ask, bool *collides);
/* Stores key -> slot: in place where `old` is the slot that the entry has now (SLOT_NONE: a new entry). false: no room
 * within 8 buckets, home's `ask` was raised: the key is in the index only. */
bool lookup_store(struct lookup *l, struct key_hash hash, uint32_t old, uint32_t slot);
/* Clears the entry that has this slot; where there is none, lowers home's `ask`. */
void lookup_clear(struct lookup *l, struct key_hash hash, uint32_t slot);

/* Whether a reader that probes for this hash comes to an entry of this slot. */
bool lookup_has(const struct lookup *l, struct key_hash hash, uint32_t slot);

/* At restart, in place under live readers: begin, one keep for every record (stores it if absent), end clears every
 * entry that no keep confirmed and sets passed and ask to what is there. -ENOMEM. */
struct lookup_repair;
int lookup_repair_begin(struct lookup *l, struct lookup_repair **out);
/* The key is kept soon: what that reads begins to come. */
void lookup_repair_ahead(const struct lookup_repair *r, struct key_hash hash);
void lookup_repair_keep(struct lookup_repair *r, struct key_hash hash, uint32_t slot);
uint64_t lookup_repair_end(struct lookup_repair *r); /* entries cleared or added */

/* Every entry: calls back with its slot, until non-zero. */
int lookup_each(const struct lookup *l, int (*each)(void *arg, uint32_t slot), void *arg);

#endif
