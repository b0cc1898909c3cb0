#include "store/shell/adopt.h"

#include "store/shell/dispatch.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/region_ours.h"
#include "store/shell/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct find_row {
    uint64_t id;
    struct session_row row;
    bool found;
};

static int row_is(void *arg, uint64_t id, const struct session_row *row)
{
    struct find_row *f = arg;
    if (id != f->id)
        return 0;
    f->row = *row;
    f->found = true;
    return 1;
}

/* The process as the index remembers it, if that pid is still the same process. */
static int row_pidfd(const struct session_row *row)
{
    if (row->pid <= 0)
        return -1;
    int fd = (int)syscall(SYS_pidfd_open, row->pid, 0);
    if (fd < 0)
        return -1;
    /* Compared while the pidfd keeps the pid from meaning another process unseen. */
    if (row->start_time && process_start_time(row->pid) == row->start_time)
        return fd;
    close(fd);
    return -1;
}

static bool file_fits(const struct server *s, int fd, uint64_t id)
{
    struct {
        uint64_t magic;
        uint32_t format, fingerprint;
        uint64_t session;
        uint8_t uuid[16];
    } head;
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(struct pins_file) &&
           pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) && head.magic == PINS_MAGIC &&
           head.format == LAYOUT_FORMAT && head.fingerprint == LAYOUT_FINGERPRINT && head.session == id &&
           memcmp(head.uuid, s->region.super->uuid, sizeof(head.uuid)) == 0;
}

static int adopt(struct server *s, uint64_t id, int fd)
{
    struct find_row f = {.id = id};
    struct session *c = session_make(s, id);
    if (!c)
        return -ENOMEM;
    /* How much of the table was acknowledged is not known any more: all of it is read, up to its high-water mark. */
    int error = pin_table_open(&c->pins, fd, PINS_CAPACITY);
    if (error)
        goto unmake;
    lmdb_ops.sessions(s->region.index, row_is, &f);
    /* Without a row the node died before it could write one: the client is taken for one of the node's own user. */
    c->uid = f.found ? f.row.uid : geteuid();
    c->pid = f.row.pid;
    c->start_time = f.row.start_time;
    memcpy(c->name, f.row.name, sizeof(c->name));
    c->pid_fd = row_pidfd(&f.row);
    error = liveness_watch_process(c);
    if (!error)
        error = sessions_insert(c);
    if (error)
        goto unmake;
    struct node_event ev = {.kind = EV_ADOPT, .session = id};
    dispatch(s, &ev);
    log_event(LOG_INFO, "session %llu (%s, pid %d) of an earlier node lives: its pins and drafts stand",
              (unsigned long long)id, c->name, (int)c->pid);
    return 0;

unmake:
    if (c->pins.fd < 0)
        close(fd);
    session_unmake(c);
    return error;
}

static int adopt_file(struct server *s, const char *name)
{
    char *end;
    uint64_t id = strtoull(name, &end, 10);
    if (!id || *end)
        return 0;
    int fd = openat(s->region.clients_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!region_is_pins(name, fd)) {
        log_event(LOG_WARNING, "'%s/clients/%s' is no pin file: it is left alone", s->region.path, name);
        close(fd);
        return 0;
    }
    if (liveness_unlink(s, id, fd)) {
        close(fd);
        return 0;
    }
    if (!file_fits(s, fd, id)) {
        log_event(LOG_WARNING, "pin file '%s/clients/%s' is of another pool and still in use: it is left alone",
                  s->region.path, name);
        close(fd);
        return 0;
    }
    return adopt(s, id, fd);
}

int adopt_sessions(struct server *s)
{
    int fd = openat(s->region.clients_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    int error = 0;
    for (struct dirent *e = readdir(dir); e && !error; e = readdir(dir))
        error = adopt_file(s, e->d_name);
    closedir(dir);
    return error;
}
