/* Rows of "what breaks in the field", each its own test: 2 replace under readers, 3 a late seal, 6 restart, 7 key
 * before payload and holes in a prefix, 9 prefix and pin in one, "contains" before seal, 10 lineage. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 65536u

static struct daemon d;
static char ini[96];

static int set_up(void **state)
{
    (void)state;
    snprintf(ini, sizeof ini, "/dev/shm/berth-field-%d.ini", (int)getpid());
    FILE *f = fopen(ini, "w");
    fprintf(f, "[namespace live]\nreplaceable = yes\n");
    fclose(f);
    daemon_start(&d, (const char *[]){"--pool", "64MiB", "--config", ini, NULL});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_end(&d);
    unlink(ini);
    return 0;
}

static void put_version(struct berth *b, uint32_t ns, const char *key, int version)
{
    char *data = malloc(SIZE), text[32];
    snprintf(text, sizeof text, "version-%d", version);
    payload_fill(data, SIZE, text);
    memcpy(data, &version, sizeof version);
    assert_int_equal(
        berth_put(b, (struct berth_key){.data = key, .size = (uint32_t)strlen(key), .ns = ns}, data, SIZE, NULL), 0);
    free(data);
}

static bool is_version(const void *data, int *version)
{
    char text[32], *copy = malloc(SIZE);
    memcpy(version, data, sizeof *version);
    snprintf(text, sizeof text, "version-%d", *version);
    payload_fill(copy, SIZE, text);
    bool same = memcmp((const char *)data + 4, copy + 4, SIZE - 4) == 0;
    free(copy);
    return same;
}

struct reading {
    struct berth *b;
    uint32_t ns;
    _Atomic bool stop;
    _Atomic long reads, torn, back;
};

static void *read_on(void *arg)
{
    struct reading *r = arg;
    int last = 0, version;
    while (!r->stop) {
        struct berth_view v;
        if (berth_get(r->b, (struct berth_key){.data = "hot", .size = 3, .ns = r->ns}, &v, 0, BERTH_FOREVER) == 0) {
            r->torn += !is_version(v.data, &version);
            r->back += version < last;
            last = version;
            r->reads++;
            berth_release(r->b, &v, 1);
        }
    }
    return NULL;
}

static void test_row_2_replace_under_readers(void **state)
{
    (void)state;
    struct berth *b = daemon_open(&d, "writer");
    struct reading r = {.b = daemon_open(&d, "reader")};
    assert_int_equal(berth_namespace(b, "live", &r.ns), 0);
    put_version(b, r.ns, "hot", 1);
    struct berth_view old;
    int version;
    struct berth_key hot = {.data = "hot", .size = 3, .ns = r.ns};
    assert_int_equal(berth_get(b, hot, &old, 0, BERTH_FOREVER), 0);
    pthread_t t;
    pthread_create(&t, NULL, read_on, &r);
    for (int i = 2; i < 2000; i++) {
        put_version(b, r.ns, "hot", i);
    }
    r.stop = true;
    pthread_join(t, NULL);
    assert_true(r.reads > 0);
    assert_int_equal(r.torn, 0);
    assert_int_equal(r.back, 0);
    assert_true(is_version(old.data, &version) && version == 1); /* the view from before is what it was */
    berth_release(b, &old, 1);
    /* A replace that fails keeps the old version: here for lack of room. */
    assert_int_equal(berth_put(b, hot, NULL, 0, NULL), 0);
    assert_int_equal(berth_put(b, key_of("plain"), "one", 3, NULL), 0);
    assert_int_equal(berth_put(b, key_of("plain"), "two", 3, NULL), BERTH_KEPT);
    char got[3];
    assert_int_equal(berth_get_into(b, key_of("plain"), got, 3, 0, BERTH_FOREVER), 3);
    assert_memory_equal(got, "one", 3);
    berth_close(r.b);
    berth_close(b);
}

static void test_row_3_late_seal(void **state)
{
    (void)state;
    struct berth *b = daemon_open(&d, "late");
    struct berth_draft first, copy, second;
    assert_int_equal(berth_create(b, key_of("late"), 100, NULL, &first), 0);
    copy = first;
    assert_int_equal(berth_abort(b, &first, 1), 0);
    assert_int_equal(berth_create(b, key_of("late"), 100, NULL, &second), 0);
    assert_int_equal(berth_seal(b, &copy, 1), BERTH_ESTALE); /* it names the slot's former life */
    uint8_t there;
    struct berth_key k = key_of("late");
    assert_int_equal(berth_exists(b, &k, 1, &there, 0), 0);
    memset(second.data, 'n', 100);
    assert_int_equal(berth_seal(b, &second, 1), 0);
    assert_int_equal(berth_exists(b, &k, 1, &there, 0), 1);
    berth_close(b);
}

static void test_row_6_restart_keeps_everything(void **state)
{
    (void)state;
    struct berth *b = daemon_open(&d, "restart");
    char key[16], data[5000];
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "r%d", i);
        payload_fill(data, sizeof data, key);
        assert_int_equal(berth_put(b, key_of(key), data, sizeof data, NULL), 0);
    }
    for (int round = 0; round < 3; round++) {
        if (round % 2) {
            assert_int_equal(daemon_stop(&d), 0);
        } else {
            daemon_kill(&d);
        }
        daemon_again(&d);
        for (int i = 0; i < 200; i++) {
            struct berth_view v;
            snprintf(key, sizeof key, "r%d", i);
            assert_int_equal(berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
            assert_true(payload_is(v.data, v.size, key));
            berth_release(b, &v, 1);
        }
        snprintf(key, sizeof key, "round-%d", round);
        assert_int_equal(berth_put(b, key_of(key), key, strlen(key), NULL), 0);
        assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    }
    berth_close(b);
}

static int dies_half_way(void *arg)
{
    (void)arg;
    struct berth *b = NULL;
    struct berth_draft draft;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(berth_create(b, key_of("half"), SIZE, NULL, &draft) == 0);
    memset(draft.data, 'g', SIZE / 2);
    child_tell('c');
    child_hear();
    return 0;
}

static void test_row_7_no_key_before_its_payload(void **state)
{
    (void)state;
    struct berth *b = daemon_open(&d, "seven");
    struct berth_key half = key_of("half");
    struct berth_view v;
    uint8_t there;
    struct child c;
    child_start(&c, dies_half_way, NULL);
    assert_int_equal(parent_hear(&c, 10000), 'c');
    assert_int_equal(berth_exists(b, &half, 1, &there, 0), 0);
    child_kill(&c);
    assert_int_equal(berth_exists(b, &half, 1, &there, 0), 0);
    assert_int_equal(berth_get(b, half, &v, 0, BERTH_FOREVER), -ENOENT);
    /* Presence is not monotone: a hole in the middle ends the run there. */
    char key[8][16];
    struct berth_key keys[8];
    struct berth_view run[8];
    for (int i = 0; i < 8; i++) {
        snprintf(key[i], sizeof key[i], "hole-%d", i);
        keys[i] = key_of(key[i]);
        assert_int_equal(berth_put(b, keys[i], key[i], strlen(key[i]), NULL), 0);
    }
    assert_int_equal(berth_prefix(b, keys, 8, run, 0, BERTH_FOREVER), 8);
    berth_release(b, run, 8);
    assert_int_equal(berth_remove(b, keys[3], NULL), 0);
    assert_int_equal(berth_prefix(b, keys, 8, run, 0, BERTH_FOREVER), 3);
    berth_release(b, run, 3);
    berth_close(b);
}

static void test_row_9_prefix_pins_what_it_finds(void **state)
{
    (void)state;
    struct berth *b = daemon_open(&d, "nine"), *other = daemon_open(&d, "evictor");
    char key[16][16], *data = malloc(SIZE);
    struct berth_key keys[16];
    struct berth_view v[16];
    struct berth_draft draft;
    assert_int_equal(berth_create(b, key_of("unsealed"), 10, NULL, &draft), 0);
    struct berth_key unsealed = key_of("unsealed");
    uint8_t there;
    assert_int_equal(berth_exists(b, &unsealed, 1, &there, 0), 0);
    assert_int_equal(berth_abort(b, &draft, 1), 0);
    for (int i = 0; i < 16; i++) {
        snprintf(key[i], sizeof key[i], "nine-%d", i);
        keys[i] = key_of(key[i]);
        payload_fill(data, SIZE, key[i]);
        assert_int_equal(berth_put(b, keys[i], data, SIZE, NULL), 0);
    }
    assert_int_equal(berth_prefix(b, keys, 16, v, 0, BERTH_FOREVER), 16);
    for (int i = 0; i < 2000; i++) { /* what was found can't be evicted before it is read */
        char fill[16];
        snprintf(fill, sizeof fill, "evict-%d", i);
        assert_int_equal(berth_put(other, key_of(fill), data, SIZE, NULL), 0);
    }
    for (int i = 0; i < 16; i++) {
        assert_true(payload_is(v[i].data, SIZE, key[i]));
    }
    berth_release(b, v, 16);
    free(data);
    berth_close(other);
    berth_close(b);
}

static void test_row_10_lineage(void **state)
{
    (void)state;
    struct berth *one = NULL, *two = NULL;
    struct berth_open_opts o = {.size = sizeof o, .name = "ten", .lineage = 0x1111};
    assert_int_equal(berth_open(&one, d.node, &o), 0);
    o.lineage = 0x2222;
    assert_int_equal(berth_open(&two, d.node, &o), 0);
    assert_int_equal(berth_put(one, key_of("weights-a"), "a", 1, NULL), 0);
    struct berth_view v;
    struct berth_key k = key_of("weights-a");
    assert_int_equal(berth_get(one, k, &v, 0, BERTH_FOREVER), 0);
    assert_int_equal(v.lineage, 0x1111);
    berth_release(one, &v, 1);
    assert_int_equal(berth_get(two, k, &v, 0, BERTH_FOREVER), BERTH_ELINEAGE);
    assert_int_equal(berth_prefix(two, &k, 1, &v, 0, BERTH_FOREVER), 0);
    struct berth *any = daemon_open(&d, "any"); /* no tag: no comparison */
    assert_int_equal(berth_get(any, k, &v, 0, BERTH_FOREVER), 0);
    berth_release(any, &v, 1);
    berth_close(any);
    berth_close(two);
    berth_close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_row_2_replace_under_readers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_row_3_late_seal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_row_6_restart_keeps_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_row_7_no_key_before_its_payload, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_row_9_prefix_pins_what_it_finds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_row_10_lineage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
