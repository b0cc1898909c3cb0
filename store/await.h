/* await.h: waiting at the node until keys are ready: what BERTH_WAIT and BERTH_JOIN are made of. */
#ifndef BERTH_STORE_AWAIT_H
#define BERTH_STORE_AWAIT_H

#include "store/client.h"

#define AWAIT_KEYS MSG_WAIT_KEYS

/* A WAIT for keys[index[0]], keys[index[1]] .., or keys[0].. where index is NULL: at most n of them, AWAIT_KEYS, and as
 * many as one message has room for; *taken says how many. flags: MSG_WAIT_WRITTEN, MSG_WAIT_RUN. NULL: no memory. */
struct call *await_build(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n,
                         uint32_t flags, int64_t deadline, uint32_t *taken);

/* What a reply to it says of its n keys, in state[n]: 0 or a negative error. */
int await_states(int status, const struct msg_reply *r, uint32_t bytes, uint32_t n, uint8_t *state);

/* Both, and the wait between them. state is of AWAIT_KEYS. 0, or a negative error, which is not recorded. */
int await_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, uint32_t flags,
               int64_t deadline, uint8_t *state, uint32_t *taken);

/* Whether a deadline leaves no time: there is nothing to wait for then. */
static inline bool await_over(int64_t deadline)
{
    return deadline != BERTH_FOREVER && client_now() >= deadline;
}

/* The error of a key whose wait ended in this state without it, 0 for WAIT_READY. */
int await_error(uint8_t state);

/* For a create that joins: BERTH_KEPT once the key is sealed, 0 where nobody writes it any more, or a negative error.
 */
int await_writer(struct berth *b, const struct berth_key *key, int64_t deadline);
/* The same of a state that came by itself. */
int await_outcome(uint8_t state, int64_t deadline);

#endif
