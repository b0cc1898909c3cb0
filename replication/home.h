/* home.h: what a home knows of the keys that are placed with it: who has them, in which version, and what was removed.
 *
 * Soft state: owners publish it and publish it again; losing it costs requests, never data. What the home says of a key
 * (PROTOCOLS.md rules 28 to 31):
 *   FOUND     these members have it, those that can be reached first, then the newest version. `sure` is false while a
 *             mark is missing: then a newer version or a removal may be known to the members named by home_missing and
 *             not to this home; and where a ninth location was turned away (below).
 *   ABSENT    no member of the list has it, but for puts that no home acknowledged. Only if the reader's revision is
 *             the home's, every member has marked its publication to this very run of the home as complete under that
 *             revision, and nothing was dropped since.
 *   LEARNING  the home can't say: home_missing names the members that know.
 *
 * Marks. A member's mark says: everything that it has for this home has arrived. It is cleared when the member starts
 * its publication over, when a HELLO shows another life of the member (before anything of the new life was published),
 * and when something of the member was dropped. It counts under its own revision only. A mark outlives the member's
 * connection: what it published stays true or becomes less, and a reader that can't reach a location finds out itself.
 *
 * Lives. A location belongs to the life (region, incarnation) of its owner and to a publication stream. With another
 * life all earlier locations end at once; with a new stream of the same life they stay until its COMPLETE, and those
 * that it did not name again end then. Both are one comparison of numbers: nothing is walked, and what has ended is
 * swept out little by little (home_tick).
 *
 * Floor. A key's floor is the newest removal or, in a replaceable namespace, the newest version: what is below is
 * answered SUPERSEDED and not kept. It is kept for tombstone_ns after it was last published, or after the last location
 * went. In a namespace that is not replaceable equal keys mean equal bytes: objects of different versions stand side
 * by side there, and only a removal puts an end to the older ones.
 *
 * Full. The table holds at most max_entries keys and max_bytes of entries, and 8 locations a key. Dropping an older key
 * for a new one would be no better than refusing the new one, and costs more; so the newcomer is refused (after a
 * bounded look for entries that have ended). Not to say anything false afterwards:
 *   - the owner is answered VERDICT_FULL, so that it does not count the object as published, and its mark is cleared
 *     until it has published everything again without a refusal: misses are LEARNING and name this owner, and found
 *     keys are found as before;
 *   - a removal of a key that is in the table needs no room and always goes in; one that is refused for want of room is
 *     not acknowledged;
 *   - a ninth location of a key is acknowledged and not kept: the key remembers that somebody else may have it, and
 *     once its eight are gone it is LEARNING with `everyone` and never ABSENT, until every member has started its
 *     publication over.
 *
 * Memory: max_bytes, 8 bytes for each of max_entries rounded up to a power of two, 100 KiB. One thread at a time. Part
 * of the deterministic core.
 */
#ifndef BERTH_REPLICATION_HOME_H
#define BERTH_REPLICATION_HOME_H

#include "replication/rendezvous.h"

#define HOME_LOCATIONS 8u              /* of a key */
#define HOME_ENTRY_BYTES UINT64_C(168) /* of a key of 64 bytes with one location */
#define HOME_BYTES_MIN (UINT64_C(4) << 20)
#define HOME_TOMBSTONE_NS (INT64_C(3600) * 1000000000)

struct home;

struct home_config {
    struct home_life life; /* this home's own: what is meant for an earlier one is refused */
    uint64_t max_entries;  /* keys; 1 .. 2^32 */
    uint64_t max_bytes;    /* of entries: 64 bytes, the key, and 40 for each location that there is room for */
    int64_t tombstone_ns;  /* T */
    uint64_t seed;         /* of the hash: random, so that nobody can make long chains */
};

enum home_kind { ANSWER_FOUND = 1, ANSWER_ABSENT, ANSWER_LEARNING };

struct home_location {
    struct object_version version;
    uint64_t size; /* bytes */
    uint64_t lineage;
    uint16_t member; /* index in the list */
    bool down;       /* this home can't reach it; these stand last */
};

struct home_answer {
    uint8_t kind;  /* enum home_kind */
    bool sure;     /* FOUND: nobody else has it, as far as is published; ABSENT: always */
    bool everyone; /* LEARNING: any member of the reader's list may know, not only those without a mark */
    uint32_t n;    /* locations */
    struct object_version removed; /* the tombstone that this key has, newer than no location; counter 0: none known */
    struct home_location at[HOME_LOCATIONS];
};

struct home_stat {
    uint64_t entries, bytes;
    uint64_t room_entries, room_bytes; /* max_entries, max_bytes */
    uint64_t locations;                /* ended ones that were not swept yet included */
    uint64_t refused;                  /* publications for which there was no room */
    uint64_t unlisted;                 /* locations beyond the eighth */
    uint64_t superseded;               /* publications below a floor */
    uint64_t repeated;                 /* batches that came again */
    uint32_t missing;                  /* members without a mark */
};

/* Sets max_entries and max_bytes for a home among members of like size, each with room for so many objects. Together
 * they hold what their homes have to know `homes` times, so each home has homes * slots keys of others and its own to
 * expect; twice that is for uneven shares, long keys and copies. A key of 64 bytes is HOME_ENTRY_BYTES: one of 480 is
 * 584, a second location of a key 40. */
void home_bounds(struct home_config *config, uint64_t slots, uint32_t homes);
/* Memory that a home with these bounds takes at most, but for what the allocator adds to each entry (8 bytes). */
uint64_t home_memory(const struct home_config *config);

/* 0, -EINVAL, -ENOMEM. */
int home_create(struct home **out, const struct home_config *config);
void home_destroy(struct home *h);

/* A list, the first or another one; r is read now and not kept. Members keep what they had by their id; those that are
 * not in it any more end. O(members^2): lists change seldom. */
void home_members(struct home *h, const struct rendezvous *r);

/* A member's HELLO. 0: the life that was known; 1: another one, everything of the earlier is stale from here on;
 * -ESTALE: an earlier incarnation of the known region, refuse the connection; -EINVAL: no such member. */
int home_hello(struct home *h, uint16_t member, struct home_life life);
/* Whether the member can be reached. Changes the order of answers and nothing else. */
void home_reachable(struct home *h, uint16_t member, bool up);

/* A batch. 0: *answer is to be sent; its results lie in `results`, room for PUBLICATION_ENTRIES. Otherwise nothing has
 * changed and nothing is sent, the owner sends again what counts: -EINVAL (a batch that breaks the contract: the peer
 * is at fault), -ESTALE (of another life of the owner, or for another life of this home), -EALREADY (of a stream that
 * was given up), -EAGAIN (not the next of its stream). */
int home_publish(struct home *h, const struct publication *p, int64_t now, struct publication_answer *answer,
                 struct publication_result *results);

/* What is known of a key for a reader whose list has this revision. O(locations of the key). */
void home_ask(const struct home *h, const struct home_key *key, uint64_t revision, int64_t now,
              struct home_answer *answer);
/* Of n keys in order: with `prefix` up to and including the first that is not FOUND. Returns how many were answered. */
uint32_t home_ask_many(const struct home *h, const struct home_key *keys, uint32_t n, bool prefix, uint64_t revision,
                       int64_t now, struct home_answer *answers);
/* Members but this one that are there, and of these the ones that have begun to publish to this home. */
uint32_t home_present(const struct home *h, uint16_t self, uint32_t *publishing);
/* Members whose mark is missing, or with `everyone` all of the list. At most max are written, all are counted. */
uint32_t home_missing(const struct home *h, bool everyone, uint16_t *out, uint32_t max);

/* Sweeps some buckets: from time to time, a second or so; a bounded number of them. */
void home_tick(struct home *h, int64_t now);

uint64_t home_revision(const struct home *h); /* 0 before home_members */
void home_stat(const struct home *h, struct home_stat *out);
/* NULL, or a sentence about an invariant that does not hold. Reads all. */
const char *home_check(const struct home *h);

#endif
