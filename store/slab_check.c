/* slab_check.c: proves the invariants of slab.h by counting everything again. */
#include "store/slab_private.h"

#include "store/slot.h"

#include <stdlib.h>

struct counted {
    uint64_t free_units, used_pages, free_pages, free_slots;
    uint32_t slabs, runs;
    uint64_t *headers; /* bit: of a slab or run */
};

static const char *check_free_unit(const struct slabs *s, uint32_t u, struct counted *n)
{
    n->free_units++;
    if (atomic_load_explicit(&s->config.dir[u].kind, memory_order_relaxed) != UNIT_FREE)
        return "a free unit has an entry in the directory";
    return bits_test(&s->units.avail, u) == (s->closed[u] == 0) ? NULL : "a free unit is given in a closed window";
}

static const char *check_entry(const struct slabs *s, uint32_t unit, const struct slab *slab)
{
    const struct slab_entry *e = &s->config.dir[unit];
    if (atomic_load_explicit(&e->kind, memory_order_relaxed) != slab->kind || e->header != slab->header ||
        e->slot_pages != slab->slot_pages || e->units != slab->units)
        return "the directory disagrees with a slab";
    for (uint32_t u = unit; u < unit + slab->units; u++) {
        if (u > unit && atomic_load_explicit(&e[u - unit].kind, memory_order_relaxed) != UNIT_BODY)
            return "a slab's unit is no body in the directory";
        if (s->head[u] != unit || bits_test(&s->units.avail, u) || s->closed[u] != s->closed[unit])
            return "a slab's unit is also another's";
    }
    return NULL;
}

static const char *check_shape(const struct slabs *s, uint32_t unit, const struct slab *slab)
{
    if (slab->units == 0 || slab->units > units_mr_end(&s->units, unit) - unit)
        return "a slab or run leaves its MR";
    uint32_t pages = slab->units * UNIT_PAGES;
    if (slab->kind == UNIT_RUN)
        return slab->slots == 1 && slab->slot_pages == pages ? NULL : "a run is no single slot";
    if ((slab->units & (slab->units - 1u)) != 0 || unit % slab->units != 0 || slab->slots != pages / slab->slot_pages)
        return "a slab is no aligned buddy, or cut wrongly";
    return slab->header + slab->slots <= s->headers_high ? NULL : "a slab has headers that were never made usable";
}

static const char *check_slots(const struct slabs *s, uint32_t unit, const struct slab *slab, struct counted *n)
{
    uint32_t used = 0, page = unit * UNIT_PAGES;
    for (uint32_t i = 0; i < slab->slots; i++, page += slab->slot_pages) {
        uint32_t slot = slab->header + i;
        const struct slot_header *h = &s->config.headers[slot];
        if (n->headers[slot >> 6] >> (slot & 63) & 1)
            return "a header is of two slabs";
        n->headers[slot >> 6] |= UINT64_C(1) << (slot & 63);
        if (h->page != page)
            return "a header has another page than its place in the slab";
        bool is_free = bits_test(&s->free_slots, slot);
        if (is_free && word_state(slot_load(h)) != SLOT_FREE)
            return "a free slot's header is not FREE";
        used += !is_free;
    }
    if (used != slab->used)
        return "a slab's count of used slots is wrong";
    if (used == 0 && s->closed[unit] == 0)
        return "a slab without a used slot was kept";
    if (slab->class != CLASS_NONE && bits_test(&s->classes[slab->class].open, unit) != slab_is_open(s, unit))
        return "a slab is missing in its class's list, or there for nothing";
    if (slab->class == CLASS_NONE ? slab->kind == UNIT_SLAB && slab_class_of(s, slab->slot_pages) != CLASS_NONE
                                  : s->classes[slab->class].pages != slab->slot_pages)
        return "a slab is not of the class that has its slot size";
    n->used_pages += (uint64_t)used * slab->slot_pages;
    n->free_slots += slab->slots - used;
    n->free_pages += (uint64_t)(slab->slots - used) * slab->slot_pages;
    n->slabs += slab->kind == UNIT_SLAB;
    n->runs += slab->kind == UNIT_RUN;
    return NULL;
}

static const char *check_units(const struct slabs *s, struct counted *n)
{
    const char *wrong = NULL;
    for (uint32_t u = 0; u < s->n_units && wrong == NULL;) {
        if (s->head[u] == UNITS_NONE) {
            wrong = check_free_unit(s, u++, n);
            continue;
        }
        const struct slab *slab = &s->slab[u];
        if (s->head[u] != u)
            return "a unit is of a slab that does not begin there";
        wrong = check_shape(s, u, slab);
        wrong = wrong != NULL ? wrong : check_entry(s, u, slab);
        wrong = wrong != NULL ? wrong : check_slots(s, u, slab, n);
        u += slab->units;
    }
    return wrong;
}

static const char *check_lists(const struct slabs *s, const struct counted *n)
{
    for (uint32_t c = 0; c < s->n_classes; c++) {
        if (s->classes[c].pages == 0)
            continue;
        uint64_t u = bits_next(&s->classes[c].open, 0);
        for (; u != BITS_NONE; u = bits_next(&s->classes[c].open, u + 1)) {
            if (s->head[u] != u || s->slab[u].class != c)
                return "a class's list names a slab of another class";
        }
    }
    uint64_t bits = 0;
    for (uint32_t w = 0; w <= s->config.max_headers / 64; w++)
        bits += (uint64_t)__builtin_popcountll(s->free_slots.level[0][w]);
    return bits == n->free_slots ? NULL : "a header of no slab counts as a free slot";
}

static const char *check_sums(const struct slabs *s, const struct counted *n)
{
    if (n->free_units != s->free_units || n->slabs != s->n_slabs || n->runs != s->n_runs)
        return "free units, slabs or runs are counted wrongly";
    if (n->used_pages != s->used_pages || n->free_pages != s->free_slot_pages)
        return "used or free slots are counted wrongly";
    return NULL;
}

const char *slabs_check(const struct slabs *s)
{
    struct counted n = {.headers = calloc((size_t)s->config.max_headers / 64 + 1, sizeof(uint64_t))};
    if (n.headers == NULL)
        return "no memory to check with";
    const char *wrong = check_units(s, &n);
    wrong = wrong != NULL ? wrong : check_lists(s, &n);
    wrong = wrong != NULL ? wrong : check_sums(s, &n);
    wrong = wrong != NULL ? wrong : slab_classes_check(s);
    wrong = wrong != NULL ? wrong : units_check(&s->units);
    wrong = wrong != NULL ? wrong : extents_check(s->headers, n.headers);
    free(n.headers);
    return wrong;
}
