/* whatif_sim.h: one simulated cache (whatif.h): the policy over keys without objects.
 *
 * Used by whatif.c only. 26 bytes a slot beside the policy's.
 */
#ifndef BERTH_STORE_WHATIF_SIM_H
#define BERTH_STORE_WHATIF_SIM_H

#include "store/whatif.h"

struct mini {
    const struct evict_policy *policy;
    void *p;
    uint32_t max, n_vacant;
    uint32_t seen, given_back; /* slots ever used; of these on `vacant` */
    uint64_t *key;             /* by slot */
    uint32_t *pages, *next, *vacant, *head;
    uint8_t *level; /* by slot: the highest of the requests that used it */
    bool *pinned;
    uint32_t mask;
    uint64_t used, high, low; /* pages */
    uint64_t request;
    uint32_t *chain; /* WHATIF_CHAIN: slots of one call */
};

bool mini_open(struct mini *s, const struct evict_policy *policy, uint32_t max);
void mini_close(struct mini *s);
uint32_t mini_find(const struct mini *s, uint64_t key); /* SLOT_NONE */
/* One request, root first: how many leading keys were there. n is at most what is vacant. */
uint32_t mini_request(struct mini *s, const struct whatif_object *o, uint32_t n, uint8_t level);
void mini_remove(struct mini *s, uint32_t slot);
void mini_drop_below(struct mini *s, uint8_t level);

#endif
