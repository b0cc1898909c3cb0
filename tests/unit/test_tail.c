/* test_tail.c: random lives of the cells against a model, and recovery from claims. */
#include "store/tail.h"

#include "store/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define CELLS 3000u

static uint64_t state;
static uint32_t usable, limit;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % n;
}

static int grow(void *env, uint32_t n)
{
    (void)env;
    if (n > limit)
        return -ENOSPC;
    usable = n > usable ? n : usable;
    return 0;
}

struct run {
    uint32_t cell, cells;
};

struct model {
    struct tails *t;
    uint8_t memory[CELLS * TAIL_CELL];
    uint8_t used[CELLS];
    struct run run[CELLS];
    uint32_t n, total;
};

static void model_open(struct model *m)
{
    memset(m, 0, sizeof *m);
    usable = 0;
    limit = CELLS;
    assert_int_equal(tails_create(&m->t, m->memory, CELLS, grow, NULL), 0);
}

static bool model_has_gap(const struct model *m, uint32_t cells)
{
    uint32_t gap = 0;
    for (uint32_t i = 0; i < CELLS; i++) {
        gap = m->used[i] ? 0 : gap + 1;
        if (gap >= cells)
            return true;
    }
    return false;
}

static void model_take(struct model *m)
{
    uint32_t cells = 1 + below(below(10) == 0 ? TAIL_RUN_MAX : 7);
    uint32_t cell = tails_alloc(m->t, cells);
    if (cell == TAIL_NONE) {
        assert_false(model_has_gap(m, cells));
        return;
    }
    assert_true(cell + cells <= usable);
    assert_ptr_equal(tails_at(m->t, cell), m->memory + (size_t)cell * TAIL_CELL);
    for (uint32_t i = 0; i < cells; i++) {
        assert_int_equal(m->used[cell + i], 0);
        m->used[cell + i] = 1;
    }
    m->run[m->n++] = (struct run){cell, cells};
    m->total += cells;
}

static void model_give(struct model *m, uint32_t i)
{
    struct run r = m->run[i];
    tails_free(m->t, r.cell, r.cells);
    memset(m->used + r.cell, 0, r.cells);
    m->run[i] = m->run[--m->n];
    m->total -= r.cells;
}

static void model_reopen(struct model *m)
{
    tails_destroy(m->t);
    usable = 0;
    assert_int_equal(tails_create(&m->t, m->memory, CELLS, grow, NULL), 0);
    for (uint32_t i = 0; i < m->n; i++) {
        assert_int_equal(tails_claim(m->t, m->run[i].cell, m->run[i].cells), 0);
        assert_int_equal(tails_claim(m->t, m->run[i].cell + m->run[i].cells - 1, 1), -EEXIST);
    }
    assert_int_equal(tails_claim(m->t, CELLS, 1), -EINVAL);
    assert_int_equal(tails_claim(m->t, CELLS - 1, 2), -EINVAL);
    assert_int_equal(tails_claim(m->t, UINT32_MAX, 2), -EINVAL);
    assert_int_equal(tails_claim(m->t, 0, 0), -EINVAL);
    assert_int_equal(tails_claim(m->t, 0, TAIL_RUN_MAX + 1), -EINVAL);
    tails_recovered(m->t);
}

static void random_lives(void **unused)
{
    (void)unused;
    static struct model m;
    model_open(&m);
    for (int i = 0; i < 60000; i++) {
        uint32_t share = i / 10000 % 2 == 0 ? 60 : 40; /* fills, then drains */
        if (m.n == 0 || below(100) < share)
            model_take(&m);
        else
            model_give(&m, below(m.n));
        assert_int_equal(tails_used(m.t), m.total);
        if (i % 5000 == 4999)
            model_reopen(&m);
    }
    while (m.n > 0)
        model_give(&m, below(m.n));
    assert_int_equal(tails_used(m.t), 0);
    for (uint32_t i = 0; i < CELLS / TAIL_RUN_MAX; i++)
        assert_int_equal(tails_alloc(m.t, TAIL_RUN_MAX), i * TAIL_RUN_MAX);
    tails_destroy(m.t);
}

static void refusals(void **unused)
{
    (void)unused;
    static struct model m;
    model_open(&m);
    assert_int_equal(tails_alloc(m.t, 0), TAIL_NONE);
    assert_int_equal(tails_alloc(m.t, TAIL_RUN_MAX + 1), TAIL_NONE);
    limit = 100;
    assert_int_equal(tails_alloc(m.t, 101), TAIL_NONE);
    assert_int_equal(tails_used(m.t), 0);
    assert_int_equal(tails_alloc(m.t, 100), 0);
    assert_int_equal(tails_alloc(m.t, 1), TAIL_NONE);
    limit = 101;
    assert_int_equal(tails_alloc(m.t, 1), 100);
    tails_destroy(m.t);
}

/* A gap that fits exactly is taken before a larger one, a lower one before its equal. */
static void best_fit(void **unused)
{
    (void)unused;
    static struct model m;
    model_open(&m);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(tails_alloc(m.t, 10), i * 10);
    tails_free(m.t, 20, 10);
    tails_free(m.t, 55, 5);
    tails_free(m.t, 155, 5);
    assert_int_equal(tails_alloc(m.t, 5), 55);
    assert_int_equal(tails_alloc(m.t, 3), 155);
    assert_int_equal(tails_alloc(m.t, 2), 158);
    assert_int_equal(tails_alloc(m.t, 10), 20);
    assert_int_equal(tails_alloc(m.t, 1), 300);
    tails_destroy(m.t);
}

int main(void)
{
    const char *given = getenv("BERTH_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    state = seed * 2 + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives),
        cmocka_unit_test(refusals),
        cmocka_unit_test(best_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
