/* nodes_place.h: where the nodes of a replay live: their directory, their ports, their URLs. */
#ifndef BERTH_TOOLS_REPLAY_NODES_PLACE_H
#define BERTH_TOOLS_REPLAY_NODES_PLACE_H

#include "tools/bench/bench_node.h"
#include "tools/replay/nodes.h"

#include <sys/types.h>

#define NODES_URL 1024u

struct nodes_place {
    char dir[64];
    pid_t keeper;
    int kept; /* every process of the replay has it open: its end comes with the last one's */
    uint16_t port[NODES_MAX];
    uint64_t tries;
};

/* A directory, and the process that removes it at the end. 0 or a negative errno. */
int nodes_place_open(struct nodes_place *p);
/* After the last node has ended. */
void nodes_place_close(struct nodes_place *p);

/* Loopback ports that nobody listens on now, other ones at each call. 0, -EADDRINUSE or another negative errno. */
int nodes_place_ports(struct nodes_place *p, unsigned n);

void nodes_place_url(const struct nodes_place *p, const struct bench_node_config *config, unsigned i, unsigned n,
                     char out[NODES_URL]);

/* Removes what node i has kept. */
void nodes_place_empty(const struct nodes_place *p, unsigned i);

#endif
