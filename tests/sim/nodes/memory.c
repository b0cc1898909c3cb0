/* memory.c: an index without a file: what index.h asks of one that the simulated nodes need, in a table that is small
 * enough to be copied. It outlives its node, as the region's does. */
#include "tests/sim/nodes/nodes.h"

#include "index/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ROWS 1024u /* a power of two, well above the keys */
#define NAMES 8u
#define SESSIONS 64u

struct row {
    bool used, dead; /* dead: deleted, probing goes on */
    uint32_t key_size;
    uint8_t key[RECORD_KEY_MAX];
    union {
        struct record record;
        struct tombstone_row tomb;
    };
};

struct table {
    struct row row[ROWS];
    uint32_t n;
};

struct index_memory {
    struct table objects, tombs;
    uint64_t meta[META_NUMBERS];
    struct {
        char name[NAME_MAX_BYTES + 1];
        uint32_t id, flags;
    } name[NAMES];
    uint32_t n_names;
    struct {
        uint64_t id;
        struct session_row row;
    } session[SESSIONS];
    uint32_t n_sessions;
};

struct index_memory *index_make(void)
{
    struct index_memory *x = calloc(1, sizeof *x);
    if (!x)
        abort();
    return x;
}

void index_free(struct index_memory *x)
{
    free(x);
}

void index_set(struct index_memory *x, enum meta_number which, uint64_t value)
{
    x->meta[which] = value;
}

static struct row *find(struct table *x, const void *key, uint32_t size, bool make)
{
    struct row *free_row = NULL;
    uint32_t at = (uint32_t)XXH3_64bits(key, size) % ROWS;
    for (uint32_t i = 0; i < ROWS; i++, at = (at + 1) % ROWS) {
        struct row *r = &x->row[at];
        if (r->used && r->key_size == size && memcmp(r->key, key, size) == 0)
            return r;
        if (!r->used && !free_row)
            free_row = r;
        if (!r->used && !r->dead)
            break;
    }
    if (!make || !free_row)
        return NULL;
    free_row->used = true;
    free_row->key_size = size;
    memcpy(free_row->key, key, size);
    x->n++;
    return free_row;
}

static void drop(struct table *x, const struct batch_op *op)
{
    struct row *r = find(x, op->key, op->key_size, false);
    if (r) {
        r->used = false;
        r->dead = true;
        x->n--;
    }
}

static void put_tombstone(struct index_memory *x, const struct batch_op *op)
{
    struct key_ref key;
    struct row *r = find(&x->tombs, op->key, op->key_size, true);
    if (!r || batch_parse_tombstone(op->key, op->key_size, op->value, op->value_size, &key, &r->tomb))
        abort();
}

static void put_session(struct index_memory *x, const struct batch_op *op)
{
    uint64_t id;
    struct session_row row;
    uint32_t i = 0;
    if (batch_parse_session(op->key, op->key_size, op->value, op->value_size, &id, &row))
        abort();
    while (i < x->n_sessions && x->session[i].id != id)
        i++;
    if (i == SESSIONS)
        abort();
    x->n_sessions += i == x->n_sessions;
    x->session[i].id = id;
    x->session[i].row = row;
}

static void end_session(struct index_memory *x, const struct batch_op *op)
{
    uint64_t id = 0;
    for (uint32_t i = 0; i < op->key_size; i++)
        id = id << 8 | op->key[i];
    for (uint32_t i = 0; i < x->n_sessions; i++) {
        if (x->session[i].id == id)
            x->session[i] = x->session[--x->n_sessions];
    }
}

static void put_name(struct index_memory *x, const struct batch_op *op)
{
    uint32_t i = x->n_names;
    if (i == NAMES || batch_parse_namespace(op->key, op->key_size, op->value, op->value_size, x->name[i].name,
                                            &x->name[i].id, &x->name[i].flags))
        abort();
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(x->name[k].name, x->name[i].name) == 0)
            return;
    }
    x->n_names++;
}

static void put_meta(struct index_memory *x, const struct batch_op *op)
{
    for (unsigned k = 0; k < META_NUMBERS; k++) {
        const char *name = meta_name((enum meta_number)k);
        if (name && strlen(name) == op->key_size && memcmp(name, op->key, op->key_size) == 0)
            batch_parse_number(op->value, op->value_size, &x->meta[k]);
    }
}

static void apply(struct index_memory *x, const struct batch_op *op)
{
    struct row *r;
    switch (op->kind) {
    case BATCH_PUT:
        r = find(&x->objects, op->key, op->key_size, true);
        if (!r || record_decode(op->value, op->value_size, &r->record))
            abort();
        break;
    case BATCH_DELETE:
        drop(&x->objects, op);
        break;
    case BATCH_TOMBSTONE:
        put_tombstone(x, op);
        break;
    case BATCH_END_TOMBSTONE:
        drop(&x->tombs, op);
        break;
    case BATCH_SESSION:
        put_session(x, op);
        break;
    case BATCH_END_SESSION:
        end_session(x, op);
        break;
    case BATCH_NAMESPACE:
        put_name(x, op);
        break;
    case BATCH_META:
        put_meta(x, op);
        break;
    case BATCH_PURGE:
    case BATCH_END_PURGE:
        abort();
    }
}

static int memory_commit(void *ix, const struct batch *b)
{
    for (uint32_t i = 0; i < batch_count(b); i++) {
        struct batch_op op = batch_at(b, i);
        apply(ix, &op);
    }
    return 0;
}

static int memory_get(void *ix, struct key_ref key, struct record *out)
{
    uint8_t name[RECORD_KEY_MAX];
    struct index_memory *x = ix;
    const struct row *r = find(&x->objects, name, record_key(name, key), false);
    if (!r)
        return -ENOENT;
    *out = r->record;
    return 0;
}

static int memory_list(void *ix, uint32_t ns, const void *prefix, uint32_t prefix_size, const void *after,
                       uint32_t after_size, int (*each)(void *arg, struct key_ref key, const struct record *r),
                       void *arg)
{
    (void)ix, (void)ns, (void)prefix, (void)prefix_size, (void)after, (void)after_size, (void)each, (void)arg;
    return -EIO; /* no client here lists */
}

static int memory_each(void *ix, int (*each)(void *arg, struct key_ref key, const struct record *r), void *arg)
{
    struct index_memory *x = ix;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct key_ref key;
        const struct row *r = &x->objects.row[i];
        if (!r->used)
            continue;
        record_key_parse(r->key, r->key_size, &key);
        int e = each(arg, key, &r->record);
        if (e)
            return e;
    }
    return 0;
}

static int memory_tombstones(void *ix, int (*each)(void *arg, struct key_ref key, const struct tombstone_row *row),
                             void *arg)
{
    struct index_memory *x = ix;
    int e = 0;
    for (uint32_t i = 0; i < ROWS && e == 0; i++) {
        struct key_ref key;
        const struct row *r = &x->tombs.row[i];
        if (r->used) {
            record_key_parse(r->key, r->key_size, &key);
            e = each(arg, key, &r->tomb);
        }
    }
    return e;
}

static int memory_namespaces(void *ix, int (*each)(void *arg, const char *name, uint32_t id, uint32_t flags), void *arg)
{
    struct index_memory *x = ix;
    int e = 0;
    for (uint32_t i = 0; i < x->n_names && e == 0; i++)
        e = each(arg, x->name[i].name, x->name[i].id, x->name[i].flags);
    return e;
}

static int memory_sessions(void *ix, int (*each)(void *arg, uint64_t session, const struct session_row *row), void *arg)
{
    struct index_memory *x = ix;
    int e = 0;
    for (uint32_t i = 0; i < x->n_sessions && e == 0; i++)
        e = each(arg, x->session[i].id, &x->session[i].row);
    return e;
}

static int memory_purges(void *ix, int (*each)(void *arg, const struct purge_row *row), void *arg)
{
    (void)ix, (void)each, (void)arg;
    return 0; /* no client here purges */
}

static uint64_t memory_meta(void *ix, enum meta_number which)
{
    return ((struct index_memory *)ix)->meta[which];
}

static void memory_usage(void *ix, struct index_usage *out)
{
    const struct index_memory *x = ix;
    *out = (struct index_usage){.map_bytes = 1u << 30, .used_bytes = x->objects.n * 128u, .records = x->objects.n};
}

const struct index_ops memory_ops = {.name = "memory",
                                     .commit = memory_commit,
                                     .get = memory_get,
                                     .list = memory_list,
                                     .each = memory_each,
                                     .namespaces = memory_namespaces,
                                     .sessions = memory_sessions,
                                     .tombstones = memory_tombstones,
                                     .purges = memory_purges,
                                     .meta = memory_meta,
                                     .usage = memory_usage};
