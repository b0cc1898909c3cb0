/* A daemon stopped, killed and restarted under live clients; clients forked, stopped, in other PID namespaces. */
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 20000u
#define CLIENTS 3
#define RESTARTS 6

static struct daemon d;
static _Atomic int *stop; /* shared with children */
static _Atomic long *work;

static void put(struct berth *b, const char *key)
{
    char data[SIZE];
    payload_fill(data, sizeof data, key);
    int e = berth_put(b, key_of(key), data, sizeof data, NULL);
    CHECK(e == 0 || e == BERTH_KEPT);
}

static bool holds(struct berth *b, const char *key)
{
    struct berth_view v;
    if (berth_get(b, key_of(key), &v, 0, BERTH_FOREVER) != 0) {
        return false;
    }
    CHECK(payload_is(v.data, v.size, key));
    berth_release(b, &v, 1);
    return true;
}

/* Puts, reads, drafts and groups without end, over however many lives of the daemon. */
static int worker(void *arg)
{
    int me = (int)(intptr_t)arg;
    struct berth *b = NULL;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    char pinned[32], key[32];
    struct berth_view view;
    snprintf(pinned, sizeof pinned, "pinned-%d", me);
    put(b, pinned);
    CHECK(berth_get(b, key_of(pinned), &view, 0, BERTH_FOREVER) == 0);
    CHECK(berth_remove(b, key_of(pinned), NULL) == 0); /* only the pin keeps it */
    child_tell('r');
    for (long i = 0; !*stop; i++) {
        snprintf(key, sizeof key, "w%d-%ld", me, i);
        put(b, key);
        CHECK(holds(b, key));
        struct berth_draft group[2];
        char two[2][32];
        for (int k = 0; k < 2; k++) {
            snprintf(two[k], sizeof two[k], "g%d-%ld-%d", me, i, k);
            CHECK(berth_create(b, key_of(two[k]), SIZE, NULL, &group[k]) == 0);
            payload_fill(group[k].data, SIZE, two[k]);
        }
        int e = berth_seal(b, group, 2);
        CHECK(e == 0 || e == BERTH_EUNKNOWN);
        CHECK(e != 0 || (holds(b, two[0]) && holds(b, two[1])));
        e = berth_remove(b, key_of(key), NULL);
        CHECK(e == 0 || e == BERTH_EUNKNOWN || e == -ENOENT);
        CHECK(payload_is(view.data, SIZE, pinned));
        *work += 1;
    }
    berth_release(b, &view, 1);
    berth_close(b);
    return 0;
}

static bool went_on(void *arg)
{
    return *work > *(long *)arg + 20;
}

static void test_restarts_under_live_clients(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "256MiB", NULL});
    struct child c[CLIENTS];
    *stop = 0;
    for (int i = 0; i < CLIENTS; i++) {
        child_start(&c[i], worker, (void *)(intptr_t)i);
        assert_int_equal(parent_hear(&c[i], 20000), 'r');
    }
    for (int i = 0; i < RESTARTS; i++) {
        long before = *work;
        assert_true(eventually(went_on, &before, 30000));
        if (i % 3 == 2) {
            assert_int_equal(daemon_stop(&d), 0);
        } else {
            daemon_kill(&d);
        }
        daemon_again(&d);
    }
    long before = *work;
    assert_true(eventually(went_on, &before, 30000));
    *stop = 1;
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(child_wait(&c[i]), 0);
    }
    struct berth *b = daemon_open(&d, "checker");
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    daemon_end(&d);
}

/* A draft made under one daemon, filled while there is none, sealed under the next. */
static void test_unfinished_put_survives(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct berth *b = daemon_open(&d, "writer");
    struct berth_draft draft;
    assert_int_equal(berth_create(b, key_of("survives"), SIZE, NULL, &draft), 0);
    daemon_kill(&d);
    payload_fill(draft.data, SIZE, "survives");
    daemon_again(&d);
    assert_int_equal(berth_seal(b, &draft, 1), 0);
    assert_true(holds(b, "survives"));
    berth_close(b);
    daemon_end(&d);
}

static int stopped_writer(void *arg)
{
    (void)arg;
    struct berth *b = NULL;
    struct berth_draft draft;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(berth_create(b, key_of("slow"), SIZE, NULL, &draft) == 0);
    child_tell('c');
    child_hear();
    payload_fill(draft.data, SIZE, "slow");
    CHECK(berth_seal(b, &draft, 1) == 0);
    CHECK(holds(b, "slow"));
    return 0;
}

static void test_stopped_writer_keeps_its_slot(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "32MiB", NULL});
    struct child c;
    child_start(&c, stopped_writer, NULL);
    assert_int_equal(parent_hear(&c, 10000), 'c');
    kill(c.pid, SIGSTOP);
    struct berth *b = daemon_open(&d, "filler");
    char key[16];
    for (int i = 0; i < 3000; i++) { /* the pool turns over several times */
        snprintf(key, sizeof key, "f%d", i);
        put(b, key);
    }
    kill(c.pid, SIGCONT);
    parent_tell(&c, 'g');
    assert_int_equal(child_wait(&c), 0);
    assert_true(holds(b, "slow"));
    berth_close(b);
    daemon_end(&d);
}

static int forker(void *arg)
{
    (void)arg;
    struct berth *b = NULL;
    struct berth_view v, w;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    put(b, "forked");
    CHECK(berth_get(b, key_of("forked"), &v, 0, BERTH_FOREVER) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct berth_key k = key_of("forked");
        uint8_t there;
        CHECK(berth_get(b, k, &w, 0, BERTH_FOREVER) == BERTH_EFORKED);
        CHECK(berth_put(b, k, "x", 1, NULL) == BERTH_EFORKED);
        CHECK(berth_exists(b, &k, 1, &there, 0) == BERTH_EFORKED);
        berth_release(b, &v, 1); /* does nothing to the parent's pin */
        struct berth *own = NULL;
        CHECK(berth_open(&own, d.node, NULL) == 0);
        CHECK(holds(own, "forked"));
        berth_close(own);
        berth_close(b);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(berth_remove(b, key_of("forked"), NULL) == 0);
    child_tell('f');
    child_hear();
    CHECK(payload_is(v.data, SIZE, "forked")); /* pinned all along */
    berth_release(b, &v, 1);
    /* A child that outlives its parent keeps nothing alive for the node. */
    if (fork() == 0) {
        child_hear();
        _exit(0);
    }
    return 0;
}

static bool one_session(void *arg)
{
    return daemon_number(arg, "node.attached") == 1;
}

static void test_fork(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "32MiB", NULL});
    struct child c;
    child_start(&c, forker, NULL);
    assert_int_equal(parent_hear(&c, 10000), 'f');
    struct berth *b = daemon_open(&d, "filler");
    char key[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "f%d", i);
        put(b, key);
    }
    parent_tell(&c, 'g');
    int status;
    waitpid(c.pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(eventually(one_session, b, 10000)); /* though the grandchild lives */
    close(c.to);
    close(c.from);
    berth_close(b);
    daemon_end(&d);
}

static int in_pid_namespace(void *arg)
{
    if (unshare(CLONE_NEWPID) != 0) {
        child_tell('s');
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct berth *b = NULL;
        struct berth_view v;
        CHECK(getpid() == 1);
        CHECK(berth_open(&b, d.node, NULL) == 0);
        put(b, "namespace");
        CHECK(berth_get(b, key_of("namespace"), &v, 0, BERTH_FOREVER) == 0);
        CHECK(berth_remove(b, key_of("namespace"), NULL) == 0);
        child_tell('p');
        child_hear();
        CHECK(payload_is(v.data, SIZE, "namespace"));
        if (arg) {
            child_tell('k');
            for (;;) {
                pause();
            }
        }
        berth_close(b);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool nothing_retired(void *arg)
{
    return daemon_number(arg, "slots.retired") == 0;
}

static void test_pid_namespace(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "32MiB", NULL});
    struct child c;
    child_start(&c, in_pid_namespace, (void *)1);
    if (parent_hear(&c, 10000) == 's') {
        print_message("SKIP: needs root to make a PID namespace\n");
        child_wait(&c);
        daemon_end(&d);
        return;
    }
    struct berth *b = daemon_open(&d, "outside");
    char key[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "f%d", i);
        put(b, key);
    }
    daemon_retired(b, 1); /* its pin counts */
    daemon_kill(&d);
    daemon_again(&d); /* and is adopted */
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "h%d", i);
        put(b, key);
    }
    parent_tell(&c, 'v');
    assert_int_equal(parent_hear(&c, 10000), 'k');
    child_kill(&c); /* its own child, the client, dies with it */
    assert_true(eventually(nothing_retired, b, 10000));
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    work = (_Atomic long *)(stop + 16);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restarts_under_live_clients),
        cmocka_unit_test(test_unfinished_put_survives),
        cmocka_unit_test(test_stopped_writer_keeps_its_slot),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_pid_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
