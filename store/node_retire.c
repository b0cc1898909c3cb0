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

void retire_turn(struct node *n)
{
    if (n->scanning != SCAN_NOTHING) {
        return;
    }
    bool again = n->waiting.count && (n->rescan || n->now.mono >= n->rescan_at);
    if (n->fresh.count) {
        collect(n, &n->fresh);
    } else if (again) {
        collect(n, &n->waiting);
        n->rescan = false;
    } else {
        return;
    }
    if (n->n_scan) {
        scan_start(n, SCAN_RETIRED);
    }
}

void retire_scanned(struct node *n, const uint64_t *pinned)
{
    uint32_t freed = 0;
    n->scanning = SCAN_NOTHING;
    bool was_fresh = n->fresh.count && n->n_scan && n->fresh.head == n->scan_slots[0];
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
    if (was_fresh && n->waiting.count == 0) {
        n->rescan_step = RESCAN_NS;
    }
    if (!was_fresh) {
        n->rescan_step = freed ? RESCAN_NS : n->rescan_step * 2;
    }
    if (n->rescan_step < RESCAN_NS || n->rescan_step > RESCAN_MAX_NS) {
        n->rescan_step = n->rescan_step < RESCAN_NS ? RESCAN_NS : RESCAN_MAX_NS;
    }
    n->rescan_at = n->now.mono + n->rescan_step;
}
