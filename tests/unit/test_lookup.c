/* lookup: finds what was stored and nothing else, and says where it has no room. */
#include "index/lookup_hash.h"
#include "tests/support/draw.h"
#include "tests/support/lookup_table.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_attach(void **s)
{
    struct table *f = *s;
    struct lookup l;
    struct lookup_super *super = f->map;
    assert_true((super->n_buckets & (super->n_buckets - 1)) == 0);
    assert_true(super->n_buckets * LOOKUP_WAYS * 3 / 4 >= TABLE_SLOTS);
    assert_int_equal(f->l.seed, TABLE_SEED);
    assert_memory_equal(super->uuid, table_uuid, 16);
    assert_int_equal(lookup_attach(&l, f->map, LOOKUP_BUCKETS_OFFSET), -EPROTO);
    assert_int_equal(lookup_attach(&l, f->map, f->bytes - 1), -EPROTO);
    struct lookup_super good = *super;
    const uint64_t sizes[] = {0, 3, super->n_buckets * 2, UINT64_C(1) << 63, UINT64_MAX};
    for (unsigned i = 0; i < 5; i++) {
        super->n_buckets = sizes[i];
        assert_int_equal(lookup_attach(&l, f->map, f->bytes), -EPROTO);
    }
    *super = good;
    super->magic ^= 1;
    assert_int_equal(lookup_attach(&l, f->map, f->bytes), -EPROTO);
    *super = good;
    super->format++;
    assert_int_equal(lookup_attach(&l, f->map, f->bytes), -EPROTO);
    *super = good;
    super->fingerprint++;
    assert_int_equal(lookup_attach(&l, f->map, f->bytes), -EPROTO);
    *super = good;
    assert_int_equal(lookup_attach(&l, f->map, f->bytes), 0);
    for (uint64_t n = 1; n < 5000000; n = n * 3 + 1)
        assert_true((lookup_bytes(n) - LOOKUP_BUCKETS_OFFSET) / 64 >= n * 4 / 3 / LOOKUP_WAYS);
}

static void test_hash(void **s)
{
    (void)s;
    struct key_hash a = lookup_hash(1, (struct key_ref){"key", 3, 0}),
                    b = lookup_hash(1, (struct key_ref){"key", 3, 1});
    struct key_hash c = lookup_hash(2, (struct key_ref){"key", 3, 0}),
                    d = lookup_hash(1, (struct key_ref){"key", 3, 0});
    assert_true(a.home != b.home);
    assert_true(a.home != c.home);
    assert_true(a.home == d.home);
    assert_true(a.home == XXH3_64bits_withSeed("key", 3, 1));
}

static void test_keys(void **s)
{
    struct table *f = *s;
    static const uint32_t sizes[] = {1, 66, 67, 70, 71, 130, 131, 480};
    uint8_t key[KEY_MAX], buf[KEY_MAX];
    struct key_ref back;
    struct slot_header *h = &f->headers[0];
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned k = 0; k < KEY_MAX; k++)
            key[k] = (uint8_t)draw_below(256);
        struct key_ref ref = {.data = key, .size = sizes[i], .ns = 5};
        memset(f->headers, 0, sizeof *h);
        table_header(f, 0, ref, 3);
        assert_true(lookup_key_equal(&f->l, h, ref));
        assert_true(lookup_key(&f->l, h, buf, &back));
        assert_int_equal(back.size, sizes[i]);
        assert_int_equal(back.ns, 5);
        assert_memory_equal(back.data, key, sizes[i]);
        for (unsigned k = 0; k < sizes[i]; k++) { /* every byte counts */
            key[k] ^= 1;
            assert_false(lookup_key_equal(&f->l, h, ref));
            key[k] ^= 1;
        }
        ref.ns = 6;
        assert_false(lookup_key_equal(&f->l, h, ref));
        ref.ns = 5;
        if (sizes[i] > 1) {
            ref.size--;
            assert_false(lookup_key_equal(&f->l, h, ref));
        }
    }
    /* the last key is the longest: 7 cells; nothing beyond the cells is read */
    struct key_ref longest = {.data = key, .size = KEY_MAX, .ns = 5};
    const uint32_t bad[] = {TABLE_CELLS - 6, TABLE_CELLS, UINT32_MAX, UINT32_MAX - 3};
    for (unsigned i = 0; i < 4; i++) {
        h->tail = bad[i];
        assert_false(lookup_key_equal(&f->l, h, longest));
        assert_false(lookup_key(&f->l, h, buf, &back));
    }
    h->tail = 3;
    atomic_store(&h->flags, 0);
    assert_false(lookup_key(&f->l, h, buf, &back));
    h->key_size = KEY_MAX + 1;
    assert_false(lookup_key(&f->l, h, buf, &back));
    h->key_size = 0;
    assert_false(lookup_key(&f->l, h, buf, &back));
}

static int sum_slots(void *arg, uint32_t slot)
{
    *(uint64_t *)arg += slot + 1;
    return 0;
}

static int stop(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return 9;
}

static void test_store_find_clear(void **s)
{
    struct table *f = *s;
    bool ask;
    uint64_t sum = 0, expected = 0;
    table_headers(f);
    for (uint32_t i = 0; i < 2000; i++) {
        assert_int_equal(table_find(f, i, &ask), SLOT_NONE);
        assert_false(ask);
        assert_true(lookup_store(&f->l, table_hash(f, i), SLOT_NONE, 2 * i));
    }
    for (uint32_t i = 0; i < 2000; i += 2)
        assert_true(lookup_store(&f->l, table_hash(f, i), 2 * i, 2 * i + 1));
    for (uint32_t i = 0; i < 2000; i += 5)
        lookup_clear(&f->l, table_hash(f, i), 2 * i + (i % 2 == 0));
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t slot = 2 * i + (i % 2 == 0);
        assert_int_equal(table_find(f, i, &ask), i % 5 == 0 ? SLOT_NONE : slot);
        assert_false(ask);
        assert_int_equal(lookup_has(&f->l, table_hash(f, i), slot), i % 5 != 0);
        assert_false(lookup_has(&f->l, table_hash(f, i), slot ^ 1));
        expected += i % 5 == 0 ? 0 : slot + 1;
    }
    assert_int_equal(lookup_each(&f->l, sum_slots, &sum), 0);
    assert_int_equal(sum, expected);
    assert_int_equal(lookup_each(&f->l, stop, NULL), 9);
    for (uint32_t i = 0; i < 2000; i++) {
        if (i % 5 != 0)
            lookup_clear(&f->l, table_hash(f, i), 2 * i + (i % 2 == 0));
    }
    for (uint64_t b = 0; b < f->l.mask + LOOKUP_PROBES; b++) { /* no count is left behind */
        static const struct lookup_bucket empty;
        assert_memory_equal(&f->l.buckets[b], &empty, sizeof empty);
    }
}

static void test_collision(void **s)
{
    struct table *f = *s;
    bool ask, collides;
    char buf[32];
    table_headers(f);
    struct key_ref key = table_key(1, buf);
    struct key_hash hash = table_hash(f, 1), tag_only = table_hash(f, 2);
    assert_true(lookup_store(&f->l, hash, SLOT_NONE, 2));
    assert_int_equal(lookup_find(&f->l, hash, key, &ask, &collides), 2);
    assert_false(collides);
    /* another key under the hash of this one: not found, and told apart from a tag that happens to be equal */
    struct key_ref other = {.data = "another key", .size = 11, .ns = key.ns};
    assert_int_equal(lookup_find(&f->l, hash, other, &ask, &collides), SLOT_NONE);
    assert_true(collides);
    assert_false(ask);
    tag_only.home = hash.home;
    assert_true(lookup_store(&f->l, tag_only, SLOT_NONE, 4));
    tag_only.home ^= UINT64_C(1) << 31; /* above the mask, below the tag */
    assert_int_equal(lookup_find(&f->l, tag_only, other, NULL, &collides), SLOT_NONE);
    assert_false(collides);
    assert_int_equal(lookup_find(&f->l, tag_only, other, NULL, NULL), SLOT_NONE);
    f->l.n_headers = 2; /* an entry beyond the headers is not followed */
    assert_int_equal(lookup_find(&f->l, hash, key, &ask, &collides), SLOT_NONE);
}

static struct lookup_bucket *home_of(const struct table *f, struct key_hash hash)
{
    return &f->l.buckets[hash.home & f->l.mask];
}

/* A table of one home: 8 buckets of 7, then the index only. */
static void test_full(void **s)
{
    struct table *f = *s;
    bool ask;
    const uint32_t room = LOOKUP_PROBES * LOOKUP_WAYS;
    table_make(f, 1);
    assert_int_equal(f->l.mask, 0);
    table_headers(f);
    for (uint32_t i = 0; i < room + 10; i++)
        assert_int_equal(lookup_store(&f->l, table_hash(f, i), SLOT_NONE, 2 * i), i < room);
    struct lookup_bucket *home = home_of(f, table_hash(f, 0));
    assert_int_equal(atomic_load(&home->ask), 10);
    for (uint32_t i = 0; i < LOOKUP_PROBES; i++)
        assert_int_equal(atomic_load(&home[i].passed), room - (i + 1) * LOOKUP_WAYS);
    for (uint32_t i = 0; i < room + 10; i++) {
        assert_int_equal(table_find(f, i, &ask), i < room ? 2 * i : SLOT_NONE);
        assert_int_equal(ask, i >= room);
    }
    assert_false(lookup_store(&f->l, table_hash(f, room), 2 * room, 2 * room + 1)); /* still no room: counted once */
    assert_int_equal(atomic_load(&home->ask), 10);
    lookup_clear(&f->l, table_hash(f, room + 1), 2 * (room + 1)); /* one that is in the index only */
    assert_int_equal(atomic_load(&home->ask), 9);
    lookup_clear(&f->l, table_hash(f, 20), 40);
    assert_true(
        lookup_store(&f->l, table_hash(f, room), 2 * room + 1, 2 * room)); /* now there is, and it asks no more */
    assert_int_equal(atomic_load(&home->ask), 8);
    assert_int_equal(table_find(f, room, &ask), 2 * room);
    for (uint32_t i = 0; i < room + 10; i++) {
        if (i != 20 && i != room + 1)
            lookup_clear(&f->l, table_hash(f, i), 2 * i);
    }
    assert_int_equal(atomic_load(&home->ask), 0);
    for (uint32_t i = 0; i < LOOKUP_PROBES; i++)
        assert_int_equal(atomic_load(&home[i].passed), 0);
    lookup_clear(&f->l, table_hash(f, 0), 0); /* of nothing: no count falls below 0 */
    assert_int_equal(atomic_load(&home->ask), 0);
}

/* Random life against a model, in a table that overflows now and then. */
static void test_model(void **s)
{
    struct table *f = *s;
    static uint32_t slot[700];
    uint32_t n = 0;
    table_make(f, 300);
    table_headers(f);
    for (uint32_t i = 0; i < 700; i++)
        slot[i] = SLOT_NONE;
    for (uint32_t step = 0; step < 200000; step++) {
        uint32_t i = draw_below(700), to = 2 * i + draw_below(2);
        if (slot[i] == SLOT_NONE) {
            if (n > 560 && step % 1000 > 5)
                continue;
            (void)lookup_store(&f->l, table_hash(f, i), SLOT_NONE, to);
            slot[i] = to;
            n++;
        } else if (draw_below(2)) {
            (void)lookup_store(&f->l, table_hash(f, i), slot[i], to);
            slot[i] = to;
        } else {
            lookup_clear(&f->l, table_hash(f, i), slot[i]);
            slot[i] = SLOT_NONE;
            n--;
        }
        bool ask;
        uint32_t look = draw_below(700), found = table_find(f, look, &ask);
        if (found != slot[look])
            assert_true(found == SLOT_NONE && ask);
    }
    for (uint32_t i = 0; i < 700; i++) {
        if (slot[i] != SLOT_NONE)
            lookup_clear(&f->l, table_hash(f, i), slot[i]);
    }
    for (uint64_t b = 0; b < f->l.mask + LOOKUP_PROBES; b++) {
        static const struct lookup_bucket empty;
        assert_memory_equal(&f->l.buckets[b], &empty, sizeof empty);
    }
}

int main(void)
{
    (void)draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, table_setup, table_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_attach),    TEST(test_hash), TEST(test_keys),  TEST(test_store_find_clear),
        TEST(test_collision), TEST(test_full), TEST(test_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
