/* evict_ghost.h: what is remembered of keys that were evicted. Part of the deterministic core.
 *
 * 8 bytes a key, GHOSTS_MAX keys at most: 2 MiB. Sets of 8: a new one takes the place of the oldest of its set. Where
 * more keys go than it can remember long enough, it has one in 2^shift of them, chosen by the key: each stands for all.
 */
#ifndef BERTH_STORE_EVICT_GHOST_H
#define BERTH_STORE_EVICT_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GHOSTS_MAX (1u << 18)

struct ghosts {
    uint64_t *at; /* 0: nothing; tag 32, stamp / 64 modulo 2^24, class 4, uses 4 */
    size_t bytes;
    uint32_t mask; /* keys, less one */
};

struct ghost {
    uint64_t age; /* of its last use, in stamps, to 64 of them */
    uint8_t class, uses;
};

/* 0 or -ENOMEM. */
int ghosts_init(struct ghosts *g, uint32_t max_slots);
void ghosts_free(struct ghosts *g);

/* How few keys are remembered when `live` are there: one in 2^shift. */
uint32_t ghosts_shift(const struct ghosts *g, uint64_t live);
static inline bool ghosts_has(uint64_t key, uint32_t shift)
{
    return (key >> 40 & ((UINT64_C(1) << shift) - 1)) == 0;
}

/* last: the stamp of its last use, now: the stamp now. uses: 15 at most. */
void ghosts_add(struct ghosts *g, uint64_t key, uint64_t last, uint64_t now, uint8_t class, uint8_t uses);
/* false: it is not known, or its last use is more than 2^29 stamps ago. */
bool ghosts_find(struct ghosts *g, uint64_t key, uint64_t now, struct ghost *out);
/* Takes the key out as well. */
bool ghosts_take(struct ghosts *g, uint64_t key, uint64_t now, struct ghost *out);

#endif
