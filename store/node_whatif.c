/* node_whatif.c: what the node sees, told to the simulations of other capacities (whatif.h). */
#include "store/node_internal.h"

/* Keys of two namespaces may be equal. */
static uint64_t tag_of(uint64_t key, uint32_t ns)
{
    return key ? key ^ ns * UINT64_C(0x9e3779b97f4a7c15) : 0;
}

static struct whatif_object object_of(struct node *n, uint32_t slot, uint64_t parent, uint8_t priority)
{
    uint32_t ns = header_of(n, slot)->ns;
    return (struct whatif_object){.key = tag_of(slot_key_tag(n, slot), ns),
                                  .parent = tag_of(parent, ns),
                                  .pages = slabs_slot_pages(n->slabs, slot),
                                  .slot = slot,
                                  .priority = priority};
}

/* A client's word: any number may come. */
static bool is_ready(const struct node *n, uint32_t slot)
{
    return slot < n->max_headers && slabs_is_slot(n->slabs, slot) &&
           word_state(slot_load(header_of(n, slot))) == SLOT_READY;
}

/* Of a call's slots, which are a client's words, those that are slots. How many. */
static uint32_t slots_of(const struct node *n, const uint32_t *slots, uint32_t count, uint32_t out[WHATIF_CHAIN])
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count && found < WHATIF_CHAIN; i++) {
        uint32_t slot = slots[i] & ~TOUCH_CHILD;
        if (slot < n->max_headers) {
            out[found++] = slot;
        }
    }
    return found;
}

/* slots[0, count): one call's, deepest first. Headers are looked at only where that may tell something. */
static void chain_used(struct node *n, uint64_t session, const uint32_t *slots, uint32_t count)
{
    struct whatif_object o[WHATIF_CHAIN];
    uint32_t chain[WHATIF_CHAIN], first = slots[0] & ~TOUCH_CHILD, used = 0;
    uint32_t found = slots_of(n, slots, count, chain);
    bool torn = whatif_torn(n->whatif, chain, found);
    if (!is_ready(n, first) || (!torn && !whatif_wants(n->whatif, first))) {
        whatif_pass(n->whatif, count);
        return;
    }
    for (uint32_t i = 0; i < found; i++) {
        if (is_ready(n, chain[i])) {
            o[used++] = object_of(n, chain[i], 0, 0);
        }
    }
    if (torn) {
        whatif_join(n->whatif, o, used);
    }
    if (!whatif_wants(n->whatif, first)) {
        whatif_pass(n->whatif, count);
        return;
    }
    const struct slot_header *h = header_of(n, first);
    whatif_touch(n->whatif, session, h->ns, h->lineage, o, used);
}

void node_whatif_used(struct node *n, const struct node_event *ev)
{
    for (uint32_t i = 0, end; i < ev->n_slots; i = end) {
        for (end = i + 1; end < ev->n_slots && ev->slots[end - 1] & TOUCH_CHILD; end++) {}
        chain_used(n, ev->session, ev->slots + i, end - i);
    }
}

/* What takes the place of an older version is no reference: it is a write of a key that is here. */
void node_whatif_sealed(struct node *n, uint64_t session, const struct member *m, uint32_t count)
{
    struct whatif_object o[WHATIF_CHAIN];
    uint32_t put = 0, parent = SLOT_NONE;
    for (uint32_t i = 0; i < count && put < WHATIF_CHAIN; i++) {
        if (m[i].kept) {
            continue;
        }
        struct whatif_object x = object_of(n, m[i].slot, m[i].parent, m[i].priority);
        if (m[i].old != SLOT_NONE) {
            whatif_found(n->whatif, &x);
            continue;
        }
        if (put == 0 && m[i].parent) {
            parent = n->policy->find(n->evict, m[i].parent);
        }
        o[put++] = x;
    }
    if (put) {
        const struct slot_header *h = header_of(n, o[0].slot);
        whatif_put(n->whatif, session, h->ns, h->lineage, o, put, parent);
    }
}

void node_whatif_recovered(struct node *n, uint32_t slot, uint64_t parent, uint8_t priority)
{
    struct whatif_object o = object_of(n, slot, parent, priority);
    whatif_found(n->whatif, &o);
}

/* Their slots are still what they were. */
void node_whatif_gone(struct node *n, const struct effect *e, const struct member *m)
{
    bool evicted = e->kind == EFFECT_EVICT && e->need != NEED_NONE;
    for (uint32_t i = 0; i < e->n && !evicted; i++) {
        whatif_remove(n->whatif, tag_of(slot_key_tag(n, m[i].old), header_of(n, m[i].old)->ns));
    }
}

void node_whatif(struct node *n, bool settle, struct whatif_report *out)
{
    if (settle) {
        whatif_settle(n->whatif);
    }
    whatif_report(n->whatif, out);
}

const char *node_namespace_name(const struct node *n, uint32_t ns)
{
    for (uint32_t i = 0; i < n->n_names; i++) {
        if (n->names[i].id == ns) {
            return n->names[i].name;
        }
    }
    return NULL;
}
