/* Every function of berth.h against an embedded node, its errors among them. */
#include "tests/support/embedded.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ThreadSanitizer follows no threads of a forked child: there the child opens no node of its own. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_OPENS 0
#else
#define CHILD_OPENS 1
#endif

static uint8_t *pattern(size_t n, unsigned salt)
{
    uint8_t *p = malloc(n ? n : 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(i * 31 + i / 4096 + salt);
    }
    return p;
}

/* ---- put, get ---- */

static void sizes_from_nothing_to_large(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, 100000, 2 * MIB, 3 * MIB + 5};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[32];
        uint8_t *data = pattern(sizes[i], i);
        snprintf(name, sizeof name, "object-%zu", sizes[i]);
        put_new(name, sizes[i] ? data : NULL, sizes[i]);
        expect(name, data, sizes[i]);
        free(data);
    }
}

static void keys_of_every_length(void **state)
{
    (void)state;
    uint8_t bytes[BERTH_KEY_MAX];
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    for (uint32_t n = 1; n <= BERTH_KEY_MAX; n += n < 80 ? 1 : 37) {
        struct berth_key key = {.data = bytes, .size = n};
        assert_int_equal(berth_put(embedded, key, &n, sizeof n, NULL), 0);
    }
    for (uint32_t n = 1; n <= BERTH_KEY_MAX; n += n < 80 ? 1 : 37) {
        struct berth_key key = {.data = bytes, .size = n};
        uint32_t got = 0;
        assert_int_equal(berth_get_into(embedded, key, &got, sizeof got, BERTH_VERIFY, 0), sizeof got);
        assert_int_equal(got, n);
        uint8_t present = 0;
        assert_int_equal(berth_exists(embedded, &key, 1, &present, 0), 1);
    }
}

static void second_put_keeps_the_first(void **state)
{
    (void)state;
    put_new("a", "first", 5);
    assert_int_equal(berth_put(embedded, key_of("a"), "second", 6, NULL), BERTH_KEPT);
    expect("a", "first", 5);
    struct berth_draft d;
    assert_int_equal(berth_create(embedded, key_of("a"), 6, NULL, &d), BERTH_KEPT);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    struct berth_view v;
    char big[BERTH_KEY_MAX + 1] = {1};
    struct berth_key key = key_of("a"), none = {.data = "a", .size = 0}, null = {.size = 3},
                     large = {.data = big, .size = sizeof big};
    assert_int_equal(berth_get(embedded, none, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_get(embedded, null, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_get(embedded, large, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_get(embedded, key, NULL, 0, 0), -EINVAL);
    assert_int_equal(berth_get(NULL, key, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_get(embedded, key, &v, 1u << 9, 0), -EINVAL);
    assert_int_equal(berth_get(embedded, key, &v, BERTH_PEERS, 0), -ETIMEDOUT);
    assert_int_equal(berth_get(embedded, key, &v, BERTH_FRESH, 0), -EINVAL);
    assert_int_equal(berth_prefix(embedded, &key, 1, &v, BERTH_FRESH, 0), -EINVAL);
    assert_int_equal(berth_prefix(embedded, &none, 1, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_get_many(embedded, &key, 65537, &v, 0, 0), -EINVAL);
    assert_int_equal(berth_prefix(embedded, NULL, 0, NULL, 0, 0), 0);
    assert_int_equal(berth_put(embedded, none, "x", 1, NULL), -EINVAL);
    assert_int_equal(berth_put(embedded, key, NULL, 1, NULL), -EINVAL);
    struct berth_put_opts o = {.size = sizeof o - 1};
    assert_int_equal(berth_put(embedded, key, "x", 1, &o), -EINVAL);
    o = (struct berth_put_opts){.size = sizeof o, .flags = BERTH_JOIN}; /* a create's */
    assert_int_equal(berth_put(embedded, key, "x", 1, &o), -EINVAL);
    o = (struct berth_put_opts){.size = sizeof o, .segment = 4097};
    assert_int_equal(berth_put(embedded, key, "x", 1, &o), -EINVAL);
    assert_int_equal(berth_put(embedded, key, "x", (size_t)1 << 40, NULL), -E2BIG);
    struct berth_error_info e;
    berth_error(embedded, &e);
    assert_true(e.figure[0] > 0 && e.figure[0] <= 64 * MIB);
    assert_int_equal(berth_hold(embedded, key, "", 0), -EINVAL);
    assert_int_equal(berth_hold(embedded, key, "x", -1), -EINVAL);
    assert_int_equal(berth_hold(embedded, key, "0123456789012345678901234567890123456789012345678901234567890123", 0),
                     -EINVAL);
    assert_int_equal(berth_seal(embedded, NULL, 0), -EINVAL);
    struct berth_draft d = {0};
    assert_int_equal(berth_seal(embedded, &d, 1), -EINVAL);
    uint32_t ns;
    assert_int_equal(berth_namespace(embedded, "a b", &ns), -EINVAL);
    expect_absent("a");
    berth_release(NULL, &v, 1);
    berth_close(NULL);
}

static void names_that_do_not_open(void **state)
{
    (void)state;
    struct berth *other;
    assert_int_equal(berth_open(&other, "unix:/nonexistent/berth.sock", NULL), BERTH_ENODE);
    assert_int_equal(berth_open(&other, "tcp://127.0.0.1:1", NULL), BERTH_ENODE);
    assert_int_equal(berth_open(&other, "verbs://host", NULL), -EOPNOTSUPP);
    assert_int_equal(berth_open(&other, "unix:", NULL), -EINVAL);
    assert_int_equal(berth_open(&other, "embedded:?no-such-setting=1", NULL), -EINVAL);
    assert_int_equal(berth_open(NULL, EMBEDDED_NODE, NULL), -EINVAL);
    struct berth_open_opts o = {.size = 3};
    assert_int_equal(berth_open(&other, EMBEDDED_NODE, &o), -EINVAL);
    o = (struct berth_open_opts){.size = sizeof o, .flags = 2};
    assert_int_equal(berth_open(&other, EMBEDDED_NODE, &o), -EINVAL);
    struct berth_error_info e;
    assert_int_equal(berth_error(NULL, &e), -EINVAL);
    assert_true(e.sentence[0]);
}

static void into_the_callers_buffer(void **state)
{
    (void)state;
    char buffer[8] = "........";
    put_new("a", "12345", 5);
    assert_int_equal(berth_get_into(embedded, key_of("a"), buffer, 4, 0, 0), -ENOSPC);
    struct berth_error_info e;
    berth_error(embedded, &e);
    assert_int_equal(e.figure[0], 5);
    assert_memory_equal(buffer, "........", 8);
    assert_int_equal(berth_get_into(embedded, key_of("a"), buffer, 8, 0, 0), 5);
    assert_memory_equal(buffer, "12345...", 8);
    assert_int_equal(berth_get_into(embedded, key_of("b"), buffer, 8, 0, 0), -ENOENT);
    put_new("empty", NULL, 0);
    assert_int_equal(berth_get_into(embedded, key_of("empty"), NULL, 0, 0, 0), 0);
}

static void views_outlive_their_key(void **state)
{
    (void)state;
    struct berth_view v;
    uint8_t *data = pattern(70000, 1);
    put_new("a", data, 70000);
    assert_int_equal(berth_get(embedded, key_of("a"), &v, 0, 0), 0);
    assert_int_equal(berth_remove(embedded, key_of("a"), NULL), 0);
    expect_absent("a");
    for (unsigned i = 0; i < 200; i++) { /* more than the pool holds */
        char name[16];
        uint8_t *other = pattern(400000, i + 2);
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(berth_put(embedded, key_of(name), other, 400000, NULL), 0);
        free(other);
    }
    assert_memory_equal(v.data, data, 70000);
    berth_release(embedded, &v, 1);
    free(data);
}

/* ---- drafts ---- */

static void draft_is_unseen_until_sealed(void **state)
{
    (void)state;
    struct berth_draft d;
    uint8_t *data = pattern(100000, 3);
    assert_int_equal(berth_create(embedded, key_of("d"), 100000, NULL, &d), 0);
    memcpy(d.data, data, 100000);
    expect_absent("d");
    assert_int_equal(berth_seal(embedded, &d, 1), 0);
    assert_null(d.data);
    expect("d", data, 100000);
    free(data);
}

static void callers_checksum_is_taken(void **state)
{
    (void)state;
    struct berth_draft d;
    struct berth_view v;
    assert_int_equal(berth_create(embedded, key_of("d"), 10, NULL, &d), 0);
    d.checksum = berth_copy(d.data, "0123456789", 10);
    d.flags = BERTH_HAS_CHECKSUM;
    assert_int_equal(berth_seal(embedded, &d, 1), 0);
    expect("d", "0123456789", 10);
    assert_int_equal(berth_create(embedded, key_of("bad"), 10, NULL, &d), 0);
    berth_copy(d.data, "0123456789", 10);
    d.checksum = 1;
    d.flags = BERTH_HAS_CHECKSUM;
    assert_int_equal(berth_seal(embedded, &d, 1), 0);
    assert_int_equal(berth_get(embedded, key_of("bad"), &v, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(berth_get(embedded, key_of("bad"), &v, 0, 0), 0);
    berth_release(embedded, &v, 1);
}

static void aborted_draft_leaves_nothing(void **state)
{
    (void)state;
    struct berth_draft d[2];
    assert_int_equal(berth_create(embedded, key_of("x"), 10, NULL, &d[0]), 0);
    d[1].data = NULL; /* passed over */
    assert_int_equal(berth_abort(embedded, d, 2), 0);
    assert_null(d[0].data);
    expect_absent("x");
    put_new("x", "new", 3);
    expect("x", "new", 3);
}

static void group_is_sealed_together(void **state)
{
    (void)state;
    enum { N = 300 };
    struct berth_draft d[N];
    char name[N][8];
    put_new("g7", "old", 3);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "g%u", i);
        if (i == 7) {
            snprintf(name[i], sizeof name[i], "h7");
        }
        assert_int_equal(berth_create(embedded, key_of(name[i]), 8, NULL, &d[i]), 0);
        memcpy(d[i].data, name[i], 8);
    }
    put_new("g9", "old", 3); /* came while the group was being filled */
    assert_int_equal(berth_seal(embedded, d, N), 1);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(d[i].status, i == 9 ? BERTH_KEPT : 0);
        assert_null(d[i].data);
        expect(name[i], i == 9 ? "old" : name[i], i == 9 ? 3 : 8);
    }
}

static void group_has_no_key_twice(void **state)
{
    (void)state;
    struct berth_draft d[2];
    assert_int_equal(berth_create(embedded, key_of("x"), 1, NULL, &d[0]), 0);
    assert_int_equal(berth_create(embedded, key_of("x"), 1, NULL, &d[1]), 0);
    assert_int_equal(berth_seal(embedded, d, 2), -EINVAL);
    assert_null(d[0].data);
    expect_absent("x");
    put_new("x", "1", 1); /* nothing of the group is in the way */
}

static void stale_draft_is_refused(void **state)
{
    (void)state;
    struct berth_draft d, copy;
    assert_int_equal(berth_create(embedded, key_of("x"), 1, NULL, &d), 0);
    copy = d;
    assert_int_equal(berth_seal(embedded, &d, 1), 0);
    assert_int_equal(berth_seal(embedded, &copy, 1), BERTH_ESTALE);
    expect_error(BERTH_ESTALE);
}

static void lineages_do_not_mix(void **state)
{
    (void)state;
    struct berth_put_opts o = {.size = sizeof o, .lineage = 77, .priority = 3, .ttl_s = 60};
    struct berth_stat st;
    assert_int_equal(berth_put(embedded, key_of("l"), "x", 1, &o), 0);
    assert_int_equal(berth_stat(embedded, key_of("l"), &st), 0);
    assert_int_equal(st.lineage, 77);
    assert_int_equal(st.priority, 3);
    assert_int_equal(st.ttl_s, 60);
    expect("l", "x", 1); /* this handle has no tag: no comparison */
}

/* ---- the index ---- */

static void stat_says_what_is_known(void **state)
{
    (void)state;
    struct berth_stat st;
    struct berth_view v;
    put_new("s", "12345", 5);
    assert_int_equal(berth_hold(embedded, key_of("s"), "me", 0), 0);
    assert_int_equal(berth_hold(embedded, key_of("s"), "you", INT64_C(60000000000)), 0);
    assert_int_equal(berth_stat(embedded, key_of("s"), &st), 0);
    assert_int_equal(berth_get(embedded, key_of("s"), &v, 0, 0), 0);
    assert_int_equal(st.size, 5);
    assert_int_equal(st.slot_bytes, 4096);
    assert_int_equal(st.key_size, 1);
    assert_int_equal(st.checksum, v.checksum);
    assert_int_equal(st.version.counter, v.version.counter);
    assert_int_equal(st.version.region, v.version.region);
    assert_int_equal(st.slot, v.slot);
    assert_int_equal(st.n_holds, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool me = strcmp(st.holds[i].label, "me") == 0;
        assert_true(me || strcmp(st.holds[i].label, "you") == 0);
        assert_true(me ? st.holds[i].ttl_ns == 0 : st.holds[i].ttl_ns > 0);
    }
    berth_release(embedded, &v, 1);
    assert_int_equal(berth_stat(embedded, key_of("t"), &st), -ENOENT);
}

static void held_keys_stay(void **state)
{
    (void)state;
    put_new("h", "1", 1);
    assert_int_equal(berth_hold(embedded, key_of("h"), "me", 0), 0);
    assert_int_equal(berth_remove(embedded, key_of("h"), NULL), BERTH_EHELD);
    assert_int_equal(berth_drop(embedded, key_of("h"), "you"), -ENOENT);
    assert_int_equal(berth_drop(embedded, key_of("h"), "me"), 0);
    assert_int_equal(berth_remove(embedded, key_of("h"), NULL), 0);
    assert_int_equal(berth_hold(embedded, key_of("h"), "me", 0), -ENOENT);
}

static void remove_can_name_a_version(void **state)
{
    (void)state;
    struct berth_stat st;
    put_new("r", "1", 1);
    assert_int_equal(berth_stat(embedded, key_of("r"), &st), 0);
    struct berth_version other = {.counter = st.version.counter + 1, .region = st.version.region};
    assert_int_equal(berth_remove(embedded, key_of("r"), &other), BERTH_EVERSION);
    assert_int_equal(berth_remove(embedded, key_of("r"), &st.version), 0);
    assert_int_equal(berth_remove(embedded, key_of("r"), NULL), -ENOENT);
}

static void namespaces_are_apart(void **state)
{
    (void)state;
    uint32_t one, two, again, none = 9;
    assert_int_equal(berth_namespace(embedded, "one", &one), 0);
    assert_int_equal(berth_namespace(embedded, "two", &two), 0);
    assert_int_equal(berth_namespace(embedded, "one", &again), 0);
    assert_int_equal(berth_namespace(embedded, "", &none), 0);
    assert_int_equal(none, 0);
    assert_int_equal(one, again);
    assert_true(one != two && one != 0 && two != 0);
    struct berth_key k1 = key_of("k"), k2 = key_of("k");
    k1.ns = one;
    k2.ns = two;
    assert_int_equal(berth_put(embedded, k1, "1", 1, NULL), 0);
    struct berth_view v;
    assert_int_equal(berth_get(embedded, k2, &v, 0, 0), -ENOENT);
    assert_int_equal(berth_put(embedded, k2, "2", 1, NULL), 0);
    assert_int_equal(berth_put(embedded, k2, "3", 1, NULL), BERTH_KEPT);
    assert_int_equal(berth_get(embedded, k1, &v, 0, 0), 0);
    assert_int_equal(*(const char *)v.data, '1');
    berth_release(embedded, &v, 1);
}

static void list_walks_in_order(void **state)
{
    (void)state;
    enum { N = 1500 };
    char name[32];
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "list/%06u", i * 7919 % N);
        put_new(name, &i, sizeof i);
    }
    put_new("lisp", "x", 1);
    put_new("lisu", "x", 1);
    struct berth_cursor cursor = {0};
    struct berth_entry *e = calloc(700, sizeof *e);
    assert_non_null(e);
    unsigned seen = 0;
    long n;
    while ((n = berth_list(embedded, 0, "list", 4, &cursor, e, 700)) > 0) {
        for (long i = 0; i < n; i++) {
            snprintf(name, sizeof name, "list/%06u", seen++);
            assert_int_equal(e[i].key_size, strlen(name));
            assert_memory_equal(e[i].key, name, e[i].key_size);
            assert_int_equal(e[i].size, sizeof(unsigned));
        }
    }
    assert_int_equal(n, 0);
    assert_int_equal(seen, N);
    assert_int_equal(cursor.done, 1);
    cursor = (struct berth_cursor){0};
    assert_int_equal(berth_list(embedded, 0, NULL, 0, &cursor, e, 1), 1);
    assert_memory_equal(e[0].key, "lisp", 4);
    free(e);
}

static void reports(void **state)
{
    (void)state;
    char *text;
    put_new("q", "x", 1);
    assert_int_equal(berth_query(embedded, BERTH_STATUS, NULL, &text), 0);
    assert_int_equal(text[0], '{');
    free(text);
    struct berth_key key = key_of("q");
    struct berth_view v;
    assert_int_equal(berth_get(embedded, key, &v, 0, 0), 0);
    assert_int_equal(berth_query(embedded, BERTH_PINS, &key, &text), 0);
    assert_non_null(strstr(text, "test"));
    free(text);
    berth_release(embedded, &v, 1);
    assert_int_equal(berth_query(embedded, BERTH_METRICS, NULL, &text), 0);
    assert_non_null(strstr(text, "# TYPE"));
    free(text);
    assert_int_equal(berth_query(embedded, (enum berth_question)9, NULL, &text), -EINVAL);
    assert_int_equal(berth_revoke(embedded, key), 0); /* nobody else pins it */
}

static void full_pool_has_figures(void **state)
{
    (void)state;
    static uint8_t data[MIB];
    struct berth_view v[80];
    unsigned n = 0;
    int rc = 0;
    for (; n < 80; n++) {
        char name[16];
        snprintf(name, sizeof name, "f%u", n);
        rc = berth_put(embedded, key_of(name), data, sizeof data, NULL);
        if (rc) {
            break;
        }
        assert_int_equal(berth_get(embedded, key_of(name), &v[n], 0, 0), 0);
    }
    assert_int_equal(rc, BERTH_EFULL);
    assert_true(n >= 50);
    struct berth_error_info e;
    berth_error(embedded, &e);
    assert_int_equal(e.figure[0], sizeof data);
    assert_true(e.figure[3] > 0);
    assert_non_null(strstr(e.sentence, " in use by readers"));
    berth_release(embedded, v, n);
    put_new("f-after", data, sizeof data);
}

/* ---- the pin table grows ---- */

static void more_pins_than_one_segment(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct berth_view *v = calloc(N, sizeof *v);
    assert_non_null(v);
    put_new("p", "x", 1);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(berth_get(embedded, key_of("p"), &v[i], 0, BERTH_NOW), 0);
        for (unsigned k = 1; k < 4 && k <= i; k++) {
            assert_true(v[i].entry != v[i - k].entry);
        }
    }
    assert_int_equal(berth_remove(embedded, key_of("p"), NULL), 0);
    assert_int_equal(*(const char *)v[N - 1].data, 'x');
    berth_release(embedded, v, N);
    free(v);
}

/* ---- fork ---- */

static int in_child(void)
{
    struct berth_view v = {.data = "x", .entry = 0};
    struct berth_key key = key_of("a");
    uint8_t present;
    struct berth_draft d;
    char *text;
    if (berth_get(embedded, key, &v, 0, 0) != BERTH_EFORKED ||
        berth_exists(embedded, &key, 1, &present, 0) != BERTH_EFORKED ||
        berth_prefix(embedded, &key, 1, &v, 0, 0) != BERTH_EFORKED ||
        berth_put(embedded, key, "x", 1, NULL) != BERTH_EFORKED ||
        berth_create(embedded, key, 1, NULL, &d) != BERTH_EFORKED ||
        berth_query(embedded, BERTH_STATUS, NULL, &text) != BERTH_EFORKED ||
        berth_remove(embedded, key, NULL) != BERTH_EFORKED) {
        return 1;
    }
    berth_release(embedded, &v, 1); /* nothing: the pin is the parent's */
    berth_close(embedded);
    if (!CHILD_OPENS) {
        return 0;
    }
    struct berth *own; /* a handle of the child's own works */
    if (berth_open(&own, EMBEDDED_NODE, NULL) || berth_put(own, key, "y", 1, NULL) || berth_get(own, key, &v, 0, 0)) {
        return 2;
    }
    berth_release(own, &v, 1);
    berth_close(own);
    return 0;
}

static void child_is_told(void **state)
{
    (void)state;
    struct berth_view v;
    put_new("a", "parent", 6);
    assert_int_equal(berth_get(embedded, key_of("a"), &v, 0, 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(in_child());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_memory_equal(v.data, "parent", 6);
    berth_release(embedded, &v, 1);
    put_new("after", "x", 1);
    expect("after", "x", 1);
}

/* ---- threads ---- */

#define THREADS 4u
#define ROUNDS 300u

static void *play(void *arg)
{
    unsigned id = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[32];
        struct berth_view v;
        snprintf(name, sizeof name, "t%u-%u", id, i);
        if (berth_put(embedded, key_of(name), name, sizeof name, NULL) != 0 ||
            berth_get(embedded, key_of(name), &v, BERTH_VERIFY, 0) != 0 || memcmp(v.data, name, sizeof name) != 0) {
            return "lost";
        }
        berth_release(embedded, &v, 1);
        snprintf(name, sizeof name, "shared-%u", i);
        int rc = berth_put(embedded, key_of(name), name, sizeof name, NULL);
        if (rc != 0 && rc != BERTH_KEPT) {
            return "shared";
        }
        if (i % 3 == 0 && (rc = berth_remove(embedded, key_of(name), NULL)) != 0 && rc != -ENOENT) {
            return "remove";
        }
    }
    return NULL;
}

static void threads_share_a_handle(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, play, (void *)(uintptr_t)i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        if (result) {
            fail_msg("thread %u: %s", i, (const char *)result);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, embedded_open, embedded_close)
    const struct CMUnitTest tests[] = {
        CASE(sizes_from_nothing_to_large),
        CASE(keys_of_every_length),
        CASE(second_put_keeps_the_first),
        CASE(arguments_are_checked),
        cmocka_unit_test(names_that_do_not_open),
        CASE(into_the_callers_buffer),
        CASE(views_outlive_their_key),
        CASE(draft_is_unseen_until_sealed),
        CASE(callers_checksum_is_taken),
        CASE(aborted_draft_leaves_nothing),
        CASE(group_is_sealed_together),
        CASE(group_has_no_key_twice),
        CASE(stale_draft_is_refused),
        CASE(lineages_do_not_mix),
        CASE(stat_says_what_is_known),
        CASE(held_keys_stay),
        CASE(remove_can_name_a_version),
        CASE(namespaces_are_apart),
        CASE(list_walks_in_order),
        CASE(reports),
        CASE(full_pool_has_figures),
        CASE(more_pins_than_one_segment),
        CASE(child_is_told),
        CASE(threads_share_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
