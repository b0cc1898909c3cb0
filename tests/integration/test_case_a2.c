/* Case A2: a client that is killed and comes back under its old name at once, 200 times; then the pool is filled. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIZE 65536u
#define OBJECTS 200
#define ROUNDS 200

static struct daemon d;

static const char *name_of(char key[16], int i)
{
    snprintf(key, 16, "object-%d", i);
    return key;
}

/* Pins ten objects that the parent's number chooses, says so, verifies them once more when told. */
static int pinner(void *arg)
{
    int first = (int)(intptr_t)arg;
    struct berth *b = NULL;
    struct berth_open_opts o = {.size = sizeof o, .name = "same-name"};
    struct berth_view v[10];
    char key[16];
    CHECK(berth_open(&b, d.node, &o) == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(berth_get(b, key_of(name_of(key, (first + i) % OBJECTS)), &v[i], 0, BERTH_FOREVER) == 0);
    }
    child_tell('p');
    CHECK(child_hear() == 'v');
    for (int i = 0; i < 10; i++) {
        CHECK(payload_is(v[i].data, SIZE, name_of(key, (first + i) % OBJECTS)));
    }
    return 0;
}

static void test_same_name(void **state)
{
    (void)state;
    const char *extra[] = {"--pool", "64MiB", NULL};
    daemon_start(&d, extra);
    struct berth *b = daemon_open(&d, "parent");
    char key[16], *data = malloc(SIZE);
    for (int i = 0; i < OBJECTS; i++) {
        payload_fill(data, SIZE, name_of(key, i));
        assert_int_equal(berth_put(b, key_of(key), data, SIZE, NULL), 0);
    }
    struct child c[3];
    for (int i = 0; i < 3; i++) {
        child_start(&c[i], pinner, (void *)(intptr_t)(i * 10));
        assert_int_equal(parent_hear(&c[i], 10000), 'p');
    }
    for (int i = 0; i < ROUNDS; i++) {
        child_kill(&c[0]);
        child_start(&c[0], pinner, (void *)(intptr_t)(i % OBJECTS));
        assert_int_equal(parent_hear(&c[0], 10000), 'p');
    }
    for (int i = 0; i < 3000; i++) { /* far more than the pool holds: everything that may go goes */
        snprintf(key, sizeof key, "fill-%d", i);
        payload_fill(data, SIZE, key);
        assert_int_equal(berth_put(b, key_of(key), data, SIZE, NULL), 0);
    }
    assert_true(daemon_number(b, "counters.evicted") > 1000);
    for (int i = 0; i < 3; i++) { /* the newest session's pins stood all along */
        parent_tell(&c[i], 'v');
        assert_int_equal(child_wait(&c[i]), 0);
    }
    free(data);
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
