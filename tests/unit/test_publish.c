/* The owner's side of homes: streams, listings, back-pressure, overflow, SUPERSEDED, what counts as published. The
 * homes are played by the test. */
#include "replication/home.h"
#include "replication/publish.h"
#include "tests/support/draw.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS 4u
#define OBJECTS 3000u
#define RESEND INT64_C(100000000)
#define FULL INT64_C(60000000000)

struct home_view {
    uint64_t stream, entries;
    uint32_t next;
    bool complete;
    uint32_t unanswered; /* batches that came and were not answered */
};

struct world {
    struct publish *p;
    struct rendezvous *r;
    int64_t now;
    uint32_t objects; /* the index: keys 0 .. objects - 1 */
    uint32_t cursor;
    uint32_t steps;
    struct home_view home[MEMBERS];
    bool deaf;       /* batches come and nobody answers */
    uint8_t verdict; /* what homes answer */
    uint64_t counter;
    uint32_t takes, drops, knowns, pasts;
    uint64_t past;                 /* with every answer */
    struct publication_entry last; /* of a TAKE or DROP */
    uint32_t most_unanswered;
};

static uint32_t key_store[OBJECTS];

static struct publication_entry entry_of(uint32_t i, uint8_t kind)
{
    key_store[i] = i;
    return (struct publication_entry){
        .key = {.data = &key_store[i], .size = sizeof i}, .version = {i + 1, 9}, .size = 100, .kind = kind};
}

static struct home_life life_of(uint32_t i, uint64_t incarnation)
{
    return (struct home_life){.region = 50 + i, .incarnation = incarnation};
}

static struct rendezvous *make_list(uint32_t k)
{
    struct rendezvous_member m[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        m[i] = (struct rendezvous_member){.id = 10 + i, .weight = 1, .state = MEMBER_IN};
    }
    struct rendezvous *r = NULL;
    assert_int_equal(rendezvous_create(&r, m, MEMBERS, k), 0);
    return r;
}

static void begin(struct world *w, uint32_t objects, bool held)
{
    memset(w, 0, sizeof *w);
    struct publish_config config = {.life = life_of(0, 1),
                                    .queue_entries = PUBLISH_QUEUE_MIN,
                                    .window = 2,
                                    .resend_ns = RESEND,
                                    .full_ns = FULL,
                                    .held = held};
    assert_int_equal(publish_create(&w->p, &config), 0);
    w->r = make_list(2);
    w->objects = objects;
    assert_int_equal(publish_members(w->p, 0, w->r, 0), 0);
}

static void end(struct world *w)
{
    assert_null(publish_check(w->p));
    publish_destroy(w->p);
    rendezvous_destroy(w->r);
}

static void up(struct world *w, uint16_t member, uint64_t incarnation)
{
    publish_up(w->p, member, life_of(member, incarnation), w->now);
}

static void up_all(struct world *w)
{
    for (uint16_t i = 0; i < MEMBERS; i++) {
        up(w, i, 1);
    }
}

static void take_batch(struct world *w, uint16_t member, const struct publication *b)
{
    struct home_view *h = &w->home[member];
    struct publication_result result[PUBLICATION_ENTRIES];
    assert_true(b->n <= PUBLICATION_ENTRIES);
    h->unanswered++;
    w->most_unanswered = h->unanswered > w->most_unanswered ? h->unanswered : w->most_unanswered;
    if (w->deaf) {
        return;
    }
    if (b->stream != h->stream) {
        assert_true(b->stream > h->stream && b->batch == 0);
        *h = (struct home_view){.stream = b->stream};
    }
    if (b->batch == h->next) {
        h->next++;
        h->entries += b->n;
        h->complete = h->complete || b->complete;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        result[i] = (struct publication_result){.verdict = w->verdict, .counter = w->counter, .past = w->past};
    }
    struct publication_answer a = {.stream = b->stream,
                                   .batch = b->batch,
                                   .complete = b->complete && w->verdict != VERDICT_FULL,
                                   .n = b->n,
                                   .results = result};
    h->unanswered = 0;
    assert_int_equal(publish_answered(w->p, member, &a, w->now), 0);
    assert_int_equal(publish_answered(w->p, member, &a, w->now), -ENOENT);
}

static void list_step(struct world *w, const struct publish_command *c)
{
    struct publication_entry step[PUBLISH_STEP];
    uint32_t n = 0;
    uint64_t pass = c->pass;
    w->cursor = c->start ? 0 : w->cursor;
    w->steps++;
    for (; n < c->most && w->cursor < w->objects; n++) {
        step[n] = entry_of(w->cursor++, PUBLICATION_OBJECT);
    }
    assert_int_equal(publish_listed(w->p, pass + 1, step, n, true, w->now), 0);
    assert_int_equal(publish_listed(w->p, pass, step, n, w->cursor == w->objects, w->now), 0);
}

static void drain(struct world *w)
{
    const struct publish_command *c;
    while ((c = publish_command(w->p)) != NULL) {
        switch (c->kind) {
        case PUBLISH_SEND:
            take_batch(w, c->member, &c->batch);
            break;
        case PUBLISH_LIST:
            list_step(w, c);
            break;
        case PUBLISH_TAKE:
            w->takes++;
            w->last = c->entry;
            break;
        case PUBLISH_DROP:
            w->drops++;
            w->last = c->entry;
            break;
        case PUBLISH_KNOWN:
            w->knowns++;
            assert_int_equal(c->entry.kind, PUBLICATION_TOMBSTONE);
            break;
        case PUBLISH_PAST:
            w->pasts++;
            assert_int_equal(c->past, w->past);
            assert_int_equal(c->entry.kind, PUBLICATION_OBJECT);
            w->last = c->entry;
        }
        assert_null(publish_check(w->p));
    }
}

static void pass_time(struct world *w, int64_t ns)
{
    w->now += ns;
    publish_tick(w->p, w->now);
    drain(w);
}

static struct publish_stat stat_of(const struct world *w)
{
    struct publish_stat s;
    publish_stat(w->p, &s);
    return s;
}

static int64_t tell(struct world *w, uint32_t i, uint8_t kind, bool fresh)
{
    struct publication_entry e = entry_of(i, kind);
    e.fresh = fresh;
    int64_t number = publish_tell(w->p, &e, w->now);
    assert_true(number > 0);
    return number;
}

static bool done(const struct world *w, uint32_t i, int64_t number)
{
    struct publication_entry e = entry_of(i, PUBLICATION_OBJECT);
    return publish_done(w->p, rendezvous_place(&e.key), number);
}

static void test_listing(void **state)
{
    (void)state;
    struct world w;
    begin(&w, OBJECTS, false);
    drain(&w);
    assert_int_equal(w.steps, 0);
    up_all(&w);
    drain(&w);
    struct publish_stat s = stat_of(&w);
    assert_int_equal(s.passes, 1);
    assert_int_equal(s.current, MEMBERS);
    assert_int_equal(s.listed, OBJECTS * 2);
    assert_int_equal(s.queued, 0);
    uint64_t all = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_true(w.home[i].complete);
        all += w.home[i].entries;
    }
    assert_int_equal(all, OBJECTS * 2);
    assert_true(publish_timer(w.p) == INT64_MAX);
    /* A new incarnation of one: it alone gets everything again. */
    uint64_t before = w.home[2].entries, other = w.home[1].entries;
    up(&w, 2, 2);
    drain(&w);
    assert_int_equal(w.home[2].entries, before);
    assert_int_equal(w.home[1].entries, other);
    assert_int_equal(stat_of(&w).passes, 2);
    up(&w, 2, 2);
    drain(&w);
    assert_int_equal(stat_of(&w).passes, 2);
    end(&w);
}

/* Nobody answers: at most `window` batches are under way, steps end when a queue is half full, and nothing grows. */
static void test_back_pressure(void **state)
{
    (void)state;
    struct world w;
    begin(&w, OBJECTS, false);
    w.deaf = true;
    up_all(&w);
    drain(&w);
    assert_int_equal(w.most_unanswered, 2);
    assert_true(w.steps * PUBLISH_STEP < OBJECTS);
    assert_true(stat_of(&w).queued <= MEMBERS * PUBLISH_QUEUE_MIN / 2);
    assert_true(publish_timer(w.p) == w.now + RESEND);
    /* Lost: the same batches again, once in a while. */
    uint64_t before = stat_of(&w).batches;
    pass_time(&w, RESEND / 2);
    assert_int_equal(stat_of(&w).batches, before);
    pass_time(&w, RESEND / 2);
    assert_int_equal(stat_of(&w).batches, before * 2);
    w.deaf = false;
    pass_time(&w, RESEND);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    assert_int_equal(w.home[0].entries + w.home[1].entries + w.home[2].entries + w.home[3].entries, OBJECTS * 2);
    end(&w);
}

static void test_down_in_listing(void **state)
{
    (void)state;
    struct world w;
    begin(&w, OBJECTS, false);
    w.deaf = true;
    up_all(&w);
    drain(&w);
    publish_down(w.p, 3, w.now);
    w.deaf = false;
    pass_time(&w, RESEND);
    assert_int_equal(stat_of(&w).current, MEMBERS - 1);
    up(&w, 3, 1);
    drain(&w);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    assert_int_equal(stat_of(&w).passes, 2);
    end(&w);
}

static void test_overflow(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 100, false);
    up_all(&w);
    drain(&w);
    publish_down(w.p, 1, w.now);
    for (uint32_t i = 0; i < 10; i++) {
        tell(&w, i, PUBLICATION_OBJECT, true);
    }
    drain(&w);
    uint64_t waiting = stat_of(&w).queued;
    assert_true(waiting > 0 && waiting < 10);
    /* Back again, the same life: only what waited is sent. */
    up(&w, 1, 1);
    drain(&w);
    assert_int_equal(stat_of(&w).passes, 1);
    assert_int_equal(stat_of(&w).published, 10);
    publish_down(w.p, 1, w.now);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        tell(&w, i, PUBLICATION_OBJECT, true);
        drain(&w);
        assert_true(stat_of(&w).queued <= PUBLISH_QUEUE_MIN);
    }
    assert_int_equal(stat_of(&w).overflows, 1);
    assert_int_equal(stat_of(&w).queued, 0);
    assert_int_equal(stat_of(&w).current, MEMBERS - 1);
    w.objects = OBJECTS;
    up(&w, 1, 1);
    drain(&w);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    assert_int_equal(stat_of(&w).passes, 2);
    end(&w);
}

static void test_done(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 10, false);
    assert_false(done(&w, 0, 1));
    int64_t early = tell(&w, 3, PUBLICATION_OBJECT, true);
    assert_false(done(&w, 3, early));
    up_all(&w);
    drain(&w);
    assert_true(done(&w, 3, early));
    w.deaf = true;
    int64_t a = tell(&w, 3, PUBLICATION_OBJECT, true), b = tell(&w, 3, PUBLICATION_GONE, false);
    drain(&w);
    assert_true(done(&w, 3, early));
    assert_false(done(&w, 3, a));
    w.deaf = false;
    pass_time(&w, RESEND);
    assert_true(done(&w, 3, a) && done(&w, 3, b));
    assert_false(done(&w, 3, b + 1));
    assert_int_equal(stat_of(&w).published, 1);
    /* One of its homes has lost it. */
    uint16_t home[HOMES_MAX];
    struct publication_entry e = entry_of(3, PUBLICATION_OBJECT);
    rendezvous_homes(w.r, rendezvous_place(&e.key), home);
    up(&w, home[1], 2);
    assert_false(done(&w, 3, a));
    drain(&w);
    assert_true(done(&w, 3, a));
    end(&w);
}

static void test_superseded(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0, false);
    up_all(&w);
    drain(&w);
    w.verdict = VERDICT_SUPERSEDED;
    w.counter = 900;
    tell(&w, 5, PUBLICATION_OBJECT, true);
    drain(&w);
    assert_int_equal(w.takes, 2); /* one a home: the second finds another version at the core */
    assert_int_equal(*(const uint32_t *)w.last.key.data, 5);
    struct publication_entry again = entry_of(5, PUBLICATION_OBJECT);
    again.fresh = again.again = true;
    again.version.counter = 901;
    assert_true(publish_tell(w.p, &again, w.now) > 0);
    drain(&w);
    assert_int_equal(w.takes, 2);
    assert_int_equal(w.drops, 2);
    tell(&w, 6, PUBLICATION_TOMBSTONE, true);
    tell(&w, 6, PUBLICATION_GONE, false);
    tell(&w, 6, PUBLICATION_TOMBSTONE, false);
    drain(&w);
    assert_int_equal(w.takes, 4);
    assert_int_equal(w.drops, 2);
    assert_int_equal(w.knowns, 2); /* below what stands: the home names nothing that is older */
    w.counter = UINT64_MAX - 1;
    tell(&w, 7, PUBLICATION_OBJECT, true);
    tell(&w, 8, PUBLICATION_OBJECT, false);
    drain(&w);
    assert_int_equal(w.takes, 4);
    assert_int_equal(w.drops, 6);
    assert_int_equal(stat_of(&w).published, 0);
    end(&w);
}

/* What a home knew of a key is passed on, once for each home, for an object alone. */
static void test_past(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0, false);
    up_all(&w);
    drain(&w);
    w.past = UINT64_C(0x3400000123);
    tell(&w, 5, PUBLICATION_OBJECT, true);
    drain(&w);
    tell(&w, 6, PUBLICATION_GONE, false);
    drain(&w);
    assert_int_equal(w.pasts, 2);
    assert_int_equal(*(const uint32_t *)w.last.key.data, 5);
    end(&w);
}

static void test_full(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 50, false);
    w.verdict = VERDICT_FULL;
    up_all(&w);
    drain(&w);
    assert_int_equal(stat_of(&w).current, 0);
    assert_true(publish_timer(w.p) == w.now + FULL);
    pass_time(&w, FULL);
    assert_int_equal(stat_of(&w).passes, 2);
    pass_time(&w, FULL);
    assert_int_equal(stat_of(&w).passes, 2);
    w.verdict = VERDICT_OK;
    pass_time(&w, FULL);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    int64_t number = tell(&w, 1, PUBLICATION_OBJECT, true);
    w.verdict = VERDICT_FULL;
    drain(&w);
    assert_false(done(&w, 1, number));
    assert_int_equal(stat_of(&w).current, MEMBERS - 2);
    w.verdict = VERDICT_OK;
    pass_time(&w, FULL);
    assert_true(done(&w, 1, number));
    w.verdict = VERDICT_FULL;
    tell(&w, 2, PUBLICATION_TOMBSTONE, true);
    drain(&w);
    assert_int_equal(w.knowns, 0); /* a home without room has not got it */
    end(&w);
}

/* Sixteen times without an answer: the home may not know the stream any more. */
static void test_unheard(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 5, false);
    up_all(&w);
    drain(&w);
    w.deaf = true;
    for (uint32_t i = 0; i < 5; i++) {
        tell(&w, i, PUBLICATION_OBJECT, true);
    }
    drain(&w);
    for (uint32_t i = 0; i < PUBLISH_TRIES; i++) {
        assert_int_equal(stat_of(&w).passes, 1);
        pass_time(&w, RESEND);
    }
    w.deaf = false;
    pass_time(&w, RESEND);
    assert_int_equal(stat_of(&w).passes, 2);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    end(&w);
}

static void test_members(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 200, false);
    up_all(&w);
    drain(&w);
    struct rendezvous *three = make_list(3);
    assert_int_equal(publish_members(w.p, MEMBERS, three, 0), -EINVAL);
    assert_int_equal(publish_members(w.p, 0, three, 0), 0);
    drain(&w);
    assert_int_equal(stat_of(&w).current, 0);
    up_all(&w);
    drain(&w);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    assert_int_equal(stat_of(&w).listed, 200 * 5);
    publish_up(w.p, MEMBERS, life_of(1, 1), 0);
    publish_down(w.p, MEMBERS, 0);
    struct publication_answer a = {.stream = 1};
    assert_int_equal(publish_answered(w.p, MEMBERS, &a, 0), -EINVAL);
    assert_int_equal(publish_answered(w.p, 1, &a, 0), -ENOENT);
    end(&w);
    rendezvous_destroy(three);
}

/* A new list counts only once every member has heard of it, homes of the key or not. */
static void test_settled(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0, false);
    uint16_t home[HOMES_MAX], other = 0;
    struct publication_entry e = entry_of(3, PUBLICATION_OBJECT);
    rendezvous_homes(w.r, rendezvous_place(&e.key), home);
    while (other == home[0] || other == home[1]) {
        other++;
    }
    for (uint16_t i = 0; i < MEMBERS; i++) {
        if (i != other) {
            up(&w, i, 1);
        }
    }
    drain(&w);
    int64_t number = tell(&w, 3, PUBLICATION_OBJECT, true);
    drain(&w);
    assert_false(publish_settled(w.p));
    assert_false(done(&w, 3, number));
    up(&w, other, 1);
    drain(&w);
    assert_true(publish_settled(w.p));
    assert_true(done(&w, 3, number));
    end(&w);
}

/* An answer with another number of results, or a verdict that is none, is not believed. */
static void test_bad_answers(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 0, false);
    up_all(&w);
    drain(&w);
    w.deaf = true;
    tell(&w, 1, PUBLICATION_OBJECT, true);
    const struct publish_command *c = publish_command(w.p);
    struct publication_result bad = {.verdict = VERDICT_FULL + 1};
    struct publication_answer a = {.stream = c->batch.stream, .batch = c->batch.batch, .n = 2, .results = &bad};
    uint16_t member = c->member;
    assert_int_equal(publish_answered(w.p, member, &a, 0), -EINVAL);
    a.n = 1;
    assert_int_equal(publish_answered(w.p, member, &a, 0), -EINVAL);
    struct publication_entry e = entry_of(1, 9);
    assert_int_equal(publish_tell(w.p, &e, 0), -EINVAL);
    struct publish *p = NULL;
    struct publish_config config = {.queue_entries = PUBLISH_QUEUE_MIN + 1, .window = 1, .resend_ns = 1, .full_ns = 1};
    assert_int_equal(publish_create(&p, &config), -EINVAL);
    config.queue_entries = PUBLISH_QUEUE_MIN;
    config.window = PUBLISH_WINDOW_MAX + 1;
    assert_int_equal(publish_create(&p, &config), -EINVAL);
    assert_null(p);
    end(&w);
}

static void test_away(void **state)
{
    (void)state;
    assert_int_equal(publish_absence(HOME_TOMBSTONE_NS, HOME_TOMBSTONE_NS, 2), ABSENCE_SHORT);
    assert_int_equal(publish_absence(HOME_TOMBSTONE_NS + 1, HOME_TOMBSTONE_NS, 2), ABSENCE_LONG);
    assert_int_equal(publish_absence(-1, HOME_TOMBSTONE_NS, 2), ABSENCE_LONG);
    assert_int_equal(publish_absence(HOME_TOMBSTONE_NS + 1, HOME_TOMBSTONE_NS, 0), ABSENCE_SHORT);
    struct object_version own = {5, 1};
    struct home_answer a = {.kind = ANSWER_LEARNING};
    assert_int_equal(publish_confirm(&a, own, false, 0, 1, false), UNLISTED_WAIT);
    assert_int_equal(publish_confirm(&a, own, false, 0, 1, true), UNLISTED_DROP);
    assert_int_equal(publish_confirm(&a, own, false, 0, 0, false), UNLISTED_DROP);
    a.everyone = true;
    assert_int_equal(publish_confirm(&a, own, false, 0, 0, false), UNLISTED_WAIT);
    a = (struct home_answer){.kind = ANSWER_FOUND, .n = 1, .at = {{.version = own, .member = 0}}};
    assert_int_equal(publish_confirm(&a, own, false, 0, 0, false), UNLISTED_DROP);
    assert_int_equal(publish_confirm(&a, own, false, 1, 0, false), UNLISTED_KEEP);
    assert_int_equal(publish_confirm(&a, own, true, 1, 0, false), UNLISTED_KEEP);
    a.at[0].version.counter = 6;
    assert_int_equal(publish_confirm(&a, own, true, 1, 0, false), UNLISTED_DROP);
    assert_int_equal(publish_confirm(&a, own, false, 1, 0, false), UNLISTED_KEEP);
    a.removed = own;
    assert_int_equal(publish_confirm(&a, own, false, 1, 0, false), UNLISTED_DROP);
    struct world w;
    begin(&w, 20, true);
    up_all(&w);
    tell(&w, 2, PUBLICATION_OBJECT, true);
    drain(&w);
    assert_int_equal(stat_of(&w).batches, 0);
    publish_release(w.p, 0);
    drain(&w);
    assert_int_equal(stat_of(&w).current, MEMBERS);
    end(&w);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing),  cmocka_unit_test(test_back_pressure), cmocka_unit_test(test_down_in_listing),
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_done),          cmocka_unit_test(test_superseded),
        cmocka_unit_test(test_past),     cmocka_unit_test(test_full),          cmocka_unit_test(test_unheard),
        cmocka_unit_test(test_members),  cmocka_unit_test(test_bad_answers),   cmocka_unit_test(test_settled),
        cmocka_unit_test(test_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
