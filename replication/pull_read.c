/* pull_read.c: READs: handed out in pieces within the windows, fairly, under leases that last; and their completions.
 *
 * Fair: sources take turns, within a source the requests, within a request its transfers, piece by piece. So a small
 * pull waits for one piece of a large one at most, however many keys that has. Not even for that does a READ of up to
 * SMALL bytes wait: a SPAREth of a window is there for such READs beside what others fill it with.
 */
#include "replication/pull_internal.h"
#include "store/zeroed.h"

#include <errno.h>

#define SMALL (64u << 10)
#define SPARE 8

int64_t read_estimate(const struct puller *p, uint64_t bytes)
{
    return p->config.latency_ns + (int64_t)(bytes * 1000 / (p->config.rate / 1000000 + 1));
}

int64_t read_first_estimate(const struct puller *p, uint64_t bytes)
{
    return read_estimate(p, bytes < p->config.read_bytes ? bytes : p->config.read_bytes);
}

/* ---- who is next ---- */

static struct flow *flow_find(struct request *r, uint16_t member)
{
    for (struct list *n = r->flows.next; n != &r->flows; n = n->next) {
        struct flow *w = CONTAINER(n, struct flow, in_request);
        if (w->member == member) {
            return w;
        }
    }
    return NULL;
}

static struct flow *flow_new(struct puller *p, struct request *r, uint16_t member)
{
    struct flow *w = zeroed(sizeof *w);
    if (w) {
        w->request = r;
        w->member = member;
        list_init(&w->fetches);
        list_push(&r->flows, &w->in_request);
        list_push(&p->members[member].flows, &w->node);
        if (!list_in(&p->members[member].active)) {
            list_push(&p->sources, &p->members[member].active);
        }
    }
    return w;
}

void flow_add(struct puller *p, struct fetch *f)
{
    struct request *r = CONTAINER(f->items.next, struct item, node)->request;
    struct flow *w = flow_find(r, f->lease->member);
    if (!w && !(w = flow_new(p, r, f->lease->member))) {
        fetch_stop(p, f, AFTER_END, -ENOMEM);
        return;
    }
    f->flow = w;
    list_push(&w->fetches, &f->in_flow);
}

void flow_remove(struct puller *p, struct fetch *f)
{
    struct flow *w = f->flow;
    if (!w) {
        return;
    }
    f->flow = NULL;
    list_remove(&f->in_flow);
    if (!list_empty(&w->fetches)) {
        return;
    }
    struct member *m = &p->members[w->member];
    list_remove(&w->node);
    list_remove(&w->in_request);
    free(w);
    if (list_empty(&m->flows)) {
        list_remove(&m->active);
    }
}

/* ---- posting ---- */

static void arm(struct puller *p, struct fetch *f)
{
    int64_t left = f->lease->deadline - p->check, half = f->lease->terms.ttl_ns / 2;
    timers_set(&p->timers, &f->timer, p->mono + (left > half ? left - half : left / 2));
}

static void completed(struct puller *p, struct fetch *f);

void read_begin(struct puller *p, struct fetch *f)
{
    fetch_phase(p, f, PULL_QUEUE);
    f->state = FETCH_READ;
    f->range = f->reads_made = 0;
    f->range_at = 0;
    f->unposted = f->total;
    f->has_piece_sum = f->renewed = f->blocked = false;
    if (f->total == 0) {
        completed(p, f);
        return;
    }
    flow_add(p, f);
    if (f->state == FETCH_READ) {
        arm(p, f);
    }
}

static void late(struct puller *p, struct fetch *f)
{
    p->counter[PULL_LATE]++;
    fetch_stale(p, f);
}

static void lease_gone(struct puller *p, struct fetch *f)
{
    if (p->members[f->lease->member].up) {
        fetch_stale(p, f);
    } else {
        fetch_fault(p, f, BERTH_EUNSURE);
    }
}

/* Not enough time is left for a further piece. */
static void block(struct puller *p, struct fetch *f)
{
    struct reader_lease *l = f->lease;
    if (l->state == LEASE_DEAD) {
        lease_gone(p, f);
    } else if (!lease_may_accept(l, p->check)) {
        late(p, f);
    } else {
        if (!f->renewed) {
            f->record.requests++;
            rpc_renew(p, l);
        }
        if (f->renewed || !l->renewing) {
            fetch_stale(p, f);
            return;
        }
        f->blocked = true;
        flow_remove(p, f);
    }
}

void read_unblock(struct puller *p, const struct reader_lease *l)
{
    for (struct list *n = p->fetches.next, *next; n != &p->fetches; n = next) {
        next = n->next;
        struct fetch *f = CONTAINER(n, struct fetch, all);
        if (f->lease == l && f->blocked && f->state == FETCH_READ) {
            f->blocked = false;
            f->renewed = true;
            flow_add(p, f);
        }
    }
}

void read_timer(struct puller *p, struct fetch *f)
{
    int64_t left = f->lease->deadline - p->check, half = f->lease->terms.ttl_ns / 2;
    if (f->lease->state == LEASE_DEAD) {
        return; /* its READs are about to come back */
    }
    if (left <= 0 && !(p->config.unsafe & UNSAFE_NO_CHECK)) {
        late(p, f);
    } else if (left > half) {
        arm(p, f);
    } else if (left > 0) {
        rpc_renew(p, f->lease);
        timers_set(&p->timers, &f->timer, p->mono + left);
    }
}

static uint64_t next_piece(struct puller *p, struct fetch *f)
{
    while (f->ranges[f->range].length == f->range_at) {
        f->range++; /* of no length, or done: unposted > 0 says that one more is not */
        f->range_at = 0;
    }
    uint64_t left = f->ranges[f->range].length - f->range_at;
    return left < p->config.read_bytes ? left : p->config.read_bytes;
}

static void post(struct puller *p, struct fetch *f, struct read *r, uint64_t length)
{
    const struct pull_range *g = &f->ranges[f->range];
    struct member *m = &p->members[f->lease->member];
    r->fetch = f;
    r->id = ++p->serial;
    r->member = f->lease->member;
    r->lease = f->lease->terms.lease;
    r->generation = f->lease->terms.generation;
    r->offset = g->offset + f->range_at;
    r->length = length;
    r->scratch = g->to & RANGE_SCRATCH;
    r->at = (r->scratch ? g->to & ~RANGE_SCRATCH : f->target.at + g->to) + f->range_at;
    f->range_at += length;
    f->unposted -= length;
    f->flying += length;
    f->n_reads++;
    f->reads_made++;
    f->renewed = false;
    m->flying += length;
    p->flying += length;
    m->small += length <= SMALL ? length : 0;
    p->small += length <= SMALL ? length : 0;
    pull_table_add(&p->reads, &r->by_id, r->id);
    list_push(&f->reads, &r->node);
    out_add(p, &r->post, CMD_PULL_READ);
    p->counter[PULL_READS]++;
    p->counter[PULL_READ_BYTES] += length;
    m->sums.reads++;
    if (f->phase == PULL_QUEUE) {
        fetch_phase(p, f, PULL_TRANSFER);
        f->began = f->ended = 0;
    }
}

static bool fits(uint64_t window, uint64_t flying, uint64_t small, uint64_t length)
{
    if (length <= SMALL && (small + length <= window / SPARE || flying + length <= window)) {
        return true;
    }
    uint64_t large = flying - small;
    return large == 0 || large + length <= window; /* one that is larger than the window goes alone */
}

/* The first request of a source whose next piece has room. NULL: its window, or the whole one, is full. */
static struct flow *flow_next(struct puller *p, struct member *m)
{
    for (struct list *n = m->flows.next; n != &m->flows; n = n->next) {
        struct flow *w = CONTAINER(n, struct flow, node);
        uint64_t length = next_piece(p, CONTAINER(w->fetches.next, struct fetch, in_flow));
        if (fits(p->config.source_window_bytes, m->flying, m->small, length) &&
            fits(p->config.window_bytes, p->flying, p->small, length)) {
            return w;
        }
    }
    return NULL;
}

/* The next piece of a source. false: none has room. */
static bool pump_source(struct puller *p, struct member *m)
{
    struct flow *w = flow_next(p, m);
    if (!w) {
        return false;
    }
    struct fetch *f = CONTAINER(w->fetches.next, struct fetch, in_flow);
    uint64_t length = next_piece(p, f);
    if (!lease_may_post(f->lease, p->check, read_estimate(p, f->flying + length))) {
        block(p, f);
        return true;
    }
    struct read *r = zeroed(sizeof *r);
    if (!r) {
        fetch_stop(p, f, AFTER_END, -ENOMEM);
        return true;
    }
    post(p, f, r, length);
    list_remove(&w->node);
    list_push(&m->flows, &w->node);
    list_remove(&f->in_flow);
    list_push(&w->fetches, &f->in_flow);
    if (f->unposted == 0) {
        flow_remove(p, f);
    }
    return true;
}

void read_pump(struct puller *p)
{
    struct list full; /* sources whose window is full, until the next event */
    list_init(&full);
    while (!list_empty(&p->sources)) {
        struct member *m = CONTAINER(p->sources.next, struct member, active);
        bool more = pump_source(p, m);
        if (list_in(&m->active)) {
            list_remove(&m->active);
            list_push(more ? &p->sources : &full, &m->active);
        }
    }
    while (!list_empty(&full)) {
        struct list *n = full.next;
        list_remove(n);
        list_push(&p->sources, n);
    }
}

/* ---- completions ---- */

void read_cancel_all(struct puller *p, struct fetch *f)
{
    for (struct list *n = f->reads.next; n != &f->reads; n = n->next) {
        struct read *r = CONTAINER(n, struct read, node);
        if (!r->cancelled) {
            r->cancelled = true;
            p->counter[PULL_CANCELLED_READS]++;
            out_add(p, &r->cancel, CMD_PULL_CANCEL_READ);
        }
    }
}

/* Every READ of the transfer has completed: the clock is read after the last one, now (rule 20). */
static void completed(struct puller *p, struct fetch *f)
{
    timers_clear(&p->timers, &f->timer);
    if (f->lease->state == LEASE_DEAD) {
        lease_gone(p, f);
    } else if (!lease_may_accept(f->lease, p->check) && !(p->config.unsafe & UNSAFE_NO_CHECK)) {
        late(p, f);
    } else {
        prove_begin(p, f);
    }
}

static void failed(struct puller *p, struct fetch *f, int status)
{
    if (status == -ESTALE || status == -ENOENT) {
        fetch_stale(p, f); /* the owner knows the lease no more, or the slot has another generation */
    } else if (status == -EFAULT || status == -ENOMEM) {
        fetch_stop(p, f, AFTER_END, status); /* the destination */
    } else {
        fetch_fault(p, f, BERTH_EUNSURE);
    }
}

static struct read *read_find(struct puller *p, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&p->reads, id); l; l = pull_table_next(l)) {
        struct read *r = CONTAINER(l, struct read, by_id);
        if (r->id == id) {
            return r;
        }
    }
    return NULL;
}

static uint64_t at_most(uint64_t n, uint64_t most)
{
    return n < most ? n : most;
}

/* A CPU can't have copied what did not come. */
static void account_bytes(struct puller *p, const struct read *r, const struct pull_event *ev)
{
    struct fetch *f = r->fetch;
    struct pull_source *from = &p->members[r->member].sums;
    uint64_t moved = ev->status == 0 ? r->length : at_most(ev->received, r->length);
    uint64_t copied = at_most(ev->copied, moved);
    f->record.moved += moved;
    f->record.copied += copied;
    from->bytes += moved;
    from->copied += copied;
    p->counter[PULL_MOVED_BYTES] += moved;
    p->counter[PULL_COPIED_BYTES] += copied;
    if (ev->began && (f->began == 0 || ev->began < f->began)) {
        f->began = ev->began;
    }
    f->ended = ev->ended > f->ended ? ev->ended : f->ended;
}

static void account(struct puller *p, const struct read *r, const struct pull_event *ev)
{
    struct fetch *f = r->fetch;
    f->flying -= r->length;
    f->n_reads--;
    p->members[r->member].flying -= r->length;
    p->flying -= r->length;
    account_bytes(p, r, ev);
    p->members[r->member].small -= r->length <= SMALL ? r->length : 0;
    p->small -= r->length <= SMALL ? r->length : 0;
    if (ev->sums && f->reads_made == 1 && r->offset == 0 && r->length == f->record.size) {
        f->has_piece_sum = true;
        f->piece_sum = ev->sums[0];
    }
}

void read_completed(struct puller *p, const struct pull_event *ev)
{
    struct read *r = read_find(p, ev->id);
    if (!r) {
        return;
    }
    struct fetch *f = r->fetch;
    account(p, r, ev);
    pull_table_remove(&p->reads, &r->by_id);
    list_remove(&r->node);
    list_remove(&r->post.node);
    list_remove(&r->cancel.node);
    free(r);
    if (f->state == FETCH_QUIET) {
        fetch_quiet(p, f);
    } else if (ev->status < 0) {
        failed(p, f, ev->status);
    } else if (f->unposted == 0 && f->n_reads == 0) {
        completed(p, f);
    }
}
