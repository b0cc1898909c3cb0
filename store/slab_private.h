/* slab_private.h: what slab.c, slab_window.c, slab_recover.c and slab_check.c share; nobody else includes it.
 *
 * The directory is written for the next node; decisions come from this private state alone, which nobody else can
 * write.
 */
#ifndef BERTH_STORE_SLAB_PRIVATE_H
#define BERTH_STORE_SLAB_PRIVATE_H

#include "store/extent.h"
#include "store/slab.h"
#include "store/units.h"

#define CLASS_NONE UINT16_MAX
#define SLAB_UNITS_MAX 32u

struct slab_class {
    uint32_t pages;   /* a slot */
    uint32_t units;   /* a slab: a power of two */
    uint32_t slots;   /* a slab */
    struct bits open; /* first units of slabs that are not closed and have a free slot */
};

struct slab { /* a slab, or a run: one slot */
    uint32_t header;
    uint32_t slots;
    uint32_t used;
    uint32_t slot_pages;
    uint16_t units;
    uint16_t class; /* CLASS_NONE: a run, or a slot size that is no class any more */
    uint8_t kind;
};

struct slabs {
    struct slabs_config config;
    uint32_t n_units;
    uint32_t slab_units_max;
    uint32_t run_units_max;
    struct slab_class *classes; /* by growing pages */
    uint32_t n_classes;
    uint16_t *class_for; /* [pages]: class that an object of so many pages takes, CLASS_NONE: a run */
    uint32_t class_for_n;
    struct slab *slab;  /* by first unit */
    uint32_t *head;     /* first unit of the slab or run that this unit is of; UNITS_NONE: free */
    uint16_t *closed;   /* windows that this unit is in */
    struct units units; /* free units that are in no closed window */
    struct extents *headers;
    struct bits free_slots; /* headers whose slot is free, of all slabs */
    uint32_t free_units;    /* closed ones too */
    uint32_t n_slabs;
    uint32_t n_runs;
    uint32_t headers_high; /* headers [0, headers_high) have been made usable */
    uint64_t used_pages;
    uint64_t free_slot_pages;
    struct slabs_place preferred;
    uint64_t spilled;
};

/* Enters a slab or run into the private state, all of its slots free and not in any list. */
void slab_enter(struct slabs *s, uint32_t unit, const struct slab *entry);
/* Gives units and headers of a slab or run without a used slot back. */
void slab_release(struct slabs *s, uint32_t unit);
/* Whether it belongs into its class's list. */
bool slab_is_open(const struct slabs *s, uint32_t unit);
void slab_list(struct slabs *s, uint32_t unit);
/* The slab or run of a header, NULL if it is of none; *unit is its first unit. */
struct slab *slab_of(const struct slabs *s, uint32_t slot, uint32_t *unit);
/* First unit behind the slab, run or free unit that this unit is of. */
uint32_t slab_end(const struct slabs *s, uint32_t unit);

#endif
