/* test_slab_recover.c: directories and headers that are damaged at random or contradict themselves in one way each. */
#include "store/slot.h"
#include "tests/support/slab_pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

/* Whatever a directory says: no crash, no overlap, every invariant, and slabs whose entries are whole keep their
 * slots. */
static void damage_one(uint64_t bytes, uint64_t mr, uint32_t headers)
{
    struct pool p;
    pool_open(&p, bytes, mr, headers);
    live(&p, 150, 50);
    uint32_t n_units = (uint32_t)(bytes / UNIT_BYTES), entry = (uint32_t)below(n_units);
    unsigned times = 1 + (unsigned)below(3);
    for (unsigned i = 0; i < times; i++) {
        uint8_t *at = (uint8_t *)&p.config.dir[entry];
        if (below(4) == 0)
            p.config.dir[entry] = p.config.dir[below(n_units)];
        else
            at[below(12)] = (uint8_t)pool_draw();
        if (below(3) == 0)
            entry = (uint32_t)below(n_units);
        if (below(3) == 0 && p.n_live > 0)
            p.config.headers[p.live[below(p.n_live)]].page = (uint32_t)pool_draw();
    }
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p.config), 0);
    slabs_recover(again);
    slabs_destroy(p.slabs);
    p.slabs = again;
    prove(&p);
    memset(p.owner, 0, pool_pages(&p) * sizeof *p.owner);
    p.n_live = 0;
    uint64_t cursor = 0;
    for (uint32_t slot; (slot = slabs_next(again, &cursor)) != SLOT_NONE;) {
        uint32_t page = p.config.headers[slot].page;
        for (uint32_t i = 0; i < slabs_slot_pages(again, slot); i++) {
            assert_int_equal(p.owner[page + i], 0);
            p.owner[page + i] = slot + 1;
        }
        p.place[slot] = p.n_live;
        p.live[p.n_live++] = slot;
    }
    live(&p, 60, 1);
    pool_close(&p);
}

static void recover_damaged(void **unused)
{
    (void)unused;
    for (int i = 0; i < 150; i++) {
        damage_one(64 * MIB, 64 * MIB, 16384);
        damage_one(82 * MIB, 10 * MIB, 4000);
    }
}

static void recover_drops(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    take(&p, 1);
    take(&p, 512);
    take(&p, 1024);
    uint64_t word = slot_load(&p.config.headers[p.live[2]]);
    p.config.dir[2].units = 40; /* the run of two units would leave the pool */
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p.config), 0);
    assert_int_equal(slabs_recover(again), 1);
    assert_null(slabs_check(again));
    assert_true(slabs_is_slot(again, p.live[0]) && slabs_is_slot(again, p.live[1]));
    assert_false(slabs_is_slot(again, p.live[2]));
    assert_int_equal(p.config.dir[2].kind, UNIT_FREE);
    uint32_t slot = slabs_alloc(again, 1024, NULL);
    assert_int_equal(slot, p.live[2]);
    assert_int_equal(slot_load(&p.config.headers[slot]), slot_word(word_gen(word) + 1, SLOT_FREE));
    slabs_destroy(again);
    pool_close(&p);
}

enum field { HEADER, PAGES, UNITS, POOL, KIND };

/* Unit 0 is a slab of one unit, 1 a run of one, 2 a run of two; lines with one `how` go together. */
static const struct {
    unsigned how, unit;
    enum field field;
    uint32_t value;
} wrecks[] = {
    {0, 0, PAGES, 0},       {1, 0, PAGES, 513},       {2, 0, HEADER, 16383}, {3, 0, HEADER, UINT32_MAX},
    {4, 0, POOL, 1},        {5, 0, UNITS, 0},         {6, 0, UNITS, 3},      {7, 0, KIND, 77},
    {8, 0, KIND, UNIT_RUN}, {9, 2, UNITS, 1},         {10, 2, UNITS, 40},    {11, 2, KIND, UNIT_SLAB},
    {11, 2, PAGES, 1},      {12, 3, KIND, UNIT_FREE}, {13, 2, UNITS, 3}, /* across two MRs */
    {13, 2, PAGES, 1536},   {13, 4, KIND, UNIT_BODY},
};
#define WRECKS 14u

static void wreck(struct slab_entry *dir, unsigned how)
{
    for (unsigned i = 0; i < sizeof wrecks / sizeof *wrecks; i++) {
        struct slab_entry *e = &dir[wrecks[i].unit];
        uint32_t value = wrecks[i].value;
        if (wrecks[i].how != how)
            continue;
        e->header = wrecks[i].field == HEADER ? value : e->header;
        e->slot_pages = wrecks[i].field == PAGES ? value : e->slot_pages;
        e->units = wrecks[i].field == UNITS ? (uint16_t)value : e->units;
        e->pool = wrecks[i].field == POOL ? (uint8_t)value : e->pool;
        e->kind = wrecks[i].field == KIND ? (uint8_t)value : e->kind;
    }
}

static void recover_contradictions(void **unused)
{
    (void)unused;
    for (unsigned how = 0; how < WRECKS; how++) {
        struct pool p;
        struct slabs *again;
        pool_open(&p, 64 * MIB, 8 * MIB, 16384);
        take(&p, 1);
        take(&p, 512);
        take(&p, 1024);
        wreck(p.config.dir, how);
        assert_int_equal(slabs_create(&again, &p.config), 0);
        assert_int_equal(slabs_recover(again), 1);
        assert_null(slabs_check(again));
        assert_int_equal(slabs_is_slot(again, p.live[0]), how > 8);
        assert_true(slabs_is_slot(again, p.live[1]));
        assert_int_equal(slabs_is_slot(again, p.live[2]), how <= 8);
        slabs_destroy(again);
        pool_close(&p);
    }
}

/* A node killed between the last slot's FREE and the directory leaves a slab without a used slot. */
static void recover_empty_slab(void **unused)
{
    (void)unused;
    struct pool p;
    struct slabs *again;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    take(&p, 1);
    slot_store(&p.config.headers[p.live[0]], 1, SLOT_FREE);
    assert_int_equal(slabs_create(&again, &p.config), 0);
    assert_int_equal(slabs_recover(again), 0);
    assert_null(slabs_check(again));
    struct slabs_usage u;
    slabs_usage(again, &u);
    assert_int_equal(u.free_units, 32);
    assert_int_equal(u.largest_bytes, 64 * MIB);
    slabs_destroy(again);
    pool_close(&p);
}

int main(void)
{
    pool_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recover_damaged),
        cmocka_unit_test(recover_drops),
        cmocka_unit_test(recover_contradictions),
        cmocka_unit_test(recover_empty_slab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
