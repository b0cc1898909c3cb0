/* pull.c: the puller's event loop, commands, status. */
#include "replication/pull_internal.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

const char *const pull_phase_names[PULL_PHASES] = {
    [PULL_PREPARE] = "prepare", [PULL_REGISTER] = "register", [PULL_ADMIT] = "admit",
    [PULL_QUEUE] = "queue",     [PULL_TRANSFER] = "transfer", [PULL_COMPLETE] = "complete",
    [PULL_PROOF] = "verify",    [PULL_PUBLISH] = "publish",   [PULL_TOTAL] = "total",
};

const char *const pull_counter_names[PULL_COUNTERS] = {
    [PULL_DONE] = "done",
    [PULL_DONE_BYTES] = "done_bytes",
    [PULL_FAILED] = "failed",
    [PULL_SHARED] = "shared",
    [PULL_LEASE_HITS] = "lease_hits",
    [PULL_ASKS] = "asks",
    [PULL_ASK_KEYS] = "ask_keys",
    [PULL_LEASES] = "leases",
    [PULL_LEASE_KEYS] = "lease_keys",
    [PULL_RENEWS] = "renews",
    [PULL_STATES] = "states",
    [PULL_RELEASES] = "releases",
    [PULL_READS] = "reads",
    [PULL_READ_BYTES] = "read_bytes",
    [PULL_CANCELLED_READS] = "cancelled_reads",
    [PULL_LATE] = "late",
    [PULL_STALE] = "stale",
    [PULL_MISMATCHES] = "mismatches",
    [PULL_CORRUPT] = "corrupt",
    [PULL_NEXT_SOURCE] = "next_source",
    [PULL_WAITS] = "waits",
    [PULL_VERIFIED] = "verified",
    [PULL_RPC_TIMEOUTS] = "rpc_timeouts",
    [PULL_BAD_ANSWERS] = "bad_answers",
};

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
    struct keybox *b = calloc(1, sizeof *b + k->key.size);
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

struct key_ref key_of(const struct keybox *k)
{
    return (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns};
}

void key_show(const struct keybox *k, struct pull_key *out)
{
    *out = (struct pull_key){.key = key_of(k), .route = k->route, .flags = k->flags};
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
    DEFAULT(wait_tries, 1000000);
    DEFAULT(stale_max, 3);
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
        config->self >= config->n_members || !config->max_requests || !config->max_keys || !config->max_leases) {
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
        fetch_free(p, CONTAINER(p->dead_fetches.next, struct fetch, grave));
    }
}

static void destroy_fetches(struct puller *p)
{
    while (!list_empty(&p->fetches)) {
        struct fetch *f = CONTAINER(p->fetches.next, struct fetch, all);
        seek_leave(p, f);
        flow_remove(p, f);
        rpc_forget_fetch(f);
        while (!list_empty(&f->reads)) {
            struct read *r = CONTAINER(f->reads.next, struct read, node);
            list_remove(&r->node);
            list_remove(&r->post.node);
            list_remove(&r->cancel.node);
            free(r);
        }
        list_remove(&f->all);
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
    if (m->up && ev->member != p->config.self && m->incarnation != ev->incarnation) {
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
static void settle(struct puller *p)
{
    do {
        requests_turn(p);
        rpcs_flush(p);
        read_pump(p);
    } while (!list_empty(&p->turning) || !list_empty(&p->asks) || !list_empty(&p->grants));
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
    settle(p);
}

int64_t pull_timer(const struct puller *p)
{
    int64_t a = timers_next(&p->timers), b = leases_timer(p->leases);
    return a < b ? a : b;
}

/* ---- commands ---- */

static void show_rpc(struct puller *p, struct rpc *r, struct pull_command *c)
{
    c->id = r->id;
    c->member = r->member;
    c->flags = r->flags;
    c->deadline = r->deadline;
    c->n = r->n;
    c->keys = p->keys;
    for (uint32_t i = 0; i < r->n; i++) {
        key_show(r->entry[i].key, &p->keys[i]);
    }
    const struct reader_lease *l = r->lease ? r->lease : r->fetch ? r->fetch->lease : NULL;
    if (l) {
        c->lease = l->terms.lease;
        c->slot = l->terms.slot;
        c->generation = l->terms.generation;
    }
}

static void show_read(const struct read *r, struct pull_command *c)
{
    const struct fetch *f = r->fetch;
    c->id = r->id;
    c->member = r->member;
    c->lease = r->lease;
    c->generation = r->generation;
    c->length = r->length;
    c->target = (struct pull_target){.kind = f->destination, .name = f->target.name, .at = r->at};
    c->offset = f->lease ? f->lease->terms.offset + r->offset : 0;
    c->slot = f->lease ? f->lease->terms.slot : 0;
}

static void show_fetch(struct puller *p, struct fetch *f, struct pull_command *c)
{
    c->id = f->id;
    c->member = f->record.member;
    c->keys = p->keys;
    c->n = 1;
    key_show(f->key, &p->keys[0]);
    c->token = f->target.name;
    c->target = f->target;
    c->terms = f->lease ? &f->lease->terms : NULL;
    if (c->kind == CMD_PULL_HASH) {
        c->parts = f->parts;
        c->n = f->n_parts;
    } else if (c->kind == CMD_PULL_ABORT) {
        c->token = f->abort_token;
    } else if (c->kind == CMD_PULL_CORRUPT) {
        c->terms = &f->corrupt_terms;
        c->member = f->corrupt_member;
        c->lease = f->corrupt_terms.lease;
        c->slot = f->corrupt_terms.slot;
        c->generation = f->corrupt_terms.generation;
    }
}

static void show_done(const struct request *r, struct pull_command *c)
{
    c->id = r->id;
    c->results = r->results;
    c->n = r->n;
    while (c->run < r->n && r->results[c->run].status >= 0) {
        c->run++;
    }
}

static void show_release(struct puller *p, struct member *m, struct pull_command *c)
{
    c->member = (uint16_t)(m - p->members);
    c->releases = p->releases;
    timers_clear(&p->timers, &m->timer);
    while (c->n < RELEASES_MAX && leases_release(p->leases, c->member, &p->releases[c->n])) {
        c->n++;
    }
    p->counter[PULL_RELEASES] += c->n;
    if (leases_releasing(p->leases, c->member) > 0) {
        out_add(p, &m->release, CMD_PULL_RELEASE);
    }
}

static void show(struct puller *p, struct out *o, struct pull_command *c)
{
    switch (c->kind) {
    case CMD_PULL_ASK:
    case CMD_PULL_LEASE:
    case CMD_PULL_RENEW:
    case CMD_PULL_STATE:
        show_rpc(p, CONTAINER(o, struct rpc, out), c);
        break;
    case CMD_PULL_RELEASE:
        show_release(p, CONTAINER(o, struct member, release), c);
        break;
    case CMD_PULL_READ:
        show_read(CONTAINER(o, struct read, post), c);
        break;
    case CMD_PULL_CANCEL_READ:
        show_read(CONTAINER(o, struct read, cancel), c);
        break;
    case CMD_PULL_RESERVE:
        show_fetch(p, CONTAINER(o, struct fetch, reserve), c);
        break;
    case CMD_PULL_HASH:
        show_fetch(p, CONTAINER(o, struct fetch, hash), c);
        break;
    case CMD_PULL_SEAL:
        show_fetch(p, CONTAINER(o, struct fetch, seal), c);
        break;
    case CMD_PULL_ABORT:
        show_fetch(p, CONTAINER(o, struct fetch, abort), c);
        break;
    case CMD_PULL_CORRUPT:
        show_fetch(p, CONTAINER(o, struct fetch, corrupt), c);
        break;
    case CMD_PULL_DONE:
        show_done(CONTAINER(o, struct request, done), c);
        break;
    }
}

const struct pull_command *pull_command(struct puller *p)
{
    if (list_empty(&p->outs)) {
        return NULL;
    }
    struct out *o = CONTAINER(p->outs.next, struct out, node);
    struct pull_command *c = &p->command;
    /* What the owner can forget rides in front of what it is asked for. */
    if (o->kind == CMD_PULL_LEASE) {
        struct member *m = &p->members[CONTAINER(o, struct rpc, out)->member];
        if (leases_releasing(p->leases, (uint16_t)(m - p->members)) > 0) {
            list_remove(&m->release.node);
            *c = (struct pull_command){.kind = CMD_PULL_RELEASE};
            show_release(p, m, c);
            return c;
        }
    }
    list_remove(&o->node);
    *c = (struct pull_command){.kind = o->kind};
    show(p, o, c);
    return c->kind == CMD_PULL_RELEASE && c->n == 0 ? pull_command(p) : c;
}

/* ---- status ---- */

void pull_status(const struct puller *p, struct pull_status *out)
{
    *out = (struct pull_status){.requests = p->requests.count,
                                .keys = p->n_keys,
                                .transfers = p->fetches_by_id.count,
                                .seeks = p->n_seeks,
                                .rpcs = p->rpcs.count,
                                .reads = p->reads.count,
                                .window_bytes = p->flying,
                                .floors = p->floors.count};
    for (const struct list *n = p->fetches.next; n != &p->fetches; n = n->next) {
        const struct fetch *f = CONTAINER(n, struct fetch, all);
        out->reserves += f->reserved || f->reserving;
        out->hashes += f->hashing;
        out->seals += f->state == FETCH_SEAL;
    }
    memcpy(out->counter, p->counter, sizeof out->counter);
    memcpy(out->phase, p->phase, sizeof out->phase);
    leases_usage(p->leases, &out->leases);
}

static const char *check_fetch(const struct fetch *f, uint64_t *flying, uint64_t *reads, uint64_t *seeking)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (const struct list *r = f->reads.next; r != &f->reads; r = r->next) {
        bytes += CONTAINER(r, struct read, node)->length;
        n++;
    }
    *flying += bytes;
    *reads += n;
    *seeking += f->seek != NULL;
    if (bytes != f->flying || n != f->n_reads) {
        return "a transfer's READs are not those that it counts";
    }
    if (list_empty(&f->items) && f->state != FETCH_QUIET && f->state != FETCH_SEAL) {
        return "nobody waits for a transfer that goes on";
    }
    if ((f->state == FETCH_SEEK) != (f->seek != NULL)) {
        return "a transfer that seeks has no seek, or another has one";
    }
    if (f->state == FETCH_READ && !f->flow && !f->blocked && f->unposted > 0) {
        return "a transfer is forgotten";
    }
    return f->state == FETCH_STATE && !f->rpc ? "nobody was asked for a slot's state" : NULL;
}

const char *pull_check(const struct puller *p)
{
    uint64_t flying = 0, reads = 0, seeking = 0, by_member = 0;
    for (const struct list *n = p->fetches.next; n != &p->fetches; n = n->next) {
        const char *bad = check_fetch(CONTAINER(n, struct fetch, all), &flying, &reads, &seeking);
        if (bad) {
            return bad;
        }
    }
    for (uint16_t i = 0; i < p->config.n_members; i++) {
        by_member += p->members[i].flying;
    }
    if (flying != p->flying || flying != by_member || reads != p->reads.count) {
        return "the windows' bytes are not those of the READs";
    }
    if (p->n_seeks > seeking || p->n_seeks != p->seeks.count) {
        return "a seek has no transfer";
    }
    uint64_t timers = p->config.n_members + p->requests.count + p->fetches_by_id.count + p->rpcs.count;
    if (timers != p->n_timers) {
        return "the timers' places are not those of what may set one";
    }
    struct leases_usage u;
    leases_usage(p->leases, &u);
    return u.granted - u.ended != u.good ? "leases are lost" : NULL;
}
