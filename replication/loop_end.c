/* loop_end.c: connections of the loop transport, and the messages over them. */
#include "replication/loop_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_QUEUE (1u << 20)

/* ---- ends ---- */

static struct loop_end *join(struct loop_pair *p, unsigned which, struct loop *ctx)
{
    struct loop_end *e = &p->end[which];
    e->ctx = ctx;
    e->last = INT64_MIN;
    TAILQ_INSERT_TAIL(&ctx->ends, e, entry);
    ctx->n_ends++;
    p->refs++;
    return e;
}

static struct loop_pair *pair_make(struct loop_net *net)
{
    struct loop_pair *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->net = net;
    for (unsigned i = 0; i < 2; i++) {
        p->end[i].pair = p;
        p->end[i].other = &p->end[!i];
    }
    return p;
}

void end_drop(struct loop_end *e)
{
    if (--e->pair->refs == 0)
        free(e->pair);
}

void end_gone(struct loop_end *e)
{
    TAILQ_REMOVE(&e->ctx->ends, e, entry);
    e->ctx->n_ends--;
    e->ctx = NULL;
    end_drop(e);
}

static void close_later(struct loop_end *e, int status)
{
    if (e->cut || !e->ctx)
        return;
    struct loop_net *net = e->ctx->net;
    e->cut = true;
    int64_t at = net->now + loop_delay(net) + loop_span(net, 0, net->config.linger_ns);
    loop_send(net, ITEM_CLOSED, at, e, NULL, NULL, 0)->status = status;
}

void end_hang_up(struct loop_end *e)
{
    close_later(e->other, -ECONNRESET);
}

void end_cut(struct loop_end *e)
{
    close_later(e, -ECONNRESET);
    close_later(e->other, -ECONNRESET);
}

void loop_cut(void *ctx, struct connection *c)
{
    struct loop *l = ctx;
    struct loop_end *e = end_of(c);
    if (!e->up || e->cut)
        return;
    l->net->faults[LOOP_CUT]++;
    end_cut(e);
}

/* Everything that it was to tell is told; then it is no more. */
static void end_over(struct loop_end *e, int status)
{
    e->stopped = true;
    end_reads(e, status);
    read_served(e, status);
}

void loop_disconnect(void *ctx, struct connection *c)
{
    struct loop_end *e = end_of(c);
    (void)ctx;
    end_over(e, -ECONNRESET);
    end_hang_up(e);
    end_gone(e);
}

/* ---- connecting ---- */

static struct loop *find(const struct loop_net *net, const char *address)
{
    struct loop *l;
    TAILQ_FOREACH(l, &net->contexts, entry)
    {
        if (*l->address && strcmp(l->address, address) == 0)
            return l;
    }
    return NULL;
}

static void meet(struct loop_end *e, struct loop_end *o, int64_t at)
{
    const struct loop *from = e->ctx, *to = o->ctx;
    o->c.incoming = true;
    snprintf(o->c.peer, sizeof o->c.peer, "%s", *from->address ? from->address : "nobody:1");
    e->memory = to->memory;
    e->memory_bytes = to->memory_bytes;
    o->memory = from->memory;
    o->memory_bytes = from->memory_bytes;
    o->last = at;
    loop_send(from->net, ITEM_ACCEPTED, at, o, NULL, NULL, 0);
}

int loop_connect(void *ctx, const char *peer, void *user, struct connection **c, char *why, size_t why_size)
{
    struct loop *l = ctx;
    struct loop_net *net = l->net;
    struct loop *to = find(net, peer);
    if (l->config.connections && l->n_ends >= l->config.connections) {
        snprintf(why, why_size, "there are as many peers as may be");
        return -EAGAIN;
    }
    struct loop_end *e = join(pair_make(net), 0, l);
    e->c.user = user;
    snprintf(e->c.peer, sizeof e->c.peer, "%s", peer);
    l->stats.connects++;
    *c = &e->c;
    int64_t at = net->now + loop_delay(net);
    bool fails = !to || loop_fault(net, LOOP_NOT_CONNECTED);
    if (!fails) {
        meet(e, join(e->pair, 1, to), at);
        at += loop_delay(net);
    }
    e->last = at;
    loop_send(net, ITEM_CONNECTED, at, e, NULL, NULL, 0)->status = fails ? -ECONNREFUSED : 0;
    return 0;
}

/* ---- messages ---- */

static void arrive(struct loop_net *net, struct loop_end *to, const void *message, size_t n)
{
    int64_t at = net->now + loop_delay(net);
    bool late = loop_fault(net, LOOP_REORDERED);
    if (late)
        at += loop_span(net, 0, 4 * (net->config.delay_max + 1));
    else
        to->last = at = at > to->last ? at : to->last;
    loop_send(net, ITEM_MESSAGE, at, to, NULL, message, n);
}

int loop_message(void *ctx, struct connection *c, const void *message, size_t n)
{
    struct loop *l = ctx;
    struct loop_net *net = l->net;
    struct loop_end *e = end_of(c);
    uint64_t room = l->config.message_queue ? l->config.message_queue : MESSAGE_QUEUE;
    if (n == 0 || n > TRANSPORT_MESSAGE_MAX)
        return -EMSGSIZE;
    if (!e->up)
        return -ENOTCONN;
    if (e->full || e->under_way + n > room + TRANSPORT_MESSAGE_MAX || loop_fault(net, LOOP_FULL)) {
        l->stats.send_refused++;
        if (!e->full)
            loop_send(net, ITEM_ROOM, net->now + loop_delay(net), e, NULL, NULL, 0);
        e->full = true;
        return -EAGAIN;
    }
    l->stats.messages_out++;
    l->stats.bytes_send += n;
    if (!e->other->ctx || e->cut || loop_fault(net, LOOP_DROPPED))
        return 0;
    arrive(net, e->other, message, n);
    e->under_way += n;
    if (loop_fault(net, LOOP_DOUBLED)) {
        arrive(net, e->other, message, n);
        e->under_way += n;
    }
    return 0;
}

/* ---- in a turn ---- */

static void connected(struct loop *ctx, struct loop_end *e, int status)
{
    bool there = status == 0 && e->other->ctx;
    e->up = there;
    if (there) {
        ctx->events.connected(ctx->env, &e->c, 0, "");
        return;
    }
    ctx->stats.connect_errors++;
    ctx->events.connected(ctx->env, &e->c, status ? status : -ECONNRESET, "nobody listens there");
    end_over(e, -ECONNRESET);
    end_gone(e);
}

static void closed(struct loop *ctx, struct loop_end *e, int status)
{
    if (!e->up) { /* an attempt that fails by itself, or a guest that was never shown */
        if (!e->c.incoming)
            ctx->events.connected(ctx->env, &e->c, status, "the other end has gone");
    } else {
        end_over(e, -ECONNRESET);
        e->up = false;
        ctx->stats.resets++;
        ctx->events.closed(ctx->env, &e->c, status, "the connection is lost");
    }
    end_over(e, -ECONNRESET);
    end_hang_up(e);
    end_gone(e);
}

static void message(struct loop *ctx, struct item *i)
{
    struct loop_end *e = i->end, *from = e->other;
    from->under_way -= i->n;
    if (!e->up)
        return;
    ctx->stats.messages_in++;
    ctx->events.message(ctx->env, &e->c, i->bytes, i->n);
    if (e->ctx == ctx && e->up && loop_fault(ctx->net, LOOP_CUT))
        end_cut(e);
}

void end_taken(struct loop *ctx, struct item *i)
{
    struct loop_end *e = i->end;
    switch (i->kind) {
    case ITEM_CONNECTED:
        connected(ctx, e, i->status);
        break;
    case ITEM_ACCEPTED:
        e->up = true;
        ctx->stats.accepted++;
        ctx->events.accepted(ctx->env, &e->c);
        break;
    case ITEM_MESSAGE:
        message(ctx, i);
        break;
    case ITEM_ROOM:
        e->full = false;
        if (e->up)
            ctx->events.room(ctx->env, &e->c);
        break;
    default:
        closed(ctx, e, i->status);
        break;
    }
}
