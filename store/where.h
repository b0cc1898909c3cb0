/* where.h: where a node's socket is when nobody names one: the same list for the node that makes it and for clients. */
#ifndef BERTH_STORE_WHERE_H
#define BERTH_STORE_WHERE_H

#include <stdbool.h>
#include <stddef.h>

#define WHERE_SOCKETS 3u
#define WHERE_PATH 108u /* sun_path */

/* In the order in which a client tries them: $XDG_RUNTIME_DIR/berth.sock where that is set to an absolute path,
 * /run/berth/berth.sock, /tmp/berth-UID/berth.sock. Returns how many. */
unsigned where_sockets(char out[WHERE_SOCKETS][WHERE_PATH]);

/* The first of them that this process can make: its directory is there and may be written, or can be made. */
void where_to_serve(char out[WHERE_PATH]);

/* For a node, before it makes a socket there: makes /run/berth (0755) and /tmp/berth-UID (0700), says in *made whether
 * it did, and checks that the directory can be used. 0; -ENOENT, -ENOTDIR, -EACCES with a sentence. */
int where_prepare(const char *socket, bool *made, char *why, size_t why_size);
/* After a start that failed: removes the directory that where_prepare made. */
void where_unmake(const char *socket);

/* For a client: false for a socket of /tmp/berth-UID where that directory is not this user's alone: in /tmp anyone may
 * make one of this name first. */
bool where_trusted(const char *socket);

#endif
