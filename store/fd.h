/* fd.h: descriptors that the library keeps in a process that is not its own.
 *
 * The application may have closed its standard streams, and it may close every descriptor at once (closefrom): the
 * library's own never get the numbers 0 to 2, and under a number that has become somebody else's it neither reads,
 * writes nor closes.
 */
#ifndef BERTH_STORE_FD_H
#define BERTH_STORE_FD_H

#include <stdbool.h>
#include <stdint.h>

struct kept_fd {
    int fd;              /* -1: none */
    uint64_t dev, inode; /* eventfds and epolls share one inode with all of their kind .. */
    uint64_t id;         /* .. this is an eventfd's own, as far as /proc has it; 0 */
    char kind[24];       /* what /proc calls it: an eventfd's number may be an epoll's now */
};

#define FD_NONE ((struct kept_fd){.fd = -1})

/* The same description under a number from 3 on, close-on-exec; -1 stays -1. On a failure fd is closed, errno set, and
 * the value -1. */
int fd_above_stdio(int fd);

/* Opens /dev/null as each of 0 to 2 that is closed, in the direction in which the stream is not used: using it fails
 * with EBADF as before. The set of those that it opened (bit n: n), or a negative error. */
int fd_hold_stdio(void);
/* Closes those of the set that are still what fd_hold_stdio made them. */
void fd_release_stdio(int held);

/* Whether this process can have so many descriptors more (at most 8) now: 0, or a negative error. */
int fd_room(unsigned n);

/* Takes fd (-1: none) into *k, and learns what it is. */
void fd_keep(struct kept_fd *k, int fd);
/* Whether the number still means the same inode; cheap. */
bool fd_is_ours(const struct kept_fd *k);
/* Closes it, unless the number is somebody else's by now. */
void fd_drop(struct kept_fd *k);

#endif
