/* bench_raw.h: what the machine itself moves between two processes over loopback: blocks that are asked for by eight
 * bytes and come back by send or sendfile, received into the caller's memory, and nothing else. The baseline of pulls.
 */
#ifndef BERTH_TOOLS_BENCH_RAW_H
#define BERTH_TOOLS_BENCH_RAW_H

#include "tools/bench/bench_stat.h"

#include <stdbool.h>
#include <sys/types.h>

struct bench_raw {
    pid_t pid; /* of the owner: the process that has the blocks */
    int fd;
    uint64_t size, blocks; /* bytes of a block; how many the owner has */
    unsigned depth;        /* asked for at a time, at most */
    uint8_t *to;           /* where they go: depth of them */
    int64_t *since;        /* when each was asked for, CLOCK_MONOTONIC ns */
    uint64_t next;         /* number of the next block */
};

/* Starts the owner, with `blocks` blocks in memory of a file of its own, on the CPUs that this process may use now.
 * sendfile: by that, else by send. Before this process has threads. 0 or a negative error. */
int bench_raw_open(struct bench_raw *r, uint64_t size, uint64_t blocks, unsigned depth, bool sendfile);
/* Takes n blocks, at most depth asked for at a time; stat (may be NULL): from the question to the last byte. 0 or a
 * negative error. */
int bench_raw_read(struct bench_raw *r, uint64_t n, struct bench_stat *stat);
/* Ends the owner. Of one that was not opened (all zero) nothing. */
void bench_raw_close(struct bench_raw *r);

#endif
