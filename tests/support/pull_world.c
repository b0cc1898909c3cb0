#include "tests/support/pull_world.h"

#include "replication/timer.h"
#include "store/berth.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define MEMBERS 4u /* 0 is the reader */
#define KEYS 16u
#define REPLACEABLE_FROM 12u
#define SLOTS 12u
#define LEASES 4096u
#define TTL (50 * MS)
#define FRESH (400 * MS)
#define PIECE 16384u
#define REQUEST_KEYS 8u
#define RHO_PPM 10000

enum happening_kind { AT_OWNER, AT_READER, FETCH, COMPLETE, LOCAL, OWNER_TURN, REQUEST, CANCEL, DOWN, UP, TICK };

struct wire { /* a command or event on its way */
    struct timer timer;
    enum happening_kind kind;
    uint16_t member;
    uint64_t epoch;
    struct pull_command c;
    struct pull_event ev;
    uint32_t n;
    uint8_t key[PULL_KEYS_MAX];
    struct pull_answer answer[REQUEST_KEYS * 4];
    struct pull_grant grant[REQUEST_KEYS * 4];
    uint16_t missing[MEMBERS];
    uint64_t sum;
    uint64_t released[64];
};

struct slot {
    bool used, retired;
    uint8_t key;
    uint32_t version;
    uint64_t generation, content;
};

struct owner_lease {
    uint64_t id, generation;
    uint32_t slot;
    int64_t end; /* owner's clock */
    bool over;
};

struct owner {
    bool up; /* as the reader may know it, from a delay on */
    uint64_t epoch, incarnation, next_lease;
    int64_t drift;
    struct slot slot[SLOTS];
    struct owner_lease lease[LEASES];
    uint32_t n_leases;
};

struct destination {
    uint8_t key;
    uint32_t flying;
    uint64_t sum[8];
    uint32_t pieces;
};

struct asked {
    bool done, cancelled, replica, verify, prefix;
    uint32_t n;
    int64_t deadline;
    uint8_t key[REQUEST_KEYS];
    uint64_t buffer[REQUEST_KEYS];
    uint64_t least[REQUEST_KEYS];   /* returned before .. */
    int64_t least_at[REQUEST_KEYS]; /* .. at this time */
};

struct world {
    const struct world_options *o;
    struct world_counts *count;
    struct puller *p;
    int64_t t; /* true time */
    int64_t drift;
    struct timers timers;
    uint32_t n_wires;
    struct owner owner[MEMBERS];
    uint32_t version[KEYS];
    struct destination *destination;
    uint64_t n_destinations;
    struct asked *asked;
    uint32_t n_asked;
    uint64_t returned[KEYS];
    int64_t returned_at[KEYS];
    bool stopped;
};

static const uint8_t key_bytes[KEYS] = "ABCDEFGHIJKLMNOP";

static uint64_t content_of(uint32_t key, uint32_t version)
{
    return pull_table_mix(key * 1000 + version + 1) | 1;
}

static uint64_t size_of(uint32_t key)
{
    return (key % 4 + 1) * PIECE - key;
}

static struct reader_now reader_now(const struct world *w)
{
    int64_t raw = w->t + w->t / 1000000 * w->drift;
    return (struct reader_now){raw + 5 * MS, raw, raw, raw};
}

static int64_t owner_now(const struct world *w, const struct owner *o)
{
    return w->t + w->t / 1000000 * o->drift;
}

static struct wire *wire(struct world *w, enum happening_kind kind, int64_t delay)
{
    struct wire *x = calloc(1, sizeof *x);
    if (!x || timers_reserve(&w->timers, ++w->n_wires) < 0) {
        abort();
    }
    x->kind = kind;
    timers_set(&w->timers, &x->timer, w->t + delay);
    return x;
}

static int64_t delay(void)
{
    uint32_t what = draw_below(100);
    return what < 70 ? draw_below(300000) : what < 92 ? draw_below(5000000) : draw_below(120000000);
}

/* ---- owners ---- */

static bool leased(const struct world *w, const struct owner *o, uint32_t slot)
{
    for (uint32_t i = 0; i < o->n_leases; i++) {
        const struct owner_lease *l = &o->lease[i];
        if (!l->over && l->slot == slot && l->generation == o->slot[slot].generation && l->end > owner_now(w, o)) {
            return !(w->o->damage && draw_below(50) == 0); /* an owner that can't keep time */
        }
    }
    return false;
}

static void fill(struct world *w, struct slot *s, uint32_t key)
{
    if (key >= REPLACEABLE_FROM && draw_below(3) == 0) {
        w->version[key]++;
    }
    *s = (struct slot){.used = true,
                       .key = (uint8_t)key,
                       .version = w->version[key],
                       .generation = s->generation + 1,
                       .content = content_of(key, w->version[key])};
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
static void owner_turn(struct world *w, struct owner *o)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *s = &o->slot[i];
        bool stays = o == &w->owner[1] && i == 0;
        if (!stays && s->used && !s->retired && draw_below(4) == 0) {
            s->retired = true;
        }
        if (s->retired && !leased(w, o, i)) {
            uint32_t key = 1 + draw_below(KEYS - 1);
            fill(w, s, key);
        }
        if (w->o->damage && !stays && draw_below(200) == 0) {
            s->content ^= 0x100;
        }
    }
    uint32_t live = 0;
    for (uint32_t i = 0; i < o->n_leases; i++) {
        if (!o->lease[i].over && o->lease[i].end > owner_now(w, o)) {
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
    int64_t end = owner_now(w, o) + TTL + TTL / 1000000 * RHO_PPM;
    uint64_t id = ++o->next_lease;
    o->lease[o->n_leases++] = (struct owner_lease){.id = id, .generation = s->generation, .slot = slot, .end = end};
    g->terms = (struct lease_terms){.lease = id,
                                    .generation = s->generation,
                                    .slot = slot,
                                    .offset = slot * 1000000u,
                                    .size = size_of(key),
                                    .version = {s->version, 1},
                                    .checksum = content_of(key, s->version),
                                    .ttl_ns = TTL};
    struct wire *x = wire(w, OWNER_TURN, TTL + TTL / 50); /* use it again as soon as it may be */
    x->member = member;
}

static struct owner_lease *lease_of(struct world *w, uint16_t member, uint64_t id)
{
    struct owner *o = &w->owner[member];
    for (uint32_t i = 0; i < o->n_leases; i++) {
        if (o->lease[i].id == id && !o->lease[i].over && o->lease[i].end > owner_now(w, o)) {
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
            l->end = owner_now(w, &w->owner[in->member]) + TTL + TTL / 1000000 * RHO_PPM;
        }
        break;
    default:
        out->ev.kind = EV_PULL_STATED;
        out->ev.status = in->c.lease && lease_of(w, in->member, in->c.lease) ? 0 : -ENOENT;
        out->ev.generation = w->owner[in->member].slot[in->c.slot % SLOTS].generation;
        break;
    }
}

static void at_owner(struct world *w, const struct wire *in)
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
    struct wire *out = wire(w, AT_READER, local ? 0 : delay());
    out->member = in->member;
    out->epoch = o->epoch;
    reply_to(w, in, out);
    if (!local && draw_below(30) == 0) {
        struct wire *again = wire(w, AT_READER, delay());
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

/* ---- the reader's shell ---- */

static void drain(struct world *w);

static void tell(struct world *w, const struct pull_event *ev)
{
    pull_event(w->p, ev, reader_now(w));
    drain(w);
    const char *bad = pull_check(w->p);
    if (bad) {
        w->count->broken++;
        w->count->sentence = bad;
    }
}

static uint64_t destination_new(struct world *w, uint32_t key)
{
    w->destination = realloc(w->destination, (w->n_destinations + 1) * sizeof *w->destination);
    if (!w->destination) {
        abort();
    }
    w->destination[w->n_destinations] = (struct destination){.key = (uint8_t)key};
    return w->n_destinations++;
}

/* What the pieces hash to. */
static uint64_t sum_of(const struct destination *d)
{
    uint32_t pieces = (uint32_t)((size_of(d->key) + PIECE - 1) / PIECE);
    for (uint32_t i = 1; i < pieces; i++) {
        if (d->sum[i] != d->sum[0]) {
            return 2; /* no content has it */
        }
    }
    return d->sum[0];
}

static void send_read(struct world *w, const struct pull_command *c)
{
    bool slow = draw_below(12) == 0;
    int64_t d = slow ? draw_below(3 * TTL) : draw_below(2 * MS);
    struct wire *x = wire(w, FETCH, d);
    x->c = *c;
    x->member = c->member;
    x->epoch = w->owner[c->member].up ? w->owner[c->member].epoch : UINT64_MAX;
    w->destination[c->target.name].flying++;
}

static void send_rpc(struct world *w, const struct pull_command *c)
{
    bool local = c->member == 0;
    struct wire *x = wire(w, AT_OWNER, local ? 0 : delay());
    x->c = *c;
    x->member = c->member;
    x->epoch = w->owner[c->member].up || local ? w->owner[c->member].epoch : UINT64_MAX;
    x->n = c->kind == CMD_PULL_CORRUPT ? 1 : c->n;
    if (x->n > REQUEST_KEYS * 4 && c->kind != CMD_PULL_RELEASE) {
        abort();
    }
    for (uint32_t i = 0; c->keys && i < x->n; i++) {
        x->key[i] = (uint8_t)(*(const uint8_t *)c->keys[i].key.data - 'A');
    }
    for (uint32_t i = 0; c->releases && i < c->n && i < 64; i++) {
        x->released[i] = c->releases[i].lease;
    }
    if (!local && draw_below(60) == 0) {
        x->epoch = UINT64_MAX;
        w->count->dropped++;
    }
}

static void local(struct world *w, const struct pull_command *c)
{
    struct wire *x = wire(w, LOCAL, draw_below(400000));
    x->ev = (struct pull_event){.id = c->id};
    if (c->kind == CMD_PULL_RESERVE) {
        uint32_t what = draw_below(40);
        x->ev.kind = EV_PULL_RESERVED;
        x->ev.status = what == 0 ? BERTH_EFULL : what == 1 ? BERTH_KEPT : 0;
        x->ev.token = x->ev.status ? 0 : destination_new(w, *(const uint8_t *)c->keys[0].key.data - 'A');
    } else if (c->kind == CMD_PULL_HASH) {
        x->ev.kind = EV_PULL_HASHED;
        x->sum = sum_of(&w->destination[c->target.name]);
        x->ev.n = 1;
    } else {
        const struct destination *d = &w->destination[c->token];
        x->ev.kind = EV_PULL_SEALED;
        w->count->wrong += sum_of(d) != c->terms->checksum;
        w->count->not_quiet += d->flying > 0;
    }
}

/* ---- outcomes ---- */

/* behind: of a run that ended before this key. */
static bool status_good(const struct world *w, const struct asked *a, uint32_t i, int status, bool behind)
{
    switch (status) {
    case 0:
        return true;
    case BERTH_KEPT:
    case BERTH_EFULL:
        return a->replica;
    case -ENOENT:
        return behind || a->key[i] != 0; /* which is always there */
    case -ECANCELED:
        return a->cancelled || w->stopped;
    case -ETIMEDOUT:
        return reader_now(w).mono_after >= a->deadline;
    case BERTH_ECORRUPT:
        return w->o->damage;
    default:
        return status == BERTH_EUNSURE || status == BERTH_ENOTNOW;
    }
}

static void key_done(struct world *w, struct asked *a, uint32_t i, const struct pull_result *r, bool behind)
{
    struct world_counts *c = w->count;
    uint32_t key = a->key[i];
    c->keys++;
    if (!status_good(w, a, i, r->status, behind)) {
        c->status++;
        c->bad_status = r->status;
        c->bad_key = key;
    }
    if (!a->replica) {
        c->not_quiet += w->destination[a->buffer[i]].flying > 0;
    }
    if (r->status != 0) {
        return;
    }
    c->got++;
    c->got_bytes += r->size;
    c->wrong += r->checksum != content_of(key, (uint32_t)r->version.counter);
    c->wrong += !a->replica && sum_of(&w->destination[a->buffer[i]]) != r->checksum;
    if (a->verify && !r->verified && !(w->o->unsafe & UNSAFE_NO_VERIFY)) {
        c->status++;
        c->bad_status = 1;
        c->bad_key = key;
    }
    bool recent = reader_now(w).mono_after - a->least_at[i] < FRESH;
    c->backwards += recent && r->version.counter < a->least[i];
    if (r->version.counter >= w->returned[key]) {
        w->returned[key] = r->version.counter;
        w->returned_at[key] = reader_now(w).mono_after;
    }
}

static void request_done(struct world *w, const struct pull_command *c)
{
    struct asked *a = &w->asked[c->id];
    w->count->done++;
    w->count->twice += a->done;
    a->done = true;
    for (uint32_t i = 0; i < c->n && i < a->n; i++) {
        key_done(w, a, i, &c->results[i], a->prefix && i > c->run);
    }
}

static void drain(struct world *w)
{
    for (const struct pull_command *c; (c = pull_command(w->p));) {
        switch (c->kind) {
        case CMD_PULL_READ:
            send_read(w, c);
            break;
        case CMD_PULL_CANCEL_READ:
            break; /* it completes as it would have */
        case CMD_PULL_RESERVE:
        case CMD_PULL_HASH:
        case CMD_PULL_SEAL:
            local(w, c);
            break;
        case CMD_PULL_ABORT:
            w->count->not_quiet += w->destination[c->token].flying > 0;
            break;
        case CMD_PULL_DONE:
            request_done(w, c);
            break;
        default:
            send_rpc(w, c);
            break;
        }
    }
}

/* ---- what happens ---- */

static void new_request(struct world *w)
{
    if (w->n_asked == w->o->requests) {
        return;
    }
    struct asked *a = &w->asked[w->n_asked];
    struct pull_key keys[REQUEST_KEYS];
    *a = (struct asked){.replica = draw_below(2), .n = 1 + draw_below(REQUEST_KEYS), .verify = w->o->verify};
    int64_t now = reader_now(w).mono_after;
    a->deadline = draw_below(3) ? now + draw_below(200000000) : INT64_MAX;
    uint32_t flags = a->verify ? PULL_VERIFY : 0;
    flags |= draw_below(8) == 0 ? PULL_FRESH : 0;
    flags |= draw_below(5) == 0 ? PULL_PREFIX : 0;
    flags |= draw_below(5) == 0 && a->deadline != INT64_MAX ? PULL_WAIT : 0;
    a->prefix = flags & PULL_PREFIX;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t k = draw_below(KEYS);
        a->key[i] = (uint8_t)k;
        a->least[i] = k >= REPLACEABLE_FROM ? w->returned[k] : 0;
        a->least_at[i] = w->returned_at[k];
        a->buffer[i] = a->replica ? 0 : destination_new(w, k);
        keys[i] = (struct pull_key){.key = {.data = &key_bytes[k], .size = 1},
                                    .flags = k >= REPLACEABLE_FROM ? PULL_REPLACEABLE : 0,
                                    .buffer = a->buffer[i],
                                    .room = 1u << 20};
    }
    struct pull_request r = {.id = w->n_asked++,
                             .keys = keys,
                             .n_keys = a->n,
                             .destination = a->replica ? PULL_REPLICA : PULL_BUFFER,
                             .flags = flags,
                             .deadline = a->deadline};
    w->count->requests++;
    if (draw_below(6) == 0) {
        wire(w, CANCEL, delay())->ev.id = r.id;
    }
    tell(w, &(struct pull_event){.kind = EV_PULL_REQUEST, .request = &r});
}

static void fetch(struct world *w, const struct wire *in)
{
    struct owner *o = &w->owner[in->member];
    struct wire *x = wire(w, COMPLETE, draw_below(300000));
    x->c = in->c;
    x->ev = (struct pull_event){.kind = EV_PULL_READ, .id = in->c.id};
    if (in->epoch != o->epoch) {
        x->ev.status = -ECONNRESET;
        return;
    }
    const struct slot *s = &o->slot[in->c.offset / 1000000];
    x->sum = s->content;
    if (w->o->damage && draw_below(60) == 0) {
        x->sum ^= 0x10000;
    }
    struct destination *d = &w->destination[in->c.target.name];
    d->sum[in->c.target.at / PIECE] = x->sum; /* late ones, too: the memory does not know */
    w->count->would_wrong += s->generation != in->c.generation;
}

static void connection_lost(struct world *w, uint16_t m)
{
    struct owner *o = &w->owner[m];
    bool crash = draw_below(3) == 0;
    o->epoch++;
    o->incarnation += crash;
    o->n_leases = 0; /* forgotten at the fence */
    o->up = false;
    w->count->crashes += crash;
    w->count->lost++;
    owner_turn(w, o);
    wire(w, DOWN, draw_below(2 * MS))->member = m;
    wire(w, UP, 3 * MS + draw_below(60 * MS))->member = m;
}

static void happen(struct world *w, struct wire *x)
{
    switch (x->kind) {
    case AT_OWNER:
        at_owner(w, x);
        break;
    case AT_READER:
        if (x->epoch == w->owner[x->member].epoch) {
            x->ev.answers = x->answer;
            x->ev.grants = x->grant;
            for (uint32_t i = 0; i < REQUEST_KEYS * 4; i++) {
                x->answer[i].missing = x->missing;
            }
            tell(w, &x->ev);
        }
        break;
    case FETCH:
        fetch(w, x);
        break;
    case COMPLETE:
        w->destination[x->c.target.name].flying--;
        tell(w, &x->ev);
        break;
    case LOCAL:
        x->ev.sums = &x->sum;
        tell(w, &x->ev);
        break;
    case OWNER_TURN:
        owner_turn(w, &w->owner[x->member]);
        break;
    case CANCEL:
        w->asked[x->ev.id].cancelled = true;
        tell(w, &(struct pull_event){.kind = EV_PULL_CANCEL, .id = x->ev.id});
        break;
    case DOWN:
        tell(w, &(struct pull_event){.kind = EV_PULL_DOWN, .member = x->member});
        break;
    case UP:
        w->owner[x->member].up = true;
        tell(w, &(struct pull_event){.kind = EV_PULL_UP,
                                     .member = x->member,
                                     .incarnation = w->owner[x->member].incarnation,
                                     .transport = "loop",
                                     .proven = true});
        break;
    case REQUEST:
        new_request(w);
        break;
    case TICK:
        tell(w, &(struct pull_event){.kind = EV_PULL_TICK});
        break;
    }
}

static uint32_t homes(void *env, const struct pull_key *key, uint16_t *out, uint32_t max)
{
    (void)env;
    uint32_t k = *(const uint8_t *)key->key.data;
    out[0] = k % 7 == 0 ? 0 : (uint16_t)(1 + k % 3);
    out[1] = (uint16_t)(1 + (k + 1) % 3);
    return max < 2 ? max : 2;
}

static int64_t any_drift(const struct world_options *o)
{
    return (int64_t)draw_below((uint32_t)(2 * o->drift_ppm + 1)) - o->drift_ppm;
}

static void begin(struct world *w)
{
    struct pull_config c = {.self = 0,
                            .n_members = MEMBERS,
                            .homes = homes,
                            .absent_homes = draw_below(3),
                            .max_requests = 4096,
                            .max_keys = 65536,
                            .max_leases = 4 + draw_below(60),
                            .max_lease_bytes = 1u << 20,
                            .lease_idle_ns = 30 * MS,
                            .release_ns = 2 * MS,
                            .rpc_ns = 60 * MS,
                            .wait_max_ns = 20 * MS,
                            .window_bytes = 20 * PIECE,
                            .source_window_bytes = 9 * PIECE,
                            .read_bytes = PIECE,
                            .rate = 1000000000,
                            .latency_ns = MS,
                            .fresh_ns = FRESH,
                            .max_floors = 2 + draw_below(8),
                            .unsafe = w->o->unsafe};
    if (pull_create(&w->p, &c) < 0) {
        abort();
    }
    w->drift = any_drift(w->o);
    for (uint32_t k = 0; k < KEYS; k++) {
        w->version[k] = 1;
    }
    for (uint16_t m = 1; m < MEMBERS; m++) {
        struct owner *o = &w->owner[m];
        o->drift = any_drift(w->o);
        o->incarnation = 1;
        for (uint32_t i = 0; i < SLOTS; i++) {
            fill(w, &o->slot[i], i == 0 && m == 1 ? 0 : 1 + draw_below(KEYS - 1));
        }
        wire(w, UP, 0)->member = m;
    }
}

static void one_step(struct world *w)
{
    int64_t timer = pull_timer(w->p), next = timers_next(&w->timers);
    if (timer == INT64_MAX && next == INT64_MAX) {
        return;
    }
    /* The reader's timer in true time, near enough: a tick that is early does no harm. */
    int64_t at = timer == INT64_MAX ? INT64_MAX : (int64_t)((double)timer * 1e6 / (1e6 + (double)w->drift));
    if (at < next) {
        w->t = at > w->t ? at : w->t + 1000;
        tell(w, &(struct pull_event){.kind = EV_PULL_TICK});
        return;
    }
    w->t = next > w->t ? next : w->t;
    struct wire *x = CONTAINER(timers_due(&w->timers, w->t), struct wire, timer);
    happen(w, x);
    free(x);
    w->n_wires--;
}

static void finish(struct world *w)
{
    for (uint32_t i = 0; i < 200000 && (w->timers.count > 0 || pull_timer(w->p) < INT64_MAX); i++) {
        one_step(w);
        if (!w->stopped && i == 20000) {
            break;
        }
    }
    w->stopped = true;
    tell(w, &(struct pull_event){.kind = EV_PULL_STOP});
    for (uint32_t i = 0; i < 200000 && (w->timers.count > 0 || pull_timer(w->p) < INT64_MAX); i++) {
        one_step(w);
    }
    struct pull_status *s = &w->count->status_at_end;
    pull_status(w->p, s);
    w->count->late += s->counter[PULL_LATE];
    w->count->leaks += s->requests + s->keys + s->transfers + s->seeks + s->rpcs + s->reads + s->reserves + s->hashes +
                       s->seals + s->window_bytes + s->leases.good + s->leases.used + s->leases.releasing +
                       (s->leases.granted - s->leases.ended);
    for (uint32_t i = 0; i < w->n_asked; i++) {
        w->count->never += !w->asked[i].done;
    }
}

void world_run(const struct world_options *o, struct world_counts *out)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w) {
        abort();
    }
    w->o = o;
    w->count = out;
    w->asked = calloc(o->requests, sizeof *w->asked);
    if (!w->asked) {
        abort();
    }
    destination_new(w, 0);
    begin(w);
    int64_t next_request = 0, next_fault = 20 * MS;
    while (w->n_asked < o->requests) {
        if (w->t >= next_request) {
            wire(w, REQUEST, 0);
            next_request = w->t + draw_below(2 * MS);
        }
        uint16_t m = (uint16_t)(1 + draw_below(MEMBERS - 1));
        if (w->t >= next_fault && w->owner[m].up) {
            connection_lost(w, m);
            next_fault = w->t + draw_below(150 * MS);
        }
        wire(w, OWNER_TURN, draw_below(3 * MS))->member = m;
        wire(w, TICK, draw_below(MS));
        for (uint32_t i = 0; i < 6; i++) {
            one_step(w);
        }
        if (w->n_asked + w->timers.count > 1000000) {
            break;
        }
    }
    finish(w);
    while (w->timers.count > 0) {
        free(CONTAINER(timers_due(&w->timers, INT64_MAX), struct wire, timer));
    }
    timers_destroy(&w->timers);
    pull_destroy(w->p);
    free(w->destination);
    free(w->asked);
    free(w);
}
