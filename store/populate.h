/* populate.h: gives a shared mapping its pages at once, by several threads, and leaves what they hold as it is. */
#ifndef BERTH_STORE_POPULATE_H
#define BERTH_STORE_POPULATE_H

#include "store/memkind.h"

/* Populates base[0 .. bytes), page-aligned, for writing. progress may be NULL. 0, or the first error: -ENOMEM,
 * -EFAULT (a page of the file can't be had: its file system is full), -EHWPOISON, -ECANCELED (progress said stop). */
int populate(void *base, uint64_t bytes, unsigned threads, const struct mem_progress *progress);

#endif
