/* mapping.h: what this process has mapped, as the kernel tells it. Any thread. */
#ifndef BERTH_STORE_MAPPING_H
#define BERTH_STORE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

enum mapping {
    MAPPING_GOOD,     /* shared, readable and writable, of this file from this offset on; or nobody can say */
    MAPPING_NONE,     /* a part of it is mapped by nothing */
    MAPPING_OTHER,    /* of another file, of none, or from another offset on */
    MAPPING_PRIVATE,  /* what is written to the file does not show in it, or not for long */
    MAPPING_READ_ONLY /* not writable, or not readable */
};

/* What size bytes at data are, against fd's file from offset on. Nothing is touched there. Reads /proc/self/maps: some
 * microseconds for each hundred mappings; where that can't be read the answer is MAPPING_GOOD. */
enum mapping mapping_of(const void *data, size_t size, int fd, uint64_t offset);

#endif
