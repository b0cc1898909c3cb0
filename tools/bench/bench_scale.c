/* bench_scale.c: the rows: get and put beside nodes with fewer objects, slices taking turns; metadata; restart. */
#include "tools/bench/bench_scale.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/cli.h"

#define GETS_AGAINST 1000000u /* objects of the node that gets are held against */
#define PUTS_AGAINST 10000u
#define OBJECTS_MAX (UINT32_MAX / 2u) /* of a node: TOUCH_CHILD is the bit above a slot's number */
#define SLICE_NS INT64_C(5000000)
#define SLICE_PUTS 4096u
#define RESTARTS 3u
#define RESTARTS_NS INT64_C(20000000000) /* after so much time there is no further one */

struct scale {
    struct bench *b;
    struct scale_node all, gets, puts; /* with all objects, and what it is held against */
    uint64_t slice_puts;
    double *ours_ns, *base_ns; /* an operation, of each slice */
    unsigned slices;
};

/* of: the member that is held against it. */
static json_t *goal(const char *of, double value)
{
    return json_pack("{s:f, s:s}", "goal", value, "goal_of", of);
}

static void set_integer(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

/* ---- get ---- */

static int run_gets(struct scale *s)
{
    struct reader *all = &s->all.reader, *base = &s->gets.reader;
    int64_t end = bench_now() + (int64_t)s->b->seconds * 1000000000;
    struct bench_turns turns;
    json_t *more;

    reader_slice(all, reader_get, BENCH_BATCH, BENCH_BATCH, 10 * SLICE_NS);
    reader_slice(base, reader_get, BENCH_BATCH, BENCH_BATCH, 10 * SLICE_NS); /* warm */
    all->ops = 0;
    all->ns = 0;
    all->stat = (struct bench_stat){0};
    for (s->slices = 0; s->slices < BENCH_SLICES && bench_now() < end && !all->error && !base->error; s->slices++) {
        s->base_ns[s->slices] = reader_slice(base, reader_get, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
        s->ours_ns[s->slices] = reader_slice(all, reader_get, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
    }
    if (all->error || base->error)
        return bench_fail(all->error ? all->error : base->error);
    turns_choose(&turns, s->ours_ns, s->base_ns, s->slices);
    more = goal("ratio", 1.6);
    set_integer(more, "baseline_objects", s->gets.b.objects);
    bench_report(&s->all.b, &(struct bench_result){.row = "get",
                                                   .unit = "get",
                                                   .timed = BENCH_BATCH,
                                                   .ops = all->ops,
                                                   .seconds = (double)all->ns / 1e9,
                                                   .latency = &all->stat,
                                                   .baseline = "fewer_objects_get_ns",
                                                   .figure = turns_mean(&turns, s->ours_ns),
                                                   .value = turns_mean(&turns, s->base_ns),
                                                   .more = more});
    return 0;
}

/* ---- put ---- */

/* ns a key; they are gone again afterwards, which is not timed. */
static int put_slice(struct scale_node *n, uint64_t count, double *key_ns)
{
    uint64_t first = n->number;
    int64_t begin = bench_now();
    int error = scale_put(n, count);

    *key_ns = (double)(bench_now() - begin) / (double)count;
    return error ? error : bench_remove(&n->b, first, count);
}

static int put_slices(struct scale *s, double *seconds)
{
    int64_t end = bench_now() + (int64_t)s->b->seconds * 1000000000;
    int error = put_slice(&s->all, s->slice_puts, s->ours_ns);

    error = error ? error : put_slice(&s->puts, s->slice_puts, s->base_ns); /* warm */
    for (s->slices = 0; s->slices < BENCH_SLICES && bench_now() < end && !error; s->slices++) {
        error = put_slice(&s->puts, s->slice_puts, &s->base_ns[s->slices]);
        error = error ? error : put_slice(&s->all, s->slice_puts, &s->ours_ns[s->slices]);
        *seconds += (double)s->slice_puts * s->ours_ns[s->slices] / 1e9;
    }
    return error;
}

static int run_puts(struct scale *s)
{
    double seconds = 0;
    int error = put_slices(s, &seconds);
    struct bench_turns turns;
    json_t *more;

    if (error)
        return bench_fail(error);
    turns_choose(&turns, s->ours_ns, s->base_ns, s->slices);
    more = goal("ratio", 0.5);
    set_integer(more, "baseline_objects", s->puts.b.objects);
    json_object_set_new(more, "fill_per_second", json_real((double)s->all.b.objects / s->all.fill_seconds));
    bench_report(&s->all.b, &(struct bench_result){.row = "put",
                                                   .unit = "put",
                                                   .timed = (unsigned)s->slice_puts,
                                                   .ops = s->slices * s->slice_puts,
                                                   .seconds = seconds,
                                                   .baseline = "fewer_objects_puts_per_second",
                                                   .figure = 1e9 / turns_mean(&turns, s->ours_ns),
                                                   .value = 1e9 / turns_mean(&turns, s->base_ns),
                                                   .more = more});
    if (!cli.json)
        printf("  %-10s %.0f a second of the first %llu\n", "fill", (double)s->all.b.objects / s->all.fill_seconds,
               (unsigned long long)s->all.b.objects);
    return 0;
}

/* ---- metadata ---- */

static double grown(uint64_t full, uint64_t empty)
{
    return full > empty ? (double)(full - empty) : 0;
}

/* The lookup has its size from the start; the index file too, of which is taken what is used. */
static int report_metadata(struct scale *s)
{
    const struct scale_memory *full = &s->all.full, *empty = &s->all.empty;
    double n = (double)s->all.b.objects, index = grown(full->index, empty->index) / n;
    double counted = index + (double)(full->headers + full->state + full->lookup) / n;
    double slots = grown(full->slots_file, empty->slots_file) / n, lookup = (double)full->lookup_file / n;
    double tails = grown(full->tails_file, empty->tails_file) / n;
    double process = grown(full->anonymous, empty->anonymous) / n, measured = index + slots + lookup + tails + process;
    json_t *more = goal("metadata_bytes_per_object", s->b->key_size <= 32 ? 360 : 432);

    json_object_set_new(more, "metadata_bytes_per_object", json_real(counted));
    json_object_set_new(more, "counted",
                        json_pack("{s:f, s:f, s:f, s:f}", "index", index, "headers", (double)full->headers / n, "state",
                                  (double)full->state / n, "lookup", (double)full->lookup / n));
    json_object_set_new(more, "measured_bytes_per_object", json_real(measured));
    json_object_set_new(more, "measured",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "index", index, "slots", slots, "tails", tails, "lookup",
                                  lookup, "process", process));
    set_integer(more, "pool_allocated_bytes", full->pool_allocated);
    bench_report(&s->all.b, &(struct bench_result){.row = "metadata",
                                                   .unit = "object",
                                                   .timed = 1,
                                                   .ops = s->all.b.objects,
                                                   .seconds = s->all.fill_seconds,
                                                   .baseline = "measured_an_object_bytes",
                                                   .figure = counted,
                                                   .value = measured,
                                                   .more = more});
    if (!cli.json)
        printf("  %-10s %.1f bytes an object: index %.1f, headers %.1f, state %.1f, lookup %.1f\n", "counted", counted,
               index, (double)full->headers / n, (double)full->state / n, (double)full->lookup / n);
    return 0;
}

/* ---- restart ---- */

static int run_restarts(struct scale *s)
{
    double n = (double)s->all.b.objects, took[RESTARTS], cpu[RESTARTS], reading[RESTARTS];
    int64_t total = 0, ns, cpu_ns;
    unsigned count = 0;
    json_t *more;
    int code = 0;

    while (!code && count < RESTARTS && total < RESTARTS_NS) {
        code = scale_restart(&s->all, &ns, &cpu_ns);
        if (code)
            return code;
        total += ns;
        took[count] = (double)ns / n;
        cpu[count] = (double)cpu_ns / n;
        code = scale_read_files(&s->all, &ns);
        if (code)
            return bench_fail(code);
        reading[count++] = (double)ns / n;
    }
    more = goal("restart_ns_per_object", 1000);
    json_object_set_new(more, "restart_ns_per_object", json_real(median(took, count)));
    json_object_set_new(more, "cpu_ns_per_object", json_real(median(cpu, count)));
    set_integer(more, "restarts", count);
    bench_report(&s->all.b, &(struct bench_result){.row = "restart",
                                                   .unit = "object",
                                                   .timed = (unsigned)s->all.b.objects,
                                                   .ops = count * s->all.b.objects,
                                                   .seconds = (double)total / 1e9,
                                                   .baseline = "reading_the_files_ns",
                                                   .figure = median(took, count),
                                                   .value = median(reading, count),
                                                   .more = more});
    return 0;
}

/* ---- the case ---- */

/* Puts of a slice at the most that a 64th of the pool holds. */
static uint64_t slice_puts(const struct bench *b)
{
    uint64_t pool = b->pool ? b->pool : b->objects * bench_slot_bytes(b->size), most = pool / 64;
    uint64_t n = most / bench_slot_bytes(b->size);

    return n < 64 ? 64 : n > SLICE_PUTS ? SLICE_PUTS : n;
}

/* Beside the objects: two slices of puts, since those that were removed may still be there, drafts and grants. */
static uint64_t room(const struct scale *s)
{
    return 2 * s->slice_puts + 4 * SCALE_GROUP;
}

/* The pool that is named leaves free what size_it leaves, and is a little smaller than it could be. */
static int too_many(const struct scale *s)
{
    uint64_t slots = (OBJECTS_MAX + room(s)) / 256 * 257;
    char why[200];

    snprintf(why, sizeof(why), "a node has %u objects at most, this pool is for more: give --pool %lluGiB or less",
             OBJECTS_MAX, (unsigned long long)(slots * bench_slot_bytes(s->b->size) >> 30));
    return cli_fail(-ENOSPC, s->b->which->name, why);
}

static int size_it(struct scale *s)
{
    struct bench *b = s->b;
    uint64_t slots = b->pool / bench_slot_bytes(b->size), slack;

    if (!b->pool)
        return 0;
    slack = room(s) + slots / 256; /* and what slabs of other sizes and the end of each leave */
    if (!b->objects_given)
        b->objects = slots > slack ? slots - slack : 0;
    if (b->objects > OBJECTS_MAX)
        return too_many(s);
    if (b->objects == 0 || b->objects + slack > slots)
        return cli_fail(-ENOSPC, b->which->name, "the pool has no room for so many objects: make --pool larger");
    return 0;
}

/* Half of the objects at most, so that there are fewer. */
static uint64_t fewer(uint64_t objects, uint64_t wanted)
{
    uint64_t most = objects > wanted ? wanted : objects / 10;

    return most ? most : 1;
}

static int run_rows(struct scale *s)
{
    uint64_t n = s->b->objects;
    int code = scale_open(&s->puts, s->b, fewer(n, PUTS_AGAINST), room(s));

    code = code ? code : scale_fill(&s->puts);
    code = code ? code : scale_open(&s->gets, s->b, fewer(n, GETS_AGAINST), room(s));
    code = code ? code : scale_fill(&s->gets);
    code = code ? code : scale_open(&s->all, s->b, n, room(s));
    code = code ? code : scale_fill(&s->all);
    code = code ? code : report_metadata(s);
    code = code ? code : run_gets(s);
    code = code ? code : run_puts(s);
    return code ? code : run_restarts(s);
}

int bench_scale(struct bench *b)
{
    struct scale *s;
    int code;

    if (b->clients)
        return bench_scale_clients(b);
    s = calloc(1, sizeof(*s));
    if (!s)
        return bench_no_memory();
    s->b = b;
    s->slice_puts = slice_puts(b);
    s->ours_ns = calloc(2 * (size_t)BENCH_SLICES, sizeof(*s->ours_ns));
    s->base_ns = s->ours_ns ? s->ours_ns + BENCH_SLICES : NULL;
    code = s->ours_ns ? size_it(s) : bench_no_memory();
    code = code ? code : run_rows(s);
    code = scale_close(&s->all, code);
    code = scale_close(&s->gets, code);
    code = scale_close(&s->puts, code);
    free(s->ours_ns);
    free(s);
    return code;
}
