/* lease.c: see lease.h. */
#include "replication/lease.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

struct owner {
    struct list leases;    /* GOOD and ENDING, and DEAD ones with users */
    struct list releasing; /* RELEASE, by `by_use` */
    uint32_t n_releasing;
};

struct leases {
    struct leases_config config;
    struct pull_table by_key; /* GOOD only */
    struct pull_table by_id;  /* GOOD and ENDING */
    struct list idle;         /* GOOD without users, least recently used first */
    uint64_t idle_bytes;
    struct leases_usage usage;
    struct owner owner[LEASE_MEMBERS_MAX];
};

int leases_create(struct leases **out, const struct leases_config *config)
{
    if (config->max_leases == 0 || config->idle_ns < 0) {
        return -EINVAL;
    }
    struct leases *ls = calloc(1, sizeof *ls);
    if (!ls || pull_table_create(&ls->by_key, config->max_leases) < 0 ||
        pull_table_create(&ls->by_id, config->max_leases) < 0) {
        leases_destroy(ls);
        return -ENOMEM;
    }
    ls->config = *config;
    list_init(&ls->idle);
    for (uint32_t i = 0; i < LEASE_MEMBERS_MAX; i++) {
        list_init(&ls->owner[i].leases);
        list_init(&ls->owner[i].releasing);
    }
    *out = ls;
    return 0;
}

static void lease_free(struct reader_lease *l)
{
    free((void *)(uintptr_t)l->terms.sums);
    free(l);
}

void leases_destroy(struct leases *ls)
{
    if (!ls) {
        return;
    }
    for (uint32_t i = 0; ls->by_id.chain && i < LEASE_MEMBERS_MAX; i++) {
        struct owner *o = &ls->owner[i];
        while (o->leases.next && !list_empty(&o->leases)) {
            struct reader_lease *l = CONTAINER(o->leases.next, struct reader_lease, by_member);
            list_remove(&l->by_member);
            lease_free(l);
        }
        while (o->releasing.next && !list_empty(&o->releasing)) {
            struct reader_lease *l = CONTAINER(o->releasing.next, struct reader_lease, by_use);
            list_remove(&l->by_use);
            lease_free(l);
        }
    }
    pull_table_destroy(&ls->by_key);
    pull_table_destroy(&ls->by_id);
    free(ls);
}

bool lease_terms_good(const struct lease_terms *t)
{
    if (t->ttl_ns <= 0 || t->ttl_ns > LEASE_TTL_MAX_NS || t->size > OBJECT_MAX || t->offset > UINT64_MAX - t->size) {
        return false;
    }
    if (t->segment_log2 > 30 || t->n_sums > LEASE_SEGMENTS_MAX || (t->n_sums && (!t->sums || !t->segment_log2))) {
        return false;
    }
    uint64_t segment = UINT64_C(1) << t->segment_log2;
    if (t->n_sums != (t->segment_log2 ? (t->size + segment - 1) / segment : 0)) {
        return false;
    }
    return t->n_sums == 0 || XXH3_64bits(t->sums, t->n_sums * sizeof *t->sums) == t->checksum;
}

static uint64_t key_hash(const struct leases *ls, struct key_ref key)
{
    return XXH3_64bits_withSeed(key.data, key.size, ls->config.hash_seed + key.ns);
}

static uint64_t id_hash(uint16_t member, uint64_t id)
{
    return pull_table_mix(id * 1024 + member);
}

static struct reader_lease *by_id(struct leases *ls, uint16_t member, uint64_t id)
{
    for (struct pull_link *k = pull_table_first(&ls->by_id, id_hash(member, id)); k; k = pull_table_next(k)) {
        struct reader_lease *l = CONTAINER(k, struct reader_lease, by_id);
        if (l->member == member && l->terms.lease == id) {
            return l;
        }
    }
    return NULL;
}

static bool is_key(const struct reader_lease *l, struct key_ref key)
{
    return l->key_size == key.size && l->ns == key.ns && memcmp(l->key, key.data, key.size) == 0;
}

static void unidle(struct leases *ls, struct reader_lease *l)
{
    if (l->state == LEASE_GOOD && list_in(&l->by_use)) {
        list_remove(&l->by_use);
        ls->idle_bytes -= l->terms.size;
    }
}

/* Takes a lease out of what may be found. */
static void hide(struct leases *ls, struct reader_lease *l)
{
    unidle(ls, l);
    if (l->state == LEASE_GOOD) {
        pull_table_remove(&ls->by_key, &l->by_key);
    }
}

static void gone(struct leases *ls, struct reader_lease *l)
{
    ls->usage.good--;
    ls->usage.bytes -= l->terms.size;
    ls->usage.ended++;
}

/* To the list of those that the owner is to be told of. It has no user. */
static void to_release(struct leases *ls, struct reader_lease *l)
{
    struct owner *o = &ls->owner[l->member];
    hide(ls, l);
    pull_table_remove(&ls->by_id, &l->by_id);
    list_remove(&l->by_member);
    gone(ls, l);
    l->state = LEASE_RELEASE;
    list_push(&o->releasing, &l->by_use);
    o->n_releasing++;
    ls->usage.releasing++;
}

/* Rule 23: from here nothing that it brings counts. */
static void kill_lease(struct leases *ls, struct reader_lease *l)
{
    hide(ls, l);
    pull_table_remove(&ls->by_id, &l->by_id);
    gone(ls, l);
    ls->usage.lost++;
    l->state = LEASE_DEAD;
    if (l->users == 0) {
        list_remove(&l->by_member);
        lease_free(l);
    }
}

static void bound(struct leases *ls)
{
    while (!list_empty(&ls->idle) &&
           (ls->usage.good > ls->config.max_leases || ls->idle_bytes > ls->config.max_bytes)) {
        to_release(ls, CONTAINER(ls->idle.next, struct reader_lease, by_use));
    }
}

static void to_idle(struct leases *ls, struct reader_lease *l, int64_t mono)
{
    l->idle_since = mono;
    list_push(&ls->idle, &l->by_use);
    ls->idle_bytes += l->terms.size;
}

static struct reader_lease *lease_new(struct key_ref key, const struct lease_terms *terms)
{
    struct reader_lease *l = calloc(1, sizeof *l + key.size);
    if (!l) {
        return NULL;
    }
    l->terms = *terms;
    l->terms.sums = NULL;
    if (terms->n_sums) {
        uint64_t *sums = malloc(terms->n_sums * sizeof *sums);
        if (!sums) {
            free(l);
            return NULL;
        }
        memcpy(sums, terms->sums, terms->n_sums * sizeof *sums);
        l->terms.sums = sums;
    }
    l->key_size = key.size;
    l->ns = key.ns;
    memcpy(l->key, key.data, key.size);
    return l;
}

/* The owner gave an id a second time. */
static struct reader_lease *again(struct reader_lease *l, uint64_t incarnation, struct key_ref key,
                                  const struct lease_terms *terms, int64_t start)
{
    if (l->incarnation != incarnation || !is_key(l, key) || l->state != LEASE_GOOD || l->terms.slot != terms->slot ||
        l->terms.generation != terms->generation || l->terms.offset != terms->offset || l->terms.size != terms->size) {
        return NULL;
    }
    lease_renewed(l, start, terms->ttl_ns);
    return l;
}

struct reader_lease *leases_add(struct leases *ls, uint16_t member, uint64_t incarnation, struct key_ref key,
                                const struct lease_terms *terms, int64_t start, int64_t mono)
{
    if (member >= LEASE_MEMBERS_MAX || key.size == 0 || key.size > KEY_MAX || !lease_terms_good(terms)) {
        return NULL;
    }
    struct reader_lease *l = by_id(ls, member, terms->lease);
    if (l) {
        return again(l, incarnation, key, terms, start);
    }
    if (!(l = lease_new(key, terms))) {
        return NULL;
    }
    l->member = member;
    l->incarnation = incarnation;
    l->granted = start;
    l->deadline = start + terms->ttl_ns;
    pull_table_add(&ls->by_key, &l->by_key, key_hash(ls, key));
    pull_table_add(&ls->by_id, &l->by_id, id_hash(member, terms->lease));
    list_push(&ls->owner[member].leases, &l->by_member);
    ls->usage.good++;
    ls->usage.granted++;
    ls->usage.bytes += terms->size;
    to_idle(ls, l, mono);
    return l;
}

struct reader_lease *leases_find(struct leases *ls, struct key_ref key, int64_t check, int64_t need,
                                 const uint64_t *skip)
{
    struct reader_lease *best = NULL;
    for (struct pull_link *k = pull_table_first(&ls->by_key, key_hash(ls, key)); k; k = pull_table_next(k)) {
        struct reader_lease *l = CONTAINER(k, struct reader_lease, by_key);
        bool skipped = skip && (skip[l->member / 64] >> l->member % 64 & 1);
        if (!skipped && is_key(l, key) && lease_may_post(l, check, need) && (!best || l->deadline > best->deadline)) {
            best = l;
        }
    }
    return best;
}

void lease_take(struct leases *ls, struct reader_lease *l)
{
    unidle(ls, l);
    ls->usage.used += l->users++ == 0;
}

void lease_leave(struct leases *ls, struct reader_lease *l, bool used, int64_t mono)
{
    l->uses += used;
    if (--l->users > 0) {
        return;
    }
    ls->usage.used--;
    if (l->state == LEASE_DEAD) {
        list_remove(&l->by_member);
        lease_free(l);
    } else if (l->state == LEASE_ENDING) {
        to_release(ls, l);
    } else {
        to_idle(ls, l, mono);
        bound(ls);
    }
}

void lease_end(struct leases *ls, struct reader_lease *l)
{
    if (l->state == LEASE_GOOD) {
        hide(ls, l);
        l->state = LEASE_ENDING;
    }
}

void lease_renewed(struct reader_lease *l, int64_t start, int64_t ttl_ns)
{
    if (ttl_ns > 0 && ttl_ns <= LEASE_TTL_MAX_NS && start + ttl_ns > l->deadline) {
        l->deadline = start + ttl_ns;
    }
}

static void forget(struct leases *ls, uint16_t member, bool all, uint64_t keep)
{
    struct owner *o = &ls->owner[member];
    for (struct list *n = o->leases.next, *next; n != &o->leases; n = next) {
        next = n->next;
        struct reader_lease *l = CONTAINER(n, struct reader_lease, by_member);
        if (l->state != LEASE_DEAD && (all || l->incarnation != keep)) {
            kill_lease(ls, l);
        }
    }
    for (struct list *n = o->releasing.next, *next; n != &o->releasing; n = next) {
        next = n->next;
        struct reader_lease *l = CONTAINER(n, struct reader_lease, by_use);
        if (all || l->incarnation != keep) {
            list_remove(n);
            o->n_releasing--;
            ls->usage.releasing--;
            lease_free(l);
        }
    }
}

void leases_lost(struct leases *ls, uint16_t member)
{
    if (member < LEASE_MEMBERS_MAX && !ls->config.forget_nothing) {
        forget(ls, member, true, 0);
    }
}

void leases_incarnation(struct leases *ls, uint16_t member, uint64_t incarnation)
{
    if (member < LEASE_MEMBERS_MAX && !ls->config.forget_nothing) {
        forget(ls, member, false, incarnation);
    }
}

static void end_now(struct leases *ls, struct reader_lease *l)
{
    if (l->users == 0) {
        to_release(ls, l);
    } else {
        lease_end(ls, l);
    }
}

void leases_recall(struct leases *ls, uint16_t member, uint64_t id)
{
    struct reader_lease *l = member < LEASE_MEMBERS_MAX ? by_id(ls, member, id) : NULL;
    if (l) {
        end_now(ls, l);
    }
}

void leases_outdated(struct leases *ls, struct key_ref key, struct object_version version)
{
    struct pull_link *next;
    for (struct pull_link *k = pull_table_first(&ls->by_key, key_hash(ls, key)); k; k = next) {
        struct reader_lease *l = CONTAINER(k, struct reader_lease, by_key);
        next = pull_table_next(k);
        if (is_key(l, key) && version_compare(l->terms.version, version) <= 0) {
            end_now(ls, l);
        }
    }
}

void leases_tick(struct leases *ls, int64_t mono)
{
    while (!list_empty(&ls->idle)) {
        struct reader_lease *l = CONTAINER(ls->idle.next, struct reader_lease, by_use);
        if (mono - l->idle_since < ls->config.idle_ns) {
            break;
        }
        to_release(ls, l);
    }
    bound(ls);
}

void leases_end_all(struct leases *ls, int64_t mono)
{
    (void)mono;
    while (!list_empty(&ls->idle)) {
        to_release(ls, CONTAINER(ls->idle.next, struct reader_lease, by_use));
    }
    for (uint32_t i = 0; i < LEASE_MEMBERS_MAX; i++) {
        struct list *head = &ls->owner[i].leases;
        for (struct list *n = head->next; n != head; n = n->next) {
            lease_end(ls, CONTAINER(n, struct reader_lease, by_member));
        }
    }
}

int64_t leases_timer(const struct leases *ls)
{
    if (list_empty(&ls->idle)) {
        return INT64_MAX;
    }
    return CONTAINER(ls->idle.next, struct reader_lease, by_use)->idle_since + ls->config.idle_ns;
}

bool leases_release(struct leases *ls, uint16_t member, struct lease_release *out)
{
    struct owner *o = &ls->owner[member];
    if (list_empty(&o->releasing)) {
        return false;
    }
    struct reader_lease *l = CONTAINER(o->releasing.next, struct reader_lease, by_use);
    *out = (struct lease_release){.lease = l->terms.lease, .uses = l->uses};
    list_remove(&l->by_use);
    o->n_releasing--;
    ls->usage.releasing--;
    lease_free(l);
    return true;
}

uint32_t leases_releasing(const struct leases *ls, uint16_t member)
{
    return ls->owner[member].n_releasing;
}

void leases_usage(const struct leases *ls, struct leases_usage *out)
{
    *out = ls->usage;
}
