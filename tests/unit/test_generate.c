#include "tools/replay/generate.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SEED 20240607u
#define REQUESTS 1500u

static void same_seed_same_trace(void **state)
{
    struct trace a, b, c;

    (void)state;
    print_message("seed %u\n", SEED);
    for (unsigned kind = 0; generate_kinds[kind]; kind++) {
        assert_int_equal(generate_trace(&a, generate_kinds[kind], SEED, REQUESTS), 0);
        assert_int_equal(generate_trace(&b, generate_kinds[kind], SEED, REQUESTS), 0);
        assert_int_equal(generate_trace(&c, generate_kinds[kind], SEED + 1, REQUESTS), 0);
        assert_int_equal(a.n_blocks, b.n_blocks);
        assert_memory_equal(a.blocks, b.blocks, a.n_blocks * sizeof(*a.blocks));
        assert_true(a.n_blocks != c.n_blocks || memcmp(a.blocks, c.blocks, a.n_blocks * sizeof(*a.blocks)));
        trace_free(&a);
        trace_free(&b);
        trace_free(&c);
    }
}

static void requests_come_in_order_and_within_limits(void **state)
{
    struct trace t;

    (void)state;
    for (unsigned kind = 0; generate_kinds[kind]; kind++) {
        assert_int_equal(generate_trace(&t, generate_kinds[kind], SEED, REQUESTS), 0);
        assert_int_equal(t.n_requests, REQUESTS);
        for (size_t i = 0; i < t.n_requests; i++) {
            const struct trace_request *r = &t.requests[i];

            assert_true(i == 0 || t.requests[i - 1].timestamp_ms <= r->timestamp_ms);
            assert_true(r->input_length > 0 && r->input_length <= 128000);
            assert_int_equal(r->n_blocks, (r->input_length + 511) / 512);
        }
        trace_free(&t);
    }
}

/* A block has the same parent wherever it stands: equal ids mean equal prefixes. */
static void blocks_form_a_prefix_tree(void **state)
{
    struct trace t;

    (void)state;
    for (unsigned kind = 0; generate_kinds[kind]; kind++) {
        uint64_t *parent;

        assert_int_equal(generate_trace(&t, generate_kinds[kind], SEED, REQUESTS), 0);
        parent = calloc(t.n_blocks + 100000, sizeof(*parent));
        assert_non_null(parent);
        for (size_t i = 0; i < t.n_requests; i++)
            for (uint32_t k = 0; k < t.requests[i].n_blocks; k++) {
                uint64_t id = t.blocks[t.requests[i].first + k];
                uint64_t above = k ? t.blocks[t.requests[i].first + k - 1] + 2 : 1;

                assert_true(id < t.n_blocks + 100000);
                assert_true(parent[id] == 0 || parent[id] == above);
                parent[id] = above;
            }
        free(parent);
        trace_free(&t);
    }
}

/* References that an unlimited cache would hit, from the first block on. */
static double reuse(const struct trace *t)
{
    uint8_t *seen = calloc(t->n_blocks + 100000, 1);
    double hits = 0;

    assert_non_null(seen);
    for (size_t i = 0; i < t->n_requests; i++) {
        const uint64_t *blocks = t->blocks + t->requests[i].first;
        uint32_t n = t->requests[i].n_blocks, run = 0;

        while (run < n && seen[blocks[run]])
            run++;
        hits += run;
        for (uint32_t k = run; k < n; k++)
            seen[blocks[k]] = 1;
    }
    free(seen);
    return hits / (double)t->n_blocks;
}

static void loads_share_what_they_say(void **state)
{
    static const struct {
        const char *kind;
        double least, most;
    } expected[] = {{"chat", 0.5, 0.85}, {"agents", 0.8, 0.98}, {"batch", 0.8, 0.99}};

    (void)state;
    for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct trace t;
        double share;

        assert_int_equal(generate_trace(&t, expected[i].kind, SEED, REQUESTS), 0);
        share = reuse(&t);
        if (share < expected[i].least || share > expected[i].most)
            fail_msg("%s: %.3f of the references are used again", expected[i].kind, share);
        trace_free(&t);
    }
}

static void an_unknown_kind_is_refused(void **state)
{
    struct trace t;

    (void)state;
    assert_int_equal(generate_trace(&t, "chats", SEED, 10), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_trace),       cmocka_unit_test(requests_come_in_order_and_within_limits),
        cmocka_unit_test(blocks_form_a_prefix_tree),  cmocka_unit_test(loads_share_what_they_say),
        cmocka_unit_test(an_unknown_kind_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
