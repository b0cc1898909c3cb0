/* node_check.c: the core's invariants, read whole: for tests, after every step. */
#include "store/node_internal.h"

#include <stdlib.h>

struct tally {
    uint64_t ready, ready_bytes, payload, held, writing, writing_bytes, retired, retired_bytes;
    uint64_t cells, writers;
    uint64_t share[EVICT_SHARES + 1]; /* READY bytes; the last: of no share */
    uint64_t *used;                   /* a bit for every cell of tails, from the first that a header names on */
};

/* The cells that a header names are nobody else's. */
static const char *check_cells(const struct node *n, uint32_t slot, struct tally *t)
{
    uint32_t cell, cells = lookup_cells(n->c.lookup, header_of(n, slot), &cell);
    if (cell == SLOT_NONE) {
        return "a header's cells are none of this file's, or not as its key and segments need them";
    }
    if (cells && !t->used && !(t->used = calloc(n->c.n_tails / 64u + 1u, sizeof *t->used))) {
        return "no memory to check cells";
    }
    for (uint32_t i = cell; i < cell + cells; i++) {
        if (t->used[i / 64] >> (i % 64) & 1) {
            return "a cell of tails is named by two headers";
        }
        t->used[i / 64] |= UINT64_C(1) << (i % 64);
    }
    t->cells += cells;
    return NULL;
}

static const char *check_ready(const struct node *n, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    uint32_t count;
    if (h->key_size == 0 || h->size > slot_bytes(n, slot)) {
        return "a READY slot has no key, or more bytes than it can";
    }
    lookup_sums(n->c.lookup, h, &count);
    if (count == UINT32_MAX) {
        return "a READY slot's checksum does not prove those of its segments";
    }
    return atomic_load_explicit(&h->group, memory_order_relaxed) ? "a group link was left" : NULL;
}

static const char *check_writing(const struct node *n, uint32_t slot, struct tally *t)
{
    uint64_t bytes = busy(n, slot) ? 0 : slot_bytes(n, slot);
    bool writes = n->mark[slot] & MARK_WRITES;
    t->writing += !busy(n, slot);
    t->writing_bytes += bytes;
    t->writers += writes;
    if (writes && !pending_has(&n->writing, slot_hash(n, slot).home)) {
        return "a draft's key is not counted as written";
    }
    return NULL;
}

static const char *check_slot(const struct node *n, uint32_t slot, struct tally *t)
{
    const struct slot_header *h = header_of(n, slot);
    uint64_t bytes = slot_bytes(n, slot);
    switch (word_state(slot_load(h))) {
    case SLOT_FREE:
        return "a slot in use is FREE";
    case SLOT_WRITING:
        return check_writing(n, slot, t);
    case SLOT_READY:
        t->ready++;
        t->ready_bytes += bytes;
        t->share[(share_of_slot(n, slot) + EVICT_SHARES) % (EVICT_SHARES + 1)] += bytes;
        t->payload += h->size;
        t->held += slot_held(n, slot);
        return check_ready(n, slot);
    case SLOT_RETIRED:
        t->retired++;
        t->retired_bytes += bytes;
        return busy(n, slot) ? "a RETIRED slot is named by an effect" : NULL;
    }
    return "a state word has no state";
}

static const char *check_list(const struct node *n, const struct slot_list *l, enum slot_state state)
{
    uint32_t count = 0, before = SLOT_NONE;
    for (uint32_t s = l->head; s != SLOT_NONE; s = n->next[s]) {
        if (++count > l->count || n->prev[s] != before) {
            return "a slot list is not linked both ways";
        }
        if (word_state(slot_load(header_of(n, s))) != state) {
            return "a slot stands in a list of another state";
        }
        before = s;
    }
    return count == l->count && l->tail == before ? NULL : "a slot list's count is wrong";
}

static const char *check_session(const struct node *n, const struct session *s, uint64_t *drafts)
{
    const char *why = check_list(n, &s->drafts, SLOT_WRITING);
    uint64_t bytes = 0;
    for (uint32_t d = s->drafts.head; d != SLOT_NONE && !why; d = n->next[d]) {
        bytes += slot_bytes(n, d);
        if (s != &n->orphan && header_of(n, d)->version != s->id) {
            return "a draft stands in another session's list";
        }
    }
    *drafts += s->drafts.count;
    if (!why && bytes != s->draft_bytes) {
        return "a session's draft bytes don't add up";
    }
    return why;
}

static const char *check_lists(const struct node *n, uint64_t *drafts)
{
    const char *why = check_list(n, &n->fresh, SLOT_RETIRED);
    why = why ? why : check_list(n, &n->waiting, SLOT_RETIRED);
    why = why ? why : check_list(n, &n->leased, SLOT_RETIRED);
    why = why ? why : check_session(n, &n->orphan, drafts);
    for (uint32_t i = 0; i < n->n_sessions && !why; i++) {
        why = check_session(n, n->session[i], drafts);
    }
    return why;
}

static const char *check_sums(const struct node *n, const struct tally *t, uint64_t drafts)
{
    if (t->ready != n->objects || t->ready_bytes != n->sealed_bytes || t->payload != n->object_bytes ||
        t->held != n->held) {
        return "counted objects are not the READY slots";
    }
    for (uint32_t i = 0; i < n->n_shares; i++) {
        if (t->share[i] != n->share[i].bytes || n->share[i].evicting > n->share[i].bytes) {
            return "the bytes of a namespace's share are not those of its READY slots";
        }
    }
    if (t->writing != drafts || t->writing != n->drafts + n->grants || t->writing_bytes != n->draft_bytes) {
        return "counted drafts are not the WRITING slots";
    }
    if (t->retired != (uint64_t)n->fresh.count + n->waiting.count + n->leased.count ||
        t->retired_bytes != n->retired_bytes) {
        return "counted retired slots are not the RETIRED ones";
    }
    if (t->cells != tails_used(n->tails)) {
        return "cells of tails are in use that no header names";
    }
    return t->writers == n->n_writing ? NULL : "counted writers are not the drafts with a key";
}

const char *node_check(const struct node *n)
{
    struct tally t = {0};
    uint64_t cursor = 0, drafts = 0;
    const char *why = slabs_check(n->slabs);
    for (uint32_t slot; !why && (slot = slabs_next(n->slabs, &cursor)) != SLOT_NONE;) {
        why = check_slot(n, slot, &t);
        why = why ? why : check_cells(n, slot, &t);
    }
    free(t.used);
    why = why ? why : check_lists(n, &drafts);
    why = why ? why : n->policy->check(n->evict);
    why = why ? why : waits_check(n);
    why = why ? why : leases_check(n);
    why = why ? why : tombs_check(n);
    why = why ? why : purges_check(n);
    return why ? why : check_sums(n, &t, drafts);
}
