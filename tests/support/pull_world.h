/* pull_world.h: three owners, their homes, slow and lossy wires and one puller, in virtual time, under draw.h.
 *
 * Bytes are one number a piece: the checksum of what the slot held when the piece was fetched. Owners reuse slots the
 * moment their leases let them. What went wrong is counted, not asserted: runs that break a rule must see it.
 */
#ifndef BERTH_TESTS_PULL_WORLD_H
#define BERTH_TESTS_PULL_WORLD_H

#include "replication/pull.h"

struct world_options {
    uint32_t unsafe;   /* enum pull_unsafe */
    bool verify;       /* requests ask for it */
    bool damage;       /* bytes damaged in flight and in slots, owners that break their leases */
    uint32_t requests; /* in all */
    int64_t drift_ppm; /* of each clock, at most */
};

struct world_counts {
    uint64_t requests, done, keys, got, got_bytes;
    uint64_t wrong; /* keys given with other bytes than the version's */
    uint64_t
        would_wrong; /* completed transfers whose bytes were wrong: what verification and the clock stand against */
    uint64_t twice, never;
    uint64_t not_quiet; /* buffers given back while a READ could write to them */
    uint64_t status;    /* outcomes that nothing explains; the last one: */
    int bad_status;
    uint32_t bad_key;
    uint64_t backwards; /* versions below one returned before the request began */
    uint64_t leaks;     /* what is left at the end */
    uint64_t broken;    /* pull_check */
    uint64_t late, lost, crashes, dropped, doubled, corrupt;
    struct pull_status status_at_end;
    const char *sentence; /* of the last broken */
};

/* One life. Adds to *out. */
void world_run(const struct world_options *o, struct world_counts *out);

#endif
