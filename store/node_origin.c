/* node_origin.c: which region gave a version, and seals in another region's name (PROTOCOLS rule 28).
 *
 * A header has room for an index only: the ids stand in a table in the slots file, [0] is not used: index 0 is this
 * region. An entry is written before a header names it and stays while one does, until that slot is FREE; so a reader
 * under a validated pin finds the id that was meant.
 */
#include "store/node_internal.h"

#include <errno.h>

uint64_t region_of(const struct node *n, uint16_t index)
{
    return index && index < REGIONS_MAX ? atomic_load_explicit(&n->c.super->region_ids[index], memory_order_relaxed)
                                        : n->c.super->region_id;
}

bool region_known(const struct node *n, uint16_t index)
{
    return index == 0 ||
           (index < REGIONS_MAX && atomic_load_explicit(&n->c.super->region_ids[index], memory_order_relaxed) != 0);
}

void region_recover(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    if (h->region && region_known(n, h->region)) {
        n->region_uses[h->region]++;
    } else {
        h->region = 0; /* of a draft, or of a slot that no record names */
    }
}

void region_drop(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    if (h->region) {
        n->region_uses[h->region]--;
        h->region = 0;
    }
}

static bool region_take(struct node *n, uint32_t slot, uint64_t id)
{
    struct slots_super *super = n->c.super;
    uint32_t unused = 0, at = 0;
    region_drop(n, slot);
    if (id == super->region_id) {
        return true;
    }
    for (uint32_t i = 1; i < REGIONS_MAX && !at; i++) {
        at = atomic_load_explicit(&super->region_ids[i], memory_order_relaxed) == id ? i : 0;
        unused = unused || n->region_uses[i] ? unused : i;
    }
    if (!at && !unused) {
        return false;
    }
    if (!at) {
        at = unused;
        atomic_store_explicit(&super->region_ids[at], id, memory_order_relaxed);
    }
    header_of(n, slot)->region = (uint16_t)at;
    n->region_uses[at]++;
    return true;
}

void counter_seen(struct node *n, uint64_t counter)
{
    if (counter <= COUNTER_SEEN_MAX && counter > n->counter) {
        n->counter = counter; /* the next commit that gives a version writes it */
    }
}

bool version_newer(uint64_t counter, uint64_t region, uint64_t than_counter, uint64_t than_region)
{
    return counter != than_counter ? counter > than_counter : region > than_region;
}

void request_seal_origin(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct node_seal_origin *p = (const struct node_seal_origin *)m;
    if (work_full(n)) {
        session_stall(n, s, m, taken);
        return;
    }
    bool sound = !(m->flags & MSG_AGAIN) && p->region && p->counter && p->counter <= COUNTER_LIMIT;
    int32_t status = sound ? check_draft(n, s, m, &p->token) : -EINVAL;
    status = status == BERTH_EPURGED ? -ENOENT : status; /* as what was removed here */
    if (status == 0 && !busy(n, p->token.slot) && !region_take(n, p->token.slot, p->region)) {
        status = BERTH_EQUOTA;
    }
    uint8_t buf[KEY_MAX];
    if (status == 0 && tomb_above(n, slot_key(n, p->token.slot, buf), p->counter, p->region)) {
        status = -ENOENT; /* removed here: a copy that others still have does not bring it back (rule 29) */
    }
    if (status == 0) {
        header_of(n, p->token.slot)->lineage = p->lineage;
        counter_seen(n, p->counter);
        status = seal_origin(n, s, p, taken);
    }
    if (status == -EAGAIN) {
        session_stall(n, s, m, taken);
    } else if (status) {
        refuse(n, s->id, m, status);
    }
}
