/* table.h: a hash table whose links stand in its members. No allocation after table_create, no order by address:
 * members of one chain stand newest first. One thread at a time.
 */
#ifndef BERTH_REPLICATION_TABLE_H
#define BERTH_REPLICATION_TABLE_H

#include <stdint.h>
#include <stdlib.h>

struct link {
    struct link *next;
    uint64_t hash;
};

struct table {
    struct link **chain;
    uint64_t mask;
    uint64_t count; /* members */
};

/* Chains for about n members, a power of two. 0, -ENOMEM. */
int table_create(struct table *t, uint64_t n);
void table_destroy(struct table *t); /* members are the caller's */
void table_add(struct table *t, struct link *l, uint64_t hash);
void table_remove(struct table *t, struct link *l); /* l is in t */

/* The first member with this hash, and the next one after l; NULL: no more. */
struct link *table_first(const struct table *t, uint64_t hash);
struct link *table_next(const struct link *l);

/* Any member, NULL when empty; from chain *at on, which moves on. For taking all of them out. */
struct link *table_any(const struct table *t, uint64_t *at);

/* A number of ours, such as an id, as a hash. */
uint64_t table_mix(uint64_t n);

/* The structure that a link or a list node stands in. */
#define CONTAINER(pointer, type, field) ((type *)((char *)(pointer)-offsetof(type, field)))

#endif
