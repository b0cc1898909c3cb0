/* The puller among owners that use their slots again at the first moment that their leases let them, over wires that
 * are slow, lose, double and reorder. Twice: with verification and every kind of damage, and under leases only, where
 * nothing but the clock and the rules of leases stand between the reader and other objects' bytes. Then each rule is
 * broken on purpose, and the same worlds must show it.
 */
#include "tests/support/draw.h"
#include "tests/support/pull_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define LIVES 24u
#define REQUESTS 400u
#define WALL_S 15 /* of each half; on a machine that is busy with other things fewer lives do */

static void show(const char *name, const struct world_counts *c)
{
    const uint64_t *n = c->status_at_end.counter;
    print_message("%s: %llu requests, %llu keys, %llu given; late %llu, wrong bytes delivered %llu, given %llu; "
                  "lost connections %llu (%llu crashes), dropped %llu, doubled %llu, corrupt %llu; last life: "
                  "shared %llu, hits %llu, renews %llu, waits %llu, stale %llu, next source %llu\n",
                  name, (unsigned long long)c->requests, (unsigned long long)c->keys, (unsigned long long)c->got,
                  (unsigned long long)c->late, (unsigned long long)c->would_wrong, (unsigned long long)c->wrong,
                  (unsigned long long)c->lost, (unsigned long long)c->crashes, (unsigned long long)c->dropped,
                  (unsigned long long)c->doubled, (unsigned long long)c->corrupt, (unsigned long long)n[PULL_SHARED],
                  (unsigned long long)n[PULL_LEASE_HITS], (unsigned long long)n[PULL_RENEWS],
                  (unsigned long long)n[PULL_WAITS], (unsigned long long)n[PULL_STALE],
                  (unsigned long long)n[PULL_NEXT_SOURCE]);
}

static void nothing_wrong(const struct world_counts *c)
{
    if (c->broken) {
        fail_msg("%s", c->sentence);
    }
    assert_int_equal(c->wrong, 0);
    assert_int_equal(c->twice, 0);
    assert_int_equal(c->never, 0);
    assert_int_equal(c->not_quiet, 0);
    if (c->status) {
        fail_msg("%llu outcomes that nothing explains, the last %d of key %u", (unsigned long long)c->status,
                 c->bad_status, c->bad_key);
    }
    assert_int_equal(c->backwards, 0);
    assert_int_equal(c->leaks, 0);
    assert_true(c->got > c->keys / 8);
}

static struct world_counts lives(struct world_options o, uint32_t n)
{
    struct world_counts c = {0};
    time_t end = time(NULL) + WALL_S;
    o.requests = REQUESTS;
    for (uint32_t i = 0; i < n && time(NULL) < end; i++) {
        world_run(&o, &c);
    }
    return c;
}

static void verified(void **state)
{
    (void)state;
    struct world_counts c = lives((struct world_options){.verify = true, .damage = true, .drift_ppm = 4900}, LIVES);
    show("verified", &c);
    nothing_wrong(&c);
    assert_true(c.would_wrong > 0);
    assert_true(c.corrupt > 0);
}

/* Both clocks at the margin that rho covers. */
static void leases_only(void **state)
{
    (void)state;
    struct world_counts c = lives((struct world_options){.drift_ppm = 4900}, LIVES);
    show("leases only", &c);
    nothing_wrong(&c);
    assert_true(c.would_wrong > 0);
    assert_true(c.late > 0);
}

/* Lives until the violation shows; a world in which it never does proves nothing. */
static struct world_counts until_wrong(struct world_options o, bool wrong)
{
    struct world_counts c = {0};
    o.requests = REQUESTS;
    for (uint32_t i = 0; i < 40 && (wrong ? c.wrong : c.status) == 0; i++) {
        world_run(&o, &c);
    }
    return c;
}

static void verification_is_needed(void **state)
{
    (void)state;
    struct world_options o = {.verify = true, .damage = true, .drift_ppm = 4900, .unsafe = UNSAFE_NO_VERIFY};
    struct world_counts c = until_wrong(o, true);
    show("without verification", &c);
    assert_true(c.wrong > 0);
}

static void check_after_last_completion_is_needed(void **state)
{
    (void)state;
    struct world_counts c = until_wrong((struct world_options){.drift_ppm = 4900, .unsafe = UNSAFE_NO_CHECK}, true);
    show("without the clock check", &c);
    assert_true(c.wrong > 0);
}

static void start_before_asking_is_needed(void **state)
{
    (void)state;
    struct world_counts c = until_wrong((struct world_options){.drift_ppm = 4900, .unsafe = UNSAFE_LATE_START}, true);
    show("with D from the reply's arrival", &c);
    assert_true(c.wrong > 0);
}

static void lost_connection_ends_leases(void **state)
{
    (void)state;
    struct world_counts c = until_wrong((struct world_options){.drift_ppm = 4900, .unsafe = UNSAFE_KEEP_LOST}, true);
    show("with leases kept over a lost connection", &c);
    assert_true(c.wrong > 0);
}

static void waiters_must_be_detached(void **state)
{
    (void)state;
    struct world_options o = {.drift_ppm = 4900, .unsafe = UNSAFE_KEEP_WAITERS};
    struct world_counts c = until_wrong(o, false);
    show("with waiters that take the transfer with them", &c);
    assert_true(c.status > 0);
}

/* Clocks beyond what rho covers: the leases no longer hold, the checksums do. */
static void drift_beyond_the_margin(void **state)
{
    (void)state;
    struct world_counts bare = until_wrong((struct world_options){.drift_ppm = 300000}, true);
    show("drift of 30 %, leases only", &bare);
    assert_true(bare.wrong > 0);
    struct world_counts c = lives((struct world_options){.drift_ppm = 300000, .verify = true}, LIVES / 2);
    show("drift of 30 %, verified", &c);
    nothing_wrong(&c);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verified),
        cmocka_unit_test(leases_only),
        cmocka_unit_test(verification_is_needed),
        cmocka_unit_test(check_after_last_completion_is_needed),
        cmocka_unit_test(start_before_asking_is_needed),
        cmocka_unit_test(lost_connection_ends_leases),
        cmocka_unit_test(waiters_must_be_detached),
        cmocka_unit_test(drift_beyond_the_margin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
