/* lmdb_ahead.h: lets a transaction find in the caches what its searches of the tree are going to read. */
#ifndef BERTH_INDEX_LMDB_AHEAD_H
#define BERTH_INDEX_LMDB_AHEAD_H

#include "index/batch.h"
#include "index/lmdb_env.h"

#define LMDB_AHEAD_LEAST (UINT64_C(64) << 20) /* bytes of leaves: a smaller tree is in the caches, more or less */

/* For the batch's operations [from, to) on objects; in a write transaction, before its first operation. Changes
 * nothing, and does nothing where the tree is small or the operations are few. The keys that it found: what a test can
 * see of it. */
uint32_t lmdb_ahead(struct lmdb_index *ix, MDB_txn *txn, const struct batch *b, uint32_t from, uint32_t to);

#endif
