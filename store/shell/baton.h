/* baton.h: which thread does the node's work, for an embedded node.
 *
 * A caller that waits for its own node would sleep while the node's thread works, and be woken by it: two hand-overs
 * for every request, which cost more than a pull of 64 KiB spends on anything else. So the caller takes the baton and
 * turns the loop itself (loop_drive), unless the node's thread is awake. All that belongs to the node's thread belongs
 * to whoever holds the baton.
 *
 * The node's thread sleeps without the baton, in poll on the loop's own descriptor. What wakes a caller in the loop
 * wakes it too; it finds the baton taken and parks, for PARK_NS, again and again while callers follow each other
 * closely. So what a caller leaves undone waits for PARK_NS at most.
 */
#ifndef BERTH_SHELL_BATON_H
#define BERTH_SHELL_BATON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct baton {
    _Atomic uint32_t taken;    /* 1: somebody holds it */
    _Atomic uint32_t unpark;   /* futex: counts what should end a park */
    _Atomic int64_t parked_ns; /* how long the node's thread parks; 0: it does not */
    _Atomic int64_t given;     /* CLOCK_MONOTONIC ns: when a caller gave it back last; 0: never */
    _Atomic uint64_t drives;   /* callers that took it */
    _Atomic int64_t gap_ns;    /* from one's giving to the next one's taking, smoothed */
};

/* A caller: true: it holds the baton now. */
bool baton_take(struct baton *b);
/* .. and gives it back. False: the node's thread does not park: if anything is left to do, it must be woken. */
bool baton_give(struct baton *b);

/* The node's thread: returns with the baton, when no caller holds it and none is expected at once. */
void baton_regain(struct baton *b);
/* .. and lets go of it, to sleep. */
void baton_leave(struct baton *b);
/* Any thread, signal handlers too: a park ends. */
void baton_unpark(struct baton *b);

#endif
