/* test_fork.c: a child of a process with many threads begins with all lanes, and counts its gets exactly. */
#include "store/layout.h"
#include "store/thread.h"
#include "tests/support/child.h"
#include "tests/support/daemon.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define THREADS STAT_LANES
#define GETS 2000

static struct daemon d;
static struct berth *handle;
static pthread_barrier_t all_started, all_end;
static _Atomic unsigned without_lane;

static void get(struct berth *b, int n)
{
    struct berth_view v;
    for (int i = 0; i < n; i++) {
        CHECK(berth_get(b, key_of("k"), &v, 0, BERTH_FOREVER) == 0);
        berth_release(b, &v, 1);
    }
}

static void *reader(void *arg)
{
    get(handle, *(int *)arg);
    without_lane += thread_self()->shared;
    pthread_barrier_wait(&all_started);
    pthread_barrier_wait(&all_end);
    return NULL;
}

static void start_readers(pthread_t *threads, unsigned n, int *gets)
{
    without_lane = 0;
    CHECK(pthread_barrier_init(&all_started, NULL, n + 1) == 0);
    CHECK(pthread_barrier_init(&all_end, NULL, n + 1) == 0);
    for (unsigned i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, gets) == 0);
    pthread_barrier_wait(&all_started);
}

static void end_readers(pthread_t *threads, unsigned n)
{
    pthread_barrier_wait(&all_end);
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Every thread of the child has a lane of its own, the one that forked too, and every get is counted once. */
static int forked(void)
{
    pthread_t threads[THREADS];
    int gets = GETS;
    struct berth *parents = handle;
    CHECK(berth_open(&handle, d.node, NULL) == 0);
    double before = daemon_number(handle, "local.hits");
    get(handle, GETS);
    CHECK(!client_thread.shared && client_thread.handle == handle);
    start_readers(threads, THREADS - 2, &gets);
    CHECK(without_lane == 0);
    CHECK(daemon_number(handle, "local.hits") - before == (double)GETS * (THREADS - 1));
    end_readers(threads, THREADS - 2);
    berth_close(handle);
    berth_close(parents);
    return 0;
}

static void test_lanes(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int gets = 1, status;
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    handle = daemon_open(&d, "parent");
    assert_int_equal(berth_put(handle, key_of("k"), "x", 1, NULL), 0);
    get(handle, 1);
    start_readers(threads, THREADS, &gets);
    assert_true(without_lane > 0); /* all are taken */
    for (int grandchild = 0; grandchild < 2; grandchild++) {
        pid_t pid = fork();
        if (pid == 0) {
            pid_t inner = grandchild ? fork() : 0;
            if (inner == 0)
                _exit(forked());
            CHECK(waitpid(inner, &status, 0) == inner);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    end_readers(threads, THREADS);
    berth_close(handle);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
