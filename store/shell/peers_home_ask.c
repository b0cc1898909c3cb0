/* peers_home_ask.c: questions to the home's table, from other nodes and from this node's puller. */
#include "store/shell/peers_home_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An answer that waits for leases of what this node has itself. */
struct granting {
    struct home_part *part;
    uint32_t serial; /* of the link that asked */
    uint64_t id;     /* of its request */
    uint32_t n;      /* keys */
    uint32_t n_grants;
    uint16_t key[WIRE_KEYS_MAX]; /* of each grant: which of the keys */
    struct home_answer answers[WIRE_KEYS_MAX];
};

/* ---- to other nodes ---- */

static void say_found(const struct home_answer *a, struct wire_answer *out)
{
    out->kind = WIRE_FOUND;
    out->flags = a->sure ? WIRE_SURE : 0;
    out->n = (uint8_t)(a->n < WIRE_OWNERS_MAX ? a->n : WIRE_OWNERS_MAX);
    for (uint32_t i = 0; i < out->n; i++) {
        const struct home_location *l = &a->at[i];
        out->at[i] = (struct wire_location){.member = l->member,
                                            .down = l->down,
                                            .version = {.counter = l->version.counter, .region = l->version.region},
                                            .size = l->size,
                                            .lineage = l->lineage};
    }
}

/* A reader with another list may have no member without a mark named to it: then anybody may know. */
static void say_learning(const struct home_part *h, const struct home_answer *a, struct wire_answer *out)
{
    uint32_t n = a->everyone ? 0 : home_missing(h->home, false, out->missing, WIRE_MISSING_MAX);
    out->kind = WIRE_LEARNING;
    out->n = (uint8_t)(n < WIRE_MISSING_MAX ? n : WIRE_MISSING_MAX);
    if (n == 0)
        out->flags = WIRE_EVERYONE;
    else if (n > WIRE_MISSING_MAX)
        out->flags = WIRE_MORE;
}

static void say(struct home_part *h, const struct home_answer *a, struct wire_answer *out)
{
    memset(out, 0, sizeof *out);
    if (a->kind == ANSWER_FOUND) {
        say_found(a, out);
    } else if (a->kind == ANSWER_ABSENT) {
        out->kind = WIRE_ABSENT;
        out->flags = WIRE_SURE;
    } else {
        say_learning(h, a, out);
    }
    if (a->removed.counter) {
        out->flags |= WIRE_TOMBSTONE;
        out->removed = (struct berth_version){.counter = a->removed.counter, .region = a->removed.region};
    }
}

static void count(struct home_sums *s, const struct home_answer *a, uint32_t n)
{
    s->asked += n;
    for (uint32_t i = 0; i < n; i++) {
        s->found += a[i].kind == ANSWER_FOUND;
        s->absent += a[i].kind == ANSWER_ABSENT;
        s->learning += a[i].kind == ANSWER_LEARNING;
    }
}

/* grants: of the keys at `key`, in order; n_grants may be 0. */
static void answer(struct home_part *h, struct link *to, uint64_t id, const struct home_answer *a, uint32_t n,
                   const struct lease_grant *grants, const uint16_t *key, uint32_t n_grants)
{
    struct peers *p = h->peers;
    struct wire_message m;
    struct wire_writer w;
    struct wire_item item;
    uint32_t g = 0;
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_ANSWER;
    m.head.id = id;
    int e = wire_begin(&w, p->buffer, sizeof p->buffer, &m);
    for (uint32_t i = 0; e == 0 && i < n; i++) {
        say(h, &a[i], &item.answer);
        if (g < n_grants && key[g] == i) {
            if (grants[g].status == 0) {
                item.answer.flags |= WIRE_LEASED_TOO;
                serve_part_lease_of(&grants[g], &item.answer.lease);
                h->sums.leased++;
            }
            g++;
        }
        e = wire_add(&w, &item);
    }
    long bytes = e < 0 ? e : wire_end(&w);
    int sent = bytes < 0 ? (int)bytes : link_answer(to, id, p->buffer, (size_t)bytes);
    if (sent < 0)
        link_refuse(to, WIRE_ASK, id, sent == -EMSGSIZE ? -EMSGSIZE : -EINVAL);
}

static void granted(void *arg, const struct lease_grant *grants, uint32_t n)
{
    struct granting *g = arg;
    struct link *to = link_serial(g->part->peers, g->serial);
    if (to)
        answer(g->part, to, g->id, g->answers, g->n, grants, g->key, n == g->n_grants ? n : 0);
    g->part->granting--;
    free(g);
}

static bool at_self(const struct home_answer *a, uint16_t self)
{
    for (uint32_t i = 0; a->kind == ANSWER_FOUND && i < a->n; i++) {
        if (a->at[i].member == self)
            return true;
    }
    return false;
}

/* true: the answer comes with the leases. */
static bool with_leases(struct home_part *h, struct link *from, const struct wire_message *m, uint32_t n)
{
    struct key_ref keys[WIRE_KEYS_MAX];
    struct granting *g = h->granting < HOME_GRANTS ? malloc(sizeof *g) : NULL;
    if (!g)
        return false;
    g->part = h;
    g->serial = from->serial;
    g->id = m->head.id;
    g->n = n;
    g->n_grants = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct home_key *k = &h->keys[i];
        if (!at_self(&h->answers[i], h->peers->self))
            continue;
        keys[g->n_grants] = (struct key_ref){.data = k->data, .size = k->size, .ns = (uint32_t)k->space};
        g->key[g->n_grants++] = (uint16_t)i;
    }
    memcpy(g->answers, h->answers, n * sizeof *g->answers);
    h->granting++;
    if (g->n_grants == 0 || serve_part_grant(h->peers, from, keys, g->n_grants, (int64_t)m->ask.ttl, granted, g) < 0) {
        h->granting--;
        free(g);
        return false;
    }
    return true;
}

void home_part_ask(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                   int64_t deadline)
{
    struct home_part *h = p->home;
    struct wire_item item;
    uint32_t n = 0;
    (void)deadline;
    while (n < WIRE_KEYS_MAX && wire_next(items, &item) == 1)
        h->keys[n++] = home_key_of(&item.key, 0);
    n = home_ask_many(h->home, h->keys, n, m->head.flags & WIRE_PREFIX, m->ask.revision, peers_mono(p), h->answers);
    count(&h->sums, h->answers, n);
    if (!(m->head.flags & WIRE_WANT) || !with_leases(h, from, m, n))
        answer(h, from, m->head.id, h->answers, n, NULL, NULL, 0);
}

/* ---- to this node's puller ---- */

static void tell(const struct home_part *h, const struct home_answer *a, const uint32_t missing[2],
                 struct pull_answer *out)
{
    *out = (struct pull_answer){.says = HOME_LEARNING};
    if (a->kind == ANSWER_FOUND) {
        out->says = HOME_FOUND;
        out->unsure = !a->sure;
        for (uint32_t i = 0; i < a->n && i < PULL_LOCATIONS_MAX; i++)
            out->location[out->n_locations++] = (struct pull_location){
                .member = a->at[i].member,
                .version = {.counter = a->at[i].version.counter, .region = a->at[i].version.region}};
    } else if (a->kind == ANSWER_ABSENT) {
        out->says = HOME_ABSENT;
    } else {
        out->missing = a->everyone ? h->everyone : h->missing;
        out->many = missing[a->everyone] > PULL_MISSING_MAX;
        out->n_missing = out->many ? PULL_MISSING_MAX : missing[a->everyone];
    }
}

int home_part_ask_self(struct peers *p, const struct pull_key *keys, uint32_t n, uint32_t flags,
                       struct pull_answer *out)
{
    struct home_part *h = p->home;
    if (!h || n > WIRE_KEYS_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        h->keys[i] = home_key_of(&keys[i].key, keys[i].route);
    uint32_t done = home_ask_many(h->home, h->keys, n, flags & ASK_PREFIX, p->revision, peers_mono(p), h->answers);
    uint32_t missing[2] = {home_missing(h->home, false, h->missing, PULL_MISSING_MAX),
                           home_missing(h->home, true, h->everyone, PULL_MISSING_MAX)};
    for (uint32_t i = 0; i < done; i++)
        tell(h, &h->answers[i], missing, &out[i]);
    for (uint32_t i = done; i < n; i++)
        out[i] = (struct pull_answer){.says = HOME_SKIPPED};
    return 0;
}
