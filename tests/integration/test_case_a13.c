/* Case A13: one access counts once. Gets, misses, exists and listings, as status and metrics have them. */
#include "tests/support/daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct daemon d;

static double metric(struct berth *b, const char *name)
{
    char *text = NULL, line[128];
    assert_int_equal(berth_query(b, BERTH_METRICS, NULL, &text), 0);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    if (!at) {
        fail_msg("no metric '%s'", name);
    }
    double v = strtod(at + strlen(line), NULL);
    free(text);
    return v;
}

static void test_counts(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct berth *b = daemon_open(&d, "counter"), *other = daemon_open(&d, "watcher");
    struct berth_view v;
    char key[16];
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(berth_put(b, key_of(key), key, strlen(key), NULL), 0);
    }
    double hits = daemon_number(other, "local.hits"), misses = daemon_number(other, "local.misses");
    for (int i = 0; i < 15; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(berth_get(b, key_of(key), &v, 0, BERTH_FOREVER), i < 10 ? 0 : -ENOENT);
        if (i < 10) {
            berth_release(b, &v, 1);
        }
    }
    for (int i = 0; i < 5; i++) {
        struct berth_key k = key_of("k1");
        uint8_t there;
        assert_int_equal(berth_exists(b, &k, 1, &there, 0), 1);
    }
    struct berth_cursor cursor = {0};
    struct berth_entry entries[16];
    assert_int_equal(berth_list(b, 0, NULL, 0, &cursor, entries, 16), 10);
    assert_int_equal(daemon_number(other, "local.hits") - hits, 10);
    assert_int_equal(daemon_number(other, "local.misses") - misses, 5);
    assert_int_equal(daemon_number(other, "local.exists"), 5);
    assert_int_equal(metric(other, "berth_local_hits_total"), daemon_number(other, "local.hits"));
    assert_int_equal(metric(other, "berth_local_misses_total"), daemon_number(other, "local.misses"));
    berth_close(b); /* what a session counted stays counted when it is gone */
    assert_int_equal(daemon_number(other, "local.hits") - hits, 10);
    assert_int_equal(daemon_number(other, "local.misses") - misses, 5);
    berth_close(other);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
