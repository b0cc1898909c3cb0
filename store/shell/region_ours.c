/* region_ours.c: see region_ours.h. */
#include "store/shell/region_ours.h"

#include "index/lmdb.h"
#include "store/layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_WORD "berth-lock "
#define NAME_SIZE 300u /* directory, slash, name */

struct look {
    int dir_fd;
    bool sign;
    int error;             /* the first */
    char other[NAME_SIZE]; /* the first by name that stands under none of a region's names; "": there is none */
    char wrong[NAME_SIZE]; /* the first that has a region file's name and is another kind of file */
    char plain[NAME_SIZE]; /* the first that has a region file's name, and could be anybody's */
};

static void keep_first(char *kept, const char *name)
{
    if (kept[0] == '\0' || strcmp(name, kept) < 0)
        snprintf(kept, NAME_SIZE, "%s", name);
}

/* A descriptor; -errno; -EINVAL: another kind of file. */
static int open_plain(int dir_fd, const char *name)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL; /* opening a device may do something */
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return -EINVAL;
}

static bool begins(int fd, const void *bytes, size_t n)
{
    uint8_t got[16];
    return n <= sizeof got && pread(fd, got, n, 0) == (ssize_t)n && memcmp(got, bytes, n) == 0;
}

static bool is_number(const char *name)
{
    return name[0] >= '1' && name[0] <= '9' && name[strspn(name, "0123456789")] == '\0' && strlen(name) <= 20;
}

bool region_is_pins(const char *name, int fd)
{
    const uint64_t magic = PINS_MAGIC;
    struct stat st;
    return is_number(name) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_size == 0 || st.st_size == (off_t)sizeof(struct pins_file) || begins(fd, &magic, sizeof magic));
}

/* Whether what lies under this name shows that a node made it. */
static bool is_sign(const char *name, int fd)
{
    const uint64_t slots = SLOTS_MAGIC, lookup = LOOKUP_MAGIC, pins = PINS_MAGIC;
    if (strcmp(name, "lock") == 0)
        return begins(fd, LOCK_WORD, sizeof LOCK_WORD - 1);
    if (strcmp(name, "slots") == 0)
        return begins(fd, &slots, sizeof slots);
    if (strcmp(name, "lookup") == 0)
        return begins(fd, &lookup, sizeof lookup);
    if (strcmp(name, "index/data.mdb") == 0)
        return lmdb_is_index(fd);
    return strncmp(name, "clients/", 8) == 0 && region_is_pins(name + 8, fd) && begins(fd, &pins, sizeof pins);
}

/* A name that a start would remove or write. */
static void look_at_own(struct look *l, const char *name)
{
    struct stat st;
    int fd = open_plain(l->dir_fd, name);
    if (fd < 0) {
        if (fstatat(l->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return;
        if (S_ISREG(st.st_mode))
            l->error = l->error != 0 ? l->error : fd;
        keep_first(l->wrong, name);
        return;
    }
    bool empty_lock = strcmp(name, "lock") == 0 && fstat(fd, &st) == 0 && st.st_size == 0;
    if (is_sign(name, fd))
        l->sign = true;
    else if (!empty_lock)
        keep_first(l->plain, name);
    close(fd);
}

static bool is_one_of(const char *name, const char *const *names, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* sub: "" or "clients" or "index". */
static void look_at(struct look *l, const char *sub, const char *name)
{
    static const char *const files[] = {"lock", "pool-0", "slots", "lookup", "tails"};
    static const char *const index_files[] = {"data.mdb", "lock.mdb"};
    char whole[NAME_SIZE];
    snprintf(whole, sizeof whole, "%s%s%s", sub, sub[0] != '\0' ? "/" : "", name);
    bool own = sub[0] == '\0'  ? is_one_of(name, files, sizeof files / sizeof *files)
               : sub[0] == 'i' ? is_one_of(name, index_files, sizeof index_files / sizeof *index_files)
                               : is_number(name);
    if (own)
        look_at_own(l, whole);
    else
        keep_first(l->other, whole);
}

static void look_into(struct look *l, const char *sub)
{
    int fd = openat(l->dir_fd, sub[0] != '\0' ? sub : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (sub[0] != '\0' && (errno == ENOTDIR || errno == ELOOP))
            keep_first(l->wrong, sub);
        else if (errno != ENOENT && l->error == 0) /* a node that starts or stops here removes it */
            l->error = -errno;
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (sub[0] == '\0' && (strcmp(d->d_name, "clients") == 0 || strcmp(d->d_name, "index") == 0))
            look_into(l, d->d_name);
        else
            look_at(l, sub, d->d_name);
    }
    closedir(dir);
}

int region_ours(int dir_fd, const char *path, char *why, size_t why_size)
{
    struct look l = {.dir_fd = dir_fd};
    look_into(&l, "");
    if (l.error != 0) {
        snprintf(why, why_size, "'%s' can't be looked through: %s", path, strerror(-l.error));
        return l.error;
    }
    char *first = l.wrong;
    if (!l.sign) {
        if (l.other[0] != '\0')
            keep_first(l.wrong, l.other);
        if (l.plain[0] != '\0')
            keep_first(l.wrong, l.plain);
    }
    if (first[0] == '\0')
        return 0;
    snprintf(why, why_size,
             "'%s/%s' is not a region's file%s: nothing was changed: name a directory that is empty, or not there yet, "
             "with --region",
             strcmp(path, "/") == 0 ? "" : path, first, l.sign ? "" : ", and nothing there shows that it is a region");
    return -ENOTEMPTY;
}
