/* home_private.h: the home's table, shared by home.c (members, marks, publications, questions) and home_table.c
 * (entries and their memory). */
#ifndef BERTH_REPLICATION_HOME_PRIVATE_H
#define BERTH_REPLICATION_HOME_PRIVATE_H

#include "replication/home.h"

struct location {
    struct object_version version;
    uint64_t size;
    uint64_t lineage;
    uint32_t life; /* of its seat when it was published; ended if below the seat's floor */
    uint16_t seat;
};

/* One block of memory: this, room for `room` locations, the key. */
struct entry {
    struct entry *next;
    uint64_t hash;
    uint64_t space;
    struct object_version floor; /* counter 0: none */
    int64_t until;               /* the floor of an entry without locations ends */
    uint64_t more_at;            /* not 0: others may have it; the home's clock when one of them was turned away */
    uint16_t key_size;
    uint8_t n, room; /* locations */
    bool removed;    /* the floor is a tombstone */
    struct location at[];
};

/* A member's seat stays the same when the list is ordered anew, so that locations need not be rewritten. */
struct seat {
    uint64_t id;
    struct home_life life; /* of the last HELLO */
    uint64_t stream;       /* 0: none yet in this life */
    uint64_t mark_revision;
    uint64_t started;   /* home's clock at the start of the stream */
    uint32_t next;      /* batch of the stream */
    uint32_t now_life;  /* what locations get */
    uint32_t life_from; /* what locations need */
    uint16_t member;    /* MEMBER_NONE: not in the list */
    bool known;         /* a HELLO came */
    bool up;
    bool mark;
    bool lost; /* something of this stream was refused */
};

struct home {
    struct home_config config;
    struct seat *seats; /* MEMBERS_MAX */
    uint32_t n_seats;
    uint16_t seat_of[MEMBERS_MAX]; /* by member */
    uint32_t n_members;
    uint64_t revision;
    uint64_t clock; /* counts streams */
    struct entry **bucket;
    uint64_t n_buckets; /* a power of two */
    uint64_t cursor;    /* of the sweep */
    struct home_stat stat;
};

static inline bool location_holds(const struct home *h, const struct location *l)
{
    return l->life >= h->seats[l->seat].life_from;
}

/* The mark counts under its own revision only. */
static inline bool seat_marked(const struct home *h, const struct seat *s)
{
    return s->mark && s->mark_revision == h->revision;
}

int table_create(struct home *h);
void table_destroy(struct home *h);
struct entry *table_find(const struct home *h, const struct home_key *key);
/* A new entry, in the table and empty; NULL: no room. */
struct entry *table_insert(struct home *h, const struct home_key *key, int64_t now);
/* Room for one more location: the entry, which may have moved, or NULL. */
struct entry *table_grow(struct home *h, struct entry *e);
/* Takes a location out; the floor of an entry that has none left lives on for T. */
void table_drop(struct home *h, struct entry *e, uint32_t i, int64_t now);
/* Frees the entry if nothing is left to be said of it. */
void table_tidy(struct home *h, struct entry *e, int64_t now);
void table_sweep(struct home *h, uint64_t buckets, int64_t now);
const uint8_t *entry_key(const struct entry *e);

#endif
