/* queue_read.c: operations that read, pull or cancel: looks, waits and what peers bring. */
#include "store/await.h"
#include "store/pull.h"
#include "store/queue_private.h"
#include "store/read.h"
#include "store/remote.h"

#include <errno.h>
#include <stdlib.h>

/* A read that looked in vain, and that nothing came for. Under the lock. */
static void read_missed(struct berth_queue *q, struct berth_op *op, long result)
{
    if (!q->b->remote) { /* which has no pool, and counts nothing */
        read_count_missed(q->b, thread_self());
    }
    queue_complete(q, op, result);
}

static void waited(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_queue *q = c->queue;
    struct berth_op *op = c->arg;
    uint8_t state;
    int rc = await_states(status, r, bytes, 1, &state);
    if (rc) {
        read_missed(q, op, rc);
        return;
    }
    op->reserved[1] = state; /* what a look that misses once more means */
    op_append(&q->again, op);
    queue_wake(q);
    calls_wake(b, q);
}

/* ---- pulls ---- */

/* In reserved[3] of a read. */
#define BROUGHT 1u   /* a pull brought it into the pool */
#define INTO_POOL 2u /* the caller's memory can't be pulled into: into the pool next time */

static struct pull_out out_of(const struct berth_op *op)
{
    if (op->opcode == BERTH_OP_GET_RANGE) {
        return (struct pull_out){.ranges = op->ranges, .n = op->n};
    }
    return (struct pull_out){.buffer = op->data, .size = op->size};
}

static void pulled(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_queue *q = c->queue;
    struct berth_op *op = c->arg;
    struct msg_pulled p = {0};
    bool into = ((const struct msg_pull *)c->message)->kind != MSG_PULL_REPLICA;
    int rc = pull_outcome(status, r, bytes, 1, &p);
    if (rc == 0 && op->record) {
        pull_records(r, bytes, 1, op->record);
    }
    rc = rc ? rc : p.status;
    if (b->remote) {
        queue_complete(q, op, rc < 0 ? rc : remote_result(op, &p));
        return;
    }
    struct pull_out o = out_of(op);
    long result = into ? pull_into_result(&o, rc, &p) : rc < 0 ? rc : PULL_IS_HERE;
    if (result >= 0) {
        read_count_pulled(b, thread_self(), (uint64_t)result);
        queue_complete(q, op, result);
        return;
    }
    if (result > PULL_IS_HERE) {
        read_missed(q, op, result);
        return;
    }
    op->reserved[2]++;
    op->reserved[3] =
        (op->reserved[3] & INTO_POOL) | (!into && rc == 0 ? BROUGHT : 0) | (result == PULL_NOT_SO ? INTO_POOL : 0);
    op_append(&q->again, op);
    queue_wake(q);
    calls_wake(b, q);
}

static unsigned pull_flags(const struct berth_op *op)
{
    return op->flags | (op->record ? PULL_WANT_RECORD : 0);
}

static struct call *build_read_pull(struct berth_queue *q, struct berth_op *op)
{
    uint32_t taken;
    if (q->b->remote) {
        return remote_build_read(q->b, op);
    }
    struct pull_place place;
    struct pull_out o = out_of(op);
    if (op->opcode != BERTH_OP_GET && !(op->reserved[3] & INTO_POOL) &&
        pull_out_place(q->b, &o, op->deadline ? op->deadline : BERTH_FOREVER, &place)) {
        return pull_build_into(q->b, &op->key, &o, &place, pull_flags(op), op->deadline);
    }
    return pull_build(q->b, &op->key, NULL, 1, pull_flags(op), false, op->deadline, &taken);
}

static enum begun fly_pull(struct berth_queue *q, struct berth_op *op)
{
    struct call *c = build_read_pull(q, op);
    int rc = -ENOMEM;
    pthread_mutex_lock(&q->b->lock);
    if (c) {
        c->queue = q;
        c->arg = op;
        c->done = pulled;
        rc = call_submit(q->b, c);
    }
    if (rc) {
        read_missed(q, op, rc);
    }
    pthread_mutex_unlock(&q->b->lock);
    return rc ? BEGUN_DONE : BEGUN_FLIES;
}

/* The outcome of a BERTH_OP_PULL, whose keys nobody looks at afterwards. */
static void brought(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_op *op = c->arg;
    struct msg_pulled p[MSG_PULL_KEYS];
    uint32_t n = ((const struct msg_pull *)c->message)->count;
    int rc = pull_outcome(status, r, bytes, n, p);
    (void)b;
    if (rc == 0 && op->record) {
        pull_records(r, bytes, n, op->record);
    }
    queue_complete(c->queue, op, rc ? rc : op->n ? r->status : p[0].status);
}

enum begun queue_pull(struct berth_queue *q, struct berth_op *op)
{
    uint32_t n = op->n ? (uint32_t)op->n : 1, taken = 0;
    struct call *c = pull_build(q->b, op->n ? op->data : &op->key, NULL, n, pull_flags(op), false,
                                op->deadline ? op->deadline : BERTH_FOREVER, &taken);
    if (!c || taken < n) {
        free(c);
        return queue_done(q, op, c ? -E2BIG : -ENOMEM);
    }
    pthread_mutex_lock(&q->b->lock);
    enum begun begun = queue_fly(q, op, c, brought);
    pthread_mutex_unlock(&q->b->lock);
    return begun;
}

static struct call *build_cancel(uint64_t target)
{
    struct call *c = call_new(MSG_CANCEL, sizeof(struct msg_cancel));
    if (c) {
        ((struct msg_cancel *)c->message)->target = target;
    }
    return c;
}

static bool is_pull(struct berth_queue *q, struct call *c)
{
    return c->queue == q && call_head(c)->op == MSG_PULL;
}

void queue_cancel_pulls(struct berth_queue *q)
{
    struct call *last = q->b->calls.last; /* those that are added here stand behind it */
    for (struct call *c = last ? q->b->calls.first : NULL; c; c = c == last ? NULL : c->next) {
        struct call *cancel = is_pull(q, c) ? build_cancel(call_head(c)->id) : NULL;
        if (cancel) {
            call_submit(q->b, cancel);
        }
    }
}

enum begun queue_cancel(struct berth_queue *q, struct berth_op *op)
{
    enum begun begun = BEGUN_DONE;
    pthread_mutex_lock(&q->b->lock);
    struct call *c = q->b->calls.first;
    while (c && !(is_pull(q, c) && c->arg == op->data)) {
        c = c->next;
    }
    struct call *cancel = c ? build_cancel(call_head(c)->id) : NULL;
    if (cancel) {
        begun = queue_fly(q, op, cancel, queue_replied);
    } else {
        queue_complete(q, op, c ? -ENOMEM : -ENOENT);
    }
    pthread_mutex_unlock(&q->b->lock);
    return begun;
}

/* ---- reads ---- */

/* What asks nobody but this node's pool is an ordinary get. */
static long read_plainly(struct berth_queue *q, struct berth_op *op)
{
    if (op->opcode == BERTH_OP_GET) {
        return berth_get(q->b, op->key, op->view, op->flags, op->deadline);
    }
    if (op->opcode == BERTH_OP_GET_RANGE) {
        return berth_get_range(q->b, op->key, op->ranges, op->n, op->flags, op->deadline);
    }
    return berth_get_into(q->b, op->key, op->data, op->size, op->flags, op->deadline);
}

/* A look, before what is not here is asked for or waited for, and after. */
static long read_now(struct berth_queue *q, struct berth_op *op, unsigned flags)
{
    unsigned count = READ_LOOK | (op->reserved[3] & BROUGHT ? READ_PULLED : 0);
    if (op->opcode == BERTH_OP_GET) {
        return read_get(q->b, &op->key, op->view, flags, count, op->deadline);
    }
    if (op->opcode == BERTH_OP_GET_RANGE) {
        return read_range(q->b, &op->key, op->ranges, op->n, flags, count, op->deadline);
    }
    return read_into(q->b, &op->key, op->data, op->size, flags, count, op->deadline);
}

/* It has been read here: the record of a pull that brought it stands already. */
static enum begun read_done(struct berth_queue *q, struct berth_op *op, long rc)
{
    if (rc >= 0 && op->record) {
        if (!op->reserved[2]) {
            pull_record_local(op->record);
        }
        op->record->copied_out = op->opcode == BERTH_OP_GET ? 0 : (uint64_t)rc;
    }
    return queue_done(q, op, rc);
}

static enum begun gone_with(struct berth_queue *q, struct berth_op *op, long rc)
{
    pthread_mutex_lock(&q->b->lock);
    read_missed(q, op, rc);
    pthread_mutex_unlock(&q->b->lock);
    return BEGUN_DONE;
}

static enum begun begin_wait(struct berth_queue *q, struct berth_op *op)
{
    uint8_t state = (uint8_t)op->reserved[1];
    bool lost = state == WAIT_ABORTED || state == WAIT_DIED;
    if (op->deadline == BERTH_NOW) {
        return gone_with(q, op, -ENOENT);
    }
    if (lost || await_over(op->deadline)) {
        return gone_with(q, op, lost ? await_error(state) : -ETIMEDOUT);
    }
    pthread_mutex_lock(&q->b->lock);
    int rc = queue_wait(q, op, 0, op->deadline, waited);
    if (rc) {
        read_missed(q, op, rc);
    }
    pthread_mutex_unlock(&q->b->lock);
    return rc ? BEGUN_DONE : BEGUN_FLIES;
}

/* A read that waits looks, leaves it to the node to say when to look again, and comes back through `again`. */
enum begun queue_read(struct berth_queue *q, struct berth_op *op)
{
    if (q->b->remote) {
        bool late = op->deadline == BERTH_NOW || await_over(op->deadline);
        return late ? queue_done(q, op, -ETIMEDOUT) : fly_pull(q, op);
    }
    unsigned flags = op->flags & ~(unsigned)BERTH_WAIT & ~PULL_READ_FLAGS;
    if (flags == op->flags) {
        return read_done(q, op, read_plainly(q, op));
    }
    bool fresh = (op->flags & PULL_READ_FLAGS) == PULL_READ_FLAGS && !op->reserved[2];
    long rc = fresh ? -ENOENT : read_now(q, op, flags);
    if (rc != -ENOENT) {
        return read_done(q, op, rc);
    }
    if (!(op->flags & BERTH_PEERS)) {
        return begin_wait(q, op);
    }
    bool over = op->deadline == BERTH_NOW || await_over(op->deadline);
    if (over || op->reserved[2] >= PULL_TRIES) {
        return gone_with(q, op, over ? -ETIMEDOUT : BERTH_ENOTNOW);
    }
    return fly_pull(q, op);
}
