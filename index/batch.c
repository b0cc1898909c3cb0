/* batch.c: operations of one commit, copied and encoded when they are added, so that the commit only hands bytes on. */
#include "index/batch.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    uint8_t kind;
    uint16_t key_size;
    uint16_t value_size;
    size_t offset; /* of the key; the value follows */
};

struct batch {
    struct entry *ops;
    uint8_t *bytes;
    size_t used, room;
    uint32_t count, ops_room;
    uint32_t puts;
};

struct batch *batch_create(void)
{
    return calloc(1, sizeof(struct batch));
}

void batch_destroy(struct batch *b)
{
    if (!b)
        return;
    free(b->ops);
    free(b->bytes);
    free(b);
}

void batch_clear(struct batch *b)
{
    b->used = 0;
    b->count = 0;
    b->puts = 0;
}

uint32_t batch_count(const struct batch *b)
{
    return b->count;
}

bool batch_has_put(const struct batch *b)
{
    return b->puts > 0;
}

struct batch_op batch_at(const struct batch *b, uint32_t i)
{
    const struct entry *e = &b->ops[i];
    return (struct batch_op){
        .kind = (enum batch_op_kind)e->kind,
        .key_size = e->key_size,
        .value_size = e->value_size,
        .key = b->bytes + e->offset,
        .value = b->bytes + e->offset + e->key_size,
    };
}

static int grow(struct batch *b, size_t need)
{
    if (b->count == b->ops_room) {
        uint32_t room = b->ops_room ? b->ops_room * 2 : 64;
        struct entry *ops = realloc(b->ops, room * sizeof *ops);
        if (!ops)
            return -ENOMEM;
        b->ops = ops;
        b->ops_room = room;
    }
    if (b->room - b->used < need) {
        size_t room = (b->room ? b->room * 2 : 16384) + need;
        uint8_t *bytes = realloc(b->bytes, room);
        if (!bytes)
            return -ENOMEM;
        b->bytes = bytes;
        b->room = room;
    }
    return 0;
}

static void append(struct batch *b, enum batch_op_kind kind, uint32_t key_size, uint32_t value_size)
{
    b->ops[b->count++] = (struct entry){
        .kind = (uint8_t)kind,
        .key_size = (uint16_t)key_size,
        .value_size = (uint16_t)value_size,
        .offset = b->used,
    };
    b->used += key_size + value_size;
    b->puts += kind == BATCH_PUT;
}

static int add(struct batch *b, enum batch_op_kind kind, const void *key, size_t key_size, const void *value,
               size_t value_size)
{
    int rc = grow(b, key_size + value_size);
    if (rc < 0)
        return rc;
    memcpy(b->bytes + b->used, key, key_size);
    if (value_size > 0)
        memcpy(b->bytes + b->used + key_size, value, value_size);
    append(b, kind, (uint32_t)key_size, (uint32_t)value_size);
    return 0;
}

int batch_put(struct batch *b, struct key_ref key, const struct record *r)
{
    int rc = grow(b, RECORD_KEY_MAX + RECORD_MAX);
    if (rc < 0)
        return rc;
    uint32_t key_size = record_key(b->bytes + b->used, key);
    append(b, BATCH_PUT, key_size, record_encode(b->bytes + b->used + key_size, r));
    return 0;
}

int batch_delete(struct batch *b, struct key_ref key)
{
    int rc = grow(b, RECORD_KEY_MAX);
    if (rc < 0)
        return rc;
    append(b, BATCH_DELETE, record_key(b->bytes + b->used, key), 0);
    return 0;
}

int batch_namespace(struct batch *b, const char *name, uint32_t id, uint32_t flags)
{
    uint32_t value[2] = {htole32(id), htole32(flags)};
    char key[NAME_MAX_BYTES + 1] = {0};
    size_t n = strnlen(name, NAME_MAX_BYTES);
    memcpy(key, name, n);
    return add(b, BATCH_NAMESPACE, key, n + 1, value, sizeof value);
}

int batch_session(struct batch *b, uint64_t session, const struct session_row *row)
{
    uint64_t key = htobe64(session);
    uint8_t value[SESSION_FIXED + NAME_MAX_BYTES];
    uint64_t numbers[2] = {htole64(row->applied), htole64(row->start_time)};
    uint32_t ids[2] = {htole32((uint32_t)row->pid), htole32(row->uid)};
    size_t n = strnlen(row->name, NAME_MAX_BYTES);
    memcpy(value, numbers, sizeof numbers);
    memcpy(value + sizeof numbers, ids, sizeof ids);
    memcpy(value + SESSION_FIXED, row->name, n);
    return add(b, BATCH_SESSION, &key, sizeof key, value, SESSION_FIXED + n);
}

int batch_end_session(struct batch *b, uint64_t session)
{
    uint64_t key = htobe64(session);
    return add(b, BATCH_END_SESSION, &key, sizeof key, NULL, 0);
}

int batch_meta(struct batch *b, enum meta_number which, uint64_t value)
{
    const char *name = meta_name(which);
    value = htole64(value);
    return name ? add(b, BATCH_META, name, strlen(name), &value, sizeof value) : -EINVAL;
}

int batch_tombstone(struct batch *b, struct key_ref key, const struct tombstone_row *row)
{
    uint8_t name[RECORD_KEY_MAX], value[TOMBSTONE_BYTES];
    uint64_t counter = htole64(row->counter);
    memcpy(value, &counter, sizeof counter);
    value[sizeof counter] = (uint8_t)((row->known ? TOMBSTONE_KNOWN : 0) | (row->taken ? TOMBSTONE_TAKEN : 0));
    return add(b, BATCH_TOMBSTONE, name, record_key(name, key), value, sizeof value);
}

int batch_end_tombstone(struct batch *b, struct key_ref key)
{
    uint8_t name[RECORD_KEY_MAX];
    return add(b, BATCH_END_TOMBSTONE, name, record_key(name, key), NULL, 0);
}

static void purge_key(uint8_t out[PURGE_KEY], uint64_t counter)
{
    counter = htobe64(counter);
    memcpy(out, PURGE_NAME, sizeof PURGE_NAME - 1);
    memcpy(out + sizeof PURGE_NAME - 1, &counter, sizeof counter);
}

int batch_purge(struct batch *b, const struct purge_row *row)
{
    uint8_t key[PURGE_KEY], value[PURGE_FIXED + KEY_MAX];
    uint32_t numbers[2] = {htole32(row->kind), htole32(row->ns)};
    uint64_t lineage = htole64(row->lineage);
    purge_key(key, row->counter);
    memcpy(value, numbers, sizeof numbers);
    memcpy(value + sizeof numbers, &lineage, sizeof lineage);
    memcpy(value + PURGE_FIXED, row->prefix, row->prefix_size);
    return add(b, BATCH_PURGE, key, sizeof key, value, PURGE_FIXED + row->prefix_size);
}

int batch_end_purge(struct batch *b, uint64_t counter)
{
    uint8_t key[PURGE_KEY];
    purge_key(key, counter);
    return add(b, BATCH_END_PURGE, key, sizeof key, NULL, 0);
}

const char *meta_name(enum meta_number which)
{
    static const char *const names[META_NUMBERS] = {
        [META_COUNTER] = "counter",
        [META_NEXT_SESSION] = "next-session",
        [META_LEASE_HORIZON] = "lease-horizon",
        [META_CLEAN] = "clean",
        [META_NEXT_NAMESPACE] = "next-namespace",
        [META_INCARNATION] = "incarnation",
        [META_IN_TOUCH] = "in-touch",
        [META_SETTLED] = "settled",
    };
    return (unsigned)which < META_NUMBERS ? names[which] : NULL;
}

int batch_parse_namespace(const void *key, size_t key_size, const void *value, size_t value_size,
                          char name[NAME_MAX_BYTES + 1], uint32_t *id, uint32_t *flags)
{
    uint32_t numbers[2];
    if (key_size < 1 || key_size > NAME_MAX_BYTES + 1 || value_size != sizeof numbers ||
        memchr(key, 0, key_size) != (const char *)key + key_size - 1)
        return -EBADMSG;
    memcpy(numbers, value, sizeof numbers);
    memcpy(name, key, key_size);
    *id = le32toh(numbers[0]);
    *flags = le32toh(numbers[1]);
    return 0;
}

int batch_parse_session(const void *key, size_t key_size, const void *value, size_t value_size, uint64_t *session,
                        struct session_row *row)
{
    uint64_t numbers[2];
    uint32_t ids[2];
    if (key_size != sizeof *session || value_size < SESSION_FIXED || value_size > SESSION_FIXED + NAME_MAX_BYTES)
        return -EBADMSG;
    size_t n = value_size - SESSION_FIXED;
    const uint8_t *p = value;
    if (n > 0 && memchr(p + SESSION_FIXED, 0, n))
        return -EBADMSG;
    memcpy(session, key, sizeof *session);
    memcpy(numbers, p, sizeof numbers);
    memcpy(ids, p + sizeof numbers, sizeof ids);
    *session = be64toh(*session);
    *row = (struct session_row){
        .applied = le64toh(numbers[0]),
        .start_time = le64toh(numbers[1]),
        .pid = (int32_t)le32toh(ids[0]),
        .uid = le32toh(ids[1]),
    };
    memcpy(row->name, p + SESSION_FIXED, n);
    return 0;
}

int batch_parse_tombstone(const void *key, size_t key_size, const void *value, size_t value_size, struct key_ref *k,
                          struct tombstone_row *row)
{
    uint64_t counter;
    const uint8_t *p = value;
    if (key_size > RECORD_KEY_MAX || value_size != TOMBSTONE_BYTES ||
        p[sizeof counter] & ~(TOMBSTONE_KNOWN | TOMBSTONE_TAKEN) || record_key_parse(key, (uint32_t)key_size, k) < 0)
        return -EBADMSG;
    memcpy(&counter, p, sizeof counter);
    *row = (struct tombstone_row){.counter = le64toh(counter),
                                  .known = p[sizeof counter] & TOMBSTONE_KNOWN,
                                  .taken = p[sizeof counter] & TOMBSTONE_TAKEN};
    return row->counter ? 0 : -EBADMSG;
}

/* A purge of more than was asked for would be worse than none: each kind has its own fields and no others. */
static bool purge_sound(const struct purge_row *r)
{
    bool lineage = r->kind == PURGE_LINEAGE, prefix = r->kind == PURGE_PREFIX;
    return r->counter && r->kind >= PURGE_LINEAGE && r->kind < PURGE_KINDS && lineage == (r->lineage != 0) &&
           prefix == (r->prefix_size != 0) && !(lineage && r->ns);
}

int batch_parse_purge(const void *key, size_t key_size, const void *value, size_t value_size, struct purge_row *row)
{
    uint32_t numbers[2];
    uint64_t counter, lineage;
    if (key_size != PURGE_KEY || value_size < PURGE_FIXED || value_size > PURGE_FIXED + KEY_MAX)
        return -EBADMSG;
    memcpy(&counter, (const uint8_t *)key + sizeof PURGE_NAME - 1, sizeof counter);
    memcpy(numbers, value, sizeof numbers);
    memcpy(&lineage, (const uint8_t *)value + sizeof numbers, sizeof lineage);
    *row = (struct purge_row){.counter = be64toh(counter),
                              .lineage = le64toh(lineage),
                              .kind = le32toh(numbers[0]),
                              .ns = le32toh(numbers[1]),
                              .prefix_size = (uint32_t)(value_size - PURGE_FIXED)};
    memcpy(row->prefix, (const uint8_t *)value + PURGE_FIXED, row->prefix_size);
    return purge_sound(row) ? 0 : -EBADMSG;
}

int batch_parse_number(const void *value, size_t value_size, uint64_t *out)
{
    uint64_t v;
    if (value_size != sizeof v)
        return -EBADMSG;
    memcpy(&v, value, sizeof v);
    *out = le64toh(v);
    return 0;
}
