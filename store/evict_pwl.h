/* evict_pwl.h: what the files of the policy `pwl` share (evict_pwl.c says what it does).
 *
 * Bytes a slot beside its header: 28 here and 2 of the key table. Beside these 2 MiB of ghosts at most (evict_ghost.h),
 * and some 500 bytes for each slot size with one of 9 levels of priority and a namespace's share that was ever seen.
 *
 * Invariants (pwl_check proves them):
 *   children of a slot = slots in the policy that name it as their parent, whether it is itself in the policy or not
 *   a slot in the policy is in the list of its class, or parked, or it has children and was found so at the list's end
 *   along each list from head to tail stamps fall strictly; in lists of parked ones they do not grow
 */
#ifndef BERTH_STORE_EVICT_PWL_H
#define BERTH_STORE_EVICT_PWL_H

#include "store/evict.h"
#include "store/evict_ghost.h"

#define PWL_VICTIMS 512u /* of one call */
#define PWL_QUEUES 8191u /* sizes with a level of priority and a share */
#define PWL_KEYS_LOAD 2u /* keys a chain of the key table */
#define PWL_USES_MAX 15u
#define PWL_CHILDREN_MAX UINT16_MAX
#define PWL_WATCHED 4.5 /* spans after its last use an object is watched */
#define PWL_EXPOSED 73u /* 16 * PWL_WATCHED and one */
#define PWL_FANS 1024u
#define PWL_SWEEP 65536u /* slots that one look for parents may pass */

enum pwl_class {
    PWL_LAST,       /* used once, the last of its group */
    PWL_SHORT,      /* used once: of a group of up to 2 behind a prefix that was there .. */
    PWL_MIDDLE,     /* .. of up to 8 .. */
    PWL_LONG,       /* .. of more */
    PWL_FIRST,      /* used once, of a prompt without such a prefix: of up to 4 objects, then 16, 32, 64, more */
    PWL_USED = 9,   /* used 2 times, then 3, 4 to 5, 6 to 8, more */
    PWL_PLAIN = 14, /* neither parent nor child of anything: whatever its uses */
    PWL_DUE,        /* its ttl has passed: before all others */
    PWL_CLASSES,
    PWL_PARKED = PWL_CLASSES, /* a list, no class: in use when they were offered; by the stamp of that moment */
    PWL_LISTS
};

enum pwl_flag { PWL_IS_IN = 1, PWL_IS_LISTED = 2, PWL_IS_PARKED = 4 };
#define PWL_QUEUE_SHIFT 3u
enum pwl_mark {
    PWL_IS_INNER = 1 /* it has a parent, if only at another node */
};

/* All 0: not in the policy, no children. */
struct pwl_slot {
    uint32_t newer, older; /* of its list: slot + 1, 0: none */
    uint32_t parent;       /* slot + 1, 0: none */
    uint32_t next;         /* of its chain of the key table: slot + 1, 0: the end */
    uint32_t last_low;
    uint16_t last_high; /* stamp of its last use */
    uint16_t children;
    uint16_t queue;     /* its number over three flags */
    uint8_t class_uses; /* class << 4 | uses */
    uint8_t marks;      /* enum pwl_mark */
};
_Static_assert(sizeof(struct pwl_slot) + sizeof(uint32_t) / PWL_KEYS_LOAD < 32, "under 32 bytes a slot");

struct pwl_list {
    uint32_t head, tail; /* newest, oldest: slot + 1, 0: none */
};

struct pwl_queue {
    uint32_t pages;
    uint8_t level; /* of priority: its bits */
    uint8_t share;
    double keep; /* what a priority makes of badness */
    struct pwl_list list[PWL_LISTS];
    /* of one call of victims */
    uint8_t best;                 /* the class whose next is worth the least */
    uint16_t stale;               /* a bit a class, whose cursor is to be looked at again */
    uint32_t cursor[PWL_CLASSES]; /* slot + 1 of the next to be offered; those that are older were passed */
    double badness[PWL_CLASSES];  /* of that one; negative: there is none */
};

struct pwl_less { /* children of a slot that were offered in this call */
    uint32_t call, slot, count;
};

struct pwl_extra { /* a parent that a cursor had passed before its last child was offered */
    double badness;
    uint32_t slot;
};

struct pwl_fan { /* a key that is not here, and how many groups went on with it */
    uint32_t tag, count;
};

struct pwl {
    struct pwl_slot *slot;
    uint32_t *head; /* of chains: slot + 1 */
    size_t slot_bytes, head_bytes;
    uint32_t max_slots, seen; /* seen: above every slot that was ever inserted */
    uint32_t chains, keys;
    struct evict_env env;
    struct ghosts ghosts;

    struct pwl_queue *queue;
    uint32_t n_queues, queue_room, last_queue;

    uint64_t guarded; /* shares */
    uint64_t clock;   /* counts uses */
    uint64_t live;    /* slots in the policy */

    /* What was learned of each class: uses over exposure, both decayed. */
    double hits[PWL_CLASSES], exposure[PWL_CLASSES];
    double weight[PWL_CLASSES]; /* 1 over it */
    uint64_t decay_at;          /* clock */
    double median;              /* of the ages at which objects were used a second time, in stamps */
    uint64_t ages;              /* of which it is */
    double span;                /* in stamps: what counts as a long time */
    float exposed[PWL_EXPOSED]; /* share of an object's exposure that has passed at an age of so many 16ths of a span */

    uint64_t request; /* of the group that `depth` is of */
    uint32_t depth;   /* 0, 1, or 2 and more objects were there before it */

    struct pwl_fan fan[PWL_FANS];

    uint32_t call;
    struct pwl_extra extra[PWL_VICTIMS]; /* a heap, the worst first */
    uint32_t n_extra;
    struct pwl_less less[2 * PWL_VICTIMS];
    uint32_t sweep; /* slot at which the next look for parents begins */
    bool forced;    /* the last victims are parents */
};

static inline uint64_t pwl_last(const struct pwl_slot *s)
{
    return (uint64_t)s->last_high << 32 | s->last_low;
}

static inline void pwl_set_last(struct pwl_slot *s, uint64_t stamp)
{
    s->last_low = (uint32_t)stamp;
    s->last_high = (uint16_t)(stamp >> 32);
}

static inline bool pwl_is(const struct pwl_slot *s, enum pwl_flag flag)
{
    return s->queue & flag;
}

static inline uint32_t pwl_queue_of(const struct pwl_slot *s)
{
    return s->queue >> PWL_QUEUE_SHIFT;
}

static inline uint8_t pwl_class_of(const struct pwl_slot *s)
{
    return s->class_uses >> 4;
}

static inline uint8_t pwl_uses(const struct pwl_slot *s)
{
    return s->class_uses & 15;
}

static inline void pwl_set_class(struct pwl_slot *s, uint8_t class, uint8_t uses)
{
    s->class_uses = (uint8_t)(class << 4 | uses);
}

/* An object is worth a share of 1 / (its fall)^2 of what it was when it was used, at an age of x spans. */
static inline double pwl_fall(double x)
{
    return 1 + x + x * x / 4;
}

/* evict_pwl_tree.c: keys and parents */
int pwl_keys_init(struct pwl *p); /* 0, -ENOMEM */
void pwl_keys_expect(void *p, uint32_t slots);
void pwl_keys_add(struct pwl *p, uint32_t slot, uint64_t key);
void pwl_keys_remove(struct pwl *p, uint32_t slot, uint64_t key);
uint32_t pwl_keys_find(const struct pwl *p, uint64_t key); /* SLOT_NONE */
/* Makes `parent` the parent of a slot in the policy that has none. Whether it did. */
bool pwl_adopt(struct pwl *p, uint32_t slot, uint32_t parent);
void pwl_orphan(struct pwl *p, uint32_t slot); /* it names no parent any more */

/* evict_pwl_list.c: the slot's own list, of its class or of parked ones */
void pwl_push(struct pwl *p, uint32_t slot); /* as the newest: it has the newest stamp */
void pwl_unlist(struct pwl *p, uint32_t slot);
void pwl_relist(struct pwl *p, uint32_t slot); /* in the order of stamps, looked for from the oldest on */
void pwl_tick(struct pwl *p);                  /* evict_pwl.c: one stamp on */

/* evict_pwl_victims.c */
uint32_t pwl_victims(void *policy, uint32_t pages, uint32_t *out, uint32_t max);
bool pwl_may(void *policy, uint32_t slot);
void pwl_guard(void *policy, uint64_t shares);
void pwl_skip(void *policy, uint32_t slot);
void pwl_expire(void *policy, uint32_t slot);
uint64_t pwl_age(void *policy, uint32_t slot);

const char *pwl_check(void *policy); /* evict_pwl_check.c */

#endif
