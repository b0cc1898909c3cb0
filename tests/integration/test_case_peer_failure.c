/* The row "peer failure" of the field's failures, between whole nodes: connections are not leaked by a peer that
 * restarts; one that does not answer is not asked for what others have; one that comes back empty is not taken to have
 * anything; no disconnect is for ever; dead readers cost their owner nothing for long. And what counts as a sign of
 * life: bulk data, though no message comes through.
 */
#include "tests/support/child.h"
#include "tests/support/wired.h"

#include <dirent.h>
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
#define SECONDS(n) ((n)*INT64_C(1000000000))
#define RESTARTS 50u
#define KILLS 4u /* of them; a region that was left takes a second to come back */

static struct wired d;
static struct daemon near, far;
static uint8_t *buffer;

static int setup(void **unused)
{
    (void)unused;
    buffer = calloc(1, 64 * MIB);
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

static unsigned descriptors(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static void far_again(void)
{
    berth_close(d.b[FAR]);
    d.b[FAR] = NULL;
    daemon_again(&far);
    d.b[FAR] = daemon_open(&far, "test");
}

struct ups {
    double more_than;
};

static bool is_up_again(void *arg)
{
    struct ups *u = arg;
    char state[32];
    wired_text(&d, NEAR, "state", state, sizeof state);
    return strcmp(state, "up") == 0 && wired_number(&d, NEAR, "ups") > u->more_than;
}

struct wish {
    const char *key;
    long rc, got;
};

static bool gets(void *arg)
{
    struct wish *w = arg;
    long rc = berth_get_into(d.b[NEAR], key_of(w->key), buffer, MIB, BERTH_PEERS, berth_deadline(SECONDS(2)));
    w->got = rc;
    return rc == w->rc;
}

/* The far one is killed, or stops and comes back as a new node: 50 times in all. As many descriptors at the other one
 * as after the third. */
static void test_no_leak(void **unused)
{
    (void)unused;
    unsigned before = 0;
    wired_daemon(&d, NEAR, &near, "8MiB", NULL);
    wired_embed(&d, FAR, "");
    wired_meet(&d);
    for (unsigned i = 0; i < RESTARTS; i++) {
        struct ups u = {wired_number(&d, NEAR, "ups")};
        if (i < RESTARTS - KILLS) {
            berth_close(d.b[FAR]);
            wired_embed(&d, FAR, "");
        } else if (!d.as[FAR]) {
            berth_close(d.b[FAR]);
            wired_daemon(&d, FAR, &far, "8MiB", NULL);
        } else {
            daemon_kill(&far);
            far_again();
        }
        assert_true(eventually(is_up_again, &u, 20000));
        if (i == 2) {
            before = descriptors(near.pid);
        }
    }
    assert_int_equal(wired_number(&d, NEAR, "ups"), RESTARTS + 1);
    assert_int_equal(wired_number(&d, NEAR, "downs"), RESTARTS);
    assert_true(descriptors(near.pid) <= before);
    wired_put(&d, FAR, "still", 1000);
    assert_true(gets(&(struct wish){"still", 1000, 0}));
}

/* It comes back without its region: nothing of it is found, in no time, and it is a peer as before. */
static void test_empty_after_restart(void **unused)
{
    (void)unused;
    char command[160];
    wired_daemon(&d, NEAR, &near, "8MiB", NULL);
    wired_daemon(&d, FAR, &far, "8MiB", NULL);
    wired_meet(&d);
    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "lost%u", i);
        wired_put(&d, FAR, key, 1000);
    }
    assert_true(gets(&(struct wish){"lost19", 1000, 0})); /* near has a copy of this one now */
    struct ups u = {wired_number(&d, NEAR, "ups")};
    daemon_kill(&far);
    snprintf(command, sizeof command, "rm -rf %s", far.region);
    assert_int_equal(system(command), 0);
    far_again();
    assert_true(eventually(is_up_again, &u, 20000));
    for (unsigned i = 0; i < 19; i++) {
        char key[16];
        snprintf(key, sizeof key, "lost%u", i);
        struct wish gone = {key, -ENOENT, 0};
        if (!eventually(gets, &gone, 20000)) {
            fail_msg("%s is not known to be gone: %s", key, berth_error_name((int)gone.got));
        }
    }
    wired_put(&d, FAR, "lost0", 2000);
    assert_true(gets(&(struct wish){"lost0", 2000, 0}));
    assert_true(payload_is(buffer, 2000, "lost0"));
}

/* Nothing gets through for longer than a peer may be silent, twice, and once the wire is cut: each time it is found
 * within seconds, and over when the wire is whole again. */
static void test_silence_is_not_for_ever(void **unused)
{
    (void)unused;
    wired_embed(&d, FAR, "");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "k", 100000);
    for (unsigned i = 0; i < 3; i++) {
        struct ups u = {wired_number(&d, NEAR, "ups")};
        int64_t began = berth_deadline(0);
        if (i < 2) {
            relay_all(&d.relay, RELAY_HOLD);
            assert_true(wired_is(&d, NEAR, "down", 10000) || wired_is(&d, NEAR, "connecting", 1000));
            assert_true(berth_deadline(0) - began < SECONDS(6));
            long rc = berth_get_into(d.b[NEAR], key_of("k"), buffer, MIB, BERTH_PEERS, berth_deadline(SECONDS(1)));
            assert_true(rc < 0 && berth_deadline(0) - began < SECONDS(8));
            relay_all(&d.relay, RELAY_FREE);
        } else {
            atomic_store(&d.relay.cut, true);
        }
        assert_true(eventually(is_up_again, &u, 20000));
        assert_true(gets(&(struct wish){"k", 100000, 0}));
        assert_true(payload_is(buffer, 100000, "k"));
    }
}

/* ---- signs of life ---- */

struct long_get {
    pthread_t thread;
    const char *key;
    long rc;
};

static void *get_key(void *arg)
{
    struct long_get *g = arg;
    g->rc = berth_get_into(d.b[NEAR], key_of(g->key), buffer, 32 * MIB, BERTH_PEERS, berth_deadline(SECONDS(30)));
    return NULL;
}

static bool some_came(void *unused)
{
    (void)unused;
    return atomic_load(&d.relay.moved[RELAY_BULK][RELAY_BACK]) > MIB;
}

/* For five seconds bulk data is all that comes from the far one: it is alive. When nothing comes any more it is not. */
static void test_bulk_is_life(void **unused)
{
    (void)unused;
    struct long_get g = {.key = "large"};
    wired_embed(&d, FAR, "&lease=30s");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "large", 32 * MIB);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 6000000);
    assert_int_equal(pthread_create(&g.thread, NULL, get_key, &g), 0);
    assert_true(eventually(some_came, NULL, 20000));
    relay_rate(&d.relay, RELAY_CONTROL, RELAY_BACK, RELAY_HOLD);
    pthread_join(g.thread, NULL);
    assert_int_equal(g.rc, 32 * MIB);
    assert_true(payload_is(buffer, 32 * MIB, "large"));
    assert_int_equal(wired_number(&d, NEAR, "downs"), 0);
    assert_int_equal(wired_number(&d, FAR, "downs"), 0);
    assert_true(wired_is(&d, NEAR, "down", 6000) || wired_is(&d, NEAR, "connecting", 1000));
}

/* As much as there is memory for, as fast as it goes, again and again: nobody is taken for dead. */
static void test_saturated(void **unused)
{
    (void)unused;
    wired_embed(&d, FAR, "");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "large", 32 * MIB);
    for (unsigned i = 0; i < 32; i++) { /* 1 GiB */
        long rc =
            berth_get_into(d.b[NEAR], key_of("large"), buffer, 32 * MIB, BERTH_PEERS, berth_deadline(SECONDS(30)));
        assert_int_equal(rc, 32 * MIB);
    }
    assert_int_equal(wired_number(&d, NEAR, "downs") + wired_number(&d, FAR, "downs"), 0);
}

/* ---- dead readers ---- */

static int reads_until_killed(void *unused)
{
    (void)unused;
    wired_embed(&d, NEAR, "");
    child_tell('u');
    for (;;) {
        berth_get_into(d.b[NEAR], key_of("large"), buffer, 32 * MIB, BERTH_PEERS, berth_deadline(SECONDS(10)));
    }
    return 0;
}

static bool all_given_back(void *b)
{
    return daemon_number(b, "remote.serving") == 0 && daemon_number(b, "remote.leases") == 0;
}

static bool serves(void *b)
{
    return daemon_number(b, "remote.serving") > 0;
}

/* Killed in the middle of a READ, ten times. */
static void test_dead_readers(void **unused)
{
    (void)unused;
    wired_embed(&d, FAR, "&lease=500ms");
    wired_put(&d, FAR, "large", 32 * MIB);
    relay_rate(&d.relay, RELAY_BULK, RELAY_BACK, 20000000);
    for (unsigned i = 0; i < 10; i++) {
        struct child reader;
        child_start(&reader, reads_until_killed, NULL);
        assert_int_equal(parent_hear(&reader, 20000), 'u');
        assert_true(eventually(serves, d.b[FAR], 20000));
        child_kill(&reader);
    }
    assert_true(eventually(all_given_back, d.b[FAR], 20000));
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    relay_all(&d.relay, RELAY_FREE);
    assert_true(berth_get_into(d.b[NEAR], key_of("large"), buffer, 32 * MIB, BERTH_PEERS, berth_deadline(SECONDS(20))) >
                0);
    assert_true(payload_is(buffer, 32 * MIB, "large"));
    assert_int_equal(berth_remove(d.b[FAR], key_of("large"), NULL), 0);
    wired_put(&d, FAR, "next", 40 * MIB); /* its memory is there again: 64 MiB have no room for both */
}

/* ---- answers that come too late ---- */

static bool two_leases(void *b)
{
    return daemon_number(b, "counters.leases_given") >= 2;
}

/* The owner's answer is held for longer than the reader waits: the lease in it is given back when it comes, and not
 * only when its 30 s are over. It is known that the reader has given it up by the lease that it asks for after that. As
 * long as it asks the owner hears of it: it would take a reader that says nothing for 3 s for dead, since its own
 * questions after it are held too. */
static void test_late_lease(void **unused)
{
    (void)unused;
    struct long_get g = {.key = "k"};
    wired_embed(&d, FAR, "&lease=30s");
    wired_embed(&d, NEAR, "");
    wired_meet(&d);
    wired_put(&d, FAR, "k", 100000);
    relay_rate(&d.relay, RELAY_CONTROL, RELAY_BACK, 20); /* bytes a second: alive, and slow */
    assert_int_equal(pthread_create(&g.thread, NULL, get_key, &g), 0);
    assert_true(eventually(two_leases, d.b[FAR], 20000));
    relay_all(&d.relay, RELAY_FREE);
    pthread_join(g.thread, NULL); /* with or without it: whom it asked was silent for long */
    assert_true(gets(&(struct wish){"k", 100000, 0}));
    assert_true(payload_is(buffer, 100000, "k"));
    assert_true(eventually(all_given_back, d.b[FAR], 10000));
    assert_int_equal(daemon_number(d.b[FAR], "counters.leases_expired"), 0);
    assert_int_equal(wired_number(&d, NEAR, "downs"), 0);
}

/* ---- one of three ---- */

#define KEYS 20u

static void three_open(struct berth **reader, const char *list, const uint16_t *port)
{
    char url[512];
    snprintf(url, sizeof url, "embedded:?pool=16MiB&lock=off&log-level=error&name=r&listen=tcp://127.0.0.1:%u&peers=%s",
             port[0], list);
    assert_int_equal(berth_open(reader, url, NULL), 0);
}

static struct berth *three_start(struct daemon *daemon, const char *name, const char *list)
{
    daemon_start(daemon, (const char *[]){"--pool", "16MiB", "--lock", "off", "--name", name, "--peers", list, NULL});
    return daemon_open(daemon, "test");
}

struct look {
    struct berth *b;
    const char *key;
};

static bool finds(void *arg)
{
    struct look *l = arg;
    struct berth_view v;
    int rc = berth_get(l->b, key_of(l->key), &v, BERTH_PEERS, berth_deadline(SECONDS(5)));
    if (rc == 0) {
        assert_true(payload_is(v.data, v.size, l->key));
        berth_release(l->b, &v, 1);
    }
    return rc == 0;
}

/* Keys from..to are there in time, from whoever has them. How long it took, ns. */
static int64_t read_keys(struct berth *reader, unsigned from, unsigned to)
{
    int64_t began = berth_deadline(0);
    for (unsigned i = from; i < to; i++) {
        char key[16];
        snprintf(key, sizeof key, "both%u", i);
        long rc = berth_get_into(reader, key_of(key), buffer, MIB, BERTH_PEERS, berth_deadline(SECONDS(10)));
        if (rc != 5000) {
            fail_msg("%s: %s", key, berth_error_name((int)rc));
        }
        assert_true(payload_is(buffer, 5000, key));
    }
    return berth_deadline(0) - began;
}

/* x and y have all keys, and x stands still: what is asked of it meanwhile comes from y, and as soon as x is known to
 * say nothing it is not asked at all. It is asked again when it goes on. */
static void test_others_have_it(void **unused)
{
    (void)unused;
    uint16_t port[3];
    char list[160];
    struct berth *r, *x, *y;
    for (unsigned i = 0; i < 3; i++) {
        port[i] = free_port();
    }
    snprintf(list, sizeof list, "r=tcp://127.0.0.1:%u,x=tcp://127.0.0.1:%u,y=tcp://127.0.0.1:%u", port[0], port[1],
             port[2]);
    three_open(&r, list, port);
    x = three_start(&near, "x", list);
    y = three_start(&far, "y", list);
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "both%u", i);
        payload_fill(buffer, 5000, key);
        assert_int_equal(berth_put(x, key_of(key), buffer, 5000, NULL), 0);
        assert_true(eventually(finds, &(struct look){y, key}, 20000));
    }
    assert_true(eventually(finds, &(struct look){r, "both0"}, 20000));
    kill(near.pid, SIGSTOP);
    assert_true(read_keys(r, 0, KEYS) < SECONDS(8));
    assert_true(daemon_says(&far, "peer 'x' is down", 10000));
    assert_true(read_keys(r, KEYS, 2 * KEYS) < SECONDS(2));
    kill(near.pid, SIGCONT);
    payload_fill(buffer, 5000, "again");
    assert_int_equal(berth_put(x, key_of("again"), buffer, 5000, NULL), 0);
    assert_true(eventually(finds, &(struct look){r, "again"}, 20000));
    berth_close(r);
    berth_close(x);
    berth_close(y);
    daemon_end(&near);
    daemon_end(&far);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_no_leak),      T(test_empty_after_restart), T(test_silence_is_not_for_ever),
        T(test_bulk_is_life), T(test_saturated),           T(test_dead_readers),
        T(test_late_lease),   T(test_others_have_it),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
