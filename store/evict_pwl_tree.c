/* evict_pwl_tree.c: from keys to slots, and from slots to their parents.
 *
 * The key table is linear hashing: it grows by one chain when there are more than PWL_KEYS_LOAD keys a chain, so that
 * no insert moves more than two chains. It keeps no keys: the core knows those of its slots.
 */
#include "store/evict_pwl.h"

#include <errno.h>
#include <sys/mman.h>

int pwl_keys_init(struct pwl *p)
{
    p->chains = 1;
    p->head_bytes = ((size_t)p->max_slots / PWL_KEYS_LOAD + 2) * sizeof *p->head;
    p->head = mmap(NULL, p->head_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->head == MAP_FAILED) {
        p->head = NULL;
        return -ENOMEM;
    }
    return 0;
}

/* Each split reads headers in no order: a restart with a million objects took a quarter longer. Pages that can't be
 * had now come with their first slots. */
void pwl_keys_expect(void *arg, uint32_t slots)
{
    struct pwl *p = arg;
    size_t bytes = slots < p->max_slots ? slots * sizeof *p->slot : p->slot_bytes;
    madvise(p->slot, bytes, MADV_POPULATE_WRITE);
    uint64_t most = p->head_bytes / sizeof *p->head, chains = (uint64_t)slots / PWL_KEYS_LOAD + 1;
    if (p->keys == 0 && chains > p->chains) {
        p->chains = (uint32_t)(chains < most ? chains : most);
        madvise(p->head, p->chains * sizeof *p->head, MADV_POPULATE_WRITE);
    }
}

/* Chains [0, low) were split in this round, low being the greatest power of two that is not above their number. */
static uint32_t chain_of(const struct pwl *p, uint64_t key)
{
    uint32_t low = 1u << (31 - __builtin_clz(p->chains));
    uint32_t wide = (uint32_t)key & (2 * low - 1);
    return wide < p->chains ? wide : (uint32_t)key & (low - 1);
}

void pwl_keys_ahead(void *arg, uint64_t key)
{
    struct pwl *p = arg;
    __builtin_prefetch(&p->head[chain_of(p, key)], 1);
}

static void split(struct pwl *p)
{
    uint32_t low = 1u << (31 - __builtin_clz(p->chains)), from = p->chains - low, at = p->head[from];
    p->chains++;
    p->head[from] = 0;
    while (at) {
        struct pwl_slot *s = &p->slot[at - 1];
        uint32_t next = s->next, chain = chain_of(p, p->env.key(p->env.arg, at - 1));
        s->next = p->head[chain];
        p->head[chain] = at;
        at = next;
    }
}

void pwl_keys_add(struct pwl *p, uint32_t slot, uint64_t key)
{
    uint32_t chain = chain_of(p, key);
    p->slot[slot].next = p->head[chain];
    p->head[chain] = slot + 1;
    if (++p->keys > (uint64_t)p->chains * PWL_KEYS_LOAD && (p->chains + 1) * sizeof *p->head <= p->head_bytes) {
        split(p);
    }
}

void pwl_keys_remove(struct pwl *p, uint32_t slot, uint64_t key)
{
    uint32_t *link = &p->head[chain_of(p, key)];
    while (*link && *link != slot + 1) {
        link = &p->slot[*link - 1].next;
    }
    if (*link) {
        *link = p->slot[slot].next;
        p->keys--;
    }
    p->slot[slot].next = 0;
}

uint32_t pwl_keys_find(const struct pwl *p, uint64_t key)
{
    for (uint32_t at = p->head[chain_of(p, key)]; at; at = p->slot[at - 1].next) {
        if (p->env.key(p->env.arg, at - 1) == key) {
            return at - 1;
        }
    }
    return SLOT_NONE;
}

bool pwl_adopt(struct pwl *p, uint32_t slot, uint32_t parent)
{
    struct pwl_slot *s = &p->slot[slot];
    /* One with too many children loses some of them: it has enough left to stay. */
    if (parent >= p->max_slots || parent == slot || s->parent || p->slot[parent].children == PWL_CHILDREN_MAX) {
        return false;
    }
    s->parent = parent + 1;
    p->slot[parent].children++;
    return true;
}

void pwl_orphan(struct pwl *p, uint32_t slot)
{
    struct pwl_slot *s = &p->slot[slot];
    if (s->parent) {
        uint32_t parent = s->parent - 1;
        s->parent = 0;
        if (--p->slot[parent].children == 0 && pwl_is(&p->slot[parent], PWL_IS_IN) &&
            !pwl_is(&p->slot[parent], PWL_IS_LISTED)) {
            pwl_relist(p, parent);
        }
    }
}
