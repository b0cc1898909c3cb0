/* processes.h: the clients of a replay in processes of their own, forked before any handle is opened. */
#ifndef BERTH_TOOLS_REPLAY_PROCESSES_H
#define BERTH_TOOLS_REPLAY_PROCESSES_H

#include "tools/replay/client.h"

#include <sys/types.h>

#define PROCESSES_MAX 64u

struct processes {
    const struct replay_job *job;
    unsigned n;
    pid_t child[PROCESSES_MAX];
    int pidfd[PROCESSES_MAX];
    int ready[2];   /* a byte of every client that has its handle, or has failed to get one */
    int node_up[2]; /* its end: job->shared->url is written */
    int go[2];      /* its end: begin */
};

/* Forks n clients, which wait. 0 or a negative errno; processes_join follows in either case. */
int processes_fork(struct processes *p, const struct replay_job *job, unsigned n);

/* Lets them open their handles and waits until all have, or one has ended. */
void processes_open(struct processes *p);

/* Lets them begin. */
void processes_go(struct processes *p);

/* Waits for all of them, calling each(arg, requests) some times a second. What still waits is let go: set
 * job->shared->stop first where it should do nothing. How many failed. */
unsigned processes_join(struct processes *p, void (*each)(void *arg, uint64_t requests), void *arg);

#endif
