/* nodes.h: several nodes that know each other: embedded ones of this process, and a berthd as the last. */
#ifndef BERTH_TESTS_NODES_H
#define BERTH_TESTS_NODES_H

#include "tests/support/daemon.h"

#define NODES_MAX 3u
#define SECONDS(n) ((n)*INT64_C(1000000000))

extern struct berth *node[NODES_MAX];
extern struct daemon nodes_daemon; /* of node n - 1 after nodes_open_daemon */

/* n of them, all embedded; more: settings for their URLs, beginning with '&'. They have met when it returns. */
void nodes_open(unsigned n, const char *more);
/* The same, but the last is a berthd with a client of this process. */
void nodes_open_daemon(unsigned n);
/* Ends one; the others stay. */
void nodes_end(unsigned i);
/* Tear-down: each is asked whether index, slots and lookup agree. */
int nodes_close(void **state);
/* Until the homes of what node i has put have heard of it. */
void nodes_settle(unsigned i);

/* Puts payload_fill's bytes, in segments of so many bytes; 0: none. */
void nodes_put(unsigned i, const char *key, size_t size, uint32_t segment);
/* Changes a byte of an object where it lies: of an embedded node. */
void nodes_damage(unsigned i, const char *key, uint64_t at);
/* Payload bytes that node i has sent to others. */
double nodes_sent(unsigned i);

#endif
