/* remote.h: what a handle on "tcp://" does: reads of other hosts' objects into the caller's memory.
 *
 * Such a handle maps nothing: its life is LIFE_REMOTE, so that client_check() refuses it, and with it every call that
 * was not written for it. Those that were begin with client_check_any() and go on here. Their requests run through the
 * handle's ring as any other's, to a thread of this process (store/shell/remote.h).
 */
#ifndef BERTH_STORE_CLIENT_REMOTE_H
#define BERTH_STORE_CLIENT_REMOTE_H

#include "store/pull.h"

/* Starts the thread and waits for the members: 0, or the error recorded. */
int remote_attach(struct berth *b, const char *url);

/* Whether it is such a handle, a parent's too. */
static inline bool remote_is(const struct berth *b)
{
    return b && b->remote;
}

/* As the functions of berth.h; get_range: but for the ranges' count and places, which the caller has checked. */
long remote_get_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                     int64_t deadline);
long remote_get_range(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                      unsigned flags, int64_t deadline);
/* Records an error of the client's thread, and returns it. */
int remote_fail(int rc);
/* Handle and arguments have been checked. */
/* There is no local pool: -EINVAL, recorded, where flags have BERTH_LOCAL; else 0. */
int remote_check_local(unsigned flags);
long remote_exists(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present);
int remote_namespace(const char *name, uint32_t *ns);

/* What is wrong with an operation's arguments; -EOPNOTSUPP, recorded, for those that need a node. */
int remote_check_op(struct berth *b, const struct berth_op *op);
/* The pull of a read: GET_INTO, GET_RANGE. NULL: no memory. */
struct call *remote_build_read(struct berth *b, const struct berth_op *op);
/* What it returns when its pull went well. */
long remote_result(const struct berth_op *op, const struct msg_pulled *p);

#endif
