#include "tools/bench/bench_get.h"

#include <errno.h>
#include <stdlib.h>

#include "store/client.h"
#include "tools/cli.h"

#define PAIRS 11u
#define SLICE_NS INT64_C(10000000)

/* ns a get of a stretch of time with or without counters and samples. */
static double stretch(struct reader *r, bool measured, int64_t ns)
{
    double sum = 0;
    unsigned n = 0;

    r->b->b->unmeasured = !measured;
    for (; n == 0 || ns > 0; n++, ns -= SLICE_NS)
        sum += reader_slice(r, reader_get, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
    return sum / n;
}

static int pairs(struct bench *b, struct reader *r)
{
    double plain[PAIRS], ratio[PAIRS];
    int64_t ns = (int64_t)b->seconds * 1000000000 / (2 * PAIRS);

    stretch(r, true, ns); /* warm */
    r->stat = (struct bench_stat){0};
    r->ops = 0;
    r->ns = 0;
    for (unsigned i = 0; i < PAIRS && !r->error; i++) {
        double with = 0;

        for (unsigned side = 0; side < 2; side++) {
            if ((side ^ i) & 1) { /* who goes first alternates */
                with = stretch(r, true, ns);
            } else {
                plain[i] = stretch(r, false, ns);
            }
        }
        ratio[i] = with / plain[i];
    }
    b->b->unmeasured = false;
    if (!r->error)
        bench_report(b, &(struct bench_result){.unit = "get",
                                               .timed = BENCH_BATCH,
                                               .ops = r->ops,
                                               .seconds = (double)r->ns / 1e9,
                                               .latency = &r->stat,
                                               .baseline = "unmeasured_get_ns",
                                               .value = median(plain, PAIRS),
                                               .ratio = median(ratio, PAIRS)});
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
