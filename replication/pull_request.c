/* pull_request.c: what callers asked for: requests, their items, runs of PREFIX, the end of each. */
#include "replication/pull_internal.h"

#include <errno.h>

struct request *pull_request_find(struct puller *p, uint64_t id)
{
    for (struct pull_link *l = pull_table_first(&p->requests, pull_table_mix(id)); l; l = pull_table_next(l)) {
        struct request *r = CONTAINER(l, struct request, by_id);
        if (r->id == id) {
            return r;
        }
    }
    return NULL;
}

void request_free(struct puller *p, struct request *r)
{
    (void)p;
    list_remove(&r->grave);
    list_remove(&r->done.node);
    free(r->items);
    free(r->results);
    free(r);
}

static void request_done(struct puller *p, struct request *r)
{
    pull_table_remove(&p->requests, &r->by_id);
    timers_clear(&p->timers, &r->timer);
    p->n_timers--;
    p->n_keys -= r->n;
    list_push(&p->dead_requests, &r->grave);
    out_add(p, &r->done, CMD_PULL_DONE);
}

void item_done(struct puller *p, struct item *i, const struct fetch *f, int status)
{
    struct request *r = i->request;
    struct pull_result *out = &r->results[i->index];
    if (i->done) {
        return;
    }
    const struct fetch *at = f ? f : i->fetch;
    if (status < 0) {
        p->cause[cause_of(at, status)]++;
    }
    i->done = true;
    out->unasked = i->fetch ? i->fetch->record.unasked : 0;
    i->fetch = NULL;
    if (f) {
        *out = f->record;
        out->phase_ns[PULL_PREPARE] = i->joined - r->asked;
    }
    out->status = status;
    out->no_room = status == BERTH_EFULL || (status == -ETIMEDOUT && at && at->reserving);
    out->size = out->no_room && at ? at->record.size : out->size;
    out->phase_ns[PULL_TOTAL] = p->mono - r->asked;
    histogram_add(&p->phase[PULL_PREPARE], i->joined - r->asked);
    histogram_add(&p->phase[PULL_TOTAL], out->phase_ns[PULL_TOTAL]);
    p->counter[status >= 0 ? PULL_DONE : PULL_FAILED]++;
    p->counter[PULL_DONE_BYTES] += status == 0 && f && !fetch_only_looks(f) ? out->size : 0;
    if ((r->flags & PULL_PREFIX) && !list_in(&r->turning)) {
        list_push(&p->turning, &r->turning);
    }
    if (--r->open == 0) {
        request_done(p, r);
    }
}

static void turn_later(struct puller *p, struct request *r)
{
    if ((r->flags & PULL_PREFIX) && !list_in(&r->turning)) {
        list_push(&p->turning, &r->turning);
    }
}

void item_located(struct puller *p, struct item *i)
{
    if (!i->located) {
        turn_later(p, i->request);
    }
    i->located = true;
}

/* The search may be shared with another request's run, where the key stands behind the end: here it may be first. */
void item_parked(struct puller *p, struct item *i)
{
    turn_later(p, i->request);
}

/* ---- PREFIX ---- */

/* The run ends before the first item that failed; what lies behind and was not begun is not wanted. */
static void cut_run(struct puller *p, struct request *r)
{
    for (uint32_t i = 0; i < r->bound; i++) {
        if (r->items[i].done && r->results[i].status < 0) {
            r->bound = i;
        }
    }
    for (uint32_t i = r->bound + 1; i < r->n; i++) {
        struct item *it = &r->items[i];
        if (!it->done && !it->released) {
            fetch_leave(p, it, -ENOENT);
        }
    }
}

/* What a home passed over, since the run seemed to end before it there. */
static void unpark(struct puller *p, struct request *r)
{
    struct item *head = r->released < r->n ? &r->items[r->released] : NULL;
    if (!head || !head->fetch || !head->fetch->seek || !head->fetch->seek->parked) {
        return;
    }
    uint64_t batch = ++p->serial; /* of its own, so that this run's first is the first in it, and is not passed over */
    for (uint32_t i = r->released; i < r->bound; i++) {
        struct fetch *f = r->items[i].fetch;
        if (f && f->seek && f->seek->parked) {
            f->seek->prefix = batch;
            seek_go_on(p, f->seek);
        }
    }
}

static void turn(struct puller *p, struct request *r)
{
    cut_run(p, r);
    while (r->released < r->bound && (r->items[r->released].located || r->items[r->released].done)) {
        struct item *it = &r->items[r->released++];
        it->released = true;
        if (it->fetch) {
            fetch_release(p, it->fetch);
        }
    }
    unpark(p, r);
}

void requests_turn(struct puller *p)
{
    while (!list_empty(&p->turning)) {
        struct request *r = CONTAINER(p->turning.next, struct request, turning);
        list_remove(&r->turning);
        turn(p, r);
    }
}

/* ---- start and end ---- */

static int key_good(const struct pull_request *r, const struct pull_key *k)
{
    if (!k->key.data || k->key.size == 0 || k->key.size > KEY_MAX || k->n_ranges > PULL_RANGES_MAX) {
        return -EINVAL;
    }
    if (k->n_ranges && (r->destination != PULL_BUFFER || !k->ranges)) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < k->n_ranges; i++) {
        const struct pull_range *g = &k->ranges[i];
        if (g->length > OBJECT_MAX || g->offset > OBJECT_MAX || g->to >= RANGE_SCRATCH - g->length) {
            return -EINVAL;
        }
    }
    return k->to > UINT64_MAX - k->room ? -EINVAL : 0;
}

static int request_good(const struct puller *p, const struct pull_request *r)
{
    if (r->n_keys == 0 || r->n_keys > PULL_KEYS_MAX || !r->keys || r->destination > PULL_BUFFER ||
        r->flags >= PULL_PREFIX << 1) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < r->n_keys; i++) {
        if (key_good(r, &r->keys[i]) < 0) {
            return -EINVAL;
        }
    }
    if (p->stopping) {
        return -ECANCELED;
    }
    return p->requests.count >= p->config.max_requests || p->n_keys + r->n_keys > p->config.max_keys ? -EAGAIN : 0;
}

static struct request *request_new(struct puller *p, const struct pull_request *in)
{
    uint32_t n = in->n_keys > 0 && in->n_keys <= PULL_KEYS_MAX ? in->n_keys : 1;
    struct request *r = calloc(1, sizeof *r);
    if (!r || !(r->items = calloc(n, sizeof *r->items)) || !(r->results = calloc(n, sizeof *r->results)) ||
        !timer_room(p)) {
        if (r) {
            request_free(p, r);
        }
        return NULL;
    }
    p->n_timers++;
    r->id = in->id;
    r->serial = ++p->serial;
    r->flags = in->flags;
    r->sample = in->sample;
    r->lineage = in->lineage;
    r->destination = in->destination;
    r->deadline = in->deadline;
    r->asked = in->asked && in->asked <= p->mono ? in->asked : p->mono;
    r->n = r->open = r->bound = n;
    r->timer.kind = TIMER_REQUEST;
    list_init(&r->flows);
    for (uint32_t i = 0; i < n; i++) {
        r->items[i] = (struct item){.request = r, .index = i, .joined = p->mono, .came = p->mono};
        r->items[i].released = !(in->flags & PULL_PREFIX);
        r->results[i].member = PULL_MEMBER_NONE;
    }
    p->n_keys += n;
    pull_table_add(&p->requests, &r->by_id, pull_table_mix(r->id));
    return r;
}

static void start_item(struct puller *p, struct item *i, const struct pull_key *k)
{
    if (k->flags & PULL_PRESENT) {
        item_located(p, i);
        item_done(p, i, NULL, BERTH_KEPT);
        return;
    }
    struct keybox *key = key_new(p, k);
    if (!key) {
        item_done(p, i, NULL, -ENOMEM);
        return;
    }
    fetch_join(p, i, k, key);
    key_drop(key);
}

/* Without memory even for the answer nothing is said: the caller's own deadline ends it. */
void request_start(struct puller *p, const struct pull_request *in)
{
    if (pull_request_find(p, in->id)) {
        return;
    }
    int e = request_good(p, in);
    struct request *r = request_new(p, in);
    for (uint32_t i = 0; r && i < r->n; i++) {
        if (e < 0) {
            item_done(p, &r->items[i], NULL, e);
        } else {
            start_item(p, &r->items[i], &in->keys[i]);
        }
    }
    if (r && r->open > 0 && r->deadline != INT64_MAX) {
        timers_set(&p->timers, &r->timer, r->deadline);
    }
}

void request_cancel(struct puller *p, struct request *r, int status)
{
    timers_clear(&p->timers, &r->timer);
    for (uint32_t i = 0; i < r->n; i++) {
        if (!r->items[i].done) {
            fetch_leave(p, &r->items[i], status);
        }
    }
}
