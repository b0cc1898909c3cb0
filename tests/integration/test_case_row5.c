/* Row 5 of the field's failures (and A17, between nodes): the wall clock is stepped under nodes that have leases from
 * one another, by a year forth, a year back and 31 s. Leases end after their own time, neither at once nor never;
 * no time left is negative; reads go on; versions only grow. The clock of the daemons alone is stepped, by a library
 * that is put before the system's.
 */
#include "tests/support/wired.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/remote.h"

#define SECONDS(n) ((n)*INT64_C(1000000000))
#define YEAR (INT64_C(365) * 24 * 3600)

static struct wired d;
static struct daemon near, far;
static struct remote reader;
static int64_t *off;
static char buffer[100000];

/* The daemons get the shim, this process does not: it has been loaded. */
static int setup(void **unused)
{
    char path[64] = "/dev/shm/berth-test-clock-XXXXXX", shim[512];
    const char *bin = getenv("BERTH_BIN");
    (void)unused;
    snprintf(shim, sizeof shim, "%s/../tests/preload/wall_clock.so", bin ? bin : "build/release/bin");
    if (SANITIZED) {
        printf("SKIP: no library can be put before a sanitizer's\n");
        exit(77);
    }
    assert_int_equal(access(shim, R_OK), 0);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, sizeof *off) == 0);
    off = mmap(NULL, sizeof *off, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(off != MAP_FAILED);
    close(fd);
    setenv("TEST_WALL_CLOCK", path, 1);
    setenv("LD_PRELOAD", shim, 1);
    wired_init(&d);
    wired_daemon(&d, FAR, &far, "16MiB", (const char *[]){"--lease", "2s", NULL});
    wired_daemon(&d, NEAR, &near, "16MiB", NULL);
    unsetenv("LD_PRELOAD");
    unlink(path);
    wired_meet(&d);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    wired_end(&d);
    return 0;
}

/* Nanoseconds that the reader's lease has left by the owner's report, 0: it is over and about to be ended; -1: it has
 * been ended. No lease in the report has less than nothing or more than the longest one.
 */
static double left(uint64_t lease)
{
    char *text = NULL, id[20];
    double ns = -1;
    size_t i;
    json_t *one;
    snprintf(id, sizeof id, "%016llx", (unsigned long long)lease);
    assert_int_equal(berth_query(d.b[FAR], BERTH_PINS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(root, "leases"), i, one)
    {
        double has = json_number_value(json_object_get(one, "left_ns"));
        assert_true(has >= 0 && has <= 2.6e9); /* 2 s, margin and grace */
        if (strcmp(json_string_value(json_object_get(one, "lease")), id) == 0) {
            ns = has;
        }
    }
    json_decref(root);
    free(text);
    return ns;
}

static void pull(const char *key)
{
    long rc = berth_get_into(d.b[NEAR], key_of(key), buffer, sizeof buffer, BERTH_PEERS, berth_deadline(SECONDS(5)));
    if (rc != 5000) {
        fail_msg("%s: %s", key, berth_error_name((int)rc));
    }
    assert_true(payload_is(buffer, 5000, key));
}

static uint64_t put_anew(const char *key)
{
    struct berth_view v;
    char data[5000];
    payload_fill(data, sizeof data, key);
    int rc = berth_remove(d.b[FAR], key_of(key), NULL);
    assert_true(rc == 0 || rc == -ENOENT);
    assert_int_equal(berth_put(d.b[FAR], key_of(key), data, sizeof data, NULL), 0);
    assert_int_equal(berth_get(d.b[FAR], key_of(key), &v, 0, BERTH_FOREVER), 0);
    uint64_t counter = v.version.counter;
    berth_release(d.b[FAR], &v, 1);
    return counter;
}

static bool has_key(void *key)
{
    return berth_get_into(d.b[NEAR], key_of(key), buffer, sizeof buffer, BERTH_PEERS, berth_deadline(SECONDS(5))) > 0;
}

static void test_stepped(void **unused)
{
    static const int64_t steps[] = {YEAR, -YEAR, 31, -31};
    char address[64], key[16];
    uint64_t last = 0;
    (void)unused;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", d.port[FAR]);
    remote_open(&reader, address, "reader");
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct wire_lease l;
        double expired = daemon_number(d.b[FAR], "counters.leases_expired");
        snprintf(key, sizeof key, "k%u", i);
        uint64_t counter = put_anew(key);
        assert_true(counter > last);
        assert_true(eventually(has_key, key, 20000));
        snprintf(key, sizeof key, "new%u", i);
        put_anew(key);
        int64_t began = berth_deadline(0); /* before the owner's own count of the lease does */
        assert_int_equal(remote_lease(&reader, key, 0, &l), 0);
        *off += steps[i];
        assert_true(left(l.id) > 0); /* not at once */
        assert_int_equal(remote_read(&reader, &l, 0, l.size, buffer), 0);
        assert_true(payload_is(buffer, l.size, key));
        assert_true(eventually(has_key, key, 20000)); /* a pull that begins after it */
        pull(key);
        last = put_anew("again");
        assert_true(last > counter);
        while (left(l.id) >= 0) {
            assert_true(berth_deadline(0) - began < SECONDS(20)); /* nor never */
            remote_turn(&reader, 10);
        }
        assert_true(daemon_number(d.b[FAR], "counters.leases_expired") > expired);
        assert_true(berth_deadline(0) - began >= SECONDS(2));
        assert_int_equal(remote_read(&reader, &l, 0, l.size, buffer), BERTH_ESTALE);
    }
    assert_int_equal(wired_number(&d, NEAR, "downs") + wired_number(&d, FAR, "downs"), 0);
    remote_close(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_stepped, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
