/* cmd_replay.c: `berth replay`: a trace through real clients, every byte verified. */
#include "tools/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/amount.h"
#include "store/evict.h"
#include "tools/bench/bench_node.h"
#include "tools/replay/bound.h"
#include "tools/replay/generate.h"
#include "tools/replay/nodes.h"
#include "tools/replay/processes.h"
#include "tools/replay/report.h"

#define CAPACITY_SHARE 5u   /* by default a fifth of the different blocks */
#define SETTLE_REQUESTS 16u /* with room for fewer of the longest ones a client waits for eviction after each */
#define GRANTS 64u          /* slots that a client may hold for puts to come */
#define DEADLINE_NS INT64_C(5000000000)

const struct cli_option replay_options[] = {
    {"capacity-blocks", 'c', "N", "blocks that stay before eviction, those of each client's longest request at least"},
    {"block-size", 's', "SIZE", "bytes of a block, a multiple of 4KiB; default 16KiB (tokens of 512, scaled down)"},
    {"policy", 'p', "NAME", "eviction policy, pwl or lru; default pwl"},
    {"bound", 0, NULL, "also the hit ratio that no policy can pass with this capacity"},
    {"clients", 'C', "N", "client processes; with --nodes how many of the nodes are at work at once; default 1"},
    {"speed", 0, "X", "X times the trace's own time, fractions too; default as fast as it can"},
    {"trace", 0, "FILE", "the trace, like the operand; - is a pipe"},
    {"generate", 'g', "KIND", "without a trace: chat, agents or batch; default chat"},
    {"requests", 'r', "N", "of a generated load; default 4000"},
    {"seed", 0, "N", "of a generated load, and of kills; default 1"},
    {"embedded", 0, NULL, "a node on a thread of this process and one client, instead of berthd"},
    {"nodes", 0, "N", "2 to 8 nodes of one client each: they share the capacity, take turns and pull from each other"},
    {"deadline", 0, "DURATION", "with --nodes: of a read from another node; default 5s"},
    {"kill", 0, "N", "with --nodes: every N requests a node is killed, and starts again some time later"},
    {"restart", 0, "HOW", "of killed nodes: warm, cold (empty) or mixed; default mixed"},
    {0}};

struct replay {
    uint64_t capacity, block_size, requests, seed;
    uint64_t kill_every;
    unsigned clients, nodes; /* nodes: 0 for the one node of a replay without peers */
    enum nodes_restart restart;
    int64_t deadline_ns; /* 0: not given */
    double speed;
    const char *policy, *generate, *file;
    bool embedded, own_policy, own_restart, bound;
    const char *url; /* of a node that was named */
    struct trace trace;
    struct replay_job job;
    struct replay_shared *shared;
    size_t shared_bytes;
    struct processes processes;
    struct bench_node node;
    struct berth *b; /* for counters; of an embedded node the client's */
    uint64_t evicted_before, evicted_after;
    struct nodes_result nodes_result;
    struct cli_progress progress;
    int64_t ns;
};

/* ---- options ---- */

static int set_speed(const char *value, double *speed)
{
    char *end;
    double x = strtod(value, &end);

    if (end == value || *end || !(x >= 0.001 && x <= 1e6))
        return cli_usage("--speed '%s': a number of 0.001 to 1000000", value);
    *speed = x;
    return 0;
}

static int set_count(const char *name, const char *value, uint64_t min, uint64_t max, unsigned *out)
{
    uint64_t n;
    int code = cli_number(name, value, min, max, &n);

    *out = code ? *out : (unsigned)n;
    return code;
}

static int set_restart(const char *value, struct replay *r)
{
    static const char *const names[] = {[RESTART_WARM] = "warm", [RESTART_COLD] = "cold", [RESTART_MIXED] = "mixed"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            r->restart = (enum nodes_restart)i;
            r->own_restart = true;
            return 0;
        }
    }
    return cli_usage("--restart '%s': warm, cold or mixed", value);
}

/* Options of several nodes; -1: it is none. */
static int set_of_nodes(struct replay *r, const char *name, const char *value)
{
    if (!strcmp(name, "nodes"))
        return set_count("--nodes", value, NODES_MIN, NODES_MAX, &r->nodes);
    if (!strcmp(name, "deadline")) {
        int code = cli_duration("--deadline", value, &r->deadline_ns);

        return code || r->deadline_ns > 0 ? code : cli_usage("--deadline: more than no time");
    }
    if (!strcmp(name, "kill"))
        return cli_number("--kill", value, 1, UINT32_MAX, &r->kill_every);
    return !strcmp(name, "restart") ? set_restart(value, r) : -1;
}

static int set(void *arg, const char *name, const char *value)
{
    struct replay *r = arg;
    int code = set_of_nodes(r, name, value);

    if (code >= 0)
        return code;

    if (!strcmp(name, "capacity-blocks"))
        return cli_number("--capacity-blocks", value, 1, UINT32_MAX / 4, &r->capacity);
    if (!strcmp(name, "block-size"))
        return cli_size("--block-size", value, &r->block_size);
    if (!strcmp(name, "speed"))
        return set_speed(value, &r->speed);
    if (!strcmp(name, "requests"))
        return cli_number("--requests", value, 1, 10000000, &r->requests);
    if (!strcmp(name, "seed"))
        return cli_number("--seed", value, 0, UINT64_MAX, &r->seed);
    if (!strcmp(name, "clients"))
        return set_count("--clients", value, 1, PROCESSES_MAX, &r->clients);
    if (!strcmp(name, "embedded")) {
        r->embedded = true;
    } else if (!strcmp(name, "bound")) {
        r->bound = true;
    } else if (!strcmp(name, "trace")) {
        r->file = value;
    } else if (!strcmp(name, "generate")) {
        r->generate = value;
    } else {
        r->policy = value;
        r->own_policy = true;
    }
    return 0;
}

static int check_nodes(const struct replay *r)
{
    if (!r->nodes && (r->deadline_ns || r->kill_every || r->own_restart))
        return cli_usage("--deadline, --kill and --restart are for several nodes: give --nodes, too");
    if (!r->nodes)
        return 0;
    if (r->embedded || r->url)
        return cli_usage("--nodes has nodes of its own, each in a process: leave --embedded and -n out");
    if (r->clients > r->nodes)
        return cli_usage(
            "--clients %u: with --nodes so many of them are at work at once, so at most as many as there are",
            r->clients);
    return r->own_restart && !r->kill_every ? cli_usage("--restart is for nodes that --kill kills") : 0;
}

static int check(const struct replay *r)
{
    if (r->file && r->generate)
        return cli_usage("a trace or --generate, not both");
    if (r->block_size == 0 || r->block_size % 4096 || r->block_size > 64 << 20)
        return cli_usage("--block-size: a multiple of 4KiB up to 64MiB");
    if (r->embedded && (r->clients > 1 || r->url))
        return cli_usage("--embedded is one client on a node of its own: leave --clients and -n out");
    if (r->url && strlen(r->url) >= REPLAY_URL)
        return cli_usage("-n: the name is too long");
    if (!evict_find(r->policy))
        return cli_usage("--policy '%s': there is no such policy: write pwl or lru", r->policy);
    if (r->url && (r->capacity || r->own_policy || r->bound))
        return cli_usage("a node that -n names has its own capacity and policy: leave --capacity-blocks, --policy and "
                         "--bound out");
    return check_nodes(r);
}

/* ---- the load ---- */

static int load_trace(struct replay *r)
{
    char why[400] = "";
    bool is_pipe = r->file && !strcmp(r->file, "-");
    FILE *in;
    int error;

    if (r->generate) {
        error = generate_trace(&r->trace, r->generate, r->seed, (uint32_t)r->requests);
        if (error == -EINVAL)
            return cli_usage("--generate '%s': it must be chat, agents or batch", r->generate);
        return error ? cli_fail(error, r->generate, "the load does not fit into memory: ask for fewer requests") : 0;
    }
    in = is_pipe ? stdin : fopen(r->file, "re");
    if (!in) {
        error = -errno;
        bool load = error == -ENOENT && generate_has(r->file);
        snprintf(why, sizeof(why), "cannot open the file: %s%s%s", strerror(-error),
                 load ? ": a load of this name is made by --generate " : "", load ? r->file : "");
        return cli_report(error, CLI_FAILED, r->file, why);
    }
    error = trace_read(&r->trace, in, is_pipe ? "stdin" : r->file, why, sizeof(why));
    if (!is_pipe)
        fclose(in);
    return error ? cli_fail(error, NULL, why) : 0;
}

/* Clients hold drafts and pins of their longest request each, and what was sealed since the node last evicted. */
static struct bench_node_config node_config(const struct replay *r)
{
    uint64_t in_work = (uint64_t)r->clients * (r->trace.longest + GRANTS);

    return (struct bench_node_config){.slots = r->capacity,
                                      .slot_bytes = bench_slot_bytes(r->block_size),
                                      .room_slots = 3 * in_work,
                                      .high_slots = r->capacity,
                                      .low_slots = r->capacity - r->capacity / 200,
                                      .policy = r->policy};
}

static int evicted(struct replay *r, uint64_t *n)
{
    char *text = NULL;
    json_t *status;
    int error = berth_query(r->b, BERTH_STATUS, NULL, &text);

    if (error)
        return cli_fail_last(error, "status");
    status = json_loads(text, 0, NULL);
    *n = (uint64_t)json_integer_value(json_object_get(json_object_get(status, "counters"), "evicted"));
    json_decref(status);
    free(text);
    return 0;
}

/* ---- one client in this process, over an embedded node ---- */

static void show_progress(void *arg, uint64_t requests)
{
    struct replay *r = arg;

    cli_progress_at(&r->progress, requests);
}

static int run_embedded(struct replay *r)
{
    struct bench_node_config config = node_config(r);
    struct replay_counts *c = &r->shared->client[0];
    struct replay_client *client;
    char settings[REPLAY_URL - sizeof("embedded:")];
    int error, code;

    bench_node_settings(&config, settings, sizeof(settings));
    snprintf(r->shared->url, REPLAY_URL, "embedded:%s", settings);
    r->job.progress = show_progress;
    r->job.arg = r;
    error = replay_client_open(&client, &r->job, r->shared->url, c);
    if (error)
        return cli_fail(error, "embedded:", c->sentence);
    r->b = replay_client_handle(client);
    r->shared->begin = cli_now();
    cli_progress_begin(&r->progress, "replaying", r->trace.n_requests, false);
    error = replay_client_run(client);
    r->ns = cli_now() - r->shared->begin;
    cli_progress_end(&r->progress);
    code = error ? cli_fail(error, NULL, c->sentence) : evicted(r, &r->evicted_after);
    replay_client_close(client);
    return code;
}

/* ---- clients in processes of their own ---- */

static int report_failed(struct replay *r)
{
    for (unsigned i = 0; i < r->clients; i++)
        if (r->shared->client[i].error)
            return cli_fail(r->shared->client[i].error, NULL, r->shared->client[i].sentence);
    return cli_fail(-EIO, NULL, "a client process ended before its time");
}

static int open_node(struct replay *r)
{
    struct bench_node_config config = node_config(r);
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth replay", .timeout_ns = cli.timeout_ns};
    char why[256] = "";
    int error;

    if (r->url) {
        error = berth_open(&r->b, r->url, &opts);
        snprintf(r->shared->url, REPLAY_URL, "%s", r->url);
        return error ? cli_fail_last(error, r->url) : 0;
    }
    error = bench_node_start(&r->node, &config, "berth replay", &r->b, why, sizeof(why));
    snprintf(r->shared->url, REPLAY_URL, "%s", r->node.url);
    return error ? cli_fail(error, NULL, why) : 0;
}

static int run_clients(struct replay *r)
{
    int code = evicted(r, &r->evicted_before);
    unsigned failed;

    if (code)
        atomic_store(&r->shared->stop, 1);
    else
        processes_open(&r->processes);
    cli_progress_begin(&r->progress, "replaying", r->trace.n_requests, false);
    r->shared->begin = cli_now();
    processes_go(&r->processes);
    failed = processes_join(&r->processes, show_progress, r);
    r->ns = cli_now() - r->shared->begin;
    cli_progress_end(&r->progress);
    if (code)
        return code;
    return failed ? report_failed(r) : evicted(r, &r->evicted_after);
}

/* Clients are forked first: they inherit neither the node's keeper nor a handle. */
static int run_processes(struct replay *r)
{
    int error = processes_fork(&r->processes, &r->job, r->clients), code;

    code = error ? cli_fail(error, NULL, "no client process can be started") : open_node(r);
    if (code) {
        atomic_store(&r->shared->stop, 1);
        processes_join(&r->processes, show_progress, r);
        return code;
    }
    code = run_clients(r);
    berth_close(r->b);
    if (!r->url && bench_node_stop(&r->node) && !code)
        code = cli_fail(-EIO, NULL, "berthd did not stop cleanly");
    return code;
}

/* ---- several nodes ---- */

/* Each has its share of the capacity, and room for what others have leases on when it goes. */
static struct bench_node_config one_of_nodes(const struct replay *r)
{
    struct replay one = *r;
    struct bench_node_config c;

    one.capacity = r->capacity / r->nodes;
    one.clients = 1;
    c = node_config(&one);
    c.room_slots += (uint64_t)r->nodes * r->trace.longest;
    return c;
}

static int run_nodes(struct replay *r)
{
    struct nodes_config config = {.job = &r->job,
                                  .node = one_of_nodes(r),
                                  .n = r->nodes,
                                  .overlap = r->clients,
                                  .kill_every = r->kill_every,
                                  .restart = r->restart,
                                  .seed = r->seed,
                                  .progress = show_progress,
                                  .arg = r};
    char why[400] = "";
    int error;

    cli_progress_begin(&r->progress, "replaying", r->trace.n_requests, false);
    error = nodes_run(&config, &r->nodes_result, why, sizeof(why));
    cli_progress_end(&r->progress);
    r->ns = r->nodes_result.ns;
    for (unsigned i = 0; i < r->nodes; i++)
        r->evicted_after += r->shared->client[i].evicted;
    return error ? cli_fail(error, NULL, why) : 0;
}

/* ---- all of it ---- */

static unsigned counters(const struct replay *r)
{
    return r->nodes ? r->nodes : r->clients;
}

static int report(struct replay *r)
{
    struct replay_counts *sum = calloc(1, sizeof(*sum));
    struct replay_report out = {.trace = &r->trace,
                                .sum = sum,
                                .name = r->generate ? r->generate : r->file,
                                .generated = r->generate != NULL,
                                .seed = r->seed,
                                .capacity = r->url ? 0 : r->capacity,
                                .block_size = r->block_size,
                                .policy = r->policy,
                                .bounded = r->bound,
                                .clients = r->clients,
                                .embedded = r->embedded,
                                .evictions = r->evicted_after - r->evicted_before,
                                .seconds = (double)r->ns / 1e9,
                                .nodes = r->nodes,
                                .node = r->shared->client,
                                .result = &r->nodes_result,
                                .kills = r->kill_every != 0,
                                .deadline_ns = r->deadline_ns};
    int code = 0;

    if (r->bound && bound_hits(&r->trace, r->capacity, &out.bound)) {
        free(sum);
        return cli_fail(-ENOMEM, NULL, "there is too little memory for the bound");
    }
    if (!sum)
        return cli_fail(-ENOMEM, NULL, "there is too little memory for the report");
    for (unsigned i = 0; i < counters(r); i++)
        replay_merge(sum, &r->shared->client[i]);
    if (cli.json)
        report_json(&out);
    else
        report_table(&out);
    if (sum->bad_bytes) {
        cli_warn("bytes that are not what was put: %llu", (unsigned long long)sum->bad_bytes);
        code = CLI_FAILED;
    }
    if (sum->overdue) {
        cli_warn("reads from peers that ended long after their deadline: %llu", (unsigned long long)sum->overdue);
        code = CLI_FAILED;
    }
    free(sum);
    return code;
}

/* What a request puts is there until it is released, and the group that was sealed last stays in any case. */
static int choose_capacity(struct replay *r)
{
    uint64_t least = (uint64_t)counters(r) * r->trace.longest, share = r->trace.distinct / CAPACITY_SHARE + 1;

    if (!r->capacity)
        r->capacity = share > least ? share : least;
    if (r->capacity >= least)
        return 0;
    return cli_usage("--capacity-blocks %llu: the longest request has %u block%s, all there at once%s: give %llu or "
                     "more",
                     (unsigned long long)r->capacity, r->trace.longest, plural(r->trace.longest),
                     r->nodes         ? " at each node"
                     : r->clients > 1 ? " for each client"
                                      : "",
                     (unsigned long long)least);
}

static int run(struct replay *r)
{
    int code;

    code = r->url ? 0 : choose_capacity(r);
    if (code)
        return code;
    r->shared_bytes = sizeof(*r->shared) + counters(r) * sizeof(r->shared->client[0]);
    r->shared = mmap(NULL, r->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->shared == MAP_FAILED)
        return cli_fail(-ENOMEM, NULL, "there is too little memory for the clients' counters");
    if (r->nodes && !r->deadline_ns)
        r->deadline_ns = DEADLINE_NS;
    /* A node that was killed evicts nothing old until the leases that it forgot must be over. */
    bool may_settle = !r->url && r->clients == 1 && !r->kill_every;
    uint64_t each = r->capacity / (r->nodes ? r->nodes : 1);
    r->job = (struct replay_job){.trace = &r->trace,
                                 .block_size = r->block_size,
                                 .speed = r->speed,
                                 .timeout_ns = cli.timeout_ns,
                                 .deadline_ns = r->deadline_ns,
                                 .settle = may_settle && each < (uint64_t)SETTLE_REQUESTS * r->trace.longest,
                                 .shared = r->shared};
    code = r->nodes ? run_nodes(r) : r->embedded ? run_embedded(r) : run_processes(r);
    if (code == CLI_REFUSED && !r->url) /* a node's own words are of its settings */
        cli_warn("its node%s room for --capacity-blocks %llu of --block-size %llu%s: give less of either",
                 r->nodes ? "s have" : " has", (unsigned long long)r->capacity, (unsigned long long)r->block_size,
                 r->nodes ? " together" : "");
    if (!code)
        code = report(r);
    munmap(r->shared, r->shared_bytes);
    return code;
}

int cmd_replay(int argc, char **argv)
{
    struct replay r = {.clients = 1,
                       .block_size = REPLAY_BLOCK_SIZE,
                       .policy = "pwl",
                       .requests = REPLAY_REQUESTS,
                       .seed = REPLAY_SEED,
                       .restart = RESTART_MIXED};
    int first = cli_parse(argc, argv, replay_options, set, &r), code;

    if (first <= 0)
        return -first;
    if (argc - first > (r.file ? 0 : 1))
        return cli_usage("one trace at a time");
    if (first < argc)
        r.file = argv[first];
    r.url = cli.node;
    code = check(&r);
    if (code)
        return code;
    if (!r.file && !r.generate)
        r.generate = "chat";
    code = load_trace(&r);
    if (code)
        return code;
    code = run(&r);
    trace_free(&r.trace);
    return code;
}
