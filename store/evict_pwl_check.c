/* evict_pwl_check.c: the policy's invariants, read whole: for tests. */
#include "store/evict_pwl.h"

#include <stdlib.h>

static const char *check_list(const struct pwl *p, uint32_t queue, uint32_t list, uint64_t *listed)
{
    const struct pwl_list *l = &p->queue[queue].list[list];
    uint32_t newer = 0;
    for (uint32_t at = l->head; at; at = p->slot[at - 1].older) {
        const struct pwl_slot *s = &p->slot[at - 1];
        bool parked = list == PWL_PARKED;
        if (at > p->seen || s->newer != newer || ++*listed > p->live) {
            return "an eviction list is not linked both ways";
        }
        if (!pwl_is(s, PWL_IS_IN) || !pwl_is(s, PWL_IS_LISTED) || pwl_queue_of(s) != queue ||
            pwl_is(s, PWL_IS_PARKED) != parked || (!parked && pwl_class_of(s) != list)) {
            return "a slot stands in another eviction list than it says";
        }
        uint64_t last = pwl_last(s), before = newer ? pwl_last(&p->slot[newer - 1]) : UINT64_MAX;
        if (last > before || (last == before && !parked) || last > p->clock) {
            return "an eviction list is not in the order of use";
        }
        newer = at;
    }
    return l->tail == newer ? NULL : "an eviction list does not end with its oldest";
}

static const char *check_slots(const struct pwl *p, uint64_t listed, const uint32_t *children)
{
    uint64_t live = 0, says = 0;
    for (uint32_t i = 0; i < p->seen; i++) {
        const struct pwl_slot *s = &p->slot[i];
        live += pwl_is(s, PWL_IS_IN);
        says += pwl_is(s, PWL_IS_LISTED);
        if (s->children != children[i]) {
            return "a slot's children are not those that name it";
        }
        if (pwl_is(s, PWL_IS_IN) && !s->children && !pwl_is(s, PWL_IS_LISTED)) {
            return "a leaf cannot be evicted";
        }
    }
    if (says != listed) {
        return "a slot says that it is in an eviction list, and is in none";
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
    uint32_t *children = calloc(p->max_slots, sizeof *children), chained = 0;
    uint64_t listed = 0;
    const char *why = children ? NULL : "no memory to check the eviction policy";
    for (uint32_t i = 0; i < p->n_queues && !why; i++) {
        for (uint32_t c = 0; c < PWL_LISTS && !why; c++) {
            why = check_list(p, i, c, &listed);
        }
    }
    why = why ? why : count_children(p, children);
    why = why ? why : check_slots(p, listed, children);
    why = why ? why : check_keys(p, &chained);
    free(children);
    return why;
}
