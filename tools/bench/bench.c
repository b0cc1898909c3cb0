#include "tools/bench/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli.h"

#define SOURCE_MIN (UINT64_C(64) << 20)

int64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void bench_pause(int64_t ns)
{
    int64_t end = bench_now() + ns;

    while (ns > 0 && bench_now() < end)
        ;
}

/* ---- keys ---- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void bench_key(const struct bench *b, uint64_t i, uint8_t *out)
{
    uint64_t word = mix(b->run) + i * 0x9e3779b97f4a7c15u;

    for (unsigned at = 0; at < b->key_size; at += sizeof(word)) {
        unsigned n = b->key_size - at < sizeof(word) ? b->key_size - at : (unsigned)sizeof(word);

        word = mix(word + 1);
        memcpy(out + at, &word, n);
    }
}

uint8_t *bench_keys(const struct bench *b)
{
    uint8_t *keys = malloc(b->objects * b->key_size);

    for (uint64_t i = 0; keys && i < b->objects; i++)
        bench_key(b, i, keys + i * b->key_size);
    return keys;
}

/* ---- node ---- */

int bench_fail(int error)
{
    return cli_fail_last(error, NULL);
}

int bench_no_memory(void)
{
    return cli_fail(-ENOMEM, NULL, "there is too little memory for the bench: use fewer or smaller objects");
}

static int open_own(struct bench *b, uint64_t slots, uint64_t room_slots)
{
    struct bench_node_config config = {.slots = slots,
                                       .room_slots = room_slots,
                                       .slot_bytes = bench_slot_bytes(b->size),
                                       .pool = b->pool,
                                       .headers = b->headers,
                                       .more = b->settings};
    char why[256] = "";
    int error;

    if (b->evict) {
        config.high_slots = slots;
        config.low_slots = slots - slots / 50;
    }
    error = bench_node_start(&b->node, &config, "berth bench", &b->b, why, sizeof(why));
    return error ? cli_fail(error, b->which->name, why) : 0;
}

int bench_open(struct bench *b, uint64_t slots, uint64_t room_slots)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench", .timeout_ns = cli.timeout_ns};
    int error;

    b->run = (uint64_t)bench_now() ^ (uint64_t)getpid() << 40;
    if (!b->url) {
        error = open_own(b, slots, room_slots);
        if (error)
            return error;
    } else {
        error = berth_open(&b->b, b->url, &opts);
        if (error)
            return cli_fail_last(error, b->url);
    }
    error = berth_queue_open(b->b, BENCH_QUEUE, &b->queue);
    if (error)
        return bench_close(b, bench_fail(error));
    error = b->url ? bench_fit(b) : 0;
    return error ? bench_close(b, error) : 0;
}

/* ---- pipelined operations ---- */

struct flight {
    const struct bench_flow *flow;
    struct berth_op *op;
    bool *ended;
    uint64_t head, submitted, filled; /* count operations: head <= submitted <= filled <= head + depth */
    int error;
};

static void prepare(struct flight *f, uint64_t first, uint64_t n)
{
    for (; f->filled < n && f->filled - f->head < f->flow->depth; f->filled++) {
        unsigned slot = (unsigned)(f->filled % f->flow->depth);

        memset(&f->op[slot], 0, sizeof(f->op[slot]));
        f->ended[slot] = false;
        f->flow->next(f->flow->arg, &f->op[slot], slot, first + f->filled);
    }
}

static int submit(struct bench *b, struct flight *f)
{
    while (f->submitted < f->filled) {
        unsigned slot = (unsigned)(f->submitted % f->flow->depth);
        uint64_t run = f->flow->depth - slot;
        int taken;

        if (run > f->filled - f->submitted)
            run = f->filled - f->submitted;
        taken = berth_submit(b->queue, f->op + slot, run);
        if (taken < 0)
            return taken == BERTH_EBUSY_RING ? 0 : taken;
        f->submitted += (uint64_t)taken;
    }
    return 0;
}

static long reap(struct bench *b, struct flight *f)
{
    struct berth_op *done[BENCH_BATCH];
    long n = berth_reap(b->queue, done, BENCH_BATCH, BERTH_FOREVER);

    for (long i = 0; i < n; i++) {
        unsigned slot = (unsigned)(done[i] - f->op);

        f->ended[slot] = true;
        if (done[i]->result < 0 && !f->error && (!f->flow->bad || f->flow->bad(done[i]->result)))
            f->error = (int)done[i]->result;
        if (f->flow->done)
            f->flow->done(f->flow->arg, done[i], slot);
    }
    while (f->head < f->submitted && f->ended[f->head % f->flow->depth])
        f->head++;
    return n;
}

int bench_flow(struct bench *b, const struct bench_flow *flow, uint64_t first, uint64_t n)
{
    struct flight f = {.flow = flow};

    f.op = calloc(flow->depth, sizeof(*f.op));
    f.ended = calloc(flow->depth, sizeof(*f.ended));
    if (!f.op || !f.ended)
        f.error = -ENOMEM;
    while (!f.error && f.head < n) {
        long reaped;

        prepare(&f, first, n);
        f.error = submit(b, &f);
        reaped = f.error ? 0 : reap(b, &f);
        if (reaped < 0)
            f.error = (int)reaped;
    }
    while (f.head < f.submitted && reap(b, &f) > 0)
        ;
    free(f.op);
    free(f.ended);
    return f.error;
}

/* ---- the objects to begin with ---- */

struct fill {
    struct bench *b;
    const uint8_t *payload;
    uint32_t *order;
    uint8_t *keys; /* one a slot */
    struct cli_progress progress;
    uint64_t ended;
};

static void fill_next(void *arg, struct berth_op *op, unsigned slot, uint64_t number)
{
    struct fill *f = arg;
    uint8_t *key = f->keys + slot * BENCH_KEY_MAX;

    bench_key(f->b, f->order ? f->order[number] : number, key);
    op->key = (struct berth_key){.data = key, .size = f->b->key_size};
    op->opcode = f->payload ? BERTH_OP_PUT : BERTH_OP_REMOVE;
    op->data = (void *)f->payload;
    op->size = f->payload ? f->b->size : 0;
    op->deadline = BERTH_FOREVER;
}

static void fill_done(void *arg, struct berth_op *op, unsigned slot)
{
    struct fill *f = arg;

    (void)op;
    (void)slot;
    if (++f->ended % 4096 == 0)
        cli_progress_at(&f->progress, f->ended);
}

/* Neighbours in the order of reading are no neighbours in the pool. */
static uint32_t *shuffled(uint64_t n)
{
    uint32_t *order = malloc(n * sizeof(*order));

    for (uint64_t i = 0; order && i < n; i++) {
        uint64_t j = mix(i + 0x9e3779b97f4a7c15u) % (i + 1);

        order[i] = order[j];
        order[j] = (uint32_t)i;
    }
    return order;
}

static int flow_objects(struct fill *f, uint64_t first, uint64_t n, bool (*bad)(long))
{
    struct bench_flow flow = {.depth = 256, .next = fill_next, .done = fill_done, .arg = f, .bad = bad};
    int error = -ENOMEM;

    f->keys = malloc(flow.depth * BENCH_KEY_MAX);
    if (f->keys)
        error = bench_flow(f->b, &flow, first, n);
    free(f->keys);
    return error;
}

int bench_fill(struct bench *b)
{
    struct fill f = {.b = b};
    uint8_t *payload = calloc(1, b->size + 1);
    int error = -ENOMEM;

    f.order = shuffled(b->objects);
    f.payload = payload;
    cli_progress_begin(&f.progress, "filling the pool", b->objects, false);
    b->filled = b->objects;
    if (payload && f.order)
        error = flow_objects(&f, 0, b->objects, NULL);
    cli_progress_end(&f.progress);
    free(payload);
    free(f.order);
    return error == -ENOMEM ? bench_no_memory() : error ? cli_fail(error, b->which->name, berth_error_text(error)) : 0;
}

static bool not_absent(long result)
{
    return result != -ENOENT;
}

int bench_remove(struct bench *b, uint64_t first, uint64_t n)
{
    struct fill f = {.b = b};

    return flow_objects(&f, first, n, not_absent);
}

/* ---- end ---- */

int bench_close(struct bench *b, int code)
{
    if (b->url && b->filled)
        bench_remove(b, 0, b->filled);
    berth_queue_close(b->queue);
    b->queue = NULL;
    berth_close(b->b);
    b->b = NULL;
    if (!b->url && bench_node_stop(&b->node) && !code)
        return cli_fail(-EIO, b->which->name, "berthd did not stop cleanly");
    return code;
}

/* ---- what to copy from ---- */

int bench_source_open(struct bench_source *s, uint64_t piece)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), pages = sysconf(_SC_PHYS_PAGES);
    uint64_t most = pages > 0 ? (uint64_t)pages * 4096 / 8 : SOURCE_MIN;

    s->bytes = cache > 0 && 2 * (uint64_t)cache > SOURCE_MIN ? 2 * (uint64_t)cache : SOURCE_MIN;
    if (s->bytes > most && most > SOURCE_MIN)
        s->bytes = most;
    if (s->bytes < 2 * piece)
        s->bytes = 2 * piece;
    s->base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->base == MAP_FAILED)
        return -ENOMEM;
    s->at = 0;
    for (uint64_t at = 0; at + sizeof(at) <= s->bytes; at += sizeof(at))
        memcpy(s->base + at, &at, sizeof(at));
    return 0;
}

const void *bench_source_next(struct bench_source *s, uint64_t piece)
{
    const void *from;

    if (s->at + piece > s->bytes)
        s->at = 0;
    from = s->base + s->at;
    s->at += (piece + 63) / 64 * 64;
    return from;
}

void bench_source_close(struct bench_source *s)
{
    munmap(s->base, s->bytes);
}

/* ---- report ---- */

/* Of the node's own CPU time as of a time: the less the better. */
enum unit { UNIT_NS, UNIT_CPU, UNIT_SIZE, UNIT_BYTES, UNIT_RATE };

/* A baseline's name ends with its unit, "memcpy_bytes_per_second": its words without. */
static enum unit baseline_words(const struct bench_result *r, char name[64])
{
    static const char *const units[] = {"_ns", "_cpu_ns_per_second", "_bytes", "_bytes_per_second", "_per_second"};
    size_t n = strlen(r->baseline), unit = 0, cut;

    while (unit < UNIT_RATE && ((cut = strlen(units[unit])) > n || strcmp(r->baseline + n - cut, units[unit]) != 0))
        unit++;
    cut = strlen(units[unit]);
    snprintf(name, 64, "%.*s", (int)(n > cut ? n - cut : n), r->baseline);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    return (enum unit)unit;
}

static const char *better(const struct bench_result *r)
{
    char name[64];

    return baseline_words(r, name) <= UNIT_SIZE ? "less" : "more";
}

/* Held against a rate, a case's own is the figure: one that other slices gave would not divide to the ratio. */
static double ops_per_second(const struct bench_result *r)
{
    char name[64];
    enum unit unit = baseline_words(r, name);

    if (unit == UNIT_RATE)
        return r->figure;
    if (unit == UNIT_BYTES)
        return r->bytes ? r->figure * (double)r->ops / (double)r->bytes : 0;
    return r->seconds > 0 ? (double)r->ops / r->seconds : 0;
}

static double bytes_per_second(const struct bench_result *r)
{
    return r->ops ? ops_per_second(r) * (double)r->bytes / (double)r->ops : 0;
}

static void report_json(const struct bench *b, const struct bench_result *r)
{
    static const struct bench_stat nothing;
    json_t *o = cli_json();

    json_object_set_new(o, "bench", json_string(b->which->name));
    if (r->row)
        json_object_set_new(o, "row", json_string(r->row));
    if (r->way)
        json_object_set_new(o, "way", json_string(r->way));
    json_object_set_new(o, "size", json_integer((json_int_t)b->size));
    json_object_set_new(o, "depth", json_integer(b->depth));
    json_object_set_new(o, "threads", json_integer(b->threads));
    json_object_set_new(o, "objects", json_integer((json_int_t)b->objects));
    json_object_set_new(o, "key_size", json_integer(b->key_size));
    json_object_set_new(o, "evict", json_boolean(b->evict));
    json_object_set_new(o, "unit", json_string(r->unit));
    json_object_set_new(o, "timed_together", json_integer(r->timed));
    json_object_set_new(o, "ops", json_integer((json_int_t)r->ops));
    json_object_set_new(o, "seconds", json_real(r->seconds));
    json_object_set_new(o, "ops_per_second", json_real(ops_per_second(r)));
    json_object_set_new(o, "bytes_per_second", json_real(bytes_per_second(r)));
    json_object_set_new(o, "latency_ns", stat_json(r->latency ? r->latency : &nothing));
    json_object_set_new(o, "figure", json_real(r->figure)); /* in the baseline's unit */
    json_object_set_new(o, "baseline", json_pack("{s:s, s:f}", "name", r->baseline, "value", r->value));
    json_object_set_new(o, "ratio", json_real(r->figure / r->value));
    json_object_set_new(o, "better", json_string(better(r)));
    json_object_update(o, r->more);
    json_decref(r->more);
    cli_json_print(o);
    cli_flush();
}

const char *bench_text_of_time(char out[24], double ns)
{
    if (ns < 1e3)
        snprintf(out, 24, "%.1f ns", ns);
    else if (ns < 1e6)
        snprintf(out, 24, "%.2f us", ns / 1e3);
    else if (ns < 1e9)
        snprintf(out, 24, "%.2f ms", ns / 1e6);
    else
        snprintf(out, 24, "%.2f s", ns / 1e9);
    return out;
}

const char *bench_text_of_rate(char out[24], double bytes)
{
    if (bytes >= 1e9)
        snprintf(out, 24, "%.2f GB/s", bytes / 1e9);
    else
        snprintf(out, 24, "%.2f MB/s", bytes / 1e6);
    return out;
}

static const char *text_of(char out[24], enum unit unit, double value)
{
    if (unit == UNIT_NS)
        return bench_text_of_time(out, value);
    if (unit == UNIT_BYTES)
        return bench_text_of_rate(out, value);
    if (unit == UNIT_SIZE)
        snprintf(out, 24, "%.1f bytes", value);
    else
        snprintf(out, 24, "%.0f%s a second", value, unit == UNIT_CPU ? " ns" : "");
    return out;
}

static void print_baseline(const struct bench *b, const struct bench_result *r)
{
    char name[64], figure[24], value[24];
    enum unit unit = baseline_words(r, name);

    printf("  %-10s %s: %s\n", "baseline", name, text_of(value, unit, r->value));
    printf("  %-10s %.3f = %s / %s: %s / %s, %s is better\n", "ratio", r->figure / r->value,
           text_of(figure, unit, r->figure), value, b->which->name, name, better(r));
}

static void print_latency(const struct bench_result *r)
{
    char mean[24], p50[24], p99[24], p999[24];

    if (!r->latency || !r->latency->count)
        return;
    printf("  %-10s mean %s, p50 %s, p99 %s, p999 %s%s\n", "latency", bench_text_of_time(mean, stat_mean(r->latency)),
           bench_text_of_time(p50, stat_percentile(r->latency, 0.5)),
           bench_text_of_time(p99, stat_percentile(r->latency, 0.99)),
           bench_text_of_time(p999, stat_percentile(r->latency, 0.999)), r->timed > 1 ? " (means of batches)" : "");
}

static void print_rate(const struct bench_result *r)
{
    char bytes[24];

    if (ops_per_second(r) <= 0)
        return;
    printf("  %-10s %.0f a second", r->unit, ops_per_second(r));
    if (r->bytes)
        printf(", %s", bench_text_of_rate(bytes, bytes_per_second(r)));
    putchar('\n');
}

void bench_report(const struct bench *b, const struct bench_result *r)
{
    char size[24];

    if (cli.json) {
        report_json(b, r);
        return;
    }
    json_decref(r->more);
    printf("%s%s%s%s%s%s: %s, ", b->which->name, r->row ? ", row " : "", r->row ? r->row : "", r->way ? " (" : "",
           r->way ? r->way : "", r->way ? ")" : "", b->which->doc);
    if (b->objects)
        printf("%llu objects of ", (unsigned long long)b->objects);
    printf("%s, depth %u, threads %u\n", cli_bytes(size, b->size), b->depth, b->threads);
    print_rate(r);
    print_latency(r);
    print_baseline(b, r);
    cli_flush();
}
