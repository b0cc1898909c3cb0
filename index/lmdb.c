/* lmdb.c: the index's table over LMDB: commits, gets, lists. */
#include "index/batch.h"
#include "index/lmdb_ahead.h"
#include "index/lmdb_env.h"

#include <errno.h>
#include <string.h>

#define PART_OPS 64u   /* a batch of deletes that does not fit is applied so many at a time */
#define PART_PAGES 32u /* free list and small tables, a transaction */
#define FREE_DBI 0u    /* LMDB's own, as LMDB_MAIN_DBI */
#define META_PAGES 2u

int lmdb_error(int rc)
{
    switch (rc) {
    case 0:
        return 0;
    case MDB_NOTFOUND:
        return -ENOENT;
    case MDB_MAP_FULL:
        return -ENOSPC;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_CURSOR_FULL: /* deeper, fuller or larger than anything that LMDB writes */
    case MDB_PAGE_FULL:
    case MDB_MAP_RESIZED:
        return -EBADMSG;
    default:
        return rc > 0 ? -rc : -EIO;
    }
}

static int add_pages(MDB_txn *txn, MDB_dbi dbi, uint64_t *sum)
{
    MDB_stat st;
    int rc = mdb_stat(txn, dbi, &st);
    if (rc == 0)
        *sum += st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
    return rc;
}

int lmdb_live_pages(struct lmdb_index *ix, MDB_txn *txn, uint64_t *out)
{
    uint64_t sum = META_PAGES;
    int rc = add_pages(txn, FREE_DBI, &sum);
    if (rc == 0)
        rc = add_pages(txn, LMDB_MAIN_DBI, &sum);
    for (unsigned i = 0; i < TABLES && rc == 0; i++)
        rc = add_pages(txn, ix->dbi[i], &sum);
    if (rc == 0)
        *out = sum;
    return rc;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether the map may look as it does after this batch of n with puts. All that is not live is free, but what this
 * transaction freed can't be used by the next one, only by the second; each needs room for a part of deletes. */
static int check_room(struct lmdb_index *ix, MDB_txn *txn, uint32_t n)
{
    MDB_stat objects, removed;
    uint64_t live;
    int rc = mdb_stat(txn, ix->dbi[TABLE_OBJECTS], &objects);
    if (rc == 0)
        rc = mdb_stat(txn, ix->dbi[TABLE_TOMBSTONES], &removed);
    if (rc == 0)
        rc = lmdb_live_pages(ix, txn, &live);
    if (rc != 0)
        return rc;
    unsigned depth = objects.ms_depth > removed.ms_depth ? objects.ms_depth : removed.ms_depth;
    uint64_t path = depth + 1u; /* pages of a changed key, and a neighbour that it is merged with */
    uint64_t freed = min64(live, n * path);
    uint64_t part = min64(live, PART_OPS * path) + PART_PAGES;
    bool fits = live <= ix->limit_pages && live + freed + 2 * part <= ix->total_pages;
    return fits ? 0 : MDB_MAP_FULL;
}

static enum lmdb_table table_of(enum batch_op_kind kind)
{
    switch (kind) {
    case BATCH_PUT:
    case BATCH_DELETE:
        return TABLE_OBJECTS;
    case BATCH_NAMESPACE:
        return TABLE_NAMESPACES;
    case BATCH_SESSION:
    case BATCH_END_SESSION:
        return TABLE_SESSIONS;
    case BATCH_TOMBSTONE:
    case BATCH_END_TOMBSTONE:
        return TABLE_TOMBSTONES;
    case BATCH_META:
    case BATCH_PURGE:
    case BATCH_END_PURGE:
        break;
    }
    return TABLE_META;
}

static int apply_op(struct lmdb_index *ix, MDB_txn *txn, const struct batch_op *op)
{
    MDB_dbi dbi = ix->dbi[table_of(op->kind)];
    MDB_val key = {.mv_size = op->key_size, .mv_data = (void *)(uintptr_t)op->key};
    MDB_val value = {.mv_size = op->value_size, .mv_data = (void *)(uintptr_t)op->value};
    if (op->kind != BATCH_DELETE && op->kind != BATCH_END_SESSION && op->kind != BATCH_END_TOMBSTONE &&
        op->kind != BATCH_END_PURGE)
        return mdb_put(txn, dbi, &key, &value, 0);
    int rc = mdb_del(txn, dbi, &key, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Operations [from, to) in one transaction, in their order: sorting a batch of 100 by key gained nothing at 1 M
 * records. An LMDB result. */
static int apply(struct lmdb_index *ix, const struct batch *b, uint32_t from, uint32_t to)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(ix->env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    (void)lmdb_ahead(ix, txn, b, from, to);
    for (uint32_t i = from; i < to && rc == 0; i++) {
        struct batch_op op = batch_at(b, i);
        rc = apply_op(ix, txn, &op);
    }
    if (rc == 0 && batch_has_put(b))
        rc = check_room(ix, txn, to - from);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static int apply_in_parts(struct lmdb_index *ix, const struct batch *b, uint32_t n)
{
    int rc = 0;
    for (uint32_t from = 0; from < n && rc == 0; from += PART_OPS)
        rc = apply(ix, b, from, (uint32_t)min64(from + PART_OPS, n));
    return rc;
}

static int op_commit(void *arg, const struct batch *b)
{
    struct lmdb_index *ix = arg;
    uint32_t n = batch_count(b);
    if (n == 0)
        return 0;
    int rc = apply(ix, b, 0, n);
    if ((rc == MDB_MAP_FULL || rc == MDB_TXN_FULL) && !batch_has_put(b))
        rc = apply_in_parts(ix, b, n);
    int err = lmdb_error(rc);
    return err == 0 || err == -ENOSPC ? err : -EIO;
}

static int read_begin(struct lmdb_index *ix)
{
    int rc = ix->read_depth == 0 ? mdb_txn_renew(ix->read) : 0;
    if (rc == 0)
        ix->read_depth++;
    return rc;
}

static void read_end(struct lmdb_index *ix)
{
    if (--ix->read_depth == 0)
        mdb_txn_reset(ix->read);
}

/* What a read may answer: absent, damaged, or the index can't be read. */
static int read_error(int rc)
{
    int err = lmdb_error(rc);
    return err == 0 || err == -ENOENT || err == -EBADMSG ? err : -EIO;
}

static int op_get(void *arg, struct key_ref key, struct record *out)
{
    struct lmdb_index *ix = arg;
    uint8_t bytes[RECORD_KEY_MAX];
    if (key.size == 0 || key.size > KEY_MAX)
        return -ENOENT;
    MDB_val k = {.mv_size = record_key(bytes, key), .mv_data = bytes}, value;
    int rc = read_begin(ix);
    if (rc != 0)
        return read_error(rc);
    rc = mdb_get(ix->read, ix->dbi[TABLE_OBJECTS], &k, &value);
    int err = rc != 0                       ? read_error(rc)
              : value.mv_size <= RECORD_MAX ? record_decode(value.mv_data, (uint32_t)value.mv_size, out)
                                            : -EBADMSG;
    read_end(ix);
    return err;
}

struct walk {
    struct lmdb_index *ix;
    int (*row)(const struct walk *w, const MDB_val *key, const MDB_val *value); /* 1: done */
    int (*each)(void *arg, struct key_ref key, const struct record *r);
    int (*namespace)(void *arg, const char *name, uint32_t id, uint32_t flags);
    int (*session)(void *arg, uint64_t session, const struct session_row *row_out);
    int (*tombstone)(void *arg, struct key_ref key, const struct tombstone_row *row_out);
    int (*purge)(void *arg, const struct purge_row *row_out);
    void *arg;
    MDB_val prefix; /* of the row's key: the walk ends after it */
    int *result;    /* of the callback that ended the walk */
};

/* From the first row at or after `from` (size 0: the first of all) but not `from` itself where `beyond` is set. */
static int walk_table(const struct walk *w, enum lmdb_table table, MDB_val from, bool beyond)
{
    MDB_cursor *cursor;
    int rc = read_begin(w->ix);
    if (rc != 0)
        return read_error(rc);
    rc = mdb_cursor_open(w->ix->read, w->ix->dbi[table], &cursor);
    if (rc != 0) {
        read_end(w->ix);
        return read_error(rc);
    }
    MDB_val key = from, value;
    int done = 0;
    rc = mdb_cursor_get(cursor, &key, &value, from.mv_size ? MDB_SET_RANGE : MDB_FIRST);
    if (rc == 0 && beyond && key.mv_size == from.mv_size && memcmp(key.mv_data, from.mv_data, from.mv_size) == 0)
        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    while (rc == 0 && done == 0) {
        done = w->row(w, &key, &value);
        if (done == 0)
            rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    read_end(w->ix);
    return rc == 0 || rc == MDB_NOTFOUND ? *w->result : read_error(rc);
}

static int finish(const struct walk *w, int result)
{
    *w->result = result;
    return result != 0;
}

static int decode_row(const MDB_val *key, const MDB_val *value, struct key_ref *k, struct record *r)
{
    if (key->mv_size > RECORD_KEY_MAX || value->mv_size > RECORD_MAX)
        return -EBADMSG;
    int rc = record_key_parse(key->mv_data, (uint32_t)key->mv_size, k);
    return rc == 0 ? record_decode(value->mv_data, (uint32_t)value->mv_size, r) : rc;
}

static int list_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    struct key_ref k;
    struct record r;
    if (key->mv_size < w->prefix.mv_size || memcmp(key->mv_data, w->prefix.mv_data, w->prefix.mv_size) != 0)
        return 1;
    int rc = decode_row(key, value, &k, &r);
    return finish(w, rc < 0 ? rc : w->each(w->arg, k, &r));
}

static int each_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    struct key_ref k;
    struct record r;
    if (record_key_parse(key->mv_data, (uint32_t)key->mv_size, &k) < 0) {
        k = (struct key_ref){.data = key->mv_data, .size = (uint32_t)key->mv_size};
        return finish(w, w->each(w->arg, k, NULL));
    }
    return finish(w, w->each(w->arg, k, decode_row(key, value, &k, &r) < 0 ? NULL : &r));
}

static int namespace_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    char name[NAME_MAX_BYTES + 1];
    uint32_t id, flags;
    int rc = batch_parse_namespace(key->mv_data, key->mv_size, value->mv_data, value->mv_size, name, &id, &flags);
    return finish(w, rc < 0 ? rc : w->namespace(w->arg, name, id, flags));
}

static int session_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    uint64_t session;
    struct session_row row;
    int rc = batch_parse_session(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &session, &row);
    return finish(w, rc < 0 ? rc : w->session(w->arg, session, &row));
}

static int tombstone_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    struct key_ref k;
    struct tombstone_row row;
    int rc = batch_parse_tombstone(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &k, &row);
    return finish(w, rc < 0 ? rc : w->tombstone(w->arg, k, &row));
}

static int purge_row(const struct walk *w, const MDB_val *key, const MDB_val *value)
{
    struct purge_row row;
    if (key->mv_size < w->prefix.mv_size || memcmp(key->mv_data, w->prefix.mv_data, w->prefix.mv_size) != 0)
        return 1;
    int rc = batch_parse_purge(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &row);
    return finish(w, rc < 0 ? rc : w->purge(w->arg, &row));
}

static int op_list(void *arg, uint32_t ns, const void *prefix, uint32_t prefix_size, const void *after,
                   uint32_t after_size, int (*each)(void *, struct key_ref, const struct record *), void *each_arg)
{
    uint8_t low[RECORD_KEY_MAX], start[RECORD_KEY_MAX];
    if (prefix_size > KEY_MAX || after_size > KEY_MAX)
        return -EINVAL;
    int result = 0;
    struct walk w = {.ix = arg, .row = list_row, .each = each, .arg = each_arg, .result = &result};
    struct key_ref p = {.data = prefix_size ? prefix : "", .size = prefix_size, .ns = ns};
    struct key_ref a = {.data = after_size ? after : "", .size = after_size, .ns = ns};
    w.prefix = (MDB_val){.mv_size = record_key(low, p), .mv_data = low};
    MDB_val from = {.mv_size = record_key(start, a), .mv_data = start};
    size_t common = (size_t)min64(w.prefix.mv_size, from.mv_size);
    int c = memcmp(low, start, common);
    if (c > 0 || (c == 0 && w.prefix.mv_size > from.mv_size))
        return walk_table(&w, TABLE_OBJECTS, w.prefix, false);
    return walk_table(&w, TABLE_OBJECTS, from, true);
}

static int op_each(void *arg, int (*each)(void *, struct key_ref, const struct record *), void *each_arg)
{
    int result = 0;
    struct walk w = {.ix = arg, .row = each_row, .each = each, .arg = each_arg, .result = &result};
    return walk_table(&w, TABLE_OBJECTS, (MDB_val){0}, false);
}

static int op_namespaces(void *arg, int (*each)(void *, const char *, uint32_t, uint32_t), void *each_arg)
{
    int result = 0;
    struct walk w = {.ix = arg, .row = namespace_row, .namespace = each, .arg = each_arg, .result = &result};
    return walk_table(&w, TABLE_NAMESPACES, (MDB_val){0}, false);
}

static int op_sessions(void *arg, int (*each)(void *, uint64_t, const struct session_row *), void *each_arg)
{
    int result = 0;
    struct walk w = {.ix = arg, .row = session_row, .session = each, .arg = each_arg, .result = &result};
    return walk_table(&w, TABLE_SESSIONS, (MDB_val){0}, false);
}

static int op_tombstones(void *arg, int (*each)(void *, struct key_ref, const struct tombstone_row *), void *each_arg)
{
    int result = 0;
    struct walk w = {.ix = arg, .row = tombstone_row, .tombstone = each, .arg = each_arg, .result = &result};
    return walk_table(&w, TABLE_TOMBSTONES, (MDB_val){0}, false);
}

static int op_purges(void *arg, int (*each)(void *, const struct purge_row *), void *each_arg)
{
    int result = 0;
    struct walk w = {.ix = arg, .row = purge_row, .purge = each, .arg = each_arg, .result = &result};
    w.prefix = (MDB_val){.mv_size = sizeof PURGE_NAME - 1, .mv_data = PURGE_NAME};
    return walk_table(&w, TABLE_META, w.prefix, false);
}

static uint64_t op_meta(void *arg, enum meta_number which)
{
    struct lmdb_index *ix = arg;
    const char *name = meta_name(which);
    if (!name || read_begin(ix) != 0)
        return 0;
    MDB_val key = {.mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name}, value;
    uint64_t number = 0;
    if (mdb_get(ix->read, ix->dbi[TABLE_META], &key, &value) == 0)
        (void)batch_parse_number(value.mv_data, value.mv_size, &number); /* lmdb_open refused any other size */
    read_end(ix);
    return number;
}

static void op_usage(void *arg, struct index_usage *out)
{
    struct lmdb_index *ix = arg;
    uint64_t live = 0;
    MDB_stat st = {0};
    if (read_begin(ix) == 0) {
        (void)lmdb_live_pages(ix, ix->read, &live);
        (void)mdb_stat(ix->read, ix->dbi[TABLE_OBJECTS], &st);
        read_end(ix);
    }
    *out =
        (struct index_usage){.map_bytes = ix->map_bytes, .used_bytes = live * ix->page_bytes, .records = st.ms_entries};
}

const struct index_ops lmdb_ops = {
    .name = "lmdb",
    .commit = op_commit,
    .get = op_get,
    .list = op_list,
    .each = op_each,
    .namespaces = op_namespaces,
    .sessions = op_sessions,
    .tombstones = op_tombstones,
    .purges = op_purges,
    .meta = op_meta,
    .usage = op_usage,
};
