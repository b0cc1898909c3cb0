/* slab_class.c: which slot sizes there are, how a slab is cut for one, and which one an object takes. */
#include "store/amount.h"
#include "store/slab_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Cut of a class: the smallest slab that it fills to 98 %, else the smallest of those that it fills best. */
void slab_class_cut(struct slab_class *c, uint32_t slab_units_max)
{
    c->units = c->slots = 0;
    for (uint32_t units = 1; units <= slab_units_max; units *= 2) {
        uint32_t slots = units * UNIT_PAGES / c->pages;
        if ((uint64_t)slots * c->units > (uint64_t)c->slots * units || c->units == 0) {
            c->units = units;
            c->slots = slots;
        }
        if ((uint64_t)slots * c->pages * 100 >= (uint64_t)units * UNIT_PAGES * 98)
            return;
    }
}

uint32_t slab_run_pages(uint32_t pages)
{
    return (pages + UNIT_PAGES - 1) / UNIT_PAGES * UNIT_PAGES;
}

/* Whether a slot of c costs less pool than `pages` pages do. */
bool slab_class_beats(const struct slab_class *c, uint64_t pages)
{
    return c->slots > 0 && (uint64_t)c->units * UNIT_PAGES < pages * c->slots;
}

static int compare_pages(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* 1, 2 and 3 pages, and 4, 5, 6 and 7 times a power of two: a quarter of a power of two apart. */
static bool fixed_size(uint32_t pages)
{
    while (pages > 7 && pages % 2 == 0)
        pages /= 2;
    return pages <= 7;
}

/* Slot sizes that may become classes, sorted; returns how many. */
static uint32_t class_candidates(const struct slabs_config *config, uint32_t max_pages, uint32_t *pages)
{
    uint32_t n = 0;
    for (uint64_t base = 4; base <= 4 * (uint64_t)max_pages; base *= 2) {
        for (uint64_t quarter = 4; quarter < 8; quarter++)
            pages[n++] = (uint32_t)((base * quarter / 4 + 3) / 4);
    }
    for (uint32_t i = 0; i < config->n_classes; i++)
        pages[n++] = config->classes[i];
    qsort(pages, n, sizeof *pages, compare_pages);
    return n;
}

/* Which class an object takes: the smallest that holds it, if that beats a run. Learned classes lie behind the others
 * in their table, in any order. */
void slab_classes_map(struct slabs *s)
{
    uint32_t order[CLASSES_MAX], n = 0;
    for (uint32_t c = 0; c < s->n_classes; c++) {
        uint32_t at = n;
        if (s->classes[c].pages == 0)
            continue;
        for (; at > 0 && s->classes[order[at - 1]].pages > s->classes[c].pages; at--)
            order[at] = order[at - 1];
        order[at] = c;
        n++;
    }
    for (uint32_t p = 1, at = 0; p < s->class_for_n; p++) {
        while (at < n && s->classes[order[at]].pages < p)
            at++;
        bool slab = at < n && slab_class_beats(&s->classes[order[at]], slab_run_pages(p));
        s->class_for[p] = slab ? (uint16_t)order[at] : CLASS_NONE;
    }
}

/* A class is made only where its slots cost less pool than a larger class's or a run of units: every other size would
 * hold slabs that others could not share, for nothing. */
int slab_classes_create(struct slabs *s)
{
    uint32_t max_pages = s->slab_units_max * UNIT_PAGES;
    uint32_t *pages = calloc(FIXED_MAX + (size_t)s->config.n_classes, sizeof *pages);
    struct slab_class *kept = calloc(FIXED_MAX + (size_t)s->config.n_classes, sizeof *kept);
    s->class_for_n = max_pages + 1;
    s->class_for = calloc(s->class_for_n, sizeof *s->class_for);
    int e = pages == NULL || kept == NULL || s->class_for == NULL ? -ENOMEM : 0;
    uint32_t n = e == 0 ? class_candidates(&s->config, max_pages, pages) : 0;
    uint32_t first = n;
    for (uint32_t i = n; i-- > 0;) {
        struct slab_class c = {.pages = pages[i]};
        if (c.pages > max_pages)
            continue;
        slab_class_cut(&c, s->slab_units_max);
        bool dearer = first < n && (uint64_t)c.units * kept[first].slots >= (uint64_t)kept[first].units * c.slots;
        if (slab_class_beats(&c, slab_run_pages(c.pages)) && !dearer)
            kept[--first] = c;
    }
    s->classes = calloc((size_t)(n - first) + LEARNED_MAX, sizeof *s->classes);
    if (s->classes == NULL)
        e = -ENOMEM;
    for (uint32_t i = first; i < n && e == 0; i++) {
        s->classes[s->n_fixed] = kept[i];
        e = bits_create(&s->classes[s->n_fixed].open, s->n_units);
        s->n_fixed += e == 0;
    }
    if (e == 0) {
        s->n_classes = s->n_fixed + LEARNED_MAX; /* those to be learned have no pages yet */
        slab_classes_map(s);
    }
    free(kept);
    free(pages);
    return e;
}

void slab_classes_destroy(struct slabs *s)
{
    for (uint32_t i = 0; s->classes != NULL && i < s->n_fixed + LEARNED_MAX; i++)
        bits_destroy(&s->classes[i].open);
    free(s->class_for);
    free(s->classes);
}

/* Class of exactly these pages. No class is a whole number of units: a run would not cost more. */
uint32_t slab_class_of(const struct slabs *s, uint32_t pages)
{
    uint32_t c = pages < s->class_for_n && pages > 0 ? s->class_for[pages] : CLASS_NONE;
    return c != CLASS_NONE && s->classes[c].pages == pages ? c : CLASS_NONE;
}

bool slabs_class_unused(const struct slabs *s, uint32_t pages, char *why, size_t why_size)
{
    struct slab_class c = {.pages = pages};
    char size[AMOUNT_SIZE];
    if (slab_class_of(s, pages) != CLASS_NONE && !fixed_size(pages))
        return false;
    slab_class_cut(&c, s->slab_units_max);
    if (slab_class_of(s, pages) != CLASS_NONE)
        snprintf(why, why_size, "slots of this size are there without it");
    else if (pages >= s->class_for_n)
        snprintf(why, why_size, "a slab of this pool has at most %s: such objects take whole 2 MiB units",
                 amount((uint64_t)s->slab_units_max * UNIT_BYTES, size));
    else if (!slab_class_beats(&c, slab_run_pages(pages)))
        snprintf(why, why_size, "whole 2 MiB units cost no more of the pool");
    else
        snprintf(why, why_size, "slots of %s cost no more of the pool",
                 amount(slabs_pages_for(s, (uint64_t)pages * PAGE_BYTES) * (uint64_t)PAGE_BYTES, size));
    return true;
}
