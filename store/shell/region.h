/* region.h: a region directory: its lock, its files, their mappings, its index.
 *
 *   lock       OFD-locked by the node that runs; holds its pid and start time (region_lock.h)
 *   pool-0     payload
 *   slots      superblock, slab directory, slot headers (sparse, grown by fallocate ahead of use)
 *   lookup     hash table
 *   tails      cells (sparse, grown likewise)
 *   clients/   pin files, one a session
 *   index/     LMDB
 */
#ifndef BERTH_SHELL_REGION_H
#define BERTH_SHELL_REGION_H

#include "index/lmdb.h"
#include "index/lookup.h"
#include "store/memkind.h"
#include "store/numa.h"
#include "store/slab.h"
#include "store/shell/settings.h"

/* region_numa.h. */
struct region_numa {
    struct numa_plan plan;                 /* where the pool's pages were asked for, and are */
    char note[700];                        /* what of it is not as asked; or empty */
    struct slabs_place places[NUMA_PARTS]; /* where there are two at least: parts of the pool, by where they are */
    uint32_t place_node[NUMA_PARTS];
    uint32_t n_places;
    uint8_t place_of_cpu[NUMA_CPUS]; /* 1 + the place that is near; 0: none */
};

/* How much of a file lies on pages of 2 MiB, at the start of the node. */
struct region_part_pages {
    uint64_t bytes;      /* that could: whole 2 MiB with memory */
    uint64_t huge_bytes; /* that do, by what the kernel says of this process's mapping */
    bool unknown;
};

struct region_pages {
    struct region_part_pages pool, lookup, slots;
};

struct region {
    char path[256];
    int dir_fd, clients_fd, lock_fd;
    const struct memkind *kind;
    struct mem_pool pool;
    int slots_fd, lookup_fd, tails_fd;
    uint64_t slots_bytes, lookup_bytes, tails_bytes;
    struct slots_super *super;
    struct slab_entry *dir;
    struct slot_header *headers;
    struct lookup lookup;
    uint8_t *tails;
    uint32_t n_tails;
    struct lmdb_index *index;
    uint64_t incarnation;
    bool first;                /* made new: nothing to recover */
    bool clean;                /* the last node stopped cleanly */
    bool remove;               /* embedded: unlink everything at close */
    bool lost;                 /* made new in place of one that had, or may have had, objects */
    bool relooked;             /* the lookup is a new file, to be filled from the index */
    bool resized;              /* the pool got another size: who has it mapped has to map it again */
    uint64_t dropped;          /* objects that lay beyond its new end */
    char resize_note[160];     /* what became of it: half a sentence */
    char began[400];           /* one sentence: new because .., or warm restart of .. */
    struct region_pages pages; /* region_pages.h */
    bool locked;               /* the pool is mlocked */
    char lock_note[200];       /* why not */
    bool made;                 /* the directory was made by this open */
    uint32_t headers_ready;    /* headers and cells that have memory */
    uint32_t tails_ready;
    struct region_numa numa;
};

/* Opens or makes the region that the settings name (an embedded node whose settings name none: a directory of its own
 * that goes at close): takes the lock, waits until the process that had it is gone, checks space in tmpfs, cgroup v1
 * and v2, memory and memlock before it removes or allocates anything, reserves and populates, formats or attaches. What
 * dead embedded nodes left beside it goes when it is open, or before where that gives the room that is missing. Regions
 * of other nodes are never touched: where one that does not run has the room that is missing, why[] names it. Another
 * boot, pool UUID or format starts empty and `began` says why. A lookup that is missing or damaged is made anew, for
 * the node to fill from the index. A region with objects gets another pool size as
 * region_resize.h says, or is refused with -EINVAL or -EBUSY; its MR size and most objects stay what they were.
 * 0; -EBUSY ("held by pid N"); -ECANCELED (progress said stop); -ENOSPC, -ENOMEM
 * ("needs X, Y free at PATH", with the fix); -EPERM (lock=required); -ENOTEMPTY (the directory has files and is no
 * region: region_ours.h); -EACCES; -EIO. On an error nothing is left behind that was not there. */
int region_open(struct region *r, const struct settings *s, const struct mem_progress *progress, char *why,
                size_t why_size);
/* Unmaps and unlocks; clean: every commit is done, mark it so. */
void region_close(struct region *r, bool clean);

/* For node_event: any number may be given. */
static inline uint8_t region_place_of(const struct region *r, int cpu)
{
    return cpu >= 0 && cpu < (int)NUMA_CPUS ? r->numa.place_of_cpu[cpu] : 0;
}

/* For node_config: env is the region. */
int region_grow_headers(void *env, uint32_t n);
int region_grow_tails(void *env, uint32_t n);

/* Whether every file is still linked where it was (logind and tmpfiles remove files of running services): 0, or -ENOENT
 * with a sentence that names file, cause and fix. Existing mappings stay valid. */
int region_linked(const struct region *r, char *why, size_t why_size);

#endif
