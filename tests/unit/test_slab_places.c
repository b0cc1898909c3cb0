/* test_slab_places.c: blocks and runs within a part of the pool, against a search of every unit; slots come from the
 * part that is preferred as long as it has room, and what comes from elsewhere is counted. */
#include "store/units.h"
#include "tests/support/slab_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define UNITS_MAX 300u

static bool is_free(const struct units *t, uint32_t at, uint32_t n)
{
    for (uint32_t u = at; u < at + n; u++)
        if (!bits_test(&t->avail, u))
            return false;
    return units_mr_end(t, at) >= at + n;
}

static bool any_within(const struct units *t, uint32_t n, uint32_t step, uint32_t from, uint32_t to)
{
    for (uint32_t at = (from + step - 1) / step * step; at + n <= to; at += step)
        if (is_free(t, at, n))
            return true;
    return false;
}

static void check_found(const struct units *t, uint32_t found, uint32_t n, uint32_t step, uint32_t from, uint32_t to)
{
    assert_int_equal(found != UNITS_NONE, any_within(t, n, step, from, to));
    if (found == UNITS_NONE)
        return;
    assert_true(found >= from && found + n <= to && found % step == 0);
    assert_true(is_free(t, found, n));
}

static void blocks_and_runs_within_bounds(void **unused)
{
    (void)unused;
    for (unsigned round = 0; round < 3000; round++) {
        uint32_t n = 1 + (uint32_t)below(UNITS_MAX), mr = below(2) ? n : 1 + (uint32_t)below(n);
        unsigned share = 1 + (unsigned)below(8);
        struct units t;
        assert_int_equal(units_create(&t, n, mr), 0);
        for (uint32_t u = 0; u < n;) {
            uint32_t stretch = 1 + (uint32_t)below(n - u < 48 ? n - u : 48);
            if (below(8) < share)
                units_give(&t, u, stretch);
            u += stretch;
        }
        for (unsigned i = 0; i < 20; i++) {
            uint32_t from = (uint32_t)below(n), to = from + 1 + (uint32_t)below(n - from);
            if (i == 0) {
                from = 0;
                to = n;
            }
            unsigned order = (unsigned)below(UNITS_ORDERS);
            check_found(&t, units_find_block(&t, order, from, to), 1u << order, 1u << order, from, to);
            uint32_t run = 1 + (uint32_t)below(40);
            check_found(&t, units_find_run(&t, run, from, to), run, 1, from, to);
        }
        units_destroy(&t);
    }
}

static uint64_t spilled(const struct pool *p)
{
    struct slabs_usage u;
    slabs_usage(p->slabs, &u);
    return u.spilled;
}

static bool inside(const struct pool *p, uint32_t slot, struct slabs_place place)
{
    uint32_t unit = p->config.headers[slot].page / UNIT_PAGES;
    return unit >= place.unit && unit < place.unit + place.units;
}

/* One half is filled, then the other is used, and every slot of it is counted; freed room of the first comes back. */
static void fill(uint64_t bytes, uint32_t pages)
{
    struct pool p;
    pool_open(&p, bytes, bytes, 1u << 16);
    uint32_t half = (uint32_t)(bytes / UNIT_BYTES / 2), n[2] = {0, 0};
    struct slabs_place place[2] = {{0, half}, {half, half}};
    slabs_prefer(p.slabs, place[1]);
    for (uint32_t slot; (slot = take(&p, pages)) != SLOT_NONE;) {
        bool near = inside(&p, slot, place[1]);
        assert_false(near && n[0] > 0); /* the near half was full before the first slot came from the far one */
        n[near]++;
        assert_int_equal(spilled(&p), n[0]);
    }
    assert_true(n[0] > 0 && n[0] == n[1]);
    for (uint32_t i = p.n_live; i-- > 0;)
        if (inside(&p, p.live[i], place[1]))
            give(&p, i);
    uint32_t slot = take(&p, pages);
    assert_true(slot != SLOT_NONE && inside(&p, slot, place[1]));
    assert_int_equal(spilled(&p), n[0]);
    slabs_prefer(p.slabs, place[0]); /* full */
    assert_true(take(&p, pages) != SLOT_NONE);
    assert_int_equal(spilled(&p), n[0] + 1);
    slabs_prefer(p.slabs, (struct slabs_place){0, 0});
    assert_true(take(&p, pages) != SLOT_NONE);
    assert_int_equal(spilled(&p), n[0] + 1);
    slabs_prefer(p.slabs, (struct slabs_place){half, half + 1}); /* not in the pool: none */
    assert_true(take(&p, pages) != SLOT_NONE);
    assert_int_equal(spilled(&p), n[0] + 1);
    prove(&p);
    pool_close(&p);
}

static void preferred_until_full(void **unused)
{
    (void)unused;
    fill(64 * MIB, 1);
    fill(64 * MIB, UNIT_PAGES);
    fill(64 * MIB, 3);
    fill(2048 * MIB, 96);
    fill(2048 * MIB, 4 * UNIT_PAGES);
}

static void random_lives(void **unused)
{
    (void)unused;
    for (unsigned round = 0; round < 12; round++) {
        struct pool p;
        uint32_t units = 2 + (uint32_t)below(200);
        pool_open(&p, units * UNIT_BYTES, units * UNIT_BYTES, 1u << 14);
        for (unsigned i = 0; i < 60; i++) {
            uint32_t from = (uint32_t)below(units), n = 1 + (uint32_t)below(units - from);
            slabs_prefer(p.slabs, (struct slabs_place){from, n});
            live(&p, 20, 20);
        }
        pool_close(&p);
    }
}

int main(void)
{
    pool_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_and_runs_within_bounds),
                                       cmocka_unit_test(preferred_until_full), cmocka_unit_test(random_lives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
