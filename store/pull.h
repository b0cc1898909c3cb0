/* pull.h: what BERTH_PEERS is made of: PULLs to the node, before what they brought is pinned or copied here. */
#ifndef BERTH_STORE_PULL_H
#define BERTH_STORE_PULL_H

#include "store/client.h"

#define PULL_TRIES 8u /* pulls of a key that was gone again when it was looked for */

/* The flags of a read that concern its pull alone. */
#define PULL_READ_FLAGS ((unsigned)(BERTH_PEERS | BERTH_FRESH))

/* A PULL for keys[index[0]], keys[index[1]] .., or keys[0].. where index is NULL: at most n of them, MSG_PULL_KEYS, and
 * as many as one message has room for; *taken says how many. flags: of the read. NULL: no memory. */
struct call *pull_build(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n,
                        unsigned flags, bool prefix, int64_t deadline, uint32_t *taken);
/* The same of one key into size bytes at buffer, where the node is in this process (pull_direct). It is not given up
 * before the node answers: until then the memory is written. */
struct call *pull_build_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                             int64_t deadline);
static inline bool pull_direct(const struct berth *b)
{
    return b->server != NULL || b->remote != NULL;
}

/* What the reply to a PULL of n keys says of each, in out[n]. 0 or a negative error for all of them. */
int pull_outcome(int status, const struct msg_reply *r, uint32_t bytes, uint32_t n, struct msg_pulled *out);

/* A pull and the wait for it; pulled is of MSG_PULL_KEYS. 0, or a negative error, which is not recorded. */
int pull_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, unsigned flags,
              bool prefix, int64_t deadline, struct msg_pulled *pulled, uint32_t *taken);

/* Until one key is here, or why not. With BERTH_WAIT until the deadline, however it comes: by a put here, too. */
int pull_key(struct berth *b, const struct berth_key *key, unsigned flags, int64_t deadline);

/* One key into the caller's memory: its size; PULL_IS_HERE: it is in the pool, copy it; or a negative error, recorded.
 */
#define PULL_IS_HERE (-1000000L)
long pull_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
               int64_t deadline);
/* Records that an object is larger than the buffer. -ENOSPC. */
long pull_too_large(uint64_t object, size_t size);

#endif
