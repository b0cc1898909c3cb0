/* Simulations of other capacities (store/whatif.h): cases whose answer is known, samples, the bound. */
#include "store/whatif.h"

#include "tests/support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS (1u << 20)

static struct whatif *w;

static void begin(const char *policy, uint64_t pages)
{
    w = whatif_create(evict_find(policy), SLOTS, pages * PAGE_BYTES, pages * PAGE_BYTES);
    assert_non_null(w);
}

static struct whatif_report end(void)
{
    struct whatif_report r;
    const char *why = whatif_check(w);
    if (why) {
        fail_msg("%s", why);
    }
    whatif_settle(w);
    whatif_report(w, &r);
    whatif_destroy(w);
    return r;
}

static uint64_t key_of(uint64_t id)
{
    uint64_t z = (id + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 27;
}

static struct whatif_object object(uint32_t id, uint64_t parent)
{
    return (struct whatif_object){.key = key_of(id), .parent = parent, .pages = 1, .slot = id % SLOTS};
}

static void put_one(uint32_t id)
{
    struct whatif_object o = object(id, 0);
    whatif_put(w, 1, 0, 0, &o, 1, SLOT_NONE);
}

static double percent(const struct whatif_sums *s, uint32_t i)
{
    return 100 * s->hits[i] / s->references;
}

static void near(double is, double wanted, double by)
{
    if (is < wanted - by || is > wanted + by) {
        fail_msg("%.3f, not %.3f within %.3f", is, wanted, by);
    }
}

/* A circle of 150 keys: LRU with room for 100 never hits, with 200 all but the first round does. */
static void test_circle(void **state)
{
    (void)state;
    begin("lru", 100);
    for (uint32_t i = 0; i < 1500; i++) {
        put_one(i % 150);
    }
    struct whatif_report r = end();
    assert_int_equal(r.shift, 0);
    assert_true(r.all.references == 1500 && r.all.hits[0] == 0 && r.all.hits[1] == 0);
    assert_true(r.all.hits[2] == 1350 && r.all.hits[3] == 1350);
    assert_true(r.ns[0].used && r.ns[0].all.hits[2] == 1350 && !r.ns[1].used && !r.lineage[0].used);
}

/* Only leading keys hit; what is used and what is put behind it are one request. */
static void test_leading_run(void **state)
{
    (void)state;
    begin("pwl", 100);
    struct whatif_object o[4] = {object(0, 0), object(1, key_of(0)), object(2, key_of(1)), object(3, key_of(2))};
    whatif_put(w, 1, 7, 9, o, 4, SLOT_NONE);
    whatif_remove(w, key_of(2));
    struct whatif_object used[2] = {o[1], o[0]};
    whatif_touch(w, 1, 7, 9, used, 2);
    whatif_put(w, 1, 7, 9, o + 2, 2, SLOT_NONE); /* the last is there, behind a gap */
    whatif_touch(w, 1, 7, 9, used, 2);
    struct whatif_report r = end();
    assert_true(r.references == 10 && r.hits == 4 && r.requests == 3 && r.sampled == 3);
    for (uint32_t i = 0; i <= WHATIF_SIMS; i++) {
        assert_true(r.all.hits[i] == 4);
    }
    assert_true(r.ns[0].id == 7 && r.lineage[0].id == 9 && r.lineage[0].all.references == 10);
}

/* What a small cache has lost comes back into it as a miss. */
static void test_half(void **state)
{
    (void)state;
    begin("lru", 4);
    for (uint32_t i = 0; i < 4; i++) {
        put_one(i);
    }
    struct whatif_object o = object(0, 0);
    whatif_touch(w, 1, 0, 0, &o, 1);
    whatif_touch(w, 1, 0, 0, &o, 1);
    struct whatif_report r = end();
    assert_true(r.all.hits[0] == 1 && r.all.hits[1] == 2 && r.all.hits[2] == 2);
}

/* Trees of 8 behind one common key, drawn evenly: LRU hits as large a share as has room. */
static void trees(const char *policy, uint32_t n, double by)
{
    begin(policy, n);
    struct whatif_object o[8];
    for (uint32_t i = 0; i < (n < 20000 ? 80 : 12) * n; i++) {
        uint32_t first = 1 + draw_below(n) * 8;
        for (uint32_t k = 0; k < 8; k++) {
            o[k] = object(first + k, k ? o[k - 1].key : key_of(0));
        }
        whatif_put(w, 1, 0, 1 + i % 3, o, 8, 0);
    }
    struct whatif_report r = end();
    near(percent(&r.recent, 2), 25, by);
    near(percent(&r.recent, 3), 50, by);
    assert_true(r.bytes <= r.bytes_max && r.slots <= WHATIF_SLOTS);
    near((double)r.all.references / (double)r.references, 1, 0.05);
    assert_true(n < 20000 ? r.shift == 0 : r.shift >= 1);
}

static void test_whole(void **state)
{
    (void)state;
    trees("lru", 2000, 1);
}

static void test_sampled(void **state)
{
    (void)state;
    trees("lru", 50000, 2.5);
    trees("pwl", 30000, 4);
}

/* No reuse at all, and as many namespaces and lineages: it stays within its bound, and says so. */
/* Keys that were put one by one, without a word of each other, and are read eight at a time, two rounds of them: two
 * references of three are hits with any room. `star`: all have the same parent. */
static void read_in_chains(bool star)
{
    enum { CHAINS = 4000, CHAIN = 8 };
    begin("lru", CHAINS * CHAIN);
    for (uint32_t i = 0; i < CHAINS * CHAIN; i++) {
        struct whatif_object o = object(i, star && i ? key_of(0) : 0);
        whatif_put(w, 1, 0, 0, &o, 1, star && i ? 0 : SLOT_NONE);
    }
    for (uint32_t i = 0; i < 2 * CHAINS; i++) {
        struct whatif_object o[CHAIN];
        uint32_t slots[CHAIN];
        for (uint32_t k = 0; k < CHAIN; k++) {
            o[k] = object(i % CHAINS * CHAIN + CHAIN - 1 - k, 0);
            slots[k] = o[k].slot;
        }
        if (whatif_torn(w, slots, CHAIN)) {
            whatif_join(w, o, CHAIN);
        }
        assert_false(whatif_torn(w, slots, CHAIN));
        if (whatif_wants(w, slots[0])) {
            whatif_touch(w, 1, 0, 0, o, CHAIN);
        } else {
            whatif_pass(w, CHAIN);
        }
    }
    struct whatif_report r = end();
    assert_true(r.shift > 0);
    for (uint32_t i = 1; i <= WHATIF_SIMS; i++) {
        near(percent(&r.all, i), 100.0 * 2 / 3, 1);
        near(percent(&r.recent, i), 100.0 * 2 / 3, 5);
    }
}

static void test_put_apart(void **state)
{
    (void)state;
    read_in_chains(false);
    read_in_chains(true);
}

static void test_bound(void **state)
{
    (void)state;
    begin("pwl", 1u << 20);
    for (uint32_t i = 0; i < 600000; i++) {
        struct whatif_object o = object(i, 0);
        whatif_put(w, i, i % 1000, 1 + i % 999, &o, 1, SLOT_NONE);
    }
    struct whatif_report r = end();
    assert_true(r.shift >= 3 && r.slots <= WHATIF_SLOTS && r.bytes <= r.bytes_max && r.requests == 600000);
    near(r.all.references, 600000, 30000);
    for (uint32_t i = 0; i < WHATIF_TOP; i++) {
        assert_true(r.ns[i].used && r.ns[i].error + r.ns[i].all.references <= r.all.references);
    }
}

/* A request that no simulation has room for: it ends, and what is over goes with the next one. */
static void too_long(const char *policy)
{
    static struct whatif_object o[WHATIF_CHAIN];
    begin(policy, 20);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t k = 0; k < WHATIF_CHAIN; k++) {
            o[k] = object(round * WHATIF_CHAIN + k, k ? o[k - 1].key : 0);
        }
        whatif_put(w, 1, 0, 0, o, WHATIF_CHAIN, SLOT_NONE);
        whatif_put(w, 1, 0, 0, o, WHATIF_CHAIN, SLOT_NONE);
    }
    put_one(1u << 19);
    struct whatif_report r = end();
    assert_true(r.slots <= 20 / 2 + 2 * 20 + 4 * 20);
}

static void test_too_long(void **state)
{
    (void)state;
    too_long("lru");
    too_long("pwl");
}

/* A tag with a fifth of the references is among the first whatever else comes. */
static void test_heavy(void **state)
{
    (void)state;
    begin("lru", 1000);
    for (uint32_t i = 0; i < 100000; i++) {
        struct whatif_object o = object(i, 0);
        whatif_put(w, 1, 0, i % 5 ? i : 77, &o, 1, SLOT_NONE);
    }
    struct whatif_report r = end();
    bool found = false;
    for (uint32_t i = 0; i < WHATIF_TOP; i++) {
        found |= r.lineage[i].used && r.lineage[i].id == 77 && r.lineage[i].all.references > 19000;
    }
    assert_true(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_circle), cmocka_unit_test(test_leading_run), cmocka_unit_test(test_half),
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_sampled),     cmocka_unit_test(test_put_apart),
        cmocka_unit_test(test_bound),  cmocka_unit_test(test_heavy),       cmocka_unit_test(test_too_long),
    };
    draw_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
