/* The home's table: answers, marks, lives, floors, and what it says when it is full. */
#include "replication/home.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 12u
#define SECOND INT64_C(1000000000)

struct world {
    struct home *h;
    struct rendezvous *r;
    uint64_t revision;
    int64_t now;
    struct home_life life[MEMBERS];
    uint64_t stream[MEMBERS];
    uint32_t batch[MEMBERS];
    uint32_t n;
};

static struct home_life own_life = {.region = 77, .incarnation = 3};

static struct rendezvous *make_list(uint32_t n, uint32_t weight)
{
    struct rendezvous_member m[MEMBERS];
    for (uint32_t i = 0; i < n; i++) {
        m[i] = (struct rendezvous_member){.id = 100 + i, .weight = weight, .state = MEMBER_IN};
    }
    struct rendezvous *r = NULL;
    assert_int_equal(rendezvous_create(&r, m, n, 2), 0);
    return r;
}

static void begin(struct world *w, uint32_t n, uint64_t entries, uint64_t bytes)
{
    memset(w, 0, sizeof *w);
    struct home_config config = {.life = own_life,
                                 .max_entries = entries,
                                 .max_bytes = bytes,
                                 .tombstone_ns = HOME_TOMBSTONE_NS,
                                 .seed = draw()};
    assert_int_equal(home_create(&w->h, &config), 0);
    w->r = make_list(n, 1);
    w->n = n;
    w->revision = rendezvous_revision(w->r);
    home_members(w->h, w->r);
    for (uint32_t i = 0; i < n; i++) {
        w->life[i] = (struct home_life){.region = 1000 + i, .incarnation = 1};
        w->stream[i] = 1;
        assert_int_equal(home_hello(w->h, (uint16_t)i, w->life[i]), 1);
        home_reachable(w->h, (uint16_t)i, true);
    }
}

static void end(struct world *w)
{
    assert_null(home_check(w->h));
    home_destroy(w->h);
    rendezvous_destroy(w->r);
}

static struct home_key key_of(const char *name)
{
    return (struct home_key){.data = name, .size = (uint32_t)strlen(name)};
}

static struct publication batch_of(const struct world *w, uint16_t member, const struct publication_entry *e,
                                   uint32_t n)
{
    return (struct publication){.from = w->life[member],
                                .to = own_life,
                                .revision = w->revision,
                                .stream = w->stream[member],
                                .batch = w->batch[member],
                                .member = member,
                                .n = n,
                                .entries = e};
}

static struct publication_result one(struct world *w, uint16_t member, uint8_t kind, const char *name, uint64_t counter,
                                     bool replaceable)
{
    struct publication_entry e = {.key = key_of(name),
                                  .version = {counter, member},
                                  .size = counter * 10,
                                  .kind = kind,
                                  .replaceable = replaceable};
    struct publication p = batch_of(w, member, &e, 1);
    struct publication_answer a;
    struct publication_result result[PUBLICATION_ENTRIES];
    assert_int_equal(home_publish(w->h, &p, w->now, &a, result), 0);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.batch, w->batch[member]++);
    assert_null(home_check(w->h));
    return result[0];
}

static uint8_t object(struct world *w, uint16_t member, const char *name, uint64_t counter)
{
    return one(w, member, PUBLICATION_OBJECT, name, counter, false).verdict;
}

static uint8_t newer(struct world *w, uint16_t member, const char *name, uint64_t counter)
{
    return one(w, member, PUBLICATION_OBJECT, name, counter, true).verdict;
}

static bool complete(struct world *w, uint16_t member)
{
    struct publication p = batch_of(w, member, NULL, 0);
    struct publication_answer a;
    struct publication_result result[1];
    p.complete = true;
    assert_int_equal(home_publish(w->h, &p, w->now, &a, result), 0);
    w->batch[member]++;
    return a.complete;
}

static void complete_all(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        assert_true(complete(w, (uint16_t)i));
    }
}

static void start_over(struct world *w, uint16_t member)
{
    w->stream[member]++;
    w->batch[member] = 0;
}

static struct home_answer ask(const struct world *w, const char *name)
{
    struct home_key key = key_of(name);
    struct home_answer a;
    home_ask(w->h, &key, w->revision, w->now, &a);
    return a;
}

static void test_three_answers(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3, 100, 1 << 20);
    uint16_t who[3];
    assert_int_equal(ask(&w, "a").kind, ANSWER_LEARNING);
    assert_int_equal(home_missing(w.h, false, who, 3), 3);
    assert_int_equal(object(&w, 1, "a", 5), VERDICT_OK);
    struct home_answer a = ask(&w, "a");
    assert_int_equal(a.kind, ANSWER_FOUND);
    assert_false(a.sure);
    assert_true(complete(&w, 0) && complete(&w, 1));
    assert_int_equal(ask(&w, "b").kind, ANSWER_LEARNING);
    assert_int_equal(home_missing(w.h, false, who, 3), 1);
    assert_int_equal(who[0], 2);
    assert_true(complete(&w, 2));
    a = ask(&w, "a");
    assert_true(a.sure && a.n == 1 && a.at[0].member == 1 && a.at[0].version.counter == 5 && a.at[0].size == 50);
    assert_int_equal(ask(&w, "b").kind, ANSWER_ABSENT);
    struct home_key other = key_of("a");
    other.space = 1;
    home_ask(w.h, &other, w.revision, 0, &a);
    assert_int_equal(a.kind, ANSWER_ABSENT);
    struct home_key b = key_of("b");
    home_ask(w.h, &b, w.revision + 1, 0, &a);
    assert_true(a.kind == ANSWER_LEARNING && a.everyone);
    end(&w);
}

/* A new life: nothing of the old one is handed out, and the mark is gone with the HELLO. */
static void test_new_life(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3, 100, 1 << 20);
    object(&w, 1, "a", 5);
    object(&w, 2, "a", 5);
    complete_all(&w);
    struct publication late = batch_of(&w, 1, NULL, 0);
    w.life[1].incarnation = 2;
    assert_int_equal(home_hello(w.h, 1, w.life[1]), 1);
    assert_int_equal(home_hello(w.h, 1, w.life[1]), 0);
    struct home_answer a = ask(&w, "a");
    assert_true(a.kind == ANSWER_FOUND && a.n == 1 && a.at[0].member == 2 && !a.sure);
    assert_int_equal(ask(&w, "b").kind, ANSWER_LEARNING);
    struct publication_answer answer;
    struct publication_result result[1];
    assert_int_equal(home_publish(w.h, &late, 0, &answer, result), -ESTALE);
    assert_int_equal(home_hello(w.h, 1, late.from), -ESTALE);
    assert_int_equal(home_hello(w.h, 1, (struct home_life){.region = 5, .incarnation = 1}), 1);
    assert_int_equal(home_hello(w.h, 3, w.life[1]), -EINVAL);
    end(&w);
}

/* Another stream of the same life keeps what there was until its COMPLETE, then what it did not name ends. */
static void test_started_over(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 2, 100, 1 << 20);
    object(&w, 0, "kept", 5);
    object(&w, 0, "lost", 5);
    complete_all(&w);
    start_over(&w, 0);
    object(&w, 0, "kept", 5);
    assert_int_equal(ask(&w, "none").kind, ANSWER_LEARNING);
    assert_int_equal(ask(&w, "lost").kind, ANSWER_FOUND);
    assert_true(complete(&w, 0));
    assert_int_equal(ask(&w, "kept").kind, ANSWER_FOUND);
    assert_int_equal(ask(&w, "lost").kind, ANSWER_ABSENT);
    struct home_stat before, after;
    home_stat(w.h, &before);
    home_tick(w.h, w.now);
    home_stat(w.h, &after);
    assert_int_equal(before.entries, 2);
    assert_int_equal(after.entries, 1);
    assert_int_equal(after.locations, 1);
    end(&w);
}

static void test_order_of_batches(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 2, 100, 1 << 20);
    struct publication_entry e = {.key = key_of("a"), .version = {5, 0}, .kind = PUBLICATION_OBJECT};
    struct publication p = batch_of(&w, 0, &e, 1), early = p;
    struct publication_answer a;
    struct publication_result result[1];
    early.batch = 1;
    assert_int_equal(home_publish(w.h, &early, 0, &a, result), -EAGAIN);
    assert_int_equal(home_publish(w.h, &p, 0, &a, result), 0);
    w.batch[0]++;
    assert_int_equal(one(&w, 0, PUBLICATION_GONE, "a", 5, false).verdict, VERDICT_OK);
    complete_all(&w);
    assert_int_equal(home_publish(w.h, &p, 0, &a, result), 0);
    assert_int_equal(result[0].verdict, VERDICT_OK);
    assert_int_equal(ask(&w, "a").kind, ANSWER_ABSENT);
    start_over(&w, 0);
    assert_int_equal(object(&w, 0, "b", 6), VERDICT_OK);
    assert_int_equal(home_publish(w.h, &p, 0, &a, result), -EALREADY);
    p.to.incarnation++;
    assert_int_equal(home_publish(w.h, &p, 0, &a, result), -ESTALE);
    end(&w);
}

static void test_replaceable(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3, 100, 1 << 20);
    assert_int_equal(newer(&w, 0, "a", 5), VERDICT_OK);
    assert_int_equal(newer(&w, 1, "a", 7), VERDICT_OK);
    complete_all(&w);
    struct home_answer a = ask(&w, "a");
    assert_true(a.n == 1 && a.at[0].member == 1);
    struct publication_result r = one(&w, 2, PUBLICATION_OBJECT, "a", 6, true);
    assert_true(r.verdict == VERDICT_SUPERSEDED && r.counter == 7);
    /* Equal counters are ordered by the region, here the member's number. */
    assert_int_equal(newer(&w, 0, "a", 7), VERDICT_SUPERSEDED);
    assert_int_equal(newer(&w, 2, "a", 7), VERDICT_OK);
    assert_int_equal(one(&w, 2, PUBLICATION_GONE, "a", 6, true).verdict, VERDICT_OK);
    assert_int_equal(ask(&w, "a").kind, ANSWER_FOUND);
    /* Evicted is not removed, and the floor stays. */
    assert_int_equal(one(&w, 2, PUBLICATION_GONE, "a", 7, true).verdict, VERDICT_OK);
    a = ask(&w, "a");
    assert_true(a.kind == ANSWER_ABSENT && a.removed.counter == 0);
    assert_int_equal(newer(&w, 1, "a", 7), VERDICT_SUPERSEDED);
    w.now += HOME_TOMBSTONE_NS + 1;
    home_tick(w.h, w.now);
    assert_int_equal(newer(&w, 1, "a", 7), VERDICT_OK);
    end(&w);
}

static void test_content(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 4, 100, 1 << 20);
    object(&w, 0, "a", 5);
    object(&w, 1, "a", 9);
    object(&w, 2, "a", 7);
    complete_all(&w);
    home_reachable(w.h, 1, false);
    struct home_answer a = ask(&w, "a");
    assert_true(a.n == 3 && a.at[0].member == 2 && a.at[1].member == 0 && a.at[2].member == 1 && a.at[2].down);
    assert_int_equal(one(&w, 3, PUBLICATION_GONE, "a", 20, false).verdict, VERDICT_OK);
    assert_int_equal(one(&w, 1, PUBLICATION_GONE, "a", 9, false).verdict, VERDICT_OK);
    assert_int_equal(ask(&w, "a").n, 2);
    end(&w);
}

static void test_tombstone(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 4, 100, 1 << 20);
    object(&w, 0, "a", 5);
    object(&w, 1, "a", 9);
    complete_all(&w);
    struct publication_result r = one(&w, 2, PUBLICATION_TOMBSTONE, "a", 7, false);
    assert_true(r.verdict == VERDICT_SUPERSEDED && r.counter == 9);
    struct home_answer a = ask(&w, "a");
    assert_true(a.n == 1 && a.at[0].member == 1);
    assert_int_equal(one(&w, 2, PUBLICATION_TOMBSTONE, "a", 10, false).verdict, VERDICT_OK);
    a = ask(&w, "a");
    assert_true(a.kind == ANSWER_ABSENT && a.removed.counter == 10 && a.removed.region == 2);
    assert_int_equal(object(&w, 0, "a", 9), VERDICT_SUPERSEDED);
    assert_int_equal(object(&w, 0, "a", 11), VERDICT_OK);
    assert_int_equal(ask(&w, "a").kind, ANSWER_FOUND);
    assert_int_equal(one(&w, 2, PUBLICATION_TOMBSTONE, "x", 10, false).verdict, VERDICT_OK);
    w.now += HOME_TOMBSTONE_NS / 2;
    home_tick(w.h, w.now);
    assert_int_equal(ask(&w, "x").removed.counter, 10);
    w.now += HOME_TOMBSTONE_NS;
    assert_int_equal(ask(&w, "x").removed.counter, 0);
    home_tick(w.h, w.now);
    struct home_stat s;
    home_stat(w.h, &s);
    assert_int_equal(s.entries, 1);
    end(&w);
}

static void test_revision(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3, 100, 1 << 20);
    object(&w, 2, "a", 5);
    complete_all(&w);
    struct rendezvous *next = make_list(2, 2);
    uint64_t before = w.revision;
    home_members(w.h, next);
    assert_int_equal(ask(&w, "b").kind, ANSWER_LEARNING);
    w.revision = rendezvous_revision(next);
    assert_int_equal(home_revision(w.h), w.revision);
    /* Member 2 is not in the list: what it had is nobody's. */
    assert_int_equal(ask(&w, "a").kind, ANSWER_LEARNING);
    start_over(&w, 0);
    start_over(&w, 1);
    assert_true(complete(&w, 0));
    w.revision = before;
    assert_true(complete(&w, 1)); /* of a revision that this home left: no mark that counts */
    w.revision = rendezvous_revision(next);
    assert_int_equal(ask(&w, "a").kind, ANSWER_LEARNING);
    start_over(&w, 1);
    assert_true(complete(&w, 1));
    assert_int_equal(ask(&w, "a").kind, ANSWER_ABSENT);
    home_members(w.h, w.r);
    assert_int_equal(home_missing(w.h, false, NULL, 0), 3);
    rendezvous_destroy(next);
    end(&w);
}

static void test_full(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 3, 2, 1 << 20);
    object(&w, 0, "a", 1);
    object(&w, 1, "b", 1);
    complete_all(&w);
    struct publication_entry e = {.key = key_of("c"), .version = {2, 0}, .kind = PUBLICATION_OBJECT};
    struct publication p = batch_of(&w, 0, &e, 1);
    struct publication_answer a;
    struct publication_result result[1];
    assert_int_equal(object(&w, 0, "c", 2), VERDICT_FULL);
    assert_int_equal(ask(&w, "c").kind, ANSWER_LEARNING);
    assert_int_equal(ask(&w, "a").kind, ANSWER_FOUND);
    uint16_t who[3];
    assert_int_equal(home_missing(w.h, false, who, 3), 1);
    assert_int_equal(who[0], 0);
    /* The answer was lost: the same again. */
    assert_int_equal(home_publish(w.h, &p, 0, &a, result), 0);
    assert_int_equal(result[0].verdict, VERDICT_FULL);
    assert_false(complete(&w, 0));
    assert_int_equal(one(&w, 1, PUBLICATION_GONE, "b", 1, false).verdict, VERDICT_OK);
    assert_int_equal(object(&w, 0, "c", 2), VERDICT_OK);
    assert_int_equal(ask(&w, "d").kind, ANSWER_LEARNING);
    start_over(&w, 0);
    object(&w, 0, "a", 1);
    object(&w, 0, "c", 2);
    assert_true(complete(&w, 0));
    assert_int_equal(ask(&w, "d").kind, ANSWER_ABSENT);
    end(&w);
    begin(&w, 3, 1000, 1000);
    uint32_t in = 0;
    for (uint32_t i = 0; i < 30; i++) {
        char name[8];
        snprintf(name, sizeof name, "%u", i);
        in += object(&w, 0, name, 1) == VERDICT_OK;
    }
    assert_true(in > 3 && in < 30);
    end(&w);
}

/* The ninth is not kept and not forgotten. */
static void test_ninth(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 10, 100, 1 << 20);
    for (uint16_t i = 0; i < 9; i++) {
        assert_int_equal(object(&w, i, "a", 1), VERDICT_OK);
    }
    complete_all(&w);
    assert_int_equal(ask(&w, "a").n, HOME_LOCATIONS);
    for (uint16_t i = 0; i < 8; i++) {
        one(&w, i, PUBLICATION_GONE, "a", 1, false);
    }
    home_tick(w.h, w.now);
    struct home_answer a = ask(&w, "a");
    assert_true(a.kind == ANSWER_LEARNING && a.everyone);
    assert_int_equal(home_missing(w.h, true, NULL, 0), 10);
    for (uint16_t i = 0; i < 10; i++) {
        start_over(&w, i);
        if (i == 8) {
            assert_int_equal(object(&w, i, "a", 1), VERDICT_OK);
        }
        assert_true(complete(&w, i));
    }
    assert_int_equal(ask(&w, "a").n, 1);
    one(&w, 8, PUBLICATION_GONE, "a", 1, false);
    assert_int_equal(ask(&w, "a").kind, ANSWER_ABSENT);
    end(&w);
}

static void test_prefix(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 2, 100, 1 << 20);
    object(&w, 0, "a", 1);
    object(&w, 0, "b", 1);
    object(&w, 0, "d", 1);
    complete_all(&w);
    struct home_key keys[4] = {key_of("a"), key_of("b"), key_of("c"), key_of("d")};
    struct home_answer a[4];
    assert_int_equal(home_ask_many(w.h, keys, 4, true, w.revision, 0, a), 3);
    assert_int_equal(a[2].kind, ANSWER_ABSENT);
    assert_int_equal(home_ask_many(w.h, keys, 4, false, w.revision, 0, a), 4);
    assert_int_equal(a[3].kind, ANSWER_FOUND);
    assert_int_equal(home_ask_many(w.h, keys, 2, true, w.revision, 0, a), 2);
    end(&w);
}

/* Entries with keys of key_size bytes from these members in turn, until so many were taken or one was refused. */
static uint64_t fill(struct world *w, uint32_t members, uint64_t entries, uint32_t key_size)
{
    enum {
        batch = PUBLICATION_KEYS / HOME_KEY_MAX < PUBLICATION_ENTRIES ? PUBLICATION_KEYS / HOME_KEY_MAX
                                                                      : PUBLICATION_ENTRIES
    };
    static char keys[batch][HOME_KEY_MAX];
    struct publication_entry e[batch];
    struct publication_result result[batch];
    struct publication_answer a;
    uint64_t taken = 0;
    for (uint16_t from = 0; taken < entries; from = (uint16_t)((from + 1) % members)) {
        uint32_t n = entries - taken < batch ? (uint32_t)(entries - taken) : (uint32_t)batch;
        for (uint32_t i = 0; i < n; i++) {
            memset(keys[i], 'k', key_size);
            memcpy(keys[i], &(uint64_t){taken + i}, sizeof(uint64_t));
            e[i] = (struct publication_entry){.key = {.data = keys[i], .size = key_size},
                                              .version = {1 + taken + i, from},
                                              .size = 4096,
                                              .kind = PUBLICATION_OBJECT};
        }
        struct publication p = batch_of(w, from, e, n);
        assert_int_equal(home_publish(w->h, &p, w->now, &a, result), 0);
        w->batch[from]++;
        for (uint32_t i = 0; i < n; i++, taken++) {
            if (result[i].verdict == VERDICT_FULL) {
                return taken;
            }
        }
    }
    return taken;
}

/* A home has room for what members of its size are to have: pools full of 4 KiB objects, each told to all homes. */
static void test_bounds(void **state)
{
    (void)state;
    enum { SLOTS = (32 << 20) / 4096 };
    for (uint32_t homes = 1; homes <= 3; homes++) {
        struct home_config c = {.life = own_life};
        struct home_stat st;
        struct world w;
        home_bounds(&c, SLOTS, homes);
        for (uint32_t key = 64; key <= 232; key += 168) { /* long keys use up what uneven shares may */
            begin(&w, 3, c.max_entries, c.max_bytes);
            assert_int_equal(fill(&w, 3, homes * SLOTS, key), homes * SLOTS);
            home_stat(w.h, &st);
            assert_int_equal(st.refused, 0);
            assert_true(st.bytes <= c.max_bytes && c.max_bytes == st.room_bytes);
            assert_true(c.max_bytes <= (32u << 20) / 12 * homes || c.max_bytes == HOME_BYTES_MIN);
            end(&w);
        }
        begin(&w, 3, c.max_entries, c.max_bytes);
        uint64_t taken = fill(&w, 3, 4 * homes * SLOTS, HOME_KEY_MAX); /* and no more than that */
        assert_true(taken < 4 * homes * SLOTS);
        home_stat(w.h, &st);
        assert_true(st.bytes <= c.max_bytes && home_memory(&c) < c.max_bytes + 16 * c.max_entries + 256);
        end(&w);
    }
    struct home_config c = {0};
    home_bounds(&c, 0, 2);
    assert_true(c.max_entries == 1 && c.max_bytes == HOME_BYTES_MIN);
    home_bounds(&c, UINT64_MAX, 3);
    assert_true(c.max_entries == UINT64_C(1) << 32);
}

static void test_refused(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 2, 100, 1 << 20);
    struct publication_entry e = {.key = key_of("a"), .version = {5, 0}, .kind = PUBLICATION_OBJECT}, bad;
    struct publication p = batch_of(&w, 0, &bad, 1);
    struct publication_answer a;
    struct publication_result result[1];
    for (uint32_t i = 0; i < 8; i++) {
        bad = e;
        p = batch_of(&w, 0, &bad, 1);
        switch (i) {
        case 0:
            bad.kind = 0;
            break;
        case 1:
            bad.kind = 4;
            break;
        case 2:
            bad.key.size = 0;
            break;
        case 3:
            bad.key.size = HOME_KEY_MAX + 1;
            break;
        case 4:
            bad.version.counter = 0;
            break;
        case 5:
            bad.version.counter = UINT64_MAX;
            break;
        case 6:
            p.n = PUBLICATION_ENTRIES + 1;
            break;
        default:
            p.member = 2;
        }
        assert_int_equal(home_publish(w.h, &p, 0, &a, result), -EINVAL);
    }
    struct home *h = NULL;
    assert_int_equal(home_create(&h, &(struct home_config){.max_entries = 0}), -EINVAL);
    assert_null(h);
    end(&w);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_answers), cmocka_unit_test(test_new_life),
        cmocka_unit_test(test_started_over),  cmocka_unit_test(test_order_of_batches),
        cmocka_unit_test(test_replaceable),   cmocka_unit_test(test_content),
        cmocka_unit_test(test_tombstone),     cmocka_unit_test(test_revision),
        cmocka_unit_test(test_full),          cmocka_unit_test(test_ninth),
        cmocka_unit_test(test_prefix),        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
