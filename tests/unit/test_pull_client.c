/* The puller of a client, which is no member: nobody is this node, members are asked before they have been met, and a
 * look whether something is there is no use of it.
 */
#include "store/berth.h"
#include "tests/support/puller.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct script *s;

static int fresh(void **state)
{
    (void)state;
    s = script_new();
    s->config.self = PULL_MEMBER_NONE;
    s->homes[0] = 4; /* it is not up */
    s->homes[1] = 0;
    script_start(s);
    script_member(s, EV_PULL_UP, 0, 7);
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_null(pull_check(s->p));
    script_free(s);
    return 0;
}

static void completes(uint64_t id)
{
    const struct kept *k = script_take(s, CMD_PULL_READ);
    uint64_t sum = SUM;
    script_event(s, &(struct pull_event){.kind = EV_PULL_READ, .id = k->c.id, .sums = &sum});
    k = script_take(s, CMD_PULL_DONE);
    assert_int_equal(k->c.id, id);
    assert_int_equal(k->result[0].status, 0);
}

/* An owner that is a home gives the lease with its answer. */
static void granted(uint64_t rpc, uint16_t member)
{
    struct pull_answer a = {.says = HOME_FOUND, .n_locations = 1, .location = {{member, {5, 1}}}, .granted = true};
    a.grant.terms = script_terms(s, 5, 10);
    script_event(s, &(struct pull_event){.kind = EV_PULL_ANSWER, .id = rpc, .member = member, .answers = &a, .n = 1});
}

static void nobody_is_this_node(void **state)
{
    (void)state;
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 0);
    assert_int_equal(k->c.flags, ASK_WANT_LEASE); /* also of member 0 */
    granted(k->c.id, 0);
    completes(1);
    struct pull_config bad = s->config;
    struct puller *p = NULL;
    bad.self = bad.n_members;
    assert_int_equal(pull_create(&p, &bad), -EINVAL);
}

static void what_is_asked_before_a_member_is_met_goes_on(void **state)
{
    (void)state;
    script_member(s, EV_PULL_UP, 4, 0);
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 4);
    uint64_t rpc = k->c.id;
    script_pass(s, 5 * MS);
    script_member(s, EV_PULL_UP, 4, 9);
    assert_int_equal(s->n_kept, 0); /* nobody else is asked */
    granted(rpc, 4);
    completes(1);
    script_pull(s, 2, "k", PULL_BUFFER, 0, 0); /* under the same lease */
    completes(2);
    script_member(s, EV_PULL_UP, 4, 10); /* of another life: the lease is none any more */
    script_pull(s, 3, "k", PULL_BUFFER, 0, 0);
    assert_int_equal(script_count(s, CMD_PULL_READ), 0);
    assert_int_equal(script_take(s, CMD_PULL_ASK)->c.member, 4);
}

static void who_is_never_met_is_passed_over(void **state)
{
    (void)state;
    script_member(s, EV_PULL_UP, 4, 0);
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    assert_int_equal(script_take(s, CMD_PULL_ASK)->c.member, 4);
    script_member(s, EV_PULL_DOWN, 4, 0);
    const struct kept *k = script_take(s, CMD_PULL_ASK);
    assert_int_equal(k->c.member, 0);
    granted(k->c.id, 0);
    completes(1);
}

static void nobody_can_be_asked(void **state)
{
    (void)state;
    script_member(s, EV_PULL_DOWN, 0, 0);
    script_pull(s, 1, "k", PULL_BUFFER, 0, 0);
    assert_int_equal(script_take(s, CMD_PULL_DONE)->result[0].status, BERTH_EUNSURE);
}

static uint64_t uses_of(bool looks)
{
    struct pull_range none = {0};
    struct pull_key key = {
        .key = {.data = "k", .size = 1}, .ranges = &none, .n_ranges = looks, .buffer = 1, .room = 100};
    struct pull_request r = {
        .id = looks ? 1 : 2, .keys = &key, .n_keys = 1, .destination = PULL_BUFFER, .sample = 1, .deadline = INT64_MAX};
    script_request(s, &r);
    granted(script_take(s, CMD_PULL_ASK)->c.id, 0);
    if (looks) {
        assert_int_equal(script_take(s, CMD_PULL_DONE)->result[0].size, 10);
    } else {
        completes(2);
    }
    script_pass(s, 1500 * MS); /* it is idle for long enough to be given back */
    script_pass(s, 100 * MS);
    const struct kept *k = script_take(s, CMD_PULL_RELEASE);
    assert_int_equal(k->c.n, 1);
    return k->release[0].uses;
}

static void a_look_is_no_use(void **state)
{
    (void)state;
    assert_int_equal(uses_of(true), 0);
    assert_int_equal(uses_of(false), 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, end)
    const struct CMUnitTest tests[] = {
        CASE(nobody_is_this_node),
        CASE(what_is_asked_before_a_member_is_met_goes_on),
        CASE(who_is_never_met_is_passed_over),
        CASE(nobody_can_be_asked),
        CASE(a_look_is_no_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
