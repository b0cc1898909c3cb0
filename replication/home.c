/* home.c: members, marks, publications and questions of a home; see home.h. */
#include "replication/home_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int home_create(struct home **out, const struct home_config *config)
{
    if (config->max_entries < 1 || config->max_entries > UINT64_C(1) << 32 || config->tombstone_ns < 0) {
        return -EINVAL;
    }
    struct home *h = calloc(1, sizeof *h);
    if (!h) {
        return -ENOMEM;
    }
    h->config = *config;
    h->seats = calloc(MEMBERS_MAX, sizeof *h->seats);
    if (!h->seats || table_create(h)) {
        home_destroy(h);
        return -ENOMEM;
    }
    *out = h;
    return 0;
}

void home_destroy(struct home *h)
{
    if (h) {
        table_destroy(h);
        free(h->seats);
        free(h);
    }
}

/* ---- members ---- */

static struct seat *seat_at(const struct home *h, uint16_t member)
{
    return member < h->n_members ? &h->seats[h->seat_of[member]] : NULL;
}

/* Marks change seldom, questions are many: the count is kept. */
static void count_missing(struct home *h)
{
    h->stat.missing = 0;
    for (uint32_t i = 0; i < h->n_members; i++) {
        h->stat.missing += !seat_marked(h, seat_at(h, (uint16_t)i));
    }
}

/* Whatever the member published ends, and its mark with it. */
static void end_life(struct seat *s)
{
    s->life_from = ++s->now_life;
    s->mark = s->lost = false;
    s->stream = 0;
    s->next = 0;
}

/* The seat of an id: its own, else one that nobody has. There is one: those that are not in the list gave theirs back,
 * and a list has MEMBERS_MAX members at most. */
static struct seat *find_seat(struct home *h, uint64_t id)
{
    struct seat *spare = NULL;
    for (uint32_t i = 0; i < h->n_seats; i++) {
        if (h->seats[i].id == id) {
            return &h->seats[i];
        }
        spare = h->seats[i].id ? spare : &h->seats[i];
    }
    return spare ? spare : &h->seats[h->n_seats++];
}

static bool listed(const struct rendezvous *r, uint64_t id)
{
    for (uint32_t i = 0; i < rendezvous_count(r); i++) {
        if (rendezvous_member_id(r, (uint16_t)i) == id) {
            return true;
        }
    }
    return false;
}

void home_members(struct home *h, const struct rendezvous *r)
{
    for (uint32_t i = 0; i < h->n_seats; i++) {
        struct seat *s = &h->seats[i];
        s->member = MEMBER_NONE;
        if (s->id && !listed(r, s->id)) {
            end_life(s);
            s->known = s->up = false;
            s->id = 0;
        }
    }
    h->n_members = rendezvous_count(r);
    for (uint32_t i = 0; i < h->n_members; i++) {
        uint64_t id = rendezvous_member_id(r, (uint16_t)i);
        struct seat *s = find_seat(h, id);
        s->id = id;
        s->member = (uint16_t)i;
        h->seat_of[i] = (uint16_t)(s - h->seats);
    }
    h->revision = rendezvous_revision(r);
    count_missing(h);
}

int home_hello(struct home *h, uint16_t member, struct home_life life)
{
    struct seat *s = seat_at(h, member);
    if (!s) {
        return -EINVAL;
    }
    if (s->known && life_equal(s->life, life)) {
        return 0;
    }
    if (s->known && s->life.region == life.region && life.incarnation < s->life.incarnation) {
        return -ESTALE;
    }
    end_life(s);
    s->life = life;
    s->known = true;
    count_missing(h);
    return 1;
}

void home_reachable(struct home *h, uint16_t member, bool up)
{
    struct seat *s = seat_at(h, member);
    if (s) {
        s->up = up;
    }
}

/* ---- publications ---- */

/* The newest of what stands: floor or a location that holds. */
static struct object_version newest(const struct home *h, const struct entry *e)
{
    struct object_version v = e->floor;
    for (uint32_t i = 0; i < e->n; i++) {
        if (location_holds(h, &e->at[i]) && version_less(v, e->at[i].version)) {
            v = e->at[i].version;
        }
    }
    return v;
}

/* What stands above a publication, counter 0: nothing. A judgement only: repeated batches are answered by it. */
static struct object_version above(const struct home *h, const struct entry *e, const struct publication_entry *p)
{
    struct object_version none = {0}, v;
    if (!e || p->kind == PUBLICATION_GONE) {
        return none;
    }
    if (p->kind == PUBLICATION_TOMBSTONE) {
        v = newest(h, e);
        return version_less(p->version, v) ? v : none;
    }
    v = e->floor;
    return version_less(p->version, v) || (e->removed && version_equal(p->version, v)) ? v : none;
}

static void drop_below(struct home *h, struct entry *e, struct object_version v, bool itself, int64_t now)
{
    for (uint32_t i = e->n; i-- > 0;) {
        if (version_less(e->at[i].version, v) || (itself && version_equal(e->at[i].version, v))) {
            table_drop(h, e, i, now);
        }
    }
}

static void raise_floor(struct home *h, struct entry *e, struct object_version v, bool removed, int64_t now)
{
    e->floor = v;
    e->removed = removed;
    e->until = now + h->config.tombstone_ns;
    drop_below(h, e, v, removed, now);
}

/* This seat's place in the entry, or that of one that has ended, or a new one; e->n: there is none. */
static uint32_t place_in(struct home *h, struct entry **entry, uint16_t seat)
{
    struct entry *e = *entry;
    uint32_t ended = e->n;
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->at[i].seat == seat) {
            return i;
        }
        ended = location_holds(h, &e->at[i]) ? ended : i;
    }
    if (ended < e->n) {
        return ended;
    }
    e = table_grow(h, e);
    if (!e) {
        return ended;
    }
    *entry = e;
    h->stat.locations++;
    return e->n++;
}

static void put_location(struct home *h, struct entry *e, uint16_t seat, const struct publication_entry *p)
{
    uint32_t i = place_in(h, &e, seat);
    if (i == e->n) {
        h->stat.unlisted++;
        e->more_at = h->clock;
        return;
    }
    e->at[i] = (struct location){
        .version = p->version, .size = p->size, .lineage = p->lineage, .life = h->seats[seat].now_life, .seat = seat};
}

static void drop_gone(struct home *h, struct entry *e, uint16_t seat, struct object_version v, int64_t now)
{
    for (uint32_t i = e->n; i-- > 0;) {
        if (e->at[i].seat == seat && !version_less(v, e->at[i].version)) {
            table_drop(h, e, i, now);
        }
    }
    table_tidy(h, e, now);
}

static struct publication_result judge(const struct home *h, const struct entry *e, const struct publication_entry *p)
{
    struct object_version v = above(h, e, p);
    return (struct publication_result){.verdict = v.counter ? VERDICT_SUPERSEDED : VERDICT_OK, .counter = v.counter};
}

/* A batch that comes again: was there room for this when it came first? */
static struct publication_result judge_again(const struct home *h, uint16_t seat, const struct publication_entry *p)
{
    const struct entry *e = table_find(h, &p->key);
    if (!e && p->kind != PUBLICATION_GONE && h->seats[seat].lost) {
        return (struct publication_result){.verdict = VERDICT_FULL};
    }
    return judge(h, e, p);
}

static struct publication_result apply(struct home *h, uint16_t seat, const struct publication_entry *p, int64_t now)
{
    struct entry *e = table_find(h, &p->key);
    struct publication_result result = judge(h, e, p);
    if (result.verdict == VERDICT_SUPERSEDED) {
        h->stat.superseded++;
        if (p->kind == PUBLICATION_TOMBSTONE && version_less(e->floor, p->version)) {
            /* Only a newer location stands above: what is older is removed all the same, whatever came first. */
            raise_floor(h, e, p->version, true, now);
        }
        return result;
    }
    if (p->kind == PUBLICATION_GONE) {
        if (e) {
            drop_gone(h, e, seat, p->version, now);
        }
        return result;
    }
    e = e ? e : table_insert(h, &p->key, now);
    if (!e) {
        h->stat.refused++;
        h->seats[seat].lost = true;
        return (struct publication_result){.verdict = VERDICT_FULL};
    }
    if (p->kind == PUBLICATION_TOMBSTONE || (p->replaceable && version_less(e->floor, p->version))) {
        raise_floor(h, e, p->version, p->kind == PUBLICATION_TOMBSTONE, now);
    }
    if (p->kind == PUBLICATION_OBJECT) {
        put_location(h, e, seat, p);
    }
    return result;
}

static bool batch_good(const struct publication *p)
{
    uint64_t keys = 0;
    if (p->stream == 0 || p->n > PUBLICATION_ENTRIES) {
        return false;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (!publication_entry_good(&p->entries[i])) {
            return false;
        }
        keys += p->entries[i].key.size;
    }
    return keys <= PUBLICATION_KEYS;
}

/* Its stream begins: locations of the earlier ones stand until its COMPLETE, the mark does not. */
static void start_stream(struct home *h, struct seat *s, uint64_t stream)
{
    s->stream = stream;
    s->next = 0;
    s->now_life++;
    s->started = ++h->clock;
    s->mark = s->lost = false;
    count_missing(h);
}

/* 0: the next batch; 1: one that was applied before; else why it does not count. */
static int batch_turn(struct home *h, struct seat *s, const struct publication *p)
{
    if (!s->known || !life_equal(s->life, p->from) || !life_equal(h->config.life, p->to)) {
        return -ESTALE;
    }
    if (p->stream < s->stream) {
        return -EALREADY;
    }
    if (p->stream > s->stream) {
        if (p->batch != 0) {
            return -EAGAIN;
        }
        start_stream(h, s, p->stream);
    }
    return p->batch < s->next ? 1 : p->batch == s->next ? 0 : -EAGAIN;
}

static void set_mark(struct home *h, struct seat *s, const struct publication *p)
{
    bool before = s->mark;
    if (p->complete) {
        s->life_from = s->now_life;
        s->mark_revision = p->revision;
        s->mark = true;
    }
    s->mark = s->mark && !s->lost;
    if (p->complete || s->mark != before) {
        count_missing(h);
    }
}

int home_publish(struct home *h, const struct publication *p, int64_t now, struct publication_answer *answer,
                 struct publication_result *results)
{
    struct seat *s = seat_at(h, p->member);
    if (!s || !batch_good(p)) {
        return -EINVAL;
    }
    int turn = batch_turn(h, s, p);
    if (turn < 0) {
        return turn;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const struct publication_entry *e = &p->entries[i];
        results[i] = turn ? judge_again(h, h->seat_of[p->member], e) : apply(h, h->seat_of[p->member], e, now);
    }
    if (turn) {
        h->stat.repeated++;
    } else {
        s->next++;
        set_mark(h, s, p);
    }
    *answer = (struct publication_answer){.stream = p->stream,
                                          .batch = p->batch,
                                          .complete = p->complete && s->mark && s->mark_revision == p->revision,
                                          .n = p->n,
                                          .results = results};
    return 0;
}
