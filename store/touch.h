/* touch.h: uses of objects, told to the node for eviction through a ring that only ever wins new ones over old.
 *
 * Single gets are kept per thread and go in a batch: the bump of the ring's tail is a locked operation. A prefix goes at
 * once, deepest first (PROTOCOLS rule 34). Touches are lossy: a few that a thread kept are lost when it ends.
 */
#ifndef BERTH_STORE_TOUCH_H
#define BERTH_STORE_TOUCH_H

#include "store/client.h"
#include "store/thread.h"

static inline void touch_push(struct berth *b, const uint32_t *slots, uint32_t n)
{
    if (atomic_load_explicit(&b->muted, memory_order_relaxed)) {
        return;
    }
    _Atomic uint64_t *tail = &b->ring->touch_tail;
    uint64_t at = atomic_load_explicit(tail, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        atomic_store_explicit(&b->ring->touch[(at + i) % RING_TOUCHES], slots[i] + 1, memory_order_relaxed);
    }
    /* Written before they are published; two threads that met here overwrote each other's, and the ring repeats some. */
    atomic_fetch_add_explicit(tail, n, memory_order_release);
}

/* Tells the node what this thread has kept for the handle; the thread's turn begins again. */
void touch_flush(struct berth *b, struct client_thread *t);

/* Begins a turn of THREAD_TURN gets: flushes, and gives the thread to the handle that it works with now. A thread that goes
 * between handles stays with one of them: the others' gets go the long way. */
void touch_turn(struct berth *b, struct client_thread *t);

/* A get that went the long way. */
static inline void touch_one(struct berth *b, struct client_thread *t, uint32_t slot)
{
    if (t->handle == b->id && t->left) {
        t->touch[--t->left] = slot + 1;
    } else {
        touch_push(b, &slot, 1);
    }
}

#endif
