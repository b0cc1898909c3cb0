/* remote.h: the far side of a handle on "tcp://": a thread of the application that pulls from nodes of other hosts.
 *
 * It is what an embedded node is, without the node: the handle's ring is served by the peers of a client
 * (peers_client.h). There is no pool and no index, nothing is mapped. PULL into the caller's memory, CANCEL, STAT and
 * DETACH are served, everything else is answered -EOPNOTSUPP.
 *
 * Names are resolved on libuv's threads. A resolver that does not answer holds nobody up: who opens or closes leaves
 * the thread to end by itself, and it touches nothing of the handle any more.
 */
#ifndef BERTH_SHELL_REMOTE_H
#define BERTH_SHELL_REMOTE_H

#include <stddef.h>
#include <stdint.h>

struct remote;

struct remote_config {
    const char *url;    /* "tcp://HOST:PORT", then "?cluster=NAME&verify=1/16&peer-trust=network" or nothing */
    const char *name;   /* of the client, in the nodes' logs and reports */
    int64_t timeout_ns; /* to connect and learn the members, and for STAT; INT64_MAX: none */
    int ring, wake;     /* the handle's memfd and eventfd: duplicated */
};

/* Returns when the members are known. *socket: hangs up when the thread has ended; *doorbell: an eventfd to ring after
 * a request while the ring says that the node sleeps. Both are the caller's, also after an error; -1: none. 0, or a
 * negative error with a sentence: -EINVAL (address or setting), BERTH_ENODE (nobody there, no such name, not a node,
 * silent), -EACCES (another cluster, or an address that peer-trust does not allow), -EUSERS (it has as many clients as
 * it takes), BERTH_EFORMAT, -ENOMEM, -EMFILE. */
int remote_start(struct remote **out, const struct remote_config *config, int *socket, int *doorbell, char *why,
                 size_t why_size);

/* Ends every pull; when it returns nothing writes to the callers' memory any more. Not from two threads. */
void remote_stop(struct remote *r);

#endif
