/* attach.c: hello, welcome, and the mappings that come with it (attach.h). */
#include "store/client.h"

#include "store/map.h"
#include "store/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { FD_POOL, FD_SLOTS, FD_LOOKUP, FD_TAILS, FD_PINS, FD_DOORBELL };

static void close_fds(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
        fds[i] = -1;
    }
}

/* limit_ns 0: it does not wait at all. */
static int connect_to(const char *path, int64_t limit_ns)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        return -ENAMETOOLONG;
    }
    strcpy(to.sun_path, path);
    int fd = fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (limit_ns ? 0 : SOCK_NONBLOCK), 0));
    if (fd < 0) {
        return -errno;
    }
    struct timeval limit = {.tv_sec = limit_ns / 1000000000, .tv_usec = limit_ns / 1000 % 1000000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

int attach_connect(const char *path, int64_t limit_ns)
{
    return connect_to(path, limit_ns > 1000 ? limit_ns : 1000); /* a whole microsecond, or there is no limit */
}

static int connect_now(const char *path)
{
    return connect_to(path, 0);
}

/* ---- hello ---- */

static int send_hello(struct berth *b, int socket)
{
    struct attach_hello hello = {.magic = ATTACH_MAGIC,
                                 .format = LAYOUT_FORMAT,
                                 .fingerprint = LAYOUT_FINGERPRINT,
                                 .session = b->session,
                                 .flags = b->flags & BERTH_OPEN_READER ? ATTACH_READER : 0};
    memcpy(hello.uuid, b->uuid, sizeof hello.uuid);
    memcpy(hello.name, b->name, sizeof hello.name);
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (pidfd < 0) {
        return -errno;
    }
    int fds[ATTACH_HELLO_FDS] = {b->ring_fd.fd, b->calls.wake_fd.fd, pidfd};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {.iov_base = &hello, .iov_len = sizeof hello};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    ssize_t n = sendmsg(socket, &m, MSG_NOSIGNAL);
    int rc = n == (ssize_t)sizeof hello ? 0 : n < 0 ? -errno : -EPROTO;
    close(pidfd);
    return rc;
}

/* ---- welcome ---- */

/* Takes every descriptor that came, so that none is lost; those beyond the welcome's are closed. none_left: one could
 * not be taken for want of numbers. */
static unsigned take_fds(struct msghdr *m, int *fds, bool *none_left)
{
    unsigned found = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (found < ATTACH_WELCOME_FDS) {
                fd = fd_above_stdio(fd);
                *none_left |= fd < 0;
                fds[found++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return found;
}

static int wait_readable(int socket, int64_t until)
{
    for (;;) {
        int64_t left = until - client_now();
        struct pollfd p = {.fd = socket, .events = POLLIN};
        int n = poll(&p, 1, left > 0 ? (int)((left + 999999) / 1000000) : 0);
        if (n > 0) {
            return 0;
        }
        if (n == 0) {
            return -ETIMEDOUT;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

/* -EAGAIN: it is not there yet. */
static int receive_welcome(int socket, struct attach_welcome *w, int *fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = w, .iov_len = sizeof *w};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memset(fds, 0xff, ATTACH_WELCOME_FDS * sizeof *fds);
    int rc = 0;
    ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) {
        return -errno;
    }
    bool none_left = false;
    unsigned found = take_fds(&m, fds, &none_left);
    if (n == 0) {
        return -ECONNRESET;
    }
    /* There is room for more than a welcome has: what is cut off did not fit into this process's table. */
    if (none_left || ((m.msg_flags & MSG_CTRUNC) && found < ATTACH_WELCOME_FDS)) {
        rc = -EMFILE;
    } else if (n != (ssize_t)sizeof *w || w->magic != ATTACH_MAGIC || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
               (w->status == 0 && found != ATTACH_WELCOME_FDS)) {
        rc = BERTH_EFORMAT;
    }
    if (rc) {
        close_fds(fds, ATTACH_WELCOME_FDS);
        return rc;
    }
    w->sentence[sizeof w->sentence - 1] = '\0';
    return 0;
}

static int greet(struct berth *b, int socket, int64_t until, struct attach_welcome *w, int *fds)
{
    int rc = send_hello(b, socket);
    while (rc == 0) {
        rc = wait_readable(socket, until);
        rc = rc ? rc : receive_welcome(socket, w, fds);
        if (rc != -EAGAIN) {
            return rc;
        }
        rc = 0;
    }
    return rc;
}

/* ---- mappings ---- */

static int map_one(struct mapped *m, int fd, uint64_t bytes, int prot)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (bytes == 0 || (uint64_t)st.st_size < bytes) {
        return BERTH_EFORMAT; /* what lies beyond the file's end would be SIGBUS */
    }
    m->base = map_shared(fd, bytes, prot);
    if (!m->base) {
        return -errno;
    }
    m->bytes = bytes;
    return 0;
}

static int map_slots(struct berth *b, int fd, const struct attach_welcome *w)
{
    int rc = map_one(&b->slots, fd, w->slots_bytes, PROT_READ);
    if (rc) {
        return rc;
    }
    const struct slots_super *s = b->slots.base;
    if (w->slots_bytes < sizeof *s || s->magic != SLOTS_MAGIC || s->format != LAYOUT_FORMAT ||
        s->fingerprint != LAYOUT_FINGERPRINT || memcmp(s->uuid, w->uuid, sizeof s->uuid) != 0 ||
        s->headers_offset % sizeof(struct slot_header) != 0 || s->headers_offset > w->slots_bytes ||
        s->max_headers > (w->slots_bytes - s->headers_offset) / sizeof(struct slot_header)) {
        return BERTH_EFORMAT;
    }
    b->lookup.headers = (const struct slot_header *)((const uint8_t *)s + s->headers_offset);
    b->lookup.n_headers = s->max_headers;
    b->region_id = s->region_id;
    return 0;
}

static int map_lookup(struct berth *b, const int *fds, const struct attach_welcome *w)
{
    int rc = map_one(&b->lookups, fds[FD_LOOKUP], w->lookup_bytes, PROT_READ);
    rc = rc ? rc : map_one(&b->tails, fds[FD_TAILS], w->tails_bytes, PROT_READ);
    rc = rc ? rc : lookup_attach(&b->lookup, b->lookups.base, w->lookup_bytes);
    rc = rc ? rc : map_slots(b, fds[FD_SLOTS], w);
    if (rc == 0) {
        b->lookup.tails = b->tails.base;
        b->lookup.n_tails = (uint32_t)(w->tails_bytes / TAIL_CELL);
    }
    return rc;
}

static int map_pool(struct berth *b, int fd, const struct attach_welcome *w)
{
    struct mapped read = {0}, write = {0};
    int rc = map_one(&read, fd, w->pool_bytes, PROT_READ);
    if (rc == 0 && !(w->flags & ATTACH_READER)) {
        rc = map_one(&write, fd, w->pool_bytes, PROT_READ | PROT_WRITE);
    }
    b->pool = read.base;
    b->writable = write.base;
    b->pool_bytes = w->pool_bytes;
    return rc;
}

static int map_pins(struct berth *b, int fd, const struct attach_welcome *w)
{
    struct mapped m = {0};
    int rc = map_one(&m, fd, sizeof(struct pins_file), PROT_READ | PROT_WRITE);
    b->pins = m.base;
    if (rc) {
        return rc;
    }
    if (b->pins->magic != PINS_MAGIC || b->pins->format != LAYOUT_FORMAT ||
        b->pins->fingerprint != LAYOUT_FINGERPRINT || b->pins->session != w->session || w->pin_entries < 1 ||
        w->pin_entries > PINS_CAPACITY) {
        return BERTH_EFORMAT;
    }
    atomic_store_explicit(&b->pin_entries, w->pin_entries, memory_order_relaxed);
    return 0;
}

void attach_unmap(struct berth *b)
{
    unmap_shared((void *)(uintptr_t)b->pool, b->pool_bytes);
    unmap_shared(b->writable, b->pool_bytes);
    unmap_shared(b->pins, sizeof(struct pins_file));
    unmap_shared(b->slots.base, b->slots.bytes);
    unmap_shared(b->lookups.base, b->lookups.bytes);
    unmap_shared(b->tails.base, b->tails.bytes);
}

static int refused(const struct attach_welcome *w)
{
    return berth_fail(w->status, "%s", w->sentence[0] ? w->sentence : berth_error_text(w->status));
}

int attach_fail_descriptors(int error)
{
    return berth_fail(error, error == -EMFILE ? "no descriptor is left in this process: raise its limit (ulimit -n)"
                                              : "no descriptor is left in the system: raise fs.file-max");
}

int attach_first(struct berth *b, int socket)
{
    struct attach_welcome w;
    int fds[ATTACH_WELCOME_FDS];
    int rc = greet(b, socket, client_now() + b->timeout_ns, &w, fds);
    if (rc) {
        if (rc == BERTH_EFORMAT) {
            return berth_fail_plain(rc);
        }
        if (rc == -EMFILE || rc == -ENFILE) {
            return attach_fail_descriptors(rc);
        }
        return berth_fail(BERTH_ENODE, "the node closed the connection or did not answer: %s", berth_error_text(rc));
    }
    if (w.status) {
        return refused(&w);
    }
    rc = map_pool(b, fds[FD_POOL], &w);
    rc = rc ? rc : map_lookup(b, fds, &w);
    rc = rc ? rc : map_pins(b, fds[FD_PINS], &w);
    close_fds(fds, FD_DOORBELL);
    if (rc) {
        close_fds(fds, ATTACH_WELCOME_FDS);
        return rc == -EPROTO ? berth_fail_plain(BERTH_EFORMAT)
                             : berth_fail(rc, "the region could not be mapped: %s", berth_error_text(rc));
    }
    fd_keep(&b->calls.doorbell, fds[FD_DOORBELL]);
    fd_keep(&b->calls.socket, socket);
    b->session = w.session;
    b->object_max = w.object_max < OBJECT_MAX ? w.object_max : OBJECT_MAX;
    memcpy(b->uuid, w.uuid, sizeof b->uuid);
    return 0;
}

/* ---- again ---- */

static void reset_ring(struct ring_shared *r)
{
    /* Nobody here uses it while the calls are down, and a node that still has it finds it empty, or broken, and hangs
     * up. */
    atomic_store(&r->request_tail, 0);
    atomic_store(&r->request_head, 0);
    atomic_store(&r->reply_tail, 0);
    atomic_store(&r->reply_head, 0);
    atomic_store(&r->touch_tail, 0);
    atomic_store(&r->node_sleeping, 0);
    atomic_store(&r->client_sleeping, 0);
}

static void take_over(struct berth *b, int socket, int doorbell)
{
    pthread_mutex_lock(&b->lock);
    struct kept_fd old = b->calls.socket, old_bell = b->calls.doorbell;
    fd_keep(&b->calls.socket, socket);
    fd_keep(&b->calls.doorbell, doorbell);
    queues_watch(b, old.fd, socket);
    pthread_mutex_unlock(&b->lock);
    fd_drop(&old);
    fd_drop(&old_bell);
}

int attach_begin(struct berth *b)
{
    if (calls_lost(b)) {
        return -EBADF;
    }
    int socket = connect_now(b->path);
    if (socket < 0) {
        return socket;
    }
    /* Where it was this side that gave up, the node still has the session connected, and would refuse it to another. */
    if (fd_is_ours(&b->calls.socket)) {
        shutdown(b->calls.socket.fd, SHUT_RDWR);
    }
    atomic_store_explicit(&b->muted, true, memory_order_relaxed);
    reset_ring(b->ring);
    int rc = send_hello(b, socket);
    if (rc) {
        attach_over(b);
        close(socket);
    }
    return rc ? rc : socket;
}

void attach_over(struct berth *b)
{
    atomic_store_explicit(&b->muted, false, memory_order_relaxed);
}

int attach_end(struct berth *b, int socket)
{
    struct attach_welcome w;
    int fds[ATTACH_WELCOME_FDS];
    int rc = receive_welcome(socket, &w, fds);
    if (rc || w.status) {
        return rc ? rc : w.status == BERTH_ERESTART || w.status == BERTH_EFORMAT ? 0 : w.status;
    }
    /* The files are the ones that are mapped, or the session does not go on. Its pin file stays mapped as it is: that
     * mapping keeps the lock by which the node knows that the session lives. */
    bool same = (w.flags & ATTACH_RESUMED) && w.session == b->session && memcmp(w.uuid, b->uuid, sizeof w.uuid) == 0;
    close_fds(fds, FD_DOORBELL);
    if (!same) {
        close_fds(fds, ATTACH_WELCOME_FDS);
        return 0;
    }
    take_over(b, socket, fds[FD_DOORBELL]);
    return 1;
}
