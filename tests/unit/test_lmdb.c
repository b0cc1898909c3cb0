/* The index in LMDB: what it keeps, that it believes nothing damaged, and what it does when it is full or killed. */
#include "index/lmdb.h"

#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t seed, state;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % n);
}

struct fixture {
    char dir[64];
    struct lmdb_config config;
    struct lmdb_index *ix;
    struct batch *b;
};

static void unlink_files(const struct fixture *f)
{
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/lock.mdb", f->dir);
    unlink(path);
}

static int setup(void **out)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/dev/shm/berth-test-lmdb-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    f->config = (struct lmdb_config){.dir = f->dir, .map_bytes = 4u << 20, .writemap = true, .preallocate = true,
                                     .mode = 0600};
    f->b = batch_create();
    *out = f;
    return lmdb_open(&f->ix, &f->config);
}

static int teardown(void **in)
{
    struct fixture *f = *in;
    lmdb_close(f->ix);
    batch_destroy(f->b);
    unlink_files(f);
    int rc = rmdir(f->dir); /* fails if anything else was left behind */
    free(f);
    return rc;
}

static int reopen(struct fixture *f)
{
    lmdb_close(f->ix);
    f->ix = NULL;
    return lmdb_open(&f->ix, &f->config);
}

static struct key_ref text_key(const char *text, uint32_t ns)
{
    return (struct key_ref){.data = text, .size = (uint32_t)strlen(text), .ns = ns};
}

static void add(struct fixture *f, const char *text, uint32_t ns, uint64_t counter)
{
    struct record r = {.counter = counter, .slot = 1, .ready = true};
    assert_int_equal(batch_put(f->b, text_key(text, ns), &r), 0);
}

static int commit(struct fixture *f)
{
    int rc = lmdb_ops.commit(f->ix, f->b);
    batch_clear(f->b);
    return rc;
}

static uint64_t counter_of(struct fixture *f, const char *text, uint32_t ns)
{
    struct record r;
    int rc = lmdb_ops.get(f->ix, text_key(text, ns), &r);
    return rc == 0 ? r.counter : (uint64_t)(int64_t)rc;
}

#define ABSENT ((uint64_t)(int64_t)-ENOENT)

static void test_put_get_delete(void **s)
{
    struct fixture *f = *s;
    assert_int_equal(commit(f), 0); /* an empty batch */
    add(f, "a", 0, 1);
    add(f, "b", 0, 2);
    add(f, "a", 1, 3);
    assert_int_equal(commit(f), 0);
    assert_int_equal(counter_of(f, "a", 0), 1);
    assert_int_equal(counter_of(f, "b", 0), 2);
    assert_int_equal(counter_of(f, "a", 1), 3);
    assert_int_equal(counter_of(f, "b", 1), ABSENT);
    batch_delete(f->b, text_key("a", 0));
    batch_delete(f->b, text_key("never", 0));
    add(f, "b", 0, 4);
    add(f, "c", 0, 5);
    batch_delete(f->b, text_key("c", 0)); /* operations on one key keep their order */
    batch_delete(f->b, text_key("d", 0));
    add(f, "d", 0, 6);
    assert_int_equal(commit(f), 0);
    assert_int_equal(counter_of(f, "a", 0), ABSENT);
    assert_int_equal(counter_of(f, "b", 0), 4);
    assert_int_equal(counter_of(f, "c", 0), ABSENT);
    assert_int_equal(counter_of(f, "d", 0), 6);
    assert_int_equal(reopen(f), 0);
    assert_int_equal(counter_of(f, "b", 0), 4);
    struct index_usage u;
    lmdb_ops.usage(f->ix, &u);
    assert_int_equal(u.records, 3);
    assert_int_equal(u.map_bytes, 4u << 20);
    assert_true(u.used_bytes >= 5 * 4096 && u.used_bytes <= 32 * 4096);
    struct record r;
    assert_int_equal(lmdb_ops.get(f->ix, (struct key_ref){"", 0, 0}, &r), -ENOENT);
}

struct seen {
    struct fixture *f;
    char text[256];
    unsigned n, stop_after;
    bool undecodable;
};

static int collect(void *arg, struct key_ref key, const struct record *r)
{
    struct seen *s = arg;
    s->undecodable = s->undecodable || !r;
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof s->text - used, "%u:%.*s ", key.ns, (int)key.size, (const char *)key.data);
    if (r) { /* a callback may get */
        struct record again;
        assert_int_equal(lmdb_ops.get(s->f->ix, key, &again), 0);
        assert_int_equal(again.counter, r->counter);
    }
    return ++s->n == s->stop_after ? 42 : 0;
}

static void expect_list(struct fixture *f, uint32_t ns, const char *prefix, const char *after, const char *expected)
{
    struct seen s = {.f = f};
    assert_int_equal(lmdb_ops.list(f->ix, ns, prefix, (uint32_t)strlen(prefix), after, (uint32_t)strlen(after), collect, &s),
                     0);
    assert_string_equal(s.text, expected);
}

static void test_list(void **s)
{
    struct fixture *f = *s;
    static const char *const keys[] = {"ab", "a", "abc", "b", "ac", "aba"};
    expect_list(f, 1, "", "", "");
    for (unsigned i = 0; i < 6; i++)
        add(f, keys[i], 1, i);
    add(f, "ab", 0, 7);
    add(f, "ab", 256, 8);
    assert_int_equal(commit(f), 0);
    expect_list(f, 1, "", "", "1:a 1:ab 1:aba 1:abc 1:ac 1:b ");
    expect_list(f, 1, "ab", "", "1:ab 1:aba 1:abc ");
    expect_list(f, 1, "ab", "ab", "1:aba 1:abc ");
    expect_list(f, 1, "ab", "abb", "1:abc ");
    expect_list(f, 1, "ab", "a", "1:ab 1:aba 1:abc ");
    expect_list(f, 1, "ab", "b", "");
    expect_list(f, 1, "", "ac", "1:b ");
    expect_list(f, 1, "x", "", "");
    expect_list(f, 256, "", "", "256:ab ");
    expect_list(f, 2, "", "", "");
    struct seen stopped = {.f = f, .stop_after = 2};
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", 0, "", 0, collect, &stopped), 42);
    assert_string_equal(stopped.text, "1:a 1:ab ");
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", KEY_MAX + 1, "", 0, collect, &stopped), -EINVAL);
    struct seen all = {.f = f};
    assert_int_equal(lmdb_ops.each(f->ix, collect, &all), 0);
    assert_string_equal(all.text, "0:ab 1:a 1:ab 1:aba 1:abc 1:ac 1:b 256:ab ");
}

static int one_namespace(void *arg, const char *name, uint32_t id, uint32_t flags)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 256 - used, "%s=%u/%u ", name, id, flags);
    return 0;
}

static int one_session(void *arg, uint64_t session, const struct session_row *row)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 256 - used, "%llu=%llu/%llu/%d/%u/%s ", (unsigned long long)session,
             (unsigned long long)row->applied, (unsigned long long)row->start_time, row->pid, row->uid, row->name);
    return 0;
}

static void test_other_tables(void **s)
{
    struct fixture *f = *s;
    struct session_row row = {.applied = 5, .start_time = 6, .pid = 7, .uid = 8, .name = "n"};
    for (unsigned i = 0; i < META_NUMBERS; i++)
        assert_int_equal(lmdb_ops.meta(f->ix, (enum meta_number)i), 0);
    for (unsigned i = 0; i < META_NUMBERS; i++)
        batch_meta(f->b, (enum meta_number)i, UINT64_MAX - i);
    batch_namespace(f->b, "kv", 1, 0);
    batch_namespace(f->b, "", 0, 0);
    batch_namespace(f->b, "kv", 1, 2);
    batch_session(f->b, 300, &row);
    batch_session(f->b, 2, &row);
    batch_session(f->b, 1, &row);
    batch_end_session(f->b, 1);
    batch_end_session(f->b, 99);
    assert_int_equal(commit(f), 0);
    assert_int_equal(reopen(f), 0);
    for (unsigned i = 0; i < META_NUMBERS; i++)
        assert_true(lmdb_ops.meta(f->ix, (enum meta_number)i) == UINT64_MAX - i);
    char text[256] = "";
    assert_int_equal(lmdb_ops.namespaces(f->ix, one_namespace, text), 0);
    assert_string_equal(text, "=0/0 kv=1/2 ");
    text[0] = 0;
    assert_int_equal(lmdb_ops.sessions(f->ix, one_session, text), 0);
    assert_string_equal(text, "2=5/6/7/8/n 300=5/6/7/8/n ");
}

static void test_identity(void **s)
{
    struct fixture *f = *s;
    struct lmdb_identity id = {.uuid = "0123456789abcde", .boot_id = "fedcba987654321", .format = 1, .region_id = 2,
                               .hash_seed = 3, .pid = 4, .start_time = 5};
    struct lmdb_identity out;
    assert_int_equal(lmdb_identity(f->ix, &out), -ENOENT);
    assert_int_equal(lmdb_identify(f->ix, &id), 0);
    assert_int_equal(reopen(f), 0);
    assert_int_equal(lmdb_identity(f->ix, &out), 0);
    assert_memory_equal(out.uuid, id.uuid, 16);
    assert_memory_equal(out.boot_id, id.boot_id, 16);
    assert_true(out.format == 1 && out.region_id == 2 && out.hash_seed == 3 && out.pid == 4 && out.start_time == 5);
}

static void test_open_twice(void **s)
{
    struct fixture *f = *s;
    struct lmdb_index *other = NULL;
    struct lmdb_config c = f->config;
    char path[96];
    assert_int_equal(lmdb_open(&other, &f->config), -EBUSY);
    snprintf(path, sizeof path, "%s/.", f->dir); /* another name of it */
    c.dir = path;
    assert_int_equal(lmdb_open(&other, &c), -EBUSY);
    assert_null(other);
    add(f, "a", 0, 1);
    assert_int_equal(commit(f), 0); /* harmed by none of it */
    assert_int_equal(reopen(f), 0);
    c.dir = "/dev/shm/berth-test-lmdb-is-not-there";
    assert_int_equal(lmdb_open(&other, &c), -ENOENT);
    c.map_bytes = LMDB_MAP_MIN - 1;
    assert_int_equal(lmdb_open(&other, &c), -EINVAL);
}

/* Puts bytes into a table behind the index's back. */
static void inject(struct fixture *f, const char *table, const void *key, size_t key_size, const void *value,
                   size_t value_size)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val k = {key_size, (void *)(uintptr_t)key}, v = {value_size, (void *)(uintptr_t)value};
    lmdb_close(f->ix);
    f->ix = NULL;
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 8);
    mdb_env_set_mapsize(env, 16u << 20);
    assert_int_equal(mdb_env_open(env, f->dir, MDB_NOSYNC, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, table, 0, &dbi), 0);
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void test_damaged_records(void **s)
{
    struct fixture *f = *s;
    add(f, "a", 1, 1);
    add(f, "c", 1, 2);
    assert_int_equal(commit(f), 0);
    inject(f, "objects", "\0\0\0\1b", 5, "short", 5);
    inject(f, "objects", "\0\0\2", 3, "no key", 6);
    char large[2000] = {0};
    inject(f, "objects", "\0\0\0\1d", 5, large, sizeof large);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
    struct record r;
    assert_int_equal(lmdb_ops.get(f->ix, text_key("b", 1), &r), -EBADMSG);
    assert_int_equal(lmdb_ops.get(f->ix, text_key("d", 1), &r), -EBADMSG);
    struct seen list = {.f = f}, all = {.f = f};
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", 0, "", 0, collect, &list), -EBADMSG);
    assert_string_equal(list.text, "1:a ");
    assert_int_equal(lmdb_ops.each(f->ix, collect, &all), 0);
    assert_true(all.undecodable);
    assert_int_equal(all.n, 5);
    assert_int_equal(counter_of(f, "c", 1), 2);
}

static void test_damaged_rows(void **s)
{
    struct fixture *f = *s;
    char text[256] = "";
    struct lmdb_identity id;
    inject(f, "namespaces", "kv", 2, "12345678", 8); /* no NUL */
    inject(f, "sessions", "short", 5, "x", 1);
    inject(f, "meta", "identity", 8, "me", 2);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
    assert_int_equal(lmdb_ops.namespaces(f->ix, one_namespace, text), -EBADMSG);
    assert_int_equal(lmdb_ops.sessions(f->ix, one_session, text), -EBADMSG);
    assert_string_equal(text, "");
    assert_int_equal(lmdb_identity(f->ix, &id), -EBADMSG);
    inject(f, "meta", "counter", 7, "1234", 4);
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    assert_null(f->ix);
}

static void data_path(const struct fixture *f, char path[96])
{
    snprintf(path, 96, "%s/data.mdb", f->dir);
}

static void test_damaged_file(void **s)
{
    struct fixture *f = *s;
    char path[96], junk[8192];
    struct stat st;
    data_path(f, path);
    for (unsigned i = 0; i < 500; i++) {
        snprintf(junk, sizeof junk, "key %u", i);
        add(f, junk, 0, i);
    }
    assert_int_equal(commit(f), 0);
    lmdb_close(f->ix);
    f->ix = NULL;
    assert_int_equal(truncate(path, 5 * 4096), 0); /* cut short: reading on would be SIGBUS */
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 5 * 4096);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    FILE *file = fopen(path, "w");
    memset(junk, 'x', sizeof junk);
    fwrite(junk, sizeof junk, 1, file);
    fclose(file);
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    assert_null(f->ix);
    unlink_files(f);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
}

static void test_allocated_whole(void **s)
{
    struct fixture *f = *s;
    char path[96];
    struct stat data, lock;
    data_path(f, path);
    assert_int_equal(stat(path, &data), 0);
    snprintf(path, sizeof path, "%s/lock.mdb", f->dir);
    assert_int_equal(stat(path, &lock), 0);
    uint64_t allocated = (uint64_t)(data.st_blocks + lock.st_blocks) * 512;
    assert_int_equal(allocated, lmdb_file_bytes(f->config.map_bytes));
    assert_true((uint64_t)data.st_size * 1u > f->config.map_bytes);
    assert_true(lock.st_size <= 16384);
    assert_int_equal(data.st_mode & 0777, 0600);
}

/* More than the file system has, so that its answer does not depend on who else uses it. */
static void test_no_space(void **s)
{
    struct fixture *f = *s;
    char path[96];
    struct stat before, after;
    add(f, "a", 0, 1);
    assert_int_equal(commit(f), 0);
    lmdb_close(f->ix);
    f->ix = NULL;
    data_path(f, path);
    assert_int_equal(stat(path, &before), 0);
    struct lmdb_config c = f->config;
    c.map_bytes = UINT64_C(1) << 44;
    assert_int_equal(lmdb_open(&f->ix, &c), -ENOSPC);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_blocks, after.st_blocks);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
    assert_int_equal(counter_of(f, "a", 0), 1);
    lmdb_close(f->ix);
    f->ix = NULL;
    unlink_files(f);
    assert_int_equal(lmdb_open(&f->ix, &c), -ENOSPC);
    assert_int_equal(rmdir(f->dir), 0); /* nothing was left */
    assert_int_equal(mkdir(f->dir, 0700), 0);
}

/* ---- full maps (case A4) ---- */

#define KEYS 40000u

struct model {
    uint8_t there[KEYS];
    uint32_t n, key_bytes;
};

static struct key_ref model_key(const struct model *m, uint32_t i, char buf[KEY_MAX])
{
    memset(buf, 'k', m->key_bytes);
    uint32_t scattered = (uint32_t)(i * UINT64_C(2654435761)); /* no order of insertion, or pages fill from one end */
    char head[16];
    memcpy(buf, head, (size_t)snprintf(head, sizeof head, "%08x%u", scattered, i));
    return (struct key_ref){.data = buf, .size = m->key_bytes, .ns = 1};
}

/* A batch of up to n puts of absent keys; the model follows if it succeeded. */
static int model_put(struct fixture *f, struct model *m, uint32_t n, uint32_t *put)
{
    static uint32_t keys[KEYS];
    uint32_t count = 0, at = below(KEYS);
    char buf[KEY_MAX];
    for (uint32_t tries = 0; tries < KEYS && count < n; tries++, at = (at + 1) % KEYS) {
        struct record r = {.counter = at, .slot = at, .ready = true};
        if (m->there[at])
            continue;
        assert_int_equal(batch_put(f->b, model_key(m, at, buf), &r), 0);
        keys[count++] = at;
    }
    int rc = commit(f);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        m->there[keys[i]] = 1;
    m->n += rc == 0 ? count : 0;
    *put = count;
    return rc;
}

static void model_delete(struct fixture *f, struct model *m, uint32_t n)
{
    char buf[KEY_MAX];
    for (uint32_t i = 0; i < n && m->n > 0; i++) {
        uint32_t at = below(KEYS);
        while (!m->there[at])
            at = (at + 1) % KEYS;
        assert_int_equal(batch_delete(f->b, model_key(m, at, buf)), 0);
        m->there[at] = 0;
        m->n--;
    }
    batch_meta(f->b, META_COUNTER, state);
    assert_int_equal(commit(f), 0);
}

static void model_check(struct fixture *f, const struct model *m)
{
    char buf[KEY_MAX];
    struct index_usage u;
    lmdb_ops.usage(f->ix, &u);
    assert_int_equal(u.records, m->n);
    for (uint32_t i = 0; i < KEYS; i++) {
        struct record r;
        int rc = lmdb_ops.get(f->ix, model_key(m, i, buf), &r);
        assert_int_equal(rc, m->there[i] ? 0 : -ENOENT);
        if (rc == 0)
            assert_int_equal(r.counter, i);
    }
}

static uint32_t fill(struct fixture *f, struct model *m, uint32_t batch)
{
    uint32_t put = 1, refused = 0;
    for (; batch > 0; batch /= 2) {
        int rc = 0;
        while (rc == 0 && put > 0)
            rc = model_put(f, m, batch, &put);
        assert_true(put > 0); /* more keys than the map takes */
        assert_int_equal(rc, -ENOSPC);
        refused++;
    }
    return refused;
}

static void full_rounds(struct fixture *f, uint32_t key_bytes, unsigned rounds)
{
    struct model *m = calloc(1, sizeof *m);
    uint32_t sizes[] = {1, 7, 64, 100, 256, 1024}, put;
    m->key_bytes = key_bytes;
    for (unsigned round = 0; round < rounds; round++) {
        fill(f, m, sizes[below(6)]);
        if (round == 0)
            model_check(f, m);
        uint32_t deletes = sizes[below(6)];
        for (unsigned i = below(8); i > 0; i--)
            model_delete(f, m, deletes);
        if (below(8) == 0)
            assert_int_equal(reopen(f), 0);
    }
    model_check(f, m);
    fill(f, m, 256);
    model_delete(f, m, m->n); /* one batch, far beyond the reserve */
    model_check(f, m);
    assert_int_equal(model_put(f, m, 64, &put), 0);
    fill(f, m, 64);
    uint32_t full = m->n;
    f->config.map_bytes *= 4;
    assert_int_equal(reopen(f), 0);
    model_check(f, m);
    fill(f, m, 100);
    assert_true(m->n > full * 3);
    f->config.map_bytes /= 4; /* smaller than what is in use: all of it stays, deletes work, puts do after them */
    assert_int_equal(reopen(f), 0);
    model_check(f, m);
    assert_int_equal(model_put(f, m, 1, &put), -ENOSPC);
    while (m->n > full / 8) /* pages may be a quarter full */
        model_delete(f, m, 100);
    assert_int_equal(model_put(f, m, 1, &put), 0);
    model_check(f, m);
    free(m);
}

static void reopen_smallest(struct fixture *f, bool writemap)
{
    lmdb_close(f->ix);
    f->ix = NULL;
    unlink_files(f);
    f->config.map_bytes = LMDB_MAP_MIN;
    f->config.writemap = writemap;
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
}

static void test_full_200(void **s)
{
    reopen_smallest(*s, true);
    full_rounds(*s, 200, 150);
}

static void test_full_480(void **s)
{
    reopen_smallest(*s, true);
    full_rounds(*s, KEY_MAX, 150);
}

static void test_full_32(void **s)
{
    reopen_smallest(*s, false);
    full_rounds(*s, 32, 60);
}

/* A map of which the reserve is a small part, and batches that touch more pages than it has. */
static void test_full_large(void **s)
{
    struct fixture *f = *s;
    struct model *m = calloc(1, sizeof *m);
    lmdb_close(f->ix);
    f->ix = NULL;
    unlink_files(f);
    f->config.map_bytes = 12u << 20;
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
    m->key_bytes = KEY_MAX;
    for (unsigned round = 0; round < 8; round++) {
        fill(f, m, 1024);
        for (unsigned i = 0; i < 4; i++)
            model_delete(f, m, 1024);
    }
    fill(f, m, 1);
    model_delete(f, m, m->n / 2);
    model_check(f, m);
    free(m);
}

/* ---- a killed writer ---- */

#define GROUP 16u

static void add_group(struct batch *b, uint32_t round)
{
    char text[32];
    struct record r = {.counter = round, .slot = 1, .ready = true};
    for (uint32_t i = 0; i < GROUP; i++) {
        snprintf(text, sizeof text, "%u of %u", i, round % 500);
        (void)batch_put(b, text_key(text, 1), &r);
    }
    (void)batch_meta(b, META_COUNTER, round);
}

static void commit_until_killed(struct fixture *f, int pipe_fd)
{
    struct lmdb_index *ix;
    if (lmdb_open(&ix, &f->config) != 0)
        _exit(1);
    for (uint32_t round = (uint32_t)lmdb_ops.meta(ix, META_COUNTER) + 1;; round++) {
        batch_clear(f->b);
        add_group(f->b, round);
        if (lmdb_ops.commit(ix, f->b) != 0 || write(pipe_fd, &round, sizeof round) != sizeof round)
            _exit(1);
    }
}

static uint32_t kill_after(struct fixture *f, uint32_t commits)
{
    int fds[2];
    uint32_t round = 0, last = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        commit_until_killed(f, fds[1]);
    close(fds[1]);
    for (uint32_t i = 0; i < commits && read(fds[0], &round, sizeof round) == sizeof round; i++)
        last = round;
    kill(pid, SIGKILL);
    while (read(fds[0], &round, sizeof round) == sizeof round)
        last = round;
    close(fds[0]);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    return last;
}

static void check_groups(struct fixture *f, uint32_t acknowledged)
{
    uint32_t last = (uint32_t)lmdb_ops.meta(f->ix, META_COUNTER);
    assert_true(last == acknowledged || last == acknowledged + 1);
    for (uint32_t round = last; round > 0 && round + 500 > last; round--) {
        for (uint32_t i = 0; i < GROUP; i++) {
            char text[32];
            snprintf(text, sizeof text, "%u of %u", i, round % 500);
            assert_int_equal(counter_of(f, text, 1), round);
        }
    }
}

static void killed_rounds(struct fixture *f)
{
    for (unsigned i = 0; i < 20; i++) {
        lmdb_close(f->ix);
        f->ix = NULL;
        uint32_t acknowledged = kill_after(f, 1 + below(200));
        assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
        check_groups(f, acknowledged);
        batch_clear(f->b);
        add_group(f->b, (uint32_t)lmdb_ops.meta(f->ix, META_COUNTER) + 1);
        assert_int_equal(commit(f), 0);
    }
}

static void test_killed_writer(void **s)
{
    struct fixture *f = *s;
    killed_rounds(f);
    reopen_smallest(f, false);
    f->config.map_bytes = 4u << 20;
    assert_int_equal(reopen(f), 0);
    killed_rounds(f);
}

/* ---- a thread that commits while this one reads ---- */

struct committer {
    struct fixture *f;
    sem_t go, done;
    uint32_t rounds;
    int rc;
};

static void *commit_groups(void *arg)
{
    struct committer *c = arg;
    struct batch *b = batch_create();
    for (uint32_t round = 1; round <= c->rounds; round++) {
        sem_wait(&c->go);
        batch_clear(b);
        add_group(b, round * 500); /* always the same keys */
        c->rc = c->rc ? c->rc : lmdb_ops.commit(c->f->ix, b);
        sem_post(&c->done);
    }
    batch_destroy(b);
    return NULL;
}

static int same_counter(void *arg, struct key_ref key, const struct record *r)
{
    uint64_t *counter = arg;
    (void)key;
    if (*counter != 0 && r->counter != *counter)
        return 1;
    *counter = r->counter;
    return 0;
}

/* The core starts a commit and reads meanwhile: it sees the state before or after, never a part, and no snapshot of its
 * stays behind, which would fill the smallest map at once. */
static void read_beside(struct fixture *f, uint64_t before)
{
    uint64_t counter = 0, single;
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", 0, "", 0, same_counter, &counter), 0);
    assert_true(counter == before || counter == before + 500);
    single = counter_of(f, "3 of 0", 1);
    assert_true(single == before + 500 || (single == before && counter == before)
                || (single == ABSENT && before == 0 && counter == 0));
    struct index_usage u;
    lmdb_ops.usage(f->ix, &u);
    assert_true(u.records == GROUP || (u.records == 0 && before == 0));
}

static void test_reads_beside_commits(void **s)
{
    struct fixture *f = *s;
    struct committer c = {.f = f, .rounds = 4000};
    pthread_t thread;
    reopen_smallest(f, true);
    assert_int_equal(sem_init(&c.go, 0, 0), 0);
    assert_int_equal(sem_init(&c.done, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, commit_groups, &c), 0);
    for (uint32_t round = 1; round <= c.rounds; round++) {
        sem_post(&c.go);
        read_beside(f, (round - 1) * 500);
        sem_wait(&c.done);
        assert_int_equal(c.rc, 0);
        assert_int_equal(counter_of(f, "3 of 0", 1), round * 500);
    }
    pthread_join(thread, NULL);
    sem_destroy(&c.go);
    sem_destroy(&c.done);
}

int main(void)
{
    const char *given = getenv("BERTH_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    state = seed | 1;
    printf("seed %llu\n", (unsigned long long)seed);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_put_get_delete),  TEST(test_list),         TEST(test_other_tables),
        TEST(test_identity),        TEST(test_open_twice),   TEST(test_damaged_records),
        TEST(test_damaged_rows),    TEST(test_damaged_file), TEST(test_allocated_whole),
        TEST(test_no_space),        TEST(test_full_200),     TEST(test_full_480),
        TEST(test_full_32),         TEST(test_full_large),   TEST(test_killed_writer),
        TEST(test_reads_beside_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
