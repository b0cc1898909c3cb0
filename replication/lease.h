/* lease.h: a reader's leases: which bytes in which owner's pool it may READ, and until when.
 *
 * Clocks (PROTOCOLS rule 20). The shell reads, in this order and without a branch in between: CLOCK_MONOTONIC_RAW,
 * CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC. RAW is not slewed but stops in suspend; BOOTTIME - MONOTONIC is the
 * time spent suspended. A delay between the readings makes boot - mono_before too large, boot - mono_after too small:
 * so a lease starts at reader_start(), which is never late, and is checked by reader_check(), which is never early.
 * Where the clock is read: before LEASE is sent for the start; after the last completion was polled for the check.
 *
 * A lease is good until D = start + ttl. It is posted on only while check + estimated transfer < D, and what it brought
 * is accepted only if check < D after the last completion. A renewal starts again, and counts from its reply on only.
 * A lease is idle while nobody uses it; the idle ones end by timer, least recently used first where there are too many,
 * and each is told to its owner (a release with its count of uses) exactly once, unless the owner forgot it first: its
 * connection was lost, or it is another incarnation.
 *
 * Deterministic. One thread at a time. At most max_leases + those in use, whose keys are copied (480 bytes each at
 * most) and whose segment checksums are kept (8 KiB each at most).
 */
#ifndef BERTH_REPLICATION_LEASE_H
#define BERTH_REPLICATION_LEASE_H

#include "index/record.h"
#include "replication/list.h"
#include "replication/pull_table.h"
#include "replication/version.h"

#define LEASE_TTL_MAX_NS INT64_C(30000000000)
#define LEASE_MEMBERS_MAX 1024u
#define LEASE_SEGMENTS_MAX 1024u

struct reader_now {
    int64_t raw;         /* CLOCK_MONOTONIC_RAW ns */
    int64_t mono_before; /* CLOCK_MONOTONIC ns, before boot */
    int64_t boot;        /* CLOCK_BOOTTIME ns */
    int64_t mono_after;  /* CLOCK_MONOTONIC ns, after boot: also the "now" of deadlines and timers */
};

static inline int64_t reader_start(struct reader_now now)
{
    return now.raw + (now.boot - now.mono_after);
}

static inline int64_t reader_check(struct reader_now now)
{
    return now.raw + (now.boot - now.mono_before);
}

/* What an owner grants. From a peer: lease_terms_good() before use. */
struct lease_terms {
    uint64_t lease;      /* id, unique within the owner's incarnation */
    uint64_t generation; /* of the slot */
    uint64_t offset;     /* in the owner's pool */
    uint64_t size;       /* bytes of payload */
    struct object_version version;
    uint64_t checksum; /* XXH3-64 of the payload, with segments of their list */
    uint64_t lineage;
    int64_t ttl_ns;       /* a duration, 1 to LEASE_TTL_MAX_NS */
    const uint64_t *sums; /* XXH3-64 of each segment, or NULL; copied */
    uint32_t n_sums;      /* as many as size and segment_log2 make; 0 without segments */
    uint32_t slot;
    uint8_t segment_log2; /* 0: one segment */
};

/* false: sizes, time or counts that no owner has, or a list of sums that the checksum does not prove. */
bool lease_terms_good(const struct lease_terms *t);

enum lease_state {
    LEASE_GOOD,    /* may be used while its time lasts */
    LEASE_ENDING,  /* recalled, stale or in excess: no new use, released when the last user leaves */
    LEASE_RELEASE, /* waits for its owner to be told */
    LEASE_DEAD     /* the owner has forgotten it: nothing that it brings counts, nobody is told */
};

struct reader_lease {
    struct lease_terms terms; /* sums: own copy */
    uint64_t incarnation;     /* the owner's */
    int64_t deadline;         /* D, in reader_check's time */
    int64_t granted;          /* start of the grant; a renewal leaves it */
    int64_t idle_since;       /* mono ns */
    uint64_t uses;            /* transfers that it has served */
    uint32_t users;           /* who hold a pointer to it */
    uint16_t member;          /* the owner */
    enum lease_state state;
    bool renewing; /* the user's: a renewal is on its way */
    struct list by_use, by_member;
    struct pull_link by_key, by_id;
    uint32_t key_size, ns;
    uint8_t key[];
};

struct leases_config {
    uint32_t max_leases; /* above it, idle ones end, least recently used first */
    uint64_t max_bytes;  /* of payload under idle leases: the same */
    int64_t idle_ns;     /* from the last use to the release */
    uint64_t hash_seed;
    bool forget_nothing; /* for tests that break rule 23: leases outlive a lost connection */
};

struct leases;

/* 0, -ENOMEM, -EINVAL. */
int leases_create(struct leases **out, const struct leases_config *config);
void leases_destroy(struct leases *ls);

/* A lease that was granted, asked for at `start`; idle at first. The owner's id again: the same lease, its time is
 * moved on. NULL: bad terms, the id means something else, or no memory. */
struct reader_lease *leases_add(struct leases *ls, uint16_t member, uint64_t incarnation, struct key_ref key,
                                const struct lease_terms *terms, int64_t start, int64_t mono);

/* A good lease on the key that lasts `need` ns from check on, the longest; `skip`, of LEASE_MEMBERS_MAX bits or NULL:
 * members that are no source. NULL: none. */
struct reader_lease *leases_find(struct leases *ls, struct key_ref key, int64_t check, int64_t need,
                                 const uint64_t *skip);

void lease_take(struct leases *ls, struct reader_lease *l); /* one user more; it can't go away */
/* One user less; used: it served a transfer. The pointer is not the caller's any more. */
void lease_leave(struct leases *ls, struct reader_lease *l, bool used, int64_t mono);
void lease_end(struct leases *ls, struct reader_lease *l); /* no new use; the caller is a user of it */

static inline bool lease_may_post(const struct reader_lease *l, int64_t check, int64_t need)
{
    return l->state != LEASE_DEAD && need < l->deadline - check;
}

static inline bool lease_may_accept(const struct reader_lease *l, int64_t check)
{
    return l->state != LEASE_DEAD && check < l->deadline;
}

/* A renewal's reply came: `start` is of before it was sent. Time is never taken away. */
void lease_renewed(struct reader_lease *l, int64_t start, int64_t ttl_ns);

void leases_lost(struct leases *ls, uint16_t member); /* rule 23: the connection is gone, all leases of it are */
void leases_incarnation(struct leases *ls, uint16_t member, uint64_t incarnation); /* all of others are gone */
void leases_recall(struct leases *ls, uint16_t member, uint64_t lease);            /* unknown ids are passed over */
/* The key was removed or replaced: no lease on this version or an older one serves anything new. */
void leases_outdated(struct leases *ls, struct key_ref key, struct object_version version);
void leases_tick(struct leases *ls, int64_t mono);
void leases_end_all(struct leases *ls, int64_t mono); /* every idle lease is to be released, used ones later */
int64_t leases_timer(const struct leases *ls);        /* mono ns of the next tick; INT64_MAX */

struct lease_release {
    uint64_t lease, uses;
};
/* The next lease that this owner is to be told of; it is forgotten. false: none. */
bool leases_release(struct leases *ls, uint16_t member, struct lease_release *out);
uint32_t leases_releasing(const struct leases *ls, uint16_t member); /* how many wait for it */

struct leases_usage {
    uint64_t good, used;     /* leases that stand; with users */
    uint64_t releasing;      /* wait for their owners to be told */
    uint64_t bytes;          /* of payload under those that stand */
    uint64_t granted, ended; /* ever; equal when none is left */
    uint64_t lost;           /* of ended: by connection or incarnation */
};
void leases_usage(const struct leases *ls, struct leases_usage *out);

#endif
