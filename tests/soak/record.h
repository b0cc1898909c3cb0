/* record.h: what a worker of the soak has seen, and how it says so.
 *
 * A line of JSON a second on stdout, {"window": .., "gets": {BUCKET: count}}, one at once for whatever must not be,
 * {"wrong": SENTENCE} or {"late": ..}, and at the end {"end": {..}}. One thread.
 */
#ifndef BERTH_TESTS_SOAK_RECORD_H
#define BERTH_TESTS_SOAK_RECORD_H

#include <stdbool.h>
#include <stdint.h>

/* How late a call may end, as berth.h promises: 50 ms, 100 ms where it asks the node twice. */
#define LATE_NS 100000000

/* A call with a deadline, and for how long its thread and its node's had waited for a CPU when it began: ns. */
struct span {
    int64_t deadline;
    int64_t starved;
};

/* The node's process, whose waiting for a CPU excuses a late answer. */
void record_start(int node_pid);
/* CLOCK_MONOTONIC, ns. */
int64_t record_now(void);

struct span span_begin(int64_t deadline_ns_from_now);
/* Counts the call op by its result, and says if it was late. Returns the result. */
long span_end(const struct span *s, const char *op, long result);
/* A call without a deadline. Returns the result. */
long record_result(const char *op, long result);

/* A get that found its key here took so long. */
void record_get(int64_t ns);
/* Gets of any kind that found a key, and objects that this worker has put: the node's counters have to say the same. */
void record_found(uint64_t n);
void record_put(uint64_t n);
/* Puts of which nobody knows whether they were done. */
void record_open_put(uint64_t n);
/* Bytes that were compared. */
void record_compared(uint64_t bytes);
void record_wrong(const char *op, const char *key, const char *why);

/* Ends a window, if a second has passed. */
void record_tick(void);
void record_finish(void);

#endif
