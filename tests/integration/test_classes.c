/* test_classes.c: a node that learns the sizes of its objects, over a warm restart too. */
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const size_t sizes[] = {9 << 12, 11 << 12, 13 << 12, 17 << 12, 19 << 12, 25 << 12, 33 << 12, 262145};
#define SIZES (sizeof sizes / sizeof *sizes)

static struct daemon d;

static void name_of(char out[24], unsigned i)
{
    snprintf(out, 24, "object-%u", i);
}

static void put(struct berth *b, unsigned from, unsigned to)
{
    char name[24];
    uint8_t *data = malloc(sizes[SIZES - 1]);
    for (unsigned i = from; i < to; i++) {
        name_of(name, i);
        payload_fill(data, sizes[i % SIZES], name);
        assert_int_equal(berth_put(b, key_of(name), data, sizes[i % SIZES], NULL), 0);
    }
    free(data);
}

static double waste(struct berth *b)
{
    return daemon_number(b, "pool.waste_bytes") / daemon_number(b, "pool.sealed_bytes");
}

static unsigned learned(struct berth *b)
{
    char *text = NULL;
    unsigned n = 0;
    assert_int_equal(berth_query(b, BERTH_STATUS, NULL, &text), 0);
    for (const char *at = text; (at = strstr(at, "\"learned\"")) != NULL; at++)
        n += strncmp(at + 9 + strspn(at + 9, ": "), "true", 4) == 0;
    free(text);
    return n;
}

static unsigned whole(struct berth *b, unsigned to)
{
    unsigned n = 0;
    for (unsigned i = 0; i < to; i++) {
        char name[24];
        struct berth_view v;
        name_of(name, i);
        if (berth_get(b, key_of(name), &v, BERTH_VERIFY, BERTH_FOREVER) != 0)
            continue;
        assert_int_equal(v.size, sizes[i % SIZES]);
        assert_true(payload_is(v.data, v.size, name));
        berth_release(b, &v, 1);
        n++;
    }
    return n;
}

static void test_sizes_are_learned(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct berth *b = daemon_open(&d, "fills");
    put(b, 0, 16); /* too few to say */
    assert_int_equal(learned(b), 0);
    assert_true(waste(b) > 0.04);
    put(b, 16, 3000); /* some four times the pool */
    assert_in_range(learned(b), 5, 16);
    assert_true(waste(b) < 0.02);
    unsigned kept = whole(b, 3000);
    assert_true(kept > 400);
    berth_close(b);
    assert_int_equal(daemon_stop(&d), 0);
    daemon_again(&d);
    b = daemon_open(&d, "looks");
    assert_in_range(learned(b), 5, 16); /* from the objects that are there */
    assert_true(waste(b) < 0.02);
    assert_int_equal(whole(b, 3000), kept);
    put(b, 3000, 4000);
    assert_true(waste(b) < 0.02);
    berth_close(b);
    daemon_kill(&d);
    daemon_again(&d);
    b = daemon_open(&d, "looks");
    assert_true(whole(b, 4000) > 400);
    berth_close(b);
    daemon_end(&d);
}

/* A client that has slots at hand gets the next ones of the new class. */
static void test_a_writer_gets_them_at_once(void **state)
{
    (void)state;
    char name[24];
    struct berth_stat st;
    uint8_t *data = calloc(1, sizes[0]);
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct berth *b = daemon_open(&d, "writer");
    for (unsigned i = 0; i < 600; i++) { /* a third of the pool */
        name_of(name, i);
        assert_int_equal(berth_put(b, key_of(name), data, sizes[0], NULL), 0);
    }
    assert_int_equal(berth_stat(b, key_of("object-0"), &st), 0);
    assert_int_equal(st.slot_bytes, 10 << 12);
    assert_int_equal(berth_stat(b, key_of("object-599"), &st), 0);
    assert_int_equal(st.slot_bytes, 9 << 12);
    free(data);
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes_are_learned),
                                       cmocka_unit_test(test_a_writer_gets_them_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
