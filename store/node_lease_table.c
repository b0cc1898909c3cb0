/* node_lease_table.c: entries, the heap of their ends, accounts by slot and peer. */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static void defaults(struct node *n)
{
    struct lease_config *c = &n->c.lease;
    uint64_t pool = n->c.super->pool_bytes;
    c->ttl_max_ns = c->ttl_max_ns ? c->ttl_max_ns : LEASE_TTL_LIMIT_NS;
    c->ttl_ns = c->ttl_ns ? c->ttl_ns : c->ttl_max_ns < 5000000000 ? c->ttl_max_ns : 5000000000;
    c->grace_ns = c->grace_ns ? c->grace_ns : 250000000;
    c->rho_ppm = c->rho_ppm ? c->rho_ppm : 10000;
    c->max_leases = c->max_leases ? c->max_leases : 65536;
    c->peer_leases = c->peer_leases ? c->peer_leases : (c->max_leases + 1) / 2;
    c->max_serves = c->max_serves ? c->max_serves : 65536;
    c->retired_renewals = c->retired_renewals ? c->retired_renewals : 12;
    c->peer_bytes = c->peer_bytes ? c->peer_bytes : pool / 4;
    c->idle_bytes = c->idle_bytes ? c->idle_bytes : pool / 8;
}

static bool config_possible(const struct lease_config *c)
{
    return c->ttl_ns > 0 && c->ttl_ns <= c->ttl_max_ns && c->ttl_max_ns <= LEASE_TTL_LIMIT_NS &&
           c->grace_ns >= 10000000 && c->grace_ns <= LEASE_GRACE_LIMIT_NS && c->rho_ppm <= LEASE_RHO_LIMIT_PPM &&
           c->max_leases < LEASE_TABLE_LIMIT && c->max_serves < LEASE_TABLE_LIMIT && c->retired_renewals < UINT16_MAX;
}

int leases_init(struct node *n)
{
    struct lease_table *t = &n->lease;
    defaults(n);
    if (!config_possible(&n->c.lease)) {
        return -EINVAL;
    }
    t->free = t->oldest = t->newest = t->peer_free = t->serve_free = LEASE_NONE;
    for (uint32_t i = 0; i < LEASE_PEER_CHAINS; i++) {
        t->peer_chain[i] = LEASE_NONE;
    }
    for (uint32_t i = 0; i < LEASE_SERVE_CHAINS; i++) {
        t->serve_chain[i] = LEASE_NONE;
    }
    t->waits_end = &t->waits;
    t->slot_bytes = (size_t)n->max_headers * sizeof *t->slot;
    /* Reserved, not allocated: a page of it comes with the first slot that needs it. */
    void *p = mmap(NULL, t->slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    t->slot = p == MAP_FAILED ? NULL : p;
    return t->slot ? 0 : -ENOMEM;
}

void leases_free(struct node *n)
{
    struct lease_table *t = &n->lease;
    horizon_free(n);
    if (t->slot) {
        munmap(t->slot, t->slot_bytes);
    }
    free(t->entry);
    free(t->heap);
    free(t->peer);
    free(t->serve);
}

/* ---- accounts ---- */

void lease_account(struct node *n, uint32_t slot, int sign)
{
    struct lease_table *t = &n->lease;
    const struct leased *s = &t->slot[slot];
    if (s->leases == 0) {
        return;
    }
    uint64_t bytes = sign < 0 ? -slot_bytes(n, slot) : slot_bytes(n, slot);
    t->bytes += bytes;
    if (word_state(slot_load(header_of(n, slot))) == SLOT_READY) {
        t->ready_bytes += bytes;
    }
    if (s->busy == 0) {
        *(s->idle ? &t->idle_bytes : &t->asked_bytes) += bytes;
    }
}

static enum lease_class class_of(const struct lease *l)
{
    if (l->serves || (l->flags & LEASE_IN_FLIGHT)) {
        return LEASE_BUSY;
    }
    return l->flags & (LEASE_RECALLED | LEASE_GONE | LEASE_RELEASED) ? LEASE_ASKED : LEASE_IDLE;
}

static void idle_push(struct lease_table *t, uint32_t i)
{
    struct lease *l = &t->entry[i];
    l->older = t->newest;
    l->newer = LEASE_NONE;
    *(t->newest == LEASE_NONE ? &t->oldest : &t->entry[t->newest].newer) = i;
    t->newest = i;
}

static void idle_drop(struct lease_table *t, uint32_t i)
{
    const struct lease *l = &t->entry[i];
    *(l->older == LEASE_NONE ? &t->oldest : &t->entry[l->older].newer) = l->newer;
    *(l->newer == LEASE_NONE ? &t->newest : &t->entry[l->newer].older) = l->older;
}

static void count_class(struct lease_table *t, const struct lease *l, int by)
{
    struct leased *s = &t->slot[l->slot];
    s->busy += (uint32_t)(l->class == LEASE_BUSY ? by : 0);
    s->idle += (uint32_t)(l->class == LEASE_IDLE ? by : 0);
    uint32_t i = (uint32_t)(l - t->entry);
    if (l->class == LEASE_IDLE) {
        if (by > 0) {
            idle_push(t, i);
        } else {
            idle_drop(t, i);
        }
    }
}

/* ---- peers ---- */

struct lease_peer *lease_peer_find(struct node *n, uint16_t peer, uint64_t incarnation)
{
    struct lease_table *t = &n->lease;
    uint32_t i = t->peer_chain[peer % LEASE_PEER_CHAINS];
    while (i != LEASE_NONE && (t->peer[i].peer != peer || t->peer[i].incarnation != incarnation)) {
        i = t->peer[i].chain;
    }
    return i == LEASE_NONE ? NULL : &t->peer[i];
}

/* One entry more of an array that grows by doubling, up to what the caller bounds. */
static bool room_for(void **array, uint32_t used, uint32_t *room, size_t each)
{
    if (used < *room) {
        return true;
    }
    uint32_t bigger = *room ? *room * 2 : 64;
    void *p = realloc(*array, bigger * each);
    if (!p) {
        return false;
    }
    *array = p;
    *room = bigger;
    return true;
}

static struct lease_peer *peer_add(struct node *n, uint16_t peer, uint64_t incarnation)
{
    struct lease_table *t = &n->lease;
    uint32_t i = t->peer_free;
    if (i != LEASE_NONE) {
        t->peer_free = t->peer[i].chain;
    } else if (room_for((void **)&t->peer, t->peers, &t->peers_room, sizeof *t->peer)) {
        i = t->peers++;
    } else {
        return NULL;
    }
    uint32_t *head = &t->peer_chain[peer % LEASE_PEER_CHAINS];
    t->peer[i] = (struct lease_peer){
        .incarnation = incarnation, .first = LEASE_NONE, .last = LEASE_NONE, .chain = *head, .peer = peer};
    *head = i;
    return &t->peer[i];
}

static void peer_drop(struct lease_table *t, uint32_t i)
{
    uint32_t *at = &t->peer_chain[t->peer[i].peer % LEASE_PEER_CHAINS];
    while (*at != i) {
        at = &t->peer[*at].chain;
    }
    *at = t->peer[i].chain;
    t->peer[i].chain = t->peer_free;
    t->peer[i].count = 0;
    t->peer_free = i;
}

static void peer_link(struct lease_table *t, uint32_t i)
{
    struct lease *l = &t->entry[i];
    struct lease_peer *p = &t->peer[l->peer];
    l->next = LEASE_NONE;
    l->prev = p->last;
    *(p->last == LEASE_NONE ? &p->first : &t->entry[p->last].next) = i;
    p->last = i;
    p->count++;
}

static void peer_unlink(struct lease_table *t, uint32_t i)
{
    const struct lease *l = &t->entry[i];
    struct lease_peer *p = &t->peer[l->peer];
    *(l->prev == LEASE_NONE ? &p->first : &t->entry[l->prev].next) = l->next;
    *(l->next == LEASE_NONE ? &p->last : &t->entry[l->next].prev) = l->prev;
    if (--p->count == 0) {
        peer_drop(t, l->peer);
    }
}

/* ---- the heap of ends ---- */

static void heap_set(struct lease_table *t, uint32_t at, uint32_t i)
{
    t->heap[at] = i;
    t->entry[i].heap = at;
}

static int64_t end_at(const struct lease_table *t, uint32_t at)
{
    return t->entry[t->heap[at]].end;
}

static void heap_up(struct lease_table *t, uint32_t at)
{
    uint32_t i = t->heap[at];
    for (uint32_t up; at && end_at(t, up = (at - 1) / 2) > t->entry[i].end; at = up) {
        heap_set(t, at, t->heap[up]);
    }
    heap_set(t, at, i);
}

static void heap_down(struct lease_table *t, uint32_t at)
{
    uint32_t i = t->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < t->n_heap; at = child) {
        child += child + 1 < t->n_heap && end_at(t, child + 1) < end_at(t, child);
        if (t->entry[i].end <= end_at(t, child)) {
            break;
        }
        heap_set(t, at, t->heap[child]);
    }
    heap_set(t, at, i);
}

static void heap_drop(struct lease_table *t, struct lease *l)
{
    uint32_t at = l->heap;
    if (at == LEASE_NONE) {
        return;
    }
    l->heap = LEASE_NONE;
    uint32_t last = t->heap[--t->n_heap];
    if (at < t->n_heap) {
        heap_set(t, at, last);
        heap_up(t, at);
        heap_down(t, t->entry[last].heap);
    }
}

/* ---- entries ---- */

uint64_t lease_id(const struct node *n, const struct lease *l)
{
    return l->gen << LEASE_ID_BITS | (uint64_t)(l - n->lease.entry);
}

struct lease *lease_of(struct node *n, const struct lease_event *ev, uint64_t id)
{
    struct lease_table *t = &n->lease;
    uint64_t i = id & ((UINT64_C(1) << LEASE_ID_BITS) - 1);
    if (i >= t->used) {
        return NULL;
    }
    struct lease *l = &t->entry[i];
    if (!(l->flags & LEASE_LIVE) || l->gen != id >> LEASE_ID_BITS) {
        return NULL;
    }
    const struct lease_peer *p = &t->peer[l->peer];
    return p->peer == ev->peer && p->incarnation == ev->incarnation ? l : NULL;
}

static uint32_t entry_take(struct lease_table *t)
{
    uint32_t i = t->free;
    if (i != LEASE_NONE) {
        t->free = t->entry[i].next;
        return i;
    }
    uint32_t room = t->room;
    if (t->used == room) {
        uint32_t bigger = room ? room * 2 : 256;
        uint32_t *heap = realloc(t->heap, bigger * sizeof *heap); /* as many as entries: a push never fails */
        if (!heap) {
            return LEASE_NONE;
        }
        t->heap = heap;
    }
    if (!room_for((void **)&t->entry, t->used, &t->room, sizeof *t->entry)) {
        return LEASE_NONE;
    }
    t->entry[t->used].gen = 0;
    return t->used++;
}

struct lease *lease_add(struct node *n, const struct lease_event *ev, uint32_t slot, int64_t end)
{
    struct lease_table *t = &n->lease;
    uint32_t i = entry_take(t);
    struct lease_peer *p = i == LEASE_NONE ? NULL : lease_peer_find(n, ev->peer, ev->incarnation);
    p = p || i == LEASE_NONE ? p : peer_add(n, ev->peer, ev->incarnation);
    if (!p) {
        if (i != LEASE_NONE) {
            t->entry[i] = (struct lease){.gen = t->entry[i].gen, .next = t->free};
            t->free = i;
        }
        return NULL;
    }
    struct lease *l = &t->entry[i];
    /* 40 bits of generation: an id comes again after 10^12 uses of one entry. */
    *l = (struct lease){.gen = (l->gen + 1) & (UINT64_MAX >> LEASE_ID_BITS),
                        .end = end,
                        .slot = slot,
                        .peer = (uint32_t)(p - t->peer),
                        .connection = ev->connection,
                        .flags = LEASE_LIVE | LEASE_IN_FLIGHT,
                        .class = LEASE_BUSY};
    p->bytes += slot_bytes(n, slot);
    peer_link(t, i);
    lease_account(n, slot, -1);
    t->slot[slot].leases++;
    t->top = slot < t->top ? t->top : slot + 1;
    count_class(t, l, 1);
    lease_account(n, slot, 1);
    t->count++;
    heap_set(t, t->n_heap++, i);
    heap_up(t, l->heap);
    return l;
}

/* Nothing keeps the slot any more but what its own list says. */
static void let_go(struct node *n, uint32_t slot)
{
    if (word_state(slot_load(header_of(n, slot))) == SLOT_RETIRED && !slot_leased(n, slot)) {
        list_remove(n, &n->leased, slot);
        list_push(n, &n->fresh, slot);
    }
}

static void lease_end(struct node *n, struct lease *l)
{
    struct lease_table *t = &n->lease;
    uint32_t i = (uint32_t)(l - t->entry), slot = l->slot;
    heap_drop(t, l);
    lease_account(n, slot, -1);
    count_class(t, l, -1);
    t->slot[slot].leases--;
    lease_account(n, slot, 1);
    t->peer[l->peer].bytes -= slot_bytes(n, slot);
    peer_unlink(t, i);
    l->flags = 0;
    l->next = t->free;
    t->free = i;
    t->count--;
    let_go(n, slot);
}

void lease_extend(struct node *n, struct lease *l, int64_t end)
{
    if (end > l->end) {
        l->end = end;
        heap_down(&n->lease, l->heap);
    }
}

void lease_changed(struct node *n, struct lease *l)
{
    bool over = l->heap == LEASE_NONE || (l->flags & (LEASE_RELEASED | LEASE_RESET)) == LEASE_RELEASED;
    if (l->serves == 0 && over) {
        lease_end(n, l);
        return;
    }
    if (class_of(l) != l->class) {
        lease_account(n, l->slot, -1);
        count_class(&n->lease, l, -1);
        l->class = (uint8_t)class_of(l);
        count_class(&n->lease, l, 1);
        lease_account(n, l->slot, 1);
    }
}

int64_t leases_end(const struct node *n)
{
    return n->lease.n_heap ? end_at(&n->lease, 0) : INT64_MAX;
}

void leases_expire(struct node *n)
{
    struct lease_table *t = &n->lease;
    while (t->n_heap && end_at(t, 0) <= n->now.raw) {
        struct lease *l = &t->entry[t->heap[0]];
        heap_drop(t, l);
        l->flags &= (uint8_t)~LEASE_IN_FLIGHT; /* what it says counts no longer: what is served keeps the slot */
        n->counters[NODE_LEASE_EXPIRED] += !(l->flags & LEASE_RELEASED);
        lease_changed(n, l);
    }
}
