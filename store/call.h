/* call.h: requests and their replies.
 *
 * A call is a request that the engine owns from call_submit on. It stays in the list, in the order of its id, until its
 * reply has come: after a reconnect all of them are sent again (PROTOCOLS rule 10). One that timed out stays too,
 * abandoned, so that what its late reply gives can be given back.
 *
 * Whoever waits takes the reply ring by a try-lock and completes everybody's calls; the others sleep until their own is
 * done or the one who leads goes. All of struct calls but `drain` and the reply ring is guarded by the handle's lock.
 */
#ifndef BERTH_STORE_CALL_H
#define BERTH_STORE_CALL_H

#include "store/fd.h"
#include "store/msg.h"
#include "store/ring.h"

#include <pthread.h>
#include <stdbool.h>

struct berth;
struct berth_queue;
struct call;

/* What a reply means, under the lock: the call's status. reply NULL: `status` says why there is none. */
typedef int call_take(struct berth *b, void *arg, int status, const struct msg_reply *reply, uint32_t bytes);

struct call_result { /* of a synchronous call, in its caller's frame */
    int status;
    struct msg_reply reply; /* zero if there was none */
    call_take *take;        /* NULL: the status is all */
    void *arg;
    _Atomic bool finished;
};

/* Under the lock; reply NULL: `status` says why there is none. */
typedef void call_done(struct berth *b, struct call *c, int status, const struct msg_reply *reply, uint32_t bytes);

struct call {
    struct call *next, *prev; /* by id */
    struct call *chain;
    call_done *done; /* NULL once it was abandoned, or if nobody cares */
    void *arg;
    struct berth_queue *queue; /* whose operation it is, or NULL */
    int64_t limit;             /* CLOCK_MONOTONIC ns: then it is given up .. */
    int limit_code;            /* .. with this */
    uint64_t place;            /* request ring's index behind it */
    bool sent, abandoned;
    uint32_t pages, want; /* GRANT, PUT: grants asked for */
    _Alignas(8) uint8_t message[];
};

enum call_state {
    CALLS_UP,   /* attached */
    CALLS_DOWN, /* the socket hung up: tries to attach again */
    CALLS_ENDED /* for good: `ended` says why */
};

#define CALL_CHAINS 1024u
#define CALL_SPIN_NS INT64_C(50000) /* most that a reply is spun for */

struct waiter {
    struct waiter *next;
    _Atomic uint32_t word; /* futex: 1 when it is to look again */
    const void *key;       /* what it waits for */
};

struct calls {
    _Atomic int state; /* call_state */
    bool broken;       /* the node wrote nonsense into the ring: whoever leads hangs up */
    int ended;
    struct call *first, *last, *unsent; /* unsent: the first that is not in the ring, or NULL */
    struct call *chain[CALL_CHAINS];
    uint64_t last_id;
    int64_t next_limit; /* no call is to be given up before */
    int64_t down_since, next_try, backoff;
    struct kept_fd joining; /* DOWN, the one who leads': the node's answer is awaited on it .. */
    int64_t join_until;     /* .. until then */
    unsigned count;
    _Atomic unsigned quick; /* of these, which the node answers without another one */
    bool few_cpus;          /* two or one: spinning for another node's answer takes the CPU that it needs */
    struct waiter *waiters;
    const void *leading; /* what the one who leads waits for */
    bool dozing;         /* and whether it is in poll, .. */
    bool driving;        /* .. or does the node's work, until .. */
    int64_t look;        /* .. this */
    bool quiet;          /* what is pushed now needs no bell: who pushes waits for it */
    struct ring_end requests;
    struct kept_fd socket, wake_fd, doorbell;

    pthread_mutex_t drain; /* the reply ring's consumer */
    struct ring_end replies;
    uint8_t *reply; /* RING_MESSAGE_MAX */
    int64_t spin_ns;
};

int calls_init(struct berth *b);
void calls_free(struct berth *b);

/* A request of `bytes` in all, zeroed but for its head, without a deadline: the handle's time-out holds. NULL: no
 * memory. */
struct call *call_new(enum msg_op op, size_t bytes);

static inline struct msg_head *call_head(struct call *c)
{
    return (struct msg_head *)c->message;
}

/* For one that may wait at the node: until the caller's deadline. */
void call_deadline(struct berth *b, struct call *c, int64_t deadline);

/* For one that the node answers as soon as it can, whatever the deadline is: the caller waits no longer than that, or
 * than a moment where it is over. BERTH_NOW, BERTH_FOREVER: the handle's time-out. */
void call_until(struct call *c, int64_t deadline);

/* A lock that may be held while a call is made: whether it was had in time. */
bool call_lock(pthread_mutex_t *lock, int64_t deadline);

/* Under the lock: the engine has it from here. 0, or the error for which no request can be sent now: then it is freed.
 */
int call_submit(struct berth *b, struct call *c);

/* Submits and waits. The status: what the node said, or why it said nothing, and then what `take` made of it. The call
 * is gone afterwards. */
int call_run(struct berth *b, struct call *c, struct call_result *r, call_take *take, void *arg);

/* Waits until ready(arg), or `until`. key: what calls_wake says when it may be ready. */
void calls_wait(struct berth *b, const void *key, bool (*ready)(void *arg), void *arg, int64_t until);
/* Under the lock: whoever waits for key looks again. */
void calls_wake(struct berth *b, const void *key);
/* Completes what has come, if nobody else is at it; socket_too: looks whether the node has hung up. */
void calls_poll(struct berth *b, bool socket_too);
/* Reads the session's eventfd. */
void calls_quiet(struct berth *b);
/* Under the lock: forgets whom it was for; its reply is dealt with as a late one. */
void call_abandon(struct call *c);
/* Under the lock: ends the engine; every call in flight fails with `code`. */
void calls_end(struct berth *b, int code);
/* Under the lock, attached again: what is unanswered is sent again, behind a RESUME. 0 or -ENOMEM. */
int calls_resume(struct berth *b);

/* Between call.c and wait.c. Who holds `drain`: takes every reply that is there; whether there was one. */
bool calls_drain(struct berth *b);
/* Whether the application has closed the handle's descriptors under it. Eventfds can't be told from others of their
 * kind at no cost: the ring's file, which goes with them, can. */
bool calls_lost(const struct berth *b);
/* Under the lock: whoever leads looks again, if it dozes. */
void calls_poke(struct berth *b);
/* Wakes the node, if it sleeps. */
void calls_bell(struct berth *b);
/* Under the lock: moves unsent calls into the ring, as many as fit. */
void calls_push(struct berth *b);
/* Under the lock: gives up what has waited long enough. */
void calls_expire(struct berth *b, int64_t now);

#endif
