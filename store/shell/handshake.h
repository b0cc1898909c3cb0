/* handshake.h: hello and welcome (store/attach.h). */
#ifndef BERTH_SHELL_HANDSHAKE_H
#define BERTH_SHELL_HANDSHAKE_H

#include "store/shell/state.h"

/* Reads the hello that waits on a connected socket and answers it. 0: the socket is a session's now, or was closed:
 * either way it is no longer the caller's. -EAGAIN: nothing has come yet. */
int handshake(struct server *s, int socket);

/* Sends a welcome that says why there is none, and closes. For a connection beyond what the node can take. */
void handshake_refuse(int socket, int status, const char *sentence);

/* Opens read-only descriptions of the region's files, to be sent to clients. 0 or a negative errno. */
int handshake_prepare(struct server *s);
void handshake_release(struct server *s);

#endif
