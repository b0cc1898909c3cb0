/* client.c: the threads of a client: puts, drafts and groups, operations on keys, and what comes back for them. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct request *client_request(struct client *c, uint64_t id)
{
    struct request *r = c->requests;
    while (r && r->message->id != id) {
        r = r->next;
    }
    return r;
}

static void request_free(struct request *r)
{
    free(r->message);
    free(r->reply);
    free(r);
}

static void request_drop(struct client *c, struct request *r)
{
    struct request **at = &c->requests;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    if (c->end == &r->next) {
        c->end = at;
    }
    c->n_requests--;
    request_free(r);
}

void client_start(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    memset(c, 0, sizeof *c);
    c->alive = true;
    c->session = s->next_session++;
    c->end = &c->requests;
    c->acked = SIM_SEGMENT;
    sim_note(s, "client %u: begins", client);
}

void client_forget(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    while (c->requests) {
        const struct request *r = c->requests;
        bool may = r->delivered && r->key != SIM_NONE && !r->reply;
        if (may && r->message->op == MSG_REMOVE) {
            s->key[r->key].removing = true;
        } else if (may && r->message->op == MSG_DROP) {
            s->key[r->key].dropping[r->label] = true;
        }
        request_drop(c, c->requests);
    }
    memset(c->task, 0, sizeof c->task);
    memset(c->valid, 0, sizeof c->valid);
}

/* The tokens that a reply carries. */
static uint32_t tokens(const struct msg_reply *r, const struct msg_token **out)
{
    bool has = r->status >= 0 && (r->head.op == MSG_GRANT || r->head.op == MSG_CREATE || r->head.op == MSG_PUT);
    *out = (const struct msg_token *)(r + 1);
    return has ? r->count : 0;
}

static void take_tokens(struct sim *s, const struct msg_reply *r, bool lost)
{
    const struct msg_token *t;
    uint32_t n = tokens(r, &t);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t put = shadow_find(s, t[i].slot, t[i].gen);
        if (put == SIM_NONE) {
            continue;
        }
        if (lost) {
            shadow_close(s, put); /* RESUME does not list it, the node takes it back */
        } else {
            s->puts[put].told = true;
        }
    }
}

static uint32_t draw_size(struct sim *s)
{
    switch (sim_below(s, s->big ? 12 : 10)) {
    case 0:
        return 0;
    case 1:
        return 1 + sim_below(s, 40);
    case 2:
        return PAGE_BYTES;
    case 3:
        return PAGE_BYTES + 1 + sim_below(s, 3 * PAGE_BYTES);
    case 4:
        return sim_below(s, 64u << 10);
    case 10:
        return UNIT_BYTES + sim_below(s, UNIT_BYTES);
    case 11:
        return sim_below(s, UNIT_BYTES);
    default:
        return 1 + sim_below(s, PAGE_BYTES);
    }
}

/* A granted slot that no thread has taken yet and that is large enough. */
static uint32_t find_grant(struct sim *s, uint32_t client, uint32_t size)
{
    const struct client *c = &s->client[client];
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct put *p = &s->puts[s->open[i]];
        if (p->session == c->session && p->told && !p->draft && p->state == PUT_OPEN && p->key == SIM_NONE &&
            p->room >= size) {
            return s->open[i];
        }
    }
    return SIM_NONE;
}

static bool write_some(struct sim *s, struct task *t)
{
    for (uint32_t i = 0; i < 64; i++) {
        struct put *p = &s->puts[t->put[t->at]];
        if (t->block < payload_blocks(p->size)) {
            payload_write(s, t->put[t->at], t->block++);
            continue;
        }
        p->written = true;
        t->block = 0;
        if (++t->at == t->n) {
            return true;
        }
    }
    return false;
}

enum { PUT_TOKEN, PUT_WRITE, PUT_SENT };

static void put_step(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    switch (t->state) {
    case PUT_TOKEN:
        t->put[0] = find_grant(s, client, t->size);
        if (t->put[0] == SIM_NONE && t->tries++ == 0) {
            send_grant(s, client, task, t->size, 1 + sim_below(s, 4));
        } else if (t->put[0] == SIM_NONE) {
            t->kind = TASK_NONE;
        } else {
            s->puts[t->put[0]].key = t->key;
            s->puts[t->put[0]].size = t->size;
            t->n = 1;
            t->at = t->block = 0;
            t->state = PUT_WRITE;
        }
        break;
    case PUT_WRITE:
        if (write_some(s, t)) {
            send_put(s, client, task, t->put[0]);
            t->state = PUT_SENT;
        }
        break;
    default:
        t->kind = TASK_NONE;
        break;
    }
}

enum { GROUP_CREATE, GROUP_CREATED, GROUP_WRITE, GROUP_SENT };

static void group_finish(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (s->puts[t->put[i]].state == PUT_OPEN && s->puts[t->put[i]].session == s->client[client].session) {
            t->put[n++] = t->put[i];
        }
    }
    t->n = n;
    if (n == 0) {
        t->kind = TASK_NONE; /* sealed, or given back */
        return;
    }
    send_tokens(s, client, task, t->tries++ == 0 && !sim_chance(s, 6) ? MSG_SEAL : MSG_ABORT, t->put, n);
}

static void group_step(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    switch (t->state) {
    case GROUP_CREATE:
        if (t->at < t->want) {
            send_create(s, client, task, (t->key + t->at++) % s->keys, draw_size(s));
            t->state = GROUP_CREATED;
        } else if (t->n == 0) {
            t->kind = TASK_NONE;
        } else {
            t->at = t->block = 0;
            t->state = GROUP_WRITE;
        }
        break;
    case GROUP_WRITE:
        if (write_some(s, t)) {
            t->state = GROUP_SENT;
            group_finish(s, client, task);
        }
        break;
    default:
        group_finish(s, client, task);
        break;
    }
}

static void key_step(struct sim *s, uint32_t client, uint32_t task)
{
    static const uint16_t op[8] = {MSG_REMOVE, MSG_REMOVE, MSG_HOLD, MSG_DROP, MSG_DROP, MSG_STAT, MSG_FIND, MSG_FIND};
    struct task *t = &s->client[client].task[task];
    if (t->state == 0) {
        uint16_t kind = op[sim_below(s, 8)];
        for (uint32_t i = 0; i < s->keys && kind == MSG_DROP && sim_below(s, 4); i++) { /* mostly one that is held */
            const struct key *k = &s->key[t->key];
            t->key = k->label_came[t->label] > k->label_went[t->label] ? t->key : (t->key + 1) % s->keys;
        }
        t->state = 1;
        if (sim_chance(s, 10)) {
            send_purge(s, client, task, t->key);
        } else {
            send_key(s, client, task, kind, t->key, t->label);
        }
    } else {
        t->kind = TASK_NONE;
    }
}

/* A token of another client, or one that is used up: it must count for nothing. */
static void forge_step(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    uint32_t put = s->n_puts ? s->n_puts - 1 - sim_below(s, s->n_puts < 64 ? s->n_puts : 64) : SIM_NONE;
    bool mine = put != SIM_NONE && s->puts[put].client == client && s->puts[put].state <= PUT_ASKED;
    if (t->state || put == SIM_NONE || mine) {
        t->kind = TASK_NONE;
        return;
    }
    t->state = 1;
    s->faults[FAULT_FORGED]++;
    send_tokens(s, client, task, sim_chance(s, 2) ? MSG_SEAL : MSG_ABORT, &put, 1);
}

static void once_step(struct sim *s, uint32_t client, uint32_t task)
{
    struct task *t = &s->client[client].task[task];
    uint32_t put = t->kind == TASK_GIVE ? find_grant(s, client, 0) : SIM_NONE;
    if (t->state++ || (t->kind == TASK_GIVE && put == SIM_NONE)) {
        t->kind = TASK_NONE;
    } else if (t->kind == TASK_LIST) {
        send_list(s, client, task, sim_below(s, 3));
    } else if (t->kind == TASK_GROW) {
        send_grow(s, client, task);
    } else {
        send_tokens(s, client, task, MSG_ABORT, &put, 1);
    }
}

static void begin(struct sim *s, uint32_t client, uint32_t task)
{
    struct client *c = &s->client[client];
    struct task *t = &c->task[task];
    uint32_t kind = sim_below(s, 100);
    *t = (struct task){.key = sim_below(s, s->keys),
                       .label = sim_below(s, SIM_LABELS),
                       .size = draw_size(s),
                       .want = 1 + sim_below(s, SIM_GROUP)};
    if (!c->attached || kind < (s->crowded ? 20 : 40)) {
        t->kind = TASK_READ;
        reader_begin(s, client, task);
    } else if (kind < 65) {
        t->kind = TASK_PUT;
    } else if (kind < (s->crowded ? 95 : 78)) {
        t->kind = TASK_GROUP;
    } else {
        t->kind = kind < 90   ? TASK_KEY
                  : kind < 92 ? TASK_LIST
                  : kind < 95 ? TASK_FORGE
                  : kind < 96 ? TASK_GROW
                              : TASK_GIVE;
    }
}

/* The thread that waits for this reply goes on. */
static void wake(struct sim *s, uint32_t client, struct request *r)
{
    struct client *c = &s->client[client];
    s->operations++;
    take_tokens(s, r->reply, false);
    if (r->task >= SIM_TASKS) {
        return;
    }
    struct task *t = &c->task[r->task];
    t->waits = 0;
    const struct msg_token *tokens_at;
    if (t->kind == TASK_GROUP && t->state == GROUP_CREATED) {
        t->state = GROUP_CREATE;
        if (r->reply->status == 0 && tokens(r->reply, &tokens_at) == 1) {
            t->put[t->n++] = shadow_find(s, tokens_at->slot, tokens_at->gen);
        }
    } else if (r->message->op == MSG_GRANT && r->reply->status < 0) {
        t->kind = TASK_NONE;
    }
}

/* Its ring begins again: answers that lay in it were taken or are lost, what is not answered is sent again. */
void client_lost_ring(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    c->attached = false;
    for (struct request *r = c->requests, *next; r; r = next) {
        next = r->next;
        if (r->message->op == MSG_RESUME) {
            request_drop(c, r);
            continue;
        }
        if (r->reply && sim_chance(s, 2)) {
            wake(s, client, r);
            request_drop(c, r);
            continue;
        }
        if (r->reply) {
            take_tokens(s, r->reply, true);
            free(r->reply);
            r->reply = NULL;
        }
        r->delivered = false;
        r->again = true;
        r->message->flags |= s->mutation == MUTATE_AGAIN ? 0 : MSG_AGAIN;
    }
}

static bool take_reply(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    for (struct request *r = c->requests; r; r = r->next) {
        if (r->reply) {
            wake(s, client, r);
            request_drop(c, r);
            return true;
        }
    }
    return false;
}

void client_step(struct sim *s, uint32_t client)
{
    struct client *c = &s->client[client];
    if (!c->alive) {
        if (c->death_told && c->dead_until < s->now.mono && sim_chance(s, 20)) {
            client_start(s, client);
        }
        return;
    }
    if (c->paused_until > s->now.mono || (c->slow && !sim_chance(s, c->slow)) ||
        (sim_chance(s, 2) && take_reply(s, client))) {
        return;
    }
    uint32_t task = sim_below(s, SIM_TASKS);
    struct task *t = &c->task[task];
    if (t->waits) {
        return;
    }
    switch (t->kind) {
    case TASK_NONE:
        begin(s, client, task);
        break;
    case TASK_READ:
        reader_step(s, client, task);
        break;
    case TASK_PUT:
        put_step(s, client, task);
        break;
    case TASK_GROUP:
        group_step(s, client, task);
        break;
    case TASK_KEY:
        key_step(s, client, task);
        break;
    case TASK_FORGE:
        forge_step(s, client, task);
        break;
    case TASK_LIST:
    case TASK_GROW:
    case TASK_GIVE:
        once_step(s, client, task);
        break;
    }
}
