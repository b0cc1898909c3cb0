/* client.h: one client of a replay, and what several in processes of their own share.
 *
 * A request pins the leading run of its blocks that is there and proves every byte of it; the rest is a miss and is
 * put as one group; then the run is released. Requests are taken in the order of the trace from a counter that all
 * share.
 */
#ifndef BERTH_TOOLS_REPLAY_CLIENT_H
#define BERTH_TOOLS_REPLAY_CLIENT_H

#include "store/berth.h"
#include "tools/bench/bench_stat.h"
#include "tools/replay/trace.h"

#include <stdatomic.h>
#include <stdbool.h>

#define REPLAY_URL 512

enum replay_phase {
    REPLAY_PIN,
    REPLAY_VERIFY,
    REPLAY_CREATE,
    REPLAY_COPY,
    REPLAY_SEAL,
    REPLAY_RELEASE,
    REPLAY_SETTLE, /* between requests, outside of their time */
    REPLAY_PHASES
};
extern const char *const replay_phase_names[REPLAY_PHASES];

struct replay_counts {
    uint64_t requests, references, hits, misses;
    uint64_t kept; /* misses that another client or an earlier run had put by then */
    uint64_t verified_bytes, bad_bytes, written_bytes;
    uint64_t phase_ns[REPLAY_PHASES];
    struct bench_stat request; /* time of a request */
    int error;
    char sentence[256];
};

struct replay_shared { /* mapped by all clients */
    _Atomic uint64_t next;
    _Atomic uint32_t stop; /* one failed */
    int64_t begin;         /* CLOCK_MONOTONIC ns; this and url are written before the clients may read them */
    char url[REPLAY_URL];
    struct replay_counts client[];
};

struct replay_job {
    const struct trace *trace;
    uint64_t block_size;
    double speed; /* of the trace's own time; 0: as fast as it can */
    int64_t timeout_ns;
    bool settle; /* after a request that put something: wait until the node is below its high watermark again */
    struct replay_shared *shared;
    void (*progress)(void *arg, uint64_t requests); /* of a client in this process; may be NULL */
    void *arg;
};

struct replay_client;

/* 0, or a negative error that stands in c->error and c->sentence too. */
int replay_client_open(struct replay_client **out, const struct replay_job *job, struct replay_counts *c);
int replay_client_run(struct replay_client *client);
void replay_client_close(struct replay_client *client);
struct berth *replay_client_handle(struct replay_client *client);

void replay_merge(struct replay_counts *into, const struct replay_counts *from);

#endif
