/* peers_serve_lease.c: LEASE and RENEW: the core answers at once, or after the commit that moves the lease horizon. A
 * LEASE of one key with WAIT that is not there waits until its writer has sealed it, or is lost. */
#include "store/berth.h"
#include "store/shell/peers_pull.h"
#include "store/shell/peers_serve_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEASED_BYTES 96u /* an item of LEASED at most */

#define AWAIT_MAX_NS INT64_C(30000000000) /* a key is waited for at most so long for a peer */

struct awaited {
    int64_t ttl_ns, deadline;
    struct key_ref key; /* its bytes follow */
    uint8_t bytes[];
};

/* ---- promises ---- */

static struct promise *promise_take(struct serve_part *s)
{
    uint32_t i = s->promise_free;
    if (i != UINT32_MAX) {
        s->promise_free = s->promise[i].next;
    } else {
        if (s->promises_used == s->promises_room) {
            uint32_t room = s->promises_room ? 2 * s->promises_room : 64;
            struct promise *more = room <= 1u << SERVE_INDEX_BITS ? realloc(s->promise, room * sizeof *more) : NULL;
            if (!more)
                return NULL;
            memset(more + s->promises_room, 0, (room - s->promises_room) * sizeof *more);
            s->promise = more;
            s->promises_room = room;
        }
        i = s->promises_used++;
    }
    struct promise *q = &s->promise[i];
    *q = (struct promise){.generation = q->generation, .used = true};
    return q;
}

static void promise_end(struct serve_part *s, struct promise *q)
{
    free(q->answer);
    free(q->awaited);
    q->answer = NULL;
    q->awaited = NULL;
    q->used = false;
    q->generation++;
    q->next = s->promise_free;
    s->promise_free = (uint32_t)(q - s->promise);
}

/* generation, part of the request, index */
static uint64_t request_of(const struct serve_part *s, const struct promise *q, uint32_t part)
{
    return (uint64_t)q->generation << 32 | part << SERVE_INDEX_BITS | (uint32_t)(q - s->promise);
}

static struct promise *promise_find(struct serve_part *s, uint64_t request, uint32_t *part)
{
    uint32_t i = (uint32_t)request & ((1u << SERVE_INDEX_BITS) - 1);
    *part = (uint32_t)request >> SERVE_INDEX_BITS;
    if (i >= s->promises_used || !s->promise[i].used || s->promise[i].generation != request >> 32)
        return NULL;
    return &s->promise[i];
}

/* ---- answers ---- */

void serve_part_lease_of(const struct lease_grant *g, struct wire_lease *out)
{
    *out = (struct wire_lease){.id = g->lease,
                               .slot = g->slot,
                               .segment = g->segment,
                               .generation = g->generation,
                               .offset = g->offset,
                               .size = g->size,
                               .version = {.counter = g->counter, .region = g->region},
                               .checksum = g->checksum,
                               .lineage = g->lineage,
                               .duration = (uint64_t)g->duration_ns};
}

static int send_leased(struct peers *p, struct link *l, const struct promise *q, const struct lease_grant *g,
                       uint32_t n)
{
    struct wire_message m = {.head = {.op = WIRE_LEASED, .id = q->id}};
    struct wire_writer w;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < n; i++) {
        struct wire_item item = {.leased = {.status = g[i].status}};
        if (g[i].status == 0)
            serve_part_lease_of(&g[i], &item.leased.lease);
        e = wire_add(&w, &item);
    }
    long bytes = e < 0 ? e : wire_end(&w);
    return bytes < 0 ? (int)bytes : link_answer(l, q->id, p->buffer, (size_t)bytes);
}

/* What was leased in vain would keep its slot until the clock ends it. */
static void give_back_from(struct serve_part *s, const struct lease_answer *a, uint32_t first)
{
    struct lease_event from = {.peer = a->peer, .connection = a->connection, .incarnation = a->incarnation};
    for (uint32_t i = first; i < a->n; i++) {
        if (a->grant[i].status == 0)
            serve_give_back(s, &from, a->grant[i].lease);
    }
}

/* ---- waiting for a key ---- */

struct core_question {
    struct serve_part *part;
    uint64_t request;
};

static void key_waited(void *arg, unsigned state)
{
    struct core_question *x = arg;
    uint32_t part;
    struct promise *q = promise_find(x->part, x->request, &part);
    if (q) {
        q->state = (uint8_t)state;
        q->due = x->part->due = true;
        x->part->peers->again = true;
    }
    free(x);
}

static void wait_for_key(struct serve_part *s, struct promise *q)
{
    struct core_question *x = pull_memory(sizeof *x);
    *x = (struct core_question){.part = s, .request = request_of(s, q, 0)};
    core_wait(s->peers->pull, &q->awaited->key, true, q->awaited->deadline, key_waited, free, x);
}

static void leased(struct serve_part *s, struct promise *q, const struct lease_answer *a)
{
    struct link *l = link_serial(s->peers, q->serial);
    uint32_t n = a->n;
    for (uint32_t i = 0; q->run && i < n; i++) {
        if (a->grant[i].status)
            n = i;
    }
    int e = l && a->status == 0 ? send_leased(s->peers, l, q, a->grant, n) : -ENOTCONN;
    if (l && (a->status || e < 0))
        link_refuse(l, WIRE_LEASE, q->id, a->status ? a->status : e);
    give_back_from(s, a, e < 0 ? 0 : n);
}

static void send_renewed(struct peers *p, struct link *l, const struct promise *q)
{
    struct wire_message m = {.head = {.op = WIRE_RENEWED, .id = q->id}};
    struct wire_writer w;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < q->n; i++) {
        const struct lease_grant *g = &q->answer[i];
        uint64_t duration = g->status == 0 ? (uint64_t)g->duration_ns : 0;
        e = wire_add(&w, &(struct wire_item){.renewed = {.status = g->status, .duration = duration}});
    }
    long bytes = e < 0 ? e : wire_end(&w);
    e = bytes < 0 ? (int)bytes : link_answer(l, q->id, p->buffer, (size_t)bytes);
    if (e < 0)
        link_refuse(l, WIRE_RENEW, q->id, e);
}

static void renewed(struct serve_part *s, struct promise *q, const struct lease_answer *a, uint32_t part)
{
    uint32_t first = part * LEASE_KEYS_MAX, n = q->n - first < LEASE_KEYS_MAX ? q->n - first : LEASE_KEYS_MAX;
    for (uint32_t i = 0; i < n; i++)
        q->answer[first + i] = i < a->n ? a->grant[i] : (struct lease_grant){.status = a->status};
    if (--q->waits)
        return;
    struct link *l = link_serial(s->peers, q->serial);
    if (l && a->status && q->n <= LEASE_KEYS_MAX)
        link_refuse(l, WIRE_RENEW, q->id, a->status);
    else if (l)
        send_renewed(s->peers, l, q);
    promise_end(s, q);
}

static void count_leases(struct serve_part *s, const struct lease_answer *a)
{
    struct serve_sums *sums = serve_sums_of(s, a->peer);
    for (uint32_t i = 0; a->status == 0 && i < a->n; i++) {
        sums->leases += a->grant[i].status == 0;
        sums->lease_refusals += a->grant[i].status != 0 && a->grant[i].status != -ENOENT;
    }
}

void promise_answered(struct serve_part *s, const struct node_command *c)
{
    uint32_t part;
    if (c->kind == CMD_LEASED)
        count_leases(s, c->lease);
    struct promise *q = promise_find(s, c->lease->request, &part);
    if (!q) {
        if (c->kind == CMD_LEASED)
            give_back_from(s, c->lease, 0);
    } else if (q->kind == PROMISE_RENEW) {
        renewed(s, q, c->lease, part);
    } else if (q->kind == PROMISE_LEASE) {
        bool absent = c->lease->status == 0 && c->lease->n == 1 && c->lease->grant[0].status == -ENOENT;
        if (absent && q->awaited && !q->waits && link_serial(s->peers, q->serial)) {
            q->waits = 1; /* once */
            wait_for_key(s, q);
            return;
        }
        leased(s, q, c->lease);
        promise_end(s, q);
    } else {
        serve_granted_fn *done = q->done;
        void *arg = q->arg;
        promise_end(s, q); /* done may ask for more */
        done(arg, c->lease->grant, c->lease->n);
    }
}

static void end_unanswered(struct serve_part *s, struct promise *q)
{
    serve_granted_fn *done = q->kind == PROMISE_GRANT ? q->done : NULL;
    void *arg = q->arg;
    promise_end(s, q);
    if (done)
        done(arg, NULL, 0);
}

void promises_end(struct serve_part *s, uint32_t serial)
{
    for (uint32_t i = 0; i < s->promises_used; i++) {
        if (s->promise[i].used && s->promise[i].serial == serial)
            end_unanswered(s, &s->promise[i]);
    }
}

void promises_free(struct serve_part *s)
{
    for (uint32_t i = 0; i < s->promises_used; i++) {
        if (s->promise[i].used)
            end_unanswered(s, &s->promise[i]);
    }
    free(s->promise);
}

/* ---- requests ---- */

static struct promise *promise_make(struct serve_part *s, enum promise_kind kind, const struct link *from, uint64_t id,
                                    uint32_t n)
{
    struct promise *q = promise_take(s);
    if (!q)
        return NULL;
    q->kind = (uint8_t)kind;
    q->serial = from->serial;
    q->id = id;
    q->n = n;
    return q;
}

static void ask_lease(struct serve_part *s, struct link *from, const struct promise *q, const struct key_ref *keys,
                      int64_t ttl_ns)
{
    struct lease_event lease = serve_from(from);
    struct node_event ev = {.kind = EV_LEASE, .lease = &lease};
    lease.request = request_of(s, q, 0);
    lease.ttl_ns = ttl_ns;
    lease.keys = keys;
    lease.n = q->n;
    dispatch(s->peers->server, &ev);
}

static int32_t lost_status(unsigned state)
{
    return state == WAIT_ABORTED ? BERTH_EABORTED : state == WAIT_DIED ? BERTH_EDIED : -ENOENT;
}

void promises_due(struct serve_part *s)
{
    struct peers *p = s->peers;
    bool due = s->due;
    s->due = false;
    for (uint32_t i = 0; due && i < s->promises_used; i++) {
        struct promise *q = &s->promise[i];
        struct link *l = q->used && q->due ? link_serial(p, q->serial) : NULL;
        if (!l)
            continue;
        q->due = false;
        if (q->state == WAIT_READY) {
            ask_lease(s, l, q, &q->awaited->key, q->awaited->ttl_ns);
            continue; /* where q lies now is not known */
        }
        struct lease_grant none = {.status = lost_status(q->state)};
        if (send_leased(p, l, q, &none, 1) < 0)
            link_refuse(l, WIRE_LEASE, q->id, none.status);
        promise_end(s, q);
    }
}

/* NULL: it is answered at once. */
static struct awaited *awaited_new(const struct key_ref *key, int64_t ttl_ns, int64_t now, int64_t deadline)
{
    struct awaited *a = malloc(sizeof *a + key->size);
    if (a) {
        *a = (struct awaited){.ttl_ns = ttl_ns, .deadline = deadline, .key = *key};
        a->deadline = deadline < now + AWAIT_MAX_NS ? deadline : now + AWAIT_MAX_NS;
        memcpy(a->bytes, key->data, key->size);
        a->key.data = a->bytes;
    }
    return a;
}

void serve_part_lease(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    struct key_ref keys[LEASE_KEYS_MAX];
    struct wire_item item;
    uint32_t n = 0;
    if (home_part_held(p)) {
        link_refuse(from, WIRE_LEASE, m->head.id, BERTH_ENOTNOW);
        return;
    }
    while (n < LEASE_KEYS_MAX && wire_next(items, &item) == 1)
        keys[n++] = item.key;
    bool fits = WIRE_HEAD + (n + 1) * LEASED_BYTES <= from->other.largest;
    struct promise *q = fits ? promise_make(p->serve, PROMISE_LEASE, from, m->head.id, n) : NULL;
    if (!q) {
        link_refuse(from, WIRE_LEASE, m->head.id, fits ? -ENOMEM : -EMSGSIZE);
        return;
    }
    q->run = m->head.flags & WIRE_PREFIX;
    if (n == 1 && m->head.flags & WIRE_WAIT)
        q->awaited = awaited_new(&keys[0], (int64_t)m->ttl, peers_mono(p), deadline);
    ask_lease(p->serve, from, q, keys, (int64_t)m->ttl);
}

int serve_part_grant(struct peers *p, struct link *from, const struct key_ref *keys, uint32_t n, int64_t ttl_ns,
                     serve_granted_fn *done, void *arg)
{
    if (n == 0 || n > LEASE_KEYS_MAX || p->server->dispatching)
        return -EINVAL;
    if (home_part_held(p))
        return BERTH_ENOTNOW;
    struct promise *q = promise_make(p->serve, PROMISE_GRANT, from, 0, n);
    if (!q)
        return -ENOMEM;
    q->done = done;
    q->arg = arg;
    ask_lease(p->serve, from, q, keys, ttl_ns);
    return 0;
}

/* A request names more leases than an event may: it is given in parts, and answered when all of them are. */
void serve_part_renew(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    struct serve_part *s = p->serve;
    struct promise *q = promise_make(s, PROMISE_RENEW, from, m->head.id, m->head.count);
    struct lease_ref ref[LEASE_KEYS_MAX];
    struct wire_item item;
    (void)deadline;
    if (!q || !(q->answer = calloc(q->n, sizeof *q->answer))) {
        if (q)
            promise_end(s, q);
        link_refuse(from, WIRE_RENEW, m->head.id, -ENOMEM);
        return;
    }
    uint32_t parts = (q->n + LEASE_KEYS_MAX - 1) / LEASE_KEYS_MAX;
    uint64_t first = request_of(s, q, 0);
    q->waits = parts;
    for (uint32_t part = 0; part < parts; part++) { /* q is of no use after the last answer, or where the table moved */
        struct lease_event lease = serve_from(from);
        struct node_event ev = {.kind = EV_RENEW, .lease = &lease};
        while (lease.n < LEASE_KEYS_MAX && wire_next(items, &item) == 1)
            ref[lease.n++] = (struct lease_ref){.id = item.renew.lease, .in_flight = item.renew.in_flight};
        lease.ref = ref;
        lease.request = first | part << SERVE_INDEX_BITS;
        dispatch(p->server, &ev);
    }
}
