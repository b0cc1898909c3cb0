#include "tools/bench/bench_get.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "tools/cli.h"

#define SLICE_NS INT64_C(5000000)

struct get_case {
    reader_op *op;
    unsigned n;     /* keys a call */
    unsigned timed; /* operations a call */
    const char *unit;
};

/* ---- one thread: against the read without its pin ---- */

struct pairs {
    double ours_ns[BENCH_SLICES], base_ns[BENCH_SLICES]; /* a key */
    unsigned n;
};

/* Slices of the case and of its baseline take turns, over the same keys one after the other. */
static int run_pairs(struct reader *ours, struct reader *base, const struct get_case *c, struct pairs *p)
{
    int64_t slices = (int64_t)ours->b->seconds * 1000000000 / (2 * SLICE_NS);

    reader_slice(base, reader_unpinned, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
    reader_slice(ours, c->op, c->n, c->timed, SLICE_NS); /* warm */
    ours->ops = 0;
    ours->ns = 0;
    ours->stat = (struct bench_stat){0};
    slices = slices < 3 ? 3 : slices > BENCH_SLICES ? BENCH_SLICES : slices;
    for (p->n = 0; p->n < slices && !ours->error && !base->error; p->n++) {
        base->at = ours->at;
        p->base_ns[p->n] = reader_slice(base, reader_unpinned, BENCH_BATCH, BENCH_BATCH, SLICE_NS);
        ours->at = base->at;
        p->ours_ns[p->n] = reader_slice(ours, c->op, c->n, c->timed, SLICE_NS);
    }
    return ours->error ? ours->error : base->error;
}

static int run_one(struct bench *b, const struct get_case *c, const uint8_t *keys)
{
    struct reader *reader = calloc(2, sizeof(*reader));
    struct pairs *p = calloc(1, sizeof(*p));
    int error = reader && p ? reader_open(&reader[0], b, keys, 0) : -ENOMEM;

    if (error)
        goto out;
    error = reader_open(&reader[1], b, keys, 0);
    if (error)
        goto close_first;
    error = run_pairs(&reader[0], &reader[1], c, p);
    if (!error) {
        /* A call of several keys that is one operation is held against as many unpinned reads. */
        double reads = (double)c->n / c->timed;
        struct bench_turns turns;

        turns_choose(&turns, p->ours_ns, p->base_ns, p->n);
        bench_report(b, &(struct bench_result){.unit = c->unit,
                                               .timed = c->timed,
                                               .ops = (uint64_t)((double)reader[0].ops / reads),
                                               .seconds = (double)reader[0].ns / 1e9,
                                               .latency = &reader[0].stat,
                                               .baseline = c->n == c->timed ? "unpinned_read_ns" : "unpinned_reads_ns",
                                               .figure = turns_mean(&turns, p->ours_ns) * reads,
                                               .value = turns_mean(&turns, p->base_ns) * reads});
    }
    reader_close(&reader[1]);
close_first:
    reader_close(&reader[0]);
out:
    free(reader);
    free(p);
    return error;
}

/* ---- several threads: against one ---- */

struct crew {
    const struct get_case *c;
    pthread_mutex_t gate; /* held until the barriers know how many come */
    pthread_barrier_t begin, end;
    unsigned active; /* of this slice */
    bool over;
};

struct member {
    struct crew *crew;
    struct reader reader;
    double key_ns;
    unsigned index;
    pthread_t thread;
};

static void *member_run(void *arg)
{
    struct member *m = arg;
    struct crew *crew = m->crew;

    pthread_mutex_lock(&crew->gate);
    pthread_mutex_unlock(&crew->gate);
    for (;;) {
        pthread_barrier_wait(&crew->begin);
        if (crew->over)
            return NULL;
        if (m->index < crew->active)
            m->key_ns = reader_slice(&m->reader, crew->c->op, crew->c->n, crew->c->timed, SLICE_NS);
        pthread_barrier_wait(&crew->end);
    }
}

/* ns a key of a slice with so many threads: of all together. */
static double crew_slice(struct crew *crew, struct member *members, unsigned active)
{
    double rate = 0;

    crew->active = active;
    pthread_barrier_wait(&crew->begin);
    pthread_barrier_wait(&crew->end);
    for (unsigned i = 0; i < active; i++)
        if (members[i].key_ns > 0)
            rate += 1 / members[i].key_ns;
    return 1 / rate;
}

static int first_error(const struct member *members, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (members[i].reader.error)
            return members[i].reader.error;
    return 0;
}

static int crew_measure(struct bench *b, struct crew *crew, struct member *members, struct bench_stat *all)
{
    int64_t slices = (int64_t)b->seconds * 1000000000 / (2 * SLICE_NS);
    double *one, *many, seconds = 0, ops = 0, reads = (double)crew->c->n / crew->c->timed;
    struct bench_turns turns;
    unsigned n;

    slices = slices < 3 ? 3 : slices > BENCH_SLICES ? BENCH_SLICES : slices;
    one = calloc(2 * (size_t)slices, sizeof(*one));
    if (!one)
        return -ENOMEM;
    many = one + slices;
    crew_slice(crew, members, b->threads);
    for (n = 0; n < slices && !first_error(members, b->threads); n++) {
        one[n] = crew_slice(crew, members, 1);
        many[n] = crew_slice(crew, members, b->threads);
        seconds += (double)SLICE_NS / 1e9;
        ops += (double)SLICE_NS / many[n];
    }
    for (unsigned i = 0; i < b->threads; i++)
        stat_merge(all, &members[i].reader.stat);
    if (!first_error(members, b->threads)) {
        turns_choose(&turns, many, one, n);
        bench_report(b, &(struct bench_result){.unit = crew->c->unit,
                                               .timed = crew->c->timed,
                                               .ops = (uint64_t)(ops / reads),
                                               .seconds = seconds,
                                               .latency = all,
                                               .baseline = reads > 1 ? "one_thread_calls_per_second"
                                                                     : "one_thread_keys_per_second",
                                               .figure = 1e9 / (turns_mean(&turns, many) * reads),
                                               .value = 1e9 / (turns_mean(&turns, one) * reads)});
    }
    free(one);
    return first_error(members, b->threads);
}

static unsigned crew_start(struct bench *b, struct crew *crew, struct member *members, const uint8_t *keys)
{
    unsigned n;

    for (n = 0; n < b->threads; n++) {
        members[n].crew = crew;
        members[n].index = n;
        if (reader_open(&members[n].reader, b, keys, n))
            break;
        if (pthread_create(&members[n].thread, NULL, member_run, &members[n])) {
            reader_close(&members[n].reader);
            break;
        }
    }
    return n;
}

static int run_crew(struct bench *b, const struct get_case *c, const uint8_t *keys)
{
    struct member *members = calloc(b->threads, sizeof(*members));
    struct bench_stat *all = calloc(1, sizeof(*all));
    struct crew crew = {.c = c, .gate = PTHREAD_MUTEX_INITIALIZER};
    unsigned started = 0;
    int error = -ENOMEM;

    pthread_mutex_lock(&crew.gate);
    if (members && all)
        started = crew_start(b, &crew, members, keys);
    pthread_barrier_init(&crew.begin, NULL, started + 1);
    pthread_barrier_init(&crew.end, NULL, started + 1);
    pthread_mutex_unlock(&crew.gate);
    if (started == b->threads)
        error = crew_measure(b, &crew, members, all);
    crew.over = true;
    pthread_barrier_wait(&crew.begin);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        reader_close(&members[i].reader);
    }
    pthread_barrier_destroy(&crew.begin);
    pthread_barrier_destroy(&crew.end);
    free(all);
    free(members);
    return error;
}

/* ---- the cases ---- */

static int run_readers(struct bench *b, const struct get_case *c)
{
    uint8_t *keys;
    int code = bench_open(b, b->objects, 0), error = -ENOMEM;

    if (code)
        return code;
    code = bench_fill(b);
    if (code)
        return bench_close(b, code);
    keys = bench_keys(b);
    if (keys)
        error = b->threads > 1 ? run_crew(b, c, keys) : run_one(b, c, keys);
    free(keys);
    if (error)
        code = error == -ENOMEM ? bench_no_memory() : bench_fail(error);
    return bench_close(b, code);
}

int bench_local_get(struct bench *b)
{
    return run_readers(b, &(struct get_case){reader_get, BENCH_BATCH, BENCH_BATCH, "get"});
}

int bench_local_get_batch(struct bench *b)
{
    return run_readers(b, &(struct get_case){reader_get_many, b->depth, b->depth, "key"});
}

int bench_exists(struct bench *b)
{
    return run_readers(b, &(struct get_case){reader_exists, b->depth, b->depth, "key"});
}

int bench_prefix(struct bench *b)
{
    return run_readers(b, &(struct get_case){reader_prefix, b->depth, 1, "call"});
}
