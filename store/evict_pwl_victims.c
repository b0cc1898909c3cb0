/* evict_pwl_victims.c: which leaf goes next.
 *
 * A heap a class in each queue (a slot size and a level of priority). Heaps are put right late: a use changes the slot alone, and
 * an entry that does not fit its slot any more is moved, or dropped where the slot is gone or has children, when it
 * comes to the top. An entry is never younger than its slot, so the top of a heap that was put right is its oldest.
 *
 * Within one call the children that were offered count as gone, so that a parent may follow its last child. What was
 * offered has no entry until the next call, which gives one back to whatever is still there.
 */
#include "store/evict_pwl.h"

#define PARKED_MIN 64u
#define ALL_CLASSES ((1u << PWL_CLASSES) - 1)

static void push(struct pwl *p, uint32_t slot, uint32_t heap, uint64_t stamp)
{
    struct pwl_slot *s = &p->slot[slot];
    struct pwl_queue *q = &p->queue[pwl_queue_of(s)];
    if (!evict_heap_push(&q->heap[heap], slot, stamp)) {
        return; /* without memory it stays until it is next used */
    }
    if (heap == PWL_DUE) {
        s->marks |= PWL_IS_DUE;
    } else {
        s->queue |= PWL_IS_QUEUED;
    }
    q->stale |= (uint16_t)(1u << heap);
}

static void push_leaf(struct pwl *p, uint32_t slot)
{
    push(p, slot, pwl_class_of(&p->slot[slot]), pwl_last(&p->slot[slot]));
}

static void push_parked(struct pwl *p, uint32_t slot)
{
    push(p, slot, PWL_PARKED, p->clock + p->live / 16 + PARKED_MIN);
}

void pwl_enqueue(struct pwl *p, uint32_t slot)
{
    const struct pwl_slot *s = &p->slot[slot];
    if (pwl_is(s, PWL_IS_IN) && !pwl_has_entry(s) && s->children == 0) {
        push_leaf(p, slot);
    }
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

static void offer(struct pwl *p, uint32_t slot, uint32_t *out, uint32_t *n)
{
    out[(*n)++] = slot;
    p->offered[p->n_offered++] = slot;
    p->slot[slot].marks |= PWL_IS_OFFERED;
    if (p->slot[slot].parent == 0) {
        return;
    }
    uint32_t parent = p->slot[slot].parent - 1;
    struct pwl_less *l = less_of(p, parent);
    if (l->call != p->call) {
        *l = (struct pwl_less){.call = p->call, .slot = parent};
    }
    l->count++;
    const struct pwl_slot *s = &p->slot[parent];
    if (pwl_is(s, PWL_IS_IN) && !pwl_has_entry(s) && l->count == s->children) {
        push_leaf(p, parent);
    }
}

/* ---- heaps ---- */

static void pop(struct pwl *p, struct pwl_queue *q, uint32_t heap)
{
    struct pwl_slot *s = &p->slot[q->heap[heap].at[0].slot];
    if (heap == PWL_DUE) {
        s->marks &= (uint8_t)~PWL_IS_DUE;
    } else {
        s->queue &= (uint16_t)~PWL_IS_QUEUED;
    }
    evict_heap_pop(&q->heap[heap]);
}

/* Puts the top right. */
static void settle(struct pwl *p, uint32_t queue, uint32_t class)
{
    struct evict_heap *h = &p->queue[queue].heap[class];
    while (h->n) {
        uint32_t slot = h->at[0].slot;
        uint64_t stamp = entry_stamp(&h->at[0]);
        struct pwl_slot *s = &p->slot[slot];
        bool leaf = pwl_is(s, PWL_IS_IN) && children_left(p, slot) == 0, parked = pwl_is(s, PWL_IS_PARKED);
        if (leaf && !parked && pwl_queue_of(s) == queue && pwl_class_of(s) == class && pwl_last(s) == stamp) {
            return;
        }
        pop(p, &p->queue[queue], class);
        if (!leaf) {
            s->queue &= pwl_is(s, PWL_IS_QUEUED) ? UINT16_MAX : (uint16_t)~PWL_IS_PARKED;
        } else if (pwl_has_entry(s) || s->marks & PWL_IS_OFFERED) {
            continue;
        } else if (parked) {
            push_parked(p, slot);
        } else {
            push_leaf(p, slot);
        }
    }
}

static double badness(const struct pwl *p, const struct pwl_queue *q, uint32_t class, uint64_t stamp)
{
    double fall = pwl_fall((double)(p->clock - stamp) / p->span);
    return fall * fall * p->weight[class] * q->keep;
}

/* A heap that was put right stays so while others give it entries that fit. */
static void find_best(struct pwl *p, uint32_t queue)
{
    struct pwl_queue *q = &p->queue[queue];
    while (q->stale & ALL_CLASSES) {
        uint32_t c = (uint32_t)__builtin_ctz(q->stale);
        q->stale &= (uint16_t) ~(1u << c);
        settle(p, queue, c);
        const struct evict_heap *h = &q->heap[c];
        q->badness[c] = h->n ? badness(p, q, c, entry_stamp(&h->at[0])) : -1;
    }
    q->stale = 0;
    q->best = 0;
    for (uint8_t c = 1; c < PWL_CLASSES; c++) {
        q->best = q->badness[c] > q->badness[q->best] ? c : q->best;
    }
}

static void unpark(struct pwl *p, struct pwl_queue *q, uint64_t until)
{
    const struct evict_heap *h = &q->heap[PWL_PARKED];
    while (h->n && entry_stamp(&h->at[0]) <= until) {
        uint32_t slot = h->at[0].slot;
        pop(p, q, PWL_PARKED);
        p->slot[slot].queue &= (uint16_t)~PWL_IS_PARKED;
        pwl_enqueue(p, slot);
    }
}

static bool begin(struct pwl *p, uint32_t pages)
{
    uint32_t left = p->n_offered;
    p->n_offered = 0;
    p->forced = false;
    for (uint32_t i = 0; i < left; i++) {
        p->slot[p->offered[i]].marks &= (uint8_t)~PWL_IS_OFFERED;
        pwl_enqueue(p, p->offered[i]);
    }
    if (++p->call == 0) { /* 2^32 calls: counts of the first would be taken for new ones */
        for (uint32_t i = 0; i < 2 * PWL_VICTIMS; i++) {
            p->less[i].call = 0;
        }
        p->call = 1;
    }
    bool any = false;
    for (uint32_t i = 0; i < p->n_queues; i++) {
        struct pwl_queue *q = &p->queue[i];
        q->stale = ALL_CLASSES;
        if (pages == 0 || q->pages == pages) {
            unpark(p, q, p->clock);
            any = true;
        }
    }
    return any;
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
            find_best(p, i);
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
    for (struct pwl_queue *q; n < max && (q = worst_queue(p, pages));) {
        uint32_t slot = q->heap[q->best].at[0].slot;
        pop(p, q, q->best);
        q->stale |= (uint16_t)(1u << q->best);
        offer(p, slot, out, &n);
    }
    return n;
}

static bool unpark_first(struct pwl *p, uint32_t pages, uint32_t max)
{
    bool any = false;
    for (uint32_t i = 0; i < p->n_queues && max; i++) {
        struct pwl_queue *q = &p->queue[i];
        const struct evict_heap *h = &q->heap[PWL_PARKED];
        for (; (pages == 0 || q->pages == pages) && h->n && max; max--) {
            unpark(p, q, entry_stamp(&h->at[0]));
            any = true;
        }
    }
    return any;
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
    if (!begin(p, pages) || max == 0) {
        return 0;
    }
    uint32_t n = offer_leaves(p, pages, out, max);
    if (n == 0 && unpark_first(p, pages, max)) {
        n = offer_leaves(p, pages, out, max);
    }
    return n ? n : offer_parents(p, pages, out, max);
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
    if (!pwl_is(s, PWL_IS_IN)) {
        return;
    }
    s->queue |= PWL_IS_PARKED;
    if (!pwl_is(s, PWL_IS_QUEUED)) { /* else its entry is parked when it comes to the top */
        push_parked(p, slot);
    }
}

void pwl_expire(void *policy, uint32_t slot)
{
    struct pwl *p = policy;
    struct pwl_slot *s = &p->slot[slot];
    if (pwl_is(s, PWL_IS_IN)) {
        pwl_set_class(s, PWL_DUE, pwl_uses(s));
        pwl_enqueue(p, slot);
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
    const struct pwl_slot *s = &p->slot[slot];
    const struct pwl_queue *q = &p->queue[pwl_queue_of(s)];
    double root = root_of(badness(p, q, pwl_class_of(s), pwl_last(s))) * 65536;
    return root < (double)(UINT64_C(1) << 62) ? (uint64_t)root : UINT64_C(1) << 62;
}
