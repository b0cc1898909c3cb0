/* Groups that are sealed as they were created, and refusals that say what is the matter: against an embedded node. */
#include "tests/support/embedded.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* As the blocks of a prompt are put: create all of them, fill what is new, seal all of them. */
static void group_is_sealed_as_it_was_created(void **state)
{
    (void)state;
    enum { N = 20 };
    struct berth_draft d[N];
    char name[N][8];
    put_new("g0", "old", 3);
    put_new("g8", "old", 3);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "g%u", i);
        int rc = berth_create(embedded, key_of(name[i]), 8, NULL, &d[i]);
        assert_int_equal(rc, i % 8 == 0 && i < 16 ? BERTH_KEPT : 0);
        if (d[i].data) {
            memcpy(d[i].data, name[i], 8);
        }
    }
    put_new("g9", "old", 3);  /* the first bit of the node's second byte, were all of them asked for */
    put_new("g19", "old", 3); /* and the last of them */
    assert_int_equal(berth_seal(embedded, d, N), 4);
    for (unsigned i = 0; i < N; i++) {
        bool kept = i == 0 || i == 8 || i == 9 || i == 19;
        assert_int_equal(d[i].status, kept ? BERTH_KEPT : 0);
        assert_null(d[i].data);
        expect(name[i], kept ? "old" : name[i], kept ? 3 : 8);
    }
    d[0] = d[1] = (struct berth_draft){.status = BERTH_KEPT};
    assert_int_equal(berth_seal(embedded, d, 2), 2); /* nothing is left to ask for */
    assert_int_equal(berth_create(embedded, key_of("new"), 1, NULL, &d[0]), 0);
    d[1].status = 0;
    assert_int_equal(berth_seal(embedded, d, 2), -EINVAL); /* no draft, and none that was kept */
    assert_non_null(d[0].data);
    assert_int_equal(berth_seal(embedded, d, 1), 0);
}

static void stray_namespace_is_named(void **state)
{
    (void)state;
    struct berth_error_info e;
    struct berth_draft d;
    struct berth_key stray = {.data = "a", .size = 1, .ns = 99};
    assert_int_equal(berth_put(embedded, stray, "x", 1, NULL), -EINVAL);
    berth_error(embedded, &e);
    assert_non_null(strstr(e.sentence, "berth_namespace"));
    assert_int_equal(berth_create(embedded, stray, 1, NULL, &d), -EINVAL);
    berth_error(embedded, &e);
    assert_non_null(strstr(e.sentence, "berth_namespace"));
}

/* What nobody reads but holds keep is named. */
static void held_pool_says_so(void **state)
{
    (void)state;
    static uint8_t data[MIB];
    struct berth_error_info e;
    unsigned n;
    int rc = 0;
    char name[16];
    for (n = 0; n < 80; n++) {
        snprintf(name, sizeof name, "h%u", n);
        rc = berth_put(embedded, key_of(name), data, sizeof data, NULL);
        if (rc) {
            break;
        }
        assert_int_equal(berth_hold(embedded, key_of(name), "mine", 0), 0);
    }
    assert_int_equal(rc, BERTH_EFULL);
    berth_error(embedded, &e);
    assert_non_null(strstr(e.sentence, "no reader keeps it full: drop holds"));
    while (n-- > 0) {
        snprintf(name, sizeof name, "h%u", n);
        assert_int_equal(berth_drop(embedded, key_of(name), "mine"), 0);
    }
}

/* A URL has no sections: its `replaceable` names namespaces. What is no setting is told where all of them are. */
static void url_makes_namespaces_replaceable(void **state)
{
    (void)state;
    struct berth *b;
    struct berth_error_info e;
    uint32_t ns[2];
    assert_int_equal(berth_open(&b, EMBEDDED_NODE "&replaceable=chat,live", NULL), 0);
    assert_int_equal(berth_namespace(b, "live", &ns[0]), 0);
    assert_int_equal(berth_namespace(b, "other", &ns[1]), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct berth_key key = {.data = "k", .size = 1, .ns = ns[i]};
        assert_int_equal(berth_put(b, key, "old", 3, NULL), 0);
        assert_int_equal(berth_put(b, key, "new", 3, NULL), i == 0 ? 0 : BERTH_KEPT);
    }
    berth_close(b);
    assert_int_equal(berth_open(&b, EMBEDDED_NODE "&replacable=chat", NULL), -EINVAL);
    assert_int_equal(berth_error(NULL, &e), -EINVAL);
    assert_string_equal(e.sentence, "unknown setting 'replacable': `berthd --help` and `man berthd` list them all");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, embedded_open, embedded_close)
    const struct CMUnitTest tests[] = {
        CASE(group_is_sealed_as_it_was_created),
        CASE(stray_namespace_is_named),
        CASE(held_pool_says_so),
        cmocka_unit_test(url_makes_namespaces_replaceable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
