/* peers_home_internal.h: what the files peers_home*.c share.
 *
 *   peers_home.c          the part: opening, members that come and go, time
 *   peers_home_publish.c  what this node tells its homes, and what others tell it
 *   peers_home_ask.c      questions to the table, from other nodes and from this node's puller
 *   peers_home_wait.c     clients that wait until something is published
 *   peers_home_confirm.c  what this node still has after it was away for long
 *   peers_home_report.c   what is said of it
 *
 * The table has room for what home_bounds says of the slots that the pool can have: with 2 homes at most 672 bytes a
 * slot and 8 for each of its buckets, less than a fifth of a pool of 4 KiB slots.
 */
#ifndef BERTH_SHELL_PEERS_HOME_INTERNAL_H
#define BERTH_SHELL_PEERS_HOME_INTERNAL_H

#include "replication/home.h"
#include "replication/publish.h"
#include "replication/pull.h"
#include "store/shell/peers_internal.h"

#define HOME_SWEEP_NS INT64_C(1000000000)  /* between two looks for entries that have ended */
#define HOME_QUEUE (1u << 16)              /* entries that wait for one member; more, and it is listed to anew */
#define HOME_WINDOW 4u                     /* batches under way to a member */
#define HOME_RESEND_NS INT64_C(2000000000) /* a batch without an answer goes again */
#define HOME_FULL_NS INT64_C(10000000000)  /* a home without room is listed to again */
#define HOME_COMMANDS 64u                  /* of the publication, carried out in a turn */
#define HOME_GRANTS 32u                    /* answers that wait for leases; above it they go without */
#define HOME_WAITS_MAX 4096u               /* clients' questions whether something is published, at a time */
#define HOME_LOG_NS INT64_C(1000000000)    /* a line about dropped copies at most so often */
#define HOME_TOUCH_SHARE 16                /* the index is told every T / 16 that others are there */
#define HOME_RENEW_LOOKS 4096u             /* objects that one step of a renewal looks at .. */
#define HOME_RENEW_QUEUE (HOME_QUEUE / 4)  /* .. while no more than this waits */

struct home_sums {
    uint64_t asked; /* keys that other nodes asked for, and .. */
    uint64_t found; /* .. those of them that were FOUND */
    uint64_t absent;
    uint64_t learning;
    uint64_t leased;  /* answers that brought a lease */
    uint64_t batches; /* taken from other nodes */
    uint64_t stale;   /* refused: of another life, of a stream given up, or not the next */
    uint64_t dropped; /* answers of homes for which a copy was given up: up to one a home and copy */
    uint64_t lost;    /* of these, and of `removed`, those that this node had sealed */
    uint64_t removed; /* copies given up for a removal that came to this node as a home */
    uint64_t taken;   /* objects and removals that were to take a greater counter: up to one a home */
    uint64_t renewed; /* objects that the homes were told of again */
};

struct home_target {
    struct home_part *part; /* whose answer link_ask waits for */
    uint16_t member;
    bool returned;         /* after a long absence: told of nothing before it has confirmed what this node has */
    struct home_life life; /* of the last that was here */
    int64_t touched;       /* CLOCK_BOOTTIME ns: it was there then; at most T / HOME_TOUCH_SHARE too early; 0: never */
    uint64_t counter;      /* this node's greatest version when it went */
};

struct home_wait;
TAILQ_HEAD(home_wait_list, home_wait);
struct confirm;

struct home_part {
    struct peers *peers;
    struct home *home;
    struct publish *publish;
    struct home_target *targets; /* a member each */
    struct home_life self;
    int64_t next_sweep;       /* CLOCK_MONOTONIC ns */
    uint64_t cursor;          /* of the listing: node_objects_next's */
    struct confirm *confirm;  /* NULL: this node is not held */
    int64_t touch_at;         /* when the index is told that others are there, CLOCK_MONOTONIC ns */
    uint64_t settled;         /* what the index has as META_SETTLED, or is to have */
    int64_t renew_at;         /* CLOCK_MONOTONIC ns */
    uint64_t renew_cursor;    /* node_objects_next's */
    bool renewing, renew_all; /* all: not only of replaceable namespaces */
    int64_t renew_all_at;     /* CLOCK_MONOTONIC ns */
    int64_t told_at;          /* when the log was told of dropped copies last, CLOCK_MONOTONIC ns */
    uint64_t told;            /* how many there were then */
    uint32_t granting;        /* answers that wait for leases */
    struct home_wait_list waits;
    uint32_t n_waits;
    int64_t wait_at; /* CLOCK_MONOTONIC ns: the first deadline of a wait; INT64_MAX */
    struct home_sums sums;
    struct publication_entry entries[PUBLICATION_ENTRIES];
    struct publication_result results[PUBLICATION_ENTRIES];
    uint8_t key[PUBLICATION_ENTRIES][KEY_MAX];
    struct home_key keys[WIRE_KEYS_MAX];
    struct home_answer answers[WIRE_KEYS_MAX];
    uint16_t missing[PULL_MISSING_MAX], everyone[PULL_MISSING_MAX];
};

static inline struct home_key home_key_of(const struct key_ref *key, uint64_t route)
{
    return (struct home_key){.data = key->data, .size = key->size, .space = key->ns, .route = route};
}

static inline struct home_life home_life_of(const struct peer_identity *i)
{
    return (struct home_life){.region = i->region_id, .incarnation = i->incarnation};
}

/* Carries out what the publication commands; true: there is more. Turn context. */
bool home_publish_turn(struct home_part *h, int64_t now);

/* The homes of this object are told of it once more: the number of that. Turn or dispatch context. */
int64_t home_tell(struct home_part *h, const struct node_publication *o, int64_t now);

/* Answers those whose time has come, one way or the other. Turn context. */
void home_wait_free(struct home_part *h, struct home_wait *w);
void home_waits_turn(struct home_part *h, int64_t now);
/* A home's answer takes an object away, or it is to take a greater counter; and it has been told of with that one. */
void home_waits_judged(struct home_part *h, const struct publication_entry *e, bool taking);
void home_waits_again(struct home_part *h, const struct key_ref *key, int64_t number);
/* Tells the homes again of what is here, which they may answer SUPERSEDED: of copies in replaceable namespaces every
 * half of `fresh` (rule 27), of all every half of `tombstones`, so that a copy of a removed key goes while the removal
 * is remembered. true: there is more. Turn context. */
bool home_renew_turn(struct home_part *h, int64_t now);

/* This node was away for long (rule 29): its publication is `held` and will be released. 0, -ENOMEM. */
int home_confirm_begin(struct home_part *h, int64_t away_ns);
/* A member is there again. True: it and this running node did not see each other for longer than T, and it is published
 * to when what it is home to has been confirmed. */
bool home_confirm_returned(struct home_part *h, uint16_t member, struct home_life life);
void home_confirm_gone(struct home_part *h, uint16_t member); /* a connection to it has ended */
void home_confirm_touch(struct home_part *h);                 /* every T / HOME_TOUCH_SHARE: who is there */
void home_confirm_turn(struct home_part *h, int64_t now);
int64_t home_confirm_timer(const struct home_part *h);
void home_confirm_end(struct home_part *h);

#endif
