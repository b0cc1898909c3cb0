/* region_lock.c: see region_lock.h. */
#include "store/shell/region_lock.h"

#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/region_ours.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GONE_MS 10000  /* how long an end may take that has begun: a large address space goes in seconds */
#define UNSEEN_MS 1000 /* the fixed wait of rule 19 for a process that can't be seen from here */

struct holder {
    int pid;
    unsigned long long start, pid_ns;
    bool is_private;
};

static unsigned long long own_pid_ns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

static bool holder_read(int fd, struct holder *out)
{
    char text[128], kind[16];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (sscanf(text, "berth-lock %d %llu %llu %15s", &out->pid, &out->start, &out->pid_ns, kind) != 4)
        return false;
    out->is_private = strcmp(kind, "private") == 0;
    return out->pid >= 0 && (out->is_private || strcmp(kind, "kept") == 0);
}

static int holder_write(int fd, const struct holder *h)
{
    char text[128];
    errno = 0;
    int n = snprintf(text, sizeof text, "berth-lock %d %llu %llu %s\n", h->pid, h->start, h->pid_ns,
                     h->is_private ? "private" : "kept");
    if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) != 0)
        return errno != 0 ? -errno : -EIO;
    return 0;
}

static bool lock_take(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* A pidfd of the process that the file names, if it lives; -1. */
static int holder_pidfd(const struct holder *h)
{
    if (h->pid == 0 || h->pid == getpid() || h->pid_ns != own_pid_ns())
        return -1;
    int fd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    if (fd >= 0 && process_start_time(h->pid) != h->start) {
        close(fd);
        return -1;
    }
    return fd;
}

static int wait_gone(const struct holder *h, const char *path, char *why, size_t why_size)
{
    if (h->pid != 0 && h->pid_ns != own_pid_ns()) {
        poll(NULL, 0, UNSEEN_MS);
        return 0;
    }
    int fd = holder_pidfd(h);
    if (fd < 0)
        return 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = poll(&p, 1, GONE_MS);
    close(fd);
    if (n > 0)
        return 0;
    snprintf(why, why_size, "region '%s' was held by pid %d, which has not ended yet: end it first", path, h->pid);
    return -EBUSY;
}

static int refuse_held(int fd, const char *path, char *why, size_t why_size)
{
    struct holder h;
    if (holder_read(fd, &h) && h.pid != 0)
        snprintf(why, why_size, "region '%s' is held by pid %d: stop that node, or choose another region", path, h.pid);
    else
        snprintf(why, why_size,
                 "region '%s' is held by a node that starts or stops: try again, or choose another region", path);
    return -EBUSY;
}

/* Whether `name` in dir is still the file of fd: who removes a region unlinks its lock while holding it. */
static bool still_there(int dir_fd, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(dir_fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev && S_ISREG(a.st_mode);
}

int region_lock(int dir_fd, const char *path, char *why, size_t why_size)
{
    for (int tries = 0; tries < 8; tries++) {
        int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            int e = errno;
            snprintf(why, why_size, "can't open '%s/lock': %s", path, strerror(e));
            return -e;
        }
        struct holder h;
        bool locked = lock_take(fd), there = still_there(dir_fd, "lock", fd);
        int e = 0;
        if (!locked)
            e = refuse_held(fd, path, why, why_size);
        else if (there && holder_read(fd, &h))
            e = wait_gone(&h, path, why, why_size);
        else if (there && (e = holder_write(fd, &(struct holder){.pid = 0})) != 0)
            snprintf(why, why_size, "can't write '%s/lock': %s", path, strerror(-e));
        if (e == 0 && there)
            return fd;
        close(fd);
        if (e != 0)
            return e;
    }
    return refuse_held(-1, path, why, why_size);
}

int region_lock_stamp(int lock_fd, bool is_private)
{
    struct holder h = {
        .pid = getpid(), .start = process_start_time(getpid()), .pid_ns = own_pid_ns(), .is_private = is_private};
    return holder_write(lock_fd, &h);
}

void region_lock_clear(int lock_fd)
{
    struct holder h = {.pid = 0};
    if (holder_write(lock_fd, &h) != 0)
        log_event(LOG_WARNING, "the lock file can't be written: the next start waits for a process that is gone");
}

/* ---- what dead nodes left ---- */

static void each_name(int dir_fd, const char *sub, void (*each)(void *arg, int at, const char *name), void *arg)
{
    int fd = openat(dir_fd, sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        if (d->d_name[0] != '.')
            each(arg, fd, d->d_name);
    }
    closedir(dir);
}

static void remove_pins(void *arg, int at, const char *name)
{
    (void)arg;
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && region_is_pins(name, fd))
        unlinkat(at, name, 0);
    if (fd >= 0)
        close(fd);
}

static void remove_plain(int dir_fd, const char *name)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        unlinkat(dir_fd, name, 0);
}

void region_remove_files(int dir_fd, bool lock_too)
{
    static const char *const files[] = {"pool-0", "slots", "lookup", "tails", "index/data.mdb", "index/lock.mdb"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        remove_plain(dir_fd, files[i]);
    unlinkat(dir_fd, "index", AT_REMOVEDIR);
    unlinkat(dir_fd, "clients", AT_REMOVEDIR);
    if (lock_too)
        unlinkat(dir_fd, "lock", 0);
}

void region_remove_clients(int dir_fd)
{
    each_name(dir_fd, "clients", remove_pins, NULL);
}

static void look_for_client(void *arg, int at, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(at, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool *lives = arg;
    if (fd < 0)
        return;
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
        *lives = true;
    close(fd);
}

/* From the file alone, before its lock is tried: a node that starts now must not find the lock of its region taken. */
static bool may_be_leftover(int lock_fd, bool kept, struct holder *h)
{
    if (!holder_read(lock_fd, h) || (!h->is_private && (!kept || h->pid == 0)))
        return false;
    int pidfd = holder_pidfd(h);
    if (pidfd >= 0)
        close(pidfd);
    return pidfd < 0;
}

/* Under its lock. A client that lives waits for its node to come back: then nothing here is left over. */
static bool is_leftover(int dir_fd, int lock_fd, bool kept)
{
    struct holder h;
    bool lives = false;
    if (!still_there(dir_fd, "lock", lock_fd) || !may_be_leftover(lock_fd, kept, &h))
        return false;
    each_name(dir_fd, "clients", look_for_client, &lives);
    return !lives;
}

struct search {
    const char *parent;
    struct stat own;
    bool kept;
    unsigned removed;
};

static void look_at_neighbour(void *arg, int at, const char *name)
{
    struct search *s = arg;
    struct stat st;
    struct holder h;
    int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return;
    bool ours =
        fstat(dir, &st) == 0 && st.st_uid == geteuid() && (st.st_ino != s->own.st_ino || st.st_dev != s->own.st_dev);
    int lock = ours ? openat(dir, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (lock >= 0 && may_be_leftover(lock, s->kept, &h) && lock_take(lock) && is_leftover(dir, lock, s->kept)) {
        log_event(LOG_WARNING, "region '%s/%s' of a node that is dead (pid %d) is removed to have its space", s->parent,
                  name, h.pid);
        region_remove_clients(dir);
        region_remove_files(dir, true);
        unlinkat(at, name, AT_REMOVEDIR);
        s->removed++;
    }
    if (lock >= 0)
        close(lock);
    close(dir);
}

unsigned region_leftovers(const char *path, int dir_fd, bool kept)
{
    char parent[512];
    struct search s = {.parent = parent, .kept = kept};
    snprintf(parent, sizeof parent, "%s/..", path);
    if (fstat(dir_fd, &s.own) != 0)
        return 0;
    char *slash = strrchr(path, '/');
    if (slash != NULL && slash > path && slash[1] != '\0')
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    each_name(fd, ".", look_at_neighbour, &s);
    close(fd);
    return s.removed;
}
