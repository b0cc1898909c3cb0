/* bench_get.h: readers: what one does in a slice of time, and the same read without its pin. */
#ifndef BERTH_TOOLS_BENCH_GET_H
#define BERTH_TOOLS_BENCH_GET_H

#include "tools/bench/bench.h"

#define READER_CALLS 65536u /* of one slice that are looked at */
#define READER_OUTLIER 10u

struct reader {
    struct bench *b;
    const uint8_t *keys;   /* the case's objects, in the order in which they are read */
    uint64_t at;           /* the next one to be read */
    struct berth_key *key; /* depth of them, for batches */
    struct berth_view *view;
    uint8_t *present;
    struct bench_stat stat;
    uint64_t ops;
    int64_t ns; /* spent in them */
    int error;
    uint32_t *call_ns; /* of the slice */
    uint64_t sum;      /* of what was read, so that reading is not left out */
};

int reader_open(struct reader *r, struct bench *b, const uint8_t *keys, unsigned index);
void reader_close(struct reader *r);

/* One operation of a case, of n keys; 0 or a negative error. */
typedef int reader_op(struct reader *r, unsigned n);
reader_op reader_get, reader_get_many, reader_exists, reader_prefix;
/* Hash, bucket, tag, header, key compare; no exchange, no state check. Keys one by one. */
reader_op reader_unpinned;

/* Repeats op with n keys for so long. A call counts as `timed` operations, each of which took that part of its time.
 * Returns ns a key, of the calls that were not interrupted: those that took more than READER_OUTLIER times the median
 * are left out of it, but not out of the histogram. */
double reader_slice(struct reader *r, reader_op *op, unsigned n, unsigned timed, int64_t ns);

#endif
