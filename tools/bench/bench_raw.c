#include "tools/bench/bench_raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "replication/tcp.h"
#include "store/map.h"
#include "store/populate.h"
#include "tools/bench/bench_buffer.h"

#define ASKED_MAX 64u  /* questions that the owner reads at a time */
#define STRIDE 7919u   /* between blocks that follow each other: no order that a prefetcher finds */
#define FIRST_BYTE 'r' /* the owner is ready */

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What Berth sets between processes of one host: the baseline differs in what is sent, not in how. */
static void set_options(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    tcp_unpace(fd);
}

/* ---- the owner ---- */

struct owner {
    int fd, file; /* file -1: send */
    const uint8_t *pool;
    uint64_t size, blocks;
};

static bool give(const struct owner *o, uint64_t block)
{
    off_t at = (off_t)(block * STRIDE % o->blocks * o->size);
    uint64_t left = o->size;

    while (left > 0) {
        ssize_t n = o->file >= 0 ? sendfile(o->fd, o->file, &at, left) : send(o->fd, o->pool + at, left, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        if (o->file < 0)
            at += n;
        left -= (uint64_t)n;
    }
    return true;
}

static void serve(const struct owner *o)
{
    uint64_t asked[ASKED_MAX];
    size_t have = 0;

    for (;;) {
        ssize_t n = recv(o->fd, (uint8_t *)asked + have, sizeof(asked) - have, 0);

        if (n <= 0)
            return;
        have += (size_t)n;
        for (size_t i = 0; i < have / sizeof(*asked); i++)
            if (!give(o, asked[i]))
                return;
        memmove(asked, asked + have / sizeof(*asked), have % sizeof(*asked));
        have %= sizeof(*asked);
    }
}

static _Noreturn void run_owner(int listener, const struct bench_raw *r, bool by_file)
{
    struct owner o = {.size = r->size, .blocks = r->blocks};
    uint64_t bytes = r->size * r->blocks;
    int file = memfd_create("berth-bench", MFD_CLOEXEC);
    uint8_t *pool;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (file < 0 || ftruncate(file, (off_t)bytes))
        _exit(1);
    pool = map_shared(file, bytes, PROT_READ | PROT_WRITE);
    if (pool == NULL || populate(pool, file, bytes, 1, NULL)) /* the same pages as a pool's */
        _exit(1);
    memset(pool, 7, bytes);
    o.pool = pool;
    o.file = by_file ? file : -1;
    o.fd = accept(listener, NULL, NULL);
    set_options(o.fd);
    if (send(o.fd, &(char){FIRST_BYTE}, 1, MSG_NOSIGNAL) == 1)
        serve(&o);
    _exit(0);
}

/* ---- the reader ---- */

static int listen_anywhere(struct sockaddr_in *a)
{
    socklen_t n = sizeof(*a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd >= 0 &&
        (bind(fd, (void *)a, sizeof(*a)) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)(void *)a, &n))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int start_owner(struct bench_raw *r, bool by_file)
{
    struct sockaddr_in a;
    int listener = listen_anywhere(&a), error = 0;
    char ready = 0;

    if (listener < 0)
        return -errno;
    r->pid = fork();
    if (r->pid == 0)
        run_owner(listener, r, by_file);
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->pid < 0 || r->fd < 0 || connect(r->fd, (struct sockaddr *)(void *)&a, sizeof(a)))
        error = -errno;
    close(listener); /* an owner that ends before it has accepted is seen below */
    if (error)
        return error;
    set_options(r->fd);
    return recv(r->fd, &ready, 1, 0) == 1 && ready == FIRST_BYTE ? 0 : -ENOMEM;
}

int bench_raw_open(struct bench_raw *r, uint64_t size, uint64_t blocks, unsigned depth, bool by_file)
{
    int error;

    *r = (struct bench_raw){.fd = -1, .size = size, .blocks = blocks, .depth = depth};
    r->to = bench_buffer(size * depth);
    r->since = calloc(depth, sizeof(*r->since));
    error = r->to && r->since ? start_owner(r, by_file) : -ENOMEM;
    if (error)
        bench_raw_close(r);
    return error;
}

static int ask(struct bench_raw *r, uint64_t from, uint64_t to)
{
    uint64_t block[ASKED_MAX];
    unsigned n = 0;

    for (; from < to; from++) {
        r->since[from % r->depth] = now();
        block[n++] = r->next++ % r->blocks;
        if (n == ASKED_MAX || from + 1 == to) {
            if (send(r->fd, block, n * sizeof(*block), MSG_NOSIGNAL) != (ssize_t)(n * sizeof(*block)))
                return -EPIPE;
            n = 0;
        }
    }
    return 0;
}

static int take(struct bench_raw *r, uint64_t number)
{
    uint8_t *to = r->to + number % r->depth * r->size;

    for (uint64_t got = 0; got < r->size;) {
        ssize_t n = recv(r->fd, to + got, r->size - got, 0);

        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        got += (uint64_t)n;
    }
    return 0;
}

int bench_raw_read(struct bench_raw *r, uint64_t n, struct bench_stat *stat)
{
    int error = ask(r, 0, n < r->depth ? n : r->depth);

    for (uint64_t i = 0; i < n && !error; i++) {
        error = take(r, i);
        if (!error && stat)
            stat_note(stat, (uint64_t)(now() - r->since[i % r->depth]) * 1000, 1);
        if (!error && i + r->depth < n)
            error = ask(r, i + r->depth, i + r->depth + 1);
    }
    return error;
}

void bench_raw_close(struct bench_raw *r)
{
    if (r->fd > 0)
        close(r->fd);
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (r->to)
        munmap(r->to, r->size * r->depth);
    free(r->since);
    *r = (struct bench_raw){0};
}
