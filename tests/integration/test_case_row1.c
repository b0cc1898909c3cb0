/* Row 1 of the field's failures: a lease ends during a slow READ. A transfer that takes longer than its lease is kept
 * alive by renewal; where no renewal gets through, or the reader stood still past its lease, the caller gets an error,
 * or bytes that are some version's and whole: never wrong ones as good ones.
 */
#include "tests/support/child.h"
#include "tests/support/wired.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define SIZE (8 * MIB)
#define SECONDS(n) ((n)*INT64_C(1000000000))

static struct wired d;
static uint8_t *buffer;

static int setup(void **unused)
{
    (void)unused;
    buffer = calloc(1, SIZE);
    wired_init(&d);
    return buffer ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    wired_end(&d);
    free(buffer);
    return 0;
}

/* 8 MiB at 2.5 MB/s under a lease of a second. */
static void test_renewed(void **unused)
{
    (void)unused;
    wired_embed(&d, FAR, "&lease=1s");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "slow", SIZE);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 2500000);
    int64_t began = berth_deadline(0);
    assert_int_equal(berth_get_into(d.b[NEAR], key_of("slow"), buffer, SIZE, BERTH_PEERS, berth_deadline(SECONDS(30))),
                     SIZE);
    assert_true(berth_deadline(0) - began > SECONDS(2));
    assert_true(payload_is(buffer, SIZE, "slow"));
    assert_true(daemon_number(d.b[FAR], "counters.lease_renewals") >= 2);
    assert_int_equal(daemon_number(d.b[FAR], "counters.leases_expired"), 0);
}

static bool half_way(void *unused)
{
    (void)unused;
    return atomic_load(&d.relay.moved[RELAY_BULK][RELAY_BACK]) > SIZE / 4;
}

struct slow_get {
    pthread_t thread;
    long rc;
};

static void *get(void *arg)
{
    struct slow_get *g = arg;
    g->rc =
        berth_get_into(d.b[NEAR], key_of("slow"), buffer, SIZE, BERTH_PEERS | BERTH_VERIFY, berth_deadline(SECONDS(6)));
    return NULL;
}

/* Bytes flow, messages do not: the lease ends in the middle. The object is removed and its memory wanted by others. */
static void test_not_renewed(void **unused)
{
    (void)unused;
    struct slow_get g;
    wired_embed(&d, FAR, "&lease=1s");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "slow", SIZE);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 1500000);
    assert_int_equal(pthread_create(&g.thread, NULL, get, &g), 0);
    assert_true(eventually(half_way, NULL, 20000));
    relay_rate(&d.relay, RELAY_CONTROL, RELAY_BACK, RELAY_HOLD);
    assert_int_equal(berth_remove(d.b[FAR], key_of("slow"), NULL), 0);
    for (unsigned i = 0; i < 16; i++) {
        char key[16];
        snprintf(key, sizeof key, "other%u", i);
        uint8_t *data = malloc(4 * MIB);
        assert_non_null(data);
        payload_fill(data, 4 * MIB, key);
        assert_int_equal(berth_put(d.b[FAR], key_of(key), data, 4 * MIB, NULL), 0);
        free(data);
    }
    pthread_join(g.thread, NULL);
    assert_true(g.rc < 0);
    relay_all(&d.relay, RELAY_FREE);
    assert_true(wired_is(&d, NEAR, "up", 20000));
    long rc = berth_get_into(d.b[NEAR], key_of("slow"), buffer, SIZE, BERTH_PEERS, berth_deadline(SECONDS(10)));
    assert_true(rc < 0);
    rc = berth_get_into(d.b[NEAR], key_of("other15"), buffer, SIZE, BERTH_PEERS, berth_deadline(SECONDS(10)));
    assert_int_equal(rc, 4 * MIB);
    assert_true(payload_is(buffer, 4 * MIB, "other15"));
}

/* The reader, a process of its own. It says 'v' for each get that gave what one version says, 'e' for an error. */
static int reads(void *unused)
{
    (void)unused;
    wired_embed(&d, NEAR, "");
    child_tell('u');
    for (char what; (what = child_hear()) == 'g';) {
        long rc = berth_get_into(d.b[NEAR], key_of("k"), buffer, SIZE, BERTH_PEERS, berth_deadline(SECONDS(20)));
        bool whole = rc == SIZE && (payload_is(buffer, SIZE, "first") || payload_is(buffer, SIZE, "second"));
        child_tell(rc < 0 ? 'e' : whole ? 'v' : 'w');
    }
    return 0;
}

/* flags: BERTH_PUBLISHED where the reader is to find it at once. One that stands still acknowledges nothing. */
static void replace(const char *text, uint32_t flags)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = flags, .deadline = berth_deadline(INT64_C(20000000000))};
    uint8_t *data = malloc(SIZE);
    assert_non_null(data);
    payload_fill(data, SIZE, text);
    int rc = berth_remove(d.b[FAR], key_of("k"), NULL);
    assert_true(rc == 0 || rc == -ENOENT);
    assert_int_equal(berth_put(d.b[FAR], key_of("k"), data, SIZE, &o), 0);
    free(data);
}

static bool more_came(void *from)
{
    return atomic_load(&d.relay.moved[RELAY_BULK][RELAY_BACK]) > *(uint64_t *)from + MIB;
}

/* Stopped in the middle for longer than the lease, while the object gives way to another of the same key. */
static void test_reader_stands_still(void **unused)
{
    (void)unused;
    struct child reader;
    unsigned answers[2] = {0};
    child_start(&reader, reads, NULL);
    wired_embed(&d, FAR, "&lease=500ms");
    assert_int_equal(parent_hear(&reader, 20000), 'u');
    assert_true(wired_is(&d, FAR, "up", 20000));
    for (unsigned i = 0; i < 4; i++) {
        uint64_t from = atomic_load(&d.relay.moved[RELAY_BULK][RELAY_BACK]);
        replace("first", BERTH_PUBLISHED);
        relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 8000000);
        parent_tell(&reader, 'g');
        if (!eventually(more_came, &from, 10000)) {
            fail_msg("the reader does not read");
        }
        kill(reader.pid, SIGSTOP);
        replace("second", 0);
        usleep(900000); /* the pause itself: past the lease and its margins */
        relay_all(&d.relay, RELAY_FREE);
        kill(reader.pid, SIGCONT);
        char said = parent_hear(&reader, 30000);
        assert_true(said == 'v' || said == 'e');
        answers[said == 'v']++;
    }
    printf("%u whole, %u errors\n", answers[1], answers[0]);
    parent_tell(&reader, 'x');
    assert_int_equal(child_wait(&reader), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_renewed), T(test_not_renewed), T(test_reader_stands_still)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
