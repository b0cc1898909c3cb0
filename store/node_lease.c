/* node_lease.c: giving, renewing and taking back leases (facts: reader's clock from before its request, owner's from
 * after the slot was taken).
 *
 * A key with an uncommitted effect is decided as it stands: the object that is READY is leased, and the effect, when it
 * commits, retires the slot under the lease as under any other.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <string.h>

int64_t lease_ttl(const struct node *n, int64_t wanted)
{
    const struct lease_config *c = &n->c.lease;
    int64_t ttl = wanted > 0 ? wanted : c->ttl_ns;
    return ttl < c->ttl_max_ns ? ttl : c->ttl_max_ns;
}

int64_t lease_hold(const struct node *n, int64_t ttl)
{
    const struct lease_config *c = &n->c.lease;
    return ttl + ttl / 1000000 * c->rho_ppm + c->rho_ppm + c->grace_ns; /* rounded up: less than 1 us of ttl was lost */
}

static struct lease_answer *answer(struct node *n, enum node_command_kind kind, const struct lease_event *ev,
                                   int32_t status, uint32_t count)
{
    struct lease_answer *a = arena_take(n, sizeof *a);
    struct lease_grant *g = a && count ? arena_take(n, count * sizeof *g) : NULL;
    struct node_command *c = a && (g || !count) ? command_add(n, kind, CONTROL_SESSION) : NULL;
    if (!c) {
        return NULL;
    }
    if (count) {
        memset(g, 0, count * sizeof *g);
    }
    *a = (struct lease_answer){.peer = ev->peer,
                               .connection = ev->connection,
                               .incarnation = ev->incarnation,
                               .request = ev->request,
                               .status = status,
                               .grant = g,
                               .n = count};
    c->lease = a;
    return a;
}

void lease_refuse(struct node *n, enum node_event_kind kind, const struct lease_event *ev, int32_t status)
{
    n->counters[NODE_LEASE_REFUSED]++;
    answer(n, kind == EV_LEASE ? CMD_LEASED : CMD_RENEWED, ev, status, 0);
}

/* ---- LEASE ---- */

/* 0 or BERTH_EQUOTA with its figures. One object that is larger than the bound is possible all the same: alone. */
static int32_t within_bounds(struct node *n, const struct lease_event *ev, uint32_t slot, struct lease_grant *out)
{
    const struct lease_config *c = &n->c.lease;
    const struct lease_peer *p = lease_peer_find(n, ev->peer, ev->incarnation);
    uint64_t bytes = slot_bytes(n, slot);
    out->figure[0] = bytes;
    if (n->lease.count >= c->max_leases || (p && p->count >= c->peer_leases)) {
        bool table = n->lease.count >= c->max_leases;
        out->figure[1] = table ? n->lease.count : p->count;
        out->figure[2] = table ? c->max_leases : c->peer_leases;
    } else if (p && p->bytes + bytes > c->peer_bytes) {
        out->figure[1] = p->bytes;
        out->figure[2] = c->peer_bytes;
    } else {
        return 0;
    }
    if (p) {
        leases_recall_peer(n, p, bytes);
    }
    if (n->lease.count >= c->max_leases) {
        leases_recall_oldest(n);
    }
    n->counters[NODE_LEASE_REFUSED]++;
    return BERTH_EQUOTA;
}

static void describe(const struct node *n, const struct lease *l, int64_t ttl, struct lease_grant *out)
{
    const struct slot_header *h = header_of(n, l->slot);
    *out = (struct lease_grant){.slot = l->slot,
                                .lease = lease_id(n, l),
                                .generation = word_gen(slot_load(h)),
                                .offset = (uint64_t)h->page * PAGE_BYTES,
                                .size = h->size,
                                .counter = h->version,
                                .region = slot_region(n, l->slot),
                                .checksum = h->checksum,
                                .lineage = h->lineage,
                                .segment = h->tier_segment & 0x3f,
                                .duration_ns = ttl};
}

static void grant(struct node *n, const struct lease_event *ev, struct key_ref key, int64_t ttl,
                  struct lease_grant *out)
{
    if (!key.data || key.size == 0 || key.size > KEY_MAX) {
        out->status = -EINVAL;
        return;
    }
    uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
    if (slot == SLOT_NONE || word_state(slot_load(header_of(n, slot))) != SLOT_READY) {
        out->status = -ENOENT;
        return;
    }
    out->status = within_bounds(n, ev, slot, out);
    if (out->status) {
        return;
    }
    struct lease *l = lease_add(n, ev, slot, n->now.raw + lease_hold(n, ttl));
    if (!l) {
        out->status = -ENOMEM;
        return;
    }
    describe(n, l, ttl, out);
    /* Now and not at the release, which tells of uses a second or more later: by then it may have been evicted for
     * being old, or look younger than what was used after it. */
    n->policy->touch(n->evict, &slot, 1, n->request);
    n->counters[NODE_LEASES]++;
}

static void lease_keys(struct node *n, const struct lease_event *ev)
{
    struct lease_answer *a = answer(n, CMD_LEASED, ev, 0, ev->n);
    if (!a) {
        return;
    }
    int64_t ttl = lease_ttl(n, ev->ttl_ns);
    struct lease_grant *g = (struct lease_grant *)a->grant; /* from the arena: ours to write */
    for (uint32_t i = 0; i < ev->n; i++) {
        grant(n, ev, ev->keys[i], ttl, &g[i]);
    }
}

/* ---- RENEW ---- */

/* A slot that is wanted back is renewed for a transfer in flight, and not for ever. */
static bool may_renew(const struct node *n, struct lease *l, bool in_flight)
{
    if (l->heap == LEASE_NONE || (l->flags & (LEASE_GONE | LEASE_RELEASED))) {
        return false;
    }
    bool wanted = word_state(slot_load(header_of(n, l->slot))) == SLOT_RETIRED || (l->flags & LEASE_RECALLED);
    if (!wanted) {
        return true;
    }
    if (!in_flight || l->extra >= n->c.lease.retired_renewals) {
        return false;
    }
    l->extra++;
    return true;
}

static void renew(struct node *n, const struct lease_event *ev)
{
    struct lease_answer *a = answer(n, CMD_RENEWED, ev, 0, ev->n);
    if (!a) {
        return;
    }
    int64_t ttl = lease_ttl(n, ev->ttl_ns), end = n->now.raw + lease_hold(n, ttl);
    struct lease_grant *g = (struct lease_grant *)a->grant;
    for (uint32_t i = 0; i < ev->n; i++) {
        struct lease *l = lease_of(n, ev, ev->ref[i].id);
        g[i].lease = ev->ref[i].id;
        if (!l || !may_renew(n, l, ev->ref[i].in_flight)) {
            g[i].status = BERTH_ESTALE;
            continue;
        }
        l->flags = (uint8_t)(ev->ref[i].in_flight ? l->flags | LEASE_IN_FLIGHT : l->flags & ~LEASE_IN_FLIGHT);
        l->connection = ev->connection;
        lease_extend(n, l, end);
        lease_changed(n, l);
        g[i].duration_ns = ttl;
        n->counters[NODE_LEASE_RENEWALS]++;
    }
}

/* ---- RELEASE, PEER_GONE ---- */

static void release(struct node *n, const struct lease_event *ev)
{
    n->request++;
    for (uint32_t i = 0; i < ev->n; i++) {
        struct lease *l = lease_of(n, ev, ev->ref[i].id);
        if (!l || (l->flags & LEASE_RELEASED)) {
            continue;
        }
        uint32_t uses = ev->ref[i].uses, slot = l->slot;
        for (uint32_t k = 1; k < uses && k < LEASE_TOUCHES; k++) {
            n->policy->touch(n->evict, &slot, 1, n->request);
        }
        n->counters[NODE_LEASE_USES] += uses;
        n->counters[NODE_LEASE_RELEASES]++;
        l->flags = (uint8_t)((l->flags | LEASE_RELEASED) & ~LEASE_IN_FLIGHT);
        lease_changed(n, l);
    }
}

/* Its reads may still be under way, over TCP too: the clock decides, not the connection (rule 23). */
static void peer_gone(struct node *n, const struct lease_event *ev)
{
    serves_reset(n, ev->peer, ev->connection);
    for (uint32_t i = 0; i < n->lease.used; i++) {
        struct lease *l = &n->lease.entry[i];
        if ((l->flags & LEASE_LIVE) && l->connection == ev->connection && n->lease.peer[l->peer].peer == ev->peer) {
            l->flags = (uint8_t)((l->flags | LEASE_GONE) & ~LEASE_IN_FLIGHT);
            lease_changed(n, l);
        }
    }
}

void lease_run(struct node *n, enum node_event_kind kind, const struct lease_event *ev)
{
    leases_expire(n); /* no lease whose end has come is renewed, served or counted against its peer */
    switch (kind) {
    case EV_LEASE:
        lease_keys(n, ev);
        break;
    case EV_RENEW:
        renew(n, ev);
        break;
    case EV_RELEASE:
        release(n, ev);
        break;
    case EV_PEER_GONE:
        peer_gone(n, ev);
        break;
    default:
        serve_event(n, kind, ev);
        break;
    }
}
