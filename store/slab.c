/* slab.c: slots, and the slabs and runs that they are cut from.
 *
 * A put and a free touch the slab's entry, one word of the free-slot bits and, where a slab fills or opens, one word of
 * its class's list. Everything is found lowest address first, so that what is in use gathers at one end.
 */
#include "store/slab_private.h"

#include "store/slot.h"

#include <errno.h>
#include <stdlib.h>

static int config_check(const struct slabs_config *c)
{
    if (c->pool_bytes == 0 || c->pool_bytes % UNIT_BYTES != 0 || c->mr_bytes == 0 || c->mr_bytes % UNIT_BYTES != 0)
        return -EINVAL;
    if (c->pool_bytes / PAGE_BYTES > UINT32_MAX || c->max_headers >= SLOT_NONE || c->n_classes > CONFIGURED_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < c->n_classes; i++) {
        if (c->classes[i] == 0)
            return -EINVAL;
    }
    return 0;
}

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

int slabs_create(struct slabs **out, const struct slabs_config *config)
{
    int e = config_check(config);
    if (e != 0)
        return e;
    struct slabs *s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->config = *config;
    s->n_units = s->free_units = (uint32_t)(config->pool_bytes / UNIT_BYTES);
    uint64_t mr = config->mr_bytes / UNIT_BYTES;
    uint32_t mr_units = least(mr, s->n_units);
    s->run_units_max = least(mr_units, OBJECT_MAX / UNIT_BYTES);
    uint32_t share = least(s->n_units / 16, mr_units);
    s->seen_enough = (uint64_t)s->n_units * UNIT_PAGES / 16;
    s->seen_enough = s->seen_enough > UNIT_PAGES ? s->seen_enough : UNIT_PAGES;
    for (s->slab_units_max = 1; s->slab_units_max * 2 <= least(share, SLAB_UNITS_MAX);)
        s->slab_units_max *= 2;

    s->slab = calloc(s->n_units, sizeof *s->slab);
    s->head = malloc(s->n_units * sizeof *s->head);
    s->closed = calloc(s->n_units, sizeof *s->closed);
    e = s->slab == NULL || s->head == NULL || s->closed == NULL ? -ENOMEM : 0;
    e = e != 0 ? e : slab_classes_create(s);
    e = e != 0 ? e : units_create(&s->units, s->n_units, mr_units);
    e = e != 0 ? e : extents_create(&s->headers, config->max_headers, s->n_units + 1);
    e = e != 0 ? e : bits_create(&s->free_slots, config->max_headers);
    if (e != 0) {
        slabs_destroy(s);
        return e;
    }
    s->config.classes = NULL; /* the caller's, needed no longer */
    for (uint32_t u = 0; u < s->n_units; u++)
        s->head[u] = UNITS_NONE;
    units_give(&s->units, 0, s->n_units);
    *out = s;
    return 0;
}

void slabs_destroy(struct slabs *s)
{
    if (s == NULL)
        return;
    bits_destroy(&s->free_slots);
    extents_destroy(s->headers);
    units_destroy(&s->units);
    slab_classes_destroy(s);
    free(s->closed);
    free(s->head);
    free(s->slab);
    free(s);
}

uint32_t slabs_pages_for(const struct slabs *s, uint64_t bytes)
{
    uint64_t pages = bytes == 0 ? 1 : bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0);
    if (pages < s->class_for_n && s->class_for[pages] != CLASS_NONE)
        return s->classes[s->class_for[pages]].pages;
    if (pages > (uint64_t)s->run_units_max * UNIT_PAGES)
        return 0;
    return slab_run_pages((uint32_t)pages);
}

static bool is_run(const struct slabs *s, uint32_t pages)
{
    return pages > 0 && pages % UNIT_PAGES == 0 && pages / UNIT_PAGES <= s->run_units_max;
}

uint32_t slabs_units_for(const struct slabs *s, uint32_t pages)
{
    uint32_t c = slab_class_of(s, pages);
    if (c != CLASS_NONE)
        return s->classes[c].units;
    return is_run(s, pages) ? pages / UNIT_PAGES : 0;
}

struct slab *slab_of(const struct slabs *s, uint32_t slot, uint32_t *unit)
{
    if (slot >= s->headers_high)
        return NULL;
    uint32_t u = s->config.headers[slot].page / UNIT_PAGES;
    if (u >= s->n_units || s->head[u] == UNITS_NONE)
        return NULL;
    struct slab *slab = &s->slab[s->head[u]];
    if (slot < slab->header || slot - slab->header >= slab->slots)
        return NULL;
    *unit = s->head[u];
    return slab;
}

bool slab_is_open(const struct slabs *s, uint32_t unit)
{
    const struct slab *slab = &s->slab[unit];
    return slab->class != CLASS_NONE && slab->used < slab->slots && s->closed[unit] == 0;
}

void slab_list(struct slabs *s, uint32_t unit)
{
    const struct slab *slab = &s->slab[unit];
    if (slab_is_open(s, unit))
        bits_set(&s->classes[slab->class].open, unit);
    else if (slab->class != CLASS_NONE)
        bits_clear(&s->classes[slab->class].open, unit);
}

void slab_enter(struct slabs *s, uint32_t unit, const struct slab *entry)
{
    s->slab[unit] = *entry;
    for (uint32_t u = 0; u < entry->units; u++)
        s->head[unit + u] = unit;
    units_take(&s->units, unit, entry->units);
    bits_set_range(&s->free_slots, entry->header, entry->slots);
    s->free_units -= entry->units;
    s->free_slot_pages += (uint64_t)entry->slots * entry->slot_pages;
    if (entry->kind == UNIT_SLAB)
        s->n_slabs++;
    else
        s->n_runs++;
}

void slab_release(struct slabs *s, uint32_t unit)
{
    struct slab old = s->slab[unit];
    if (old.class != CLASS_NONE)
        bits_clear(&s->classes[old.class].open, unit);
    bits_clear_range(&s->free_slots, old.header, old.slots);
    extents_give(s->headers, old.header, old.slots);
    for (uint32_t u = unit; u < unit + old.units; u++) {
        atomic_store_explicit(&s->config.dir[u].kind, UNIT_FREE, memory_order_release);
        s->head[u] = UNITS_NONE;
    }
    units_give(&s->units, unit, old.units);
    s->free_units += old.units;
    s->free_slot_pages -= (uint64_t)old.slots * old.slot_pages;
    if (old.kind == UNIT_SLAB)
        s->n_slabs--;
    else
        s->n_runs--;
}

/* Writes what the next node needs: headers and fields first, the kind of the first unit last, so that a node killed in
 * between leaves a free unit. A header that no slab had may be in another state after a damaged directory: it becomes
 * FREE with the next generation, never the same again. */
static void slab_write(struct slabs *s, uint32_t unit, const struct slab *slab)
{
    uint32_t page = unit * UNIT_PAGES;
    for (uint32_t i = 0; i < slab->slots; i++, page += slab->slot_pages) {
        struct slot_header *h = &s->config.headers[slab->header + i];
        uint64_t word = slot_load(h);
        if (word_state(word) != SLOT_FREE)
            slot_store(h, word_gen(word) + 1, SLOT_FREE);
        h->page = page;
    }
    struct slab_entry *entry = &s->config.dir[unit];
    entry->header = slab->header;
    entry->slot_pages = slab->slot_pages;
    entry->units = slab->units;
    entry->pool = 0;
    entry->reserved = 0;
    for (uint32_t u = 1; u < slab->units; u++)
        atomic_store_explicit(&entry[u].kind, UNIT_BODY, memory_order_relaxed);
    atomic_store_explicit(&entry->kind, slab->kind, memory_order_release);
}

/* Takes headers for a slab or run at `unit` and enters it. 0 or -ENOSPC. */
static int slab_make(struct slabs *s, uint32_t unit, struct slab *slab)
{
    slab->header = extents_take(s->headers, slab->slots);
    if (slab->header == EXTENT_NONE)
        return -ENOSPC;
    uint32_t end = slab->header + slab->slots;
    if (end > s->headers_high) {
        if (s->config.grow(s->config.env, end) != 0) {
            extents_give(s->headers, slab->header, slab->slots);
            return -ENOSPC;
        }
        s->headers_high = end;
    }
    slab_write(s, unit, slab);
    slab_enter(s, unit, slab);
    return 0;
}

static uint32_t slot_take(struct slabs *s, uint32_t unit)
{
    struct slab *slab = &s->slab[unit];
    uint32_t slot = (uint32_t)bits_next(&s->free_slots, slab->header);
    bits_clear(&s->free_slots, slot);
    slab->used++;
    s->used_pages += slab->slot_pages;
    s->free_slot_pages -= slab->slot_pages;
    if (slab->used == slab->slots && slab->class != CLASS_NONE)
        bits_clear(&s->classes[slab->class].open, unit);
    return slot;
}

static uint32_t slab_alloc(struct slabs *s, uint32_t class, struct slabs_place in, int *why)
{
    struct slab_class *c = &s->classes[class];
    uint64_t open = bits_next(&c->open, in.unit);
    if (open < (uint64_t)in.unit + in.units)
        return slot_take(s, (uint32_t)open);

    uint32_t unit = units_find_block(&s->units, (unsigned)__builtin_ctz(c->units), in.unit, in.unit + in.units);
    if (unit == UNITS_NONE)
        return SLOT_NONE;
    struct slab slab = {
        .slots = c->slots,
        .slot_pages = c->pages,
        .units = (uint16_t)c->units,
        .class = (uint16_t) class,
        .kind = UNIT_SLAB,
    };
    *why = slab_make(s, unit, &slab);
    if (*why != 0)
        return SLOT_NONE;
    bits_set(&c->open, unit);
    return slot_take(s, unit);
}

/* A run whose length is a power of two takes a buddy where there is one, so that it breaks no larger block. */
static uint32_t run_alloc(struct slabs *s, uint32_t units, struct slabs_place in, int *why)
{
    uint32_t unit = UNITS_NONE, end = in.unit + in.units;
    if ((units & (units - 1)) == 0 && units <= SLAB_UNITS_MAX)
        unit = units_find_block(&s->units, (unsigned)__builtin_ctz(units), in.unit, end);
    if (unit == UNITS_NONE && units > 1)
        unit = units_find_run(&s->units, units, in.unit, end);
    if (unit == UNITS_NONE)
        return SLOT_NONE;
    struct slab run = {
        .slots = 1,
        .slot_pages = units * UNIT_PAGES,
        .units = (uint16_t)units,
        .class = CLASS_NONE,
        .kind = UNIT_RUN,
    };
    *why = slab_make(s, unit, &run);
    return *why == 0 ? slot_take(s, unit) : SLOT_NONE;
}

static uint32_t alloc_in(struct slabs *s, uint32_t pages, struct slabs_place in, int *why)
{
    uint32_t class = slab_class_of(s, pages);
    if (class != CLASS_NONE)
        return slab_alloc(s, class, in, why);
    return is_run(s, pages) ? run_alloc(s, pages / UNIT_PAGES, in, why) : SLOT_NONE;
}

void slabs_prefer(struct slabs *s, struct slabs_place place)
{
    bool inside = place.unit < s->n_units && place.units <= s->n_units - place.unit;
    s->preferred = inside ? place : (struct slabs_place){0, 0};
}

uint32_t slabs_alloc(struct slabs *s, uint32_t pages, int *why)
{
    int cause = 0;
    uint32_t slot = SLOT_NONE;
    if (s->preferred.units > 0)
        slot = alloc_in(s, pages, s->preferred, &cause);
    if (slot == SLOT_NONE && cause == 0) {
        slot = alloc_in(s, pages, (struct slabs_place){0, s->n_units}, &cause);
        s->spilled += slot != SLOT_NONE && s->preferred.units > 0;
    }
    if (slot == SLOT_NONE && why != NULL)
        *why = cause;
    return slot;
}

void slabs_free(struct slabs *s, uint32_t slot)
{
    uint32_t unit;
    struct slab *slab = slab_of(s, slot, &unit);
    if (slab == NULL || bits_test(&s->free_slots, slot))
        return;
    bits_set(&s->free_slots, slot);
    s->used_pages -= slab->slot_pages;
    s->free_slot_pages += slab->slot_pages;
    bool was_full = slab->used-- == slab->slots;
    if (s->closed[unit] != 0)
        return;
    if (slab->used == 0)
        slab_release(s, unit);
    else if (was_full && slab->class != CLASS_NONE)
        bits_set(&s->classes[slab->class].open, unit);
}

uint32_t slabs_slot_pages(const struct slabs *s, uint32_t slot)
{
    uint32_t unit;
    const struct slab *slab = slab_of(s, slot, &unit);
    return slab != NULL ? slab->slot_pages : 0;
}

bool slabs_is_slot(const struct slabs *s, uint32_t slot)
{
    return slabs_slot_pages(s, slot) != 0;
}

/* The largest object that a free slot of an open slab holds, in pages: a class's size, its waste included. */
static uint64_t largest_open(const struct slabs *s)
{
    uint64_t largest = 0;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        const struct slab_class *class = &s->classes[c];
        if (class->pages > largest && bits_next(&class->open, 0) != BITS_NONE)
            largest = class->pages;
    }
    return largest;
}

void slabs_usage(const struct slabs *s, struct slabs_usage *out)
{
    uint64_t run = (uint64_t)least(units_longest(&s->units), s->run_units_max) * UNIT_PAGES;
    uint64_t slot = largest_open(s);
    *out = (struct slabs_usage){
        .free_bytes = (uint64_t)s->free_units * UNIT_BYTES + s->free_slot_pages * PAGE_BYTES,
        .largest_bytes = (run > slot ? run : slot) * PAGE_BYTES,
        .used_bytes = s->used_pages * PAGE_BYTES,
        .free_units = s->free_units,
        .slabs = s->n_slabs,
        .runs = s->n_runs,
        .headers_used = s->headers_high,
        .spilled = s->spilled,
    };
}
