/* The policy pwl: against a slow model at every step, and against LRU where no hints are given. */
#include "store/evict_pwl.h"

#include "tests/support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS 400u
#define STEPS 60000
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

/* ---- the model ---- */

struct model {
    bool in[SLOTS], inner[SLOTS], parked[SLOTS];
    uint32_t parent[SLOTS], children[SLOTS], pages[SLOTS];
    uint8_t priority[SLOTS], uses[SLOTS], class[SLOTS];
    uint64_t last[SLOTS], clock;
};

static struct model m;
static struct pwl *p;

static uint8_t by_uses(uint8_t uses)
{
    return uses == 2 ? 9 : uses == 3 ? 10 : uses <= 5 ? 11 : uses <= 8 ? 12 : 13;
}

static void model_adopt(uint32_t slot, uint32_t parent)
{
    if (parent == NOBODY || parent == slot || m.parent[slot] != NOBODY) {
        return;
    }
    m.parent[slot] = parent;
    m.children[parent]++;
}

static void model_insert(uint32_t slot, const struct evict_hint *h, uint32_t parent, uint32_t depth)
{
    m.in[slot] = true;
    m.pages[slot] = h->pages;
    m.priority[slot] = h->priority;
    m.inner[slot] = parent != NOBODY;
    m.uses[slot] = 1;
    m.parent[slot] = NOBODY;
    m.last[slot] = ++m.clock;
    model_adopt(slot, parent);
    uint32_t total = h->count + depth;
    if (h->count == 1 && m.parent[slot] == NOBODY && m.children[slot] == 0) {
        m.class[slot] = PWL_PLAIN;
    } else if (h->position + 1 == h->count && m.children[slot] == 0) {
        m.class[slot] = PWL_LAST;
    } else if (depth == 2) {
        m.class[slot] = h->count <= 2 ? 1 : h->count <= 8 ? 2 : 3;
    } else {
        m.class[slot] = total <= 4 ? 4 : total <= 16 ? 5 : total <= 32 ? 6 : total <= 64 ? 7 : 8;
    }
}

static void model_touch(uint32_t slot)
{
    m.last[slot] = ++m.clock;
    m.parked[slot] = false;
    if (m.class[slot] == PWL_DUE) {
        return;
    }
    m.uses[slot] += m.uses[slot] < 15;
    if (m.class[slot] != PWL_PLAIN || m.parent[slot] != NOBODY || m.children[slot]) {
        m.class[slot] = by_uses(m.uses[slot]);
    }
}

static void model_remove(uint32_t slot)
{
    m.in[slot] = m.parked[slot] = false;
    if (m.parent[slot] != NOBODY) {
        m.children[m.parent[slot]]--;
        m.parent[slot] = NOBODY;
    }
}

static double model_badness(uint32_t slot)
{
    double x = (double)(m.clock - m.last[slot]) / p->span;
    return pow(1 + x + x * x / 4, 2) * p->weight[m.class[slot]] / (m.priority[slot] == 3 ? 4 : 1);
}

/* ---- steps of the random test ---- */

static uint32_t free_slot(void)
{
    uint32_t slot = draw_below(SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS) {
        if (!m.in[slot]) {
            return slot;
        }
    }
    return NOBODY;
}

static uint32_t used_slot(void)
{
    uint32_t slot = draw_below(SLOTS);
    return m.in[slot] ? slot : NOBODY;
}

static void step_insert(void)
{
    static uint64_t request;
    uint32_t count = draw_below(3) ? 1 + draw_below(12) : 1, slots[12], pages = 1 + draw_below(2) * 3;
    uint32_t parent = draw_below(3) ? used_slot() : NOBODY;
    uint8_t priority = draw_below(4) ? 0 : 3; /* 4 times as much */
    for (uint32_t i = 0; i < count; i++) {
        if ((slots[i] = free_slot()) == NOBODY) {
            count = i;
            break;
        }
        m.in[slots[i]] = true; /* taken */
        keys[slots[i]] = new_key();
    }
    uint32_t depth = parent == NOBODY ? 0 : m.inner[parent] && m.children[parent] <= 4 ? 2 : 1;
    uint64_t prefix = parent == NOBODY ? 0 : keys[parent];
    request++;
    for (uint32_t i = count; i-- > 0;) {
        struct evict_hint h = {.parent = i ? keys[slots[i - 1]] : prefix,
                               .key = keys[slots[i]],
                               .prefix = prefix,
                               .request = request,
                               .pages = pages,
                               .position = i,
                               .count = count,
                               .above = i ? slots[i - 1] : NOBODY,
                               .priority = priority};
        evict_pwl.insert(p, slots[i], &h);
        model_insert(slots[i], &h, i ? slots[i - 1] : parent, depth);
    }
}

static void step_touch(void)
{
    uint32_t slots[8], n = 1 + draw_below(8);
    for (uint32_t i = 0; i < n; i++) {
        slots[i] = draw_below(SLOTS + 20) | (draw_below(8) ? 0 : TOUCH_CHILD);
    }
    evict_pwl.touch(p, slots, n, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slots[i] & ~TOUCH_CHILD, next = i + 1 < n ? slots[i + 1] & ~TOUCH_CHILD : NOBODY;
        if (slot < SLOTS && m.in[slot]) {
            if (slots[i] & TOUCH_CHILD && next < SLOTS && m.in[next]) {
                model_adopt(slot, next);
            }
            model_touch(slot);
        }
    }
}

static void step_remove(uint32_t slot)
{
    evict_pwl.remove(p, slot);
    model_remove(slot);
}

static void check_choice(const uint32_t *out, uint32_t i, uint32_t pages)
{
    uint32_t left[SLOTS];
    memcpy(left, m.children, sizeof left);
    bool gone[SLOTS] = {false};
    for (uint32_t k = 0; k < i; k++) {
        gone[out[k]] = true;
        if (m.parent[out[k]] != NOBODY) {
            left[m.parent[out[k]]]--;
        }
    }
    double best = -1;
    for (uint32_t s = 0; s < SLOTS; s++) {
        bool leaf = m.in[s] && left[s] == 0 && !gone[s] && (pages == 0 || m.pages[s] == pages);
        if (leaf && !pwl_is(&p->slot[s], PWL_IS_PARKED) && model_badness(s) > best) {
            best = model_badness(s);
        }
    }
    if (out[i] == NOBODY) {
        assert_true(best < 0);
        return;
    }
    assert_true(m.in[out[i]] && !gone[out[i]] && left[out[i]] == 0);
    assert_true(pages == 0 || m.pages[out[i]] == pages);
    assert_true(model_badness(out[i]) >= best * (1 - 1e-9) && model_badness(out[i]) <= best * (1 + 1e-9));
}

static void use_victims(const uint32_t *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool may = evict_pwl.may(p, out[i]);
        assert_int_equal(may, m.children[out[i]] == 0);
        uint32_t what = draw_below(8);
        if (what == 0) {
            (evict_pwl.skip)(p, out[i]); /* cmocka has a macro of this name */
            m.parked[out[i]] = true;
            m.last[out[i]] = m.clock;
        } else if (what < 6 && may) {
            step_remove(out[i]);
        }
    }
}

/* Which come back, and when, is the policy's choice: each is used once more, as its stamp says. */
static void model_unparked(void)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (m.parked[i] && m.in[i] && !pwl_is(&p->slot[i], PWL_IS_PARKED)) {
            m.parked[i] = false;
            m.last[i] = pwl_last(&p->slot[i]);
            assert_true(m.last[i] > m.clock && m.last[i] <= p->clock);
        }
    }
    m.clock = p->clock;
}

static void step_victims(void)
{
    static const uint32_t sizes[] = {0, 0, 1, 4};
    uint32_t pages = sizes[draw_below(4)], max = draw_below(4) ? 1 + draw_below(20) : 400, out[SLOTS + 1];
    uint32_t n = evict_pwl.victims(p, pages, out, max);
    model_unparked();
    if (p->forced) {
        return; /* test_no_leaf has these */
    }
    out[n] = NOBODY;
    for (uint32_t i = 0; i < n + (n < max && n < PWL_VICTIMS); i++) {
        check_choice(out, i, pages);
    }
    use_victims(out, n);
}

static void drain(void)
{
    uint32_t out[7], idle = 0;
    while (p->live) {
        uint32_t n = evict_pwl.victims(p, 0, out, 7);
        model_unparked();
        assert_true(n > 0 && idle < 1000);
        idle++;
        for (uint32_t i = 0; i < n; i++) {
            if (evict_pwl.may(p, out[i])) {
                assert_true(p->forced || m.children[out[i]] == 0);
                step_remove(out[i]);
                idle = 0;
            }
        }
    }
    assert_int_equal(evict_pwl.victims(p, 0, out, 7), 0);
}

static void test_against_model(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        memset(&m, 0, sizeof m);
        memset(m.parent, 0xff, sizeof m.parent);
        assert_non_null(p = evict_pwl.create(SLOTS, &env));
        for (int step = 0; step < STEPS / 3; step++) {
            uint32_t what = draw_below(16), slot = used_slot();
            if (what < 5) {
                step_insert();
            } else if (what < 10) {
                step_touch();
            } else if (what == 10 && slot != NOBODY && draw_below(4) == 0) {
                step_remove(slot);
            } else if (what == 11 && slot != NOBODY && draw_below(8) == 0) {
                evict_pwl.expire(p, slot);
                m.last[slot] = m.class[slot] == PWL_DUE ? m.last[slot] : ++m.clock;
                m.parked[slot] &= m.class[slot] == PWL_DUE;
                m.class[slot] = PWL_DUE;
            } else if (what > 11) {
                step_victims();
            }
            assert_whole(p);
            assert_int_equal(p->clock, m.clock);
        }
        drain();
        assert_whole(p);
        evict_pwl.destroy(p);
    }
}

/* ---- without hints ---- */

static void random_touch(void *a, void *b, const bool *in)
{
    uint32_t slots[16], n = 0;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t slot = draw_below(SLOTS);
        if (in[slot]) {
            slots[n++] = slot;
        }
    }
    evict_pwl.touch(a, slots, n, 0);
    evict_lru.touch(b, slots, n, 0);
}

static void random_victims(void *a, void *b, bool *in)
{
    static uint32_t x[SLOTS], y[SLOTS];
    uint32_t pages = draw_below(5), max = 1 + draw_below(draw_below(8) ? 8 : SLOTS);
    uint32_t n = evict_pwl.victims(a, pages, x, max);
    assert_int_equal(n, evict_lru.victims(b, pages, y, max));
    assert_memory_equal(x, y, n * sizeof *x);
    for (uint32_t i = 0; i < n && i < 12; i++) {
        assert_true(evict_pwl.may(a, x[i]));
        evict_pwl.remove(a, x[i]);
        evict_lru.remove(b, x[i]);
        in[x[i]] = false;
    }
}

/* Single objects without a parent: the victims of LRU, in its order, of each size and of all. */
static void test_without_hints_it_is_lru(void **state)
{
    (void)state;
    static bool in[SLOTS];
    void *a = evict_pwl.create(SLOTS, &env), *b = evict_lru.create(SLOTS, &env);
    for (int step = 0; step < 100000; step++) {
        uint32_t slot = draw_below(SLOTS), what = draw_below(4);
        if (what < 2 && !in[slot]) {
            keys[slot] = draw_below(2) ? new_key() : 1000000 + draw_below(2000); /* some of them come back */
            struct evict_hint h = {
                .key = keys[slot], .pages = 1 + draw_below(4), .above = NOBODY, .request = (uint64_t)step};
            evict_pwl.insert(a, slot, &h);
            evict_lru.insert(b, slot, &h);
            in[slot] = true;
        } else if (what == 2) {
            random_touch(a, b, in);
        } else if (what == 3 && draw_below(8) == 0) {
            random_victims(a, b, in);
        }
        if (step % 1000 == 0) {
            assert_whole(a);
        }
    }
    evict_pwl.destroy(a);
    evict_lru.destroy(b);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_without_hints_it_is_lru),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
