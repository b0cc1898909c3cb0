/* node_ahead.h: records on their way from the index to recovery, some behind each other, so that what each one needs of
 * its slot has come when its turn is. Keys are in no order of the pool: without it every header is a miss of the cache
 * that is waited for, a third of the time of a start. */
#ifndef BERTH_STORE_NODE_AHEAD_H
#define BERTH_STORE_NODE_AHEAD_H

#include "store/node_internal.h"

#define AHEAD_RECORDS 16u
#define AHEAD_KEY_MAX 512u /* above any key of an index, those that can't be decoded too */

struct ahead_row {
    struct record record;
    struct key_ref key;
    bool decoded;
    uint8_t bytes[AHEAD_KEY_MAX];
};

struct ahead {
    const struct node *n;
    int (*each)(void *arg, struct key_ref key, const struct record *r); /* in their order; not 0: no more are taken */
    void *arg;
    uint64_t first, count; /* of rows */
    struct ahead_row rows[AHEAD_RECORDS];
};

/* As a callback of index_ops.each, arg being the struct ahead: takes a copy. 0, or what `each` returned. -EBADMSG: a
 * key that is longer than any. */
int ahead_push(void *arg, struct key_ref key, const struct record *r);
/* Those that are on their way: after the last one was pushed. */
int ahead_drain(struct ahead *a);

#endif
