#include "store/node_ahead.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static void copy_record(struct record *to, const struct record *from)
{
    memcpy(to, from, offsetof(struct record, holds) + from->n_holds * sizeof *from->holds);
}

static int take_first(struct ahead *a)
{
    const struct ahead_row *row = &a->rows[a->first++ % AHEAD_RECORDS];
    a->count--;
    return a->each(a->arg, row->key, row->decoded ? &row->record : NULL);
}

/* The slot is what the index says, and not looked at yet. Inlined: of a function that only prefetches gcc 12 finds that
 * it has no effect, and leaves its calls out. */
static inline __attribute__((always_inline)) void ask_for(const struct node *n, uint32_t slot)
{
    if (slot < n->max_headers) {
        const uint8_t *header = (const uint8_t *)header_of(n, slot);
        __builtin_prefetch(header, 1);
        __builtin_prefetch(header + sizeof(struct slot_header) / 2);
        __builtin_prefetch(&n->mark[slot], 1);
    }
}

int ahead_push(void *arg, struct key_ref key, const struct record *r)
{
    struct ahead *a = arg;
    if (key.size > AHEAD_KEY_MAX) {
        return -EBADMSG;
    }
    int stop = a->count == AHEAD_RECORDS ? take_first(a) : 0;
    struct ahead_row *row = &a->rows[(a->first + a->count++) % AHEAD_RECORDS];
    memcpy(row->bytes, key.data, key.size);
    row->key = (struct key_ref){.data = row->bytes, .size = key.size, .ns = key.ns};
    row->decoded = r != NULL;
    if (r) {
        copy_record(&row->record, r);
        ask_for(a->n, r->slot);
    }
    return stop;
}

int ahead_drain(struct ahead *a)
{
    int stop = 0;
    while (a->count && !stop) {
        stop = take_first(a);
    }
    return stop;
}
