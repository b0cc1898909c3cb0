/* pull_table.h: a hash table whose links stand in its members. No allocation after pull_table_create, no order by
 * address: members of one chain stand newest first. One thread at a time.
 */
#ifndef BERTH_REPLICATION_PULL_TABLE_H
#define BERTH_REPLICATION_PULL_TABLE_H

#include <stdint.h>
#include <stdlib.h>

struct pull_link {
    struct pull_link *next;
    uint64_t hash;
};

struct pull_table {
    struct pull_link **chain;
    uint64_t mask;
    uint64_t count; /* members */
};

/* Chains for about n members, a power of two. 0, -ENOMEM. */
int pull_table_create(struct pull_table *t, uint64_t n);
void pull_table_destroy(struct pull_table *t); /* members are the caller's */
void pull_table_add(struct pull_table *t, struct pull_link *l, uint64_t hash);
void pull_table_remove(struct pull_table *t, struct pull_link *l); /* l is in t */

/* The first member with this hash, and the next one after l; NULL: no more. */
struct pull_link *pull_table_first(const struct pull_table *t, uint64_t hash);
struct pull_link *pull_table_next(const struct pull_link *l);

/* Any member, NULL when empty; from chain *at on, which moves on. For taking all of them out. */
struct pull_link *pull_table_any(const struct pull_table *t, uint64_t *at);

/* A number of somebody else's as a hash. What is counted up here is one as it is: chains in use lie close together. */
uint64_t pull_table_mix(uint64_t n);

/* The structure that a link or a list node stands in. */
#define CONTAINER(pointer, type, field) ((type *)((char *)(pointer)-offsetof(type, field)))

#endif
