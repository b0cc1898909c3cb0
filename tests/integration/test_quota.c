/* test_quota.c: how much one client may pin, and have unsealed. */
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct daemon d;

static void put(struct berth *b, const char *key, size_t size)
{
    char *data = malloc(size);
    payload_fill(data, size, key);
    int e = berth_put(b, key_of(key), data, size, NULL);
    if (e < 0) {
        struct berth_error_info info;
        berth_error(b, &info);
        fail_msg("put %s: %s", key, info.sentence);
    }
    free(data);
}

static bool get_is(void *arg, int wanted)
{
    struct berth_view v;
    int e = berth_get(arg, key_of("small"), &v, 0, BERTH_FOREVER);
    if (e == 0) {
        berth_release(arg, &v, 1);
    }
    return e == wanted;
}

static bool get_is_refused(void *arg)
{
    return get_is(arg, BERTH_EQUOTA);
}

static bool get_is_allowed(void *arg)
{
    return get_is(arg, 0);
}

static void test_pin_quota(void **state)
{
    (void)state;
    struct berth_key keys[4];
    struct berth_view v[4], one;
    char name[4][8];
    daemon_start(&d, (const char *[]){"--pool", "16MiB", "--pin-quota", "1MiB", NULL});
    struct berth *b = daemon_open(&d, "greedy"), *other = daemon_open(&d, "modest");
    put(b, "small", 100);
    for (int i = 0; i < 4; i++) {
        snprintf(name[i], sizeof name[i], "large%d", i);
        put(b, name[i], 400000);
        keys[i] = key_of(name[i]);
    }
    assert_int_equal(berth_get_many(b, keys, 4, v, 0, BERTH_FOREVER), 4); /* 1.6 MB; seen within a second or so */
    assert_true(eventually(get_is_refused, b, 20000));
    assert_int_equal(berth_prefix(b, keys, 4, &one, 0, BERTH_FOREVER), BERTH_EQUOTA);
    assert_true(get_is_allowed(other));
    for (int i = 0; i < 4; i++) {
        assert_true(payload_is(v[i].data, v[i].size, name[i])); /* what it has it keeps */
    }
    berth_release(b, v, 2);
    assert_true(eventually(get_is_allowed, b, 20000));
    berth_release(b, v + 2, 2);
    berth_close(other);
    berth_close(b);
    daemon_end(&d);
}

static void test_draft_quota(void **state)
{
    (void)state;
    struct berth_draft draft[5];
    char key[16], *data = calloc(1, 2u << 20);
    daemon_start(&d, (const char *[]){"--pool", "16MiB", "--draft-quota", "1MiB", NULL});
    struct berth *b = daemon_open(&d, "greedy"), *other = daemon_open(&d, "modest"), *last = daemon_open(&d, "last");
    int n = 0, e;
    for (;; n++) {
        snprintf(key, sizeof key, "d%d", n);
        e = berth_create(b, key_of(key), 300000, NULL, &draft[n < 5 ? n : 4]);
        if (e) {
            break;
        }
        assert_true(n < 4);
    }
    assert_int_equal(e, BERTH_EQUOTA);
    assert_int_equal(n, 3);
    assert_int_equal(berth_put(b, key_of("large"), data, 2u << 20, NULL), BERTH_EQUOTA); /* beside the others */
    assert_int_equal(berth_create(other, key_of("d9"), 300000, NULL, &draft[3]), 0);
    assert_int_equal(berth_put(last, key_of("large"), data, 2u << 20, NULL), 0); /* but alone */
    assert_int_equal(berth_abort(b, draft, 1), 0);
    assert_int_equal(berth_create(b, key_of("d8"), 300000, NULL, &draft[0]), 0);
    assert_int_equal(berth_seal(b, draft, 3), 0);
    assert_int_equal(berth_create(b, key_of("d10"), 300000, NULL, &draft[0]), 0); /* sealed bytes are no drafts */
    berth_close(last);
    berth_close(other);
    berth_close(b);
    b = daemon_open(&d, "checker");
    assert_int_equal(daemon_number(b, "pool.draft_bytes"), 0);
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
    free(data);
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pin_quota),
        cmocka_unit_test(test_draft_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
