/* liveness.h: who still lives (PROTOCOLS rule 6).
 *
 * A hang-up is a reason to look, never proof: a process may close its descriptors and go on reading, and a forked child
 * may keep them open. A session is dead when the pidfd of its process says so, or when its pin file's lock is free: the
 * lock belongs to the description through which the client maps the table, so it lasts as long as that mapping.
 */
#ifndef BERTH_SHELL_LIVENESS_H
#define BERTH_SHELL_LIVENESS_H

#include "store/shell/state.h"

/* Field 22 of /proc/PID/stat, 0 if it can't be read. */
uint64_t process_start_time(pid_t pid);
/* A pidfd of the process at the other end: the kernel's own word where it has one, else `offered`, if that is a
 * pidfd of this pid (or of a process that this PID namespace does not see), else one made from the pid. -1: none. */
int peer_pidfd(int socket, int offered, pid_t pid);

/* Watches pidfd and socket of a session. 0, -ENOMEM. */
int liveness_watch_process(struct session *c);
int liveness_watch_socket(struct session *c);

/* Ends the connection with a logged cause, then looks whether the client lives. */
void liveness_cut(struct session *c, const char *cause);
/* Looks: tells the core if the session is dead. */
void liveness_look(struct session *c);
/* Looks at every session that nothing else would wake the node for. Whether there are any. */
bool liveness_look_all(struct server *s);
bool liveness_needs_looks(const struct server *s);

/* Unlinks the pin file `id` if its lock can be had through fd, a description of its own. */
bool liveness_unlink(struct server *s, uint64_t id, int fd);

#endif
