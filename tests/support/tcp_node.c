#include "tests/support/tcp_node.h"

#include "tests/support/child.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 20000000000LL

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- what it tells ---- */

static void on_connected(void *env, struct connection *c, int status, const char *why)
{
    struct tcp_node *n = env;
    n->status = status;
    n->connected += status == 0;
    n->failed += status < 0;
    n->c = status == 0 ? c : NULL;
    snprintf(n->why, sizeof n->why, "%s", why);
}

static void on_accepted(void *env, struct connection *c)
{
    struct tcp_node *n = env;
    n->accepted++;
    n->c = c;
}

static void on_closed(void *env, struct connection *c, int status, const char *why)
{
    struct tcp_node *n = env;
    n->closed++;
    n->status = status;
    n->c = n->c == c ? NULL : n->c;
    snprintf(n->why, sizeof n->why, "%s", why);
}

static void on_message(void *env, struct connection *c, const void *bytes, size_t size)
{
    struct tcp_node *n = env;
    uint32_t number = 0;
    (void)c;
    n->messages++;
    free(n->message);
    n->message = malloc(size);
    memcpy(n->message, bytes, size);
    n->message_bytes = size;
    memcpy(&number, bytes, size < sizeof number ? size : sizeof number);
    n->disorder += number != n->next_number++;
}

static void on_room(void *env, struct connection *c)
{
    (void)c;
    ((struct tcp_node *)env)->rooms++;
}

static int on_admit(void *env, struct connection *c, const struct transport_want *want, uint64_t *token)
{
    struct tcp_node *n = env;
    (void)c;
    if (n->admit_answer < 0 || want->generation != want->lease + 1) {
        return n->admit_answer < 0 ? n->admit_answer : -ESTALE;
    }
    n->admitted++;
    *token = ++n->last_token;
    return 0;
}

static void on_served(void *env, struct connection *c, uint64_t lease, uint64_t token, int status)
{
    struct tcp_node *n = env;
    (void)c, (void)lease, (void)token;
    n->served++;
    n->served_status = status;
    n->served_errors += status != 0;
}

static const struct transport_events events = {on_connected, on_accepted, on_closed, on_message,
                                               on_room,      on_admit,    on_served};

/* ---- nodes ---- */

static void make_pool(struct tcp_node *n, uint64_t bytes)
{
    n->fd = memfd_create("pool", MFD_CLOEXEC);
    CHECK(n->fd >= 0 && ftruncate(n->fd, (off_t)bytes) == 0);
    n->pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, n->fd, 0);
    CHECK(n->pool != MAP_FAILED);
    n->pool_bytes = bytes;
    for (uint64_t i = 0; i < bytes; i += sizeof i) {
        uint64_t word = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(n->pool + i, &word, sizeof word);
    }
    CHECK(tcp_transport.expose(n->ctx, n->fd, n->pool, bytes) == 0);
}

void tcp_node_open(struct tcp_node *n, const struct transport_config *config, uint64_t pool_bytes)
{
    struct transport_config c = config ? *config : (struct transport_config){0};
    *n = (struct tcp_node){.fd = -1};
    if (!c.listen && pool_bytes) {
        c.listen = "127.0.0.1:0";
    }
    if (tcp_transport.open(&n->ctx, &c, &events, n, n->why, sizeof n->why) < 0) {
        fprintf(stderr, "%s\n", n->why);
        CHECK(!"open");
    }
    if (c.listen) {
        CHECK(tcp_transport.address(n->ctx, n->address, sizeof n->address) > 0);
    }
    if (pool_bytes) {
        make_pool(n, pool_bytes);
    }
}

void tcp_node_close(struct tcp_node *n)
{
    tcp_transport.close(n->ctx);
    free(n->message);
    if (n->pool) {
        munmap(n->pool, n->pool_bytes);
        close(n->fd);
    }
}

void tcp_nodes_turn(struct tcp_node **nodes, int n, int wait_ms)
{
    struct pollfd p[8];
    for (int i = 0; i < n; i++) {
        p[i] = (struct pollfd){.fd = tcp_transport.descriptor(nodes[i]->ctx), .events = POLLIN};
    }
    poll(p, (nfds_t)n, wait_ms);
    for (int i = 0; i < n; i++) {
        struct transport_stats s;
        CHECK(tcp_transport.turn(nodes[i]->ctx) >= 0);
        tcp_transport.stats(nodes[i]->ctx, &s);
        nodes[i]->most_flying = s.in_flight > nodes[i]->most_flying ? s.in_flight : nodes[i]->most_flying;
    }
}

void tcp_nodes_until(struct tcp_node **nodes, int n, bool (*done)(void *arg), void *arg)
{
    int64_t end = now() + PATIENCE_NS;
    while (!done(arg)) {
        tcp_nodes_turn(nodes, n, 100);
        CHECK(now() < end);
    }
}

static bool is_paired(void *arg)
{
    struct tcp_node **n = arg;
    return (n[0]->c && n[1]->c) || n[0]->failed;
}

void tcp_nodes_pair(struct tcp_node *a, struct tcp_node *b)
{
    struct tcp_node *both[] = {a, b};
    struct connection *c;
    CHECK(tcp_transport.connect(a->ctx, b->address, NULL, &c, a->why, sizeof a->why) == 0);
    tcp_nodes_until(both, 2, is_paired, both);
    CHECK(a->failed == 0 && a->c == c && !c->incoming && b->c->incoming);
}

/* ---- jobs ---- */

static void on_progress(struct transfer *t, uint64_t offset, const void *at, size_t n)
{
    struct tcp_job *j = t->owner;
    (void)at;
    j->disorder += offset != j->progressed;
    j->progressed += n;
    if (j->cancel_at && j->progressed >= j->cancel_at) {
        j->disorder += tcp_transport.cancel(j->node->ctx, t) != 0;
    }
}

static void on_complete(struct transfer *t)
{
    ((struct tcp_job *)t->owner)->completions++;
}

static size_t memory_bytes(const struct tcp_job *j)
{
    return j->t.bytes + (size_t)TCP_GAP * (j->t.parts + 1);
}

void tcp_job_init(struct tcp_job *j, struct tcp_node *n, uint64_t offset, uint64_t bytes, uint32_t parts)
{
    *j = (struct tcp_job){.node = n};
    j->t = (struct transfer){.lease = 7,
                             .generation = 8,
                             .offset = offset,
                             .bytes = bytes,
                             .to = j->to,
                             .parts = parts,
                             .deadline = INT64_MAX,
                             .progress = on_progress,
                             .complete = on_complete,
                             .owner = j};
    j->memory = malloc(memory_bytes(j));
    CHECK(j->memory && parts <= 64);
    uint8_t *at = j->memory + TCP_GAP;
    for (uint32_t i = 0; i < parts; i++) {
        /* Uneven, and one of them empty where there are many. */
        size_t size = i + 1 == parts ? bytes : parts > 3 && i == 1 ? 0 : bytes / (parts - i + 1);
        j->to[i] = (struct iovec){at, size};
        at += size + TCP_GAP;
        bytes -= size;
    }
    tcp_job_poison(j);
}

void tcp_job_post(struct tcp_job *j)
{
    CHECK(tcp_transport.read(j->node->ctx, j->node->c, &j->t) == 0);
}

bool tcp_job_done(void *job)
{
    return ((struct tcp_job *)job)->completions > 0;
}

static bool is_poison(const uint8_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != TCP_POISON) {
            return false;
        }
    }
    return true;
}

bool tcp_job_is_right(const struct tcp_job *j, const uint8_t *pool)
{
    const uint8_t *at = pool + j->t.offset;
    bool right = is_poison(j->memory, TCP_GAP) && j->completions == 1 && j->t.status == 0 && j->disorder == 0 &&
                 j->progressed == j->t.bytes && j->t.state == TRANSFER_COMPLETED;
    for (uint32_t i = 0; i < j->t.parts && right; i++) {
        const uint8_t *part = j->to[i].iov_base;
        right = memcmp(part, at, j->to[i].iov_len) == 0 && is_poison(part + j->to[i].iov_len, TCP_GAP);
        at += j->to[i].iov_len;
    }
    return right;
}

void tcp_job_poison(struct tcp_job *j)
{
    memset(j->memory, TCP_POISON, memory_bytes(j));
}

bool tcp_job_is_poison(const struct tcp_job *j)
{
    return is_poison(j->memory, memory_bytes(j));
}

void tcp_job_free(struct tcp_job *j)
{
    free(j->memory);
}
