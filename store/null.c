/* null.c: a kind of memory that can do nothing: the ground that every other kind's table stands on. */
#include "store/null.h"

#include <errno.h>
#include <stdio.h>

static int null_reserve(struct mem_pool *p, const char *path, uint64_t bytes, enum mem_lock lock, unsigned threads,
                        struct numa_plan *numa, const struct mem_progress *progress, char *why, size_t why_size)
{
    (void)p, (void)bytes, (void)lock, (void)threads, (void)numa, (void)progress;
    snprintf(why, why_size, "no kind of memory was chosen for '%s'", path);
    return -EOPNOTSUPP;
}

static void null_release(struct mem_pool *p)
{
    (void)p;
}

static int null_map(struct mem_pool *p, int fd, uint64_t bytes, int writable)
{
    (void)p, (void)fd, (void)bytes, (void)writable;
    return -EOPNOTSUPP;
}

static uint64_t null_copy_in(struct mem_pool *p, uint64_t offset, const void *src, size_t n)
{
    (void)p, (void)offset, (void)src, (void)n;
    return 0;
}

static int null_copy_out(const struct mem_pool *p, uint64_t offset, void *dst, size_t n)
{
    (void)p, (void)offset, (void)dst, (void)n;
    return -EOPNOTSUPP;
}

int null_register_nic(struct mem_pool *p, void *nic, uint64_t offset, uint64_t bytes, void **mr)
{
    (void)p, (void)nic, (void)offset, (void)bytes, (void)mr;
    return -EOPNOTSUPP;
}

static int null_publish(struct mem_pool *p, uint64_t offset, uint64_t bytes)
{
    (void)p, (void)offset, (void)bytes;
    return -EOPNOTSUPP;
}

const struct memkind null_memkind = {
    "null",       null_reserve,  null_release,      null_map,     null_release,
    null_copy_in, null_copy_out, null_register_nic, null_publish,
};
