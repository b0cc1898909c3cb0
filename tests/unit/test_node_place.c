/* test_node_place.c: the core gives slots in the part of the pool that a request is near to, and counts what it could
 * not. */
#include "tests/support/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define HALF 16u /* units */

static const struct slabs_place places[2] = {{0, HALF}, {HALF, HALF}};
static struct core c;

static void two_places(struct core *core)
{
    core->config.places = places;
    core->config.n_places = 2;
}

static uint64_t spilled(void)
{
    struct node_status s;
    node_status(c.node, &s);
    return s.slabs.spilled;
}

/* Which half the next slot is in, by a grant (small) or a draft. */
static int half_of(uint8_t place, uint64_t session, uint32_t size)
{
    static unsigned n;
    char key[32];
    struct msg_token t = {0};
    c.place = place;
    snprintf(key, sizeof key, "key %u", n++);
    int e = size <= PAGE_BYTES ? core_grant(&c, session, size, &t) : core_create(&c, session, key, size, 0, &t);
    assert_int_equal(e, 0);
    core_check(&c);
    return t.page >= HALF * UNIT_PAGES;
}

static void near(void **unused)
{
    (void)unused;
    core_open(&c, 2 * HALF * UNIT_BYTES, two_places);
    core_attach(&c, 1);
    core_attach(&c, 2);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(half_of(2, 1, 100), 1);
        assert_int_equal(half_of(1, 2, 100), 0);
        assert_int_equal(half_of(2, 2, 3 * MIB), 1); /* a client's threads may be anywhere */
        assert_int_equal(half_of(1, 1, 2 * MIB), 0);
        half_of(0, 1, 5000); /* no matter, and no such places: anywhere, uncounted */
        half_of(3, 1, 9000);
        half_of(255, 1, 13000);
    }
    assert_int_equal(spilled(), 0);
    core_close(&c);
}

static void spills(void **unused)
{
    (void)unused;
    core_open(&c, 2 * HALF * UNIT_BYTES, two_places);
    core_attach(&c, 1);
    core_attach(&c, 2);
    for (unsigned i = 0; i < HALF / 2; i++)
        assert_int_equal(half_of(2, 1 + i % 2, 4 * MIB), 1);
    assert_int_equal(spilled(), 0);
    assert_int_equal(half_of(2, 1, 4 * MIB), 0);
    assert_int_equal(half_of(2, 2, 100), 0);
    assert_int_equal(half_of(1, 2, 100), 0);
    assert_int_equal(spilled(), 2);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(near), cmocka_unit_test(spills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
