#include "tools/replay/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cli.h"
#include "tools/replay/client_internal.h"
#include "tools/replay/content.h"

#define SETTLE_SECONDS 10
#define SETTLE_LOOK_NS INT64_C(100000)
#define ROOM_SECONDS INT64_C(60) /* how long a put waits for room that others hold */
#define REAP 64u
#define CHUNK_BYTES (64u << 20) /* read from peers at once, into a buffer of so much .. */
#define CHUNK_BLOCKS 256u       /* .. at most, and so many blocks */

const char *const replay_phase_names[REPLAY_PHASES] = {"pin",  "pull", "verify",  "create",
                                                       "copy", "seal", "release", "settle"};

void client_lap(struct replay_client *r, enum replay_phase phase)
{
    int64_t now = cli_now();

    r->c->phase_ns[phase] += (uint64_t)(now - r->since);
    r->since = now;
}

int client_failed(struct replay_counts *c, int error, const char *what)
{
    struct berth_error_info e;

    if (berth_error(NULL, &e) != error)
        snprintf(e.sentence, sizeof(e.sentence), "%s", berth_error_text(error));
    snprintf(c->sentence, sizeof(c->sentence), "%s: %.200s", what, e.sentence);
    c->error = error;
    return error;
}

/* ---- one request ---- */

void client_verify(struct replay_client *r, const uint64_t *blocks, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const struct berth_view *v = &r->view[i];
        uint64_t bad = r->job->block_size;

        if (v->size == r->job->block_size)
            bad = content_bad(v->data, v->size, blocks[i]);
        if (!bad && berth_checksum(v->data, v->size) != v->checksum)
            bad = v->size;
        r->c->verified_bytes += v->size;
        r->c->bad_bytes += bad;
    }
}

static void prepare_create(struct replay_client *r, uint32_t i)
{
    r->opts[i] = (struct berth_put_opts){.size = sizeof(*r->opts), .parent = i ? &r->key[i - 1] : NULL};
    memset(&r->op[i], 0, sizeof(r->op[i]));
    r->op[i].opcode = BERTH_OP_CREATE;
    r->op[i].deadline = berth_deadline(ROOM_SECONDS * INT64_C(1000000000));
    r->op[i].key = r->key[i];
    r->op[i].size = r->job->block_size;
    r->op[i].put = &r->opts[i];
    r->op[i].draft = &r->draft[i];
}

static int reap(struct replay_client *r, uint32_t *in_flight)
{
    struct berth_op *done[REAP];
    long n = berth_reap(r->queue, done, REAP, BERTH_FOREVER);
    int error = 0;

    if (n <= 0)
        return n ? (int)n : -EIO;
    *in_flight -= (uint32_t)n;
    for (long i = 0; i < n; i++)
        if (done[i]->result < 0)
            error = (int)done[i]->result;
    return error;
}

/* Drafts of blocks [from, n), all under way at once. One whose key is there by now gets none: its op says
   BERTH_KEPT. */
static int create(struct replay_client *r, uint32_t from, uint32_t n)
{
    uint32_t submitted = from, in_flight = 0;
    int error = 0;

    for (uint32_t i = from; i < n; i++)
        prepare_create(r, i);
    while ((submitted < n && !error) || in_flight) {
        int taken = 0, reaped;

        if (submitted < n && !error)
            taken = berth_submit(r->queue, r->op + submitted, n - submitted);
        if (taken < 0 && taken != BERTH_EBUSY_RING)
            error = taken;
        if (taken > 0) {
            submitted += (uint32_t)taken;
            in_flight += (uint32_t)taken;
        }
        if (!in_flight)
            continue;
        reaped = reap(r, &in_flight);
        if (reaped == -EIO)
            return reaped;
        error = error ? error : reaped;
    }
    return error;
}

static bool has_draft(const struct replay_client *r, uint32_t i)
{
    return r->op[i].result == 0;
}

static void copy(struct replay_client *r, const uint64_t *blocks, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        if (!has_draft(r, i)) {
            r->c->kept++;
            continue;
        }
        content_fill(r->draft[i].data, r->job->block_size, blocks[i]);
        r->draft[i].checksum = berth_checksum(r->draft[i].data, r->job->block_size);
        r->draft[i].flags = BERTH_HAS_CHECKSUM;
        r->c->written_bytes += r->job->block_size;
    }
}

/* One group, unless kept blocks cut it: a draft must not move before it is sealed. */
static int seal(struct replay_client *r, uint32_t from, uint32_t n)
{
    for (uint32_t i = from, end; i < n; i = end) {
        int kept;

        end = i + 1;
        if (!has_draft(r, i))
            continue;
        while (end < n && has_draft(r, end))
            end++;
        kept = berth_seal(r->b, r->draft + i, end - i);
        if (kept < 0)
            return kept;
        r->c->kept += (uint64_t)kept;
    }
    return 0;
}

static int put_group(struct replay_client *r, const uint64_t *blocks, uint32_t from, uint32_t n)
{
    int error = create(r, from, n);

    client_lap(r, REPLAY_CREATE);
    if (error)
        return client_failed(r->c, error, "create");
    copy(r, blocks, from, n);
    client_lap(r, REPLAY_COPY);
    error = seal(r, from, n);
    client_lap(r, REPLAY_SEAL);
    return error ? client_failed(r->c, error, "seal") : 0;
}

static int put_rest(struct replay_client *r, const uint64_t *blocks, uint32_t from, uint32_t n)
{
    int error = 0;

    for (uint32_t end; from < n && !error; from = end) {
        end = n - from < BERTH_GROUP_MAX ? n : from + BERTH_GROUP_MAX;
        error = put_group(r, blocks, from, end);
    }
    return error;
}

/* The leading run that is here: how many, pinned and proven. */
static long run_here(struct replay_client *r, const uint64_t *blocks, uint32_t n)
{
    long hits = n ? berth_prefix(r->b, r->key, n, r->view, 0, BERTH_FOREVER) : 0;

    client_lap(r, REPLAY_PIN);
    if (hits < 0)
        return client_failed(r->c, (int)hits, "prefix");
    client_verify(r, blocks, 0, (uint32_t)hits);
    client_lap(r, REPLAY_VERIFY);
    return hits;
}

/* All at the end of a request: a process that is killed in the middle has counted nothing of it. */
static void count(struct replay_client *r, const struct trace_request *q, uint64_t run, uint64_t here)
{
    r->c->references += q->n_blocks;
    r->c->hits += here;
    r->c->remote_hits += run - here;
    r->c->misses += q->n_blocks - run;
    r->c->requests++;
}

static int request(struct replay_client *r, const struct trace_request *q)
{
    const uint64_t *blocks = r->job->trace->blocks + q->first;
    int64_t begin = cli_now();
    uint64_t here = 0;
    long run;
    int error = 0;

    r->since = begin;
    for (uint32_t i = 0; i < q->n_blocks; i++) {
        content_key(blocks[i], r->job->block_size, r->bytes[i]);
        r->key[i] = (struct berth_key){.data = r->bytes[i], .size = CONTENT_KEY};
    }
    run = r->job->deadline_ns ? client_run_over_peers(r, blocks, q->n_blocks) : run_here(r, blocks, q->n_blocks);
    if (run < 0)
        return (int)run;
    if (run < q->n_blocks)
        error = put_rest(r, blocks, (uint32_t)run, q->n_blocks);
    for (long i = 0; i < run; i++)
        here += r->view[i].data != NULL;
    berth_release(r->b, r->view, (size_t)run);
    client_lap(r, REPLAY_RELEASE);
    count(r, q, (uint64_t)run, here);
    stat_note(&r->c->request, (uint64_t)(cli_now() - begin) * 1000, 1);
    return error;
}

/* ---- all requests ---- */

/* 1: the node has at most as many blocks as it is to have; 0: it still evicts. */
static int settled(struct replay_client *r)
{
    char *text = NULL;
    json_t *status;
    int error = berth_query(r->b, BERTH_STATUS, NULL, &text), is;

    if (error)
        return error;
    status = json_loads(text, 0, NULL);
    is = cli_json_int(status, "pool/sealed_bytes") <= cli_json_int(status, "pool/high_bytes");
    json_decref(status);
    free(text);
    return is;
}

/* The node evicts while the next request is under way already: of few blocks those few would be many. */
static int settle(struct replay_client *r)
{
    int64_t end = cli_now() + SETTLE_SECONDS * INT64_C(1000000000);
    struct timespec pause = {.tv_nsec = SETTLE_LOOK_NS};
    int is;

    r->since = cli_now();
    while ((is = settled(r)) == 0 && cli_now() < end)
        nanosleep(&pause, NULL);
    client_lap(r, REPLAY_SETTLE);
    if (is > 0)
        return 0;
    return client_failed(r->c, is < 0 ? is : -ETIMEDOUT, "wait for the node to evict");
}

int64_t replay_due(const struct replay_job *job, uint64_t index)
{
    const struct trace_request *all = job->trace->requests;
    double since_first = (double)all[index].timestamp_ms - (double)all[0].timestamp_ms;

    return job->shared->begin + (int64_t)(since_first * 1e6 / job->speed);
}

static void wait_for_its_time(const struct replay_job *job, uint64_t index)
{
    int64_t at = replay_due(job, index);
    struct timespec t = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

int replay_client_request(struct replay_client *r, uint64_t index)
{
    uint64_t written = r->c->written_bytes;
    int error = request(r, &r->job->trace->requests[index]);

    if (!error && r->job->settle && r->c->written_bytes > written)
        error = settle(r);
    return error;
}

int replay_client_run(struct replay_client *r)
{
    const struct replay_job *job = r->job;
    int error = 0;

    while (!error && !atomic_load(&job->shared->stop)) {
        uint64_t i = atomic_fetch_add(&job->shared->next, 1);

        if (i >= job->trace->n_requests)
            break;
        if (job->speed > 0)
            wait_for_its_time(job, i);
        error = replay_client_request(r, i);
        if (job->progress)
            job->progress(job->arg, i + 1);
    }
    if (error)
        atomic_store(&job->shared->stop, 1);
    return error;
}

static int allocate(struct replay_client *r, uint32_t n)
{
    n = n ? n : 1;
    r->bytes = calloc(n, sizeof(*r->bytes));
    r->key = calloc(n, sizeof(*r->key));
    r->view = calloc(n, sizeof(*r->view));
    r->draft = calloc(n, sizeof(*r->draft));
    r->op = calloc(n, sizeof(*r->op));
    r->opts = calloc(n, sizeof(*r->opts));
    r->present = calloc(n, sizeof(*r->present));
    if (r->job->deadline_ns)
        r->buffer = malloc(r->chunk * r->job->block_size);
    return r->bytes && r->key && r->view && r->draft && r->op && r->opts && r->present &&
                   (r->buffer || !r->job->deadline_ns)
               ? 0
               : -ENOMEM;
}

/* As many as fit into CHUNK_BYTES, one at least. */
static uint32_t chunk_blocks(const struct replay_job *job)
{
    uint64_t n = CHUNK_BYTES / job->block_size;

    return n == 0 ? 1 : n < CHUNK_BLOCKS ? (uint32_t)n : CHUNK_BLOCKS;
}

int replay_client_open(struct replay_client **out, const struct replay_job *job, const char *url,
                       struct replay_counts *c)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth replay", .timeout_ns = job->timeout_ns};
    uint32_t depth = job->trace->longest < BERTH_GROUP_MAX ? job->trace->longest : BERTH_GROUP_MAX;
    struct replay_client *r = calloc(1, sizeof(*r));
    int error;

    if (!r)
        return client_failed(c, -ENOMEM, "open");
    r->job = job;
    r->c = c;
    r->chunk = chunk_blocks(job);
    error = allocate(r, job->trace->longest);
    if (error)
        client_failed(c, error, "open");
    if (!error && (error = berth_open(&r->b, url, &opts)))
        client_failed(c, error, "open");
    if (!error && (error = berth_queue_open(r->b, depth ? depth : 1, &r->queue)))
        client_failed(c, error, "open the queue");
    if (error)
        replay_client_close(r);
    else
        *out = r;
    return error;
}

void replay_client_close(struct replay_client *r)
{
    berth_queue_close(r->queue);
    berth_close(r->b);
    free(r->bytes);
    free(r->key);
    free(r->view);
    free(r->draft);
    free(r->op);
    free(r->opts);
    free(r->present);
    free(r->buffer);
    free(r);
}

struct berth *replay_client_handle(struct replay_client *r)
{
    return r->b;
}

static void merge_kind(struct replay_counts *into, int code, uint64_t n)
{
    unsigned i = 0;

    while (i + 1 < REPLAY_KINDS && into->kind[i].code && into->kind[i].code != code)
        i++;
    into->kind[i].code = code;
    into->kind[i].n += n;
}

void client_note_kind(struct replay_counts *c, int code)
{
    merge_kind(c, code, 1);
}

void replay_merge(struct replay_counts *into, const struct replay_counts *from)
{
    into->requests += from->requests;
    into->references += from->references;
    into->hits += from->hits;
    into->misses += from->misses;
    into->remote_hits += from->remote_hits;
    into->wire_bytes += from->wire_bytes;
    into->surplus_bytes += from->surplus_bytes;
    into->overdue += from->overdue;
    into->asks += from->asks;
    into->leases += from->leases;
    into->evicted += from->evicted;
    into->kept += from->kept;
    into->verified_bytes += from->verified_bytes;
    into->bad_bytes += from->bad_bytes;
    into->written_bytes += from->written_bytes;
    for (unsigned i = 0; i < REPLAY_KINDS && from->kind[i].code; i++)
        merge_kind(into, from->kind[i].code, from->kind[i].n);
    for (unsigned i = 0; i < REPLAY_PHASES; i++)
        into->phase_ns[i] += from->phase_ns[i];
    stat_merge(&into->request, &from->request);
}
