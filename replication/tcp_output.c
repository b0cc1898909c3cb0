/* tcp_output.c: what a lane sends: first what is queued as bytes, then DATA frames with payload from the pool.
 *
 * A batch is taken whole and sent to its end before the next is begun, so that a frame is never cut by another one.
 */
#include "replication/tcp_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>

int tcp_bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (b->capacity - b->size < n) {
        size_t capacity = b->capacity ? b->capacity : 1024;
        while (capacity - b->size < n) {
            capacity *= 2;
        }
        uint8_t *grown = realloc(b->data, capacity);
        if (!grown) {
            return -ENOMEM;
        }
        b->data = grown;
        b->capacity = capacity;
    }
    memcpy(b->data + b->size, data, n);
    b->size += n;
    return 0;
}

static void emptied(struct bytes *b)
{
    b->size = 0;
    if (b->capacity > KEEP_BUFFER) {
        free(b->data);
        *b = (struct bytes){0};
    }
}

/* The next receive finds the end, and tells it from where telling is safe. */
static void break_off(struct tcp_lane *lane)
{
    (void)shutdown(lane->fd, SHUT_RDWR);
}

void tcp_frame(struct tcp_connection *c, const struct frame *f)
{
    uint8_t head[FRAME_BYTES];
    struct tcp_lane *lane = c->lane[LANE_CONTROL];
    frame_encode(head, f);
    if (tcp_bytes_add(&lane->later, head, sizeof head) < 0) {
        break_off(lane); /* a lost frame would leave the two sides in disagreement */
    }
    /* Sending costs as much as a wake-up, and wakes the owner; whoever waits for the bytes that have just come is told
     * first, and will often want more: one message for both. */
    if (f->type == FRAME_DONE && lane->ctx->config.done_ns > 0) {
        tcp_lazy(lane);
    } else {
        tcp_dirty(lane);
    }
}

static size_t waiting(const struct tcp_lane *lane)
{
    return lane->now.size - lane->now_at + lane->later.size;
}

int tcp_send(void *arg, struct connection *to, const void *message, size_t n)
{
    struct tcp *ctx = arg;
    struct tcp_connection *c = (struct tcp_connection *)to;
    if (c->state != PAIR_OPEN) {
        return -ENOTCONN;
    }
    if (n < 1 || n > TRANSPORT_MESSAGE_MAX) {
        return -EMSGSIZE;
    }
    struct tcp_lane *lane = c->lane[LANE_CONTROL];
    if (waiting(lane) > 0 && waiting(lane) + n > ctx->config.message_queue) {
        c->room_wanted = true;
        ctx->stats.send_refused++;
        return -EAGAIN;
    }
    uint8_t head[FRAME_BYTES];
    frame_encode(head, &(struct frame){.type = FRAME_MESSAGE, .length = (uint32_t)n});
    size_t before = lane->later.size;
    int e = tcp_bytes_add(&lane->later, head, sizeof head);
    e = e < 0 ? e : tcp_bytes_add(&lane->later, message, n);
    if (e < 0) {
        lane->later.size = before;
        return e;
    }
    ctx->stats.messages_out++;
    tcp_dirty(lane);
    return 0;
}

/* ---- a batch ---- */

static bool batch_left(const struct tcp_lane *lane)
{
    return lane->now_at < lane->now.size || lane->item < lane->item_count;
}

static bool next_batch(struct tcp_lane *lane)
{
    struct bytes swap = lane->now;
    lane->now = lane->later;
    lane->later = swap;
    lane->now_at = 0;
    emptied(&lane->later);
    lane->item = lane->item_count = 0;
    tcp_fill_items(lane);
    return batch_left(lane);
}

/* *more: what follows in the batch goes by sendfile. */
static int gather(struct tcp_lane *lane, struct iovec *v, size_t *total, bool *more)
{
    int n = 0;
    *total = 0;
    *more = false;
    if (lane->now_at < lane->now.size) {
        v[n++] = (struct iovec){lane->now.data + lane->now_at, lane->now.size - lane->now_at};
    }
    for (uint32_t i = lane->item; i < lane->item_count && !*more; i++) {
        struct item *it = &lane->items[i];
        if (it->head_at < FRAME_BYTES) {
            v[n++] = (struct iovec){it->head + it->head_at, FRAME_BYTES - it->head_at};
        }
        if (it->file) {
            *more = true;
        } else if (it->at < it->bytes) {
            v[n++] = (struct iovec){(void *)(uintptr_t)(it->payload + it->at), it->bytes - it->at};
        }
    }
    for (int i = 0; i < n; i++) {
        *total += v[i].iov_len;
    }
    return n;
}

static size_t spend(size_t *n, size_t have)
{
    size_t use = *n < have ? *n : have;
    *n -= use;
    return use;
}

/* n bytes of the batch are sent. */
static void advance(struct tcp_lane *lane, size_t n)
{
    lane->now_at += spend(&n, lane->now.size - lane->now_at);
    while (lane->item < lane->item_count) {
        struct item *it = &lane->items[lane->item];
        it->head_at += (uint32_t)spend(&n, FRAME_BYTES - it->head_at);
        if (it->head_at < FRAME_BYTES || (it->file && it->at < it->bytes)) {
            return;
        }
        it->at += (uint32_t)spend(&n, it->bytes - it->at);
        if (it->at < it->bytes) {
            return;
        }
        lane->item++;
        tcp_item_sent(lane, it);
    }
}

static ssize_t send_gathered(struct tcp_lane *lane, size_t *want)
{
    struct iovec v[2 * ITEMS_MAX + 1];
    bool more;
    struct msghdr m = {.msg_iov = v};
    m.msg_iovlen = (size_t)gather(lane, v, want, &more);
    ssize_t n = sendmsg(lane->fd, &m, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (n > 0) {
        advance(lane, (size_t)n);
        lane->ctx->stats.bytes_send += (size_t)n;
    }
    return n;
}

/* sendfile knows no MSG_NOSIGNAL: the signal is held off while a batch is sent, and taken out if it came. */
struct hold {
    bool held;
    sigset_t old;
};

static void hold_pipe(struct hold *h)
{
    sigset_t pipe_set;
    if (!h->held) {
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &h->old);
        h->held = true;
    }
}

static void let_pipe_go(struct hold *h, bool came)
{
    sigset_t pipe_set, pending;
    if (!h->held) {
        return;
    }
    if (came && !sigismember(&h->old, SIGPIPE) && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE)) {
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        sigtimedwait(&pipe_set, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &h->old, NULL);
}

static ssize_t send_file(struct tcp_lane *lane, size_t *want)
{
    struct item *it = &lane->items[lane->item];
    off_t offset = (off_t)(it->offset + it->at);
    *want = it->bytes - it->at;
    ssize_t n = sendfile(lane->fd, lane->ctx->pool_fd, &offset, *want);
    errno = n == 0 ? EIO : errno; /* 0: the file has become too short */
    if (n > 0) {
        it->at += (uint32_t)n;
        lane->ctx->stats.bytes_sendfile += (size_t)n;
        if (it->at == it->bytes) {
            advance(lane, 0);
        }
    }
    return n;
}

static bool front_is_file(const struct tcp_lane *lane)
{
    const struct item *it = &lane->items[lane->item];
    return lane->now_at == lane->now.size && lane->item < lane->item_count && it->file && it->head_at == FRAME_BYTES;
}

static void tell_room(struct tcp_lane *lane)
{
    struct tcp *ctx = lane->ctx;
    struct tcp_connection *c = lane->c;
    /* Out of a turn, the next turn tells. */
    if (ctx->in_turn && c->room_wanted && waiting(lane) <= ctx->config.message_queue / 2) {
        c->room_wanted = false;
        ctx->events.room(ctx->env, &c->head);
    }
}

static size_t send_batches(struct tcp_lane *lane, size_t quota, bool *left)
{
    size_t sent = 0;
    struct hold hold = {.held = false};
    bool pipe = false;
    *left = true;
    while (sent < quota) {
        if (!batch_left(lane) && !next_batch(lane)) {
            *left = false;
            break;
        }
        size_t want;
        bool file = front_is_file(lane);
        if (file) {
            hold_pipe(&hold);
        }
        ssize_t n = file ? send_file(lane, &want) : send_gathered(lane, &want);
        pipe |= file && n < 0 && errno == EPIPE;
        if (n <= 0 && errno != EAGAIN && errno != EINTR) {
            break_off(lane);
            *left = false;
            break;
        }
        sent += n > 0 ? (size_t)n : 0;
        if (n < 0 || (size_t)n < want) {
            lane->ctx->stats.short_sends++;
            break;
        }
    }
    let_pipe_go(&hold, pipe);
    return sent;
}

size_t tcp_transmit(struct tcp_lane *lane, size_t quota)
{
    if (lane->fd < 0 || lane->stage != LANE_OPEN) {
        return 0;
    }
    bool left;
    tcp_not_lazy(lane);
    size_t sent = send_batches(lane, quota, &left);
    bool room = lane->c->room_wanted && lane->kind == LANE_CONTROL;
    tcp_arm(lane, EPOLLIN | (left || (room && !lane->ctx->in_turn) ? EPOLLOUT : 0));
    if (room) {
        tell_room(lane);
    }
    return sent;
}

/* What of an item is on its way stays a frame; what is not becomes the error, or nothing. */
static bool retract(struct tcp_lane *lane, struct item *it, const struct frame *error, bool placed)
{
    static uint8_t zeros[BATCH_BYTES];
    if (it->head_at == 0) {
        it->bytes = 0;
        it->file = false;
        if (placed) {
            it->head_at = FRAME_BYTES;
            it->head[1] = 0;
        } else {
            frame_encode(it->head, error);
        }
        return true;
    }
    if ((it->head[1] & FRAME_LAST) || it->bytes > sizeof zeros) {
        break_off(lane); /* its head says that all is well: only a reset can take that back */
    }
    it->payload = zeros;
    it->file = false;
    return placed;
}

bool tcp_retract(struct tcp_lane *lane, struct serve *s, int status)
{
    bool placed = false;
    for (uint32_t i = lane->item; i < lane->item_count; i++) {
        struct item *it = &lane->items[i];
        if (it->serve != s || (it->head_at == FRAME_BYTES && it->at == it->bytes)) {
            continue;
        }
        if (!placed && it->head_at == 0) {
            s->taken = it->offset - s->offset;
        }
        struct frame error = {.type = FRAME_DATA,
                              .flags = FRAME_LAST | FRAME_ERROR,
                              .request = s->id,
                              .offset = s->taken,
                              .length = (uint32_t)-status};
        placed = retract(lane, it, &error, placed);
    }
    advance(lane, 0);
    return placed;
}
