/* pages.c: see pages.h. */
#include "store/shell/pages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool names_huge(const char *name)
{
    static const char *const names[] = {"ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

int pages_of(const void *base, uint64_t bytes, struct pages *out)
{
    char line[512], name[64];
    uint64_t from, to, kib;
    bool within = false;
    *out = (struct pages){0};
    FILE *f = fopen("/proc/self/smaps", "re");
    if (f == NULL)
        return -errno;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
            within = from >= (uintptr_t)base && from - (uintptr_t)base < bytes;
        else if (within && sscanf(line, "%63[^:]: %" SCNu64 " kB", name, &kib) == 2)
            *(names_huge(name) ? &out->huge_bytes : strcmp(name, "Rss") == 0 ? &out->rss_bytes : &kib) += kib << 10;
    }
    int e = ferror(f) ? -EIO : 0;
    fclose(f);
    return e;
}
