/* The LRU policy against a plain model: order, sizes, ages. */
#include "store/evict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SLOTS 300u

static uint64_t no_key(void *arg, uint32_t slot)
{
    (void)arg;
    return slot + 1;
}

static const struct evict_env env = {.key = no_key};

struct model {
    uint64_t stamp[SLOTS]; /* 0: not in */
    uint32_t pages[SLOTS];
    uint64_t clock;
};

static uint32_t oldest(const struct model *m, uint32_t pages)
{
    uint32_t best = SLOT_NONE;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (m->stamp[i] && (pages == 0 || m->pages[i] == pages) &&
            (best == SLOT_NONE || m->stamp[i] < m->stamp[best])) {
            best = i;
        }
    }
    return best;
}

static void test_against_model(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    static struct model m;
    memset(&m, 0, sizeof m);
    const struct evict_policy *p = evict_find("lru");
    void *l = p->create(SLOTS, &env);
    for (int step = 0; step < 200000; step++) {
        uint32_t slot = (uint32_t)rand() % SLOTS, got = SLOT_NONE, pages = (uint32_t)rand() % 5;
        switch (rand() % 5) {
        case 0:
            if (!m.stamp[slot]) {
                m.pages[slot] = 1u + (uint32_t)rand() % 4;
                p->insert(l, slot, &(struct evict_hint){.pages = m.pages[slot]});
                m.stamp[slot] = ++m.clock;
            }
            break;
        case 1:
            p->touch(l, &slot, 1, 0);
            m.stamp[slot] = m.stamp[slot] ? ++m.clock : 0;
            break;
        case 2:
            p->remove(l, slot);
            m.stamp[slot] = 0;
            break;
        default:
            assert_int_equal(p->victims(l, pages, &got, 1), oldest(&m, pages) != SLOT_NONE);
            assert_int_equal(got, oldest(&m, pages));
        }
        if (step % 1000 == 0) {
            const char *why = p->check(l);
            if (why) {
                fail_msg("%s", why);
            }
        }
    }
    p->destroy(l);
}

static void test_victims_of_all_sizes_come_by_age(void **state)
{
    (void)state;
    const struct evict_policy *p = evict_find("lru");
    void *l = p->create(SLOTS, &env);
    uint32_t out[SLOTS];
    assert_int_equal(p->victims(l, 0, out, SLOTS), 0);
    for (uint32_t i = 0; i < 100; i++) {
        p->insert(l, i, &(struct evict_hint){.pages = i % 7});
    }
    assert_int_equal(p->victims(l, 0, out, SLOTS), 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(out[i], i);
    }
    (p->skip)(l, 0); /* cmocka has a macro of this name */
    assert_int_equal(p->age(l, 0), 0);
    p->victims(l, 0, out, 1);
    assert_int_equal(out[0], 1);
    p->expire(l, 50); /* pages 1, as 1, 8, .. */
    p->victims(l, 1, out, 2);
    assert_int_equal(out[0], 50);
    assert_int_equal(out[1], 1);
    p->expire(l, 71);
    p->victims(l, 1, out, 3);
    assert_int_equal(out[0], 71);
    assert_int_equal(out[1], 50);
    p->touch(l, (uint32_t[]){SLOTS, UINT32_MAX, 71 | TOUCH_CHILD}, 3, 0);
    p->victims(l, 1, out, 1);
    assert_int_equal(out[0], 50);
    assert_true(p->may(l, 50));
    assert_null(p->check(l));
    p->destroy(l);
    assert_null(evict_find("none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_victims_of_all_sizes_come_by_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
