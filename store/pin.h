/* pin.h: this client's pin table: an array of slot numbers in its own file, which the node reads before it frees a
 * slot.
 *
 * The protocol (PROTOCOLS rules 1 to 4): take an entry by an exchange from 0, then load the slot's state word. Exchange
 * and load are seq_cst, and so are the node's store of RETIRED and its fence before it reads the table: either the node
 * sees the entry, or this load sees RETIRED. A pin that was validated never moves to another entry. High water is
 * raised before the exchange, so that a node which sees the entry's slot in use also looks that far.
 */
#ifndef BERTH_STORE_PIN_H
#define BERTH_STORE_PIN_H

#include "store/client.h"
#include "store/thread.h"

#define PIN_NONE UINT32_MAX

/* Not the thread's next entry: searches, raises high water, asks the node for another segment. PIN_NONE: the table is
 * full. */
uint32_t pin_take_slowly(struct berth *b, struct client_thread *t, uint32_t slot);

/* Below high water: only there may a pin be tried. */
static inline bool pin_below(const struct berth *b, uint32_t entry)
{
    return entry < atomic_load_explicit(&b->pins->high_water, memory_order_relaxed);
}

static inline bool pin_try(struct berth *b, uint32_t entry, uint32_t slot)
{
    uint32_t none = 0;
    return atomic_compare_exchange_strong_explicit(&b->pins->entry[entry], &none, slot + 1, memory_order_seq_cst,
                                                   memory_order_relaxed);
}

/* An entry that has slot + 1 from here on. The cursor stays where it is: a get that is released before the next takes
 * the same entry again, and stores nothing else. */
static inline uint32_t pin_take(struct berth *b, struct client_thread *t, uint32_t slot)
{
    uint32_t entry = t->cursor;
    if (__builtin_expect(pin_below(b, entry) && pin_try(b, entry, slot), 1)) {
        return entry;
    }
    return pin_take_slowly(b, t, slot);
}

/* The same for one of many that are held together. */
static inline uint32_t pin_take_next(struct berth *b, struct client_thread *t, uint32_t slot)
{
    uint32_t entry = pin_take(b, t, slot);
    t->cursor = entry == PIN_NONE ? t->cursor : entry + 1;
    return entry;
}

/* Release order: what the reader read is read before the node can see the slot as free. */
static inline void pin_drop(struct berth *b, struct client_thread *t, uint32_t entry)
{
    atomic_store_explicit(&b->pins->entry[entry], 0, memory_order_release);
    if (entry < t->cursor && entry >= t->home) { /* the lowest first: the node scans up to the highest ever used */
        t->cursor = entry;
    }
}

#endif
