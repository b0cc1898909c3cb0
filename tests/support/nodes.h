/* nodes.h: a few berthds that are each other's peers, each a process of its own, named n0, n1 .. One test program at a
 * time. */
#ifndef BERTH_TESTS_NODES_H
#define BERTH_TESTS_NODES_H

#include "tests/support/daemon.h"

#define NODES_MAX 4u
#define NODES_SOON_MS 30000

struct nodes {
    unsigned n, homes;
    struct daemon d[NODES_MAX];
    struct berth *b[NODES_MAX]; /* NULL: it does not run */
    uint32_t ns[NODES_MAX];     /* of "weights", which is replaceable */
};
extern struct nodes nodes;

/* tombstones, fresh: settings. Returns when all know what all have. */
void nodes_start(unsigned n, unsigned homes, const char *tombstones, const char *fresh);
void nodes_end(void); /* checks those that run, stops all, removes everything */
void nodes_kill(unsigned i);
void nodes_again(unsigned i);
/* SIGSTOP and SIGCONT. */
void nodes_freeze(unsigned i, bool frozen);
/* Until every node that runs has told the others all it has, and has been told. */
void nodes_quiet(void);
/* Whether it is one of the key's homes. */
bool nodes_home(unsigned i, struct berth_key key);

#endif
