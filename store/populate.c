/* populate.c: threads take chunks from a counter; the caller reports and waits. */
#include "store/populate.h"

#include "store/layout.h"
#include "store/map.h"
#include "store/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#define CHUNK (32ull << 20)
#define THREADS_MAX 64u
#define REPORT_NS 200000000L

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct stretch {
    _Atomic uint64_t next; /* first byte that nobody took */
    uint64_t to;
};

struct work {
    uint8_t *base;
    int fd; /* -1: allocated already */
    uint64_t bytes;
    const struct mem_progress *progress;
    struct numa_plan *numa; /* NULL, or its parts are the stretches */
    struct stretch stretch[NUMA_PARTS];
    unsigned stretches;
    _Atomic unsigned begun; /* workers: each begins with a stretch of its own */
    _Atomic uint64_t done;
    _Atomic bool small; /* no huge page could be had: looking for one each time is slow */
    _Atomic int error;  /* the first */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned working;
};

/* Kernels before 5.14: a write that changes nothing, atomic because a client of an earlier node may write there too. */
static int touch(uint8_t *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += PAGE_BYTES)
        atomic_fetch_or_explicit((_Atomic uint8_t *)(at + i), 0, memory_order_relaxed);
    return 0;
}

static int allocate(const struct work *w, uint64_t at, uint64_t n)
{
    while (fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) != 0) {
        if (errno != EINTR)
            return -errno;
        if (mem_stopped(w->progress))
            return -ECANCELED;
    }
    return 0;
}

/* A huge page is made of a range with one page: cheaper than 512 faults, and on a tmpfs with any `huge=` option. */
static void take_huge(struct work *w, uint64_t at, uint64_t to)
{
    for (; !w->small && at + HUGE_BYTES <= to && !mem_stopped(w->progress); at += HUGE_BYTES)
        if (allocate(w, at, PAGE_BYTES) != 0 || !map_collapse(w->base, at, at + HUGE_BYTES))
            w->small = true;
}

/* Without fallocate first where the kernel populates: that holds the file's lock, and threads would go one by one. It
 * says what a fault can't: that the file system is full. */
static int populate_pages(const struct work *w, uint64_t at, uint64_t n)
{
    bool allocated = w->fd < 0;
    while (madvise(w->base + at, n, MADV_POPULATE_WRITE) != 0) {
        int e = errno;
        if (e == EINTR || e == EAGAIN)
            continue;
        int full = !allocated && (e == EINVAL || e == EFAULT) ? allocate(w, at, n) : 0;
        if (full != 0)
            return full;
        if (e == EINVAL)
            return touch(w->base + at, n);
        if (allocated || e != EFAULT)
            return -e;
        allocated = true;
    }
    return 0;
}

static int populate_chunk(struct work *w, uint64_t at, uint64_t n)
{
    if (w->fd >= 0)
        take_huge(w, at, at + n);
    return populate_pages(w, at, n);
}

static void take_chunks(struct work *w, struct stretch *s)
{
    uint64_t at;
    while (w->error == 0 && (at = atomic_fetch_add(&s->next, CHUNK)) < s->to) {
        uint64_t n = s->to - at < CHUNK ? s->to - at : CHUNK;
        int none = 0, e = mem_stopped(w->progress) ? -ECANCELED : populate_chunk(w, at, n);
        if (e != 0)
            atomic_compare_exchange_strong(&w->error, &none, e);
        atomic_fetch_add(&w->done, n);
    }
}

/* Zeroing pages from another node costs more than waiting for a CPU of theirs: a thread moves to where they are. */
static void *worker(void *arg)
{
    struct work *w = arg;
    unsigned first = atomic_fetch_add(&w->begun, 1);
    cpu_set_t allowed;
    bool known = w->numa != NULL && sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    for (unsigned i = 0; i < w->stretches; i++) {
        unsigned at = (first + i) % w->stretches;
        if (w->stretch[at].next >= w->stretch[at].to)
            continue;
        if (known)
            numa_run_on(w->numa, at, &allowed);
        take_chunks(w, &w->stretch[at]);
    }
    pthread_mutex_lock(&w->lock);
    w->working--;
    pthread_cond_signal(&w->idle);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void report(const struct work *w, const struct mem_progress *progress)
{
    if (progress != NULL && progress->report != NULL)
        progress->report(progress->arg, w->done, w->bytes);
}

static void wait_and_report(struct work *w, const struct mem_progress *progress)
{
    pthread_mutex_lock(&w->lock);
    while (w->working > 0) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += REPORT_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_clockwait(&w->idle, &w->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            report(w, progress);
    }
    pthread_mutex_unlock(&w->lock);
}

static void cut(struct work *w, struct numa_plan *numa)
{
    w->stretches = 1;
    w->stretch[0].to = w->bytes;
    if (numa == NULL || numa->n == 0)
        return;
    w->numa = numa;
    w->stretches = numa->n;
    for (unsigned i = 0; i < numa->n; i++) {
        w->stretch[i].next = numa->part[i].from;
        w->stretch[i].to = numa->part[i].to;
    }
}

int populate(void *base, int fd, uint64_t bytes, unsigned threads, const struct mem_progress *progress)
{
    return populate_on(NULL, base, fd, bytes, threads, progress);
}

int populate_on(struct numa_plan *numa, void *base, int fd, uint64_t bytes, unsigned threads,
                const struct mem_progress *progress)
{
    struct work w = {.base = base, .fd = fd, .bytes = bytes, .progress = progress};
    cut(&w, numa);
    pthread_t id[THREADS_MAX];
    unsigned started = 0;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.idle, NULL);

    uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;
    unsigned want = threads < THREADS_MAX ? threads : THREADS_MAX;
    want = want < chunks ? want : (unsigned)chunks;
    for (; started < want; started++) {
        pthread_mutex_lock(&w.lock);
        w.working++;
        pthread_mutex_unlock(&w.lock);
        if (pthread_create(&id[started], NULL, worker, &w) != 0) {
            pthread_mutex_lock(&w.lock);
            w.working--;
            pthread_mutex_unlock(&w.lock);
            break;
        }
    }
    for (unsigned i = 0; started == 0 && i < w.stretches; i++)
        take_chunks(&w, &w.stretch[i]);
    wait_and_report(&w, progress);
    for (unsigned i = 0; i < started; i++)
        pthread_join(id[i], NULL);
    report(&w, progress);
    pthread_cond_destroy(&w.idle);
    pthread_mutex_destroy(&w.lock);
    return w.error;
}
