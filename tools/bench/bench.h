/* bench.h: what the cases of `berth bench` share: options, the node, keys, the objects to begin with, the report.
 *
 * A case and its baseline run in slices that alternate, so that a noisy neighbour or a clock that changes its speed
 * meets both. What takes nanoseconds is timed in batches of BENCH_BATCH and divided.
 */
#ifndef BERTH_TOOLS_BENCH_H
#define BERTH_TOOLS_BENCH_H

#include "store/berth.h"
#include "tools/bench/bench_node.h"
#include "tools/bench/bench_stat.h"

#include <stdbool.h>

#define BENCH_BATCH 64u
#define BENCH_KEY_MAX BERTH_KEY_MAX
#define BENCH_QUEUE 4096u
#define BENCH_PREFAULT_LEAST (2u << 20)

struct bench;

struct bench_case {
    const char *name;
    const char *doc;
    int (*run)(struct bench *b); /* 0, or an exit code after the error was reported */
    uint64_t size, objects;      /* defaults */
    unsigned depth;
    bool threads; /* takes --threads */
    bool pulls;   /* takes the options of pulls */
    bool scales;  /* takes --pool */
};
extern const struct bench_case bench_cases[]; /* cmd_bench.c; ends with a NULL name */

/* Who knows where the keys are that are pulled. */
enum bench_home { BENCH_HOME_OWNER, BENCH_HOME_READER, BENCH_HOME_OTHER };

struct bench_pulls { /* options of pulls */
    char verify[16]; /* the reader's setting */
    enum bench_home home;
    bool cold;    /* each pull needs a lease */
    bool replica; /* into the reader's pool */
    bool pin;     /* owner and reader on a CPU each */
    bool given;   /* some of these were */
};

struct bench {
    const struct bench_case *which;
    const char *url; /* of a node that was named; NULL: one of our own */
    uint64_t size, objects;
    unsigned depth, threads, key_size, seconds;
    uint64_t filled; /* keys 0 .. filled are there */
    bool evict;
    bool objects_given;   /* by the user: else fewer than the default may be taken */
    bool may_evict;       /* what others have put on the node that was named */
    uint64_t draft_bytes; /* of a node that was named: most that may be unsealed at once; 0: no limit */
    int64_t pause_ns;
    struct bench_pulls pulls;
    uint64_t pool;               /* of our own node, reserved and not populated; 0: as objects need, populated */
    unsigned clients;            /* scale: with so many clients beside; 0: by its objects */
    uint64_t client_pins;        /* of each */
    uint64_t headers;            /* its max-objects; 0: as objects need */
    const char *const *settings; /* more of them, as bench_node_config has them; may be NULL */
    struct bench_node node;      /* of our own */
    struct berth *b;
    struct berth_queue *queue; /* of BENCH_QUEUE */
    uint64_t run;              /* part of every key: a second run on the same node has keys of its own */
};

struct bench_result {
    const char *unit; /* what one operation is */
    unsigned timed;   /* operations that were timed together */
    uint64_t ops, bytes;
    double seconds;                   /* spent in them */
    const struct bench_stat *latency; /* may be NULL */
    const char *row, *way;            /* of a case with several documents; may be NULL */
    const char *baseline;             /* name with its unit */
    double figure, value;             /* of the case and of the baseline, in that unit; the ratio is their quotient */
    json_t *more;                     /* members of the document beyond those of every case, taken over; NULL: none */
};

/* Starts the node, with room for `slots` objects of the case's size and room_slots more; evict: above that many.
 * With -n it connects. 0, or an exit code after the error was reported. */
int bench_open(struct bench *b, uint64_t slots, uint64_t room_slots);
/* On a node that was named: makes the case's default number of objects small enough that none of the node's is evicted.
 * 0, or an exit code after it was reported that there is no room. */
int bench_fit(struct bench *b);
/* Closes and stops; returns `code`, or CLI_FAILED if the node did not stop cleanly. */
int bench_close(struct bench *b, int code);

/* The i-th key's bytes, key_size of them. */
void bench_key(const struct bench *b, uint64_t i, uint8_t *out);

/* All keys of the case in one array, in the order of their numbers. NULL: no memory. */
uint8_t *bench_keys(const struct bench *b);

/* Puts the case's objects, in another order than that of their numbers, and shows progress. */
int bench_fill(struct bench *b);
/* Removes keys first .. first + n. */
int bench_remove(struct bench *b, uint64_t first, uint64_t n);

/* Takes up to `most` operations through a queue, at most depth in flight. next fills operations[slot] for a key number;
 * done (may be NULL) hears of each that ended. 0 or the first negative error. */
struct bench_flow {
    unsigned depth;
    void (*next)(void *arg, struct berth_op *op, unsigned slot, uint64_t number);
    void (*done)(void *arg, struct berth_op *op, unsigned slot);
    void *arg;
    bool (*bad)(long result); /* NULL: every negative result */
};
int bench_flow(struct bench *b, const struct bench_flow *f, uint64_t first, uint64_t n);

/* A source to copy from that no cache holds: larger than twice the last cache, 64 MiB at least, an eighth of the
 * memory at most; pieces are taken from it in turn. */
struct bench_source {
    uint8_t *base;
    uint64_t bytes, at;
};
int bench_source_open(struct bench_source *s, uint64_t piece);
const void *bench_source_next(struct bench_source *s, uint64_t piece);
void bench_source_close(struct bench_source *s);

/* One round trip on a Unix SEQPACKET socket between two threads that block. */
struct bench_socket;
int bench_socket_open(struct bench_socket **s);
void bench_socket_round(struct bench_socket *s);
void bench_socket_close(struct bench_socket *s);

int64_t bench_now(void);
/* Works, not sleeps, for so long: what a client does between two calls. */
void bench_pause(int64_t ns);

/* Reports a failed library call; the exit code. */
int bench_fail(int error);
int bench_no_memory(void);
void bench_report(const struct bench *b, const struct bench_result *r);
/* "1.50 us", "2.31 GB/s". Return out. */
const char *bench_text_of_time(char out[24], double ns);
const char *bench_text_of_rate(char out[24], double bytes_per_second);

int bench_local_get(struct bench *b);
int bench_local_get_batch(struct bench *b);
int bench_exists(struct bench *b);
int bench_prefix(struct bench *b);
int bench_put(struct bench *b);
int bench_put_batch(struct bench *b);
int bench_put_group(struct bench *b);
int bench_idle(struct bench *b);
int bench_overhead(struct bench *b);
int bench_pull(struct bench *b);
int bench_pull_batch(struct bench *b);
int bench_pull_fair(struct bench *b);
int bench_scale(struct bench *b);
int bench_scale_clients(struct bench *b);
int bench_prefault(struct bench *b);

#endif
