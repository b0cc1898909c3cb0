/* node_process.h: one node of a replay over several: a process with an embedded node that is a peer of the others, and
 * the client that takes its requests.
 */
#ifndef BERTH_TOOLS_REPLAY_NODE_PROCESS_H
#define BERTH_TOOLS_REPLAY_NODE_PROCESS_H

#include "tools/replay/client.h"

struct node_process {
    const struct replay_job *job;
    unsigned index, n; /* which of how many */
    int control;       /* SOCK_SEQPACKET: requests come in, words go out */
    int64_t meet_ns;   /* how long it waits for the others before it takes requests */
    bool must_meet;    /* and fails without them */
    const char *url;
    struct replay_counts *c;
};

enum node_says {
    NODE_READY,  /* takes requests */
    NODE_DONE,   /* with a request */
    NODE_FAILED, /* the counts say why: c->error, c->sentence */
};

struct node_word {
    uint32_t says;   /* enum node_says */
    uint32_t in_use; /* FAILED: its port is */
};

/* Runs until the other end of `control` closes: 0; or until an error, which it has said. A request is a uint64_t, its
 * index. */
int node_process(const struct node_process *p);

#endif
