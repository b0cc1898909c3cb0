/* What the core tells its eviction policy: parents, priorities, ttl, after a restart too; what an eviction costs. */
#include "tests/support/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB (1u << 20)
#define SECOND INT64_C(1000000000)

struct extra { /* of a put */
    const char *parent;
    uint32_t ttl_s;
    uint8_t priority;
};

static void put(struct core *c, const char *key, struct extra x)
{
    struct msg_token t;
    uint32_t n = (uint32_t)strlen(key);
    assert_int_equal(core_grant(c, 1, 1, &t), 0);
    struct msg_put *m = (struct msg_put *)core_message(c, MSG_PUT, (uint32_t)sizeof *m + n);
    m->token = t;
    m->object = (struct msg_object){.checksum = 99,
                                    .size = 1,
                                    .key_size = (uint16_t)n,
                                    .ttl_s = x.ttl_s,
                                    .priority = x.priority,
                                    .parent = x.parent ? XXH3_64bits(x.parent, strlen(x.parent)) : 0};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, 1, &m->head);
    assert_true(r && r->status == 0);
}

static void seal_group(struct core *c, const char *name, uint32_t n)
{
    struct msg_token t[64];
    char key[64];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s%u", name, i);
        assert_int_equal(core_create(c, 1, key, 1, 0, &t[i]), 0);
    }
    assert_int_equal(core_seal(c, 1, t, n), 0);
}

/* Room for so many; what is newest stays in any case. */
static void leave(struct core *c, uint32_t objects)
{
    uint64_t bytes = (uint64_t)objects * PAGE_BYTES;
    struct node_limits l = {.high_bytes = bytes, .low_bytes = bytes, .draft_quota = c->config.draft_quota};
    core_event(c, (struct node_event){.kind = EV_LIMITS, .limits = &l});
    core_tick(c, 2 * SECOND);
    core_check(c);
}

static bool here(const struct core *c, const char *name, uint32_t i)
{
    char key[64];
    snprintf(key, sizeof key, "%s%u", name, i);
    return core_find(c, key, 0) != SLOT_NONE;
}

static uint64_t objects(const struct core *c)
{
    struct node_status st;
    node_status(c->node, &st);
    return st.objects;
}

/* Without a word of parents those of a group go from its end, before a restart and after it. */
static void test_groups_go_from_their_ends(void **state)
{
    (void)state;
    const uint64_t session = 1;
    struct core c;
    core_open(&c, 16 * MIB, NULL);
    core_attach(&c, 1);
    seal_group(&c, "g", 20);
    put(&c, "last", (struct extra){0});
    leave(&c, 16);
    assert_int_equal(objects(&c), 16);
    assert_true(here(&c, "g", 14) && !here(&c, "g", 15));
    core_crash(&c, &session, 1);
    core_attach(&c, 1);
    put(&c, "again", (struct extra){0});
    leave(&c, 8);
    assert_int_equal(objects(&c), 8);
    for (uint32_t i = 1; i < 15; i++) {
        assert_true(here(&c, "g", i - 1) || !here(&c, "g", i));
    }
    assert_true(here(&c, "g", 5));
    core_close(&c);
}

/* Named ones, put one by one in any order of slots; a child that is read keeps its parents. */
static void test_named_parents(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 16 * MIB, NULL);
    core_attach(&c, 1);
    char key[32], parent[32];
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "a%u", i);
        snprintf(parent, sizeof parent, "a%u", i ? i - 1 : 0);
        put(&c, key, (struct extra){.parent = i ? parent : NULL});
    }
    put(&c, "last", (struct extra){0});
    c.pinned[core_find(&c, "a9", 0)] = 1;
    leave(&c, 5);
    assert_int_equal(objects(&c), 11);
    c.pinned[core_find(&c, "a9", 0)] = 0;
    leave(&c, 5);
    assert_int_equal(objects(&c), 5);
    assert_true(here(&c, "a", 3) && !here(&c, "a", 4));
    core_close(&c);
}

/* The order of slots in a prefix call says who is whose parent, where no put did. */
static void test_prefix_calls_make_parents(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 16 * MIB, NULL);
    core_attach(&c, 1);
    char key[32];
    uint32_t slots[10];
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "a%u", i);
        put(&c, key, (struct extra){0});
        slots[9 - i] = core_find(&c, key, 0) | (i ? TOUCH_CHILD : 0);
    }
    put(&c, "last", (struct extra){0});
    core_event(&c, (struct node_event){.kind = EV_TOUCH, .session = 1, .slots = slots, .n_slots = 10});
    uint32_t first = slots[0] & ~TOUCH_CHILD; /* the deepest, used last */
    core_event(&c, (struct node_event){.kind = EV_TOUCH, .session = 1, .slots = &first, .n_slots = 1});
    leave(&c, 5);
    assert_int_equal(objects(&c), 5);
    assert_true(here(&c, "a", 3) && !here(&c, "a", 4));
    core_close(&c);
}

static void test_priority_and_ttl(void **state)
{
    (void)state;
    const uint64_t session = 1;
    struct core c;
    core_open(&c, 16 * MIB, NULL);
    core_attach(&c, 1);
    char key[32];
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "p%u", i);
        put(&c, key, (struct extra){.priority = 200});
    }
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "n%u", i);
        put(&c, key, (struct extra){0});
    }
    put(&c, "t0", (struct extra){.ttl_s = 1, .priority = 255});
    put(&c, "t1", (struct extra){.ttl_s = 3600});
    put(&c, "last", (struct extra){0});
    core_tick(&c, 2 * SECOND);
    leave(&c, 22);
    assert_int_equal(objects(&c), 22);
    assert_true(!here(&c, "t", 0) && here(&c, "t", 1));
    leave(&c, 17);
    assert_true(!here(&c, "n", 4) && here(&c, "n", 5));
    core_crash(&c, &session, 1);
    core_attach(&c, 1);
    put(&c, "again", (struct extra){0});
    leave(&c, 14);
    assert_true(here(&c, "p", 0) && !here(&c, "n", 8) && here(&c, "n", 9));
    core_tick(&c, 3600 * SECOND);
    leave(&c, 13);
    assert_true(here(&c, "p", 0) && !here(&c, "t", 1) && here(&c, "n", 9));
    /* What came back from a hold has the priority of its record. */
    assert_int_equal(core_label(&c, 1, MSG_HOLD, "p0", "x", 0), 0);
    assert_int_equal(core_label(&c, 1, MSG_DROP, "p0", "x", 0), 0);
    for (uint32_t i = 0; i < 6; i++) { /* newer ones, which go before it */
        snprintf(key, sizeof key, "z%u", i);
        put(&c, key, (struct extra){0});
    }
    leave(&c, 11);
    assert_true(here(&c, "p", 0) && !here(&c, "n", 9) && !here(&c, "z", 4));
    core_close(&c);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* CPU time of deciding, deleting in LMDB, taking out of lookup, retiring and freeing, in batches. No bound that a busy
 * machine could break is asked for; the figure is printed. */
static void test_cost(void **state)
{
    (void)state;
    struct core c;
    char name[32];
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    for (uint32_t i = 0; i < 240; i++) {
        snprintf(name, sizeof name, "prompt-%u-block-", i);
        seal_group(&c, name, 50);
        for (uint32_t k = 0; k < c.n_replies; k++) {
            free(c.reply[k]);
        }
        c.n_replies = 0;
    }
    assert_int_equal(objects(&c), 12000);
    struct node_limits l = {
        .high_bytes = 2000 * PAGE_BYTES, .low_bytes = 2000 * PAGE_BYTES, .draft_quota = c.config.draft_quota};
    double begin = now_us();
    core_event(&c, (struct node_event){.kind = EV_LIMITS, .limits = &l});
    for (uint32_t i = 0; i < 200 && objects(&c) > 2000; i++) {
        core_turn(&c);
    }
    double us = (now_us() - begin) / 10000;
    print_message("%.2f us an eviction, LMDB included\n", us);
    assert_int_equal(objects(&c), 2000);
    assert_true(us < 100);
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_go_from_their_ends),
        cmocka_unit_test(test_named_parents),
        cmocka_unit_test(test_prefix_calls_make_parents),
        cmocka_unit_test(test_priority_and_ttl),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
