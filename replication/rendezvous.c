/* rendezvous.c: see rendezvous.h. */
#include "replication/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Part of the protocol, as is every constant here: members that differ in one would choose other homes. */
#define SEED UINT64_C(0x6265727468686f6d)
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

#define TABLE_BITS 10u
#define TABLE (1u << TABLE_BITS)
#define POINT 32u        /* bits behind the point of a logarithm */
#define INVERSE_BITS 44u /* 1 / weight is kept as 2^44 / weight */
#define COST_SHIFT 20u   /* a logarithm is below 2^39, an inverse at most 2^44: the cost is below 2^63 */

struct candidate {
    uint64_t salt[2]; /* hashes of the id */
    uint64_t inverse; /* 2^44 / weight */
    uint64_t least;   /* cost at least, per 2^-32 of 1 - u */
    uint64_t id;
    uint16_t member;
};

struct rendezvous {
    uint64_t revision;
    uint32_t n; /* of the list */
    uint32_t n_in;
    uint32_t k;
    uint64_t *ids;
    struct candidate *in;
    uint64_t log2[TABLE + 1]; /* log2(1 + i / TABLE) */
};

struct choice {
    uint64_t cost;
    uint64_t id;
    uint16_t member;
};

/* Binary digits of log2(x) by squaring: x in [1, 2) with 63 bits behind the point. */
static uint64_t log2_digits(uint64_t x)
{
    uint64_t digits = 0;
    for (uint32_t i = 0; i < POINT; i++) {
        unsigned __int128 square = (unsigned __int128)x * x >> 63;
        uint64_t digit = (uint64_t)(square >> 64);
        x = (uint64_t)(square >> digit);
        digits = digits << 1 | digit;
    }
    return digits;
}

static void make_table(uint64_t *table)
{
    for (uint32_t i = 0; i < TABLE; i++) {
        table[i] = log2_digits((uint64_t)(TABLE + i) << (63 - TABLE_BITS));
    }
    table[TABLE] = UINT64_C(1) << POINT;
}

/* -log2(u / 2^64), u not 0. */
static inline uint64_t minus_log2(const uint64_t *table, uint64_t u)
{
    uint32_t zeros = (uint32_t)__builtin_clzll(u);
    uint64_t m = u << zeros;
    uint32_t i = (uint32_t)(m >> (63 - TABLE_BITS)) & (TABLE - 1);
    uint64_t rest = (m >> (31 - TABLE_BITS)) & 0xffffffff;
    uint64_t part = table[i] + ((table[i + 1] - table[i]) * rest >> 32);
    return ((uint64_t)(zeros + 1) << POINT) - part;
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* u of a member for a place, not 0: one wide multiplication folded, over two words that are well mixed already. */
static inline uint64_t draw_of(const struct candidate *c, uint64_t place)
{
    unsigned __int128 product = (unsigned __int128)(place ^ c->salt[0]) * ((place << 32 | place >> 32) ^ c->salt[1]);
    return ((uint64_t)(product >> 64) ^ (uint64_t)product) | 1;
}

uint64_t rendezvous_id(const char *name, uint32_t size)
{
    uint64_t id = XXH3_64bits_withSeed(name, size, SEED);
    return id ? id : 1;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct rendezvous_member *)a)->id, y = ((const struct rendezvous_member *)b)->id;
    return (x > y) - (x < y);
}

static void put64(uint8_t *at, uint64_t v)
{
    for (uint32_t i = 0; i < 8; i++) {
        at[i] = (uint8_t)(v >> 8 * i);
    }
}

/* Of the list in the order of ids, as little-endian bytes; -EINVAL for a list that is none. */
static int fingerprint(struct rendezvous_member *sorted, uint32_t n, uint32_t k, uint64_t *out)
{
    qsort(sorted, n, sizeof *sorted, by_id);
    uint64_t hash = k;
    for (uint32_t i = 0; i < n; i++) {
        const struct rendezvous_member *m = &sorted[i];
        if (m->weight < 1 || m->weight > RENDEZVOUS_WEIGHT_MAX || m->state > MEMBER_LEAVING ||
            (i > 0 && m->id == sorted[i - 1].id)) {
            return -EINVAL;
        }
        uint8_t bytes[24];
        put64(bytes, hash);
        put64(bytes + 8, m->id);
        put64(bytes + 16, (uint64_t)m->weight << 8 | m->state);
        hash = XXH3_64bits_withSeed(bytes, sizeof bytes, SEED);
    }
    *out = hash ? hash : 1;
    return 0;
}

static void take_members(struct rendezvous *r, const struct rendezvous_member *members)
{
    for (uint32_t i = 0; i < r->n; i++) {
        r->ids[i] = members[i].id;
        if (members[i].state == MEMBER_IN) {
            /* -log2(u) >= (1 - u) log2(e), and log2(e) > 23 / 16. minus_log2 errs upwards only: a chord lies below the
             * curve, and digits are cut. */
            uint64_t inverse = (UINT64_C(1) << INVERSE_BITS) / members[i].weight;
            r->in[r->n_in++] = (struct candidate){.salt = {mix(members[i].id + GOLDEN), mix(members[i].id ^ SEED)},
                                                  .inverse = inverse,
                                                  .least = (inverse * 23 / 16) >> COST_SHIFT,
                                                  .id = members[i].id,
                                                  .member = (uint16_t)i};
        }
    }
}

int rendezvous_create(struct rendezvous **out, const struct rendezvous_member *members, uint32_t n, uint32_t k)
{
    if (n < 1 || n > MEMBERS_MAX || k < 1 || k > HOMES_MAX) {
        return -EINVAL;
    }
    int rc = -ENOMEM;
    struct rendezvous_member *sorted = malloc(n * sizeof *sorted);
    struct rendezvous *r = calloc(1, sizeof *r);
    if (!sorted || !r) {
        goto fail;
    }
    r->ids = calloc(n, sizeof *r->ids);
    r->in = calloc(n, sizeof *r->in);
    if (!r->ids || !r->in) {
        goto fail;
    }
    memcpy(sorted, members, n * sizeof *sorted);
    rc = fingerprint(sorted, n, k, &r->revision);
    if (rc) {
        goto fail;
    }
    r->n = n;
    r->k = k;
    make_table(r->log2);
    take_members(r, members);
    free(sorted);
    *out = r;
    return 0;
fail:
    free(sorted);
    rendezvous_destroy(r);
    return rc;
}

void rendezvous_destroy(struct rendezvous *r)
{
    if (r) {
        free(r->ids);
        free(r->in);
        free(r);
    }
}

uint64_t rendezvous_place(const struct home_key *key)
{
    if (key->route) {
        return mix(key->route ^ SEED);
    }
    return XXH3_64bits_withSeed(key->data, key->size, SEED + key->space * GOLDEN);
}

static inline bool cheaper(const struct choice *a, const struct choice *b)
{
    return a->cost != b->cost ? a->cost < b->cost : a->id < b->id;
}

static inline uint64_t cost_of(const struct rendezvous *r, const struct candidate *c, uint64_t u)
{
    return (uint64_t)((unsigned __int128)minus_log2(r->log2, u) * c->inverse >> COST_SHIFT);
}

static uint32_t insert(struct choice *best, uint32_t n, uint32_t k, struct choice own)
{
    if (n == k && !cheaper(&own, &best[n - 1])) {
        return n;
    }
    uint32_t at = n < k ? n++ : n - 1;
    for (; at > 0 && cheaper(&own, &best[at - 1]); at--) {
        best[at] = best[at - 1];
    }
    best[at] = own;
    return n;
}

static uint32_t choose(const struct rendezvous *r, uint64_t place, uint32_t i, struct choice *best, uint32_t n)
{
    const struct candidate *c = &r->in[i];
    uint64_t cost = cost_of(r, c, draw_of(c, place));
    return insert(best, n, r->k, (struct choice){.cost = cost, .id = c->id, .member = c->member});
}

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t greater(uint64_t a, uint64_t b)
{
    return a < b ? b : a;
}

/* The k + 1 smallest of what costs are at least, without a branch, with the candidate's number in the low bits. */
static inline __attribute__((always_inline)) void screen(const struct rendezvous *r, uint64_t place, uint32_t k,
                                                         uint64_t *least)
{
    uint64_t a = UINT64_MAX, b = a, c = a, d = a;
    for (uint32_t i = 0; i < r->n_in; i++) {
        const struct candidate *in = &r->in[i];
        uint64_t own = ((~draw_of(in, place) >> 32) * in->least & ~(uint64_t)(MEMBERS_MAX - 1)) | i;
        d = k > 2 ? smaller(d, greater(c, own)) : d;
        c = k > 1 ? smaller(c, greater(b, own)) : c;
        b = smaller(b, greater(a, own));
        a = smaller(a, own);
    }
    least[0] = a;
    least[1] = b;
    least[2] = c;
    least[3] = d;
}

/* Logarithms of k members suffice where the next one costs more than they do at the least; else all are taken. */
static uint32_t choose_all(const struct rendezvous *r, uint64_t place, struct choice *best)
{
    uint64_t least[HOMES_MAX + 1];
    switch (r->k) {
    case 1:
        screen(r, place, 1, least);
        break;
    case 2:
        screen(r, place, 2, least);
        break;
    default:
        screen(r, place, HOMES_MAX, least);
    }
    uint32_t n = 0, sure = r->n_in < r->k ? r->n_in : r->k;
    for (uint32_t i = 0; i < sure; i++) {
        n = choose(r, place, least[i] & (MEMBERS_MAX - 1), best, n);
    }
    if (n < r->n_in && least[r->k] <= best[n - 1].cost) {
        n = 0;
        for (uint32_t i = 0; i < r->n_in; i++) {
            n = choose(r, place, i, best, n);
        }
    }
    return n;
}

uint32_t rendezvous_homes(const struct rendezvous *r, uint64_t place, uint16_t *out)
{
    struct choice best[HOMES_MAX];
    uint32_t n = choose_all(r, place, best);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = best[i].member;
    }
    return n;
}

uint64_t rendezvous_revision(const struct rendezvous *r)
{
    return r->revision;
}

uint32_t rendezvous_count(const struct rendezvous *r)
{
    return r->n;
}

uint64_t rendezvous_member_id(const struct rendezvous *r, uint16_t member)
{
    return member < r->n ? r->ids[member] : 0;
}
