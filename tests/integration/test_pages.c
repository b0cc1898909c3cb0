/* test_pages.c: what a node says of the pages that its region lies on is what the kernel says of the process. */
#include "store/map.h"
#include "store/shell/pages.h"
#include "tests/support/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE (2u << 20)

static struct daemon d;

/* Bytes of the daemon's mappings of a file of its region that lie on pages of 2 MiB. */
static double huge_of(const char *file)
{
    char path[64], line[512], name[160];
    uint64_t sum = 0, kib;
    bool within = false;
    unsigned long from, to;
    snprintf(path, sizeof path, "/proc/%d/smaps", (int)d.pid);
    snprintf(name, sizeof name, "%s/%s", d.region, file);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            within = strstr(line, name) != NULL;
        else if (within && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
            sum += kib << 10;
    }
    fclose(f);
    return (double)sum;
}

/* Both ways of asking say the same, of a part on large pages between two on small ones. */
static void test_two_ways_agree(void **state)
{
    (void)state;
    char path[] = "/dev/shm/berth-test-pages-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, 6 * HUGE), 0);
    uint8_t *map = map_shared(fd, 6 * HUGE, PROT_READ | PROT_WRITE);
    assert_non_null(map);
    memset(map, 1, 6 * HUGE);
    bool has = map_collapse(map, HUGE, 3 * HUGE);
    char other_path[] = "/dev/shm/berth-test-pages-XXXXXX"; /* is not counted */
    int other_fd = mkstemp(other_path);
    assert_true(other_fd >= 0);
    unlink(other_path);
    assert_int_equal(ftruncate(other_fd, 2 * HUGE), 0);
    uint8_t *other = map_shared(other_fd, 2 * HUGE, PROT_READ | PROT_WRITE);
    assert_non_null(other);
    memset(other, 1, 2 * HUGE);
    map_collapse(other, 0, 2 * HUGE);
    uint64_t scanned = 1, smaps = 1, huge = 1;
    assert_int_equal(pages_smaps(map, 6 * HUGE, &smaps), 0);
    assert_int_equal(pages_huge(map, 6 * HUGE, &huge), 0);
    assert_int_equal(smaps, huge);
    assert_true(!has || huge == 2 * HUGE || BERTH_MAP_ONCE);
    int e = pages_scan(map, 6 * HUGE, &scanned);
    assert_true(e == 0 ? scanned == smaps : e == -ENOTTY || e == -EINVAL);
    unmap_shared(other, 2 * HUGE);
    unmap_shared(map, 6 * HUGE);
    close(other_fd);
    close(fd);
}

static bool kernel_has_them(void)
{
    char path[] = "/dev/shm/berth-test-pages-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, 2 * HUGE), 0);
    uint8_t *map = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    uint8_t *at = map + (-(uintptr_t)map % HUGE);
    *at = 1;
    bool has = madvise(at, HUGE, MADV_COLLAPSE) == 0;
    munmap(map, 2 * HUGE);
    close(fd);
    return has;
}

static void as_the_kernel_says(struct berth *b)
{
    assert_true(daemon_number(b, "region.pages.pool.bytes") == 64 << 20);
    assert_true(daemon_number(b, "region.pages.pool.huge_bytes") == huge_of("pool-0"));
    assert_true(daemon_number(b, "region.pages.lookup.huge_bytes") == huge_of("lookup"));
    assert_true(daemon_metric(b, "berth_pages_bytes{part=\"pool\"}") == 64 << 20);
    assert_true(daemon_metric(b, "berth_pages_huge_bytes{part=\"pool\"}") == huge_of("pool-0"));
    assert_true(daemon_metric(b, "berth_pages_huge_bytes{part=\"lookup\"}") == huge_of("lookup"));
}

static void test_where_there_are_huge_pages(void **state)
{
    (void)state;
    daemon_start(&d, (const char *[]){"--pool", "64MiB", "--max-objects", "400000", NULL});
    struct berth *b = daemon_open(&d, "asks");
    as_the_kernel_says(b);
    assert_true(daemon_number(b, "region.pages.lookup.bytes") >= 4 * HUGE);
    if (kernel_has_them()) {
        assert_true(huge_of("pool-0") > 0);
        assert_true(daemon_says(&d, "on pages of 2 MiB: pool ", 0));
    }
    bool all = huge_of("pool-0") == 64 << 20;
    assert_true(
        daemon_says(&d, " info on pages of 2 MiB: pool 64 MiB, lookup ", 0) ==
        (all && daemon_number(b, "region.pages.lookup.huge_bytes") == daemon_number(b, "region.pages.lookup.bytes")));
    berth_close(b);
    daemon_end(&d);
}

static void test_where_there_are_none(void **state)
{
    (void)state;
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
        skip();
    daemon_start(&d, (const char *[]){"--pool", "64MiB", NULL});
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    struct berth *b = daemon_open(&d, "asks");
    as_the_kernel_says(b);
    assert_true(huge_of("pool-0") == 0);
    assert_true(daemon_says(&d, " warning on pages of 2 MiB: pool 0 B of 64 MiB", 0));
    assert_true(daemon_says(&d, "populating three times as long", 0));
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ways_agree),
        cmocka_unit_test(test_where_there_are_huge_pages),
        cmocka_unit_test(test_where_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
