#include "tools/bench/bench_stat.h"

#include <stdlib.h>

static uint32_t bucket_of(uint64_t ps)
{
    unsigned octave;

    if (ps < STAT_STEPS)
        return (uint32_t)ps;
    octave = 63u - (unsigned)__builtin_clzll(ps) - STAT_STEP_BITS;
    return (octave + 1) * STAT_STEPS + (uint32_t)(ps >> octave & (STAT_STEPS - 1));
}

static double middle_of(uint32_t bucket)
{
    unsigned octave = bucket / STAT_STEPS;

    if (octave == 0)
        return bucket;
    return (double)(STAT_STEPS + bucket % STAT_STEPS) * (double)(1ull << (octave - 1)) +
           0.5 * (double)(1ull << (octave - 1));
}

void stat_note(struct bench_stat *s, uint64_t ps, uint64_t n)
{
    s->count += n;
    s->sum_ps += (double)ps * (double)n;
    s->bucket[bucket_of(ps)] += n;
}

void stat_merge(struct bench_stat *into, const struct bench_stat *from)
{
    into->count += from->count;
    into->sum_ps += from->sum_ps;
    for (uint32_t i = 0; i < STAT_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

double stat_mean(const struct bench_stat *s)
{
    return s->count ? s->sum_ps / (double)s->count / 1000 : 0;
}

double stat_percentile(const struct bench_stat *s, double share)
{
    double wanted = share * (double)s->count, seen = 0;

    if (s->count == 0)
        return 0;
    for (uint32_t i = 0; i < STAT_BUCKETS; i++) {
        seen += (double)s->bucket[i];
        if (s->bucket[i] && seen >= wanted)
            return middle_of(i) / 1000;
    }
    return middle_of(STAT_BUCKETS - 1) / 1000;
}

json_t *stat_json(const struct bench_stat *s)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", stat_mean(s), "p50", stat_percentile(s, 0.5), "p99",
                     stat_percentile(s, 0.99), "p999", stat_percentile(s, 0.999));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double median(double *figures, size_t n)
{
    qsort(figures, n, sizeof(*figures), compare);
    return n % 2 ? figures[n / 2] : (figures[n / 2 - 1] + figures[n / 2]) / 2;
}

struct turn {
    double quotient;
    uint32_t index;
};

static int compare_turns(const void *a, const void *b)
{
    return compare(&((const struct turn *)a)->quotient, &((const struct turn *)b)->quotient);
}

void turns_choose(struct bench_turns *t, const double *ours, const double *base, size_t n)
{
    struct turn turn[BENCH_SLICES];
    size_t cut = (n + 1) / 4;

    for (size_t i = 0; i < n; i++)
        turn[i] = (struct turn){ours[i] / base[i], (uint32_t)i};
    qsort(turn, n, sizeof(*turn), compare_turns);
    t->n = n - 2 * cut;
    for (size_t i = 0; i < t->n; i++)
        t->which[i] = turn[cut + i].index;
}

double turns_mean(const struct bench_turns *t, const double *costs)
{
    double sum = 0;

    for (size_t i = 0; i < t->n; i++)
        sum += costs[t->which[i]];
    return t->n ? sum / (double)t->n : 0;
}
