/* bench_stat.h: latencies as a histogram: exact below 128 ps, then 128 steps an octave, so that a percentile is off by
 * less than 1 %. Times are picoseconds, for what takes nanoseconds is timed in batches and divided.
 */
#ifndef BERTH_TOOLS_BENCH_STAT_H
#define BERTH_TOOLS_BENCH_STAT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define STAT_STEP_BITS 7u
#define STAT_STEPS (1u << STAT_STEP_BITS)
#define BENCH_SLICES 4096u /* of one run, at most */
#define STAT_BUCKETS ((64u - STAT_STEP_BITS) * STAT_STEPS + STAT_STEPS)

struct bench_stat {
    uint64_t count;
    double sum_ps;
    uint64_t bucket[STAT_BUCKETS];
};

/* n operations of `ps` each. */
void stat_note(struct bench_stat *s, uint64_t ps, uint64_t n);
void stat_merge(struct bench_stat *into, const struct bench_stat *from);

/* In ns; 0 of an empty one. share: 0.5 is the median. */
double stat_mean(const struct bench_stat *s);
double stat_percentile(const struct bench_stat *s, double share);

/* {"mean", "p50", "p99", "p999"} in ns */
json_t *stat_json(const struct bench_stat *s);

/* The middle one of n figures (the mean of the two in the middle); sorts them. n > 0. */
double median(double *figures, size_t n);

/* Slices of a case and of its baseline take turns, and each turn has a quotient: the middle half of the turns by it. A
 * figure is a mean over these turns and its baseline one over the same, so that the two divide to the ratio that is
 * told; a turn in which something interrupted one side counts in neither. Two medians would be of other turns each:
 * where a machine is fast in half of them and slow in the others, they could be one of a fast and one of a slow turn.
 */
struct bench_turns {
    uint32_t which[BENCH_SLICES];
    size_t n;
};
/* By ours[i] / base[i]; both are costs, ns a unit of work. n of them, 1 .. BENCH_SLICES. */
void turns_choose(struct bench_turns *t, const double *ours, const double *base, size_t n);
/* Of these turns; a cost's mean is the time of all over the work of all where slices did equal work. */
double turns_mean(const struct bench_turns *t, const double *costs);

#endif
