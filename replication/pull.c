/* pull.c: the puller's event loop. */
#include "replication/pull_internal.h"
#include "store/zeroed.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* ---- small things that all files use ---- */

void out_add(struct puller *p, struct out *o, enum pull_command_kind kind)
{
    if (!list_in(&o->node)) {
        o->kind = kind;
        list_push(&p->outs, &o->node);
    }
}

struct keybox *key_new(struct puller *p, const struct pull_key *k)
{
    struct keybox *b = zeroed(sizeof *b + k->key.size);
    if (b) {
        b->refs = 1;
        b->flags = k->flags & PULL_REPLACEABLE;
        b->route = k->route;
        b->size = k->key.size;
        b->ns = k->key.ns;
        memcpy(b->data, k->key.data, k->key.size);
        b->hash = XXH3_64bits_withSeed(b->data, b->size, p->config.hash_seed + b->ns);
    }
    return b;
}

struct keybox *key_keep(struct keybox *k)
{
    k->refs++;
    return k;
}

void key_drop(struct keybox *k)
{
    if (k && --k->refs == 0) {
        free(k);
    }
}

bool key_same(const struct keybox *a, const struct keybox *b)
{
    return a == b ||
           (a->hash == b->hash && a->ns == b->ns && a->size == b->size && memcmp(a->data, b->data, a->size) == 0);
}

struct key_ref pull_key_ref(const struct keybox *k)
{
    return (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns};
}

void key_show(const struct keybox *k, struct pull_key *out)
{
    *out = (struct pull_key){.key = pull_key_ref(k), .route = k->route, .flags = k->flags};
}

void histogram_add(struct pull_histogram *h, int64_t ns)
{
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    unsigned i = v ? 63u - (unsigned)__builtin_clzll(v) : 0;
    h->count++;
    h->sum_ns += v;
    h->bucket[i < 40 ? i : 39]++;
}

bool timer_room(struct puller *p)
{
    return timers_reserve(&p->timers, (uint32_t)p->n_timers + 1) == 0;
}

/* ---- create and destroy ---- */

#define DEFAULT(field, value) c->field = c->field ? c->field : (value)

static void defaults(struct pull_config *c)
{
    DEFAULT(lease_idle_ns, 1000000000);
    DEFAULT(release_ns, 50000000);
    DEFAULT(rpc_ns, 2000000000);
    DEFAULT(wait_min_ns, 1000000);
    DEFAULT(wait_max_ns, 100000000);
    DEFAULT(window_bytes, 64u << 20);
    DEFAULT(source_window_bytes, 32u << 20);
    DEFAULT(read_bytes, 4u << 20);
    DEFAULT(rate, 100000000);
    DEFAULT(latency_ns, 1000000);
    DEFAULT(fresh_ns, INT64_C(60000000000));
    DEFAULT(max_floors, 4096);
}

static int create_tables(struct puller *p)
{
    struct pull_table *tables[] = {&p->fetches_by_key, &p->fetches_by_id, &p->seeks, &p->reads};
    int e = 0;
    for (unsigned i = 0; i < 4; i++) {
        e = e ? e : pull_table_create(tables[i], p->config.max_keys);
    }
    e = e ? e : pull_table_create(&p->requests, p->config.max_requests);
    e = e ? e : pull_table_create(&p->rpcs, 4096);
    return e ? e : pull_table_create(&p->floors, p->config.max_floors);
}

static void init_lists(struct puller *p)
{
    struct list *lists[] = {&p->fetches,       &p->asks,         &p->grants,  &p->sources,       &p->outs,
                            &p->dead_requests, &p->dead_fetches, &p->turning, &p->floors_by_time};
    for (unsigned i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        list_init(lists[i]);
    }
    for (uint16_t i = 0; i < p->config.n_members; i++) {
        struct member *m = &p->members[i];
        list_init(&m->rpcs);
        list_init(&m->flows);
        m->timer.kind = TIMER_MEMBER;
        m->up = i == p->config.self;
    }
}

static int create_parts(struct puller *p)
{
    const struct pull_config *c = &p->config;
    struct leases_config lc = {.max_leases = c->max_leases,
                               .max_bytes = c->max_lease_bytes,
                               .idle_ns = c->lease_idle_ns,
                               .hash_seed = c->hash_seed,
                               .forget_nothing = c->unsafe & UNSAFE_KEEP_LOST};
    p->n_timers = c->n_members;
    if (!(p->members = calloc(c->n_members, sizeof *p->members)) || timers_reserve(&p->timers, c->n_members) < 0) {
        return -ENOMEM;
    }
    p->floor_bucket = calloc(c->max_floors, sizeof *p->floor_bucket);
    int e = p->floor_bucket ? create_tables(p) : -ENOMEM;
    for (uint32_t i = 0; p->floor_bucket && i < c->max_floors; i++) {
        p->floor_bucket[i].at = INT64_MIN / 2; /* long ago */
    }
    return e ? e : leases_create(&p->leases, &lc);
}

int pull_create(struct puller **out, const struct pull_config *config)
{
    if (!config->homes || config->n_members == 0 || config->n_members > LEASE_MEMBERS_MAX ||
        (config->self >= config->n_members && config->self != PULL_MEMBER_NONE) || !config->max_requests ||
        !config->max_keys || !config->max_leases) {
        return -EINVAL;
    }
    struct puller *p = calloc(1, sizeof *p);
    if (!p) {
        return -ENOMEM;
    }
    p->config = *config;
    defaults(&p->config);
    int e = create_parts(p);
    if (e < 0) {
        free(p->members);
        p->members = NULL;
        pull_destroy(p);
        return e;
    }
    init_lists(p);
    *out = p;
    return 0;
}

static void bury_all(struct puller *p)
{
    while (!list_empty(&p->dead_requests)) {
        request_free(p, CONTAINER(p->dead_requests.next, struct request, grave));
    }
    while (!list_empty(&p->dead_fetches)) {
        fetch_free(p, CONTAINER(p->dead_fetches.next, struct fetch, all));
    }
}

static void destroy_fetches(struct puller *p)
{
    while (!list_empty(&p->fetches)) {
        struct fetch *f = CONTAINER(p->fetches.next, struct fetch, all);
        seek_leave(p, f);
        flow_remove(p, f);
        rpc_forget_fetch(f);
        timers_clear(&p->timers, &f->timer);
        while (!list_empty(&f->reads)) {
            struct read *r = CONTAINER(f->reads.next, struct read, node);
            list_remove(&r->node);
            list_remove(&r->post.node);
            list_remove(&r->cancel.node);
            free(r);
        }
        fetch_free(p, f);
    }
}

void pull_destroy(struct puller *p)
{
    if (!p) {
        return;
    }
    if (p->members) {
        destroy_fetches(p);
        for (uint16_t i = 0; i < p->config.n_members; i++) {
            while (!list_empty(&p->members[i].rpcs)) {
                rpc_free(p, CONTAINER(p->members[i].rpcs.next, struct rpc, by_member));
            }
        }
        uint64_t at = 0;
        for (struct pull_link *l; (l = pull_table_any(&p->requests, &at));) {
            struct request *r = CONTAINER(l, struct request, by_id);
            pull_table_remove(&p->requests, l);
            request_free(p, r);
        }
        bury_all(p);
        floors_free(p);
    }
    struct pull_table *tables[] = {&p->requests, &p->fetches_by_key, &p->fetches_by_id, &p->seeks,
                                   &p->reads,    &p->rpcs,           &p->floors};
    for (unsigned i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        pull_table_destroy(tables[i]);
    }
    leases_destroy(p->leases);
    timers_destroy(&p->timers);
    free(p->members);
    free(p->floor_bucket);
    free(p);
}

/* ---- events ---- */

static void member_down(struct puller *p, uint16_t i)
{
    struct member *m = &p->members[i];
    if (i == p->config.self) {
        return;
    }
    m->up = false;
    leases_lost(p->leases, i); /* before anything is posted again: rule 23 */
    rpcs_lost(p, i);
    timers_clear(&p->timers, &m->timer);
}

static void member_up(struct puller *p, const struct pull_event *ev)
{
    struct member *m = &p->members[ev->member];
    if (m->up && ev->member != p->config.self && m->incarnation && m->incarnation != ev->incarnation) {
        member_down(p, ev->member);
    }
    leases_incarnation(p->leases, ev->member, ev->incarnation);
    m->up = true;
    m->incarnation = ev->incarnation;
    m->proven = ev->proven;
    m->transport = ev->transport;
}

static void recall(struct puller *p, const struct pull_event *ev)
{
    for (uint32_t i = 0; ev->leases && i < ev->n; i++) {
        leases_recall(p->leases, ev->member, ev->leases[i]);
    }
}

static void stop(struct puller *p)
{
    p->stopping = true;
    for (uint64_t chain = 0; chain <= p->requests.mask; chain++) {
        for (struct pull_link *l = p->requests.chain[chain], *next; l; l = next) {
            next = l->next;
            request_cancel(p, CONTAINER(l, struct request, by_id), -ECANCELED);
        }
    }
}

static void timer_fired(struct puller *p, struct timer *t)
{
    if (t->kind == TIMER_REQUEST) {
        request_cancel(p, CONTAINER(t, struct request, timer), -ETIMEDOUT);
    } else if (t->kind == TIMER_FETCH) {
        fetch_timer(p, CONTAINER(t, struct fetch, timer));
    } else if (t->kind == TIMER_RPC) {
        rpc_timeout(p, CONTAINER(t, struct rpc, timer));
    } else {
        out_add(p, &CONTAINER(t, struct member, timer)->release, CMD_PULL_RELEASE);
    }
}

static void handle(struct puller *p, const struct pull_event *ev)
{
    bool member = ev->kind == EV_PULL_RECALL || ev->kind == EV_PULL_UP || ev->kind == EV_PULL_DOWN;
    if (member && ev->member >= p->config.n_members) {
        return;
    }
    struct request *r;
    switch (ev->kind) {
    case EV_PULL_REQUEST:
        request_start(p, ev->request);
        break;
    case EV_PULL_CANCEL:
        if ((r = pull_request_find(p, ev->id))) {
            request_cancel(p, r, -ECANCELED);
        }
        break;
    case EV_PULL_ANSWER:
    case EV_PULL_LEASED:
    case EV_PULL_RENEWED:
    case EV_PULL_STATED:
        rpc_answered(p, ev);
        break;
    case EV_PULL_READ:
        read_completed(p, ev);
        break;
    case EV_PULL_RESERVED:
        fetch_reserved(p, ev);
        break;
    case EV_PULL_SEALED:
        fetch_sealed(p, ev);
        break;
    case EV_PULL_HASHED:
        prove_hashed(p, ev);
        break;
    case EV_PULL_RECALL:
        recall(p, ev);
        break;
    case EV_PULL_OUTDATED:
        leases_outdated(p->leases, *ev->key, ev->version);
        break;
    case EV_PULL_WATCHED:
        fetch_watched(p, ev);
        break;
    case EV_PULL_UP:
        member_up(p, ev);
        break;
    case EV_PULL_DOWN:
        member_down(p, ev->member);
        break;
    case EV_PULL_TICK:
        break;
    case EV_PULL_STOP:
        stop(p);
        break;
    }
}

/* What is left to be done when all that the event changed is known. Each step may give the ones before it more. */
static void settle(struct puller *p, bool more)
{
    do {
        requests_turn(p);
        if (!more) {
            rpcs_flush(p);
        }
        read_pump(p);
    } while (!list_empty(&p->turning) || (!more && (!list_empty(&p->asks) || !list_empty(&p->grants))));
    leases_tick(p->leases, p->mono);
    if (p->stopping) {
        leases_end_all(p->leases, p->mono);
    }
    releases_flush(p);
}

void pull_event(struct puller *p, const struct pull_event *ev, struct reader_now now)
{
    p->now = now;
    p->mono = now.mono_after;
    p->check = reader_check(now);
    if (list_empty(&p->outs)) {
        bury_all(p);
    }
    handle(p, ev);
    for (struct timer *t; (t = timers_due(&p->timers, p->mono));) {
        timer_fired(p, t);
    }
    settle(p, ev->more && ev->kind == EV_PULL_REQUEST);
}

int64_t pull_timer(const struct puller *p)
{
    int64_t a = timers_next(&p->timers), b = leases_timer(p->leases);
    return a < b ? a : b;
}
