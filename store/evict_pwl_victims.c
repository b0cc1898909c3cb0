/* evict_pwl_victims.c: which leaf goes next.
 *
 * A list a class in each queue (a slot size and a level of priority). A cursor for each goes from the oldest on, past
 * those that have children: mostly there are none, since what others continue is used whenever they are. One that
 * stands at the very end leaves the list until its last child has gone.
 *
 * Within one call the children that were offered count as gone, so that a parent may follow its last child: its cursor
 * comes to it, or had passed it, and then it is one of the extras.
 */
#include "store/evict_pwl.h"

#define PARKED_MIN 16u    /* stamps that a parked one is not offered .. */
#define PARKED_SHARE 256u /* .. and as many more as a 256th of the slots */
#define GUARD 1e-60       /* of badness: below whatever is not guarded */
#define ALL_CLASSES ((1u << PWL_CLASSES) - 1)

static double badness(const struct pwl *p, uint32_t slot)
{
    const struct pwl_slot *s = &p->slot[slot];
    const struct pwl_queue *q = &p->queue[pwl_queue_of(s)];
    double fall = pwl_fall((double)(p->clock - pwl_last(s)) / p->span);
    bool guarded = p->guarded >> q->share & 1 && pwl_class_of(s) != PWL_DUE;
    return fall * fall * p->weight[pwl_class_of(s)] * q->keep * (guarded ? GUARD : 1);
}

/* ---- children that were offered in this call ---- */

static struct pwl_less *less_of(struct pwl *p, uint32_t slot)
{
    uint32_t i = slot * 0x9e3779b1u >> 22;
    _Static_assert(2 * PWL_VICTIMS == 1u << 10, "the hash gives 10 bits");
    while (p->less[i].call == p->call && p->less[i].slot != slot) {
        i = (i + 1) % (2 * PWL_VICTIMS);
    }
    return &p->less[i];
}

static uint32_t children_left(struct pwl *p, uint32_t slot)
{
    uint32_t children = p->slot[slot].children;
    if (children) {
        const struct pwl_less *l = less_of(p, slot);
        children -= l->call == p->call ? l->count : 0;
    }
    return children;
}

/* ---- extras ---- */

static void extra_push(struct pwl *p, uint32_t slot)
{
    struct pwl_extra e = {.badness = badness(p, slot), .slot = slot};
    uint32_t i = p->n_extra++;
    for (; i && p->extra[(i - 1) / 2].badness < e.badness; i = (i - 1) / 2) {
        p->extra[i] = p->extra[(i - 1) / 2];
    }
    p->extra[i] = e;
}

static uint32_t extra_pop(struct pwl *p)
{
    uint32_t slot = p->extra[0].slot, i = 0;
    struct pwl_extra last = p->extra[--p->n_extra];
    for (uint32_t child; (child = 2 * i + 1) < p->n_extra; i = child) {
        child += child + 1 < p->n_extra && p->extra[child + 1].badness > p->extra[child].badness;
        if (p->extra[child].badness <= last.badness) {
            break;
        }
        p->extra[i] = p->extra[child];
    }
    p->extra[i] = last;
    return slot;
}

/* All children of this parent were offered. */
static void promote(struct pwl *p, uint32_t parent, uint32_t pages)
{
    const struct pwl_slot *s = &p->slot[parent];
    const struct pwl_queue *q = &p->queue[pwl_queue_of(s)];
    if (!pwl_is(s, PWL_IS_IN) || pwl_is(s, PWL_IS_PARKED) || (pages && q->pages != pages)) {
        return;
    }
    uint32_t cursor = q->cursor[pwl_class_of(s)];
    if (!pwl_is(s, PWL_IS_LISTED) || !cursor || pwl_last(s) < pwl_last(&p->slot[cursor - 1])) {
        extra_push(p, parent);
    }
}

static void offer(struct pwl *p, uint32_t slot, uint32_t pages)
{
    if (p->slot[slot].parent == 0) {
        return;
    }
    uint32_t parent = p->slot[slot].parent - 1;
    struct pwl_less *l = less_of(p, parent);
    if (l->call != p->call) {
        *l = (struct pwl_less){.call = p->call, .slot = parent};
    }
    if (++l->count == p->slot[parent].children) {
        promote(p, parent, pages);
    }
}

/* ---- cursors ---- */

/* On to the next that has no children left. */
static void settle(struct pwl *p, struct pwl_queue *q, uint32_t class)
{
    uint32_t at = q->cursor[class];
    while (at && children_left(p, at - 1)) {
        uint32_t newer = p->slot[at - 1].newer;
        if (q->list[class].tail == at) {
            pwl_unlist(p, at - 1);
        }
        at = newer;
    }
    q->cursor[class] = at;
    q->badness[class] = -1;
    if (at) {
        const struct pwl_slot *s = &p->slot[at - 1];
        q->badness[class] = badness(p, at - 1);
        /* On their way until this one is chosen. */
        __builtin_prefetch(&p->slot[s->newer ? s->newer - 1 : 0]);
        __builtin_prefetch(&p->slot[s->parent ? s->parent - 1 : 0]);
    }
}

static void find_best(struct pwl *p, struct pwl_queue *q)
{
    while (q->stale) {
        uint32_t c = (uint32_t)__builtin_ctz(q->stale);
        q->stale &= (uint16_t) ~(1u << c);
        settle(p, q, c);
    }
    q->best = 0;
    for (uint32_t c = 1; c < PWL_CLASSES; c++) {
        q->best = q->badness[c] > q->badness[q->best] ? (uint8_t)c : q->best;
    }
}

static void unpark(struct pwl *p, uint32_t slot)
{
    struct pwl_slot *s = &p->slot[slot];
    pwl_unlist(p, slot);
    s->queue &= (uint16_t)~PWL_IS_PARKED;
    pwl_tick(p);
    pwl_set_last(s, p->clock); /* it was in use */
    pwl_push(p, slot);
}

/* Those whose time has come, or at least so many. How many. */
static uint32_t unpark_some(struct pwl *p, uint32_t pages, uint32_t least)
{
    uint32_t n = 0;
    uint64_t parked = p->live / PARKED_SHARE + PARKED_MIN, due = p->clock > parked ? p->clock - parked : 0;
    for (uint32_t i = 0; i < p->n_queues; i++) {
        const struct pwl_queue *q = &p->queue[i];
        const struct pwl_list *l = &q->list[PWL_PARKED];
        while ((pages == 0 || q->pages == pages) && l->tail && (n < least || pwl_last(&p->slot[l->tail - 1]) <= due)) {
            unpark(p, l->tail - 1);
            n++;
        }
    }
    return n;
}

static void begin(struct pwl *p, uint32_t pages)
{
    p->forced = false;
    p->n_extra = 0;
    if (++p->call == 0) { /* 2^32 calls: counts of the first would be taken for new ones */
        for (uint32_t i = 0; i < 2 * PWL_VICTIMS; i++) {
            p->less[i].call = 0;
        }
        p->call = 1;
    }
    for (uint32_t i = 0; i < p->n_queues; i++) {
        struct pwl_queue *q = &p->queue[i];
        if (pages && q->pages != pages) {
            continue;
        }
        q->stale = ALL_CLASSES;
        for (uint32_t c = 0; c < PWL_CLASSES; c++) {
            q->cursor[c] = q->list[c].tail;
        }
    }
}

static struct pwl_queue *worst_queue(struct pwl *p, uint32_t pages)
{
    struct pwl_queue *worst = NULL;
    for (uint32_t i = 0; i < p->n_queues; i++) {
        struct pwl_queue *q = &p->queue[i];
        if (pages && q->pages != pages) {
            continue;
        }
        if (q->stale) {
            find_best(p, q);
        }
        double b = q->badness[q->best];
        if (b >= 0 && (!worst || b > worst->badness[worst->best])) {
            worst = q;
        }
    }
    return worst;
}

static uint32_t offer_leaves(struct pwl *p, uint32_t pages, uint32_t *out, uint32_t max)
{
    uint32_t n = 0;
    begin(p, pages);
    while (n < max) {
        struct pwl_queue *q = worst_queue(p, pages);
        if (p->n_extra && (!q || p->extra[0].badness >= q->badness[q->best])) {
            out[n] = extra_pop(p);
        } else if (q) {
            out[n] = q->cursor[q->best] - 1;
            q->cursor[q->best] = p->slot[out[n]].newer;
            q->stale |= (uint16_t)(1u << q->best);
        } else {
            break;
        }
        offer(p, out[n++], pages);
    }
    return n;
}

/* No leaf of this size is left, or none at all where hints go in a circle. */
static uint32_t offer_parents(struct pwl *p, uint32_t pages, uint32_t *out, uint32_t max)
{
    uint32_t n = 0, steps = p->seen < PWL_SWEEP ? p->seen : PWL_SWEEP;
    for (; steps && n < max; steps--) {
        p->sweep = p->sweep + 1 < p->seen ? p->sweep + 1 : 0;
        const struct pwl_slot *s = &p->slot[p->sweep];
        if (pwl_is(s, PWL_IS_IN) && s->children && (pages == 0 || p->queue[pwl_queue_of(s)].pages == pages)) {
            out[n++] = p->sweep;
        }
    }
    p->forced = true;
    return n;
}

uint32_t pwl_victims(void *policy, uint32_t pages, uint32_t *out, uint32_t max)
{
    struct pwl *p = policy;
    max = max < PWL_VICTIMS ? max : PWL_VICTIMS;
    unpark_some(p, pages, 0);
    uint32_t n = offer_leaves(p, pages, out, max);
    if (n == 0 && unpark_some(p, pages, max)) {
        n = offer_leaves(p, pages, out, max);
    }
    return n ? n : offer_parents(p, pages, out, max);
}

void pwl_guard(void *policy, uint64_t shares)
{
    struct pwl *p = policy;
    p->guarded = shares;
}

bool pwl_may(void *policy, uint32_t slot)
{
    const struct pwl *p = policy;
    return p->forced || p->slot[slot].children == 0;
}

void pwl_skip(void *policy, uint32_t slot)
{
    struct pwl *p = policy;
    struct pwl_slot *s = &p->slot[slot];
    if (pwl_is(s, PWL_IS_IN)) {
        pwl_unlist(p, slot);
        s->queue |= PWL_IS_PARKED;
        pwl_set_last(s, p->clock);
        pwl_push(p, slot);
    }
}

void pwl_expire(void *policy, uint32_t slot)
{
    struct pwl *p = policy;
    struct pwl_slot *s = &p->slot[slot];
    if (pwl_is(s, PWL_IS_IN) && pwl_class_of(s) != PWL_DUE) {
        pwl_unlist(p, slot);
        s->queue &= (uint16_t)~PWL_IS_PARKED;
        pwl_set_class(s, PWL_DUE, pwl_uses(s));
        pwl_tick(p);
        pwl_set_last(s, p->clock);
        pwl_push(p, slot);
    }
}

/* By Newton's rule: the library is not linked with libm for this. */
static double root_of(double x)
{
    double root = x > 1 ? x : 1;
    for (uint32_t i = 0; i < 64; i++) {
        root = (root + x / root) / 2;
    }
    return root;
}

uint64_t pwl_age(void *policy, uint32_t slot)
{
    const struct pwl *p = policy;
    double root = root_of(badness(p, slot)) * 65536;
    return root < (double)(UINT64_C(1) << 62) ? (uint64_t)root : UINT64_C(1) << 62;
}
