/* units.h: which 2 MiB units of the pool may be given: aligned blocks of 1 to 32 and runs of any length.
 *
 * Neither crosses a multiple of the MR's size. A block comes from the smallest aligned free block that holds it, lowest
 * first; a run from the lowest place where it fits. Part of the deterministic core.
 */
#ifndef BERTH_STORE_UNITS_H
#define BERTH_STORE_UNITS_H

#include "store/bits.h"

#define UNITS_ORDERS 6u /* blocks of 1, 2, 4 .. 32 units */
#define UNITS_NONE UINT32_MAX

struct units {
    uint32_t n;
    uint32_t mr;                   /* units of an MR */
    struct bits avail;             /* units that may be given */
    struct bits top[UNITS_ORDERS]; /* words of avail with a free block of this order that is no half of a larger one */
    uint64_t *joined;              /* bit u: u - 1 and u lie in one MR */
};

/* None may be given yet. 0 or -ENOMEM. */
int units_create(struct units *t, uint32_t n, uint32_t mr_units);
void units_destroy(struct units *t);

void units_give(struct units *t, uint32_t unit, uint32_t n);
void units_take(struct units *t, uint32_t unit, uint32_t n);

/* Where a block of 2^order units is, or a run of n, whole within [from, to); it stays free. UNITS_NONE: nowhere. */
uint32_t units_find_block(const struct units *t, unsigned order, uint32_t from, uint32_t to);
uint32_t units_find_run(const struct units *t, uint32_t n, uint32_t from, uint32_t to);

/* Units of the longest run. */
uint32_t units_longest(const struct units *t);

/* First unit behind the MR of `unit`, or the end of the pool. */
uint32_t units_mr_end(const struct units *t, uint32_t unit);

const char *units_check(const struct units *t);

#endif
