/* client.c: the one client of a node: what it puts, removes, reads in place and pulls, and whether the answers are
 * what was promised. */
#include "tests/sim/nodes/nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SLACK (250 * MS) /* of a deadline: commits, turns, and what a host that was away has to catch up with */

static uint32_t some_key(void)
{
    uint32_t a = below(world->n_keys), b = below(world->n_keys);
    return a < b ? a : b;
}

static struct call *free_call(struct member_node *n)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        if (n->call[i].kind == CALL_NONE)
            return &n->call[i];
    }
    return NULL;
}

static struct call *call_of(struct member_node *n, uint64_t id)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        if (n->call[i].kind != CALL_NONE && n->call[i].id == id)
            return &n->call[i];
    }
    return NULL;
}

static void call_end(struct call *c)
{
    free(c->buffer);
    c->buffer = NULL;
    c->kind = CALL_NONE;
}

static struct call *call_begin(struct member_node *n, enum call_kind kind)
{
    struct call *c = free_call(n);
    if (!c)
        return NULL;
    c->kind = kind;
    c->id = ++n->next_id;
    c->deadline = INT64_MAX;
    c->began = world->now;
    c->cancelled = false;
    c->n = 0;
    return c;
}

static struct msg_head head_of(struct member_node *n, const struct call *c, unsigned op, size_t bytes)
{
    return (struct msg_head){.bytes = (uint32_t)bytes,
                             .op = (uint16_t)op,
                             .id = c->id,
                             .deadline = c->deadline,
                             .stamp = (uint64_t)clock_mono(n)};
}

/* ---- writing ---- */

static void ask_tokens(struct member_node *n)
{
    struct call *c = n->asked_tokens ? NULL : call_begin(n, CALL_GRANT);
    if (!c)
        return;
    c->deadline = clock_mono(n) + 500 * MS;
    struct msg_grant m = {.head = head_of(n, c, MSG_GRANT, sizeof m), .size = OBJECT_MOST};
    m.count = world->narrow ? 1 : TOKENS; /* one at a time: a slot that is free is written to at once */
    n->asked_tokens = true;
    node_request(n, &m.head);
}

static void put(struct member_node *n)
{
    struct call *c = n->n_tokens ? call_begin(n, CALL_PUT) : NULL;
    if (!c) {
        ask_tokens(n);
        return;
    }
    struct msg_token t = n->token[--n->n_tokens];
    uint32_t k = some_key();
    const struct key *key = &world->key[k];
    uint32_t size = key->replaceable ? (chance(64) ? 0 : 1 + below(chance(8) ? OBJECT_MOST : 200)) : key->kept_size;
    uint8_t *at = n->pool + (uint64_t)t.page * PAGE_BYTES;
    c->put = put_new(k, size);
    put_fill(c->put, at);
    page_used(n, t.page, t.gen, c->put);
    struct {
        struct msg_put m;
        uint8_t key[KEY_MAX];
    } x = {.m = {.head = head_of(n, c, MSG_PUT, sizeof x.m + key->size),
                 .token = t,
                 .want = world->narrow || n->n_tokens < 2}};
    x.m.object = (struct msg_object){.checksum = XXH3_64bits(at, size),
                                     .lineage = k + 1u,
                                     .size = size,
                                     .ns = key->ns,
                                     .key_size = (uint16_t)key->size};
    memcpy(x.key, key->data, key->size);
    note("node %u puts key %u as put %u into page %u gen %llu", n->number, k, c->put, t.page,
         (unsigned long long)t.gen);
    node_request(n, &x.m.head);
    if (n->n_tokens < 2 && !world->narrow)
        ask_tokens(n);
}

static void remove_key(struct member_node *n)
{
    struct call *c = call_begin(n, CALL_REMOVE);
    if (!c)
        return;
    uint32_t k = some_key();
    const struct key *key = &world->key[k];
    struct {
        struct msg_key m;
        uint8_t key[KEY_MAX];
    } x = {.m = {.head = head_of(n, c, MSG_REMOVE, sizeof x.m + key->size),
                 .ns = key->ns,
                 .key_size = (uint16_t)key->size}};
    memcpy(x.key, key->data, key->size);
    note("node %u removes key %u", n->number, k);
    node_request(n, &x.m.head);
}

/* ---- reading in place ---- */

static void release_views(struct member_node *n)
{
    for (uint32_t i = 0; i < VIEWS; i++) {
        struct view *v = &n->view[i];
        if (!v->slot || v->until > world->now)
            continue;
        const struct slot_header *h = &n->headers[v->slot - 1];
        if (!world->o.trusting && !put_same(v->put, n->pool + (uint64_t)h->page * PAGE_BYTES, 0, h->size))
            violation("node %u: the bytes of slot %u changed under a view", n->number, v->slot - 1);
        v->slot = 0;
    }
}

static void get(struct member_node *n)
{
    uint32_t k = some_key(), slot = shadow_local(n, k);
    world->operations++;
    world->gets++;
    world->misses += slot == SLOT_NONE;
    if (slot == SLOT_NONE || !chance(64))
        return;
    struct view *v = &n->view[below(VIEWS)];
    const struct slot_header *h = &n->headers[slot];
    if (!v->slot) {
        uint32_t p = page_put(n, h->page, word_gen(slot_load(h)));
        *v = (struct view){.slot = slot + 1, .put = p, .until = world->now + (int64_t)below(2000) * MS};
    }
}

/* ---- pulling ---- */

struct pull_message {
    struct msg_pull m;
    uint8_t rest[PULL_MOST * (sizeof(struct msg_pull_key) + KEY_MAX + 2 * sizeof(struct msg_pull_range))];
};

static uint8_t *add_key(const struct call *c, uint32_t i, uint8_t *at)
{
    const struct key *key = &world->key[c->key[i]];
    bool buffer = c->destination == MSG_PULL_BUFFER;
    bool ranges = buffer && !key->replaceable && key->kept_size > 1 && chance(6);
    struct msg_pull_key *k = (struct msg_pull_key *)at;
    uint64_t to = buffer ? (uint64_t)i * OBJECT_MOST : 0;
    *k = (struct msg_pull_key){.to = ranges ? 0 : to,
                               .room = buffer && !ranges ? OBJECT_MOST : 0,
                               .ns = key->ns,
                               .key_size = (uint16_t)key->size,
                               .n_ranges = ranges ? 2 : 0};
    memset(k + 1, 0, (key->size + 7u) & ~7u);
    memcpy(k + 1, key->data, key->size);
    at = (uint8_t *)(k + 1) + ((key->size + 7u) & ~7u);
    if (!ranges)
        return at;
    uint32_t cut = 1 + below(key->kept_size - 1);
    struct msg_pull_range r[2] = {{.offset = 0, .length = cut, .to = to},
                                  {.offset = cut, .length = key->kept_size - cut, .to = to + cut}};
    memcpy(at, r, sizeof r);
    return at + sizeof r;
}

static void choose_keys(struct call *c)
{
    static const uint8_t most[4] = {1, 1, 8, PULL_MOST};
    uint32_t n = world->narrow ? 1 : 1 + below(most[below(4)]), first = below(world->n_keys);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = c->flags & MSG_PULL_PREFIX ? (first + i) % world->n_keys : some_key();
        uint32_t same = 0;
        while (same < i && c->key[same] != k)
            same++;
        if (same == i)
            c->key[c->n++] = k;
        else
            break;
    }
}

static uint32_t draw_flags(void)
{
    uint32_t flags = world->kind == WORLD_SIDED || world->kind == WORLD_HELD ? (chance(2) ? MSG_PULL_VERIFY : 0) : 0;
    flags |= chance(12) ? MSG_PULL_WAIT : 0;
    flags |= chance(8) ? MSG_PULL_FRESH : 0;
    return flags | (chance(10) ? MSG_PULL_PREFIX : 0);
}

static void remember(const struct member_node *n, struct call *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        bool counts = world->now - n->seen_at[c->key[i]] < 50 * SECOND; /* rule 27: for T, a minute */
        c->seen[i][0] = counts ? n->seen[c->key[i]][0] : 0;
        c->seen[i][1] = counts ? n->seen[c->key[i]][1] : 0;
        for (uint32_t m = 0; m < world->n; m++) {
            struct member_node *o = world->node[m];
            c->acked[i][m] = copy_acked(o, c->key[i]) ? o->copy[c->key[i]].serial : 0;
        }
    }
}

static void pull(struct member_node *n)
{
    struct call *c = call_begin(n, CALL_PULL);
    if (!c)
        return;
    c->flags = draw_flags();
    c->destination = chance(world->storm ? 8 : 3) ? MSG_PULL_REPLICA : MSG_PULL_BUFFER;
    choose_keys(c);
    if (c->flags & MSG_PULL_WAIT || (!world->storm && !chance(3)) || chance(4))
        c->deadline = clock_mono(n) + 1 * MS + (int64_t)(draw() % (uint64_t)(chance(2) ? 40 * MS : 8 * world->ttl));
    if (c->destination == MSG_PULL_BUFFER) {
        c->buffer = malloc(c->n * OBJECT_MOST);
        if (!c->buffer)
            abort();
    }
    struct pull_message x;
    uint8_t *at = x.rest;
    for (uint32_t i = 0; i < c->n; i++)
        at = add_key(c, i, at);
    x.m = (struct msg_pull){.head = head_of(n, c, MSG_PULL, (size_t)(at - (uint8_t *)&x)),
                            .count = c->n,
                            .flags = (uint16_t)c->flags,
                            .kind = (uint16_t)c->destination,
                            .buffer = (uintptr_t)c->buffer};
    remember(n, c);
    note("node %u pulls %u keys from %u on, flags %u kind %u, call %llu", n->number, c->n, c->key[0], c->flags,
         c->destination, (unsigned long long)c->id);
    node_request(n, &x.m.head);
}

bool client_cancel(struct member_node *n)
{
    struct call *c = &n->call[below(CALLS)];
    if (c->kind != CALL_PULL || c->cancelled || !n->up)
        return false;
    struct msg_cancel m = {.head = {.bytes = sizeof m, .op = MSG_CANCEL, .id = ++n->next_id}, .target = c->id};
    c->cancelled = true;
    node_request(n, &m.head);
    return true;
}

/* ---- answers ---- */

static void on_tokens(struct member_node *n, const struct msg_reply *r)
{
    const struct msg_token *t = (const struct msg_token *)(r + 1);
    for (uint32_t i = 0; i < r->count && n->n_tokens < TOKENS; i++)
        n->token[n->n_tokens++] = t[i];
}

static void on_put(struct member_node *n, const struct call *c, const struct msg_reply *r)
{
    world->operations++;
    world->puts++;
    if (r->status == 0)
        put_version(c->put, r->counter, r->region);
    if (r->status >= 0)
        on_tokens(n, r);
}

/* The removal that somebody knows of. One that was told too late is told again with a counter above the version that it
 * met (rule 28): so it ends that version too. */
static uint64_t removed(uint32_t k)
{
    static const char *const kinds[] = {"nothing", "FOUND", "ABSENT", "LEARNING"};
    const struct key *key = &world->key[k];
    struct home_key hk = {.data = key->data, .size = key->size, .space = key->ns};
    uint64_t most = key->removed;
    for (uint32_t m = 0; m < world->n; m++) {
        const struct member_node *h = world->node[m];
        struct home_answer a;
        if (!h->up)
            continue;
        home_ask(h->server.peers->home->home, &hk, h->server.peers->revision, clock_mono(h), &a);
        most = a.removed.counter > most ? a.removed.counter : most;
        note("node %u as a home of key %u: %s, %u locations: node %u has %llu; removed %llu", m, k, kinds[a.kind], a.n,
             a.n ? a.at[0].member : 0, (unsigned long long)(a.n ? a.at[0].version.counter : 0),
             (unsigned long long)a.removed.counter);
    }
    return most;
}

/* Nobody may say that a key is nowhere while a copy of its newest version that was published stays where it was, at a
 * node that the reader can reach (rule 31). Older ones count for nothing once a newer one was there. */
static void check_absent(const struct member_node *n, const struct call *c, uint32_t i)
{
    uint32_t k = c->key[i];
    world->absent++;
    for (uint32_t m = 0; m < world->n; m++) {
        const struct member_node *o = world->node[m];
        const struct member *link = &n->server.peers->members[m];
        const struct copy *copy = &o->copy[k];
        bool reached = m == n->number || (link->link && clock_mono(n) - link->since > world->now - c->began + 20 * MS);
        if (c->acked[i][m] && o->up && o->up_since <= c->began && copy->serial == c->acked[i][m] &&
            !copy_outdated(copy, k) && copy->counter > removed(k) && reached)
            violation("node %u: call %llu, begun %lld us ago, flags %u: key %u is said to be nowhere, but node %u has "
                      "published %llu",
                      n->number, (unsigned long long)c->id, (long long)((world->now - c->began) / US), c->flags, k, m,
                      (unsigned long long)copy->counter);
    }
}

static bool older(const struct msg_pulled *p, const uint64_t *version)
{
    return p->counter < version[0] || (p->counter == version[0] && p->region < version[1]);
}

static void check_monotonic(struct member_node *n, const struct call *c, uint32_t i, const struct msg_pulled *p)
{
    uint32_t k = c->key[i];
    if (!world->key[k].replaceable)
        return;
    if (older(p, c->seen[i]))
        violation("node %u: a pull of key %u gave version %llu, after %llu", n->number, k,
                  (unsigned long long)p->counter, (unsigned long long)c->seen[i][0]);
    if (older(p, n->seen[k]))
        return; /* of two at a time */
    n->seen[k][0] = p->counter;
    n->seen[k][1] = p->region;
    n->seen_at[k] = world->now;
}

static void check_bytes(struct member_node *n, const struct call *c, uint32_t i, const struct msg_pulled *p)
{
    uint32_t k = c->key[i], put = put_find(p->counter, p->region);
    if (put == NONE || world->put[put].key != k || world->put[put].size != p->size) {
        violation("node %u: a pull of key %u gave version %llu of %llx and %llu bytes, which nobody sealed", n->number,
                  k, (unsigned long long)p->counter, (unsigned long long)p->region, (unsigned long long)p->size);
        return;
    }
    if (c->destination == MSG_PULL_REPLICA) {
        world->replicas++;
        return;
    }
    world->buffers++;
    if (put_same(put, c->buffer + (uint64_t)i * OBJECT_MOST, 0, p->size))
        return;
    world->reached++;
    if (!world->o.trusting)
        violation("node %u: a pull of key %u, version %llu, gave other bytes than were sealed", n->number, k,
                  (unsigned long long)p->counter);
}

static void check_pulled(struct member_node *n, const struct call *c, uint32_t i, const struct msg_pulled *p)
{
    if (p->status >= 0 && !(p->flags & MSG_PULLED_LOCAL)) {
        world->pulled++;
        check_bytes(n, c, i, p);
        check_monotonic(n, c, i, p);
    } else if (p->status == -ENOENT && !(c->flags & MSG_PULL_PREFIX)) {
        check_absent(n, c, i);
    } else if (p->status == BERTH_ESTALE) {
        violation("node %u: STALE reached a caller", n->number);
    } else if (p->status == BERTH_ECORRUPT && !world->damage && !world->beyond && !world->o.trusting) {
        violation("node %u: key %u is said to be damaged, and nothing was", n->number, c->key[i]);
    } else {
        world->unsure += p->status == BERTH_EUNSURE;
        world->refused += p->status < 0 && p->status != BERTH_EUNSURE;
    }
}

static void on_pull(struct member_node *n, const struct call *c, const struct msg_reply *r)
{
    const struct msg_pulled *p = (const struct msg_pulled *)(r + 1);
    world->operations += c->n;
    if (c->buffer && loop_net_writes(world->net, c->buffer, c->n * OBJECT_MOST))
        violation("node %u: a pull has ended, and its buffer may still be written", n->number);
    if (r->count == 0 && r->status < 0) {
        world->refused += c->n;
        return;
    }
    if (r->count != c->n || r->head.bytes < sizeof *r + c->n * sizeof *p) {
        violation("node %u: a pull of %u keys was answered for %u", n->number, c->n, r->count);
        return;
    }
    for (uint32_t i = 0; i < c->n && world->violations == 0; i++)
        check_pulled(n, c, i, &p[i]);
}

void client_reply(struct member_node *n, const struct msg_reply *r)
{
    struct call *c = call_of(n, r->head.id);
    if (!n->up || !c)
        return;
    mix(r->head.id ^ (uint64_t)(uint32_t)r->status << 32 ^ r->counter);
    note("node %u answers call %llu op %u: %d", n->number, (unsigned long long)c->id, r->head.op, r->status);
    switch (c->kind) {
    case CALL_GRANT:
        n->asked_tokens = false;
        if (r->status == 0)
            on_tokens(n, r);
        break;
    case CALL_PUT:
        on_put(n, c, r);
        break;
    case CALL_REMOVE:
        world->operations++;
        world->removes++;
        break;
    default:
        on_pull(n, c, r);
        break;
    }
    call_end(c);
}

/* ---- its life ---- */

void client_begin(struct member_node *n)
{
    n->n_tokens = 0;
    n->asked_tokens = false;
    memset(n->seen, 0, sizeof n->seen);
    memset(n->view, 0, sizeof n->view);
    ask_tokens(n);
}

void client_gone(struct member_node *n)
{
    struct queued *q;
    while ((q = TAILQ_FIRST(&n->queue))) {
        TAILQ_REMOVE(&n->queue, q, entry);
        free(q);
    }
    for (uint32_t i = 0; i < CALLS; i++)
        call_end(&n->call[i]);
}

bool client_idle(const struct member_node *n)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        if (n->call[i].kind != CALL_NONE)
            return false;
    }
    return true;
}

void client_overdue(struct member_node *n)
{
    int64_t mono = clock_mono(n);
    if (n->away_until > world->now - SLACK || n->up_since > world->now - SLACK)
        return;
    for (uint32_t i = 0; i < CALLS; i++) {
        const struct call *c = &n->call[i];
        if (c->kind == CALL_PULL && c->deadline != INT64_MAX && mono > c->deadline + SLACK)
            violation("node %u: call %llu of %u keys from %u on hangs %lld ms past its deadline", n->number,
                      (unsigned long long)c->id, c->n, c->key[0], (long long)((mono - c->deadline) / MS));
    }
}

void client_step(struct member_node *n)
{
    world->in = n;
    release_views(n);
    client_overdue(n);
    uint32_t kind = below(64);
    if (kind < 12) {
        for (uint32_t i = 0, times = world->narrow ? 1 : 1 + below(12); i < times; i++)
            get(n);
    } else if (kind < (world->narrow ? 44 : 28)) {
        put(n);
    } else if (kind == 44) {
        if (chance(3))
            remove_key(n);
    } else if (kind == 45) {
        world->faults[FAULT_CANCEL] += client_cancel(n);
    } else {
        pull(n);
    }
    world->in = NULL;
}
