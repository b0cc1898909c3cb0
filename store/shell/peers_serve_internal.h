/* peers_serve_internal.h: what the files peers_serve*.c share.
 *
 *   peers_serve.c          transfers, the core's commands, releases, recalls, state words; ups and downs
 *   peers_serve_lease.c    LEASE and RENEW, which the core may answer later
 *   peers_serve_corrupt.c  reports of damaged objects: looked into, piece by piece
 *   peers_serve_report.c   what is said of it
 */
#ifndef BERTH_SHELL_PEERS_SERVE_INTERNAL_H
#define BERTH_SHELL_PEERS_SERVE_INTERNAL_H

#include "store/shell/peers_internal.h"

#define SERVE_INDEX_BITS 24u
#define SUSPECTS_MAX 64u                /* reports that wait; more are passed over */
#define SUSPECT_PIECE (1u << 20)        /* bytes hashed in a turn */
#define CLEARED_MAX 64u                 /* objects that were found to be right, not looked at again for a while .. */
#define CLEARED_NS INT64_C(10000000000) /* .. of this length */

enum promise_kind { PROMISE_LEASE, PROMISE_RENEW, PROMISE_GRANT };

/* A request that the core has not answered yet. At most PEER_PENDING_MAX for each link. */
struct promise {
    uint32_t generation; /* grows at each end: an answer to an earlier one names none */
    uint32_t next;       /* the next free one */
    uint32_t serial;     /* of the link */
    uint32_t n;          /* items of the request */
    uint32_t waits;      /* parts of it that the core has not answered yet */
    uint64_t id;         /* of the request on its link */
    uint8_t kind;        /* promise_kind */
    bool used;
    bool run;                   /* PREFIX: the answer ends before the first key that has none */
    bool due;                   /* what it waited for has become of its key: */
    uint8_t state;              /* msg_wait_state */
    struct awaited *awaited;    /* LEASE with WAIT, until it has waited; NULL */
    struct lease_grant *answer; /* RENEW: n of them; status, duration_ns */
    serve_granted_fn *done;     /* GRANT */
    void *arg;
};

/* A transfer that has been admitted. */
struct serving {
    uint32_t generation, next;
    uint64_t bytes;
    int64_t began; /* CLOCK_MONOTONIC ns */
    bool used;
};

/* A lease that nobody has heard of: given back in the next turn. */
struct orphan {
    struct lease_event from;
    uint64_t id;
};

struct serve_sums {
    uint64_t serves;         /* transfers that began */
    uint64_t served;         /* that were received whole */
    uint64_t bytes;          /* of those */
    uint64_t service_ns;     /* of those, from the admission until the receiver had it all */
    uint64_t leases;         /* given */
    uint64_t lease_refusals; /* asked for and not given: too many, the object goes, no memory */
    uint64_t gets;           /* reads from this node's copies, as the peer reported them with its releases */
    uint64_t refused;        /* READs without a lease, or outside of it */
    uint64_t broken;         /* given up by the reader, or the connection ended */
    uint64_t recalls;        /* leases asked back */
    uint64_t reports, found; /* objects said to be damaged, and those that were */
};

struct suspect {
    uint8_t key[KEY_MAX];
    uint32_t key_size, ns;
    uint64_t counter, region;
    uint16_t number; /* who said so */
};

struct cleared {
    uint64_t counter, region, hash; /* of the key */
    int64_t until;
};

struct serve_part {
    struct peers *peers;
    bool due; /* some promise is */
    struct promise *promise;
    uint32_t promises_used, promises_room, promise_free;
    struct serving *serving;
    uint32_t servings_used, servings_room, serving_free;
    struct orphan *orphan;
    uint32_t orphans, orphans_room;
    struct serve_sums *sums;       /* a member each, and all clients together at n_members */
    struct node_histogram service; /* of transfers that were received whole, ns from the admission */
    bool answered;                 /* CMD_SERVE has come: */
    int32_t serve_status;
    struct lease_grant serve_grant;
    struct suspect *suspect; /* SUSPECTS_MAX, a ring */
    uint32_t suspects_at, suspects;
    struct checksum *hash; /* of the first suspect, or of its segment under way; NULL: not begun */
    struct checksum *list; /* of the checksums of its segments */
    uint32_t slot;         /* of it, with its state word when it began */
    uint64_t word;
    uint64_t hashed; /* bytes */
    struct cleared cleared[CLEARED_MAX];
    uint32_t cleared_at;
};

/* Who asks, for the core. */
struct lease_event serve_from(const struct link *l);
struct serve_sums *serve_sums_of(struct serve_part *s, uint16_t number);
/* Any context: the turn gives it back. */
void serve_give_back(struct serve_part *s, const struct lease_event *from, uint64_t id);

void promise_answered(struct serve_part *s, const struct node_command *c); /* LEASED, RENEWED */
void promises_end(struct serve_part *s, uint32_t serial);                  /* of a link that has ended */
void promises_free(struct serve_part *s);
void promises_due(struct serve_part *s); /* those that have waited for their keys; turn context */

bool corrupt_turn(struct serve_part *s, int64_t now); /* true: there is more to do at once */
void corrupt_free(struct serve_part *s);

#endif
