/* test_slab_learn.c: classes that follow the sizes of objects: what they spare, what they are bounded by, how they go
 * and come back. */
#include "store/slot.h"
#include "tests/support/slab_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CLASSES 128u

/* The pool without configured classes: what is learned stands alone. */
static void open_plain(struct pool *p, uint64_t bytes, uint32_t headers)
{
    pool_open(p, bytes, 1024 * MIB, headers);
    slabs_destroy(p->slabs);
    p->config.n_classes = 0;
    assert_int_equal(slabs_create(&p->slabs, &p->config), 0);
}

/* As the core does it; where there is no room objects go, whichever. The slot. */
static uint32_t put_one(struct pool *p, uint64_t size, unsigned *changes)
{
    bool changed = slabs_learn(p->slabs, true);
    *changes += changed;
    if (changed)
        prove(p);
    uint32_t pages = slabs_pages_for(p->slabs, size), slot;
    while ((slot = take(p, pages)) == SLOT_NONE) {
        assert_true(p->n_live > 0);
        give(p, (uint32_t)below(p->n_live));
    }
    slabs_saw(p->slabs, size);
    return slot;
}

static unsigned learned(const struct pool *p)
{
    struct slabs_class c[CLASSES];
    unsigned n = 0, found = slabs_classes(p->slabs, c, CLASSES);
    for (unsigned i = 0; i < found; i++)
        n += c[i].learned;
    return n;
}

static bool is_learned(const struct pool *p, uint64_t bytes)
{
    struct slabs_class c[CLASSES];
    unsigned found = slabs_classes(p->slabs, c, CLASSES);
    for (unsigned i = 0; i < found; i++)
        if (c[i].bytes == bytes)
            return c[i].learned;
    return false;
}

/* Multiples of 4 KiB, or from 256 KiB on any. */
static uint64_t draw_size(void)
{
    uint64_t size = 1 + below(UINT64_C(1) << (12 + below(10)));
    return size >= 256 * 1024 ? size : (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Of 20 puts' bytes 19 are of the eight sizes, each with as many bytes. */
static uint64_t draw_load(const uint64_t size[8])
{
    static double debt[9]; /* bytes that are to come */
    unsigned most = 0;
    for (unsigned i = 0; i < 9; i++)
        most = debt[i] > debt[most] ? i : most;
    uint64_t s = most < 8 ? size[most] : 1 + below(MIB);
    for (unsigned i = 0; i < 9; i++)
        debt[i] += (double)s * (i < 8 ? 0.95 / 8 : 0.05);
    debt[most] -= (double)s;
    return s;
}

/* Shares of bytes of the slots that are no object's, over one pool's worth. */
static double waste_of(struct pool *p, const uint64_t size[8], unsigned *changes)
{
    uint64_t objects = 0, slots = 0;
    while (objects < p->config.pool_bytes) {
        uint64_t s = draw_load(size);
        uint32_t slot = put_one(p, s, changes);
        objects += s;
        slots += (uint64_t)slabs_slot_pages(p->slabs, slot) * PAGE_BYTES;
    }
    return 1 - (double)objects / (double)slots;
}

static void eight_sizes(void **unused)
{
    (void)unused;
    double worst = 0, before = 0;
    for (unsigned round = 0; round < 12; round++) {
        struct pool p;
        uint64_t size[8];
        unsigned changes = 0;
        open_plain(&p, 1024 * MIB, 300000);
        for (unsigned i = 0; i < 8; i++)
            size[i] = draw_size();
        double first = waste_of(&p, size, &changes), waste = waste_of(&p, size, &changes);
        worst = waste > worst ? waste : worst;
        before = first > before ? first : before;
        if (waste >= 0.02)
            for (unsigned i = 0; i < 8; i++)
                print_message("size %llu: %u pages, class %u\n", (unsigned long long)size[i],
                              (unsigned)((size[i] + PAGE_BYTES - 1) / PAGE_BYTES), slabs_pages_for(p.slabs, size[i]));
        assert_true(waste < 0.02);
        assert_true(learned(&p) <= 16);
        unsigned settled = 0;
        waste_of(&p, size, &settled);
        assert_true(settled <= 2); /* what is learned stays */
        prove(&p);
        pool_close(&p);
    }
    print_message("waste of 8 sizes: at most %.2f %% once learned, %.2f %% over the first pool\n", 100 * worst,
                  100 * before);
}

static void odd_sizes_stay_bounded(void **unused)
{
    (void)unused;
    struct pool p;
    unsigned changes = 0, most = 0;
    const uint64_t size = 17 * PAGE_BYTES;
    open_plain(&p, 512 * MIB, 200000);
    for (unsigned i = 0; i < 60000; i++) { /* each size once, then the next; every fourth byte is of one size */
        put_one(&p, (1 + (uint64_t)i * 7919 % 2000) * PAGE_BYTES / 4 + 1, &changes);
        if (i % 4 == 0)
            put_one(&p, size, &changes);
        unsigned n = i % 500 == 0 ? learned(&p) : 0;
        most = n > most ? n : most;
    }
    prove(&p);
    assert_true(most <= 16);
    assert_true(changes < 100);
    pool_close(&p);
}

/* Sizes of which each is rare are no classes, however many come. */
static void rare_sizes_are_none(void **unused)
{
    (void)unused;
    struct pool p;
    unsigned changes = 0;
    open_plain(&p, 4096 * MIB, 200000);
    for (unsigned i = 0; i < 4000; i++)
        put_one(&p, (520 + i % 4000) * (uint64_t)PAGE_BYTES, &changes);
    assert_int_equal(learned(&p), 0);
    for (unsigned i = 0; i < 4000; i++)
        put_one(&p, 1100 * (uint64_t)PAGE_BYTES, &changes);
    assert_int_equal(learned(&p), 1);
    assert_true(is_learned(&p, 1100 * (uint64_t)PAGE_BYTES));
    pool_close(&p);
}

static void fill(struct pool *p, uint64_t size, unsigned n)
{
    unsigned changes = 0;
    for (unsigned i = 0; i < n; i++)
        put_one(p, size, &changes);
}

static void give_size(struct pool *p, uint32_t pages, bool all_but_one)
{
    bool kept = !all_but_one;
    for (uint32_t i = p->n_live; i-- > 0;) {
        if (slabs_slot_pages(p->slabs, p->live[i]) != pages)
            continue;
        if (kept)
            give(p, i);
        kept = true;
    }
}

/* It goes when others came for long, and nothing of it is there any more; a class that would be made again at once
 * stays. */
static void unused_goes(void **unused)
{
    (void)unused;
    struct pool p;
    open_plain(&p, 256 * MIB, 100000);
    fill(&p, 9 * PAGE_BYTES, 4000);
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    give_size(&p, 9, false);
    fill(&p, 8 * PAGE_BYTES, 1000); /* an eighth of the pool: not for long */
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    fill(&p, 9 * PAGE_BYTES, 10);
    give_size(&p, 9, true);
    for (unsigned i = 0; i < 20; i++) {
        give_size(&p, 8, false);
        fill(&p, 8 * PAGE_BYTES, 6000);
    }
    assert_true(is_learned(&p, 9 * PAGE_BYTES)); /* one object is there */
    assert_false(slabs_learn(p.slabs, false));
    give_size(&p, 9, false);
    fill(&p, 8 * PAGE_BYTES, 100);
    give_size(&p, 8, false);
    slabs_saw(p.slabs, 16 * MIB);
    assert_false(slabs_learn(p.slabs, false)); /* somebody waits for such a slot */
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    assert_int_equal(slabs_pages_for(p.slabs, 9 * PAGE_BYTES), 9);
    slabs_saw(p.slabs, 16 * MIB);
    assert_true(slabs_learn(p.slabs, true));
    assert_int_equal(learned(&p), 0);
    assert_int_equal(slabs_pages_for(p.slabs, 9 * PAGE_BYTES), 10);
    assert_int_equal(slabs_alloc(p.slabs, 9, NULL), SLOT_NONE);
    prove(&p);
    pool_close(&p);
}

/* A class costs a slab that may lie half empty: it has to be worth that. */
static void little_is_not_enough(void **unused)
{
    (void)unused;
    struct pool p;
    open_plain(&p, 64 * MIB, 20000);
    fill(&p, 9 * PAGE_BYTES, 20); /* not a slab's worth */
    fill(&p, 8 * PAGE_BYTES, 300);
    assert_int_equal(learned(&p), 0);
    pool_close(&p);
    open_plain(&p, 512 * MIB, 200000);
    fill(&p, 8 * PAGE_BYTES, 14000);
    fill(&p, 9 * PAGE_BYTES, 57); /* a slab's worth, of which a tenth is waste: less than a thousandth of all */
    fill(&p, 8 * PAGE_BYTES, 1500);
    assert_int_equal(learned(&p), 0);
    fill(&p, 9 * PAGE_BYTES, 2000);
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    pool_close(&p);
}

/* What would not be learned again at once stays for a while. */
static void stays_for_a_while(void **unused)
{
    (void)unused;
    struct pool p;
    open_plain(&p, 512 * MIB, 200000);
    fill(&p, 9 * PAGE_BYTES, 2000);
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    give_size(&p, 9, false);
    for (unsigned i = 0; i < 5; i++) { /* until it spares less than a 1024th, but more than a 4096th */
        fill(&p, 8 * PAGE_BYTES, 8192 * 2 + 100);
        give_size(&p, 8, false);
    }
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    pool_close(&p);
}

/* A restart knows slabs, not classes: they come back from the objects that are there, and take their slabs. */
static void comes_back(void **unused)
{
    (void)unused;
    struct pool p;
    open_plain(&p, 256 * MIB, 100000);
    fill(&p, 9 * PAGE_BYTES, 3000);
    for (unsigned i = 0; i < 500; i++)
        give(&p, (uint32_t)below(p.n_live));
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p.config), 0);
    assert_int_equal(slabs_recover(again), 0);
    slabs_destroy(p.slabs);
    p.slabs = again;
    prove(&p);
    assert_int_equal(learned(&p), 0); /* a directory alone makes no class */
    assert_int_equal(slabs_pages_for(p.slabs, 9 * PAGE_BYTES), 10);
    for (uint32_t i = 0; i < p.n_live; i++)
        slabs_saw(p.slabs, 9 * PAGE_BYTES);
    assert_true(slabs_learn(p.slabs, true));
    prove(&p);
    assert_true(is_learned(&p, 9 * PAGE_BYTES));
    struct slabs_usage before, after;
    slabs_usage(p.slabs, &before);
    assert_true(before.largest_bytes >= 9 * PAGE_BYTES);
    for (unsigned i = 0; i < 300; i++)
        assert_int_not_equal(take(&p, 9), SLOT_NONE);
    slabs_usage(p.slabs, &after);
    assert_int_equal(after.slabs, before.slabs); /* into what they had free */
    prove(&p);
    pool_close(&p);
}

/* The same objects, the same classes, whatever lies at which address. */
static void deterministic(void **unused)
{
    (void)unused;
    struct slabs_class c[2][CLASSES];
    uint32_t n[2];
    uint64_t from = pool_draw();
    for (unsigned turn = 0; turn < 2; turn++) {
        struct pool p;
        unsigned changes = 0;
        pool_seed_at(from);
        open_plain(&p, 256 * MIB, 100000);
        for (unsigned i = 0; i < 8000; i++)
            put_one(&p, PAGE_BYTES * (1 + below(30) * below(30)), &changes);
        memset(c[turn], 0, sizeof c[turn]);
        n[turn] = slabs_classes(p.slabs, c[turn], CLASSES);
        pool_close(&p);
    }
    assert_int_equal(n[0], n[1]);
    for (uint32_t i = 0; i < n[0]; i++)
        assert_true(c[0][i].bytes == c[1][i].bytes && c[0][i].learned == c[1][i].learned &&
                    c[0][i].slots == c[1][i].slots && c[0][i].used == c[1][i].used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_sizes), cmocka_unit_test(odd_sizes_stay_bounded), cmocka_unit_test(rare_sizes_are_none),
        cmocka_unit_test(unused_goes), cmocka_unit_test(little_is_not_enough),   cmocka_unit_test(stays_for_a_while),
        cmocka_unit_test(comes_back),  cmocka_unit_test(deterministic),
    };
    pool_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
