/* berthds.h: a few berthds that are each other's peers, each a process of its own, named n0, n1 .. One test program at a
 * time. */
#ifndef BERTH_TESTS_BERTHDS_H
#define BERTH_TESTS_BERTHDS_H

#include "tests/support/daemon.h"

#define BERTHDS_MAX 4u
#define BERTHDS_SOON_MS 30000

struct berthds {
    unsigned n, homes;
    struct daemon d[BERTHDS_MAX];
    struct berth *b[BERTHDS_MAX]; /* NULL: it does not run */
    uint32_t ns[BERTHDS_MAX];     /* of "weights", which is replaceable */
};
extern struct berthds berthds;

/* tombstones, fresh: settings. Returns when all know what all have. */
void berthds_start(unsigned n, unsigned homes, const char *tombstones, const char *fresh);
void berthds_end(void); /* checks those that run, stops all, removes everything */
void berthds_kill(unsigned i);
void berthds_again(unsigned i);
/* SIGSTOP and SIGCONT. */
void berthds_freeze(unsigned i, bool frozen);
/* Until every node that runs has told the others all it has, and has been told. */
void berthds_quiet(void);
/* Whether it is one of the key's homes. */
bool berthds_home(unsigned i, struct berth_key key);

#endif
