/* bits.c: making, filling and clearing the sets of bits.h. */
#include "store/bits.h"

#include <errno.h>
#include <stdlib.h>

int bits_create(struct bits *b, uint64_t n)
{
    struct bits made = {0};
    do {
        uint64_t words = n / 64 + 1; /* one more than members need: bits_next may look at n */
        made.level[made.levels] = calloc(words, sizeof(uint64_t));
        if (made.level[made.levels++] == NULL) {
            bits_destroy(&made);
            return -ENOMEM;
        }
        n = words;
    } while (n > 1);
    *b = made;
    return 0;
}

void bits_destroy(struct bits *b)
{
    for (unsigned l = 0; l < b->levels; l++)
        free(b->level[l]);
    b->levels = 0;
}

static uint64_t mask_of(uint64_t from, uint64_t n)
{
    uint64_t mask = n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    return mask << (from & 63);
}

/* The part of [from, from + n) that lies in the word of `from`. */
static uint64_t part_of(uint64_t from, uint64_t n)
{
    uint64_t room = 64 - (from & 63);
    return n < room ? n : room;
}

void bits_set_range(struct bits *b, uint64_t from, uint64_t n)
{
    while (n > 0) {
        uint64_t part = part_of(from, n);
        bits_set(b, from);
        b->level[0][from >> 6] |= mask_of(from, part);
        from += part;
        n -= part;
    }
}

void bits_clear_range(struct bits *b, uint64_t from, uint64_t n)
{
    while (n > 0) {
        uint64_t part = part_of(from, n);
        b->level[0][from >> 6] &= ~mask_of(from, part);
        bits_clear(b, from);
        from += part;
        n -= part;
    }
}
