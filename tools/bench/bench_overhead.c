#include "tools/bench/bench_get.h"

#include <errno.h>
#include <stdlib.h>

#include "store/client.h"
#include "tools/cli.h"

#define PAIRS 11u
#define SLICE_NS INT64_C(5000000)

/* ns a get of a slice with or without counters and samples. */
static double slice(struct reader *r, bool measured)
{
    r->b->b->unmeasured = !measured;
    return reader_slice(r, reader_get, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
}

/* Slices of both take turns, and who goes first does: what the machine does meanwhile is the same for both. */
static void one_pair(struct reader *r, unsigned slices, double *measured, double *plain)
{
    double with = 0, without = 0;

    for (unsigned i = 0; i < slices; i++) {
        if (i & 1) {
            with += slice(r, true);
            without += slice(r, false);
        } else {
            without += slice(r, false);
            with += slice(r, true);
        }
    }
    *measured = with / slices;
    *plain = without / slices;
}

static int pairs(struct bench *b, struct reader *r)
{
    double measured[PAIRS], plain[PAIRS];
    struct bench_turns turns;
    int64_t slices = (int64_t)b->seconds * 1000000000 / (2 * PAIRS * SLICE_NS);

    slice(r, true); /* warm */
    r->stat = (struct bench_stat){0};
    r->ops = 0;
    r->ns = 0;
    for (unsigned i = 0; i < PAIRS && !r->error; i++)
        one_pair(r, slices > 2 ? (unsigned)slices : 2, &measured[i], &plain[i]);
    b->b->unmeasured = false;
    if (!r->error) {
        turns_choose(&turns, measured, plain, PAIRS);
        bench_report(b, &(struct bench_result){.unit = "get",
                                               .timed = BENCH_BATCH,
                                               .ops = r->ops,
                                               .seconds = (double)r->ns / 1e9,
                                               .latency = &r->stat,
                                               .baseline = "unmeasured_get_ns",
                                               .figure = turns_mean(&turns, measured),
                                               .value = turns_mean(&turns, plain)});
    }
    return r->error;
}

/* What counters and the sampling of one get in 1,024 cost. */
int bench_overhead(struct bench *b)
{
    int code = bench_open(b, b->objects, 0), error = -ENOMEM;
    struct reader *r = NULL;
    uint8_t *keys = NULL;

    if (code)
        return code;
    code = bench_fill(b);
    if (code)
        return bench_close(b, code);
    keys = bench_keys(b);
    r = calloc(1, sizeof(*r));
    if (r && keys)
        error = reader_open(r, b, keys, 0);
    if (!error) {
        error = pairs(b, r);
        reader_close(r);
    }
    free(r);
    free(keys);
    if (error)
        code = error == -ENOMEM ? bench_no_memory() : bench_fail(error);
    return bench_close(b, code);
}
