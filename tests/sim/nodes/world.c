/* world.c: what happens next, and when: the nodes of a seed, their time, their rest. */
#include "tests/sim/nodes/nodes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_NS(w) ((w)->gap * 1024)

struct world *world;

const char *const world_names[WORLD_KINDS] = {[WORLD_HELD] = "held",
                                              [WORLD_TRUST] = "held_unverified",
                                              [WORLD_SIDED] = "one_sided",
                                              [WORLD_LEASE] = "one_sided_unverified",
                                              [WORLD_HOLD] = "held_unverified_bad_clocks"};

/* ---- chance, notes ---- */

uint64_t draw(void)
{
    world->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = world->random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t below(uint32_t n)
{
    return (uint32_t)((draw() >> 32) * n >> 32);
}

bool chance(uint32_t one_in)
{
    return below(one_in) == 0;
}

void mix(uint64_t what)
{
    world->digest = (world->digest ^ what ^ (uint64_t)world->now) * UINT64_C(0x100000001b3);
    world->digest ^= world->digest >> 29;
}

void note(const char *format, ...)
{
    if (!world->o.notes)
        return;
    char *line = world->note[world->n_notes++ % NOTES];
    int n = snprintf(line, sizeof world->note[0], "%.6f ", (double)(world->now - world->began) / 1e9);
    va_list ap;
    va_start(ap, format);
    vsnprintf(line + n, sizeof world->note[0] - (size_t)n, format, ap);
    va_end(ap);
    if (world->o.loud)
        fprintf(stderr, "%s\n", line);
}

void violation(const char *format, ...)
{
    char line[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (world->violations++ || !world->o.notes)
        return; /* what follows the first is its consequence */
    fprintf(stderr, "seed %llu (%s), at %.6f s: %s; the last events:\n", (unsigned long long)world->seed,
            world_names[world->kind], (double)(world->now - world->began) / 1e9, line);
    for (uint32_t i = world->n_notes > NOTES ? world->n_notes - NOTES : 0; i < world->n_notes; i++)
        fprintf(stderr, "  %s\n", world->note[i % NOTES]);
}

/* ---- making ---- */

static void make_keys(void)
{
    for (uint32_t i = 0; i < world->n_keys; i++) {
        struct key *k = &world->key[i];
        k->size = chance(16) ? KEY_INLINE + 1 + below(200) : 2 + below(40);
        for (uint32_t b = 0; b < k->size; b++)
            k->data[b] = (uint8_t)draw();
        k->data[0] = (uint8_t)i;
        k->replaceable = world->storm || i % 3 != 0;
        k->ns = node_namespace_id("replaceable", k->replaceable ? 11 : 0);
        k->kept_size = 1 + below(chance(8) ? OBJECT_MOST : 200);
        struct home_key hk = {.data = k->data, .size = k->size, .space = k->ns};
        k->place = rendezvous_place(&hk);
    }
}

static void make_clock(struct member_node *n)
{
    int32_t range = world->beyond ? 200000 : 4900;
    n->raw_base = (int64_t)(draw() >> 8);
    n->mono_base = (int64_t)(draw() >> 8);
    n->boot_base = n->mono_base + (int64_t)(draw() >> 8);
    n->raw_ppm =
        world->narrow || chance(2) ? (n->number % 2 ? range : -range) : (int32_t)below(2 * (uint32_t)range) - range;
    n->mono_ppm = n->raw_ppm + (int32_t)below(150000) - 75000;
}

static struct loop_config net_config(void)
{
    bool hold = world->kind == WORLD_HOLD;
    bool sided = world->kind == WORLD_SIDED || world->kind == WORLD_LEASE;
    /* Bytes that come late, or in parts: where they may be another object's, every second read. */
    uint32_t often = world->storm ? 1 : sided || hold ? 2 : 12, seldom = world->storm ? 20 : 1;
    struct loop_config c = {.seed = draw(),
                            .held = !sided,
                            .delay_min = 2 * US,
                            .delay_max = (int64_t)(20 + below(400)) * US,
                            .late_ns = world->ttl * (1 + below(world->narrow ? 3 : 6)),
                            .linger_ns = hold || chance(2) ? 200 * MS : 2 * SECOND,
                            .ghost_ns = 900 * MS, /* below the quarantine */
                            .arrived = shadow_arrived};
    const uint32_t one_in[LOOP_FAULTS] = {[LOOP_SLOW] = 300,
                                          [LOOP_DROPPED] = hold ? 0 : 2000 * seldom,
                                          [LOOP_DOUBLED] = hold ? 0 : 2000 * seldom,
                                          [LOOP_REORDERED] = hold ? 0 : 2000 * seldom,
                                          [LOOP_LATE] = often,
                                          [LOOP_TORN] = 3 * often,
                                          [LOOP_NOT_COMPLETED] = 400 * seldom,
                                          [LOOP_DAMAGED] = world->damage ? 50 : 0,
                                          [LOOP_CUT] = hold ? 0 : 4000 * seldom,
                                          [LOOP_NOT_CONNECTED] = 8,
                                          [LOOP_WROTE_ON] = 1,
                                          [LOOP_FULL] = 1000};
    memcpy(c.one_in, one_in, sizeof one_in);
    return c;
}

static int64_t mono_of(void *env)
{
    const struct peers *p = env;
    return p ? clock_mono((const struct member_node *)((const char *)p->server - offsetof(struct member_node, server)))
             : world->now;
}

static void make_kind(uint64_t seed)
{
    static const uint8_t kinds[8] = {WORLD_SIDED, WORLD_HELD,  WORLD_SIDED, WORLD_LEASE,
                                     WORLD_SIDED, WORLD_TRUST, WORLD_HELD,  WORLD_HOLD};
    static const int64_t ttls[4] = {200 * MS, SECOND, 2 * SECOND, 5 * SECOND};
    world->kind = world->o.only >= 0 ? (enum world_kind)world->o.only : (enum world_kind)kinds[seed % 8];
    world->beyond = world->kind == WORLD_HOLD || (world->kind == WORLD_SIDED && seed / 8 % 2);
    world->damage = world->kind == WORLD_SIDED && seed / 16 % 2;
    world->storm = world->kind == WORLD_SIDED ? seed % 4 == 0 : world->kind == WORLD_LEASE && seed / 8 % 2;
    world->proves = world->kind != WORLD_SIDED;
    world->ttl = ttls[below(4)];
    world->n = 2 + below(NODES - 1);
    world->n_keys = 16 + below(KEYS - 16);
    world->gap = world->ttl / (50 + below(chance(2) ? 400 : 3000));
    world->fault_gap = world->gap * (10 + below(200));
    world->narrow = world->storm && world->kind == WORLD_LEASE;
    if (world->narrow) { /* the margin is what is looked at: 1 % of the time */
        world->ttl = 5 * SECOND;
        world->n = 2;
    }
    if (lies(LIE_QUARANTINE))
        world->ttl = 200 * MS; /* a longer horizon would cover it */
    if (world->storm) {
        world->n_keys = 6 + below(20);
        world->gap = world->ttl / (world->narrow ? 2000 + below(2000) : 60 + below(200));
        world->fault_gap = world->ttl * 10;
    }
}

static void world_open(uint64_t seed, const struct options *o)
{
    struct put *puts = world->put;
    uint32_t room = world->puts_room;
    struct member_node *node[NODES];
    memcpy(node, world->node, sizeof node);
    memset(world, 0, sizeof *world);
    memcpy(world->node, node, sizeof node);
    world->put = puts;
    world->puts_room = room;
    world->seed = world->random = seed;
    world->o = *o;
    world->began = world->now = 1000 * SECOND;
    make_kind(seed);
    make_keys();
    struct loop_config c = net_config();
    c.mono = mono_of;
    if (loop_net_create(&world->net, &c))
        abort();
    loop_net_step(world->net, world->now);
    for (uint32_t i = 0; i < world->n; i++) {
        struct member_node *n = world->node[i];
        if (!n && !(n = world->node[i] = calloc(1, sizeof *n)))
            abort();
        void *keep[6] = {n->headers, n->slabs, n->lookup_map, n->tails, n->pool, n->page};
        memset(n, 0, sizeof *n);
        n->headers = keep[0];
        n->slabs = keep[1];
        n->lookup_map = keep[2];
        n->tails = keep[3];
        n->pool = keep[4];
        n->page = keep[5];
        make_clock(n);
        node_make(n, i);
        node_start(n);
    }
}

static void world_close(void)
{
    stranger_end();
    for (uint32_t i = 0; i < world->n; i++) {
        if (world->node[i]->up)
            node_crash(world->node[i], true);
        index_free(world->node[i]->index);
    }
    const uint64_t *faults = loop_net_faults(world->net);
    memcpy(world->net_faults, faults, sizeof world->net_faults);
    loop_net_destroy(world->net);
    world->net = NULL;
}

/* ---- time ---- */

static void sooner(int64_t *at, int64_t when)
{
    if (when < *at)
        *at = when;
}

static int64_t next_time(void)
{
    int64_t at = loop_net_timer(world->net);
    for (uint32_t i = 0; i < world->n; i++) {
        const struct member_node *n = world->node[i];
        sooner(&at, n->up ? n->due : n->down_until);
        if (n->asleep_at)
            sooner(&at, n->away_until);
    }
    sooner(&at, world->next_client);
    sooner(&at, world->next_fault);
    return at > world->now ? at : world->now;
}

static void wake(struct member_node *n)
{
    int64_t slept = world->now - n->asleep_at;
    if (n->frozen)
        n->uncounted += slept;
    else
        n->slept += slept;
    n->asleep_at = 0;
    n->frozen = false;
}

static void tend(struct member_node *n)
{
    if (!n->up) {
        if (n->down_until <= world->now)
            node_start(n);
        return;
    }
    if (n->away_until > world->now)
        return;
    if (n->asleep_at) {
        wake(n);
        n->due = world->now;
    }
    if (n->due <= world->now || loop_ready(n->server.peers->context))
        node_turn(n);
}

static void clients(void)
{
    struct member_node *n = world->node[below(world->n)];
    if (n->up && n->away_until <= world->now)
        client_step(n);
    world->next_client = world->now + 1 + (int64_t)below((uint32_t)(world->gap * 2));
}

static void step(void)
{
    world->now = next_time();
    loop_net_step(world->net, world->now);
    for (uint32_t i = 0; i < world->n && world->violations == 0; i++)
        tend(world->node[i]);
    stranger_turn();
    if (world->next_client <= world->now)
        clients();
    if (world->next_fault <= world->now) {
        fault_step();
        world->next_fault = world->now + 1 + (int64_t)(draw() % (uint64_t)(2 * world->fault_gap));
    }
    if (world->check_at <= world->now) {
        check_node(world->node[below(world->n)]);
        world->check_at = world->now + CHECK_NS(world);
    }
}

static bool idle(void)
{
    for (uint32_t i = 0; i < world->n; i++) {
        if (!world->node[i]->up || !client_idle(world->node[i]))
            return false;
    }
    return true;
}

static void run_until(int64_t end)
{
    while (world->violations == 0 && next_time() <= end)
        step();
    world->now = world->now > end ? world->now : end;
}

/* Nothing fails any more and nobody asks for anything new: all that was asked for ends, then all that was lent. */
static void rest(void)
{
    loop_net_calm(world->net);
    world->calm = true;
    world->next_client = world->next_fault = INT64_MAX;
    stranger_end();
    for (uint32_t i = 0; i < world->n; i++) {
        struct member_node *n = world->node[i];
        if (n->up && n->asleep_at)
            wake(n);
        n->away_until = n->preempt = 0;
        n->due = n->down_until = world->now;
        memset(n->view, 0, sizeof n->view);
    }
    int64_t end = world->now + 120 * SECOND;
    while (world->violations == 0 && world->now < end && !idle())
        step();
    if (!idle())
        violation("at rest somebody still waits for an answer");
    run_until(world->now + 12 * world->ttl + 40 * SECOND);
    if (world->violations == 0)
        check_quiet();
}

void world_run(struct world *w, uint64_t seed, const struct options *o)
{
    world = w;
    world_open(seed, o);
    while (world->violations == 0 && world->operations < o->operations)
        step();
    if (world->violations == 0)
        rest();
    world_close();
    bool covered = !world->beyond && !world->damage && !o->trusting;
    if (covered && world->mismatches)
        violation("%llu checksums were wrong, and neither clocks nor the net gave a cause",
                  (unsigned long long)world->mismatches);
}
