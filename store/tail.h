/* tail.h: 64-byte cells for what doesn't fit a slot header: the rest of keys above 70 bytes, checksums of
 * segments.
 *
 * Runs of 1 to 136 cells (a run is exactly the cells asked for: 7 of a key and 128 of segments at the most), private
 * bookkeeping, so a restart rebuilds it from the headers that name cells. Part of the deterministic core.
 */
#ifndef BERTH_STORE_TAIL_H
#define BERTH_STORE_TAIL_H

#include <stdint.h>

#define TAIL_NONE UINT32_MAX
#define TAIL_RUN_MAX 136u

struct tails;

/* cells: the mapped file, n of them; grow makes cells [0, n) usable: 0 or -ENOSPC. 0 or -ENOMEM. */
int tails_create(struct tails **out, uint8_t *cells, uint32_t n, int (*grow)(void *env, uint32_t cells), void *env);
void tails_destroy(struct tails *t);

/* First cell of a run, or TAIL_NONE when there is no room. */
uint32_t tails_alloc(struct tails *t, uint32_t cells);
void tails_free(struct tails *t, uint32_t cell, uint32_t cells);

/* At recovery, before any alloc: this run is in use. -EEXIST if it overlaps another, -EINVAL if out of range. After the
 * last one, tails_recovered makes everything else free. */
int tails_claim(struct tails *t, uint32_t cell, uint32_t cells);
void tails_recovered(struct tails *t);

uint8_t *tails_at(struct tails *t, uint32_t cell);
uint32_t tails_used(const struct tails *t);

#endif
