/* lies.c: a simulator that finds nothing may be one that can find nothing. Each lie breaks one rule, around the code
 * that keeps it: by what the shell says, or by a function of the product that the linker has wrapped for this program.
 * Here is also the switch that turns verification off, and what is counted of every puller. */
#include "tests/sim/nodes/nodes.h"

#include "replication/loop_internal.h"

#include <stdlib.h>
#include <string.h>

#define FORGOTTEN 256u

const char *const lie_names[LIES] = {
    [LIE_NOTHING] = "nothing",
    [LIE_MARGIN] = "margin",
    [LIE_REUSE] = "reuse",
    [LIE_HORIZON] = "horizon",
    [LIE_CHECK] = "check",
    [LIE_VERIFY] = "verify",
    [LIE_GENERATION] = "generation",
    [LIE_SERVE] = "serve",
    [LIE_CLOCK] = "clock",
    [LIE_ASLEEP] = "asleep",
    [LIE_HOME] = "home",
    [LIE_OLD] = "old",
    [LIE_ABSENT] = "absent",
    [LIE_QUARANTINE] = "quarantine",
    [LIE_QUIET] = "quiet",
};

bool lies(enum lie l)
{
    return world->o.lie == l;
}

/* ---- at the owner ---- */

static struct {
    struct member_node *node;
    struct lease_event from;
    uint64_t id;
} forgotten[FORGOTTEN];
static uint32_t n_forgotten;

static void forget(struct member_node *n, const struct lease_answer *a)
{
    for (uint32_t i = 0; a->status == 0 && i < a->n && n_forgotten < FORGOTTEN; i++) {
        if (a->grant[i].status)
            continue;
        forgotten[n_forgotten].node = n;
        forgotten[n_forgotten].from =
            (struct lease_event){.peer = a->peer, .connection = a->connection, .incarnation = a->incarnation, .n = 1};
        forgotten[n_forgotten++].id = a->grant[i].lease;
    }
}

void lie_turn(struct member_node *n)
{
    for (uint32_t i = 0; i < n_forgotten; i++) {
        struct lease_ref ref = {.id = forgotten[i].id};
        struct lease_event ev = forgotten[i].from;
        ev.ref = &ref;
        if (forgotten[i].node == n && n->up)
            dispatch(&n->server, &(struct node_event){.kind = EV_RELEASE, .lease = &ev});
        if (forgotten[i].node == n)
            forgotten[i--] = forgotten[--n_forgotten];
    }
}

void lie_leased(struct member_node *n, const struct node_command *c)
{
    struct lease_answer a = *c->lease;
    struct node_command k = *c;
    struct lease_grant grant[LEASE_KEYS_MAX];
    if (lies(LIE_MARGIN) && a.status == 0) {
        memcpy(grant, a.grant, a.n * sizeof *grant);
        for (uint32_t i = 0; i < a.n; i++)
            grant[i].duration_ns += grant[i].status ? 0 : grant[i].duration_ns / 25 + 10 * MS;
        a.grant = grant;
    }
    k.lease = &a;
    if (lies(LIE_REUSE) && c->kind == CMD_LEASED)
        forget(n, &a);
    peers_command(n->server.peers, &k);
}

int __real_serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token);
int __wrap_serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token);

int __wrap_serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token)
{
    if (lies(LIE_GENERATION)) {
        *token = UINT64_MAX;
        return 0;
    }
    int e = __real_serve_part_admit(p, from, want, token);
    if (e == 0 && lies(LIE_SERVE)) {
        struct lease_event ev = serve_from(from);
        ev.token = *token;
        dispatch(p->server, &(struct node_event){.kind = EV_SERVE_END, .lease = &ev});
    }
    return e;
}

/* ---- at homes ---- */

int __real_home_publish(struct home *h, const struct publication *p, int64_t now, struct publication_answer *answer,
                        struct publication_result *results);
int __wrap_home_publish(struct home *h, const struct publication *p, int64_t now, struct publication_answer *answer,
                        struct publication_result *results);
uint32_t __real_home_ask_many(const struct home *h, const struct home_key *keys, uint32_t n, bool prefix,
                              uint64_t revision, int64_t now, struct home_answer *answers);
uint32_t __wrap_home_ask_many(const struct home *h, const struct home_key *keys, uint32_t n, bool prefix,
                              uint64_t revision, int64_t now, struct home_answer *answers);

/* Of two versions of one batch the older one is kept; of a known key the one that was there. */
static bool passes(const struct home *h, const struct publication_entry *e, uint64_t revision, int64_t now)
{
    struct home_answer a;
    if (e->kind != PUBLICATION_OBJECT)
        return true;
    if (lies(LIE_HOME))
        return e->version.counter % 8 != 0;
    home_ask(h, &e->key, revision, now, &a);
    return a.kind != ANSWER_FOUND || !e->replaceable || !version_less(a.at[0].version, e->version);
}

/* A removal that met a newer version is told again above it, by the owner's shell: seen here, where it arrives. */
static void see_removals(const struct publication *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct publication_entry *e = &p->entries[i];
        struct key_ref ref = {.data = e->key.data, .size = e->key.size, .ns = (uint32_t)e->key.space};
        uint32_t k = e->kind == PUBLICATION_TOMBSTONE ? key_find(&ref) : NONE;
        if (k != NONE && e->version.counter > world->key[k].removed)
            world->key[k].removed = e->version.counter;
    }
}

int __wrap_home_publish(struct home *h, const struct publication *p, int64_t now, struct publication_answer *answer,
                        struct publication_result *results)
{
    see_removals(p);
    struct publication_entry kept[PUBLICATION_ENTRIES];
    struct publication less = *p;
    if ((!lies(LIE_HOME) && !lies(LIE_OLD)) || p->n > PUBLICATION_ENTRIES)
        return __real_home_publish(h, p, now, answer, results);
    less.entries = kept;
    less.n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (passes(h, &p->entries[i], p->revision, now))
            kept[less.n++] = p->entries[i];
    }
    int e = __real_home_publish(h, &less, now, answer, results);
    if (e == 0) {
        memset(results, 0, p->n * sizeof *results); /* all VERDICT_OK */
        answer->n = p->n;
    }
    return e;
}

uint32_t __wrap_home_ask_many(const struct home *h, const struct home_key *keys, uint32_t n, bool prefix,
                              uint64_t revision, int64_t now, struct home_answer *answers)
{
    uint32_t done = __real_home_ask_many(h, keys, n, prefix, revision, now, answers);
    for (uint32_t i = 0; lies(LIE_ABSENT) && i < done; i++) {
        if (answers[i].kind == ANSWER_LEARNING)
            answers[i].kind = ANSWER_ABSENT;
    }
    return done;
}

/* ---- at the reader ---- */

int __real_pull_create(struct puller **out, const struct pull_config *config);
int __wrap_pull_create(struct puller **out, const struct pull_config *config);
void __real_pull_destroy(struct puller *p);
void __wrap_pull_destroy(struct puller *p);

int __wrap_pull_create(struct puller **out, const struct pull_config *config)
{
    struct pull_config c = *config;
    c.lease_idle_ns = world->narrow ? 100 * MS : SECOND / 2 + (int64_t)below(2000) * MS;
    c.max_leases = 64 + below(256);
    c.latency_ns = 1 * MS + (int64_t)below(3) * MS;
    if (world->o.trusting)
        c.unsafe = UNSAFE_NO_VERIFY | UNSAFE_NO_CHECK;
    if (lies(LIE_CHECK))
        c.unsafe |= UNSAFE_NO_CHECK;
    if (lies(LIE_VERIFY))
        c.unsafe |= UNSAFE_NO_VERIFY;
    return __real_pull_create(out, &c);
}

void __wrap_pull_destroy(struct puller *p)
{
    struct pull_status st;
    pull_status(p, &st);
    world->mismatches += st.counter[PULL_MISMATCHES];
    world->late += st.counter[PULL_LATE];
    world->stale += st.counter[PULL_STALE];
    __real_pull_destroy(p);
}

int lie_cancel(void *ctx, struct transfer *t)
{
    struct loop_read *r = t->own.connection;
    int e = loop_transport.cancel(ctx, t);
    if (e == 0 && r)
        r->writes = true; /* its pieces are still on their way, and hold it */
    return e;
}
