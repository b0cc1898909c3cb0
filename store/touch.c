/* touch.c: see touch.h. */
#include "store/touch.h"

#define STRANGERS_MAX 16u /* gets of another handle after which the thread goes over to it */

void touch_flush(struct berth *b, struct client_thread *t)
{
    uint32_t slots[THREAD_TURN], n = 0, last = 0;
    if (t->handle != b->id) {
        return;
    }
    for (uint32_t i = THREAD_TURN; i-- > t->left;) { /* in the order of the gets; one object read again counts once */
        if (t->touch[i] && t->touch[i] != last) {
            slots[n++] = t->touch[i] - 1;
        }
        last = t->touch[i];
    }
    t->left = THREAD_TURN;
    if (n) {
        touch_push(b, slots, n);
    }
}

void touch_turn(struct berth *b, struct client_thread *t)
{
    if (t->handle == b->id) {
        touch_flush(b, t);
    } else if (!t->shared && (t->handle == 0 || ++t->strangers >= STRANGERS_MAX)) {
        t->handle = b->id;
        t->left = THREAD_TURN;
        t->strangers = 0;
    }
}
