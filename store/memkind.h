/* memkind.h: the table of a kind of memory that holds payload. Host memory is host_memkind; HBM follows in gpu/.
 *
 * A region's pools are of one kind each. A back end is chosen once, when the pool is made, never at call sites; what it
 * cannot do stands in null_memkind as a function that answers -EOPNOTSUPP, so that no pointer here is ever NULL.
 */
#ifndef BERTH_STORE_MEMKIND_H
#define BERTH_STORE_MEMKIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct numa_plan;

struct mem_pool {
    void *base; /* this process's mapping; NULL where the CPU can't address it */
    uint64_t bytes;
    int fd; /* what a client maps, or -1 */
    uint32_t page_bytes;
    void *private_data;
};

struct mem_progress {
    void (*report)(void *arg, uint64_t done,
                   uint64_t total); /* from one thread, some times a second; NULL: to nobody */
    bool (*stop)(void *arg); /* whether to give up, asked by any thread between two pieces of work; NULL: never */
    void *arg;
};

/* p may be NULL. */
static inline bool mem_stopped(const struct mem_progress *p)
{
    return p != NULL && p->stop != NULL && p->stop(p->arg);
}

enum mem_lock { MEM_LOCK_OFF, MEM_LOCK_AUTO, MEM_LOCK_REQUIRED };

struct memkind {
    const char *name;
    /* Makes or opens the pool's memory at `path`, whole: allocated, populated by `threads` threads, locked as asked.
     * threads 0: the size is reserved and nothing is allocated: a page comes when it is first touched, and where the
     * file system is full then, that is a SIGBUS. For measuring what no payload is written for; not to be locked.
     * 0; 1: it holds what an earlier node left; -ENOSPC, -ENOMEM, -EPERM (lock required): why[] says figure and fix.
     * numa: NULL, or the plan that its parts are placed by, and what became of it (numa.h).
     * -ECANCELED: progress said stop, and a file that was made is gone again.
     * With MEM_LOCK_AUTO a success leaves in why[] why it is not locked; else why[] is empty then. */
    int (*reserve)(struct mem_pool *p, const char *path, uint64_t bytes, enum mem_lock lock, unsigned threads,
                   struct numa_plan *numa, const struct mem_progress *progress, char *why, size_t why_size);
    void (*release)(struct mem_pool *p);
    /* Maps a pool's descriptor into this process. 0 or a negative errno. */
    int (*map)(struct mem_pool *p, int fd, uint64_t bytes, int writable);
    void (*unmap)(struct mem_pool *p);
    /* Copies with checksum; the bytes are visible to every reader, and to a NIC after publish(), when it returns. */
    uint64_t (*copy_in)(struct mem_pool *p, uint64_t offset, const void *src, size_t n);
    int (*copy_out)(const struct mem_pool *p, uint64_t offset, void *dst, size_t n);
    int (*register_nic)(struct mem_pool *p, void *nic, uint64_t offset, uint64_t bytes, void **mr);
    int (*publish)(struct mem_pool *p, uint64_t offset, uint64_t bytes);
};

extern const struct memkind null_memkind;
extern const struct memkind host_memkind;

#endif
