/* Two sides under a random schedule: requests both ways with all kinds of deadlines, answers in any order or never,
 * messages that are delayed by as much as the clock runs on, broken ones, hang-ups at any moment. Whatever happens:
 * every request that was taken ends exactly once, DOWN comes once and last, and a connection that nobody broke stays
 * up.
 */
#include "tests/support/draw.h"
#include "tests/support/pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS 150u
#define STEPS 2000u

static struct pair p;
static unsigned asked[2];     /* users given out, from 0 */
static unsigned broken;       /* by whom the connection was spoilt on purpose */
static unsigned ended_how[3]; /* over all runs: answered, timed out, connection gone */

static void ask(unsigned side)
{
    static const int64_t ahead[] = {1, 2 * MS, 500 * MS, 20000 * MS};
    uint32_t kind = draw_below(5);
    int64_t deadline = kind == 4 ? INT64_MAX : p.now + ahead[kind] + (int64_t)draw_below(1000000);
    int err = pair_lease(&p, side, 1 + draw_below(5), 0, deadline, asked[side]);
    if (err == 0)
        asked[side]++;
    else
        assert_true(err == -EAGAIN || err == -ENOTCONN);
}

static void answer(unsigned side)
{
    struct pair_side *s = &p.side[side];
    if (!s->n_open)
        return;
    int err = pair_answer(&p, side, draw_below(s->n_open), -ENOENT, draw_below(3) == 0);
    assert_true(err == 0 || err == -ENOTCONN);
}

/* Ticks on time: whoever's timer comes first, and then messages too, so that a slow test is no silent peer. */
static void pass_time(int64_t ns)
{
    int64_t until = p.now + ns;
    for (;;) {
        int64_t a = peer_timer(p.side[0].peer), b = peer_timer(p.side[1].peer);
        int64_t next = a < b ? a : b;
        if (next > until)
            break;
        p.now = next > p.now ? next : p.now;
        for (unsigned side = 0; side < 2; side++) {
            if (peer_timer(p.side[side].peer) <= p.now)
                pair_event(&p, side, PEER_EV_TICK, 0);
        }
        pair_all(&p);
    }
    p.now = until;
}

static void spoil(unsigned side)
{
    struct pair_side *s = &p.side[side];
    if (s->head == s->tail)
        return;
    struct pair_message *m = &s->queue[s->head % PAIR_QUEUE];
    ((uint8_t *)m->bytes)[draw_below((uint32_t)m->n)] ^= (uint8_t)(1u << draw_below(8));
    broken = 1;
}

static void step(bool breaks)
{
    unsigned side = draw_below(2);
    switch (draw_below(breaks ? 403 : 400) / 10) {
    case 0 ... 14:
        ask(side);
        break;
    case 15 ... 26:
        answer(side);
        break;
    case 27 ... 36:
        pair_deliver(&p, side);
        break;
    case 37:
        pass_time(draw_below(3000000));
        break;
    case 38:
        pass_time(draw_below(100000000));
        break;
    case 39:
        pair_all(&p);
        pass_time(draw_below(8) ? 0 : draw() % (5000 * (uint64_t)MS));
        break;
    default:
        if (draw_below(3)) {
            spoil(side);
        } else if (draw_below(2)) {
            peer_stop(p.side[side].peer, p.now);
            pair_drain(&p, side);
            broken = 1;
        } else {
            pair_event(&p, side, PEER_EV_CLOSED, draw_below(2) ? -EPIPE : 0);
            broken = 1;
        }
    }
}

static void finish(void)
{
    for (unsigned side = 0; side < 2; side++) {
        struct pair_side *s = &p.side[side];
        if (!s->downs)
            pair_event(&p, side, PEER_EV_CLOSED, 0);
        pair_event(&p, side, PEER_EV_CLOSED, 0);
        pair_event(&p, side, PEER_EV_TICK, 0);
        assert_int_equal(s->downs, 1);
        assert_int_equal(s->ups, 1);
        assert_true(s->closes <= 1);
        assert_int_equal(s->answered, asked[side]);
        struct peer_stats stats;
        peer_stats(s->peer, &stats);
        assert_int_equal(stats.pending, 0);
        for (unsigned user = 0; user < asked[side]; user++) {
            assert_int_equal(s->ended[user], 1);
            int32_t how = s->status[user];
            ended_how[how == -ETIMEDOUT ? 1 : how == -ECONNRESET || how == BERTH_ENODE ? 2 : 0]++;
        }
    }
}

static void run(bool breaks)
{
    pair_init(&p);
    memset(asked, 0, sizeof asked);
    broken = 0;
    for (unsigned i = 0; i < 2; i++)
        p.config[i].pending_max = draw_below(2) ? PEER_PENDING_MAX : 1 + draw_below(40);
    pair_up(&p);
    for (unsigned i = 0; i < STEPS; i++) {
        step(breaks);
        if (!broken)
            assert_int_equal(p.side[0].closes + p.side[1].closes, 0);
    }
    finish();
    pair_close(&p);
}

static void test_schedules(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < RUNS; i++)
        run(i % 2);
    for (unsigned i = 0; i < 3; i++)
        assert_true(ended_how[i] > 500);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
