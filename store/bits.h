/* bits.h: a set of small integers that finds its next member in a few loads, however large it is.
 *
 * Level 0 has a bit a member; a bit of level l + 1 says that the word below it is not zero. The node core alone uses
 * it, on one thread: there are no atomics here.
 */
#ifndef BERTH_STORE_BITS_H
#define BERTH_STORE_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define BITS_LEVELS 6u /* 64^6 members */
#define BITS_NONE UINT64_MAX

struct bits {
    uint64_t *level[BITS_LEVELS];
    unsigned levels;
};

/* An empty set of numbers in [0, n). 0 or -ENOMEM. Memory is touched where members are. */
int bits_create(struct bits *b, uint64_t n);
void bits_destroy(struct bits *b);

void bits_set_range(struct bits *b, uint64_t from, uint64_t n);
void bits_clear_range(struct bits *b, uint64_t from, uint64_t n);

static inline bool bits_test(const struct bits *b, uint64_t i)
{
    return b->level[0][i >> 6] >> (i & 63) & 1;
}

static inline void bits_set(struct bits *b, uint64_t i)
{
    for (unsigned l = 0; l < b->levels; l++) {
        uint64_t *word = &b->level[l][i >> 6];
        uint64_t before = *word;
        *word = before | UINT64_C(1) << (i & 63);
        if (before != 0)
            return;
        i >>= 6;
    }
}

static inline void bits_clear(struct bits *b, uint64_t i)
{
    for (unsigned l = 0; l < b->levels; l++) {
        uint64_t *word = &b->level[l][i >> 6];
        *word &= ~(UINT64_C(1) << (i & 63));
        if (*word != 0)
            return;
        i >>= 6;
    }
}

/* The lowest member that is at least `from` (at most n); BITS_NONE if there is none. */
static inline uint64_t bits_next(const struct bits *b, uint64_t from)
{
    for (unsigned l = 0; l < b->levels; l++) {
        uint64_t word = b->level[l][from >> 6] >> (from & 63);
        if (word != 0) {
            from += (uint64_t)__builtin_ctzll(word);
            while (l-- > 0)
                from = from << 6 | (uint64_t)__builtin_ctzll(b->level[l][from]);
            return from;
        }
        from = (from >> 6) + 1;
    }
    return BITS_NONE;
}

#endif
