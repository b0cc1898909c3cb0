/* test_map.c: shared mappings: what one side writes the other reads, and a forked child has none. */
#include "store/map.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 8192u

static int memory(void)
{
    int fd = memfd_create("map", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    return fd;
}

static void two_mappings_share_bytes(void **unused)
{
    (void)unused;
    int fd = memory();
    volatile char *a = map_shared(fd, BYTES, PROT_READ | PROT_WRITE);
    volatile char *b = map_shared(fd, BYTES, PROT_READ);
    assert_non_null((const void *)a);
    assert_non_null((const void *)b);
    close(fd);
    a[BYTES - 1] = 7;
    assert_int_equal(b[BYTES - 1], 7);
    if (BERTH_MAP_ONCE)
        assert_ptr_equal((const void *)a, (const void *)b);
    else
        assert_ptr_not_equal((const void *)a, (const void *)b);
    unmap_shared((void *)a, BYTES);
    assert_int_equal(b[BYTES - 1], 7); /* one user's end leaves the other's mapping */
    unmap_shared((void *)b, BYTES);
}

/* Which signal ends a child that touches the mapping; 0: none. */
static int touch_in_child(volatile char *map)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(map[0]);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_forked_child_has_no_mapping(void **unused)
{
    (void)unused;
    int fd = memory();
    volatile char *map = map_shared(fd, BYTES, PROT_READ | PROT_WRITE);
    assert_non_null((const void *)map);
    close(fd);
    assert_int_equal(touch_in_child(map), SIGSEGV);
    assert_int_equal(madvise((void *)map, BYTES, MADV_DOFORK), 0);
    assert_int_equal(touch_in_child(map), 0);
    unmap_shared((void *)map, BYTES);
}

static void a_bad_descriptor_is_an_error(void **unused)
{
    (void)unused;
    errno = 0;
    assert_null(map_shared(-1, BYTES, PROT_READ));
    assert_int_equal(errno, EBADF);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_null(map_shared(fd, BYTES, PROT_READ));
    close(fd);
    unmap_shared(NULL, BYTES);
}

/* A mapping that could have huge pages lies where they fit, and collapsing it changes no byte under a reader. */
static void a_large_mapping_can_be_collapsed(void **unused)
{
    (void)unused;
    const uint64_t bytes = 3 * HUGE_BYTES + 4096;
    int fd = memfd_create("map", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    uint8_t *a = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    const uint8_t *b = map_shared(fd, bytes, PROT_READ);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % HUGE_BYTES, 0);
    assert_int_equal((uintptr_t)b % HUGE_BYTES, 0);
    for (uint64_t i = 0; i < bytes; i += 4096)
        a[i] = (uint8_t)(i >> 12);
    map_collapse(a, 4096, bytes);
    map_collapse(a, 0, HUGE_BYTES - 1);
    assert_true(map_collapse(a, bytes, 0)); /* nothing to do */
    for (uint64_t i = 0; i < bytes; i += 4096)
        assert_int_equal(b[i], (uint8_t)(i >> 12));
    a[bytes - 1] = 9; /* the last page was left as it is */
    assert_int_equal(b[bytes - 1], 9);
    unmap_shared(a, bytes);
    unmap_shared((void *)(uintptr_t)b, bytes);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_mappings_share_bytes),
        cmocka_unit_test(a_forked_child_has_no_mapping),
        cmocka_unit_test(a_bad_descriptor_is_an_error),
        cmocka_unit_test(a_large_mapping_can_be_collapsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
