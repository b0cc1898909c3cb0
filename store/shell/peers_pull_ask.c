/* peers_pull_ask.c: the puller's requests as messages to members, and their answers as its events. */
#include "store/shell/peers_park.h"
#include "store/shell/peers_pull.h"
#include "store/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A request to a member, until its answer. */
struct question {
    struct taking *part;
    uint64_t id; /* the puller's */
    enum pull_event_kind tells;
    uint16_t member;
    uint32_t n; /* keys */
};

/* Answers, decoded: until the event is given, which may have to wait. */
struct answers {
    struct told told;
    uint32_t n;
    struct pull_answer answer[PULL_KEYS_MAX];
    uint16_t missing[PULL_KEYS_MAX][PULL_MISSING_MAX];
};

/* ---- sending ---- */

static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items);

static struct question *question_new(struct taking *q, const struct pull_command *c, enum pull_event_kind tells)
{
    struct question *x = pull_memory(sizeof *x);
    *x = (struct question){.part = q, .id = c->id, .tells = tells, .member = c->member, .n = c->n};
    return x;
}

static long encode(struct peers *p, const struct wire_message *m, const struct wire_item *items, uint32_t n)
{
    struct wire_writer w;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, m);
    for (uint32_t i = 0; e == 0 && i < n; i++)
        e = wire_add(&w, &items[i]);
    return e < 0 ? e : wire_end(&w);
}

static void ask(struct taking *q, const struct pull_command *c, struct question *x, long bytes)
{
    struct peers *p = q->peers;
    int64_t deadline = c->deadline > 0 ? c->deadline : INT64_MAX, until = deadline;
    if (x->n && deadline < INT64_MAX - PULL_FORGET_NS)
        until += PULL_FORGET_NS; /* the puller gives up at the deadline; a lease that comes later is to be released */
    int e = bytes < 0 ? (int)bytes : link_ask(p, c->member, p->buffer, (size_t)bytes, deadline, until, answered, x);
    if (e == -ENOTCONN)
        e = park_ask(p, c->member, p->buffer, (size_t)bytes, deadline, until, answered, x);
    if (e < 0) {
        pull_tell_plain(q, x->tells, x->id, e);
        free(x);
    }
}

static void ask_keys(struct taking *q, const struct pull_command *c, struct wire_message *m, enum pull_event_kind tells)
{
    struct wire_writer w;
    struct peers *p = q->peers;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, m);
    for (uint32_t i = 0; e == 0 && i < c->n; i++) {
        struct wire_item item;
        memset(&item, 0, sizeof item);
        item.key = c->keys[i].key;
        e = wire_add(&w, &item);
    }
    ask(q, c, question_new(q, c, tells), e < 0 ? e : wire_end(&w));
}

static void drop_answers(struct told *t)
{
    free(CONTAINER(t, struct answers, told));
}

/* This node is a home of these keys. */
static void ask_self(struct taking *q, const struct pull_command *c)
{
    struct answers *a = pull_memory(sizeof *a);
    int e = home_part_ask_self(q->peers, c->keys, c->n, c->flags, a->answer);
    for (uint32_t i = 0; e == 0 && i < c->n; i++) {
        struct pull_answer *one = &a->answer[i];
        uint32_t n = one->n_missing < PULL_MISSING_MAX ? one->n_missing : PULL_MISSING_MAX;
        if (one->missing)
            memcpy(a->missing[i], one->missing, n * sizeof a->missing[i][0]);
        one->missing = a->missing[i];
    }
    a->told.ev = (struct pull_event){
        .kind = EV_PULL_ANSWER, .id = c->id, .member = c->member, .status = e, .answers = a->answer, .n = c->n};
    a->told.drop = drop_answers;
    pull_tell(q, &a->told);
}

void pull_ask(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    if (c->member == q->peers->self) {
        ask_self(q, c);
        return;
    }
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_ASK;
    m.head.flags = (uint16_t)((c->flags & ASK_WANT_LEASE ? WIRE_WANT : 0) | (c->flags & ASK_PREFIX ? WIRE_PREFIX : 0));
    m.ask.revision = q->peers->revision;
    ask_keys(q, c, &m, EV_PULL_ANSWER);
}

void pull_lease(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_LEASE;
    ask_keys(q, c, &m, EV_PULL_LEASED);
}

void pull_renew(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    struct wire_item item;
    memset(&m, 0, sizeof m);
    memset(&item, 0, sizeof item);
    m.head.op = WIRE_RENEW;
    item.renew.lease = c->lease;
    item.renew.in_flight = true; /* the puller renews for transfers under way only */
    long n = encode(q->peers, &m, &item, 1);
    ask(q, c, question_new(q, c, EV_PULL_RENEWED), n);
}

void pull_state(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_STATE;
    m.state.slot = c->slot;
    m.state.generation = c->generation;
    ask(q, c, question_new(q, c, EV_PULL_STATED), encode(q->peers, &m, NULL, 0));
}

static void tell(struct taking *q, uint16_t member, long bytes)
{
    struct link *l = link_of(q->peers, member);
    if (l && bytes > 0)
        link_tell(l, q->peers->buffer, (size_t)bytes); /* not told: it ends with its time, or its connection */
}

void pull_release(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    struct wire_writer w;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_RELEASE;
    for (uint32_t i = 0; i < c->n;) {
        int e = wire_begin(&w, q->peers->buffer, sizeof q->peers->buffer, &m);
        for (uint32_t k = 0; e == 0 && i < c->n && k < WIRE_LEASES_MAX; k++, i++) {
            struct wire_item item;
            memset(&item, 0, sizeof item);
            item.release.lease = c->releases[i].lease;
            item.release.uses = c->releases[i].uses < UINT32_MAX ? (uint32_t)c->releases[i].uses : UINT32_MAX;
            e = wire_add(&w, &item);
        }
        if (e < 0)
            return;
        tell(q, c->member, wire_end(&w));
    }
}

void pull_corrupt(struct taking *q, const struct pull_command *c)
{
    struct wire_message m;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_CORRUPT;
    m.corrupt.lease = c->lease;
    m.corrupt.version =
        (struct berth_version){.counter = c->terms->version.counter, .region = c->terms->version.region};
    m.corrupt.key = c->keys[0].key;
    tell(q, c->member, encode(q->peers, &m, NULL, 0));
}

/* ---- answers ---- */

/* What lies outside of the owner's pool is no grant. */
static void read_lease(const struct peers *p, uint16_t member, int32_t status, const struct wire_lease *l,
                       struct pull_grant *out)
{
    *out = (struct pull_grant){.status = status};
    if (status != 0)
        return;
    if (!wire_lease_within(l, p->members[member].pool_bytes)) {
        out->status = -EBADMSG;
        return;
    }
    out->terms = (struct lease_terms){.lease = l->id,
                                      .generation = l->generation,
                                      .offset = l->offset,
                                      .size = l->size,
                                      .version = {.counter = l->version.counter, .region = l->version.region},
                                      .checksum = l->checksum,
                                      .lineage = l->lineage,
                                      .ttl_ns = (int64_t)l->duration,
                                      .slot = l->slot,
                                      .segment_log2 = l->segment};
}

/* Any member may know. */
static void everyone(const struct peers *p, struct pull_answer *out, uint16_t *missing)
{
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (i != p->self && out->n_missing < PULL_MISSING_MAX)
            missing[out->n_missing++] = (uint16_t)i;
    }
    out->many = p->n_members - (p->self < p->n_members) > PULL_MISSING_MAX;
}

static void read_answer(const struct peers *p, uint16_t member, const struct wire_answer *from, struct pull_answer *out,
                        uint16_t *missing)
{
    memset(out, 0, sizeof *out);
    out->missing = missing;
    if (from->kind == WIRE_FOUND) {
        out->says = HOME_FOUND;
        out->unsure = !(from->flags & WIRE_SURE);
        for (uint32_t i = 0; i < from->n && i < PULL_LOCATIONS_MAX; i++)
            out->location[out->n_locations++] = (struct pull_location){
                .member = from->at[i].member,
                .version = {.counter = from->at[i].version.counter, .region = from->at[i].version.region}};
        out->granted = from->flags & WIRE_LEASED_TOO;
        if (out->granted)
            read_lease(p, member, 0, &from->lease, &out->grant);
        out->granted = out->granted && out->grant.status == 0;
    } else if (from->kind == WIRE_ABSENT) {
        out->says = HOME_ABSENT;
    } else {
        out->says = HOME_LEARNING;
        if (from->flags & WIRE_EVERYONE) {
            everyone(p, out, missing);
            return;
        }
        out->many = from->flags & WIRE_MORE;
        out->n_missing = from->n;
        memcpy(missing, from->missing, from->n * sizeof *missing);
    }
}

static void tell_answers(const struct question *x, struct wire_reader *items)
{
    struct answers *a = pull_memory(sizeof *a);
    struct wire_item item;
    uint32_t n = 0;
    while (n < x->n && wire_next(items, &item) == 1) {
        read_answer(x->part->peers, x->member, &item.answer, &a->answer[n], a->missing[n]);
        n++;
    }
    for (uint32_t i = n; i < x->n; i++) /* behind the run's end */
        a->answer[i] = (struct pull_answer){.says = HOME_SKIPPED};
    struct pull_event ev = {.kind = x->tells, .id = x->id, .member = x->member, .n = x->n};
    pull_give_summed(x->part, &ev, a->answer, NULL, a);
}

static void tell_grants(const struct question *x, struct wire_reader *items)
{
    struct pull_grant *g = pull_memory(PULL_KEYS_MAX * sizeof *g);
    struct wire_item item;
    uint32_t n = 0;
    while (n < x->n && wire_next(items, &item) == 1) {
        read_lease(x->part->peers, x->member, item.leased.status, &item.leased.lease, &g[n]);
        n++;
    }
    struct pull_event ev = {.kind = x->tells, .id = x->id, .member = x->member, .n = n};
    pull_give_summed(x->part, &ev, NULL, g, g);
}

static void tell_small(const struct question *x, int32_t status, const struct wire_message *m,
                       struct wire_reader *items)
{
    struct pull_event ev = {.kind = x->tells, .id = x->id, .member = x->member, .status = status};
    struct wire_item item;
    if (status == 0 && x->tells == EV_PULL_STATED) {
        ev.generation = word_gen(m->word);
    } else if (status == 0) {
        ev.status = wire_next(items, &item) == 1 ? item.renewed.status : -EBADMSG;
        ev.ttl_ns = ev.status == 0 ? (int64_t)item.renewed.duration : 0;
    }
    pull_give(x->part, &ev);
}

static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct question *x = arg;
    if (status == 0 && !m)
        status = -ECONNRESET;
    if (status != 0 && x->n)
        pull_give(x->part, &(struct pull_event){.kind = x->tells, .id = x->id, .member = x->member, .status = status});
    else if (x->tells == EV_PULL_ANSWER)
        tell_answers(x, items);
    else if (x->tells == EV_PULL_LEASED)
        tell_grants(x, items);
    else
        tell_small(x, status, m, items);
    free(x);
}
