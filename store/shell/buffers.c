#include "store/shell/buffers.h"

#include "store/berth.h"
#include "store/fd.h"
#include "store/shell/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FDS_MAX 4u /* room for more than there may be, so that more is seen to be more */
#define RECEIVE_MAX 32u

/* ---- descriptors ---- */

static void offer(struct session *c, uint64_t cookie, int fd)
{
    if (c->offered_fd >= 0)
        close(c->offered_fd);
    c->offered_fd = fd;
    c->offered = cookie;
}

static unsigned take_fds(struct msghdr *m, int *fds)
{
    unsigned found = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned n = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < n && found < FDS_MAX; i++, found++)
            memcpy(&fds[found], CMSG_DATA(h) + i * sizeof(int), sizeof(int));
    }
    return found;
}

/* One message: 1, 0 there is none, -EPROTO. */
static int receive_one(struct session *c)
{
    struct {
        struct attach_buffer said;
        char more; /* a longer message is seen to be longer */
    } in;
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = &in, .iov_len = sizeof(in)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int fds[FDS_MAX];
    ssize_t n = recvmsg(c->socket_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return 0; /* who watches the socket sees whether it was closed */
    unsigned found = take_fds(&m, fds);
    bool good = n == (ssize_t)sizeof(in.said) && in.said.magic == ATTACH_BUFFER_MAGIC && in.said.cookie && found <= 1 &&
                !c->foreign;
    if (good && found)
        offer(c, in.said.cookie, fd_above_stdio(fds[0]));
    for (unsigned i = 0; i < found && !good; i++)
        close(fds[i]);
    return good ? 1 : -EPROTO; /* without its descriptor this process has no room for one: BUFFER will say so */
}

int buffers_receive(struct session *c)
{
    int said = 0;
    for (unsigned i = 0; i < RECEIVE_MAX && c->socket_fd >= 0; i++) {
        int one = receive_one(c);
        if (one <= 0)
            return one < 0 ? one : said;
        said = 1;
    }
    return said;
}

/* ---- buffers ---- */

static int check_file(int fd, const struct msg_buffer *m)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0 || fs.f_type == HUGETLBFS_MAGIC)
        return -EINVAL;
    if (!(seals & F_SEAL_SHRINK))
        return -EPERM;
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return -EACCES; /* mmap would say -EPERM, which is the answer above */
    return m->offset <= (uint64_t)st.st_size && m->bytes <= (uint64_t)st.st_size - m->offset ? 0 : -EINVAL;
}

static int map(struct session *c, const struct msg_buffer *m, int fd)
{
    int e = check_file(fd, m);
    struct buffer *b = e ? NULL : calloc(1, sizeof *b);
    if (!b)
        return e ? e : -ENOMEM;
    b->bytes = m->bytes;
    b->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)m->offset);
    if (b->base == MAP_FAILED) {
        e = -errno;
        free(b);
        return e;
    }
    madvise(b->base, b->bytes, MADV_DONTFORK);
    b->number = ++c->last_buffer;
    TAILQ_INSERT_TAIL(&c->buffers, b, entry);
    c->n_buffers++;
    c->buffer_bytes += b->bytes;
    return 0;
}

static void unmap(struct buffer *b)
{
    munmap(b->base, b->bytes);
    free(b);
}

static void forget(struct session *c, struct buffer *b)
{
    TAILQ_REMOVE(&c->buffers, b, entry);
    c->n_buffers--;
    c->buffer_bytes -= b->bytes;
}

static struct buffer *find(struct session *c, uint64_t number)
{
    struct buffer *b = TAILQ_FIRST(&c->buffers);
    while (b && b->number != number)
        b = TAILQ_NEXT(b, entry);
    return b;
}

static void answer_quota(struct session *c, const struct msg_buffer *m)
{
    struct msg_reply r = {.head = {.bytes = sizeof(r), .op = m->head.op, .id = m->head.id},
                          .status = BERTH_EQUOTA,
                          .counter = m->bytes,
                          .region = BUFFERS_BYTES,
                          .figure = {c->buffer_bytes}};
    r.head.stamp = (uint64_t)server_clock(c->server);
    session_reply(c, &r);
}

static void add(struct session *c, const struct msg_buffer *m)
{
    int said = c->offered_fd >= 0 && c->offered == m->cookie ? 1 : buffers_receive(c);
    bool came = said >= 0 && c->offered_fd >= 0 && c->offered == m->cookie;
    if (came && (c->n_buffers >= BUFFERS_MAX || m->bytes > BUFFERS_BYTES - c->buffer_bytes)) {
        answer_quota(c, m);
    } else {
        int e = came ? map(c, m, c->offered_fd) : -ESTALE;
        session_answer(c, &m->head, e, e ? 0 : c->last_buffer);
    }
    offer(c, 0, -1);
}

static void drop(struct session *c, const struct msg_buffer *m)
{
    struct buffer *b = find(c, m->number);
    int e = !b ? -ENOENT : b->users ? -EBUSY : 0;
    if (e == 0) {
        forget(c, b);
        unmap(b);
    }
    session_answer(c, &m->head, e, 0);
}

void buffers_request(struct session *c, const struct msg_buffer *m)
{
    if (m->kind == MSG_BUFFER_REGISTER)
        add(c, m);
    else
        drop(c, m);
}

void buffers_drop(struct session *c)
{
    struct buffer *b;
    offer(c, 0, -1);
    while ((b = TAILQ_FIRST(&c->buffers))) {
        /* The analyzer does not follow a list through its nodes. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        forget(c, b);
        b->gone = true;
        if (b->users == 0)
            unmap(b);
    }
}

struct buffer *buffer_take(struct session *c, uint64_t number)
{
    struct buffer *b = find(c, number);
    if (b)
        b->users++;
    return b;
}

void buffer_leave(struct buffer *b)
{
    if (--b->users == 0 && b->gone)
        unmap(b);
}
