/* slab_window.c: windows: which slots must go so that a free block comes to be, and keeping it free until it is
 * taken. */
#include "store/slab_private.h"

uint32_t slab_end(const struct slabs *s, uint32_t unit)
{
    uint32_t head = s->head[unit];
    return head == UNITS_NONE ? unit + 1 : head + s->slab[head].units;
}

static uint32_t start_of(const struct slabs *s, uint32_t unit)
{
    return s->head[unit] == UNITS_NONE ? unit : s->head[unit];
}

/* [from, to) grown to whole slabs, runs and free units. */
static void whole(const struct slabs *s, uint32_t from, uint32_t to, struct slabs_window *out)
{
    uint32_t first = start_of(s, from);
    *out = (struct slabs_window){.unit = first, .units = slab_end(s, to - 1) - first};
}

/* Aligned blocks that have something of [first, end): one for a slab, which is aligned itself, several for a run. Where
 * one lies inside, the slot's own slab or run is the only window. */
static bool block_window(const struct slabs *s, uint32_t first, uint32_t end, uint32_t units, uint32_t shift,
                         struct slabs_window *out)
{
    if ((first + units - 1) / units * units + units <= end) {
        whole(s, first, end, out);
        return shift == 0;
    }
    for (uint32_t a = first - first % units; a < end; a += units) {
        if (a + units <= units_mr_end(&s->units, a) && shift-- == 0) {
            whole(s, a < first ? a : first, a + units > end ? a + units : end, out);
            return true;
        }
    }
    return false;
}

/* Stretches of `units` that begin at a border at or to the left of `first` and have something of [first, end). */
static bool run_window(const struct slabs *s, uint32_t first, uint32_t end, uint32_t units, uint32_t shift,
                       struct slabs_window *out)
{
    uint32_t limit = units_mr_end(&s->units, first);
    uint32_t begin = first - first % s->units.mr;
    if (end - first >= units) {
        whole(s, first, end, out);
        return shift == 0;
    }
    for (uint32_t at = first; (uint64_t)at + units > first; at = start_of(s, at - 1)) {
        if (units <= limit - at && shift-- == 0) {
            whole(s, at, at + units > end ? at + units : end, out);
            return true;
        }
        if (at == begin)
            break;
    }
    return false;
}

bool slabs_window(const struct slabs *s, uint32_t slot, uint32_t pages, uint32_t shift, struct slabs_window *out)
{
    uint32_t unit, units = slabs_units_for(s, pages);
    const struct slab *slab = slab_of(s, slot, &unit);
    if (slab == NULL || units == 0)
        return false;
    uint32_t end = unit + slab->units;
    return pages % UNIT_PAGES == 0 ? run_window(s, unit, end, units, shift, out)
                                   : block_window(s, unit, end, units, shift, out);
}

/* The first used slot of a slab with an index of at least `from`. */
static uint32_t slab_used(const struct slabs *s, const struct slab *slab, uint32_t from)
{
    uint32_t end = slab->header + slab->slots;
    for (uint32_t h = slab->header + from; h < end;) {
        uint64_t used = ~s->free_slots.level[0][h >> 6] >> (h & 63);
        if (used != 0) {
            h += (uint32_t)__builtin_ctzll(used);
            return h < end ? h : SLOT_NONE;
        }
        h += 64 - (h & 63);
    }
    return SLOT_NONE;
}

/* A cursor is (unit + 1) << 32 | index of the next slot there. Slabs may come and go between two calls: a unit that has
 * become part of something else is passed over with it. */
uint32_t slabs_window_next(const struct slabs *s, const struct slabs_window *w, uint64_t *cursor)
{
    uint64_t end = (uint64_t)w->unit + w->units;
    uint64_t unit = *cursor != 0 ? (*cursor >> 32) - 1 : w->unit;
    uint32_t index = (uint32_t)*cursor;
    if (end > s->n_units)
        end = s->n_units;
    while (unit < end) {
        const struct slab *slab = &s->slab[unit];
        bool here = s->head[unit] == unit && index < slab->slots;
        uint32_t slot = here ? slab_used(s, slab, index) : SLOT_NONE;
        if (slot != SLOT_NONE) {
            *cursor = (unit + 1) << 32 | (slot - slab->header + 1);
            return slot;
        }
        unit = slab_end(s, (uint32_t)unit);
        index = 0;
    }
    *cursor = (unit + 1) << 32;
    return SLOT_NONE;
}

uint32_t slabs_next(const struct slabs *s, uint64_t *cursor)
{
    struct slabs_window all = {.unit = 0, .units = s->n_units};
    return slabs_window_next(s, &all, cursor);
}

static bool in_pool(const struct slabs *s, const struct slabs_window *w)
{
    return w->units > 0 && w->unit < s->n_units && w->units <= s->n_units - w->unit;
}

void slabs_close(struct slabs *s, const struct slabs_window *w)
{
    if (!in_pool(s, w))
        return;
    for (uint32_t u = w->unit; u < w->unit + w->units; u++) {
        s->closed[u]++;
        if (s->head[u] == UNITS_NONE)
            units_take(&s->units, u, 1);
        else if (s->head[u] == u)
            slab_list(s, u);
    }
}

void slabs_open(struct slabs *s, const struct slabs_window *w)
{
    if (!in_pool(s, w))
        return;
    for (uint32_t u = w->unit; u < w->unit + w->units; u++)
        s->closed[u] -= s->closed[u] > 0;
    for (uint32_t u = w->unit; u < w->unit + w->units;) {
        uint32_t next = slab_end(s, u);
        if (s->closed[u] == 0 && s->head[u] == UNITS_NONE)
            units_give(&s->units, u, 1);
        else if (s->closed[u] == 0 && s->head[u] == u && s->slab[u].used == 0)
            slab_release(s, u);
        else if (s->closed[u] == 0 && s->head[u] == u)
            slab_list(s, u);
        u = next;
    }
}
