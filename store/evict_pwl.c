/* evict_pwl.c: leaves of the prefix tree, by what is learned of classes of objects ("power law, leaves only").
 *
 * An object that others continue is worth at least what they are, so only leaves may go. What a leaf is worth falls
 * with the time since its last use (pwl_fall), from a height that its class has: how it came, while it was used once,
 * and then how often it was used. A class learns its height as uses over exposure, where the exposure of an object is
 * the integral of that fall over the time it was watched. Those that were evicted are watched further for a while, or a
 * class that always goes early would never be seen to be used.
 *
 * Time is counted in uses of objects. The span, what counts as a long time, is learned: from the ages at which objects
 * are used a second time. In a class the oldest is worth the least, so a decision compares one leaf a class. Objects
 * without parent and child are one class whatever their uses: where no hints are given this is LRU to the object.
 *
 * A priority of 1 makes an object worth twice as much, one of 2 or 3 four times, of 4 to 7 eight times, and so on.
 *
 * After a restart parents, priorities and ttl are known from the index, and the order of sealing stands for that of
 * use. What was learned, uses and classes are lost: an object is of the class PLAIN until it is used.
 */
#include "store/evict_pwl.h"

#include <stdlib.h>
#include <sys/mman.h>

#define STEPS 32.0     /* a span */
#define DECAY 0.994    /* a step: a sixth a span */
#define PRIOR_HITS 6.0 /* what a class is taken for before it was seen: 20 objects, 6 of them used again */
#define PRIOR 20.0
#define SPAN_MEDIANS 2.2 /* a span is so many times the median of the ages at a second use .. */
#define SPAN_LEAST 0.25  /* .. within these many uses for each object that is there */
#define SPAN_MOST 8.0
#define SPAN_FIRST 1.25 /* before any was used again */
#define SPAN_STAMPS 64.0
#define DUE_WEIGHT 1e18
#define HUGE_FROM (64u << 20)
#define FAN 4
#define FAN_MAX 64
#define MEDIAN_STEP 0.0015

static void make_exposed(struct pwl *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < PWL_EXPOSED; i++) {
        p->exposed[i] = (float)sum;
        for (uint32_t k = 0; k < 16; k++) {
            double fall = pwl_fall((i + (k + 0.5) / 16) / 16);
            sum += 1 / (fall * fall) / 256;
        }
    }
}

static double exposed(const struct pwl *p, double age)
{
    double x = age / p->span;
    return p->exposed[x < PWL_WATCHED ? (uint32_t)(x * 16) : PWL_EXPOSED - 1];
}

static double exposed_all(const struct pwl *p)
{
    return p->exposed[PWL_EXPOSED - 1];
}

static void learn_stay(struct pwl *p, uint8_t class)
{
    p->exposure[class] += exposed_all(p);
}

/* Steps up and down that are as frequent meet at the median. They are large at first. */
static void learn_age(struct pwl *p, double age)
{
    double step = 1 + MEDIAN_STEP + 4.0 / (double)++p->ages;
    p->median = p->ages == 1 ? age : age > p->median ? p->median * step : p->median / step;
}

static void learn_use(struct pwl *p, uint8_t class, uint64_t age, double weight)
{
    if (class < PWL_USED || class == PWL_PLAIN) {
        learn_age(p, (double)age);
    }
    p->hits[class] += weight;
    double left = exposed_all(p) - exposed(p, (double)age);
    if (left > 0) {
        p->exposure[class] -= left * weight;
    }
    if (p->exposure[class] < 0) {
        p->exposure[class] = 0;
    }
}

static double new_span(const struct pwl *p)
{
    double live = (double)p->live, span = p->ages == 0 ? SPAN_FIRST * live : SPAN_MEDIANS * p->median;
    span = span < SPAN_LEAST * live ? SPAN_LEAST * live : span > SPAN_MOST * live ? SPAN_MOST * live : span;
    return span < SPAN_STAMPS ? SPAN_STAMPS : span;
}

void pwl_tick(struct pwl *p)
{
    if (++p->clock < p->decay_at) {
        return;
    }
    p->span = new_span(p);
    p->decay_at = p->clock + (uint64_t)(p->span / STEPS) + 1;
    p->weight[PWL_DUE] = DUE_WEIGHT;
    for (uint32_t c = 0; c < PWL_DUE; c++) {
        p->hits[c] *= DECAY;
        p->exposure[c] *= DECAY;
        /* The worth of an object is height / fall^2: what is compared is its inverse. */
        double height = (p->hits[c] + PRIOR_HITS) / (p->exposure[c] + PRIOR * exposed_all(p));
        p->weight[c] = 1 / height;
    }
}

static uint8_t class_by_uses(uint8_t uses)
{
    return (uint8_t)(PWL_USED + (uses > 2) + (uses > 3) + (uses > 5) + (uses > 8));
}

static uint8_t class_by_prompt(uint32_t objects)
{
    return (uint8_t)(PWL_FIRST + (objects > 4) + (objects > 16) + (objects > 32) + (objects > 64));
}

static uint8_t class_by_rest(uint32_t objects)
{
    return (uint8_t)(PWL_SHORT + (objects > 2) + (objects > 8));
}

/* Counts groups that continue a key that is not here. Those of few continuations give way to those of many. */
static bool fans(struct pwl *p, uint64_t key)
{
    struct pwl_fan *f = &p->fan[key % PWL_FANS];
    uint32_t tag = (uint32_t)(key >> 32);
    if (f->tag != tag && f->count) {
        f->count--;
        return false;
    }
    f->tag = tag;
    f->count += f->count < FAN_MAX;
    return f->count > FAN;
}

/* How many objects were there before a group, 2 standing for more: the group goes on with what somebody had asked. What
 * many go on with is a common beginning, as of a system's prompt, and counts as 1, however long it is. */
static uint32_t depth_of(struct pwl *p, const struct evict_hint *hint)
{
    if (p->request == hint->request) {
        return p->depth;
    }
    p->request = hint->request;
    uint32_t parent = hint->prefix ? pwl_keys_find(p, hint->prefix) : SLOT_NONE;
    if (!hint->prefix) {
        p->depth = 0;
    } else if (parent == SLOT_NONE) { /* at another node, it may be */
        p->depth = fans(p, hint->prefix) ? 1 : 2;
    } else {
        const struct pwl_slot *s = &p->slot[parent];
        p->depth = s->marks & PWL_IS_INNER && s->children <= FAN ? 2 : 1;
    }
    return p->depth;
}

static uint8_t class_of_new(const struct pwl *p, uint32_t slot, const struct evict_hint *hint, uint32_t depth)
{
    uint32_t count = hint->count ? hint->count : 1;
    if (count == 1 && p->slot[slot].parent == 0 && p->slot[slot].children == 0) {
        return PWL_PLAIN;
    }
    if (hint->position + 1 == count && p->slot[slot].children == 0) {
        return PWL_LAST;
    }
    return depth >= 2 ? class_by_rest(count) : class_by_prompt(count + depth);
}

/* Few levels, so that few heaps have to be looked at. */
static uint8_t level_of(uint8_t priority)
{
    return priority ? (uint8_t)(32 - __builtin_clz(priority)) : 0;
}

static bool queue_is(const struct pwl_queue *q, uint32_t pages, uint8_t level, uint8_t share)
{
    return q->pages == pages && q->level == level && q->share == share;
}

static uint32_t queue_find(struct pwl *p, uint32_t pages, uint8_t level, uint8_t share)
{
    uint32_t i = p->last_queue;
    if (i < p->n_queues && queue_is(&p->queue[i], pages, level, share)) {
        return i;
    }
    for (i = 0; i < p->n_queues && !queue_is(&p->queue[i], pages, level, share); i++) {}
    if (i == p->n_queues && i == p->queue_room) {
        uint32_t room = i ? 2 * i : 8;
        struct pwl_queue *queue = i < PWL_QUEUES ? realloc(p->queue, room * sizeof *queue) : NULL;
        if (!queue) {
            return UINT32_MAX;
        }
        p->queue = queue;
        p->queue_room = room;
    }
    if (i == p->n_queues) {
        p->queue[i] = (struct pwl_queue){.pages = pages, .level = level, .share = share, .keep = 1.0 / (1u << level)};
        p->n_queues++;
    }
    p->last_queue = i;
    return i;
}

/* A key that was evicted not long ago comes back: a use, although it was not there. Its uses, this one with them. */
static uint8_t use_ghost(struct pwl *p, struct ghost g)
{
    if (g.class >= PWL_DUE || g.uses == 0 || (double)g.age > PWL_WATCHED * p->span) {
        return 1;
    }
    learn_use(p, g.class, g.age, (double)(1u << ghosts_shift(&p->ghosts, p->live)));
    return g.uses < PWL_USES_MAX ? (uint8_t)(g.uses + 1) : (uint8_t)PWL_USES_MAX;
}

static uint8_t take_ghost(struct pwl *p, uint64_t key)
{
    struct ghost g;
    bool known = ghosts_has(key, ghosts_shift(&p->ghosts, p->live)) && ghosts_take(&p->ghosts, key, p->clock, &g);
    return known ? use_ghost(p, g) : 1;
}

static void pwl_insert(void *policy, uint32_t slot, const struct evict_hint *hint)
{
    struct pwl *p = policy;
    uint32_t queue = queue_find(p, hint->pages, level_of(hint->priority), hint->share);
    struct pwl_slot *s = &p->slot[slot];
    if (queue == UINT32_MAX || pwl_is(s, PWL_IS_IN)) {
        return;
    }
    pwl_tick(p);
    p->live++;
    p->seen = slot >= p->seen ? slot + 1 : p->seen;
    s->queue = (uint16_t)(queue << PWL_QUEUE_SHIFT | PWL_IS_IN);
    pwl_set_last(s, p->clock);
    s->marks &= (uint8_t)~PWL_IS_INNER;
    s->marks |= hint->parent || hint->above != SLOT_NONE ? PWL_IS_INNER : 0;
    uint32_t depth = depth_of(p, hint), parent = hint->above;
    if (parent == SLOT_NONE && hint->parent) {
        parent = pwl_keys_find(p, hint->parent);
    }
    pwl_adopt(p, slot, parent);
    uint8_t uses = take_ghost(p, hint->key), class = class_of_new(p, slot, hint, depth);
    pwl_set_class(s, uses > 1 && class != PWL_PLAIN ? class_by_uses(uses) : class, uses);
    learn_stay(p, pwl_class_of(s));
    pwl_keys_add(p, slot, hint->key);
    pwl_push(p, slot);
}

static void pwl_link(void *policy, uint32_t slot, uint64_t parent)
{
    struct pwl *p = policy;
    if (slot < p->max_slots && pwl_is(&p->slot[slot], PWL_IS_IN) && p->slot[slot].parent == 0 && parent) {
        pwl_adopt(p, slot, pwl_keys_find(p, parent));
    }
}

static void use(struct pwl *p, struct pwl_slot *s)
{
    uint8_t uses = pwl_uses(s), class = pwl_class_of(s);
    uint64_t age = p->clock - pwl_last(s);
    /* Uses of a lease are told of together, when it ends: of these only the first says something of time. */
    bool again = age <= 1;
    if (!again) {
        learn_use(p, class, age, 1);
    }
    uses = (uint8_t)(uses + (uses < PWL_USES_MAX));
    bool plain = class == PWL_PLAIN && s->parent == 0 && s->children == 0;
    pwl_set_class(s, plain ? PWL_PLAIN : class_by_uses(uses), uses);
    if (!again) {
        learn_stay(p, pwl_class_of(s));
    }
}

static void touch_one(struct pwl *p, uint32_t slot)
{
    struct pwl_slot *s = &p->slot[slot];
    pwl_tick(p);
    pwl_unlist(p, slot);
    s->queue &= (uint16_t)~PWL_IS_PARKED;
    if (pwl_class_of(s) != PWL_DUE) {
        use(p, s);
    }
    pwl_set_last(s, p->clock);
    pwl_push(p, slot);
}

static void pwl_touch(void *policy, const uint32_t *slots, uint32_t n, uint64_t request)
{
    (void)request;
    struct pwl *p = policy;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slots[i] & ~TOUCH_CHILD;
        if (slot >= p->max_slots || !pwl_is(&p->slot[slot], PWL_IS_IN)) {
            continue;
        }
        uint32_t parent = slots[i] & TOUCH_CHILD && i + 1 < n ? slots[i + 1] & ~TOUCH_CHILD : SLOT_NONE;
        if (parent < p->max_slots && pwl_is(&p->slot[parent], PWL_IS_IN)) {
            pwl_adopt(p, slot, parent);
        }
        touch_one(p, slot);
    }
}

static void pwl_remove(void *policy, uint32_t slot)
{
    struct pwl *p = policy;
    struct pwl_slot *s = &p->slot[slot];
    if (!pwl_is(s, PWL_IS_IN)) {
        return;
    }
    uint64_t key = p->env.key(p->env.arg, slot);
    if (ghosts_has(key, ghosts_shift(&p->ghosts, p->live))) {
        ghosts_add(&p->ghosts, key, pwl_last(s), p->clock, pwl_class_of(s), pwl_uses(s));
    }
    pwl_keys_remove(p, slot, key);
    pwl_unlist(p, slot);
    s->queue = 0;
    p->live--;
    pwl_orphan(p, slot);
}

/* ---- keys that were evicted, between nodes: a key's homes hear of it, and tell who puts it again ---- */

static uint64_t pwl_recall(void *policy, uint64_t key, bool forget)
{
    struct pwl *p = policy;
    struct ghost g;
    if (!(forget ? ghosts_take : ghosts_find)(&p->ghosts, key, p->clock, &g)) {
        return 0;
    }
    return (g.age < UINT32_MAX ? g.age : UINT32_MAX) | (uint64_t)(g.class << 4 | g.uses) << 32;
}

static struct ghost ghost_of(uint64_t past)
{
    return (struct ghost){
        .age = (uint32_t)past, .class = (uint8_t)(past >> 36 & 15), .uses = (uint8_t)(past >> 32 & 15)};
}

static void pwl_remember(void *policy, uint64_t key, uint64_t past)
{
    struct pwl *p = policy;
    struct ghost g = ghost_of(past);
    if (g.class < PWL_DUE && g.uses && ghosts_has(key, ghosts_shift(&p->ghosts, p->live))) {
        ghosts_add(&p->ghosts, key, p->clock - g.age, p->clock, g.class, g.uses);
    }
}

/* It comes a moment after the insert, when the homes have answered: as if it had been known then. */
static bool pwl_note(void *policy, uint32_t slot, uint64_t past)
{
    struct pwl *p = policy;
    struct pwl_slot *s = &p->slot[slot < p->max_slots ? slot : 0];
    if (slot >= p->max_slots || !pwl_is(s, PWL_IS_IN) || pwl_uses(s) != 1 || pwl_class_of(s) == PWL_DUE) {
        return false;
    }
    uint8_t uses = use_ghost(p, ghost_of(past));
    if (uses == 1 || pwl_class_of(s) == PWL_PLAIN) { /* these go in LRU's order */
        pwl_set_class(s, pwl_class_of(s), uses);
        return uses > 1;
    }
    p->exposure[pwl_class_of(s)] -= exposed_all(p);
    if (p->exposure[pwl_class_of(s)] < 0) {
        p->exposure[pwl_class_of(s)] = 0;
    }
    pwl_tick(p);
    pwl_unlist(p, slot);
    s->queue &= (uint16_t)~PWL_IS_PARKED;
    pwl_set_class(s, class_by_uses(uses), uses);
    learn_stay(p, pwl_class_of(s));
    pwl_set_last(s, p->clock);
    pwl_push(p, slot);
    return true;
}

static void pwl_destroy(void *policy)
{
    struct pwl *p = policy;
    if (!p) {
        return;
    }
    free(p->queue);
    ghosts_free(&p->ghosts);
    if (p->head) {
        munmap(p->head, p->head_bytes);
    }
    if (p->slot) {
        munmap(p->slot, p->slot_bytes);
    }
    free(p);
}

static void *pwl_create(uint32_t max_slots, const struct evict_env *env)
{
    struct pwl *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->env = *env;
    p->max_slots = max_slots;
    p->request = UINT64_MAX;
    make_exposed(p);
    p->slot_bytes = (size_t)max_slots * sizeof *p->slot;
    /* Reserved, not allocated: pages come with the first slot of each. */
    p->slot = mmap(NULL, p->slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->slot == MAP_FAILED) {
        p->slot = NULL;
    }
    if (p->slot && p->slot_bytes >= HUGE_FROM) {
        madvise(p->slot, p->slot_bytes, MADV_HUGEPAGE); /* slots are met in any order */
    }
    if (!p->slot || pwl_keys_init(p) || ghosts_init(&p->ghosts, max_slots)) {
        pwl_destroy(p);
        return NULL;
    }
    return p;
}

static uint32_t pwl_find(void *policy, uint64_t key)
{
    return pwl_keys_find(policy, key);
}

const struct evict_policy evict_pwl = {
    .name = "pwl",
    .slot_bytes = sizeof(struct pwl_slot) + sizeof(uint32_t) / PWL_KEYS_LOAD,
    .create = pwl_create,
    .destroy = pwl_destroy,
    .expect = pwl_keys_expect,
    .ahead = pwl_keys_ahead,
    .insert = pwl_insert,
    .link = pwl_link,
    .touch = pwl_touch,
    .remove = pwl_remove,
    .victims = pwl_victims,
    .guard = pwl_guard,
    .may = pwl_may,
    .skip = pwl_skip,
    .age = pwl_age,
    .recall = pwl_recall,
    .remember = pwl_remember,
    .note = pwl_note,
    .expire = pwl_expire,
    .find = pwl_find,
    .check = pwl_check,
};
