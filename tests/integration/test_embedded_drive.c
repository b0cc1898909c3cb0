/* Callers that do their embedded node's work while they wait: deadlines, threads, small stacks, cancellation, and a
 * node that goes on serving others. */
#include "store/client.h"
#include "store/shell/state.h"
#include "tests/support/daemon.h"
#include "tests/support/ports.h"

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

#define SECONDS(n) ((n)*INT64_C(1000000000))
#define THREADS 3u
#define ROUNDS (SANITIZED ? 200u : 1000u)
#define SMALL_STACK (SANITIZED ? 1u << 20 : 128u << 10) /* sanitizers keep what they watch on the stack */

static struct berth *node[2];

static void open_nodes(unsigned n)
{
    uint16_t port[2] = {free_port(), free_port()};
    for (unsigned i = 0; i < n; i++) {
        char url[512];
        snprintf(url, sizeof url,
                 "embedded:?pool=48MiB&lock=off&log-level=error&name=n%u&listen=tcp://127.0.0.1:%u&"
                 "peers=n0=tcp://127.0.0.1:%u,n1=tcp://127.0.0.1:%u",
                 i, port[i], port[0], port[1]);
        assert_int_equal(berth_open(&node[i], n > 1 ? url : "embedded:?pool=48MiB&lock=off&log-level=error", NULL), 0);
    }
}

static int close_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        berth_close(node[i]);
        node[i] = NULL;
    }
    return 0;
}

static void put_and_look(struct berth *b, const char *key, size_t size)
{
    uint8_t *data = malloc(size), *back = malloc(size);
    assert_true(data && back);
    payload_fill(data, size, key);
    assert_int_equal(berth_put(b, key_of(key), data, size, NULL), 0);
    assert_int_equal(berth_get_into(b, key_of(key), back, size, 0, BERTH_NOW), (long)size);
    assert_memory_equal(data, back, size);
    free(data);
    free(back);
}

struct worker {
    unsigned number, rounds;
    _Atomic int done;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (unsigned i = 0; i < w->rounds; i++) {
        char key[32];
        snprintf(key, sizeof key, "t%u-%u", w->number, i % 50);
        if (i >= 50) {
            assert_int_equal(berth_remove(node[0], key_of(key), NULL), 0);
        }
        put_and_look(node[0], key, 1000 + i % 7000);
    }
    atomic_store(&w->done, 1);
    return NULL;
}

static void threads_of_one_handle(void **state)
{
    pthread_t t[THREADS];
    struct worker w[THREADS];
    (void)state;
    open_nodes(1);
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.number = i, .rounds = ROUNDS};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        assert_true(atomic_load(&w[i].done));
    }
}

/* Who drives and waits for a key hears of it at once, and of its deadline. */
static void waiting_drives(void **state)
{
    struct berth_view v;
    pthread_t t;
    struct worker w = {.number = 7, .rounds = 1};
    (void)state;
    open_nodes(1);
    int64_t until = berth_deadline(SECONDS(1) / 20);
    assert_int_equal(berth_get(node[0], key_of("never"), &v, BERTH_WAIT, until), -ETIMEDOUT);
    assert_true(berth_deadline(0) >= until);
    assert_int_equal(pthread_create(&t, NULL, work, &w), 0);
    assert_int_equal(berth_get(node[0], key_of("t7-0"), &v, BERTH_WAIT, berth_deadline(SECONDS(30))), 0);
    berth_release(node[0], &v, 1);
    pthread_join(t, NULL);
}

static void *on_a_small_stack(void *arg)
{
    struct worker *w = arg;
    struct berth_view v;
    put_and_look(node[0], "small", 4000);
    put_and_look(node[0], "large", 3 << 20);
    assert_int_equal(berth_get(node[1], key_of("large"), &v, BERTH_PEERS, berth_deadline(SECONDS(30))), 0);
    berth_release(node[1], &v, 1);
    uint8_t *into = malloc(4000);
    assert_non_null(into);
    assert_int_equal(
        berth_get_into(node[1], key_of("small"), into, 4000, BERTH_PEERS | BERTH_FRESH, berth_deadline(SECONDS(30))),
        4000);
    free(into);
    char *text = NULL;
    assert_int_equal(berth_query(node[0], BERTH_STATUS, NULL, &text), 0);
    free(text);
    atomic_store(&w->done, 1);
    return NULL;
}

static bool met(void *arg)
{
    struct berth_view v;
    (void)arg;
    bool is = berth_get(node[1], key_of("hello"), &v, BERTH_PEERS, berth_deadline(SECONDS(5))) == 0;
    if (is) {
        berth_release(node[1], &v, 1);
    }
    return is;
}

static void small_stack(void **state)
{
    pthread_attr_t a;
    pthread_t t;
    struct worker w = {0};
    (void)state;
    open_nodes(2);
    put_and_look(node[0], "hello", 100);
    assert_true(eventually(met, NULL, 20000));
    pthread_attr_init(&a);
    assert_int_equal(pthread_attr_setstacksize(&a, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&t, &a, on_a_small_stack, &w), 0);
    pthread_attr_destroy(&a);
    pthread_join(t, NULL);
    assert_true(atomic_load(&w.done));
}

static _Atomic int waits;

static void *wait_for_ever(void *arg)
{
    struct berth_view v;
    atomic_store(&waits, 1);
    /* The call is no place to be cancelled in: the deadline ends it, and the thread ends behind it. */
    int rc = berth_get(node[0], key_of("never"), &v, BERTH_WAIT, berth_deadline(SECONDS(1)));
    atomic_store(&waits, rc == -ETIMEDOUT ? 2 : 3);
    pthread_testcancel();
    return arg;
}

static void cancelled_thread(void **state)
{
    pthread_t t;
    void *result;
    (void)state;
    open_nodes(1);
    assert_int_equal(pthread_create(&t, NULL, wait_for_ever, NULL), 0);
    while (!atomic_load(&waits)) {
        sched_yield();
    }
    put_and_look(node[0], "beside", 100); /* it waits by now, or will find itself cancelled when it begins */
    pthread_cancel(t);
    pthread_join(t, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(atomic_load(&waits), 2);
    put_and_look(node[0], "after", 100);
}

/* The node's thread is kept out by callers that follow each other; others are served nevertheless. */
static void others_are_served(void **state)
{
    pthread_t t;
    struct worker w = {.number = 1, .rounds = ROUNDS};
    uint8_t back[2000], data[2000];
    unsigned pulls = 0;
    (void)state;
    open_nodes(2);
    put_and_look(node[0], "hello", 100);
    assert_true(eventually(met, NULL, 20000));
    put_and_look(node[0], "served", sizeof data);
    payload_fill(data, sizeof data, "served");
    assert_int_equal(pthread_create(&t, NULL, work, &w), 0);
    while (!atomic_load(&w.done) || pulls < 10) {
        memset(back, 0, sizeof back);
        assert_int_equal(berth_get_into(node[1], key_of("served"), back, sizeof back, BERTH_PEERS | BERTH_FRESH,
                                        berth_deadline(SECONDS(30))),
                         (long)sizeof back);
        assert_memory_equal(back, data, sizeof back);
        pulls++;
    }
    pthread_join(t, NULL);
}

/* Calls that are answered in their first pass keep the node's thread away, one after the other: sockets are looked at
 * all the same. */
static void quick_calls_look_at_sockets(void **state)
{
    (void)state;
    open_nodes(1);
    put_and_look(node[0], "k", 10);
    struct server *s = node[0]->server;
    unsigned seen = 0;
    int64_t before = 0;
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned k = 0; k < 1000; k++) {
            struct berth_stat r;
            assert_int_equal(berth_stat(node[0], key_of("k"), &r), 0);
        }
        if (baton_take(&s->baton)) { /* else the node's thread is at it */
            assert_true(s->polled > before);
            before = s->polled;
            seen++;
            baton_give(&s->baton);
        }
    }
    assert_true(seen > 0);
}

static int gate[2];
static _Atomic int held_up;
static _Atomic pid_t waiter_id;

static void hold_up(int number)
{
    char byte;
    (void)number;
    atomic_store(&held_up, 1);
    while (read(gate[0], &byte, 1) < 0) {
        continue;
    }
}

static void *wait_long(void *arg)
{
    struct berth_view v;
    atomic_store(&waiter_id, gettid());
    assert_int_equal(berth_get(node[0], key_of("never"), &v, BERTH_WAIT, berth_deadline(SECONDS(60))), 0);
    berth_release(node[0], &v, 1);
    return arg;
}

static bool waiter_sleeps(void *arg)
{
    char path[64], stat[512] = "";
    (void)arg;
    if (!atomic_load(&waiter_id)) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter_id));
    pthread_mutex_lock(&node[0]->lock);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(stat, 1, sizeof stat - 1, f) : 0;
    if (f) {
        fclose(f);
    }
    const char *at = n ? strrchr(stat, ')') : NULL;
    bool sleeps = (node[0]->calls.driving || node[0]->calls.dozing) && at && at[2] == 'S';
    pthread_mutex_unlock(&node[0]->lock);
    return sleeps;
}

/* Who leads, or does the node's work, is caught in a signal handler: the others' deadlines hold nevertheless. */
static void deadline_beside_a_thread_held_up(void **state)
{
    struct sigaction sa = {.sa_handler = hold_up}, old;
    struct berth_view v;
    pthread_t t;
    (void)state;
    open_nodes(1);
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
    assert_int_equal(pthread_create(&t, NULL, wait_long, NULL), 0);
    assert_true(eventually(waiter_sleeps, NULL, 20000));
    pthread_kill(t, SIGUSR1);
    while (!atomic_load(&held_up)) {
        sched_yield();
    }
    assert_int_equal(berth_get(node[0], key_of("nothing"), &v, BERTH_WAIT, berth_deadline(SECONDS(1) / 50)),
                     -ETIMEDOUT);
    assert_int_equal(write(gate[1], "x", 1), 1);
    put_and_look(node[0], "never", 10);
    pthread_join(t, NULL);
    sigaction(SIGUSR1, &old, NULL);
    close(gate[0]);
    close(gate[1]);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, close_nodes)
    const struct CMUnitTest tests[] = {
        CASE(threads_of_one_handle),
        CASE(waiting_drives),
        CASE(small_stack),
        CASE(cancelled_thread),
        CASE(others_are_served),
        CASE(quick_calls_look_at_sockets),
        CASE(deadline_beside_a_thread_held_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
