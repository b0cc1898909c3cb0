/* whatif.h: what the hit ratio would be with another capacity. Part of the deterministic core.
 *
 * Small simulations of the node's own policy, each over keys only, at WHATIF_SIMS multiples of the node's high
 * watermark, fed by what the node sees anyway: uses, and puts behind them. A request is one chain of keys, root first:
 * those that were used here, then those that were put. Its hits are its leading keys that are there.
 *
 * Sampling takes whole trees: a group has the level of the tree that it goes on with, a tree that of its first key's
 * hash, and what more than WHATIF_FAN groups go on with is a common beginning, behind which each group is a tree of its
 * own; what a call reads in one becomes one (whatif_join). One tree in 2^shift is simulated, with 1 / 2^shift of the
 * capacity. shift is 0 at first and grows by one when a simulation finds no slot; what is not sampled any more is
 * dropped from all of them. It never falls.
 *
 * Memory: WHATIF_BYTES (4.1 MiB) from the beginning whatever the pool, and 1 byte a slot of the pool. Namespaces and
 * lineages: the WHATIF_TOP with the most references, by the space-saving sketch: whoever comes takes the place of the
 * least, and may have had as many references before as that one had (`error`). An entry's figures are those since it
 * came.
 */
#ifndef BERTH_STORE_WHATIF_H
#define BERTH_STORE_WHATIF_H

#include "store/evict.h"

#define WHATIF_SIMS 3u /* at 1/2, 2 and 4 times */
#define WHATIF_SLOTS (5120u + 10240u + 20480u)
/* Slots and keys; evicted keys of the policies, which fill whole tables however few the slots; chains that wait. */
#define WHATIF_BYTES (WHATIF_SLOTS * 60u + (2u << 20))
#define WHATIF_FAN 4u
#define WHATIF_TOP 64u
#define WHATIF_CHAIN 1024u    /* keys a request: of longer ones the deepest */
#define WHATIF_SHIFT_MAX 14u  /* one tree in 16,384 */
#define WHATIF_RECENT 262144u /* references after which older ones count half in what is recent */

struct whatif;

struct whatif_object {
    uint64_t key, parent; /* XXH3-64 of each, parent 0: none */
    uint32_t pages;
    uint32_t slot; /* of the node */
    uint8_t priority;
};

/* References stand for all that were not sampled, too. hits: with half the capacity, with this, with 2 and 4 times. */
struct whatif_sums {
    double references, hits[WHATIF_SIMS + 1];
};

struct whatif_entry {
    uint64_t id; /* namespace or lineage */
    bool used;
    double error; /* references that may have come before: they are in none of the sums */
    struct whatif_sums all, recent;
};

struct whatif_report {
    double scale[WHATIF_SIMS + 1]; /* of the capacity: 1/2, 1, 2, 4 */
    uint64_t capacity;             /* bytes at 1 */
    uint32_t shift;
    uint64_t requests, sampled;       /* seen, and simulated */
    uint64_t references, hits;        /* of all, as they were */
    uint64_t slots, bytes, bytes_max; /* in use by simulations */
    struct whatif_sums all, recent;   /* `all` is set right by what is known of the references not sampled */
    struct whatif_entry ns[WHATIF_TOP], lineage[WHATIF_TOP];
};

/* NULL without memory. max_slots: of the node. */
struct whatif *whatif_create(const struct evict_policy *policy, uint32_t max_slots, uint64_t high, uint64_t low);
void whatif_destroy(struct whatif *w);
void whatif_limits(struct whatif *w, uint64_t high, uint64_t low); /* bytes */

/* Slots of one call, deepest first, each below max_slots: whether it goes from one tree into another that does not
 * begin there, because its keys were put without word of each other. Then whatif_join has to be told of it first. */
bool whatif_torn(const struct whatif *w, const uint32_t *slots, uint32_t n);
/* Makes one tree of them, that of the root, as if each had been put behind the one before it. No reference. */
void whatif_join(struct whatif *w, const struct whatif_object *o, uint32_t n);
/* Whether uses of this slot may have to be told. Any slot below max_slots. */
bool whatif_wants(const struct whatif *w, uint32_t slot);
/* One chain of uses, deepest first; it waits until the session's next call says whether a put goes on with it. */
void whatif_touch(struct whatif *w, uint64_t session, uint32_t ns, uint64_t lineage, const struct whatif_object *o,
                  uint32_t n);
/* So many uses of objects that are not sampled. */
void whatif_pass(struct whatif *w, uint32_t n);
/* One group, first member first. parent: the node's slot of the first one's parent, or SLOT_NONE. */
void whatif_put(struct whatif *w, uint64_t session, uint32_t ns, uint64_t lineage, const struct whatif_object *o,
                uint32_t n, uint32_t parent);
/* It was here when the node started: no reference. */
void whatif_found(struct whatif *w, const struct whatif_object *o);
void whatif_remove(struct whatif *w, uint64_t key); /* by a client */
void whatif_settle(struct whatif *w);               /* chains that wait are counted: no put goes on with them */
void whatif_report(const struct whatif *w, struct whatif_report *out);
const char *whatif_check(struct whatif *w); /* NULL, or what is wrong: for tests */

#endif
