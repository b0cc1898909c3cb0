/* touch.h: uses of objects, told to the node for eviction through a ring that only ever wins new ones over old.
 *
 * Single gets are kept per thread and go in a batch: the bump of the ring's tail is a locked operation. When the node
 * has taken puts, which may evict, it asks: the next get of each thread tells at once what is kept, itself included. So
 * a put finds told what was read before it, but for the last gets of a thread that had more than one since it was asked
 * and then none. A prefix goes at once, deepest first (PROTOCOLS rule 34). Touches are lossy: what a thread kept is
 * lost when it ends before its handle is closed, or another thread closes it.
 */
#ifndef BERTH_STORE_TOUCH_H
#define BERTH_STORE_TOUCH_H

#include "store/client.h"
#include "store/thread.h"

/* What was written behind the tail counts from here on. Two threads that met there overwrote each other's, and the ring
 * repeats some older ones. An entry of 0 is no touch. */
static inline void touch_publish(struct berth *b, uint32_t n)
{
    atomic_fetch_add_explicit(&b->ring->touch_tail, n, memory_order_release);
}

static inline void touch_push(struct berth *b, const uint32_t *slots, uint32_t n)
{
    if (atomic_load_explicit(&b->muted, memory_order_relaxed)) {
        return;
    }
    uint64_t at = atomic_load_explicit(&b->ring->touch_tail, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        atomic_store_explicit(&b->ring->touch[(at + i) % RING_TOUCHES], slots[i] + 1, memory_order_relaxed);
    }
    touch_publish(b, n);
}

static inline bool touch_asked(const struct berth *b, const struct client_thread *t)
{
    return atomic_load_explicit(&b->ring->touch_asked, memory_order_relaxed) != t->asked;
}

/* Tells the node what this thread has kept for the handle; its turn begins again. */
void touch_flush(struct berth *b, struct client_thread *t);

/* After a get, the node having asked. 0. */
int touch_tell(struct berth *b, struct client_thread *t);

/* Gives a thread to the handle that it works with now. One that goes between handles stays with one of them for a
 * while: the others' gets go the long way. */
void touch_adopt(struct berth *b, struct client_thread *t);

/* A get that went the long way. */
static inline void touch_one(struct berth *b, struct client_thread *t, uint32_t slot)
{
    if (t->handle == b && t->n + 1 < THREAD_TURN && !touch_asked(b, t)) {
        t->touch[t->n++] = slot + 1;
    } else {
        touch_flush(b, t);
        touch_push(b, &slot, 1);
    }
}

#endif
