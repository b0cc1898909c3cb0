/* peer_socket.c: Redis and memcached without a client library, as few copies as their protocols allow: a request
 * leaves by one writev out of the caller's memory, and an answer's bytes come by readv straight into it. That needs
 * a reader who knows the sizes, as here: everything but the payload is known beforehand and compared with what came.
 * ADDRESS: redis:PATH or memcached:PATH of a Unix socket. */
#include "peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define VECTORS (3 * PEER_MANY + 2)
#define TEXT 8192u /* bytes of all that is not payload of a call, at most */

/* Payload and the texts around it, one after the other. */
struct message {
    struct iovec iov[VECTORS];
    unsigned n;
    char text[TEXT];
    size_t used;
};

const bool peer_puts_many = true;
static int fd;
static bool redis;
static struct message out, wanted;
static char came[TEXT];

void peer_open(const char *address)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = strchr(address, ':');

    redis = strncmp(address, "redis:", 6) == 0;
    if (!path || strlen(path + 1) >= sizeof(a.sun_path))
        work_fail("'%s' is no address", address);
    memcpy(a.sun_path, path + 1, strlen(path + 1));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        work_fail("%s: %s", address, strerror(errno));
}

const char *peer_client(void)
{
    return "writev and readv";
}

/* ---- messages ---- */

static void begin(struct message *m)
{
    m->n = 0;
    m->used = 0;
}

static void add_bytes(struct message *m, void *data, size_t size)
{
    m->iov[m->n++] = (struct iovec){data, size};
}

/* Texts that follow each other lie in one piece. */
__attribute__((format(printf, 2, 3))) static void add_text(struct message *m, const char *format, ...)
{
    char *to = m->text + m->used;
    struct iovec *last = m->n ? &m->iov[m->n - 1] : NULL;
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(to, TEXT - m->used, format, args);
    va_end(args);
    if (size < 0 || m->used + (size_t)size >= TEXT)
        work_fail("a request is too long");
    m->used += (size_t)size;
    if (last && (char *)last->iov_base + last->iov_len == to)
        last->iov_len += (size_t)size;
    else
        add_bytes(m, to, (size_t)size);
}

static void advance(struct iovec **iov, unsigned *n, size_t size)
{
    while (*n && size >= (*iov)->iov_len) {
        size -= (*iov)->iov_len;
        ++*iov;
        --*n;
    }
    if (*n) {
        (*iov)->iov_base = (char *)(*iov)->iov_base + size;
        (*iov)->iov_len -= size;
    }
}

static void move_all(struct iovec *iov, unsigned n, ssize_t (*move)(int, const struct iovec *, int))
{
    while (n) {
        ssize_t r = move(fd, iov, (int)n);

        if (r <= 0 && (r == 0 || errno != EINTR))
            work_fail("the connection ended: %s", r ? strerror(errno) : "closed");
        advance(&iov, &n, r > 0 ? (size_t)r : 0);
    }
}

/* Sends `out`, receives what `wanted` has place for; its texts must be what came. */
static void exchange(void)
{
    for (unsigned i = 0; i < wanted.n; i++) {
        char *base = wanted.iov[i].iov_base;

        if (base >= wanted.text && base < wanted.text + TEXT)
            wanted.iov[i].iov_base = came + (base - wanted.text);
    }
    move_all(out.iov, out.n, writev);
    move_all(wanted.iov, wanted.n, readv);
    if (memcmp(came, wanted.text, wanted.used) != 0)
        work_fail("another answer than '%.60s': '%.60s'", wanted.text, came);
}

/* ---- requests ---- */

static void start(void)
{
    begin(&out);
    begin(&wanted);
}

void peer_put(struct item *items, unsigned n)
{
    start();
    for (unsigned i = 0; i < n; i++) {
        if (redis)
            add_text(&out, "*3\r\n$3\r\nSET\r\n$%u\r\n%s\r\n$%zu\r\n", PEER_KEY, items[i].key, items[i].size);
        else
            add_text(&out, "set %s 0 0 %zu\r\n", items[i].key, items[i].size);
        add_bytes(&out, (void *)(uintptr_t)items[i].data, items[i].size);
        add_text(&out, "\r\n");
        add_text(&wanted, redis ? "+OK\r\n" : "STORED\r\n");
    }
    exchange();
}

/* Redis: GETs one after the other, which is faster than MGET here; memcached: one request. */
static void ask(const struct item *items, unsigned n)
{
    if (!redis)
        add_text(&out, "get");
    for (unsigned i = 0; i < n; i++)
        if (redis)
            add_text(&out, "*2\r\n$3\r\nGET\r\n$%u\r\n%s\r\n", PEER_KEY, items[i].key);
        else
            add_text(&out, " %s", items[i].key);
    if (!redis)
        add_text(&out, "\r\n");
}

void peer_get(struct item *items, unsigned n)
{
    start();
    ask(items, n);
    for (unsigned i = 0; i < n; i++) {
        if (redis)
            add_text(&wanted, "$%zu\r\n", items[i].size);
        else
            add_text(&wanted, "VALUE %s 0 %zu\r\n", items[i].key, items[i].size);
        add_bytes(&wanted, items[i].room, items[i].size);
        add_text(&wanted, "\r\n");
        items[i].data = items[i].room;
    }
    if (!redis)
        add_text(&wanted, "END\r\n");
    exchange();
}

void peer_release(struct item *items, unsigned n)
{
    (void)items;
    (void)n;
}

void peer_remove(struct item *items, unsigned n)
{
    start();
    if (redis)
        add_text(&out, "*%u\r\n$3\r\nDEL\r\n", n + 1);
    for (unsigned i = 0; i < n; i++) {
        if (redis)
            add_text(&out, "$%u\r\n%s\r\n", PEER_KEY, items[i].key);
        else
            add_text(&out, "delete %s\r\n", items[i].key);
        if (!redis)
            add_text(&wanted, "DELETED\r\n");
    }
    if (redis)
        add_text(&wanted, ":%u\r\n", n);
    exchange();
}
