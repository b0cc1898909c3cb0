/* home_ask.c: questions to a home, its state and its check; see home.h. */
#include "replication/home_private.h"

#include <stddef.h>

#define SWEEP_TICK 4096u /* buckets a tick */

/* Those that can be reached first, then by version. */
static bool before(const struct home_location *a, const struct home_location *b)
{
    return a->down != b->down ? b->down : version_less(b->version, a->version);
}

static void add_location(struct home_answer *answer, struct home_location own)
{
    uint32_t at = answer->n++;
    for (; at > 0 && before(&own, &answer->at[at - 1]); at--) {
        answer->at[at] = answer->at[at - 1];
    }
    answer->at[at] = own;
}

static void collect(const struct home *h, const struct entry *e, int64_t now, struct home_answer *answer)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const struct location *l = &e->at[i];
        const struct seat *s = &h->seats[l->seat];
        if (location_holds(h, l)) {
            add_location(answer, (struct home_location){.version = l->version,
                                                        .size = l->size,
                                                        .lineage = l->lineage,
                                                        .member = s->member,
                                                        .down = !s->up});
        }
    }
    if (e->removed && e->until > now) {
        answer->removed = e->floor;
    }
}

void home_ask(const struct home *h, const struct home_key *key, uint64_t revision, int64_t now,
              struct home_answer *answer)
{
    const struct entry *e = table_find(h, key);
    bool same = revision == h->revision && h->revision != 0, more = e && e->more_at;
    *answer = (struct home_answer){.sure = same && h->stat.missing == 0 && !more};
    if (e) {
        collect(h, e, now, answer);
    }
    if (answer->n) {
        answer->kind = ANSWER_FOUND;
        return;
    }
    answer->everyone = !same || more;
    answer->kind = answer->sure ? ANSWER_ABSENT : ANSWER_LEARNING;
}

uint32_t home_ask_many(const struct home *h, const struct home_key *keys, uint32_t n, bool prefix, uint64_t revision,
                       int64_t now, struct home_answer *answers)
{
    for (uint32_t i = 0; i < n; i++) {
        home_ask(h, &keys[i], revision, now, &answers[i]);
        if (prefix && answers[i].kind != ANSWER_FOUND) {
            return i + 1;
        }
    }
    return n;
}

uint32_t home_missing(const struct home *h, bool everyone, uint16_t *out, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_members; i++) {
        const struct seat *s = &h->seats[h->seat_of[i]];
        if (everyone || !seat_marked(h, s)) {
            if (n < max) {
                out[n] = (uint16_t)i;
            }
            n++;
        }
    }
    return n;
}

uint32_t home_present(const struct home *h, uint16_t self, uint32_t *publishing)
{
    uint32_t n = 0;
    *publishing = 0;
    for (uint32_t i = 0; i < h->n_members; i++) {
        const struct seat *s = &h->seats[h->seat_of[i]];
        if (i != self && s->up) {
            n++;
            *publishing += s->stream != 0;
        }
    }
    return n;
}

void home_tick(struct home *h, int64_t now)
{
    table_sweep(h, SWEEP_TICK, now);
}

uint64_t home_revision(const struct home *h)
{
    return h->revision;
}

void home_stat(const struct home *h, struct home_stat *out)
{
    *out = h->stat;
    out->room_entries = h->config.max_entries;
    out->room_bytes = h->config.max_bytes;
}

static const char *check_entry(const struct home *h, const struct entry *e)
{
    if (e->n > e->room || e->room > HOME_LOCATIONS) {
        return "an entry has more locations than room";
    }
    for (uint32_t i = 0; i < e->n; i++) {
        const struct location *l = &e->at[i];
        if (l->seat >= h->n_seats || l->life > h->seats[l->seat].now_life) {
            return "a location is of a life to come";
        }
        if (location_holds(h, l) && h->seats[l->seat].member >= h->n_members) {
            return "a location of a member that left the list holds";
        }
        if (version_less(l->version, e->floor) || (e->removed && version_equal(l->version, e->floor))) {
            return "a location lies below its key's floor";
        }
        for (uint32_t j = 0; j < i; j++) {
            if (e->at[j].seat == l->seat) {
                return "a member has two locations of one key";
            }
        }
    }
    return NULL;
}

const char *home_check(const struct home *h)
{
    uint64_t entries = 0, locations = 0, bytes = 0;
    for (uint64_t i = 0; i < h->n_buckets; i++) {
        for (const struct entry *e = h->bucket[i]; e; e = e->next) {
            const char *why = check_entry(h, e);
            if (why) {
                return why;
            }
            entries++;
            locations += e->n;
            bytes += sizeof *e + e->room * sizeof *e->at + e->key_size;
        }
    }
    if (entries != h->stat.entries || locations != h->stat.locations || bytes != h->stat.bytes) {
        return "counters and entries differ";
    }
    if (entries > h->config.max_entries || bytes > h->config.max_bytes) {
        return "the table is larger than allowed";
    }
    return home_missing(h, false, NULL, 0) == h->stat.missing ? NULL : "missing marks are miscounted";
}
