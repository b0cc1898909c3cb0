/* node_past.c: what an eviction policy knows of keys that were evicted, as the nodes of a fleet tell each other. */
#include "store/node_internal.h"

#include <xxhash.h>

static uint64_t tag_of(struct key_ref key)
{
    return XXH3_64bits(key.data, key.size);
}

uint64_t past_peek(struct node *n, struct key_ref key)
{
    return n->policy->recall(n->evict, tag_of(key), false);
}

void node_past_told(struct node *n, struct key_ref key, uint64_t past)
{
    n->policy->remember(n->evict, tag_of(key), past);
    n->counters[NODE_PASTS_TOLD]++;
}

uint64_t node_past_take(struct node *n, struct key_ref key)
{
    return n->policy->recall(n->evict, tag_of(key), true);
}

void node_past_note(struct node *n, struct key_ref key, uint64_t past)
{
    uint32_t slot = node_find(n, key);
    if (slot != SLOT_NONE) {
        n->counters[NODE_PASTS_NOTED] += n->policy->note(n->evict, slot, past);
    }
}
