/* listen.h: the Unix socket, and connections that have not said hello yet. */
#ifndef BERTH_SHELL_LISTEN_H
#define BERTH_SHELL_LISTEN_H

#include <stddef.h>

struct server;
struct listener;

/* Makes the socket of the settings, with their mode; of an embedded node, which has none, only the place for
 * connections. A socket that nobody answers at is a dead node's and is replaced. -EADDRINUSE, -EACCES, -ENOENT and
 * others: why[]. */
int listener_open(struct listener **out, struct server *s, char *why, size_t why_size);
/* Unlinks the socket if it is still this one. NULL is passed over. */
void listener_close(struct listener *l);
/* A connected socket: hello is awaited on it. It is the listener's from here, whatever happens. */
void listener_add(struct listener *l, int socket);
/* Sends away who has not said hello in time; makes the socket again if somebody removed it; accepts again after a
 * pause. */
void listener_tend(struct listener *l);
/* Whether there is somebody to send away soon. */
int listener_waits(const struct listener *l);

#endif
