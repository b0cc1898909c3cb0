/* queue.c: opening, submitting to, reaping and closing a queue. What an operation does stands in queue_op.c. */
#include "store/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEPTH_MAX 4096u

/* ---- lists: the link stands in the operation ---- */

void op_append(struct op_list *l, struct berth_op *op)
{
    op->reserved[0] = 0;
    if (l->last) {
        l->last->reserved[0] = (uintptr_t)op;
    } else {
        l->first = op;
    }
    l->last = op;
}

void op_push(struct op_list *l, struct berth_op *op)
{
    op->reserved[0] = (uintptr_t)l->first;
    l->first = op;
    l->last = l->last ? l->last : op;
}

struct berth_op *op_take(struct op_list *l)
{
    struct berth_op *op = l->first;
    if (op) {
        l->first = (struct berth_op *)(uintptr_t)op->reserved[0];
        l->last = l->first ? l->last : NULL;
    }
    return op;
}

/* ---- the descriptor ---- */

static int watch(const struct kept_fd *poll_fd, int fd)
{
    struct epoll_event e = {.events = EPOLLIN};
    return epoll_ctl(poll_fd->fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void queues_watch(struct berth *b, int old_socket, int socket)
{
    for (struct berth_queue *q = b->queues; q; q = q->next) {
        if (fd_is_ours(&q->poll_fd)) {
            epoll_ctl(q->poll_fd.fd, EPOLL_CTL_DEL, old_socket, NULL);
            watch(&q->poll_fd, socket);
        }
    }
}

void queue_wake(struct berth_queue *q)
{
    uint64_t one = 1;
    if (q->watched && !calls_lost(q->b) && write(q->event_fd.fd, &one, sizeof one) < 0) {
        return; /* full: it is readable */
    }
}

/* Nobody waits in a call any more, but somebody may in poll: the node must ring. A reply that came before it could see
 * the flag makes the descriptor readable here. */
static void arm(struct berth_queue *q)
{
    struct berth *b = q->b;
    if (!q->watched || !q->taken) {
        return;
    }
    atomic_store_explicit(&b->ring->client_sleeping, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (q->done.first || atomic_load_explicit(&b->ring->reply_tail, memory_order_relaxed) !=
                             atomic_load_explicit(&b->ring->reply_head, memory_order_relaxed)) {
        queue_wake(q);
    }
}

/* What made the descriptor readable has been seen. */
static void disarm(struct berth_queue *q)
{
    uint64_t count;
    if (q->watched) {
        calls_quiet(q->b);
        if (!calls_lost(q->b) && read(q->event_fd.fd, &count, sizeof count) < 0) {
            return;
        }
    }
}

int berth_queue_fd(struct berth_queue *q)
{
    if (!q || client_check_any(q->b)) {
        return -EINVAL;
    }
    pthread_mutex_lock(&q->b->lock);
    q->watched = true;
    arm(q);
    pthread_mutex_unlock(&q->b->lock);
    return q->poll_fd.fd;
}

/* ---- open, close ---- */

static int make_fds(struct berth_queue *q)
{
    int fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), error = errno;
    fd_keep(&q->event_fd, fd);
    q->poll_fd = FD_NONE;
    if (fd < 0) {
        return -error;
    }
    fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
    error = errno;
    fd_keep(&q->poll_fd, fd);
    return fd < 0 ? -error : 0;
}

int berth_queue_open(struct berth *b, unsigned depth, struct berth_queue **out)
{
    int rc = client_check_any(b);
    if (rc) {
        return rc;
    }
    if (depth < 1 || depth > DEPTH_MAX || !out) {
        return berth_fail(-EINVAL, "a queue %u deep: 1 to %u are possible", depth, DEPTH_MAX);
    }
    struct berth_queue *q = calloc(1, sizeof *q);
    if (!q) {
        return berth_fail_plain(-ENOMEM);
    }
    q->b = b;
    q->depth = depth;
    rc = make_fds(q);
    if (rc) {
        goto fail;
    }
    pthread_mutex_lock(&b->lock);
    rc = calls_lost(b) ? -EBADF : watch(&q->poll_fd, q->event_fd.fd);
    rc = rc ? rc : watch(&q->poll_fd, b->calls.wake_fd.fd);
    rc = rc ? rc : watch(&q->poll_fd, b->calls.socket.fd);
    if (rc == 0) {
        q->next = b->queues;
        b->queues = q;
    }
    pthread_mutex_unlock(&b->lock);
    if (rc == 0) {
        *out = q;
        return 0;
    }
fail:
    fd_drop(&q->event_fd);
    fd_drop(&q->poll_fd);
    free(q);
    return rc == -EMFILE || rc == -ENFILE ? attach_fail_descriptors(rc) : berth_fail_plain(rc);
}

/* Under the lock. Calls that are still in flight forget their queue. */
static void leave(struct berth_queue *q)
{
    struct berth *b = q->b;
    for (struct call *c = b->calls.first; c; c = c->next) {
        if (c->queue == q) {
            call_abandon(c);
        }
    }
    struct berth_queue **at = &b->queues;
    while (*at != q) {
        at = &(*at)->next;
    }
    *at = q->next;
    struct msg_token *token = &q->grant.token;
    if (q->granted) {
        grant_came(b, grant_pages(q->grant.size), 0, token, 1);
    }
}

void berth_queue_close(struct berth_queue *q)
{
    if (!q) {
        return;
    }
    struct berth *b = q->b;
    bool forked = client_life(b) == LIFE_FORKED;
    int64_t until = berth_deadline(forked ? 0 : b->timeout_ns);
    struct berth_op *op;
    if (!forked) { /* their memory is written until they end */
        pthread_mutex_lock(&b->lock);
        queue_cancel_pulls(q);
        pthread_mutex_unlock(&b->lock);
    }
    while (!forked && berth_reap(q, &op, 1, until) > 0) {
        if (op->opcode == BERTH_OP_GET && op->result == 0) {
            berth_release(b, op->view, 1);
        }
    }
    if (!forked) {
        pthread_mutex_lock(&b->lock);
        leave(q);
        pthread_mutex_unlock(&b->lock);
    }
    fd_drop(&q->event_fd);
    fd_drop(&q->poll_fd);
    free(q);
}

/* ---- submit, reap ---- */

void queue_complete(struct berth_queue *q, struct berth_op *op, long result)
{
    op->result = result;
    op_append(&q->done, op);
    queue_wake(q);
    calls_wake(q->b, q);
}

int berth_submit(struct berth_queue *q, struct berth_op *ops, size_t n)
{
    if (!q) {
        return berth_fail(-EINVAL, "no queue was given");
    }
    struct berth *b = q->b;
    if (client_life(b) == LIFE_FORKED) {
        return berth_fail_plain(BERTH_EFORKED);
    }
    if (n && !ops) {
        return berth_fail(-EINVAL, "%zu operations, but no array of them", n);
    }
    size_t taken = 0;
    calls_poll(b, false);
    while (taken < n) {
        pthread_mutex_lock(&b->lock);
        bool room = q->taken < q->depth && !(b->calls.unsent && b->calls.state == CALLS_UP);
        struct berth_op *op = &ops[taken];
        op->reserved[1] = op->reserved[2] = op->reserved[3] = 0;
        bool at_once = room && queue_at_once(op);
        if (room && !at_once) {
            op_append(&q->parked, op);
        }
        q->taken += room;
        taken += room;
        pthread_mutex_unlock(&b->lock);
        if (!room) {
            break;
        }
        if (at_once) {
            queue_run(q, op);
        }
        queue_begin(q);
    }
    pthread_mutex_lock(&b->lock);
    arm(q);
    pthread_mutex_unlock(&b->lock);
    return taken || !n ? (int)taken : berth_fail_plain(BERTH_EBUSY_RING);
}

/* Something to take, something that can be begun now, or nothing to wait for. */
static bool is_ready(void *arg)
{
    struct berth_queue *q = arg;
    pthread_mutex_lock(&q->b->lock);
    bool ready = q->done.first || !q->taken || q->again.first || (q->parked.first && !q->asked && !q->beginning);
    pthread_mutex_unlock(&q->b->lock);
    return ready;
}

static size_t take_done(struct berth_queue *q, struct berth_op **done, size_t max, bool *empty)
{
    size_t n = 0;
    pthread_mutex_lock(&q->b->lock);
    while (n < max && q->done.first) {
        done[n++] = op_take(&q->done);
        q->taken--;
    }
    *empty = !q->taken;
    if (n || *empty) {
        arm(q);
    }
    pthread_mutex_unlock(&q->b->lock);
    return n;
}

long berth_reap(struct berth_queue *q, struct berth_op **done, size_t max, int64_t deadline)
{
    if (!q || !max || !done) {
        return berth_fail(-EINVAL, "no queue, or no place for completions, was given");
    }
    struct berth *b = q->b;
    if (client_life(b) == LIFE_FORKED) {
        return berth_fail_plain(BERTH_EFORKED);
    }
    disarm(q);
    calls_poll(b, q->watched);
    for (;;) {
        bool empty;
        queue_begin(q);
        size_t n = take_done(q, done, max, &empty);
        if (n || empty) {
            return (long)n;
        }
        if (deadline != BERTH_FOREVER && client_now() >= deadline) {
            break;
        }
        calls_wait(b, q, is_ready, q, deadline);
    }
    pthread_mutex_lock(&b->lock);
    arm(q);
    pthread_mutex_unlock(&b->lock);
    return 0;
}
