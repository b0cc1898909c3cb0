/* The walk ahead of a transaction: it finds every key, and goes nowhere else in a tree that is damaged. */
#include "tests/support/draw.h"
#include "tests/support/index_dir.h"
#include "index/lmdb_ahead.h"
#include "index/lmdb_page.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define RECORDS 20000u /* of 200 bytes and more: a tree of four levels */
#define BATCH 200u     /* three turns of lanes, and some that are left */

static struct key_ref key_of(uint32_t i, char buf[KEY_MAX])
{
    uint32_t size = 150 + i % 100, scattered = (uint32_t)(i * UINT64_C(2654435761));
    char head[16];
    memset(buf, 'k', size);
    memcpy(buf, head, (size_t)snprintf(head, sizeof head, "%08x", scattered));
    return (struct key_ref){.data = buf, .size = size, .ns = 1};
}

static void put(struct index_dir *f, uint32_t i)
{
    char buf[KEY_MAX];
    struct record r = {.counter = i, .slot = i, .ready = true};
    assert_int_equal(batch_put(f->b, key_of(i, buf), &r), 0);
}

static void fill(struct index_dir *f)
{
    f->config.map_bytes = 16u << 20;
    assert_int_equal(index_reopen(f), 0);
    f->ix->ahead_least = 0;
    for (uint32_t i = 0; i < RECORDS;) {
        for (uint32_t n = 0; n < 1000; n++)
            put(f, i++);
        assert_int_equal(index_commit(f), 0);
    }
}

static uint32_t ahead(struct index_dir *f, uint32_t from, uint32_t to)
{
    MDB_txn *txn;
    assert_int_equal(mdb_txn_begin(f->ix->env, NULL, 0, &txn), 0);
    uint32_t found = lmdb_ahead(f->ix, txn, f->b, from, to);
    mdb_txn_abort(txn);
    return found;
}

/* Puts and deletes of keys that are there and that are not, and what is of no object. How many there are. */
static uint32_t mixed_batch(struct index_dir *f)
{
    char buf[KEY_MAX];
    uint32_t there = 0;
    batch_clear(f->b);
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t at = draw_below(2 * RECORDS);
        there += i % 50 != 49 && at < RECORDS;
        if (i % 50 == 49)
            assert_int_equal(batch_meta(f->b, META_COUNTER, i), 0);
        else if (i % 3 == 0)
            assert_int_equal(batch_delete(f->b, key_of(at, buf)), 0);
        else
            put(f, at);
    }
    return there;
}

static void test_finds_all(void **s)
{
    struct index_dir *f = *s;
    fill(f);
    uint32_t there = mixed_batch(f);
    assert_int_equal(ahead(f, 0, BATCH), there);
    assert_int_equal(ahead(f, 0, 3), 0); /* too few */
    f->ix->ahead_least = LMDB_AHEAD_LEAST;
    assert_int_equal(ahead(f, 0, BATCH), 0); /* too small a tree */
    f->ix->ahead_least = 0;
    batch_clear(f->b);
    for (uint32_t i = 0; i < BATCH; i++)
        put(f, i);
    assert_int_equal(ahead(f, 0, BATCH), BATCH);
    assert_int_equal(ahead(f, 10, 20), 10);
}

static void test_nothing_there(void **s)
{
    struct index_dir *f = *s;
    f->ix->ahead_least = 0;
    (void)mixed_batch(f);
    assert_int_equal(ahead(f, 0, BATCH), 0);
}

static uint64_t table_page(struct index_dir *f, MDB_txn *txn)
{
    MDB_val key = {.mv_size = sizeof LMDB_OBJECTS_NAME - 1, .mv_data = LMDB_OBJECTS_NAME}, value;
    uint64_t number;
    assert_int_equal(mdb_get(txn, LMDB_MAIN_DBI, &key, &value), 0);
    memcpy(&number, (uint8_t *)value.mv_data - (uintptr_t)value.mv_data % f->ix->page_bytes, sizeof number);
    return number;
}

/* Where a branch page leads is damaged in particular, else any of the heads, offsets and nodes. */
static void scribble(struct index_dir *f, int fd, uint64_t spare, uint64_t pages)
{
    uint8_t page[4096];
    for (unsigned i = 0; i < 4000; i++) {
        uint64_t number = FIRST_PAGE + draw_below((uint32_t)(pages - FIRST_PAGE));
        uint64_t word = draw_below(4) ? draw_below(UINT32_MAX) : UINT64_MAX;
        off_t begin = (off_t)(number * f->ix->page_bytes);
        struct page_header h;
        assert_int_equal(pread(fd, page, sizeof page, begin), sizeof page);
        memcpy(&h, page, sizeof h);
        uint32_t at = draw_below(2) ? draw_below(64) : draw_below(sizeof page - sizeof word);
        if (h.flags == PAGE_BRANCH && node_count(&h) > 0 && node_count(&h) < 1000)
            at = node_offset(page, draw_below(node_count(&h))) % (sizeof page - sizeof word);
        size_t bytes = h.flags == PAGE_BRANCH ? offsetof(struct node_header, key_bytes) : sizeof word;
        if (number != spare)
            assert_int_equal(pwrite(fd, &word, bytes, begin + at), bytes);
    }
}

static void test_damaged(void **s)
{
    struct index_dir *f = *s;
    char path[96];
    MDB_txn *txn;
    MDB_envinfo info;
    fill(f);
    uint32_t there = mixed_batch(f), less = 0;
    snprintf(path, sizeof path, "%s/data.mdb", f->dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(mdb_env_info(f->ix->env, &info), 0);
    for (unsigned round = 0; round < 20; round++) {
        assert_int_equal(mdb_txn_begin(f->ix->env, NULL, 0, &txn), 0);
        scribble(f, fd, table_page(f, txn), info.me_last_pgno + 1);
        uint32_t found = lmdb_ahead(f->ix, txn, f->b, 0, BATCH);
        assert_true(found <= there);
        less += found < there;
        mdb_txn_abort(txn);
    }
    assert_true(less > 0);
    close(fd);
}

int main(void)
{
    (void)draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_setup, index_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_finds_all),
        TEST(test_nothing_there),
        TEST(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
