/* The index in LMDB: what it keeps, that it believes nothing damaged, and that it takes its space or says so. */
#include "store/map.h"
#include "tests/support/index_dir.h"

#include <errno.h>
#include <lmdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void test_put_get_delete(void **s)
{
    struct index_dir *f = *s;
    assert_int_equal(index_commit(f), 0); /* an empty batch */
    index_add(f, "a", 0, 1);
    index_add(f, "b", 0, 2);
    index_add(f, "a", 1, 3);
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(index_counter(f, "a", 0), 1);
    assert_int_equal(index_counter(f, "b", 0), 2);
    assert_int_equal(index_counter(f, "a", 1), 3);
    assert_int_equal(index_counter(f, "b", 1), INDEX_ABSENT);
    batch_delete(f->b, index_key("a", 0));
    batch_delete(f->b, index_key("never", 0));
    index_add(f, "b", 0, 4);
    index_add(f, "c", 0, 5);
    batch_delete(f->b, index_key("c", 0)); /* operations on one key keep their order */
    batch_delete(f->b, index_key("d", 0));
    index_add(f, "d", 0, 6);
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(index_counter(f, "a", 0), INDEX_ABSENT);
    assert_int_equal(index_counter(f, "b", 0), 4);
    assert_int_equal(index_counter(f, "c", 0), INDEX_ABSENT);
    assert_int_equal(index_counter(f, "d", 0), 6);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(index_counter(f, "b", 0), 4);
    struct index_usage u;
    lmdb_ops.usage(f->ix, &u);
    assert_int_equal(u.records, 3);
    assert_int_equal(u.map_bytes, 4u << 20);
    assert_true(u.used_bytes >= 5 * 4096 && u.used_bytes <= 32 * 4096);
    struct record r;
    assert_int_equal(lmdb_ops.get(f->ix, (struct key_ref){"", 0, 0}, &r), -ENOENT);
}

struct seen {
    struct index_dir *f;
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

static void expect_list(struct index_dir *f, uint32_t ns, const char *prefix, const char *after, const char *expected)
{
    struct seen s = {.f = f};
    assert_int_equal(
        lmdb_ops.list(f->ix, ns, prefix, (uint32_t)strlen(prefix), after, (uint32_t)strlen(after), collect, &s), 0);
    assert_string_equal(s.text, expected);
}

static void test_list(void **s)
{
    struct index_dir *f = *s;
    static const char *const keys[] = {"ab", "a", "abc", "b", "ac", "aba"};
    expect_list(f, 1, "", "", "");
    for (unsigned i = 0; i < 6; i++)
        index_add(f, keys[i], 1, i);
    index_add(f, "ab", 0, 7);
    index_add(f, "ab", 256, 8);
    assert_int_equal(index_commit(f), 0);
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
    struct index_dir *f = *s;
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
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(index_reopen(f), 0);
    for (unsigned i = 0; i < META_NUMBERS; i++)
        assert_true(lmdb_ops.meta(f->ix, (enum meta_number)i) == UINT64_MAX - i);
    char text[256] = "";
    assert_int_equal(lmdb_ops.namespaces(f->ix, one_namespace, text), 0);
    assert_string_equal(text, "=0/0 kv=1/2 ");
    text[0] = 0;
    assert_int_equal(lmdb_ops.sessions(f->ix, one_session, text), 0);
    assert_string_equal(text, "2=5/6/7/8/n 300=5/6/7/8/n ");
}

/* Puts bytes into a table behind the index's back. */
static void inject(struct index_dir *f, const char *table, const void *key, size_t key_size, const void *value,
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

static int one_tombstone(void *arg, struct key_ref key, const struct tombstone_row *row)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 256 - used, "%u:%.*s=%llu/%d/%d ", key.ns, (int)key.size, (const char *)key.data,
             (unsigned long long)row->counter, row->known, row->taken);
    return 0;
}

static void test_tombstones(void **s)
{
    struct index_dir *f = *s;
    struct key_ref a = {.data = "a", .size = 1, .ns = 7}, b = {.data = "b", .size = 1, .ns = 7};
    char text[256] = "";
    batch_tombstone(f->b, b, &(struct tombstone_row){.counter = 5});
    batch_tombstone(f->b, a, &(struct tombstone_row){.counter = 6, .known = true, .taken = true});
    batch_tombstone(f->b, b, &(struct tombstone_row){.counter = 9});
    batch_end_tombstone(f->b, (struct key_ref){.data = "c", .size = 1});
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(lmdb_ops.tombstones(f->ix, one_tombstone, text), 0);
    assert_string_equal(text, "7:a=6/1/1 7:b=9/0/0 ");
    text[0] = 0;
    batch_end_tombstone(f->b, a);
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(lmdb_ops.tombstones(f->ix, one_tombstone, text), 0);
    assert_string_equal(text, "7:b=9/0/0 ");
    struct record r;
    assert_int_equal(lmdb_ops.get(f->ix, b, &r), -ENOENT); /* it is no object */
    inject(f, "tombstones", "\0\0\0\7x", 5, "123", 3);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(lmdb_ops.tombstones(f->ix, one_tombstone, text), -EBADMSG);
}

static int one_purge(void *arg, const struct purge_row *row)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 256 - used, "%llu:%u/%u/%llu/%.*s ", (unsigned long long)row->counter, row->kind,
             row->ns, (unsigned long long)row->lineage, (int)row->prefix_size, (const char *)row->prefix);
    return 0;
}

/* In the table of meta, and no number there is taken for one; a row that says more than one kind can is refused. */
static void test_purges(void **s)
{
    struct index_dir *f = *s;
    char text[256] = "";
    struct purge_row prefix = {.counter = 300, .kind = PURGE_PREFIX, .ns = 7, .prefix_size = 2, .prefix = "ab"};
    batch_purge(f->b, &prefix);
    batch_purge(f->b, &(struct purge_row){.counter = 5, .kind = PURGE_LINEAGE, .lineage = 9});
    batch_purge(f->b, &(struct purge_row){.counter = UINT64_MAX, .kind = PURGE_NAMESPACE});
    batch_meta(f->b, META_COUNTER, 17);
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(lmdb_ops.purges(f->ix, one_purge, text), 0);
    assert_string_equal(text, "5:1/0/9/ 300:3/7/0/ab 18446744073709551615:2/0/0/ ");
    assert_int_equal(lmdb_ops.meta(f->ix, META_COUNTER), 17);
    text[0] = 0;
    batch_end_purge(f->b, 300);
    batch_end_purge(f->b, 301);
    assert_int_equal(index_commit(f), 0);
    assert_int_equal(lmdb_ops.purges(f->ix, one_purge, text), 0);
    assert_string_equal(text, "5:1/0/9/ 18446744073709551615:2/0/0/ ");
    static const uint8_t bad[][20] = {
        {0},                                                   /* no kind */
        {4},                                                   /* none that is known */
        {1},                                                   /* a lineage that is none */
        {2, 0, 0, 0, 0, 0, 0, 0, 1},                           /* a namespace with a lineage */
        {3},                                                   /* no prefix */
        {1, 0, 0, 0, 1, 0, 0, 0, 1},                           /* a lineage in a namespace */
        {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'a'}, /* a namespace with a prefix */
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        inject(f, "meta", "purge:\0\0\0\0\0\0\0\1", 14, bad[i], i == 6 ? 17 : 16);
        assert_int_equal(index_reopen(f), 0);
        assert_int_equal(lmdb_ops.purges(f->ix, one_purge, text), -EBADMSG);
    }
    inject(f, "meta", "purge:\0\0\0\0\0\0\0\1", 14, bad[1], 15);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(lmdb_ops.purges(f->ix, one_purge, text), -EBADMSG);
}

static void test_identity(void **s)
{
    struct index_dir *f = *s;
    struct lmdb_identity id = {.uuid = "0123456789abcde",
                               .boot_id = "fedcba987654321",
                               .format = 1,
                               .region_id = 2,
                               .hash_seed = 3,
                               .pid = 4,
                               .start_time = 5};
    struct lmdb_identity out;
    assert_int_equal(lmdb_identity(f->ix, &out), -ENOENT);
    assert_int_equal(lmdb_identify(f->ix, &id), 0);
    assert_int_equal(index_reopen(f), 0);
    assert_int_equal(lmdb_identity(f->ix, &out), 0);
    assert_memory_equal(out.uuid, id.uuid, 16);
    assert_memory_equal(out.boot_id, id.boot_id, 16);
    assert_true(out.format == 1 && out.region_id == 2 && out.hash_seed == 3 && out.pid == 4 && out.start_time == 5);
}

static void test_open_twice(void **s)
{
    struct index_dir *f = *s;
    struct lmdb_index *other = NULL;
    struct lmdb_config c = f->config;
    char path[96];
    assert_int_equal(lmdb_open(&other, &f->config), -EBUSY);
    snprintf(path, sizeof path, "%s/.", f->dir); /* another name of it */
    c.dir = path;
    assert_int_equal(lmdb_open(&other, &c), -EBUSY);
    assert_null(other);
    index_add(f, "a", 0, 1);
    assert_int_equal(index_commit(f), 0); /* harmed by none of it */
    assert_int_equal(index_reopen(f), 0);
    c.dir = "/dev/shm/berth-test-lmdb-is-not-there";
    assert_int_equal(lmdb_open(&other, &c), -ENOENT);
    c.map_bytes = LMDB_MAP_MIN - 1;
    assert_int_equal(lmdb_open(&other, &c), -EINVAL);
}

static void test_damaged_records(void **s)
{
    struct index_dir *f = *s;
    index_add(f, "a", 1, 1);
    index_add(f, "c", 1, 2);
    assert_int_equal(index_commit(f), 0);
    inject(f, "objects", "\0\0\0\1b", 5, "short", 5);
    inject(f, "objects", "\0\0\2", 3, "no key", 6);
    char large[2000] = {0};
    inject(f, "objects", "\0\0\0\1d", 5, large, sizeof large);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
    struct record r;
    assert_int_equal(lmdb_ops.get(f->ix, index_key("b", 1), &r), -EBADMSG);
    assert_int_equal(lmdb_ops.get(f->ix, index_key("d", 1), &r), -EBADMSG);
    struct seen list = {.f = f}, all = {.f = f};
    assert_int_equal(lmdb_ops.list(f->ix, 1, "", 0, "", 0, collect, &list), -EBADMSG);
    assert_string_equal(list.text, "1:a ");
    assert_int_equal(lmdb_ops.each(f->ix, collect, &all), 0);
    assert_true(all.undecodable);
    assert_int_equal(all.n, 5);
    assert_int_equal(index_counter(f, "c", 1), 2);
}

static void test_damaged_rows(void **s)
{
    struct index_dir *f = *s;
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

static void data_path(const struct index_dir *f, char path[96])
{
    snprintf(path, 96, "%s/data.mdb", f->dir);
}

static off_t used_bytes(const struct index_dir *f)
{
    MDB_env *env;
    MDB_envinfo info;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, f->dir, MDB_NOSYNC, 0600), 0);
    assert_int_equal(mdb_env_info(env, &info), 0);
    mdb_env_close(env);
    return (off_t)(info.me_last_pgno + 1) * 4096;
}

static void test_damaged_file(void **s)
{
    struct index_dir *f = *s;
    char path[96], junk[8192];
    struct stat st;
    data_path(f, path);
    for (unsigned i = 0; i < 500; i++) {
        snprintf(junk, sizeof junk, "key %u", i);
        index_add(f, junk, 0, i);
    }
    assert_int_equal(index_commit(f), 0);
    lmdb_close(f->ix);
    f->ix = NULL;
    off_t used = used_bytes(f);
    assert_int_equal(truncate(path, used - 4096), 0); /* cut short: reading on would be SIGBUS, or zeros */
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, used - 4096);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    FILE *file = fopen(path, "w");
    memset(junk, 'x', sizeof junk);
    fwrite(junk, sizeof junk, 1, file);
    fclose(file);
    assert_int_equal(lmdb_open(&f->ix, &f->config), -EBADMSG);
    assert_null(f->ix);
    index_unlink(f);
    assert_int_equal(lmdb_open(&f->ix, &f->config), 0);
}

static void test_allocated_whole(void **s)
{
    struct index_dir *f = *s;
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
    struct index_dir *f = *s;
    char path[96];
    struct stat before, after;
    index_add(f, "a", 0, 1);
    assert_int_equal(index_commit(f), 0);
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
    assert_int_equal(index_counter(f, "a", 0), 1);
    lmdb_close(f->ix);
    f->ix = NULL;
    index_unlink(f);
    assert_int_equal(lmdb_open(&f->ix, &c), -ENOSPC);
    assert_int_equal(rmdir(f->dir), 0); /* nothing was left */
    assert_int_equal(mkdir(f->dir, 0700), 0);
}

/* Its first address, as the process has it; 0: there is none. */
static uintptr_t mapped_at(const char *dir)
{
    char line[512], name[96];
    unsigned long at = 0, found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    snprintf(name, sizeof name, "%s/data.mdb", dir);
    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, name) && sscanf(line, "%lx", &at) == 1 && !found)
            found = at;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* LMDB has no say in where its map is, and without a multiple of 2 MiB no huge page of the file could be mapped. */
static void test_map_fits_huge_pages(void **s)
{
    struct index_dir *f = *s;
    f->config.map_bytes = 64u << 20;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(index_reopen(f), 0);
        uintptr_t at = mapped_at(f->dir);
        assert_true(at != 0);
        assert_int_equal(at % HUGE_BYTES, 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_setup, index_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_put_get_delete),
        TEST(test_list),
        TEST(test_other_tables),
        TEST(test_tombstones),
        TEST(test_purges),
        TEST(test_identity),
        TEST(test_open_twice),
        TEST(test_damaged_records),
        TEST(test_damaged_rows),
        TEST(test_damaged_file),
        TEST(test_allocated_whole),
        TEST(test_no_space),
        TEST(test_map_fits_huge_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
