/* Shares of the pool: what a namespace has within its share stays while others have anything that may go. */
#include "tests/support/embedded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct berth *node;
static uint32_t ns_a, ns_b;

static void open_node(const char *settings)
{
    char url[512];
    snprintf(url, sizeof url, "embedded:?pool=64MiB&lock=off&log-level=error&%s", settings);
    int rc = berth_open(&node, url, NULL);
    if (rc) {
        struct berth_error_info e;
        berth_error(NULL, &e);
        fail_msg("%s: %s", url, e.sentence);
    }
    assert_int_equal(berth_namespace(node, "a", &ns_a), 0);
    assert_int_equal(berth_namespace(node, "b", &ns_b), 0);
}

static int close_node(void **unused)
{
    (void)unused;
    char *text = NULL;
    if (node) {
        assert_int_equal(berth_query(node, BERTH_CHECK, NULL, &text), 0);
        if (!strstr(text, "\"differences\": 0") || !strstr(text, "\"invariant\": null"))
            fail_msg("%s", text);
        free(text);
    }
    berth_close(node);
    node = NULL;
    return 0;
}

static struct berth_key key_in(uint32_t ns, unsigned i)
{
    static char name[16];
    int n = snprintf(name, sizeof name, "k%u", i);
    return (struct berth_key){.data = name, .size = (uint32_t)n, .ns = ns};
}

static void put_many(uint32_t ns, unsigned first, unsigned n, size_t size)
{
    void *data = calloc(1, size);
    assert_non_null(data);
    for (unsigned i = first; i < first + n; i++) {
        assert_int_equal(berth_put(node, key_in(ns, i), data, size, NULL), 0);
    }
    free(data);
}

static unsigned count(uint32_t ns, unsigned n)
{
    unsigned there = 0;
    for (unsigned i = 0; i < n; i++) {
        struct berth_key k = key_in(ns, i);
        uint8_t present = 0;
        assert_true(berth_exists(node, &k, 1, &present, 0) >= 0);
        there += present;
    }
    return there;
}

static void within_its_share(const char *settings)
{
    open_node(settings);
    put_many(ns_a, 0, 20, MIB);
    put_many(ns_b, 0, 200, MIB);
    assert_int_equal(count(ns_a, 20), 20);
    assert_true(daemon_number(node, "counters.evicted") > 100);
    assert_int_equal(daemon_number(node, "shares.a.share_bytes"), 24 * MIB);
    assert_int_equal(daemon_number(node, "shares.a.used_bytes"), 20 * MIB);
    assert_int_equal(daemon_metric(node, "berth_share_bytes{namespace=\"a\"}"), 24 * MIB);
    assert_int_equal(daemon_metric(node, "berth_share_used_bytes{namespace=\"a\"}"), 20 * MIB);
    assert_true(daemon_metric(node, "berth_whatif_hit_ratio{scale=\"4\",over=\"recent\"}") == 0); /* puts alone */
    assert_true(daemon_metric(node, "berth_whatif_sample_rate") == 1);
}

static void kept(void **unused)
{
    within_its_share("share=a=24MiB");
    close_node(unused);
    within_its_share("share=a=24MiB&policy=lru");
}

/* What it has beyond its share goes like everybody's; nobody's share is kept free for it. */
static void above_it(void **unused)
{
    (void)unused;
    open_node("share=a=24MiB,b=1MiB");
    put_many(ns_a, 0, 55, MIB);
    assert_true(daemon_number(node, "shares.a.used_bytes") > 50 * MIB);
    put_many(ns_b, 0, 200, MIB);
    long used = daemon_number(node, "shares.a.used_bytes");
    assert_true(used >= 24 * MIB && used <= 25 * MIB);
    assert_true(daemon_number(node, "shares.b.used_bytes") >= 30 * MIB);
}

/* A put never fails for a share: where nothing else is left, what is within one goes. */
static void nothing_else_left(void **unused)
{
    (void)unused;
    open_node("share=a=95%");
    put_many(ns_a, 0, 100, MIB);
    put_many(ns_b, 0, 1, 40 * MIB);
    assert_int_equal(count(ns_b, 1), 1);
}

/* Room for large objects is made of whole slabs of small ones: not of those within a share. */
static void other_sizes(void **unused)
{
    (void)unused;
    open_node("share=a=24MiB");
    for (unsigned i = 0; i < 10; i++) { /* side by side in the pool */
        put_many(ns_a, 20 * i, 20, 64 << 10);
        put_many(ns_b, 60 * i, 60, 64 << 10);
    }
    put_many(ns_b, 10000, 60, 8 * MIB);
    assert_int_equal(count(ns_a, 200), 200);
}

static void after_a_restart(void **unused)
{
    char dir[] = "/dev/shm/berth-shares-XXXXXX", settings[128], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(settings, sizeof settings, "region=%s/r&share=a=50%%", dir);
    open_node(settings);
    put_many(ns_a, 0, 20, MIB);
    close_node(unused);
    open_node(settings);
    assert_int_equal(daemon_number(node, "shares.a.used_bytes"), 20 * MIB);
    put_many(ns_b, 0, 200, MIB);
    assert_int_equal(count(ns_a, 20), 20);
    close_node(unused);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, close_node)
    const struct CMUnitTest tests[] = {
        CASE(kept), CASE(above_it), CASE(nothing_else_left), CASE(other_sizes), CASE(after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
