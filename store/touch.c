/* touch.c: see touch.h. */
#include "store/touch.h"

void touch_stranger(struct berth *b, struct client_thread *t, uint32_t slot)
{
    if (t->n_touches == 0 || ++t->strangers >= TOUCH_STRANGERS) {
        t->handle = b->id;
        t->strangers = t->n_touches = 0;
        t->last_touch = SLOT_NONE;
        touch_one(b, t, slot);
        return;
    }
    touch_push(b, &slot, 1);
}
