/* peers_serve_corrupt.c: a peer says that an object is damaged (PROTOCOLS rule 21): the owner looks for itself, and
 * takes it out of use only if it is so. Nobody's word costs an object, and a word costs at most one pass over it in
 * CLEARED_NS, a piece in each turn.
 */
#include "store/shell/peers_serve_internal.h"

#include "store/copy.h"
#include "store/shell/log.h"
#include "store/slot.h"

#include <string.h>
#include <xxhash.h>

static uint64_t key_hash(const void *key, uint32_t size, uint32_t ns)
{
    return XXH3_64bits_withSeed(key, size, ns);
}

static bool was_cleared(const struct serve_part *s, const struct suspect *x, int64_t now)
{
    uint64_t hash = key_hash(x->key, x->key_size, x->ns);
    for (uint32_t i = 0; i < CLEARED_MAX; i++) {
        const struct cleared *c = &s->cleared[i];
        if (c->until > now && c->hash == hash && c->counter == x->counter && c->region == x->region)
            return true;
    }
    return false;
}

static bool waits(const struct serve_part *s, const struct suspect *x)
{
    for (uint32_t i = 0; i < s->suspects; i++) {
        const struct suspect *y = &s->suspect[(s->suspects_at + i) % SUSPECTS_MAX];
        if (y->counter == x->counter && y->region == x->region && y->ns == x->ns && y->key_size == x->key_size &&
            memcmp(y->key, x->key, x->key_size) == 0)
            return true;
    }
    return false;
}

void serve_part_corrupt(struct peers *p, struct link *from, const struct wire_message *m, struct wire_reader *items,
                        int64_t deadline)
{
    struct serve_part *s = p->serve;
    struct suspect x = {.key_size = m->corrupt.key.size,
                        .ns = m->corrupt.key.ns,
                        .counter = m->corrupt.version.counter,
                        .region = m->corrupt.version.region,
                        .number = from->number};
    (void)items, (void)deadline;
    serve_sums_of(s, from->number)->reports++;
    memcpy(x.key, m->corrupt.key.data, x.key_size); /* 1 to KEY_MAX: wire_open has seen to it */
    if (s->suspects == SUSPECTS_MAX || waits(s, &x) || was_cleared(s, &x, peers_mono(p)))
        return;
    s->suspect[(s->suspects_at + s->suspects++) % SUSPECTS_MAX] = x;
    p->again = true;
}

/* ---- looking ---- */

static void next(struct serve_part *s)
{
    checksum_free(s->hash);
    checksum_free(s->list);
    s->hash = s->list = NULL;
    s->suspects_at = (s->suspects_at + 1) % SUSPECTS_MAX;
    s->suspects--;
}

static bool begin(struct serve_part *s, const struct suspect *x)
{
    const struct server *server = s->peers->server;
    struct key_ref key = {.data = x->key, .size = x->key_size, .ns = x->ns};
    uint32_t slot = node_find(server->node, key);
    if (slot == SLOT_NONE || server->region.headers[slot].version != x->counter)
        return false;
    s->slot = slot;
    s->word = slot_load(&server->region.headers[slot]);
    s->hashed = 0;
    if (word_state(s->word) != SLOT_READY)
        return false;
    s->hash = checksum_create();
    s->list = checksum_create();
    return s->hash && s->list;
}

static void say(const struct serve_part *s, const struct suspect *x, bool damaged)
{
    const struct peers *p = s->peers;
    char key[4 * KEY_MAX + 1];
    const char *who = x->number < p->n_members ? p->members[x->number].name : "a client";
    escape_bytes(key, sizeof key, x->key, x->key_size);
    if (damaged)
        log_event(LOG_ERROR, "'%s' is damaged, as '%s' says: its checksum is another; it is taken out of use", key,
                  who);
    else
        log_event(LOG_WARNING, "'%s' says that '%s' is damaged, but its checksum is right here", who, key);
}

static void judge(struct serve_part *s, const struct suspect *x, int64_t now)
{
    const struct slot_header *h = &s->peers->server->region.headers[s->slot];
    const struct checksum *whole = slot_segment(h) ? s->list : s->hash;
    bool damaged = checksum_sum(whole) != h->checksum || !node_sums_sound(s->peers->server->node, s->slot);
    say(s, x, damaged);
    if (!damaged) {
        s->cleared[s->cleared_at++ % CLEARED_MAX] = (struct cleared){.counter = x->counter,
                                                                     .region = x->region,
                                                                     .hash = key_hash(x->key, x->key_size, x->ns),
                                                                     .until = now + CLEARED_NS};
        return;
    }
    struct node_event ev = {.kind = EV_DROP_COPY,
                            .key = {.data = x->key, .size = x->key_size, .ns = x->ns},
                            .counter = x->counter,
                            .region = x->region};
    serve_sums_of(s, x->number)->found++;
    dispatch(s->peers->server, &ev);
}

/* A piece, of one segment at most. False: there is more. */
static bool hash_piece(struct serve_part *s, const struct slot_header *h)
{
    const uint8_t *data = (const uint8_t *)s->peers->server->region.pool.base + (uint64_t)h->page * PAGE_BYTES;
    uint64_t mask = slot_segment(h) ? (UINT64_C(1) << slot_segment(h)) - 1 : UINT64_MAX;
    uint64_t left = h->size - s->hashed, rest = mask - (s->hashed & mask); /* of the segment, but for one byte */
    uint64_t n = left < SUSPECT_PIECE ? left : SUSPECT_PIECE;
    n = n <= rest ? n : rest + 1;
    checksum_add(s->hash, data + s->hashed, n);
    s->hashed += n;
    if (slot_segment(h) && ((s->hashed & mask) == 0 || n == left)) {
        uint64_t sum = checksum_sum(s->hash);
        checksum_add(s->list, &sum, sizeof sum);
        checksum_begin(s->hash);
    }
    return n == left;
}

/* The slot is not kept meanwhile: where its word is another, what was hashed is nobody's any more. */
bool corrupt_turn(struct serve_part *s, int64_t now)
{
    const struct region *r = &s->peers->server->region;
    if (s->suspects == 0)
        return false;
    const struct suspect *x = &s->suspect[s->suspects_at];
    if (!s->hash && !begin(s, x)) {
        next(s);
        return s->suspects > 0;
    }
    const struct slot_header *h = &r->headers[s->slot];
    if (slot_load(h) == s->word) {
        if (!hash_piece(s, h))
            return true;
        judge(s, x, now);
    }
    next(s);
    return s->suspects > 0;
}

void corrupt_free(struct serve_part *s)
{
    checksum_free(s->hash);
    checksum_free(s->list);
}
