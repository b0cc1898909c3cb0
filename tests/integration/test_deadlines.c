/* Deadlines hold whatever the caller's own node does: it is stopped, in the middle of anything, or it is gone and what
 * has its place takes connections and says nothing. The bounds are those of berth.h, with room for a busy machine: of
 * a few tries the best counts.
 */
#include "tests/support/daemon.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define MS(n) ((n)*INT64_C(1000000))
#define TRIES 5u
#define DEADLINE MS(100)
#define LATE MS(80) /* berth.h says 50 ms; what was there before waited 200, 2,000 and more */
#define SIZE 5000u

static struct daemon d;
static struct berth *b;
static uint8_t data[SIZE], out[SIZE];

static void open_it(void)
{
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = MS(3000)};
    assert_int_equal(berth_open(&b, d.node, &o), 0);
    assert_int_equal(berth_put(b, key_of("here"), data, SIZE, NULL), 0); /* slots are at hand */
}

static int setup(void **unused)
{
    (void)unused;
    daemon_start(&d, (const char *[]){"--pool", "8M", "--lock", "off", NULL});
    open_it();
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    if (d.pid > 0) {
        kill(d.pid, SIGCONT);
    }
    berth_close(b);
    daemon_end(&d);
    return 0;
}

/* ---- calls ---- */

static long get_waits(unsigned i, int64_t until)
{
    struct berth_view v;
    (void)i;
    return berth_get(b, key_of("nowhere"), &v, BERTH_WAIT, until);
}

static long get_peers(unsigned i, int64_t until)
{
    struct berth_view v;
    (void)i;
    return berth_get(b, key_of("nowhere"), &v, BERTH_PEERS, until);
}

static long get_many(unsigned i, int64_t until)
{
    struct berth_key keys[2] = {key_of("nowhere"), key_of("there")};
    struct berth_view v[2];
    long n = berth_get_many(b, keys, 2, v, BERTH_WAIT, until);
    (void)i;
    return n == 0 ? v[1].status : n;
}

static long get_into(unsigned i, int64_t until)
{
    (void)i;
    return berth_get_into(b, key_of("nowhere"), out, SIZE, BERTH_PEERS | BERTH_WAIT, until);
}

static long put_at_hand(unsigned i, int64_t until)
{
    struct berth_put_opts o = {.size = sizeof o, .deadline = until, .flags = BERTH_PUBLISHED};
    char key[16];
    snprintf(key, sizeof key, "put%u", i);
    return berth_put(b, key_of(key), data, SIZE, &o);
}

static long put_large(unsigned i, int64_t until)
{
    static uint8_t large[100000];
    struct berth_put_opts o = {.size = sizeof o, .deadline = until};
    char key[16];
    snprintf(key, sizeof key, "large%u", i);
    return berth_put(b, key_of(key), large, sizeof large, &o);
}

static long create(unsigned i, int64_t until)
{
    struct berth_put_opts o = {.size = sizeof o, .deadline = until, .flags = BERTH_JOIN};
    struct berth_draft draft;
    char key[16];
    snprintf(key, sizeof key, "create%u", i);
    return berth_create(b, key_of(key), SIZE, &o, &draft);
}

static const struct {
    const char *name;
    long (*run)(unsigned i, int64_t until);
} calls[] = {{"get, WAIT", get_waits}, {"get, PEERS", get_peers},       {"get_many, WAIT", get_many},
             {"get_into", get_into},   {"put, PUBLISHED", put_at_hand}, {"put, large", put_large},
             {"create", create}};

/* All of them say -ETIMEDOUT, and in time. */
static void expect_in_time(void)
{
    for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++) {
        int64_t best = INT64_MAX;
        for (unsigned i = 0; i < TRIES && best > LATE; i++) {
            int64_t until = berth_deadline(DEADLINE);
            long rc = calls[c].run(i, until);
            int64_t late = berth_deadline(0) - until;
            best = late < best ? late : best;
            if (rc != -ETIMEDOUT || late < 0) {
                fail_msg("%s: %s, %lld ns late", calls[c].name, berth_error_name((int)rc), (long long)late);
            }
        }
        if (best > LATE) {
            fail_msg("%s: %lld ns late", calls[c].name, (long long)best);
        }
    }
}

static bool puts_again(void *unused)
{
    struct berth_put_opts o = {.size = sizeof o, .deadline = berth_deadline(MS(2000))};
    (void)unused;
    return berth_put(b, key_of("after"), data, SIZE, &o) >= 0;
}

/* ---- tests ---- */

static void test_stopped(void **unused)
{
    (void)unused;
    assert_int_equal(kill(d.pid, SIGSTOP), 0);
    expect_in_time();
    assert_int_equal(kill(d.pid, SIGCONT), 0);
    assert_true(eventually(puts_again, NULL, 20000));
}

/* What takes connections at the node's socket and answers none: so is a node that has just started and is stopped. */
static int deaf(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", d.socket);
    unlink(d.socket);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

/* Gets that find their key look after the node in passing, and wait for nothing. */
static void expect_gets_at_once(void)
{
    int64_t worst[TRIES] = {0}, best = INT64_MAX;
    for (unsigned i = 0; i < TRIES; i++) {
        for (int64_t end = berth_deadline(MS(250)); berth_deadline(0) < end;) {
            struct berth_view v;
            int64_t from = berth_deadline(0);
            assert_int_equal(berth_get(b, key_of("here"), &v, 0, BERTH_NOW), 0);
            berth_release(b, &v, 1);
            int64_t took = berth_deadline(0) - from;
            worst[i] = took > worst[i] ? took : worst[i];
        }
        best = worst[i] < best ? worst[i] : best;
    }
    assert_true(best < LATE);
}

static void test_deaf(void **unused)
{
    (void)unused;
    daemon_kill(&d);
    int fd = deaf();
    expect_in_time();
    expect_gets_at_once();
    close(fd);
    unlink(d.socket);
    daemon_again(&d);
    assert_true(eventually(puts_again, NULL, 20000));
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of("here"), &v, BERTH_VERIFY, BERTH_NOW), 0); /* the session went on */
    berth_release(b, &v, 1);
}

/* Its queue is full: there is not even a connection. */
static void test_full_queue(void **unused)
{
    (void)unused;
    int fds[64], n = 0;
    daemon_kill(&d);
    int fd = deaf();
    assert_int_equal(listen(fd, 1), 0);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", d.socket);
    do {
        fds[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    } while (connect(fds[n++], (struct sockaddr *)&to, sizeof to) == 0 && n < 64);
    assert_int_equal(errno, EAGAIN);
    expect_in_time();
    struct berth *other;
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = MS(100)};
    int64_t until = berth_deadline(MS(2000));
    assert_int_equal(berth_open(&other, d.node, &o), BERTH_ENODE);
    assert_true(berth_deadline(0) < until);
    while (n > 0) {
        close(fds[--n]);
    }
    close(fd);
    unlink(d.socket);
    daemon_again(&d);
    assert_true(eventually(puts_again, NULL, 20000));
}

/* A buffer has to be made known to the node again, after an attachment: that waits no longer than the call may. */
static void test_registered(void **unused)
{
    (void)unused;
    void *buffer;
    uint32_t id;
    int64_t best = INT64_MAX;
    assert_int_equal(berth_buffer_alloc(b, SIZE, &buffer, &id), 0);
    daemon_kill(&d);
    daemon_again(&d);
    assert_true(eventually(puts_again, NULL, 20000));
    assert_int_equal(kill(d.pid, SIGSTOP), 0);
    for (unsigned i = 0; i < TRIES && best > 2 * LATE; i++) { /* two questions: for the buffer and for the key */
        int64_t until = berth_deadline(DEADLINE);
        assert_int_equal(berth_get_into(b, key_of("nowhere"), buffer, SIZE, BERTH_PEERS, until), -ETIMEDOUT);
        int64_t late = berth_deadline(0) - until;
        best = late < best ? late : best;
    }
    assert_true(best <= 2 * LATE);
    assert_int_equal(kill(d.pid, SIGCONT), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_stopped),
        T(test_deaf),
        T(test_full_queue),
        T(test_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
