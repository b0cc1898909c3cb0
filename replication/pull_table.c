/* pull_table.c: see pull_table.h. */
#include "replication/pull_table.h"

#include <errno.h>

int pull_table_create(struct pull_table *t, uint64_t n)
{
    uint64_t chains = 16;
    while (chains < n && chains < (UINT64_C(1) << 24)) {
        chains <<= 1;
    }
    *t = (struct pull_table){.chain = calloc(chains, sizeof(struct pull_link *)), .mask = chains - 1};
    return t->chain ? 0 : -ENOMEM;
}

void pull_table_destroy(struct pull_table *t)
{
    free(t->chain);
    *t = (struct pull_table){0};
}

void pull_table_add(struct pull_table *t, struct pull_link *l, uint64_t hash)
{
    struct pull_link **chain = &t->chain[hash & t->mask];
    l->hash = hash;
    l->next = *chain;
    *chain = l;
    t->count++;
}

void pull_table_remove(struct pull_table *t, struct pull_link *l)
{
    struct pull_link **at = &t->chain[l->hash & t->mask];
    while (*at && *at != l) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = l->next;
        t->count--;
    }
    l->next = NULL;
}

static struct pull_link *same(struct pull_link *l, uint64_t hash)
{
    while (l && l->hash != hash) {
        l = l->next;
    }
    return l;
}

struct pull_link *pull_table_first(const struct pull_table *t, uint64_t hash)
{
    return same(t->chain[hash & t->mask], hash);
}

struct pull_link *pull_table_next(const struct pull_link *l)
{
    return same(l->next, l->hash);
}

struct pull_link *pull_table_any(const struct pull_table *t, uint64_t *at)
{
    while (*at <= t->mask && !t->chain[*at]) {
        ++*at;
    }
    return *at <= t->mask ? t->chain[*at] : NULL;
}

uint64_t pull_table_mix(uint64_t n)
{
    n *= UINT64_C(0x9e3779b97f4a7c15);
    return n ^ n >> 32;
}
