/* tcp.c: bench-tcp: what the TCP transport moves on this machine, between two processes over loopback.
 *
 *   bench-tcp rate SIZE DEPTH SECONDS [send|sendfile] [hash]   reads of SIZE at DEPTH, ..
 *   bench-tcp raw SIZE DEPTH SECONDS                           .. and nothing but send and recv of the same
 *   bench-tcp lone SIZE SECONDS [send|sendfile]                latency of single reads
 *   bench-tcp fair SECONDS [pin]                               4 KiB reads alone, then during a 1 GiB read
 */
#include "replication/tcp.h"
#include "store/copy.h"
#include "tools/bench/bench_raw.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POOL_BYTES (64u << 20)
#define LATENCIES_MAX (1u << 20)
#define DEPTH_MAX 64u

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double cpu_before; /* of this process, when the measured part began */

/* Of both processes since then, the other one once it has been waited for. */
static double cpu_seconds(void)
{
    double sum = 0;
    struct rusage u;
    const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        getrusage(whose[i], &u);
        sum +=
            (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    }
    return sum - cpu_before;
}

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "bench-tcp: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- both sides ---- */

static struct connection *peer;

static void on_connected(void *env, struct connection *c, int status, const char *why)
{
    (void)env;
    if (status < 0) {
        give_up(why);
    }
    peer = c;
}

static void on_accepted(void *env, struct connection *c)
{
    (void)env;
    peer = c;
}

static void on_closed(void *env, struct connection *c, int status, const char *why)
{
    (void)env, (void)c, (void)status, (void)why;
    peer = NULL;
}

static void on_message(void *env, struct connection *c, const void *bytes, size_t n)
{
    (void)env, (void)c, (void)bytes, (void)n;
}

static void on_room(void *env, struct connection *c)
{
    (void)env, (void)c;
}

static int on_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    (void)env, (void)c, (void)want, (void)token;
    return 0;
}

static void on_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    (void)env, (void)c, (void)lease, (void)token, (void)status;
}

static const struct transport_events events = {on_connected, on_accepted, on_closed, on_message,
                                               on_room,      on_admit,    on_served};

static void *open_context(const char *listen, const char *how)
{
    char why[TRANSPORT_WHY_MAX];
    void *ctx;
    struct transport_config config = {.listen = listen};
    if (how && strcmp(how, "send") == 0) {
        config.sendfile_queue = UINT32_MAX;
    } else if (how && strcmp(how, "sendfile") == 0) {
        config.sendfile_queue = 1;
        config.sendfile_max = UINT32_MAX;
    }
    if (tcp_transport.open(&ctx, &config, &events, NULL, why, sizeof why) < 0) {
        give_up(why);
    }
    return ctx;
}

static void wait_for_work(void *ctx)
{
    struct pollfd p = {.fd = tcp_transport.descriptor(ctx), .events = POLLIN};
    poll(&p, 1, 1000);
}

static bool pinned; /* a CPU for each of the two processes */

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pinned && sched_setaffinity(0, sizeof set, &set) != 0) {
        give_up("pin");
    }
}

static uint8_t *make_pool(int *fd)
{
    *fd = memfd_create("pool", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, POOL_BYTES) != 0) {
        give_up("pool");
    }
    uint8_t *pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd, 0);
    if (pool == MAP_FAILED) {
        give_up("pool");
    }
    memset(pool, 7, POOL_BYTES);
    return pool;
}

static pid_t start_owner(const char *how, char *address, size_t size)
{
    void *ctx = open_context("127.0.0.1:0", how);
    int fd;
    uint8_t *pool = make_pool(&fd);
    tcp_transport.expose(ctx, fd, pool, POOL_BYTES);
    tcp_transport.address(ctx, address, size);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(1);
        for (;;) {
            if (tcp_transport.turn(ctx) == 0) {
                wait_for_work(ctx);
            }
        }
    }
    tcp_transport.close(ctx);
    pin(0);
    return pid;
}

static void stop_owner(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- reads ---- */

struct reader {
    void *ctx;
    uint64_t bytes, turns;
    int64_t end;
    unsigned open;
    int64_t *latency;
    uint32_t latencies;
    bool one_shot;
};

struct job {
    struct transfer t;
    struct iovec to;
    struct checksum *hash;
    struct reader *r;
};

static void hash_piece(struct transfer *t, uint64_t offset, const void *at, size_t n)
{
    (void)offset;
    checksum_add(((struct job *)t->owner)->hash, at, n);
}

static void post(struct job *j)
{
    if (j->hash) {
        checksum_begin(j->hash);
    }
    j->r->open++;
    if (tcp_transport.read(j->r->ctx, peer, &j->t) < 0) {
        give_up("read");
    }
}

static void done(struct transfer *t)
{
    struct job *j = t->owner;
    struct reader *r = j->r;
    if (t->status < 0) {
        errno = -t->status;
        give_up("transfer");
    }
    r->open--;
    r->bytes += t->bytes;
    if (j->hash) {
        (void)checksum_sum(j->hash);
    }
    if (r->latency && r->latencies < LATENCIES_MAX) {
        r->latency[r->latencies++] = t->completed_ns - t->posted_ns;
    }
    if (!r->one_shot && t->completed_ns < r->end) {
        t->offset = (t->offset + 2 * t->bytes <= POOL_BYTES) ? t->offset + t->bytes : 0;
        post(j);
    }
}

static void prepare(struct job *j, struct reader *r, size_t size, uint64_t offset, bool hash)
{
    void *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (to == MAP_FAILED) {
        give_up("destination");
    }
    j->to = (struct iovec){to, size};
    j->hash = hash ? checksum_create() : NULL;
    j->r = r;
    j->t = (struct transfer){.bytes = size,
                             .offset = offset,
                             .to = &j->to,
                             .parts = 1,
                             .deadline = INT64_MAX,
                             .progress = hash ? hash_piece : NULL,
                             .complete = done,
                             .owner = j};
}

static void drop(struct job *j)
{
    munmap(j->to.iov_base, j->to.iov_len);
    if (j->hash) {
        checksum_free(j->hash);
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_latency(const char *name, struct reader *r)
{
    qsort(r->latency, r->latencies, sizeof *r->latency, by_value);
    printf("%s: n %u p50 %.1f us p99 %.1f us max %.1f us\n", name, r->latencies,
           (double)r->latency[r->latencies / 2] / 1e3, (double)r->latency[(uint64_t)r->latencies * 99 / 100] / 1e3,
           (double)r->latency[r->latencies - 1] / 1e3);
}

static void *reader_context(const char *address)
{
    char why[TRANSPORT_WHY_MAX];
    struct connection *c;
    void *ctx = open_context(NULL, NULL);
    peer = NULL;
    if (tcp_transport.connect(ctx, address, NULL, &c, why, sizeof why) < 0) {
        give_up(why);
    }
    while (tcp_transport.turn(ctx) >= 0 && !peer) {
        wait_for_work(ctx);
    }
    return ctx;
}

static double rate(size_t size, unsigned depth, double seconds, const char *how, bool hash, bool latency)
{
    char address[TRANSPORT_ADDRESS_MAX];
    struct job jobs[DEPTH_MAX];
    pid_t owner = start_owner(how, address, sizeof address);
    struct reader r = {.ctx = reader_context(address)};
    r.latency = latency ? malloc(LATENCIES_MAX * sizeof *r.latency) : NULL;
    for (unsigned i = 0; i < depth; i++) {
        prepare(&jobs[i], &r, size, (uint64_t)i * size % (POOL_BYTES - size + 1), hash);
    }
    cpu_before += cpu_seconds();
    int64_t begin = now();
    r.end = begin + (int64_t)(seconds * 1e9);
    for (unsigned i = 0; i < depth; i++) {
        post(&jobs[i]);
    }
    tcp_transport.flush(r.ctx);
    while (r.open) {
        if (tcp_transport.turn(r.ctx) == 0 && r.open) {
            wait_for_work(r.ctx);
        }
    }
    double gbs = (double)r.bytes / (double)(now() - begin);
    for (unsigned i = 0; i < depth; i++) {
        drop(&jobs[i]);
    }
    if (latency) {
        print_latency("lone", &r);
        free(r.latency);
    }
    tcp_transport.close(r.ctx);
    stop_owner(owner);
    return gbs;
}

/* ---- raw ---- */

/* The same sizes and depth, by nothing but send and recv. */
static double raw(size_t size, unsigned depth, double seconds)
{
    struct bench_raw r;
    uint64_t blocks = POOL_BYTES / size, bytes = 0;
    if (bench_raw_open(&r, size, blocks, depth, false) < 0) {
        give_up("raw");
    }
    cpu_before += cpu_seconds();
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9);
    for (; now() < end; bytes += blocks * size) {
        if (bench_raw_read(&r, blocks, NULL) < 0) {
            give_up("raw");
        }
    }
    double gbs = (double)bytes / (double)(now() - begin);
    bench_raw_close(&r);
    return gbs;
}

/* ---- fairness ---- */

/* 1 GiB out of a pool of 64 MiB would need a pool of its own: 16 reads of 64 MiB in a row, always one under way. */
static void fair(double seconds)
{
    char address[TRANSPORT_ADDRESS_MAX];
    pid_t owner = start_owner(NULL, address, sizeof address);
    struct reader small = {.ctx = reader_context(address)}, large = {.ctx = small.ctx};
    struct job job, big;
    small.latency = malloc(LATENCIES_MAX * sizeof *small.latency);
    prepare(&job, &small, 4096, 0, false);
    prepare(&big, &large, POOL_BYTES, 0, false);
    for (int loaded = 0; loaded < 2; loaded++) {
        small.latencies = 0;
        small.end = large.end = now() + (int64_t)(seconds * 1e9);
        int64_t begin = now();
        uint64_t before = large.bytes;
        post(&job);
        if (loaded) {
            post(&big);
        }
        while (small.open || large.open) {
            if (tcp_transport.turn(small.ctx) == 0 && (small.open || large.open)) {
                wait_for_work(small.ctx);
            }
        }
        print_latency(loaded ? "4 KiB during a large read" : "4 KiB alone", &small);
        if (loaded) {
            printf("large read: %.2f GB/s\n", (double)(large.bytes - before) / (double)(now() - begin));
        }
    }
    free(small.latency);
    tcp_transport.close(small.ctx);
    stop_owner(owner);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";
    const char *how = NULL;
    bool hash = false;
    for (int i = 3; i < argc; i++) {
        hash |= strcmp(argv[i], "hash") == 0;
        pinned |= strcmp(argv[i], "pin") == 0;
        how = strncmp(argv[i], "send", 4) == 0 ? argv[i] : how;
    }
    if (strcmp(mode, "fair") == 0) {
        fair(strtod(argv[2], NULL));
    } else if (strcmp(mode, "lone") == 0 && argc > 3) {
        rate(strtoull(argv[2], NULL, 0), 1, strtod(argv[3], NULL), how, hash, true);
    } else if ((strcmp(mode, "rate") == 0 || strcmp(mode, "raw") == 0) && argc > 4) {
        size_t size = strtoull(argv[2], NULL, 0);
        unsigned depth = (unsigned)strtoul(argv[3], NULL, 0);
        double seconds = strtod(argv[4], NULL);
        if (size < 1 || size > POOL_BYTES || depth < 1 || depth > DEPTH_MAX) {
            fprintf(stderr, "bench-tcp: SIZE is at most 64 MiB, DEPTH at most 64\n");
            return 2;
        }
        bool is_raw = strcmp(mode, "raw") == 0;
        double gbs = is_raw ? raw(size, depth, seconds) : rate(size, depth, seconds, how, hash, false);
        printf("%s %zu x %u%s%s%s: %.2f GB/s, %.3f CPU s a GB, both sides\n", mode, size, depth, how ? " " : "",
               how ? how : "", hash ? " hash" : "", gbs, cpu_seconds() / (gbs * seconds));
    } else {
        fprintf(
            stderr,
            "usage: bench-tcp rate|raw SIZE DEPTH SECONDS [send|sendfile] [hash] | lone SIZE SECONDS | fair SECONDS\n");
        return 2;
    }
    return 0;
}
