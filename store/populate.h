/* populate.h: gives a shared mapping its pages at once, by several threads, and leaves what they hold as it is. */
#ifndef BERTH_STORE_POPULATE_H
#define BERTH_STORE_POPULATE_H

#include "store/memkind.h"

struct numa_plan;

/* Populates base[0 .. bytes), page-aligned, for writing: a mapping by map_shared of a file's first `bytes`. A new file
 * (fd is its descriptor) is allocated too, on huge pages as far as the kernel has them; of one that is whole already fd
 * is -1. progress may be NULL. 0, or the first error: -ENOSPC, -EDQUOT (fd: no room), -ENOMEM, -EFAULT (a page of the
 * file can't be had: its file system is full), -EHWPOISON, -ECANCELED (progress said stop). */
int populate(void *base, int fd, uint64_t bytes, unsigned threads, const struct mem_progress *progress);

/* The same by threads that run on the node of the pages that they take. numa: NULL, or the plan of these bytes. */
int populate_on(struct numa_plan *numa, void *base, int fd, uint64_t bytes, unsigned threads,
                const struct mem_progress *progress);

#endif
