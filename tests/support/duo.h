/* duo.h: two daemons, a and b, that are each other's peers, with a client of each. */
#ifndef BERTH_TESTS_DUO_H
#define BERTH_TESTS_DUO_H

#include "tests/support/daemon.h"

struct duo {
    struct daemon daemon[2]; /* named "a" and "b" in the list of members */
    struct berth *b[2];
    char listen[2][64], list[160];
};

/* Pools of 32 MiB, no lock. Returns when each has had a key of the other. */
void duo_start(struct duo *d);
/* Asks both whether index, slots and lookup agree, and ends them. */
void duo_end(struct duo *d);
/* A key with payload_fill's bytes, of which the homes have heard. */
void duo_put(struct duo *d, unsigned node, const char *key, size_t size);
/* Until the number of the node's status is `want`, at most 20 s; fails the test otherwise, or once it is beyond. */
void duo_becomes(struct duo *d, unsigned node, const char *path, double want);
/* One line of a node's metrics, "berth_local_hits_total" or with labels as they are printed. */
double duo_metric(struct duo *d, unsigned node, const char *line);
/* `berth status --json` of the node: the text, malloc'd. */
char *duo_cli_status(struct duo *d, unsigned node);

#endif
