#include "store/map.h"

#include "store/layout.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Where a mapping of so many bytes can have huge pages: a place at a multiple of their size. NULL: anywhere will do. */
static void *reserve_aligned(uint64_t bytes)
{
    if (bytes < HUGE_BYTES)
        return NULL;
    uint64_t whole = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint8_t *base = mmap(NULL, whole + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    uint64_t before = -(uintptr_t)base % HUGE_BYTES;
    if (before > 0)
        munmap(base, before);
    munmap(base + before + whole, HUGE_BYTES - before);
    return base + before;
}

static void *map_plain(int fd, uint64_t bytes, int prot)
{
    void *place = reserve_aligned(bytes);
    void *map = mmap(place, bytes, prot, MAP_SHARED | (place != NULL ? MAP_FIXED : 0), fd, 0);
    if (map == MAP_FAILED) {
        int e = errno;
        if (place != NULL)
            munmap(place, bytes);
        errno = e;
        return NULL;
    }
    if (madvise(map, bytes, MADV_DONTFORK) == 0)
        return map;
    int error = errno;
    munmap(map, bytes);
    errno = error;
    return NULL;
}

#if BERTH_MAP_ONCE

struct mapping {
    struct mapping *next;
    void *map;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    unsigned users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

/* A forked child has none of its parent's mappings, only their list. */
static void forget_parents(void)
{
    static pid_t owner;
    if (owner != getpid())
        mappings = NULL;
    owner = getpid();
}

static struct mapping *mapping_find(const struct stat *st, uint64_t bytes)
{
    for (struct mapping *m = mappings; m; m = m->next)
        if (m->device == st->st_dev && m->inode == st->st_ino && m->bytes >= bytes)
            return m;
    return NULL;
}

static struct mapping *mapping_make(int fd, const struct stat *st, uint64_t bytes, int prot)
{
    struct mapping *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->map = map_plain(fd, bytes, PROT_READ | PROT_WRITE);
    /* A read-only descriptor that came first: nobody of this process has written the file yet. */
    if (!m->map && errno == EACCES)
        m->map = map_plain(fd, bytes, prot);
    if (!m->map) {
        int error = errno;
        free(m);
        errno = error;
        return NULL;
    }
    m->bytes = bytes;
    m->device = st->st_dev;
    m->inode = st->st_ino;
    m->next = mappings;
    mappings = m;
    return m;
}

void *map_shared(int fd, uint64_t bytes, int prot)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return NULL;
    pthread_mutex_lock(&lock);
    forget_parents();
    struct mapping *m = mapping_find(&st, bytes);
    if (!m)
        m = mapping_make(fd, &st, bytes, prot);
    void *map = NULL;
    if (m) {
        m->users++;
        map = m->map;
    }
    pthread_mutex_unlock(&lock);
    return map;
}

void unmap_shared(void *map, uint64_t bytes)
{
    (void)bytes;
    pthread_mutex_lock(&lock);
    forget_parents();
    for (struct mapping **at = &mappings; *at; at = &(*at)->next) {
        struct mapping *m = *at;
        if (m->map != map)
            continue;
        if (--m->users == 0) {
            *at = m->next;
            munmap(m->map, m->bytes);
            free(m);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
}

#else

void *map_shared(int fd, uint64_t bytes, int prot)
{
    return map_plain(fd, bytes, prot);
}

void unmap_shared(void *map, uint64_t bytes)
{
    if (map)
        munmap(map, bytes);
}

#endif

bool map_collapse(void *map, uint64_t from, uint64_t to)
{
    from = (from + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    to = to / HUGE_BYTES * HUGE_BYTES;
    while (from < to && madvise((uint8_t *)map + from, HUGE_BYTES, MADV_COLLAPSE) == 0)
        from += HUGE_BYTES;
    return from >= to;
}
