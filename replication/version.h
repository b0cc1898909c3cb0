/* version.h: versions and their order (PROTOCOLS rule 28). Equal versions mean equal bytes. */
#ifndef BERTH_REPLICATION_VERSION_H
#define BERTH_REPLICATION_VERSION_H

#include <stdbool.h>
#include <stdint.h>

struct object_version {
    uint64_t counter; /* 0: no version */
    uint64_t region;  /* where it was sealed */
};

static inline int version_compare(struct object_version a, struct object_version b)
{
    if (a.counter != b.counter) {
        return a.counter < b.counter ? -1 : 1;
    }
    return a.region < b.region ? -1 : a.region > b.region;
}

static inline bool version_less(struct object_version a, struct object_version b)
{
    return version_compare(a, b) < 0;
}

static inline bool version_equal(struct object_version a, struct object_version b)
{
    return version_compare(a, b) == 0;
}

#endif
