/* region_space.h: whether a region, or what it is to grow by, finds room, before anything is removed or allocated. */
#ifndef BERTH_SHELL_REGION_SPACE_H
#define BERTH_SHELL_REGION_SPACE_H

#include "store/shell/region_files.h"

/* For a new region of this shape in r's directory; freed: bytes of r's own files that go before. What dead embedded
 * nodes left beside it is removed if that gives the room that is missing, and then only. A region that another node may
 * start over again is never removed: where those that do not run have what is missing, why[] names the largest, its
 * size, and the command that removes it. 0; -ENOSPC, -ENOMEM, -EPERM as space_check. */
int region_space(const struct region *r, const struct settings *s, const struct region_shape *shape, uint64_t freed,
                 char *why, size_t why_size);
/* For a pool of r that is there to have `bytes` more, and the settings' size in all. 0; as space_check. */
int region_space_grow(const struct region *r, const struct settings *s, uint64_t bytes, char *why, size_t why_size);
/* For the index of r to become as large as the settings say. 0; -ENOSPC with the sentence. */
int region_space_index(const struct region *r, const struct settings *s, char *why, size_t why_size);
/* The sentence for an index of so many bytes that found none. -ENOSPC. */
int region_space_refuse_index(const struct region *r, uint64_t bytes, char *why, size_t why_size);

#endif
