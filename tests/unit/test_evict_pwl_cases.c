/* The policy pwl in single cases: parents, priorities, ttl, what is learned, what it takes. */
#include "store/evict_pwl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOBODY SLOT_NONE

static uint64_t keys[1u << 16]; /* by slot */

static uint64_t key_of(void *arg, uint32_t slot)
{
    (void)arg;
    return keys[slot];
}

static const struct evict_env env = {.key = key_of};

static uint64_t new_key(void)
{
    static uint64_t last;
    uint64_t z = ++last * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 31;
}

static void assert_whole(void *p)
{
    const char *why = evict_pwl.check(p);
    if (why) {
        fail_msg("%s", why);
    }
}

/* ---- single cases ---- */

static struct evict_hint one(uint32_t slot, uint64_t parent)
{
    keys[slot] = new_key();
    return (struct evict_hint){
        .key = keys[slot], .parent = parent, .prefix = parent, .count = 1, .pages = 1, .above = NOBODY};
}

/* A prompt of n objects in slots first ..; its request is numbered by its key. */
static void put_prompt(struct pwl *w, uint32_t first, uint32_t n, uint64_t parent, uint8_t priority)
{
    for (uint32_t i = 0; i < n; i++) {
        keys[first + i] = new_key();
    }
    for (uint32_t i = n; i-- > 0;) {
        struct evict_hint h = {.key = keys[first + i],
                               .parent = i ? keys[first + i - 1] : parent,
                               .prefix = parent,
                               .request = keys[first],
                               .pages = 1,
                               .position = i,
                               .count = n,
                               .above = i ? first + i - 1 : NOBODY,
                               .priority = priority};
        evict_pwl.insert(w, first + i, &h);
    }
}

static void test_deepest_first(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(1000, &env);
    uint32_t out[300];
    put_prompt(w, 0, 100, 0, 0);
    assert_int_equal(evict_pwl.victims(w, 0, out, 300), 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(out[i], 99 - i);
        assert_int_equal(evict_pwl.may(w, i), i == 99);
    }
    (evict_pwl.skip)(w, 99);                                  /* read by somebody: so its parents have to stay, too */
    assert_int_equal(evict_pwl.victims(w, 0, out, 300), 100); /* nothing else is there */
    assert_int_equal(out[0], 99);
    put_prompt(w, 200, 3, 0, 0);
    (evict_pwl.skip)(w, 99);
    assert_int_equal(evict_pwl.victims(w, 0, out, 300), 3);
    /* It comes back after some uses. */
    for (int i = 0; i < 100; i++) {
        evict_pwl.touch(w, (uint32_t[]){200}, 1, 0);
    }
    assert_int_equal(evict_pwl.victims(w, 0, out, 300), 103);
    assert_whole(w);
    evict_pwl.destroy(w);
}

/* Parents of another size are offered when no leaf is, and so are objects whose hints go in a circle. */
static void test_no_leaf(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(1000, &env);
    uint32_t out[8];
    struct evict_hint a = one(5, 0), b = one(6, 0);
    a.pages = 16;
    evict_pwl.insert(w, 5, &a);
    b.parent = a.key;
    evict_pwl.insert(w, 6, &b);
    assert_int_equal(evict_pwl.victims(w, 16, out, 8), 1);
    assert_int_equal(out[0], 5);
    assert_true(evict_pwl.may(w, 5));
    assert_int_equal(evict_pwl.victims(w, 0, out, 8), 2);
    assert_int_equal(out[0], 6);
    evict_pwl.remove(w, 6);
    evict_pwl.remove(w, 5);

    struct evict_hint x = one(7, 0), y = one(8, 0);
    evict_pwl.insert(w, 7, &x);
    evict_pwl.insert(w, 8, &y);
    evict_pwl.link(w, 7, y.key);
    evict_pwl.link(w, 8, x.key);
    assert_whole(w);
    assert_int_equal(evict_pwl.victims(w, 0, out, 8), 2);
    assert_true(evict_pwl.may(w, 7) && evict_pwl.may(w, 8));
    evict_pwl.remove(w, 7);
    assert_int_equal(evict_pwl.victims(w, 0, out, 8), 1);
    assert_int_equal(out[0], 8);
    evict_pwl.remove(w, 8);
    assert_int_equal(w->live, 0);
    assert_whole(w);
    evict_pwl.destroy(w);
}

/* A hint, a link after the fact, and a prefix call make parents; a parent that was removed and comes back as another
 * object keeps its count. */
static void test_parents(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(1000, &env);
    uint32_t out[8];
    for (uint32_t i = 0; i < 4; i++) {
        struct evict_hint h = one(i, i == 1 ? keys[0] : 0);
        evict_pwl.insert(w, i, &h);
    }
    evict_pwl.link(w, 2, keys[1]);
    evict_pwl.link(w, 2, keys[0]); /* it has one */
    evict_pwl.touch(w, (uint32_t[]){3 | TOUCH_CHILD, 2, 1, 0}, 4, 0);
    assert_int_equal(evict_pwl.victims(w, 0, out, 8), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(out[i], 3 - i);
    }
    evict_pwl.remove(w, 2);
    struct evict_hint h = one(2, 0);
    evict_pwl.insert(w, 2, &h);
    assert_whole(w);
    assert_int_equal(w->slot[2].children, 1);
    evict_pwl.remove(w, 3);
    assert_int_equal(w->slot[2].children, 0);
    assert_int_equal(evict_pwl.victims(w, 0, out, 8), 3);
    assert_whole(w);
    evict_pwl.destroy(w);
}

static void test_priority_and_ttl(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(1000, &env);
    uint32_t out[300];
    put_prompt(w, 0, 100, 0, 3);
    put_prompt(w, 100, 100, 0, 0);
    assert_int_equal(evict_pwl.victims(w, 0, out, 100), 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(out[i], 199 - i);
    }
    /* Old enough, it goes first: the other prompt is used. */
    for (uint32_t k = 0; k < 40000; k++) {
        evict_pwl.touch(w, (uint32_t[]){199 - k % 100}, 1, 0);
    }
    evict_pwl.victims(w, 0, out, 100);
    assert_int_equal(out[0], 99);
    /* A ttl comes before everything, but not before its children. */
    evict_pwl.expire(w, 198);
    evict_pwl.victims(w, 0, out, 100);
    assert_int_equal(out[0], 99);
    evict_pwl.expire(w, 199);
    evict_pwl.touch(w, (uint32_t[]){199}, 1, 0);
    evict_pwl.victims(w, 0, out, 100);
    assert_int_equal(out[0], 199);
    assert_int_equal(out[1], 198);
    assert_int_equal(out[2], 99);
    assert_whole(w);
    evict_pwl.destroy(w);
}

/* One kind of prompt is used again, four times, the other never: the first stays until then, although it is older. */
static void test_learns(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(4000, &env);
    uint32_t out[256], slots[4];
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t short_at = round % 50 * 4, long_at = 1000 + round % 50 * 20;
        for (uint32_t i = 0; i < 20; i++) {
            evict_pwl.remove(w, long_at + 19 - i);
        }
        for (uint32_t i = 0; i < 4; i++) {
            evict_pwl.remove(w, short_at + 3 - i);
        }
        put_prompt(w, short_at, 4, 0, 0);
        put_prompt(w, long_at, 20, 0, 0);
        for (uint32_t k = 10; k <= round && k < 50; k += 10) {
            for (uint32_t i = 0; i < 4; i++) {
                slots[i] = (round - k) % 50 * 4 + 3 - i;
            }
            evict_pwl.touch(w, slots, 4, 0);
        }
    }
    assert_int_equal(evict_pwl.victims(w, 0, out, 256), 256);
    uint32_t of_short = 0;
    for (uint32_t i = 0; i < 256; i++) {
        of_short += out[i] < 1000 && pwl_uses(&w->slot[out[i]]) < 5;
    }
    assert_true(of_short <= 10); /* last members, which have a class of their own */
    assert_true(w->hits[PWL_FIRST] > 100 && w->exposure[PWL_FIRST + 2] > 1000);
    assert_true(w->hits[PWL_FIRST + 2] < 1 && w->exposure[PWL_FIRST] < 400);
    assert_true(20 * w->weight[PWL_FIRST] < w->weight[PWL_FIRST + 2]);
    assert_true(w->median > 250 && w->median < 450); /* ten rounds */
    assert_whole(w);
    evict_pwl.destroy(w);
}

/* What many go on with is a common beginning, of whatever length, here or at another node: prompts behind it are first
 * ones. What one goes on with is a conversation. */
static void test_common_beginnings(void **state)
{
    (void)state;
    struct pwl *w = evict_pwl.create(1000, &env);
    put_prompt(w, 0, 10, 0, 0);
    for (uint32_t i = 0; i < 8; i++) {
        put_prompt(w, 100 + 10 * i, 3, keys[9], 0);
        assert_int_equal(pwl_class_of(&w->slot[100 + 10 * i]), i < 5 ? PWL_MIDDLE : PWL_FIRST);
        put_prompt(w, 300 + 10 * i, 3, 12345, 0);
        assert_int_equal(pwl_class_of(&w->slot[300 + 10 * i]), i < 4 ? PWL_MIDDLE : PWL_FIRST);
    }
    put_prompt(w, 500, 3, keys[0], 0); /* behind the only object of another prompt */
    assert_int_equal(pwl_class_of(&w->slot[500]), PWL_FIRST);
    put_prompt(w, 510, 9, 54321, 0);
    assert_int_equal(pwl_class_of(&w->slot[510]), PWL_LONG);
    put_prompt(w, 520, 2, keys[510], 0); /* its parent is at another node */
    assert_int_equal(pwl_class_of(&w->slot[520]), PWL_SHORT);
    assert_whole(w);
    evict_pwl.destroy(w);
}

/* A key that comes back soon after it was evicted counts as used. */
static void test_ghosts(void **state)
{
    (void)state;
    struct ghosts g;
    struct ghost out;
    assert_int_equal(ghosts_init(&g, 1u << 30), 0);
    assert_int_equal(g.bytes, 2u << 20);
    assert_int_equal(ghosts_shift(&g, 10000000), 8);
    assert_false(ghosts_take(&g, 77, 0, &out));
    for (uint64_t i = 0; i < 1000000; i++) {
        ghosts_add(&g, i * 0x9e3779b97f4a7c15u, i, i + 5, 3, 2);
    }
    assert_false(ghosts_take(&g, 5 * 0x9e3779b97f4a7c15u, 1000000, &out));
    assert_true(ghosts_take(&g, 999990 * 0x9e3779b97f4a7c15u, 1000000 + 64000, &out));
    assert_true(out.class == 3 && out.uses == 2 && out.age >= 63936 && out.age <= 64064);
    assert_false(ghosts_take(&g, 999990 * 0x9e3779b97f4a7c15u, 1000000, &out));
    assert_false(
        ghosts_take(&g, 999991 * 0x9e3779b97f4a7c15u, 999991 + (UINT64_C(1) << 29) + 64, &out)); /* too long ago */
    ghosts_free(&g);

    struct pwl *w = evict_pwl.create(1000, &env);
    put_prompt(w, 0, 2, 0, 0);
    uint64_t key = keys[0];
    evict_pwl.remove(w, 1);
    evict_pwl.remove(w, 0);
    struct evict_hint h = one(9, 0);
    keys[9] = h.key = key;
    h.count = 3;
    evict_pwl.insert(w, 9, &h);
    assert_int_equal(pwl_class_of(&w->slot[9]), PWL_USED);
    assert_int_equal(pwl_uses(&w->slot[9]), 2);
    evict_pwl.destroy(w);
}

/* A key that was evicted at one node and is put at another: as if both had been one. */
static void test_pasts(void **state)
{
    (void)state;
    struct pwl *a = evict_pwl.create(1000, &env), *b = evict_pwl.create(1000, &env);
    put_prompt(a, 0, 4, 0, 0);
    for (uint32_t i = 0; i < 3; i++) {
        put_prompt(a, 100 + 4 * i, 4, 0, 0);
        evict_pwl.touch(a, (uint32_t[]){3, 2, 1, 0}, 4, 0);
    }
    uint64_t key = keys[1], unknown = new_key();
    (evict_pwl.remove)(a, 1);
    uint64_t past = evict_pwl.recall(a, key, false);
    assert_true(past != 0 && past >> PAST_BITS == 0);
    assert_int_equal(evict_pwl.recall(a, unknown, false), 0);
    /* Told to a home, which forgets it when it tells it on. */
    put_prompt(b, 0, 4, 0, 0);
    evict_pwl.remember(b, key, past);
    assert_int_equal(evict_pwl.recall(b, key, true) >> 32, past >> 32);
    assert_int_equal(evict_pwl.recall(b, key, true), 0);
    /* Of use where the key is: 4 uses before, one more now. Once, and not of what was used since. */
    assert_int_equal(pwl_uses(&b->slot[2]), 1);
    assert_true(evict_pwl.note(b, 2, past));
    assert_int_equal(pwl_uses(&b->slot[2]), 5);
    assert_int_equal(pwl_class_of(&b->slot[2]), PWL_USED + 2);
    assert_false(evict_pwl.note(b, 2, past));
    evict_pwl.touch(b, (uint32_t[]){1}, 1, 0);
    assert_false(evict_pwl.note(b, 1, past));
    assert_false(evict_pwl.note(b, 500, past));
    assert_whole(b);
    /* A home inserts it: what it was told is its own. */
    evict_pwl.remember(b, key, past);
    struct evict_hint h = one(50, 0);
    h.key = keys[50] = key;
    evict_pwl.insert(b, 50, &h);
    assert_int_equal(pwl_uses(&b->slot[50]), 5);
    /* Whatever a peer says is taken as 40 bits of hints. */
    const uint64_t odd[] = {UINT64_MAX,       0, 1, UINT64_C(0xff) << 32, UINT64_C(0xf0) << 32 | UINT32_MAX,
                            UINT64_C(1) << 36};
    for (uint32_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_false(evict_pwl.note(b, 3, odd[i]));
        evict_pwl.remember(b, unknown, odd[i]);
        assert_int_equal(evict_pwl.recall(b, unknown, true), 0);
    }
    assert_false(evict_pwl.note(b, UINT32_MAX, past));
    assert_whole(a);
    assert_whole(b);
    evict_pwl.destroy(a);
    evict_pwl.destroy(b);
}

static void test_bytes(void **state)
{
    (void)state;
    const uint32_t n = 60000;
    struct pwl *w = evict_pwl.create(n, &env);
    for (uint32_t i = 0; i < n; i++) {
        struct evict_hint h = one(i, 0);
        evict_pwl.insert(w, i, &h);
    }
    size_t bytes = n * sizeof *w->slot + w->chains * sizeof *w->head;
    print_message("%.2f bytes a slot\n", (double)bytes / n);
    assert_true(bytes < 32u * n);
    for (uint32_t i = 0; i < n; i += 7) {
        assert_int_equal(pwl_keys_find(w, keys[i]), i);
    }
    assert_int_equal(pwl_keys_find(w, 12345), SLOT_NONE);
    assert_whole(w);
    evict_pwl.destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deepest_first), cmocka_unit_test(test_no_leaf),
        cmocka_unit_test(test_parents),       cmocka_unit_test(test_priority_and_ttl),
        cmocka_unit_test(test_learns),        cmocka_unit_test(test_common_beginnings),
        cmocka_unit_test(test_ghosts),        cmocka_unit_test(test_pasts),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
