/* The order in which a restart takes its objects back: that of their seals, however their counters lie. */
#include "tests/support/core.h"
#include "tests/support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define SECOND INT64_C(1000000000)
#define OBJECTS 600u
#define STEP 37u

/* Keys in another order than that of their seals: the index lists them by key. */
static void name_of(char out[16], uint32_t i)
{
    snprintf(out, 16, "%05u", i * 7919 % 10007);
}

static void limit(struct core *c, uint64_t objects)
{
    uint64_t bytes = objects * PAGE_BYTES;
    struct node_limits l = {.high_bytes = bytes, .low_bytes = bytes, .draft_quota = c->config.draft_quota};
    core_event(c, (struct node_event){.kind = EV_LIMITS, .limits = &l});
    core_tick(c, 2 * SECOND);
    core_check(c);
}

static void put_all(struct core *c, void (*between)(struct core *c, uint32_t i))
{
    char key[16];
    for (uint32_t i = 0; i < OBJECTS; i++) {
        between(c, i);
        name_of(key, i);
        assert_int_equal(core_put(c, 1, key, 1, 0), 0);
    }
}

/* lru takes them in the order in which the restart inserted them. */
static void evict_in_order(struct core *c)
{
    char key[16];
    for (uint32_t gone = STEP; gone < OBJECTS; gone += STEP) {
        limit(c, OBJECTS - gone);
        for (uint32_t i = 0; i < OBJECTS; i++) {
            name_of(key, i);
            if ((core_find(c, key, 0) != SLOT_NONE) != (i >= gone)) {
                fail_msg("object %u of %u is %s when %u are to be gone", i, OBJECTS, i < gone ? "there" : "gone", gone);
            }
        }
    }
}

static void with_lru(struct core *c)
{
    c->config.policy = "lru";
}

static void run(void (*between)(struct core *c, uint32_t i))
{
    const uint64_t session = 1;
    struct core c;
    core_open(&c, 16 * MIB, with_lru);
    core_attach(&c, 1);
    put_all(&c, between);
    core_crash(&c, &session, 1);
    core_attach(&c, 1);
    core_check(&c);
    evict_in_order(&c);
    core_close(&c);
}

static void dense(struct core *c, uint32_t i)
{
    (void)c, (void)i; /* the clock stands: one after the other */
}

static void test_dense(void **state)
{
    (void)state;
    run(dense);
}

static void spread(struct core *c, uint32_t i)
{
    (void)i;
    c->now.wall_us += draw() % 5 ? draw() % 3 : draw() % 100000;
}

static void test_spread(void **state)
{
    (void)state;
    run(spread);
}

/* All but the first, or all but the last, fall into one bucket. */
static void first_far(struct core *c, uint32_t i)
{
    c->now.wall_us += i == 1 ? UINT64_C(1) << 40 : 0;
}

static void last_far(struct core *c, uint32_t i)
{
    c->now.wall_us += i == OBJECTS - 1 ? UINT64_C(1) << 40 : 0;
}

static void test_far(void **state)
{
    (void)state;
    run(first_far);
    run(last_far);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
