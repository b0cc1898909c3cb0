/* index_dir.h: an index in a directory of its own for a test. */
#ifndef BERTH_TESTS_INDEX_DIR_H
#define BERTH_TESTS_INDEX_DIR_H

#include "index/lmdb.h"

struct index_dir {
    char dir[64];
    struct lmdb_config config;
    struct lmdb_index *ix;
    struct batch *b;
};

#define INDEX_ABSENT ((uint64_t)(int64_t)-ENOENT)

/* cmocka fixtures: an empty index of 4 MiB, open; then closed and removed, and nothing else may lie beside it. */
int index_setup(void **state);
int index_teardown(void **state);
int index_reopen(struct index_dir *f);
void index_unlink(const struct index_dir *f);            /* files of an index that is closed */
void index_smallest(struct index_dir *f, bool writemap); /* an empty one of LMDB_MAP_MIN in its place */

struct key_ref index_key(const char *text, uint32_t ns);
void index_add(struct index_dir *f, const char *text, uint32_t ns, uint64_t counter); /* a put to the batch */
int index_commit(struct index_dir *f);                                                /* and clears the batch */
uint64_t index_counter(struct index_dir *f, const char *text, uint32_t ns);           /* of the record, or the error */

#endif
