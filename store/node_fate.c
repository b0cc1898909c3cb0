/* node_fate.c: what became of keys that are not here, for whoever asks why.
 *
 * A table of FATE_SETS sets of FATE_WAYS entries, 2 MiB in all, by hash: a key's newest entry takes the place of its
 * older one, else the oldest of the set goes. It is filled where effects are carried out or refused, and by a start
 * with what that drops. It costs a put that succeeds nothing: an entry that is older than the object which is here now
 * is known by its time. Two keys that share 64 bits of hash share an entry. It begins anew with each start.
 */
#include "store/node_internal.h"

#include <string.h>
#include <sys/mman.h>

#define FATES_BYTES (FATES_MAX * sizeof(struct fate))

bool fates_init(struct node *n)
{
    /* All of it at once: nobody asks for room later, and a node close to its memory's limit has none to give. */
    void *p = mmap(NULL, FATES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    n->fates.set = p == MAP_FAILED ? NULL : p;
    return n->fates.set;
}

void fates_free(struct node *n)
{
    if (n->fates.set) {
        munmap(n->fates.set, FATES_BYTES);
    }
}

static struct fate *set_of(const struct node *n, uint64_t home)
{
    return &n->fates.set[(home >> 20) % FATE_SETS * FATE_WAYS];
}

static struct fate *find(const struct node *n, uint64_t home)
{
    struct fate *set = set_of(n, home);
    for (uint32_t i = 0; i < FATE_WAYS; i++) {
        if (set[i].kind && set[i].home == home) {
            return &set[i];
        }
    }
    return NULL;
}

/* An empty one, else the oldest. */
static struct fate *victim(struct node *n, uint64_t home)
{
    struct fate *set = set_of(n, home), *best = set;
    for (uint32_t i = 0; i < FATE_WAYS; i++) {
        if (!set[i].kind) {
            n->fates.count++;
            return &set[i];
        }
        best = n->fates.serial - set[i].serial > n->fates.serial - best->serial ? &set[i] : best;
    }
    return best;
}

void fate_add(struct node *n, struct key_hash hash, struct fate f)
{
    struct fate *at = find(n, hash.home);
    bool gave_up = f.kind == FATE_ABORTED || f.kind == FATE_DIED;
    if (at && at->kind == FATE_PUT_FAILED && gave_up) {
        return; /* it was given up for that error */
    }
    at = at ? at : victim(n, hash.home);
    *at = f;
    at->home = hash.home;
    at->wall_us = n->now.wall_us;
    at->serial = ++n->fates.serial;
}

void fate_draft(struct node *n, uint32_t slot, enum node_fate kind, int32_t error)
{
    const struct slot_header *h = header_of(n, slot);
    if (h->key_size && !(atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_GRANT)) {
        fate_add(n, slot_hash(n, slot), (struct fate){.kind = (uint8_t)kind, .error = (int16_t)error});
    }
}

/* Of a whole message: what was asked for by name. */
static struct key_ref key_of(const struct msg_head *m)
{
    const struct msg_object *o =
        m->op == MSG_PUT ? &((const struct msg_put *)m)->object : &((const struct msg_create *)m)->object;
    if (m->op == MSG_GRANT) {
        const struct msg_grant *g = (const struct msg_grant *)m;
        return (struct key_ref){.data = g + 1, .size = g->key_size, .ns = g->ns};
    }
    if (m->op != MSG_PUT && m->op != MSG_CREATE) {
        return (struct key_ref){0};
    }
    const void *data = m->op == MSG_PUT ? (const void *)((const struct msg_put *)m + 1)
                                        : (const void *)((const struct msg_create *)m + 1);
    return (struct key_ref){.data = data, .size = o->key_size, .ns = o->ns};
}

void fate_refused(struct node *n, const struct msg_head *m, int32_t error)
{
    struct key_ref key = key_of(m);
    if (key.size) {
        fate_add(n, lookup_hash(n->c.super->hash_seed, key),
                 (struct fate){.kind = FATE_PUT_FAILED, .error = (int16_t)error});
    }
}

void node_why(const struct node *n, struct key_ref key, struct node_why *out)
{
    struct record r;
    struct key_hash hash = lookup_hash(n->c.super->hash_seed, key);
    const struct fate *f = find(n, hash.home);
    *out = (struct node_why){.since_us = n->fates.since_us};
    out->here = n->c.index->get(n->c.ix, key, &r) == 0;
    out->written = pending_has(&n->writing, hash.home);
    if (out->here) {
        out->counter = r.counter;
        out->region = region_of(n, r.region);
        out->created_us = r.created_us;
        out->size = r.size;
        out->holds = r.n_holds;
    }
    if (f) {
        out->fate = (enum node_fate)f->kind;
        out->need = (enum node_need)f->need;
        out->error = f->error;
        out->gone_counter = f->counter;
        out->gone_us = f->wall_us;
    }
}
