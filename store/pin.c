/* pin.c: pin entries off the fast path. */
#include "store/pin.h"

/* Before the exchange, never lowered. */
static void raise_high_water(struct pins_file *p, uint32_t entry)
{
    uint32_t high = atomic_load_explicit(&p->high_water, memory_order_relaxed);
    while (high <= entry && !atomic_compare_exchange_weak_explicit(&p->high_water, &high, entry + 1,
                                                                   memory_order_seq_cst, memory_order_relaxed)) {}
}

static uint32_t search(struct berth *b, struct client_thread *t, uint32_t slot, uint32_t entries)
{
    uint32_t start = t->cursor < entries ? t->cursor : 0;
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t entry = start + i < entries ? start + i : start + i - entries;
        if (atomic_load_explicit(&b->pins->entry[entry], memory_order_relaxed) != 0) {
            continue;
        }
        raise_high_water(b->pins, entry);
        if (pin_try(b, entry, slot)) {
            t->cursor = entry;
            return entry;
        }
    }
    return PIN_NONE;
}

#define GROW_NS INT64_C(1000000000) /* a node that says nothing is not waited for by a get without a deadline */

/* Another segment, usable once the node has acknowledged it: before that a scan would not look there. */
static bool grow(struct berth *b, uint32_t seen)
{
    if (!call_lock(&b->grow_lock, berth_deadline(GROW_NS))) {
        return false;
    }
    uint32_t entries = atomic_load_explicit(&b->pin_entries, memory_order_acquire);
    if (entries == seen && entries < PINS_CAPACITY) {
        struct call *c = call_new(MSG_GROW, sizeof(struct msg_grow));
        struct call_result r;
        if (c) {
            call_until(c, berth_deadline(GROW_NS));
            ((struct msg_grow *)c->message)->entries = 2 * entries < PINS_CAPACITY ? 2 * entries : PINS_CAPACITY;
            if (call_run(b, c, &r, NULL, NULL) >= 0 && r.reply.counter > entries && r.reply.counter <= PINS_CAPACITY) {
                entries = (uint32_t)r.reply.counter;
                atomic_store_explicit(&b->pin_entries, entries, memory_order_release);
            }
        }
    }
    pthread_mutex_unlock(&b->grow_lock);
    return entries != seen;
}

uint32_t pin_take_slowly(struct berth *b, struct client_thread *t, uint32_t slot)
{
    for (;;) {
        uint32_t entries = atomic_load_explicit(&b->pin_entries, memory_order_acquire);
        uint32_t entry = search(b, t, slot, entries);
        if (entry != PIN_NONE || !grow(b, entries)) {
            return entry;
        }
    }
}
