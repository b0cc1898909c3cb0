/* fleet.c: see fleet.h. */
#include "tests/support/fleet.h"

#include "tests/support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fleet fleet;
static uint32_t key_store[KEYS];

bool fleet_replaceable(uint32_t key)
{
    return key % 2;
}

struct home_key fleet_key(uint32_t key)
{
    key_store[key] = key;
    return (struct home_key){
        .data = &key_store[key], .size = sizeof key, .space = key % 3, .route = key % 5 == 0 ? 1 + key % 2 : 0};
}

static uint32_t number_of(const struct publication_entry *e)
{
    return *(const uint32_t *)e->key.data;
}

uint64_t fleet_revision(const struct node *n)
{
    return rendezvous_revision(fleet.list[n->list]);
}

static void raise_to(struct object_version *v, struct object_version to)
{
    *v = version_less(*v, to) ? to : *v;
}

/* ---- messages ---- */

void fleet_forget(struct message *m)
{
    free(m->entries);
    free(m->results);
    *m = (struct message){0};
}

static struct message *new_message(uint16_t from, uint16_t to, struct home_life to_life)
{
    struct message *m = &fleet.message[draw_below(MESSAGES)];
    if (m->used || !fleet.node[from].linked[to]) {
        fleet.lost++;
        return NULL;
    }
    *m = (struct message){.used = true, .from = from, .to = to, .from_life = fleet.node[from].life, .to_life = to_life};
    return m;
}

static void send_batch(uint16_t from, const struct publish_command *c)
{
    struct message *m = new_message(from, c->member, c->batch.to);
    if (m) {
        m->batch = c->batch;
        m->entries = calloc(c->batch.n + 1, sizeof *m->entries);
        for (uint32_t i = 0; i < c->batch.n; i++) {
            m->entries[i] = c->batch.entries[i];
            m->entries[i].key.data = &key_store[number_of(&c->batch.entries[i])];
        }
        m->batch.entries = m->entries;
    }
}

static void deliver_batch(const struct message *m)
{
    struct publication_answer a;
    struct publication_result results[PUBLICATION_ENTRIES];
    struct node *to = &fleet.node[m->to];
    if (home_publish(to->home, &m->batch, fleet.now, &a, results)) {
        return;
    }
    struct message *answer = new_message(m->to, m->from, m->from_life);
    if (answer) {
        answer->is_answer = true;
        answer->answer = a;
        answer->results = calloc(a.n + 1, sizeof *results);
        memcpy(answer->results, results, a.n * sizeof *results);
        answer->answer.results = answer->results;
    }
}

void fleet_deliver(struct message *m, bool keep)
{
    struct node *to = &fleet.node[m->to];
    /* A connection ends with its processes; who restarted learns it from the next HELLO. */
    bool arrives = m->is_answer ? life_equal(to->life, m->to_life) : true;
    if (arrives && m->is_answer) {
        (void)publish_answered(to->publish, m->from, &m->answer, fleet.now);
    } else if (arrives) {
        deliver_batch(m);
    }
    if (!keep) {
        fleet_forget(m);
    }
}

/* ---- the owner ---- */

void fleet_tell(struct node *n, uint32_t key, uint8_t kind, struct object_version v, bool fresh, bool again)
{
    struct publication_entry e = {.key = fleet_key(key),
                                  .version = v,
                                  .size = v.counter,
                                  .kind = kind,
                                  .replaceable = fleet_replaceable(key),
                                  .fresh = fresh,
                                  .again = again};
    int64_t number = publish_tell(n->publish, &e, fleet.now);
    assert_true(number > 0);
    if (kind != PUBLICATION_GONE) {
        fleet_record(n, key, kind == PUBLICATION_OBJECT ? OBJECT : TOMBSTONE)->number = number;
    }
}

struct record *fleet_record(struct node *n, uint32_t key, enum what what)
{
    return what == OBJECT ? &n->index[key] : &n->removed[key];
}

static struct object_version next_version(struct node *n, uint64_t seen)
{
    uint64_t clock = (uint64_t)fleet.now / 1000 + n->skew;
    n->counter = (n->counter > seen ? n->counter : seen) + 1;
    n->counter = n->counter > clock ? n->counter : clock;
    return (struct object_version){n->counter, n->life.region};
}

void fleet_write(struct node *n, uint32_t key, enum what what, struct object_version v)
{
    *fleet_record(n, key, what) = (struct record){.what = what, .version = v};
    raise_to(what == OBJECT ? &fleet.most[key] : &fleet.removed[key], v);
    n->counter = n->counter > v.counter ? n->counter : v.counter;
}

void fleet_put(struct node *n, uint32_t key)
{
    if (n->index[key].what == OBJECT && !fleet_replaceable(key)) {
        return;
    }
    fleet_write(n, key, OBJECT, next_version(n, 0));
    fleet_tell(n, key, PUBLICATION_OBJECT, n->index[key].version, true, false);
}

void fleet_evict(struct node *n, uint32_t key)
{
    if (n->index[key].what == OBJECT) {
        struct object_version v = n->index[key].version;
        n->index[key] = (struct record){0};
        fleet_tell(n, key, PUBLICATION_GONE, v, false, false);
    }
}

void fleet_erase(struct node *n, uint32_t key)
{
    fleet_write(n, key, TOMBSTONE, next_version(n, 0));
    n->index[key] = (struct record){0};
    fleet_tell(n, key, PUBLICATION_TOMBSTONE, n->removed[key].version, true, false);
}

static void take(struct node *n, const struct publication_entry *e, uint64_t counter)
{
    uint32_t key = number_of(e);
    enum what what = e->kind == PUBLICATION_OBJECT ? OBJECT : TOMBSTONE;
    struct record *r = fleet_record(n, key, what);
    if (r->what != NOTHING && version_equal(r->version, e->version)) {
        fleet_write(n, key, what, next_version(n, counter));
        r->taken = true;
        fleet_tell(n, key, e->kind, r->version, true, true);
        fleet.taken++;
    }
}

static void known(struct node *n, uint16_t home, const struct publication_entry *e)
{
    struct record *r = &n->removed[number_of(e)];
    uint16_t homes[HOMES_MAX];
    uint32_t count = rendezvous_homes(fleet.list[n->list], rendezvous_place(&e->key), homes);
    if (r->what == NOTHING || !version_equal(r->version, e->version)) {
        return;
    }
    r->heard |= 1u << home;
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        all = all && (r->heard >> homes[i] & 1);
    }
    fleet.known += all && !r->known;
    r->known = r->known || all;
}

static void drop(struct node *n, const struct publication_entry *e)
{
    uint32_t key = number_of(e);
    if (n->index[key].what == OBJECT && version_equal(n->index[key].version, e->version)) {
        fleet_evict(n, key);
        fleet.dropped++;
    }
}

static struct publication_entry listed(uint32_t key, const struct record *r)
{
    bool object = r->what == OBJECT;
    return (struct publication_entry){.key = fleet_key(key),
                                      .version = r->version,
                                      .size = object ? r->version.counter : 0,
                                      .kind = object ? PUBLICATION_OBJECT : PUBLICATION_TOMBSTONE,
                                      .replaceable = fleet_replaceable(key),
                                      .fresh = object ? r->number && !r->published : !r->known,
                                      .again = r->taken};
}

void fleet_list(struct node *n)
{
    struct publication_entry step[2 * KEYS];
    uint32_t most = 1 + draw_below(16), i = 0;
    for (; i < most && n->cursor < 2 * KEYS; n->cursor++) {
        uint32_t key = n->cursor % KEYS; /* objects, then tombstones */
        const struct record *r = fleet_record(n, key, n->cursor < KEYS ? OBJECT : TOMBSTONE);
        if (r->what != NOTHING) {
            step[i++] = listed(key, r);
        }
    }
    n->listing = false;
    assert_int_equal(publish_listed(n->publish, n->pass, step, i, n->cursor == 2 * KEYS, fleet.now), 0);
}

static void see_published(struct node *n, struct record *r, uint32_t key)
{
    struct home_key k = fleet_key(key);
    if (r->number && !r->published && publish_done(n->publish, rendezvous_place(&k), r->number)) {
        r->published = true;
        fleet.published++;
    }
}

void fleet_commands(uint16_t member, uint32_t most)
{
    struct node *n = &fleet.node[member];
    const struct publish_command *c;
    while (most-- > 0 && (c = publish_command(n->publish)) != NULL) {
        switch (c->kind) {
        case PUBLISH_SEND:
            send_batch(member, c);
            break;
        case PUBLISH_LIST:
            n->listing = true;
            n->pass = c->pass;
            n->cursor = c->start ? 0 : n->cursor;
            break;
        case PUBLISH_TAKE:
            take(n, &c->entry, c->counter);
            break;
        case PUBLISH_DROP:
            drop(n, &c->entry);
            break;
        case PUBLISH_KNOWN:
            known(n, c->member, &c->entry);
            break;
        case PUBLISH_PAST: /* homes of the fleet know none */
            fail_msg("a past that no home told");
        }
    }
    for (uint32_t key = 0; key < KEYS; key++) {
        see_published(n, &n->index[key], key);
        see_published(n, &n->removed[key], key);
    }
    n->settled = publish_settled(n->publish) ? fleet_revision(n) : n->settled;
}

/* ---- members ---- */

void fleet_connect(uint16_t a, uint16_t b)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct node *n = &fleet.node[i ? b : a];
        uint16_t other = i ? a : b;
        struct home_life life = fleet.node[other].life;
        assert_true(home_hello(n->home, other, life) >= 0);
        home_reachable(n->home, other, true);
        publish_up(n->publish, other, life, fleet.now);
        n->linked[other] = true;
    }
}

void fleet_cut(uint16_t a, uint16_t b)
{
    fleet.node[a].linked[b] = fleet.node[b].linked[a] = false;
    for (uint32_t i = 0; i < 2 && a != b; i++) {
        struct node *n = &fleet.node[i ? b : a];
        publish_down(n->publish, i ? a : b, fleet.now);
        home_reachable(n->home, i ? a : b, false);
    }
}

void fleet_learn(uint16_t member, uint32_t list)
{
    struct node *n = &fleet.node[member];
    n->list = list;
    n->listing = false;
    home_members(n->home, fleet.list[list]);
    assert_int_equal(publish_members(n->publish, member, fleet.list[list], fleet.now), 0);
    for (uint16_t i = 0; i < fleet.n; i++) {
        if (n->linked[i]) {
            fleet_connect(member, i);
        }
    }
}

void fleet_start(uint16_t member)
{
    struct node *n = &fleet.node[member];
    struct home_config home = {.life = n->life,
                               .max_entries = fleet.small ? SMALL : 4 * KEYS,
                               .max_bytes = 1 << 20,
                               .tombstone_ns = INT64_MAX / 4,
                               .seed = draw()};
    struct publish_config publish = {.life = n->life,
                                     .queue_entries = PUBLISH_QUEUE_MIN,
                                     .window = 1 + draw_below(4),
                                     .resend_ns = RESEND,
                                     .full_ns = RESEND * 20,
                                     .settled = n->settled};
    assert_int_equal(home_create(&n->home, &home), 0);
    assert_int_equal(publish_create(&n->publish, &publish), 0);
    memset(n->linked, 0, sizeof n->linked);
    fleet_learn(member, n->list);
    fleet_connect(member, member);
}

void fleet_stop(uint16_t member)
{
    struct node *n = &fleet.node[member];
    struct publish_stat s;
    struct home_stat h;
    publish_stat(n->publish, &s);
    home_stat(n->home, &h);
    fleet.overflows += s.overflows;
    fleet.full += h.refused;
    home_destroy(n->home);
    publish_destroy(n->publish);
}

void fleet_restart(uint16_t member, bool cold)
{
    struct node *n = &fleet.node[member];
    for (uint16_t i = 0; i < fleet.n; i++) {
        fleet_cut(member, i);
    }
    fleet_stop(member);
    n->life.incarnation++;
    for (uint32_t key = 0; key < KEYS; key++) {
        n->index[key].number = n->removed[key].number = 0;
        n->removed[key].heard = 0;
    }
    if (cold) {
        n->life = (struct home_life){.region = ++fleet.regions, .incarnation = 1};
        n->counter = 0;
        n->settled = 0;
        memset(n->index, 0, sizeof n->index);
        memset(n->removed, 0, sizeof n->removed);
    }
    fleet_start(member);
    fleet.restarts++;
}
