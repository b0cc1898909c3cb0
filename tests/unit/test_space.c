/* test_space.c: cgroup limits, v1 and v2, of made-up /proc and /sys trees; the sentences of refusals. */
#include "store/shell/space.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void file(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *f = fopen(whole, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make(void **unused)
{
    (void)unused;
    strcpy(root, "/dev/shm/berth-test-space-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int unmake(void **unused)
{
    (void)unused;
    return nftw(root, drop, 16, FTW_DEPTH | FTW_PHYS);
}

static void no_limits(void **unused)
{
    (void)unused;
    uint64_t left;
    char where[200];
    assert_false(space_cgroup(root, &left, where, sizeof where));
    assert_false(space_memory(root, &left));
    file("/proc/self/cgroup", "0::/a/b\n");
    file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    file("/sys/fs/cgroup/a/b/memory.current", "1000\n");
    assert_false(space_cgroup(root, &left, where, sizeof where));
}

static void version_two(void **unused)
{
    (void)unused;
    uint64_t left;
    char where[200];
    file("/proc/self/cgroup", "0::/a/b\n");
    file("/sys/fs/cgroup/a/b/memory.max", "10000000\n");
    file("/sys/fs/cgroup/a/b/memory.current", "4000000\n");
    assert_true(space_cgroup(root, &left, where, sizeof where));
    assert_int_equal(left, 6000000);
    assert_string_equal(where, "/sys/fs/cgroup/a/b/memory.max");
    file("/sys/fs/cgroup/a/b/memory.stat", "anon 7\ninactive_file 500000\nactive_file 250000\nshmem 9\n");
    assert_true(space_cgroup(root, &left, where, sizeof where));
    assert_int_equal(left, 6750000);
    file("/sys/fs/cgroup/a/memory.max", "9000000\n"); /* an ancestor is tighter */
    file("/sys/fs/cgroup/a/memory.current", "8000000\n");
    assert_true(space_cgroup(root, &left, where, sizeof where));
    assert_int_equal(left, 1000000);
    assert_string_equal(where, "/sys/fs/cgroup/a/memory.max");
    file("/sys/fs/cgroup/memory.max", "100\n"); /* the root of a container's own tree */
    file("/sys/fs/cgroup/memory.current", "200\n");
    assert_true(space_cgroup(root, &left, where, sizeof where));
    assert_int_equal(left, 0);
}

static void version_one(void **unused)
{
    (void)unused;
    uint64_t left;
    char where[200];
    file("/proc/self/cgroup", "9:name=systemd:/x\n5:memoryless:/y\n4:cpu,memory:/job/1\n0::/\n");
    file("/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n");
    file("/sys/fs/cgroup/memory/job/1/memory.usage_in_bytes", "100\n");
    file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
    file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n");
    file("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 11\n");
    file("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n");
    file("/sys/fs/cgroup/memory/y/memory.usage_in_bytes", "1\n");
    assert_true(space_cgroup(root, &left, where, sizeof where));
    assert_int_equal(left, 1111);
    assert_string_equal(where, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes");
}

static void refusals(void **unused)
{
    (void)unused;
    char why[400];
    int fd = open(root, O_RDONLY | O_DIRECTORY);
    struct space_need need = {.path = root, .dir_fd = fd, .bytes = 3u << 20, .lock = MEM_LOCK_OFF, .root = root};
    assert_int_equal(space_check(&need, why, sizeof why), 0);
    file("/proc/meminfo", "MemTotal: 9999 kB\nMemAvailable: 2048 kB\n");
    assert_int_equal(space_check(&need, why, sizeof why), -ENOMEM);
    assert_non_null(strstr(why, "needs 3.0 MiB, 2.0 MiB of memory are available"));
    file("/proc/self/cgroup", "0::/a\n");
    file("/sys/fs/cgroup/a/memory.max", "1048576\n");
    file("/sys/fs/cgroup/a/memory.current", "0\n");
    assert_int_equal(space_check(&need, why, sizeof why), -ENOMEM);
    assert_non_null(strstr(why, "needs 3.0 MiB, the cgroup leaves 1.0 MiB ('/sys/fs/cgroup/a/memory.max')"));
    file("/proc/meminfo", "MemTotal: 9999 kB\nMemAvailable: 3100 kB\n");
    file("/sys/fs/cgroup/a/memory.max", "4194304\n");
    assert_int_equal(space_check(&need, why, sizeof why), 0);
    need.own_bytes = 2u << 20; /* counts against the cgroup only */
    assert_int_equal(space_check(&need, why, sizeof why), -ENOMEM);
    assert_non_null(strstr(why, "needs 5.0 MiB, the cgroup leaves 4.0 MiB ('/sys/fs/cgroup/a/memory.max')"));
    file("/sys/fs/cgroup/a/memory.max", "5242880\n");
    assert_int_equal(space_check(&need, why, sizeof why), 0);
    file("/sys/fs/cgroup/a/memory.max", "4194304\n");
    need.freed_bytes = 1u << 20; /* what goes before counts as free */
    assert_int_equal(space_check(&need, why, sizeof why), 0);
    need.freed_bytes = (1u << 20) - 1;
    assert_int_equal(space_check(&need, why, sizeof why), -ENOMEM);
    need.bytes = UINT64_C(1) << 50;
    assert_int_equal(space_check(&need, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "needs 1048576.00 GiB, "));
    assert_non_null(strstr(why, root));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_limits, make, unmake),
        cmocka_unit_test_setup_teardown(version_two, make, unmake),
        cmocka_unit_test_setup_teardown(version_one, make, unmake),
        cmocka_unit_test_setup_teardown(refusals, make, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
