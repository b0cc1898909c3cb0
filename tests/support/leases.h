/* leases.h: what a peer asks of a core in a test, and what the core answered last. One test program at a time. */
#ifndef BERTH_TESTS_LEASES_H
#define BERTH_TESTS_LEASES_H

#include "tests/support/core.h"

#define MIB (1u << 20)
#define SECOND INT64_C(1000000000)
#define HOLD INT64_C(5301000000) /* 5 s * 1.01 + 250 ms, and a moment */

/* What the node said last of each kind, copied. */
extern struct lease_answer leased, renewed, served, recalled;
extern struct lease_grant grants[LEASE_KEYS_MAX], again[LEASE_KEYS_MAX], sending;
extern uint64_t recalled_ids[1024];
extern uint32_t n_leased, n_renewed, n_recalled, n_served;

/* For core_open: a namespace "r", id NS_R, that is replaceable; and the words above are of this core. */
void lease_options(struct core *c);

/* An event of a peer; connection and incarnation are filled in where they are 0. The core is checked after it. */
void lease_give(struct core *c, enum node_event_kind kind, struct lease_event ev);
struct key_ref lease_key(const char *key, uint32_t ns);
/* One key, lease or serve; its status. The answer's is in grants[0], again[0], sending. */
int32_t lease_ns(struct core *c, uint16_t peer, const char *key, uint32_t ns);
int32_t lease_one(struct core *c, uint16_t peer, const char *key);
int32_t lease_renew(struct core *c, uint16_t peer, uint64_t id, bool in_flight);
void lease_release(struct core *c, uint16_t peer, uint64_t id, uint32_t uses);
int32_t lease_serve(struct core *c, uint16_t peer, uint64_t id, uint64_t token);
void lease_done(struct core *c, uint16_t peer, uint64_t token, bool reset);

enum slot_state core_state(const struct core *c, uint32_t slot);
struct node_status core_status(struct core *c);

#endif
