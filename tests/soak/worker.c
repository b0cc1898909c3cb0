/* worker.c: one client process of the soak: every kind of call on one node, at random from a seed, until it is told to
 * end. Every byte that it reads is compared.
 */
#include "store/berth.h"
#include "tests/soak/object.h"
#include "tests/soak/record.h"
#include "tools/replay/content.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define KIB 1024u
#define MIB (1024u * 1024u)
#define VIEWS 8u
#define VIEW_BYTES (6u * MIB) /* held at once, so that four workers keep a fifth of a pool */
#define RANGES 4u

struct held {
    struct berth_view view;
    struct item item;
    int64_t until; /* CLOCK_MONOTONIC, ns */
};

static const char *node;
static struct berth *b;
static unsigned worker;
static uint32_t sessions_ns, buffer_id;
static void *buffer;             /* registered: pulls go straight there */
static uint8_t *scratch, *other; /* OBJECT_MOST each */
static struct held views[VIEWS];
static volatile sig_atomic_t stopped;

static struct item any(void)
{
    return any_of(sessions_ns);
}

/* ---- views ---- */

static void view_end(struct held *h)
{
    compare("view", &h->item, h->view.data, h->view.size);
    berth_release(b, &h->view, 1);
}

static void views_end(int64_t now)
{
    for (unsigned i = 0; i < VIEWS; i++)
        if (views[i].view.data && views[i].until <= now)
            view_end(&views[i]);
}

/* Keeps one view in three for up to three seconds, and compares it once more then. */
static void view_begin(const struct item *o, struct berth_view *v)
{
    struct held *place = NULL;
    uint64_t bytes = v->size;

    compare("get", o, v->data, v->size);
    for (unsigned i = 0; i < VIEWS; i++) {
        bytes += views[i].view.data ? views[i].view.size : 0;
        place = views[i].view.data ? place : &views[i];
    }
    if (!place || bytes > VIEW_BYTES || draw(3)) {
        berth_release(b, v, 1);
        return;
    }
    *place = (struct held){.view = *v, .item = *o, .until = record_now() + (int64_t)draw(3000) * MS};
}

/* ---- calls ---- */

static void do_get(void)
{
    struct item o = any();
    struct berth_view v;
    unsigned flags = draw(8) ? 0 : BERTH_VERIFY;
    int64_t start = record_now();
    int r = berth_get(b, key_of(&o), &v, flags, BERTH_FOREVER);

    if (r == 0 && !flags)
        record_get(record_now() - start);
    record_result("get", r);
    if (r == 0) {
        record_found(1);
        view_begin(&o, &v);
    }
}

static void do_pull(void)
{
    struct item o = any();
    struct berth_view v;
    unsigned flags = BERTH_PEERS | (draw(4) ? 0 : BERTH_FRESH) | (draw(4) ? 0 : BERTH_VERIFY);
    struct span s = span_begin(2000 * MS);
    long r = span_end(&s, "pull", berth_get(b, key_of(&o), &v, flags, s.deadline));

    if (r == 0) {
        record_found(1);
        view_begin(&o, &v);
    }
}

static void do_wait(void)
{
    struct item o = any();
    struct berth_view v;
    unsigned flags = BERTH_WAIT | (draw(2) ? BERTH_PEERS : 0);
    struct span s = span_begin((int64_t)draw(60) * MS);
    long r = span_end(&s, "wait", berth_get(b, key_of(&o), &v, flags, s.deadline));

    if (r == 0) {
        record_found(1);
        view_begin(&o, &v);
    }
}

static void do_get_into(void)
{
    struct item o = any();
    unsigned flags = draw(2) ? BERTH_PEERS : 0;
    void *to = draw(3) ? buffer : other;
    struct span s = span_begin(2000 * MS);
    long r = span_end(&s, "get_into", berth_get_into(b, key_of(&o), to, OBJECT_MOST, flags, s.deadline));

    if (r >= 0) {
        record_found(1);
        compare("get_into", &o, to, (uint64_t)r);
    }
}

static void do_ranges(void)
{
    struct item o = draw(4) ? object_any() : member_of((unsigned)draw(CHAINS), (unsigned)draw(MEMBERS));
    struct berth_range range[RANGES];
    unsigned flags = (draw(2) ? BERTH_PEERS : 0) | (draw(2) ? BERTH_VERIFY : 0);
    unsigned n = 1 + (unsigned)draw(RANGES);
    uint8_t *to = draw(3) ? buffer : other;
    struct span s;
    long r;

    for (unsigned i = 0; i < n; i++) {
        uint64_t at = draw(o.size + 1), most = o.size - at;

        most = most < OBJECT_MOST / RANGES ? most : OBJECT_MOST / RANGES;
        range[i] = (struct berth_range){at, draw(most + 1), to + (size_t)i * (OBJECT_MOST / RANGES)};
    }
    s = span_begin(2000 * MS);
    r = span_end(&s, "get_range", berth_get_range(b, key_of(&o), range, n, flags, s.deadline));
    if (r < 0)
        return;
    record_found(1);
    record_compared((uint64_t)r);
    content_fill(scratch, o.size, o.id);
    for (unsigned i = 0; i < n; i++) {
        if (memcmp(scratch + range[i].offset, range[i].data, range[i].size) != 0)
            record_wrong("get_range", o.key, "its bytes");
    }
}

static void do_prefix(void)
{
    static const unsigned some[] = {0, BERTH_PEERS, BERTH_SAME_GROUP, BERTH_WAIT, BERTH_VERIFY};
    struct item o[MEMBERS];
    struct berth_key keys[MEMBERS];
    struct berth_view v[MEMBERS];
    unsigned chain = (unsigned)draw(CHAINS), flags = some[draw(5)];
    struct span s = span_begin(flags == BERTH_PEERS ? 2000 * MS : 20 * MS);
    long r;

    for (unsigned i = 0; i < MEMBERS; i++) {
        o[i] = member_of(chain, i);
        keys[i] = key_of(&o[i]);
    }
    r = span_end(&s, "prefix", berth_prefix(b, keys, MEMBERS, v, flags, s.deadline));
    for (long i = 0; i < r; i++)
        view_begin(&o[i], &v[i]);
    record_found(r > 0 ? (uint64_t)r : 0);
}

static void do_many(void)
{
    struct item o[MEMBERS];
    struct berth_key keys[MEMBERS];
    struct berth_view v[MEMBERS];
    unsigned flags = draw(2) ? BERTH_PEERS : 0;
    struct span s;
    long r;

    for (unsigned i = 0; i < MEMBERS; i++) {
        o[i] = any();
        keys[i] = key_of(&o[i]);
    }
    s = span_begin(2000 * MS);
    r = span_end(&s, "get_many", berth_get_many(b, keys, MEMBERS, v, flags, s.deadline));
    for (unsigned i = 0; r >= 0 && i < MEMBERS; i++) {
        record_result("get_many_member", v[i].data ? 0 : v[i].status);
        if (v[i].data)
            view_begin(&o[i], &v[i]);
    }
    record_found(r > 0 ? (uint64_t)r : 0);
}

static void do_put(void)
{
    struct item o = draw(3) ? object_any() : session_any(sessions_ns);
    struct berth_put_opts opts = options_of(&o);
    struct span s;
    long r;

    if (o.replaceable)
        o.size = STAMP + size_of(draw(OBJECTS)) % (256 * KIB);
    fill(&o, scratch);
    opts.flags = draw(16) ? 0 : BERTH_PUBLISHED;
    s = span_begin(500 * MS);
    opts.deadline = s.deadline;
    r = span_end(&s, "put", berth_put(b, key_of(&o), scratch, o.size, &opts));
    record_put(r == 0 || r == BERTH_EUNPUBLISHED || r == BERTH_EVERSION);
    if (r == -ETIMEDOUT) {
        struct berth_error_info e;

        berth_error(b, &e); /* figures say that there was no room; without them the node may put it yet */
        record_open_put(e.figure[0] == 0);
    }
}

/* A chain, or what is missing of it, becomes visible as a whole; one in ten is given up instead. */
static void do_group(void)
{
    struct berth_draft d[MEMBERS];
    struct item o[MEMBERS];
    unsigned chain = (unsigned)draw(CHAINS), n = 0;
    bool aborted = !draw(10);
    long r = 0;

    for (; n < MEMBERS && r >= 0; n++) {
        struct berth_put_opts opts;
        struct berth_key parent = n ? key_of(&o[n - 1]) : (struct berth_key){0};
        struct span s = span_begin(500 * MS);

        o[n] = member_of(chain, n);
        opts = options_of(&o[n]);
        opts.parent = n ? &parent : NULL;
        opts.flags = draw(8) ? 0 : BERTH_JOIN;
        opts.deadline = s.deadline;
        d[n] = (struct berth_draft){0};
        r = span_end(&s, "create", berth_create(b, key_of(&o[n]), o[n].size, &opts, &d[n]));
        if (r == 0)
            fill(&o[n], d[n].data);
    }
    if (r < 0 || aborted) {
        record_result("abort", berth_abort(b, d, n));
        return;
    }
    r = record_result("seal", berth_seal(b, d, MEMBERS));
    record_put(r >= 0 ? MEMBERS - (uint64_t)r : 0);
    record_open_put(r == -ETIMEDOUT ? MEMBERS : 0);
    if (r < 0)
        record_result("abort", berth_abort(b, d, MEMBERS));
}

static void do_remove(void)
{
    struct item o = any();

    record_result("remove", berth_remove(b, key_of(&o), NULL));
}

static void do_purge(void)
{
    char prefix[8];
    struct berth_purge what = {.kind = BERTH_PURGE_PREFIX, .prefix = prefix};
    struct span s = span_begin(5000 * MS);
    uint64_t r = draw(20);

    what.prefix_size = (size_t)snprintf(prefix, sizeof(prefix), r % 2 ? "c%02u" : "o00%02u", (unsigned)draw(40));
    if (r == 0)
        what = (struct berth_purge){.kind = BERTH_PURGE_LINEAGE, .lineage = TAG};
    else if (r == 1)
        what = (struct berth_purge){.kind = BERTH_PURGE_NAMESPACE, .ns = sessions_ns};
    span_end(&s, "purge", berth_purge(b, &what, s.deadline, NULL));
}

/* Small ones, whose labels end by themselves if nobody drops them. */
static void do_hold(void)
{
    struct item o = any();
    struct berth_stat st;
    char label[16];

    snprintf(label, sizeof(label), "w%u", worker);
    if (record_result("stat", berth_stat(b, key_of(&o), &st)) < 0 || st.size > 64 * KIB)
        return;
    if (record_result("hold", berth_hold(b, key_of(&o), label, (int64_t)(200 + draw(2000)) * MS)) < 0 || draw(2))
        return;
    record_result("drop", berth_drop(b, key_of(&o), label));
}

static void do_look(void)
{
    static struct berth_entry entries[32];
    struct berth_cursor cursor = {0};
    struct item o = any();
    struct berth_key key = key_of(&o);
    struct berth_stat st;
    struct span s = span_begin(2000 * MS);
    uint8_t present;

    span_end(&s, "stat_peers", berth_stat_peers(b, key, &st, s.deadline));
    record_result("exists", berth_exists(b, &key, 1, &present, 0));
    record_result("list", berth_list(b, 0, "c1", 2, &cursor, entries, 32));
}

/* Keys are pulled and not pinned, one pull in four is cancelled. */
static void do_queue(void)
{
    struct item o[2] = {any(), any()};
    struct berth_op op[3] = {{.opcode = BERTH_OP_PULL, .flags = BERTH_PEERS},
                             {.opcode = BERTH_OP_PULL, .flags = BERTH_PEERS},
                             {.opcode = BERTH_OP_CANCEL, .data = &op[1]}};
    static const char *const names[] = {"op_pull", "op_pull", "op_cancel"};
    struct berth_op *done[3];
    struct berth_queue *q;
    unsigned n = draw(4) ? 2 : 3;
    struct span s;
    long r = 0;

    if (record_result("queue_open", berth_queue_open(b, 4, &q)) < 0)
        return;
    s = span_begin(2000 * MS);
    for (unsigned i = 0; i < 3; i++) {
        op[i].deadline = s.deadline;
        op[i].key = i < 2 ? key_of(&o[i]) : (struct berth_key){0};
    }
    r = record_result("submit", berth_submit(q, op, n));
    for (long left = r; left > 0 && (r = berth_reap(q, done, 3, s.deadline + 1000 * MS)) > 0; left -= r) {
        for (long i = 0; i < r; i++)
            span_end(&s, names[done[i] - op], done[i]->result);
    }
    if (r <= 0)
        record_result("reap", r < 0 ? r : -ETIMEDOUT);
    berth_queue_close(q);
}

static bool attach(void)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "soak"};

    return record_result("open", berth_open(&b, node, &opts)) == 0 &&
           record_result("namespace", berth_namespace(b, "sessions", &sessions_ns)) == 0 &&
           record_result("buffer_alloc", berth_buffer_alloc(b, OBJECT_MOST, &buffer, &buffer_id)) == 0;
}

static void detach(void)
{
    views_end(INT64_MAX);
    if (draw(2)) /* the other half leaves it to close */
        record_result("buffer_unregister", berth_buffer_unregister(b, buffer_id));
    berth_close(b);
}

/* Another handle comes and goes, with a draft and a view that it leaves behind; now and then the worker's own. */
static void do_attach(void)
{
    struct berth_open_opts opts = {
        .size = sizeof(opts), .name = "soak-guest", .flags = draw(2) ? BERTH_OPEN_READER : 0};
    struct item o = any();
    struct berth *guest;
    struct berth_view v;
    struct berth_draft d;
    struct berth_put_opts put = options_of(&o);

    if (!draw(4)) {
        detach();
        if (!attach())
            stopped = 2;
        return;
    }
    if (record_result("open", berth_open(&guest, node, &opts)) < 0)
        return;
    if (record_result("get", berth_get(guest, key_of(&o), &v, 0, BERTH_FOREVER)) == 0) {
        record_found(1);
        compare("get", &o, v.data, v.size);
    }
    if (!opts.flags)
        record_result("create", berth_create(guest, key_of(&o), o.size, &put, &d));
    berth_close(guest);
}

/* ---- the run ---- */

static const struct {
    unsigned weight;
    void (*call)(void);
} calls[] = {{250, do_get},   {60, do_pull}, {30, do_wait}, {60, do_get_into}, {60, do_ranges},
             {60, do_prefix}, {30, do_many}, {200, do_put}, {50, do_group},    {30, do_remove},
             {2, do_purge},   {20, do_hold}, {20, do_look}, {20, do_queue},    {12, do_attach}};

static void call_any(void)
{
    unsigned i = 0, sum = 0;
    uint64_t at;

    for (unsigned k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
        sum += calls[k].weight;
    for (at = draw(sum); at >= calls[i].weight; i++)
        at -= calls[i].weight;
    calls[i].call();
}

static void on_signal(int signal)
{
    (void)signal;
    stopped = 1;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (argc != 6) {
        fputs("usage: soak-worker NODE NODE_PID NUMBER SEED PAUSE_US\n", stderr);
        return 2;
    }
    node = argv[1];
    worker = (unsigned)atoi(argv[3]);
    object_seed(strtoull(argv[4], NULL, 10) * 256 + worker, (uint64_t)record_now() << 8 | worker);
    scratch = malloc(OBJECT_MOST);
    other = malloc(OBJECT_MOST);
    sigaction(SIGTERM, &action, NULL);
    record_start(atoi(argv[2]));
    if (!scratch || !other || !attach())
        return 1;
    while (!stopped) {
        uint64_t pause_us = draw(2 * strtoull(argv[5], NULL, 10) + 1);

        call_any();
        views_end(record_now());
        record_tick();
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_us * 1000}, NULL);
    }
    if (stopped == 1)
        detach();
    record_finish();
    return stopped == 1 ? 0 : 1;
}
