/* lmdb.h: the index in LMDB, opened by the node alone (PROTOCOLS rules 14, 16).
 *
 * The map is map_bytes and a reserve. A batch with a PUT is refused (-ENOSPC, nothing applied) when afterwards the
 * pages that hold something would be more than map_bytes, or would leave too few for deletes to work with: LMDB copies
 * a page before it changes it, so a delete needs pages first. Deletes and the other operations may use the reserve.
 */
#ifndef BERTH_INDEX_LMDB_H
#define BERTH_INDEX_LMDB_H

#include "index/index.h"

#define LMDB_MAP_MIN (256u << 10)

struct lmdb_config {
    const char *dir;    /* exists; data.mdb and lock.mdb are made in it */
    uint64_t map_bytes; /* for records, LMDB_MAP_MIN at least; a reserve for deletes comes on top */
    bool writemap;      /* in berthd, where no foreign code can scribble on the map */
    bool preallocate;   /* allocate the file whole and touch it; false only in the simulator */
    uint32_t mode;      /* file mode, 0600 */
};

/* What identifies a region's index; kept in meta, compared by lmdb_open. */
struct lmdb_identity {
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint32_t format;
    uint64_t region_id;
    uint64_t hash_seed;
    int32_t pid; /* of the node that has it open */
    uint64_t start_time;
};

struct lmdb_index;

/* Bytes that data.mdb and lock.mdb take together when allocated: for the space check. */
uint64_t lmdb_file_bytes(uint64_t map_bytes);

/* 0; -ENOSPC: the file system has no room for lmdb_file_bytes (files that were not there are removed again, others keep
 * their size); -EBADMSG: what is there is no index or is damaged (every page is looked at); -EIO; -EBUSY: open in this
 * process; -EINVAL: map_bytes below LMDB_MAP_MIN; -ENOMEM; another -errno of the files. NOSYNC | NOTLS always. A map
 * smaller than what is in use is taken as it is: puts are refused until enough was deleted. */
int lmdb_open(struct lmdb_index **out, const struct lmdb_config *config);
void lmdb_close(struct lmdb_index *ix);

/* 0 if there is one, -ENOENT in a new index, -EBADMSG. lmdb_identify: 0, -ENOSPC, -EIO. Not while a commit runs. */
int lmdb_identity(struct lmdb_index *ix, struct lmdb_identity *out);
int lmdb_identify(struct lmdb_index *ix, const struct lmdb_identity *id);

extern const struct index_ops lmdb_ops; /* ix is a struct lmdb_index * */

/* Whether the file is an index, of any region, whole or damaged: LMDB's, with our tables. Changes nothing. */
bool lmdb_is_index(int fd);

#endif
