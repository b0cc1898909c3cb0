/* peer.c: readers on other hosts, with clocks of their own: they lease, renew, read at any speed, and give back or not.
 *
 * What is checked is the promise itself: as long as a reader may still accept bytes (its clock is before the deadline,
 * or something is being served to it over a connection that stands), the slot is what it leased. */
#include "tests/sim/sim.h"

#include <string.h>

static int64_t clock_of(const struct sim *s, const struct peer *p)
{
    int64_t elapsed = s->now.mono - s->began;
    return p->base + elapsed + elapsed / 1000 * p->rate_ppm / 1000;
}

static bool may_accept(const struct sim *s, const struct peer *p, const struct peer_lease *l)
{
    return l->used && (l->serving || clock_of(s, p) < l->deadline);
}

void check_peers(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_PEERS; i++) {
        struct peer *p = &s->peer[i];
        for (uint32_t k = 0; k <= SIM_LEASES; k++) {
            struct peer_lease *l = &p->lease[k];
            uint64_t word = slot_load(&s->headers[l->slot]);
            enum slot_state state = word_state(word);
            if (!may_accept(s, p, l)) {
                l->used = false;
            } else if (word_gen(word) != l->gen || (state != SLOT_READY && state != SLOT_RETIRED)) {
                sim_violation(s,
                              "slot %u is of generation %llu and in state %d while peer %u may accept bytes of %llu%s",
                              l->slot, (unsigned long long)word_gen(word), (int)state, i, (unsigned long long)l->gen,
                              l->serving ? ", served" : "");
            }
        }
    }
}

static void give(struct sim *s, uint32_t at, enum node_event_kind kind, struct lease_event ev)
{
    const struct peer *p = &s->peer[at];
    ev.peer = (uint16_t)at;
    ev.connection = p->connection;
    ev.incarnation = p->incarnation;
    shell_event(s, (struct node_event){.kind = kind, .lease = &ev});
}

/* ---- answers ---- */

/* From here on the peer may have the answer in hand, even if the node dies: its lease is checked as one. */
static void leased(struct sim *s, struct peer *p, const struct lease_answer *a)
{
    struct peer_lease *l = &p->lease[SIM_LEASES];
    p->asked = PEER_ANSWERED;
    l->used = false;
    if (a->status == 0 && a->grant->status == 0) {
        const struct lease_grant *g = a->grant;
        *l = (struct peer_lease){.used = true,
                                 .id = g->lease,
                                 .slot = g->slot,
                                 .gen = g->generation,
                                 .deadline = p->t0 + g->duration_ns,
                                 .life = s->lives};
        s->leases++;
    }
}

void peer_answer(struct sim *s, const struct node_command *k)
{
    const struct lease_answer *a = k->lease;
    struct peer *p = &s->peer[a->peer];
    if (k->kind == CMD_RECALL || a->connection != p->connection) {
        return; /* whoever does not listen still loses it in time */
    }
    if (k->kind == CMD_SERVE) {
        p->serve_status = a->status;
        return;
    }
    if (p->asked != PEER_DELIVERED || a->request != p->request) {
        sim_violation(s, "peer %u: an answer to request %llu, which waits for none", a->peer,
                      (unsigned long long)a->request);
    } else if (k->kind == CMD_LEASED) {
        leased(s, p, a);
    } else {
        struct peer_lease *l = &p->lease[p->renewing];
        int64_t deadline = p->t0 + (a->status || a->grant->status ? INT64_MIN / 2 : a->grant->duration_ns);
        p->asked = PEER_IDLE;
        if (l->used && l->id == p->renewing_id && deadline > l->deadline) {
            l->deadline = deadline;
            s->renewals++;
        }
    }
}

/* ---- what a peer does ---- */

static void ask(struct sim *s, struct peer *p)
{
    p->request++;
    p->t0 = clock_of(s, p);
    p->ttl = sim_chance(s, 2) ? 0 : sim_below(s, 300) * MS;
    p->asked = PEER_ASKED;
    p->renewing = sim_chance(s, 2) ? SIM_LEASES : sim_below(s, SIM_LEASES);
    p->key = sim_below(s, s->keys);
    const struct peer_lease *l = &p->lease[p->renewing];
    if (p->renewing < SIM_LEASES && (!l->used || l->life != s->lives)) {
        p->asked = PEER_IDLE;
    }
    p->renewing_id = l->id;
}

static void deliver(struct sim *s, uint32_t at)
{
    struct peer *p = &s->peer[at];
    const struct key *k = &s->key[p->key];
    struct key_ref key = {.data = k->data, .size = k->size, .ns = k->ns};
    struct lease_ref ref = {.id = p->renewing_id, .in_flight = sim_chance(s, 2)};
    bool renews = p->renewing < SIM_LEASES;
    p->asked = PEER_DELIVERED;
    give(s, at, renews ? EV_RENEW : EV_LEASE,
         (struct lease_event){.request = p->request, .ttl_ns = p->ttl, .n = 1, .keys = &key, .ref = &ref});
}

static void take(struct sim *s, struct peer *p)
{
    p->asked = PEER_IDLE;
    struct peer_lease *from = &p->lease[SIM_LEASES], *to = &p->lease[sim_below(s, SIM_LEASES)];
    if (from->used && !to->used) { /* no room: forgotten, and it ends by the clock */
        *to = *from;
    }
    from->used = false;
}

static void serve(struct sim *s, uint32_t at, struct peer_lease *l)
{
    struct peer *p = &s->peer[at];
    struct lease_ref ref = {.id = l->id};
    if (l->serving) {
        l->serving = false; /* the receiver has it all */
        give(s, at, EV_SERVE_END, (struct lease_event){.token = l->token});
        return;
    }
    uint64_t token = ++p->tokens;
    p->serve_status = -1;
    give(s, at, EV_SERVE_BEGIN, (struct lease_event){.n = 1, .ref = &ref, .token = token});
    if (s->node && p->serve_status == 0) {
        l->serving = true;
        l->token = token;
        s->serves++;
        if (s->mutation == MUTATE_SERVE) {
            give(s, at, EV_SERVE_END, (struct lease_event){.token = token});
        }
    }
}

static void release(struct sim *s, uint32_t at, struct peer_lease *l)
{
    struct lease_ref ref = {.id = l->id, .uses = sim_below(s, 3)};
    l->deadline = INT64_MIN; /* what is served may still be taken */
    give(s, at, EV_RELEASE, (struct lease_event){.n = 1, .ref = &ref});
}

/* The connection is reset. What was served may be in the reader's socket: it goes by its clock now. */
static void disconnect(struct peer *p)
{
    for (uint32_t i = 0; i <= SIM_LEASES; i++) {
        p->lease[i].serving = false;
        p->lease[i].life = 0; /* no renewal, no serve any more */
    }
    p->asked = p->asked == PEER_ANSWERED ? PEER_ANSWERED : PEER_IDLE;
    p->connected = false;
}

void peers_lost(struct sim *s)
{
    s->lives++;
    for (uint32_t i = 0; i < SIM_PEERS; i++) {
        disconnect(&s->peer[i]);
    }
}

static void forge(struct sim *s, uint32_t at)
{
    const struct peer *other = &s->peer[sim_below(s, SIM_PEERS)];
    const struct peer_lease *l = &other->lease[sim_below(s, SIM_LEASES)];
    bool theirs = other != &s->peer[at] && l->used && l->life == s->lives;
    struct lease_ref ref = {.id = theirs ? l->id : sim_random(s) | UINT64_C(1) << 63};
    static const enum node_event_kind kinds[] = {EV_RELEASE, EV_SERVE_BEGIN, EV_SERVE_END};
    enum node_event_kind kind = kinds[sim_below(s, 3)];
    s->peer[at].serve_status = -1;
    give(s, at, kind, (struct lease_event){.n = 1, .ref = &ref, .token = UINT64_MAX});
    if (s->peer[at].serve_status == 0) {
        sim_violation(s, "peer %u is served under another's lease", at);
    }
}

void peer_step(struct sim *s, uint32_t at)
{
    struct peer *p = &s->peer[at];
    if (!p->connected) {
        p->connected = s->node != NULL;
        p->connection = ++s->connections;
        p->incarnation += sim_chance(s, 4);
        return;
    }
    struct peer_lease *l = &p->lease[sim_below(s, SIM_LEASES)];
    bool good = l->used && l->life == s->lives;
    uint32_t kind = sim_below(s, 32);
    if (kind == 0) {
        forge(s, at);
    } else if (kind == 1 && sim_chance(s, 8)) {
        disconnect(p);
        give(s, at, EV_PEER_GONE, (struct lease_event){0});
    } else if (kind < 8 && good) {
        serve(s, at, l);
    } else if (kind < 10 && good) {
        release(s, at, l);
    } else if (p->asked == PEER_IDLE) {
        ask(s, p);
    } else if (p->asked == PEER_ASKED) {
        deliver(s, at);
    } else if (p->asked == PEER_ANSWERED) {
        take(s, p);
    }
}

void peers_begin(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_PEERS; i++) {
        s->peer[i] =
            (struct peer){.base = (int64_t)(sim_random(s) >> 4), .rate_ppm = (int32_t)sim_below(s, 8000) - 4000};
    }
    s->raw_ppm = (int32_t)sim_below(s, 8000) - 4000;
    struct lease_config *c = &s->config.lease;
    *c = (struct lease_config){.ttl_ns = (1 + sim_below(s, 100)) * MS,
                               .ttl_max_ns = 200 * MS,
                               .grace_ns = 10 * MS,
                               .max_leases = 4 + sim_below(s, 20),
                               .peer_leases = 8,
                               .max_serves = 2 + sim_below(s, 6),
                               .retired_renewals = 1 + sim_below(s, 3),
                               .peer_bytes = s->super.pool_bytes / (1 + sim_below(s, 64)),
                               .idle_bytes = s->super.pool_bytes / (1 + sim_below(s, 512))};
}
