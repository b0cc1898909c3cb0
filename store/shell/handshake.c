#include "store/shell/handshake.h"

#include "store/berth.h"
#include "store/fd.h"
#include "store/shell/dispatch.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/session.h"
#include "store/shell/space.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define SESSION_BYTES (400u << 10) /* pin file, answers, a message */
#define FDS_MAX 8u                 /* more than a hello has: what comes too many is seen and closed */

/* What came, and what has been made of it so far. */
struct visit {
    struct server *server;
    int socket;
    struct attach_hello hello;
    int fds[FDS_MAX];
    unsigned n_fds;
    struct ucred peer;
    struct ring_shared *ring;
    struct session *session;
    bool resumed;
    int pins_fd; /* to be sent */
    int status;
    char why[sizeof(((struct attach_welcome *)0)->sentence)];
};

static int refuse(struct visit *v, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int refuse(struct visit *v, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(v->why, sizeof(v->why), format, args);
    va_end(args);
    v->status = status;
    return status;
}

/* ---- what came ---- */

static void take_fds(struct visit *v, struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < n && v->n_fds < FDS_MAX; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            v->fds[v->n_fds++] = fd_above_stdio(fd);
        }
    }
}

/* There is room for more than a hello has: what is missing did not fit into this process's table. */
static bool lacks_fds(const struct visit *v, bool cut)
{
    bool lacks = cut && v->n_fds < FDS_MAX;
    for (unsigned i = 0; i < v->n_fds; i++)
        lacks |= v->fds[i] < 0;
    return lacks;
}

static int check_hello(struct visit *v, ssize_t n, bool cut)
{
    const struct attach_hello *h = &v->hello;
    if (n < (ssize_t)sizeof(*h) && (n < 8 || h->magic != ATTACH_MAGIC))
        return refuse(v, -EPROTO, "hello has %zd bytes and no magic: is this a client of berth", n);
    if (h->magic != ATTACH_MAGIC)
        return refuse(v, -EPROTO, "hello has another magic: is this a client of berth");
    if (n != (ssize_t)sizeof(*h) || h->format != LAYOUT_FORMAT || h->fingerprint != LAYOUT_FINGERPRINT)
        return refuse(v, BERTH_EFORMAT, "client and node do not share a format: use the same release of both");
    if (lacks_fds(v, cut))
        return refuse(v, -EMFILE, "the node has no descriptor left: raise the limit of open files of its process");
    if (cut || v->n_fds != ATTACH_HELLO_FDS)
        return refuse(v, -EINVAL, "descriptors with hello: %s%u came, it takes %u", cut ? "more than " : "", v->n_fds,
                      ATTACH_HELLO_FDS);
    if ((h->flags & ~(uint32_t)ATTACH_READER) || h->reserved)
        return refuse(v, -EINVAL, "hello has flags that this node does not know: use the same release of both");
    if (!memchr(h->name, 0, sizeof(h->name)))
        return refuse(v, -EINVAL, "hello has a name without an end");
    return 0;
}

/* 0; -EAGAIN; 1: the other side has gone. */
static int receive(struct visit *v, ssize_t *n, bool *cut)
{
    struct {
        struct attach_hello hello;
        char more; /* a longer message is seen to be longer */
    } in;
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &in, .iov_len = sizeof(in)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    memset(&in, 0, sizeof(in));
    *n = recvmsg(v->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (*n < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : 1;
    take_fds(v, &m);
    v->hello = in.hello;
    *cut = m.msg_flags & MSG_CTRUNC;
    return *n == 0 && v->n_fds == 0;
}

static bool is_eventfd(int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = 0;
    return strcmp(target, "anon_inode:[eventfd]") == 0;
}

/* The node loads and stores through this mapping: nobody may cut the file under it, and its pages must come from
 * ordinary memory, not from a pool of huge pages that may be empty (PROTOCOLS rule 7). */
static int check_ring_file(struct visit *v, int fd)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted)
        return refuse(v, -EPERM, "the ring is no memfd sealed against shrinking and growing");
    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return refuse(v, -errno, "the ring can't be looked at: %s", strerror(errno));
    if (fs.f_type != TMPFS_MAGIC || st.st_size != (off_t)sizeof(struct ring_shared))
        return refuse(v, -EINVAL, "the ring has %lld bytes, it takes %zu of ordinary pages", (long long)st.st_size,
                      sizeof(struct ring_shared));
    return 0;
}

static bool ring_is_fresh(const struct ring_shared *r)
{
    return r->magic == RING_MAGIC && r->format == LAYOUT_FORMAT && r->fingerprint == LAYOUT_FINGERPRINT &&
           !atomic_load(&r->request_tail) && !atomic_load(&r->request_head) && !atomic_load(&r->reply_tail) &&
           !atomic_load(&r->reply_head) && !atomic_load(&r->touch_tail);
}

static int take_ring(struct visit *v)
{
    int error = check_ring_file(v, v->fds[0]);
    if (error)
        return error;
    if (!is_eventfd(v->fds[1]))
        return refuse(v, -EINVAL, "the second descriptor of hello is no eventfd");
    fcntl(v->fds[1], F_SETFL, O_NONBLOCK);
    v->ring = map_shared(v->fds[0], sizeof(struct ring_shared), PROT_READ | PROT_WRITE);
    if (!v->ring)
        return refuse(v, -errno, "the ring can't be mapped: %s", strerror(errno));
    if (!ring_is_fresh(v->ring))
        return refuse(v, BERTH_EFORMAT, "the ring is of another format, or not empty");
    return 0;
}

/* ---- a session for it ---- */

/* Ids are reserved in the index before one is used, so that none ever comes twice, whatever dies when. */
static int next_id(struct server *s, uint64_t *id)
{
    if (s->next_session == s->session_limit) {
        uint64_t limit = s->session_limit + SESSION_BLOCK;
        struct batch *b = batch_create();
        int error = b ? batch_meta(b, META_NEXT_SESSION, limit) : -ENOMEM;
        if (!error)
            error = commit_now(s->commit, b);
        if (b)
            batch_destroy(b);
        if (error)
            return error;
        s->session_limit = limit;
    }
    *id = s->next_session++;
    return 0;
}

static int pins_write_header(const struct server *s, int fd, uint64_t id)
{
    struct {
        uint64_t magic;
        uint32_t format, fingerprint;
        uint64_t session;
        uint8_t uuid[16];
    } head = {PINS_MAGIC, LAYOUT_FORMAT, LAYOUT_FINGERPRINT, id, {0}};
    _Static_assert(offsetof(struct pins_file, uuid) == 24, "head of a pin file");
    memcpy(head.uuid, s->region.super->uuid, sizeof(head.uuid));
    if (ftruncate(fd, sizeof(struct pins_file)) != 0)
        return -errno;
    /* Allocated as far as the client may write: a full tmpfs is an error here and not a SIGBUS there. */
    if (fallocate(fd, 0, 0, offsetof(struct pins_file, entry) + PINS_SEGMENT * sizeof(uint32_t)) != 0)
        return -errno;
    return pwrite(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) ? 0 : -EIO;
}

/* The description that holds the lock goes to the client and is closed here: then only the client's mapping keeps
 * it. The node reads through another. */
static int pins_create(struct visit *v, struct session *c)
{
    const struct server *s = v->server;
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char name[32];
    snprintf(name, sizeof(name), "%llu", (unsigned long long)c->id);
    int fd = fd_above_stdio(openat(s->region.clients_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd < 0)
        return -errno;
    int error = pins_write_header(s, fd, c->id);
    int own = -1;
    if (!error && fcntl(fd, F_OFD_SETLK, &fl) != 0)
        error = -errno;
    if (!error) {
        own = fd_above_stdio(openat(s->region.clients_fd, name, O_RDWR | O_CLOEXEC));
        error = own < 0 ? -errno : pin_table_open(&c->pins, own, PINS_SEGMENT);
    }
    if (error) {
        if (own >= 0)
            close(own);
        unlinkat(s->region.clients_fd, name, 0);
        close(fd);
        return error;
    }
    v->pins_fd = fd;
    return 0;
}

static int room_for_session(struct visit *v)
{
    const struct server *s = v->server;
    char why[400];
    if (s->n_sessions == SESSIONS_MAX)
        return refuse(v, -EUSERS, "the node has %u sessions, the most that it serves: close some", SESSIONS_MAX);
    if (!space_fits(s->region.dir_fd, SESSION_BYTES, why, sizeof(why)))
        return refuse(v, -ENOMEM, "no memory for another session: %s", why);
    return 0;
}

static int session_new(struct visit *v)
{
    struct server *s = v->server;
    int error = room_for_session(v);
    if (error)
        return error;
    struct session *c = NULL;
    do {
        uint64_t id;
        error = next_id(s, &id);
        if (error)
            return refuse(v, error, "no session id can be reserved: %s",
                          error == -ENOSPC ? "the index is full" : strerror(-error));
        if (c)
            session_unmake(c);
        c = session_make(s, id);
        if (!c)
            return refuse(v, -ENOMEM, "no memory for a session");
        error = pins_create(v, c);
    } while (error == -EEXIST); /* left by a client of a pool that is no more, and still mapped there */
    if (error) {
        session_unmake(c);
        return refuse(v, error, "no pin table can be made in '%s/clients': %s%s", s->region.path, strerror(-error),
                      error == -ENOSPC ? ": remove files that are not needed from this file system" : "");
    }
    v->session = c;
    return sessions_insert(c);
}

static int session_resume(struct visit *v)
{
    struct server *s = v->server;
    const struct attach_hello *h = &v->hello;
    struct session *c = sessions_find(s, h->session);
    if (memcmp(h->uuid, s->region.super->uuid, sizeof(h->uuid)) != 0)
        return refuse(v, BERTH_ERESTART, "the node has another pool than session %llu was on: open the handle again",
                      (unsigned long long)h->session);
    if (!c || c->dead)
        return refuse(v, BERTH_ERESTART, "session %llu has ended: open the handle again",
                      (unsigned long long)h->session);
    if (s->region.relooked && c->id < s->first_session)
        return refuse(v, BERTH_ERESTART, "the lookup that session %llu has mapped was lost: open the handle again",
                      (unsigned long long)h->session);
    if (s->region.resized && c->id < s->first_session)
        return refuse(v, BERTH_ERESTART,
                      "the pool that session %llu has mapped has another size: open the handle again",
                      (unsigned long long)h->session);
    if (c->uid != v->peer.uid)
        return refuse(v, -EACCES, "session %llu is another user's", (unsigned long long)h->session);
    if (c->attached) {
        struct node_event ev = {.kind = EV_DETACHED, .session = c->id};
        char byte;
        /* Its hang-up may not have been noticed yet; a living connection is not taken over. */
        if (recv(c->socket_fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN)
            return refuse(v, -EBUSY, "session %llu is connected already", (unsigned long long)h->session);
        session_disconnect(c);
        dispatch(s, &ev);
    }
    v->pins_fd = fd_above_stdio(fcntl(c->pins.fd, F_DUPFD_CLOEXEC, 0));
    if (v->pins_fd < 0)
        return refuse(v, -errno, "no descriptor is left: %s", strerror(errno));
    watch_close(c->pid_watch);
    c->pid_watch = NULL;
    if (c->pid_fd >= 0)
        close(c->pid_fd);
    v->session = c;
    v->resumed = true;
    return 0;
}

/* ---- welcome ---- */

static bool may_write(const struct visit *v)
{
    return !v->session->foreign && !(v->hello.flags & ATTACH_READER);
}

static int find_applied(void *arg, uint64_t id, const struct session_row *row)
{
    struct attach_welcome *w = arg;
    if (id == w->session)
        w->applied = row->applied;
    return id == w->session;
}

static void welcome_fill(const struct visit *v, struct attach_welcome *w)
{
    const struct region *r = &v->server->region;
    *w = (struct attach_welcome){.magic = ATTACH_MAGIC,
                                 .session = v->session->id,
                                 .region_id = r->super->region_id,
                                 .incarnation = r->incarnation,
                                 .pool_bytes = r->pool.bytes,
                                 .slots_bytes = r->slots_bytes,
                                 .lookup_bytes = r->lookup_bytes,
                                 .tails_bytes = r->tails_bytes,
                                 .pin_entries = v->session->pins.acknowledged,
                                 .object_max = OBJECT_MAX};
    w->flags = (v->session->writable ? 0u : ATTACH_READER) | (v->resumed ? ATTACH_RESUMED : 0u);
    if (r->super->mr_bytes < w->object_max)
        w->object_max = r->super->mr_bytes;
    if (r->pool.bytes < w->object_max)
        w->object_max = r->pool.bytes;
    memcpy(w->uuid, r->super->uuid, sizeof(w->uuid));
    if (v->resumed)
        lmdb_ops.sessions(r->index, find_applied, w);
}

static int send_message(int socket, const struct attach_welcome *w, const int *fds, unsigned n)
{
    union {
        char bytes[CMSG_SPACE(ATTACH_WELCOME_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = (void *)w, .iov_len = sizeof(*w)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n) {
        memset(&control, 0, sizeof(control));
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    return sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int welcome(struct visit *v)
{
    const struct server *s = v->server;
    struct attach_welcome w;
    welcome_fill(v, &w);
    int fds[ATTACH_WELCOME_FDS] = {v->session->writable ? s->region.pool.fd : s->ro_fds[0],
                                   s->ro_fds[1],
                                   s->ro_fds[2],
                                   s->ro_fds[3],
                                   v->pins_fd,
                                   v->session->bell_fd};
    return send_message(v->socket, &w, fds, ATTACH_WELCOME_FDS);
}

/* ---- in order ---- */

static void doorbell_ready(void *arg, int events)
{
    struct session *c = arg;
    uint64_t rung;
    struct iovec to = {.iov_base = &rung, .iov_len = sizeof(rung)};
    (void)events;
    /* The client shares the description, with its flags: it may have made it blocking, and have read it meanwhile. */
    if (preadv2(c->bell_fd, &to, 1, -1, RWF_NOWAIT) < 0 && errno != EAGAIN)
        liveness_cut(c, "its doorbell can't be read");
}

static int open_doorbell(struct visit *v)
{
    struct session *c = v->session;
    c->bell_fd = fd_above_stdio(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (c->bell_fd < 0)
        return -errno;
    c->bell_watch = watch_open(&v->server->loop, c->bell_fd, UV_READABLE, doorbell_ready, c);
    return c->bell_watch ? 0 : -ENOMEM;
}

static void session_describe(struct visit *v, struct session_row *row)
{
    struct session *c = v->session;
    c->uid = v->peer.uid;
    c->pid = v->peer.pid;
    c->start_time = process_start_time(c->pid);
    c->foreign = c->uid != 0 && c->uid != geteuid();
    c->writable = may_write(v);
    c->pid_fd = peer_pidfd(v->socket, v->fds[2], c->pid);
    memcpy(c->name, v->hello.name, sizeof(c->name));
    *row = (struct session_row){.start_time = c->start_time, .pid = c->pid, .uid = c->uid};
    memcpy(row->name, c->name, sizeof(row->name));
}

static int connect_session(struct visit *v)
{
    struct session *c = v->session;
    struct session_row row;
    session_describe(v, &row);
    c->socket_fd = v->socket;
    session_connect(c, v->ring, v->fds[1]);
    v->ring = NULL;
    v->fds[1] = -1;
    int error = open_doorbell(v);
    if (!error)
        error = liveness_watch_process(c);
    if (!error)
        error = liveness_watch_socket(c);
    struct node_event ev = {
        .kind = EV_ATTACH, .session = c->id, .writable = c->writable, .row = v->resumed ? NULL : &row};
    dispatch(v->server, &ev);
    if (!error)
        error = welcome(v);
    if (!error) {
        log_event(LOG_DEBUG, "session %llu (%s, pid %d, uid %u) %s", (unsigned long long)c->id, c->name, (int)c->pid,
                  (unsigned)c->uid, v->resumed ? "goes on" : "begins");
        return 0;
    }
    struct attach_welcome w = {.magic = ATTACH_MAGIC, .status = error};
    snprintf(w.sentence, sizeof(w.sentence), "the session can't be set up: %s", strerror(-error));
    send_message(v->socket, &w, NULL, 0);
    liveness_cut(c, strerror(-error));
    return error;
}

static void visit_end(struct visit *v)
{
    for (unsigned i = 0; i < v->n_fds; i++)
        if (v->fds[i] >= 0)
            close(v->fds[i]);
    if (v->pins_fd >= 0)
        close(v->pins_fd);
    unmap_shared(v->ring, sizeof(*v->ring));
}

static int meet(struct visit *v, ssize_t n, bool cut)
{
    socklen_t size = sizeof(v->peer);
    if (getsockopt(v->socket, SOL_SOCKET, SO_PEERCRED, &v->peer, &size) != 0)
        return refuse(v, -errno, "the other side can't be identified: %s", strerror(errno));
    int error = check_hello(v, n, cut);
    if (!error)
        error = take_ring(v);
    if (!error)
        error = v->hello.session ? session_resume(v) : session_new(v);
    return error;
}

void handshake_refuse(int socket, int status, const char *sentence)
{
    struct attach_welcome w = {.magic = ATTACH_MAGIC, .status = status};
    snprintf(w.sentence, sizeof(w.sentence), "%s", sentence);
    send_message(socket, &w, NULL, 0);
    close(socket);
}

int handshake(struct server *s, int socket)
{
    struct visit v = {.server = s, .socket = socket, .pins_fd = -1};
    ssize_t n;
    bool cut = false;
    int got = receive(&v, &n, &cut);
    if (got < 0)
        return got;
    if (got == 1) {
        close(socket);
        return 0;
    }
    if (meet(&v, n, cut) == 0) {
        connect_session(&v);
    } else {
        log_often(LOG_WARNING, "a client was refused (pid %d, uid %u): %s", (int)v.peer.pid, (unsigned)v.peer.uid,
                  v.why);
        handshake_refuse(socket, v.status, v.why);
    }
    visit_end(&v);
    return 0;
}

int handshake_prepare(struct server *s)
{
    const int fds[4] = {s->region.pool.fd, s->region.slots_fd, s->region.lookup_fd, s->region.tails_fd};
    for (unsigned i = 0; i < 4; i++)
        s->ro_fds[i] = -1;
    for (unsigned i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
        s->ro_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (s->ro_fds[i] < 0)
            return -errno;
    }
    return 0;
}

void handshake_release(struct server *s)
{
    for (unsigned i = 0; i < 4; i++)
        if (s->ro_fds[i] >= 0)
            close(s->ro_fds[i]);
}
