/* bench_pull_nodes.h: the nodes of a run of pulls: the owner, a berthd, and the reader, an embedded node of this
 * process; with home "other" a third one, a berthd that has no object and knows where all of them are.
 */
#ifndef BERTH_TOOLS_BENCH_PULL_NODES_H
#define BERTH_TOOLS_BENCH_PULL_NODES_H

#include "tools/bench/bench.h"

#include <sched.h>

#define PULL_NODES 3u

/* What a reader counted: requests to others, and messages of any kind in both directions. */
struct pull_counts {
    int64_t asks, leases, renews, messages, verified, pulled;
};

struct pull_nodes {
    struct bench *b; /* b->b is the reader's handle, once it is open; b->node is the owner */
    struct bench_node other;
    struct berth *owner_b, *other_b;
    uint16_t port[PULL_NODES];
    char list[256]; /* "peers=.." */
    uint64_t bytes; /* of the reader's pool */
    cpu_set_t owner_cpus, reader_cpus;
    struct pull_counts counts; /* of readers that were closed, what their opening took left out */
};

/* Which CPUs owner and reader have: with --pin one each; else all that this process has. 0, or an exit code after the
 * error was reported. */
int pull_nodes_cpus(struct pull_nodes *n, struct bench *b);
/* What this process starts from now on runs there, it too. */
void pull_nodes_use(const cpu_set_t *cpus);

/* Starts the owner, with room for `slots` objects of b->size and `more` bytes beyond, and the third node. Its handle is
 * b->b until the reader is opened. 0, or an exit code after the error was reported. */
int pull_nodes_open(struct pull_nodes *n, uint64_t slots, uint64_t more);
/* Opens the reader, and waits until it can pull. Again: closes the one before, with all its leases and replicas. */
int pull_nodes_reader(struct pull_nodes *n);
/* Of all readers so far. 0 or a negative error. */
int pull_nodes_counts(struct pull_nodes *n, struct pull_counts *c);
/* Stops all; returns `code`, or CLI_FAILED if a node did not stop cleanly. */
int pull_nodes_close(struct pull_nodes *n, int code);

#endif
