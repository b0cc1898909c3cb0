/* work.c: the work that tests/bench/peers gives to every store, and the clock.
 *
 *   PROGRAM write|read ADDRESS SECONDS SIZE:BATCH..
 *
 * write: for each size, puts of new keys one at a time and BATCH a call, into room that was used before: what was put
 * is removed between rounds, outside of the timed part. Then all objects are put that read will want.
 * read: for each size, gets one at a time, gets each followed by one pass over the bytes, gets of BATCH a call. The
 * bytes of every get are compared with what was put, outside of the timed part; the release is inside.
 *
 * Prints a JSON line with the client's version, then one for each case. A case takes SECONDS of everything, but is
 * called CALLS_MIN times at least and CALLS_MAX at most. */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define OBJECTS_MAX 8192u         /* objects of a size; a power of two */
#define STRIDE 2654435761u        /* odd: visits each of a power of two once, in no order that a prefetcher follows */
#define SIZE_MAX_BYTES (2u << 20) /* of an object */
#define CALLS_MIN 10u
#define CALLS_MAX (1u << 20)

enum kind { PUT, GET, READ };

static uint8_t *content; /* PEER_BYTES: the objects of each size lie in it one after the other */
static uint8_t *room;    /* PEER_MANY objects */
static uint32_t *took;   /* CALLS_MAX, ns */
static volatile uint64_t sink;

void work_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static unsigned objects_of(size_t size)
{
    return PEER_BYTES / size < OBJECTS_MAX ? (unsigned)(PEER_BYTES / size) : OBJECTS_MAX;
}

static void *pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (p == MAP_FAILED)
        work_fail("no memory");
    return p;
}

static void make_content(void)
{
    uint64_t x = UINT64_C(0x9e3779b97f4a7c15);

    content = pages(PEER_BYTES);
    room = pages((size_t)PEER_MANY * SIZE_MAX_BYTES);
    took = pages(CALLS_MAX * sizeof(*took));
    for (size_t i = 0; i < PEER_BYTES; i += sizeof(x)) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(content + i, &x, sizeof(x));
    }
}

/* The n items from place at on; a reader's in another order than they were put in. */
static void choose(struct item *items, unsigned n, size_t size, unsigned at, enum kind kind)
{
    unsigned all = objects_of(size);

    for (unsigned i = 0; i < n; i++) {
        unsigned which = kind == PUT ? at + i : (at + i) * STRIDE & (all - 1);

        items[i] = (struct item){.data = content + which * size, .room = room + i * size, .size = size};
        snprintf(items[i].key, sizeof(items[i].key), "%07zu-%012u", size % 10000000, which);
    }
}

static void compare(const struct item *items, unsigned n, size_t size, unsigned at)
{
    struct item wanted[PEER_MANY];

    choose(wanted, n, size, at, GET);
    for (unsigned i = 0; i < n; i++)
        if (memcmp(items[i].data, wanted[i].data, size) != 0)
            work_fail("the bytes of %s differ", wanted[i].key);
}

static void pass_over(const struct item *items, unsigned n)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < n; i++) {
        const uint64_t *words = (const uint64_t *)(const void *)items[i].data;

        for (size_t w = 0; w < items[i].size / sizeof(*words); w++)
            sum += words[w];
    }
    sink = sum;
}

static int64_t one_put(unsigned n, size_t size, unsigned at)
{
    struct item items[PEER_MANY];
    int64_t begin;

    choose(items, n, size, at, PUT);
    begin = now();
    peer_put(items, n);
    return now() - begin;
}

static int64_t one_get(unsigned n, size_t size, unsigned at, enum kind kind)
{
    struct item items[PEER_MANY];
    int64_t begin, ns;

    choose(items, n, size, at, kind);
    for (unsigned i = 0; i < n; i++)
        items[i].data = NULL;
    begin = now();
    peer_get(items, n);
    if (kind == READ)
        pass_over(items, n);
    ns = now() - begin;
    compare(items, n, size, at);
    begin = now();
    peer_release(items, n);
    return ns + now() - begin;
}

/* Puts or removes the first n objects, as many at a time as the peer takes. */
static void all(void (*what)(struct item *, unsigned), size_t size, unsigned n)
{
    struct item items[PEER_MANY];
    unsigned step = peer_puts_many ? (size < SIZE_MAX_BYTES ? PEER_MANY : 8) : 1;

    for (unsigned at = 0; at < n; at += step) {
        unsigned some = n - at < step ? n - at : step;

        choose(items, some, size, at, PUT);
        what(items, some);
    }
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void report(const char *name, size_t size, unsigned n, unsigned calls)
{
    double sum = 0;

    for (unsigned i = 0; i < calls; i++)
        sum += took[i];
    qsort(took, calls, sizeof(*took), by_size);
    printf("{\"case\":\"%s\",\"size\":%zu,\"batch\":%u,\"calls\":%u,\"p50_ns\":%u,\"p99_ns\":%u,"
           "\"bytes_per_second\":%.0f}\n",
           name, size, n, calls, took[calls / 2], took[(uint64_t)calls * 99 / 100],
           (double)size * n * calls / sum * 1e9);
    fflush(stdout);
}

static void measure(const char *name, enum kind kind, size_t size, unsigned n, double seconds)
{
    int64_t end = now() + (int64_t)(seconds * 1e9);
    unsigned calls = 0, at = 0, objects = objects_of(size);

    for (; calls < CALLS_MAX && (calls < CALLS_MIN || now() < end); calls++, at += n) {
        int64_t ns;

        if (at + n > objects) {
            if (kind == PUT)
                all(peer_remove, size, at);
            at = 0;
        }
        ns = kind == PUT ? one_put(n, size, at) : one_get(n, size, at, kind);
        took[calls] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    }
    if (kind == PUT)
        all(peer_remove, size, at);
    report(name, size, n, calls);
}

static void run(bool writes, size_t size, unsigned batch, double seconds)
{
    if (writes) {
        all(peer_put, size, objects_of(size)); /* the first use of the store's memory is not what is measured */
        all(peer_remove, size, objects_of(size));
        measure("put", PUT, size, 1, seconds);
        if (peer_puts_many)
            measure("put-batch", PUT, size, batch, seconds);
        return;
    }
    measure("get", GET, size, 1, seconds);
    measure("get+read", READ, size, 1, seconds);
    measure("get-batch", GET, size, batch, seconds);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        work_fail("usage: %s write|read ADDRESS SECONDS SIZE:BATCH..", argv[0]);
    make_content();
    peer_open(argv[2]);
    printf("{\"client\":\"%s\"}\n", peer_client());
    for (int pass = 0; pass < 2; pass++)
        for (int i = 4; i < argc; i++) {
            size_t size = 0;
            unsigned batch = 0;

            if (sscanf(argv[i], "%zu:%u", &size, &batch) != 2 || !size || size > SIZE_MAX_BYTES || size & (size - 1) ||
                !batch || batch > PEER_MANY)
                work_fail("'%s' is no SIZE:BATCH", argv[i]);
            if (pass == 0)
                run(argv[1][0] == 'w', size, batch, atof(argv[3]));
            else if (argv[1][0] == 'w')
                all(peer_put, size, objects_of(size));
        }
    return 0;
}
