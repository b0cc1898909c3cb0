/* remote.c: a request's run over peers: what is here is pinned, what is not is read into a buffer, in turn until a
 * block is nowhere. The reads of a piece are under way together, the deepest first: their owners count a use of each in
 * this order, as a prefix call touches.
 */
#include "tools/replay/client_internal.h"

#include <errno.h>
#include <string.h>

#include "tools/cli.h"

#define GIVE_UP_NS INT64_C(60000000000) /* behind the deadline: it hangs */
#define REAP 64u

/* How many blocks from `at` on are not here, as many as the buffer holds at most. */
static uint32_t missing_here(struct replay_client *r, uint32_t at, uint32_t n)
{
    uint32_t most = n - at < r->chunk ? n - at : r->chunk, i = 0;

    if (berth_exists(r->b, r->key + at, most, r->present, 0) < 0)
        return most; /* the reads say why */
    while (i < most && !r->present[i])
        i++;
    return i;
}

/* op[k] is for the (n - 1 - k)th of them. */
static void prepare_reads(struct replay_client *r, uint32_t at, uint32_t n)
{
    int64_t deadline = berth_deadline(r->job->deadline_ns);

    memset(r->op, 0, n * sizeof(*r->op));
    for (uint32_t i = 0; i < n; i++) {
        struct berth_op *op = &r->op[n - 1 - i];

        op->opcode = BERTH_OP_GET_INTO;
        op->flags = BERTH_PEERS;
        op->deadline = deadline;
        op->key = r->key[at + i];
        op->data = r->buffer + i * r->job->block_size;
        op->size = r->job->block_size;
    }
}

static int reap_reads(struct replay_client *r, int64_t deadline, uint32_t *in_flight)
{
    struct berth_op *done[REAP];
    long n = berth_reap(r->queue, done, REAP, deadline + GIVE_UP_NS);

    if (n <= 0)
        return n ? (int)n : -ETIMEDOUT;
    *in_flight -= (uint32_t)n;
    if (cli_now() > deadline + REPLAY_OVERDUE_NS)
        r->c->overdue += (uint64_t)n;
    return 0;
}

/* All n are through afterwards, whatever became of each. */
static int run_reads(struct replay_client *r, uint32_t n)
{
    uint32_t submitted = 0, in_flight = 0;
    int error = 0;

    while (!error && (submitted < n || in_flight)) {
        int taken = submitted < n ? berth_submit(r->queue, r->op + submitted, n - submitted) : 0;

        if (taken < 0 && (taken != BERTH_EBUSY_RING || !in_flight))
            return taken;
        if (taken > 0) {
            submitted += (uint32_t)taken;
            in_flight += (uint32_t)taken;
        }
        if (in_flight)
            error = reap_reads(r, r->op[0].deadline, &in_flight);
    }
    return error;
}

/* Of n that were read the leading ones that came; each of them is proven. */
static uint32_t take_reads(struct replay_client *r, const uint64_t *blocks, uint32_t n)
{
    uint64_t size = r->job->block_size;
    uint32_t run = 0;

    for (uint32_t i = 0; i < n; i++) {
        long result = r->op[n - 1 - i].result;

        if (result < 0 && result != -ENOENT)
            client_note_kind(r->c, (int)result);
        if (result < 0)
            continue;
        r->c->wire_bytes += (uint64_t)result;
        r->c->verified_bytes += (uint64_t)result;
        r->c->bad_bytes += (uint64_t)result == size ? content_bad(r->buffer + i * size, size, blocks[i]) : size;
        if (run == i)
            run++;
        else
            r->c->surplus_bytes += (uint64_t)result;
    }
    return run;
}

/* A piece of the run from `at` on that is here: how many. */
static long pin_piece(struct replay_client *r, const uint64_t *blocks, uint32_t at, uint32_t n)
{
    long hits = berth_prefix(r->b, r->key + at, n - at, r->view + at, 0, BERTH_FOREVER);

    client_lap(r, REPLAY_PIN);
    if (hits < 0)
        return client_failed(r->c, (int)hits, "prefix");
    client_verify(r, blocks, at, at + (uint32_t)hits);
    client_lap(r, REPLAY_VERIFY);
    return hits;
}

/* A piece from `at` on that peers have: how many; *asked: of so many. */
static long read_piece(struct replay_client *r, const uint64_t *blocks, uint32_t at, uint32_t n, uint32_t *asked)
{
    uint32_t came;
    int error;

    *asked = missing_here(r, at, n);
    if (*asked == 0)
        return 0; /* it came in this moment */
    prepare_reads(r, at, *asked);
    error = run_reads(r, *asked);
    client_lap(r, REPLAY_PULL);
    if (error)
        return client_failed(r->c, error, "read from peers");
    came = take_reads(r, blocks + at, *asked);
    memset(r->view + at, 0, came * sizeof(*r->view));
    client_lap(r, REPLAY_VERIFY);
    return came;
}

/* Each piece was touched deepest first, but the pieces in the run's order. */
static void touch_again(struct replay_client *r, uint32_t n)
{
    struct berth_view v;

    for (uint32_t i = n; i-- > 0;)
        if (r->view[i].data && berth_get(r->b, r->key[i], &v, 0, BERTH_NOW) == 0)
            berth_release(r->b, &v, 1);
    client_lap(r, REPLAY_PIN);
}

long client_run_over_peers(struct replay_client *r, const uint64_t *blocks, uint32_t n)
{
    uint32_t at = 0, pieces = 0;
    bool more = n > 0;

    while (more) {
        uint32_t asked = 0;
        long here = pin_piece(r, blocks, at, n), there = 0;

        at += here > 0 ? (uint32_t)here : 0;
        pieces += here > 0;
        if (here >= 0 && at < n)
            there = read_piece(r, blocks, at, n, &asked);
        if (here < 0 || there < 0) {
            berth_release(r->b, r->view, at);
            return here < 0 ? here : there;
        }
        at += (uint32_t)there;
        more = at < n && there == asked && (here > 0 || there > 0);
    }
    if (pieces > 1)
        touch_again(r, at);
    return at;
}
