/* The baton between a node's thread and its callers: one holder at a time, a park that ends, and one that is not
 * needed. */
#include "store/shell/baton.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CALLERS 3u
#define ROUNDS 20000u
#define PARK_NS 200000 /* of baton.c: a park that a caller's end need not end */

static struct baton baton;
static unsigned long held; /* by whoever holds the baton */
static _Atomic unsigned left;

static void *caller(void *arg)
{
    for (unsigned i = 0; i < ROUNDS;) {
        if (!baton_take(&baton)) {
            sched_yield();
            continue;
        }
        held++;
        i++;
        baton_give(&baton);
    }
    atomic_fetch_sub(&left, 1);
    return arg;
}

static void one_holder(void **state)
{
    pthread_t t[CALLERS];
    unsigned long turns = 0;
    (void)state;
    baton = (struct baton){0};
    held = 0;
    atomic_store(&left, CALLERS);
    for (unsigned i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, caller, NULL), 0);
    }
    while (atomic_load(&left)) { /* the node's thread */
        baton_regain(&baton);
        held++;
        turns++;
        baton_leave(&baton);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(held, CALLERS * ROUNDS + turns);
}

static void *regain(void *arg)
{
    baton_regain(&baton);
    held++;
    baton_leave(&baton);
    return arg;
}

/* While one caller drives on, the node's thread parks for longer and longer: that caller's end wakes it. */
static void end_of_a_long_drive(void **state)
{
    pthread_t t;
    (void)state;
    baton = (struct baton){0};
    held = 0;
    assert_true(baton_take(&baton));
    assert_false(baton_take(&baton));
    assert_int_equal(pthread_create(&t, NULL, regain, NULL), 0);
    while (atomic_load(&baton.parked_ns) < 16 * PARK_NS) {
        sched_yield();
    }
    assert_true(baton_give(&baton));
    assert_int_equal(atomic_load(&baton.unpark), 1);
    pthread_join(t, NULL);
    assert_int_equal(held, 1);
    assert_int_equal(atomic_load(&baton.parked_ns), 0);
}

/* Callers that follow each other closely leave the node's thread in its park, which ends by itself after the last. */
static void callers_in_a_row(void **state)
{
    pthread_t t;
    (void)state;
    baton = (struct baton){0};
    held = 0;
    for (unsigned i = 0; i < 64; i++) {
        assert_true(baton_take(&baton));
        baton_give(&baton);
    }
    if (atomic_load(&baton.gap_ns) >= 50000) {
        skip(); /* this machine is too busy for callers to be close */
    }
    assert_true(baton_take(&baton));
    assert_int_equal(pthread_create(&t, NULL, regain, NULL), 0);
    while (atomic_load(&baton.parked_ns) == 0) {
        sched_yield();
    }
    baton_give(&baton);
    pthread_join(t, NULL);
    assert_int_equal(held, 1);
}

static void nobody_parks(void **state)
{
    (void)state;
    baton = (struct baton){0};
    assert_true(baton_take(&baton));
    assert_false(baton_give(&baton)); /* so that the caller wakes the thread, should anything be left to do */
    assert_int_equal(atomic_load(&baton.unpark), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder),
        cmocka_unit_test(end_of_a_long_drive),
        cmocka_unit_test(callers_in_a_row),
        cmocka_unit_test(nobody_parks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
