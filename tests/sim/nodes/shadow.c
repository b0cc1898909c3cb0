/* shadow.c: which bytes were sealed under which version, where they lie, and what nodes have told their homes. */
#include "tests/sim/nodes/nodes.h"

#include "index/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

static uint64_t word_of(uint64_t content, uint64_t i)
{
    uint64_t z = content + i * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return z ^ z >> 29;
}

uint32_t put_new(uint32_t key, uint32_t size)
{
    if (world->n_puts == world->puts_room) {
        world->puts_room = world->puts_room ? 2 * world->puts_room : 4096;
        world->put = realloc(world->put, world->puts_room * sizeof *world->put);
        if (!world->put)
            abort();
    }
    uint64_t id = world->key[key].replaceable ? world->n_puts + 1000u : key;
    world->put[world->n_puts] = (struct put){.key = key, .size = size, .content = word_of(world->seed, id) ^ id << 40};
    return world->n_puts++;
}

void put_fill(uint32_t put, void *to)
{
    const struct put *p = &world->put[put];
    uint8_t *at = to;
    for (uint32_t i = 0; i < p->size; i += 8) {
        uint64_t w = word_of(p->content, i / 8);
        memcpy(at + i, &w, p->size - i < 8 ? p->size - i : 8);
    }
}

bool put_same(uint32_t put, const void *at, uint64_t from, uint64_t n)
{
    const struct put *p = put == NONE ? NULL : &world->put[put];
    if (!p || from > p->size || n > p->size - from)
        return false;
    const uint8_t *data = at;
    for (uint64_t i = from; i < from + n;) {
        uint64_t w = word_of(p->content, i / 8), skip = i % 8;
        uint64_t k = 8 - skip < from + n - i ? 8 - skip : from + n - i;
        if (memcmp(data + (i - from), (const uint8_t *)&w + skip, k))
            return false;
        i += k;
    }
    return true;
}

/* ---- versions ---- */

static struct named *version_at(uint64_t counter, uint64_t region)
{
    uint64_t at = (counter ^ region) * UINT64_C(0x9e3779b97f4a7c15) >> 48;
    for (;; at++) {
        struct named *v = &world->version[at % VERSIONS];
        if (!v->put || (v->counter == counter && v->region == region))
            return v;
    }
}

void put_version(uint32_t put, uint64_t counter, uint64_t region)
{
    struct put *p = &world->put[put];
    struct named *v = version_at(counter, region);
    if (v->put && v->put != put + 1)
        violation("version %llu of %llx was given to two puts", (unsigned long long)counter,
                  (unsigned long long)region);
    *v = (struct named){.counter = counter, .region = region, .put = put + 1};
    p->counter = counter;
    p->region = region;
}

uint32_t put_find(uint64_t counter, uint64_t region)
{
    return version_at(counter, region)->put - 1;
}

/* ---- pages ---- */

void page_used(struct member_node *n, uint32_t page, uint64_t gen, uint32_t put)
{
    struct page_use *u = &n->page[page];
    u->at = (u->at + 1) % PAGE_USES;
    u->gen[u->at] = gen + 1;
    u->put[u->at] = put;
}

uint32_t page_put(const struct member_node *n, uint32_t page, uint64_t gen)
{
    const struct page_use *u = &n->page[page];
    for (uint32_t i = 0; i < PAGE_USES; i++) {
        if (u->gen[i] == gen + 1)
            return u->put[i];
    }
    return NONE;
}

/* What a transfer brought, before the puller judges it. */
void shadow_arrived(void *env, const struct connection *c, const struct transfer *t)
{
    const char *colon = strrchr(c->peer, ':');
    uint32_t from = colon ? (uint32_t)atoi(colon + 1) - 7000u : NODES;
    (void)env;
    if (from >= world->n)
        return;
    uint32_t page = (uint32_t)(t->offset / PAGE_BYTES);
    uint32_t put = page_put(world->node[from], page, t->generation);
    const struct member_node *reader = world->in, *owner = world->node[from];
    world->transfers++;
    mix(t->offset ^ t->lease << 20);
    bool slower = reader->raw_ppm < owner->raw_ppm;
    world->faults[world->beyond ? FAULT_BEYOND : FAULT_DRIFT] += slower;
    if (!put_same(put, t->to[0].iov_base, t->offset - (uint64_t)page * PAGE_BYTES, t->bytes)) {
        world->wrong++;
        note("node %u: wrong bytes arrived from node %u, page %u gen %llu put %d", reader->number, from, page,
             (unsigned long long)t->generation, (int)put);
    }
}

uint32_t key_find(const struct key_ref *k)
{
    uint8_t at = ((const uint8_t *)k->data)[0];
    const struct key *key = &world->key[at];
    return at < world->n_keys && key->size == k->size && key->ns == k->ns && memcmp(key->data, k->data, k->size) == 0
               ? at
               : NONE;
}

/* ---- what lies here ---- */

static uint64_t region_of(const struct member_node *n, const struct slot_header *h)
{
    return h->region ? atomic_load(&n->super.region_ids[h->region]) : n->super.region_id;
}

uint32_t shadow_local(struct member_node *n, uint32_t k)
{
    const struct key *key = &world->key[k];
    struct key_ref ref = {.data = key->data, .size = key->size, .ns = key->ns};
    uint32_t slot = lookup_find(&n->lookup, lookup_hash(n->super.hash_seed, ref), ref, NULL, NULL);
    if (slot == SLOT_NONE)
        return slot;
    const struct slot_header *h = &n->headers[slot];
    uint32_t put = put_find(h->version, region_of(n, h));
    if (word_state(slot_load(h)) != SLOT_READY || put == NONE || world->put[put].key != k)
        violation("node %u: key %u lies in slot %u in version %llu, which nobody sealed", n->number, k, slot,
                  (unsigned long long)h->version);
    else if (!put_same(put, n->pool + (uint64_t)h->page * PAGE_BYTES, 0, h->size) || h->size != world->put[put].size)
        violation("node %u: key %u in slot %u has other bytes than were sealed", n->number, k, slot);
    return slot;
}

/* ---- what was told ---- */

/* A version that no answer named: the put's answer was lost with a node, or what was sealed has taken a greater one. */
static void named_here(struct member_node *n, const struct node_publication *e)
{
    uint32_t slot = node_find(n->server.node, e->key);
    const struct slot_header *h = slot == SLOT_NONE ? NULL : &n->headers[slot];
    if (!h || h->region != 0 || h->version != e->counter || put_find(e->counter, e->region) != NONE)
        return;
    uint32_t put = page_put(n, h->page, word_gen(slot_load(h)));
    if (put != NONE)
        put_version(put, e->counter, e->region);
}

static bool is_newer(uint64_t counter, uint64_t region, const uint64_t *than)
{
    return counter > than[0] || (counter == than[0] && region > than[1]);
}

static void saw(uint32_t k, uint64_t counter, uint64_t region)
{
    uint64_t *newest = world->key[k].newest;
    if (!is_newer(counter, region, newest))
        return;
    newest[0] = counter;
    newest[1] = region;
}

void shadow_published(struct member_node *n, const struct node_publication *e, uint32_t count, int64_t first)
{
    for (uint32_t i = 0; i < count; i++, e++) {
        uint32_t k = key_find(&e->key);
        if (k == NONE)
            continue;
        struct copy *c = &n->copy[k];
        bool here = e->kind == PUBLISH_SEALED;
        *c = (struct copy){
            .counter = e->counter, .region = e->region, .number = first + i, .serial = here ? ++world->serials : 0};
        if (here && e->again)
            named_here(n, e);
        if (here)
            saw(k, e->counter, e->region);
        if (e->kind == PUBLISH_REMOVED && e->counter > world->key[k].removed)
            world->key[k].removed = e->counter;
        note("node %u: key %u is %s, version %llu", n->number, k, here ? "here" : "gone",
             (unsigned long long)e->counter);
    }
}

void shadow_started(struct member_node *n)
{
    uint64_t cursor = 0;
    uint8_t buf[KEY_MAX];
    struct node_publication e;
    memset(n->copy, 0, sizeof n->copy);
    while (node_objects_next(n->server.node, &cursor, buf, &e)) {
        uint32_t k = key_find(&e.key), slot = node_find(n->server.node, e.key);
        if (e.kind != PUBLISH_SEALED || k == NONE || slot == SLOT_NONE)
            continue;
        n->copy[k] = (struct copy){.counter = e.counter, .region = e.region, .serial = ++world->serials};
        saw(k, e.counter, e.region);
        named_here(n, &e);
    }
}

bool copy_outdated(const struct copy *c, uint32_t key)
{
    const uint64_t *newest = world->key[key].newest, version[2] = {c->counter, c->region};
    return is_newer(newest[0], newest[1], version);
}

bool copy_acked(const struct member_node *n, uint32_t key)
{
    const struct copy *c = &n->copy[key];
    if (!n->up || n->stopping || !c->serial)
        return false;
    const struct publish *p = n->server.peers->home->publish;
    if (c->number)
        return publish_done(p, world->key[key].place, c->number);
    struct publish_stat st;
    publish_stat(p, &st);
    return st.current == st.members && st.queued == 0;
}

/* ---- checks ---- */

static void check_leases(const struct member_node *n)
{
    struct node_lease_info l;
    uint32_t cursor = 0;
    while (node_leases_next(n->server.node, &cursor, &l)) {
        uint64_t word = slot_load(&n->headers[l.slot]);
        bool good = l.left_ns > 0 || l.serves;
        if (good &&
            (word_gen(word) != l.generation || (word_state(word) != SLOT_READY && word_state(word) != SLOT_RETIRED)))
            violation("node %u: slot %u was used again under a lease", n->number, l.slot);
    }
}

void check_node(struct member_node *n)
{
    if (!n->up || world->violations)
        return;
    world->in = n;
    const struct peers *p = n->server.peers;
    const char *why = node_check(n->server.node);
    const char *what = "node";
    if (!why && (why = pull_check(p->pull->puller)))
        what = "pull";
    if (!why && (why = home_check(p->home->home)))
        what = "home";
    if (!why && (why = publish_check(p->home->publish)))
        what = "publish";
    if (why)
        violation("node %u: %s_check: %s", n->number, what, why);
    check_leases(n);
    world->in = NULL;
}

/* Everybody's word is out: a key that somebody has is found by all its homes, or they know of a newer version or a
 * removal. */
static void check_found(const struct member_node *n, uint32_t k)
{
    const struct key *key = &world->key[k];
    const struct copy *c = &n->copy[k];
    struct home_key hk = {.data = key->data, .size = key->size, .space = key->ns};
    uint16_t homes[HOMES_MAX];
    uint32_t count = rendezvous_homes(n->server.peers->homes, key->place, homes);
    for (uint32_t i = 0; i < count; i++) {
        const struct member_node *h = world->node[homes[i]];
        struct home_answer a;
        home_ask(h->server.peers->home->home, &hk, h->server.peers->revision, clock_mono(h), &a);
        bool found = a.removed.counter > c->counter || (key->replaceable && copy_outdated(c, k));
        for (uint32_t j = 0; a.kind == ANSWER_FOUND && j < a.n; j++)
            found |= a.at[j].member == n->number && a.at[j].version.counter == c->counter;
        if (!found)
            violation("at rest home %u does not know that node %u has key %u in version %llu", homes[i], n->number, k,
                      (unsigned long long)c->counter);
    }
}

static void check_gauges(const struct member_node *n)
{
    const struct peers *p = n->server.peers;
    struct pull_status st;
    struct node_status ns;
    struct transport_stats ts;
    pull_status(p->pull->puller, &st);
    node_status(n->server.node, &ns);
    p->transport->stats(p->context, &ts);
    if (st.requests || st.keys || st.transfers || st.seeks || st.reads || st.reserves || st.hashes || st.seals ||
        st.window_bytes || st.leases.used)
        violation("node %u: at rest its puller has requests %llu transfers %llu reads %llu seeks %llu", n->number,
                  (unsigned long long)st.requests, (unsigned long long)st.transfers, (unsigned long long)st.reads,
                  (unsigned long long)st.seeks);
    if (st.leases.granted - st.leases.ended != st.leases.good)
        violation("node %u: leases granted, ended and standing don't sum up", n->number);
    if (ns.serves || ns.leases || p->serve->orphans)
        violation("node %u: at rest %llu leases and %llu serves are left", n->number, (unsigned long long)ns.leases,
                  (unsigned long long)ns.serves);
    if (ts.posted != ts.completed || ts.serving)
        violation("node %u: %llu transfers were posted and %llu completed", n->number, (unsigned long long)ts.posted,
                  (unsigned long long)ts.completed);
}

void check_quiet(void)
{
    for (uint32_t i = 0; i < world->n && world->violations == 0; i++) {
        struct member_node *n = world->node[i];
        check_node(n);
        world->in = n;
        check_gauges(n);
        for (uint32_t k = 0; k < world->n_keys && world->violations == 0; k++) {
            bool here = shadow_local(n, k) != SLOT_NONE;
            if (here != (n->copy[k].serial != 0))
                violation("node %u: key %u is %s, and its homes were told otherwise", n->number, k,
                          here ? "here" : "not here");
            else if (here)
                check_found(n, k);
        }
        world->in = NULL;
    }
}
