/* pull_command.c: commands, made when they are taken: what they tell of stands until the next event. */
#include "replication/pull_internal.h"

static void show_rpc(struct puller *p, struct rpc *r, struct pull_command *c)
{
    c->id = r->id;
    c->member = r->member;
    c->flags = r->flags;
    c->deadline = r->deadline;
    c->n = r->n;
    c->keys = p->keys;
    for (uint32_t i = 0; i < r->n; i++) {
        key_show(r->entry[i].key, &p->keys[i]);
    }
    const struct reader_lease *l = r->lease ? r->lease : r->fetch ? r->fetch->lease : NULL;
    if (l) {
        c->lease = l->terms.lease;
        c->slot = l->terms.slot;
        c->generation = l->terms.generation;
    }
}

static void show_read(const struct puller *p, const struct read *r, struct pull_command *c)
{
    const struct fetch *f = r->fetch;
    c->id = r->id;
    c->member = r->member;
    c->lease = r->lease;
    c->generation = r->generation;
    c->length = r->length;
    c->target = (struct pull_target){.kind = r->scratch ? PULL_SCRATCH : f->destination,
                                     .name = r->scratch ? (uint64_t)(uintptr_t)f->scratch : f->target.name,
                                     .at = r->at};
    bool all = f->lease && f->lease->terms.n_sums == 0 && r->offset == 0 && r->length == f->record.size;
    c->sum = all && !r->scratch && prove_sure(p, f);
    c->offset = f->lease ? f->lease->terms.offset + r->offset : 0;
    c->slot = f->lease ? f->lease->terms.slot : 0;
}

static void show_fetch(struct puller *p, struct fetch *f, struct pull_command *c)
{
    c->id = f->id;
    c->member = f->record.member;
    c->keys = p->keys;
    c->n = 1;
    key_show(f->key, &p->keys[0]);
    c->token = f->target.name;
    c->target = f->target;
    c->terms = f->lease ? &f->lease->terms : NULL;
    if (c->kind == CMD_PULL_HASH) {
        c->parts = f->parts;
        c->scratch = f->scratch;
        c->n = f->n_parts;
    } else if (c->kind == CMD_PULL_RESERVE) {
        c->deadline = fetch_room_until(p, f);
    } else if (c->kind == CMD_PULL_ABORT) {
        c->token = f->abort_token;
    } else if (c->kind == CMD_PULL_CORRUPT) {
        c->terms = &f->corrupt_terms;
        c->member = f->corrupt_member;
        c->lease = f->corrupt_terms.lease;
        c->slot = f->corrupt_terms.slot;
        c->generation = f->corrupt_terms.generation;
    }
}

static void show_done(const struct request *r, struct pull_command *c)
{
    c->id = r->id;
    c->results = r->results;
    c->n = r->n;
    while (c->run < r->n && r->results[c->run].status >= 0) {
        c->run++;
    }
}

static void show_release(struct puller *p, struct member *m, struct pull_command *c)
{
    c->member = (uint16_t)(m - p->members);
    c->releases = p->releases;
    timers_clear(&p->timers, &m->timer);
    while (c->n < RELEASES_MAX && leases_release(p->leases, c->member, &p->releases[c->n])) {
        c->n++;
    }
    p->counter[PULL_RELEASES] += c->n;
    if (leases_releasing(p->leases, c->member) > 0) {
        out_add(p, &m->release, CMD_PULL_RELEASE);
    }
}

static void show(struct puller *p, struct out *o, struct pull_command *c)
{
    switch (c->kind) {
    case CMD_PULL_ASK:
    case CMD_PULL_LEASE:
    case CMD_PULL_RENEW:
    case CMD_PULL_STATE:
        show_rpc(p, CONTAINER(o, struct rpc, out), c);
        break;
    case CMD_PULL_RELEASE:
        show_release(p, CONTAINER(o, struct member, release), c);
        break;
    case CMD_PULL_READ:
        show_read(p, CONTAINER(o, struct read, post), c);
        break;
    case CMD_PULL_CANCEL_READ:
        show_read(p, CONTAINER(o, struct read, cancel), c);
        break;
    case CMD_PULL_RESERVE:
        show_fetch(p, CONTAINER(o, struct fetch, reserve), c);
        break;
    case CMD_PULL_HASH:
        show_fetch(p, CONTAINER(o, struct fetch, hash), c);
        break;
    case CMD_PULL_SEAL:
        show_fetch(p, CONTAINER(o, struct fetch, seal), c);
        break;
    case CMD_PULL_ABORT:
        show_fetch(p, CONTAINER(o, struct fetch, abort), c);
        break;
    case CMD_PULL_WATCH:
        show_fetch(p, CONTAINER(o, struct fetch, watch), c);
        break;
    case CMD_PULL_CORRUPT:
        show_fetch(p, CONTAINER(o, struct fetch, corrupt), c);
        break;
    case CMD_PULL_DONE:
        show_done(CONTAINER(o, struct request, done), c);
        break;
    }
}

const struct pull_command *pull_command(struct puller *p)
{
    if (list_empty(&p->outs)) {
        return NULL;
    }
    struct out *o = CONTAINER(p->outs.next, struct out, node);
    struct pull_command *c = &p->command;
    /* What the owner can forget rides in front of what it is asked for. */
    if (o->kind == CMD_PULL_LEASE) {
        struct member *m = &p->members[CONTAINER(o, struct rpc, out)->member];
        if (leases_releasing(p->leases, (uint16_t)(m - p->members)) > 0) {
            list_remove(&m->release.node);
            *c = (struct pull_command){.kind = CMD_PULL_RELEASE};
            show_release(p, m, c);
            return c;
        }
    }
    list_remove(&o->node);
    *c = (struct pull_command){.kind = o->kind};
    show(p, o, c);
    return c->kind == CMD_PULL_RELEASE && c->n == 0 ? pull_command(p) : c;
}
