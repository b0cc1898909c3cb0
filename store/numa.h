/* numa.h: where a pool's pages are to lie, and where they do.
 *
 * A pool is one file; its bytes are cut into parts of about the same size, one a NUMA node, each bound to its node by
 * mbind before its pages come. What came is then asked of the kernel with move_pages, page by page, and kept as it is
 * said: nothing here says "placed" because a call succeeded. One thread at a time, but for numa_run_on. */
#ifndef BERTH_STORE_NUMA_H
#define BERTH_STORE_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMA_PARTS 16u      /* nodes that a pool may be spread over */
#define NUMA_SEEN 16u       /* nodes that pages are told apart by; further ones count as the last */
#define NUMA_NODE_MAX 1023u /* the kernel's masks end there */
#define NUMA_CPUS 1024u
#define NUMA_LOOKS 65536u /* pages of a pool that are asked for: all of them, or so many at equal distances */

struct numa_part {
    uint64_t from, to;          /* bytes of the pool; multiples of 2 MiB */
    uint32_t node;              /* asked for */
    int error;                  /* negative errno of mbind, or 0 */
    uint64_t looked;            /* pages asked for */
    uint64_t absent;            /* of these not there yet */
    uint64_t on[NUMA_SEEN];     /* of these on numa_plan.seen[i] */
    _Atomic uint32_t threads;   /* that populated it from a CPU of its node */
    _Atomic uint32_t elsewhere; /* from another, since none of its node's may be used */
};

struct numa_plan {
    uint32_t n;      /* parts; 0: nothing is asked for, and nothing looked at */
    bool verified;   /* move_pages answered for every part */
    bool moved;      /* pages of an earlier start lay elsewhere, and the kernel was asked to move them */
    int look_error;  /* negative errno of move_pages */
    uint32_t n_seen; /* nodes on which pages were found */
    uint32_t seen[NUMA_SEEN];
    uint64_t
        pages[NUMA_SEEN]; /* there, of those looked at; from /proc/self/numa_maps where move_pages did not answer */
    uint64_t page_bytes;  /* that each page looked at stands for */
    struct numa_part part[NUMA_PARTS];
};

/* Nodes whose memory this process may use, ascending; how many, at most `most`. From /proc and /sys: no system call
 * that a filter may forbid. 0: not known, or a kernel without NUMA. */
uint32_t numa_allowed(uint32_t *nodes, uint32_t most);

/* Cuts a pool of `bytes` among n nodes (1 .. NUMA_PARTS). No slab of such a pool straddles two parts. A small pool may
 * have fewer parts than there are nodes. */
void numa_cut(struct numa_plan *plan, const uint32_t *nodes, uint32_t n, uint64_t bytes);

/* Asks the kernel to take pages of base[part] from its node from now on, others where it has none. */
void numa_bind(struct numa_plan *plan, void *base);

/* Asks where the pages are. warm: the file is an earlier start's; pages elsewhere are moved, but for those that another
 * process maps or a device has pinned. */
void numa_look(struct numa_plan *plan, void *base, bool warm);

/* All is as it was asked, and known to be. */
bool numa_settled(const struct numa_plan *plan);

/* Writes a sentence of what is not as asked, with node, call, errno and what would have to be permitted; empty where
 * numa_settled. */
void numa_note(const struct numa_plan *plan, char *out, size_t size);

/* "node 0: 64 MiB, node 1: 62 MiB", as they lie. */
void numa_placed(const struct numa_plan *plan, char *out, size_t size);

/* The node on which most pages of the part were found; false: none was. */
bool numa_mostly(const struct numa_plan *plan, uint32_t part, uint32_t *node);

/* Moves the calling thread to those of the allowed CPUs that are part p's node's, and counts it there; to all that are
 * allowed where it has none, and counts it as elsewhere. */
void numa_run_on(struct numa_plan *plan, uint32_t p, const cpu_set_t *allowed);

/* Fills cpu[0 .. NUMA_CPUS) with `value` for every CPU of the node. 0, -ENOENT. */
int numa_cpus(uint32_t node, uint8_t *cpu, uint8_t value);

#endif
