/* node_told.c: what a commit changed, for the homes of its keys; and all there is, for a home that knows nothing. */
#include "store/node_internal.h"

#include <string.h>

struct node_publication *told_add(struct node *n)
{
    struct node_command *last = n->told ? &n->commands[n->told - 1] : NULL;
    if (!last || last->n_published == PUBLISH_MAX) {
        struct node_publication *p = arena_take(n, PUBLISH_MAX * sizeof *p);
        last = p ? command_add(n, CMD_PUBLISHED, CONTROL_SESSION) : NULL;
        if (!last) {
            return NULL; /* no memory: the homes hear of it when all is published again */
        }
        last->published = p;
        n->told = n->n_commands;
    }
    return (struct node_publication *)&last->published[last->n_published++]; /* from the arena: ours to write */
}

static void describe(const struct node *n, uint32_t slot, uint8_t *buf, struct node_publication *out)
{
    const struct slot_header *h = header_of(n, slot);
    struct key_ref key = slot_key(n, slot, buf);
    if (key.data != buf) {
        memcpy(buf, key.data, key.size); /* a header may be another's by the time it is read */
        key.data = buf;
    }
    *out = (struct node_publication){.kind = PUBLISH_SEALED,
                                     .key = key,
                                     .counter = h->version,
                                     .region = slot_region(n, slot),
                                     .size = h->size,
                                     .lineage = h->lineage,
                                     .replaceable = names_replaceable(n, key.ns)};
}

static struct node_publication *tell(struct node *n, uint32_t slot)
{
    uint8_t *buf = arena_take(n, header_of(n, slot)->key_size > KEY_INLINE ? KEY_MAX : KEY_INLINE);
    struct node_publication *p = buf ? told_add(n) : NULL;
    if (p) {
        describe(n, slot, buf, p);
        p->fresh = p->region == n->c.super->region_id; /* what came from elsewhere was published by its owner */
    }
    return p;
}

void tell_taken(struct node *n, uint32_t slot)
{
    struct node_publication *p = n->c.publish ? tell(n, slot) : NULL;
    if (p) {
        p->again = true;
    }
}

void tell_sealed(struct node *n, const struct effect *e, const struct member *m)
{
    for (uint32_t i = 0; n->c.publish && i < e->n; i++) {
        if (!m[i].kept) {
            tell(n, m[i].slot);
        }
    }
}

void tell_gone(struct node *n, const struct effect *e, const struct member *m)
{
    for (uint32_t i = 0; n->c.publish && i < e->n; i++) {
        struct node_publication *p = tell(n, m[i].old);
        if (p && (e->kind == EFFECT_EVICT || (e->kind == EFFECT_PURGE && !m[i].tomb))) {
            p->kind = PUBLISH_GONE;
            p->past = e->kind == EFFECT_EVICT ? past_peek(n, p->key) : 0;
            p->fresh = false;
        } else if (p) {
            p->kind = PUBLISH_REMOVED;
            p->counter = e->counter;
            p->region = n->c.super->region_id;
            p->fresh = true;
        }
    }
}

bool node_object(const struct node *n, const struct msg_token *t, uint8_t *buf, struct node_publication *out)
{
    if (t->slot >= n->max_headers || !slabs_is_slot(n->slabs, t->slot) ||
        slot_load(header_of(n, t->slot)) != slot_word(t->gen, SLOT_READY)) {
        return false;
    }
    describe(n, t->slot, buf, out);
    return true;
}

bool node_objects_next(const struct node *n, uint64_t *cursor, uint8_t *buf, struct node_publication *out)
{
    for (uint32_t slot; !tombs_cursor(*cursor) && (slot = slabs_next(n->slabs, cursor)) != SLOT_NONE;) {
        if (word_state(slot_load(header_of(n, slot))) == SLOT_READY) {
            describe(n, slot, buf, out);
            return true;
        }
    }
    return tombs_next(n, cursor, buf, out);
}
