/* queue.h: queues of asynchronous operations.
 *
 * An operation runs through at most four lists: `parked` from submit until it is begun, nobody's while its call is in
 * flight, `again` after the wait of a read, `done` until it is reaped. Operations are begun in the order of submission,
 * by one thread at a time: a put that finds no granted slot asks for one and stops those behind it. The handle's lock
 * guards all of it, but is not held while a payload is copied.
 */
#ifndef BERTH_STORE_QUEUE_H
#define BERTH_STORE_QUEUE_H

#include "store/build.h"

struct op_list {
    struct berth_op *first, *last;
};

struct berth_queue {
    struct berth *b;
    struct berth_queue *next; /* of the handle */
    unsigned depth, taken;    /* taken: submitted and not reaped */
    unsigned removing;        /* removes in flight: a key that is there may be about to go */
    bool beginning;           /* a thread is at `parked` */
    bool asked;               /* for a grant for the first of `parked` */
    bool watched;             /* somebody has the descriptor: it must become readable */
    int refused;              /* what the grant's answer was, if none came */
    struct granted grant;
    bool granted;
    struct op_list parked, done;
    struct op_list again; /* reads whose wait for their key is over: they look once more */
    struct kept_fd poll_fd, event_fd;
};

/* Begins what is parked, as far as it can be. Without the lock. */
void queue_begin(struct berth_queue *q);
/* Whether an operation may be begun: 0, or what its arguments say is wrong with them. */
int queue_check(const struct berth_queue *q, const struct berth_op *op);
/* What has no effect needs no turn, and is done when submit returns, or waits for its key. */
static inline bool queue_at_once(const struct berth_op *op)
{
    return op->opcode == BERTH_OP_NOP || op->opcode == BERTH_OP_GET || op->opcode == BERTH_OP_GET_INTO ||
           op->opcode == BERTH_OP_GET_RANGE || op->opcode == BERTH_OP_PULL || op->opcode == BERTH_OP_CANCEL;
}
void queue_run(struct berth_queue *q, struct berth_op *op);
/* 0, or what is wrong with the operation's arguments: queue_check.c. */
int queue_check(const struct berth_queue *q, const struct berth_op *op);
/* Under the lock: asks the node to end every pull of this queue; each still completes. */
void queue_cancel_pulls(struct berth_queue *q);
/* Under the lock: the operation has its result. */
void queue_complete(struct berth_queue *q, struct berth_op *op, long result);
/* Under the lock: every queue's descriptor watches the new socket instead of the old one. */
void queues_watch(struct berth *b, int old_socket, int socket);

/* Under the lock: makes the descriptor readable, if somebody has it. */
void queue_wake(struct berth_queue *q);

void op_push(struct op_list *l, struct berth_op *op); /* in front */
void op_append(struct op_list *l, struct berth_op *op);
struct berth_op *op_take(struct op_list *l);

#endif
