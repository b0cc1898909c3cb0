/* touch.c: see touch.h. */
#include "store/touch.h"

#include "store/find.h"

#define STRANGERS_MAX 16u /* gets of another handle after which the thread goes over to it */

/* A whole turn goes in pieces of 16 bytes: it is on the way of every sixteenth get. The node reads entry by entry. An
 * aligned entry lies in one cache line: x86 stores it whole, whatever the alignment of the piece. */
static inline bool put_turn(_Atomic uint32_t *to, const uint32_t *touch)
{
#if FIND_TSAN
    (void)to;
    (void)touch;
    return false;
#else
    for (uint32_t i = 0; i < THREAD_TURN; i += 4) {
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm_load_si128((const __m128i *)(const void *)(touch + i)));
    }
    return true;
#endif
}

void touch_flush(struct berth *b, struct client_thread *t)
{
    uint32_t n = t->n;
    if (t->handle != b) {
        return;
    }
    t->asked = atomic_load_explicit(&b->ring->touch_asked, memory_order_relaxed);
    if (n == 0 || atomic_load_explicit(&b->muted, memory_order_relaxed)) {
        return;
    }
    uint64_t at = atomic_load_explicit(&b->ring->touch_tail, memory_order_relaxed);
    _Atomic uint32_t *to = &b->ring->touch[at % RING_TOUCHES];
    bool whole = n == THREAD_TURN && at % RING_TOUCHES <= RING_TOUCHES - THREAD_TURN && put_turn(to, t->touch);
    for (uint32_t i = 0; !whole && i < n; i++) {
        atomic_store_explicit(&b->ring->touch[(at + i) % RING_TOUCHES], t->touch[i], memory_order_relaxed);
    }
    t->n = 0;
    touch_publish(b, n);
}

int touch_tell(struct berth *b, struct client_thread *t)
{
    touch_flush(b, t);
    t->n = 0; /* of a handle that is muted too */
    return 0;
}

void touch_adopt(struct berth *b, struct client_thread *t)
{
    if (t->handle != b && !t->shared && (!t->handle || ++t->strangers >= STRANGERS_MAX)) {
        t->handle = t->fast = b;
        t->n = 0;
        t->strangers = 0;
    }
}
