/* evict_pwl_check.c: the policy's invariants, read whole: for tests. */
#include "store/evict_pwl.h"

#include <stdlib.h>

enum seen { SEEN_ENTRY = 1, SEEN_DUE = 2, SEEN_OFFERED = 4 };

static const char *check_heap(const struct pwl *p, const struct pwl_queue *q, uint32_t class, uint8_t *seen)
{
    const struct evict_heap *h = &q->heap[class];
    uint8_t as = class == PWL_DUE ? SEEN_DUE : SEEN_ENTRY;
    if (!evict_heap_ordered(h) || h->n > h->room) {
        return "an eviction heap is out of order";
    }
    for (uint32_t i = 0; i < h->n; i++) {
        const struct evict_entry *e = &h->at[i];
        if (e->slot >= p->seen || seen[e->slot] & as) {
            return "a slot has two entries in eviction heaps";
        }
        seen[e->slot] |= as;
        const struct pwl_slot *s = &p->slot[e->slot];
        if (class != PWL_PARKED && pwl_is(s, PWL_IS_IN) && entry_stamp(e) > pwl_last(s)) {
            return "an entry of an eviction heap is younger than its slot";
        }
        if (class == PWL_PARKED && !pwl_is(s, PWL_IS_PARKED)) {
            return "a parked slot does not know that it is";
        }
    }
    return NULL;
}

static const char *check_slots(const struct pwl *p, const uint8_t *seen, const uint32_t *children)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < p->seen; i++) {
        const struct pwl_slot *s = &p->slot[i];
        live += pwl_is(s, PWL_IS_IN);
        if ((bool)(seen[i] & SEEN_ENTRY) != pwl_is(s, PWL_IS_QUEUED) ||
            (bool)(seen[i] & SEEN_DUE) != (bool)(s->marks & PWL_IS_DUE)) {
            return "a slot's entries in eviction heaps are not as it says";
        }
        if (s->children != children[i]) {
            return "a slot's children are not those that name it";
        }
        if (pwl_is(s, PWL_IS_IN) && s->children == 0 && !pwl_has_entry(s) && !(seen[i] & SEEN_OFFERED)) {
            return "a leaf cannot be evicted";
        }
    }
    return live == p->live && live == p->keys ? NULL : "counted slots are not those in the eviction policy";
}

static const char *check_keys(const struct pwl *p, uint32_t *chained)
{
    for (uint32_t i = 0; i < p->chains; i++) {
        for (uint32_t at = p->head[i]; at; at = p->slot[at - 1].next) {
            if (at > p->seen || !pwl_is(&p->slot[at - 1], PWL_IS_IN) || ++*chained > p->keys) {
                return "a chain of keys has a slot that is not in the eviction policy";
            }
        }
    }
    return *chained == p->keys ? NULL : "a key is in no chain";
}

static const char *count_children(const struct pwl *p, uint32_t *children)
{
    for (uint32_t i = 0; i < p->seen; i++) {
        const struct pwl_slot *s = &p->slot[i];
        if (s->parent && (s->parent > p->max_slots || !pwl_is(s, PWL_IS_IN))) {
            return "a slot that is not in the eviction policy names a parent";
        }
        if (s->parent) {
            children[s->parent - 1]++;
        }
    }
    return NULL;
}

const char *pwl_check(void *policy)
{
    struct pwl *p = policy;
    uint8_t *seen = calloc(p->max_slots, 1);
    uint32_t *children = calloc(p->max_slots, sizeof *children), chained = 0;
    const char *why = seen && children ? NULL : "no memory to check the eviction policy";
    for (uint32_t i = 0; i < p->n_queues && !why; i++) {
        for (uint32_t c = 0; c < PWL_HEAPS && !why; c++) {
            why = check_heap(p, &p->queue[i], c, seen);
        }
    }
    for (uint32_t i = 0; i < p->n_offered && !why; i++) {
        seen[p->offered[i]] |= SEEN_OFFERED;
    }
    why = why ? why : count_children(p, children);
    why = why ? why : check_slots(p, seen, children);
    why = why ? why : check_keys(p, &chained);
    free(seen);
    free(children);
    return why;
}
