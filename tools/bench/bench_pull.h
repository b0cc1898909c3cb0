/* bench_pull.h: what the cases of pulls share: one way to move the objects, its slices, its row of the report. */
#ifndef BERTH_TOOLS_BENCH_PULL_H
#define BERTH_TOOLS_BENCH_PULL_H

#include "tools/bench/bench_pull_nodes.h"
#include "tools/bench/bench_raw.h"

#define PULL_OBJECT_BYTES (UINT64_C(64) << 20) /* of all objects together, by default */
#define PULL_COLD_BYTES (UINT64_C(512) << 20)
#define PULL_ROOM_MAX (UINT64_C(2) << 30) /* of the owner's pool beyond them */
#define PULL_SLICE_NS INT64_C(100000000)

/* One way to move the objects. */
struct pull_way {
    const char *name;
    const char *words; /* as the baseline's name has it */
    pid_t owner;
    struct bench_stat stat;
    uint64_t bytes, owner_ns, reader_ns; /* moved, and time on a CPU meanwhile */
    double seconds;
    double byte_ns[BENCH_SLICES]; /* of each slice */
    unsigned slices;
    double rate; /* bytes a second, as the report has them */
};

/* Runs n operations and notes what they cost as one slice. */
int pull_slice(struct pull_way *w, int (*run)(void *arg, uint64_t n, struct bench_stat *stat), void *arg, uint64_t n,
               uint64_t bytes);
/* {"name", "bytes_per_second", "latency_ns", "owner_cpu_s_per_gib", "reader_cpu_s_per_gib"} */
json_t *pull_row_json(const struct pull_way *w);
void pull_row_print(const struct pull_way *w);
/* The options of this run, for the document; the caller adds to it. */
json_t *pull_options_json(const struct bench *b);

/* Bytes a second that iperf3 moves over loopback with blocks of `block` bytes in about so many seconds; 0: there is
 * none, or it failed. */
double bench_iperf3(unsigned seconds, uint64_t block);

#endif
