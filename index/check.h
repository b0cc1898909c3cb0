/* check.h: compares index, slots and lookup and names every difference (`berth check`). */
#ifndef BERTH_INDEX_CHECK_H
#define BERTH_INDEX_CHECK_H

#include "index/index.h"
#include "index/lookup.h"

struct check_result {
    uint64_t records, slots_ready, lookup_entries, index_only; /* what was seen */
    uint64_t differences;
};

/* `report` gets one sentence a difference, lower case, key bytes escaped; it may be NULL. Reads only. The core must be
 * at rest: no commit in flight (pending READY slots without a record would be named). Kinds named: a record whose slot
 * is out of range, of another generation, not READY, or whose header disagrees in key, size, segment size, version,
 * checksum, lineage or holds flag; cells of tails that two records share, or whose checksums of segments are not those
 * that were sealed; a READY slot without a record; a record that lookup does not have (unless its home bucket says
 * ask); a lookup entry without a record; a record that can't be decoded; two records of one slot. 0, -ENOMEM, -EIO. */
int check_region(const struct index_ops *ops, void *ix, const struct lookup *l, uint32_t headers_used,
                 void (*report)(void *arg, const char *sentence), void *arg, struct check_result *out);

#endif
