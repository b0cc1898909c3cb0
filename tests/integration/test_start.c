/* test_start.c: what berthd says and leaves at its start: warnings, a lookup made anew, starts that fail. */
#include "tests/support/daemon.h"

#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct daemon d;

static bool exists(const char *dir, const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &st) == 0;
}

static bool said(const char *text)
{
    return daemon_says(&d, text, 0);
}

static void test_a_class_without_effect(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", "--class", "68KiB,300KiB,2MiB,8MiB,1900KiB", "--class",
                                      "24KiB,27KiB,5000,100", NULL});
    assert_true(said(" warning class 2.0 MiB is not used: whole 2 MiB units cost no more of the pool"));
    assert_true(said(" warning class 8.0 MiB is not used: a slab of this pool has at most 4.0 MiB"));
    assert_true(said(" warning class 1.9 MiB is not used: "));
    assert_false(said("class 68 KiB is not used") || said("class 300 KiB is not used"));
    assert_true(said(" warning class 24 KiB is not used: slots of this size are there without it"));
    assert_true(said(" warning class 28 KiB is not used: slots of this size are there without it"));
    assert_true(said(" warning class 8.0 KiB is not used: slots of this size are there without it"));
    assert_true(said(" warning class 4.0 KiB is not used: slots of this size are there without it"));
    daemon_end(&d);
}

static void test_a_region_on_disk(void **state)
{
    (void)state;
    char dir[] = "/tmp/berth-test-XXXXXX", region[64];
    assert_non_null(mkdtemp(dir));
    snprintf(region, sizeof region, "%s/region", dir);
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    assert_false(said("every write may go to disk"));
    assert_int_equal(daemon_stop(&d), 0);
    struct statfs fs;
    assert_int_equal(statfs(dir, &fs), 0);
    bool in_memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
    d.extra[2] = "--region";
    d.extra[3] = region;
    daemon_again(&d);
    assert_int_equal(said("is not on tmpfs, ramfs or hugetlbfs: every write may go to disk"), !in_memory);
    daemon_end(&d);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void put(struct berth *b, const char *key)
{
    assert_int_equal(berth_put(b, key_of(key), key, strlen(key), NULL), 0);
}

static bool has(struct berth *b, const char *key)
{
    struct berth_view v;
    if (berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER) != 0) {
        return false;
    }
    bool same = v.size == strlen(key) && memcmp(v.data, key, v.size) == 0;
    berth_release(b, &v, 1);
    return same;
}

/* Objects come back from the index; who has the old lookup mapped would miss new ones, so its session doesn't go on. */
static void test_a_lookup_that_is_gone(void **state)
{
    (void)state;
    char path[128];
    daemon_start(&d, (const char *[]){"--pool", "16MiB", NULL});
    struct berth *old = daemon_open(&d, "old");
    put(old, "one");
    put(old, "two");
    snprintf(path, sizeof path, "%s/lookup", d.region);
    daemon_kill(&d);
    assert_int_equal(unlink(path), 0);
    daemon_again(&d);
    assert_true(said("/lookup' is missing: it is made anew from the index"));
    assert_true(said("recovered 2 objects"));
    struct berth *b = daemon_open(&d, "new");
    assert_true(has(b, "one") && has(b, "two"));
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    assert_int_equal(berth_put(old, key_of("three"), "x", 1, NULL), BERTH_ERESTART);
    berth_close(old);
    berth_close(b);
    daemon_end(&d);
}

/* ---- who never asks the node ---- */

#define CALLS 6
#define LEARNS_MS 5000 /* far above what berth.h says, for a machine that is busy */

struct learner {
    struct berth *b;
    int call;
};

/* One call that what is mapped could answer for ever. */
static long call_once(struct berth *b, int call)
{
    struct berth_key key = key_of("old");
    struct berth_view v = {0};
    uint8_t present;
    char buffer[8];
    long rc = call == 0   ? berth_get(b, key, &v, 0, BERTH_FOREVER)
              : call == 1 ? berth_get_many(b, &key, 1, &v, 0, BERTH_FOREVER)
              : call == 2 ? berth_prefix(b, &key, 1, &v, 0, BERTH_FOREVER)
              : call == 3 ? berth_exists(b, &key, 1, &present, 0)
              : call == 4 ? berth_get_into(b, key, buffer, sizeof buffer, 0, BERTH_FOREVER)
                          : berth_put(b, key, "old", 3, NULL);
    if (rc >= 0 && v.data) {
        berth_release(b, &v, 1);
    }
    return rc;
}

static bool has_learned(void *arg)
{
    const struct learner *l = arg;
    return call_once(l->b, l->call) == BERTH_ERESTART;
}

static void open_learners(struct learner *l)
{
    for (int i = 0; i < CALLS; i++) {
        struct berth_open_opts o = {.size = sizeof o, .flags = i < CALLS - 1 ? BERTH_OPEN_READER : 0};
        l[i].call = i;
        assert_int_equal(berth_open(&l[i].b, d.node, &o), 0);
    }
}

static void learn(struct learner *l)
{
    for (int i = 0; i < CALLS; i++) {
        if (!eventually(has_learned, &l[i], LEARNS_MS)) {
            fail_msg("call %d never heard that its node was replaced", i);
        }
        assert_int_equal(call_once(l[i].b, (i + 1) % (CALLS - 1)), BERTH_ERESTART); /* and so does every other */
        berth_close(l[i].b);
    }
}

static void test_who_only_reads_learns_of_another_node(void **state)
{
    (void)state;
    struct learner l[CALLS];
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    for (int round = 0; round < 4; round++) { /* another pool or another lookup, after a stop or a kill */
        char command[160];
        struct berth *b = daemon_open(&d, "puts");
        berth_put(b, key_of("old"), "old", 3, NULL);
        open_learners(l);
        round & 1 ? daemon_kill(&d) : (void)daemon_stop(&d);
        for (int i = 0; i < CALLS; i++) { /* what is mapped goes on meanwhile */
            assert_true(call_once(l[i].b, l[i].call) >= 0);
        }
        snprintf(command, sizeof command, "rm -rf %s%s", d.region, round & 2 ? "/lookup" : "");
        assert_int_equal(system(command), 0);
        daemon_again(&d);
        learn(l);
        berth_close(b);
    }
    daemon_end(&d);
}

/* The same node again is none of this: they go on, and attach again by themselves. */
static bool all_attached(void *arg)
{
    struct learner *l = arg;
    for (int i = 0; i < CALLS; i++) {
        assert_true(call_once(l[i].b, l[i].call) >= 0);
    }
    struct berth *b = daemon_open(&d, "looks");
    double n = daemon_number(b, "node.attached");
    berth_close(b);
    return n == CALLS + 1;
}

static void test_who_only_reads_goes_on_with_the_same_node(void **state)
{
    (void)state;
    struct learner l[CALLS];
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    struct berth *b = daemon_open(&d, "puts");
    put(b, "old");
    berth_close(b);
    open_learners(l);
    daemon_kill(&d);
    daemon_again(&d);
    assert_true(eventually(all_attached, l, LEARNS_MS));
    for (int i = 0; i < CALLS; i++) {
        berth_close(l[i].b);
    }
    daemon_end(&d);
}

static void test_an_empty_start_is_a_warning(void **state)
{
    (void)state;
    char path[128];
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    assert_true(said("info region '") && said("new region: there was none"));
    assert_int_equal(daemon_stop(&d), 0);
    daemon_again(&d);
    assert_false(said("recovered")); /* nothing to */
    assert_int_equal(daemon_stop(&d), 0);
    snprintf(path, sizeof path, "%s/tails", d.region);
    assert_int_equal(unlink(path), 0);
    daemon_again(&d);
    assert_true(said("warning region '"));
    assert_true(said("new region, what was there is gone: files of it are missing"));
    daemon_end(&d);
}

static void test_ended_sessions_are_details(void **state)
{
    (void)state;
    for (int debug = 0; debug < 2; debug++) {
        daemon_start(&d, (const char *[]){"--pool", "4MiB", "--log-level", debug ? "debug" : "info", NULL});
        berth_close(daemon_open(&d, "short"));
        assert_int_equal(daemon_stop(&d), 0);
        assert_true(daemon_says(&d, "stopped", 10000));
        assert_int_equal(said("has ended"), debug);
        daemon_end(&d);
    }
}

/* What a start that fails had made goes again; what was there stays. */
static void test_a_start_that_fails(void **state)
{
    (void)state;
    char metrics[160];
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    assert_int_equal(daemon_stop(&d), 0);
    assert_true(exists(d.region, "pool-0"));
    snprintf(metrics, sizeof metrics, "unix:%s/none/metrics", d.dir);
    d.extra[2] = "--metrics";
    d.extra[3] = metrics;
    assert_int_equal(daemon_try(&d), 1);
    assert_true(exists(d.region, "pool-0"));
    snprintf(d.region, sizeof d.region, "%s/other", d.dir);
    assert_int_equal(daemon_try(&d), 1);
    assert_true(said("cannot serve metrics at 'unix:") && said("/none/metrics': No such file"));
    assert_false(exists(d.dir, "other") || exists(d.dir, "sock"));
    d.extra[2] = NULL;
    snprintf(d.socket, sizeof d.socket, "%s/none/sock", d.dir);
    assert_int_equal(daemon_try(&d), 1);
    assert_true(said("the directory of '"));
    assert_false(exists(d.dir, "other"));
    daemon_end(&d);
}

/* The next start says how the last node ended, whatever starts failed between. */
static void test_a_start_that_fails_leaves_the_mark(void **state)
{
    (void)state;
    static struct daemon other;
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    for (int killed = 0; killed < 2; killed++) {
        struct berth *b = daemon_open(&d, "puts");
        berth_put(b, key_of("one"), "one", 3, NULL);
        berth_close(b);
        killed ? daemon_kill(&d) : (void)daemon_stop(&d);
        other = d;
        other.log = 0;
        snprintf(other.region, sizeof other.region, "%s/other", d.dir);
        daemon_again(&other);
        assert_int_equal(daemon_try(&d), 5);
        assert_true(said("another node answers at '"));
        assert_int_equal(daemon_stop(&other), 0);
        close(other.log);
        d.extra[2] = "--metrics";
        d.extra[3] = "unix:/dev/null/x";
        assert_int_equal(daemon_try(&d), 1);
        d.extra[2] = NULL;
        daemon_again(&d);
        assert_true(said(killed ? "the last node was killed" : "the last node stopped cleanly"));
    }
    daemon_end(&d);
}

static void test_the_pool_is_said(void **state)
{
    (void)state;
    static const char *const plain[] = {"4MiB", "4194304", "64KiB"};
    for (int i = 0; i < 3; i++) {
        daemon_start(&d, (const char *[]){"--pool", plain[i], NULL});
        assert_true(said(i < 2 ? ", pool 4.0 MiB\n" : ", pool 2.0 MiB\n"));
        daemon_end(&d);
    }
}

static void write_pool(const char *path, const char *pool)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "[node]\npool = %s\n", pool);
    fclose(f);
}

/* What SIGHUP says of the pool is what a restart does. */
static void test_a_pool_waits_for_a_restart(void **state)
{
    (void)state;
    char config[] = "/dev/shm/berth-test-config-XXXXXX";
    int fd = mkstemp(config);
    assert_true(fd >= 0);
    close(fd);
    write_pool(config, "32MiB"); /* of which max-objects follows */
    daemon_start(&d, (const char *[]){"--config", config, NULL});
    struct berth *b = daemon_open(&d, "puts");
    put(b, "one");
    berth_close(b);
    write_pool(config, "64MiB");
    assert_int_equal(kill(d.pid, SIGHUP), 0);
    assert_true(daemon_says(&d, "pool can't change from 32MiB to 64MiB while the node runs: restart it, or set it back",
                            10000));
    assert_int_equal(daemon_stop(&d), 0);
    d.extra[2] = "--max-objects"; /* kept, and said to be */
    d.extra[3] = "100352";
    daemon_again(&d);
    assert_true(said(" warning max-objects is 8192 in region '"));
    assert_true(said("the last node stopped cleanly; the pool grew from 32 MiB to 64 MiB, every object is kept"));
    daemon_end(&d);
    unlink(config);
}

static void test_a_probe_is_no_refusal(void **state)
{
    (void)state;
    uint32_t ns;
    struct berth *b;
    struct berth_open_opts o = {.size = sizeof o, .flags = BERTH_OPEN_READER};
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    assert_int_equal(berth_open(&b, d.node, &o), 0);
    assert_int_equal(berth_namespace(b, "none", &ns), BERTH_EREADONLY);
    assert_int_equal(daemon_number(b, "counters.refused_read_only"), 0);
    assert_int_equal(daemon_number(b, "settings.high.bytes"), (4u << 20) * 95 / 100);
    berth_close(b);
    daemon_end(&d);
}

/* A signal that ends a process by default does not end the node amid its work. */
static void test_signals(void **state)
{
    (void)state;
    static const int ignored[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
                                  SIGPWR,  SIGPIPE, SIGXFSZ, SIGSTKFLT, 34,      64};
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    struct berth *b = daemon_open(&d, "client");
    put(b, "one");
    for (unsigned i = 0; i < sizeof ignored / sizeof *ignored; i++)
        assert_int_equal(kill(d.pid, ignored[i]), 0);
    put(b, "two");
    assert_true(has(b, "one") && has(b, "two"));
    assert_int_equal(daemon_number(b, "node.attached"), 1); /* another call after all were delivered */
    berth_close(b);
    static const int stops[] = {SIGINT, SIGXCPU, SIGTERM};
    for (unsigned i = 0; i < sizeof stops / sizeof *stops; i++) {
        int status;
        assert_int_equal(kill(d.pid, stops[i]), 0);
        assert_int_equal(waitpid(d.pid, &status, 0), d.pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        daemon_again(&d);
        assert_true(said("the last node stopped cleanly"));
    }
    daemon_end(&d);
}

/* Clients that are refused again and again: the log has each kind at once, and then their number. */
static void test_refusals_in_a_loop(void **state)
{
    (void)state;
    struct berth *b;
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    char clients[128];
    snprintf(clients, sizeof clients, "%s/clients", d.region); /* where no pin file can be made, none is served */
    assert_int_equal(rmdir(clients), 0);
    for (unsigned i = 0; i < 200; i++)
        assert_true(berth_open(&b, d.node, NULL) != 0);
    assert_int_equal(daemon_stop(&d), 0);
    assert_true(daemon_says(&d, " stopped", 10000));
    unsigned lines = 0;
    for (const char *at = d.text; (at = strstr(at, "a client was refused")) != NULL; at++)
        lines++;
    assert_int_equal(lines, 2);
    assert_true(said("199 more like this in 10 s: a client was refused"));
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_class_without_effect),
        cmocka_unit_test(test_a_region_on_disk),
        cmocka_unit_test(test_a_lookup_that_is_gone),
        cmocka_unit_test(test_who_only_reads_learns_of_another_node),
        cmocka_unit_test(test_who_only_reads_goes_on_with_the_same_node),
        cmocka_unit_test(test_an_empty_start_is_a_warning),
        cmocka_unit_test(test_ended_sessions_are_details),
        cmocka_unit_test(test_a_start_that_fails),
        cmocka_unit_test(test_a_start_that_fails_leaves_the_mark),
        cmocka_unit_test(test_the_pool_is_said),
        cmocka_unit_test(test_a_pool_waits_for_a_restart),
        cmocka_unit_test(test_a_probe_is_no_refusal),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_refusals_in_a_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
