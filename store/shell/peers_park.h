/* peers_park.h: what is asked of a member that has no connection yet, kept until it has one or is given up.
 *
 * A client connects when something is asked: peers_client.c decides for whom it keeps it. A node that has just begun is
 * in the middle of meeting the others: until that time is up it takes a member that it has not met for reachable, so
 * that a question that needs it waits instead of answering BERTH_EUNSURE. The puller is told so by an UP without an
 * incarnation. A member that was met and lost is down at once.
 *
 * Bounds: PULL_RPCS_MAX messages a member, which is the puller's.
 */
#ifndef BERTH_SHELL_PEERS_PARK_H
#define BERTH_SHELL_PEERS_PARK_H

#include "store/shell/peers_internal.h"

/* How long after the node began a member is awaited: one that this node connects to may be starting as well; one that
 * connects to this node may have given it up for as long as attempts lie apart at most. */
#define PEERS_AWAIT_NS INT64_C(1000000000)
#define PEERS_AWAITED_NS (PEERS_BACKOFF_MAX_NS + PEERS_BACKOFF_MAX_NS / PEERS_SPREAD_PART + INT64_C(200000000))

/* As link_ask, for a member without a connection: `done` is called once it has one, or can have none. Any context.
 * -ENOTCONN: it is not awaited. -ENOMEM. */
int park_ask(struct peers *p, uint16_t number, const void *message, size_t n, int64_t deadline, int64_t until,
             peers_answer_fn *done, void *arg);
/* What waits for this member: status 0, it is sent; else it ends with the status. Turn context. */
void park_end(struct peers *p, uint16_t number, int32_t status);
/* All that waits ends. Before the parts are closed. */
void park_close(struct peers *p);

/* A node: all other members are awaited from now on. The parts are open, no link is up. */
void await_begin(struct peers *p, int64_t now);
/* A node: it is up, and its parts know it. */
void await_met(struct peers *p, uint16_t number);
void await_turn(struct peers *p, int64_t now);
int64_t await_timer(const struct peers *p); /* CLOCK_MONOTONIC ns; INT64_MAX: nobody is awaited */

#endif
