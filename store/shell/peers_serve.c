/* peers_serve.c: transfers that this node gives, and what peers say of their leases (PROTOCOLS rules 19 to 24). */
#include "store/shell/peers_serve_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A client's leases are its connection's and end with it; a member may come back to its own. The region is part of what
 * a member is: one that was made anew counts its starts from 1 again. */
struct lease_event serve_from(const struct link *l)
{
    uint64_t incarnation = l->number < PEERS_CLIENTS
                               ? l->other.incarnation ^ l->other.region_id * UINT64_C(0x9e3779b97f4a7c15)
                               : UINT64_C(1) << 63 | l->serial;
    return (struct lease_event){.peer = l->number, .connection = l->serial, .incarnation = incarnation};
}

struct serve_sums *serve_sums_of(struct serve_part *s, uint16_t number)
{
    return &s->sums[number < s->peers->n_members ? number : s->peers->n_members];
}

static void give(struct serve_part *s, enum node_event_kind kind, const struct lease_event *lease)
{
    struct node_event ev = {.kind = kind, .lease = lease};
    dispatch(s->peers->server, &ev);
}

/* ---- leases that nobody has heard of ---- */

void serve_give_back(struct serve_part *s, const struct lease_event *from, uint64_t id)
{
    if (s->orphans == s->orphans_room) {
        uint32_t room = s->orphans_room ? 2 * s->orphans_room : 64;
        struct orphan *more = realloc(s->orphan, room * sizeof *more);
        if (!more)
            return; /* it ends by the clock */
        s->orphan = more;
        s->orphans_room = room;
    }
    s->orphan[s->orphans++] = (struct orphan){.from = *from, .id = id};
    s->peers->again = true;
}

static void give_back_all(struct serve_part *s)
{
    for (uint32_t i = 0; i < s->orphans; i++) {
        struct lease_ref ref = {.id = s->orphan[i].id};
        struct lease_event ev = s->orphan[i].from;
        ev.ref = &ref;
        ev.n = 1;
        give(s, EV_RELEASE, &ev);
    }
    s->orphans = 0;
}

/* ---- RELEASE, STATE ---- */

void serve_part_release(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                        int64_t deadline)
{
    struct lease_ref ref[LEASE_KEYS_MAX];
    struct lease_event ev = serve_from(from);
    struct wire_item item;
    bool more = true;
    uint64_t before = node_lease_uses(p->server->node);
    (void)m, (void)deadline;
    while (more) {
        ev.n = 0;
        while (ev.n < LEASE_KEYS_MAX && (more = wire_next(items, &item) == 1))
            ref[ev.n++] = (struct lease_ref){.id = item.release.lease, .uses = item.release.uses};
        ev.ref = ref;
        if (ev.n)
            give(p->serve, EV_RELEASE, &ev);
    }
    /* Only the core knows which of the leases are the peer's, and so which uses count. */
    serve_sums_of(p->serve, from->number)->gets += node_lease_uses(p->server->node) - before;
}

/* Rule 21. A slot that no lease keeps is none that the reader could have read in time. */
void serve_part_state(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                      int64_t deadline)
{
    struct wire_message answer = {.head = {.op = WIRE_STATED}};
    struct wire_writer w;
    uint64_t word;
    (void)items, (void)deadline;
    if (!node_leased(p->server->node, m->state.slot, &word)) {
        link_refuse(from, WIRE_STATE, m->head.id, -ENOENT);
        return;
    }
    answer.word = word;
    answer.head.id = m->head.id;
    long n = wire_begin(&w, p->buffer, sizeof p->buffer, &answer) < 0 ? -EINVAL : wire_end(&w);
    if (n < 0 || link_answer(from, m->head.id, p->buffer, (size_t)n) < 0)
        link_refuse(from, WIRE_STATE, m->head.id, -EIO);
}

/* ---- SUMS ---- */

#define SUMMED_HEAD 8u /* bytes of an item before its list */

static struct wire_item summed(const struct node *n, const struct wire_item *asked, uint32_t room)
{
    uint32_t count = 0;
    const uint64_t *sums = node_sums(n, asked->sums.slot, asked->sums.generation, &count);
    if (!sums || count > WIRE_SUMS_MAX)
        return (struct wire_item){.summed = {.status = BERTH_ESTALE}};
    if (SUMMED_HEAD + count * sizeof *sums > room)
        return (struct wire_item){.summed = {.status = -EMSGSIZE}};
    return (struct wire_item){.summed = {.n = (uint16_t)count, .list = sums}};
}

/* As many as fit one message, in order: who asked asks again for the others. The lists of tails are little-endian. */
void serve_part_sums(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                     int64_t deadline)
{
    struct wire_message answer = {.head = {.op = WIRE_SUMMED, .id = m->head.id}};
    struct wire_item item;
    struct wire_writer w;
    size_t room = from->other.largest < sizeof p->buffer ? from->other.largest : sizeof p->buffer;
    (void)deadline;
    int e = wire_begin(&w, p->buffer, room, &answer);
    while (e == 0 && wire_next(items, &item) == 1) {
        item = summed(p->server->node, &item, w.count ? UINT32_MAX : (uint32_t)(room - w.used));
        e = wire_add(&w, &item);
    }
    long n = e == 0 || (e == -ENOSPC && w.count) ? wire_end(&w) : e;
    if (n < 0 || link_answer(from, m->head.id, p->buffer, (size_t)n) < 0)
        link_refuse(from, WIRE_SUMS, m->head.id, -EIO);
}

/* ---- commands ---- */

static void recall(struct serve_part *s, const struct lease_answer *a)
{
    struct peers *p = s->peers;
    struct link *l = link_serial(p, a->connection);
    struct wire_message m = {.head = {.op = WIRE_RECALL}};
    struct wire_writer w;
    if (!l || wire_begin(&w, p->buffer, sizeof p->buffer, &m) < 0)
        return;
    for (uint32_t i = 0; i < a->n; i++)
        wire_add(&w, &(struct wire_item){.recall = a->id[i]});
    long n = wire_end(&w);
    if (n > 0 && link_tell(l, p->buffer, (size_t)n) == 0)
        serve_sums_of(s, l->number)->recalls += a->n;
}

void serve_part_command(struct peers *p, const struct node_command *c)
{
    struct serve_part *s = p->serve;
    if (!s)
        return;
    switch (c->kind) {
    case CMD_LEASED:
    case CMD_RENEWED:
        promise_answered(s, c);
        break;
    case CMD_RECALL:
        recall(s, c->lease);
        break;
    case CMD_SERVE:
        s->answered = true;
        s->serve_status = c->lease->status;
        s->serve_grant = c->lease->grant[0];
        break;
    default:
        break;
    }
}

/* ---- transfers ---- */

static struct serving *serving_take(struct serve_part *s, uint64_t *token)
{
    uint32_t i = s->serving_free;
    if (i != UINT32_MAX) {
        s->serving_free = s->serving[i].next;
    } else {
        if (s->servings_used == s->servings_room) {
            uint32_t room = s->servings_room ? 2 * s->servings_room : 64;
            struct serving *more = realloc(s->serving, room * sizeof *more);
            if (!more)
                return NULL;
            memset(more + s->servings_room, 0, (room - s->servings_room) * sizeof *more);
            s->serving = more;
            s->servings_room = room;
        }
        i = s->servings_used++;
    }
    s->serving[i].used = true;
    *token = (uint64_t)s->serving[i].generation << 32 | i;
    return &s->serving[i];
}

static struct serving *serving_find(struct serve_part *s, uint64_t token)
{
    uint32_t i = (uint32_t)token;
    bool there = i < s->servings_used && s->serving[i].used && s->serving[i].generation == token >> 32;
    return there ? &s->serving[i] : NULL;
}

static void serving_end(struct serve_part *s, struct serving *v)
{
    v->used = false;
    v->generation++;
    v->next = s->serving_free;
    s->serving_free = (uint32_t)(v - s->serving);
}

/* The core has begun it; now the rest of what was said must be true too. */
static int32_t fits(const struct lease_grant *g, const struct transport_want *want)
{
    if (want->generation != g->generation)
        return BERTH_ESTALE;
    bool within = want->offset >= g->offset && want->offset - g->offset <= g->size &&
                  want->bytes <= g->size - (want->offset - g->offset);
    return within ? 0 : -EINVAL;
}

static int32_t begin(struct serve_part *s, struct link *from, const struct transport_want *want, uint64_t token)
{
    struct lease_ref ref = {.id = want->lease};
    struct lease_event ev = serve_from(from);
    ev.ref = &ref;
    ev.n = 1;
    ev.token = token;
    s->answered = false;
    give(s, EV_SERVE_BEGIN, &ev);
    int32_t status = s->answered ? s->serve_status : -ENOMEM;
    if (status)
        return status;
    status = fits(&s->serve_grant, want);
    if (status)
        give(s, EV_SERVE_END, &ev);
    return status;
}

int serve_part_admit(struct peers *p, struct link *from, const struct transport_want *want, uint64_t *token)
{
    struct serve_part *s = p->serve;
    struct serve_sums *sums = serve_sums_of(s, from->number);
    struct serving *v = p->server->dispatching ? NULL : serving_take(s, token);
    if (!v)
        return -EAGAIN;
    v->bytes = want->bytes;
    v->began = peers_mono(p);
    int32_t status = begin(s, from, want, *token);
    if (status < 0) {
        serving_end(s, v);
        sums->refused++;
    } else {
        sums->serves++;
    }
    return status;
}

static void time_service(struct serve_part *s, struct serve_sums *sums, const struct serving *v)
{
    int64_t took = peers_mono(s->peers) - v->began;
    uint64_t ns = took > 0 ? (uint64_t)took : 0;
    unsigned i = ns ? 63u - (unsigned)__builtin_clzll(ns) : 0;
    sums->service_ns += ns;
    s->service.count++;
    s->service.sum_ns += ns;
    s->service.bucket[i < 40 ? i : 39]++;
}

void serve_part_served(struct peers *p, struct link *from, uint64_t lease, uint64_t token, int status)
{
    struct serve_part *s = p->serve;
    struct serving *v = serving_find(s, token);
    struct serve_sums *sums = serve_sums_of(s, from->number);
    (void)lease;
    if (!v)
        return;
    struct lease_event ev = serve_from(from);
    ev.token = token;
    ev.reset = status == -ECONNRESET;
    sums->served += status == 0;
    sums->broken += status < 0;
    sums->bytes += status == 0 ? v->bytes : 0;
    if (status == 0)
        time_service(s, sums, v);
    serving_end(s, v);
    give(s, EV_SERVE_END, &ev);
}

/* ---- the part ---- */

int serve_part_open(struct peers *p, char *why, size_t why_size)
{
    struct serve_part *s = calloc(1, sizeof *s);
    p->serve = s;
    if (s) {
        s->peers = p;
        s->promise_free = s->serving_free = UINT32_MAX;
        s->sums = calloc(p->n_members + 1u, sizeof *s->sums);
        s->suspect = calloc(SUSPECTS_MAX, sizeof *s->suspect);
    }
    if (s && s->sums && s->suspect)
        return 0;
    snprintf(why, why_size, "no memory for the leases that peers get");
    return -ENOMEM;
}

void serve_part_close(struct peers *p)
{
    struct serve_part *s = p->serve;
    if (!s)
        return;
    promises_free(s);
    corrupt_free(s);
    free(s->serving);
    free(s->orphan);
    free(s->sums);
    free(s->suspect);
    free(s);
    p->serve = NULL;
}

int64_t serve_part_timer(const struct peers *p)
{
    (void)p;
    return INT64_MAX; /* what is left to do asks for another turn */
}

void serve_part_turn(struct peers *p, int64_t now)
{
    give_back_all(p->serve);
    promises_due(p->serve);
    if (corrupt_turn(p->serve, now))
        p->again = true;
}

void serve_part_up(struct peers *p, uint16_t number, const struct peer_identity *other)
{
    (void)p, (void)number, (void)other;
}

void serve_part_down(struct peers *p, uint16_t number, uint32_t serial, int32_t status)
{
    struct lease_event ev = {.peer = number, .connection = serial};
    (void)status;
    give(p->serve, EV_PEER_GONE, &ev);
    promises_end(p->serve, serial);
}
