/* peer.c: the states of a connection, keep-alive, and the queue of commands. */
#include "replication/address.h"
#include "replication/peer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

void peer_config_init(struct peer_config *c)
{
    *c = (struct peer_config){
        .self = {.largest = WIRE_MESSAGE_MAX, .version_min = WIRE_VERSION, .version_max = WIRE_VERSION},
        .pending_max = PEER_PENDING_MAX,
        .silence_ns = PEER_SILENCE_NS,
        .gone_ns = PEER_GONE_NS,
        .hello_ns = PEER_HELLO_NS};
}

static bool bounds_hold(const struct peer_config *c)
{
    const struct peer_identity *s = &c->self;
    return memchr(s->cluster, 0, sizeof s->cluster) && memchr(s->node, 0, sizeof s->node) &&
           memchr(s->address, 0, sizeof s->address) && s->largest <= WIRE_MESSAGE_MAX && c->pending_max >= 1 &&
           c->pending_max <= PEER_PENDING_MAX && c->silence_ns > 0 && c->gone_ns > c->silence_ns && c->hello_ns > 0 &&
           (!s->client || (c->dials && !s->address[0]));
}

int peer_create(struct peer **out, const struct peer_config *config, int64_t now)
{
    if (!bounds_hold(config) || !peer_can_say(&config->self))
        return -EINVAL;
    if (!config->self.client && !address_reachable(config->self.address))
        return -EADDRNOTAVAIL;
    struct peer *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->config = *config;
    p->state = config->dials ? PEER_STATE_CONNECTING : PEER_STATE_GREETING;
    p->now = p->started = p->received = now;
    p->next_id = 1;
    p->earliest = INT64_MAX;
    p->ended = p->last = PEER_NONE;
    p->pinged = p->first_ping = -1;
    *out = p;
    return 0;
}

void peer_destroy(struct peer *p)
{
    free(p);
}

/* ---- commands ---- */

struct peer_command *peer_push(struct peer *p, enum peer_command_kind kind)
{
    struct peer_command *c = &p->queue[(p->first + p->n_queue++) % PEER_QUEUE];
    *c = (struct peer_command){.kind = kind};
    return c;
}

static struct peer_command *push_send(struct peer *p, const void *bytes, size_t n)
{
    struct peer_command *c = peer_push(p, PEER_SEND);
    c->bytes = bytes;
    c->n = n;
    p->stats.messages_out++;
    p->stats.bytes_out += n;
    return c;
}

void peer_send(struct peer *p, void *message, size_t n)
{
    push_send(p, message, n);
}

void peer_send_own(struct peer *p, const struct wire_message *m)
{
    struct wire_message stamped = *m;
    stamped.head.counter = p->counter;
    struct peer_command *c = push_send(p, NULL, 0);
    uint8_t *own = p->own[c - p->queue];
    struct wire_writer w;
    long n = wire_begin(&w, own, WIRE_HELLO_MAX, &stamped);
    n = n ? n : wire_end(&w);
    c->bytes = own; /* what is said here was proved sayable by peer_create or is of fixed form: n > 0 */
    c->n = n > 0 ? (size_t)n : 0;
    p->stats.bytes_out += c->n;
}

const struct peer_command *peer_command(struct peer *p)
{
    if (p->n_queue) {
        const struct peer_command *c = &p->queue[p->first];
        p->first = (p->first + 1) % PEER_QUEUE;
        p->n_queue--;
        return c;
    }
    const struct peer_command *ended = pending_ended(p);
    if (ended)
        return ended;
    if (!p->down_due)
        return NULL;
    p->down_due = false;
    const struct peer_identity *other = p->other.node[0] ? &p->other : NULL;
    p->due = (struct peer_command){.kind = PEER_DOWN, .status = p->why, .text = p->text, .other = other};
    return &p->due;
}

/* ---- closing ---- */

void peer_close(struct peer *p, int32_t why, int32_t ends)
{
    p->state = PEER_STATE_CLOSING;
    p->why = why;
    struct peer_command *c = peer_push(p, PEER_CLOSE);
    c->status = why;
    c->text = p->text;
    pending_end_all(p, ends);
}

static void on_closed(struct peer *p, int32_t status)
{
    if (p->state != PEER_STATE_CLOSING) {
        p->why = status < 0 ? status : -ECONNRESET;
        snprintf(p->text, sizeof p->text, "%s", status < 0 ? "the connection failed" : "the other side hung up");
    }
    pending_end_all(p, -ECONNRESET);
    p->state = PEER_STATE_DOWN;
    p->down_due = true;
}

static void fault(struct peer *p, const char *what)
{
    snprintf(p->text, sizeof p->text, "%s", what);
    peer_close(p, -EPROTO, -ECONNRESET);
}

/* ---- keep-alive ---- */

static void alive(struct peer *p, int64_t at)
{
    at = at < p->now ? at : p->now;
    if (at < p->received)
        return;
    p->received = at;
    if (at >= p->first_ping)
        p->first_ping = -1;
}

static int64_t ping_at(const struct peer *p)
{
    return (p->pinged > p->received ? p->pinged : p->received) + p->config.silence_ns;
}

/* Not before a PING has had its time: a process that was stopped for a minute has heard nothing, and yet nobody is
 * gone. */
static int64_t gone_at(const struct peer *p)
{
    if (p->first_ping < 0)
        return INT64_MAX;
    int64_t heard = p->received + p->config.gone_ns;
    int64_t asked = p->first_ping + p->config.gone_ns - p->config.silence_ns;
    return heard > asked ? heard : asked;
}

static void ping(struct peer *p)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_PING;
    m.token = ++p->ping_token;
    peer_send_own(p, &m);
    p->stats.pings++;
    p->pinged = p->now;
    if (p->first_ping < 0)
        p->first_ping = p->now;
}

static void pong(struct peer *p)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_PONG;
    m.token = p->message.token;
    peer_send_own(p, &m);
}

static void on_tick(struct peer *p)
{
    if (p->state < PEER_STATE_UP && p->now - p->started >= p->config.hello_ns) {
        snprintf(p->text, sizeof p->text, "no answer within %lld ms", (long long)(p->config.hello_ns / 1000000));
        peer_close(p, BERTH_ENODE, BERTH_ENODE);
    }
    if (p->state != PEER_STATE_UP)
        return;
    pending_expire(p);
    if (p->now >= gone_at(p)) {
        snprintf(p->text, sizeof p->text, "nothing heard of '%s' for %lld ms", p->other.node,
                 (long long)((p->now - p->received) / 1000000));
        peer_close(p, BERTH_ENODE, BERTH_ENODE);
    } else if (p->now >= ping_at(p)) {
        ping(p);
    }
}

int64_t peer_timer(const struct peer *p)
{
    if (p->state < PEER_STATE_UP)
        return p->started + p->config.hello_ns;
    if (p->state != PEER_STATE_UP)
        return INT64_MAX;
    int64_t at = ping_at(p), gone = gone_at(p);
    at = gone < at ? gone : at;
    return p->earliest < at ? p->earliest : at;
}

/* ---- messages ---- */

static void on_pong(struct peer *p)
{
    if (p->message.token != p->ping_token || p->pinged < 0) {
        p->stats.strays++; /* to an earlier PING, or to none */
        return;
    }
    p->stats.rtt_ns = p->now - p->pinged;
    p->pinged = -1;
}

static void dispatch(struct peer *p)
{
    unsigned op = p->message.head.op;
    if (op == WIRE_REFUSE) {
        peer_refused(p);
    } else if (op == WIRE_GOODBYE) {
        snprintf(p->text, sizeof p->text, "'%s' has stopped", p->other.node);
        peer_close(p, BERTH_ENODE, BERTH_ENODE);
    } else if (p->state == PEER_STATE_GREETING) {
        peer_greeted(p);
    } else if (op == WIRE_PING) {
        pong(p);
    } else if (op == WIRE_PONG) {
        on_pong(p);
    } else if (op < WIRE_LEASE) {
        snprintf(p->text, sizeof p->text, "%s has no place here", wire_name(op));
        peer_close(p, -EPROTO, -ECONNRESET);
    } else if (wire_class(op) == WIRE_REPLY) {
        pending_answered(p);
    } else {
        serving_take(p);
    }
}

static void on_message(struct peer *p, const void *bytes, size_t n)
{
    if (p->state == PEER_STATE_CLOSING)
        return; /* what was under way when this side had enough */
    if (p->state == PEER_STATE_CONNECTING) {
        fault(p, "a message came before the connection");
        return;
    }
    p->stats.messages_in++;
    p->stats.bytes_in += n;
    alive(p, p->now);
    if (n > (p->state == PEER_STATE_UP ? p->config.self.largest : WIRE_HELLO_MAX)) {
        fault(p, wire_fault_text(WIRE_FAULT_SIZE));
    } else if (wire_open(&p->reader, &p->message, bytes, n) < 0) {
        fault(p, wire_fault_text(p->reader.fault));
    } else {
        if (p->message.head.counter > p->stats.counter)
            p->stats.counter = p->message.head.counter;
        dispatch(p);
    }
}

int peer_event(struct peer *p, const struct peer_event *ev, int64_t now)
{
    if (p->n_queue || p->ended != PEER_NONE || p->down_due)
        return -EBUSY;
    if (now > p->now)
        p->now = now;
    if (p->state == PEER_STATE_DOWN)
        return 0;
    switch (ev->kind) {
    case PEER_EV_OPENED:
        if (p->state == PEER_STATE_CONNECTING) {
            p->state = PEER_STATE_GREETING;
            peer_hello(p);
        }
        break;
    case PEER_EV_MESSAGE:
        on_message(p, ev->bytes, ev->n);
        break;
    case PEER_EV_ALIVE:
        alive(p, ev->at);
        break;
    case PEER_EV_CLOSED:
        on_closed(p, ev->status);
        break;
    case PEER_EV_TICK:
        on_tick(p);
        break;
    }
    return 0;
}

int peer_tell(struct peer *p, void *message, size_t n)
{
    if (n < WIRE_HEAD)
        return -EINVAL;
    struct wire_head head = wire_peek(message);
    if (head.bytes != n || (head.op != WIRE_RELEASE && head.op != WIRE_RECALL && head.op != WIRE_CORRUPT))
        return -EINVAL;
    if (p->state != PEER_STATE_UP)
        return -ENOTCONN;
    if (n > p->send_max)
        return -EMSGSIZE;
    if (p->n_queue > PEER_QUEUE - PEER_ROOM_EVENT)
        return -EBUSY;
    wire_stamp(message, 0, p->counter, 0);
    peer_send(p, message, n);
    return 0;
}

int peer_stop(struct peer *p, int64_t now)
{
    if (p->n_queue > PEER_QUEUE - PEER_ROOM_EVENT)
        return -EBUSY;
    if (now > p->now)
        p->now = now;
    if (p->state >= PEER_STATE_CLOSING)
        return 0;
    if (p->state == PEER_STATE_UP) {
        struct wire_message m;
        memset(&m, 0, sizeof m);
        m.head.op = WIRE_GOODBYE;
        peer_send_own(p, &m);
    }
    snprintf(p->text, sizeof p->text, "this node stops");
    peer_close(p, 0, -ECONNRESET);
    return 0;
}

void peer_counter(struct peer *p, uint64_t counter)
{
    if (counter > p->counter && counter <= WIRE_COUNTER_MAX)
        p->counter = counter;
}

void peer_stats(const struct peer *p, struct peer_stats *out)
{
    *out = p->stats;
    out->pending = p->n_pending;
    out->serving = p->n_serving;
}
