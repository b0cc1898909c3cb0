/* memhost.c: payload in a file on tmpfs (any file system that maps will do), whole from the beginning.
 *
 * A sparse file on a full tmpfs is a SIGBUS at some later put, so every page is allocated and populated here, or the
 * start fails with what is missing; only a pool that is for measuring is left sparse (threads 0). The file gets its
 * last byte last: a file of the full size is a whole one.
 */
#include "store/amount.h"
#include "store/berth.h"
#include "store/layout.h"
#include "store/map.h"
#include "store/null.h"
#include "store/numa.h"
#include "store/populate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int refuse(int error, char *why, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse(int error, char *why, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return error;
}

/* Asked before the first page is taken: on the way to finding out by trying, everyone else's memory goes. */
static int check_space(int fd, const char *path, uint64_t bytes, char *why, size_t why_size)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) != 0 || fs.f_blocks == 0) /* a tmpfs without a size has no blocks */
        return 0;
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (left >= bytes)
        return 0;
    char need[AMOUNT_SIZE], there[AMOUNT_SIZE];
    return refuse(-ENOSPC, why, why_size,
                  "the pool needs %s, %s free at '%s': make the pool smaller, or the file system larger "
                  "(mount -o remount,size=)",
                  amount(bytes, need), amount(left, there), path);
}

static int refuse_errno(const char *what, const char *path, char *why, size_t why_size)
{
    int e = errno;
    return refuse(-e, why, why_size, "can't %s '%s': %s", what, path, strerror(e));
}

/* A pool's file lacks its last byte while it is made: every page lies within it and can be had. */
static bool is_unfinished(off_t size)
{
    return size == 0 || size % PAGE_BYTES == PAGE_BYTES - 1;
}

static int begin_file(int fd, const char *path, uint64_t bytes, bool sparse, char *why, size_t why_size)
{
    int short_of = sparse ? 0 : check_space(fd, path, bytes, why, why_size);
    if (short_of != 0)
        return short_of;
    return ftruncate(fd, (off_t)bytes - 1) == 0 ? 0 : refuse_errno("size", path, why, why_size);
}

/* 0: made new, not whole yet; 1: whole from before. *made tells whether a failure removes the file. */
static int open_file(int *out, const char *path, uint64_t bytes, bool sparse, int *made, char *why, size_t why_size)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    *made = 0;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT | O_EXCL, 0600);
        *made = fd >= 0;
    }
    if (fd < 0)
        return refuse_errno("open", path, why, why_size);
    struct stat st;
    char has[AMOUNT_SIZE], wants[AMOUNT_SIZE];
    int e;
    if (fstat(fd, &st) != 0)
        e = refuse_errno("stat", path, why, why_size);
    else if (!S_ISREG(st.st_mode))
        e = refuse(-EINVAL, why, why_size, "'%s' is no regular file: choose another region directory", path);
    else if ((uint64_t)st.st_size == bytes)
        e = 1;
    else if (!is_unfinished(st.st_size))
        e = refuse(-EINVAL, why, why_size, "'%s' has %s, not %s: set the old pool size, or remove the region", path,
                   amount((uint64_t)st.st_size, has), amount(bytes, wants));
    else {
        *made = 1; /* what an interrupted start left */
        e = begin_file(fd, path, bytes, sparse, why, why_size);
    }
    if (e >= 0)
        *out = fd;
    else
        close(fd);
    return e;
}

/* Writes into why[] why it isn't locked; -EPERM where it had to be. */
static int lock_pool(void *base, uint64_t bytes, enum mem_lock lock, char *why, size_t why_size)
{
    if (lock == MEM_LOCK_OFF || mlock(base, bytes) == 0)
        return 0;
    int e = errno;
    struct rlimit limit = {0};
    char size[AMOUNT_SIZE], most[AMOUNT_SIZE];
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (e == EAGAIN)
        return refuse(lock == MEM_LOCK_REQUIRED ? -ENOMEM : 0, why, why_size,
                      "the pool's %s are not locked: some pages can't be had: free memory", amount(bytes, size));
    return refuse(lock == MEM_LOCK_REQUIRED ? -EPERM : 0, why, why_size,
                  "the pool's %s are not locked, the memlock limit is %s: raise it (LimitMEMLOCK=infinity, "
                  "ulimit -l unlimited) or give CAP_IPC_LOCK",
                  amount(bytes, size), amount(limit.rlim_cur, most));
}

/* fd: of a file to be made whole; -1: it is. */
static int populate_pool(void *base, int fd, const char *path, uint64_t bytes, unsigned threads, struct numa_plan *numa,
                         const struct mem_progress *progress, char *why, size_t why_size)
{
    int e = threads > 0 ? populate_on(numa, base, fd, bytes, threads, progress) : 0;
    char size[AMOUNT_SIZE];
    if (e == -ECANCELED)
        return refuse(e, why, why_size, "stopped before the pool was whole");
    if (e == -EFAULT || e == -ENOMEM)
        return refuse(-ENOMEM, why, why_size,
                      "can't have all of the %s of '%s' in memory: %s: make the pool smaller, or free memory",
                      amount(bytes, size), path, strerror(-e));
    if (e != 0)
        return refuse(e, why, why_size, "can't allocate the %s of '%s': %s: make the pool smaller, %s",
                      amount(bytes, size), path, strerror(-e),
                      e == -EFBIG ? "or raise the limit on files (ulimit -f)"
                                  : "or choose a directory on a tmpfs with more room");
    return fd < 0 || ftruncate(fd, (off_t)bytes) == 0 ? 0 : refuse_errno("size", path, why, why_size);
}

static int host_reserve(struct mem_pool *p, const char *path, uint64_t bytes, enum mem_lock lock, unsigned threads,
                        struct numa_plan *numa, const struct mem_progress *progress, char *why, size_t why_size)
{
    int fd = -1, made;
    if (why_size > 0)
        why[0] = '\0';
    if (bytes == 0 || bytes % PAGE_BYTES != 0 || bytes > INT64_MAX)
        return refuse(-EINVAL, why, why_size, "a pool of %llu bytes is no multiple of %u", (unsigned long long)bytes,
                      PAGE_BYTES);
    int old = open_file(&fd, path, bytes, threads == 0, &made, why, why_size);
    int e = old < 0 ? old : 0;
    if (e != 0)
        goto unmake;
    void *base = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    if (base == NULL) {
        e = refuse_errno("map", path, why, why_size);
        goto close;
    }
    if (numa != NULL)
        numa_bind(numa, base);
    e = populate_pool(base, old ? -1 : fd, path, bytes, threads, numa, progress, why, why_size);
    e = e != 0 ? e : lock_pool(base, bytes, lock, why, why_size);
    if (e != 0)
        goto unmap;
    if (numa != NULL)
        numa_look(numa, base, old != 0);
    *p = (struct mem_pool){.base = base, .bytes = bytes, .fd = fd, .page_bytes = PAGE_BYTES};
    return old;

unmap:
    unmap_shared(base, bytes);
close:
    close(fd);
unmake:
    if (made)
        unlink(path);
    return e;
}

static void host_unmap(struct mem_pool *p)
{
    unmap_shared(p->base, p->bytes);
    p->base = NULL;
}

static void host_release(struct mem_pool *p)
{
    host_unmap(p);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

static int host_map(struct mem_pool *p, int fd, uint64_t bytes, int writable)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (bytes == 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return -EPROTO;
    void *base = map_shared(fd, bytes, PROT_READ | (writable ? PROT_WRITE : 0));
    if (base == NULL)
        return -errno;
    *p = (struct mem_pool){.base = base, .bytes = bytes, .fd = -1, .page_bytes = PAGE_BYTES};
    return 0;
}

static uint64_t host_copy_in(struct mem_pool *p, uint64_t offset, const void *src, size_t n)
{
    return berth_copy((uint8_t *)p->base + offset, src, n);
}

static int host_copy_out(const struct mem_pool *p, uint64_t offset, void *dst, size_t n)
{
    if (offset > p->bytes || n > p->bytes - offset)
        return -EINVAL;
    memcpy(dst, (const uint8_t *)p->base + offset, n);
    return 0;
}

/* The CPU's caches are coherent with a NIC's reads; what non-temporal stores left behind is not before a fence. */
static int host_publish(struct mem_pool *p, uint64_t offset, uint64_t bytes)
{
    (void)p, (void)offset, (void)bytes;
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
    atomic_thread_fence(memory_order_release);
    return 0;
}

const struct memkind host_memkind = {
    "host",       host_reserve,  host_release,      host_map,     host_unmap,
    host_copy_in, host_copy_out, null_register_nic, host_publish,
};
