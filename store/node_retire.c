/* node_retire.c: RETIRED slots until nobody reads them (PROTOCOLS rules 2 and 4): many, one fence, one scan, free. */
#include "store/node_internal.h"

static void collect(struct node *n, const struct slot_list *l)
{
    n->n_scan = 0;
    for (uint32_t s = l->head; s != SLOT_NONE && n->n_scan < SCAN_MAX; s = n->next[s]) {
        if (!scan_take(n, s)) {
            break;
        }
    }
}

/* A scan takes as long for one slot as for thousands: it reads what all clients have pinned. So where that is much,
 * slots gather, and no more than a 16th of the time goes into it, until there are enough of them to share one, or
 * somebody waits for what they hold. */
static bool gathers(const struct node *n)
{
    return n->now.mono < n->gather_until && n->fresh.count < SCAN_MAX && !n->waiters && !n->window_closed;
}

static void gather_next(struct node *n)
{
    int64_t took = n->now.mono - n->scan_began, pause = took < GATHER_LEAST ? 0 : took * GATHER_TIMES;
    n->gather_until = n->now.mono + (pause < GATHER_MAX_NS ? pause : GATHER_MAX_NS);
}

int64_t retire_timer(const struct node *n)
{
    return n->fresh.count && n->scanning == SCAN_NOTHING ? n->gather_until : INT64_MAX;
}

void retire_turn(struct node *n)
{
    if (n->scanning != SCAN_NOTHING) {
        return;
    }
    /* Those that wait come first when they are due: fresh ones may come without end. */
    if (n->waiting.count && (n->rescan || n->now.mono >= n->rescan_at)) {
        collect(n, &n->waiting);
        n->rescan = false;
    } else if (n->fresh.count && !gathers(n)) {
        collect(n, &n->fresh);
    } else {
        return;
    }
    if (n->n_scan) {
        n->scan_began = n->now.mono;
        scan_start(n, SCAN_RETIRED);
    }
}

/* When those that wait are looked at again: soon where one has just come or gone, else ever less often. */
static void rescan_later(struct node *n, bool was_fresh, bool had, bool moved)
{
    if (was_fresh && !moved) {
        return;
    }
    n->rescan_step = moved ? RESCAN_NS : n->rescan_step * 2;
    if (n->rescan_step < RESCAN_NS || n->rescan_step > RESCAN_MAX_NS) {
        n->rescan_step = n->rescan_step < RESCAN_NS ? RESCAN_NS : RESCAN_MAX_NS;
    }
    int64_t at = n->now.mono + n->rescan_step;
    n->rescan_at = was_fresh && had && n->rescan_at < at ? n->rescan_at : at;
}

/* Slots that readers have let go of may have made a window possible. */
static void waiters_try_again(struct node *n)
{
    for (struct waiter *w = n->waiters; w; w = w->next) {
        w->tried &= TRIED_RESCAN;
    }
}

void retire_scanned(struct node *n, const uint64_t *pinned)
{
    uint32_t freed = 0;
    n->scanning = SCAN_NOTHING;
    gather_next(n);
    bool was_fresh = n->fresh.count && n->n_scan && n->fresh.head == n->scan_slots[0];
    bool had = n->waiting.count > 0;
    struct slot_list *from = was_fresh ? &n->fresh : &n->waiting;
    for (uint32_t i = 0; i < n->n_scan; i++) {
        uint32_t slot = n->scan_slots[i];
        list_remove(n, from, slot);
        if (scan_bit(pinned, i)) {
            list_push(n, &n->waiting, slot); /* behind the others: all get their turn */
        } else {
            n->retired_bytes -= slot_bytes(n, slot);
            slot_release(n, slot);
            freed++;
        }
    }
    if (!was_fresh && freed) {
        waiters_try_again(n);
    }
    rescan_later(n, was_fresh, had, was_fresh ? freed < n->n_scan : freed > 0);
}
