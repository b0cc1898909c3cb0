/* fd.c: see fd.h. */
#include "store/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FIRST_FD 3 /* behind the standard streams */

int fd_above_stdio(int fd)
{
    if (fd < 0 || fd >= FIRST_FD) {
        return fd;
    }
    int above = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD), error = errno;
    close(fd);
    errno = error;
    return above;
}

static int direction(int fd)
{
    return fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
}

int fd_hold_stdio(void)
{
    int held = 0;
    for (int fd = 0; fd < FIRST_FD; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) {
            continue;
        }
        /* Lower numbers are taken: it gets this one, unless another thread was faster, and then that is as good. */
        int got = open("/dev/null", direction(fd));
        if (got < 0) {
            int error = errno;
            fd_release_stdio(held);
            return -error;
        }
        if (got == fd) {
            held |= 1 << fd;
        } else {
            close(got);
        }
    }
    return held;
}

static bool is_null(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) &&
           (fcntl(fd, F_GETFL) & O_ACCMODE) == direction(fd);
}

void fd_release_stdio(int held)
{
    for (int fd = 0; fd < FIRST_FD; fd++) {
        if ((held & 1 << fd) && is_null(fd)) {
            close(fd);
        }
    }
}

int fd_room(unsigned n)
{
    int fd[8], error = 0;
    unsigned got = 0;
    for (; got < n && got < 8; got++) {
        fd[got] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd[got] < 0) {
            error = -errno;
            break;
        }
    }
    while (got > 0) {
        close(fd[--got]);
    }
    return error;
}

/* ---- whose it is ---- */

/* 0: it is no eventfd, or /proc can't be read now. */
static uint64_t eventfd_id(int fd)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0) {
        return 0;
    }
    ssize_t n = read(info, text, sizeof text - 1);
    close(info);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "eventfd-id:");
    return at ? strtoull(at + strlen("eventfd-id:"), NULL, 10) + 1 : 0;
}

void fd_keep(struct kept_fd *k, int fd)
{
    struct stat st;
    *k = FD_NONE;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return;
    }
    k->fd = fd;
    k->dev = st.st_dev;
    k->inode = st.st_ino;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* Inodes of files are their own. Of the others the kind says more, and an eventfd has a number. */
    if ((st.st_mode & S_IFMT) == 0 && readlink(path, k->kind, sizeof k->kind - 1) > 0) {
        k->id = eventfd_id(fd);
    }
}

bool fd_is_ours(const struct kept_fd *k)
{
    struct stat st;
    return k->fd >= 0 && fstat(k->fd, &st) == 0 && st.st_dev == k->dev && st.st_ino == k->inode;
}

/* What /proc does not tell now is taken to be as it was. */
static bool is_same(const struct kept_fd *k)
{
    if (!fd_is_ours(k)) {
        return false;
    }
    struct kept_fd now;
    fd_keep(&now, k->fd);
    bool kind = !k->kind[0] || !now.kind[0] || strcmp(k->kind, now.kind) == 0;
    return kind && (!k->id || !now.id || k->id == now.id);
}

void fd_drop(struct kept_fd *k)
{
    if (is_same(k)) {
        close(k->fd);
    }
    *k = FD_NONE;
}
