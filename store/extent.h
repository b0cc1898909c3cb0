/* extent.h: free runs of numbers in [0, n): best fit, lowest first among equals, merged at once with their
 * neighbours.
 *
 * Slot headers and cells of tails are handed out by it. Bookkeeping is private memory, so a restart claims what is in
 * use and takes the rest for free. Part of the deterministic core: order depends on numbers only.
 *
 * Invariants (extents_check proves them):
 *   n = free numbers + used numbers, and no number is both
 *   two free runs never touch
 */
#ifndef BERTH_STORE_EXTENT_H
#define BERTH_STORE_EXTENT_H

#include <stdint.h>

#define EXTENT_NONE UINT32_MAX

struct extents;

/* All of [0, n) is free. max_runs: the most runs that can be free at a time. 0 or -ENOMEM. */
int extents_create(struct extents **out, uint32_t n, uint32_t max_runs);
void extents_destroy(struct extents *e);

/* First number of the smallest free run that holds `size`, cut from its beginning, or EXTENT_NONE. */
uint32_t extents_take(struct extents *e, uint32_t size);
void extents_give(struct extents *e, uint32_t start, uint32_t size);

/* At recovery, before anything is taken: this run is in use. -EEXIST if it overlaps another, -EINVAL if it is out of
 * range. Claims count from extents_recovered on, after which there is no claiming any more. */
int extents_claim(struct extents *e, uint32_t start, uint32_t size);
void extents_recovered(struct extents *e);

uint32_t extents_free(const struct extents *e);

/* used: a bit for every number, set where it is in use. NULL, or a sentence about the first thing that is wrong. */
const char *extents_check(const struct extents *e, const uint64_t *used);

#endif
