/* node_purge.h: purges under way, and what is remembered of keys that went; part of node_internal.h. */
#ifndef BERTH_STORE_NODE_PURGE_H
#define BERTH_STORE_NODE_PURGE_H

#include "store/node.h"

#define PURGES_MAX 16u                 /* under way and waiting: more are refused with -EAGAIN */
#define PURGE_STEP 256u                /* keys that one effect removes */
#define PURGE_LOOKS 4096u              /* slots or records that one step looks at */
#define PURGE_PATIENCE_NS 1000000000ll /* without a home's acknowledgement: then the rest goes here only */

struct purge {
    struct purge_row row;
    uint64_t session; /* who asked; CONTROL_SESSION: nobody is left, it is of an earlier node */
    uint32_t connection;
    struct msg_head head;
    bool marked;             /* its row is committed: what was decided before it is too, and the pass may begin */
    bool passed;             /* the pass is at its end */
    bool stopped;            /* its last step ended at a key with an uncommitted effect */
    bool ending;             /* an uncommitted effect ends it */
    uint32_t steps;          /* uncommitted effects of it, the mark aside: 2 at most */
    const struct work *last; /* where the newest of them stands */
    uint64_t cursor;         /* LINEAGE: of slabs_next */
    uint32_t after_size;     /* else the last key that was looked at */
    uint8_t after[KEY_MAX];
    int64_t at;       /* mono: no step before */
    int64_t patience; /* mono: until when homes are waited for */
    uint32_t crowd;   /* removals that waited for homes when it was last looked */
    bool local;       /* this step's removals are not kept for homes */
    int32_t status;   /* 0, or why the pass ended before its end */
    uint64_t removed, bytes, held, drafts, untold;
};

/* ---- what is remembered of keys: a table of sets, in which the oldest goes ---- */

#define FATE_SETS 16384u
#define FATE_WAYS 4u
#define FATES_MAX (FATE_SETS * FATE_WAYS)

struct fate {
    uint64_t home;    /* of the key's hash */
    uint64_t counter; /* of the version that went; 0: none did */
    uint64_t wall_us;
    uint32_t serial; /* grows with each */
    int16_t error;
    uint8_t kind; /* enum node_fate; 0: nothing is here */
    uint8_t need; /* enum node_need */
};
_Static_assert(sizeof(struct fate) == 32, "fate");

struct fates {
    struct fate *set; /* FATES_MAX, a page of it comes with its first use; NULL: nothing is remembered */
    uint32_t serial, count;
    uint64_t since_us; /* wall clock of the start */
};

#endif
