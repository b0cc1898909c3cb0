/* queue_op.c: what each operation of a queue does when it is begun, and when its reply has come. */
#include "store/await.h"
#include "store/queue_private.h"
#include "store/read.h"

#include <errno.h>
#include <stdlib.h>

#define AGAIN_MAX 3u

/* ---- replies, under the lock ---- */

static int take_op(struct berth *b, struct berth_op *op, int status, const struct msg_reply *r, uint32_t bytes)
{
    switch (op->opcode) {
    case BERTH_OP_CREATE:
        return build_take_created(b,
                                  &(struct created){.draft = op->draft,
                                                    .size = op->size,
                                                    .segment = op->put ? op->put->segment : 0,
                                                    .flags = op->put ? op->put->flags : 0},
                                  status, r, bytes);
    case BERTH_OP_SEAL:
        return build_take_sealed(b, &(struct sealed){.drafts = op->draft, .n = op->n}, status, r, bytes);
    case BERTH_OP_STAT:
        return build_take_stat(b, op->stat, status, r, bytes);
    case BERTH_OP_PUT:
        return status;
    default:
        return status < 0 ? status : 0;
    }
}

static void join(struct berth_queue *q, struct berth_op *op);

static int64_t op_deadline(const struct berth_op *op);

/* A put or create that was kept on what a removal stands above goes once more, now that the node gives that up.
 * reserved[1]: how often. Behind the others: the grant that was asked for may be for the first of them. */
static bool goes_again(struct berth_queue *q, struct berth_op *op, int result)
{
    if (result != BERTH_EVERSION || op->opcode == BERTH_OP_SEAL || op->result != BERTH_KEPT ||
        op->reserved[1] == AGAIN_MAX) {
        return false;
    }
    op->reserved[1]++;
    op_append(&q->parked, op);
    queue_wake(q);
    calls_wake(q->b, q);
    return true;
}

static void published(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_op *op = c->arg;
    int result = build_take_published(status, (int)op->result);
    (void)b, (void)r, (void)bytes;
    if (!goes_again(c->queue, op, result)) {
        queue_complete(c->queue, op, result);
    }
}

/* Under the lock, what was put, kept or sealed with `result`: whether its homes are asked now. */
static bool await_homes(struct berth_queue *q, struct berth_op *op, int result)
{
    bool put = op->opcode == BERTH_OP_PUT, key = put || (op->opcode == BERTH_OP_CREATE && result == BERTH_KEPT);
    bool asked = false;
    if (result < 0 || (key && !(op->put && op->put->flags & BERTH_PUBLISHED)) ||
        (!key && op->opcode != BERTH_OP_SEAL)) {
        return false;
    }
    struct call *c = build_published(key ? &op->key : NULL, key && result == BERTH_KEPT, op->draft, op->n, &asked);
    if (!c) {
        return false;
    }
    int64_t deadline = op_deadline(op);
    call_deadline(q->b, c, !put && !deadline ? berth_deadline(q->b->timeout_ns) : deadline);
    c->queue = q;
    c->arg = op;
    c->done = published;
    op->result = result;
    return call_submit(q->b, c) == 0;
}

void queue_replied(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_queue *q = c->queue;
    struct berth_op *op = c->arg;
    if (op->opcode == BERTH_OP_CREATE && status == MSG_WRITING) {
        join(q, op);
        return;
    }
    q->removing -= op->opcode == BERTH_OP_REMOVE;
    int result = take_op(b, op, status, r, bytes);
    if (!await_homes(q, op, result)) {
        queue_complete(q, op, result);
    }
}

static void grant_done(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_queue *q = c->queue;
    q->refused = build_take_granted(b, &q->grant, status, r, bytes);
    q->granted = q->refused == 0;
    q->asked = false;
    queue_wake(q); /* the put can be begun: whoever polls must come and do it */
    calls_wake(b, q);
}

/* ---- begin ---- */

enum begun queue_done(struct berth_queue *q, struct berth_op *op, long result)
{
    pthread_mutex_lock(&q->b->lock);
    queue_complete(q, op, result);
    pthread_mutex_unlock(&q->b->lock);
    return BEGUN_DONE;
}

enum begun queue_fly(struct berth_queue *q, struct berth_op *op, struct call *c, call_done *done)
{
    c->queue = q;
    c->arg = op;
    c->done = done;
    q->removing += op->opcode == BERTH_OP_REMOVE;
    int rc = call_submit(q->b, c);
    if (rc) {
        q->removing -= op->opcode == BERTH_OP_REMOVE;
        queue_complete(q, op, rc);
        return BEGUN_DONE;
    }
    return BEGUN_FLIES;
}

/* ---- waiting for a key ---- */

static int64_t op_deadline(const struct berth_op *op)
{
    return op->deadline ? op->deadline : build_deadline(op->put);
}

/* Under the lock: what the WAIT of this operation says. 0, or an error: then it does not wait. */
int queue_wait(struct berth_queue *q, struct berth_op *op, uint32_t flags, int64_t deadline, call_done *done)
{
    uint32_t taken;
    struct call *c = await_build(q->b, &op->key, NULL, 1, flags, deadline, &taken);
    int rc = -ENOMEM;
    if (c) {
        c->queue = q;
        c->arg = op;
        c->done = done;
        rc = call_submit(q->b, c);
    }
    return rc;
}

/* The other writer's outcome: the key is there, or this one's turn has come, or another's. */
static void joined(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_queue *q = c->queue;
    struct berth_op *op = c->arg;
    uint8_t state;
    int rc = await_states(status, r, bytes, 1, &state);
    rc = rc ? rc : await_outcome(state, op_deadline(op));
    if (rc) {
        queue_complete(q, op, rc);
        return;
    }
    struct call *again = build_create(b, &op->key, op->size, op->put);
    if (again) {
        call_deadline(b, again, op_deadline(op));
        queue_fly(q, op, again, queue_replied);
    } else {
        queue_complete(q, op, -ENOMEM);
    }
}

static void join(struct berth_queue *q, struct berth_op *op)
{
    int rc = queue_wait(q, op, MSG_WAIT_WRITTEN, op_deadline(op), joined);
    if (rc) {
        queue_complete(q, op, rc);
    }
}

static enum begun fly(struct berth_queue *q, struct berth_op *op, struct call *c)
{
    if (!c) {
        return queue_done(q, op, -ENOMEM);
    }
    if (op->deadline) {
        call_deadline(q->b, c, op->deadline);
    }
    pthread_mutex_lock(&q->b->lock);
    if (op->opcode == BERTH_OP_ABORT) {
        build_forget(q->b, c);
        for (size_t i = 0; i < op->n; i++) {
            op->draft[i].data = NULL;
        }
    }
    enum begun begun = queue_fly(q, op, c, queue_replied);
    pthread_mutex_unlock(&q->b->lock);
    return begun;
}

static bool kept_already(struct berth_queue *q, const struct berth_op *op)
{
    struct berth *b = q->b;
    pthread_mutex_lock(&b->lock);
    bool settled = !q->removing;
    pthread_mutex_unlock(&b->lock);
    struct client_thread *t = thread_self();
    bool kept = settled && !op->reserved[1] && client_keeps(b, op->key.ns) && read_there(b, t, &op->key);
    if (kept) {
        stat_add(b, t, LANE_KEPT, 1);
    }
    return kept;
}

/* Under the lock: a slot for the first of the parked operations, or a question for one on its way, or why there is
 * none. */
static enum begun find_slot_for(struct berth_queue *q, struct berth_op *op, struct msg_token *token)
{
    struct berth *b = q->b;
    uint32_t pages = grant_pages(op->size);
    if (q->granted) {
        q->granted = false;
        *token = q->grant.token;
        return BEGUN_FLIES;
    }
    if (grant_take(b, pages, token)) {
        return BEGUN_FLIES;
    }
    if (q->refused) {
        int rc = q->refused;
        q->refused = 0;
        if ((rc == BERTH_EFULL || rc == BERTH_EQUOTA) && grant_return_all(b)) {
            return find_slot_for(q, op, token); /* what was at hand for other sizes may be the room that lacks */
        }
        queue_complete(q, op, rc);
        return BEGUN_DONE;
    }
    struct call *c = build_grant(b, &op->key, pages, op->size, grant_ask(b, pages), op_deadline(op));
    if (!c) {
        queue_complete(q, op, -ENOMEM);
        return BEGUN_DONE;
    }
    q->grant.size = op->size;
    c->queue = q;
    c->done = grant_done;
    q->asked = true;
    int rc = call_submit(b, c);
    if (rc == 0) {
        return BEGUN_PARKED;
    }
    q->asked = false;
    queue_complete(q, op, rc);
    return BEGUN_DONE;
}

static enum begun kept_done(struct berth_queue *q, struct berth_op *op)
{
    pthread_mutex_lock(&q->b->lock);
    bool waits = await_homes(q, op, BERTH_KEPT);
    if (!waits) {
        queue_complete(q, op, BERTH_KEPT);
    }
    pthread_mutex_unlock(&q->b->lock);
    return waits ? BEGUN_FLIES : BEGUN_DONE;
}

static enum begun begin_put(struct berth_queue *q, struct berth_op *op)
{
    struct berth *b = q->b;
    struct msg_token token;
    bool kept = !q->granted && !q->refused && kept_already(q, op);
    pthread_mutex_lock(&b->lock);
    if (kept) {
        pthread_mutex_unlock(&b->lock);
        return kept_done(q, op);
    }
    enum begun begun = find_slot_for(q, op, &token);
    pthread_mutex_unlock(&b->lock);
    if (begun != BEGUN_FLIES) {
        return begun;
    }
    uint64_t sums[SEGMENTS_MAX];
    uint8_t shift = build_shift(op->put ? op->put->segment : 0);
    uint64_t checksum = build_copy(b, &token, op->data, op->size, shift, sums);
    struct call *c = build_put(b, &op->key, op->size, op->put, &token, checksum, sums);
    pthread_mutex_lock(&b->lock);
    if (c) {
        c->want = grant_want(b, c->pages);
        ((struct msg_put *)c->message)->want = c->want;
        begun = queue_fly(q, op, c, queue_replied);
    } else {
        grant_came(b, grant_pages(op->size), 0, &token, 1);
        queue_complete(q, op, -ENOMEM);
        begun = BEGUN_DONE;
    }
    pthread_mutex_unlock(&b->lock);
    return begun;
}

static enum begun begin_create(struct berth_queue *q, struct berth_op *op)
{
    *op->draft = (struct berth_draft){.status = BERTH_KEPT}; /* no draft yet, as berth_create has it */
    if (kept_already(q, op)) {
        return kept_done(q, op);
    }
    return fly(q, op, build_create(q->b, &op->key, op->size, op->put));
}

static enum begun begin(struct berth_queue *q, struct berth_op *op)
{
    int rc = queue_check(q, op);
    if (rc) {
        return queue_done(q, op, rc);
    }
    switch (op->opcode) {
    case BERTH_OP_PUT:
        return begin_put(q, op);
    case BERTH_OP_CREATE:
        return begin_create(q, op);
    case BERTH_OP_SEAL:
        if (build_without_draft(op->draft, op->n) == op->n) {
            return queue_done(q, op, (long)op->n);
        }
        rc = build_sums(q->b, op->draft, op->n);
        return rc ? queue_done(q, op, rc) : fly(q, op, build_seal(q->b, op->draft, op->n));
    case BERTH_OP_ABORT:
        return fly(q, op, build_abort(op->draft, op->n));
    case BERTH_OP_GET:
    case BERTH_OP_GET_INTO:
    case BERTH_OP_GET_RANGE:
        return queue_read(q, op);
    case BERTH_OP_PULL:
        return queue_pull(q, op);
    case BERTH_OP_CANCEL:
        return queue_cancel(q, op);
    case BERTH_OP_REMOVE:
        return fly(q, op, build_key(MSG_REMOVE, &op->key, &op->version));
    case BERTH_OP_HOLD:
        return fly(q, op, build_hold(MSG_HOLD, &op->key, op->label, op->ttl_ns));
    case BERTH_OP_DROP:
        return fly(q, op, build_hold(MSG_DROP, &op->key, op->label, 0));
    case BERTH_OP_STAT:
        return fly(q, op, build_key(MSG_STAT, &op->key, NULL));
    default:
        return queue_done(q, op, 0);
    }
}

void queue_run(struct berth_queue *q, struct berth_op *op)
{
    begin(q, op);
}

void queue_begin(struct berth_queue *q)
{
    pthread_mutex_t *lock = &q->b->lock;
    pthread_mutex_lock(lock);
    for (struct berth_op *op; (op = op_take(&q->again));) {
        pthread_mutex_unlock(lock);
        queue_read(q, op);
        pthread_mutex_lock(lock);
    }
    while (!q->beginning && !q->asked && q->parked.first) {
        struct berth_op *op = op_take(&q->parked);
        q->beginning = true;
        pthread_mutex_unlock(lock);
        enum begun begun = begin(q, op);
        pthread_mutex_lock(lock);
        q->beginning = false;
        if (begun == BEGUN_PARKED) {
            op_push(&q->parked, op);
        }
    }
    pthread_mutex_unlock(lock);
}
