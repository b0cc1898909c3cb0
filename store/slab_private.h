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
#define FIXED_MAX 96u        /* sizes that are tried without anybody asking */
#define CONFIGURED_MAX 4096u /* of slabs_config */
#define LEARNED_MAX 16u      /* classes that are learned, at one time */
#define CLASSES_MAX (FIXED_MAX + CONFIGURED_MAX + LEARNED_MAX)
#define SEEN_MAX 64u /* sizes that are counted */

struct slab_class {
    uint32_t pages;   /* a slot; 0: one that was not learned yet */
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

/* A size that objects have, and how much of it came: with Metwally's Space-Saving a size that finds no place takes the
 * least one's, with its weight as what may be wrong. Weights are pages, and halve as time goes. */
struct seen {
    uint32_t pages; /* of an object; 0: no size */
    uint64_t weight;
    uint64_t error; /* at most so much of the weight was of other sizes */
};

struct slabs {
    struct slabs_config config;
    uint32_t n_units;
    uint32_t slab_units_max;
    uint32_t run_units_max;
    struct slab_class *classes; /* n_fixed by growing pages, then LEARNED_MAX to be learned */
    uint32_t n_fixed;
    uint32_t n_classes; /* n_fixed + LEARNED_MAX */
    struct seen seen[SEEN_MAX];
    uint32_t seen_last;   /* index of the size that came last */
    uint64_t seen_total;  /* pages, of sizes without a place too; halves with them */
    uint64_t seen_since;  /* pages since classes were last looked at */
    uint64_t seen_enough; /* pages after which they are: a sixteenth of the pool, a unit at least */
    uint16_t *class_for;  /* [pages]: class that an object of so many pages takes, CLASS_NONE: a run */
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

/* The smallest slab that a class fills to 98 %, else the smallest of those that it fills best: fills c in. */
void slab_class_cut(struct slab_class *c, uint32_t slab_units_max);
uint32_t slab_run_pages(uint32_t pages);
/* Whether a slot of c costs less pool than `pages` pages do. */
bool slab_class_beats(const struct slab_class *c, uint64_t pages);
/* Class of exactly these pages. */
uint32_t slab_class_of(const struct slabs *s, uint32_t pages);
int slab_classes_create(struct slabs *s);
void slab_classes_map(struct slabs *s);
void slab_classes_destroy(struct slabs *s);
/* NULL, or what is wrong with classes and sizes seen. */
const char *slab_classes_check(const struct slabs *s);

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
