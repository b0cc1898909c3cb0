/* lmdb_env.h: what lmdb.c and lmdb_open.c share. */
#ifndef BERTH_INDEX_LMDB_ENV_H
#define BERTH_INDEX_LMDB_ENV_H

#include "index/lmdb.h"

#include <lmdb.h>
#include <sys/types.h>

#define LMDB_MAIN_DBI 1u /* LMDB's own table of tables, which mdb_stat reads as well */
#define LMDB_OBJECTS_NAME "objects"

enum lmdb_table { TABLE_OBJECTS, TABLE_META, TABLE_SESSIONS, TABLE_NAMESPACES, TABLE_TOMBSTONES, TABLES };

struct lmdb_index {
    MDB_env *env;
    MDB_dbi dbi[TABLES];
    uint64_t map_bytes;   /* what the user set */
    uint64_t total_pages; /* of the map, reserve included */
    uint64_t limit_pages; /* of map_bytes */
    uint32_t page_bytes;
    uint64_t ahead_least; /* LMDB_AHEAD_LEAST; tests have smaller trees */
    MDB_txn *read;        /* of the core's thread: renewed for a call, reset after it, so that no snapshot stays */
    unsigned read_depth;  /* a callback of a list may get */
    dev_t dev;            /* of the directory: found by lmdb_open to be open here already */
    ino_t ino;
    struct lmdb_index *next;
};

/* Negative errno of an LMDB result: a map that does not parse is -EBADMSG, a full one -ENOSPC. */
int lmdb_error(int rc);
/* Pages that hold something, in this transaction. */
int lmdb_live_pages(struct lmdb_index *ix, MDB_txn *txn, uint64_t *out);

#endif
