#include "tools/bench/bench_get.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/client.h"
#include "store/read.h"

int reader_open(struct reader *r, struct bench *b, const uint8_t *keys, unsigned index)
{
    memset(r, 0, sizeof(*r));
    r->b = b;
    r->keys = keys;
    r->at = b->objects / b->threads * index;
    r->key = calloc(b->depth < BENCH_BATCH ? BENCH_BATCH : b->depth, sizeof(*r->key));
    r->view = calloc(b->depth, sizeof(*r->view));
    r->present = calloc(b->depth, 1);
    r->call_ns = calloc(READER_CALLS, sizeof(*r->call_ns));
    if (r->key && r->view && r->present && r->call_ns)
        return 0;
    reader_close(r);
    return -ENOMEM;
}

void reader_close(struct reader *r)
{
    free(r->key);
    free(r->view);
    free(r->present);
    free(r->call_ns);
}

static inline struct berth_key next_key(struct reader *r)
{
    struct berth_key key = {.data = r->keys + r->at * r->b->key_size, .size = r->b->key_size};

    if (++r->at == r->b->objects)
        r->at = 0;
    return key;
}

/* Their bytes are in the cache soon, as those of a key are that an application has just made. */
static void next_keys(struct reader *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *data = (r->key[i] = next_key(r)).data;

        __builtin_prefetch(data);
        __builtin_prefetch(data + r->b->key_size - 1);
    }
}

/* Keys that were made before, as an application has them: one that is put together in the call is written by 8 bytes
 * and copied by 16, and the processor then waits until those stores have left it, about 20 ns. */
int reader_get(struct reader *r, unsigned n)
{
    struct berth_view v;

    next_keys(r, n);
    for (unsigned i = 0; i < n; i++) {
        int error = berth_get(r->b->b, r->key[i], &v, 0, BERTH_FOREVER);

        if (error)
            return error;
        r->sum += v.size;
        berth_release(r->b->b, &v, 1);
    }
    return 0;
}

int reader_get_many(struct reader *r, unsigned n)
{
    long found;

    next_keys(r, n);
    found = berth_get_many(r->b->b, r->key, n, r->view, 0, BERTH_FOREVER);
    if (found < 0)
        return (int)found;
    r->sum += r->view[0].size;
    berth_release(r->b->b, r->view, n);
    return found == n ? 0 : -ENOENT;
}

int reader_exists(struct reader *r, unsigned n)
{
    long found;

    next_keys(r, n);
    found = berth_exists(r->b->b, r->key, n, r->present, 0);
    if (found < 0)
        return (int)found;
    return found == n ? 0 : -ENOENT;
}

int reader_prefix(struct reader *r, unsigned n)
{
    long run;

    next_keys(r, n);
    run = berth_prefix(r->b->b, r->key, n, r->view, 0, BERTH_FOREVER);
    if (run < 0)
        return (int)run;
    r->sum += r->view[0].size;
    berth_release(r->b->b, r->view, (size_t)run);
    return run == n ? 0 : -ENOENT;
}

/* The same read without its pin: hash, bucket, tag, header, key compare, and the view of what was found. A call like
 * berth_get, with its arguments: what is left out is the exchange, every check, and the counters. */
static __attribute__((noinline)) int unpinned_get(const struct berth *b, struct berth_key key, struct berth_view *view)
{
    const struct lookup *l = &b->lookup;
    struct wanted w;

    find_start(l, &w, &key);
    for (unsigned probe = 0; probe < LOOKUP_PROBES; probe++) {
        const struct lookup_bucket *bucket = w.home + probe;

        for (unsigned m = find_match(bucket, w.tag); m; m &= m - 1) {
            uint64_t entry = atomic_load_explicit(find_entry(bucket, m), memory_order_relaxed);
            uint32_t slot = find_slot(l, entry, w.tag);

            if (slot != SLOT_NONE && find_same_key(l, find_header(l, slot), &w)) {
                read_view(b, find_header(l, slot), (struct found){.slot = slot, .entry = PIN_NONE}, view);
                return 0;
            }
        }
        if (atomic_load_explicit(&bucket->passed, memory_order_relaxed) == 0)
            break;
    }
    return -ENOENT;
}

int reader_unpinned(struct reader *r, unsigned n)
{
    struct berth_view v;

    next_keys(r, n);
    for (unsigned i = 0; i < n; i++) {
        /* One that lookup has no room for is in the index only: it is looked for in vain here, as it is in a get. */
        if (unpinned_get(r->b->b, r->key[i], &v) == 0)
            r->sum += v.size;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static double uninterrupted(uint32_t *call_ns, uint32_t calls)
{
    uint64_t sum = 0, limit;
    uint32_t n = 0;

    if (calls == 0)
        return 0;
    qsort(call_ns, calls, sizeof(*call_ns), compare);
    limit = (uint64_t)call_ns[calls / 2] * READER_OUTLIER;
    while (n < calls && call_ns[n] <= limit)
        sum += call_ns[n++];
    return (double)sum / n;
}

double reader_slice(struct reader *r, reader_op *op, unsigned n, unsigned timed, int64_t ns)
{
    int64_t begin = bench_now(), end = begin + ns, now = begin, last;
    uint32_t calls = 0;

    while (now < end && !r->error) {
        last = now;
        r->error = op(r, n);
        now = bench_now();
        stat_note(&r->stat, (uint64_t)(now - last) * 1000 / timed, timed);
        r->ops += n;
        if (calls < READER_CALLS)
            r->call_ns[calls++] = now - last < UINT32_MAX ? (uint32_t)(now - last) : UINT32_MAX;
    }
    r->ns += now - begin;
    return uninterrupted(r->call_ns, calls) / n;
}
