/* units.c: buddies by bit arithmetic: an aligned block of up to 32 units lies in one word of 64.
 *
 * free[k] has a bit at the first unit of every aligned free block of order k; a pair of buddies whose border is no
 * MR's border makes one of order k + 1. Only words are indexed by order, what is inside follows from the word itself,
 * so there is no list that could disagree with the bits.
 */
#include "store/units.h"

#include <errno.h>
#include <stdlib.h>

#define TOP (UNITS_ORDERS - 1)
#define SLAB_LARGEST (1u << TOP) /* units of the largest block */

static const uint64_t aligned[UNITS_ORDERS] = {
    UINT64_MAX,
    UINT64_C(0x5555555555555555),
    UINT64_C(0x1111111111111111),
    UINT64_C(0x0101010101010101),
    UINT64_C(0x0001000100010001),
    UINT64_C(0x0000000100000001),
};

/* Blocks of each order that are no half of a larger free block. */
static void blocks_of(const struct units *t, uint64_t word, uint64_t whole[UNITS_ORDERS])
{
    uint64_t joined = t->joined[word];
    uint64_t now = t->avail.level[0][word];
    for (unsigned k = 0; k < TOP; k++) {
        unsigned half = 1u << k;
        uint64_t next = now & now >> half & joined >> half & aligned[k + 1];
        whole[k] = now & ~(next | next << half);
        now = next;
    }
    whole[TOP] = now;
}

static void word_changed(struct units *t, uint64_t word)
{
    uint64_t whole[UNITS_ORDERS];
    blocks_of(t, word, whole);
    for (unsigned k = 0; k < UNITS_ORDERS; k++) {
        if (whole[k] != 0)
            bits_set(&t->top[k], word);
        else
            bits_clear(&t->top[k], word);
    }
}

int units_create(struct units *t, uint32_t n, uint32_t mr_units)
{
    uint64_t words = (uint64_t)n / 64 + 1;
    *t = (struct units){.n = n, .mr = mr_units};
    t->joined = calloc(words, sizeof(uint64_t));
    int e = t->joined == NULL ? -ENOMEM : bits_create(&t->avail, n);
    for (unsigned k = 0; k < UNITS_ORDERS && e == 0; k++)
        e = bits_create(&t->top[k], words);
    if (e != 0) {
        units_destroy(t);
        return e;
    }
    for (uint64_t u = 0; u < n; u++) {
        if (u % mr_units != 0)
            t->joined[u >> 6] |= UINT64_C(1) << (u & 63);
    }
    return 0;
}

void units_destroy(struct units *t)
{
    for (unsigned k = 0; k < UNITS_ORDERS; k++)
        bits_destroy(&t->top[k]);
    bits_destroy(&t->avail);
    free(t->joined);
    t->joined = NULL;
}

static void words_changed(struct units *t, uint32_t unit, uint32_t n)
{
    for (uint64_t w = unit >> 6; w <= (unit + n - 1) >> 6; w++)
        word_changed(t, w);
}

void units_give(struct units *t, uint32_t unit, uint32_t n)
{
    bits_set_range(&t->avail, unit, n);
    words_changed(t, unit, n);
}

void units_take(struct units *t, uint32_t unit, uint32_t n)
{
    bits_clear_range(&t->avail, unit, n);
    words_changed(t, unit, n);
}

/* Bits of the units of this word at which a block of n can begin within [from, to). */
static uint64_t begins(uint64_t word, uint32_t n, uint32_t from, uint32_t to)
{
    uint64_t first = word << 6, bits = UINT64_MAX;
    if (to < n || from > to - n || to - n < first)
        return 0;
    if (from > first)
        bits &= UINT64_MAX << (from - first);
    if (to - n - first < 63)
        bits &= (UINT64_C(1) << (to - n - first + 1)) - 1;
    return bits;
}

/* The only block of 2^order within [from, to) that may be a part of one that begins before `from`. */
static uint32_t block_at_border(const struct units *t, unsigned order, uint32_t from, uint32_t to)
{
    uint64_t n = UINT64_C(1) << order, at = (from + n - 1) / n * n;
    if (from % SLAB_LARGEST == 0 || at + n > to)
        return UNITS_NONE;
    uint64_t joined = t->joined[at >> 6] >> (at & 63) | 1, free = t->avail.level[0][at >> 6] >> (at & 63);
    uint64_t all = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    return (joined & free & all) == all ? (uint32_t)at : UNITS_NONE;
}

uint32_t units_find_block(const struct units *t, unsigned order, uint32_t from, uint32_t to)
{
    for (unsigned k = order; k < UNITS_ORDERS; k++) {
        for (uint64_t word = bits_next(&t->top[k], from >> 6); word != BITS_NONE && word << 6 < to;
             word = bits_next(&t->top[k], word + 1)) {
            uint64_t whole[UNITS_ORDERS];
            blocks_of(t, word, whole);
            uint64_t fit = whole[k] & begins(word, 1u << order, from, to);
            if (fit != 0)
                return (uint32_t)(word << 6) + (uint32_t)__builtin_ctzll(fit);
        }
    }
    return block_at_border(t, order, from, to);
}

uint32_t units_mr_end(const struct units *t, uint32_t unit)
{
    uint64_t end = ((uint64_t)unit / t->mr + 1) * t->mr;
    return end < t->n ? (uint32_t)end : t->n;
}

/* End of the free run that begins with the free unit `unit`. */
static uint32_t run_end(const struct units *t, uint32_t unit)
{
    uint32_t limit = units_mr_end(t, unit), u = unit;
    while (u < limit) {
        uint64_t taken = ~t->avail.level[0][u >> 6] >> (u & 63);
        if (taken != 0) {
            u += (uint32_t)__builtin_ctzll(taken);
            break;
        }
        u += 64 - (u & 63);
    }
    return u < limit ? u : limit;
}

uint32_t units_find_run(const struct units *t, uint32_t n, uint32_t from, uint32_t to)
{
    uint64_t u = bits_next(&t->avail, from);
    while (u < to) {
        uint32_t end = run_end(t, (uint32_t)u);
        if ((end < to ? end : to) - u >= n)
            return (uint32_t)u;
        u = bits_next(&t->avail, end);
    }
    return UNITS_NONE;
}

uint32_t units_longest(const struct units *t)
{
    uint32_t longest = 0;
    uint64_t u = bits_next(&t->avail, 0);
    while (u != BITS_NONE) {
        uint32_t end = run_end(t, (uint32_t)u);
        if (end - u > longest)
            longest = end - (uint32_t)u;
        u = bits_next(&t->avail, end);
    }
    return longest;
}

const char *units_check(const struct units *t)
{
    for (uint64_t w = 0; w <= t->n / 64; w++) {
        uint64_t whole[UNITS_ORDERS];
        blocks_of(t, w, whole);
        for (unsigned k = 0; k < UNITS_ORDERS; k++) {
            if (bits_test(&t->top[k], w) != (whole[k] != 0))
                return "the index of free blocks disagrees with the free units";
        }
    }
    return bits_next(&t->avail, t->n) == BITS_NONE ? NULL : "a unit beyond the pool is free";
}
