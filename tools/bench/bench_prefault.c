/* bench_prefault.c: how fast a pool gets its pages, against threads that do nothing but MADV_POPULATE_WRITE.
 *
 * Each way fills a fresh file on tmpfs of the same size, in turn, round after round: the kernel gives pages at a speed
 * that changes with what else it does. What a baseline gets on the pages that it finds is said beside it.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "store/layout.h"
#include "store/map.h"
#include "store/populate.h"
#include "store/shell/pages.h"
#include "tools/cli.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define ROUNDS_MAX 101u
#define ROUNDS_LEAST 5u
#define PART (32u << 20) /* one call of madvise */

enum way {
    WAY_NODE,       /* as a node does: huge pages where they can be had */
    WAY_PLAIN,      /* MADV_POPULATE_WRITE */
    WAY_NODE_SMALL, /* as a node where the kernel gives no huge page */
    WAY_ADVISED,    /* MADV_HUGEPAGE, then MADV_POPULATE_WRITE: huge pages if the tmpfs lets that have some */
    WAY_COLLAPSED,  /* MADV_POPULATE_WRITE, then huge pages are made of the small ones */
    WAYS
};
static const char *const way_names[WAYS] = {"node", "plain", "node_small_pages", "plain_advised", "plain_collapsed"};

struct prefault {
    uint64_t bytes;
    unsigned threads;
    unsigned rounds;
    double rate[WAYS][ROUNDS_MAX]; /* bytes a second */
    uint64_t huge[WAYS];           /* bytes of the last round that lay on pages of 2 MiB */
};

struct part {
    uint8_t *base;
    uint64_t bytes;
    enum way way;
    int error;
};

static void *fill_part(void *arg)
{
    struct part *p = arg;
    for (uint64_t at = 0; at < p->bytes && !p->error; at += PART) {
        uint64_t n = p->bytes - at < PART ? p->bytes - at : PART;
        while (madvise(p->base + at, n, MADV_POPULATE_WRITE) && !p->error)
            p->error = errno == EINTR || errno == EAGAIN ? 0 : -errno;
        if (p->way == WAY_COLLAPSED)
            map_collapse(p->base + at, 0, n);
    }
    return NULL;
}

static int fill_plain(uint8_t *base, uint64_t bytes, unsigned threads, enum way way)
{
    pthread_t id[64];
    struct part part[64];
    uint64_t each = (bytes / threads + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES, at = 0;
    unsigned started = 0;
    int error = 0;

    if (way == WAY_ADVISED && madvise(base, bytes, MADV_HUGEPAGE) && errno != EINVAL)
        return -errno;
    for (; started < threads && at < bytes; started++, at += each) {
        part[started] = (struct part){base + at, bytes - at < each ? bytes - at : each, way, 0};
        if (pthread_create(&id[started], NULL, fill_part, &part[started]))
            fill_part(&part[started]), part[started].bytes = 0;
    }
    for (unsigned i = 0; i < started; i++) {
        if (part[i].bytes)
            pthread_join(id[i], NULL);
        error = error ? error : part[i].error;
    }
    return error;
}

static int fill(const struct prefault *p, enum way way, int fd, uint8_t *base)
{
    int error;

    if (way != WAY_NODE && way != WAY_NODE_SMALL)
        return fill_plain(base, p->bytes, p->threads, way);
    if (way == WAY_NODE_SMALL && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
        return -errno;
    error = populate(base, fd, p->bytes, p->threads, NULL);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    return error;
}

/* A file that is gone as soon as it is closed. */
static int open_file(uint64_t bytes)
{
    char path[] = "/dev/shm/berth-bench-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);

    if (fd < 0)
        return -errno;
    unlink(path);
    if (ftruncate(fd, (off_t)bytes)) {
        int error = -errno;

        close(fd);
        return error;
    }
    return fd;
}

static int measure(struct prefault *p, enum way way, unsigned round)
{
    int fd = open_file(p->bytes), error;
    uint8_t *base = fd < 0 ? NULL : map_shared(fd, p->bytes, PROT_READ | PROT_WRITE);
    int64_t begin = bench_now();

    if (!base) {
        error = fd < 0 ? fd : -errno;
    } else {
        error = fill(p, way, fd, base);
        p->rate[way][round] = (double)p->bytes / ((double)(bench_now() - begin) / 1e9);
        if (pages_huge(base, p->bytes, &p->huge[way]))
            p->huge[way] = 0;
        unmap_shared(base, p->bytes);
    }
    if (fd >= 0)
        close(fd);
    return error;
}

static json_t *ways_json(const struct prefault *p, const double *rate)
{
    json_t *all = json_object();

    for (unsigned way = 0; way < WAYS; way++)
        json_object_set_new(all, way_names[way],
                            json_pack("{s:f, s:f}", "bytes_per_second", rate[way], "huge_share",
                                      (double)p->huge[way] / (double)p->bytes));
    json_object_set_new(all, "rounds", json_integer(p->rounds));
    json_object_set_new(all, "small_pages_ratio", json_real(rate[WAY_NODE_SMALL] / rate[WAY_PLAIN]));
    return json_pack("{s:o}", "prefault", all);
}

static void report(const struct bench *b, struct prefault *p)
{
    char text[24];
    double rate[WAYS];

    for (unsigned way = 0; way < WAYS; way++)
        rate[way] = median(p->rate[way], p->rounds);
    bench_report(b, &(struct bench_result){.unit = "pools",
                                           .timed = 1,
                                           .ops = 1,
                                           .bytes = p->bytes,
                                           .seconds = (double)p->bytes / rate[WAY_NODE],
                                           .baseline = "plain_bytes_per_second",
                                           .figure = rate[WAY_NODE],
                                           .value = rate[WAY_PLAIN],
                                           .more = ways_json(p, rate)});
    if (cli.json)
        return;
    for (unsigned way = 0; way < WAYS; way++)
        printf("  %-17s %s, %.0f%% on pages of 2 MiB\n", way_names[way], bench_text_of_rate(text, rate[way]),
               1e2 * (double)p->huge[way] / (double)p->bytes);
    cli_flush();
}

/* Rounds until the time is up, and at least ROUNDS_LEAST. */
int bench_prefault(struct bench *b)
{
    struct prefault *p = calloc(1, sizeof *p);
    int64_t end = bench_now() + (int64_t)b->seconds * 1000000000;
    int error = 0;

    if (!p)
        return bench_no_memory();
    p->bytes = (b->size + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    p->threads = b->threads;
    for (; p->rounds < ROUNDS_MAX && !error && (p->rounds < ROUNDS_LEAST || bench_now() < end); p->rounds++)
        for (unsigned way = 0; way < WAYS && !error; way++)
            error = measure(p, (enum way)((way + p->rounds) % WAYS), p->rounds);
    if (!error)
        report(b, p);
    free(p);
    return error ? cli_fail(error, b->which->name, "a file of so many bytes can't be filled in /dev/shm") : 0;
}
