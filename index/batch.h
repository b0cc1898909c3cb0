/* batch.h: what an index reads of a batch: its operations, encoded as they stand in the tables. */
#ifndef BERTH_INDEX_BATCH_H
#define BERTH_INDEX_BATCH_H

#include "index/index.h"

/* Key and value of a row:
 *   object      record_key, record_encode
 *   namespace   name and a NUL; id 4, flags 4, little-endian
 *   session     id as 8 big-endian bytes; applied 8, start time 8, pid 4, uid 4, name without a NUL
 *   meta        meta_name; value 8, little-endian
 *   tombstone   record_key; counter 8, little-endian, flags 1: 1 known, 2 taken
 *   purge       in the table of meta: PURGE_NAME, counter as 8 big-endian bytes; kind 4, namespace 4, lineage 8,
 *               little-endian, then the prefix */
#define SESSION_FIXED 24u
#define TOMBSTONE_BYTES 9u
#define TOMBSTONE_KNOWN 1u
#define TOMBSTONE_TAKEN 2u
#define PURGE_NAME "purge:"
#define PURGE_KEY (sizeof PURGE_NAME - 1 + sizeof(uint64_t))
#define PURGE_FIXED 16u

struct batch_op {
    enum batch_op_kind kind;
    uint32_t key_size;
    uint32_t value_size; /* 0 for deletes */
    const uint8_t *key;  /* valid until the batch changes */
    const uint8_t *value;
};

struct batch_op batch_at(const struct batch *b, uint32_t i); /* i < batch_count */
bool batch_has_put(const struct batch *b);

const char *meta_name(enum meta_number which); /* NULL if there is none */

/* The inverse of what a batch encodes. 0, -EBADMSG. */
int batch_parse_namespace(const void *key, size_t key_size, const void *value, size_t value_size,
                          char name[NAME_MAX_BYTES + 1], uint32_t *id, uint32_t *flags);
int batch_parse_session(const void *key, size_t key_size, const void *value, size_t value_size, uint64_t *session,
                        struct session_row *row);
int batch_parse_tombstone(const void *key, size_t key_size, const void *value, size_t value_size, struct key_ref *k,
                          struct tombstone_row *row);
int batch_parse_purge(const void *key, size_t key_size, const void *value, size_t value_size, struct purge_row *row);
int batch_parse_number(const void *value, size_t value_size, uint64_t *out);

#endif
