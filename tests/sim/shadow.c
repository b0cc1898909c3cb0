/* shadow.c: what was promised. Tokens and keys as the answers and commits tell of them, compared with each new one. */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t shadow_find(const struct sim *s, uint32_t slot, uint64_t gen)
{
    if (slot >= s->super.max_headers) {
        return SIM_NONE;
    }
    uint32_t put = s->newest[slot];
    while (put != SIM_NONE && s->puts[put].gen != gen) {
        put = s->puts[put].older;
    }
    return put;
}

static void not_open(struct sim *s, uint32_t put)
{
    for (uint32_t i = 0; i < s->n_open; i++) {
        if (s->open[i] == put) {
            s->open[i] = s->open[--s->n_open];
            return;
        }
    }
}

void shadow_close(struct sim *s, uint32_t put)
{
    if (s->puts[put].state <= PUT_ASKED) {
        s->puts[put].state = PUT_CLOSED;
        not_open(s, put);
    }
}

/* Its client is gone. What was asked for before may still be committed. */
void shadow_leave(struct sim *s, uint32_t put)
{
    if (s->puts[put].asked) {
        not_open(s, put);
    } else {
        shadow_close(s, put);
    }
}

static void check_token(struct sim *s, uint32_t client, const struct msg_token *t, uint64_t room)
{
    uint32_t before = s->newest[t->slot];
    if (slot_load(&s->headers[t->slot]) != slot_word(t->gen, SLOT_WRITING)) {
        sim_violation(s, "client %u: is given slot %u that is not WRITING in its generation", client, t->slot);
    }
    if (before != SIM_NONE && s->puts[before].gen >= t->gen) {
        sim_violation(s, "client %u: is given slot %u with a generation that was given before", client, t->slot);
    }
    if (room == 0 || room % PAGE_BYTES || (uint64_t)t->page * PAGE_BYTES + room > s->super.pool_bytes) {
        sim_violation(s, "client %u: is given slot %u outside the pool", client, t->slot);
    }
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct put *o = &s->puts[s->open[i]];
        /* One that was asked for may have been answered without anybody to hear it. */
        if (o->state == PUT_OPEN && t->page < o->page + o->room / PAGE_BYTES && o->page < t->page + room / PAGE_BYTES) {
            sim_violation(s, "client %u: is given slot %u, whose pages put %u is writing", client, t->slot, s->open[i]);
        }
    }
}

uint32_t shadow_token(struct sim *s, uint32_t client, const struct msg_token *t, uint64_t room, bool draft)
{
    if (t->slot >= s->super.max_headers || s->n_open == SIM_OPEN) {
        sim_violation(s, "client %u: is given slot %u, which there is not", client, t->slot);
        return SIM_NONE;
    }
    check_token(s, client, t, room);
    if (s->n_puts == s->puts_room) {
        s->puts_room = s->puts_room ? s->puts_room * 2 : 1024;
        s->puts = realloc(s->puts, s->puts_room * sizeof *s->puts);
    }
    uint32_t put = s->n_puts++;
    s->puts[put] = (struct put){.slot = t->slot,
                                .gen = t->gen,
                                .page = t->page,
                                .room = room,
                                .client = client,
                                .session = s->client[client].session,
                                .key = SIM_NONE,
                                .draft = draft,
                                .older = s->newest[t->slot],
                                .gone_next = SIM_NONE};
    s->newest[t->slot] = put;
    s->open[s->n_open++] = put;
    s->top_slot = t->slot > s->top_slot ? t->slot : s->top_slot;
    return put;
}

/* ---- commits ---- */

static void sealed(struct sim *s, uint32_t key, const struct record *r)
{
    struct key *k = &s->key[key];
    uint32_t put = shadow_find(s, r->slot, r->generation);
    k->put = put;
    if (put == SIM_NONE) {
        sim_violation(s, "key %u: its record names slot %u with a generation that nobody was given", key, r->slot);
        return;
    }
    struct put *p = &s->puts[put];
    if (p->state > PUT_ASKED || !p->asked || p->key != key) {
        sim_violation(s, "key %u: put %u of slot %u was committed, and nobody asked for it", key, put, r->slot);
    }
    if (!p->written || p->size != r->size || r->checksum != put + 1u || r->lineage != key + 1u || !r->ready) {
        sim_violation(s, "key %u: the record of put %u says something else than its writer", key, put);
    }
    if (p->doomed) {
        sim_violation(s, "key %u: draft %u was sealed after a purge that it is older than", key, put);
    }
    p->state = PUT_SEALED;
    p->version = r->counter;
    p->sealed_step = s->step;
    not_open(s, put);
}

static void gone(struct sim *s, struct key *k)
{
    if (k->put != SIM_NONE) {
        struct put *p = &s->puts[k->put];
        p->state = PUT_GONE;
        p->gone_step = s->step;
        p->gone_next = k->gone;
        k->gone = k->put;
    }
}

static bool asked_for(const struct sim *s, uint16_t op, uint32_t key, uint32_t label)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        for (const struct request *r = s->client[i].requests; r; r = r->next) {
            if (r->message->op == op && r->key == key && (label == SIM_NONE || r->label == label) && !r->reply) {
                return true;
            }
        }
    }
    return false;
}

static bool purge_asked(const struct sim *s, uint32_t key)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        for (const struct request *r = s->client[i].requests; r; r = r->next) {
            if (r->message->op == MSG_PURGE && purge_has(s, (const struct msg_purge *)r->message, key)) {
                return true;
            }
        }
    }
    return false;
}

static int label_of(const struct record *r, uint32_t label)
{
    for (int i = 0; i < r->n_holds; i++) {
        if (r->holds[i].label_size == 3 && r->holds[i].label[1] == (char)('0' + label)) {
            return i;
        }
    }
    return -1;
}

static bool outlived(const struct sim *s, const struct hold *h)
{
    return h->expiry && h->expiry <= s->now.boot;
}

static void compare_holds(struct sim *s, uint32_t key, const struct record *before, const struct record *after)
{
    struct key *k = &s->key[key];
    for (uint32_t l = 0; l < SIM_LABELS; l++) {
        int was = before ? label_of(before, l) : -1, is = after ? label_of(after, l) : -1;
        if (was < 0 && is >= 0) {
            k->label_came[l] = s->step;
        }
        if (was >= 0 && is < 0) {
            k->label_went[l] = s->step;
            bool may = outlived(s, &before->holds[was]) || k->dropping[l] || asked_for(s, MSG_DROP, key, l);
            if (!may) {
                sim_violation(s, "key %u: lost a hold that nobody dropped", key);
            }
        }
    }
    if ((before && before->n_holds) != (after && after->n_holds)) {
        *(after && after->n_holds ? &k->held : &k->unheld) = s->step;
    }
}

static void vanished(struct sim *s, uint32_t key)
{
    struct key *k = &s->key[key];
    k->vanished = s->step;
    k->vanishing = true;
    if (k->record.n_holds) {
        sim_violation(s, "key %u: went while it was held", key);
    }
    bool asked = k->removing || k->purging || asked_for(s, MSG_REMOVE, key, SIM_NONE) || purge_asked(s, key);
    if (s->roomy && !asked) {
        sim_violation(s, "key %u: went although nobody removed it and there was room", key);
    }
    gone(s, k);
}

static void replaced(struct sim *s, uint32_t key, const struct record *r)
{
    struct key *k = &s->key[key];
    if (!k->replaceable) {
        sim_violation(s, "key %u: was replaced in a namespace that keeps", key);
    }
    if (r->counter <= k->record.counter) {
        sim_violation(s, "key %u: its version went back", key);
    }
    if (r->n_holds != k->record.n_holds) {
        sim_violation(s, "key %u: a new version lost a hold or got one", key);
    }
    gone(s, k);
    sealed(s, key, r);
}

void shadow_committed(struct sim *s)
{
    for (uint32_t i = 0; i < s->keys; i++) {
        struct key *k = &s->key[i];
        struct record r;
        int e = lmdb_ops.get(s->index, (struct key_ref){.data = k->data, .size = k->size, .ns = k->ns}, &r);
        bool present = e == 0;
        if (e && e != -ENOENT) {
            sim_violation(s, "key %u: the index can't read it: %d", i, e);
        }
        compare_holds(s, i, k->present ? &k->record : NULL, present ? &r : NULL);
        if (k->present && !present) {
            vanished(s, i);
            k->put = SIM_NONE;
        } else if (!k->present && present) {
            k->appeared = s->step;
            sealed(s, i, &r);
        } else if (present && (r.slot != k->record.slot || r.generation != k->record.generation)) {
            replaced(s, i, &r);
        }
        k->present = present;
        if (present) {
            k->record = r;
        }
    }
}

/* Until now the node, and so its answers, may have had what a commit took away. */
void shadow_projected(struct sim *s)
{
    for (uint32_t i = 0; i < s->keys; i++) {
        struct key *k = &s->key[i];
        k->vanished = k->vanishing ? s->step : k->vanished;
        k->vanishing = false;
    }
}

/* ---- reads ---- */

void shadow_read(struct sim *s, uint32_t client, const struct reading *r, uint32_t i)
{
    uint32_t put = r->put[i];
    const struct slot_header *h = &s->headers[r->slot];
    if (put == SIM_NONE) {
        sim_violation(s, "client %u: reads slot %u that nobody was given", client, r->slot);
        return;
    }
    const struct put *p = &s->puts[put];
    if (p->state != PUT_SEALED && p->state != PUT_GONE) {
        sim_violation(s, "client %u: reads put %u of slot %u, which is not committed", client, put, r->slot);
    }
    if (p->key != r->key[i] || h->size != p->size || h->version != p->version || h->checksum != put + 1u ||
        h->page != p->page || h->lineage != p->key + 1u) {
        sim_violation(s, "client %u: the header of slot %u is not that of put %u", client, r->slot, put);
    }
    if (p->gone_told_step && p->gone_told_step < r->start) {
        sim_violation(s, "client %u: reads put %u of key %u after an answer said that it is gone", client, put, p->key);
    }
}

void shadow_miss(struct sim *s, uint32_t client, const struct reading *r)
{
    const struct key *k = &s->key[r->key[r->at]];
    if (!k->present || k->put != r->put_at_start[r->at] || k->put == SIM_NONE) {
        return;
    }
    if (slot_load(&s->headers[k->record.slot]) == slot_word(k->record.generation, SLOT_READY)) {
        sim_violation(s, "client %u: misses key %u that was there all the time", client, r->key[r->at]);
    }
}
