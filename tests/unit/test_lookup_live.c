/* lookup under readers: what is there throughout never hides from them, while the node writes or repairs. */
#include "tests/support/draw.h"
#include "tests/support/lookup_table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- readers beside the writer ---- */

#define STABLE 400u /* keys 0 .. that are there throughout */
#define MOVING 400u /* the next ones come and go */
#define READERS 2u

struct race {
    struct table *f;
    atomic_bool over;
    _Atomic uint64_t found, asked, missed, wrong;
};

static void *read_stable(void *arg)
{
    struct race *r = arg;
    char buf[32];
    uint64_t found = 0, asked = 0;
    do {
        for (uint32_t i = 0; i < STABLE; i++) {
            bool ask;
            struct key_ref key = table_key(i, buf);
            uint32_t slot = lookup_find(&r->f->l, table_hash(r->f, i), key, &ask, NULL);
            if (slot == SLOT_NONE && !ask)
                atomic_fetch_add(&r->missed, 1);
            if (slot != SLOT_NONE && slot / 2 != i)
                atomic_fetch_add(&r->wrong, 1);
            found += slot != SLOT_NONE;
            asked += slot == SLOT_NONE;
        }
    } while (!atomic_load(&r->over));
    atomic_fetch_add(&r->found, found);
    atomic_fetch_add(&r->asked, asked);
    return NULL;
}

static void with_readers(struct table *f, void (*write)(struct table *f))
{
    struct race r = {.f = f};
    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_stable, &r), 0);
    write(f);
    atomic_store(&r.over, true);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    printf("found %llu, asked %llu\n", (unsigned long long)r.found, (unsigned long long)r.asked);
    assert_int_equal(r.missed, 0);
    assert_int_equal(r.wrong, 0);
    assert_true(r.found > 0);
}

static uint32_t slots[STABLE + MOVING];

/* Stable keys are replaced; moving ones come and go around them, so that full homes and `ask` occur. */
static void churn(struct table *f)
{
    for (uint32_t step = 0; step < 600000; step++) {
        uint32_t i = draw_below(STABLE + MOVING), to = 2 * i + draw_below(2);
        struct key_hash hash = table_hash(f, i);
        if (i < STABLE || (slots[i] != SLOT_NONE && draw_below(4) == 0)) {
            (void)lookup_store(&f->l, hash, slots[i], to);
            slots[i] = to;
        } else if (slots[i] == SLOT_NONE) {
            (void)lookup_store(&f->l, hash, SLOT_NONE, to);
            slots[i] = to;
        } else {
            lookup_clear(&f->l, hash, slots[i]);
            slots[i] = SLOT_NONE;
        }
    }
}

/* The moving ones first, so that they take the best places and the stable ones lie behind them. */
static void fill_stable(struct table *f, uint64_t objects)
{
    table_make(f, objects);
    table_headers(f);
    for (uint32_t i = STABLE + MOVING; i-- > 0;) {
        slots[i] = 2 * i;
        (void)lookup_store(&f->l, table_hash(f, i), SLOT_NONE, 2 * i);
    }
}

static void test_readers_beside_writer(void **s)
{
    struct table *f = *s;
    fill_stable(f, 600); /* 128 buckets: 896 and 49 behind the last: nearly full */
    with_readers(f, churn);
    fill_stable(f, 300); /* 64 buckets for 800 keys: some are in the index only, now these, now those */
    with_readers(f, churn);
}

/* ---- repair ---- */

static uint64_t repair(struct table *f, uint32_t keys, bool under_readers)
{
    struct lookup_repair *r;
    assert_int_equal(lookup_repair_begin(&f->l, &r), 0);
    for (uint32_t i = 0; i < keys; i++) {
        if (slots[i] != SLOT_NONE)
            lookup_repair_keep(r, table_hash(f, i), slots[i]);
    }
    for (uint32_t i = 0; i < keys && !under_readers; i++) { /* kept is found, before the end too */
        bool ask;
        if (slots[i] != SLOT_NONE && table_find(f, i, &ask) != slots[i])
            assert_true(ask);
    }
    return lookup_repair_end(r);
}

static void check_all(struct table *f)
{
    uint32_t asking = 0, in_table = 0;
    uint64_t total = 0;
    for (uint32_t i = 0; i < STABLE + MOVING; i++) {
        bool ask;
        uint32_t found = table_find(f, i, &ask);
        assert_true(found == slots[i] || (found == SLOT_NONE && ask));
        asking += slots[i] != SLOT_NONE && found == SLOT_NONE;
        in_table += found != SLOT_NONE;
    }
    for (uint64_t b = 0; b < f->l.mask + LOOKUP_PROBES; b++) {
        total += atomic_load(&f->l.buckets[b].ask);
        for (unsigned i = 0; i < LOOKUP_WAYS; i++)
            in_table -= atomic_load(&f->l.buckets[b].entry[i]) != 0;
    }
    assert_int_equal(in_table, 0); /* no entry but of the keys */
    assert_int_equal(total, asking);
    for (uint32_t i = 0; i < STABLE + MOVING; i++) { /* exact counts: clearing all leaves nothing */
        if (slots[i] != SLOT_NONE)
            lookup_clear(&f->l, table_hash(f, i), slots[i]);
    }
    for (uint64_t b = 0; b < f->l.mask + LOOKUP_PROBES; b++) {
        static const struct lookup_bucket empty;
        assert_memory_equal(&f->l.buckets[b], &empty, sizeof empty);
    }
}

static void test_repair_nothing(void **s)
{
    struct table *f = *s;
    fill_stable(f, 600);
    void *before = malloc(f->bytes);
    memcpy(before, f->map, f->bytes);
    assert_int_equal(repair(f, STABLE + MOVING, false), 0);
    assert_memory_equal(before, f->map, f->bytes);
    free(before);
    check_all(f);
}

static void damage(struct table *f)
{
    for (unsigned i = 0; i < 200; i++) {
        struct lookup_bucket *b = &f->l.buckets[draw_below((uint32_t)f->l.mask + LOOKUP_PROBES)];
        uint64_t junk = (uint64_t)draw_below(UINT32_MAX) << 32 | draw_below(UINT32_MAX);
        switch (draw_below(4)) {
        case 0:
            atomic_store(&b->entry[draw_below(LOOKUP_WAYS)], 0);
            break;
        case 1:
            atomic_store(&b->entry[draw_below(LOOKUP_WAYS)], junk);
            break;
        case 2:
            atomic_store(&b->passed, draw_below(3) * 1000);
            break;
        default:
            atomic_store(&b->ask, draw_below(3));
        }
    }
}

static void test_repair_damage(void **s)
{
    struct table *f = *s;
    for (unsigned round = 0; round < 20; round++) {
        fill_stable(f, round % 2 ? 600 : 300);
        damage(f);
        for (uint32_t i = 0; i < STABLE + MOVING; i++) { /* commits that were not projected */
            uint32_t what = draw_below(6);
            slots[i] = what == 0 ? SLOT_NONE : what == 1 ? slots[i] ^ 1 : slots[i];
        }
        assert_true(repair(f, STABLE + MOVING, false) > 0);
        check_all(f);
    }
}

/* No room but that of entries which no record confirms. */
static void test_repair_makes_room(void **s)
{
    struct table *f = *s;
    struct lookup_repair *r;
    bool ask;
    table_make(f, 1);
    table_headers(f);
    for (uint32_t i = 0; i < LOOKUP_PROBES * LOOKUP_WAYS; i++)
        assert_true(lookup_store(&f->l, table_hash(f, 500 + i), SLOT_NONE, 2 * (500 + i)));
    assert_int_equal(lookup_repair_begin(&f->l, &r), 0);
    for (uint32_t i = 0; i < 50; i++) {
        lookup_repair_keep(r, table_hash(f, i), 2 * i);
        assert_int_equal(table_find(f, i, &ask), SLOT_NONE);
        assert_true(ask);
    }
    assert_int_equal(lookup_repair_end(r), LOOKUP_PROBES * LOOKUP_WAYS + 50);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(table_find(f, i, &ask), 2 * i);
        assert_int_equal(table_find(f, 500 + i, &ask), SLOT_NONE);
        assert_false(ask);
    }
}

/* As a node finds it that restarts under readers: stale entries, missing ones, junk, and counts that are too high. */
static void repair_rounds(struct table *f)
{
    for (unsigned round = 0; round < 1200; round++) {
        for (unsigned i = 0; i < 40; i++) {
            uint32_t at = draw_below(STABLE + MOVING);
            struct lookup_bucket *b = &f->l.buckets[draw_below((uint32_t)f->l.mask + LOOKUP_PROBES)];
            _Atomic uint64_t *entry = &b->entry[draw_below(LOOKUP_WAYS)];
            if (at >= STABLE)
                slots[at] = slots[at] == SLOT_NONE ? 2 * at : SLOT_NONE;
            else
                slots[at] ^= 1; /* the table has the other one, which is this key's too */
            if (atomic_load(entry) == 0)
                atomic_store(entry, (uint64_t)draw_below(UINT32_MAX) << 32 | draw_below(TABLE_SLOTS));
            atomic_store(&b->passed, atomic_load(&b->passed) + draw_below(2));
        }
        (void)repair(f, STABLE + MOVING, true);
    }
}

static void test_repair_under_readers(void **s)
{
    struct table *f = *s;
    fill_stable(f, 600);
    with_readers(f, repair_rounds);
    check_all(f);
    fill_stable(f, 300);
    with_readers(f, repair_rounds);
    check_all(f);
}

int main(void)
{
    (void)draw_seed();
#define TEST(name) cmocka_unit_test_setup_teardown(name, table_setup, table_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_readers_beside_writer), TEST(test_repair_nothing),       TEST(test_repair_damage),
        TEST(test_repair_makes_room),     TEST(test_repair_under_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
