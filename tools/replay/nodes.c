#include "tools/replay/nodes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli.h"
#include "tools/replay/node_process.h"
#include "tools/replay/nodes_place.h"

#define STARTS 8u                         /* with other ports, where one was taken meanwhile */
#define MEET_NS INT64_C(30000000000)      /* at the start: the others have to be there */
#define MEET_AGAIN_NS INT64_C(2000000000) /* after a kill: another may be down, too */
#define HANG_NS INT64_C(180000000000)     /* a request takes no longer: a put waits for room for a third of it */
#define KILL_DELAY_NS UINT64_C(1000000)   /* between a request's begin and the kill, at most */
#define END_NS INT64_C(60000000000)

enum node_state { NODE_DOWN, NODE_STARTING, NODE_IDLE, NODE_BUSY };

struct node {
    enum node_state state;
    pid_t pid;
    int control;
    int64_t since;    /* of the state, CLOCK_MONOTONIC ns */
    uint64_t back_at; /* DOWN: the request before which it starts again */
};

struct nodes {
    const struct nodes_config *c;
    struct nodes_result *result;
    struct nodes_place place;
    struct node node[NODES_MAX];
    unsigned turn;
    uint64_t draws;
    bool in_use; /* a port was */
    char *why;
    size_t why_size;
};

/* ---- chance ---- */

/* SplitMix64: kills depend on the seed alone. */
static uint64_t draw(struct nodes *ns)
{
    uint64_t z = ns->c->seed + ++ns->draws * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- one node ---- */

static void become_node(struct nodes *ns, unsigned i, int control, bool first)
{
    struct node_process p = {.job = ns->c->job,
                             .index = i,
                             .n = ns->c->n,
                             .control = control,
                             .meet_ns = first ? MEET_NS : MEET_AGAIN_NS,
                             .must_meet = first,
                             .c = &ns->c->job->shared->client[i]};
    char url[NODES_URL];

    for (unsigned k = 0; k < ns->c->n; k++)
        if (ns->node[k].control >= 0)
            close(ns->node[k].control);
    nodes_place_url(&ns->place, &ns->c->node, i, ns->c->n, url);
    p.url = url;
    _exit(node_process(&p) ? 1 : 0);
}

static int start_node(struct nodes *ns, unsigned i, bool first)
{
    struct node *n = &ns->node[i];
    pid_t parent = getpid();
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    fflush(NULL);
    n->pid = fork();
    if (n->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(ends[0]);
        become_node(ns, i, ends[1], first);
    }
    close(ends[1]);
    if (n->pid < 0) {
        close(ends[0]);
        return -errno;
    }
    n->control = ends[0];
    n->state = NODE_STARTING;
    n->since = cli_now();
    return 0;
}

static int end_node(struct nodes *ns, unsigned i, int signal)
{
    struct node *n = &ns->node[i];
    int status = 0;

    if (n->state == NODE_DOWN)
        return 0;
    if (signal)
        kill(n->pid, signal);
    close(n->control);
    while (waitpid(n->pid, &status, 0) < 0 && errno == EINTR)
        ;
    n->control = -1;
    n->state = NODE_DOWN;
    return status;
}

/* ---- what they say ---- */

static int failed(struct nodes *ns, int error, const char *what, unsigned i)
{
    const struct replay_counts *c = &ns->c->job->shared->client[i];

    snprintf(ns->why, ns->why_size, "node %u: %s", i, c->error ? c->sentence : what);
    return c->error ? c->error : error;
}

static int hear(struct nodes *ns, unsigned i)
{
    struct node *n = &ns->node[i];
    struct node_word w;
    ssize_t got = recv(n->control, &w, sizeof(w), MSG_DONTWAIT);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got != sizeof(w))
        return failed(ns, -EIO, "its process ended before its time", i);
    if (w.says == NODE_FAILED) {
        ns->in_use = w.in_use;
        return failed(ns, -EIO, "it failed", i);
    }
    n->state = NODE_IDLE;
    n->since = cli_now();
    return 0;
}

/* Hears what is said within so many ms; -ETIMEDOUT where one of them says nothing for far too long. */
static int listen_to(struct nodes *ns, int timeout_ms)
{
    struct pollfd fds[NODES_MAX];
    int64_t now;
    int error = 0;

    for (unsigned i = 0; i < ns->c->n; i++)
        fds[i] = (struct pollfd){.fd = ns->node[i].control, .events = POLLIN};
    if (poll(fds, ns->c->n, timeout_ms) < 0)
        return errno == EINTR ? 0 : -errno;
    now = cli_now();
    for (unsigned i = 0; !error && i < ns->c->n; i++) {
        struct node *n = &ns->node[i];

        if (n->control >= 0 && fds[i].revents)
            error = hear(ns, i);
        else if ((n->state == NODE_BUSY || n->state == NODE_STARTING) && now - n->since > HANG_NS)
            error = failed(ns, -ETIMEDOUT, "it hangs", i);
    }
    return error;
}

static unsigned in_state(const struct nodes *ns, enum node_state state)
{
    unsigned count = 0;

    for (unsigned i = 0; i < ns->c->n; i++)
        count += ns->node[i].state == state;
    return count;
}

/* Until none is in this state. */
static int wait_out(struct nodes *ns, enum node_state state)
{
    int error = 0;

    while (!error && in_state(ns, state))
        error = listen_to(ns, 1000);
    return error;
}

/* ---- kills ---- */

static int start_again(struct nodes *ns, unsigned i)
{
    bool warm = ns->c->restart == RESTART_WARM || (ns->c->restart == RESTART_MIXED && draw(ns) % 2);

    if (!warm)
        nodes_place_empty(&ns->place, i);
    ns->result->warm += warm;
    ns->result->cold += !warm;
    return start_node(ns, i, false);
}

static int start_due(struct nodes *ns, uint64_t request)
{
    int error = 0;

    for (unsigned i = 0; !error && i < ns->c->n; i++)
        if (ns->node[i].state == NODE_DOWN && ns->node[i].back_at <= request)
            error = start_again(ns, i);
    return error;
}

/* In the middle of a request that has just begun: at the node that has it, or at one that may be read from. */
static void kill_one(struct nodes *ns, uint64_t request)
{
    unsigned i = (unsigned)(draw(ns) % ns->c->n);
    struct timespec pause = {.tv_nsec = (long)(draw(ns) % KILL_DELAY_NS)};

    nanosleep(&pause, NULL);
    end_node(ns, i, SIGKILL);
    ns->node[i].back_at = request + 1 + ns->c->kill_every / 4;
    ns->result->kills++;
    ns->result->node_kills[i]++;
}

/* ---- requests ---- */

/* The one whose turn it is; those that are down are passed over. NULL: it has a request still. */
static struct node *next_node(struct nodes *ns)
{
    for (unsigned k = 0; k < ns->c->n; k++) {
        struct node *n = &ns->node[(ns->turn + k) % ns->c->n];

        if (n->state == NODE_BUSY)
            return NULL;
        if (n->state == NODE_IDLE) {
            ns->turn = (ns->turn + k + 1) % ns->c->n;
            return n;
        }
    }
    return NULL;
}

static int send_request(struct nodes *ns, uint64_t index)
{
    struct node *n = NULL;
    int error = 0;

    while (!error && (in_state(ns, NODE_BUSY) >= ns->c->overlap || !(n = next_node(ns))))
        error = listen_to(ns, 1000);
    if (error)
        return error;
    n->state = NODE_BUSY;
    n->since = cli_now();
    if (send(n->control, &index, sizeof(index), MSG_NOSIGNAL) != sizeof(index))
        return listen_to(ns, 1000); /* which hears why */
    return 0;
}

static int wait_for_its_time(struct nodes *ns, uint64_t index)
{
    int64_t due = ns->c->job->speed > 0 ? replay_due(ns->c->job, index) : 0, now;
    int error = 0;

    while (!error && (now = cli_now()) < due)
        error = listen_to(ns, due - now < 1000000000 ? (int)((due - now + 999999) / 1000000) : 1000);
    return error;
}

static int one_request(struct nodes *ns, uint64_t index)
{
    uint64_t every = ns->c->kill_every, after = every ? index % every : 0;
    bool kills = every && index && after == 0;
    int error = start_due(ns, index);

    if (!error && every && (kills || after == every / 2)) /* for half of the time all are there */
        error = wait_out(ns, NODE_STARTING);
    if (!error)
        error = wait_for_its_time(ns, index);
    if (!error)
        error = send_request(ns, index);
    if (!error && kills)
        kill_one(ns, index);
    if (!error && ns->c->progress)
        ns->c->progress(ns->c->arg, index);
    return error;
}

static int all_requests(struct nodes *ns)
{
    uint64_t n = ns->c->job->trace->n_requests;
    int error = 0;

    ns->c->job->shared->begin = cli_now();
    for (uint64_t i = 0; !error && i < n; i++)
        error = one_request(ns, i);
    if (!error)
        error = wait_out(ns, NODE_BUSY);
    ns->result->ns = cli_now() - ns->c->job->shared->begin;
    ns->result->cut = n;
    for (unsigned i = 0; i < ns->c->n; i++)
        ns->result->cut -= ns->c->job->shared->client[i].requests;
    if (!error)
        error = start_due(ns, UINT64_MAX);
    return error ? error : wait_out(ns, NODE_STARTING);
}

/* ---- all of it ---- */

static int start_all(struct nodes *ns)
{
    int error = 0;

    for (unsigned i = 0; !error && i < ns->c->n; i++)
        error = start_node(ns, i, true);
    return error ? error : wait_out(ns, NODE_STARTING);
}

static void end_all(struct nodes *ns)
{
    for (unsigned i = 0; i < ns->c->n; i++)
        end_node(ns, i, SIGKILL);
}

static int start(struct nodes *ns)
{
    int error = -EADDRINUSE;

    for (unsigned i = 0; i < STARTS && error; i++) {
        ns->in_use = false;
        ns->why[0] = 0;
        error = nodes_place_ports(&ns->place, ns->c->n);
        for (unsigned k = 0; !error && k < ns->c->n; k++)
            ns->c->job->shared->client[k].error = 0;
        error = error ? error : start_all(ns);
        if (error)
            end_all(ns);
        if (error && !ns->in_use)
            break;
    }
    return error;
}

static int stop(struct nodes *ns)
{
    int error = 0;

    for (unsigned i = 0; i < ns->c->n; i++)
        if (end_node(ns, i, 0) && !error)
            error = failed(ns, -EIO, "it did not stop cleanly", i);
    return error;
}

int nodes_run(const struct nodes_config *config, struct nodes_result *out, char *why, size_t why_size)
{
    struct nodes ns = {.c = config, .result = out, .why = why, .why_size = why_size};
    int error;

    *out = (struct nodes_result){0};
    why[0] = 0;
    for (unsigned i = 0; i < config->n; i++)
        ns.node[i].control = -1;
    error = nodes_place_open(&ns.place);
    if (!error) {
        error = start(&ns);
        if (!error)
            error = all_requests(&ns);
        if (!error)
            error = stop(&ns);
        end_all(&ns);
        nodes_place_close(&ns.place);
    }
    if (error && !why[0])
        snprintf(why, why_size, "%s", berth_error_text(error));
    return error;
}
