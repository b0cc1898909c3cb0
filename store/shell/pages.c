/* pages.c: see pages.h. */
#include "store/shell/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* As in linux/fs.h of 6.7; older headers have none of it. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN _IOWR('f', 16, struct scan_arg)
#define SCAN_IS_HUGE (UINT64_C(1) << 6)
#define REGIONS 64u /* of one call */

int pages_scan(const void *base, uint64_t bytes, uint64_t *huge)
{
    struct scan_region found[REGIONS];
    struct scan_arg a = {.size = sizeof a,
                         .walk_end = (uintptr_t)base,
                         .end = (uintptr_t)base + bytes,
                         .vec = (uintptr_t)found,
                         .vec_len = REGIONS,
                         .category_mask = SCAN_IS_HUGE,
                         .return_mask = SCAN_IS_HUGE};
    int n = 0, e = 0, fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    *huge = 0;
    if (fd < 0)
        return -errno;
    while (e == 0 && a.walk_end < a.end) {
        a.start = a.walk_end;
        n = ioctl(fd, SCAN, &a);
        if (n < 0 && errno != EINTR)
            e = -errno;
        for (int i = 0; i < n; i++)
            *huge += found[i].end - found[i].start;
    }
    close(fd);
    return e;
}

static bool names_huge(const char *name)
{
    static const char *const names[] = {"ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

int pages_smaps(const void *base, uint64_t bytes, uint64_t *huge)
{
    char line[512], name[64];
    uint64_t from, to, kib;
    bool within = false, beyond = false;
    *huge = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    if (f == NULL)
        return -errno;
    while (!beyond && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
            within = from >= (uintptr_t)base && from - (uintptr_t)base < bytes;
            beyond = from > (uintptr_t)base && !within;
        } else if (within && sscanf(line, "%63[^:]: %" SCNu64 " kB", name, &kib) == 2 && names_huge(name)) {
            *huge += kib << 10;
        }
    }
    int e = ferror(f) ? -EIO : 0;
    fclose(f);
    return e;
}

int pages_huge(const void *base, uint64_t bytes, uint64_t *huge)
{
    int e = pages_scan(base, bytes, huge);
    return e == 0 ? 0 : pages_smaps(base, bytes, huge);
}
