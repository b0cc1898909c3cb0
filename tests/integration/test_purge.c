/* Purges through the library: what the caller sees, others meanwhile, a daemon that is killed in the middle, and copies
 * at other nodes. */
#include "tests/support/berthds.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define BYTES 4096u
#define OBJECTS 9000u
#define SOON_MS 30000
#define SECONDS(n) ((n)*INT64_C(1000000000))

static uint8_t payload[BYTES];

static int put_tag(struct berth *b, const char *key, uint64_t lineage)
{
    struct berth_put_opts opts = {.size = sizeof opts, .lineage = lineage};
    payload_fill(payload, sizeof payload, key);
    return berth_put(b, key_of(key), payload, sizeof payload, &opts);
}

static bool is_there(struct berth *b, const char *key)
{
    struct berth_key k = key_of(key);
    uint8_t present = 2;
    assert_true(berth_exists(b, &k, 1, &present, 0) >= 0);
    return present == 1;
}

static void fill(struct berth *b, uint64_t lineage)
{
    char key[24];
    for (unsigned i = 0; i < OBJECTS; i++) {
        snprintf(key, sizeof key, "many/%u", i);
        assert_int_equal(put_tag(b, key, lineage), 0);
    }
}

static void test_arguments(void **unused)
{
    (void)unused;
    struct berth *b;
    struct berth_purged did = {.removed = 7};
    struct berth_purge wrong[] = {
        {0},
        {.kind = 4, .ns = 0},
        {.kind = BERTH_PURGE_LINEAGE},
        {.kind = BERTH_PURGE_LINEAGE, .lineage = 1, .ns = 1},
        {.kind = BERTH_PURGE_LINEAGE, .lineage = 1, .prefix = "x", .prefix_size = 1},
        {.kind = BERTH_PURGE_NAMESPACE, .lineage = 1},
        {.kind = BERTH_PURGE_NAMESPACE, .prefix = "x", .prefix_size = 1},
        {.kind = BERTH_PURGE_NAMESPACE, .ns = 4711},
        {.kind = BERTH_PURGE_PREFIX},
        {.kind = BERTH_PURGE_PREFIX, .prefix = "x", .prefix_size = BERTH_KEY_MAX + 1},
        {.kind = BERTH_PURGE_PREFIX, .prefix_size = 1},
        {.kind = BERTH_PURGE_PREFIX, .prefix = "x", .prefix_size = 1, .lineage = 1},
    };
    assert_int_equal(berth_open(&b, "embedded:?pool=16MiB", NULL), 0);
    assert_int_equal(put_tag(b, "x", 1), 0);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(berth_purge(b, &wrong[i], BERTH_FOREVER, &did), -EINVAL);
    }
    assert_int_equal(berth_purge(b, NULL, BERTH_FOREVER, &did), -EINVAL);
    char *text;
    assert_int_equal(berth_query(b, BERTH_WHY, NULL, &text), -EINVAL);
    assert_true(is_there(b, "x") && did.removed == 7);
    assert_int_equal(
        berth_purge(b, &(struct berth_purge){.kind = BERTH_PURGE_LINEAGE, .lineage = 1}, BERTH_FOREVER, NULL), 0);
    assert_false(is_there(b, "x"));
    berth_close(b);
}

static void test_views_and_drafts(void **unused)
{
    (void)unused;
    struct berth *b;
    struct berth_view v;
    struct berth_draft d;
    struct berth_purged did;
    struct berth_put_opts opts = {.size = sizeof opts, .lineage = 5};
    assert_int_equal(berth_open(&b, "embedded:?pool=16MiB", NULL), 0);
    assert_int_equal(put_tag(b, "viewed", 5), 0);
    assert_int_equal(put_tag(b, "held", 5), 0);
    assert_int_equal(berth_hold(b, key_of("held"), "keep", 0), 0);
    assert_int_equal(berth_get(b, key_of("viewed"), &v, 0, BERTH_FOREVER), 0);
    assert_int_equal(berth_create(b, key_of("draft"), BYTES, &opts, &d), 0);
    struct berth_purge what = {.kind = BERTH_PURGE_LINEAGE, .lineage = 5};
    assert_int_equal(berth_purge(b, &what, BERTH_FOREVER, &did), 0);
    assert_true(did.removed == 1 && did.bytes == BYTES && did.held == 1 && did.drafts == 1 && did.untold == 0);
    assert_true(payload_is(v.data, v.size, "viewed"));
    assert_true(!is_there(b, "viewed") && is_there(b, "held"));
    assert_int_equal(berth_seal(b, &d, 1), BERTH_EPURGED);
    assert_null(d.data);
    assert_int_equal(berth_create(b, key_of("draft"), BYTES, &opts, &d), 0);
    payload_fill(d.data, BYTES, "draft");
    assert_int_equal(berth_seal(b, &d, 1), 0);
    assert_int_equal(put_tag(b, "viewed", 5), 0); /* the view is of the old one still */
    assert_true(payload_is(v.data, v.size, "viewed") && is_there(b, "draft"));
    berth_release(b, &v, 1);
    berth_close(b);
}

/* Puts of another handle while thousands of keys go: each waits for a step at most. */
struct other {
    struct berth *b;
    _Atomic bool stop;
    unsigned puts;
    int64_t worst_ns;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *put_meanwhile(void *arg)
{
    struct other *o = arg;
    char key[24];
    while (!o->stop) {
        int64_t from = now_ns();
        snprintf(key, sizeof key, "other/%u", o->puts % 64);
        if (put_tag(o->b, key, 1) < 0) {
            return arg;
        }
        int64_t took = now_ns() - from;
        o->worst_ns = took > o->worst_ns ? took : o->worst_ns;
        o->puts++;
    }
    return NULL;
}

static void test_others_go_on(void **unused)
{
    (void)unused;
    static struct daemon d;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct other o = {.b = daemon_open(&d, "other")};
    struct berth *b = daemon_open(&d, "purger");
    pthread_t thread;
    void *failed;
    struct berth_purged did;
    fill(b, 9);
    assert_int_equal(pthread_create(&thread, NULL, put_meanwhile, &o), 0);
    int64_t from = now_ns();
    struct berth_purge what = {.kind = BERTH_PURGE_PREFIX, .prefix = "many/", .prefix_size = 5};
    assert_int_equal(berth_purge(b, &what, berth_deadline(SECONDS(60)), &did), 0);
    int64_t took = now_ns() - from;
    o.stop = true;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(did.removed, OBJECTS);
    print_message("%u keys in %.1f ms, %.2f us each; %u puts meanwhile, the longest %.1f ms\n", OBJECTS,
                  (double)took / 1e6, (double)took / 1e3 / OBJECTS, o.puts, (double)o.worst_ns / 1e6);
    assert_true(o.puts > 0 && daemon_number(b, "slots.objects") <= 64);
    berth_close(o.b);
    berth_close(b);
    daemon_end(&d);
}

struct asked {
    struct berth *b;
    struct berth_purged did;
    int rc;
};

static void *purge_all(void *arg)
{
    struct asked *a = arg;
    struct berth_purge what = {.kind = BERTH_PURGE_LINEAGE, .lineage = 9};
    a->rc = berth_purge(a->b, &what, berth_deadline(SECONDS(60)), &a->did);
    return NULL;
}

static bool has_begun(void *arg)
{
    return daemon_number(arg, "counters.purges") > 0;
}

static bool is_over(void *arg)
{
    return daemon_number(arg, "slots.objects") == 2 && daemon_number(arg, "purges") == 0;
}

/* Whatever it had come to, the next daemon has finished it; and it is answered either way. */
static void test_daemon_is_killed(void **unused)
{
    (void)unused;
    static struct daemon d;
    bool halfway = false;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    for (unsigned round = 0; round < 8 && !halfway; round++) {
        struct berth *b = daemon_open(&d, "looks");
        struct asked a = {.b = daemon_open(&d, "purger")};
        pthread_t thread;
        fill(b, 9);
        put_tag(b, "other", 8);
        put_tag(b, "held", 9);
        assert_int_equal(berth_hold(b, key_of("held"), "keep", 0), 0);
        assert_int_equal(pthread_create(&thread, NULL, purge_all, &a), 0);
        eventually(has_begun, b, SOON_MS);
        daemon_kill(&d);
        daemon_again(&d);
        halfway = daemon_says(&d, "purges that were under way", 200);
        pthread_join(thread, NULL);
        assert_true(a.rc == 0 || a.rc == BERTH_EUNKNOWN);
        assert_true(eventually(is_over, b, SOON_MS));
        assert_true(is_there(b, "other") && is_there(b, "held") && !is_there(b, "many/17"));
        assert_true(query_number(b, BERTH_CHECK, "differences") == 0);
        berth_close(a.b);
        berth_close(b);
    }
    print_message("killed in the middle: %s\n", halfway ? "yes" : "no, it was always over by then");
    daemon_end(&d);
}

static bool copy_is_gone(void *arg)
{
    return !is_there(berthds.b[1], arg);
}

/* A purge at one node takes the copies that its homes have with it, and no pull brings the keys back. */
static void test_copies(void **unused)
{
    (void)unused;
    char key[24];
    struct berth_purged did;
    struct berth_view v;
    berthds_start(2, 2, "1h", "60s"); /* both are homes of all keys */
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "copied/%u", i);
        assert_int_equal(put_tag(berthds.b[0], key, 9), 0);
    }
    berthds_quiet();
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "copied/%u", i);
        assert_int_equal(berth_get(berthds.b[1], key_of(key), &v, BERTH_PEERS, berth_deadline(SECONDS(10))), 0);
        berth_release(berthds.b[1], &v, 1);
    }
    assert_int_equal(put_tag(berthds.b[1], "own", 9), 0);
    struct berth_purge what = {.kind = BERTH_PURGE_LINEAGE, .lineage = 9};
    assert_int_equal(berth_purge(berthds.b[0], &what, berth_deadline(SECONDS(60)), &did), 0);
    assert_true(did.removed == 40 && did.untold == 0);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "copied/%u", i);
        assert_true(eventually(copy_is_gone, key, BERTHDS_SOON_MS));
        int rc = berth_get(berthds.b[i % 2], key_of(key), &v, BERTH_PEERS, berth_deadline(SECONDS(10)));
        assert_int_equal(rc, -ENOENT);
    }
    assert_true(is_there(berthds.b[1], "own")); /* its node was not asked to purge */
    berthds_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),    cmocka_unit_test(test_views_and_drafts),
        cmocka_unit_test(test_others_go_on), cmocka_unit_test(test_daemon_is_killed),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
