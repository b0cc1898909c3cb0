/* hand.h: a node with a socket on a thread of the test, and clients that speak its protocol by hand, well or badly. */
#ifndef BERTH_TESTS_HAND_H
#define BERTH_TESTS_HAND_H

#include "store/attach.h"
#include "store/msg.h"
#include "store/ring.h"

#include <stddef.h>

extern char hand_dir[64];   /* of the test, with the region in it */
extern char hand_path[108]; /* of the socket */

/* Fixtures of a group: directory and node. */
int hand_setup(void **unused);
int hand_teardown(void **unused);
void hand_node_start(void);
void hand_node_stop(void);

struct hand {
    int socket;
    struct attach_hello hello;
    size_t bytes; /* of hello that are sent */
    int fds[8];
    unsigned n_fds;
    struct ring_shared *ring;
    int wake;
    struct attach_welcome welcome;
    int got[ATTACH_WELCOME_FDS];
    unsigned n_got;
};

/* A hello that is right in everything, for a test to spoil one thing in. */
void hand_open(struct hand *h);
void hand_close(struct hand *h);
void hand_send(struct hand *h);
void hand_receive(struct hand *h);
/* open, send, receive: must be welcome. */
void hand_attach(struct hand *h);
/* send, receive: must be refused with this error and a sentence, no descriptors, and the connection ends; closes. */
void hand_refused(struct hand *h, int status);
int hand_ring_file(unsigned seals, size_t bytes);
/* A request and its reply through the ring: the reply's bytes. */
int hand_ask(struct hand *h, uint64_t id, void *message, uint32_t bytes, void *reply);
/* The session answers. */
void hand_works(struct hand *h, uint64_t id);
/* The node welcomes and answers a new client. */
void hand_node_goes_on(void);

#endif
