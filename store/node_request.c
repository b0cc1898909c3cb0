/* node_request.c: one request: whose it is, and which part of the core answers it. */
#include "store/node_internal.h"

#include <errno.h>
#include <string.h>

#define LIST_BYTES (32u << 10) /* of one reply */

struct listing {
    struct msg_reply *reply;
    uint32_t used, max;
    bool more;
};

static void fill_stat(const struct node *n, struct key_ref key, const struct record *r, struct msg_stat *out)
{
    *out = (struct msg_stat){.counter = r->counter,
                             .region = region_of(n, r->region),
                             .checksum = r->checksum,
                             .lineage = r->lineage,
                             .created_us = r->created_us,
                             .generation = r->generation,
                             .size = r->size,
                             .slot_bytes = r->slot < n->max_headers ? (uint32_t)slot_bytes(n, r->slot) : 0,
                             .slot = r->slot,
                             .ttl_s = r->ttl_s,
                             .holds = r->n_holds,
                             .ns = key.ns,
                             .key_size = (uint16_t)key.size,
                             .priority = r->priority,
                             .tier = r->tier,
                             .segment = r->segment};
}

static uint32_t padded(uint32_t bytes)
{
    return (bytes + 7) & ~7u;
}

static int list_one(void *arg, struct key_ref key, const struct record *r)
{
    struct listing *l = arg;
    uint32_t bytes = (uint32_t)sizeof(struct msg_stat) + padded(key.size);
    if (l->reply->count == l->max || l->used + bytes > LIST_BYTES) {
        l->more = true;
        return 1;
    }
    uint8_t *at = (uint8_t *)(l->reply + 1) + l->used;
    struct msg_stat st = {.counter = r->counter,
                          .region = r->region,
                          .lineage = r->lineage,
                          .created_us = r->created_us,
                          .size = r->size,
                          .slot = r->slot,
                          .holds = r->n_holds,
                          .ns = key.ns,
                          .key_size = (uint16_t)key.size};
    memcpy(at, &st, sizeof st);
    memcpy(at + sizeof st, key.data, key.size);
    l->used += bytes;
    l->reply->count++;
    return 0;
}

void request_list(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_list *p = (const struct msg_list *)m;
    const uint8_t *prefix = (const uint8_t *)(p + 1);
    struct msg_reply *r = reply_add(n, s->id, m, 0, LIST_BYTES);
    if (!r) {
        return;
    }
    struct listing l = {.reply = r, .max = p->max};
    int e =
        n->c.index->list(n->c.ix, p->ns, prefix, p->prefix_size, prefix + p->prefix_size, p->after_size, list_one, &l);
    r->status = e < 0 ? e : (int32_t)r->count;
    r->head.flags = l.more ? MSG_HAS_MORE : 0;
    reply_shrink(r, l.used);
    uint8_t *at = (uint8_t *)(r + 1);
    for (uint32_t i = 0; i < r->count; i++) { /* what the index does not know */
        struct msg_stat *st = (struct msg_stat *)at;
        st->region = region_of(n, (uint16_t)st->region);
        st->slot_bytes = st->slot < n->max_headers ? (uint32_t)slot_bytes(n, st->slot) : 0;
        at += sizeof *st + padded(st->key_size);
    }
    n->counters[NODE_LISTS]++;
}

static struct key_ref key_of(const struct msg_key *p)
{
    return (struct key_ref){.data = p + 1, .size = p->key_size, .ns = p->ns};
}

void request_stat(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    struct key_ref key = key_of((const struct msg_key *)m);
    struct record r;
    n->counters[NODE_STATS]++;
    int e = n->c.index->get(n->c.ix, key, &r);
    if (e == -ENOENT && (m->flags & MSG_PEERS)) {
        struct node_command *c = command_add(n, CMD_PULL, s->id);
        if (c) {
            c->message = m;
        }
        return;
    }
    if (e) {
        reply_add(n, s->id, m, e, 0);
        return;
    }
    uint32_t room = (uint32_t)sizeof(struct msg_stat) + padded(key.size);
    for (uint32_t i = 0; i < r.n_holds; i++) {
        room += (uint32_t)sizeof(struct msg_stat_hold) + padded(r.holds[i].label_size);
    }
    struct msg_reply *reply = reply_add(n, s->id, m, 0, room);
    if (!reply) {
        return;
    }
    uint8_t *at = (uint8_t *)(reply + 1);
    fill_stat(n, key, &r, (struct msg_stat *)at);
    at += sizeof(struct msg_stat);
    memcpy(at, key.data, key.size);
    at += padded(key.size);
    for (uint32_t i = 0; i < r.n_holds; i++) {
        int64_t left = r.holds[i].expiry - n->now.boot;
        struct msg_stat_hold h = {.ttl_ns = r.holds[i].expiry == 0 ? 0
                                            : left > 0             ? left
                                                                   : 1,
                                  .label_size = r.holds[i].label_size};
        memcpy(at, &h, sizeof h);
        memcpy(at + sizeof h, r.holds[i].label, h.label_size);
        at += sizeof h + padded(h.label_size);
    }
    reply->count = 1;
}

void request_find(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    struct key_ref key = key_of((const struct msg_key *)m);
    struct key_hash hash = lookup_hash(n->c.super->hash_seed, key);
    if (pending_has(&n->pending, hash.home)) {
        session_stall(n, s, m, taken); /* the answer is what the commit makes of it */
        return;
    }
    n->counters[NODE_FINDS]++;
    uint32_t slot = key_slot(n, hash, key, NULL);
    struct msg_reply *r =
        reply_add(n, s->id, m, slot == SLOT_NONE ? -ENOENT : 0, slot == SLOT_NONE ? 0 : sizeof(struct msg_token));
    if (r && slot != SLOT_NONE) {
        const struct slot_header *h = header_of(n, slot);
        struct msg_token *t = (struct msg_token *)(r + 1);
        *t = (struct msg_token){.gen = word_gen(slot_load(h)), .slot = slot, .page = h->page};
        r->count = 1;
    }
}

static void request_grow(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_grow *p = (const struct msg_grow *)m;
    uint32_t entries = (p->entries + PINS_SEGMENT - 1) / PINS_SEGMENT * PINS_SEGMENT;
    struct msg_reply *r = reply_add(n, s->id, m, 0, 0);
    if (!r) {
        return;
    }
    r->counter = entries;
    struct node_command *c = &n->commands[n->n_commands - 1];
    c->kind = CMD_GROW; /* acknowledged before the client hears of it: a pin in there is always scanned */
    c->n_slots = entries;
}

/* The key's objects that were removed or replaced and are still read: more, up to `most`. */
static uint32_t retired_of(const struct node *n, const struct slot_list *l, struct key_ref key, uint32_t *out,
                           uint32_t most)
{
    uint8_t buf[KEY_MAX];
    uint32_t found = 0;
    for (uint32_t slot = l->head; slot != SLOT_NONE && found < most; slot = n->next[slot]) {
        struct key_ref has = slot_key(n, slot, buf);
        if (has.size == key.size && has.ns == key.ns && memcmp(has.data, key.data, key.size) == 0) {
            out[found++] = slot;
        }
    }
    return found;
}

static void request_revoke(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    struct key_ref key = key_of((const struct msg_key *)m);
    uint32_t found[REVOKE_MAX], count = 0;
    uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
    if (slot != SLOT_NONE) {
        found[count++] = slot;
    }
    const struct slot_list *retired[] = {&n->waiting, &n->fresh, &n->leased}; /* a leased one may be pinned, too */
    for (unsigned i = 0; i < sizeof retired / sizeof *retired; i++) {
        count += retired_of(n, retired[i], key, found + count, REVOKE_MAX - count);
    }
    uint32_t *slots = count ? arena_take(n, count * sizeof *slots) : NULL;
    struct node_command *c = slots ? command_add(n, CMD_REVOKE, s->id) : NULL;
    if (!c) {
        refuse(n, s->id, m, count ? -ENOMEM : -ENOENT);
        return;
    }
    memcpy(slots, found, count * sizeof *slots);
    c->message = m;
    c->slots = slots;
    c->n_slots = count;
}

static void request_query(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    struct node_command *c = command_add(n, CMD_QUERY, s->id);
    if (c) {
        c->message = m;
    }
}

static void request_pull(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    const struct msg_pull *p = (const struct msg_pull *)m;
    const struct msg_pull_key *k = (const struct msg_pull_key *)(p + 1);
    for (uint32_t i = 0; i < p->count; i++, k = msg_pull_next(k)) {
        if (!names_known(n, k->ns)) {
            refuse(n, s->id, m, -EINVAL);
            return;
        }
    }
    struct node_command *c = command_add(n, CMD_PULL, s->id);
    if (c) {
        c->message = m;
    }
}

/* What the shell carries out and answers. */
static void request_pass(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    (void)taken;
    struct node_command *c = command_add(n,
                                         m->op == MSG_CANCEL   ? CMD_CANCEL_PULL
                                         : m->op == MSG_BUFFER ? CMD_BUFFER
                                                               : CMD_AWAIT_HOMES,
                                         s->id);
    if (c) {
        c->message = m;
    }
}

struct operation {
    void (*run)(struct node *n, struct session *s, const struct msg_head *m, int64_t taken);
    bool writes;  /* refused to a session that may only read */
    bool commits; /* its effect goes into a batch: it waits where that is full */
};

/* DETACH is not here: it is the shell's, and ends the session by EV_DEAD. PUT and SEAL look at the batch themselves. A
 * reader may ask for a namespace; only a writer makes one. */
static const struct operation operations[MSG_CODES] = {
    [MSG_GRANT] = {.run = request_grant, .writes = true},
    [MSG_PUT] = {.run = request_put, .writes = true},
    [MSG_CREATE] = {.run = request_create, .writes = true},
    [MSG_SUMS] = {.run = request_sums, .writes = true},
    [MSG_SEAL] = {.run = request_seal, .writes = true},
    [MSG_ABORT] = {.run = request_abort, .writes = true},
    [MSG_REMOVE] = {.run = request_remove, .writes = true, .commits = true},
    [MSG_HOLD] = {.run = request_hold, .writes = true, .commits = true},
    [MSG_DROP] = {.run = request_drop, .writes = true, .commits = true},
    [MSG_PURGE] = {.run = request_purge, .writes = true, .commits = true},
    [MSG_STAT] = {.run = request_stat},
    [MSG_LIST] = {.run = request_list},
    [MSG_FIND] = {.run = request_find},
    [MSG_NAMESPACE] = {.run = request_namespace, .commits = true},
    [MSG_GROW] = {.run = request_grow},
    [MSG_QUERY] = {.run = request_query},
    [MSG_RESUME] = {.run = request_resume},
    [MSG_REVOKE] = {.run = request_revoke, .writes = true},
    [MSG_WAIT] = {.run = request_wait},
    [MSG_PULL] = {.run = request_pull},
    [MSG_CANCEL] = {.run = request_pass},
    [MSG_BUFFER] = {.run = request_pass, .writes = true},
    [MSG_PUBLISHED] = {.run = request_pass},
};

void request_run(struct node *n, struct session *s, const struct msg_head *m, int64_t taken)
{
    const struct operation *o = m->op < MSG_CODES ? &operations[m->op] : NULL;
    if (m->op == NODE_SEAL_ORIGIN && s->id == NODE_PULLER) {
        request_seal_origin(n, s, m, taken);
    } else if (!o || !o->run) {
        refuse(n, s->id, m, -EOPNOTSUPP);
    } else if (o->writes && !s->writable) {
        refuse(n, s->id, m, BERTH_EREADONLY);
    } else if (((m->flags & MSG_AGAIN) && work_holds(n, s->id, m->id)) || (o->commits && work_full(n))) {
        /* Its first sending is at the committer, and what that did is known afterwards; or there is no room for it. */
        session_stall(n, s, m, taken);
    } else {
        o->run(n, s, m, taken);
    }
}
