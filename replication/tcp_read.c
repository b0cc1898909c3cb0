/* tcp_read.c: the reader's side: the window, requests, and what becomes of their data. */
#include "replication/tcp_internal.h"

#include <errno.h>
#include <stdlib.h>

#define SPARE 8 /* bulk leaves a SPAREth of a window to small transfers */

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* On the control lane its DATA carries the acknowledgement of its READ; before that from the bulk lane it is a segment
 * of its own. What is alone keeps nobody waiting there, and fits into what bulk from other peers leaves of a window. */
static bool is_small(const struct tcp_connection *c, const struct transfer *t)
{
    const struct transport_config *f = &c->ctx->config;
    bool lone = c->request_count == 0 && TAILQ_EMPTY(&c->small) && TAILQ_EMPTY(&c->bulk);
    return t->bytes <= f->small ||
           (lone && t->bytes <= LONE_MAX && t->bytes <= min64(f->window, f->source_window) / SPARE);
}

/* ---- completion ---- */

static void unqueue(struct tcp_connection *c, struct transfer *t)
{
    if (t->own.queued) {
        if (t->own.small) {
            TAILQ_REMOVE(&c->small, t, own.link);
        } else {
            TAILQ_REMOVE(&c->bulk, t, own.link);
        }
        t->own.queued = false;
        c->ctx->waiting--;
    }
}

/* The last that the transport does with t. */
static void complete(struct tcp_connection *c, struct transfer *t, int status)
{
    struct transport_stats *s = &c->ctx->stats;
    unqueue(c, t);
    t->status = status;
    t->completed_ns = tcp_now();
    t->state = TRANSFER_COMPLETED;
    s->completed++;
    s->failed += status < 0;
    s->cancelled += status == -ECANCELED || status == -ETIMEDOUT;
    c->ctx->small_done |= t->own.small;
    c->ctx->ended |= c->ctx->small_done || c->ctx->in_flight == 0;
    t->complete(t);
}

static void landed(struct tcp_connection *c, uint64_t n)
{
    c->in_flight -= n;
    c->ctx->in_flight -= n;
}

static void free_request(struct tcp_connection *c, struct request *r)
{
    landed(c, r->allowed - r->received);
    c->small_count -= r->lane == LANE_CONTROL;
    c->request_count--;
    *r = (struct request){0};
}

static void request_ended(struct tcp_connection *c, struct request *r, int status)
{
    struct transfer *t = r->t;
    tcp_frame(c, &(struct frame){.type = FRAME_DONE, .request = r->id});
    free_request(c, r);
    if (t) {
        t->own.has_request = false;
        complete(c, t, status);
    }
}

void tcp_give_up(struct transfer *t, int status)
{
    struct tcp_connection *c = t->own.connection;
    if (t->own.has_request) {
        struct request *r = &c->requests[t->own.request];
        r->t = NULL;
        r->due = tcp_now() + c->ctx->config.silence_ns;
        tcp_due(c->ctx, r->due);
        tcp_frame(c, &(struct frame){.type = FRAME_CANCEL, .request = r->id});
        t->own.has_request = false;
    }
    complete(c, t, status);
}

void tcp_reads_end(struct tcp_connection *c)
{
    struct transfer *t;
    for (uint32_t i = 0; c->requests && i < REQUESTS_MAX; i++) {
        struct request *r = &c->requests[i];
        if (!r->id) {
            continue;
        }
        t = r->t;
        free_request(c, r);
        if (t) {
            t->own.has_request = false;
            complete(c, t, -ECONNRESET);
        }
    }
    while ((t = TAILQ_FIRST(&c->small)) || (t = TAILQ_FIRST(&c->bulk))) {
        complete(c, t, -ECONNRESET);
    }
}

/* ---- asking ---- */

static bool fits(const struct tcp_connection *c, uint64_t n, bool small)
{
    const struct transport_config *f = &c->ctx->config;
    uint64_t all = f->window - (small ? 0 : f->window / SPARE);
    uint64_t source = f->source_window - (small ? 0 : f->source_window / SPARE);
    return c->ctx->in_flight + n <= all && c->in_flight + n <= source;
}

static struct request *new_request(struct tcp_connection *c, struct transfer *t)
{
    while (c->requests[c->request_next].id) {
        c->request_next = (c->request_next + 1) % REQUESTS_MAX;
    }
    uint32_t index = c->request_next;
    struct request *r = &c->requests[index];
    *r = (struct request){
        .id = ++c->serial * REQUESTS_MAX + index,
        .t = t,
        .bytes = t->bytes,
        .lane = t->own.small ? LANE_CONTROL : LANE_BULK,
    };
    c->request_next = (index + 1) % REQUESTS_MAX;
    c->request_count++;
    c->small_count += r->lane == LANE_CONTROL;
    t->own.request = index;
    t->own.has_request = true;
    t->asked_ns = tcp_now();
    return r;
}

/* Bytes that the peer may send so far. */
static uint64_t asked_for(const struct tcp_connection *c, const struct transfer *t)
{
    return t->own.has_request ? c->requests[t->own.request].allowed : 0;
}

/* Lets the peer send n bytes more of t. */
static void ask(struct tcp_connection *c, struct transfer *t, uint64_t n)
{
    bool first = !t->own.has_request;
    struct request *r = first ? new_request(c, t) : &c->requests[t->own.request];
    r->allowed += n;
    c->in_flight += n;
    c->ctx->in_flight += n;
    struct frame f = {.type = FRAME_GRANT, .request = r->id, .allowed = r->allowed};
    if (first) {
        f.type = FRAME_READ;
        f.flags = r->lane == LANE_BULK ? FRAME_BULK : 0;
        f.lease = t->lease;
        f.generation = t->generation;
        f.offset = t->offset;
        f.bytes = t->bytes;
    }
    tcp_frame(c, &f);
    if (r->allowed == t->bytes) {
        unqueue(c, t);
    }
}

static void ask_small(struct tcp_connection *c)
{
    struct transfer *t;
    while ((t = TAILQ_FIRST(&c->small)) && c->request_count < REQUESTS_MAX && fits(c, t->bytes, true)) {
        ask(c, t, t->bytes);
    }
}

/* One quantum for the first bulk transfer that may have one. One that has no request yet may have to wait for others
 * to end, while those that have one go on. */
static bool ask_bulk(struct tcp_connection *c, uint64_t quantum)
{
    struct transfer *t;
    TAILQ_FOREACH(t, &c->bulk, own.link)
    {
        if (t->own.has_request || c->request_count < REQUESTS_MAX) {
            break;
        }
    }
    uint64_t n = t ? min64(t->bytes - asked_for(c, t), quantum) : 0;
    if (n == 0 || !fits(c, n, false)) {
        return false;
    }
    ask(c, t, n);
    if (t->own.queued) {
        TAILQ_REMOVE(&c->bulk, t, own.link);
        TAILQ_INSERT_TAIL(&c->bulk, t, own.link);
    }
    return true;
}

static void drop_satisfied(struct tcp *ctx)
{
    struct tcp_connection *c, *next;
    for (c = TAILQ_FIRST(&ctx->wanting); c; c = next) {
        next = TAILQ_NEXT(c, wanting_link);
        if (TAILQ_EMPTY(&c->small) && TAILQ_EMPTY(&c->bulk)) {
            TAILQ_REMOVE(&ctx->wanting, c, wanting_link);
            c->wanting = false;
        }
    }
}

/* Small before bulk, and of bulk one quantum for each peer in turn. No callback is made in here. */
void tcp_grant(struct tcp *ctx)
{
    struct tcp_connection *c, *next;
    uint64_t quantum = min64(GRANT_QUANTUM, min64(ctx->config.window, ctx->config.source_window) / 4);
    if (TAILQ_EMPTY(&ctx->wanting)) {
        return;
    }
    TAILQ_FOREACH(c, &ctx->wanting, wanting_link)
    {
        ask_small(c);
    }
    bool some = true;
    while (some) {
        some = false;
        struct tcp_connection *last = TAILQ_LAST(&ctx->wanting, connection_list);
        for (c = TAILQ_FIRST(&ctx->wanting); c; c = c == last ? NULL : next) {
            next = TAILQ_NEXT(c, wanting_link);
            if (ask_bulk(c, quantum)) {
                some = true;
                /* It had its turn: the next pass begins with others. */
                TAILQ_REMOVE(&ctx->wanting, c, wanting_link);
                TAILQ_INSERT_TAIL(&ctx->wanting, c, wanting_link);
            }
        }
    }
    drop_satisfied(ctx);
}

static int check_list(const struct transfer *t)
{
    uint64_t left = t->bytes;
    if (t->bytes < 1 || t->bytes > TRANSPORT_TRANSFER_MAX || t->parts < 1 || t->parts > TRANSPORT_IOV_MAX ||
        !t->complete) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < t->parts; i++) {
        if (t->to[i].iov_len > left) {
            return -EINVAL;
        }
        left -= t->to[i].iov_len;
    }
    return left == 0 ? 0 : -EINVAL;
}

static void reset(struct transfer *t, struct tcp_connection *c)
{
    t->status = 0;
    t->received = 0;
    t->asked_ns = t->first_ns = t->completed_ns = 0;
    t->posted_ns = tcp_now();
    t->own.connection = c;
    t->own.in_part = 0;
    t->own.part = t->own.request = 0;
    t->own.has_request = false;
    t->own.small = is_small(c, t);
    t->own.queued = true;
    c->ctx->waiting++;
    t->state = TRANSFER_POSTED;
}

int tcp_read(void *arg, struct connection *from, struct transfer *t)
{
    struct tcp *ctx = arg;
    struct tcp_connection *c = (struct tcp_connection *)from;
    if (c->state != PAIR_OPEN) {
        return -ENOTCONN;
    }
    if (t->state == TRANSFER_POSTED) {
        return -EBUSY;
    }
    if (check_list(t) < 0) {
        return -EINVAL;
    }
    if (!c->requests && !(c->requests = calloc(REQUESTS_MAX, sizeof *c->requests))) {
        return -ENOMEM;
    }
    reset(t, c);
    if (t->own.small) {
        TAILQ_INSERT_TAIL(&c->small, t, own.link);
    } else {
        TAILQ_INSERT_TAIL(&c->bulk, t, own.link);
    }
    if (!c->wanting) {
        c->wanting = true;
        TAILQ_INSERT_TAIL(&ctx->wanting, c, wanting_link);
    }
    ctx->stats.posted++;
    if (t->deadline != INT64_MAX) {
        tcp_due(ctx, t->deadline);
    }
    tcp_grant(ctx);
    return 0;
}

int tcp_cancel(void *arg, struct transfer *t)
{
    if (t->state != TRANSFER_POSTED) {
        return -ENOENT;
    }
    tcp_enter(arg);
    tcp_give_up(t, -ECANCELED);
    tcp_leave(arg);
    return 0;
}

/* ---- what comes ---- */

static struct request *find(struct tcp_connection *c, uint64_t id)
{
    struct request *r = c->requests ? &c->requests[id % REQUESTS_MAX] : NULL;
    return r && id != 0 && r->id == id ? r : NULL;
}

static const char *data_fault(const struct tcp_lane *lane, const struct request *r, const struct frame *f)
{
    if (!r) {
        return "DATA for a request that is not open";
    }
    if (r->lane != lane->kind) {
        return "DATA on the wrong lane";
    }
    if (f->offset != r->received) {
        return "DATA with the wrong offset";
    }
    if (f->flags & FRAME_ERROR) {
        return NULL;
    }
    if (f->length > r->allowed - r->received) {
        return "DATA beyond what was asked for";
    }
    bool last = r->received + f->length == r->bytes;
    return last == ((f->flags & FRAME_LAST) != 0) ? NULL : "DATA that ends where the transfer does not";
}

void tcp_on_data(struct tcp_lane *lane, const struct frame *f)
{
    struct tcp_connection *c = lane->c;
    struct request *r = find(c, f->request);
    const char *why = data_fault(lane, r, f);
    if (why) {
        tcp_protocol(lane, why);
    } else if (f->flags & FRAME_ERROR) {
        request_ended(c, r, -(int)f->length);
    } else {
        lane->input = INPUT_DATA;
        lane->request = r;
        lane->left = f->length;
        lane->last = f->flags & FRAME_LAST;
    }
}

/* n more bytes lie in the destination: moves on in its list, and tells the caller piece by piece. A callback may give
 * the transfer up. */
static void filled(struct request *r, size_t n)
{
    struct transfer *t = r->t;
    if (t->received == 0) {
        t->first_ns = tcp_now();
    }
    while (n > 0 && r->t == t) {
        const struct iovec *part = &t->to[t->own.part];
        size_t here = part->iov_len - t->own.in_part;
        if (here == 0) {
            t->own.part++;
            t->own.in_part = 0;
            continue;
        }
        size_t use = here < n ? here : n;
        uint64_t offset = t->received;
        const void *at = (const uint8_t *)part->iov_base + t->own.in_part;
        t->own.in_part += use;
        t->received += use;
        n -= use;
        if (t->progress) {
            t->progress(t, offset, at, use);
        }
    }
}

void tcp_took(struct tcp_lane *lane, size_t n)
{
    struct tcp_connection *c = lane->c;
    struct request *r = lane->request;
    r->received += n;
    lane->left -= (uint32_t)n;
    landed(c, n);
    if (r->t) {
        c->ctx->stats.bytes_received += n;
        filled(r, n);
    } else {
        c->ctx->stats.bytes_drained += n;
    }
    if (lane->fd >= 0 && lane->left == 0) {
        lane->input = INPUT_HEAD;
        lane->request = NULL;
        if (lane->last) {
            request_ended(c, r, 0);
        }
    }
}

/* ---- time ---- */

static void queue_overdue(struct tcp_connection *c, struct transfer_list *list, int64_t now)
{
    struct transfer *t = TAILQ_FIRST(list);
    while (t && c->state == PAIR_OPEN) {
        if (t->deadline > now) {
            if (t->deadline != INT64_MAX) {
                tcp_due(c->ctx, t->deadline);
            }
            t = TAILQ_NEXT(t, own.link);
            continue;
        }
        tcp_give_up(t, -ETIMEDOUT);
        t = TAILQ_FIRST(list); /* the callback may have changed the list in any way */
    }
}

static void request_overdue(struct tcp_connection *c, struct request *r, int64_t now)
{
    int64_t due = r->t ? r->t->deadline : r->due;
    if (due > now) {
        if (due != INT64_MAX) {
            tcp_due(c->ctx, due);
        }
    } else if (r->t) {
        tcp_give_up(r->t, -ETIMEDOUT);
    } else {
        tcp_end(c, -ETIMEDOUT, "the peer does not end what was cancelled", true);
    }
}

void tcp_reads_overdue(struct tcp_connection *c, int64_t now)
{
    for (uint32_t i = 0; c->requests && i < REQUESTS_MAX && c->state == PAIR_OPEN; i++) {
        if (c->requests[i].id) {
            request_overdue(c, &c->requests[i], now);
        }
    }
    queue_overdue(c, &c->small, now);
    queue_overdue(c, &c->bulk, now);
}
