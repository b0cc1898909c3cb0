/* reader.c: reads without a lock, one load or store of shared memory a step, as find.h and pin.h do them. */
#include "tests/sim/sim.h"

#include "index/lookup_hash.h"

#include <string.h>

#define TRIES 64u

enum { AT_BUCKET, AT_PIN, AT_STATE, AT_GROUP, AT_KEY, AT_TAGS, AT_LOOK, AT_RELEASE };

struct stamp { /* at the beginning of every block of payload */
    uint32_t put, key, block, size;
};

uint32_t payload_blocks(uint32_t size)
{
    return (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static uint8_t *block_at(struct sim *s, uint32_t page, uint32_t block)
{
    return s->pool + (uint64_t)page * PAGE_BYTES + (uint64_t)block * BLOCK_BYTES;
}

static uint32_t stamp_bytes(uint32_t size, uint32_t block)
{
    uint32_t left = size - block * BLOCK_BYTES;
    return left < sizeof(struct stamp) ? left : (uint32_t)sizeof(struct stamp);
}

void payload_write(struct sim *s, uint32_t put, uint32_t block)
{
    const struct put *p = &s->puts[put];
    struct stamp stamp = {put, p->key, block, p->size};
    memcpy(block_at(s, p->page, block), &stamp, stamp_bytes(p->size, block));
}

static void payload_verify(struct sim *s, uint32_t client, uint32_t put)
{
    const struct put *p = &s->puts[put];
    uint32_t blocks = payload_blocks(p->size);
    for (uint32_t i = 0; i < 4 && blocks; i++) {
        uint32_t block = sim_below(s, blocks);
        struct stamp stamp = {put, p->key, block, p->size};
        if (memcmp(block_at(s, p->page, block), &stamp, stamp_bytes(p->size, block)) != 0) {
            sim_violation(s, "client %u: block %u of key %u, put %u in slot %u has other bytes", client, block, p->key,
                          put, p->slot);
        }
    }
}

static void search_again(struct reading *r)
{
    r->probe = r->way = 0;
}

/* What a reader that starts now must find: what is in the index and visible. */
static void start_reading(struct sim *s, struct reading *r)
{
    r->start = s->step;
    r->at = 0;
    search_again(r);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct key *k = &s->key[r->key[i]];
        bool there =
            k->present && slot_load(&s->headers[k->record.slot]) == slot_word(k->record.generation, SLOT_READY);
        r->put_at_start[i] = there ? k->put : SIM_NONE;
    }
}

void reader_begin(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    struct reading *r = &t->read;
    *r = (struct reading){.n = sim_chance(s, 3) ? 1 + sim_below(s, 3) : 1};
    r->same_group = r->n > 1 && sim_chance(s, 2);
    for (uint32_t i = 0; i < r->n; i++) {
        r->key[i] = sim_below(s, s->keys);
        r->entry[i] = r->put[i] = SIM_NONE;
    }
    start_reading(s, r);
    t->state = AT_BUCKET;
}

static void unpin(struct client *c, uint32_t entry)
{
    c->pin[entry] = 0;
    c->valid[entry] = 0;
}

static void release_all(struct client *c, struct reading *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->entry[i] != SIM_NONE) {
            unpin(c, r->entry[i]);
            r->entry[i] = SIM_NONE;
        }
    }
}

/* Each task has four entries of each segment. */
static uint32_t free_entry(struct sim *s, const struct client *c, uint32_t task)
{
    uint32_t first = task * (SIM_SEGMENT / SIM_TASKS);
    first += c->acked > SIM_SEGMENT && sim_chance(s, 2) ? SIM_SEGMENT : 0;
    for (uint32_t i = first; i < first + SIM_SEGMENT / SIM_TASKS; i++) {
        if (c->pin[i] == 0) {
            return i;
        }
    }
    return SIM_NONE;
}

static void missed(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    struct reading *r = &t->read;
    const struct key *k = &s->key[r->key[r->at]];
    const struct lookup_bucket *home = &s->lookup.buckets[k->hash.home & s->lookup.mask];
    bool ask = atomic_load_explicit(&home->ask, memory_order_acquire) != 0;
    if (!ask) {
        shadow_miss(s, client, r);
    }
    uint32_t key = r->key[r->at];
    s->reads++;
    s->operations++;
    release_all(c, r);
    t->kind = TASK_NONE;
    if (ask && c->attached) {
        t->kind = TASK_KEY;
        t->state = 1;
        send_key(s, client, task, MSG_FIND, key, 0);
    }
}

static void step_bucket(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    struct reading *r = &t->read;
    const struct key *k = &s->key[r->key[r->at]];
    const struct lookup_bucket *b = &s->lookup.buckets[(k->hash.home & s->lookup.mask) + r->probe];
    for (; r->way < LOOKUP_WAYS; r->way++) {
        uint64_t e = atomic_load_explicit(&b->entry[r->way], memory_order_acquire);
        if (e && lookup_entry_tagged(e, k->hash) && lookup_entry_slot(e) < s->lookup.n_headers) {
            r->slot = lookup_entry_slot(e);
            t->state = AT_PIN;
            return;
        }
    }
    r->way = 0;
    if (atomic_load_explicit(&b->passed, memory_order_acquire) == 0 || ++r->probe == LOOKUP_PROBES) {
        missed(s, client, task);
    }
}

static void step_pin(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    struct reading *r = &t->read;
    uint32_t entry = c->refuse ? SIM_NONE : free_entry(s, c, task);
    if (entry == SIM_NONE) {
        release_all(c, r);
        t->kind = TASK_NONE;
        return;
    }
    c->pin[entry] = r->slot + 1;
    r->entry[r->at] = entry;
    t->state = AT_STATE;
}

static void try_again(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    unpin(c, t->read.entry[t->read.at]);
    t->read.entry[t->read.at] = SIM_NONE;
    search_again(&t->read);
    t->state = AT_BUCKET;
    if (++t->read.tries == TRIES) {
        release_all(c, &t->read);
        t->kind = TASK_NONE;
        s->reads++;
    }
}

static void step_state(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    const struct slot_header *h = &s->headers[t->read.slot];
    uint64_t link = atomic_load_explicit(&h->group, memory_order_acquire);
    if (t->state == AT_STATE) {
        if (word_state(slot_load(h)) == SLOT_READY) {
            t->state = AT_GROUP;
        } else {
            try_again(s, client, task);
        }
    } else if (link == 0 ||
               (link <= s->super.max_headers && word_state(slot_load(&s->headers[link - 1])) == SLOT_READY)) {
        t->state = AT_KEY;
    } else {
        try_again(s, client, task);
    }
}

static void step_key(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    struct reading *r = &t->read;
    const struct key *k = &s->key[r->key[r->at]];
    const struct slot_header *h = &s->headers[r->slot];
    if (!lookup_key_equal(&s->lookup, h, (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns})) {
        unpin(c, r->entry[r->at]);
        r->entry[r->at] = SIM_NONE;
        r->way++;
        r->tries++;
        t->state = AT_BUCKET;
        if (r->tries >= TRIES) {
            release_all(c, r);
            t->kind = TASK_NONE;
        }
        return;
    }
    r->put[r->at] = shadow_find(s, r->slot, word_gen(slot_load(h)));
    shadow_read(s, client, r, r->at);
    c->valid[r->entry[r->at]] = r->put[r->at] + 1;
    search_again(r);
    t->state = AT_BUCKET;
    if (++r->at == r->n) {
        t->state = r->same_group ? AT_TAGS : AT_LOOK;
        r->looks = 1 + sim_below(s, 6);
    }
}

/* Members of replaceable namespaces whose tags differ are no group; whoever wants them from one seal starts again. */
static void step_tags(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    struct reading *r = &t->read;
    bool same = true;
    for (uint32_t i = 1; i < r->n; i++) {
        same &= s->headers[c->pin[r->entry[i]] - 1].version == s->headers[c->pin[r->entry[0]] - 1].version;
    }
    if (same || ++r->tries >= 8) {
        t->state = AT_LOOK;
        return;
    }
    release_all(c, r);
    start_reading(s, r);
    t->state = AT_BUCKET;
}

static void step_look(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    for (uint32_t i = 0; i < t->read.n; i++) {
        payload_verify(s, client, t->read.put[i]);
    }
    if (--t->read.looks == 0) {
        t->state = AT_RELEASE;
    }
}

void reader_step(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    switch (t->state) {
    case AT_BUCKET:
        step_bucket(s, client, task);
        break;
    case AT_PIN:
        step_pin(s, client, task);
        break;
    case AT_STATE:
    case AT_GROUP:
        step_state(s, client, task);
        break;
    case AT_KEY:
        step_key(s, client, task);
        break;
    case AT_TAGS:
        step_tags(s, client, task);
        break;
    case AT_LOOK:
        step_look(s, client, task);
        break;
    default:
        release_all(c, &t->read);
        t->kind = TASK_NONE;
        s->reads++;
        s->operations++;
        break;
    }
}
