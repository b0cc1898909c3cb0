/* tcp.c: the context of the TCP transport: its descriptor, its turn, its timer. */
#include "replication/tcp_internal.h"

#include "store/clock.h"
#include "store/fd.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define ROUNDS_MAX 4
#define LOOKS 8u /* each so many takes in all lanes */
#define SECOND 1000000000LL
#define WINDOW_MIN (64u << 10)
#define CHUNK_MIN (4u << 10)

int64_t tcp_now(void)
{
    return clock_mono();
}

void tcp_enter(struct tcp *ctx)
{
    ctx->depth++;
}

void tcp_leave(struct tcp *ctx)
{
    if (--ctx->depth == 0) {
        tcp_bury(ctx);
    }
}

void tcp_due(struct tcp *ctx, int64_t due)
{
    if (due >= ctx->timer_at) {
        return;
    }
    /* A time of 0 would turn the timer off. */
    int64_t at = due > 1 ? due : 1;
    struct itimerspec when = {.it_value = {.tv_sec = at / SECOND, .tv_nsec = at % SECOND}};
    if (timerfd_settime(ctx->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0) {
        ctx->timer_at = due;
    }
}

void tcp_arm(struct tcp_lane *lane, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = &lane->source};
    if (lane->fd >= 0 && lane->armed != events && epoll_ctl(lane->ctx->epoll_fd, EPOLL_CTL_MOD, lane->fd, &e) == 0) {
        lane->armed = events;
    }
}

void tcp_dirty(struct tcp_lane *lane)
{
    struct tcp *ctx = lane->ctx;
    if (lane->dirty || lane->fd < 0) {
        return;
    }
    lane->dirty = true;
    TAILQ_INSERT_TAIL(&ctx->dirty, lane, dirty_link);
    uint64_t one = 1;
    if (!ctx->in_turn && !ctx->kicked && !ctx->config.flushed &&
        write(ctx->kick_fd, &one, sizeof one) == (ssize_t)sizeof one) {
        ctx->kicked = true;
    }
}

void tcp_lazy(struct tcp_lane *lane)
{
    if (!lane->lazy && lane->fd >= 0) {
        lane->lazy = true;
        lane->lazy_due = tcp_now() + lane->ctx->config.done_ns;
        TAILQ_INSERT_TAIL(&lane->ctx->lazy, lane, lazy_link);
        tcp_due(lane->ctx, lane->lazy_due);
    }
}

/* What has been put off for long enough. In the order of their times. */
static void hurry(struct tcp *ctx, int64_t now)
{
    struct tcp_lane *lane;
    while ((lane = TAILQ_FIRST(&ctx->lazy)) && lane->lazy_due <= now) {
        tcp_not_lazy(lane);
        tcp_dirty(lane);
    }
    if (lane) {
        tcp_due(ctx, lane->lazy_due);
    }
}

void tcp_not_lazy(struct tcp_lane *lane)
{
    if (lane->lazy) {
        TAILQ_REMOVE(&lane->ctx->lazy, lane, lazy_link);
        lane->lazy = false;
    }
}

static size_t send_dirty(struct tcp *ctx, bool bulk)
{
    size_t sent = 0;
    struct tcp_lane *lane, *next;
    for (lane = TAILQ_FIRST(&ctx->dirty); lane; lane = next) {
        next = TAILQ_NEXT(lane, dirty_link);
        if (lane->kind == LANE_BULK && !bulk) {
            continue;
        }
        TAILQ_REMOVE(&ctx->dirty, lane, dirty_link);
        lane->dirty = false;
        /* A full socket says itself when it has room. */
        if (!(lane->armed & EPOLLOUT)) {
            sent += tcp_transmit(lane, LANE_QUOTA);
            next = TAILQ_FIRST(&ctx->dirty); /* `room` may have ended any lane */
        }
    }
    return sent;
}

/* ---- opening ---- */

static void defaults(struct transport_config *c)
{
    c->window = c->window ? c->window : 32u << 20;
    c->source_window = c->source_window ? c->source_window : 8u << 20;
    c->chunk = c->chunk ? c->chunk : 256u << 10;
    c->small = c->small ? c->small : 16u << 10;
    c->sendfile_min = c->sendfile_min ? c->sendfile_min : 32u << 10;
    c->sendfile_max = c->sendfile_max ? c->sendfile_max : 256u << 10;
    c->sendfile_queue = c->sendfile_queue ? c->sendfile_queue : 4;
    c->message_queue = c->message_queue ? c->message_queue : 1u << 20;
    c->turn_bytes = c->turn_bytes ? c->turn_bytes : 1u << 20;
    c->connections = c->connections ? c->connections : 1024;
    c->unfinished = c->unfinished ? c->unfinished : 64;
    c->connect_timeout_ns = c->connect_timeout_ns ? c->connect_timeout_ns : 3 * SECOND;
    c->silence_ns = c->silence_ns ? c->silence_ns : 5 * SECOND;
}

static const char *config_fault(const struct transport_config *c)
{
    if (c->window < WINDOW_MIN || c->source_window < WINDOW_MIN) {
        return "the window is smaller than 64 KiB";
    }
    if (c->chunk < CHUNK_MIN || c->chunk > FRAME_DATA_MAX) {
        return "the chunk size is not 4 KiB to 4 MiB";
    }
    if (c->small > SMALL_MAX) {
        return "small transfers are of at most 32 KiB";
    }
    if (c->done_ns < 0 || c->done_ns > DONE_NS_MAX) {
        return "the time for a DONE to wait is not 0 to 10 ms";
    }
    return c->connect_timeout_ns < 0 || c->silence_ns < 0 ? "a time-out is negative" : NULL;
}

static int watch(struct tcp *ctx, int fd, enum source_kind *source)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

static int make_descriptors(struct tcp *ctx)
{
    ctx->epoll_fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
    ctx->timer_fd =
        ctx->epoll_fd < 0 ? -1 : fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    ctx->kick_fd = ctx->timer_fd < 0 ? -1 : fd_above_stdio(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (ctx->kick_fd < 0) {
        return -errno;
    }
    int e = watch(ctx, ctx->timer_fd, &ctx->timer);
    return e < 0 ? e : watch(ctx, ctx->kick_fd, &ctx->kick);
}

static void free_context(struct tcp *ctx)
{
    const int fds[] = {ctx->listen_fd, ctx->kick_fd, ctx->timer_fd, ctx->epoll_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(ctx);
}

static void init(struct tcp *ctx, const struct transport_config *config, const struct transport_events *events,
                 void *env)
{
    ctx->config = *config;
    ctx->events = *events;
    ctx->env = env;
    ctx->epoll_fd = ctx->timer_fd = ctx->kick_fd = ctx->listen_fd = ctx->pool_fd = -1;
    ctx->listener = SOURCE_LISTENER;
    ctx->timer = SOURCE_TIMER;
    ctx->kick = SOURCE_KICK;
    ctx->timer_at = INT64_MAX;
    TAILQ_INIT(&ctx->strangers);
    TAILQ_INIT(&ctx->dirty);
    TAILQ_INIT(&ctx->lazy);
    TAILQ_INIT(&ctx->dead_lanes);
    TAILQ_INIT(&ctx->connections);
    TAILQ_INIT(&ctx->wanting);
    TAILQ_INIT(&ctx->dead);
}

static int tcp_open(void **out, const struct transport_config *config, const struct transport_events *events, void *env,
                    char *why, size_t why_size)
{
    struct transport_config c = *config;
    defaults(&c);
    const char *bad = config_fault(&c);
    if (bad) {
        snprintf(why, why_size, "%s", bad);
        return -EINVAL;
    }
    struct tcp *ctx = calloc(1, sizeof *ctx);
    if (!ctx) {
        snprintf(why, why_size, "no memory for the TCP transport");
        return -ENOMEM;
    }
    init(ctx, &c, events, env);
    ctx->file_local = config->sendfile_queue > 0;
    int e = make_descriptors(ctx);
    if (e < 0) {
        snprintf(why, why_size, "cannot make the descriptors of the TCP transport: %s", strerror(-e));
    } else if (c.listen) {
        e = tcp_listen(ctx, why, why_size);
        e = e < 0 ? e : watch(ctx, ctx->listen_fd, &ctx->listener);
    }
    ctx->config.listen = NULL; /* the caller's string */
    if (e < 0) {
        free_context(ctx);
        return e;
    }
    *out = ctx;
    return 0;
}

static void tcp_close(void *arg)
{
    struct tcp *ctx = arg;
    struct tcp_connection *c;
    struct tcp_lane *lane;
    tcp_enter(ctx);
    while ((c = TAILQ_FIRST(&ctx->connections))) {
        tcp_end(c, -ECONNRESET, "closed by this side", false);
    }
    while ((lane = TAILQ_FIRST(&ctx->strangers))) {
        tcp_lane_close(lane);
    }
    tcp_leave(ctx);
    free_context(ctx);
}

static int tcp_own_address(void *arg, char *text, size_t size)
{
    struct tcp *ctx = arg;
    if (ctx->listen_fd < 0) {
        return 0;
    }
    int port = ntohs(ctx->listen.any.sa_family == AF_INET ? ctx->listen.v4.sin_port : ctx->listen.v6.sin6_port);
    if (size < 1) {
        return -ENOSPC;
    }
    if (tcp_address_is_any(&ctx->listen)) {
        *text = '\0';
        return port;
    }
    int e = tcp_address_print(&ctx->listen, text, size);
    return e < 0 ? e : port;
}

static int tcp_descriptor(void *arg)
{
    return ((struct tcp *)arg)->epoll_fd;
}

/* ---- looking ---- */

/* An ioctl of one socket takes a fifth of a poll of the epoll, which takes locks; and it is no point of cancellation,
 * which costs as much again. It does not tell of an end, nor of any other lane: those wait for some looks. */
static bool tcp_look(void *arg)
{
    struct tcp *ctx = arg;
    int bytes = 0;
    if (ctx->hot && ctx->hot->armed & EPOLLIN && ++ctx->looks % LOOKS != 0) {
        ctx->hot_ready = ioctl(ctx->hot->fd, SIOCINQ, &bytes) == 0 && bytes > 0;
        return ctx->hot_ready;
    }
    struct pollfd all = {.fd = ctx->epoll_fd, .events = POLLIN};
    return poll(&all, 1, 0) > 0;
}

/* ---- turning ---- */

static void unkick(struct tcp *ctx)
{
    uint64_t n;
    if (ctx->kicked && read(ctx->kick_fd, &n, sizeof n) == (ssize_t)sizeof n) {
        ctx->kicked = false;
    }
}

static void timer_fired(struct tcp *ctx)
{
    uint64_t n;
    if (read(ctx->timer_fd, &n, sizeof n) == (ssize_t)sizeof n) {
        ctx->timer_at = INT64_MAX;
        hurry(ctx, tcp_now());
        tcp_overdue(ctx, tcp_now());
    }
}

static size_t on_lane(struct tcp_lane *lane, uint32_t events)
{
    size_t moved = 0;
    if (lane->fd < 0) {
        return 0; /* an event before it, in the same round, has ended it */
    }
    if (lane->stage != LANE_OPEN) {
        tcp_lane_made(lane, events);
        return 0;
    }
    if (events & ~(uint32_t)EPOLLOUT) {
        moved += tcp_receive(lane, LANE_QUOTA);
    }
    if ((events & EPOLLOUT) && lane->fd >= 0) {
        moved += tcp_transmit(lane, LANE_QUOTA);
    }
    return moved;
}

static size_t on_event(struct tcp *ctx, enum source_kind *source, uint32_t events)
{
    switch (*source) {
    case SOURCE_LISTENER:
        tcp_accept(ctx);
        return 0;
    case SOURCE_TIMER:
        timer_fired(ctx);
        return 0;
    case SOURCE_KICK:
        unkick(ctx);
        return 0;
    case SOURCE_LANE:
        break;
    }
    return on_lane((struct tcp_lane *)((char *)source - offsetof(struct tcp_lane, source)), events);
}

static bool is_bulk(const enum source_kind *source)
{
    return *source == SOURCE_LANE &&
           ((const struct tcp_lane *)((const char *)source - offsetof(struct tcp_lane, source)))->kind == LANE_BULK;
}

/* Somebody waits for a small transfer that is done, and hears of it after the turn. Not twice in a row: bulk must go on
 * beside any number of small ones. */
static bool ends_early(struct tcp *ctx)
{
    ctx->bulk_owed = ctx->small_done && !ctx->bulk_owed;
    return ctx->bulk_owed;
}

/* Control lanes go first, and what they have to say leaves before bulk is moved: a small transfer waits for at most
 * one quota of each busy bulk lane on either side. */
static size_t one_round(struct tcp *ctx, const struct epoll_event *event, int n)
{
    size_t moved = 0;
    for (int bulk = 0; bulk < 2 && !(bulk && ends_early(ctx)); bulk++) {
        for (int i = 0; i < n; i++) {
            if (is_bulk(event[i].data.ptr) == bulk) {
                moved += on_event(ctx, event[i].data.ptr, event[i].events);
            }
        }
        tcp_grant(ctx);
        moved += send_dirty(ctx, bulk);
    }
    return moved;
}

/* What look has found is received without asking epoll for it. */
static size_t hot_round(struct tcp *ctx)
{
    bool ready = ctx->hot && ctx->hot_ready;
    ctx->hot_ready = false;
    return ready ? one_round(ctx, &(struct epoll_event){.events = EPOLLIN, .data.ptr = &ctx->hot->source}, 1) : 0;
}

static int tcp_turn(void *arg)
{
    struct tcp *ctx = arg;
    struct epoll_event event[EVENTS_MAX];
    int n = 0;
    tcp_enter(ctx);
    ctx->in_turn = true;
    ctx->ended = ctx->small_done = false;
    size_t moved = hot_round(ctx);
    int result = ctx->ended ? 0 : 1; /* then whatever is left is found by the next look */
    for (int round = 0; round < ROUNDS_MAX && moved < ctx->config.turn_bytes && !ctx->ended; round++) {
        n = epoll_wait(ctx->epoll_fd, event, EVENTS_MAX, 0);
        if (n <= 0) {
            result = n == 0 || errno == EINTR ? 0 : -errno;
            break;
        }
        moved += one_round(ctx, event, n);
    }
    ctx->in_turn = false;
    tcp_leave(ctx);
    return result;
}

static void tcp_flush(void *arg)
{
    struct tcp *ctx = arg;
    if (ctx->in_turn) {
        return;
    }
    tcp_enter(ctx);
    send_dirty(ctx, false);
    send_dirty(ctx, true);
    unkick(ctx);
    tcp_leave(ctx);
}

/* ---- the rest of the table ---- */

static int tcp_resolve(const char *address, char *digits, size_t size, char *why, size_t why_size)
{
    union tcp_address a;
    int e = tcp_address_parse(address, TCP_USE_PEER, &a, why, why_size);
    if (e == 0 && (e = tcp_address_print(&a, digits, size)) < 0) {
        snprintf(why, why_size, "no room for the address of '%s'", address);
    }
    return e;
}

static void tcp_disconnect(void *arg, struct connection *c)
{
    struct tcp *ctx = arg;
    tcp_enter(ctx);
    tcp_end((struct tcp_connection *)c, -ECONNRESET, "closed by this side", false);
    tcp_leave(ctx);
}

/* Resetting throws our own queue away, but pages that sendfile passed on may lie in the peer's socket on this machine,
 * or in a NIC's ring: only the leases' end is proof (rule 23). */
static int tcp_fence(void *arg, struct connection *c)
{
    tcp_disconnect(arg, c);
    return -EAGAIN;
}

static int tcp_expose(void *arg, int fd, const void *base, uint64_t bytes)
{
    struct tcp *ctx = arg;
    if (ctx->pool) {
        return -EBUSY;
    }
    ctx->pool_fd = fd;
    ctx->pool = base;
    ctx->pool_bytes = bytes;
    return 0;
}

static void tcp_stats(void *arg, struct transport_stats *out)
{
    struct tcp *ctx = arg;
    struct tcp_connection *c;
    *out = ctx->stats;
    out->connections = out->serving = 0;
    out->in_flight = ctx->in_flight;
    out->waiting = ctx->waiting;
    TAILQ_FOREACH(c, &ctx->connections, link)
    {
        out->connections += c->state == PAIR_OPEN;
        out->serving += c->serve_count;
    }
}

/* Until served says so, the owner's pages are what it admitted. */
static bool tcp_proves(void *ctx)
{
    (void)ctx;
    return true;
}

const struct transport tcp_transport = {
    "tcp",    tcp_resolve, tcp_open,    tcp_close,      tcp_own_address, tcp_descriptor, tcp_look,
    tcp_turn, tcp_flush,   tcp_connect, tcp_disconnect, tcp_fence,       tcp_expose,     tcp_send,
    tcp_read, tcp_cancel,  tcp_stop,    tcp_stats,      tcp_proves,
};
