#include "tools/bench/bench_pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "replication/pull.h"
#include "store/amount.h"
#include "store/shell/space.h"
#include "tools/bench/bench_buffer.h"
#include "tools/cli.h"

#define COLD_MAX 4096u /* objects */
#define WARM_MAX 2048u
#define OBJECTS_MIN 16u
#define SLICES_MIN 3u

enum { WAY_PULL, WAY_SEND, WAY_SENDFILE, WAYS };

struct pull_run {
    struct bench *b;
    struct pull_nodes nodes;
    struct pull_way way[WAYS];
    int (*run)(void *arg, uint64_t n, struct bench_stat *stat); /* pulls n keys */
    uint64_t step;                                              /* keys of one call */
    struct berth_key *batch;                                    /* step of them */
    struct bench_raw raw[2];                                    /* send, sendfile */
    uint8_t *keys;                                              /* all of them */
    uint8_t *to;                                                /* depth buffers */
    int64_t *since;
    struct berth_record *record; /* depth of them */
    uint64_t phase_ns[BERTH_PHASES], recorded;
    uint64_t number;         /* of the next key */
    struct bench_stat *stat; /* of the slice under way */
    struct pull_counts before, after;
};

/* ---- a slice ---- */

static uint64_t cpu_ns(pid_t pid)
{
    struct timespec t = {0};
    clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;

    if (pid && clock_getcpuclockid(pid, &clock))
        return 0;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int pull_slice(struct pull_way *w, int (*run)(void *arg, uint64_t n, struct bench_stat *stat), void *arg, uint64_t n,
               uint64_t bytes)
{
    uint64_t owner = cpu_ns(w->owner), reader = cpu_ns(0);
    int64_t begin = bench_now();
    int error = run(arg, n, &w->stat);
    double seconds = (double)(bench_now() - begin) / 1e9;

    if (error)
        return error;
    w->owner_ns += cpu_ns(w->owner) - owner;
    w->reader_ns += cpu_ns(0) - reader;
    w->seconds += seconds;
    w->bytes += bytes;
    if (w->slices < BENCH_SLICES)
        w->byte_ns[w->slices++] = seconds * 1e9 / (double)bytes;
    return 0;
}

static void pull_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct pull_run *r = arg;
    struct bench *b = r->b;

    op->key = (struct berth_key){.data = r->keys + number % b->objects * b->key_size, .size = b->key_size};
    op->deadline = BERTH_FOREVER;
    op->record = &r->record[slot];
    op->opcode = b->pulls.replica ? BERTH_OP_PULL : BERTH_OP_GET_INTO;
    if (!b->pulls.replica) {
        op->flags = BERTH_PEERS;
        op->data = r->to + slot * b->size;
        op->size = b->size;
    }
    r->since[slot] = bench_now();
}

static void pull_done(void *arg, struct berth_op *op, unsigned slot)
{
    struct pull_run *r = arg;

    if (!r->stat)
        return;
    stat_note(r->stat, (uint64_t)(bench_now() - r->since[slot]) * 1000, 1);
    r->recorded++;
    for (unsigned i = 0; i < BERTH_PHASES; i++)
        r->phase_ns[i] += (uint64_t)op->record->phase_ns[i];
}

static int run_pulls(void *arg, uint64_t n, struct bench_stat *stat)
{
    struct pull_run *r = arg;
    struct bench_flow flow = {.depth = r->b->depth, .next = pull_next, .done = pull_done, .arg = r};
    uint64_t first = r->number;

    r->number += n;
    r->stat = stat;
    return bench_flow(r->b, &flow, first, n);
}

/* Calls of `step` keys each, one after the other; n is a multiple of it. */
static int run_batches(void *arg, uint64_t n, struct bench_stat *stat)
{
    struct pull_run *r = arg;
    struct bench *b = r->b;

    for (uint64_t done = 0; done < n; done += r->step) {
        struct berth_op op = {.opcode = BERTH_OP_PULL, .n = r->step, .data = r->batch, .deadline = BERTH_FOREVER};
        struct berth_op *ended;
        int64_t begin = bench_now();
        int rc;

        for (uint64_t i = 0; i < r->step; i++, r->number++)
            r->batch[i] = (struct berth_key){.data = r->keys + r->number * b->key_size, .size = b->key_size};
        rc = berth_submit(b->queue, &op, 1);
        if (rc == 1 && berth_reap(b->queue, &ended, 1, BERTH_FOREVER) != 1)
            rc = BERTH_ENODE;
        if (rc != 1 || op.result != (long)r->step)
            return rc < 0 ? rc : op.result < 0 ? (int)op.result : BERTH_EUNSURE;
        if (stat)
            stat_note(stat, (uint64_t)(bench_now() - begin) * 1000, 1);
    }
    return 0;
}

static int run_raw(void *arg, uint64_t n, struct bench_stat *stat)
{
    return bench_raw_read(arg, n, stat);
}

/* ---- slices of all three in turn ---- */

static bool keys_once(const struct bench *b)
{
    return b->pulls.cold || b->pulls.replica;
}

/* A key is cold once in a reader's life. 0, or an exit code. */
static int fresh_reader(struct pull_run *r)
{
    if (!keys_once(r->b) || r->number < r->b->objects)
        return 0;
    r->number = 0;
    return pull_nodes_reader(&r->nodes);
}

static int three_slices(struct pull_run *r, uint64_t n)
{
    uint64_t bytes, left = r->b->objects - r->number;
    int error;

    if (keys_once(r->b) && n > left)
        n = left;
    bytes = n * r->b->size;
    error = pull_slice(&r->way[WAY_PULL], r->run, r, n, bytes);
    for (unsigned i = 0; i < 2 && !error; i++)
        error = pull_slice(&r->way[WAY_SEND + i], run_raw, &r->raw[i], n, bytes);
    return error;
}

/* Operations that take about as long as a slice, after everything has been moved once (which gives warm leases). */
static int warm_up(struct pull_run *r, uint64_t *n)
{
    int64_t begin = bench_now(), spent;
    int error = r->run(r, r->b->objects, NULL);

    spent = bench_now() - begin;
    for (unsigned i = 0; i < 2 && !error; i++)
        error = bench_raw_read(&r->raw[i], r->b->objects, NULL);
    *n = (uint64_t)((double)r->b->objects * (double)PULL_SLICE_NS / (double)spent);
    *n = *n < 2 * r->b->depth ? 2 * r->b->depth : *n - *n % r->step;
    return error;
}

static int run_slices(struct pull_run *r)
{
    struct bench *b = r->b;
    uint64_t n;
    int error = warm_up(r, &n);
    int code = error ? bench_fail(error) : fresh_reader(r);
    int64_t end = bench_now() + (int64_t)b->seconds * 1000000000;

    if (!code)
        code = pull_nodes_counts(&r->nodes, &r->before) ? bench_fail(BERTH_ENODE) : 0;
    while (!code && (bench_now() < end || r->way[WAY_PULL].slices < SLICES_MIN)) {
        code = fresh_reader(r);
        error = code ? 0 : three_slices(r, n);
        if (error)
            code = cli_fail(error, b->which->name, berth_error_text(error));
    }
    if (!code)
        code = pull_nodes_counts(&r->nodes, &r->after) ? bench_fail(BERTH_ENODE) : 0;
    return code;
}

/* ---- report ---- */

static double per_gib(uint64_t ns, uint64_t bytes)
{
    return bytes ? (double)ns / 1e9 / ((double)bytes / (double)(1u << 30)) : 0;
}

json_t *pull_row_json(const struct pull_way *w)
{
    return json_pack("{s:s, s:f, s:o, s:f, s:f}", "name", w->name, "bytes_per_second", w->rate, "latency_ns",
                     stat_json(&w->stat), "owner_cpu_s_per_gib", per_gib(w->owner_ns, w->bytes), "reader_cpu_s_per_gib",
                     per_gib(w->reader_ns, w->bytes));
}

void pull_row_print(const struct pull_way *w)
{
    char rate[24], p50[24], p99[24];

    printf("  %-10s %s, p50 %s, p99 %s, CPU a GiB: owner %.3f s, reader %.3f s\n", w->name,
           bench_text_of_rate(rate, w->rate), bench_text_of_time(p50, stat_percentile(&w->stat, 0.5)),
           bench_text_of_time(p99, stat_percentile(&w->stat, 0.99)), per_gib(w->owner_ns, w->bytes),
           per_gib(w->reader_ns, w->bytes));
}

json_t *pull_options_json(const struct bench *b)
{
    static const char *const homes[] = {"owner", "reader", "other"};

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "transport", "tcp", "lease", b->pulls.cold ? "cold" : "warm",
                     "verify", b->pulls.verify, "home", homes[b->pulls.home], "into",
                     b->pulls.replica ? "pool" : "buffer", "pinned", b->pulls.pin);
}

static json_t *counts_json(const struct pull_run *r)
{
    const struct pull_counts *a = &r->before, *z = &r->after;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "pulls", (json_int_t)(z->pulled - a->pulled), "verified",
                     (json_int_t)(z->verified - a->verified), "asks", (json_int_t)(z->asks - a->asks), "lease_requests",
                     (json_int_t)(z->leases - a->leases), "renewals", (json_int_t)(z->renews - a->renews), "messages",
                     (json_int_t)(z->messages - a->messages));
}

/* At depth 1 the medians of single reads are compared, else what goes through. */
static void compare(struct pull_run *r, struct bench_result *result)
{
    const struct pull_way *pull = &r->way[WAY_PULL], *send = &r->way[WAY_SEND], *file = &r->way[WAY_SENDFILE];
    const struct pull_way *better;
    struct bench_turns turns;

    for (unsigned i = 0; i < WAYS; i++)
        r->way[i].rate = (double)r->way[i].bytes / r->way[i].seconds;
    if (r->b->depth == 1) {
        result->baseline = "send_recv_p50_ns";
        result->figure = stat_percentile(&pull->stat, 0.5);
        result->value = stat_percentile(&send->stat, 0.5);
        return;
    }
    better = file->rate > send->rate ? file : send;
    turns_choose(&turns, pull->byte_ns, better->byte_ns, pull->slices);
    for (unsigned i = 0; i < WAYS; i++)
        r->way[i].rate = 1e9 / turns_mean(&turns, r->way[i].byte_ns);
    result->baseline = better == file ? "sendfile_bytes_per_second" : "send_recv_bytes_per_second";
    result->figure = pull->rate;
    result->value = better->rate;
}

static double phase_mean(const struct pull_run *r, unsigned phase)
{
    return r->recorded ? (double)r->phase_ns[phase] / (double)r->recorded : 0;
}

/* Means, so that they add up: of a pull by the node's own record, and what is left of the caller's time. */
static json_t *phases_json(const struct pull_run *r)
{
    json_t *phases = json_object();

    for (unsigned i = 0; r->recorded && i < BERTH_PHASES; i++)
        json_object_set_new(phases, pull_phase_names[i], json_real(phase_mean(r, i)));
    return phases;
}

static json_t *more_json(const struct pull_run *r, double iperf3)
{
    json_t *more = pull_options_json(r->b), *rows = json_array();

    for (unsigned i = 0; i < WAYS; i++)
        json_array_append_new(rows, pull_row_json(&r->way[i]));
    json_object_set_new(more, "rows", rows);
    json_object_set_new(
        more, "p99_ratio",
        json_real(stat_percentile(&r->way[WAY_PULL].stat, 0.99) / stat_percentile(&r->way[WAY_SEND].stat, 0.99)));
    json_object_set_new(more, "requests", counts_json(r));
    json_object_set_new(more, "phases_mean_ns", phases_json(r));
    json_object_set_new(more, "iperf3_bytes_per_second", iperf3 > 0 ? json_real(iperf3) : json_null());
    return more;
}

static void print_phases(const struct pull_run *r)
{
    char text[24];
    double outside = stat_mean(&r->way[WAY_PULL].stat) - phase_mean(r, BERTH_PHASE_TOTAL);

    if (!r->recorded)
        return;
    printf("  %-10s", "phases");
    for (unsigned i = 0; i < BERTH_PHASE_TOTAL; i++)
        if (r->phase_ns[i])
            printf(" %s %s,", pull_phase_names[i], bench_text_of_time(text, phase_mean(r, i)));
    printf(" caller %s (means)\n", bench_text_of_time(text, outside > 0 ? outside : 0));
}

static void print_more(const struct pull_run *r, double iperf3)
{
    const struct pull_counts *a = &r->before, *z = &r->after;
    char rate[24];

    for (unsigned i = 0; i < WAYS; i++)
        pull_row_print(&r->way[i]);
    print_phases(r);
    printf("  %-10s %s\n", "iperf3", iperf3 > 0 ? bench_text_of_rate(rate, iperf3) : "not installed");
    printf("  %-10s %lld asks, %lld of leases, %lld renewals, %lld messages; %lld of %lld pulls verified\n", "requests",
           (long long)(z->asks - a->asks), (long long)(z->leases - a->leases), (long long)(z->renews - a->renews),
           (long long)(z->messages - a->messages), (long long)(z->verified - a->verified),
           (long long)(z->pulled - a->pulled));
}

static void report(struct pull_run *r)
{
    const struct pull_way *w = &r->way[WAY_PULL];
    double iperf3 = bench_iperf3(r->b->seconds < 2 ? 1 : 2, r->b->size);
    struct bench_result result = {.unit = r->step > 1 ? "batch" : "pull",
                                  .timed = 1,
                                  .ops = w->stat.count,
                                  .bytes = w->bytes,
                                  .seconds = w->seconds,
                                  .latency = &w->stat};

    compare(r, &result);
    result.more = more_json(r, iperf3);
    bench_report(r->b, &result);
    if (!cli.json)
        print_more(r, iperf3);
    cli_flush();
}

/* ---- set-up ---- */

static void choose_objects(struct pull_run *r)
{
    struct bench *b = r->b;
    bool once = keys_once(b);
    uint64_t most = once ? COLD_MAX : WARM_MAX, bytes = once ? PULL_COLD_BYTES : PULL_OBJECT_BYTES;

    if (!b->objects) {
        b->objects = bytes / b->size;
        b->objects = b->objects > most ? most : b->objects < OBJECTS_MIN ? OBJECTS_MIN : b->objects;
    }
    b->objects = (b->objects + r->step - 1) / r->step * r->step;
}

/* Idle leases may keep an eighth of the owner's pool; beyond that it asks them back, and they are not warm. */
static uint64_t owner_room(const struct bench *b)
{
    uint64_t bytes = b->objects * bench_slot_bytes(b->size), more = keys_once(b) ? bytes / 4 : 8 * bytes;

    return (more < PULL_ROOM_MAX ? more : PULL_ROOM_MAX) + PULL_OBJECT_BYTES / 2;
}

/* The baselines' owners take all of their objects at once, and are not refused: the kernel would end a process. */
static int has_room(const struct bench *b)
{
    char need[AMOUNT_SIZE], there[AMOUNT_SIZE], where[256] = "", sentence[256];
    uint64_t bytes, left = UINT64_MAX, group;

    space_memory("", &left);
    if (space_cgroup("", &group, where, sizeof(where)) && group < left)
        left = group;
    if (__builtin_mul_overflow(3 * (b->objects + b->depth), b->size, &bytes)) /* the node's pool too */
        bytes = UINT64_MAX;
    if (bytes <= left)
        return 0;
    snprintf(sentence, sizeof(sentence), "needs %s of memory, %s are there: fewer --objects, or a smaller --size",
             amount(bytes, need), amount(left, there));
    return cli_fail(-ENOSPC, b->which->name, sentence);
}

static int open_raw(struct pull_run *r)
{
    static const char *const names[] = {"send/recv", "sendfile"};
    int error = 0;

    r->way[WAY_PULL].name = "pull";
    for (unsigned i = 0; i < 2 && !error; i++) {
        r->way[WAY_SEND + i].name = names[i];
        error = bench_raw_open(&r->raw[i], r->b->size, r->b->objects, r->b->depth, i == 1);
        r->way[WAY_SEND + i].owner = r->raw[i].pid;
    }
    return error ? cli_fail(error, r->b->which->name, "the baselines' processes can't be started") : 0;
}

static int make_buffers(struct pull_run *r)
{
    struct bench *b = r->b;

    r->keys = bench_keys(b);
    r->since = calloc(b->depth, sizeof(*r->since));
    r->to = bench_buffer(b->size * b->depth);
    r->batch = calloc(r->step, sizeof(*r->batch));
    r->record = calloc(b->depth, sizeof(*r->record));
    return r->keys && r->since && r->to && r->batch && r->record ? 0 : bench_no_memory();
}

static int run_on_nodes(struct pull_run *r)
{
    int code = bench_fill(r->b);

    r->way[WAY_PULL].owner = r->b->node.pid;
    pull_nodes_use(&r->nodes.reader_cpus);
    if (!code)
        code = make_buffers(r);
    if (!code)
        code = pull_nodes_reader(&r->nodes);
    if (!code)
        code = run_slices(r);
    if (!code)
        report(r);
    return code;
}

static int run_case(struct bench *b, int (*run)(void *, uint64_t, struct bench_stat *), uint64_t step)
{
    struct pull_run *r = calloc(1, sizeof(*r));
    int code;

    if (!r)
        return bench_no_memory();
    r->b = b;
    r->run = run;
    r->step = step;
    choose_objects(r);
    code = pull_nodes_cpus(&r->nodes, b);
    if (!code) {
        pull_nodes_use(&r->nodes.owner_cpus); /* both owners' */
        code = has_room(b);
        if (!code)
            code = open_raw(r);
        if (!code)
            code = pull_nodes_open(&r->nodes, b->objects, owner_room(b));
        if (!code)
            code = pull_nodes_close(&r->nodes, run_on_nodes(r));
    }
    for (unsigned i = 0; i < 2; i++)
        bench_raw_close(&r->raw[i]);
    if (r->to)
        munmap(r->to, b->size * b->depth);
    free(r->keys);
    free(r->since);
    free(r->record);
    free(r->batch);
    free(r);
    return code;
}

int bench_pull(struct bench *b)
{
    return run_case(b, run_pulls, 1);
}

int bench_pull_batch(struct bench *b)
{
    b->pulls.replica = true;
    return run_case(b, run_batches, b->depth);
}
