/* bench_pull_fair.c: what a large pull does to small ones of the same process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/bench/bench_buffer.h"
#include "tools/bench/bench_pull.h"
#include "tools/cli.h"

#define SMALL_BYTES 4096u
#define SMALL_OBJECTS \
    16u /* few: with an idle lease on the large one their leases are asked back, and each is given again */
#define SMALL_FIRST 1000000u /* numbers of their keys */
#define SLICE_NS INT64_C(500000000)
#define SLICES_MIN 2u

struct fair_run {
    struct bench *b;
    struct pull_nodes nodes;
    uint8_t *keys, *to; /* of small ones; a buffer for the large one */
    uint8_t small[SMALL_BYTES];
    uint8_t key[BENCH_KEY_MAX];
    struct berth_op op; /* the large one, while it is under way */
    uint64_t number;
    struct pull_way alone, during;
    uint64_t moved; /* bytes of large ones */
};

/* ---- what is pulled ---- */

static int submit_large(struct fair_run *r)
{
    struct bench *b = r->b;

    bench_key(b, 0, r->key);
    r->op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                              .flags = BERTH_PEERS,
                              .deadline = BERTH_FOREVER,
                              .key = {.data = r->key, .size = b->key_size},
                              .data = r->to,
                              .size = b->size};
    return berth_submit(b->queue, &r->op, 1) == 1 ? 0 : BERTH_ENODE;
}

/* Looks, or waits, for its end. 1: it has ended; 0; or its error. */
static int large_ended(struct fair_run *r, int64_t deadline)
{
    struct berth_op *ended;
    long n = berth_reap(r->b->queue, &ended, 1, deadline);

    if (n <= 0)
        return (int)n;
    if (ended->result < 0)
        return (int)ended->result;
    r->moved += (uint64_t)ended->result;
    return 1;
}

static int pull_small(struct fair_run *r, struct bench_stat *stat)
{
    const uint8_t *key = r->keys + r->number++ % SMALL_OBJECTS * BENCH_KEY_MAX;
    int64_t begin = bench_now();
    long got = berth_get_into(r->b->b, (struct berth_key){.data = key, .size = r->b->key_size}, r->small, SMALL_BYTES,
                              BERTH_PEERS, BERTH_FOREVER);

    if (got >= 0)
        stat_note(stat, (uint64_t)(bench_now() - begin) * 1000, 1);
    return got < 0 ? (int)got : 0;
}

/* ---- slices ---- */

static int run_alone(void *arg, uint64_t n, struct bench_stat *stat)
{
    int64_t end = bench_now() + SLICE_NS;
    int error = 0;

    (void)n;
    while (!error && bench_now() < end)
        error = pull_small(arg, stat);
    return error;
}

/* A large one is under way throughout; small ones that come after the last has ended are not counted. */
static int run_during(void *arg, uint64_t n, struct bench_stat *stat)
{
    struct fair_run *r = arg;
    int64_t end = bench_now() + SLICE_NS;
    int error = submit_large(r), ended = 0;

    (void)n;
    while (!error && (bench_now() < end || ended == 0)) {
        error = pull_small(r, stat);
        ended = error ? 0 : large_ended(r, BERTH_NOW);
        if (ended == 1 && bench_now() < end) {
            error = submit_large(r);
            ended = 0;
        }
        if (ended)
            break;
    }
    if (!ended && error)
        large_ended(r, BERTH_FOREVER);
    return error ? error : ended < 0 ? ended : 0;
}

static int measure(struct fair_run *r)
{
    int64_t end = bench_now() + (int64_t)r->b->seconds * 1000000000;
    struct bench_stat *warm = calloc(1, sizeof(*warm));
    int error = warm ? 0 : -ENOMEM;

    for (unsigned i = 0; i < SMALL_OBJECTS && !error; i++)
        error = pull_small(r, warm);
    free(warm);
    while (!error && (bench_now() < end || r->alone.slices < SLICES_MIN)) {
        error = pull_slice(&r->alone, run_alone, r, 0, 0);
        if (!error)
            error = pull_slice(&r->during, run_during, r, 0, 0);
    }
    return error;
}

/* ---- report ---- */

static json_t *way_json(const struct pull_way *w)
{
    return json_pack("{s:s, s:o, s:I}", "name", w->name, "latency_ns", stat_json(&w->stat), "pulls",
                     (json_int_t)w->stat.count);
}

static void report(struct fair_run *r)
{
    double alone = stat_percentile(&r->alone.stat, 0.99), rate = (double)r->moved / r->during.seconds;
    json_t *more = pull_options_json(r->b);
    char text[24], p50[24], p99[24];

    json_object_set_new(more, "rows", json_pack("[o, o]", way_json(&r->alone), way_json(&r->during)));
    json_object_set_new(more, "large_bytes_per_second", json_real(rate));
    bench_report(r->b, &(struct bench_result){.unit = "pull",
                                              .timed = 1,
                                              .ops = r->during.stat.count,
                                              .bytes = r->during.stat.count * SMALL_BYTES,
                                              .seconds = r->during.seconds,
                                              .latency = &r->during.stat,
                                              .baseline = "alone_p99_ns",
                                              .figure = stat_percentile(&r->during.stat, 0.99),
                                              .value = alone,
                                              .more = more});
    if (!cli.json)
        printf("  %-10s p50 %s, p99 %s\n  %-10s %s\n", r->alone.name,
               bench_text_of_time(p50, stat_percentile(&r->alone.stat, 0.5)), bench_text_of_time(p99, alone), "large",
               bench_text_of_rate(text, rate));
    cli_flush();
}

/* ---- set-up ---- */

static int put_small(struct fair_run *r)
{
    int error = 0;

    for (unsigned i = 0; i < SMALL_OBJECTS && error >= 0; i++) {
        uint8_t *key = r->keys + (size_t)i * BENCH_KEY_MAX;

        bench_key(r->b, SMALL_FIRST + i, key);
        error =
            berth_put(r->b->b, (struct berth_key){.data = key, .size = r->b->key_size}, r->small, SMALL_BYTES, NULL);
    }
    return error < 0 ? bench_fail(error) : 0;
}

static int run_on_nodes(struct fair_run *r)
{
    int code = bench_fill(r->b), error;

    if (!code)
        code = put_small(r);
    pull_nodes_use(&r->nodes.reader_cpus);
    r->alone.owner = r->during.owner = r->b->node.pid;
    if (!code)
        code = pull_nodes_reader(&r->nodes);
    if (code)
        return code;
    error = measure(r);
    if (error)
        return cli_fail(error, r->b->which->name, berth_error_text(error));
    report(r);
    return 0;
}

int bench_pull_fair(struct bench *b)
{
    struct fair_run *r = calloc(1, sizeof(*r));
    int code = CLI_FAILED;

    if (!r)
        return bench_no_memory();
    r->b = b;
    r->alone.name = "alone";
    r->during.name = "during";
    b->objects = 1;
    r->keys = malloc((size_t)SMALL_OBJECTS * BENCH_KEY_MAX);
    r->to = bench_buffer(b->size);
    if (!r->keys || !r->to) {
        code = bench_no_memory();
    } else if (!(code = pull_nodes_cpus(&r->nodes, b))) {
        pull_nodes_use(&r->nodes.owner_cpus);
        code = pull_nodes_open(&r->nodes, 1, 4 * SMALL_OBJECTS * SMALL_BYTES);
        if (!code)
            code = pull_nodes_close(&r->nodes, run_on_nodes(r));
    }
    if (r->to)
        munmap(r->to, b->size);
    free(r->keys);
    free(r);
    return code;
}
