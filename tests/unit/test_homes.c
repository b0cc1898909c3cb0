/* Homes and owners together under random schedules: 3 to 5 members, messages lost, late, out of order and repeated,
 * members that restart with and without what they had, links that go, lists that change at another time on each member,
 * homes that are too small. Throughout: what was published is found or the answer is not sure, and nothing is found
 * that was removed or replaced before (PROTOCOLS.md rule 31, 2). After quiet: every answer is exact. */
#include "tests/support/draw.h"
#include "tests/support/fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS 60u
#define STEPS 6000u
#define BURST 1200u

/* ---- what must hold ---- */

/* What an acknowledged removal or newer version, which its owner still has, forbids to hand out. */
static bool forbidden(uint32_t key, struct object_version v)
{
    for (uint32_t i = 0; i < fleet.n; i++) {
        const struct record *r = &fleet.node[i].index[key], *gone = &fleet.node[i].removed[key];
        if ((gone->what == TOMBSTONE && gone->published && !version_less(gone->version, v)) ||
            (r->what == OBJECT && r->published && fleet_replaceable(key) && version_less(v, r->version))) {
            return true;
        }
    }
    return false;
}

/* An object that nothing that was ever said stands above. */
static bool stands(uint32_t key, const struct record *r)
{
    return r->what == OBJECT && version_less(fleet.removed[key], r->version) &&
           (!fleet_replaceable(key) || !version_less(r->version, fleet.most[key]));
}

static void check_answer(uint16_t reader, uint16_t home, uint32_t key)
{
    struct home_key k = fleet_key(key);
    struct home_answer a;
    home_ask(fleet.node[home].home, &k, fleet_revision(&fleet.node[reader]), fleet.now, &a);
    fleet.asked[a.kind]++;
    fleet.unsure += a.kind == ANSWER_FOUND && !a.sure;
    for (uint32_t i = 0; i < fleet.n && a.kind == ANSWER_ABSENT; i++) {
        if (fleet.node[i].index[key].published && stands(key, &fleet.node[i].index[key])) {
            fail_msg("key %u of member %u is published, home %u says ABSENT", key, i, home);
        }
    }
    for (uint32_t i = 0; i < a.n; i++) {
        if (a.sure && forbidden(key, a.at[i].version)) {
            fail_msg("home %u finds key %u at member %u in a version that is no more", home, key, a.at[i].member);
        }
        assert_true(a.at[i].member < fleet.n);
    }
}

static void ask(void)
{
    uint16_t reader = (uint16_t)draw_below(fleet.n), home[HOMES_MAX];
    uint32_t key = draw_below(KEYS);
    struct home_key k = fleet_key(key);
    uint32_t n = rendezvous_homes(fleet.list[fleet.node[reader].list], rendezvous_place(&k), home);
    for (uint32_t i = 0; i < n; i++) {
        check_answer(reader, home[i], key);
    }
}

/* A replica at another member, of a version that a home names and its owner has. */
static void replicate(void)
{
    uint16_t reader = (uint16_t)draw_below(fleet.n), home[HOMES_MAX];
    uint32_t key = draw_below(KEYS);
    struct node *n = &fleet.node[reader];
    struct home_key k = fleet_key(key);
    struct home_answer a;
    rendezvous_homes(fleet.list[n->list], rendezvous_place(&k), home);
    home_ask(fleet.node[home[0]].home, &k, fleet_revision(n), fleet.now, &a);
    if (a.kind != ANSWER_FOUND || n->index[key].what != NOTHING) {
        return;
    }
    const struct record *from = &fleet.node[a.at[0].member].index[key];
    if (from->what == OBJECT && version_equal(from->version, a.at[0].version)) {
        fleet_write(n, key, OBJECT, from->version);
        fleet_tell(n, key, PUBLICATION_OBJECT, from->version, false, false);
    }
}

static void check_all(void)
{
    for (uint32_t i = 0; i < fleet.n; i++) {
        const char *why = home_check(fleet.node[i].home);
        why = why ? why : publish_check(fleet.node[i].publish);
        if (why) {
            fail_msg("member %u: %s", i, why);
        }
    }
}

/* ---- schedules ---- */

static void burst(struct node *n)
{
    uint32_t key = draw_below(KEYS);
    for (uint32_t i = 0; i < BURST; i++) {
        fleet_put(n, key);
        fleet_evict(n, key);
    }
}

static void change_list(void)
{
    uint16_t member = (uint16_t)draw_below(fleet.n);
    if (draw_below(4) == 0) {
        fleet.cluster = draw_below(LISTS);
        fleet.changes++;
    }
    if (fleet.node[member].list != fleet.cluster) {
        fleet_learn(member, fleet.cluster);
    }
}

static void rare_step(uint16_t member, uint16_t other)
{
    switch (draw_below(40)) {
    case 0:
        fleet_restart(member, draw_below(4) == 0);
        break;
    case 1:
    case 2:
        change_list();
        break;
    case 3:
        if (draw_below(8) == 0) {
            burst(&fleet.node[member]);
        }
        break;
    case 4:
    case 5:
        fleet_cut(member, other);
        fleet_connect(member, member);
        break;
    default:
        fleet_connect(member, other);
    }
}

static void network_step(void)
{
    uint32_t first = draw_below(MESSAGES);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        struct message *m = &fleet.message[(first + i) % MESSAGES];
        if (m->used && draw_below(200) == 0) {
            fleet_forget(m);
            fleet.lost++;
            return;
        }
        if (m->used) {
            fleet_deliver(m, draw_below(10) == 0);
            return;
        }
    }
}

static void step(void)
{
    uint16_t member = (uint16_t)draw_below(fleet.n), other = (uint16_t)draw_below(fleet.n);
    struct node *n = &fleet.node[member];
    uint32_t key = draw_below(KEYS), dice = draw_below(64);
    fleet.now += draw_below(RESEND / 20);
    for (uint32_t i = 0; i < 2; i++) {
        network_step();
    }
    if (dice < 6) {
        fleet_put(n, key);
    } else if (dice < 10) {
        fleet_evict(n, key);
    } else if (dice < 12) {
        fleet_erase(n, key);
    } else if (dice < 15) {
        replicate();
    } else if (dice < 19) {
        if (draw_below(fleet.calm) == 0) {
            rare_step(member, other);
        }
    } else if (dice < 27 && n->listing) {
        fleet_list(n);
    } else if (dice < 30) {
        publish_tick(n->publish, fleet.now);
        home_tick(n->home, fleet.now);
    } else {
        fleet_commands(member, draw_below(6));
    }
    ask();
}

static void quiet_step(void)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (fleet.message[i].used) {
            fleet_deliver(&fleet.message[i], false);
        }
    }
    for (uint16_t i = 0; i < fleet.n; i++) {
        fleet.now += RESEND / 4;
        publish_tick(fleet.node[i].publish, fleet.now);
        fleet_commands(i, 1000);
        if (fleet.node[i].listing) {
            fleet_list(&fleet.node[i]);
        }
    }
}

static void settle(void)
{
    for (uint16_t i = 0; i < fleet.n; i++) {
        fleet_learn(i, fleet.cluster);
    }
    for (uint16_t i = 0; i < fleet.n; i++) {
        for (uint16_t j = 0; j <= i; j++) {
            fleet_connect(i, j);
        }
    }
    for (uint32_t i = 0; i < 400; i++) {
        quiet_step();
    }
}

/* Whether member i must be, may be or must not be among the answer's locations. */
static void check_location(const struct home_answer *a, uint32_t key, uint32_t i)
{
    const struct record *r = &fleet.node[i].index[key];
    bool there = false;
    for (uint32_t j = 0; j < a->n; j++) {
        if (a->at[j].member == i) {
            there = true;
            assert_true(r->what == OBJECT && version_equal(r->version, a->at[j].version));
        }
    }
    if (!there && stands(key, r)) {
        fail_msg("key %u of member %u is not found after quiet", key, i);
    }
}

/* After quiet every home has every removal. */
static void check_known(uint32_t key)
{
    for (uint32_t i = 0; i < fleet.n && !fleet.small; i++) {
        const struct record *r = &fleet.node[i].removed[key];
        assert_true(r->what == NOTHING || r->known);
    }
}

static void check_quiet(void)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        check_known(key);
        struct home_key k = fleet_key(key);
        uint16_t home[HOMES_MAX];
        uint32_t n = rendezvous_homes(fleet.list[fleet.cluster], rendezvous_place(&k), home);
        for (uint32_t h = 0; h < n; h++) {
            struct home_answer a;
            home_ask(fleet.node[home[h]].home, &k, rendezvous_revision(fleet.list[fleet.cluster]), fleet.now, &a);
            for (uint32_t i = 0; i < fleet.n && !fleet.small; i++) {
                check_location(&a, key, i);
            }
            assert_true(fleet.small || a.kind == (a.n ? ANSWER_FOUND : ANSWER_ABSENT));
            assert_true(fleet.small || a.sure);
            check_answer(0, home[h], key);
        }
    }
}

static void make_lists(void)
{
    struct rendezvous_member m[MEMBERS];
    for (uint32_t l = 0; l < LISTS; l++) {
        for (uint32_t i = 0; i < fleet.n; i++) {
            bool leaving = l > 0 && i == l;
            m[i] = (struct rendezvous_member){
                .id = 1 + i, .weight = 1 + draw_below(3), .state = leaving ? MEMBER_LEAVING : MEMBER_IN};
        }
        m[0].weight = 1 + l; /* no two are alike */
        assert_int_equal(rendezvous_create(&fleet.list[l], m, fleet.n, fleet.k), 0);
    }
}

static void run_once(void)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        fleet_forget(&fleet.message[i]);
    }
    memset(fleet.most, 0, sizeof fleet.most);
    memset(fleet.removed, 0, sizeof fleet.removed);
    memset(fleet.node, 0, sizeof fleet.node);
    fleet.n = 3 + draw_below(MEMBERS - 2);
    fleet.k = 1 + draw_below(2);
    fleet.small = draw_below(5) == 0;
    fleet.calm = 1u << draw_below(6);
    fleet.cluster = 0;
    fleet.now = 1000;
    make_lists();
    for (uint16_t i = 0; i < fleet.n; i++) {
        fleet.node[i].life = (struct home_life){.region = ++fleet.regions, .incarnation = 1};
        fleet.node[i].skew = draw_below(3) == 0 ? draw_below(1000000) : 0;
        fleet_start(i);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        step();
        if (i % 64 == 0) {
            check_all();
        }
    }
    settle();
    check_all();
    check_quiet();
    for (uint16_t i = 0; i < fleet.n; i++) {
        fleet_stop(i);
    }
    for (uint32_t l = 0; l < LISTS; l++) {
        rendezvous_destroy(fleet.list[l]);
    }
}

static void test_schedules(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RUNS; i++) {
        run_once();
    }
    printf("found %lu (%lu unsure), absent %lu, learning %lu; published %lu, taken %lu, dropped %lu, known %lu, "
           "restarts %lu, "
           "lists %lu, lost %lu, overflows %lu, full %lu\n",
           fleet.asked[ANSWER_FOUND], fleet.unsure, fleet.asked[ANSWER_ABSENT], fleet.asked[ANSWER_LEARNING],
           fleet.published, fleet.taken, fleet.dropped, fleet.known, fleet.restarts, fleet.changes, fleet.lost,
           fleet.overflows, fleet.full);
    /* The schedules reach what they are for. */
    assert_true(fleet.asked[ANSWER_FOUND] - fleet.unsure > 1000 && fleet.unsure > 1000 &&
                fleet.asked[ANSWER_ABSENT] > 1000);
    assert_true(fleet.asked[ANSWER_LEARNING] > 1000 && fleet.published > 1000 && fleet.taken > 10 &&
                fleet.dropped > 10 && fleet.known > 1000);
    assert_true(fleet.restarts > 10 && fleet.changes > 10 && fleet.lost > 100 && fleet.overflows > 0 && fleet.full > 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        fleet_forget(&fleet.message[i]);
    }
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
