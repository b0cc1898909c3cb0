/* buffers.h: memory of clients that pulls write into: memfds which came over a session's socket and are mapped here.
 *
 * Who may write a file may cut it, and a load behind its end would be SIGBUS (PROTOCOLS rule 7): so nothing is mapped
 * that is not sealed against shrinking, nor huge pages, which a client can take away again. A buffer belongs to one
 * connection of one session. It stays mapped while a pull writes into it, whatever has become of the session.
 *
 * Bounds: BUFFERS_MAX buffers of BUFFERS_BYTES together for a session. Mapping costs addresses only; pages that nobody
 * has touched before are the node's, in its control group, once a pull has written them. All on the node's thread.
 */
#ifndef BERTH_SHELL_BUFFERS_H
#define BERTH_SHELL_BUFFERS_H

#include "store/shell/state.h"

#define BUFFERS_MAX 64u
#define BUFFERS_BYTES (UINT64_C(1) << 38) /* 256 GiB */

struct buffer {
    TAILQ_ENTRY(buffer) entry;
    uint8_t *base;
    uint64_t bytes;
    uint32_t number; /* of the session, never given twice while its node runs */
    uint32_t users;  /* pulls that write into it */
    bool gone;       /* its connection has ended: unmapped after the last of them */
};

/* Takes what has come over the socket: 1 there was a descriptor, 0 nothing, -EPROTO something else. */
int buffers_receive(struct session *c);
/* BUFFER: answers it. From dispatch. */
void buffers_request(struct session *c, const struct msg_buffer *m);
/* The connection has ended. */
void buffers_drop(struct session *c);

/* One user more of the session's buffer with this number; NULL: it has none. */
struct buffer *buffer_take(struct session *c, uint64_t number);
void buffer_leave(struct buffer *b);

#endif
