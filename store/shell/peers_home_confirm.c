/* peers_home_confirm.c: a node that was away for longer than removals are remembered (PROTOCOLS rule 29).
 *
 * The same holds for a node that ran on and for members that it did not see for so long, as after a partition or when
 * its host slept. There it is about keys all of whose homes were out of sight: a home that was there has told of every
 * removal, since who removes remembers it until all homes of the key have it. What a home that returned still lists of
 * this run of the node is confirmed by that: a removal would have taken it off. What was sealed after the last of a
 * key's homes had gone is not asked for. Until it is over those who returned are told of nothing. A home that begins
 * anew has confirmed no removal while it was gone, nor can it confirm anything now: it is published to.
 *
 * It begins held: nothing is listed to homes, and no lease is given. Each object that it had is asked for at a home of
 * its key, and is kept or dropped by the answer (publish_confirm). Where a home can't say yet, because other members
 * have not told it all they have, it is asked again; 60 s after the first other member was there, what is not
 * confirmed is dropped. Alone, a node stays held: nobody asks it anything. Then the publication is released.
 *
 * Where all members are there and all of them are held, the whole fleet was stopped: nobody ran on who could remember,
 * or have forgotten. No home would ever answer, and all would drop all they have. They are told by their silence,
 * since a node that is not held begins to publish at once, and all are released: none before SILENT_NS, so that each
 * has seen it for AGREE_NS before the first that speaks. What one of them removed before the stop it still has as a
 * removal, or had for all T.
 *
 * A round goes member by member, each time over all objects: those whose first home that can be reached is this member
 * are asked for, 256 in a message, one message at a time. A turn looks at CONFIRM_LOOKS objects. Memory: 160 KiB while
 * it lasts.
 */
#include "store/shell/peers_home_internal.h"

#include "store/shell/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONFIRM_LOOKS 4096u
#define CONFIRM_ROUND_NS INT64_C(200000000) /* between two rounds */
#define CONFIRM_LAST_NS INT64_C(60000000000)
#define AGREE_NS INT64_C(1000000000)
#define SILENT_NS INT64_C(6000000000)

struct confirm {
    struct home_part *part;
    bool running;      /* homes have returned to a node that ran on; else the node has begun */
    uint64_t newest;   /* counter: own versions above it were sealed in this run; not if `running` */
    uint16_t member;   /* who is asked */
    uint64_t cursor;   /* node_objects_next's */
    bool all;          /* its objects were all asked for; it is over when the answer is there */
    int64_t silent_at; /* CLOCK_MONOTONIC ns: all are there and silent since; 0: not so */
    bool agreed;       /* so for AGREE_NS: it stays so */
    bool asking;
    bool over;        /* who had returned has gone again: it goes when its question has ended */
    uint32_t open;    /* objects of this round that are not decided */
    int64_t round_at; /* CLOCK_MONOTONIC ns of the next round */
    int64_t last_at;  /* time is up then; INT64_MAX: no other member was there yet */
    uint64_t dropped; /* a copy that an effect is busy with counts each time */
    uint32_t n;       /* of the question */
    struct node_publication object[WIRE_KEYS_MAX];
    uint8_t key[WIRE_KEYS_MAX][KEY_MAX];
};

static struct confirm *begin(struct home_part *h)
{
    struct confirm *c = calloc(1, sizeof *c);
    if (c) {
        c->part = h;
        c->newest = node_seen(h->peers->server->node);
        c->last_at = INT64_MAX;
        h->confirm = c;
    }
    return c;
}

int home_confirm_begin(struct home_part *h, int64_t away_ns)
{
    if (!begin(h))
        return -ENOMEM;
    log_event(LOG_WARNING,
              "this node was away from the others for %lld s, longer than removals are remembered: its objects are "
              "offered again when the homes of their keys have confirmed them",
              (long long)(away_ns / 1000000000));
    return 0;
}

void home_confirm_end(struct home_part *h)
{
    free(h->confirm);
    h->confirm = NULL;
}

bool home_part_held(const struct peers *p)
{
    return p->home && p->home->confirm;
}

static bool is_up(const struct peers *p, uint16_t member)
{
    return member == p->self || p->members[member].link;
}

/* ---- members that return to a node that ran on ---- */

static bool out_of_sight(const struct home_part *h, uint16_t member)
{
    const struct home_target *t = &h->targets[member];
    int64_t away = peers_now(h->peers).boot - t->touched;
    return t->returned || (member != h->peers->self && t->touched && away > h->peers->server->settings.tombstone_ns);
}

bool home_confirm_returned(struct home_part *h, uint16_t member, struct home_life life)
{
    struct home_target *t = &h->targets[member];
    if (!life_equal(t->life, life) || (h->confirm && !h->confirm->running)) /* or everything is being asked for */
        t->touched = peers_now(h->peers).boot;
    t->life = life;
    if (!out_of_sight(h, member))
        return false;
    if (!h->confirm && !begin(h))
        return false; /* no memory for 160 KiB: nothing else goes on either */
    if (!h->confirm->running)
        log_event(LOG_WARNING,
                  "member '%s' was out of sight for longer than removals are remembered: what it is home to is offered "
                  "again when it has been confirmed",
                  h->peers->members[member].name);
    h->confirm->running = true;
    h->confirm->over = false;
    h->confirm->member = 0;
    h->confirm->cursor = 0;
    h->confirm->open = 0;
    h->confirm->all = false;
    t->returned = true;
    return true;
}

void home_confirm_gone(struct home_part *h, uint16_t member)
{
    bool any = false;
    if (!out_of_sight(h, member))
        h->targets[member].counter = node_seen(h->peers->server->node);
    h->targets[member].returned = false;
    for (uint32_t i = 0; i < h->peers->n_members; i++)
        any = any || h->targets[i].returned;
    if (h->confirm && h->confirm->running && !any)
        h->confirm->over = true;
}

/* Not of one that was not seen for long though it is there: this host has slept, and the connection is about to end. */
void home_confirm_touch(struct home_part *h)
{
    for (uint32_t i = 0; i < h->peers->n_members; i++) {
        if (h->peers->members[i].link && !out_of_sight(h, (uint16_t)i))
            h->targets[i].touched = peers_now(h->peers).boot;
    }
}

/* Whom to ask; MEMBER_NONE: nobody that could be asked is up. */
static uint16_t first_home(const struct confirm *c, const struct node_publication *o)
{
    const struct peers *p = c->part->peers;
    struct home_key k = home_key_of(&o->key, o->route);
    uint16_t homes[HOMES_MAX];
    uint32_t n = rendezvous_homes(p->homes, rendezvous_place(&k), homes);
    for (uint32_t i = 0; i < n; i++) {
        if (is_up(p, homes[i]) && (!c->running || c->part->targets[homes[i]].returned))
            return homes[i];
    }
    return MEMBER_NONE;
}

/* Whether nothing has to be asked about it. */
static bool is_sure(const struct confirm *c, const struct node_publication *o)
{
    const struct home_part *h = c->part;
    bool own = o->region == h->self.region;
    struct home_key k = home_key_of(&o->key, o->route);
    uint16_t homes[HOMES_MAX];
    if (!c->running)
        return own && o->counter > c->newest;
    uint32_t n = rendezvous_homes(h->peers->homes, rendezvous_place(&k), homes);
    for (uint32_t i = 0; i < n; i++) {
        if (!out_of_sight(h, homes[i]))
            return true;
        own = own && o->counter > h->targets[homes[i]].counter;
    }
    return own;
}

/* ---- answers ---- */

static void drop(struct confirm *c, const struct node_publication *o)
{
    struct node_event ev = {.kind = EV_DROP_COPY, .key = o->key, .counter = o->counter, .region = o->region};
    c->dropped++;
    dispatch(c->part->peers->server, &ev);
}

/* What was dropped is looked for once more: an effect may have been busy with it. */
static void decide(struct confirm *c, const struct node_publication *o, const struct home_answer *a, uint32_t missing,
                   bool last)
{
    struct object_version own = {.counter = o->counter, .region = o->region};
    uint16_t self = c->running ? MEMBER_NONE : c->part->peers->self;
    enum unlisted what = publish_confirm(a, own, o->replaceable, self, missing, last);
    c->open += what != UNLISTED_KEEP;
    if (what == UNLISTED_DROP)
        drop(c, o);
}

/* Members beside this one that may know more than the home. */
static uint32_t read_answer(const struct peers *p, const struct wire_answer *w, struct home_answer *a)
{
    uint32_t missing = 0;
    memset(a, 0, sizeof *a);
    if (w->flags & WIRE_TOMBSTONE)
        a->removed = (struct object_version){.counter = w->removed.counter, .region = w->removed.region};
    if (w->kind == WIRE_ABSENT) {
        a->kind = ANSWER_ABSENT;
        return 0;
    }
    if (w->kind == WIRE_FOUND) {
        a->kind = ANSWER_FOUND;
        for (; a->n < w->n && a->n < HOME_LOCATIONS; a->n++)
            a->at[a->n] = (struct home_location){
                .member = w->at[a->n].member,
                .version = {.counter = w->at[a->n].version.counter, .region = w->at[a->n].version.region}};
        return w->flags & WIRE_SURE ? 0 : 1; /* who it is, is not said */
    }
    a->kind = ANSWER_LEARNING;
    a->everyone = w->flags & WIRE_EVERYONE;
    for (uint32_t i = 0; i < w->n && i < WIRE_MISSING_MAX; i++)
        missing += w->missing[i] != p->self;
    return missing + (w->flags & WIRE_MORE ? 1 : 0);
}

static bool time_is_up(const struct confirm *c)
{
    return peers_mono(c->part->peers) >= c->last_at;
}

static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct confirm *c = arg;
    struct peers *p = c->part->peers;
    struct wire_item item;
    struct home_answer a;
    uint32_t i = 0;
    c->asking = false;
    for (; status == 0 && m && i < c->n && wire_next(items, &item) == 1; i++) {
        uint32_t missing = read_answer(p, &item.answer, &a);
        decide(c, &c->object[i], &a, missing, time_is_up(c));
    }
    c->open += c->n - i;
    c->n = 0;
    p->again = true;
}

/* ---- questions ---- */

static void ask_self(struct confirm *c, int64_t now)
{
    struct home_part *h = c->part;
    uint16_t missing[PULL_MISSING_MAX];
    uint32_t n = home_missing(h->home, false, missing, PULL_MISSING_MAX), others = n;
    for (uint32_t i = 0; i < n && i < PULL_MISSING_MAX; i++)
        others -= missing[i] == h->peers->self;
    for (uint32_t i = 0; i < c->n; i++) {
        struct home_key k = home_key_of(&c->object[i].key, c->object[i].route);
        struct home_answer a;
        home_ask(h->home, &k, h->peers->revision, now, &a);
        decide(c, &c->object[i], &a, others, time_is_up(c));
    }
    c->n = 0;
}

static void ask(struct confirm *c)
{
    struct peers *p = c->part->peers;
    struct wire_message m;
    struct wire_writer w;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_ASK;
    m.ask.revision = p->revision;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < c->n; i++) {
        struct wire_item item;
        memset(&item, 0, sizeof item);
        item.key = c->object[i].key;
        e = wire_add(&w, &item);
    }
    long bytes = e < 0 ? e : wire_end(&w);
    int64_t until = peers_mono(p) + HOME_RESEND_NS;
    c->asking = true;
    if (bytes < 0 || link_ask(p, c->member, p->buffer, (size_t)bytes, until, until, answered, c) < 0)
        answered(c, -ECONNRESET, NULL, NULL);
}

/* An object of before this run that has no home to ask. Counted once a round. */
static void alone(struct confirm *c, const struct node_publication *o)
{
    if (c->member != 0)
        return;
    c->open++;
    if (time_is_up(c))
        drop(c, o);
}

/* Objects for one question; true: there are no more for this member. */
static bool gather(struct confirm *c)
{
    struct peers *p = c->part->peers;
    for (uint32_t looks = 0; c->n < WIRE_KEYS_MAX && looks < CONFIRM_LOOKS; looks++) {
        struct node_publication *o = &c->object[c->n];
        if (!node_objects_next(p->server->node, &c->cursor, c->key[c->n], o) || o->kind != PUBLISH_SEALED)
            return true;
        bool sure = is_sure(c, o);
        uint16_t home = sure ? MEMBER_NONE : first_home(c, o);
        if (!sure && home == MEMBER_NONE)
            alone(c, o);
        c->n += home == c->member;
    }
    return false;
}

static void release(struct home_part *h, int64_t now)
{
    log_event(LOG_INFO, "the homes have confirmed what this node has: copies dropped: %llu",
              (unsigned long long)h->confirm->dropped);
    home_confirm_end(h);
    publish_release(h->publish, now);
    h->touch_at = 0; /* at once: should it end now, what it has put since was put in touch with the others */
    for (uint32_t i = 0; i < h->peers->n_members; i++) {
        struct home_target *t = &h->targets[i];
        if (t->returned) {
            t->touched = peers_now(h->peers).boot;
            publish_up(h->publish, (uint16_t)i, t->life, now);
        }
        t->returned = false;
    }
    h->peers->again = true;
}

/* True: the whole fleet was stopped, and every member knows. */
static bool all_held(struct confirm *c, int64_t now)
{
    uint32_t publishing, others = c->part->peers->n_members - 1;
    bool silent = home_present(c->part->home, c->part->peers->self, &publishing) == others && publishing == 0;
    if (c->running || others == 0 || (!silent && !c->agreed)) {
        c->silent_at = 0;
        return false;
    }
    c->silent_at = c->silent_at ? c->silent_at : now;
    c->agreed = c->agreed || now - c->silent_at >= AGREE_NS;
    return c->agreed && now - c->silent_at >= SILENT_NS;
}

/* One that has nothing to confirm waits too: it would break the silence of the others. */
static bool somebody_ran_on(const struct confirm *c)
{
    uint32_t publishing;
    home_present(c->part->home, c->part->peers->self, &publishing);
    return c->running || publishing > 0 || time_is_up(c);
}

static void next_member(struct confirm *c, int64_t now)
{
    c->cursor = 0;
    if (++c->member < c->part->peers->n_members)
        return;
    if (c->open == 0 && somebody_ran_on(c)) {
        release(c->part, now);
        return;
    }
    c->member = 0;
    c->open = 0;
    c->round_at = now + CONFIRM_ROUND_NS;
}

void home_confirm_turn(struct home_part *h, int64_t now)
{
    struct confirm *c = h->confirm;
    if (c && c->over && !c->asking) {
        home_confirm_end(h);
        return;
    }
    if (!c || c->asking || now < c->round_at)
        return;
    for (uint32_t i = 0; i < h->peers->n_members && c->last_at == INT64_MAX; i++) {
        if (h->peers->members[i].link)
            c->last_at = now + CONFIRM_LAST_NS;
    }
    if (c->last_at == INT64_MAX) {
        c->round_at = now + CONFIRM_ROUND_NS;
        return;
    }
    if (all_held(c, now)) {
        log_event(LOG_INFO, "all members were stopped for so long: what they have is offered again");
        release(h, now);
        return;
    }
    h->peers->again = true;
    if (c->all) {
        c->all = false;
        next_member(c, now);
        return;
    }
    c->all = gather(c);
    if (c->n && c->member == h->peers->self)
        ask_self(c, now);
    else if (c->n)
        ask(c);
}

int64_t home_confirm_timer(const struct home_part *h)
{
    return h->confirm && !h->confirm->asking ? h->confirm->round_at : INT64_MAX;
}
