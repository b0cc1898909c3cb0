/* evict.h: the table of an eviction policy. Part of the deterministic core.
 *
 * The core tells a policy what came, was used and went, and asks for victims; the policy knows nothing of pins: the
 * core puts those that a scan found in use back with `skip`. State is a few bytes a slot in arrays by slot number.
 */
#ifndef BERTH_STORE_EVICT_H
#define BERTH_STORE_EVICT_H

#include "store/layout.h"

struct evict_hint {
    uint64_t parent;   /* XXH3-64 of the parent's key, or 0 */
    uint64_t key;      /* XXH3-64 of the key */
    uint64_t request;  /* grows with every request: one seal or one prefix call is one request */
    uint32_t pages;    /* of the slot: policies keep a list a size */
    uint32_t position; /* in its group, 0 first */
    uint8_t priority;
};

struct evict_policy {
    const char *name;
    void *(*create)(uint32_t max_slots);
    void (*destroy)(void *p);
    void (*insert)(void *p, uint32_t slot, const struct evict_hint *hint);
    /* One call's slots, deepest first: the last becomes the most recent. */
    void (*touch)(void *p, const uint32_t *slots, uint32_t n, uint64_t request);
    void (*remove)(void *p, uint32_t slot);
    /* Up to max victims, best first, of slots with `pages` (0: of any size). They stay in the policy. */
    uint32_t (*victims)(void *p, uint32_t pages, uint32_t *out, uint32_t max);
    /* This victim is in use: let others come first. */
    void (*skip)(void *p, uint32_t slot);
    /* Order of two slots: age of a slot, greater goes earlier. */
    uint64_t (*age)(void *p, uint32_t slot);
    const char *(*check)(void *p);
};

extern const struct evict_policy evict_lru;
const struct evict_policy *evict_find(const char *name); /* NULL if there is none */

#endif
