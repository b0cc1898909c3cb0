/* node_slots.c: a slot's header, key, list and accounts. */
#include "store/node_internal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void list_push(struct node *n, struct slot_list *l, uint32_t slot)
{
    n->next[slot] = SLOT_NONE;
    n->prev[slot] = l->tail;
    *(l->tail == SLOT_NONE ? &l->head : &n->next[l->tail]) = slot;
    l->tail = slot;
    l->count++;
}

void list_remove(struct node *n, struct slot_list *l, uint32_t slot)
{
    uint32_t before = n->prev[slot], after = n->next[slot];
    *(before == SLOT_NONE ? &l->head : &n->next[before]) = after;
    *(after == SLOT_NONE ? &l->tail : &n->prev[after]) = before;
    l->count--;
}

bool busy(const struct node *n, uint32_t slot)
{
    return n->mark[slot] & MARK_BUSY;
}

bool slot_held(const struct node *n, uint32_t slot)
{
    return atomic_load_explicit(&header_of(n, slot)->flags, memory_order_relaxed) & SLOT_HELD;
}

uint64_t slot_bytes(const struct node *n, uint32_t slot)
{
    return (uint64_t)slabs_slot_pages(n->slabs, slot) * PAGE_BYTES;
}

struct key_ref slot_key(const struct node *n, uint32_t slot, uint8_t *buf)
{
    const struct slot_header *h = header_of(n, slot);
    if (h->key_size <= KEY_INLINE) {
        return (struct key_ref){.data = h->key, .size = h->key_size, .ns = h->ns};
    }
    uint32_t size = slot_key_size(h);
    memcpy(buf, h->key, KEY_HEAD);
    memcpy(buf + KEY_HEAD, tails_at(n->tails, h->tail), size - KEY_HEAD);
    return (struct key_ref){.data = buf, .size = size, .ns = h->ns};
}

struct key_hash slot_hash(const struct node *n, uint32_t slot)
{
    uint8_t buf[KEY_MAX];
    return lookup_hash(n->c.super->hash_seed, slot_key(n, slot, buf));
}

/* What lies in cells is written before the flag says so: whoever finds the header half done finds no cells in it. */
static void set_key(struct node *n, struct slot_header *h, const void *key, uint32_t size, uint32_t tail, bool rest)
{
    uint32_t head = size < sizeof h->key ? size : (uint32_t)sizeof h->key;
    memcpy(h->key, key, head);
    if (rest) {
        memcpy(tails_at(n->tails, tail), (const uint8_t *)key + KEY_HEAD, size - KEY_HEAD);
    } else if (size > head) {
        memcpy(h->key_last, (const uint8_t *)key + head, size - head);
    }
    h->key_size = (uint16_t)(size | (rest && size <= KEY_INLINE ? KEY_SPLIT : 0));
}

int slot_set_object(struct node *n, uint32_t slot, const struct msg_object *o, const void *key)
{
    struct slot_header *h = header_of(n, slot);
    uint32_t segments = segments_of(o->size, o->segment), of_key = cells_of_key(o->key_size, segments);
    uint32_t cells = of_key + cells_of_segments(segments), tail = 0;
    if (cells && (tail = tails_alloc(n->tails, cells)) == TAIL_NONE) {
        return BERTH_EFULL;
    }
    h->size = o->size;
    h->tier_segment = o->segment;
    h->lineage = o->lineage;
    h->checksum = (uint64_t)o->ttl_s << 8 | o->priority;
    h->ns = o->ns;
    atomic_store_explicit(&h->group, o->parent, memory_order_relaxed);
    set_key(n, h, key, o->key_size, tail, of_key > 0);
    if (cells) {
        h->tail = tail;
        memset(tails_at(n->tails, tail + of_key), 0, (size_t)(cells - of_key) * TAIL_CELL);
        atomic_fetch_or_explicit(&h->flags, SLOT_TAIL, memory_order_release);
    }
    return 0;
}

uint64_t *slot_sums(const struct node *n, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    uint32_t segments = segments_of(h->size, slot_segment(h));
    return segments ? (uint64_t *)tails_at(n->tails, h->tail + cells_of_key(slot_key_size(h), segments)) : NULL;
}

uint64_t slot_sums_checksum(const struct node *n, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    return XXH3_64bits(slot_sums(n, slot), segments_of(h->size, slot_segment(h)) * sizeof(uint64_t));
}

void slot_drop_key(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    uint32_t cell, cells = lookup_cells(n->c.lookup, h, &cell);
    if (cells) {
        tails_free(n->tails, cell, cells);
    }
    atomic_fetch_and_explicit(&h->flags, (uint8_t)~SLOT_TAIL, memory_order_relaxed);
    h->key_size = 0;
    h->tier_segment = 0;
}

void slot_release(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    writing_lost(n, slot, WAIT_ABORTED);
    if (slot_leased(n, slot)) { /* a draft that was in use before the start: not FREE before the horizon (rule 19) */
        slot_retire(n, slot);
        return;
    }
    slot_drop_key(n, slot);
    region_drop(n, slot);
    n->mark[slot] = 0;
    /* The generation grows before anybody can be handed the slot: a late seal of the old use finds another one. */
    slot_store(h, word_gen(slot_load(h)) + 1, SLOT_FREE);
    slabs_free(n->slabs, slot);
    n->counters[NODE_FREED]++;
}

void slot_retire(struct node *n, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    bool any = n->lease.count > 0;
    if (any) {
        lease_account(n, slot, -1);
    }
    slot_store(h, word_gen(slot_load(h)), SLOT_RETIRED);
    if (any) {
        lease_account(n, slot, 1);
    }
    n->mark[slot] &= (uint8_t)~MARK_BUSY;
    list_push(n, slot_leased(n, slot) ? &n->leased : &n->fresh, slot);
    n->retired_bytes += slot_bytes(n, slot);
    n->counters[NODE_RETIRED]++;
}

/* What a child's `parent` names: XXH3-64 of the key. For evict_env. */
uint64_t slot_key_tag(void *arg, uint32_t slot)
{
    const struct node *n = arg;
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, slot, buf);
    return XXH3_64bits(key.data, key.size);
}

static void policy_insert(struct node *n, uint32_t slot, struct evict_hint hint)
{
    if (slot_held(n, slot)) {
        return; /* the policy has only what may go */
    }
    hint.key = slot_key_tag(n, slot);
    hint.request = n->request;
    hint.pages = slabs_slot_pages(n->slabs, slot);
    hint.share = share_of_slot(n, slot);
    n->policy->insert(n->evict, slot, &hint);
}

void slot_insert(struct node *n, uint32_t slot, struct evict_hint hint)
{
    const struct slot_header *h = header_of(n, slot);
    policy_insert(n, slot, hint);
    n->objects++;
    n->sealed_bytes += slot_bytes(n, slot);
    n->object_bytes += h->size;
    n->held += slot_held(n, slot);
    share_count(n, slot, true);
    slabs_saw(n->slabs, h->size);
    slabs_learn(n->slabs, !n->waiters); /* who waits for room waits for a slot of a class */
}

void slot_return(struct node *n, uint32_t slot)
{
    struct evict_hint hint = {.above = SLOT_NONE};
    struct record r = {.ttl_s = 0};
    uint8_t buf[KEY_MAX];
    n->mark[slot] &= (uint8_t)~MARK_BUSY;
    if (!slot_held(n, slot) && n->c.index->get(n->c.ix, slot_key(n, slot, buf), &r) == 0) {
        hint.parent = r.parent;
        hint.priority = r.priority;
    }
    policy_insert(n, slot, hint);
    if (r.ttl_s && ttl_end(n, &r) <= n->now.boot) {
        n->policy->expire(n->evict, slot);
    }
}

void mark_busy(struct node *n, uint32_t slot)
{
    n->mark[slot] |= MARK_BUSY;
    n->policy->remove(n->evict, slot);
}

void slot_uncount(struct node *n, uint32_t slot)
{
    const struct slot_header *h = header_of(n, slot);
    n->policy->remove(n->evict, slot);
    n->objects--;
    n->sealed_bytes -= slot_bytes(n, slot);
    n->object_bytes -= h->size;
    n->held -= slot_held(n, slot);
    share_count(n, slot, false);
}

bool token_valid(const struct node *n, const struct session *s, const struct msg_token *t)
{
    if (t->slot >= n->max_headers || !slabs_is_slot(n->slabs, t->slot)) {
        return false;
    }
    const struct slot_header *h = header_of(n, t->slot);
    return t->gen < UINT64_C(1) << 56 && slot_load(h) == slot_word(t->gen, SLOT_WRITING) && h->version == s->id;
}

void draft_add(struct node *n, struct session *s, uint32_t slot, bool grant)
{
    struct slot_header *h = header_of(n, slot);
    h->version = s->id;
    h->size = 0;
    h->key_size = 0;
    h->lineage = 0;
    h->checksum = 0;
    h->region = 0;
    h->tier_segment = 0;
    atomic_store_explicit(&h->group, 0, memory_order_relaxed);
    atomic_store_explicit(&h->flags, grant ? SLOT_GRANT : 0, memory_order_relaxed);
    slot_store(h, word_gen(slot_load(h)), SLOT_WRITING);
    list_push(n, &s->drafts, slot);
    s->draft_bytes += slot_bytes(n, slot);
    n->draft_bytes += slot_bytes(n, slot);
    *(grant ? &n->grants : &n->drafts) += 1;
}

void draft_remove(struct node *n, struct session *s, uint32_t slot)
{
    struct slot_header *h = header_of(n, slot);
    list_remove(n, &s->drafts, slot);
    s->draft_bytes -= slot_bytes(n, slot);
    n->draft_bytes -= slot_bytes(n, slot);
    bool grant = atomic_load_explicit(&h->flags, memory_order_relaxed) & SLOT_GRANT;
    *(grant ? &n->grants : &n->drafts) -= 1;
}

void draft_abort(struct node *n, struct session *s, uint32_t slot)
{
    draft_remove(n, s, slot);
    writing_lost(n, slot, s->dead || s == &n->orphan ? WAIT_DIED : WAIT_ABORTED);
    slot_release(n, slot);
}

bool node_slot(const struct node *n, uint32_t slot, struct node_slot_info *out)
{
    if (slot >= n->max_headers || !slabs_is_slot(n->slabs, slot)) {
        return false;
    }
    const struct slot_header *h = header_of(n, slot);
    uint64_t word = slot_load(h);
    if (word_state(word) != SLOT_READY && word_state(word) != SLOT_RETIRED) {
        return false;
    }
    uint8_t buf[KEY_MAX];
    struct key_ref key = slot_key(n, slot, buf);
    memcpy(out->key, key.data, key.size);
    out->key_size = key.size;
    out->ns = key.ns;
    out->size = h->size;
    out->generation = word_gen(word);
    out->version = h->version;
    out->state = word_state(word);
    out->held = slot_held(n, slot);
    return true;
}

uint32_t node_find(const struct node *n, struct key_ref key)
{
    return key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
}
