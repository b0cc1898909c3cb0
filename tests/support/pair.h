/* pair.h: two sides of a connection between nodes, a wire between them that a test holds in its hand, and virtual
 * time. */
#ifndef BERTH_TESTS_PAIR_H
#define BERTH_TESTS_PAIR_H

#include "replication/peer.h"

#define PAIR_QUEUE 8192u
#define PAIR_USERS 65536u

struct pair_message {
    void *bytes;
    size_t n;
};

struct pair_side {
    struct peer *peer;
    struct pair_message queue[PAIR_QUEUE]; /* on their way to the other side */
    uint32_t head, tail;
    /* what the commands said */
    unsigned ups, downs, closes;
    struct peer_identity other;
    uint16_t version;
    uint64_t features;
    int32_t down_status, close_status;
    char text[256]; /* of CLOSE or DOWN */
    unsigned requests;
    struct wire_message request; /* the last one */
    int64_t deadline;
    struct { /* requests to be answered */
        uint64_t id;
        uint16_t op;
        uint32_t count;
    } open[PEER_PENDING_MAX];
    uint32_t n_open;
    unsigned answered;
    uint8_t ended[PAIR_USERS]; /* by user: times that it ended */
    int32_t status[PAIR_USERS];
    struct wire_message answer; /* the last one, if it was answered */
};

struct pair {
    struct pair_side side[2]; /* 0 dials */
    struct peer_config config[2];
    int64_t now;
};

#define MS INT64_C(1000000)

/* Configurations that suit each other; change them, then pair_open. */
void pair_init(struct pair *p);
void pair_open(struct pair *p); /* creates both; no event yet */
void pair_close(struct pair *p);

int pair_event(struct pair *p, unsigned side, enum peer_event_kind kind, int32_t status);
/* The next message on its way from `side` is delivered; false: none. */
bool pair_deliver(struct pair *p, unsigned side);
void pair_all(struct pair *p);                                                /* until nothing is on its way */
void pair_inject(struct pair *p, unsigned side, const void *bytes, size_t n); /* as if the other side had sent it */
void pair_inject_message(struct pair *p, unsigned side, const struct wire_message *m); /* with no items */
void pair_drain(struct pair *p, unsigned side);
void pair_forget(struct pair *p, unsigned side); /* what is on its way from it is lost */
void pair_up(struct pair *p);                    /* open, negotiate: must be up */

/* LEASE of n keys, or a RELEASE. What peer_ask or peer_tell gave. */
int pair_lease(struct pair *p, unsigned side, unsigned n, unsigned flags, int64_t deadline, uint64_t user);
int pair_lease_until(struct pair *p, unsigned side, unsigned n, unsigned flags, int64_t deadline, int64_t until,
                     uint64_t user);
int pair_release(struct pair *p, unsigned side);
/* Answers an open request by its place in open[]: each key with this status, or, `whole`, all of them at once. */
int pair_answer(struct pair *p, unsigned side, uint32_t place, int32_t status, bool whole);

#endif
