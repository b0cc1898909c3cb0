/* bound.h: the hits that no eviction policy can pass, known the whole trace (MIN: what is used again last goes first).
 *
 * As in a replay by one client: the leading run of a request's blocks that is there hits, all the rest is put, and
 * blocks go between requests, down to the capacity.
 */
#ifndef BERTH_TOOLS_REPLAY_BOUND_H
#define BERTH_TOOLS_REPLAY_BOUND_H

#include "tools/replay/trace.h"

/* 0 or -ENOMEM. capacity in blocks, 1 at least. */
int bound_hits(const struct trace *t, uint64_t capacity, uint64_t *hits);

#endif
