/* peers_replica.c: slots of the local pool that the puller fills: requests of the core's own session NODE_PULLER.
 *
 * The core takes one request at a time while one of them stalls on a commit (node_session_ready), so they stand in line
 * here. A CREATE over the session's quota is no error while other slots are being filled: it comes again when one of
 * them is sealed or given back.
 */
#include "store/shell/peers_pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAFT_CHAINS 4096u

enum core_kind { CORE_RESERVE, CORE_SUMS, CORE_SEAL, CORE_ABORT, CORE_WAIT };

struct core_op {
    struct told told;
    TAILQ_ENTRY(core_op) entry;
    struct pull_link by_message;
    struct taking *part;
    enum core_kind kind;
    uint64_t fetch;      /* the puller's id of RESERVE and SEAL */
    int64_t until;       /* RESERVE: so long room is waited for, CLOCK_MONOTONIC ns */
    struct draft *draft; /* SEAL, ABORT */
    core_wait_fn *done;  /* WAIT, with what follows */
    void (*drop)(void *arg);
    void *arg;
    _Alignas(8) uint8_t message[];
};

static struct msg_head *head_of(struct core_op *o)
{
    return (struct msg_head *)o->message;
}

int replica_open(struct taking *q)
{
    struct node_event ev = {.kind = EV_ATTACH, .session = NODE_PULLER, .writable = true};
    TAILQ_INIT(&q->waiting);
    TAILQ_INIT(&q->poor);
    int e = pull_table_create(&q->asked, DRAFT_CHAINS);
    e = e ? e : pull_table_create(&q->drafts, DRAFT_CHAINS);
    if (e == 0)
        dispatch(q->peers->server, &ev);
    return e;
}

/* ---- drafts ---- */

static struct draft *draft_find(const struct taking *q, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&q->drafts, pull_table_mix(id)); l; l = pull_table_next(l)) {
        struct draft *d = CONTAINER(l, struct draft, by_id);
        if (d->id == id)
            return d;
    }
    return NULL;
}

static struct draft *draft_new(struct taking *q, const struct msg_token *token)
{
    struct draft *d = pull_memory(sizeof *d);
    d->id = ++q->last_draft;
    d->token = *token;
    pull_table_add(&q->drafts, &d->by_id, pull_table_mix(d->id));
    return d;
}

static void draft_gone(struct taking *q, struct draft *d)
{
    pull_table_remove(&q->drafts, &d->by_id);
    free(d);
    TAILQ_CONCAT(&q->waiting, &q->poor, entry);
}

void *replica_at(const struct taking *q, uint64_t token, uint64_t at, uint64_t n)
{
    const struct server *s = q->peers->server;
    const struct draft *d = draft_find(q, token);
    uint64_t base = d ? (uint64_t)d->token.page * PAGE_BYTES : 0;
    if (!d || base > s->region.pool.bytes || at > s->region.pool.bytes - base || n > s->region.pool.bytes - base - at)
        return NULL;
    return (uint8_t *)s->region.pool.base + base + at;
}

/* ---- requests ---- */

static void drop_op(struct told *t)
{
    free(CONTAINER(t, struct core_op, told));
}

static struct core_op *op_new(struct taking *q, enum core_kind kind, unsigned op, size_t bytes)
{
    struct core_op *o = pull_memory(sizeof *o + bytes);
    o->part = q;
    o->kind = kind;
    o->told.drop = drop_op;
    *head_of(o) = (struct msg_head){.bytes = (uint32_t)bytes, .op = (uint16_t)op};
    return o;
}

static void op_send(struct taking *q, struct core_op *o)
{
    TAILQ_INSERT_TAIL(&q->waiting, o, entry);
    q->peers->again = true;
}

void replica_reserve(struct taking *q, const struct pull_command *c)
{
    const struct key_ref *key = &c->keys[0].key;
    struct core_op *o = op_new(q, CORE_RESERVE, MSG_CREATE, sizeof(struct msg_create) + key->size);
    struct msg_create *m = (struct msg_create *)o->message;
    o->fetch = c->id;
    o->until = c->deadline;
    m->object = (struct msg_object){.lineage = c->terms->lineage,
                                    .size = (uint32_t)c->terms->size,
                                    .ns = key->ns,
                                    .key_size = (uint16_t)key->size,
                                    .segment = c->terms->segment_log2};
    memcpy(m + 1, key->data, key->size);
    op_send(q, o);
}

/* The list goes ahead of the seal, which is refused if the checksum does not prove it. */
static void send_sums(struct taking *q, const struct draft *d, const struct lease_terms *t)
{
    size_t bytes = t->n_sums * sizeof *t->sums;
    struct core_op *o = op_new(q, CORE_SUMS, MSG_SUMS, sizeof(struct msg_sums) + bytes);
    struct msg_sums *m = (struct msg_sums *)o->message;
    m->token = d->token;
    m->count = t->n_sums;
    memcpy(m + 1, t->sums, bytes);
    op_send(q, o);
}

void replica_seal(struct taking *q, const struct pull_command *c)
{
    struct draft *d = draft_find(q, c->token);
    if (!d) {
        pull_tell_plain(q, EV_PULL_SEALED, c->id, BERTH_ESTALE);
        return;
    }
    if (c->terms->n_sums)
        send_sums(q, d, c->terms);
    struct core_op *o = op_new(q, CORE_SEAL, NODE_SEAL_ORIGIN, sizeof(struct node_seal_origin));
    struct node_seal_origin *m = (struct node_seal_origin *)o->message;
    o->fetch = c->id;
    o->draft = d;
    m->token = d->token;
    m->checksum = c->terms->checksum;
    m->lineage = c->terms->lineage;
    m->counter = c->terms->version.counter;
    m->region = c->terms->version.region;
    op_send(q, o);
}

static void abort_draft(struct taking *q, struct draft *d)
{
    struct core_op *o = op_new(q, CORE_ABORT, MSG_ABORT, sizeof(struct msg_tokens) + sizeof(struct msg_token));
    struct msg_tokens *m = (struct msg_tokens *)o->message;
    o->draft = d;
    m->count = 1;
    memcpy(m + 1, &d->token, sizeof d->token);
    op_send(q, o);
}

void replica_abort(struct taking *q, const struct pull_command *c)
{
    struct draft *d = draft_find(q, c->token);
    if (d)
        abort_draft(q, d);
}

void core_wait(struct taking *q, const struct key_ref *key, bool written, int64_t deadline, core_wait_fn *done,
               void (*drop)(void *arg), void *arg)
{
    size_t padded = (key->size + 7u) & ~7u;
    struct core_op *o = op_new(q, CORE_WAIT, MSG_WAIT, sizeof(struct msg_wait) + sizeof(struct msg_wait_key) + padded);
    struct msg_wait *m = (struct msg_wait *)o->message;
    struct msg_wait_key *k = (struct msg_wait_key *)(m + 1);
    o->done = done;
    o->drop = drop;
    o->arg = arg;
    m->head.deadline = deadline;
    m->count = 1;
    m->flags = written ? MSG_WAIT_WRITTEN : 0;
    *k = (struct msg_wait_key){.ns = key->ns, .key_size = (uint16_t)key->size};
    memcpy(k + 1, key->data, key->size);
    op_send(q, o);
}

static void op_free(struct core_op *o)
{
    if (o->kind == CORE_WAIT)
        o->drop(o->arg);
    free(o);
}

static int64_t deadline_of(const struct core_op *o, const struct msg_head *m)
{
    return o->kind == CORE_WAIT ? m->deadline : o->kind == CORE_RESERVE ? o->until : INT64_MAX;
}

void replica_turn(struct taking *q)
{
    struct server *s = q->peers->server;
    struct core_op *o;
    while ((o = TAILQ_FIRST(&q->waiting)) && node_session_ready(s->node, NODE_PULLER)) {
        struct msg_head *m = head_of(o);
        TAILQ_REMOVE(&q->waiting, o, entry);
        m->id = ++q->last_message;
        m->stamp = (uint64_t)peers_mono(q->peers);
        m->deadline = deadline_of(o, m);
        pull_table_add(&q->asked, &o->by_message, pull_table_mix(m->id));
        /* This thread is the one that will write it. */
        uint8_t place = region_place_of(&s->region, s->cpu);
        dispatch(s, &(struct node_event){.kind = EV_REQUEST, .session = NODE_PULLER, .place = place, .message = m});
    }
}

/* ---- answers: from dispatch ---- */

static struct core_op *op_find(const struct taking *q, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&q->asked, pull_table_mix(id)); l; l = pull_table_next(l)) {
        struct core_op *o = CONTAINER(l, struct core_op, by_message);
        if (head_of(o)->id == id)
            return o;
    }
    return NULL;
}

static void reserved(struct taking *q, struct core_op *o, const struct msg_reply *r)
{
    struct pull_event *ev = &o->told.ev;
    if (r->status == BERTH_EQUOTA && q->drafts.count > 0) {
        TAILQ_INSERT_TAIL(&q->poor, o, entry);
        return;
    }
    *ev = (struct pull_event){.kind = EV_PULL_RESERVED, .id = o->fetch, .status = r->status};
    if (r->status == -ETIMEDOUT)
        ev->status = -EAGAIN; /* the time for room was ours, not the caller's */
    if (r->status == 0 && r->count == 1)
        ev->token = draft_new(q, (const struct msg_token *)(r + 1))->id;
    else if (r->status == 0)
        ev->status = -EPROTO;
    pull_tell(q, &o->told);
}

static void sealed(struct taking *q, struct core_op *o, const struct msg_reply *r)
{
    o->told.ev = (struct pull_event){.kind = EV_PULL_SEALED, .id = o->fetch, .status = r->status};
    if (r->status < 0)
        abort_draft(q, o->draft); /* after some errors it is the session's still */
    else
        draft_gone(q, o->draft);
    pull_tell(q, &o->told);
}

void peers_reply(struct peers *p, const struct msg_reply *r)
{
    struct taking *q = p ? p->pull : NULL;
    struct core_op *o = q ? op_find(q, r->head.id) : NULL;
    if (!o)
        return;
    pull_table_remove(&q->asked, &o->by_message);
    if (o->kind == CORE_RESERVE) {
        reserved(q, o, r);
    } else if (o->kind == CORE_SEAL) {
        sealed(q, o, r);
    } else if (o->kind == CORE_WAIT) {
        o->done(o->arg, r->status >= 0 && r->count == 1 ? *(const uint8_t *)(r + 1) : WAIT_OPEN);
        free(o);
    } else {
        if (o->kind == CORE_ABORT)
            draft_gone(q, o->draft);
        free(o);
    }
    p->again = true; /* the session may be ready for the next one */
}

/* The core is about to go, and what it has not sealed goes with it (node_origin.h). */
void replica_close(struct taking *q)
{
    struct core_op_list *lists[] = {&q->waiting, &q->poor};
    struct core_op *o;
    uint64_t at = 0;
    for (unsigned i = 0; q->asked.chain && i < 2; i++) {
        while ((o = TAILQ_FIRST(lists[i]))) {
            TAILQ_REMOVE(lists[i], o, entry);
            op_free(o);
        }
    }
    for (struct pull_link *l; q->asked.chain && (l = pull_table_any(&q->asked, &at));) {
        pull_table_remove(&q->asked, l);
        op_free(CONTAINER(l, struct core_op, by_message));
    }
    at = 0;
    for (struct pull_link *l; q->drafts.chain && (l = pull_table_any(&q->drafts, &at));) {
        pull_table_remove(&q->drafts, l);
        free(CONTAINER(l, struct draft, by_id));
    }
    pull_table_destroy(&q->asked);
    pull_table_destroy(&q->drafts);
}
