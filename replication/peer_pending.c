/* peer_pending.c: requests under way: ours until they end, exactly once, and theirs until they are answered. */
#include "replication/peer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- ours ---- */

/* There is a free place: fewer than all are in use. */
static struct pending *take_place(struct peer *p)
{
    while (p->pending[p->next_id & PEER_MASK].state != PENDING_FREE)
        p->next_id++;
    struct pending *q = &p->pending[p->next_id & PEER_MASK];
    q->id = p->next_id++;
    p->n_pending++;
    return q;
}

static void give_place(struct peer *p, struct pending *q)
{
    q->state = PENDING_FREE;
    p->n_pending--;
}

int peer_ask(struct peer *p, void *message, size_t n, int64_t deadline, int64_t until, uint64_t user, int64_t now,
             uint64_t *id)
{
    if (n < WIRE_HEAD)
        return -EINVAL;
    struct wire_head head = wire_peek(message);
    if (head.bytes != n || !wire_reply_of(head.op) || until < deadline)
        return -EINVAL;
    if (p->state != PEER_STATE_UP)
        return -ENOTCONN;
    if (n > p->send_max)
        return -EMSGSIZE;
    if (deadline <= now)
        return -ETIMEDOUT;
    if (p->n_queue > PEER_QUEUE - PEER_ROOM_EVENT)
        return -EBUSY;
    if (p->n_pending >= p->config.pending_max) {
        p->stats.again++;
        return -EAGAIN;
    }
    struct pending *q = take_place(p);
    q->user = user;
    q->until = until;
    q->count = head.count;
    q->op = head.op;
    q->flags = head.flags;
    q->state = PENDING_SENT;
    if (until < p->earliest)
        p->earliest = until;
    wire_stamp(message, q->id, p->counter, deadline == INT64_MAX ? WIRE_NO_DEADLINE : (uint64_t)(deadline - now));
    peer_send(p, message, n);
    if (id)
        *id = q->id;
    return 0;
}

/* An answer has an item for each that was asked for; of a run, for those that are in it; of SUMS, for those that fit. A
 * list is as long as it is. */
static bool count_answers(const struct pending *q, const struct wire_message *m)
{
    if (m->status < 0 || q->op == WIRE_MEMBERS)
        return true;
    bool run = ((q->op == WIRE_LEASE || q->op == WIRE_ASK) && q->flags & WIRE_PREFIX) || q->op == WIRE_SUMS;
    return run ? m->head.count <= q->count : m->head.count == q->count;
}

void pending_answered(struct peer *p)
{
    const struct wire_message *m = &p->message;
    struct pending *q = &p->pending[m->head.id & PEER_MASK];
    if (q->state != PENDING_SENT || q->id != m->head.id) {
        p->stats.strays++; /* it came when nobody waited for it any more */
        return;
    }
    if (wire_reply_of(q->op) != m->head.op || !count_answers(q, m)) {
        snprintf(p->text, sizeof p->text, "%s with %u items does not answer %s of %u", wire_name(m->head.op),
                 m->head.count, wire_name(q->op), q->count);
        peer_close(p, -EPROTO, -ECONNRESET);
        return;
    }
    struct peer_command *c = peer_push(p, PEER_ANSWERED);
    c->user = q->user;
    c->id = q->id;
    c->status = m->status;
    c->message = m;
    c->reader = &p->reader;
    give_place(p, q);
}

static void end(struct peer *p, uint16_t place, int32_t status)
{
    struct pending *q = &p->pending[place];
    q->state = PENDING_ENDED;
    q->status = status;
    q->next = PEER_NONE;
    if (p->ended == PEER_NONE)
        p->ended = place;
    else
        p->pending[p->last].next = place;
    p->last = place;
}

void pending_expire(struct peer *p)
{
    if (p->now < p->earliest)
        return;
    p->earliest = INT64_MAX;
    for (uint16_t i = 0; i < PEER_PENDING_MAX; i++) {
        struct pending *q = &p->pending[i];
        if (q->state != PENDING_SENT)
            continue;
        if (q->until <= p->now) {
            p->stats.timeouts++;
            end(p, i, -ETIMEDOUT);
        } else if (q->until < p->earliest) {
            p->earliest = q->until;
        }
    }
}

void pending_end_all(struct peer *p, int32_t status)
{
    for (uint16_t i = 0; i < PEER_PENDING_MAX; i++) {
        if (p->pending[i].state == PENDING_SENT)
            end(p, i, status);
    }
    p->earliest = INT64_MAX;
}

const struct peer_command *pending_ended(struct peer *p)
{
    if (p->ended == PEER_NONE)
        return NULL;
    struct pending *q = &p->pending[p->ended];
    p->ended = q->next;
    p->due = (struct peer_command){.kind = PEER_ANSWERED, .status = q->status, .user = q->user, .id = q->id};
    give_place(p, q);
    return &p->due;
}

/* ---- theirs ---- */

static void answer_busy(struct peer *p, const struct wire_head *head)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = (uint16_t)wire_reply_of(head->op);
    m.head.id = head->id;
    m.status = -EAGAIN;
    peer_send_own(p, &m);
    p->stats.busy++;
}

static int64_t deadline_of(const struct peer *p, uint64_t time_left)
{
    if (time_left >= WIRE_NO_DEADLINE || p->now > INT64_MAX - (int64_t)time_left)
        return INT64_MAX;
    return p->now + (int64_t)time_left;
}

void serving_take(struct peer *p)
{
    const struct wire_head *head = &p->message.head;
    if (head->id) {
        if (head->id <= p->last_served) {
            snprintf(p->text, sizeof p->text, "%s has a request id that was there before", wire_name(head->op));
            peer_close(p, -EPROTO, -ECONNRESET);
            return;
        }
        p->last_served = head->id;
        struct serving *s = &p->serving[head->id & PEER_MASK];
        if (s->id) { /* of a request that its sender gave up long ago, or of a sender that knows no bound */
            answer_busy(p, head);
            return;
        }
        *s = (struct serving){head->id, head->op};
        p->n_serving++;
    }
    struct peer_command *c = peer_push(p, PEER_REQUEST);
    c->message = &p->message;
    c->reader = &p->reader;
    c->deadline = head->id ? deadline_of(p, head->time_left) : INT64_MAX;
    c->id = head->id;
}

int peer_answer(struct peer *p, void *message, size_t n, uint64_t id)
{
    if (n < WIRE_HEAD)
        return -EINVAL;
    struct wire_head head = wire_peek(message);
    struct serving *s = &p->serving[id & PEER_MASK];
    if (p->state != PEER_STATE_UP)
        return -ENOTCONN;
    if (!id || s->id != id)
        return -ENOENT;
    if (head.bytes != n || head.op != wire_reply_of(s->op))
        return -EINVAL;
    if (n > p->send_max)
        return -EMSGSIZE;
    if (p->n_queue > PEER_QUEUE - PEER_ROOM_EVENT)
        return -EBUSY;
    s->id = 0;
    p->n_serving--;
    wire_stamp(message, id, p->counter, 0);
    peer_send(p, message, n);
    return 0;
}
