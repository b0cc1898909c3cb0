/* evict_pwl_list.c: lists of slots by the stamp of their last use, newest first. */
#include "store/evict_pwl.h"

static struct pwl_list *list_of(struct pwl *p, uint32_t slot)
{
    const struct pwl_slot *s = &p->slot[slot];
    return &p->queue[pwl_queue_of(s)].list[pwl_is(s, PWL_IS_PARKED) ? PWL_PARKED : pwl_class_of(s)];
}

/* Between two neighbours, which are slot + 1 or 0. */
static void put_between(struct pwl *p, uint32_t slot, uint32_t newer, uint32_t older)
{
    struct pwl_list *l = list_of(p, slot);
    struct pwl_slot *s = &p->slot[slot];
    s->newer = newer;
    s->older = older;
    *(newer ? &p->slot[newer - 1].older : &l->head) = slot + 1;
    *(older ? &p->slot[older - 1].newer : &l->tail) = slot + 1;
    s->queue |= PWL_IS_LISTED;
}

void pwl_push(struct pwl *p, uint32_t slot)
{
    put_between(p, slot, 0, list_of(p, slot)->head);
}

void pwl_unlist(struct pwl *p, uint32_t slot)
{
    struct pwl_slot *s = &p->slot[slot];
    if (pwl_is(s, PWL_IS_LISTED)) {
        struct pwl_list *l = list_of(p, slot);
        *(s->newer ? &p->slot[s->newer - 1].older : &l->head) = s->older;
        *(s->older ? &p->slot[s->older - 1].newer : &l->tail) = s->newer;
        s->queue &= (uint16_t)~PWL_IS_LISTED;
    }
}

/* It was the oldest once, so that few of those that are there now can be older. */
void pwl_relist(struct pwl *p, uint32_t slot)
{
    uint32_t older = 0, newer = list_of(p, slot)->tail;
    while (newer && pwl_last(&p->slot[newer - 1]) < pwl_last(&p->slot[slot])) {
        older = newer;
        newer = p->slot[newer - 1].newer;
    }
    put_between(p, slot, newer, older);
}
