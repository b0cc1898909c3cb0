/* slab_learn.c: which sizes objects have, and which of them are worth a class of their own.
 *
 * All of it follows from the order of objects alone: no clock. A pool of few sizes learns them within a sixteenth of
 * itself. What it costs is bounded whatever comes: sizes that are counted, classes that are learned, and one slab a
 * class that may lie half empty.
 */
#include "store/slab_private.h"

#include <string.h>

#define SPARES 1024u       /* a class is made where it spares one part of so many of what came .. */
#define SPARES_STILL 4096u /* .. and may go where it spares less than one of so many */
#define FORGET 2u          /* weights halve when so many times the pool has come */
#define FRACTION 16u       /* bits behind the point in what an object costs, in pages */

static uint64_t pool_pages(const struct slabs *s)
{
    return (uint64_t)s->n_units * UNIT_PAGES;
}

/* ---- what comes ---- */

/* The place of this size: its own, an empty one, else the least one's. */
static struct seen *find_place(struct slabs *s, uint32_t pages)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < SEEN_MAX; i++) {
        if (s->seen[i].pages == pages) {
            s->seen_last = i;
            return &s->seen[i];
        }
        if (s->seen[i].weight < s->seen[least].weight)
            least = i;
    }
    struct seen *place = &s->seen[least];
    s->seen_last = least;
    place->pages = pages;
    place->error = place->weight;
    return place;
}

void slabs_saw(struct slabs *s, uint64_t bytes)
{
    uint64_t pages = bytes == 0 ? 1 : bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0);
    s->seen_total += pages;
    s->seen_since += pages;
    if (pages >= s->class_for_n)
        return; /* takes a run whatever is learned */
    struct seen *place = &s->seen[s->seen_last];
    if (place->pages != pages)
        place = find_place(s, (uint32_t)pages);
    place->weight += pages;
}

static void forget(struct slabs *s)
{
    s->seen_total /= 2;
    for (uint32_t i = 0; i < SEEN_MAX; i++) {
        struct seen *p = &s->seen[i];
        p->error = (p->error + 1) / 2;
        p->weight /= 2;
        p->error = p->error < p->weight ? p->error : p->weight;
        if (p->weight == 0)
            *p = (struct seen){0};
    }
}

/* ---- what a class spares ---- */

static uint64_t slot_cost(const struct slab_class *c)
{
    return ((uint64_t)c->units * UNIT_PAGES << FRACTION) / c->slots;
}

/* What an object of so many pages costs without this class. */
static uint64_t cost_without(const struct slabs *s, uint32_t pages, const struct slab_class *without)
{
    const struct slab_class *best = NULL;
    for (uint32_t i = 0; i < s->n_classes; i++) {
        const struct slab_class *c = &s->classes[i];
        if (c != without && c->pages >= pages && (best == NULL || c->pages < best->pages))
            best = c;
    }
    uint32_t run = slab_run_pages(pages);
    return best != NULL && slab_class_beats(best, run) ? slot_cost(best) : (uint64_t)run << FRACTION;
}

/* Pages that a class of this size spares of what came of it for certain. */
static uint64_t spares(const struct slabs *s, const struct seen *p, const struct slab_class *class)
{
    uint64_t other = cost_without(s, p->pages, class), own = slot_cost(class);
    uint64_t objects = (p->weight - p->error) / p->pages;
    return own < other ? (objects * (other - own)) >> FRACTION : 0;
}

static const struct seen *seen_of(const struct slabs *s, uint32_t pages)
{
    for (uint32_t i = 0; i < SEEN_MAX; i++)
        if (s->seen[i].pages == pages)
            return &s->seen[i];
    return NULL;
}

/* ---- dropping ---- */

static bool has_slab(const struct slabs *s, uint32_t class)
{
    for (uint32_t u = 0; u < s->n_units; u = slab_end(s, u))
        if (s->head[u] == u && s->slab[u].class == class)
            return true;
    return false;
}

static bool drop_classes(struct slabs *s)
{
    bool changed = false;
    for (uint32_t c = s->n_fixed; c < s->n_classes; c++) {
        struct slab_class *class = &s->classes[c];
        const struct seen *p = class->pages > 0 ? seen_of(s, class->pages) : NULL;
        bool used = p != NULL && spares(s, p, class) >= s->seen_total / SPARES_STILL;
        if (class->pages == 0 || used || has_slab(s, c))
            continue;
        bits_destroy(&class->open);
        *class = (struct slab_class){0};
        changed = true;
    }
    return changed;
}

/* ---- learning ---- */

/* The size that spares most, and enough; NULL: none does. */
static const struct seen *most_worth(const struct slabs *s, struct slab_class *out)
{
    const struct seen *best = NULL;
    uint64_t most = s->seen_total / SPARES;
    for (uint32_t i = 0; i < SEEN_MAX; i++) {
        const struct seen *p = &s->seen[i];
        struct slab_class c = {.pages = p->pages};
        if (p->pages == 0 || slab_class_of(s, p->pages) != CLASS_NONE)
            continue;
        slab_class_cut(&c, s->slab_units_max);
        if (!slab_class_beats(&c, slab_run_pages(p->pages)) || p->weight - p->error < (uint64_t)c.units * UNIT_PAGES)
            continue;
        uint64_t spared = spares(s, p, &c);
        if (spared > most) {
            most = spared;
            best = p;
            *out = c;
        }
    }
    return best;
}

/* Slabs that an earlier node cut for this size become the class's. */
static void adopt_slabs(struct slabs *s, uint32_t class)
{
    for (uint32_t u = 0; u < s->n_units; u = slab_end(s, u)) {
        struct slab *slab = &s->slab[u];
        if (s->head[u] != u || slab->kind != UNIT_SLAB || slab->class != CLASS_NONE ||
            slab->slot_pages != s->classes[class].pages)
            continue;
        slab->class = (uint16_t) class;
        slab_list(s, u);
    }
}

static bool learn_one(struct slabs *s)
{
    struct slab_class c = {0};
    uint32_t at = s->n_fixed;
    while (at < s->n_classes && s->classes[at].pages > 0)
        at++;
    if (at == s->n_classes || most_worth(s, &c) == NULL || bits_create(&c.open, s->n_units) != 0)
        return false;
    s->classes[at] = c;
    slab_classes_map(s);
    adopt_slabs(s, at);
    return true;
}

bool slabs_learn(struct slabs *s, bool may_drop)
{
    if (s->seen_since < s->seen_enough)
        return false;
    s->seen_since = 0;
    bool changed = may_drop && drop_classes(s);
    if (changed)
        slab_classes_map(s);
    while (learn_one(s))
        changed = true;
    while (s->seen_total > FORGET * pool_pages(s))
        forget(s);
    return changed;
}

/* ---- what there is ---- */

static void add_slab(struct slabs_class *out, uint32_t *n, uint32_t max, const struct slabs *s, const struct slab *slab)
{
    uint64_t bytes = (uint64_t)slab->slot_pages * PAGE_BYTES;
    uint32_t at = 0;
    while (at < *n && out[at].bytes < bytes)
        at++;
    if (at == *n || out[at].bytes != bytes) {
        if (*n == max)
            return;
        memmove(&out[at + 1], &out[at], (*n - at) * sizeof *out);
        out[at] = (struct slabs_class){
            .bytes = bytes,
            .slab_bytes = (uint64_t)slab->units * UNIT_BYTES,
            .is_class = slab->class != CLASS_NONE,
            .learned = slab->class != CLASS_NONE && slab->class >= s->n_fixed,
        };
        ++*n;
    }
    out[at].slots += slab->slots;
    out[at].used += slab->used;
}

uint32_t slabs_classes(const struct slabs *s, struct slabs_class *out, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t c = s->n_fixed; c < s->n_classes; c++) {
        struct slab empty = {
            .slot_pages = s->classes[c].pages, .units = (uint16_t)s->classes[c].units, .class = (uint16_t)c};
        if (s->classes[c].pages > 0)
            add_slab(out, &n, max, s, &empty);
    }
    for (uint32_t u = 0; u < s->n_units; u = slab_end(s, u))
        if (s->head[u] == u && s->slab[u].kind == UNIT_SLAB)
            add_slab(out, &n, max, s, &s->slab[u]);
    return n;
}

/* ---- proof ---- */

const char *slab_classes_check(const struct slabs *s)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        uint32_t pages = s->classes[c].pages;
        if (pages > 0 && slab_class_of(s, pages) != c)
            return "an object of a class's size does not take it";
        if (pages > 0 && (s->classes[c].slots == 0 || s->classes[c].units > SLAB_UNITS_MAX))
            return "a class has no slots, or too large a slab";
    }
    for (uint32_t i = 0; i < SEEN_MAX; i++) {
        const struct seen *p = &s->seen[i];
        if (p->error > p->weight || (p->pages == 0 && p->weight > 0))
            return "a size was seen less often than it may have been another";
        for (uint32_t k = 0; k < i && p->pages > 0; k++)
            if (s->seen[k].pages == p->pages)
                return "a size is counted in two places";
        sum += p->weight;
    }
    return sum <= s->seen_total ? NULL : "more was seen of sizes than of all";
}
