/* index.h: the table through which the core reaches its index, and the batch that one commit applies.
 *
 * The core decides, the shell commits: a batch is applied in one transaction, in order, all or nothing, by one thread
 * at a time; gets and lists run on the core's thread meanwhile and see the last commit.
 */
#ifndef BERTH_INDEX_INDEX_H
#define BERTH_INDEX_INDEX_H

#include "index/record.h"

enum batch_op_kind {
    BATCH_PUT = 1,   /* key -> record */
    BATCH_DELETE,    /* key; it is no error if it is absent */
    BATCH_NAMESPACE, /* name -> id, flags */
    BATCH_SESSION,   /* session -> struct session_row */
    BATCH_END_SESSION,
    BATCH_META,      /* one of enum meta_number */
    BATCH_TOMBSTONE, /* key -> struct tombstone_row */
    BATCH_END_TOMBSTONE,
    BATCH_PURGE, /* counter -> struct purge_row */
    BATCH_END_PURGE
};

enum meta_number {
    META_COUNTER, /* greatest version counter given */
    META_NEXT_SESSION,
    META_LEASE_HORIZON,  /* CLOCK_BOOTTIME ns until which a peer may still read */
    META_CLEAN,          /* 1 after a clean stop */
    META_NEXT_NAMESPACE, /* of nodes that gave ids in sequence; written no more */
    META_INCARNATION,    /* counts starts of the node on this region */
    META_IN_TOUCH,       /* CLOCK_BOOTTIME ns when another member was last connected, a little behind; 0: never */
    META_SETTLED,        /* revision of the list that all members had heard of, 0: none (replication/publish.h) */
    META_NUMBERS
};

struct session_row {
    uint64_t applied;    /* highest request id whose effect is in the index */
    uint64_t start_time; /* of the process, field 22 of /proc/PID/stat, with its pid */
    int32_t pid;
    uint32_t uid;
    char name[NAME_MAX_BYTES + 1];
};

/* A removal that its homes have to hear of (PROTOCOLS rule 29). */
struct tombstone_row {
    uint64_t counter; /* of its version; the region is this one */
    bool known;       /* all homes have acknowledged it, once */
    bool taken;       /* its counter was taken from a home's answer, which is done once (rule 28) */
};

/* A purge that is under way: what it covers and is older than its counter goes. A start goes on with it. */
struct purge_row {
    uint64_t counter;     /* of its version, greater than those of all that it may remove */
    uint64_t lineage;     /* LINEAGE; else 0 */
    uint32_t kind;        /* enum purge_kind */
    uint32_t ns;          /* NAMESPACE, PREFIX; else 0 */
    uint32_t prefix_size; /* PREFIX: 1..KEY_MAX; else 0 */
    uint8_t prefix[KEY_MAX];
};

struct batch;
struct batch *batch_create(void);
void batch_destroy(struct batch *b);
void batch_clear(struct batch *b);
uint32_t batch_count(const struct batch *b); /* operations */
/* Each copies what it is given. 0 or -ENOMEM. */
int batch_put(struct batch *b, struct key_ref key, const struct record *r);
int batch_delete(struct batch *b, struct key_ref key);
int batch_namespace(struct batch *b, const char *name, uint32_t id, uint32_t flags);
int batch_session(struct batch *b, uint64_t session, const struct session_row *row);
int batch_end_session(struct batch *b, uint64_t session);
int batch_meta(struct batch *b, enum meta_number which, uint64_t value);
int batch_tombstone(struct batch *b, struct key_ref key, const struct tombstone_row *row);
int batch_end_tombstone(struct batch *b, struct key_ref key);
int batch_purge(struct batch *b, const struct purge_row *row);
int batch_end_purge(struct batch *b, uint64_t counter);

struct index_usage {
    uint64_t map_bytes;  /* what the user set */
    uint64_t used_bytes; /* pages in use, whole */
    uint64_t records;
};

struct index_ops {
    const char *name;
    /* One transaction. 0; -ENOSPC: full, nothing of it applied (batches without PUT may use the reserve; one of them so
     * large that it does not fit even there is applied in several transactions, in its order); -EIO. */
    int (*commit)(void *ix, const struct batch *b);
    /* 0, -ENOENT, -EBADMSG, -EIO. Callbacks of the calls below may call it. */
    int (*get)(void *ix, struct key_ref key, struct record *out);
    /* Calls back for each record of ns with this prefix and a key greater than `after` (size 0: from the start), in
     * byte order, until it returns non-zero (which is returned) or there are no more (0); -EBADMSG at one that can't be
     * decoded. */
    int (*list)(void *ix, uint32_t ns, const void *prefix, uint32_t prefix_size, const void *after, uint32_t after_size,
                int (*each)(void *arg, struct key_ref key, const struct record *r), void *arg);
    /* Every record of every namespace; a record that can't be decoded comes with r == NULL; where its key can't be,
     * that is in `key` as it stands, with ns 0. */
    int (*each)(void *ix, int (*each)(void *arg, struct key_ref key, const struct record *r), void *arg);
    int (*namespaces)(void *ix, int (*each)(void *arg, const char *name, uint32_t id, uint32_t flags), void *arg);
    int (*sessions)(void *ix, int (*each)(void *arg, uint64_t session, const struct session_row *row), void *arg);
    int (*tombstones)(void *ix, int (*each)(void *arg, struct key_ref key, const struct tombstone_row *row), void *arg);
    int (*purges)(void *ix, int (*each)(void *arg, const struct purge_row *row), void *arg); /* by counter */
    uint64_t (*meta)(void *ix, enum meta_number which);                                      /* 0 if never set */
    void (*usage)(void *ix, struct index_usage *out);
};

#endif
