/* evict.h: the table of an eviction policy. Part of the deterministic core.
 *
 * The core tells a policy what came, was used and went, and asks for victims; the policy knows nothing of pins: the
 * core puts those that a scan found in use back with `skip`. State is a few bytes a slot in arrays by slot number.
 */
#ifndef BERTH_STORE_EVICT_H
#define BERTH_STORE_EVICT_H

#include "store/layout.h"

#include <stdbool.h>

/* A past in 64 bits: the age of the last use, counted in uses of objects at the node that tells it, in the lower 32;
 * over it the class in 4 and the uses in 4 bits; 0 above. No past is 0, since something was used once at least. */
#define PAST_BITS 40u

struct evict_hint {
    uint64_t parent;   /* XXH3-64 of the parent's key, or 0 */
    uint64_t key;      /* XXH3-64 of the key */
    uint64_t prefix;   /* of a group: `parent` of its first member */
    uint64_t request;  /* grows with every request: one seal or one prefix call is one request */
    uint32_t pages;    /* of the slot: policies keep a list a size */
    uint32_t position; /* in its group, 0 first */
    uint32_t count;    /* members of its group; 0 or 1: it came alone */
    uint32_t above;    /* slot of the member before it, which is its parent and is inserted after it; or SLOT_NONE */
    uint8_t priority;
    uint8_t share; /* of the pool that its namespace has: 1 .. EVICT_SHARES, 0: none */
};

#define EVICT_SHARES 63u

/* What a policy may ask of a slot that it was given and that was not removed since. */
struct evict_env {
    uint64_t (*key)(void *arg, uint32_t slot); /* XXH3-64 of the key */
    void *arg;
};

struct evict_policy {
    const char *name;
    uint32_t slot_bytes; /* memory of a slot that it was given, beside what is of one size whatever their number */
    /* NULL without memory. env is copied. */
    void *(*create)(uint32_t max_slots, const struct evict_env *env);
    void (*destroy)(void *p);
    /* So many slots are about to be inserted, the first ones: room is made at once that would else grow with them. */
    void (*expect)(void *p, uint32_t slots);
    /* A slot with this key is soon inserted: what that reads begins to come. Changes nothing. */
    void (*ahead)(void *p, uint64_t key);
    /* Members of one group come deepest first, one after the other. */
    void (*insert)(void *p, uint32_t slot, const struct evict_hint *hint);
    /* The slot was inserted before its parent was: XXH3-64 of the parent's key. */
    void (*link)(void *p, uint32_t slot, uint64_t parent);
    /* One call's slots, deepest first: the last becomes the most recent. Slots that are not in the policy, or
     * are none, are passed over. TOUCH_CHILD in an entry: the next one is its parent. */
    void (*touch)(void *p, const uint32_t *slots, uint32_t n, uint64_t request);
    void (*remove)(void *p, uint32_t slot);
    /* Up to max victims, best first, of slots with `pages` (0: of any size). They stay in the policy. */
    uint32_t (*victims)(void *p, uint32_t pages, uint32_t *out, uint32_t max);
    /* From now on slots of the shares in the mask (bit i: share i) are offered after all others. */
    void (*guard)(void *p, uint64_t shares);
    /* Of the last victims, in their order: whether it may go, all that had to go before it being gone. */
    bool (*may)(void *p, uint32_t slot);
    /* This victim is in use: let others come first. */
    void (*skip)(void *p, uint32_t slot);
    /* Order of two slots: age of a slot, greater goes earlier. */
    uint64_t (*age)(void *p, uint32_t slot);
    /* What is known of a key that was evicted, here or elsewhere, for the policy of another node: 0, or a `past` as
     * PAST_ below. forget: it is known no more. */
    uint64_t (*recall)(void *p, uint64_t key, bool forget);
    void (*remember)(void *p, uint64_t key, uint64_t past); /* it was evicted at another node */
    /* Of a slot that was inserted a moment ago, from another node. Whether it counts as a use: not for a slot that was
     * used since, nor what was too long ago. */
    bool (*note)(void *p, uint32_t slot, uint64_t past);
    /* Its ttl has passed: it goes before those whose ttl has not. */
    void (*expire)(void *p, uint32_t slot);
    /* The slot in the policy with this key, XXH3-64; SLOT_NONE: none, or the policy keeps no keys. */
    uint32_t (*find)(void *p, uint64_t key);
    const char *(*check)(void *p);
};

extern const struct evict_policy evict_lru;
extern const struct evict_policy evict_pwl;
const struct evict_policy *evict_find(const char *name); /* NULL if there is none */

#endif
