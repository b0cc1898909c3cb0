/* Case A18: somebody removes the files of a running service: nothing is lost, no second pool comes up in silence. */
#include "tests/support/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct daemon d;

static void put(struct berth *b, const char *key)
{
    char data[4096];
    payload_fill(data, sizeof data, key);
    assert_int_equal(berth_put(b, key_of(key), data, sizeof data, NULL), 0);
}

static void verify(struct berth *b, const char *key)
{
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of(key), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
    assert_true(payload_is(v.data, v.size, key));
    berth_release(b, &v, 1);
}

/* That it is there is not enough: it is bound before it is listened at. */
static bool socket_answers(void *arg)
{
    (void)arg;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", d.socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool answers = connect(fd, (struct sockaddr *)(void *)&at, sizeof at) == 0;
    close(fd);
    return answers;
}

static void test_unlinked(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    struct berth *a = daemon_open(&d, "a"), *b = daemon_open(&d, "b");
    put(a, "before");
    char pool[160];
    snprintf(pool, sizeof pool, "%s/pool-0", d.region);
    assert_int_equal(unlink(pool), 0);
    verify(b, "before");
    put(b, "after the pool file went");
    assert_true(daemon_says(&d, "pool-0", 15000)); /* names the file */
    assert_int_equal(unlink(d.socket), 0);
    verify(a, "after the pool file went");
    assert_true(eventually(socket_answers, NULL, 15000));
    struct berth *late = daemon_open(&d, "late"); /* the same pool, by descriptor */
    verify(late, "before");
    put(late, "from a new client");
    verify(a, "from a new client");
    berth_close(a);
    berth_close(b);
    berth_close(late);
    assert_int_equal(daemon_stop(&d), 0);
    daemon_again(&d); /* its pool is gone: an empty one, and the log says why */
    assert_true(daemon_says(&d, "empty", 0) || daemon_says(&d, "new", 0));
    struct berth *again = daemon_open(&d, "again");
    assert_int_equal(daemon_number(again, "slots.objects"), 0);
    put(again, "fresh");
    berth_close(again);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unlinked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
