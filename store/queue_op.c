/* queue_op.c: what each operation of a queue does when it is begun, and when its reply has come. */
#include "store/await.h"
#include "store/pull.h"
#include "store/queue.h"
#include "store/read.h"
#include "store/remote.h"

#include <errno.h>
#include <stdlib.h>

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

static void published(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct berth_op *op = c->arg;
    (void)b, (void)r, (void)bytes;
    queue_complete(c->queue, op, build_take_published(status, (int)op->result));
}

/* Under the lock, what was put or sealed with `result`: whether its homes are asked now. */
static bool await_homes(struct berth_queue *q, struct berth_op *op, int result)
{
    bool put = op->opcode == BERTH_OP_PUT, asked = false;
    if (result < 0 || (put && !(op->put && op->put->flags & BERTH_PUBLISHED)) ||
        (!put && op->opcode != BERTH_OP_SEAL)) {
        return false;
    }
    struct call *c = put ? build_published(&op->key, NULL, 0, &asked) : build_published(NULL, op->draft, op->n, &asked);
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

static void op_done(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
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

enum begun {
    BEGUN_FLIES, /* its call is in flight */
    BEGUN_DONE,  /* it has its result */
    BEGUN_PARKED /* it waits for a slot, and so do those behind it */
};

static enum begun done_with(struct berth_queue *q, struct berth_op *op, long result)
{
    pthread_mutex_lock(&q->b->lock);
    queue_complete(q, op, result);
    pthread_mutex_unlock(&q->b->lock);
    return BEGUN_DONE;
}

/* Under the lock. */
static enum begun fly_locked(struct berth_queue *q, struct berth_op *op, struct call *c, call_done *done)
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
static int fly_wait(struct berth_queue *q, struct berth_op *op, uint32_t flags, int64_t deadline, call_done *done)
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
        fly_locked(q, op, again, op_done);
    } else {
        queue_complete(q, op, -ENOMEM);
    }
}

static void join(struct berth_queue *q, struct berth_op *op)
{
    int rc = fly_wait(q, op, MSG_WAIT_WRITTEN, op_deadline(op), joined);
    if (rc) {
        queue_complete(q, op, rc);
    }
}

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

static enum begun fly(struct berth_queue *q, struct berth_op *op, struct call *c)
{
    if (!c) {
        return done_with(q, op, -ENOMEM);
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
    enum begun begun = fly_locked(q, op, c, op_done);
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
    bool kept = settled && client_keeps(b, op->key.ns) && read_there(b, t, &op->key);
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
    struct call *c = build_grant(b, pages, op->size, grant_ask(b, pages), op_deadline(op));
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

static enum begun begin_put(struct berth_queue *q, struct berth_op *op)
{
    struct berth *b = q->b;
    struct msg_token token;
    bool kept = !q->granted && !q->refused && kept_already(q, op);
    pthread_mutex_lock(&b->lock);
    if (kept) {
        bool waits = await_homes(q, op, BERTH_KEPT);
        if (!waits) {
            queue_complete(q, op, BERTH_KEPT);
        }
        pthread_mutex_unlock(&b->lock);
        return waits ? BEGUN_FLIES : BEGUN_DONE;
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
        begun = fly_locked(q, op, c, op_done);
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
        return done_with(q, op, BERTH_KEPT);
    }
    return fly(q, op, build_create(q->b, &op->key, op->size, op->put));
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
    if (op->opcode != BERTH_OP_GET && !(op->reserved[3] & INTO_POOL) && pull_out_place(q->b, &o, &place)) {
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

static enum begun begin_pull(struct berth_queue *q, struct berth_op *op)
{
    uint32_t n = op->n ? (uint32_t)op->n : 1, taken = 0;
    struct call *c = pull_build(q->b, op->n ? op->data : &op->key, NULL, n, pull_flags(op), false,
                                op->deadline ? op->deadline : BERTH_FOREVER, &taken);
    if (!c || taken < n) {
        free(c);
        return done_with(q, op, c ? -E2BIG : -ENOMEM);
    }
    pthread_mutex_lock(&q->b->lock);
    enum begun begun = fly_locked(q, op, c, brought);
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

static enum begun begin_cancel(struct berth_queue *q, struct berth_op *op)
{
    enum begun begun = BEGUN_DONE;
    pthread_mutex_lock(&q->b->lock);
    struct call *c = q->b->calls.first;
    while (c && !(is_pull(q, c) && c->arg == op->data)) {
        c = c->next;
    }
    struct call *cancel = c ? build_cancel(call_head(c)->id) : NULL;
    if (cancel) {
        begun = fly_locked(q, op, cancel, op_done);
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
    return done_with(q, op, rc);
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
    int rc = fly_wait(q, op, 0, op->deadline, waited);
    if (rc) {
        read_missed(q, op, rc);
    }
    pthread_mutex_unlock(&q->b->lock);
    return rc ? BEGUN_DONE : BEGUN_FLIES;
}

/* A read that waits looks, leaves it to the node to say when to look again, and comes back through `again`. */
static enum begun begin_read(struct berth_queue *q, struct berth_op *op)
{
    if (q->b->remote) {
        bool late = op->deadline == BERTH_NOW || await_over(op->deadline);
        return late ? done_with(q, op, -ETIMEDOUT) : fly_pull(q, op);
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

static enum begun begin(struct berth_queue *q, struct berth_op *op)
{
    int rc = queue_check(q, op);
    if (rc) {
        return done_with(q, op, rc);
    }
    switch (op->opcode) {
    case BERTH_OP_PUT:
        return begin_put(q, op);
    case BERTH_OP_CREATE:
        return begin_create(q, op);
    case BERTH_OP_SEAL:
        if (build_without_draft(op->draft, op->n) == op->n) {
            return done_with(q, op, (long)op->n);
        }
        rc = build_sums(q->b, op->draft, op->n);
        return rc ? done_with(q, op, rc) : fly(q, op, build_seal(q->b, op->draft, op->n));
    case BERTH_OP_ABORT:
        return fly(q, op, build_abort(op->draft, op->n));
    case BERTH_OP_GET:
    case BERTH_OP_GET_INTO:
    case BERTH_OP_GET_RANGE:
        return begin_read(q, op);
    case BERTH_OP_PULL:
        return begin_pull(q, op);
    case BERTH_OP_CANCEL:
        return begin_cancel(q, op);
    case BERTH_OP_REMOVE:
        return fly(q, op, build_key(MSG_REMOVE, &op->key, &op->version));
    case BERTH_OP_HOLD:
        return fly(q, op, build_hold(MSG_HOLD, &op->key, op->label, op->ttl_ns));
    case BERTH_OP_DROP:
        return fly(q, op, build_hold(MSG_DROP, &op->key, op->label, 0));
    case BERTH_OP_STAT:
        return fly(q, op, build_key(MSG_STAT, &op->key, NULL));
    default:
        return done_with(q, op, 0);
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
        begin_read(q, op);
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
