#include "tests/soak/record.h"

#include "store/berth.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KINDS 256u         /* different results of different calls, at most; what is more is counted as one */
#define BUCKETS (64u * 8u) /* of a latency: eight a power of two */
#define SAID_MAX 20u       /* lines of one kind */

struct kind {
    const char *op; /* static */
    long code;      /* negative, or 0 for every success */
    uint64_t count;
};

static struct kind kinds[KINDS];
static unsigned n_kinds;
static uint32_t bucket[BUCKETS];
static uint64_t found, puts_done, open_puts, compared, operations;
static unsigned wrongs, lates;
static int64_t latest, window_end;
static int own_stat = -1, node_stat = -1;

int64_t record_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void record_start(int node_pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/schedstat", node_pid);
    own_stat = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    node_stat = open(path, O_RDONLY | O_CLOEXEC);
    window_end = record_now() + 1000000000;
}

/* The second number: ns on a run queue. */
static int64_t starved_of(int fd)
{
    char text[96];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    const char *second;

    if (n <= 0)
        return 0;
    text[n] = 0;
    second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

struct span span_begin(int64_t deadline_ns_from_now)
{
    return (struct span){.starved = starved_of(own_stat) + starved_of(node_stat),
                         .deadline = record_now() + deadline_ns_from_now};
}

long record_result(const char *op, long result)
{
    long code = result < 0 ? result : 0;
    unsigned i = 0;

    operations++;
    while (i < n_kinds && !(kinds[i].code == code && strcmp(kinds[i].op, op) == 0))
        i++;
    if (i == n_kinds && n_kinds < KINDS - 1)
        kinds[n_kinds++] = (struct kind){.op = op, .code = code};
    kinds[i].count++;
    return result;
}

long span_end(const struct span *s, const char *op, long result)
{
    int64_t late = record_now() - s->deadline;

    if (late > LATE_NS) {
        int64_t starved = starved_of(own_stat) + starved_of(node_stat) - s->starved;

        late -= starved;
        if (late > LATE_NS && lates++ < SAID_MAX)
            printf("{\"late\": \"%s\", \"ms\": %" PRId64 ", \"starved_ms\": %" PRId64 ", \"result\": %ld}\n", op,
                   late / 1000000, starved / 1000000, result);
    }
    latest = late > latest ? late : latest;
    return record_result(op, result);
}

void record_get(int64_t ns)
{
    uint64_t v = ns > 8 ? (uint64_t)ns : 8;
    unsigned top = 63u - (unsigned)__builtin_clzll(v);

    bucket[top * 8 + (v >> (top - 3) & 7)]++;
}

void record_found(uint64_t n)
{
    found += n;
}

void record_put(uint64_t n)
{
    puts_done += n;
}

void record_open_put(uint64_t n)
{
    open_puts += n;
}

void record_compared(uint64_t bytes)
{
    compared += bytes;
}

void record_wrong(const char *op, const char *key, const char *why)
{
    if (wrongs++ < SAID_MAX)
        printf("{\"wrong\": \"%s of %s: %s\"}\n", op, key, why);
}

static void print_window(void)
{
    const char *comma = "";

    printf("{\"window\": %" PRId64 ", \"gets\": {", record_now());
    for (unsigned i = 0; i < BUCKETS; i++) {
        if (bucket[i]) {
            printf("%s\"%u\": %u", comma, i, bucket[i]);
            comma = ", ";
        }
    }
    puts("}}");
    fflush(stdout);
    memset(bucket, 0, sizeof(bucket));
}

void record_tick(void)
{
    int64_t now = record_now();

    if (now < window_end)
        return;
    print_window();
    window_end = now + 1000000000;
}

void record_finish(void)
{
    print_window();
    printf("{\"end\": {\"operations\": %" PRIu64 ", \"found\": %" PRIu64 ", \"puts\": %" PRIu64
           ", \"open_puts\": %" PRIu64 ", \"compared_bytes\": %" PRIu64
           ", \"wrong\": %u, \"late\": %u, \"latest_ns\": %" PRId64 ", \"results\": [",
           operations, found, puts_done, open_puts, compared, wrongs, lates, latest);
    for (unsigned i = 0; i < KINDS && kinds[i].count; i++)
        printf("%s[\"%s\", \"%s\", %" PRIu64 "]", i ? ", " : "", kinds[i].op ? kinds[i].op : "others",
               kinds[i].code ? berth_error_name((int)kinds[i].code) : "", kinds[i].count);
    puts("]}}");
    fflush(stdout);
}
