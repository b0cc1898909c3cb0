/* touch.c: see touch.h. */
#include "store/touch.h"

#define STRANGERS_MAX 16u /* gets of another handle after which the thread goes over to it */

void touch_flush(struct berth *b, struct client_thread *t)
{
    uint32_t n = 0, last = 0;
    if (t->handle != b || atomic_load_explicit(&b->muted, memory_order_relaxed)) {
        return;
    }
    uint64_t at = atomic_load_explicit(&b->ring->touch_tail, memory_order_relaxed);
    for (uint32_t i = THREAD_TURN; i-- > t->left;) { /* in the order of the gets; one object read again counts once */
        uint32_t one = t->touch[i];
        if (one != last) {
            atomic_store_explicit(&b->ring->touch[(at + n++) % RING_TOUCHES], one, memory_order_relaxed);
            last = one;
        }
    }
    t->left = THREAD_TURN;
    if (n) {
        touch_publish(b, n);
    }
}

void touch_adopt(struct berth *b, struct client_thread *t)
{
    if (t->handle != b && !t->shared && (!t->handle || ++t->strangers >= STRANGERS_MAX)) {
        t->handle = b;
        t->left = THREAD_TURN;
        t->strangers = 0;
    }
}
