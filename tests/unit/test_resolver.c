/* Names on threads that nobody waits for: an answer, a failure, a question dropped before and after its answer, and a
 * loop that ends while the name service hangs. */
#include "store/shell/resolver.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static sem_t begun, go, ended;
static unsigned calls;

/* Hangs until it is let go. */
static int resolve(const char *address, char *digits, size_t size, char *why, size_t why_size)
{
    sem_post(&begun);
    sem_wait(&go);
    int bad = strncmp(address, "bad", 3) == 0;
    snprintf(bad ? why : digits, bad ? why_size : size, bad ? "no '%s'" : "10.0.0.1:%s", address + 5);
    sem_post(&ended);
    return bad ? -EHOSTUNREACH : 0;
}

static const struct transport slow = {.name = "slow", .resolve = resolve};

static void answered(void *arg)
{
    (void)arg;
    calls++;
}

static struct resolver *open_on(uv_loop_t *loop)
{
    assert_int_equal(uv_loop_init(loop), 0);
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    sem_init(&ended, 0, 0);
    calls = 0;
    struct resolver *r = resolver_open(loop, answered, NULL);
    assert_non_null(r);
    return r;
}

static void close_on(uv_loop_t *loop, struct resolver *r)
{
    resolver_close(r);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static struct resolved outcome_of(uv_loop_t *loop, struct resolver *r, const char *address)
{
    struct question *q;
    struct resolved out;
    assert_int_equal(resolver_ask(r, &slow, address, &q), 0);
    sem_wait(&begun);
    assert_false(question_answered(q, &out));
    assert_int_equal(calls, 0);
    sem_post(&go);
    while (calls == 0) {
        uv_run(loop, UV_RUN_ONCE);
    }
    calls = 0;
    assert_true(question_answered(q, &out));
    return out;
}

static void test_answers(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct resolver *r = open_on(&loop);
    char long_name[TRANSPORT_ADDRESS_MAX + 1];
    struct question *q;
    struct resolved out = outcome_of(&loop, r, "good.7400");
    assert_int_equal(out.status, 0);
    assert_string_equal(out.digits, "10.0.0.1:7400");
    out = outcome_of(&loop, r, "bad.xname");
    assert_int_equal(out.status, -EHOSTUNREACH);
    assert_string_equal(out.why, "no 'name'");
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(resolver_ask(r, &slow, long_name, &q), -ENAMETOOLONG);
    close_on(&loop, r);
}

/* The loop ends at once; the thread ends later and touches nothing of it. */
static void test_dropped(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct resolver *r = open_on(&loop);
    struct question *q;
    assert_int_equal(resolver_ask(r, &slow, "good.1", &q), 0);
    sem_wait(&begun);
    question_drop(q);
    close_on(&loop, r);
    memset(&loop, 0xa5, sizeof loop);
    assert_int_equal(calls, 0);
    sem_post(&go);
    sem_wait(&ended);
}

/* Its answer is there, and nobody has looked. */
static void test_dropped_late(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct resolver *r = open_on(&loop);
    struct question *q;
    assert_int_equal(resolver_ask(r, &slow, "good.1", &q), 0);
    sem_post(&go);
    while (calls == 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    question_drop(q);
    close_on(&loop, r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_dropped),
                                       cmocka_unit_test(test_dropped_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
