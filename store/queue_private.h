/* queue_private.h: what the files that begin a queue's operations owe one another: queue_op.c, queue_read.c. */
#ifndef BERTH_STORE_QUEUE_PRIVATE_H
#define BERTH_STORE_QUEUE_PRIVATE_H

#include "store/queue.h"

enum begun {
    BEGUN_FLIES, /* its call is in flight */
    BEGUN_DONE,  /* it has its result */
    BEGUN_PARKED /* it waits for a slot, and so do those behind it */
};

/* Without the lock. */
enum begun queue_done(struct berth_queue *q, struct berth_op *op, long result);
/* Under the lock: the operation's call goes out; done: what takes its reply. c becomes the queue's. */
enum begun queue_fly(struct berth_queue *q, struct berth_op *op, struct call *c, call_done *done);
/* The reply of an operation that the reply alone completes. */
void queue_replied(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes);
/* Under the lock: asks the node to tell what becomes of the operation's key. 0, or an error: then it does not wait. */
int queue_wait(struct berth_queue *q, struct berth_op *op, uint32_t flags, int64_t deadline, call_done *done);

/* ---- queue_read.c: without the lock ---- */
enum begun queue_read(struct berth_queue *q, struct berth_op *op);
enum begun queue_pull(struct berth_queue *q, struct berth_op *op);
enum begun queue_cancel(struct berth_queue *q, struct berth_op *op);

#endif
