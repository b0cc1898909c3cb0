/* life.c: a node's memory, which outlives it, and its starts and ends: a region without files, peers over the loop. */
#include "tests/sim/nodes/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAILS 512u

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
    s->tombstone_ns = (world->seed % 4 ? 3600 : 10) * SECOND; /* 10: removals end, nodes are away for longer */
    s->fresh_ns = 60 * SECOND;
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
        .policy = "pwl",
        .quarantine_ns = lies(LIE_QUARANTINE) ? 1 : SECOND,
        .draft_quota = pool / 2,
        .namespaces = n->server.settings.namespaces,
        .n_namespaces = 1,
        .publish = true,
        .tombstone_ns = n->server.settings.tombstone_ns,
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
    node_give(n, &(struct node_event){.kind = EV_START});
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
