/* pull_rpc.c: requests to members: batched at the end of an event, answered, timed out, lost with their connection.
 *
 * A request that nobody waits for any more is kept until its answer comes or any lease in it must be over: what it
 * grants goes to the cache and is released in its time.
 */
#include "replication/pull_internal.h"

#include <errno.h>

static struct rpc *rpc_new(struct puller *p, enum pull_command_kind kind, uint16_t member, uint32_t n)
{
    struct member *m = &p->members[member];
    if (!m->up || m->n_rpcs >= PULL_RPCS_MAX || !timer_room(p)) {
        return NULL;
    }
    struct rpc *r = calloc(1, sizeof *r + n * sizeof r->entry[0]);
    if (!r) {
        return NULL;
    }
    p->n_timers++;
    r->kind = kind;
    r->id = ++p->serial;
    r->member = member;
    r->n = n;
    r->start = reader_start(p->now); /* before it is sent: commands are carried out after the event */
    r->deadline = p->mono + p->config.rpc_ns;
    r->timer.kind = TIMER_RPC;
    timers_set(&p->timers, &r->timer, r->deadline);
    pull_table_add(&p->rpcs, &r->by_id, r->id);
    list_push(&m->rpcs, &r->by_member);
    m->n_rpcs++;
    out_add(p, &r->out, kind);
    return r;
}

void rpc_free(struct puller *p, struct rpc *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->entry[i].seek) {
            r->entry[i].seek->rpc = NULL;
        }
        key_drop(r->entry[i].key);
    }
    if (r->lease) {
        r->lease->renewing = false;
        lease_leave(p->leases, r->lease, false, p->mono);
    }
    if (r->fetch) {
        r->fetch->rpc = NULL;
    }
    list_remove(&r->out.node);
    list_remove(&r->by_member);
    p->members[r->member].n_rpcs--;
    pull_table_remove(&p->rpcs, &r->by_id);
    timers_clear(&p->timers, &r->timer);
    p->n_timers--;
    free(r);
}

static struct rpc *rpc_find(struct puller *p, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&p->rpcs, id); l; l = pull_table_next(l)) {
        struct rpc *r = CONTAINER(l, struct rpc, by_id);
        if (r->id == id) {
            return r;
        }
    }
    return NULL;
}

/* ---- sending ---- */

static void count_request(struct seek *s)
{
    for (struct list *n = s->fetches.next; n != &s->fetches; n = n->next) {
        CONTAINER(n, struct fetch, in_seek)->record.requests++;
    }
}

static bool one_batch(const struct seek *a, const struct seek *b)
{
    return a->member == b->member && a->prefix == b->prefix && a->fresh == b->fresh;
}

/* Takes the first of the list and all that go with it, in order. */
static uint32_t collect(struct list *head, struct list *batch)
{
    struct seek *first = CONTAINER(head->next, struct seek, pending);
    uint32_t n = 0;
    for (struct list *node = head->next, *next; node != head && n < PULL_KEYS_MAX; node = next) {
        next = node->next;
        if (one_batch(first, CONTAINER(node, struct seek, pending))) {
            list_remove(node);
            list_push(batch, node);
            n++;
        }
    }
    return n;
}

static void send_batch(struct puller *p, struct list *head, enum pull_command_kind kind)
{
    struct list batch;
    list_init(&batch);
    uint32_t n = collect(head, &batch);
    struct seek *first = CONTAINER(batch.next, struct seek, pending);
    struct rpc *r = rpc_new(p, kind, first->member, n);
    if (r && kind == CMD_PULL_ASK) {
        r->flags = (first->prefix ? ASK_PREFIX : 0) | (r->member != p->config.self ? ASK_WANT_LEASE : 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct seek *s = CONTAINER(batch.next, struct seek, pending);
        list_remove(&s->pending);
        if (!r) {
            seek_lost(p, s, kind); /* may put it into a list again: for another member */
            continue;
        }
        s->rpc = r;
        s->rpc_entry = i;
        r->entry[i] = (struct rpc_entry){.key = key_keep(s->key), .seek = s};
        count_request(s);
        seek_phase(p, s, kind == CMD_PULL_ASK ? PULL_HOME : PULL_ADMIT);
    }
    if (r) {
        p->counter[kind == CMD_PULL_ASK ? PULL_ASKS : PULL_LEASES]++;
        p->counter[kind == CMD_PULL_ASK ? PULL_ASK_KEYS : PULL_LEASE_KEYS] += n;
    }
}

void rpcs_flush(struct puller *p)
{
    while (!list_empty(&p->asks) || !list_empty(&p->grants)) {
        bool asks = !list_empty(&p->asks);
        send_batch(p, asks ? &p->asks : &p->grants, asks ? CMD_PULL_ASK : CMD_PULL_LEASE);
    }
}

void rpc_renew(struct puller *p, struct reader_lease *l)
{
    struct rpc *r = l->renewing || l->state != LEASE_GOOD ? NULL : rpc_new(p, CMD_PULL_RENEW, l->member, 0);
    if (r) {
        r->lease = l;
        l->renewing = true;
        lease_take(p->leases, l);
        p->counter[PULL_RENEWS]++;
    }
}

bool rpc_state(struct puller *p, struct fetch *f)
{
    struct rpc *r = f->lease->state == LEASE_DEAD ? NULL : rpc_new(p, CMD_PULL_STATE, f->lease->member, 0);
    if (r) {
        r->fetch = f;
        f->rpc = r;
        f->record.requests++;
        p->counter[PULL_STATES]++;
    }
    return r;
}

void rpc_forget_fetch(struct fetch *f)
{
    if (f->rpc) {
        f->rpc->fetch = NULL;
        f->rpc = NULL;
    }
}

/* A release waits for a LEASE to the same member to ride with, or for its time, or for enough of them. */
void releases_flush(struct puller *p)
{
    struct leases_usage u;
    leases_usage(p->leases, &u);
    for (uint16_t i = 0; u.releasing > 0 && i < p->config.n_members; i++) {
        struct member *m = &p->members[i];
        uint32_t n = leases_releasing(p->leases, i);
        u.releasing -= n;
        if (n >= RELEASES_MAX || (n > 0 && p->stopping)) {
            out_add(p, &m->release, CMD_PULL_RELEASE);
        } else if (n > 0 && m->timer.at == 0) {
            timers_set(&p->timers, &m->timer, p->mono + p->config.release_ns);
        }
    }
}

/* ---- answers ---- */

static struct reader_lease *keep_grant(struct puller *p, struct rpc *r, uint32_t i, const struct pull_grant *g)
{
    if (g->status != 0) {
        return NULL;
    }
    int64_t start = p->config.unsafe & UNSAFE_LATE_START ? reader_start(p->now) : r->start;
    struct reader_lease *l = leases_add(p->leases, r->member, p->members[r->member].incarnation,
                                        pull_key_ref(r->entry[i].key), &g->terms, start, p->mono);
    p->counter[PULL_BAD_ANSWERS] += !l;
    p->counter[PULL_GRANTS] += l != NULL;
    p->members[r->member].sums.leases += l != NULL;
    return l;
}

static bool answer_good(const struct rpc *r, uint32_t i, const struct pull_answer *a)
{
    if (a->says > HOME_SKIPPED || a->n_locations > PULL_LOCATIONS_MAX || a->n_missing > PULL_MISSING_MAX ||
        (a->n_missing > 0 && !a->missing)) {
        return false;
    }
    if (a->says == HOME_LEARNING && a->n_missing == 0 && !a->many) {
        return false;
    }
    return a->says != HOME_SKIPPED || (i > 0 && (r->flags & ASK_PREFIX));
}

static void answer_ask(struct puller *p, struct rpc *r, const struct pull_event *ev)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct pull_answer *a = &ev->answers[i];
        bool good = answer_good(r, i, a);
        struct reader_lease *l = good && a->granted ? keep_grant(p, r, i, &a->grant) : NULL;
        struct seek *s = r->entry[i].seek;
        r->entry[i].seek = NULL;
        p->counter[PULL_BAD_ANSWERS] += !good;
        if (s && good) {
            seek_answer(p, s, r->member, a, l);
        } else if (s) {
            seek_lost(p, s, CMD_PULL_ASK);
        }
    }
}

static void answer_lease(struct puller *p, struct rpc *r, const struct pull_event *ev)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct reader_lease *l = keep_grant(p, r, i, &ev->grants[i]);
        struct seek *s = r->entry[i].seek;
        r->entry[i].seek = NULL;
        if (s) {
            seek_granted(p, s, &ev->grants[i], l);
        }
    }
}

/* Those who wait are told that the member doesn't answer. */
static void rpc_fail(struct puller *p, struct rpc *r)
{
    /* The analyzer does not follow a list through its nodes. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    for (uint32_t i = 0; i < r->n; i++) {
        struct seek *s = r->entry[i].seek;
        r->entry[i].seek = NULL;
        if (s) {
            seek_lost(p, s, r->kind);
        }
    }
    struct fetch *f = r->fetch;
    if (f) {
        rpc_forget_fetch(f);
        prove_stated(p, f, -ECONNRESET, 0);
    }
    if (r->lease) {
        read_unblock(p, r->lease);
    }
}

static enum pull_event_kind answer_kind(const struct rpc *r)
{
    switch (r->kind) {
    case CMD_PULL_ASK:
        return EV_PULL_ANSWER;
    case CMD_PULL_LEASE:
        return EV_PULL_LEASED;
    case CMD_PULL_RENEW:
        return EV_PULL_RENEWED;
    default:
        return EV_PULL_STATED;
    }
}

static bool event_good(const struct puller *p, const struct rpc *r, const struct pull_event *ev)
{
    if (ev->status < 0 && r->kind != CMD_PULL_STATE && r->kind != CMD_PULL_RENEW) {
        return false;
    }
    if (ev->incarnation && ev->incarnation != p->members[r->member].incarnation) {
        return false;
    }
    return ev->n == r->n || r->n == 0;
}

void rpc_answered(struct puller *p, const struct pull_event *ev)
{
    struct rpc *r = rpc_find(p, ev->id);
    if (!r || answer_kind(r) != ev->kind) {
        return;
    }
    if (!event_good(p, r, ev)) {
        rpc_fail(p, r);
    } else if (r->kind == CMD_PULL_ASK && ev->answers) {
        answer_ask(p, r, ev);
    } else if (r->kind == CMD_PULL_LEASE && ev->grants) {
        answer_lease(p, r, ev);
    } else if (r->kind == CMD_PULL_RENEW) {
        if (ev->status == 0) {
            lease_renewed(r->lease, p->config.unsafe & UNSAFE_LATE_START ? reader_start(p->now) : r->start, ev->ttl_ns);
        }
        read_unblock(p, r->lease);
    } else if (r->fetch) {
        struct fetch *f = r->fetch;
        rpc_forget_fetch(f);
        prove_stated(p, f, ev->status, ev->generation);
    } else {
        rpc_fail(p, r);
    }
    rpc_free(p, r);
}

void rpc_timeout(struct puller *p, struct rpc *r)
{
    if (!r->abandoned) {
        p->counter[PULL_RPC_TIMEOUTS]++;
        rpc_fail(p, r);
    }
    if (r->abandoned || r->n == 0) {
        rpc_free(p, r);
        return;
    }
    r->abandoned = true;
    timers_set(&p->timers, &r->timer, p->mono + PULL_FORGET_NS);
}

void rpcs_lost(struct puller *p, uint16_t member)
{
    struct member *m = &p->members[member];
    while (!list_empty(&m->rpcs)) {
        struct rpc *r = CONTAINER(m->rpcs.next, struct rpc, by_member);
        rpc_fail(p, r);
        rpc_free(p, r);
    }
}
