/* region_resize.h: a pool of another size under the objects of a region, between two nodes.
 *
 * Objects stay where they are, in the same files. A larger pool gets its pages first, then the superblock says so. From
 * a smaller one everything beyond the new end is taken out of slots and directory first, then the superblock says so,
 * then the file is cut. A node that is killed in between leaves a pool file that is longer than the superblock says,
 * which the next start cuts (region_pool_cut), or records without an object, which it drops. The index is not written.
 */
#ifndef BERTH_SHELL_REGION_RESIZE_H
#define BERTH_SHELL_REGION_RESIZE_H

#include "store/shell/region_files.h"

struct resize {
    uint64_t old_bytes, new_bytes; /* of the pool */
    uint32_t old_units, new_units;
    uint32_t end;     /* first unit that goes: of the slab or run that reaches over the new end, or that itself */
    uint32_t headers; /* one above the highest that a slab of the directory has */
    uint64_t lost, lost_bytes; /* objects beyond the end */
    uint64_t held, held_bytes; /* those of them that have holds */
};

/* Whether the settings' pool can take the place of the region's, which is open, and what that costs. Changes nothing
 * but memory of slot headers. 0; -EINVAL (objects would be lost that `shrink` does not allow to lose, or the directory
 * has no room for so large a pool: why[] names the flag or the way out); -EBUSY (a client that lives reads or writes
 * beyond the end: why[] names it); -ENOSPC, -ENOMEM, -EPERM as space_check; -EIO. */
int region_resize_plan(struct region *r, const struct settings *s, const struct region_shape *shape, struct resize *out,
                       char *why, size_t why_size);

/* Does it; then shape has the new sizes, r->resized is set and r->resize_note says what was done and lost. An error of
 * region_resize_plan, -ECANCELED, or another errno: the pool has its old size and every object that it had. */
int region_resize(struct region *r, const struct settings *s, struct region_shape *shape, const struct resize *plan,
                  const struct mem_progress *progress, char *why, size_t why_size);

/* Cuts a pool file to the superblock's size, from which an interrupted resize left it different. 0 or -errno. */
int region_pool_cut(const struct region *r, uint64_t bytes);

#endif
