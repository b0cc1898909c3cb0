/* Case A14: a crashed node's files never keep the next from starting; a live one's are never touched. */
#include "tests/support/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OBJECT (1u << 20)

static char mount_dir[64];

static void place(struct daemon *d, const char *name)
{
    *d = (struct daemon){.extra = {"--pool", "200MiB", "--max-objects", "10000", "--index-size", "4MiB"}};
    snprintf(d->dir, sizeof d->dir, "%s", mount_dir);
    snprintf(d->region, sizeof d->region, "%s/%s", mount_dir, name);
    snprintf(d->socket, sizeof d->socket, "%s/%s.sock", mount_dir, name);
    snprintf(d->node, sizeof d->node, "unix:%s", d->socket);
}

static void fill(struct daemon *d)
{
    struct berth *b = daemon_open(d, "filler");
    char key[16], *data = calloc(1, OBJECT);
    for (int i = 0; i < 150; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_true(berth_put(b, key_of(key), data, OBJECT, NULL) >= 0);
    }
    free(data);
    berth_close(b);
}

/* A client needs a pin table of its own: where there is no room for one, it is told what to do. */
static void no_room_for_a_client(struct daemon *d)
{
    static const char zeros[OBJECT];
    char path[80];
    struct berth *b;
    struct berth_error_info e;
    snprintf(path, sizeof path, "%s/filler", mount_dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (ssize_t n = OBJECT; n > 0;)
        n = write(fd, zeros, sizeof zeros);
    assert_int_equal(errno, ENOSPC);
    close(fd);
    assert_true(berth_open(&b, d->node, NULL) < 0);
    berth_error(NULL, &e);
    assert_non_null(strstr(e.sentence, "remove files that are not needed"));
    unlink(path);
    assert_int_equal(berth_open(&b, d->node, NULL), 0);
    berth_close(b);
}

static void test_leftovers(void **state)
{
    (void)state;
    struct daemon d, other;
    place(&d, "berth-one");
    daemon_again(&d);
    for (int i = 0; i < 5; i++) {
        fill(&d);
        daemon_kill(&d);
        daemon_again(&d);
        assert_true(daemon_says(&d, "recovered", 0));
    }
    /* A second node beside a live one: the live one's files stay, and the sentence has the figures. */
    place(&other, "berth-two");
    assert_int_equal(daemon_try(&other), 5);
    assert_non_null(strstr(other.text, "needs"));
    assert_non_null(strstr(other.text, "free"));
    assert_non_null(strstr(other.text, mount_dir));
    struct berth *b = daemon_open(&d, "after");
    struct berth_view v;
    assert_int_equal(berth_get(b, key_of("k149"), &v, BERTH_VERIFY, BERTH_FOREVER), 0);
    berth_release(b, &v, 1);
    berth_close(b);
    /* The same region twice. */
    struct daemon twin = d;
    twin.log = 0;
    assert_int_equal(daemon_try(&twin), 5);
    char held[64];
    snprintf(held, sizeof held, "held by pid %d", (int)d.pid);
    assert_non_null(strstr(twin.text, held));
    /* A dead node's region stays, for it may start again; the refusal says how to have its room. */
    char command[160];
    daemon_kill(&d);
    assert_int_equal(daemon_try(&other), 5);
    snprintf(command, sizeof command, "if it is not wanted, rm -r %s\n", d.region);
    assert_non_null(strstr(other.text, command));
    daemon_again(&d);
    assert_true(daemon_says(&d, "warm restart with", 0));
    daemon_kill(&d);
    snprintf(command, sizeof command, "rm -r %s", d.region);
    assert_int_equal(system(command), 0);
    daemon_again(&other);
    fill(&other);
    no_room_for_a_client(&other);
    assert_int_equal(daemon_stop(&other), 0);
    close(twin.log);
    close(d.log);
    close(other.log);
}

int main(void)
{
    snprintf(mount_dir, sizeof mount_dir, "/tmp/berth-a14-XXXXXX");
    if (!mkdtemp(mount_dir) || geteuid() != 0 || mount("berth-a14", mount_dir, "tmpfs", 0, "size=300m") != 0) {
        rmdir(mount_dir);
        printf("SKIP: needs root to mount a small tmpfs\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leftovers)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    umount2(mount_dir, MNT_DETACH);
    rmdir(mount_dir);
    return failed;
}
