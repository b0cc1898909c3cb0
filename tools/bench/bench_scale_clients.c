/* bench_scale_clients.c: a node with many clients that have pinned much: what an object costs that is retired beside
 * them, and how fast clients come, go and vanish.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench/bench_scale.h"
#include "tools/cli.h"

#define OBJECTS_DEFAULT 100000u
#define SLICE_ALONE 2048u /* removed one after the other */
#define SLICE_MANY 4096u
#define ROUNDS 24u
#define POLL_NS 25000000L /* a status of many clients takes a millisecond or two of the node */
#define SETTLE_NS INT64_C(10000000000)
#define COMERS 4u /* processes that attach and detach */
#define VANISHING 200u

enum way { REMOVE_ALONE, REMOVE_MANY, REMOVE_PINNED, EVICT, WAYS };

static const struct {
    const char *name;
    uint64_t count;
} ways[WAYS] = {[REMOVE_ALONE] = {"remove, one by one", SLICE_ALONE},
                [REMOVE_MANY] = {"remove", SLICE_MANY},
                [REMOVE_PINNED] = {"remove of what is pinned", SLICE_MANY},
                [EVICT] = {"evict, by puts", SLICE_MANY}};

struct crowd {
    struct berth **handle;   /* b->clients of them */
    struct berth_view *view; /* b->client_pins of each */
    unsigned open;
};

struct clients {
    struct bench *b;
    struct scale_node many, one;
    struct crowd crowd;
    struct berth_view *view; /* SLICE_MANY */
};

/* ---- the crowd ---- */

static int crowd_open(struct crowd *c, struct scale_node *n)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench crowd", .timeout_ns = cli.timeout_ns};
    uint64_t pins = n->b.client_pins;
    int error = 0;

    c->handle = calloc(n->b.clients, sizeof(*c->handle));
    c->view = calloc(n->b.clients * pins, sizeof(*c->view));
    if (!c->handle || !c->view)
        return -ENOMEM;
    for (; c->open < n->b.clients && !error; c->open++) {
        error = berth_open(&c->handle[c->open], n->b.node.url, &opts);
        if (error)
            return error;
        for (uint64_t i = 0; i < pins && !error; i++) {
            struct berth_key key = {.data = n->keys + i * n->b.key_size, .size = n->b.key_size};

            error = berth_get(c->handle[c->open], key, &c->view[c->open * pins + i], 0, 0);
        }
    }
    return error;
}

static void crowd_close(struct crowd *c)
{
    for (unsigned i = 0; i < c->open; i++)
        berth_close(c->handle[i]);
    free(c->handle);
    free(c->view);
}

/* ---- what the node says and takes ---- */

/* CPU time of all its threads. */
static int64_t node_cpu(pid_t pid)
{
    char path[320];
    int64_t sum = 0, ns;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    for (struct dirent *e; tasks && (e = readdir(tasks));) {
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, e->d_name);
        f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (f && fscanf(f, "%" SCNd64, &ns) == 1)
            sum += ns;
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

static int wait_until(struct scale_node *n, uint64_t (*figure)(const struct scale_memory *), uint64_t most)
{
    int64_t end = bench_now() + SETTLE_NS;
    struct scale_memory m;

    for (;;) {
        int error;

        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        error = scale_memory(n, &m);
        if (error || figure(&m) <= most)
            return error;
        if (bench_now() > end)
            return -ETIMEDOUT;
    }
}

static uint64_t retired(const struct scale_memory *m)
{
    return m->retired;
}

static uint64_t sessions(const struct scale_memory *m)
{
    return m->sessions;
}

/* ---- retire ---- */

static int pin_new(struct clients *c, struct scale_node *n, uint64_t first, uint64_t count)
{
    uint8_t bytes[BENCH_KEY_MAX];
    int error = 0;

    for (uint64_t i = 0; i < count && !error; i++) {
        bench_key(&n->b, first + i, bytes);
        error = berth_get(n->b.b, (struct berth_key){.data = bytes, .size = n->b.key_size}, &c->view[i], 0, 0);
    }
    return error;
}

static int remove_alone(struct scale_node *n, uint64_t first, uint64_t count)
{
    uint8_t bytes[BENCH_KEY_MAX];
    int error = 0;

    for (uint64_t i = 0; i < count && !error; i++) {
        bench_key(&n->b, first + i, bytes);
        error = berth_remove(n->b.b, (struct berth_key){.data = bytes, .size = n->b.key_size}, NULL);
    }
    return error;
}

static int take_away(struct clients *c, struct scale_node *n, enum way way, uint64_t first, uint64_t count)
{
    int error;

    if (way == EVICT)
        return scale_put(n, count);
    if (way == REMOVE_ALONE)
        return remove_alone(n, first, count);
    error = bench_remove(&n->b, first, count);
    if (way == REMOVE_PINNED && !error)
        berth_release(n->b.b, c->view, count);
    return error;
}

/* Few enough that none of them is evicted by the others. */
static uint64_t count_of(const struct scale_node *n, enum way way)
{
    uint64_t most = n->b.objects / 8;

    return most && most < ways[way].count ? most : ways[way].count;
}

/* From the first one's removal until the last one's slot is free: ns, and ns of the node's CPU time, each. */
static int slice(struct clients *c, struct scale_node *n, enum way way, double *ns, double *cpu)
{
    uint64_t first = n->number, count = count_of(n, way);
    int error = scale_put(n, way == EVICT ? 2 * count : count); /* as full as can be, so that every put evicts */
    int64_t begin, busy;

    error = error ? error : wait_until(n, retired, 0);
    if (!error && way == REMOVE_PINNED)
        error = pin_new(c, n, first, count);
    begin = bench_now();
    busy = node_cpu(n->b.node.pid);
    error = error ? error : take_away(c, n, way, first, count);
    *ns = (double)(bench_now() - begin) / (double)count;
    error = error ? error : wait_until(n, retired, 0);
    *cpu = (double)(node_cpu(n->b.node.pid) - busy) / (double)count;
    return error;
}

struct figures {
    double ns[ROUNDS], cpu[ROUNDS], one_ns[ROUNDS], one_cpu[ROUNDS];
};

static void report_retire(struct clients *c, enum way way, struct figures *f, unsigned rounds)
{
    struct bench_turns turns;
    uint64_t count = count_of(&c->many, way);
    double ns, cpu, one_cpu;
    json_t *more;

    turns_choose(&turns, f->cpu, f->one_cpu, rounds);
    ns = turns_mean(&turns, f->ns);
    cpu = turns_mean(&turns, f->cpu);
    one_cpu = turns_mean(&turns, f->one_cpu);
    more = json_pack("{s:f, s:s, s:i, s:I, s:f, s:f, s:f, s:f}", "goal", 3.0, "goal_of", "ratio", "clients",
                     (int)c->b->clients, "pins_of_each", (json_int_t)c->b->client_pins, "retire_ns_per_object", ns,
                     "one_client_ns_per_object", turns_mean(&turns, f->one_ns), "node_cpu_ns_per_object", cpu,
                     "one_client_node_cpu_ns_per_object", one_cpu);
    bench_report(&c->many.b, &(struct bench_result){.row = "retire",
                                                    .way = ways[way].name,
                                                    .unit = "object",
                                                    .timed = (unsigned)count,
                                                    .ops = rounds * count,
                                                    .seconds = ns * (double)(rounds * count) / 1e9,
                                                    .baseline = "one_client_node_cpu_ns",
                                                    .figure = cpu,
                                                    .value = one_cpu,
                                                    .more = more});
}

static int run_way(struct clients *c, enum way way)
{
    struct figures f;
    int64_t end = bench_now() + (int64_t)c->b->seconds * 1000000000 / WAYS;
    unsigned i = 0;
    int error = slice(c, &c->one, way, f.one_ns, f.one_cpu);

    error = error ? error : slice(c, &c->many, way, f.ns, f.cpu); /* warm */
    for (; i < ROUNDS && (i == 0 || bench_now() < end) && !error; i++) {
        error = slice(c, &c->one, way, &f.one_ns[i], &f.one_cpu[i]);
        error = error ? error : slice(c, &c->many, way, &f.ns[i], &f.cpu[i]);
    }
    if (error)
        return bench_fail(error);
    report_retire(c, way, &f, i);
    return 0;
}

/* ---- attach and detach ---- */

/* In a process of its own, on handles of its own. Ends it. */
static void come_and_go(const struct scale_node *n, int64_t end, int out)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench comer", .timeout_ns = 5000000000};
    int64_t count = 0;

    while (bench_now() < end && count >= 0) {
        struct berth *b;
        int error = berth_open(&b, n->b.node.url, &opts);

        if (!error)
            berth_close(b);
        count = error ? error : count + 1;
    }
    _exit(write(out, &count, sizeof(count)) == sizeof(count) ? 0 : 1);
}

/* Attaches, pins what it can of 64 keys, and is gone without a word. */
static void vanish(const struct scale_node *n)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench ghost", .timeout_ns = 5000000000};
    struct berth *b;
    struct berth_view view[BENCH_BATCH];
    int error = berth_open(&b, n->b.node.url, &opts);

    for (unsigned i = 0; i < BENCH_BATCH && i < n->b.objects && !error; i++) {
        struct berth_key key = {.data = n->keys + i * n->b.key_size, .size = n->b.key_size};

        error = berth_get(b, key, &view[i], 0, 0);
        error = error == -ENOENT ? 0 : error; /* evicted before */
    }
    if (!error)
        raise(SIGKILL);
    _exit(1);
}

static int comers(const struct scale_node *n, int64_t *count, double *seconds)
{
    int64_t begin = bench_now(), end = begin + (int64_t)n->b.seconds * 1000000000 / WAYS, one;
    pid_t pid[COMERS];
    unsigned started = 0;
    int fds[2], error = pipe(fds) ? -errno : 0;

    if (error)
        return error;
    for (; started < COMERS && !error; started++) {
        pid[started] = fork();
        if (pid[started] == 0)
            come_and_go(n, end, fds[1]);
        if (pid[started] < 0) {
            error = -errno;
            break;
        }
    }
    close(fds[1]);
    for (*count = 0; !error && read(fds[0], &one, sizeof(one)) == sizeof(one);) {
        error = one < 0 ? (int)one : 0;
        *count += one;
    }
    close(fds[0]);
    *seconds = (double)(bench_now() - begin) / 1e9;
    while (started > 0)
        waitpid(pid[--started], NULL, 0);
    return error;
}

static int vanishing(struct scale_node *n, double *gone_ns)
{
    struct scale_memory before;
    int error = scale_memory(n, &before), status;
    int64_t begin;

    for (unsigned i = 0; i < VANISHING && !error; i++) {
        pid_t pid = fork();

        if (pid == 0)
            vanish(n);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return -errno;
        error = WIFSIGNALED(status) ? 0 : -EIO;
    }
    begin = bench_now();
    error = error ? error : wait_until(n, sessions, before.sessions);
    *gone_ns = (double)(bench_now() - begin);
    return error;
}

static int run_attach(struct clients *c)
{
    struct bench_socket *socket;
    int64_t count, begin;
    double seconds, round, gone = 0;
    char text[24];
    int error = bench_socket_open(&socket);
    json_t *more;

    if (error)
        return bench_fail(error);
    begin = bench_now();
    for (unsigned i = 0; i < 1000; i++)
        bench_socket_round(socket);
    round = (double)(bench_now() - begin) / 1000;
    bench_socket_close(socket);
    error = comers(&c->many, &count, &seconds);
    error = error ? error : vanishing(&c->many, &gone);
    if (error || count == 0)
        return bench_fail(error ? error : -ETIMEDOUT);
    more = json_pack("{s:f, s:s, s:i, s:f, s:i, s:f}", "goal", 1000.0, "goal_of", "attach_per_second", "processes",
                     (int)COMERS, "attach_per_second", (double)count / seconds, "vanished", (int)VANISHING,
                     "all_cleaned_up_after_ns", gone);
    bench_report(&c->many.b, &(struct bench_result){.row = "attach",
                                                    .unit = "attach",
                                                    .timed = 1,
                                                    .ops = (uint64_t)count,
                                                    .seconds = seconds,
                                                    .baseline = "socket_round_trip_ns",
                                                    .figure = seconds * 1e9 / (double)count,
                                                    .value = round,
                                                    .more = more});
    if (!cli.json)
        printf("  %-10s %u clients that were killed: all cleaned up %s after the last\n", "vanished", VANISHING,
               bench_text_of_time(text, gone));
    return 0;
}

/* ---- from start to end ---- */

static int open_node(struct scale_node *n, const struct bench *b)
{
    int code = scale_open(n, b, b->objects, 4 * SLICE_MANY);

    return code ? code : scale_fill(n);
}

static int run_rows(struct clients *c)
{
    int code = open_node(&c->one, c->b), error;

    code = code ? code : open_node(&c->many, c->b);
    if (code)
        return code;
    error = crowd_open(&c->crowd, &c->many);
    if (error)
        return bench_fail(error);
    for (enum way way = 0; way < WAYS && !code; way++)
        code = run_way(c, way);
    return code ? code : run_attach(c);
}

int bench_scale_clients(struct bench *b)
{
    struct clients *c = calloc(1, sizeof(*c));
    int code;

    if (c)
        c->view = calloc(SLICE_MANY, sizeof(*c->view));
    if (!c || !c->view) {
        free(c);
        return bench_no_memory();
    }
    b->evict = true;
    b->objects = b->objects_given ? b->objects : OBJECTS_DEFAULT;
    b->objects = b->objects < b->client_pins ? b->client_pins : b->objects;
    c->b = b;
    code = run_rows(c);
    crowd_close(&c->crowd);
    code = scale_close(&c->many, code);
    code = scale_close(&c->one, code);
    free(c->view);
    free(c);
    return code;
}
