/* space.h: whether what a region is about to allocate can be had, before anything is allocated: file system, memory,
 * the process's cgroup with its ancestors (v1 and v2), memlock. A tmpfs that is too small is an error here, not a
 * SIGBUS later; a cgroup that is too small is an error here, not the kernel's OOM killer.
 */
#ifndef BERTH_SHELL_SPACE_H
#define BERTH_SHELL_SPACE_H

#include "store/memkind.h"

#include <stdbool.h>

struct space_need {
    const char *path;     /* of the region, for sentences */
    int dir_fd;           /* on its file system */
    uint64_t bytes;       /* to be allocated, beyond what is allocated already */
    uint64_t freed_bytes; /* of files on this file system that go before: they count as free */
    uint64_t own_bytes;   /* what the node takes beside: counts against a cgroup's limit, which kills who comes to it */
    uint64_t lock_bytes;  /* to be locked where that is required */
    enum mem_lock lock;
    const char *root; /* "" : where /proc and /sys/fs/cgroup are; tests have their own */
};

/* 0; -ENOSPC (file system), -ENOMEM (memory, cgroup), -EPERM (memlock): why[] says what is needed, what there is,
 * where, and what to do. What can't be read limits nothing. */
int space_check(const struct space_need *n, char *why, size_t why_size);

/* Bytes that a process's memory cgroups leave, page cache counted as free; false: no limit. where[] names the
 * tightest. */
bool space_cgroup(const char *root, uint64_t *left, char *where, size_t where_size);
/* Whether so many bytes of files may be allocated now on the file system of this descriptor, without coming to a limit
 * of the cgroup: the kernel would not refuse them but end the process. false: why[] says what is left, and where. */
bool space_fits(int dir_fd, uint64_t bytes, char *why, size_t why_size);
/* MemAvailable; false if it can't be read. */
bool space_memory(const char *root, uint64_t *left);
/* Whether the file system keeps its files in memory, and never writes them to a disk. */
bool space_in_memory(int fd);

#endif
