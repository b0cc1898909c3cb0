/* space.c: reads what the kernel says of itself; see space.h. */
#include "store/shell/space.h"

#include "store/amount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PATH_SIZE 1024
#define SLACK (2u << 20) /* for what is allocated while this is not looked at: batches, messages, page tables */

static bool read_number(const char *path, uint64_t *out)
{
    char text[64], *end;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    if (!read)
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || errno != 0)
        return false; /* "max" */
    *out = value;
    return true;
}

/* Sum of the lines "NAME number" of a file whose NAME is one of the two. */
static uint64_t read_sum(const char *path, const char *one, const char *other)
{
    char line[256], name[128];
    unsigned long long value;
    uint64_t sum = 0;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%127s %llu", name, &value) == 2 && (strcmp(name, one) == 0 || strcmp(name, other) == 0))
            sum += value;
    }
    fclose(f);
    return sum;
}

bool space_memory(const char *root, uint64_t *left)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t kib = read_sum(path, "MemAvailable:", "MemAvailable:");
    if (kib == 0)
        return false;
    *left = kib << 10;
    return true;
}

struct tree { /* a mounted memory hierarchy: names of its files */
    const char *mount, *limit, *usage, *cache_one, *cache_other;
};
static const struct tree v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};
static const struct tree v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file", "total_active_file"};

/* Page cache counts as used, but goes when memory is asked for; tmpfs pages are not in these lists. */
static bool group_left(const char *root, const struct tree *t, const char *group, uint64_t *left)
{
    char path[PATH_SIZE];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s%s%s/%s", root, t->mount, group, t->limit);
    if (!read_number(path, &limit))
        return false;
    snprintf(path, sizeof path, "%s%s%s/%s", root, t->mount, group, t->usage);
    if (!read_number(path, &used))
        return false;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, t->mount, group);
    uint64_t cache = read_sum(path, t->cache_one, t->cache_other);
    used -= cache < used ? cache : used;
    *left = limit > used ? limit - used : 0;
    return true;
}

struct tightest {
    bool found;
    uint64_t left;
    char *where;
    size_t where_size;
};

/* A group and its ancestors. Where the path is another mount's (in a container) only those that exist count. */
static void walk_groups(const char *root, const struct tree *t, char *group, struct tightest *best)
{
    for (;;) {
        uint64_t left;
        size_t n = strlen(group);
        while (n > 0 && group[n - 1] == '/')
            group[--n] = '\0';
        if (group_left(root, t, group, &left) && (!best->found || left < best->left)) {
            best->found = true;
            best->left = left;
            snprintf(best->where, best->where_size, "%s%s/%s", t->mount, group, t->limit);
        }
        if (n == 0)
            return;
        *strrchr(group, '/') = '\0';
    }
}

static bool names_memory(const char *controllers)
{
    for (const char *at = controllers; (at = strstr(at, "memory")) != NULL; at += 6) {
        bool begins = at == controllers || at[-1] == ',';
        if (begins && (at[6] == ',' || at[6] == '\0'))
            return true;
    }
    return false;
}

bool space_cgroup(const char *root, uint64_t *left, char *where, size_t where_size)
{
    char path[PATH_SIZE], line[PATH_SIZE];
    struct tightest best = {.where = where, .where_size = where_size};
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL || group[1] != '/')
            continue;
        *group++ = '\0';
        if (controllers[1] == '\0')
            walk_groups(root, &v2, group, &best);
        else if (names_memory(controllers + 1))
            walk_groups(root, &v1, group, &best);
    }
    fclose(f);
    if (best.found)
        *left = best.left;
    return best.found;
}

static bool may_lock(uint64_t bytes, uint64_t *limit)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_MEMLOCK, &l) != 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= bytes)
        return true;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    *limit = l.rlim_cur;
    return syscall(SYS_capget, &head, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK));
}

bool space_in_memory(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) != 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
           fs.f_type == HUGETLBFS_MAGIC;
}

static int check_file_system(const struct space_need *n, char *why, size_t why_size)
{
    struct statvfs fs;
    if (fstatvfs(n->dir_fd, &fs) != 0 || fs.f_blocks == 0) /* a tmpfs without a size has no blocks and no limit */
        return 0;
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize + n->freed_bytes;
    if (left >= n->bytes)
        return 0;
    char need[AMOUNT_SIZE], there[AMOUNT_SIZE];
    amount(n->bytes, need);
    amount(left, there);
    snprintf(why, why_size,
             "the region needs %s, %s free at '%s': make the pool smaller (--pool), or the file system larger "
             "(mount -o remount,size=..; in a container --shm-size), or remove files there",
             need, there, n->path);
    return -ENOSPC;
}

static int check_memory(const struct space_need *n, char *why, size_t why_size)
{
    struct statfs fs;
    if (fstatfs(n->dir_fd, &fs) != 0 || (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC))
        return 0;
    uint64_t left;
    char need[AMOUNT_SIZE], there[AMOUNT_SIZE], where[PATH_SIZE];
    if (space_cgroup(n->root, &left, where, sizeof where) && left + n->freed_bytes < n->bytes + n->own_bytes) {
        amount(n->bytes + n->own_bytes, need);
        amount(left + n->freed_bytes, there);
        snprintf(why, why_size,
                 "the region needs %s, the cgroup leaves %s ('%s'): raise its limit, or make the pool smaller "
                 "(--pool)",
                 need, there, where);
        return -ENOMEM;
    }
    if (space_memory(n->root, &left) && left + n->freed_bytes < n->bytes) {
        amount(n->bytes, need);
        amount(left + n->freed_bytes, there);
        snprintf(why, why_size,
                 "the region needs %s, %s of memory are available ('/proc/meminfo'): make the pool smaller "
                 "(--pool), or end what uses memory",
                 need, there);
        return -ENOMEM;
    }
    return 0;
}

bool space_fits(int dir_fd, uint64_t bytes, char *why, size_t why_size)
{
    char there[AMOUNT_SIZE], where[PATH_SIZE];
    uint64_t left;
    if (!space_in_memory(dir_fd) || !space_cgroup("", &left, where, sizeof where) || left >= bytes + SLACK)
        return true;
    snprintf(why, why_size, "the cgroup leaves %s ('%s'): raise its limit", amount(left, there), where);
    return false;
}

static int check_memlock(const struct space_need *n, char *why, size_t why_size)
{
    uint64_t limit = 0;
    if (n->lock != MEM_LOCK_REQUIRED || may_lock(n->lock_bytes, &limit))
        return 0;
    char need[AMOUNT_SIZE], there[AMOUNT_SIZE];
    amount(n->lock_bytes, need);
    amount(limit, there);
    snprintf(why, why_size,
             "lock=required needs %s locked, the memlock limit is %s: raise it (LimitMEMLOCK=infinity, ulimit -l "
             "unlimited), or give CAP_IPC_LOCK",
             need, there);
    return -EPERM;
}

int space_check(const struct space_need *n, char *why, size_t why_size)
{
    int e = check_memlock(n, why, why_size);
    e = e != 0 ? e : check_file_system(n, why, why_size);
    return e != 0 ? e : check_memory(n, why, why_size);
}
