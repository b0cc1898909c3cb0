/* peer_internal.h: what peer.c, peer_hello.c and peer_pending.c share. */
#ifndef BERTH_REPLICATION_PEER_INTERNAL_H
#define BERTH_REPLICATION_PEER_INTERNAL_H

#include "replication/peer.h"

#define PEER_MASK (PEER_PENDING_MAX - 1)
#define PEER_NONE UINT16_MAX
#define PEER_ROOM_EVENT 6u /* commands that one call makes at most */

enum peer_state {
    PEER_STATE_CONNECTING, /* dials: OPENED is awaited */
    PEER_STATE_GREETING,   /* dials: HELLO sent, WELCOME or REFUSE is awaited; else: HELLO is awaited */
    PEER_STATE_UP,
    PEER_STATE_CLOSING, /* CLOSE given, CLOSED is awaited */
    PEER_STATE_DOWN
};

enum pending_state { PENDING_FREE, PENDING_SENT, PENDING_ENDED /* its command is due */ };

/* A request has the place id & PEER_MASK; ids of places in use are passed over, so no search and no collision. */
struct pending {
    uint64_t id, user;
    int64_t until;
    uint32_t count;
    uint16_t op, flags;
    uint16_t next; /* of the ended ones */
    int32_t status;
    enum pending_state state;
};

struct serving {
    uint64_t id; /* 0: free */
    uint16_t op;
};

struct peer {
    struct peer_config config;
    enum peer_state state;
    int64_t now, started;
    struct peer_identity other;
    uint64_t counter; /* ours */
    uint32_t send_max;

    struct pending pending[PEER_PENDING_MAX];
    uint32_t n_pending;   /* not FREE */
    uint64_t next_id;     /* lowest that may be given next */
    int64_t earliest;     /* no pending `until` is earlier; it may be later than this */
    uint16_t ended, last; /* FIFO of ended ones */

    struct serving serving[PEER_PENDING_MAX];
    uint32_t n_serving;
    uint64_t last_served; /* greatest id received */

    int64_t received;   /* when anything last was, payload too */
    int64_t pinged;     /* the last PING, until its PONG; -1: none */
    int64_t first_ping; /* the first one since anything was received; -1: none */
    uint64_t ping_token;

    int32_t why; /* of closing */
    char text[WIRE_SENTENCE_MAX + 1];
    bool down_due;

    struct peer_stats stats;
    struct wire_message message; /* of the event */
    struct wire_reader reader;
    struct peer_command queue[PEER_QUEUE];
    uint8_t own[PEER_QUEUE][WIRE_HELLO_MAX]; /* messages that are made here */
    uint32_t first, n_queue;
    struct peer_command due; /* ANSWERED or DOWN that needs no place in the queue */
};

/* peer.c */
struct peer_command *peer_push(struct peer *p, enum peer_command_kind kind);
void peer_send_own(struct peer *p, const struct wire_message *m); /* no items */
void peer_send(struct peer *p, void *message, size_t n);          /* counted */
/* Closes with this reason, which DOWN will give; requests out end with `ends`. Text is in p->text. */
void peer_close(struct peer *p, int32_t why, int32_t ends);

/* peer_hello.c */
bool peer_can_say(const struct peer_identity *self);
void peer_hello(struct peer *p);
void peer_greeted(struct peer *p); /* p->message, in GREETING */
void peer_refused(struct peer *p); /* REFUSE */

/* peer_pending.c */
void pending_answered(struct peer *p);
void pending_expire(struct peer *p);
void pending_end_all(struct peer *p, int32_t status);
const struct peer_command *pending_ended(struct peer *p);
void serving_take(struct peer *p);

#endif
