/* whatif.c: see whatif.h. */
#include "store/whatif_sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PENDING 8u /* sessions whose last chain waits for what may be put behind it */
#define LOW_SHARE 512u
#define LEVEL_MASK 15u
#define LEVEL_COMMON 15u
#define FAN_SHIFT 4u
#define FAN_ONE 16u

/* In halves of the capacity. */
static const uint32_t halves[WHATIF_SIMS] = {1, 4, 8}, room[WHATIF_SIMS] = {5120, 10240, 20480};

struct pending {
    uint64_t session, lineage;
    uint32_t ns, n;                       /* n 0: nothing waits */
    struct whatif_object o[WHATIF_CHAIN]; /* root first */
};

struct whatif {
    struct mini sim[WHATIF_SIMS];
    uint8_t *tree; /* by slot of the node: level, over it groups that went on with it */
    uint32_t max_slots, shift;
    uint64_t high, low;
    uint64_t requests, sampled, references, hits;
    struct whatif_sums all, recent;
    double recent_left;
    struct whatif_entry ns[WHATIF_TOP], lineage[WHATIF_TOP];
    struct pending pending[PENDING];
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint8_t level_of(uint64_t key)
{
    uint64_t bits = mix(key) | UINT64_C(1) << WHATIF_SHIFT_MAX;
    return (uint8_t)__builtin_ctzll(bits);
}

static void set_capacity(struct whatif *w)
{
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        w->sim[i].high = (w->high / PAGE_BYTES * halves[i] / 2) >> w->shift;
        uint64_t low = (w->low / PAGE_BYTES * halves[i] / 2) >> w->shift, most = w->sim[i].high;
        most -= most / LOW_SHARE; /* a look for victims pays for some */
        w->sim[i].low = low < most ? low : most;
    }
}

void whatif_limits(struct whatif *w, uint64_t high, uint64_t low)
{
    w->high = high;
    w->low = low;
    set_capacity(w);
}

struct whatif *whatif_create(const struct evict_policy *policy, uint32_t max_slots, uint64_t high, uint64_t low)
{
    struct whatif *w = calloc(1, sizeof *w);
    if (!w) {
        return NULL;
    }
    w->max_slots = max_slots;
    w->recent_left = WHATIF_RECENT;
    w->tree = mmap(NULL, max_slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool ok = w->tree != MAP_FAILED;
    w->tree = ok ? w->tree : NULL;
    for (uint32_t i = 0; i < WHATIF_SIMS && ok; i++) {
        ok = mini_open(&w->sim[i], policy, room[i]);
    }
    if (!ok) {
        whatif_destroy(w);
        return NULL;
    }
    whatif_limits(w, high, low);
    return w;
}

void whatif_destroy(struct whatif *w)
{
    if (!w) {
        return;
    }
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        mini_close(&w->sim[i]);
    }
    if (w->tree) {
        munmap(w->tree, w->max_slots);
    }
    free(w);
}

/* ---- sums ---- */

static void add(struct whatif_sums *to, const struct whatif_sums *x)
{
    to->references += x->references;
    for (uint32_t i = 0; i <= WHATIF_SIMS; i++) {
        to->hits[i] += x->hits[i];
    }
}

static void halve(struct whatif_sums *x)
{
    x->references /= 2;
    for (uint32_t i = 0; i <= WHATIF_SIMS; i++) {
        x->hits[i] /= 2;
    }
}

static void entry_add(struct whatif_entry *list, uint64_t id, const struct whatif_sums *x)
{
    struct whatif_entry *least = list, *e = NULL;
    for (uint32_t i = 0; i < WHATIF_TOP && !e; i++) {
        e = list[i].used && list[i].id == id ? &list[i] : NULL;
        double had = list[i].used ? list[i].error + list[i].all.references : -1;
        double least_had = least->used ? least->error + least->all.references : -1;
        least = had < least_had ? &list[i] : least;
    }
    if (!e) {
        double error = least->used ? least->error + least->all.references : 0;
        e = least;
        *e = (struct whatif_entry){.id = id, .used = true, .error = error};
    }
    add(&e->all, x);
    add(&e->recent, x);
}

static void age(struct whatif *w, double references)
{
    for (w->recent_left -= references; w->recent_left < 0; w->recent_left += WHATIF_RECENT) {
        halve(&w->recent);
        for (uint32_t i = 0; i < WHATIF_TOP; i++) {
            halve(&w->ns[i].recent);
            halve(&w->lineage[i].recent);
        }
    }
}

static void count(struct whatif *w, uint32_t ns, uint64_t lineage, const struct whatif_sums *x)
{
    add(&w->all, x);
    add(&w->recent, x);
    entry_add(w->ns, ns, x);
    if (lineage) {
        entry_add(w->lineage, lineage, x);
    }
    age(w, x->references);
}

/* ---- requests ---- */

/* Room for so many in each simulation, at the price of fewer trees. */
static bool make_slots(struct whatif *w, uint32_t n)
{
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        while (w->sim[i].n_vacant < n) {
            if (w->shift == WHATIF_SHIFT_MAX) {
                return false;
            }
            w->shift++;
            set_capacity(w);
            for (uint32_t k = 0; k < WHATIF_SIMS; k++) {
                mini_drop_below(&w->sim[k], (uint8_t)w->shift);
            }
        }
    }
    return true;
}

/* o: root first, of which the first `here` were used, the others put. */
static void run(struct whatif *w, const struct whatif_object *o, uint32_t n, uint32_t here, uint8_t level, uint32_t ns,
                uint64_t lineage)
{
    if (level < w->shift || !make_slots(w, n) || level < w->shift) {
        return;
    }
    double weight = (double)(UINT64_C(1) << w->shift);
    struct whatif_sums x = {.references = n * weight};
    x.hits[1] = here * weight;
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        x.hits[i ? i + 1 : 0] = mini_request(&w->sim[i], o, n, level) * weight;
    }
    w->sampled++;
    count(w, ns, lineage, &x);
}

/* Uses of a common beginning alone are of no tree: one in so many calls stands for all. */
static void flush(struct whatif *w, struct pending *p)
{
    if (p->n) {
        uint8_t level = w->tree[p->o[p->n - 1].slot] & LEVEL_MASK;
        level = level == LEVEL_COMMON ? level_of(w->requests * 0x9e3779b97f4a7c15u) : level;
        run(w, p->o, p->n, p->n, level, p->ns, p->lineage);
        p->n = 0;
    }
}

static bool is_torn(uint8_t above, uint8_t below)
{
    above &= LEVEL_MASK;
    below &= LEVEL_MASK;
    return above != below && above != LEVEL_COMMON && below != LEVEL_COMMON;
}

bool whatif_torn(const struct whatif *w, const uint32_t *slots, uint32_t n)
{
    bool torn = false;
    for (uint32_t i = 1; i < n && !torn; i++) {
        torn = is_torn(w->tree[slots[i]], w->tree[slots[i - 1]]);
    }
    return torn;
}

/* It is here, so what simulations that did not look at it would have is not known: they get it. */
static void relevel(struct whatif *w, const struct whatif_object *o, uint8_t level)
{
    uint8_t *tree = &w->tree[o->slot], old = *tree & LEVEL_MASK;
    *tree = (uint8_t)((*tree & ~LEVEL_MASK) | level);
    if (level < w->shift) {
        whatif_remove(w, o->key);
        return;
    }
    if (old < w->shift && make_slots(w, 1) && level >= w->shift) {
        for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
            mini_request(&w->sim[i], o, 1, level);
        }
    }
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        uint32_t at = mini_find(&w->sim[i], o->key);
        if (at != SLOT_NONE) {
            w->sim[i].level[at] = level;
        }
    }
}

void whatif_join(struct whatif *w, const struct whatif_object *o, uint32_t n)
{
    for (uint32_t i = n; i-- > 1;) {
        uint8_t *above = &w->tree[o[i].slot];
        if (!is_torn(*above, w->tree[o[i - 1].slot])) {
            continue;
        }
        if (*above >> FAN_SHIFT < WHATIF_FAN) {
            *above = (uint8_t)(*above + FAN_ONE);
            relevel(w, &o[i - 1], *above & LEVEL_MASK);
        } else {
            *above |= LEVEL_COMMON;
        }
    }
}

bool whatif_wants(const struct whatif *w, uint32_t slot)
{
    return (w->tree[slot] & LEVEL_MASK) >= w->shift;
}

void whatif_pass(struct whatif *w, uint32_t n)
{
    w->requests++;
    w->references += n;
    w->hits += n;
}

void whatif_touch(struct whatif *w, uint64_t session, uint32_t ns, uint64_t lineage, const struct whatif_object *o,
                  uint32_t n)
{
    struct pending *p = &w->pending[session % PENDING];
    flush(w, p);
    whatif_pass(w, n);
    n = n < WHATIF_CHAIN ? n : WHATIF_CHAIN;
    p->session = session;
    p->ns = ns;
    p->lineage = lineage;
    p->n = n;
    for (uint32_t i = 0; i < n; i++) {
        p->o[n - 1 - i] = o[i];
    }
    for (uint32_t i = 1; i < n; i++) { /* of a call: each is behind the one before it */
        p->o[i].parent = p->o[i].parent ? p->o[i].parent : p->o[i - 1].key;
    }
}

/* The level of the tree that a group goes on with. */
static uint8_t level_of_group(struct whatif *w, const struct whatif_object *first, uint32_t parent)
{
    if (!first->parent) {
        return level_of(first->key);
    }
    if (parent >= w->max_slots) { /* not here: a simulation may know it */
        const struct mini *s = &w->sim[WHATIF_SIMS - 1];
        uint32_t at = mini_find(s, first->parent);
        return at == SLOT_NONE ? level_of(first->parent) : s->level[at];
    }
    uint8_t *tree = &w->tree[parent];
    if (*tree >> FAN_SHIFT < WHATIF_FAN) {
        *tree = (uint8_t)(*tree + FAN_ONE);
        if ((*tree & LEVEL_MASK) != LEVEL_COMMON) {
            return *tree & LEVEL_MASK;
        }
    }
    *tree |= LEVEL_COMMON;
    return level_of(first->key);
}

void whatif_put(struct whatif *w, uint64_t session, uint32_t ns, uint64_t lineage, const struct whatif_object *o,
                uint32_t n, uint32_t parent)
{
    struct pending *p = &w->pending[session % PENDING];
    bool behind = p->n && p->session == session && o->parent && p->o[p->n - 1].key == o->parent;
    parent = behind ? p->o[p->n - 1].slot : parent;
    uint8_t level = level_of_group(w, o, parent);
    for (uint32_t i = 0; i < n; i++) {
        w->tree[o[i].slot] = level;
    }
    w->requests += !behind;
    w->references += n;
    if (!behind || p->n + n > WHATIF_CHAIN) {
        flush(w, p);
        run(w, o, n < WHATIF_CHAIN ? n : WHATIF_CHAIN, 0, level, ns, lineage);
        return;
    }
    memcpy(p->o + p->n, o, n * sizeof *o);
    run(w, p->o, p->n + n, p->n, level, ns, lineage);
    p->n = 0;
}

void whatif_found(struct whatif *w, const struct whatif_object *o)
{
    uint8_t level = level_of_group(w, o, SLOT_NONE);
    w->tree[o->slot] = level;
    if (level < w->shift || !make_slots(w, 1) || level < w->shift) {
        return;
    }
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        mini_request(&w->sim[i], o, 1, level);
    }
}

void whatif_remove(struct whatif *w, uint64_t key)
{
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        uint32_t slot = mini_find(&w->sim[i], key);
        if (slot != SLOT_NONE) {
            mini_remove(&w->sim[i], slot);
        }
    }
}

/* ---- reports ---- */

/* What the sample hit beside what all hit is known at this capacity: the others' error is about that one's. */
static void set_right(const struct whatif *w, struct whatif_sums *x)
{
    if (x->references <= 0 || !w->references) {
        return;
    }
    double is = (double)w->hits / (double)w->references, less = is - x->hits[1] / x->references;
    for (uint32_t i = 0; i <= WHATIF_SIMS; i++) {
        double ratio = x->hits[i] / x->references + less;
        x->hits[i] = (ratio < 0 ? 0 : ratio > 1 ? 1 : ratio) * x->references;
    }
}

void whatif_settle(struct whatif *w)
{
    for (uint32_t i = 0; i < PENDING; i++) {
        flush(w, &w->pending[i]);
    }
}

void whatif_report(const struct whatif *w, struct whatif_report *out)
{
    *out = (struct whatif_report){.scale = {0.5, 1, 2, 4},
                                  .capacity = w->high,
                                  .shift = w->shift,
                                  .requests = w->requests,
                                  .sampled = w->sampled,
                                  .references = w->references,
                                  .hits = w->hits,
                                  .bytes_max = WHATIF_BYTES,
                                  .all = w->all,
                                  .recent = w->recent};
    memcpy(out->ns, w->ns, sizeof out->ns);
    memcpy(out->lineage, w->lineage, sizeof out->lineage);
    set_right(w, &out->all);
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        out->slots += w->sim[i].max - w->sim[i].n_vacant;
    }
    out->bytes = out->slots * (w->sim[0].policy->slot_bytes + 30u);
}

const char *whatif_check(struct whatif *w)
{
    for (uint32_t i = 0; i < WHATIF_SIMS; i++) {
        const struct mini *s = &w->sim[i];
        const char *why = s->policy->check(s->p);
        uint32_t n = 0;
        uint64_t pages = 0;
        for (uint32_t k = 0; k < s->seen; k++) {
            n += s->pages[k] != 0;
            pages += s->pages[k];
            if (s->pages[k] && (s->level[k] < w->shift || mini_find(s, s->key[k]) != k)) {
                return "a simulated key is not sampled, or is not found";
            }
        }
        if (why || n + s->n_vacant != s->max || pages != s->used) {
            return why ? why : "a simulation's slots or pages are not counted right";
        }
    }
    return NULL;
}
