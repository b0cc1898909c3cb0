/* nodes.h: a replay over several nodes, each a process with an embedded node that is a peer of the others. Requests go
 * to them in turn, in the order of the trace. Nodes may be killed in mid-replay and started again.
 *
 * Their regions lie in one directory on /dev/shm, which a process of its own removes when they and this process have
 * ended, however they did.
 */
#ifndef BERTH_TOOLS_REPLAY_NODES_H
#define BERTH_TOOLS_REPLAY_NODES_H

#include "tools/bench/bench_node.h"
#include "tools/replay/client.h"

#define NODES_MIN 2u
#define NODES_MAX 8u

enum nodes_restart {
    RESTART_WARM, /* what it had is there again */
    RESTART_COLD, /* empty */
    RESTART_MIXED /* the one or the other, by the seed */
};

struct nodes_config {
    const struct replay_job *job;  /* deadline_ns is set; job->shared->client[i] has node i's counts */
    struct bench_node_config node; /* of each */
    unsigned n, overlap;           /* nodes; requests that are under way at once, at most one a node */
    uint64_t kill_every;           /* requests from one kill to the next; 0: none */
    enum nodes_restart restart;
    uint64_t seed; /* which node is killed, how long after its request began, how it comes back */
    void (*progress)(void *arg, uint64_t requests);
    void *arg;
};

struct nodes_result {
    uint64_t kills, warm, cold; /* restarts */
    uint64_t cut;               /* requests that a kill ended */
    uint64_t node_kills[NODES_MAX];
    int64_t ns;
};

/* Starts them, replays the whole trace, ends them. 0, or a negative error with its sentence in why[]. */
int nodes_run(const struct nodes_config *config, struct nodes_result *out, char *why, size_t why_size);

#endif
