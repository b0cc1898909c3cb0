#include "tools/bench/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

#define AREA_BYTES (UINT64_C(128) << 20) /* of the pool that puts and copies go round in */
#define SLICE_BYTES (UINT64_C(32) << 20)
#define SLICE_OPS 8192u
#define TARGETS 4u /* drafts that the baseline copies into, piece by piece */
#define TARGET_BYTES (AREA_BYTES / TARGETS)
#define SMALL_BYTES 16384u /* up to this a put one by one is held against a round trip on a socket */
#define ROUND_OPS 64u

struct put_run {
    struct bench *b;
    struct bench_source source;
    struct berth_draft
        target[TARGETS]; /* of the copies that are the baseline: in the same mapping as the puts' slots */
    uint64_t target_bytes, target_at;
    uint32_t n_targets;
    struct bench_socket *socket;
    struct berth_put_opts opts;
    struct berth_draft *group;
    uint8_t *keys;  /* depth of them */
    int64_t *since; /* when each in flight was submitted */
    struct bench_stat stat, base;
    double put_ns[BENCH_SLICES], copy_ns[BENCH_SLICES]; /* a byte */
    unsigned slices;
    uint64_t number; /* of the next key */
    uint64_t ops;
    double seconds;
    int (*slice)(struct put_run *r, uint64_t n);
};

/* ---- what is measured ---- */

static int put_one_by_one(struct put_run *r, uint64_t n)
{
    struct bench *b = r->b;

    for (uint64_t i = 0; i < n; i++) {
        struct berth_key key = {.data = r->keys, .size = b->key_size};
        const void *from = bench_source_next(&r->source, b->size);
        int64_t begin;
        int error;

        bench_key(b, r->number++, r->keys);
        bench_pause(b->pause_ns);
        begin = bench_now();
        error = berth_put(b->b, key, from, b->size, &r->opts);
        stat_note(&r->stat, (uint64_t)(bench_now() - begin) * 1000, 1);
        if (error < 0)
            return error;
    }
    return 0;
}

static void queue_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct put_run *r = arg;
    uint8_t *key = r->keys + (size_t)slot * BENCH_KEY_MAX;

    bench_key(r->b, number, key);
    op->opcode = BERTH_OP_PUT;
    op->key = (struct berth_key){.data = key, .size = r->b->key_size};
    op->data = (void *)bench_source_next(&r->source, r->b->size);
    op->size = r->b->size;
    op->put = &r->opts;
    op->deadline = BERTH_FOREVER;
    r->since[slot] = bench_now();
}

static void queue_done(void *arg, struct berth_op *op, unsigned slot)
{
    struct put_run *r = arg;

    (void)op;
    stat_note(&r->stat, (uint64_t)(bench_now() - r->since[slot]) * 1000, 1);
}

static int put_queued(struct put_run *r, uint64_t n)
{
    struct bench_flow flow = {.depth = r->b->depth, .next = queue_next, .done = queue_done, .arg = r};
    uint64_t first = r->number;

    r->number += n;
    return bench_flow(r->b, &flow, first, n);
}

static void create_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct put_run *r = arg;

    queue_next(arg, op, slot, number);
    op->opcode = BERTH_OP_CREATE;
    op->data = NULL;
    op->draft = &r->group[slot];
}

static int put_a_group(struct put_run *r, uint64_t n)
{
    struct bench_flow flow = {.depth = (unsigned)n, .next = create_next, .arg = r};
    int64_t begin = bench_now();
    int error;

    error = bench_flow(r->b, &flow, r->number, n);
    r->number += n;
    if (error)
        return error;
    for (uint64_t i = 0; i < n; i++) {
        r->group[i].checksum = berth_copy(r->group[i].data, bench_source_next(&r->source, r->b->size), r->b->size);
        r->group[i].flags = BERTH_HAS_CHECKSUM;
    }
    error = berth_seal(r->b->b, r->group, n);
    stat_note(&r->stat, (uint64_t)(bench_now() - begin) * 1000, 1);
    return error < 0 ? error : 0;
}

static int put_groups(struct put_run *r, uint64_t n)
{
    int error = 0;

    while (n && !error) {
        uint64_t members = n < r->b->depth ? n : r->b->depth;

        error = put_a_group(r, members);
        n -= members;
    }
    return error;
}

/* ---- the baselines ---- */

/* Where the next piece goes: aligned as slots are. */
static void *next_target(struct put_run *r)
{
    uint64_t step = bench_slot_bytes(r->b->size), pieces = r->target_bytes / step;
    uint64_t piece = r->target_at++ % (pieces * r->n_targets);

    return (uint8_t *)r->target[piece / pieces].data + piece % pieces * step;
}

/* ns a byte. */
static double copy_slice(struct put_run *r, uint64_t n)
{
    int64_t begin = bench_now();

    for (uint64_t i = 0; i < n; i++)
        memcpy(next_target(r), bench_source_next(&r->source, r->b->size), r->b->size);
    return (double)(bench_now() - begin) / (double)(n * r->b->size);
}

static void socket_slice(struct put_run *r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        int64_t begin;

        bench_pause(r->b->pause_ns);
        begin = bench_now();
        bench_socket_round(r->socket);
        stat_note(&r->base, (uint64_t)(bench_now() - begin) * 1000, 1);
    }
}

/* ---- slices of both, until the time is over ---- */

static int one_slice(struct put_run *r, uint64_t n)
{
    int64_t begin = bench_now();
    double seconds;
    int error = r->slice(r, n);

    if (error)
        return error;
    seconds = (double)(bench_now() - begin) / 1e9;
    r->seconds += seconds;
    r->ops += n;
    if (r->socket) {
        socket_slice(r, n);
    } else if (r->slices < BENCH_SLICES) {
        r->put_ns[r->slices] = seconds * 1e9 / (double)(n * r->b->size);
        r->copy_ns[r->slices++] = copy_slice(r, n);
    }
    return 0;
}

static uint64_t slice_ops(const struct put_run *r)
{
    uint64_t n = r->b->size ? SLICE_BYTES / r->b->size : SLICE_OPS;

    if (r->socket)
        return ROUND_OPS;
    return n < 1 ? 1 : n > SLICE_OPS ? SLICE_OPS : n;
}

/* With eviction keys go on and on; without, a round fills the objects' room and then removes them, untimed. */
static int run_slices(struct put_run *r)
{
    int64_t end = bench_now() + (int64_t)r->b->seconds * 1000000000;
    uint64_t first = r->number, n = slice_ops(r);
    int error = 0;

    while (!error && bench_now() < end) {
        uint64_t left = r->b->evict ? n : r->b->objects - (r->number - first);

        error = one_slice(r, n < left ? n : left);
        if (!error && !r->b->evict && r->number - first >= r->b->objects) {
            error = bench_remove(r->b, first, r->number - first);
            first = r->number;
        }
    }
    if (!error && !r->b->evict && r->b->url)
        error = bench_remove(r->b, first, r->number - first);
    return error;
}

static void report(struct put_run *r, const char *unit)
{
    struct bench_result result = {.unit = unit,
                                  .timed = 1,
                                  .ops = r->ops,
                                  .bytes = r->ops * r->b->size,
                                  .seconds = r->seconds,
                                  .latency = &r->stat};
    struct bench_turns turns;

    if (r->socket) {
        result.baseline = "socket_round_trip_p50_ns";
        result.value = stat_percentile(&r->base, 0.5);
        result.figure = stat_percentile(&r->stat, 0.5);
    } else if (r->slices) {
        turns_choose(&turns, r->put_ns, r->copy_ns, r->slices);
        result.baseline = "memcpy_bytes_per_second";
        result.figure = 1e9 / turns_mean(&turns, r->put_ns);
        result.value = 1e9 / turns_mean(&turns, r->copy_ns);
    }
    bench_report(r->b, &result);
}

/* ---- set-up ---- */

static uint64_t target_bytes(const struct bench *b)
{
    uint64_t step = bench_slot_bytes(b->size), most = TARGET_BYTES;

    if (b->draft_bytes && b->draft_bytes / 2 / TARGETS < most) /* half of them; puts have the others */
        most = b->draft_bytes / 2 / TARGETS;
    return step > most ? step : most / step * step;
}

static int make_targets(struct put_run *r)
{
    struct berth_key key = {.data = r->keys, .size = r->b->key_size};
    int error = 0;

    r->target_bytes = target_bytes(r->b);
    while (!error && r->n_targets < TARGETS) {
        bench_key(r->b, UINT64_MAX - r->n_targets, r->keys);
        error = berth_create(r->b->b, key, r->target_bytes, &r->opts, &r->target[r->n_targets]);
        if (!error)
            memset(r->target[r->n_targets++].data, 0, r->target_bytes);
    }
    return error;
}

static int set_up(struct put_run *r)
{
    bool small = r->b->size == 0 || (r->slice == put_one_by_one && r->b->size <= SMALL_BYTES);

    r->opts = (struct berth_put_opts){.size = sizeof(r->opts), .deadline = BERTH_FOREVER};
    r->group = calloc(r->b->depth, sizeof(*r->group));
    r->keys = malloc((size_t)r->b->depth * BENCH_KEY_MAX);
    r->since = calloc(r->b->depth, sizeof(*r->since));
    if (!r->group || !r->keys || !r->since)
        return -ENOMEM;
    r->number = r->b->evict ? r->b->objects : 0;
    return small ? bench_socket_open(&r->socket) : make_targets(r);
}

static void tear_down(struct put_run *r)
{
    if (r->socket)
        bench_socket_close(r->socket);
    if (r->n_targets)
        berth_abort(r->b->b, r->target, r->n_targets);
    free(r->group);
    free(r->keys);
    free(r->since);
}

static int run(struct put_run *r, const char *unit)
{
    int error = bench_source_open(&r->source, r->b->size);

    if (error)
        return error;
    error = set_up(r);
    if (!error)
        error = run_slices(r);
    if (!error)
        report(r, unit);
    tear_down(r);
    bench_source_close(&r->source);
    return error;
}

static int run_puts(struct bench *b, int (*slice)(struct put_run *, uint64_t), const char *unit)
{
    struct put_run *r;
    uint64_t room;
    int code, error;

    if (!b->objects) {
        b->objects = b->size ? AREA_BYTES / b->size : 65536;
        b->objects = b->objects < 64 ? 64 : b->objects > 65536 ? 65536 : b->objects;
    }
    room = TARGETS * target_bytes(b) / bench_slot_bytes(b->size) + 4u * b->depth + 256;
    code = bench_open(b, b->objects, room);
    if (code)
        return code;
    if (b->evict) /* begin where every put evicts */
        code = bench_fill(b);
    if (code)
        return bench_close(b, code);
    r = calloc(1, sizeof(*r));
    error = -ENOMEM;
    if (r) {
        r->b = b;
        r->slice = slice;
        error = run(r, unit);
    }
    free(r);
    if (error)
        code = error == -ENOMEM ? bench_no_memory() : cli_fail_last(error, b->which->name);
    return bench_close(b, code);
}

int bench_put(struct bench *b)
{
    return run_puts(b, b->depth > 1 ? put_queued : put_one_by_one, "put");
}

int bench_put_batch(struct bench *b)
{
    return run_puts(b, put_queued, "put");
}

int bench_put_group(struct bench *b)
{
    return run_puts(b, put_groups, "object");
}
