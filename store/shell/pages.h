/* pages.h: on which pages memory of this process lies, as the kernel has it and not as it was asked for. */
#ifndef BERTH_SHELL_PAGES_H
#define BERTH_SHELL_PAGES_H

#include <stdint.h>

struct pages {
    uint64_t huge_bytes; /* mapped by entries of 2 MiB, or of a hugetlbfs */
    uint64_t rss_bytes;  /* mapped at all, by this process */
};

/* Of the mappings that begin in [base, base + bytes), from /proc/self/smaps: a walk over all page tables of the process.
 * 0; -errno: it can't be read, and *out is 0. */
int pages_of(const void *base, uint64_t bytes, struct pages *out);

#endif
