/* pull.h: what BERTH_PEERS is made of: PULLs to the node, before what they brought is pinned or copied here. */
#ifndef BERTH_STORE_PULL_H
#define BERTH_STORE_PULL_H

#include "store/client.h"

#define PULL_TRIES 8u /* pulls of a key that was gone again when it was looked for */

/* The flags of a read that concern its pull alone. */
#define PULL_READ_FLAGS ((unsigned)(BERTH_PEERS | BERTH_FRESH))
/* Whether a read's flags go together. */
static inline bool pull_flags_agree(unsigned flags)
{
    return (flags & PULL_READ_FLAGS) != BERTH_FRESH && !((flags & BERTH_LOCAL) && (flags & BERTH_PEERS));
}
/* Records what is wrong where they do not: -EINVAL, or 0. */
int pull_check_flags(unsigned flags);
/* Among the flags of pull_build and pull_build_into: the reply is to have records. Public calls refuse it. */
#define PULL_WANT_RECORD (1u << 31)

/* A PULL for keys[index[0]], keys[index[1]] .., or keys[0].. where index is NULL: at most n of them, MSG_PULL_KEYS, and
 * as many as one message has room for; *taken says how many. flags: of the read. NULL: no memory. */
struct call *pull_build(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n,
                        unsigned flags, bool prefix, int64_t deadline, uint32_t *taken);
/* Where a pull may write: memory of the node's own process, or a buffer that was registered with it. */
struct pull_place {
    enum msg_pull_kind kind;
    uint64_t buffer, to; /* as in msg_pull; to: of the first byte */
    uint64_t attachment; /* that a registered one is of */
};
/* Whether these bytes are such memory: then where. May ask the node, until the deadline. */
bool pull_place(struct berth *b, const void *data, uint64_t size, int64_t deadline, struct pull_place *out);

/* What a read copies out of an object: all of it into size bytes at buffer, or n ranges. */
struct pull_out {
    void *buffer;
    size_t size;
    const struct berth_range *ranges; /* NULL: all */
    size_t n;
};
bool pull_out_place(struct berth *b, const struct pull_out *o, int64_t deadline, struct pull_place *out);
/* The same of one key into a place. Memory of the node's own process is written until it answers: it is not given up
 * before. */
struct call *pull_build_into(struct berth *b, const struct berth_key *key, const struct pull_out *o,
                             const struct pull_place *place, unsigned flags, int64_t deadline);
static inline bool pull_direct(const struct berth *b)
{
    return b->server != NULL || b->remote != NULL;
}

/* What the reply to a PULL of n keys says of each, in out[n]. 0 or a negative error for all of them. */
int pull_outcome(int status, const struct msg_reply *r, uint32_t bytes, uint32_t n, struct msg_pulled *out);
/* The name at the end of a reply to n keys, where it has one; else "". */
void pull_unasked(const struct msg_reply *r, uint32_t bytes, uint32_t n, char out[64]);
/* The records of a reply that pull_outcome took, in out[n]; those of a node that sends none stay empty but for what
 * msg_pulled has. */
void pull_records(const struct msg_reply *r, uint32_t bytes, uint32_t n, struct berth_record *out);
/* The record of what was here, without any pull. */
void pull_record_local(struct berth_record *out);

/* Sends a PULL of n keys, which becomes the handle's, and waits: as pull_outcome. c NULL: -ENOMEM. */
int pull_run(struct berth *b, struct call *c, uint32_t n, struct msg_pulled *pulled);

/* A pull and the wait for it; pulled is of MSG_PULL_KEYS. 0, or a negative error, which is not recorded. */
int pull_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, unsigned flags,
              bool prefix, int64_t deadline, struct msg_pulled *pulled, uint32_t *taken);

/* Until one key is here: 0: it was pulled, BERTH_KEPT: it came otherwise; or why not. With BERTH_WAIT until the
 * deadline, however it comes: by a put here, too. */
int pull_key(struct berth *b, const struct berth_key *key, unsigned flags, int64_t deadline);

/* After a miss with BERTH_WAIT: some time passes, the more the greater turn is, or it is put here. 0: look again, at
 * peers too; or a negative error, not recorded. */
int pull_pause(struct berth *b, const struct berth_key *key, unsigned turn, int64_t deadline);

/* One key into the caller's memory: bytes; PULL_IS_HERE: it is in the pool, copy it; PULL_NOT_SO: that can't be done in
 * this way, pull it into the pool; or a negative error, recorded. */
#define PULL_IS_HERE (-1000000L)
#define PULL_NOT_SO (-1000001L)
long pull_into(struct berth *b, const struct berth_key *key, const struct pull_out *o, const struct pull_place *place,
               unsigned flags, int64_t deadline);
/* What an outcome is of the read's: as pull_into, nothing recorded. */
long pull_into_result(const struct pull_out *o, int rc, const struct msg_pulled *pulled);
/* Records that a range goes beyond the object of this size. -ERANGE, or 0: none does. */
int pull_check_bounds(uint64_t size, const struct berth_range *ranges, size_t n);
/* Records that nobody is asked with BERTH_NOW. -ETIMEDOUT. */
int pull_fail_now(void);
/* Records that an object is larger than the buffer. -ENOSPC. */
long pull_too_large(uint64_t object, size_t size);

#endif
