#include "store/berth.h"
#include "tests/support/draw.h"
#include "tests/support/pull_world_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t key_bytes[KEYS] = "ABCDEFGHIJKLMNOP";

/* ---- the reader's shell ---- */

static void drain(struct world *w);

static void tell(struct world *w, const struct pull_event *ev)
{
    pull_event(w->p, ev, world_now(w));
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
    uint32_t pieces = (uint32_t)((world_size(d->key) + PIECE - 1) / PIECE);
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
    struct wire *x = world_wire(w, FETCH, d);
    x->c = *c;
    x->member = c->member;
    x->epoch = w->owner[c->member].up ? w->owner[c->member].epoch : UINT64_MAX;
    w->destination[c->target.name].flying++;
}

static void send_rpc(struct world *w, const struct pull_command *c)
{
    bool local = c->member == 0;
    struct wire *x = world_wire(w, AT_OWNER, local ? 0 : world_delay());
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
        uint64_t id = c->releases[i].lease;
        x->released[i] = id;
        w->count->twice += w->owner[c->member].released[id % 65536]++ > 0;
    }
    if (!local && draw_below(60) == 0) {
        x->epoch = UINT64_MAX;
        w->count->dropped++;
    }
}

/* Sealed or given back: once, and when nothing writes to it. */
static void slot_ends(struct world *w, struct destination *d)
{
    w->count->twice += !d->reserved;
    w->count->not_quiet += d->flying > 0;
    d->reserved = false;
}

static void local(struct world *w, const struct pull_command *c)
{
    struct wire *x = world_wire(w, LOCAL, draw_below(400000));
    x->ev = (struct pull_event){.id = c->id};
    if (c->kind == CMD_PULL_RESERVE) {
        uint32_t what = draw_below(40);
        x->ev.kind = EV_PULL_RESERVED;
        x->ev.status = what == 0 ? BERTH_EFULL : what == 1 ? BERTH_KEPT : 0;
        if (x->ev.status == 0) {
            x->ev.token = destination_new(w, *(const uint8_t *)c->keys[0].key.data - 'A');
            w->destination[x->ev.token].reserved = true;
        }
    } else if (c->kind == CMD_PULL_HASH) {
        x->ev.kind = EV_PULL_HASHED;
        x->sum = sum_of(&w->destination[c->target.name]);
        x->ev.n = 1;
    } else {
        struct destination *d = &w->destination[c->token];
        slot_ends(w, d);
        x->ev.kind = EV_PULL_SEALED;
        w->count->wrong += sum_of(d) != c->terms->checksum;
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
        return world_now(w).mono_after >= a->deadline;
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
    c->wrong += r->checksum != world_content(key, (uint32_t)r->version.counter);
    c->wrong += !a->replica && sum_of(&w->destination[a->buffer[i]]) != r->checksum;
    if (a->verify && !r->verified && !(w->o->unsafe & UNSAFE_NO_VERIFY)) {
        c->status++;
        c->bad_status = 1;
        c->bad_key = key;
    }
    bool recent = world_now(w).mono_after - a->least_at[i] < FRESH;
    c->backwards += recent && r->version.counter < a->least[i];
    if (r->version.counter >= w->returned[key]) {
        w->returned[key] = r->version.counter;
        w->returned_at[key] = world_now(w).mono_after;
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
        case CMD_PULL_WATCH:
        case CMD_PULL_CANCEL_READ:
            break; /* it completes as it would have */
        case CMD_PULL_RESERVE:
        case CMD_PULL_HASH:
        case CMD_PULL_SEAL:
            local(w, c);
            break;
        case CMD_PULL_ABORT:
            slot_ends(w, &w->destination[c->token]);
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
    int64_t now = world_now(w).mono_after;
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
        world_wire(w, CANCEL, world_delay())->ev.id = r.id;
    }
    tell(w, &(struct pull_event){.kind = EV_PULL_REQUEST, .request = &r});
}

static void fetch(struct world *w, const struct wire *in)
{
    struct owner *o = &w->owner[in->member];
    struct wire *x = world_wire(w, COMPLETE, draw_below(300000));
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
    world_wire(w, DOWN, draw_below(2 * MS))->member = m;
    world_wire(w, UP, 3 * MS + draw_below(60 * MS))->member = m;
}

static void happen(struct world *w, struct wire *x)
{
    switch (x->kind) {
    case AT_OWNER:
        owner_receives(w, x);
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
            owner_fill(w, &o->slot[i], i == 0 && m == 1 ? 0 : 1 + draw_below(KEYS - 1));
        }
        world_wire(w, UP, 0)->member = m;
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
    for (uint64_t i = 0; i < w->n_destinations; i++) {
        w->count->leaks += w->destination[i].reserved || w->destination[i].flying;
    }
    for (uint32_t i = 0; i < w->n_asked; i++) {
        w->count->never += !w->asked[i].done;
    }
}

void world_run(const struct world_options *o, struct world_counts *out)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w || !(w->asked = calloc(o->requests, sizeof *w->asked))) {
        abort();
    }
    w->o = o;
    w->count = out;
    destination_new(w, 0);
    begin(w);
    int64_t next_request = 0, next_fault = 20 * MS;
    while (w->n_asked < o->requests) {
        if (w->t >= next_request) {
            world_wire(w, REQUEST, 0);
            next_request = w->t + draw_below(2 * MS);
        }
        uint16_t m = (uint16_t)(1 + draw_below(MEMBERS - 1));
        if (w->t >= next_fault && w->owner[m].up) {
            connection_lost(w, m);
            next_fault = w->t + draw_below(150 * MS);
        }
        world_wire(w, OWNER_TURN, draw_below(3 * MS))->member = m;
        world_wire(w, TICK, draw_below(MS));
        for (uint32_t i = 0; i < 6; i++) {
            one_step(w);
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
