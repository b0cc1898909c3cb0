/* publish_private.h: shared by publish.c (events, passes, commands) and publish_queue.c (a member's queue). */
#ifndef BERTH_REPLICATION_PUBLISH_PRIVATE_H
#define BERTH_REPLICATION_PUBLISH_PRIVATE_H

#include "replication/publish.h"

/* One entry, in the queues of up to HOMES_MAX members. */
struct item {
    uint32_t uses; /* queues that have it */
    uint32_t owed; /* homes that have to acknowledge it before it counts as published; 0: it doesn't count */
    uint64_t number;
    struct publication_entry entry; /* its key lies behind */
    uint8_t key[];
};

struct queued {
    struct item *item;
    uint64_t counter; /* of the verdict */
    uint64_t past;    /* likewise */
    uint8_t verdict;
};

struct flight {
    uint64_t first; /* in the queue */
    uint32_t n;
    uint32_t batch;
    uint32_t tries;
    int64_t due; /* goes again then */
    bool complete;
    bool answered;
    bool marked; /* the answer said so */
};

enum target_state {
    TARGET_WAIT,    /* for a pass; its queue is empty */
    TARGET_LISTING, /* the pass feeds its queue */
    TARGET_LISTED,  /* everything is in the queue; COMPLETE once it was acknowledged up to complete_at */
    TARGET_CURRENT, /* has everything up to its queue */
    TARGET_PARTIAL  /* had no room for something */
};

/* Invariant: head <= sent <= tail <= head + queue_entries; the flights cover [head, sent) in order. */
struct target {
    enum target_state state;
    bool up;
    bool known;      /* life is that of an earlier publish_up */
    bool heard;      /* it acknowledged the beginning of a stream of this list, or had that list before */
    bool refused;    /* something of this stream had no room */
    bool completing; /* a COMPLETE is in flight */
    bool ready;      /* in the line of those that may have a command */
    uint16_t behind; /* the next of the line */
    struct home_life life;
    uint64_t stream; /* 0 in WAIT */
    uint32_t next;   /* batch */
    uint32_t n_flights;
    uint64_t head, sent, tail;
    uint64_t complete_at;
    int64_t retry_at; /* PARTIAL */
    int64_t backoff;
    struct queued *queue;
    uint64_t room; /* of the queue; 0 or a power of two */
    struct flight flight[PUBLISH_WINDOW_MAX];
};

struct publish {
    struct publish_config config;
    const struct rendezvous *list;
    struct target *targets;
    uint32_t n_targets;
    uint16_t self;
    bool held;
    int64_t now;
    uint64_t number; /* last given */
    uint64_t stream; /* last given */
    uint64_t pass;
    uint32_t unheard;     /* targets that are not heard */
    bool passing;         /* a pass runs */
    bool starting;        /* its first step was not asked for yet */
    bool asked;           /* a step is being made */
    bool look;            /* a member may wait for a pass */
    uint16_t first, last; /* of the line; MEMBER_NONE: it is empty */
    struct publish_stat stat;
    struct publish_command command;
    uint8_t key[HOME_KEY_MAX]; /* of the command's entry */
    struct publication_entry entries[PUBLICATION_ENTRIES];
};

static inline struct queued *target_queued(const struct target *t, uint64_t at)
{
    return &t->queue[at & (t->room - 1)];
}

struct item *item_make(const struct publication_entry *entry, uint64_t number); /* uses 1; NULL */
void item_release(struct item *item);

/* Puts it into the line of those that may have something to retire or to send. */
void target_wake(struct publish *p, struct target *t);
/* Ends the stream: nothing is queued or under way, the next pass begins another one. */
void target_restart(struct publish *p, struct target *t);
void target_begin(struct publish *p, struct target *t);
/* false: there was no room, and the target has been restarted. */
bool target_push(struct publish *p, struct target *t, struct item *item);
/* A batch that is due, or NULL; it is under way then. */
const struct publish_command *target_send(struct publish *p, uint16_t member);
/* Takes the next acknowledged entry out. true: the command is one that it gave rise to. */
bool target_retire(struct publish *p, struct target *t);
bool target_retirable(const struct target *t);
/* There is a batch to be sent for the first time; that one is due again publish_tick sees. */
bool target_sendable(const struct publish *p, const struct target *t);
int target_answered(struct publish *p, struct target *t, const struct publication_answer *answer);

#endif
