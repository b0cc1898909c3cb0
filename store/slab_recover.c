/* slab_recover.c: slabs and runs as an earlier node left them in the directory. Nothing there is trusted. */
#include "store/slab_private.h"

#include "store/slot.h"

static bool bodies_follow(const struct slabs *s, uint32_t unit, uint32_t units)
{
    for (uint32_t u = unit + 1; u < unit + units; u++) {
        if (atomic_load_explicit(&s->config.dir[u].kind, memory_order_acquire) != UNIT_BODY)
            return false;
    }
    return true;
}

/* The entry's fields as a slab, if they make one that can be at this unit. */
static bool entry_read(const struct slabs *s, uint32_t unit, uint8_t kind, struct slab *out)
{
    struct slab_entry copy = {
        .header = s->config.dir[unit].header,
        .slot_pages = s->config.dir[unit].slot_pages,
        .units = s->config.dir[unit].units,
        .pool = s->config.dir[unit].pool,
    };
    uint32_t max = kind == UNIT_SLAB ? SLAB_UNITS_MAX : s->run_units_max;
    if (copy.units == 0 || copy.units > max || copy.units > units_mr_end(&s->units, unit) - unit || copy.pool != 0)
        return false;
    uint32_t pages = copy.units * UNIT_PAGES;
    if (copy.slot_pages == 0 || copy.slot_pages > pages)
        return false;
    if (kind == UNIT_RUN && copy.slot_pages != pages)
        return false;
    if (kind == UNIT_SLAB && ((copy.units & (copy.units - 1u)) != 0 || unit % copy.units != 0))
        return false;
    *out = (struct slab){
        .header = copy.header,
        .slots = pages / copy.slot_pages,
        .slot_pages = copy.slot_pages,
        .units = copy.units,
        .class = CLASS_NONE,
        .kind = kind,
    };
    return bodies_follow(s, unit, copy.units);
}

/* Headers must say the same of their pages as the entry; those in use are counted. */
static bool headers_agree(const struct slabs *s, uint32_t unit, const struct slab *slab, uint32_t *used)
{
    uint32_t page = unit * UNIT_PAGES, n = 0;
    for (uint32_t i = 0; i < slab->slots; i++, page += slab->slot_pages) {
        const struct slot_header *h = &s->config.headers[slab->header + i];
        if (h->page != page)
            return false;
        n += word_state(slot_load(h)) != SLOT_FREE;
    }
    *used = n;
    return true;
}

static void slots_used(struct slabs *s, uint32_t unit)
{
    struct slab *slab = &s->slab[unit];
    for (uint32_t i = 0; i < slab->slots; i++) {
        uint32_t slot = slab->header + i;
        if (word_state(slot_load(&s->config.headers[slot])) != SLOT_FREE) {
            bits_clear(&s->free_slots, slot);
            slab->used++;
            s->used_pages += slab->slot_pages;
            s->free_slot_pages -= slab->slot_pages;
        }
    }
    for (uint32_t c = 0; c < s->n_classes && slab->kind == UNIT_SLAB; c++) {
        if (s->classes[c].pages == slab->slot_pages)
            slab->class = (uint16_t)c;
    }
    slab_list(s, unit);
}

/* 1: entered; 0: it had no used slot; -1: it contradicts something. */
static int entry_take(struct slabs *s, uint32_t unit, uint8_t kind)
{
    struct slab slab;
    uint32_t used;
    if (!entry_read(s, unit, kind, &slab) || slab.header >= s->config.max_headers ||
        slab.slots > s->config.max_headers - slab.header)
        return -1;
    uint32_t end = slab.header + slab.slots;
    if (end > s->headers_high) {
        if (s->config.grow(s->config.env, end) != 0)
            return -1;
        s->headers_high = end;
    }
    if (!headers_agree(s, unit, &slab, &used))
        return -1;
    if (used == 0)
        return 0;
    if (extents_claim(s->headers, slab.header, slab.slots) != 0)
        return -1;
    slab_enter(s, unit, &slab);
    slots_used(s, unit);
    return 1;
}

uint32_t slabs_recover(struct slabs *s)
{
    uint32_t dropped = 0;
    for (uint32_t u = 0; u < s->n_units;) {
        uint8_t kind = atomic_load_explicit(&s->config.dir[u].kind, memory_order_acquire);
        int taken = kind == UNIT_SLAB || kind == UNIT_RUN ? entry_take(s, u, kind) : 0;
        dropped += taken < 0 || kind > UNIT_BODY;
        if (taken > 0) {
            u += s->slab[u].units;
            continue;
        }
        /* A body without its first unit is what a node killed while it cut or gave back leaves: free, no damage. */
        if (kind != UNIT_FREE)
            atomic_store_explicit(&s->config.dir[u].kind, UNIT_FREE, memory_order_release);
        u++;
    }
    extents_recovered(s->headers);
    return dropped;
}
