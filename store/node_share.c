/* node_share.c: shares of the pool that namespaces have.
 *
 * What a namespace has of its share is not evicted for others as long as these have anything that may go. It is a
 * matter of order alone: nothing is kept free, a namespace may have more than its share, and where only guarded objects
 * are left, they go. Bytes are those of slots, held ones and what is being evicted included.
 */
#include "store/node_internal.h"

static uint8_t share_of(const struct node *n, uint32_t ns)
{
    for (uint32_t i = 0; i < n->n_shares; i++) {
        if (n->share[i].ns == ns) {
            return (uint8_t)(i + 1);
        }
    }
    return 0;
}

uint8_t share_of_slot(const struct node *n, uint32_t slot)
{
    return n->n_shares ? share_of(n, header_of(n, slot)->ns) : 0;
}

void shares_configure(struct node *n)
{
    for (uint32_t i = 0; i < n->c.n_namespaces && n->n_shares < EVICT_SHARES; i++) {
        const struct node_namespace *c = &n->c.namespaces[i];
        if (c->share_bytes) {
            n->share[n->n_shares++] =
                (struct node_share){.name = c->name, .ns = names_id(n, c->name), .limit = c->share_bytes};
        }
    }
}

void share_count(struct node *n, uint32_t slot, bool more)
{
    uint8_t i = share_of_slot(n, slot);
    if (i) {
        n->share[i - 1].bytes += more ? slot_bytes(n, slot) : -slot_bytes(n, slot);
    }
}

void share_evicting(struct node *n, uint32_t slot, bool begin)
{
    uint8_t i = share_of_slot(n, slot);
    if (i) {
        n->share[i - 1].evicting += begin ? slot_bytes(n, slot) : -slot_bytes(n, slot);
    }
}

static bool guarded(const struct node_share *s)
{
    return s->bytes - s->evicting <= s->limit;
}

bool share_guarded(const struct node *n, uint32_t slot)
{
    uint8_t i = share_of_slot(n, slot);
    return i && guarded(&n->share[i - 1]);
}

uint64_t shares_guard(struct node *n)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < n->n_shares; i++) {
        mask |= guarded(&n->share[i]) ? UINT64_C(2) << i : 0;
    }
    n->policy->guard(n->evict, mask);
    return mask;
}

uint32_t node_share(const struct node *n, uint32_t i, struct node_share *out)
{
    if (i < n->n_shares) {
        *out = n->share[i];
    }
    return n->n_shares;
}
