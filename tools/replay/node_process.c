#include "tools/replay/node_process.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tools/cli.h"

#define LOOK_NS INT64_C(1000000)
#define COUNT_REQUESTS 16u /* the node's own counts are read after so many, so that a kill takes few of them along */

struct node {
    const struct node_process *p;
    struct replay_client *client;
    uint64_t asks, leases, evicted; /* of the processes before this one */
    unsigned requests;              /* since its counts were read */
};

static void say(const struct node *n, enum node_says what)
{
    struct node_word w = {.says = what, .in_use = n->p->c->error == -EADDRINUSE};

    while (send(n->p->control, &w, sizeof(w), MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

static int status(struct node *n, json_t **out)
{
    char *text = NULL;
    int error = berth_query(replay_client_handle(n->client), BERTH_STATUS, NULL, &text);

    *out = error ? NULL : json_loads(text, 0, NULL);
    free(text);
    return error ? error : *out ? 0 : -ENOMEM;
}

static void read_counts(struct node *n)
{
    json_t *s;

    if (status(n, &s))
        return;
    n->p->c->asks = n->asks + (uint64_t)cli_json_int(s, "pull/asks");
    n->p->c->leases = n->leases + (uint64_t)cli_json_int(s, "pull/lease_requests");
    n->p->c->evicted = n->evicted + (uint64_t)cli_json_int(s, "counters/evicted");
    json_decref(s);
    n->requests = 0;
}

/* Every other one is up, each has told the other's home what it has. */
static bool has_met(const struct node *n, const json_t *s)
{
    const json_t *peers = json_object_get(s, "peers"), *one;
    unsigned up = 0;
    size_t i;

    json_array_foreach(peers, i, one)
    {
        const char *state = json_string_value(json_object_get(one, "state"));

        up += state && strcmp(state, "up") == 0;
    }
    return up == n->p->n - 1 && cli_json_int(s, "home/missing") == 0 && cli_json_int(s, "home/queued") == 0 &&
           cli_json_int(s, "home/current") >= (json_int_t)n->p->n;
}

static int meet(struct node *n)
{
    int64_t end = cli_now() + n->p->meet_ns;
    struct timespec pause = {.tv_nsec = LOOK_NS};
    bool met = false;
    json_t *s;
    int error;

    while ((error = status(n, &s)) == 0) {
        met = has_met(n, s);
        json_decref(s);
        if (met || cli_now() > end)
            break;
        nanosleep(&pause, NULL);
    }
    if (error == 0 && !met && n->p->must_meet)
        error = -ETIMEDOUT;
    return error;
}

static int fail(const struct node *n, int error, const char *what)
{
    struct replay_counts *c = n->p->c;

    if (!c->error) {
        c->error = error;
        snprintf(c->sentence, sizeof(c->sentence), "%s: %s", what, berth_error_text(error));
    }
    say(n, NODE_FAILED);
    return error;
}

/* 1: a request; 0: there will be no more. */
static int next_request(const struct node *n, uint64_t *index)
{
    ssize_t got;

    while ((got = recv(n->p->control, index, sizeof(*index), 0)) < 0 && errno == EINTR)
        ;
    return got == sizeof(*index) ? 1 : got == 0 ? 0 : -EIO;
}

static int take_requests(struct node *n)
{
    uint64_t index;
    int error;

    while ((error = next_request(n, &index)) > 0) {
        error = replay_client_request(n->client, index);
        if (error)
            break;
        if (++n->requests >= COUNT_REQUESTS)
            read_counts(n);
        say(n, NODE_DONE);
    }
    if (error)
        return fail(n, error, "request");
    read_counts(n);
    return 0;
}

int node_process(const struct node_process *p)
{
    struct node n = {.p = p, .asks = p->c->asks, .leases = p->c->leases, .evicted = p->c->evicted};
    int error = replay_client_open(&n.client, p->job, p->url, p->c);

    if (error)
        return fail(&n, error, "open");
    error = meet(&n);
    if (error) {
        fail(&n, error, "wait for the other nodes");
    } else {
        say(&n, NODE_READY);
        error = take_requests(&n);
    }
    replay_client_close(n.client);
    return error;
}
