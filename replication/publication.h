/* publication.h: what an owner tells a home, and what the home answers, as decoded structures.
 *
 * An owner publishes to each home in one ordered stream of batches: a batch counts only if it is the next of its
 * stream, a batch that came before is judged again without effect, so that lost, late and repeated messages change
 * nothing. A stream of a greater number starts the owner's whole publication over.
 */
#ifndef BERTH_REPLICATION_PUBLICATION_H
#define BERTH_REPLICATION_PUBLICATION_H

#include "replication/version.h"

#define MEMBERS_MAX 1024u            /* of the list */
#define HOMES_MAX 3u                 /* of a key */
#define HOME_KEY_MAX 480u            /* bytes of a key */
#define PUBLICATION_ENTRIES 256u     /* of a batch, at most */
#define PUBLICATION_KEYS (64u << 10) /* bytes of the keys of a batch together, at most */
#define MEMBER_NONE UINT16_MAX

/* A key as all members know it. */
struct home_key {
    const void *data;
    uint32_t size;  /* 1 .. HOME_KEY_MAX */
    uint64_t space; /* the namespace by a number that all members share: ids of berth_namespace are a node's own */
    uint64_t route; /* not 0: homes are chosen by it and not by the key; never part of the key's identity */
};

/* One run of a member's process: region of its pool, and how often a node was started on it. */
struct home_life {
    uint64_t region;
    uint64_t incarnation;
};

enum publication_kind {
    PUBLICATION_OBJECT = 1, /* the owner has this version and serves it */
    PUBLICATION_GONE,       /* the owner has this version and older ones no more; it was not removed */
    PUBLICATION_TOMBSTONE   /* the key was removed: what is not newer is no more */
};

struct publication_entry {
    struct home_key key;
    struct object_version version;
    uint64_t size; /* bytes; OBJECT */
    uint64_t lineage;
    uint64_t past;    /* GONE: what the owner's policy knows of the key (store/evict.h), or 0 */
    uint8_t kind;     /* enum publication_kind */
    bool replaceable; /* the namespace is: a newer version ends the older ones */
    bool fresh;       /* the owner's own note, not for the wire: no home of all k acknowledged this key before */
    bool again;       /* likewise: its counter was taken from a home's SUPERSEDED */
};

struct publication {
    struct home_life from; /* the owner's */
    struct home_life to;   /* the home's, as its HELLO said */
    uint64_t revision;     /* of the owner's list */
    uint64_t stream;       /* from 1, grows */
    uint32_t batch;        /* of the stream, from 0 */
    uint16_t member;       /* the owner */
    bool complete;         /* everything that the owner has for this home is in this stream, up to this batch */
    uint32_t n;
    const struct publication_entry *entries;
};

enum publication_verdict {
    VERDICT_OK,
    VERDICT_SUPERSEDED, /* counter: of the version that stands above */
    VERDICT_FULL        /* the home has no room and does not know it: not acknowledged */
};

struct publication_result {
    uint64_t counter;
    uint64_t past;   /* OK, of an OBJECT: what was known of its key when it was evicted elsewhere, or 0 */
    uint8_t verdict; /* enum publication_verdict */
};

struct publication_answer {
    uint64_t stream;
    uint32_t batch;
    bool complete; /* of a complete batch: the home has set the owner's mark; false: it dropped something */
    uint32_t n;
    const struct publication_result *results;
};

static inline bool life_equal(struct home_life a, struct home_life b)
{
    return a.region == b.region && a.incarnation == b.incarnation;
}

/* What a peer sent and a caller gave is looked at before it is used: false for an unknown kind, a bad key size, no
 * version, a counter that nothing can follow. */
static inline bool publication_entry_good(const struct publication_entry *e)
{
    return e->kind >= PUBLICATION_OBJECT && e->kind <= PUBLICATION_TOMBSTONE && e->key.data && e->key.size >= 1 &&
           e->key.size <= HOME_KEY_MAX && e->version.counter != 0 && e->version.counter != UINT64_MAX;
}

#endif
