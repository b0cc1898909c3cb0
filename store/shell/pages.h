/* pages.h: on which pages memory of this process lies, as the kernel has it and not as it was asked for. */
#ifndef BERTH_SHELL_PAGES_H
#define BERTH_SHELL_PAGES_H

#include <stdint.h>

/* Bytes of [base, base + bytes), which are whole mappings of this process, that it maps by entries of 2 MiB or that lie
 * on a hugetlbfs. From the page tables of that range alone (PAGEMAP_SCAN, Linux 6.7), else from /proc/self/smaps, for
 * which the kernel walks over those of the mappings before it too. 0; -errno: the kernel does not say. */
int pages_huge(const void *base, uint64_t bytes, uint64_t *huge);

/* The two ways, for tests: -ENOTTY, where the kernel has no such call. */
int pages_scan(const void *base, uint64_t bytes, uint64_t *huge);
int pages_smaps(const void *base, uint64_t bytes, uint64_t *huge);

#endif
