/* lmdb_verify.h: whether an index's file can be given to LMDB, which believes every offset and page number in it. */
#ifndef BERTH_INDEX_LMDB_VERIFY_H
#define BERTH_INDEX_LMDB_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Of a file of `bytes` that nobody writes or cuts now: its newer meta page, every page and node of its trees, its free
 * list. Its tables are the `n_names` named ones, or none yet. What the records hold is not looked at. 0, -EBADMSG,
 * -ENOMEM, another -errno of reading. */
int lmdb_verify(int fd, uint64_t bytes, const char *const *names, unsigned n_names);

/* Whether the file is LMDB's and the root of its tables names all of these, whatever else is damaged: one page is read,
 * none believed. */
bool lmdb_names(int fd, const char *const *names, unsigned n_names);

#endif
