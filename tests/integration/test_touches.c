/* What readers use counts before the next put that evicts, however seldom they read, and whichever way they come. */
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define OBJECT (4u << 20) /* a pool of 64 MiB has room for fewer than the gets that a thread keeps */
#define ROUNDS 60u

static struct daemon node;
static struct berth *writer;
static void *data;

static int start(void **unused)
{
    (void)unused;
    static const char *const flags[] = {"--pool", "64MiB", "--policy", "lru", "--lock", "off", NULL};
    daemon_start(&node, flags);
    writer = daemon_open(&node, "writer");
    data = calloc(1, OBJECT);
    assert_int_equal(berth_put(writer, key_of("hot"), data, OBJECT, NULL), 0);
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    assert_true(daemon_number(writer, "counters.evicted") > ROUNDS / 2);
    free(data);
    berth_close(writer);
    daemon_end(&node);
    return 0;
}

static void put_another(void)
{
    static unsigned i;
    char name[16];
    snprintf(name, sizeof name, "cold %u", i++);
    assert_int_equal(berth_put(writer, key_of(name), data, OBJECT, NULL), 0);
}

static void get_hot(struct berth *reader, unsigned flags)
{
    struct berth_view view;
    assert_int_equal(berth_get(reader, key_of("hot"), &view, flags, BERTH_NOW), 0);
    berth_release(reader, &view, 1);
}

static void one_get_between_puts(void **unused)
{
    (void)unused;
    struct berth *reader = daemon_open(&node, "reader");
    for (unsigned i = 0; i < ROUNDS; i++) {
        get_hot(reader, 0);
        put_another();
    }
    berth_close(reader);
}

static void verified_gets(void **unused) /* they go the long way */
{
    (void)unused;
    struct berth *reader = daemon_open(&node, "reader");
    for (unsigned i = 0; i < ROUNDS; i++) {
        get_hot(reader, BERTH_VERIFY);
        put_another();
    }
    berth_close(reader);
}

static void one_get_a_handle(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct berth *reader = daemon_open(&node, "reader");
        get_hot(reader, 0);
        berth_close(reader);
        put_another();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_get_between_puts, start, end),
        cmocka_unit_test_setup_teardown(verified_gets, start, end),
        cmocka_unit_test_setup_teardown(one_get_a_handle, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
