/* node_check.c: the core's invariants, read whole: for tests, after every step. */
#include "store/node_internal.h"

struct tally {
    uint64_t ready, ready_bytes, payload, held, writing, writing_bytes, retired, retired_bytes;
};

static const char *check_slot(const struct node *n, uint32_t slot, struct tally *t)
{
    const struct slot_header *h = header_of(n, slot);
    uint64_t bytes = slot_bytes(n, slot);
    switch (word_state(slot_load(h))) {
    case SLOT_FREE:
        return "a slot in use is FREE";
    case SLOT_WRITING:
        t->writing += !busy(n, slot);
        t->writing_bytes += busy(n, slot) ? 0 : bytes;
        return h->key_size > KEY_MAX ? "a draft's key is too long" : NULL;
    case SLOT_READY:
        t->ready++;
        t->ready_bytes += bytes;
        t->payload += h->size;
        t->held += slot_held(n, slot);
        if (h->key_size == 0 || h->size > bytes) {
            return "a READY slot has no key, or more bytes than it can";
        }
        return atomic_load_explicit(&h->group, memory_order_relaxed) ? "a group link was left" : NULL;
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

const char *node_check(const struct node *n)
{
    struct tally t = {0};
    uint64_t cursor = 0, drafts = 0;
    const char *why = slabs_check(n->slabs);
    for (uint32_t slot; !why && (slot = slabs_next(n->slabs, &cursor)) != SLOT_NONE;) {
        why = check_slot(n, slot, &t);
    }
    why = why ? why : check_lists(n, &drafts);
    why = why ? why : n->policy->check(n->evict);
    why = why ? why : leases_check(n);
    if (why) {
        return why;
    }
    if (t.ready != n->objects || t.ready_bytes != n->sealed_bytes || t.payload != n->object_bytes ||
        t.held != n->held) {
        return "counted objects are not the READY slots";
    }
    if (t.writing != drafts || t.writing != n->drafts + n->grants || t.writing_bytes != n->draft_bytes) {
        return "counted drafts are not the WRITING slots";
    }
    if (t.retired != (uint64_t)n->fresh.count + n->waiting.count + n->leased.count ||
        t.retired_bytes != n->retired_bytes) {
        return "counted retired slots are not the RETIRED ones";
    }
    return NULL;
}
