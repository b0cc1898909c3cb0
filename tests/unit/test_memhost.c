/* test_memhost.c: host memory: whole from the start, never changed by a second start, bounded where it is asked. */
#include "store/berth.h"
#include "store/map.h"
#include "store/memkind.h"
#include "store/populate.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (80u << 20) /* three chunks, the last one short */

static char dir[64], path[80], why[300];

static int make(void **unused)
{
    (void)unused;
    strcpy(dir, "/dev/shm/berth-test-memhost-XXXXXX");
    bool made = mkdtemp(dir) != NULL;
    snprintf(path, sizeof path, "%s/pool", dir);
    return made ? 0 : -1;
}

static int unmake(void **unused)
{
    (void)unused;
    unlink(path);
    return rmdir(dir);
}

struct told {
    unsigned calls;
    uint64_t done, total;
};

static void tell(void *arg, uint64_t done, uint64_t total)
{
    struct told *t = arg;
    t->calls++;
    assert_true(done >= t->done && done <= total);
    t->done = done;
    t->total = total;
}

static int reserve(struct mem_pool *p, uint64_t bytes, const struct mem_progress *progress)
{
    return host_memkind.reserve(p, path, bytes, MEM_LOCK_OFF, 3, NULL, progress, why, sizeof why);
}

static unsigned resident(const struct mem_pool *p)
{
    static unsigned char in[BYTES / 4096];
    unsigned n = 0;
    assert_int_equal(mincore(p->base, p->bytes, in), 0);
    for (uint64_t i = 0; i < p->bytes / 4096; i++)
        n += in[i] & 1;
    return n;
}

static void whole_and_kept(void **unused)
{
    (void)unused;
    struct mem_pool p;
    struct told t = {0};
    struct mem_progress progress = {.report = tell, .arg = &t};
    struct stat st;
    assert_int_equal(reserve(&p, BYTES, &progress), 0);
    assert_true(t.calls > 0 && t.done == BYTES && t.total == BYTES);
    assert_int_equal(resident(&p), BYTES / 4096);
    assert_int_equal(fstat(p.fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= BYTES);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (uint64_t i = 0; i < BYTES; i += 4096)
        ((uint8_t *)p.base)[i + i / 4096 % 4096] = (uint8_t)(i / 4096 | 1);
    host_memkind.release(&p);
    assert_int_equal(reserve(&p, BYTES, NULL), 1);
    for (uint64_t i = 0; i < BYTES; i += 4096)
        assert_int_equal(((uint8_t *)p.base)[i + i / 4096 % 4096], (uint8_t)(i / 4096 | 1));
    host_memkind.release(&p);
}

/* For measuring: larger than any file system has room for, and no page of it is taken before it is touched. */
static void sparse(void **unused)
{
    (void)unused;
    struct mem_pool p;
    struct stat st;
    for (int old = 0; old < 2; old++) {
        int made = host_memkind.reserve(&p, path, UINT64_C(1) << 40, MEM_LOCK_OFF, 0, NULL, NULL, why, sizeof why);
        assert_int_equal(made, old);
        assert_int_equal(fstat(p.fd, &st), 0);
        assert_int_equal(st.st_size, INT64_C(1) << 40);
        assert_int_equal(st.st_blocks, old * 8);
        ((uint8_t *)p.base)[4096] = 1;
        host_memkind.release(&p);
    }
}

static void refusals(void **unused)
{
    (void)unused;
    struct mem_pool p = {.fd = -7};
    assert_int_equal(reserve(&p, 0, NULL), -EINVAL);
    assert_int_equal(reserve(&p, 4097, NULL), -EINVAL);
    assert_int_equal(reserve(&p, UINT64_C(1) << 50, NULL), -ENOSPC);
    assert_non_null(strstr(why, "needs 1048576.00 GiB, "));
    assert_non_null(strstr(why, path));
    assert_int_not_equal(access(path, F_OK), 0); /* nothing is left */
    assert_int_equal(reserve(&p, 8192, NULL), 0);
    host_memkind.release(&p);
    assert_int_equal(reserve(&p, 4096, NULL), -EINVAL); /* an old pool of another size is not cut */
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(reserve(&p, 4096, NULL), 0); /* an empty one is an interrupted start */
    host_memkind.release(&p);
    assert_int_equal(truncate(path, 3 * 4096 - 1), 0);
    assert_int_equal(reserve(&p, 8192, NULL), 0); /* and one without its last byte, of a pool of any size */
    host_memkind.release(&p);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(reserve(&p, 8192, NULL), -EINVAL); /* not one of ours */
    unlink(path);
    assert_int_equal(symlink("/dev/shm/elsewhere", path), 0);
    assert_int_equal(reserve(&p, 4096, NULL), -ELOOP);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(reserve(&p, 4096, NULL), -EINVAL);
}

static void views(void **unused)
{
    (void)unused;
    struct mem_pool p, view;
    uint8_t in[5000], out[5000];
    memset(in, 7, sizeof in);
    assert_int_equal(reserve(&p, 1u << 20, NULL), 0);
    assert_int_equal(host_memkind.map(&view, p.fd, (1u << 20) + 4096, 0), -EPROTO);
    assert_int_equal(host_memkind.map(&view, -1, 4096, 0), -EBADF);
    assert_int_equal(host_memkind.map(&view, p.fd, 1u << 20, 0), 0);
    assert_int_equal(host_memkind.copy_in(&p, 4096, in, sizeof in), berth_checksum(in, sizeof in));
    assert_int_equal(host_memkind.publish(&p, 4096, sizeof in), 0);
    assert_int_equal(host_memkind.copy_out(&view, 4096, out, sizeof out), 0);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(host_memkind.copy_out(&view, (1u << 20) - 4, out, 5), -EINVAL);
    assert_int_equal(host_memkind.copy_out(&view, UINT64_MAX, out, 5), -EINVAL);
    host_memkind.unmap(&view);
    assert_null(view.base);
    host_memkind.release(&p);
}

static unsigned long long huge_kib(const void *at)
{
    char line[256];
    unsigned long long from, to, kib = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx", &from, &to) == 2)
            here = from == (uintptr_t)at;
        if (here && sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
            break;
    }
    fclose(f);
    return kib;
}

static bool kernel_has_huge(void)
{
    int fd = memfd_create("probe", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, HUGE_BYTES), 0);
    uint8_t *at = map_shared(fd, HUGE_BYTES, PROT_READ | PROT_WRITE);
    assert_non_null(at);
    at[0] = 1;
    bool has = map_collapse(at, 0, HUGE_BYTES);
    unmap_shared(at, HUGE_BYTES);
    close(fd);
    return has;
}

static void on_huge_pages(void **unused)
{
    (void)unused;
    struct mem_pool p;
    if (!kernel_has_huge())
        skip();
    assert_int_equal(reserve(&p, BYTES + 4096, NULL), 0);
    assert_true(huge_kib(p.base) > 0); /* all of it where memory is not in pieces */
    host_memkind.release(&p);
}

/* The file behind a mapping has no room: an error, no signal. */
static void populate_fails(void **unused)
{
    (void)unused;
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, 4096), 0);
    void *at = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(populate(at, -1, 4096, 2, NULL), 0);
    assert_int_equal(populate(at, -1, 1u << 20, 2, NULL), -EFAULT);
    munmap(at, 1u << 20);
    close(fd);
}

/* A new file on a file system that is full, told from a page that can't be had. */
static void populate_finds_no_room(void **unused)
{
    (void)unused;
    char full[] = "/dev/shm/berth-test-full-XXXXXX";
    assert_non_null(mkdtemp(full));
    pid_t child = fork();
    if (child == 0) {
        char file[64];
        snprintf(file, sizeof file, "%s/pool", full);
        if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", full, "tmpfs", 0, "size=3m") != 0)
            _exit(77);
        int fd = open(file, O_RDWR | O_CREAT, 0600);
        void *at = fd >= 0 && ftruncate(fd, 8u << 20) == 0 ? map_shared(fd, 8u << 20, PROT_READ | PROT_WRITE) : NULL;
        _exit(at != NULL && populate(at, fd, 8u << 20, 2, NULL) == -ENOSPC ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(rmdir(full), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

static bool stop_at(void *arg)
{
    atomic_int *left = arg;
    return atomic_fetch_sub(left, 1) <= 1;
}

static void stopped_between_pieces(void **unused)
{
    (void)unused;
    struct mem_pool p = {.fd = -7};
    atomic_int left;
    int n = 0, e;
    do {
        left = ++n;
        e = reserve(&p, BYTES, &(struct mem_progress){.stop = stop_at, .arg = &left});
        assert_true(e == 0 || (e == -ECANCELED && access(path, F_OK) != 0));
    } while (e != 0);
    assert_true(n > 3); /* asked before each of three chunks */
    host_memkind.release(&p);
    left = 2; /* one that was there stays whole */
    assert_int_equal(reserve(&p, BYTES, &(struct mem_progress){.stop = stop_at, .arg = &left}), -ECANCELED);
    assert_int_equal(reserve(&p, BYTES, NULL), 1);
    host_memkind.release(&p);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)
    const struct CMUnitTest tests[] = {TEST(whole_and_kept),
                                       TEST(sparse),
                                       TEST(refusals),
                                       TEST(views),
                                       TEST(on_huge_pages),
                                       TEST(populate_fails),
                                       TEST(populate_finds_no_room),
                                       TEST(stopped_between_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
