/* test_slab.c: random lives of pools of many shapes, every invariant proven after every step; windows; sizes. */
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

static void same_slots(const struct pool *p, struct slabs *s)
{
    uint64_t cursor = 0, n = 0;
    uint32_t slot, last = 0;
    while ((slot = slabs_next(s, &cursor)) != SLOT_NONE) {
        uint32_t page = p->config.headers[slot].page;
        assert_true(page >= last);
        last = page + 1;
        assert_int_equal(p->owner[page], slot + 1);
        assert_int_equal(slabs_slot_pages(s, slot), slabs_slot_pages(p->slabs, slot));
        n++;
    }
    assert_int_equal(n, p->n_live);
}

static void reopen(struct pool *p)
{
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p->config), 0);
    assert_int_equal(slabs_recover(again), 0);
    same_slots(p, again);
    slabs_destroy(p->slabs);
    p->slabs = again;
    prove(p);
}

static void lives_of(uint64_t bytes, uint64_t mr, uint32_t headers, unsigned steps, unsigned every)
{
    struct pool p;
    pool_open(&p, bytes, mr, headers);
    for (int round = 0; round < 3; round++) {
        live(&p, steps / 3, every);
        reopen(&p);
    }
    while (p.n_live > 0)
        give(&p, (uint32_t)below(p.n_live));
    prove(&p);
    struct slabs_usage u;
    slabs_usage(p.slabs, &u);
    assert_int_equal(u.free_bytes, bytes);
    assert_int_equal(u.used_bytes + u.slabs + u.runs, 0);
    pool_close(&p);
}

static void random_small(void **unused)
{
    (void)unused;
    lives_of(2 * MIB, 1024 * MIB, 512, 3000, 1);
    lives_of(6 * MIB, 2 * MIB, 300, 2000, 1);
    lives_of(64 * MIB, 64 * MIB, 16384, 1500, 1);
}

static void random_odd_mr(void **unused)
{
    (void)unused;
    lives_of(410 * MIB, 10 * MIB, 60000, 600, 1);
    lives_of(2048 * MIB, 66 * MIB, 8000, 600, 1); /* headers run out before the pool does */
}

static void random_terabyte(void **unused)
{
    (void)unused;
    lives_of(1024 * 1024 * MIB, 1024 * MIB, 1u << 20, 300, 100);
}

static void sizes_and_waste(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 4096 * MIB, 1024 * MIB, 1u << 20);
    assert_int_equal(slabs_pages_for(p.slabs, 0), 1);
    assert_int_equal(slabs_pages_for(p.slabs, 1), 1);
    assert_int_equal(slabs_pages_for(p.slabs, 4097), 2);
    assert_int_equal(slabs_pages_for(p.slabs, 17 * PAGE_BYTES), 17);
    assert_int_equal(slabs_pages_for(p.slabs, 2 * MIB), 512);
    assert_int_equal(slabs_pages_for(p.slabs, 1024 * MIB), 262144);
    assert_int_equal(slabs_pages_for(p.slabs, 1024 * MIB + 1), 0);
    assert_int_equal(slabs_pages_for(p.slabs, UINT64_MAX), 0);
    char why[160];
    assert_false(slabs_class_unused(p.slabs, 17, why, sizeof why));
    assert_true(slabs_class_unused(p.slabs, 1024, why, sizeof why));
    assert_non_null(strstr(why, "whole 2 MiB units cost no more"));
    assert_true(slabs_class_unused(p.slabs, 511, why, sizeof why));
    assert_true(slabs_class_unused(p.slabs, 262144, why, sizeof why));
    assert_non_null(strstr(why, "at most 64 MiB"));
    for (int i = 0; i < 3000; i++) {
        uint64_t size = any_size(&p);
        uint32_t pages = slabs_pages_for(p.slabs, size), units = slabs_units_for(p.slabs, pages);
        assert_true(pages * (uint64_t)PAGE_BYTES >= size);
        assert_int_equal(slabs_pages_for(p.slabs, pages * (uint64_t)PAGE_BYTES), pages);
        if (size > 64 * 1024)
            assert_true((double)pages * PAGE_BYTES <= 1.26 * (double)size + PAGE_BYTES);
        if (units > 0 && pages % UNIT_PAGES != 0)
            assert_true((units & (units - 1)) == 0 && units <= 32);
        if (size < 64 * MIB && below(20) == 0) {
            assert_int_not_equal(take(&p, pages), SLOT_NONE);
            give(&p, 0);
        }
    }
    assert_int_equal(slabs_alloc(p.slabs, 0, NULL), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 13, NULL), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, UINT32_MAX, NULL), SLOT_NONE);
    pool_close(&p);
}

static void bad_configs(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 2 * MIB, 2 * MIB, 512);
    struct slabs *s = NULL;
    struct slabs_config c = p.config;
    c.pool_bytes = 3 * MIB;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    c = p.config;
    c.pool_bytes = 0;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    c = p.config;
    c.mr_bytes = 0;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    uint32_t zero = 0;
    c = p.config;
    c.classes = &zero;
    c.n_classes = 1;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    assert_null(s);
    pool_close(&p);
}

static void no_headers(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 8 * MIB, 8 * MIB, 600);
    int why = 0;
    assert_int_not_equal(take(&p, 1), SLOT_NONE);
    for (int i = 0; i < 511; i++)
        assert_int_not_equal(take(&p, 1), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 1, &why), SLOT_NONE);
    assert_int_equal(why, -ENOSPC); /* the pool has room, the headers do not */
    p.limit = 512;
    assert_int_equal(slabs_alloc(p.slabs, 512, &why), SLOT_NONE);
    assert_int_equal(why, -ENOSPC);
    prove(&p);
    p.limit = 600;
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 512, &why), SLOT_NONE);
    assert_int_equal(why, 0); /* now it is the pool */
    prove(&p);
    pool_close(&p);
}

/* Rule 32's point: making room for one object costs no more than its block, whatever fills the pool. */
static void windows(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 1024 * MIB, 1024 * MIB, 262144);
    while (take(&p, 1) != SLOT_NONE)
        continue;
    assert_int_equal(p.n_live, 262144);
    static const struct {
        uint64_t bytes;
        uint32_t most;
    } ask[] = {{64 << 10, 1}, {1 * MIB, 1},    {2 * MIB, 1},    {5 * MIB, 8},
               {16 * MIB, 8}, {100 * MIB, 50}, {700 * MIB, 350}};
    for (unsigned i = 0; i < sizeof ask / sizeof *ask; i++) {
        struct slabs_window w;
        uint32_t pages = slabs_pages_for(p.slabs, ask[i].bytes), slot = p.live[p.n_live / 2];
        assert_int_equal(slabs_alloc(p.slabs, pages, NULL), SLOT_NONE);
        assert_true(slabs_window(p.slabs, slot, pages, 0, &w));
        assert_true(w.units <= ask[i].most);
        slabs_close(p.slabs, &w);
        uint64_t cursor = 0;
        for (uint32_t v; (v = slabs_window_next(p.slabs, &w, &cursor)) != SLOT_NONE;)
            give(&p, index_of(&p, v));
        assert_int_equal(slabs_alloc(p.slabs, pages, NULL), SLOT_NONE); /* closed */
        slabs_open(p.slabs, &w);
        uint32_t got = take(&p, pages);
        assert_int_not_equal(got, SLOT_NONE);
        prove(&p);
        give(&p, index_of(&p, got));
        while (take(&p, 1) != SLOT_NONE)
            continue;
    }
    struct slabs_window w;
    uint32_t shifts = 0, pages = slabs_pages_for(p.slabs, 100 * MIB);
    while (slabs_window(p.slabs, p.live[131072], pages, shifts, &w))
        shifts++;
    assert_int_equal(shifts, 50);
    assert_false(slabs_window(p.slabs, p.live[0], 13, 0, &w));
    assert_false(slabs_window(p.slabs, SLOT_NONE - 1, 1, 0, &w));
    pool_close(&p);
}

/* A window that is closed twice opens with the second open. */
static void windows_overlap(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    while (take(&p, 512) != SLOT_NONE)
        continue;
    struct slabs_window a = {.unit = 2, .units = 4}, b = {.unit = 4, .units = 6};
    slabs_close(p.slabs, &a);
    slabs_close(p.slabs, &b);
    uint64_t cursor = 0;
    struct slabs_window all = {.unit = 2, .units = 8};
    for (uint32_t v; (v = slabs_window_next(p.slabs, &all, &cursor)) != SLOT_NONE;)
        give(&p, index_of(&p, v));
    assert_int_equal(slabs_alloc(p.slabs, 512, NULL), SLOT_NONE);
    slabs_open(p.slabs, &b);
    prove(&p);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 512, NULL), SLOT_NONE);
    slabs_open(p.slabs, &a);
    prove(&p);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    prove(&p);
    pool_close(&p);
}

/* Same calls, same slots, wherever memory lies. */
static void deterministic(void **unused)
{
    (void)unused;
    struct pool a, b;
    uint64_t from = pool_draw();
    pool_seed_at(from);
    pool_open(&a, 128 * MIB, 128 * MIB, 32768);
    live(&a, 800, 400);
    pool_seed_at(from);
    pool_open(&b, 128 * MIB, 128 * MIB, 32768);
    live(&b, 800, 400);
    assert_int_equal(a.n_live, b.n_live);
    assert_memory_equal(a.live, b.live, a.n_live * sizeof *a.live);
    pool_close(&a);
    pool_close(&b);
}

/* The path of a put: allocate and free on a nearly full pool of 4 KiB objects, in random order. Prints, never fails. */
static void speed(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 512 * MIB, 512 * MIB, 131072);
    while (take(&p, 1) != SLOT_NONE)
        continue;
    struct timespec t0, t1;
    unsigned n = 1000000, k = 64;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
    for (unsigned i = 0; i < n; i += k) {
        uint32_t first = (uint32_t)below(p.n_live - k);
        for (unsigned j = 0; j < k; j++)
            slabs_free(p.slabs, p.live[first + j]);
        for (unsigned j = 0; j < k; j++)
            p.live[first + j] = slabs_alloc(p.slabs, 1, NULL);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
    double ns = (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
    print_message("alloc + free of 4 KiB: %.0f ns\n", ns / n);
    for (uint32_t i = 0; i < p.n_live; i++)
        slot_store(&p.config.headers[p.live[i]], 1, SLOT_FREE);
    pool_close(&p);
}

int main(void)
{
    pool_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs),   cmocka_unit_test(sizes_and_waste), cmocka_unit_test(random_small),
        cmocka_unit_test(random_odd_mr), cmocka_unit_test(random_terabyte), cmocka_unit_test(no_headers),
        cmocka_unit_test(windows),       cmocka_unit_test(windows_overlap), cmocka_unit_test(deterministic),
        cmocka_unit_test(speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
