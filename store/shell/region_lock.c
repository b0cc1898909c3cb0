/* region_lock.c: see region_lock.h. */
#include "store/shell/region_lock.h"

#include "store/clock.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/region_ours.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DYING_MS 2000    /* how long the lock of a process may be there that was killed */
#define DYING_LOOK_MS 10 /* between two looks at it */
#define STOP_MS 100      /* how soon a start that waits hears that it is to stop */
#define GONE_MS 10000    /* how long an end may take that has begun: a large address space goes in seconds */
#define UNSEEN_MS 1000   /* the fixed wait of rule 19 for a process that can't be seen from here */

#define MS INT64_C(1000000) /* ns */

#define EXITING 4u /* PF_EXITING of the flags in /proc/PID/stat */

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

static bool lock_is_free(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
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

/* 1: it has ended; 0: not in this time; -ECANCELED. */
static int wait_pidfd(int fd, const struct mem_progress *progress)
{
    for (int64_t end = clock_mono() + GONE_MS * MS; clock_mono() < end;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, STOP_MS) > 0)
            return 1;
        if (mem_stopped(progress))
            return -ECANCELED;
    }
    return 0;
}

static int refuse_stopped(const char *path, char *why, size_t why_size)
{
    snprintf(why, why_size, "stopped while region '%s' was held by another process", path);
    return -ECANCELED;
}

static int wait_gone(const struct holder *h, const char *path, const struct mem_progress *progress, char *why,
                     size_t why_size)
{
    if (h->pid != 0 && h->pid_ns != own_pid_ns()) {
        poll(NULL, 0, UNSEEN_MS);
        return 0;
    }
    int fd = holder_pidfd(h);
    if (fd < 0)
        return 0;
    int n = wait_pidfd(fd, progress);
    close(fd);
    if (n > 0)
        return 0;
    if (n < 0)
        return refuse_stopped(path, why, why_size);
    snprintf(why, why_size, "region '%s' was held by pid %d, which has not ended yet: end it first", path, h->pid);
    return -EBUSY;
}

/* Whether SIGKILL waits for the process, or for its first thread. */
static bool kill_pending(int pid)
{
    char path[64], line[256];
    unsigned long long set;
    bool pending = false;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        pending |= (sscanf(line, "SigPnd: %llx", &set) == 1 || sscanf(line, "ShdPnd: %llx", &set) == 1) &&
                   (set >> (SIGKILL - 1) & 1) != 0;
    if (f != NULL)
        fclose(f);
    return pending;
}

/* Whether the process that the line names has ended, or is on its way: a zombie, killed, or in its exit. */
static bool is_dying(const struct holder *h)
{
    char path[64], text[1024], state = 'X';
    unsigned flags = 0;
    if (h->pid == 0 || h->pid_ns != own_pid_ns())
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", h->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (at == NULL || sscanf(at, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
        return true;
    return state == 'Z' || state == 'X' || (flags & EXITING) != 0 || process_start_time(h->pid) != h->start ||
           kill_pending(h->pid);
}

/* The kernel comes to the descriptors of a killed process last: its lock is there for a moment longer. Between taking
 * the signal and beginning to exit a process shows neither, so who lives is looked at twice. */
static bool lock_of_dying(int fd, const struct mem_progress *progress)
{
    int64_t end = clock_mono() + DYING_MS * MS;
    for (unsigned alive = 0; alive < 2 && clock_mono() < end && !mem_stopped(progress);) {
        struct holder h;
        alive = holder_read(fd, &h) && is_dying(&h) ? 0 : alive + 1;
        poll(NULL, 0, DYING_LOOK_MS);
        if (lock_take(fd))
            return true;
    }
    return false;
}

static int refuse_held(int fd, const char *path, char *why, size_t why_size)
{
    struct holder h;
    if (holder_read(fd, &h) && h.pid != 0 && !is_dying(&h))
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

int region_lock(int dir_fd, const char *path, bool is_private, const struct mem_progress *progress, char *why,
                size_t why_size)
{
    for (int tries = 0; tries < 8; tries++) {
        int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            int e = errno;
            snprintf(why, why_size, "can't open '%s/lock': %s", path, strerror(e));
            return -e;
        }
        struct holder h;
        bool locked = lock_take(fd) || lock_of_dying(fd, progress), there = still_there(dir_fd, "lock", fd);
        int e = 0;
        if (!locked)
            e = mem_stopped(progress) ? refuse_stopped(path, why, why_size) : refuse_held(fd, path, why, why_size);
        else if (there && holder_read(fd, &h))
            e = wait_gone(&h, path, progress, why, why_size);
        else if (there && (e = holder_write(fd, &(struct holder){.pid = 0, .is_private = is_private})) != 0)
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

static const char *const files[] = {"pool-0", "slots", "lookup", "tails", "index/data.mdb", "index/lock.mdb"};
#define N_FILES (sizeof files / sizeof *files)

void region_remove_files(int dir_fd, bool lock_too)
{
    for (unsigned i = 0; i < N_FILES; i++)
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
    int fd = openat(at, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool *lives = arg;
    if (fd < 0)
        return;
    *lives |= !lock_is_free(fd);
    close(fd);
}

/* From the file alone, before its lock is tried: a node that starts now must not find the lock of its region taken. */
static bool is_of_dead(int lock_fd, struct holder *h)
{
    if (!holder_read(lock_fd, h))
        return false;
    int pidfd = holder_pidfd(h);
    if (pidfd >= 0)
        close(pidfd);
    return pidfd < 0;
}

/* A client that lives waits for its node to come back, and maps what is there: then nothing here is left over. */
static bool has_client(int dir_fd)
{
    bool lives = false;
    each_name(dir_fd, "clients", look_for_client, &lives);
    return lives;
}

uint64_t region_allocated(int dir_fd)
{
    uint64_t sum = 0;
    struct stat st;
    for (unsigned i = 0; i < N_FILES; i++)
        if (fstatat(dir_fd, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_blocks * 512;
    return sum;
}

struct search {
    const char *parent;
    struct stat own;
    struct region_beside *found; /* NULL: remove */
    unsigned removed;
};

static void remove_private(struct search *s, int at, const char *name, int dir, int lock)
{
    struct holder h;
    if (!lock_take(lock) || !still_there(dir, "lock", lock) || !is_of_dead(lock, &h) || !h.is_private ||
        has_client(dir))
        return;
    log_event(LOG_WARNING, "region '%s/%s' of an embedded node that is dead (pid %d) is removed", s->parent, name,
              h.pid);
    region_remove_clients(dir);
    region_remove_files(dir, true);
    unlinkat(at, name, AT_REMOVEDIR);
    s->removed++;
}

static void note(struct search *s, const char *name, int dir, const struct holder *h)
{
    struct region_beside *f = s->found;
    uint64_t bytes = region_allocated(dir);
    if (h->is_private) {
        f->left_bytes += bytes;
        return;
    }
    f->kept_bytes += bytes;
    f->n_kept++;
    if (bytes > f->largest_bytes) {
        f->largest_bytes = bytes;
        snprintf(f->largest, sizeof f->largest, "%s/%s", s->parent, name);
    }
}

static void look_at_neighbour(void *arg, int at, const char *name)
{
    struct search *s = arg;
    struct stat st;
    struct holder h;
    int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return;
    bool ours =
        fstat(dir, &st) == 0 && st.st_uid == geteuid() && st.st_dev == s->own.st_dev && st.st_ino != s->own.st_ino;
    int lock = ours ? openat(dir, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (lock >= 0 && is_of_dead(lock, &h)) {
        if (s->found == NULL && h.is_private)
            remove_private(s, at, name, dir, lock);
        else if (s->found != NULL && lock_is_free(lock) && !has_client(dir))
            note(s, name, dir, &h);
    }
    if (lock >= 0)
        close(lock);
    close(dir);
}

static unsigned look_beside(const char *path, int dir_fd, struct region_beside *found)
{
    char parent[512];
    struct search s = {.parent = parent, .found = found};
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

void region_beside(const char *path, int dir_fd, struct region_beside *out)
{
    *out = (struct region_beside){0};
    look_beside(path, dir_fd, out);
}

unsigned region_leftovers(const char *path, int dir_fd)
{
    return look_beside(path, dir_fd, NULL);
}
