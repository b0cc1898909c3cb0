/* client.h: one client of a replay, and what several in processes of their own share.
 *
 * A request pins the leading run of its blocks that is there and proves every byte of it; the rest is a miss and is
 * put as one group; then the run is released. Requests are taken in the order of the trace from a counter that all
 * share, or one by one from a caller (replay_client_request).
 *
 * With peers (job->deadline_ns) the run goes on over them: what is not here is read into a buffer, so that no copy is
 * kept here, and is proven there. remote.c has that part.
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
    REPLAY_PULL, /* from peers */
    REPLAY_VERIFY,
    REPLAY_CREATE,
    REPLAY_COPY,
    REPLAY_SEAL,
    REPLAY_RELEASE,
    REPLAY_SETTLE, /* between requests, outside of their time */
    REPLAY_PHASES
};
extern const char *const replay_phase_names[REPLAY_PHASES];

#define REPLAY_KINDS 12u                      /* kinds of errors that are told apart; more count as the last */
#define REPLAY_OVERDUE_NS INT64_C(2000000000) /* an answer so long after its deadline is counted */

struct replay_kind {
    int code; /* negative; 0: not in use */
    uint64_t n;
};

struct replay_counts {
    uint64_t requests, references, hits, misses;
    uint64_t remote_hits;   /* blocks that a peer had; hits are those that were here */
    uint64_t wire_bytes;    /* of payload that came from peers */
    uint64_t surplus_bytes; /* of these: of blocks behind the end of a run */
    uint64_t overdue;       /* reads from peers that ended REPLAY_OVERDUE_NS after their deadline, or later */
    uint64_t asks, leases;  /* requests of the node to peers: where is it, may I read it */
    uint64_t evicted;       /* by the node; this and the line above with several nodes only */
    struct replay_kind kind[REPLAY_KINDS]; /* reads from peers that failed, but for what nobody has */
    uint64_t kept;                         /* misses that another client or an earlier run had put by then */
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
    int64_t deadline_ns; /* of a read from peers; 0: there are none */
    bool settle;         /* after a request that put something: wait until the node is below its high watermark again */
    struct replay_shared *shared;
    void (*progress)(void *arg, uint64_t requests); /* of a client in this process; may be NULL */
    void *arg;
};

struct replay_client;

/* 0, or a negative error that stands in c->error and c->sentence too. url: of the node. */
int replay_client_open(struct replay_client **out, const struct replay_job *job, const char *url,
                       struct replay_counts *c);
int replay_client_run(struct replay_client *client);
/* The index-th request of the trace alone, now. */
int replay_client_request(struct replay_client *client, uint64_t index);
void replay_client_close(struct replay_client *client);
struct berth *replay_client_handle(struct replay_client *client);

/* When a request is due, CLOCK_MONOTONIC ns, where the job has a speed. */
int64_t replay_due(const struct replay_job *job, uint64_t index);

void replay_merge(struct replay_counts *into, const struct replay_counts *from);

#endif
