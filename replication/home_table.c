/* home_table.c: the entries of a home and their memory; see home_private.h. */
#include "replication/home_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SWEEP_FULL 64u /* buckets looked at for room */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t key_hash(const struct home *h, const struct home_key *key)
{
    return XXH3_64bits_withSeed(key->data, key->size, h->config.seed + key->space * GOLDEN);
}

static struct entry **bucket_of(const struct home *h, uint64_t hash)
{
    return &h->bucket[hash & (h->n_buckets - 1)];
}

static uint64_t entry_bytes(uint32_t room, uint32_t key_size)
{
    return sizeof(struct entry) + room * sizeof(struct location) + key_size;
}

const uint8_t *entry_key(const struct entry *e)
{
    return (const uint8_t *)(e->at + e->room);
}

_Static_assert(sizeof(struct entry) + sizeof(struct location) + 64 == HOME_ENTRY_BYTES, "a key of 64 bytes");

static uint64_t buckets_for(uint64_t entries)
{
    uint64_t n = 16;
    while (n < entries) {
        n *= 2;
    }
    return n;
}

void home_bounds(struct home_config *config, uint64_t slots, uint32_t homes)
{
    uint64_t most = UINT64_C(1) << 32, entries = slots < most ? 2u * homes * slots : most;
    entries = entries < most ? entries : most;
    config->max_entries = entries ? entries : 1;
    config->max_bytes = entries * HOME_ENTRY_BYTES < HOME_BYTES_MIN ? HOME_BYTES_MIN : entries * HOME_ENTRY_BYTES;
}

uint64_t home_memory(const struct home_config *config)
{
    return config->max_bytes + buckets_for(config->max_entries) * sizeof(struct entry *);
}

int table_create(struct home *h)
{
    h->n_buckets = buckets_for(h->config.max_entries);
    h->bucket = calloc(h->n_buckets, sizeof *h->bucket);
    return h->bucket ? 0 : -ENOMEM;
}

void table_destroy(struct home *h)
{
    for (uint64_t i = 0; h->bucket && i < h->n_buckets; i++) {
        for (struct entry *e = h->bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    }
    free(h->bucket);
}

struct entry *table_find(const struct home *h, const struct home_key *key)
{
    uint64_t hash = key_hash(h, key);
    struct entry *e = *bucket_of(h, hash);
    while (e && (e->hash != hash || e->space != key->space || e->key_size != key->size ||
                 memcmp(entry_key(e), key->data, key->size) != 0)) {
        e = e->next;
    }
    return e;
}

static bool has_room(const struct home *h, uint64_t entries, uint64_t bytes)
{
    return h->stat.entries + entries <= h->config.max_entries && h->stat.bytes + bytes <= h->config.max_bytes;
}

struct entry *table_insert(struct home *h, const struct home_key *key, int64_t now)
{
    uint64_t bytes = entry_bytes(1, key->size);
    if (!has_room(h, 1, bytes)) {
        table_sweep(h, SWEEP_FULL, now);
    }
    struct entry *e = has_room(h, 1, bytes) ? calloc(1, bytes) : NULL;
    if (!e) {
        return NULL;
    }
    e->hash = key_hash(h, key);
    e->space = key->space;
    e->key_size = (uint16_t)key->size;
    e->room = 1;
    memcpy(e->at + e->room, key->data, key->size);
    struct entry **head = bucket_of(h, e->hash);
    e->next = *head;
    *head = e;
    h->stat.entries++;
    h->stat.bytes += bytes;
    return e;
}

static struct entry **link_of(struct home *h, const struct entry *e)
{
    struct entry **link = bucket_of(h, e->hash);
    while (*link != e) {
        link = &(*link)->next;
    }
    return link;
}

struct entry *table_grow(struct home *h, struct entry *e)
{
    if (e->n < e->room) {
        return e;
    }
    uint32_t room = e->room * 2u;
    uint64_t more = (room - e->room) * sizeof(struct location);
    if (room > HOME_LOCATIONS || !has_room(h, 0, more)) {
        return NULL;
    }
    struct entry **link = link_of(h, e);
    struct entry *grown = realloc(e, entry_bytes(room, e->key_size));
    if (!grown) {
        return NULL;
    }
    *link = grown;
    memmove(grown->at + room, entry_key(grown), grown->key_size);
    grown->room = (uint8_t)room;
    h->stat.bytes += more;
    return grown;
}

void table_drop(struct home *h, struct entry *e, uint32_t i, int64_t now)
{
    e->at[i] = e->at[--e->n];
    h->stat.locations--;
    if (e->n == 0 && e->floor.counter && e->until < now + h->config.tombstone_ns) {
        e->until = now + h->config.tombstone_ns;
    }
}

/* Whoever was turned away has been heard again: every member started its publication over since. */
static bool all_started(const struct home *h, uint64_t since)
{
    for (uint32_t i = 0; i < h->n_members; i++) {
        if (h->seats[h->seat_of[i]].started <= since) {
            return false;
        }
    }
    return true;
}

void table_tidy(struct home *h, struct entry *e, int64_t now)
{
    for (uint32_t i = e->n; i-- > 0;) {
        if (!location_holds(h, &e->at[i])) {
            table_drop(h, e, i, now);
        }
    }
    if (e->more_at && all_started(h, e->more_at)) {
        e->more_at = 0;
    }
    if (e->n || e->more_at || (e->floor.counter && e->until > now)) {
        return;
    }
    *link_of(h, e) = e->next;
    h->stat.entries--;
    h->stat.bytes -= entry_bytes(e->room, e->key_size);
    free(e);
}

void table_sweep(struct home *h, uint64_t buckets, int64_t now)
{
    for (uint64_t i = 0; i < buckets && i < h->n_buckets; i++) {
        for (struct entry *e = h->bucket[h->cursor], *next; e; e = next) {
            next = e->next;
            table_tidy(h, e, now);
        }
        h->cursor = (h->cursor + 1) & (h->n_buckets - 1);
    }
}
