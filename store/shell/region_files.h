/* region_files.h: the files of a region: their sizes, making them, taking over what is there. */
#ifndef BERTH_SHELL_REGION_FILES_H
#define BERTH_SHELL_REGION_FILES_H

#include "store/shell/region.h"

struct region_shape {
    uint64_t pool_bytes, mr_bytes;
    uint64_t reserved_bytes; /* of the pool, not allocated at the start */
    uint32_t n_units, max_headers, n_tails;
    uint64_t headers_offset, slots_bytes, lookup_bytes, tails_bytes;
};

#define REGION_DIR_OFFSET 4096u
#define REGION_GROWTH 4u         /* a directory has room for a pool of so many times the first one's size, */
#define REGION_UNITS_LEAST 4096u /* and of at least so many units */

void region_shape(struct region_shape *out, const struct settings *s);

/* Opens slots, lookup and tails as an earlier node left them and fills *out from them; a lookup that is missing is left
 * at -1. 0; -ENOENT (none there, or not
 * all); -EPROTO (of another format, or sizes that contradict each other). The descriptors go to r. */
int region_files_probe(struct region *r, struct region_shape *out, struct slots_super *super);

/* Makes them anew: slots and lookup of this identity, with the beginning of what grows; super's magic is left 0. */
int region_files_make(struct region *r, const struct region_shape *shape, const struct lmdb_identity *id, uint32_t mode,
                      char *why, size_t why_size);
/* Looks at the lookup that was found. One that is missing, damaged or of another pool is made anew, empty, and logged:
 * it has nothing that the index does not. A new file, since who has the old one mapped must not see it half filled. 0,
 * -errno. */
int region_files_relook(struct region *r, struct region_shape *shape, const struct slots_super *super, uint32_t mode,
                        char *why, size_t why_size);
/* Maps what region_files_probe or _make opened. -EPROTO: lookup is of another pool. */
int region_files_map(struct region *r, const struct region_shape *shape, char *why, size_t why_size);
void region_files_close(struct region *r);

/* What a node takes beside its files: page tables and the kernel's lists of the files' pages, slot headers as they
 * come into use, the process with some 64 clients. Long keys' cells and more clients are looked at when they come
 * (space_fits). */
uint64_t region_own_bytes(const struct region_shape *shape);

/* Bytes that are allocated at the start. */
uint64_t region_files_bytes(const struct region_shape *shape);

#endif
