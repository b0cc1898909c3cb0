/* node_tomb.c: removals that the homes of their keys have to hear of (PROTOCOLS rule 29).
 *
 * A tombstone comes with its removal's commit. It stays until every home of its key has acknowledged it and for T
 * after that, since a home that starts again has to be told anew, and a member that was away may come back with a copy
 * until then. A greater removal of the same key takes its place. T begins anew with each start of this node: while it
 * was down nobody told a home that had forgotten (tests/model/removal.pml). That all homes have had it once is in the
 * index: such a removal is old, and takes no greater counter any more (rule 28).
 *
 * Order: those that wait for homes by their commits, the others by their end. Where there are too many the next to end
 * goes, else the oldest, and a warning says so. A row is not written while its key has an uncommitted effect,
 * which may be a newer removal in the same batch.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOMB_STUCK_NS INT64_C(10000000)
#define TOMB_STEP 256u       /* rows that one step writes or ends */
#define TOMB_ROW 64u         /* bytes of a row beside its key, about */
#define TOMB_INDEX_SHARE 32u /* of the index, 1 byte in so many */
#define CURSOR_TOMBS (UINT64_C(1) << 63)
#define CURSOR_SERIAL 51u /* bits; above them the chain */

/* ---- one ---- */

struct tomb *tomb_make(struct key_ref key, uint64_t hash, uint64_t counter)
{
    struct tomb *t = malloc(sizeof *t + key.size);
    if (t) {
        *t = (struct tomb){
            .hash = hash, .counter = counter, .ns = key.ns, .key_size = (uint16_t)key.size, .next = NULL, .prev = NULL};
        memcpy(t->key, key.data, key.size);
    }
    return t;
}

struct key_ref tomb_key(const struct tomb *t)
{
    return (struct key_ref){.data = t->key, .size = t->key_size, .ns = t->ns};
}

int tomb_write(struct node *n, const struct tomb *t)
{
    struct tombstone_row row = {.counter = t->counter, .known = t->known, .taken = t->taken};
    return batch_tombstone(n->open->batch, tomb_key(t), &row);
}

static struct tomb **chain_of(struct node *n, uint64_t hash)
{
    return &n->tombs.chain[(hash >> 20) % TOMB_CHAINS];
}

static struct tomb *find(struct node *n, struct key_ref key, uint64_t hash)
{
    struct tomb *t = *chain_of(n, hash);
    while (t &&
           (t->hash != hash || t->ns != key.ns || t->key_size != key.size || memcmp(t->key, key.data, key.size) != 0)) {
        t = t->chain;
    }
    return t;
}

static struct tomb *find_key(struct node *n, struct key_ref key)
{
    return key.data && key.size && key.size <= KEY_MAX ? find(n, key, lookup_hash(n->c.super->hash_seed, key).home)
                                                       : NULL;
}

static uint64_t bytes_of(const struct tomb *t)
{
    return TOMB_ROW + t->key_size;
}

static void push(struct tomb_list *l, struct tomb *t)
{
    t->next = NULL;
    t->prev = l->tail;
    *(l->tail ? &l->tail->next : &l->head) = t;
    l->tail = t;
    l->count++;
    l->bytes += bytes_of(t);
}

static void take_out(struct tomb_list *l, struct tomb *t)
{
    *(t->prev ? &t->prev->next : &l->head) = t->next;
    *(t->next ? &t->next->prev : &l->tail) = t->prev;
    l->count--;
    l->bytes -= bytes_of(t);
}

static struct tomb_list *list_of(struct node *n, const struct tomb *t)
{
    return t->until ? &n->tombs.ending : &n->tombs.waiting;
}

static void forget(struct node *n, struct tomb *t)
{
    struct tomb **at = chain_of(n, t->hash);
    while (*at != t) {
        at = &(*at)->chain;
    }
    *at = t->chain;
    take_out(list_of(n, t), t);
    n->tombs.bytes -= bytes_of(t);
    n->tombs.dirty -= t->dirty;
    n->tombs.above -= t->above;
    free(t);
}

/* Behind the others of its chain: a listing goes by serial, and misses none that was there when it began. */
static void insert(struct node *n, struct tomb *t)
{
    struct tomb **at = chain_of(n, t->hash);
    while (*at) {
        at = &(*at)->chain;
    }
    *at = t;
    t->chain = NULL;
    t->serial = ++n->tombs.serial;
    push(list_of(n, t), t);
    n->tombs.bytes += bytes_of(t);
}

/* ---- bounds and time ---- */

static bool writable(const struct node *n, const struct tomb *t)
{
    return !t->taking && !pending_has(&n->pending, t->hash);
}

/* A row that stays, since this batch fails, is met again at the next start. */
static bool end(struct node *n, struct tomb *t)
{
    if (!writable(n, t) || batch_end_tombstone(n->open->batch, tomb_key(t))) {
        return false;
    }
    forget(n, t);
    return true;
}

static bool too_many(const struct node *n)
{
    const struct tombs *s = &n->tombs;
    return s->ending.count + s->waiting.count > TOMBS_MAX || s->bytes > s->max_bytes;
}

bool tombs_crowded(const struct node *n)
{
    const struct tombs *s = &n->tombs;
    return s->waiting.count >= TOMBS_MAX / 2 || s->waiting.bytes > s->max_bytes / 2;
}

static void keep_bounds(struct node *n)
{
    struct tombs *s = &n->tombs;
    /* The analyzer does not follow a list through its nodes. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while (too_many(n) && s->ending.head && end(n, s->ending.head)) {}
    while (too_many(n) && !s->ending.head && s->waiting.head && end(n, s->waiting.head)) {
        if (n->counters[NODE_TOMBSTONES_LOST]++ == 0) {
            node_log(n, 1,
                     "more removals than are kept (%u) wait for their homes: the oldest are forgotten, and a "
                     "removed key may come back from a node that has it",
                     TOMBS_MAX);
        }
    }
}

void tomb_keep(struct node *n, struct tomb *t)
{
    struct tomb *old = find(n, tomb_key(t), t->hash);
    if (old) {
        forget(n, old); /* its row is this one's now */
    }
    insert(n, t);
    keep_bounds(n);
}

static void write_dirty(struct node *n)
{
    uint32_t wrote = 0;
    for (struct tomb *t = n->tombs.ending.head; t && n->tombs.dirty && wrote < TOMB_STEP; t = t->next) {
        if (t->dirty && writable(n, t) && tomb_write(n, t) == 0) {
            t->dirty = false;
            t->written = n->open;
            n->tombs.dirty--;
            wrote++;
        }
    }
}

/* What lies here under the key is another region's, and the removal has come above it. Busy or uncommitted: later. */
static void drop_copies(struct node *n)
{
    for (struct tomb *t = n->tombs.waiting.head; t && n->tombs.above; t = t->next) {
        if (!t->above || pending_has(&n->pending, t->hash)) {
            continue;
        }
        struct key_ref key = tomb_key(t);
        uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
        uint64_t counter = slot == SLOT_NONE ? 0 : header_of(n, slot)->version;
        if (slot != SLOT_NONE && header_of(n, slot)->region != 0 && busy(n, slot)) {
            continue;
        }
        if (slot != SLOT_NONE && tomb_above(n, key, counter, slot_region(n, slot))) {
            evict_copy(n, key, counter, slot_region(n, slot));
        }
        t->above = false;
        n->tombs.above--;
    }
}

void tombs_turn(struct node *n)
{
    struct tomb *t;
    if (n->stopping) {
        return;
    }
    n->tombs.stuck = false;
    /* The analyzer does not follow a list through its nodes. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    for (uint32_t i = 0; i < TOMB_STEP && (t = n->tombs.ending.head) && t->until <= n->now.boot; i++) {
        if (!end(n, t)) {
            n->tombs.stuck = true;
            break;
        }
    }
    if (n->tombs.dirty) {
        write_dirty(n);
    }
    if (n->tombs.above) {
        drop_copies(n);
    }
}

void tomb_taken(struct node *n, struct tomb *t, uint64_t counter)
{
    t->counter = counter;
    t->taken = true;
    t->taking = false;
    t->heard = 0;
    n->tombs.above += !t->above;
    t->above = true;
}

/* One that is due and busy would be due again at once, and nothing else would have its turn. */
int64_t tombs_timer(const struct node *n)
{
    if (!n->tombs.ending.head || n->stopping) {
        return INT64_MAX;
    }
    return n->now.mono + (n->tombs.stuck ? TOMB_STUCK_NS : n->tombs.ending.head->until - n->now.boot);
}

void tombs_failed(struct node *n, const struct work *w)
{
    for (struct tomb *t = n->tombs.ending.head; t; t = t->next) {
        if (t->written == w && !t->dirty) {
            t->dirty = true;
            n->tombs.dirty++;
        }
    }
}

/* ---- what is known ---- */

void tombs_known(struct node *n, const struct node_event *ev)
{
    struct tomb *t = find_key(n, ev->key);
    if (!t || t->counter != ev->counter || t->until || t->taking || ev->home >= ev->homes || ev->homes > 8) {
        return;
    }
    t->heard |= (uint8_t)(1u << ev->home);
    if (t->heard != (1u << ev->homes) - 1) {
        return;
    }
    take_out(&n->tombs.waiting, t);
    t->until = n->now.boot + n->c.tombstone_ns;
    push(&n->tombs.ending, t);
    if (!t->known) {
        t->known = t->dirty = true;
        n->tombs.dirty++;
        n->counters[NODE_TOMBSTONES_KNOWN]++;
    }
    keep_bounds(n);
    tombs_turn(n);
}

bool tomb_above(struct node *n, struct key_ref key, uint64_t counter, uint64_t region)
{
    const struct tomb *t = n->tombs.waiting.count + n->tombs.ending.count ? find_key(n, key) : NULL;
    return t && !version_newer(counter, region, t->counter, n->c.super->region_id);
}

struct tomb *tomb_to_take(struct node *n, struct key_ref key, uint64_t counter)
{
    struct tomb *t = find_key(n, key);
    if (!t || t->counter != counter || t->known || t->taken || !writable(n, t)) {
        return NULL;
    }
    /* What was put here since is newer than the removal: a greater counter would end it. It takes one itself. */
    uint32_t slot = key_slot(n, lookup_hash(n->c.super->hash_seed, key), key, NULL);
    return slot == SLOT_NONE || header_of(n, slot)->region != 0 ? t : NULL;
}

/* ---- listing ---- */

static void describe(const struct node *n, const struct tomb *t, uint8_t *buf, struct node_publication *out)
{
    memcpy(buf, t->key, t->key_size);
    *out = (struct node_publication){.kind = PUBLISH_REMOVED,
                                     .key = {.data = buf, .size = t->key_size, .ns = t->ns},
                                     .counter = t->counter,
                                     .region = n->c.super->region_id,
                                     .replaceable = names_replaceable(n, t->ns),
                                     .fresh = !t->known,
                                     .again = t->taken};
}

bool tombs_next(const struct node *n, uint64_t *cursor, uint8_t *buf, struct node_publication *out)
{
    uint64_t at = *cursor & CURSOR_TOMBS ? *cursor & ~CURSOR_TOMBS : 0;
    uint64_t serial = at & ((UINT64_C(1) << CURSOR_SERIAL) - 1);
    for (uint64_t chain = at >> CURSOR_SERIAL; chain < TOMB_CHAINS; chain++, serial = 0) {
        for (const struct tomb *t = n->tombs.chain[chain]; t; t = t->chain) {
            if (t->serial > serial) {
                *cursor = CURSOR_TOMBS | chain << CURSOR_SERIAL | t->serial;
                describe(n, t, buf, out);
                return true;
            }
        }
    }
    return false;
}

bool tombs_cursor(uint64_t cursor)
{
    return cursor & CURSOR_TOMBS;
}

void tell_removed(struct node *n, const struct tomb *t)
{
    uint8_t *buf = arena_take(n, t->key_size);
    struct node_publication *p = buf ? told_add(n) : NULL;
    if (p) {
        describe(n, t, buf, p);
    }
}

/* ---- start and end ---- */

static int each_row(void *arg, struct key_ref key, const struct tombstone_row *row)
{
    struct node *n = arg;
    struct tomb *t = tomb_make(key, lookup_hash(n->c.super->hash_seed, key).home, row->counter);
    if (!t) {
        return 1;
    }
    t->known = row->known;
    t->taken = row->taken;
    insert(n, t);
    return 0;
}

/* Rows come by key, the list is by age, which the counters are. */
static int by_counter(const void *a, const void *b)
{
    const struct tomb *x = *(struct tomb *const *)a, *y = *(struct tomb *const *)b;
    return (x->counter > y->counter) - (x->counter < y->counter);
}

static bool sort(struct tomb_list *l)
{
    struct tomb **all = malloc((l->count + 1u) * sizeof(struct tomb *));
    uint32_t count = 0;
    if (!all) {
        return false;
    }
    for (struct tomb *t = l->head; t; t = t->next) {
        all[count++] = t;
    }
    qsort(all, count, sizeof *all, by_counter);
    *l = (struct tomb_list){0};
    for (uint32_t i = 0; i < count; i++) {
        push(l, all[i]);
    }
    free(all);
    return true;
}

int tombs_recover(struct node *n)
{
    struct index_usage usage;
    n->c.index->usage(n->c.ix, &usage);
    n->tombs.max_bytes = usage.map_bytes / TOMB_INDEX_SHARE;
    int e = n->c.index->tombstones(n->c.ix, each_row, n);
    if (e == 0 && !sort(&n->tombs.waiting)) {
        e = -ENOMEM;
    }
    return e > 0 ? -ENOMEM : e;
}

void tombs_free(struct node *n)
{
    struct tomb_list *lists[] = {&n->tombs.waiting, &n->tombs.ending};
    for (unsigned i = 0; i < 2; i++) {
        for (struct tomb *t = lists[i]->head, *next; t; t = next) {
            next = t->next;
            free(t);
        }
    }
    for (unsigned w = 0; w < 2; w++) { /* of removals that were not committed */
        for (uint32_t i = 0; i < n->work[w].n_effects; i++) {
            const struct effect *e = &n->work[w].effects[i];
            free(e->kind == EFFECT_REMOVE ? e->tomb : NULL);
            for (uint32_t k = e->first; e->kind == EFFECT_PURGE && k < e->first + e->n; k++) {
                free(n->work[w].members[k].tomb);
            }
        }
    }
}

const char *tombs_check(const struct node *n)
{
    const struct tombs *s = &n->tombs;
    uint64_t bytes = 0, dirty = 0, count = 0;
    for (unsigned i = 0; i < TOMB_CHAINS; i++) {
        for (const struct tomb *t = s->chain[i]; t; t = t->chain) {
            if (t->chain && t->chain->serial <= t->serial) {
                return "removals of a chain are out of order";
            }
            bytes += bytes_of(t);
            dirty += t->dirty;
            count++;
        }
    }
    int64_t until = 0;
    for (const struct tomb *t = s->ending.head; t; until = t->until, t = t->next) {
        if (t->until < until || t->until == 0) {
            return "removals are out of the order of their ends";
        }
    }
    if (bytes != s->bytes || dirty != s->dirty || count != (uint64_t)s->ending.count + s->waiting.count) {
        return "removals are miscounted";
    }
    return NULL;
}
