/* scan.h: reading clients' pin tables: which slots are pinned, how much, and the counters of local reads.
 *
 * A pin table is its client's to write, so the node reads it with pread, never through a mapping: a client may truncate
 * its file (PROTOCOLS rule 7). Every number found there is bounded before use.
 */
#ifndef BERTH_SHELL_SCAN_H
#define BERTH_SHELL_SCAN_H

#include "store/layout.h"
#include "store/map.h"

#include <stdbool.h>

struct pin_table {
    int fd;                /* a description of its own, without the lock; -1: closed */
    uint32_t acknowledged; /* entries that the client may use */
    struct pins_file *map; /* in a BERTH_MAP_ONCE build only */
};

struct scanner {
    uint32_t n_slots;
    uint64_t *asked; /* bit a slot: of this scan */
    uint64_t *found;
    uint32_t *entries; /* SCAN_CHUNK, what was read */
};
#define SCAN_CHUNK 4096u

struct lane_sums {
    uint64_t counter[LANE_COUNTERS];
    uint64_t get_ns[32];
};

int pin_table_open(struct pin_table *t, int fd, uint32_t acknowledged); /* takes fd; 0 or a negative errno */
void pin_table_close(struct pin_table *t);
/* Entries that may be in use, and a stretch of them (slot + 1, unchecked). pins_read returns how many it read; fewer
 * than asked where the file ends; a negative errno. */
long pins_used(const struct pin_table *t);
long pins_read(const struct pin_table *t, uint32_t first, uint32_t *out, uint32_t n);
/* Adds the table's counters to sums. */
void pins_lanes(const struct pin_table *t, struct lane_sums *sums);
/* Whether the client that owns the file still holds its lock: 1 or 0, negative errno. */
int pins_locked(const struct pin_table *t);

int scanner_create(struct scanner *sc, uint32_t n_slots); /* 0, -ENOMEM */
void scanner_destroy(struct scanner *sc);

/* One scan: begin (with its fence), each table, end: bit i of pinned says that slots[i] is in some table. A table that
 * can't be read counts as pinning everything. */
void scan_begin(struct scanner *sc, const uint32_t *slots, uint32_t n);
void scan_table(struct scanner *sc, const struct pin_table *t);
void scan_end(struct scanner *sc, const uint32_t *slots, uint32_t n, uint64_t *pinned);

/* Calls back once for every slot that the table pins, in order of first entry. */
int scan_each(struct scanner *sc, const struct pin_table *t, void (*each)(void *arg, uint32_t slot), void *arg);

#endif
