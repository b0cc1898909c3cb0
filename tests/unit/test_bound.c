/* The offline bound against the best of all choices on small trees, and in single cases. */
#include "tools/replay/bound.h"

#include "tests/support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 8u
#define SETS (1u << BLOCKS)

static uint64_t hits_of(const struct trace *t, uint64_t capacity)
{
    uint64_t hits = 0;
    assert_int_equal(bound_hits(t, capacity, &hits), 0);
    return hits;
}

/* Most hits from request i on, with the blocks of `here`: every subset may stay. */
static uint32_t best(const struct trace *t, size_t i, uint32_t here, uint32_t capacity, int16_t memo[][SETS])
{
    if (i == t->n_requests) {
        return 0;
    }
    if (memo[i][here] >= 0) {
        return (uint32_t)memo[i][here];
    }
    const struct trace_request *q = &t->requests[i];
    uint32_t run = 0, all = here, most = 0;
    while (run < q->n_blocks && here >> (t->blocks[q->first + run] % 100) & 1) {
        run++;
    }
    for (uint32_t k = 0; k < q->n_blocks; k++) {
        all |= 1u << (t->blocks[q->first + k] % 100);
    }
    for (uint32_t stay = all;; stay = (stay - 1) & all) {
        if ((uint32_t)__builtin_popcount(stay) <= capacity) {
            uint32_t hits = best(t, i + 1, stay, capacity, memo);
            most = hits > most ? hits : most;
        }
        if (stay == 0) {
            break;
        }
    }
    memo[i][here] = (int16_t)(run + most);
    return run + most;
}

/* Paths from the root of a random tree: block i hangs below parent[i] < i, or is a root. */
static void small_trace(struct trace *t)
{
    uint32_t parent[BLOCKS], requests = 4 + draw_below(8);
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        parent[i] = i && draw_below(4) ? draw_below(i) : i;
    }
    for (uint32_t k = 0; k < requests; k++) {
        uint64_t path[BLOCKS];
        uint32_t n = 0, at = draw_below(BLOCKS);
        for (;; at = parent[at]) {
            path[BLOCKS - ++n] = at + 100 * (1 + at % 3);
            if (parent[at] == at) {
                break;
            }
        }
        struct trace_request r = {.timestamp_ms = k};
        assert_int_equal(trace_add(t, &r, path + BLOCKS - n, n), 0);
    }
    assert_int_equal(trace_finish(t), 0);
}

static void test_against_every_choice(void **state)
{
    (void)state;
    static int16_t memo[16][SETS];
    for (int round = 0; round < 300; round++) {
        struct trace t;
        small_trace(&t);
        for (uint32_t capacity = 1; capacity <= BLOCKS; capacity++) {
            memset(memo, 0xff, sizeof memo);
            assert_int_equal(hits_of(&t, capacity), best(&t, 0, 0, capacity, memo));
        }
        trace_free(&t);
    }
}

static void test_single_cases(void **state)
{
    (void)state;
    struct trace t = {0};
    assert_int_equal(hits_of(&t, 1), 0);
    uint64_t a[] = {1, 2, 3}, b[] = {1, 2, 4}, c[] = {9};
    struct trace_request r = {0};
    assert_int_equal(trace_add(&t, &r, a, 3), 0);
    assert_int_equal(trace_add(&t, &r, c, 1), 0);
    assert_int_equal(trace_add(&t, &r, b, 3), 0);
    assert_int_equal(trace_add(&t, &r, a, 3), 0);
    assert_int_equal(trace_finish(&t), 0);
    assert_int_equal(hits_of(&t, 100), 5);
    assert_int_equal(hits_of(&t, 3), 5);
    assert_int_equal(hits_of(&t, 2), 4);
    assert_int_equal(hits_of(&t, 1), 2);
    trace_free(&t);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_every_choice),
        cmocka_unit_test(test_single_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
