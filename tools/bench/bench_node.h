/* bench_node.h: a berthd for the time of one run: in a temporary region on /dev/shm, with a socket in it.
 *
 * A keeper process stands between: it starts berthd, stops it and removes the region when this process says so or
 * is gone, however it ended. So nothing is left running after a kill.
 */
#ifndef BERTH_TOOLS_BENCH_NODE_H
#define BERTH_TOOLS_BENCH_NODE_H

#include "store/berth.h"

#include <stdbool.h>
#include <sys/types.h>

#define BENCH_NODE_MORE 12u

struct bench_node_config {
    uint64_t slots;      /* objects that have room at once */
    uint64_t slot_bytes; /* pool bytes of each, bench_slot_bytes() */
    uint64_t room_slots; /* beyond: drafts, grants, what waits for its readers */
    uint64_t high_slots; /* evict above so many; 0: no eviction while they fit */
    uint64_t low_slots;
    uint64_t pool;           /* bytes of the pool; 0: what all of this needs */
    uint64_t headers;        /* max-objects; 0: some more than all of this needs */
    const char *policy;      /* NULL: the default */
    const char *const *more; /* further settings, "NAME=VALUE", up to a NULL; at most BENCH_NODE_MORE; NULL: none */
};

struct bench_node {
    pid_t keeper, pid; /* pid: of berthd */
    int stop;          /* closing it ends the node */
    int report;        /* says berthd's pid when it is ready; its end comes with berthd's */
    int exit;          /* berthd's exit code, once it was stopped; -1: it was killed, or is not known */
    char dir[64];
    char url[128]; /* unix:PATH */
};

/* Pool bytes that an object of this size takes in a class of its own. */
uint64_t bench_slot_bytes(uint64_t size);

/* Starts a node and connects to it. 0, or a negative error with a sentence in why[]; -ENOSPC: berthd refused to start,
   -EINVAL: its settings are wrong. name: shown in the node's
   reports. */
int bench_node_start(struct bench_node *n, const struct bench_node_config *config, const char *name, struct berth **b,
                     char *why, size_t why_size);
/* Stops it cleanly and starts it over its region with the same settings. No handle on it may be open. 0, with the time
   from the end of one to the other's word that it is ready; -EIO: it did not stop cleanly, or did not start. */
int bench_node_restart(struct bench_node *n, int64_t *ns);
/* Stops it and removes its region. 0; -EIO: it did not stop cleanly. */
int bench_node_stop(struct bench_node *n);

/* What follows "embedded:" for the same configuration. */
void bench_node_settings(const struct bench_node_config *config, char *out, size_t size);

#endif
