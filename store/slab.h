/* slab.h: who has which pages of the pool. Part of the deterministic core: no clock, no system call.
 *
 * The pool is numbered in pages of 4 KiB and units of 2 MiB. A slab is a buddy of 1 to 32 units (2 to 64 MiB),
 * aligned to its own size, at most 1/16 of the pool (one unit at least), cut into slots of one size; a class takes
 * the smallest slab that it fills to 98 %, else the smallest of those allowed that it fills best. An object takes a
 * run of units where that costs no more of the pool than a slot (2, 4, 6 MiB ..), or where it is larger than any
 * class. Neither straddles a multiple of mr_bytes. A slab that is cut takes the smallest free run of headers that is
 * large enough, lowest first among equals; headers keep their generations. A slab without a used slot loses its class
 * at once.
 *
 * Classes are fixed sizes (4 KiB x {1, 1.25, 1.5, 1.75} x 2^k), configured ones, and at most 16 learned from the sizes
 * that objects have (slab_learn.c). The directory does not say which class a slab is of, only its slot size: after a
 * restart a learned class comes back when its size has been seen again, of the objects that are there first of all, and
 * takes the slabs of its size.
 *
 * Invariants (slabs_check proves them):
 *   units      = free units + sum of units over slabs and runs; no two overlap
 *   headers    = free headers + sum of slots over slabs and runs; no two overlap
 *   slots      = free + used in every slab; used(slab) > 0 unless it is closed
 *   every header of a slab has page = slab's first page + index * slot_pages
 *   a slot that the allocator calls free has a header in state FREE
 *   an object of exactly a class's size takes that class
 */
#ifndef BERTH_STORE_SLAB_H
#define BERTH_STORE_SLAB_H

#include "store/layout.h"

#include <stdbool.h>
#include <stddef.h>

struct slabs;

struct slabs_config {
    uint64_t pool_bytes;     /* multiple of UNIT_BYTES */
    uint64_t mr_bytes;       /* multiple of UNIT_BYTES */
    const uint32_t *classes; /* slot sizes in pages beside the fixed ones, any order */
    uint32_t n_classes;
    uint32_t max_headers;
    struct slot_header *headers;
    struct slab_entry *dir;                   /* pool_bytes / UNIT_BYTES entries */
    int (*grow)(void *env, uint32_t headers); /* makes headers [0, n) usable; 0 or -ENOSPC */
    void *env;
};

struct slabs_usage {
    uint64_t free_bytes;    /* free units and free slots */
    uint64_t largest_bytes; /* largest object that fits without evicting */
    uint64_t used_bytes;    /* slots in use, whole */
    uint32_t free_units;
    uint32_t slabs;
    uint32_t runs;
    uint32_t headers_used; /* highest header ever used + 1 */
    uint64_t spilled;      /* slots ever given outside the place that was preferred */
};

/* A stretch of whole slabs, runs and free units, which becomes one free block of `units` once all its slots are. */
struct slabs_window {
    uint32_t unit;
    uint32_t units;
};

/* 0, -EINVAL (a size that is no multiple, a class of 0 pages), -ENOMEM. Nothing is read from dir or headers. */
int slabs_create(struct slabs **out, const struct slabs_config *config);
void slabs_destroy(struct slabs *s);

/* Takes slabs and runs from dir as an earlier node left it; slots whose state word is not FREE count as used. An entry
 * that contradicts another or the pool is dropped (its kind set UNIT_FREE, counted); slabs without a used slot go.
 * Returns the number of dropped entries. */
uint32_t slabs_recover(struct slabs *s);

/* Pages of the slot that an object of `bytes` takes (0 bytes takes one page); 0: larger than any object can be here. */
uint32_t slabs_pages_for(const struct slabs *s, uint64_t bytes);

/* Whether a configured class of `pages` was not made, and why: a sentence's end. */
bool slabs_class_unused(const struct slabs *s, uint32_t pages, char *why, size_t why_size);

/* An object of `bytes` was sealed: sizes are counted, 64 at most, and older ones weigh less and less. */
void slabs_saw(struct slabs *s, uint64_t bytes);

/* Learns and drops classes, where enough came since the last time; else it costs a comparison. A size becomes a class
 * when that spares a thousandth of the pool that the objects seen would take, and at least one slab's worth of them
 * was seen; it stays until it spares less than a quarter of that and no slab is cut for it. may_drop false: nobody who
 * keeps pages from slabs_pages_for must find them gone; pages of a class that stays are good as long as it stays. Walks
 * over the pool's units where a class comes or may go. true: something changed. */
bool slabs_learn(struct slabs *s, bool may_drop);

struct slabs_class {
    uint64_t bytes;      /* a slot */
    uint64_t slab_bytes; /* a slab */
    uint64_t slots;      /* of all its slabs, and those of them in use */
    uint64_t used;
    bool learned;
    bool is_class; /* false: slabs of an earlier node, of a size that is not learned again yet */
};

/* Classes that have slabs, and learned ones, by growing size: how many, at most `max` of them in out. Walks over the
 * pool's units. */
uint32_t slabs_classes(const struct slabs *s, struct slabs_class *out, uint32_t max);

/* A slot of exactly `pages` as slabs_pages_for gave them: its header is FREE and has its page. SLOT_NONE: no space, or
 * no header could be had (*why = -ENOSPC), else *why = 0. why may be NULL. */
uint32_t slabs_alloc(struct slabs *s, uint32_t pages, int *why);

/* From now on slots come from units [unit, unit + units) where there is room, else from anywhere, which is counted. 0
 * units: from anywhere, uncounted. */
struct slabs_place {
    uint32_t unit;
    uint32_t units;
};
void slabs_prefer(struct slabs *s, struct slabs_place place);

/* Gives a slot back; the caller has stored FREE with the next generation. */
void slabs_free(struct slabs *s, uint32_t slot);

/* Pages of the slot, whole; 0 if the header is of no slab. */
uint32_t slabs_slot_pages(const struct slabs *s, uint32_t slot);
bool slabs_is_slot(const struct slabs *s, uint32_t slot);
/* Walks over the free stretches: for reports and refusals, not for the path of a put. */
void slabs_usage(const struct slabs *s, struct slabs_usage *out);

/* Units of the block that a new slab or run for `pages` needs. */
uint32_t slabs_units_for(const struct slabs *s, uint32_t pages);

/* The window that contains `slot` and would give a free block of slabs_units_for(pages): whole slabs and runs only,
 * inside one MR. Where several are possible (for a run, or around one) `shift` 0, 1, .. counts them. false: no more. */
bool slabs_window(const struct slabs *s, uint32_t slot, uint32_t pages, uint32_t shift, struct slabs_window *out);

/* Slots in use of a window, in address order: start with *cursor = 0; SLOT_NONE at the end. */
uint32_t slabs_window_next(const struct slabs *s, const struct slabs_window *w, uint64_t *cursor);

/* A closed window's slabs give no slots; free units in it aren't given either. slabs_open undoes it and lets slabs that
 * have become empty lose their class. */
void slabs_close(struct slabs *s, const struct slabs_window *w);
void slabs_open(struct slabs *s, const struct slabs_window *w);

/* Every slot in use of the pool, in address order. */
uint32_t slabs_next(const struct slabs *s, uint64_t *cursor);

/* NULL if the invariants hold, else a sentence about the first that does not (static storage, per thread). */
const char *slabs_check(const struct slabs *s);

#endif
