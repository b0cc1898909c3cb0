/* mapping.c: see mapping.h. */
#include "store/mapping.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct area { /* a line of /proc/self/maps */
    uint64_t start, end, offset, inode;
    unsigned major, minor;
    char rights[5]; /* "rw-s" */
};

static int read_area(const char *line, struct area *a)
{
    int n = sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &a->start, &a->end, a->rights,
                   &a->offset, &a->major, &a->minor, &a->inode);
    return n == 7 && a->end > a->start ? 0 : -1;
}

/* offset: that the byte at `at`, which lies in it, has to have in the file. */
static enum mapping judge(const struct area *a, uint64_t at, const struct stat *file, uint64_t offset)
{
    if (a->inode != file->st_ino || a->major != major(file->st_dev) || a->minor != minor(file->st_dev) ||
        a->offset + (at - a->start) != offset)
        return MAPPING_OTHER;
    if (a->rights[3] != 's')
        return MAPPING_PRIVATE;
    return a->rights[0] == 'r' && a->rights[1] == 'w' ? MAPPING_GOOD : MAPPING_READ_ONLY;
}

/* Areas come in the order of their addresses. */
static enum mapping walk(FILE *maps, uint64_t begin, uint64_t end, const struct stat *file, uint64_t offset)
{
    char *line = NULL;
    size_t room = 0;
    uint64_t at = begin;
    enum mapping is = MAPPING_GOOD;
    while (at < end && is == MAPPING_GOOD && getline(&line, &room, maps) > 0) {
        struct area a;
        if (read_area(line, &a) != 0 || a.end <= at)
            continue;
        is = a.start > at ? MAPPING_NONE : judge(&a, at, file, offset + (at - begin));
        at = a.end;
    }
    free(line);
    return is == MAPPING_GOOD && at < end ? MAPPING_NONE : is;
}

enum mapping mapping_of(const void *data, size_t size, int fd, uint64_t offset)
{
    struct stat file;
    FILE *maps = fopen("/proc/self/maps", "re");
    enum mapping is = MAPPING_GOOD;
    if (maps && fstat(fd, &file) == 0)
        is = walk(maps, (uint64_t)(uintptr_t)data, (uint64_t)(uintptr_t)data + size, &file, offset);
    if (maps)
        fclose(maps);
    return is;
}
