/* node_lease_check.c: leases for reports, and their invariants read whole. */
#include "store/node_internal.h"

#include <stdlib.h>

bool node_leases_next(const struct node *n, uint32_t *cursor, struct node_lease_info *out)
{
    const struct lease_table *t = &n->lease;
    while (*cursor < t->used && !(t->entry[*cursor].flags & LEASE_LIVE)) {
        ++*cursor;
    }
    if (*cursor >= t->used) {
        return false;
    }
    const struct lease *l = &t->entry[(*cursor)++];
    const struct lease_peer *p = &t->peer[l->peer];
    int64_t left = l->heap == LEASE_NONE ? 0 : l->end - n->now.raw;
    *out = (struct node_lease_info){.lease = lease_id(n, l),
                                    .incarnation = p->incarnation,
                                    .generation = word_gen(slot_load(header_of(n, l->slot))),
                                    .slot = l->slot,
                                    .connection = l->connection,
                                    .serves = l->serves,
                                    .peer = p->peer,
                                    .left_ns = left > 0 ? left : 0,
                                    .in_flight = l->class == LEASE_BUSY,
                                    .recalled = l->flags & LEASE_RECALLED,
                                    .gone = l->flags & LEASE_GONE,
                                    .released = l->flags & LEASE_RELEASED};
    return true;
}

bool node_leased(const struct node *n, uint32_t slot, uint64_t *word)
{
    if (slot >= n->lease.top || n->lease.slot[slot].leases == 0) {
        return false;
    }
    *word = slot_load(header_of(n, slot));
    return true;
}

const uint64_t *node_sums(const struct node *n, uint32_t slot, uint64_t generation, uint32_t *count)
{
    uint64_t word;
    if (!node_leased(n, slot, &word) || word_gen(word) != generation) {
        return NULL;
    }
    const struct slot_header *h = header_of(n, slot);
    *count = segments_of(h->size, slot_segment(h));
    return slot_sums(n, slot);
}

bool node_sums_sound(const struct node *n, uint32_t slot)
{
    return !slot_segment(header_of(n, slot)) || slot_sums_checksum(n, slot) == header_of(n, slot)->checksum;
}

struct lease_tally {
    uint32_t live, ends, serves, idle;
    uint64_t peer_bytes;
};

static const char *check_entry(const struct node *n, uint32_t i, struct leased *slot, struct lease_tally *sum)
{
    const struct lease_table *t = &n->lease;
    const struct lease *l = &t->entry[i];
    if (!(l->flags & LEASE_LIVE)) {
        return NULL;
    }
    enum slot_state state = word_state(slot_load(header_of(n, l->slot)));
    if (l->slot >= t->top || !slabs_is_slot(n->slabs, l->slot) || (state != SLOT_READY && state != SLOT_RETIRED)) {
        return "a leased slot is neither READY nor RETIRED";
    }
    bool over = l->heap == LEASE_NONE || (l->flags & (LEASE_RELEASED | LEASE_RESET)) == LEASE_RELEASED;
    if (over && l->serves == 0) {
        return "a lease is over and still there";
    }
    if (l->heap != LEASE_NONE && (l->heap >= t->n_heap || t->heap[l->heap] != i)) {
        return "a lease is not where the heap has it";
    }
    sum->live++;
    sum->ends += l->heap != LEASE_NONE;
    sum->serves += l->serves;
    sum->idle += l->class == LEASE_IDLE;
    sum->peer_bytes += slot_bytes(n, l->slot);
    slot[l->slot].leases++;
    slot[l->slot].busy += l->class == LEASE_BUSY;
    slot[l->slot].idle += l->class == LEASE_IDLE;
    return NULL;
}

static const char *check_slots(const struct node *n, const struct leased *slot)
{
    const struct lease_table *t = &n->lease;
    uint64_t bytes = 0, ready = 0, idle = 0, asked = 0;
    for (uint32_t i = 0; i < t->top; i++) {
        const struct leased *s = &slot[i], *has = &t->slot[i];
        if (s->leases != has->leases || s->busy != has->busy || s->idle != has->idle) {
            return "a slot's leases are not what is counted";
        }
        uint64_t size = s->leases ? slot_bytes(n, i) : 0;
        bytes += size;
        ready += s->leases && word_state(slot_load(header_of(n, i))) == SLOT_READY ? size : 0;
        idle += s->busy == 0 && s->idle ? size : 0;
        asked += s->busy == 0 && s->idle == 0 ? size : 0;
    }
    return bytes == t->bytes && ready == t->ready_bytes && idle == t->idle_bytes && asked == t->asked_bytes
               ? NULL
               : "leased bytes don't add up";
}

static const char *check_heap(const struct lease_table *t)
{
    for (uint32_t i = 1; i < t->n_heap; i++) {
        if (t->entry[t->heap[(i - 1) / 2]].end > t->entry[t->heap[i]].end) {
            return "the leases' ends are not in order";
        }
    }
    return NULL;
}

static const char *check_sums(const struct node *n, const struct lease_tally *sum)
{
    const struct lease_table *t = &n->lease;
    uint64_t bytes = 0;
    uint32_t idle = 0;
    for (uint32_t i = 0; i < t->peers; i++) {
        bytes += t->peer[i].count ? t->peer[i].bytes : 0;
    }
    for (uint32_t i = t->oldest; i != LEASE_NONE && idle <= t->count; i = t->entry[i].newer) {
        idle++;
    }
    if (sum->live != t->count || sum->ends != t->n_heap || sum->serves != t->serves || sum->idle != idle) {
        return "counted leases, ends, serves or idle ones are not those there are";
    }
    return bytes == sum->peer_bytes ? check_heap(t) : "the peers' leased bytes don't add up";
}

static const char *check_leased_list(const struct node *n)
{
    for (uint32_t s = n->leased.head; s != SLOT_NONE; s = n->next[s]) {
        if (!slot_leased(n, s)) {
            return "a retired slot waits for a lease that is over";
        }
    }
    const struct slot_list *other[] = {&n->fresh, &n->waiting};
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t s = other[i]->head; s != SLOT_NONE; s = n->next[s]) {
            if (slot_leased(n, s)) {
                return "a retired slot is leased and may be freed";
            }
        }
    }
    return NULL;
}

const char *leases_check(const struct node *n)
{
    struct lease_tally sum = {0};
    struct leased *slot = calloc((size_t)n->lease.top + 1, sizeof *slot);
    const char *why = slot ? NULL : "no memory for a check";
    for (uint32_t i = 0; i < n->lease.used && !why; i++) {
        why = check_entry(n, i, slot, &sum);
    }
    why = why ? why : check_slots(n, slot);
    why = why ? why : check_sums(n, &sum);
    free(slot);
    return why ? why : check_leased_list(n);
}
