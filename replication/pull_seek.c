/* pull_seek.c: the search for a lease on a key: homes, the owners that they name, the members that they wait for.
 *
 * One ABSENT says that the key is nowhere (rule 30); how many of them are asked for is the configuration's. LEARNING
 * names members that have not published all they have: only those that every home names can have the key without its
 * being known, and they are asked for a lease directly, once.
 */
#include "replication/pull_internal.h"

#include <errno.h>
#include <string.h>

static struct seek *seek_find(struct puller *p, const struct fetch *f)
{
    for (struct pull_link *l = pull_table_first(&p->seeks, f->key->hash); l; l = pull_table_next(l)) {
        struct seek *s = CONTAINER(l, struct seek, by_key);
        if (s->shared && key_same(s->key, f->key) && memcmp(s->skip, f->avoid, sizeof s->skip) == 0) {
            return s;
        }
    }
    return NULL;
}

/* This node's own table first: it costs no message. */
static void find_homes(struct puller *p, struct seek *s)
{
    struct pull_key k;
    uint16_t homes[PULL_HOMES_MAX];
    key_show(s->key, &k);
    uint32_t n = p->config.homes(p->config.env, &k, homes, PULL_HOMES_MAX);
    n = n < PULL_HOMES_MAX ? n : PULL_HOMES_MAX;
    for (int own = 1; own >= 0; own--) {
        for (uint32_t i = 0; i < n; i++) {
            if (homes[i] < p->config.n_members && (homes[i] == p->config.self) == own) {
                s->homes[s->n_homes++] = homes[i];
            }
        }
    }
}

static struct seek *seek_new(struct puller *p, struct fetch *f)
{
    struct seek *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->key = key_keep(f->key);
    s->fresh = f->fresh;
    s->shared = !f->fresh;
    s->here = f->here;
    s->least = floor_get(p, f->key);
    memcpy(s->skip, f->avoid, sizeof s->skip);
    memcpy(s->tried, f->avoid, sizeof s->tried);
    if (p->config.self != PULL_MEMBER_NONE) {
        bit_set(s->tried, p->config.self);
    }
    list_init(&s->fetches);
    find_homes(p, s);
    pull_table_add(&p->seeks, &s->by_key, f->key->hash);
    p->n_seeks++;
    return s;
}

static void seek_free(struct puller *p, struct seek *s)
{
    pull_table_remove(&p->seeks, &s->by_key);
    list_remove(&s->pending);
    if (s->rpc) {
        s->rpc->entry[s->rpc_entry].seek = NULL;
    }
    key_drop(s->key);
    free(s);
    p->n_seeks--;
}

static void parked(struct puller *p, struct fetch *f)
{
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        item_parked(p, CONTAINER(n, struct item, node));
    }
}

void seek_join(struct puller *p, struct fetch *f)
{
    struct seek *s = f->fresh ? NULL : seek_find(p, f);
    bool found = s;
    if (!s && !(s = seek_new(p, f))) {
        fetch_stop(p, f, AFTER_END, -ENOMEM);
        return;
    }
    if (!found && f->hold && !list_empty(&f->items)) {
        s->prefix = CONTAINER(f->items.next, struct item, node)->request->serial;
    }
    f->seek = s;
    f->late = found && (s->rpc || s->n_answered > 0);
    list_push(&s->fetches, &f->in_seek);
    if (s->rpc) {
        fetch_phase(p, f, s->rpc->kind == CMD_PULL_ASK ? PULL_HOME : PULL_ADMIT);
    }
    if (!found) {
        seek_step(p, s);
    } else if (!f->hold) {
        seek_go_on(p, s);
    } else if (s->held) {
        fetch_named(p, f);
    } else if (s->parked) {
        parked(p, f);
    }
}

void seek_leave(struct puller *p, struct fetch *f)
{
    struct seek *s = f->seek;
    if (!s) {
        return;
    }
    f->seek = NULL;
    list_remove(&f->in_seek);
    if (list_empty(&s->fetches)) {
        seek_free(p, s);
    }
}

/* An owner says more than a home, the first more than those that are asked because of it. */
static void not_asked(struct seek *s, uint16_t member, bool source)
{
    if (!s->unasked || (source && !s->source_lost)) {
        s->unasked = member + 1u;
    }
    s->source_lost = s->source_lost || source;
    s->home_lost = s->home_lost || !source;
}

/* Ends the search: every fetch that waited has the lease, or the status. */
static void conclude(struct puller *p, struct seek *s, struct reader_lease *l, int status)
{
    struct list fetches;
    bool lost = s->source_lost;
    uint32_t unasked = s->unasked;
    list_init(&fetches);
    while (!list_empty(&s->fetches)) {
        struct fetch *f = CONTAINER(s->fetches.next, struct fetch, in_seek);
        list_remove(&f->in_seek);
        f->seek = NULL;
        f->source_lost = f->source_lost || (lost && !l);
        /* Where it is, or that it is nowhere, was learned: who could not be asked matters no more. */
        f->record.unasked = l || status == -ENOENT ? 0 : unasked ? unasked : f->record.unasked;
        list_push(&fetches, &f->in_seek);
    }
    seek_free(p, s);
    if (l) {
        lease_take(p->leases, l); /* the first fetch may be through with it before the second has it */
    }
    while (!list_empty(&fetches)) {
        struct fetch *f = CONTAINER(fetches.next, struct fetch, in_seek);
        list_remove(&f->in_seek);
        if (f->state == FETCH_SEEK && l) {
            fetch_located(p, f, l);
        } else if (f->state == FETCH_SEEK && f->late && status == -ENOENT) {
            seek_join(p, f); /* it may have come to be since the homes were asked */
        } else if (f->state == FETCH_SEEK) {
            fetch_unlocated(p, f, status);
        }
    }
    if (l) {
        lease_leave(p->leases, l, false, p->mono);
    }
}

static bool all_held(const struct seek *s)
{
    for (struct list *n = s->fetches.next; n != &s->fetches; n = n->next) {
        if (!CONTAINER(n, struct fetch, in_seek)->hold) {
            return false;
        }
    }
    return true;
}

/* The next location to ask: the newest where versions matter. SEEK_LOCATIONS: none. */
static uint32_t best_location(struct puller *p, struct seek *s)
{
    uint32_t best = SEEK_LOCATIONS;
    for (uint32_t i = 0; i < s->n_locations; i++) {
        struct pull_location *l = &s->location[i];
        if (bit_get(s->tried, l->member)) {
            continue;
        }
        if (version_compare(l->version, s->least) < 0) {
            s->refused = true;
            continue;
        }
        if (!p->members[l->member].up) {
            not_asked(s, l->member, true);
            bit_set(s->tried, l->member);
            continue;
        }
        if (best == SEEK_LOCATIONS ||
            ((s->key->flags & PULL_REPLACEABLE) && version_compare(l->version, s->location[best].version) > 0)) {
            best = i;
        }
    }
    return best;
}

static void ask_source(struct puller *p, struct seek *s, uint16_t member)
{
    s->member = member;
    bit_set(s->tried, member);
    list_push(&p->grants, &s->pending);
}

static bool ask_location(struct puller *p, struct seek *s)
{
    uint32_t i = best_location(p, s);
    if (i == SEEK_LOCATIONS) {
        return false;
    }
    if (!all_held(s)) {
        ask_source(p, s, s->location[i].member);
        return true;
    }
    s->held = true;
    seek_phase(p, s, PULL_PAUSE);
    for (struct list *n = s->fetches.next; n != &s->fetches; n = n->next) {
        fetch_named(p, CONTAINER(n, struct fetch, in_seek));
    }
    return true;
}

static uint32_t homes_needed(const struct puller *p, const struct seek *s)
{
    uint32_t want = p->config.absent_homes;
    return want == 0 || want > s->n_homes ? s->n_homes : want;
}

static bool ask_home(struct puller *p, struct seek *s)
{
    while (s->home < s->n_homes && s->n_absent < homes_needed(p, s)) {
        uint16_t home = s->homes[s->home++];
        if (p->members[home].up) {
            s->member = home;
            list_push(&p->asks, &s->pending);
            return true;
        }
        not_asked(s, home, false);
    }
    return false;
}

static bool ask_missing(struct puller *p, struct seek *s)
{
    if (!s->narrowed || s->n_absent > 0 || s->source_lost) {
        return false;
    }
    for (uint16_t i = 0; i < p->config.n_members; i++) {
        if (bit_get(s->missing, i) && !bit_get(s->tried, i)) {
            if (!p->members[i].up) {
                not_asked(s, i, true); /* UNSURE at once */
                return false;
            }
            ask_source(p, s, i);
            return true;
        }
    }
    return false;
}

static int outcome(const struct puller *p, const struct seek *s)
{
    if (s->full) {
        return BERTH_EQUOTA; /* somebody has it, and will give it */
    }
    if (s->source_lost || (s->home_lost && s->n_answered < homes_needed(p, s)) || s->n_homes == 0) {
        return BERTH_EUNSURE;
    }
    if (s->busy) {
        return -EBUSY;
    }
    if (s->refused) {
        return BERTH_ENOTNOW;
    }
    if (s->n_absent == 0 && s->here.counter && version_compare(s->here, s->least) >= 0) {
        return BERTH_KEPT; /* nobody knows better, and this node may be one of those that the homes wait for */
    }
    /* Those that were named have it no more; that nobody else does only ABSENT says. */
    return s->unsure && s->n_absent == 0 ? BERTH_EUNSURE : -ENOENT;
}

void seek_step(struct puller *p, struct seek *s)
{
    if (s->rpc || list_in(&s->pending) || s->parked) {
        return;
    }
    if (!ask_location(p, s) && !ask_home(p, s) && !ask_missing(p, s)) {
        conclude(p, s, NULL, outcome(p, s));
    }
}

void seek_go_on(struct puller *p, struct seek *s)
{
    if (s->parked) {
        s->parked = false;
        s->home--; /* the same home again */
    }
    if (!all_held(s)) {
        s->prefix = 0;
    }
    s->held = false;
    seek_step(p, s);
}

/* The intersection of what the homes miss. */
static void narrow(struct puller *p, struct seek *s, const struct pull_answer *a)
{
    uint64_t missing[MEMBER_WORDS] = {0};
    for (uint32_t i = 0; i < a->n_missing; i++) {
        if (a->missing[i] < p->config.n_members) {
            bit_set(missing, a->missing[i]);
        }
    }
    for (uint32_t i = 0; i < MEMBER_WORDS; i++) {
        s->missing[i] = s->narrowed ? s->missing[i] & missing[i] : missing[i];
    }
    s->narrowed = true;
}

static void add_locations(struct puller *p, struct seek *s, const struct pull_answer *a)
{
    for (uint32_t i = 0; i < a->n_locations && s->n_locations < SEEK_LOCATIONS; i++) {
        const struct pull_location *l = &a->location[i];
        if (l->member >= p->config.n_members) {
            p->counter[PULL_BAD_ANSWERS]++;
            continue;
        }
        s->location[s->n_locations++] = *l;
        if (s->fresh && version_compare(l->version, s->least) > 0) {
            s->least = l->version; /* FRESH: no older one than the home knows */
        }
    }
}

static bool take_grant(struct puller *p, struct seek *s, struct reader_lease *l)
{
    if (!l) {
        return false;
    }
    if (version_compare(l->terms.version, s->least) < 0) {
        s->refused = true;
        return false;
    }
    conclude(p, s, l, 0);
    return true;
}

void seek_answer(struct puller *p, struct seek *s, uint16_t member, const struct pull_answer *a,
                 struct reader_lease *granted)
{
    s->rpc = NULL;
    if (a->says == HOME_SKIPPED) {
        s->parked = true;
        seek_phase(p, s, PULL_PAUSE);
        if (!all_held(s)) {
            seek_go_on(p, s);
            return;
        }
        for (struct list *n = s->fetches.next; n != &s->fetches; n = n->next) {
            parked(p, CONTAINER(n, struct fetch, in_seek));
        }
        return;
    }
    if (a->says == HOME_LEARNING && a->many) {
        s->home_lost = true;
        seek_step(p, s);
        return;
    }
    s->n_answered++;
    if (a->says == HOME_FOUND) {
        s->unsure = s->unsure || a->unsure;
        add_locations(p, s, a);
        if (s->fresh && s->here.counter && version_compare(s->here, s->least) >= 0) {
            conclude(p, s, NULL, BERTH_KEPT); /* this node may be the owner itself */
            return;
        }
        if (granted && !bit_get(s->tried, member) && take_grant(p, s, granted)) {
            return;
        }
    } else if (a->says == HOME_ABSENT) {
        s->n_absent++;
    } else {
        narrow(p, s, a);
    }
    seek_step(p, s);
}

void seek_granted(struct puller *p, struct seek *s, const struct pull_grant *g, struct reader_lease *granted)
{
    s->rpc = NULL;
    if (take_grant(p, s, granted)) {
        return;
    }
    if (g->status == -EBUSY) {
        s->busy = true;
    } else if (g->status == BERTH_EQUOTA) {
        s->full = true;
        source_fault(p, s->member, FAULT_REFUSED);
    } else if (g->status != -ENOENT) {
        s->refused = true;
        source_fault(p, s->member, FAULT_REFUSED);
    }
    p->counter[PULL_NEXT_SOURCE]++;
    seek_step(p, s);
}

void seek_lost(struct puller *p, struct seek *s, enum pull_command_kind kind)
{
    s->rpc = NULL;
    not_asked(s, s->member, kind != CMD_PULL_ASK);
    if (kind != CMD_PULL_ASK) {
        source_fault(p, s->member, FAULT_LOST);
        p->counter[PULL_NEXT_SOURCE]++;
    }
    seek_step(p, s);
}
