/* Owners and homes of the world: they answer, lose, double, and use slots again. */
#include "tests/support/draw.h"
#include "tests/support/pull_world_parts.h"

#include <errno.h>
#include <stdlib.h>

uint64_t world_content(uint32_t key, uint32_t version)
{
    return pull_table_mix(key * 1000 + version + 1) | 1;
}

uint64_t world_size(uint32_t key)
{
    return (key % 4 + 1) * PIECE - key;
}

struct reader_now world_now(const struct world *w)
{
    int64_t raw = w->t + w->t * w->drift / 1000000;
    return (struct reader_now){raw + 5 * MS, raw, raw, raw};
}

int64_t world_owner_now(const struct world *w, const struct owner *o)
{
    return w->t + w->t * o->drift / 1000000;
}

struct wire *world_wire(struct world *w, enum happening_kind kind, int64_t delay)
{
    struct wire *x = calloc(1, sizeof *x);
    if (!x || timers_reserve(&w->timers, ++w->n_wires) < 0) {
        abort();
    }
    x->kind = kind;
    timers_set(&w->timers, &x->timer, w->t + delay);
    return x;
}

int64_t world_delay(void)
{
    uint32_t what = draw_below(100);
    return what < 70 ? draw_below(300000) : what < 92 ? draw_below(5000000) : draw_below(120000000);
}

static bool leased(const struct world *w, const struct owner *o, uint32_t slot)
{
    for (uint32_t i = 0; i < o->n_leases; i++) {
        const struct owner_lease *l = &o->lease[i];
        if (!l->over && l->slot == slot && l->generation == o->slot[slot].generation &&
            l->end > world_owner_now(w, o)) {
            return !(w->o->damage && draw_below(50) == 0); /* an owner that can't keep time */
        }
    }
    return false;
}

void owner_fill(struct world *w, struct slot *s, uint32_t key)
{
    if (key >= REPLACEABLE_FROM && draw_below(3) == 0) {
        w->version[key]++;
    }
    *s = (struct slot){.used = true,
                       .key = (uint8_t)key,
                       .version = w->version[key],
                       .generation = s->generation + 1,
                       .content = world_content(key, w->version[key])};
}

static const struct slot *slot_of(const struct owner *o, uint32_t key)
{
    const struct slot *best = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct slot *s = &o->slot[i];
        if (s->used && !s->retired && s->key == key && (!best || s->version > best->version)) {
            best = s;
        }
    }
    return best;
}

/* Retires some, and uses again what no lease holds. Key 0 stays at owner 1 for ever. */
void owner_turn(struct world *w, struct owner *o)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *s = &o->slot[i];
        bool stays = o == &w->owner[1] && i == 0;
        if (!stays && s->used && !s->retired && draw_below(4) == 0) {
            s->retired = true;
        }
        if (s->retired && !leased(w, o, i)) {
            uint32_t key = 1 + draw_below(KEYS - 1);
            owner_fill(w, s, key);
        }
        if (w->o->damage && !stays && draw_below(200) == 0) {
            s->content ^= 0x100;
        }
    }
    uint32_t live = 0;
    for (uint32_t i = 0; i < o->n_leases; i++) {
        if (!o->lease[i].over && o->lease[i].end > world_owner_now(w, o)) {
            o->lease[live++] = o->lease[i];
        }
    }
    o->n_leases = live;
}

static void grant(struct world *w, uint16_t member, uint32_t key, struct pull_grant *g)
{
    struct owner *o = &w->owner[member];
    const struct slot *s = slot_of(o, key);
    if (!s || o->n_leases == LEASES) {
        g->status = draw_below(10) == 0 ? -EBUSY : s ? -EAGAIN : -ENOENT;
        return;
    }
    uint32_t slot = (uint32_t)(s - o->slot);
    int64_t end = world_owner_now(w, o) + TTL + TTL / 1000000 * RHO_PPM;
    uint64_t id = ++o->next_lease;
    o->lease[o->n_leases++] = (struct owner_lease){.id = id, .generation = s->generation, .slot = slot, .end = end};
    g->terms = (struct lease_terms){.lease = id,
                                    .generation = s->generation,
                                    .slot = slot,
                                    .offset = slot * 1000000u,
                                    .size = world_size(key),
                                    .version = {s->version, 1},
                                    .checksum = world_content(key, s->version),
                                    .ttl_ns = TTL};
    struct wire *x = world_wire(w, OWNER_TURN, TTL + TTL / 50); /* use it again as soon as it may be */
    x->member = member;
}

static struct owner_lease *lease_of(struct world *w, uint16_t member, uint64_t id)
{
    struct owner *o = &w->owner[member];
    for (uint32_t i = 0; i < o->n_leases; i++) {
        if (o->lease[i].id == id && !o->lease[i].over && o->lease[i].end > world_owner_now(w, o)) {
            return &o->lease[i];
        }
    }
    return NULL;
}

static void home_says(struct world *w, uint16_t member, uint32_t key, uint32_t flags, struct wire *reply, uint32_t i)
{
    struct pull_answer *a = &reply->answer[i];
    bool learning = draw_below(12) == 0;
    if ((flags & ASK_PREFIX) && i > 0 && reply->answer[i - 1].says != HOME_FOUND) {
        a->says = HOME_SKIPPED;
        return;
    }
    for (uint16_t m = 1; m < MEMBERS; m++) {
        const struct slot *s = slot_of(&w->owner[m], key);
        if (learning) {
            reply->missing[m - 1] = m;
        } else if (s || draw_below(20) == 0) {
            a->location[a->n_locations++] = (struct pull_location){m, {s ? s->version : 1, 1}};
        }
    }
    a->says = learning ? HOME_LEARNING : a->n_locations ? HOME_FOUND : HOME_ABSENT;
    a->missing = reply->missing;
    a->n_missing = learning ? MEMBERS - 1 : 0;
    if ((flags & ASK_WANT_LEASE) && a->says == HOME_FOUND && slot_of(&w->owner[member], key)) {
        a->granted = true;
        grant(w, member, key, &a->grant);
    }
}

static void reply_to(struct world *w, const struct wire *in, struct wire *out)
{
    out->n = in->n;
    out->ev = (struct pull_event){.id = in->c.id, .n = in->n};
    struct owner_lease *l;
    switch (in->c.kind) {
    case CMD_PULL_ASK:
        out->ev.kind = EV_PULL_ANSWER;
        for (uint32_t i = 0; i < in->n; i++) {
            home_says(w, in->member, in->key[i], in->c.flags, out, i);
        }
        break;
    case CMD_PULL_LEASE:
        out->ev.kind = EV_PULL_LEASED;
        for (uint32_t i = 0; i < in->n; i++) {
            grant(w, in->member, in->key[i], &out->grant[i]);
        }
        break;
    case CMD_PULL_RENEW:
        out->ev.kind = EV_PULL_RENEWED;
        l = lease_of(w, in->member, in->c.lease);
        out->ev.status = l ? 0 : -ENOENT;
        out->ev.ttl_ns = TTL;
        if (l) {
            l->end = world_owner_now(w, &w->owner[in->member]) + TTL + TTL / 1000000 * RHO_PPM;
        }
        break;
    default:
        out->ev.kind = EV_PULL_STATED;
        out->ev.status = in->c.lease && lease_of(w, in->member, in->c.lease) ? 0 : -ENOENT;
        out->ev.generation = w->owner[in->member].slot[in->c.slot % SLOTS].generation;
        break;
    }
}

void owner_receives(struct world *w, const struct wire *in)
{
    struct owner *o = &w->owner[in->member];
    if (in->member != 0 && in->epoch != o->epoch) {
        return;
    }
    if (in->c.kind == CMD_PULL_RELEASE) {
        for (uint32_t i = 0; i < in->n && i < 64; i++) {
            struct owner_lease *l = lease_of(w, in->member, in->released[i]);
            if (l) {
                l->over = true;
            }
        }
        owner_turn(w, o);
        return;
    }
    if (in->c.kind == CMD_PULL_CORRUPT) {
        w->count->corrupt++;
        return;
    }
    bool local = in->member == 0;
    struct wire *out = world_wire(w, AT_READER, local ? 0 : world_delay());
    out->member = in->member;
    out->epoch = o->epoch;
    reply_to(w, in, out);
    if (!local && draw_below(30) == 0) {
        struct wire *again = world_wire(w, AT_READER, world_delay());
        struct timer t = again->timer;
        *again = *out;
        again->timer = t;
        w->count->doubled++;
    }
    if (!local && draw_below(60) == 0) {
        out->epoch = UINT64_MAX; /* lost */
        w->count->dropped++;
    }
}
