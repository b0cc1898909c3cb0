#include "tools/bench/bench_pull_nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli.h"

#define READER 0u
#define OWNER 1u
#define OTHER 2u
#define HOME_WEIGHT 65535u /* all others have 1: it is home to nearly every key */
#define MEET_NS INT64_C(30000000000)
#define LOOK_NS INT64_C(500000)
#define READER_SPARE (UINT64_C(64) << 20)
#define SETTINGS_MAX 8u

static const char *const names[PULL_NODES] = {"a", "b", "c"};

/* ---- CPUs ---- */

int pull_nodes_cpus(struct pull_nodes *n, struct bench *b)
{
    cpu_set_t all;
    int first = -1, second = -1;

    n->b = b;
    sched_getaffinity(0, sizeof(all), &all);
    n->owner_cpus = n->reader_cpus = all;
    if (!b->pulls.pin)
        return 0;
    for (int i = 0; i < CPU_SETSIZE && second < 0; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        *(first < 0 ? &first : &second) = i;
    }
    if (second < 0)
        return cli_usage("--pin needs two CPUs: this process may use one");
    CPU_ZERO(&n->reader_cpus);
    CPU_SET(first, &n->reader_cpus);
    CPU_ZERO(&n->owner_cpus);
    CPU_SET(second, &n->owner_cpus);
    return 0;
}

void pull_nodes_use(const cpu_set_t *cpus)
{
    sched_setaffinity(0, sizeof(*cpus), cpus);
}

/* ---- settings ---- */

/* Free ones, all different: each is kept until the last is found. */
static int choose_ports(struct pull_nodes *n)
{
    int fd[PULL_NODES], error = 0;

    for (unsigned i = 0; i < PULL_NODES; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(a);

        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd[i] < 0 || bind(fd[i], (struct sockaddr *)(void *)&a, sizeof(a)) ||
            getsockname(fd[i], (struct sockaddr *)(void *)&a, &size))
            error = -errno;
        n->port[i] = ntohs(a.sin_port);
    }
    for (unsigned i = 0; i < PULL_NODES; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return error;
}

static unsigned members(const struct pull_nodes *n)
{
    return n->b->pulls.home == BENCH_HOME_OTHER ? PULL_NODES : PULL_NODES - 1;
}

static void make_list(struct pull_nodes *n)
{
    unsigned home = n->b->pulls.home == BENCH_HOME_READER  ? READER
                    : n->b->pulls.home == BENCH_HOME_OTHER ? OTHER
                                                           : OWNER;
    size_t used = (size_t)snprintf(n->list, sizeof(n->list), "peers=");

    for (unsigned i = 0; i < members(n); i++)
        used += (size_t)snprintf(n->list + used, sizeof(n->list) - used, "%s%s=tcp://127.0.0.1:%u*%u", i ? "," : "",
                                 names[i], n->port[i], i == home ? HOME_WEIGHT : 1u);
}

/* Leases last as long as they can: what a run measures is no renewal. */
static void make_settings(const struct pull_nodes *n, unsigned who, char text[2][64], const char *out[SETTINGS_MAX])
{
    unsigned count = 0;

    snprintf(text[0], sizeof(text[0]), "name=%s", names[who]);
    snprintf(text[1], sizeof(text[1]), "verify=%s", n->b->pulls.verify);
    out[count++] = text[0];
    out[count++] = text[1];
    out[count++] = n->list;
    out[count++] = "homes=1";
    out[count++] = "lease=30s";
    out[count++] = "lease-quota=100%";
    out[count] = NULL;
}

/* ---- nodes ---- */

static int start(struct pull_nodes *n, unsigned who, struct bench_node *node, uint64_t slots, uint64_t more,
                 struct berth **b)
{
    char text[2][64], why[256] = "";
    const char *settings[SETTINGS_MAX];
    uint64_t slot = bench_slot_bytes(n->b->size);
    struct bench_node_config config = {

        .slots = slots, .room_slots = (more + slot / 2) / slot, .slot_bytes = slot, .more = settings};
    int error;

    make_settings(n, who, text, settings);
    error = bench_node_start(node, &config, "berth bench", b, why, sizeof(why));
    return error ? cli_fail(error, n->b->which->name, why) : 0;
}

int pull_nodes_open(struct pull_nodes *n, uint64_t slots, uint64_t more)
{
    struct bench *b = n->b;
    int code;

    b->run = (uint64_t)bench_now() ^ (uint64_t)getpid() << 40;
    n->bytes = slots * bench_slot_bytes(b->size) * 5 / 4 + READER_SPARE;
    if (choose_ports(n))
        return cli_fail(-EADDRINUSE, b->which->name, "there is no free port on 127.0.0.1");
    make_list(n);
    code = start(n, OWNER, &b->node, slots, more, &n->owner_b);
    if (code)
        return code;
    b->b = n->owner_b;
    if (members(n) > OTHER)
        code = start(n, OTHER, &n->other, 1, READER_SPARE, &n->other_b);
    if (!code && berth_queue_open(b->b, BENCH_QUEUE, &b->queue))
        code = bench_fail(-ENOMEM);
    return code ? pull_nodes_close(n, code) : 0;
}

/* ---- the reader ---- */

static int status_of(struct berth *b, json_t **status)
{
    char *text = NULL;
    int error = berth_query(b, BERTH_STATUS, NULL, &text);

    if (error)
        return error;
    *status = json_loads(text, 0, NULL);
    free(text);
    return *status ? 0 : -ENOMEM;
}

/* Adds what the reader counted, or takes it off. */
static int add_counts(struct berth *b, struct pull_counts *c, int sign)
{
    static const struct {
        const char *path;
        size_t at;
    } figures[] = {{"pull/asks", offsetof(struct pull_counts, asks)},
                   {"pull/lease_requests", offsetof(struct pull_counts, leases)},
                   {"pull/renews", offsetof(struct pull_counts, renews)},
                   {"pull/verified", offsetof(struct pull_counts, verified)},
                   {"pull/done", offsetof(struct pull_counts, pulled)}};
    json_t *status, *peer;
    size_t i;
    int error = status_of(b, &status);

    if (error)
        return error;
    for (i = 0; i < sizeof(figures) / sizeof(*figures); i++)
        *(int64_t *)(void *)((uint8_t *)c + figures[i].at) += sign * cli_json_int(status, figures[i].path);
    json_array_foreach(json_object_get(status, "peers"), i, peer) c->messages +=
        sign * (cli_json_int(peer, "messages_in") + cli_json_int(peer, "messages_out"));
    json_decref(status);
    return 0;
}

int pull_nodes_counts(struct pull_nodes *n, struct pull_counts *c)
{
    *c = n->counts;
    return add_counts(n->b->b, c, 1);
}

static void wait_a_little(void)
{
    struct timespec t = {.tv_nsec = LOOK_NS};

    nanosleep(&t, NULL);
}

/* The keys' home knows all that the owner has. */
static int wait_published(struct pull_nodes *n, int64_t end)
{
    for (;;) {
        json_t *status;
        int error = status_of(n->owner_b, &status);
        bool done;

        if (error)
            return error;
        done = cli_json_int(status, "home/queued") == 0;
        json_decref(status);
        if (done)
            return 0;
        if (bench_now() > end)
            return -ETIMEDOUT;
        wait_a_little();
    }
}

/* By an object of its own, so that no lease on one that is measured is left behind. */
static int wait_connected(struct pull_nodes *n, int64_t end)
{
    char key[32], data[16];
    struct berth_key k = {.data = key, .size = (uint32_t)snprintf(key, sizeof(key), "meet-%016" PRIx64, n->b->run)};
    long got = berth_put(n->owner_b, k, key, sizeof(data), NULL);

    if (got < 0)
        return (int)got;
    do {
        got = berth_get_into(n->b->b, k, data, sizeof(data), BERTH_PEERS, end);
        if (got < 0)
            wait_a_little();
    } while ((got == -ENOENT || got == BERTH_EUNSURE || got == BERTH_ENOTNOW) && bench_now() < end);
    return got < 0 ? (int)got : 0;
}

static int open_reader(struct pull_nodes *n)
{
    char text[2][64], url[1024];
    const char *settings[SETTINGS_MAX];
    struct berth_open_opts opts = {.size = sizeof(opts), .name = "berth bench", .timeout_ns = cli.timeout_ns};
    size_t used = (size_t)snprintf(url, sizeof(url), "embedded:?pool=%" PRIu64 "&log-level=error", n->bytes);

    make_settings(n, READER, text, settings);
    for (unsigned i = 0; settings[i]; i++)
        used += (size_t)snprintf(url + used, sizeof(url) - used, "&%s", settings[i]);
    return berth_open(&n->b->b, url, &opts);
}

static void close_reader(struct pull_nodes *n)
{
    struct bench *b = n->b;

    if (b->b && b->b != n->owner_b)
        add_counts(b->b, &n->counts, 1);
    berth_queue_close(b->queue);
    b->queue = NULL;
    if (b->b != n->owner_b)
        berth_close(b->b);
    b->b = NULL;
}

int pull_nodes_reader(struct pull_nodes *n)
{
    struct bench *b = n->b;
    int64_t end = bench_now() + MEET_NS;
    int error;

    close_reader(n);
    error = open_reader(n);
    if (!error)
        error = berth_queue_open(b->b, BENCH_QUEUE, &b->queue);
    if (error)
        return bench_fail(error);
    error = wait_connected(n, end);
    if (!error)
        error = wait_published(n, end);
    if (!error)
        error = add_counts(b->b, &n->counts, -1);
    return error ? cli_fail(error, b->which->name, "the reader and the owner did not come together") : 0;
}

int pull_nodes_close(struct pull_nodes *n, int code)
{
    struct bench *b = n->b;
    int error;

    close_reader(n);
    berth_close(n->owner_b);
    berth_close(n->other_b);
    error = bench_node_stop(&b->node);
    if (n->other_b && bench_node_stop(&n->other))
        error = -EIO;
    return error && !code ? cli_fail(-EIO, b->which->name, "berthd did not stop cleanly") : code;
}
