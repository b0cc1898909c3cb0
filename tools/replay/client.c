#include "tools/replay/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cli.h"
#include "tools/replay/content.h"

#define SETTLE_SECONDS 10
#define SETTLE_LOOK_NS INT64_C(100000)
#define ROOM_SECONDS INT64_C(60) /* how long a put waits for room that others hold */
#define REAP 64u

struct replay_client {
    const struct replay_job *job;
    struct replay_counts *c;
    struct berth *b;
    struct berth_queue *queue;
    uint8_t (*bytes)[CONTENT_KEY]; /* each of as many as the longest request has blocks */
    struct berth_key *key;
    struct berth_view *view;
    struct berth_draft *draft;
    struct berth_op *op;
    struct berth_put_opts *opts;
    int64_t since;
};

const char *const replay_phase_names[REPLAY_PHASES] = {"pin", "verify", "create", "copy", "seal", "release", "settle"};

/* The time since the last lap belongs to this phase. */
static void lap(struct replay_client *r, enum replay_phase phase)
{
    int64_t now = cli_now();

    r->c->phase_ns[phase] += (uint64_t)(now - r->since);
    r->since = now;
}

static int failed(struct replay_counts *c, int error, const char *what)
{
    struct berth_error_info e;

    if (berth_error(NULL, &e) != error)
        snprintf(e.sentence, sizeof(e.sentence), "%s", berth_error_text(error));
    snprintf(c->sentence, sizeof(c->sentence), "%s: %.200s", what, e.sentence);
    c->error = error;
    return error;
}

/* ---- one request ---- */

static void verify(struct replay_client *r, const uint64_t *blocks, uint32_t hits)
{
    for (uint32_t i = 0; i < hits; i++) {
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

    lap(r, REPLAY_CREATE);
    if (error)
        return failed(r->c, error, "create");
    copy(r, blocks, from, n);
    lap(r, REPLAY_COPY);
    error = seal(r, from, n);
    lap(r, REPLAY_SEAL);
    return error ? failed(r->c, error, "seal") : 0;
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

static int request(struct replay_client *r, const struct trace_request *q)
{
    const uint64_t *blocks = r->job->trace->blocks + q->first;
    int64_t begin = cli_now();
    long hits;
    int error = 0;

    r->since = begin;
    for (uint32_t i = 0; i < q->n_blocks; i++) {
        content_key(blocks[i], r->job->block_size, r->bytes[i]);
        r->key[i] = (struct berth_key){.data = r->bytes[i], .size = CONTENT_KEY};
    }
    hits = q->n_blocks ? berth_prefix(r->b, r->key, q->n_blocks, r->view, 0, BERTH_FOREVER) : 0;
    lap(r, REPLAY_PIN);
    if (hits < 0)
        return failed(r->c, (int)hits, "prefix");
    verify(r, blocks, (uint32_t)hits);
    lap(r, REPLAY_VERIFY);
    if (hits < q->n_blocks)
        error = put_rest(r, blocks, (uint32_t)hits, q->n_blocks);
    berth_release(r->b, r->view, (size_t)hits);
    lap(r, REPLAY_RELEASE);
    r->c->requests++;
    r->c->references += q->n_blocks;
    r->c->hits += (uint64_t)hits;
    r->c->misses += q->n_blocks - (uint64_t)hits;
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
    lap(r, REPLAY_SETTLE);
    if (is > 0)
        return 0;
    return failed(r->c, is < 0 ? is : -ETIMEDOUT, "wait for the node to evict");
}

static void wait_for_its_time(const struct replay_job *job, const struct trace_request *q)
{
    double since_first = (double)q->timestamp_ms - (double)job->trace->requests[0].timestamp_ms;
    int64_t at = job->shared->begin + (int64_t)(since_first * 1e6 / job->speed);
    struct timespec t = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

int replay_client_run(struct replay_client *r)
{
    const struct replay_job *job = r->job;
    uint64_t written;
    int error = 0;

    while (!error && !atomic_load(&job->shared->stop)) {
        uint64_t i = atomic_fetch_add(&job->shared->next, 1);

        if (i >= job->trace->n_requests)
            break;
        if (job->speed > 0)
            wait_for_its_time(job, &job->trace->requests[i]);
        written = r->c->written_bytes;
        error = request(r, &job->trace->requests[i]);
        if (!error && job->settle && r->c->written_bytes > written)
            error = settle(r);
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
    return r->bytes && r->key && r->view && r->draft && r->op && r->opts ? 0 : -ENOMEM;
}

int replay_client_open(struct replay_client **out, const struct replay_job *job, struct replay_counts *c)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth replay", .timeout_ns = job->timeout_ns};
    uint32_t depth = job->trace->longest < BERTH_GROUP_MAX ? job->trace->longest : BERTH_GROUP_MAX;
    struct replay_client *r = calloc(1, sizeof(*r));
    int error;

    if (!r)
        return failed(c, -ENOMEM, "open");
    r->job = job;
    r->c = c;
    error = allocate(r, job->trace->longest);
    if (error)
        failed(c, error, "open");
    if (!error && (error = berth_open(&r->b, job->shared->url, &opts)))
        failed(c, error, "open");
    if (!error && (error = berth_queue_open(r->b, depth ? depth : 1, &r->queue)))
        failed(c, error, "open the queue");
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
    free(r);
}

struct berth *replay_client_handle(struct replay_client *r)
{
    return r->b;
}

void replay_merge(struct replay_counts *into, const struct replay_counts *from)
{
    into->requests += from->requests;
    into->references += from->references;
    into->hits += from->hits;
    into->misses += from->misses;
    into->kept += from->kept;
    into->verified_bytes += from->verified_bytes;
    into->bad_bytes += from->bad_bytes;
    into->written_bytes += from->written_bytes;
    for (unsigned i = 0; i < REPLAY_PHASES; i++)
        into->phase_ns[i] += from->phase_ns[i];
    stat_merge(&into->request, &from->request);
}
