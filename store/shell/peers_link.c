/* peers_link.c: one link: its peer core's commands, what is asked and answered over it, its end. */
#include "store/shell/peers_internal.h"

#include "store/shell/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    peers_answer_fn *done;
    void *arg;
    uint16_t next; /* of the free ones */
};

peers_request_fn *const peers_requests[WIRE_OPS] = {
    [WIRE_LEASE] = serve_part_lease,    [WIRE_RENEW] = serve_part_renew,     [WIRE_RELEASE] = serve_part_release,
    [WIRE_STATE] = serve_part_state,    [WIRE_CORRUPT] = serve_part_corrupt, [WIRE_ASK] = home_part_ask,
    [WIRE_PUBLISH] = home_part_publish, [WIRE_RECALL] = pull_part_recall,    [WIRE_SUMS] = serve_part_sums,
    [WIRE_MEMBERS] = members_part_list,
};

/* ---- finding ---- */

struct link *link_of(struct peers *p, uint16_t number)
{
    if (number < p->n_members)
        return p->members[number].link;
    struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    {
        if (l->up && l->number == number)
            return l;
    }
    return NULL;
}

struct link *link_serial(struct peers *p, uint32_t serial)
{
    struct link *l;
    TAILQ_FOREACH(l, &p->links, entry)
    {
        if (l->up && l->serial == serial)
            return l;
    }
    return NULL;
}

void link_blame(struct link *l, int32_t status, const char *why)
{
    if (l->doomed)
        return;
    l->doomed = status < 0 ? status : -EPROTO;
    snprintf(l->why, sizeof l->why, "%s", why);
    l->peers->again = true;
}

/* ---- sending ---- */

static int backlog_add(struct link *l, const void *bytes, size_t n)
{
    uint32_t size = (uint32_t)n;
    if (l->backlog_at == l->backlog_used)
        l->backlog_at = l->backlog_used = 0;
    size_t need = l->backlog_used + sizeof size + n;
    if (need > PEERS_BACKLOG)
        return -ENOBUFS;
    if (need > l->backlog_room) {
        size_t room = need * 2 < PEERS_BACKLOG ? need * 2 : PEERS_BACKLOG;
        uint8_t *more = realloc(l->backlog, room);
        if (!more)
            return -ENOMEM;
        l->backlog = more;
        l->backlog_room = room;
    }
    memcpy(l->backlog + l->backlog_used, &size, sizeof size);
    memcpy(l->backlog + l->backlog_used + sizeof size, bytes, n);
    l->backlog_used = need;
    return 0;
}

void link_drain(struct link *l)
{
    struct peers *p = l->peers;
    while (l->connection && l->backlog_at < l->backlog_used) {
        uint32_t size;
        memcpy(&size, l->backlog + l->backlog_at, sizeof size);
        int e = p->transport->send(p->context, l->connection, l->backlog + l->backlog_at + sizeof size, size);
        if (e == -EAGAIN)
            return;
        if (e < 0) {
            link_blame(l, e, "a message can't be sent");
            return;
        }
        l->backlog_at += sizeof size + size;
    }
}

/* In order and whole, or the link ends: nobody above is to wait for an answer to what was never sent. */
static void send_bytes(struct link *l, const void *bytes, size_t n)
{
    struct peers *p = l->peers;
    if (!l->connection)
        return;
    l->said = true;
    int e = l->backlog_at < l->backlog_used ? -EAGAIN : p->transport->send(p->context, l->connection, bytes, n);
    if (e == -EAGAIN)
        e = backlog_add(l, bytes, n);
    if (e < 0)
        link_blame(l, e, e == -ENOBUFS ? "it takes no messages any more" : "a message can't be sent");
}

/* ---- ending ---- */

/* The transport has forgotten the connection. */
void link_closed(struct link *l, int32_t status)
{
    l->connection = NULL;
    struct peer_event ev = {.kind = PEER_EV_CLOSED, .status = status};
    link_event(l, &ev);
}

void link_disconnect(struct link *l)
{
    struct peers *p = l->peers;
    struct connection *c = l->connection;
    if (c)
        p->transport->disconnect(p->context, c);
    link_closed(l, 0);
}

static void on_close(struct link *l, const struct peer_command *c)
{
    if (!*l->why && c->text)
        snprintf(l->why, sizeof l->why, "%s", c->text);
    l->closing = true;
    /* The transport resets: what has just been said would be lost. So whoever it was said to hangs up, or time is up.
     * */
    l->linger = l->said && l->connection ? l->peers_now + PEERS_LINGER_NS : l->peers_now;
    l->peers->again = true;
}

static void on_down(struct link *l, const struct peer_command *c)
{
    struct peers *p = l->peers;
    bool was_up = l->up;
    if (c->other)
        l->other = *c->other;
    if (!*l->why && c->text)
        snprintf(l->why, sizeof l->why, "%s", c->text);
    l->up = false;
    l->dead = true;
    p->again = true;
    int32_t status = l->doomed ? l->doomed : c->status;
    if (l->number >= PEERS_CLIENTS && l->number != MEMBER_NONE) {
        uint32_t i = l->number - PEERS_CLIENTS;
        p->clients[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
    member_lost(l, was_up, status);
    if (was_up)
        peers_down(p, l->number, l->serial, status);
}

/* ---- commands ---- */

static void on_request(struct link *l, const struct peer_command *c)
{
    unsigned op = c->message->head.op;
    peers_request_fn *run = op < WIRE_OPS ? peers_requests[op] : NULL;
    bool served = !l->peers->client || (op == WIRE_RECALL && l->peers->pull); /* who has no node serves nothing */
    if (!l->up || l->closing)
        return;
    if (run && served)
        run(l->peers, l, c->message, c->reader, c->deadline);
    else
        link_refuse(l, op, c->id, -EOPNOTSUPP);
}

static void on_answered(struct link *l, const struct peer_command *c)
{
    struct asked *a = &l->asked[c->user];
    peers_answer_fn *done = a->done;
    a->done = NULL;
    a->next = l->free_asked;
    l->free_asked = (uint16_t)c->user;
    if (done)
        done(a->arg, c->status, c->message, c->reader);
}

static void carry(struct link *l, const struct peer_command *c)
{
    switch (c->kind) {
    case PEER_SEND:
        send_bytes(l, c->bytes, c->n);
        break;
    case PEER_CLOSE:
        on_close(l, c);
        break;
    case PEER_UP:
        link_greeted(l, c->other);
        break;
    case PEER_REQUEST:
        on_request(l, c);
        break;
    case PEER_ANSWERED:
        on_answered(l, c);
        break;
    case PEER_DOWN:
        on_down(l, c);
        break;
    }
}

/* The next command, those first that send_queued found on its way. */
static bool next_command(struct link *l, struct peer_command *out)
{
    if (l->stash_at < l->n_stash) {
        *out = l->stash[l->stash_at++];
        return true;
    }
    l->stash_at = l->n_stash = 0;
    const struct peer_command *c = peer_command(l->peer);
    if (c)
        *out = *c;
    return c != NULL;
}

static void pump(struct link *l)
{
    struct peer_command c;
    if (l->pumping)
        return;
    l->pumping = true;
    while (next_command(l, &c))
        carry(l, &c);
    l->pumping = false;
}

void link_event(struct link *l, const struct peer_event *ev)
{
    struct peer_stats st;
    l->said = false;
    l->peers_now = peers_mono(l->peers);
    peer_event(l->peer, ev,
               l->peers_now); /* never -EBUSY: pump leaves no command, and no event comes from within one */
    pump(l);
    peer_stats(l->peer, &st);
    if (l->number < PEERS_CLIENTS && st.counter > l->peers->seen) /* clients give no versions */
        l->peers->seen = st.counter;
}

void link_goodbye(struct link *l, int64_t now)
{
    l->peers_now = now;
    l->said = false;
    peer_stop(l->peer, now);
    pump(l);
}

/* The caller's buffer is its own again when this returns, so its message goes now, ahead of the commands that stand
 * before it in the queue; those are carried out by the pump that runs, or here where none does. */
static int send_queued(struct link *l, const void *message)
{
    const struct peer_command *c;
    while ((c = peer_command(l->peer))) {
        if (c->kind == PEER_SEND)
            send_bytes(l, c->bytes, c->n);
        else if (l->n_stash < PEER_QUEUE)
            l->stash[l->n_stash++] = *c;
        if (c->kind == PEER_SEND && c->bytes == message)
            break;
    }
    l->peers->again = true; /* to be flushed */
    return 0;
}

/* ---- for the parts ---- */

static bool make_asked(struct link *l)
{
    if (l->asked)
        return true;
    l->asked = calloc(PEER_PENDING_MAX, sizeof *l->asked);
    if (!l->asked)
        return false;
    for (uint16_t i = 0; i < PEER_PENDING_MAX; i++)
        l->asked[i].next = (uint16_t)(i + 1);
    l->free_asked = 0;
    return true;
}

int link_ask(struct peers *p, uint16_t number, void *message, size_t n, int64_t deadline, int64_t until,
             peers_answer_fn *done, void *arg)
{
    struct link *l = link_of(p, number);
    if (!l || l->closing || l->doomed)
        return -ENOTCONN;
    if (!make_asked(l))
        return -ENOMEM;
    if (l->free_asked == PEER_PENDING_MAX)
        return -EAGAIN;
    uint16_t place = l->free_asked;
    peer_counter(l->peer, peers_counter(p));
    int e = peer_ask(l->peer, message, n, deadline, until, place, peers_mono(p), NULL);
    if (e < 0)
        return e == -EBUSY ? -EAGAIN : e;
    l->free_asked = l->asked[place].next;
    l->asked[place].done = done;
    l->asked[place].arg = arg;
    return send_queued(l, message);
}

int link_answer(struct link *l, uint64_t id, void *message, size_t n)
{
    peer_counter(l->peer, peers_counter(l->peers));
    int e = peer_answer(l->peer, message, n, id);
    return e < 0 ? e : send_queued(l, message);
}

int link_refuse(struct link *l, unsigned op, uint64_t id, int32_t status)
{
    uint8_t buffer[WIRE_HEAD + 64];
    struct wire_message m;
    struct wire_writer w;
    unsigned reply = wire_reply_of(op);
    if (!reply || !id)
        return 0;
    memset(&m, 0, sizeof m);
    m.head.op = (uint16_t)reply;
    m.head.id = id;
    m.status = status;
    int e = wire_begin(&w, buffer, sizeof buffer, &m);
    long n = e < 0 ? e : wire_end(&w);
    return n < 0 ? (int)n : link_answer(l, id, buffer, (size_t)n);
}

int link_tell(struct link *l, void *message, size_t n)
{
    peer_counter(l->peer, peers_counter(l->peers));
    int e = peer_tell(l->peer, message, n);
    return e < 0 ? e : send_queued(l, message);
}
