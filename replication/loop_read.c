/* loop_read.c: payload of the loop transport: pieces, copied out of the owner's memory when their time comes. */
#include "replication/loop_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 4u
#define SILENCE_NS INT64_C(5000000000)
#define HASHED_ELSEWHERE 4u /* one read in so many is not shown in passing, as a NIC would do it */

void read_drop(struct loop_read *r)
{
    if (--r->refs)
        return;
    TAILQ_REMOVE(&r->end->pair->net->reads, r, entry);
    end_drop(r->end);
    free(r);
}

void read_quiet(struct loop_read *r)
{
    r->writes = false;
}

/* The transport's last touch of t, whatever the outcome. */
static void complete(struct loop *ctx, struct loop_read *r, int status)
{
    struct transfer *t = r->t;
    r->t = NULL;
    read_quiet(r);
    t->status = status;
    t->state = TRANSFER_COMPLETED;
    t->completed_ns = loop_mono(ctx);
    t->received = status == 0 ? t->bytes : 0;
    t->own.connection = NULL;
    ctx->stats.completed++;
    ctx->stats.failed += status < 0;
    ctx->stats.cancelled += status == -ECANCELED || status == -ETIMEDOUT;
    ctx->stats.bytes_received += t->received;
    if (status == 0 && ctx->net->config.arrived)
        ctx->net->config.arrived(ctx->env, &r->end->c, t);
    t->complete(t);
    read_drop(r);
}

/* As a queue pair whose retries are used up. */
void read_lost(struct loop_read *r)
{
    if (r->t)
        end_cut(r->end);
}

/* ---- posting ---- */

static int check(const struct transfer *t)
{
    uint64_t sum = 0;
    if (t->bytes == 0 || t->bytes > TRANSPORT_TRANSFER_MAX || t->parts == 0 || t->parts > TRANSPORT_IOV_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < t->parts; i++)
        sum += t->to[i].iov_len;
    if (sum != t->bytes)
        return -EINVAL;
    return t->state == TRANSFER_POSTED ? -EBUSY : 0;
}

static struct loop_read *make(struct loop_net *net, struct loop_end *e, struct transfer *t)
{
    struct loop_read *r = calloc(1, sizeof *r + t->parts * sizeof *t->to);
    if (!r)
        return NULL;
    r->t = t;
    r->end = e;
    r->refs = 1;
    r->writes = true;
    r->offset = t->offset;
    r->bytes = t->bytes;
    r->lease = t->lease;
    r->generation = t->generation;
    r->parts = t->parts;
    memcpy(r->to, t->to, t->parts * sizeof *t->to);
    e->pair->refs++;
    TAILQ_INSERT_TAIL(&net->reads, r, entry);
    return r;
}

/* Pieces of a torn read each have a time of their own. */
static void take_pieces(struct loop_net *net, struct loop_read *r)
{
    bool torn = r->bytes >= PIECES_MAX && loop_fault(net, LOOP_TORN);
    uint64_t step = torn ? r->bytes / (2 + loop_random(net) % (PIECES_MAX - 1)) : r->bytes;
    int64_t late = loop_fault(net, LOOP_LATE) ? loop_span(net, 0, net->config.late_ns) : 0;
    int64_t at = net->now + loop_delay(net) + late;
    r->damaged = loop_fault(net, LOOP_DAMAGED);
    r->lost = loop_fault(net, LOOP_NOT_COMPLETED);
    if (r->lost)
        loop_send(net, ITEM_LOST, net->now + SILENCE_NS, NULL, r, NULL, 0);
    for (uint64_t from = 0; from < r->bytes; from += step) {
        uint64_t n = r->bytes - from < step ? r->bytes - from : step;
        int64_t own = torn ? loop_span(net, 0, net->config.late_ns) : 0;
        loop_send(net, ITEM_PIECE, at + own, NULL, r, NULL, n)->from = from;
        r->pieces++;
    }
}

int loop_read(void *ctx, struct connection *c, struct transfer *t)
{
    struct loop *l = ctx;
    struct loop_net *net = l->net;
    struct loop_end *e = end_of(c);
    int bad = check(t);
    if (bad)
        return bad;
    if (!e->up)
        return -ENOTCONN;
    struct loop_read *r = make(net, e, t);
    if (!r)
        return -ENOMEM;
    t->state = TRANSFER_POSTED;
    t->status = 0;
    t->received = 0;
    t->first_ns = t->completed_ns = 0;
    t->posted_ns = t->asked_ns = loop_mono(l);
    t->own.connection = r;
    l->stats.posted++;
    if (t->deadline != INT64_MAX) {
        int64_t left = t->deadline - t->posted_ns;
        loop_send(net, ITEM_EXPIRE, net->now + (left > 0 ? left : 0), e, r, NULL, 0);
    }
    if (r->offset > e->memory_bytes || r->bytes > e->memory_bytes - r->offset)
        loop_send(net, ITEM_ENDED, net->now + loop_delay(net), e, r, NULL, 0)->status = -EINVAL;
    else if (net->config.held)
        loop_send(net, ITEM_WANT, net->now + loop_delay(net), e->other, r, NULL, 0);
    else
        take_pieces(net, r);
    return 0;
}

/* ---- copying ---- */

static void copy(struct loop_read *r, uint64_t from, uint64_t n)
{
    const uint8_t *data = r->end->memory + r->offset + from;
    for (uint32_t i = 0; i < r->parts && n; i++) {
        uint64_t room = r->to[i].iov_len;
        if (from >= room) {
            from -= room;
            continue;
        }
        uint64_t k = room - from < n ? room - from : n;
        uint8_t *to = (uint8_t *)r->to[i].iov_base + from;
        memcpy(to, data, k);
        if (r->damaged) {
            to[k / 2] ^= 0x55;
            r->damaged = false;
        }
        data += k;
        n -= k;
        from = 0;
    }
}

void read_piece(struct loop_net *net, const struct item *i)
{
    struct loop_read *r = i->read;
    bool gone = r->end->other->stopped && !net->config.held; /* its queue pair is destroyed: nothing answers */
    if (!r->writes || gone)
        return;
    copy(r, i->from, i->n);
    if (--r->pieces == 0 && r->t && !r->lost)
        loop_send(net, ITEM_ENDED, net->now + loop_delay(net), r->end, r, NULL, 0);
}

/* ---- in a turn ---- */

static void done(struct loop_net *net, struct loop_read *r, int status)
{
    if (net->config.held)
        loop_send(net, ITEM_DONE, net->now + loop_delay(net), r->end->other, r, NULL, 0)->status = status;
}

static void ended(struct loop *ctx, struct loop_read *r, int status)
{
    struct transfer *t = r->t;
    if (!t)
        return;
    t->first_ns = loop_mono(ctx);
    if (status == 0 && t->progress && r->parts == 1 && loop_random(ctx->net) % HASHED_ELSEWHERE)
        t->progress(t, 0, r->to[0].iov_base, r->bytes);
    done(ctx->net, r, status);
    complete(ctx, r, status);
}

static void wanted(struct loop *ctx, struct loop_end *e, struct loop_read *r)
{
    struct transport_want want = {
        .lease = r->lease, .generation = r->generation, .offset = r->offset, .bytes = r->bytes};
    if (!r->t || !e->up)
        return;
    int status = ctx->events.admit(ctx->env, &e->c, &want, &r->token);
    if (e->ctx != ctx)
        return;
    if (status < 0) {
        ctx->stats.serve_errors++;
        loop_send(ctx->net, ITEM_ENDED, ctx->net->now + loop_delay(ctx->net), r->end, r, NULL, 0)->status = status;
        return;
    }
    r->serving = true;
    r->refs++; /* until the owner was told of its end */
    ctx->stats.serving++;
    take_pieces(ctx->net, r);
}

static void served(struct loop *ctx, struct loop_end *e, struct loop_read *r, int status)
{
    if (!r->serving)
        return;
    r->serving = false;
    ctx->stats.serving--;
    ctx->stats.served += status == 0;
    ctx->stats.serve_errors += status < 0;
    ctx->events.served(ctx->env, &e->c, r->lease, r->token, status);
    read_drop(r);
}

void read_taken(struct loop *ctx, struct item *i)
{
    switch (i->kind) {
    case ITEM_WANT:
        wanted(ctx, i->end, i->read);
        break;
    case ITEM_DONE:
        served(ctx, i->end, i->read, i->status < 0 ? -ECANCELED : 0);
        break;
    case ITEM_EXPIRE:
        if (i->read->t) {
            done(ctx->net, i->read, -ETIMEDOUT);
            complete(ctx, i->read, -ETIMEDOUT);
        }
        break;
    default:
        ended(ctx, i->read, i->status);
        break;
    }
}

/* ---- ends of it ---- */

int loop_cancel(void *ctx, struct transfer *t)
{
    struct loop *l = ctx;
    struct loop_read *r = t->own.connection;
    if (t->state != TRANSFER_POSTED || !r)
        return -ENOENT;
    done(l->net, r, -ECANCELED);
    complete(l, r, -ECANCELED);
    return 0;
}

int loop_stop(void *ctx, struct connection *c, uint64_t token, int status)
{
    struct loop *l = ctx;
    struct loop_net *net = l->net;
    struct loop_read *r;
    TAILQ_FOREACH(r, &net->reads, entry)
    {
        if (r->serving && r->end->other == end_of(c) && r->token == token && r->pieces && r->writes) {
            read_quiet(r);
            loop_send(net, ITEM_ENDED, net->now + loop_delay(net), r->end, r, NULL, 0)->status = status;
            loop_send(net, ITEM_DONE, net->now + loop_delay(net), r->end->other, r, NULL, 0)->status = -ECANCELED;
            return 0;
        }
    }
    return -ENOENT;
}

/* A completion may begin others, and end any: the list is looked through from its beginning each time. */
static struct loop_read *posted(struct loop_end *e)
{
    struct loop_read *r;
    TAILQ_FOREACH(r, &e->ctx->net->reads, entry)
    {
        /* One that is freed has left the list. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        if (r->end == e && r->t)
            return r;
    }
    return NULL;
}

void end_reads(struct loop_end *e, int status)
{
    struct loop_read *r;
    while ((r = posted(e)))
        complete(e->ctx, r, status);
}

void read_served(struct loop_end *e, int status)
{
    struct loop_read *r;
    bool again = true;
    while (again) {
        again = false;
        TAILQ_FOREACH(r, &e->ctx->net->reads, entry)
        {
            if (r->serving && r->end->other == e) {
                served(e->ctx, e, r, status);
                again = true;
                break;
            }
        }
    }
}

/* Memory that goes with its process is written by nobody: only what the context exposed outlives it. */
static bool outlives(const struct loop *ctx, const struct loop_read *r)
{
    const uint8_t *base = ctx->memory;
    for (uint32_t i = 0; i < r->parts; i++) {
        const uint8_t *at = r->to[i].iov_base;
        if (!base || at < base || at + r->to[i].iov_len > base + ctx->memory_bytes)
            return false;
    }
    return true;
}

static void strand(struct loop_net *net, struct loop_read *r)
{
    r->t = NULL;
    if (outlives(r->end->ctx, r) && loop_fault(net, LOOP_WROTE_ON))
        loop_send(net, ITEM_STRAND, net->now + loop_span(net, 0, net->config.ghost_ns), NULL, r, NULL, 0);
    else
        read_quiet(r);
    read_drop(r);
}

void read_strand(struct loop_end *e)
{
    struct loop_net *net = e->ctx->net;
    struct loop_read *r, *next;
    for (r = TAILQ_FIRST(&net->reads); r; r = next) {
        next = TAILQ_NEXT(r, entry);
        if (r->end == e && r->t) {
            strand(net, r);
        } else if (r->end->other == e && r->serving) {
            r->serving = false; /* nobody is told */
            read_drop(r);
        }
    }
}
