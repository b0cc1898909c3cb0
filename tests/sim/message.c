/* message.c: a client's requests, as libberth would write them. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static struct request *request_new(struct sim *s, uint32_t client, uint32_t task, uint16_t op, size_t bytes)
{
    struct client *c = &s->client[client];
    struct request *r = calloc(1, sizeof *r);
    struct msg_head *m = calloc(1, bytes + 1);
    if (!r || !m) {
        abort();
    }
    static const int64_t wait[4] = {0, 5 * MS, 200 * MS, INT64_MAX};
    int64_t deadline = wait[sim_below(s, 4)];
    *m = (struct msg_head){.bytes = (uint32_t)bytes, .op = op, .id = ++c->next_id, .stamp = (uint64_t)s->now.mono};
    if (op == MSG_GRANT || op == MSG_CREATE) {
        m->deadline = deadline == 0 || deadline == INT64_MAX ? deadline : s->now.mono + deadline;
    }
    r->message = m;
    r->step = s->step;
    r->task = task;
    r->key = r->label = SIM_NONE;
    return r;
}

static struct request *request_send(struct sim *s, uint32_t client, struct request *r)
{
    struct client *c = &s->client[client];
    if (msg_check(r->message, r->message->bytes)) {
        sim_violation(s, "msg_check refuses a message of op %u that is as it should be", r->message->op);
    }
    *c->end = r;
    c->end = &r->next;
    c->n_requests++;
    if (r->task < SIM_TASKS) {
        c->task[r->task].waits = r->message->id;
    }
    sim_note(s, "client %u: sends op %u id %llu key %d put %d", client, r->message->op,
             (unsigned long long)r->message->id, (int)r->key, r->n_puts ? (int)r->put[0] : -1);
    return r;
}

struct request *send_grant(struct sim *s, uint32_t client, uint32_t task, uint32_t size, uint32_t count)
{
    struct request *r = request_new(s, client, task, MSG_GRANT, sizeof(struct msg_grant));
    struct msg_grant *m = (struct msg_grant *)r->message;
    m->size = size;
    m->count = count;
    return request_send(s, client, r);
}

static struct msg_object object_of(struct sim *s, uint32_t key, uint32_t size)
{
    const struct key *k = &s->key[key];
    return (struct msg_object){.lineage = key + 1u,
                               .parent = sim_below(s, 3),
                               .size = size,
                               .ns = k->ns,
                               .ttl_s = sim_below(s, 2) * 60,
                               .key_size = (uint16_t)k->size,
                               .priority = (uint8_t)sim_below(s, 3)};
}

static struct msg_token token_of(const struct sim *s, uint32_t put)
{
    const struct put *p = &s->puts[put];
    return (struct msg_token){.gen = p->gen, .slot = p->slot, .page = p->page};
}

static void ask(struct sim *s, struct request *r, uint32_t put)
{
    struct put *p = &s->puts[put];
    r->put[r->n_puts++] = put;
    if (!r->forged && p->state == PUT_OPEN) {
        p->state = PUT_ASKED;
    }
    p->asked |= r->message->op != MSG_ABORT;
    p->seal = r->message->id;
}

struct request *send_put(struct sim *s, uint32_t client, uint32_t task, uint32_t put)
{
    const struct put *p = &s->puts[put];
    const struct key *k = &s->key[p->key];
    struct request *r = request_new(s, client, task, MSG_PUT, sizeof(struct msg_put) + k->size);
    struct msg_put *m = (struct msg_put *)r->message;
    m->token = token_of(s, put);
    m->object = object_of(s, p->key, p->size);
    m->object.checksum = put + 1u;
    m->want = sim_below(s, 5);
    memcpy(m + 1, k->data, k->size);
    r->key = p->key;
    ask(s, r, put);
    return request_send(s, client, r);
}

struct request *send_create(struct sim *s, uint32_t client, uint32_t task, uint32_t key, uint32_t size)
{
    const struct key *k = &s->key[key];
    struct request *r = request_new(s, client, task, MSG_CREATE, sizeof(struct msg_create) + k->size);
    struct msg_create *m = (struct msg_create *)r->message;
    m->object = object_of(s, key, size);
    memcpy(m + 1, k->data, k->size);
    r->key = key;
    return request_send(s, client, r);
}

struct request *send_tokens(struct sim *s, uint32_t client, uint32_t task, uint16_t op, const uint32_t *puts,
                            uint32_t n)
{
    bool seal = op == MSG_SEAL;
    size_t each = seal ? sizeof(struct msg_member) : sizeof(struct msg_token);
    size_t head = seal ? sizeof(struct msg_seal) : sizeof(struct msg_tokens);
    struct request *r = request_new(s, client, task, op, head + n * each);
    for (uint32_t i = 0; i < n; i++) {
        r->forged |=
            s->puts[puts[i]].client != client || s->puts[puts[i]].state > PUT_ASKED || !s->client[client].alive;
    }
    if (seal) {
        struct msg_seal *m = (struct msg_seal *)r->message;
        m->count = n;
    } else {
        ((struct msg_tokens *)r->message)->count = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = (uint8_t *)r->message + head + i * each;
        struct msg_member member = {.token = token_of(s, puts[i]), .checksum = puts[i] + 1u};
        memcpy(at, &member, each);
        if (r->forged) {
            r->put[r->n_puts++] = puts[i];
        } else {
            ask(s, r, puts[i]);
        }
    }
    return request_send(s, client, r);
}

/* The open tokens, those of unanswered requests too; it goes before everything that is sent again. */
struct request *send_resume(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct put *p = &s->puts[s->open[i]];
        n += p->session == c->session && p->told;
    }
    struct request *r =
        request_new(s, client, SIM_NONE, MSG_RESUME, sizeof(struct msg_tokens) + n * sizeof(struct msg_token));
    struct msg_tokens *m = (struct msg_tokens *)r->message;
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct put *p = &s->puts[s->open[i]];
        if (p->session == c->session && p->told) {
            ((struct msg_token *)(m + 1))[m->count++] = token_of(s, s->open[i]);
        }
    }
    r->next = c->requests;
    c->requests = r;
    c->end = c->end == &c->requests ? &r->next : c->end;
    c->n_requests++;
    sim_note(s, "client %u: sends RESUME id %llu with %u tokens", client, (unsigned long long)m->head.id, n);
    return r;
}

struct request *send_key(struct sim *s, uint32_t client, uint32_t task, uint16_t op, uint32_t key, uint32_t label)
{
    const struct key *k = &s->key[key];
    bool hold = op == MSG_HOLD || op == MSG_DROP;
    struct request *r =
        request_new(s, client, task, op, (hold ? sizeof(struct msg_hold) + 3 : sizeof(struct msg_key)) + k->size);
    if (hold) {
        struct msg_hold *m = (struct msg_hold *)r->message;
        uint8_t name[3] = {'l', (uint8_t)('0' + label), 'x'};
        m->ttl_ns = op == MSG_HOLD && sim_chance(s, 2) ? (1 + sim_below(s, 400)) * MS : 0;
        m->ns = k->ns;
        m->key_size = (uint16_t)k->size;
        m->label_size = sizeof name;
        memcpy(m + 1, k->data, k->size);
        memcpy((uint8_t *)(m + 1) + k->size, name, sizeof name);
        r->label = label;
    } else {
        struct msg_key *m = (struct msg_key *)r->message;
        m->ns = k->ns;
        m->key_size = (uint16_t)k->size;
        if (op == MSG_REMOVE && k->present && sim_chance(s, 3)) {
            m->counter = k->record.counter;
            m->region = s->super.region_id;
        }
        memcpy(m + 1, k->data, k->size);
    }
    r->key = key;
    return request_send(s, client, r);
}

/* Of this key's lineage, which is its own, of its namespace, or of the keys that begin as it does. */
struct request *send_purge(struct sim *s, uint32_t client, uint32_t task, uint32_t key)
{
    const struct key *k = &s->key[key];
    uint32_t kind = 1 + sim_below(s, 3);
    uint32_t prefix = kind == PURGE_PREFIX ? 1 + sim_below(s, k->size) : 0;
    struct request *r = request_new(s, client, task, MSG_PURGE, sizeof(struct msg_purge) + prefix);
    struct msg_purge *m = (struct msg_purge *)r->message;
    m->kind = kind;
    m->lineage = kind == PURGE_LINEAGE ? key + 1u : 0;
    m->ns = kind == PURGE_LINEAGE ? 0 : k->ns;
    m->prefix_size = (uint16_t)prefix;
    memcpy(m + 1, k->data, prefix);
    r->n_before = s->n_puts;
    for (uint32_t i = 0; i < s->keys; i++) {
        if (purge_has(s, m, i)) {
            s->key[i].purging = s->key[i].purged = true;
        }
    }
    return request_send(s, client, r);
}

struct request *send_list(struct sim *s, uint32_t client, uint32_t task, uint32_t ns)
{
    struct request *r = request_new(s, client, task, MSG_LIST, sizeof(struct msg_list));
    struct msg_list *m = (struct msg_list *)r->message;
    m->ns = ns;
    m->max = SIM_KEYS;
    return request_send(s, client, r);
}

struct request *send_grow(struct sim *s, uint32_t client, uint32_t task)
{
    struct request *r = request_new(s, client, task, MSG_GROW, sizeof(struct msg_grow));
    ((struct msg_grow *)r->message)->entries = 2 * PINS_SEGMENT;
    return request_send(s, client, r);
}
