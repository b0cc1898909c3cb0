/* shell.c: a node without libuv, sockets and files: events into the core, its commands carried out, the peers' turns.
 * Commits take time now and then, or fail; a node may die at any event. */
#include "tests/sim/nodes/nodes.h"

#include "store/shell/resolver.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAILS 512u
#define TURNS 4u /* of a node, before others have theirs */

/* ---- what the peers' code calls ---- */

static struct member_node *node_of(struct server *s)
{
    return (struct member_node *)((char *)s - offsetof(struct member_node, server));
}

int64_t server_clock(struct server *s)
{
    s->now = clock_now(node_of(s));
    return s->now.mono;
}

struct session *sessions_find(struct server *s, uint64_t id)
{
    struct member_node *n = node_of(s);
    return n->up && n->session_id == id ? &n->session : NULL;
}

void session_reply(struct session *c, const struct msg_reply *r)
{
    client_reply(node_of(c->server), r);
}

void session_answer(struct session *c, const struct msg_head *request, int32_t status, uint64_t counter)
{
    struct msg_reply r = {.head = *request, .status = status, .counter = counter};
    r.head.bytes = sizeof r;
    client_reply(node_of(c->server), &r);
}

bool settings_wants_peers(const struct settings *s)
{
    (void)s;
    return true;
}

struct watch *watch_open(uv_loop_t *loop, int fd, int events, void (*ready)(void *arg, int events), void *arg)
{
    (void)fd, (void)events, (void)ready, (void)arg;
    return (struct watch *)loop; /* readable is set by node_turn */
}

void watch_close(struct watch *w)
{
    (void)w;
}

/* Addresses here are digits: nobody is asked for a name. */
struct resolver *resolver_open(uv_loop_t *loop, void (*answered)(void *arg), void *arg)
{
    (void)answered, (void)arg;
    return (struct resolver *)loop;
}

void resolver_close(struct resolver *r)
{
    (void)r;
}

int resolver_ask(struct resolver *r, const struct transport *transport, const char *address, struct question **out)
{
    (void)r, (void)transport, (void)address, (void)out;
    return -EAGAIN;
}

bool question_answered(struct question *q, struct resolved *out)
{
    (void)q, (void)out;
    return false;
}

void question_drop(struct question *q)
{
    (void)q;
}

void log_event(enum log_level level, const char *format, ...)
{
    char line[160];
    va_list ap;
    if (!world->o.notes)
        return;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    note("log %d: %s", (int)level, line);
}

size_t escape_bytes(char *out, size_t size, const void *data, size_t n)
{
    n = n < size ? n : size - 1;
    memcpy(out, data, n);
    out[n] = '\0';
    return n;
}

/* ---- commands of the core ---- */

static struct later *later(struct member_node *n, enum node_event_kind kind)
{
    if (n->n_later == sizeof n->later / sizeof n->later[0])
        abort();
    struct later *l = &n->later[n->n_later++];
    *l = (struct later){.kind = kind};
    return l;
}

static void run_commit(struct member_node *n, struct batch *b)
{
    if (n->flying)
        violation("node %u: a commit is asked for while one is under way", n->number);
    if (chance(4)) {
        n->flying = b;
        n->commit_at = world->now + (int64_t)below(400) * US;
        return;
    }
    bool fails = !world->calm && chance(600);
    world->faults[FAULT_COMMIT] += fails;
    later(n, EV_COMMITTED)->status = fails ? -ENOSPC : memory_ops.commit(n->index, b);
}

static void run_scan(struct member_node *n, const struct node_command *k)
{
    struct later *l = later(n, EV_SCANNED);
    l->scan = k->scan;
    l->pinned = calloc(k->n_slots / 64 + 1, sizeof *l->pinned);
    for (uint32_t v = 0; v < VIEWS; v++) {
        for (uint32_t i = 0; n->view[v].slot && i < k->n_slots; i++) {
            if (k->slots[i] == n->view[v].slot - 1)
                l->pinned[i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
}

static void run_published(struct member_node *n, const struct node_command *k)
{
    struct publish_stat st;
    publish_stat(n->server.peers->home->publish, &st);
    peers_command(n->server.peers, k);
    shadow_published(n, k->published, k->n_published, (int64_t)st.told + 1);
}

static void run_reply(struct member_node *n, const struct node_command *k)
{
    if (k->session == NODE_PULLER)
        peers_reply(n->server.peers, k->reply);
    else if (k->session == n->session_id)
        client_reply(n, k->reply);
}

static void run_command(struct member_node *n, const struct node_command *k)
{
    switch (k->kind) {
    case CMD_COMMIT:
        run_commit(n, k->batch);
        break;
    case CMD_SCAN:
        run_scan(n, k);
        break;
    case CMD_PUBLISHED:
        run_published(n, k);
        break;
    case CMD_LEASED:
    case CMD_RENEWED:
        lie_leased(n, k);
        break;
    case CMD_RECALL:
    case CMD_SERVE:
        peers_command(n->server.peers, k);
        break;
    case CMD_PULL:
        peers_pull(n->server.peers, &n->session, (const struct msg_pull *)k->message);
        break;
    case CMD_CANCEL_PULL:
        peers_cancel_pull(n->server.peers, &n->session, (const struct msg_cancel *)k->message);
        break;
    case CMD_REPLY:
    case CMD_GROW:
        run_reply(n, k);
        break;
    case CMD_STOPPED:
        n->server.stopped = true;
        break;
    default:
        break;
    }
}

static void give(struct member_node *n, const struct node_event *ev)
{
    struct server *s = &n->server;
    s->dispatching = true;
    node_event(s->node, ev, clock_now(n));
    for (const struct node_command *k; (k = node_command(s->node));)
        run_command(n, k);
    s->dispatching = false;
}

static void see_bytes(struct member_node *n, const struct msg_token *t, uint32_t put)
{
    uint8_t *at = n->pool + (uint64_t)t->page * PAGE_BYTES;
    page_used(n, t->page, t->gen, put);
    if (put_same(put, at, 0, world->put[put].size))
        return;
    world->reached++;
    if (world->o.trusting)
        put_fill(put, at); /* counted once, and not where this copy is read again */
    else
        violation("node %u seals a copy of key %u with other bytes than were sealed", n->number, world->put[put].key);
}

/* A replica is being sealed: its bytes are those of the version that it names. */
static void see_seal(struct member_node *n, const struct msg_head *m)
{
    const struct node_seal_origin *o = (const struct node_seal_origin *)m;
    if (m->op != NODE_SEAL_ORIGIN)
        return;
    uint32_t put = put_find(o->counter, o->region);
    if (put == NONE)
        violation("node %u seals a copy under version %llu of %llx, which nobody sealed", n->number,
                  (unsigned long long)o->counter, (unsigned long long)o->region);
    else
        see_bytes(n, &o->token, put);
}

void dispatch(struct server *s, const struct node_event *ev)
{
    struct member_node *n = node_of(s);
    if (!n->up)
        return; /* its process is gone: what is freed now has no effect */
    if (s->dispatching) {
        later(n, ev->kind)->status = ev->status;
        return;
    }
    if (ev->kind == EV_REQUEST && ev->session == NODE_PULLER)
        see_seal(n, ev->message);
    s->turn_due = true;
    give(n, ev);
    for (unsigned i = 0; i < n->n_later; i++) {
        struct later l = n->later[i];
        give(n, &(struct node_event){.kind = l.kind, .status = l.status, .scan = l.scan, .pinned = l.pinned});
        free(l.pinned);
    }
    n->n_later = 0;
}

/* ---- a transport whose word is taken ---- */

static bool trusted(void *ctx)
{
    (void)ctx;
    return world->proves;
}

static int overheard(void *ctx, struct connection *c, const void *message, size_t n)
{
    world->messages++;
    if (n <= sizeof world->heard && chance(512)) {
        memcpy(world->heard, message, n);
        world->n_heard = n;
    }
    return loop_transport.send(ctx, c, message, n);
}

const struct transport *transport_of(void)
{
    static struct transport t;
    t = loop_transport;
    t.proves = trusted;
    t.send = overheard;
    if (lies(LIE_QUIET))
        t.cancel = lie_cancel;
    return &t;
}

/* ---- lives ---- */

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static int any_size(void *env, uint32_t n)
{
    (void)env, (void)n;
    return 0;
}

static void make_settings(struct member_node *n)
{
    struct settings *s = &n->server.settings;
    static const uint32_t verify[WORLD_KINDS] = {[WORLD_HELD] = 1, [WORLD_SIDED] = 1};
    snprintf(s->name, sizeof s->name, "n%u", n->number);
    snprintf(s->cluster, sizeof s->cluster, "sim");
    snprintf(s->listen, sizeof s->listen, "tcp://127.0.0.1:%u", 7000 + n->number);
    s->n_peers = world->n;
    for (uint32_t i = 0; i < world->n; i++) {
        snprintf(s->peers[i].name, sizeof s->peers[i].name, "n%u", i);
        snprintf(s->peers[i].address, sizeof s->peers[i].address, "tcp://127.0.0.1:%u", 7000 + i);
        s->peers[i].weight = 1 + i % 2;
    }
    s->homes = 1 + (uint32_t)(world->seed / WORLD_KINDS % 3);
    s->homes = s->homes < world->n ? s->homes : world->n;
    s->max_objects = 1024;
    s->verify = verify[world->kind];
    snprintf(s->namespaces[0].name, sizeof s->namespaces[0].name, "replaceable");
    s->namespaces[0].replaceable = true;
    s->n_namespaces = 1;
}

/* The memory is kept from world to world; what says what it means is cleared. */
static void make_memory(struct member_node *n)
{
    uint64_t lookup = lookup_bytes(PAGES);
    if (!n->pool) {
        n->headers = memory(PAGES * sizeof *n->headers);
        n->slabs = memory(UNITS * sizeof *n->slabs);
        n->lookup_map = memory(lookup);
        n->tails = memory(TAILS * TAIL_CELL);
        n->pool = memory((uint64_t)UNITS * UNIT_BYTES);
        n->page = memory(PAGES * sizeof *n->page);
    }
    memset(n->headers, 0, PAGES * sizeof *n->headers);
    memset(n->slabs, 0, UNITS * sizeof *n->slabs);
    memset(n->lookup_map, 0, lookup);
    memset(n->page, 0, PAGES * sizeof *n->page);
    n->super = (struct slots_super){.pool_bytes = (uint64_t)UNITS * UNIT_BYTES,
                                    .mr_bytes = 1u << 30,
                                    .n_units = UNITS,
                                    .max_headers = PAGES,
                                    .hash_seed = draw(),
                                    .region_id = draw() | 1};
    memcpy(n->super.uuid, &n->super.region_id, sizeof n->super.region_id);
    lookup_format(n->lookup_map, lookup, n->super.uuid, n->super.hash_seed);
    if (lookup_attach(&n->lookup, n->lookup_map, lookup))
        abort();
    n->lookup.headers = n->headers;
    n->lookup.n_headers = PAGES;
    n->lookup.tails = n->tails;
    n->lookup.n_tails = TAILS;
    n->index = index_make();
}

void node_make(struct member_node *n, uint32_t number)
{
    n->number = number;
    n->first = true;
    n->session_id = number + 1;
    TAILQ_INIT(&n->queue);
    make_memory(n);
    make_settings(n);
}

static struct node_config config_of(struct member_node *n)
{
    uint64_t pool = n->super.pool_bytes, high = (24 + below(72)) * (uint64_t)PAGE_BYTES;
    return (struct node_config){
        .super = &n->super,
        .headers = n->headers,
        .dir = n->slabs,
        .lookup = &n->lookup,
        .tails = n->tails,
        .n_tails = TAILS,
        .grow_headers = any_size,
        .grow_tails = any_size,
        .env = n,
        .index = &memory_ops,
        .ix = n->index,
        .high_bytes = high,
        .low_bytes = high - high / 8,
        .policy = "lru",
        .quarantine_ns = lies(LIE_QUARANTINE) ? 1 : SECOND,
        .draft_quota = pool / 2,
        .namespaces = n->server.settings.namespaces,
        .n_namespaces = 1,
        .publish = true,
        .lease = {.ttl_ns = world->ttl,
                  .grace_ns = 10 * MS,
                  .max_leases = 4096,
                  .retired_renewals = 1 + below(2),
                  .peer_bytes = pool / (1 + below(8)),
                  .idle_bytes = pool / (1 + below(64))},
        .first = n->first,
        .clean = memory_ops.meta(n->index, META_CLEAN) != 0,
    };
}

static void open_peers(struct member_node *n)
{
    struct server *s = &n->server;
    char why[512] = "";
    s->region = (struct region){.super = &n->super,
                                .headers = n->headers,
                                .dir = n->slabs,
                                .lookup = n->lookup,
                                .incarnation = ++n->incarnation};
    s->region.pool.base = n->pool;
    s->region.pool.bytes = n->super.pool_bytes;
    s->region.pool.fd = -1;
    s->transport = transport_of();
    loop_net_use(world->net);
    if (peers_open(&s->peers, s, why, sizeof why))
        violation("node %u: its peers don't open: %s", n->number, why);
}

void node_start(struct member_node *n)
{
    struct server *s = &n->server;
    const char *why;
    world->in = n;
    n->up_since = world->now;
    n->up = true;
    n->stopping = s->stopped = s->turn_due = s->dispatching = false;
    n->session_id += NODES;
    n->session.server = s;
    n->session.id = n->session_id;
    n->session.pid = getpid();
    n->session.attached = true;
    if (lies(LIE_HORIZON) || lies(LIE_QUARANTINE))
        index_set(n->index, META_LEASE_HORIZON, 0);
    struct node_config config = config_of(n);
    if (node_create(&s->node, &config))
        abort();
    n->first = false;
    note("node %u starts", n->number);
    give(n, &(struct node_event){.kind = EV_START});
    if (node_started(s->node, &why))
        violation("node %u does not start: %s", n->number, why);
    index_set(n->index, META_CLEAN, 0);
    open_peers(n);
    if (world->violations == 0) {
        struct session_row row = {.pid = (int32_t)n->number + 1, .name = "sim"};
        shadow_started(n);
        dispatch(s, &(struct node_event){.kind = EV_ATTACH, .session = n->session_id, .writable = true, .row = &row});
        client_begin(n);
    }
    n->due = world->now;
    world->in = NULL;
}

/* What is left of a process that is gone: nothing of it has an effect any more. */
static void bury(struct member_node *n)
{
    struct server *s = &n->server;
    client_gone(n);
    n->up = false;
    if (s->peers) {
        links_end(s->peers);
        peers_close(s->peers);
    }
    node_destroy(s->node);
    s->node = NULL;
    s->peers = NULL;
    n->flying = NULL;
    for (unsigned i = 0; i < n->n_later; i++)
        free(n->later[i].pinned);
    n->n_later = 0;
    n->due = INT64_MAX;
}

/* The process has no connection any more, so that nothing of what its code does while it is freed reaches anybody. */
void node_crash(struct member_node *n, bool applied)
{
    struct peers *p = n->server.peers;
    struct link *l;
    note("node %u is killed", n->number);
    world->in = n;
    if (n->flying && applied)
        memory_ops.commit(n->index, n->flying);
    loop_crash(p->context);
    TAILQ_FOREACH(l, &p->links, entry)
    l->connection = NULL;
    p->transport = &null_transport;
    n->up = false; /* dispatch has no effect from here on */
    bury(n);
    world->in = NULL;
}

/* A clean stop, which takes a moment in which nothing else happens here. */
void node_stop(struct member_node *n)
{
    struct server *s = &n->server;
    note("node %u is stopped", n->number);
    world->in = n;
    if (n->flying) {
        int e = memory_ops.commit(n->index, n->flying);
        n->flying = NULL;
        dispatch(s, &(struct node_event){.kind = EV_COMMITTED, .status = e});
    }
    peers_stop(s->peers);
    n->stopping = true;
    dispatch(s, &(struct node_event){.kind = EV_STOP});
    for (int i = 0; i < 1000 && !s->stopped; i++) {
        n->commit_at = world->now;
        node_turn(n);
        world->in = n;
    }
    if (!s->stopped)
        violation("node %u does not stop", n->number);
    index_set(n->index, META_CLEAN, 1);
    bury(n);
    world->in = NULL;
}

/* ---- turns ---- */

static bool take_requests(struct member_node *n)
{
    struct queued *q;
    bool any = false;
    while ((q = TAILQ_FIRST(&n->queue)) && node_session_ready(n->server.node, n->session_id)) {
        TAILQ_REMOVE(&n->queue, q, entry);
        dispatch(&n->server, &(struct node_event){.kind = EV_REQUEST, .session = n->session_id, .message = &q->head});
        free(q);
        any = true;
    }
    return any;
}

void node_request(struct member_node *n, const struct msg_head *m)
{
    struct queued *q = malloc(offsetof(struct queued, head) + m->bytes);
    if (!q)
        abort();
    if (msg_check(m, m->bytes))
        violation("msg_check refuses a message of op %u that is as it should be", m->op);
    memcpy(&q->head, m, m->bytes);
    TAILQ_INSERT_TAIL(&n->queue, q, entry);
    n->due = world->now;
}

static bool one_turn(struct member_node *n)
{
    struct server *s = &n->server;
    bool any = false;
    if (n->flying && n->commit_at <= world->now) {
        bool fails = !world->calm && chance(100);
        int e = fails ? -ENOSPC : memory_ops.commit(n->index, n->flying);
        world->faults[FAULT_COMMIT] += fails;
        n->flying = NULL;
        dispatch(s, &(struct node_event){.kind = EV_COMMITTED, .status = e});
        any = true;
    }
    s->peers->readable = s->peers->readable || loop_ready(s->peers->context);
    lie_turn(n);
    any |= take_requests(n);
    any |= peers_turn(s->peers);
    if (node_timer(s->node) <= clock_mono(n))
        dispatch(s, &(struct node_event){.kind = EV_TICK});
    if (s->turn_due) {
        s->turn_due = false;
        dispatch(s, &(struct node_event){.kind = EV_TURN});
        s->turn_due = false;
        any = true;
    }
    return any;
}

void node_turn(struct member_node *n)
{
    world->in = n;
    world->steps++;
    for (uint32_t i = 0; i < TURNS && world->violations == 0 && one_turn(n); i++)
        ;
    if (n->doomed && n->flying && !n->stopping && !world->calm)
        fault_doomed(n);
    if (n->up)
        node_due(n);
    world->in = NULL;
}

static void sooner(int64_t *due, int64_t at)
{
    if (at < *due)
        *due = at;
}

void node_due(struct member_node *n)
{
    struct server *s = &n->server;
    int64_t due = n->flying ? n->commit_at : INT64_MAX;
    int64_t mono = node_timer(s->node);
    sooner(&mono, peers_timer(s->peers));
    sooner(&due, clock_world(n, mono));
    if (peers_busy(s->peers) || loop_ready(s->peers->context) ||
        (!TAILQ_EMPTY(&n->queue) && node_session_ready(s->node, n->session_id)))
        sooner(&due, world->now + 1 * US);
    n->due = due < n->away_until ? n->away_until : due;
}
