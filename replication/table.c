/* table.c: see table.h. */
#include "replication/table.h"

#include <errno.h>

int table_create(struct table *t, uint64_t n)
{
    uint64_t chains = 16;
    while (chains < n && chains < (UINT64_C(1) << 24)) {
        chains <<= 1;
    }
    *t = (struct table){.chain = calloc(chains, sizeof(struct link *)), .mask = chains - 1};
    return t->chain ? 0 : -ENOMEM;
}

void table_destroy(struct table *t)
{
    free(t->chain);
    *t = (struct table){0};
}

void table_add(struct table *t, struct link *l, uint64_t hash)
{
    struct link **chain = &t->chain[hash & t->mask];
    l->hash = hash;
    l->next = *chain;
    *chain = l;
    t->count++;
}

void table_remove(struct table *t, struct link *l)
{
    struct link **at = &t->chain[l->hash & t->mask];
    while (*at && *at != l) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = l->next;
        t->count--;
    }
    l->next = NULL;
}

static struct link *same(struct link *l, uint64_t hash)
{
    while (l && l->hash != hash) {
        l = l->next;
    }
    return l;
}

struct link *table_first(const struct table *t, uint64_t hash)
{
    return same(t->chain[hash & t->mask], hash);
}

struct link *table_next(const struct link *l)
{
    return same(l->next, l->hash);
}

struct link *table_any(const struct table *t, uint64_t *at)
{
    while (*at <= t->mask && !t->chain[*at]) {
        ++*at;
    }
    return *at <= t->mask ? t->chain[*at] : NULL;
}

uint64_t table_mix(uint64_t n)
{
    n *= UINT64_C(0x9e3779b97f4a7c15);
    return n ^ n >> 32;
}
