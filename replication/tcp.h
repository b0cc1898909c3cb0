/* tcp.h: the transport over TCP: sockets and epoll of Linux, no thread, no library.
 *
 * A peer is a pair of TCP connections: the first for messages, requests, small transfers and lone ones, the second for
 * bulk, so that a small read never stands behind megabytes in a socket. The second is tied to the first by a random
 * token that the accepting side has drawn.
 *
 * Payload is received by the kernel straight into the destination, so that memory which is gone gives an error and no
 * signal (rule 7), and is sent from the pool by send, or by sendfile (tcp_serve.c says when).
 *
 * Bounds for one peer: 512 requests and 512 serves at a time (56 + 96 bytes a pair, allocated when first used), one
 * received message, the queue of messages, 16 KiB of input. Pieces that wait for the window are the caller's own
 * structures.
 *
 * Plain TCP: bytes are neither encrypted nor authenticated here (rule 25).
 */
#ifndef BERTH_REPLICATION_TCP_H
#define BERTH_REPLICATION_TCP_H

#include "replication/transport.h"

extern const struct transport tcp_transport;

/* For a connection within one host: pacing (BBR's) protects queues that loopback has not, and costs a timer and a turn
 * of the kernel every few pages. Every kernel has Reno. Between hosts the algorithm is the administrator's. */
void tcp_unpace(int fd);

#endif
