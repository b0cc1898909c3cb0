/* tcp_end.c: how lanes and connections begin and end. */
#include "replication/tcp_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static void option(int fd, int level, int name, int value)
{
    /* None of these is needed to be right, only to be fast or to learn soon that a peer is gone. */
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* A peer that acknowledges nothing is found by the user time-out where data waits, by probes where none does. */
static void set_options(const struct tcp *ctx, int fd)
{
    int silence_ms = (int)(ctx->config.silence_ns / 1000000), silence_s = silence_ms / 1000;
    option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    option(fd, IPPROTO_TCP, TCP_KEEPIDLE, silence_s / 2 > 1 ? silence_s / 2 : 1);
    option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    option(fd, IPPROTO_TCP, TCP_KEEPCNT, silence_s / 2 > 1 ? silence_s / 2 : 1);
    option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms);
    if (ctx->config.socket_buffer) {
        option(fd, SOL_SOCKET, SO_SNDBUF, (int)ctx->config.socket_buffer);
        option(fd, SOL_SOCKET, SO_RCVBUF, (int)ctx->config.socket_buffer);
    }
}

struct tcp_lane *tcp_lane_new(struct tcp *ctx, int fd, enum lane_kind kind)
{
    struct tcp_lane *lane = calloc(1, sizeof *lane);
    if (!lane) {
        return NULL;
    }
    lane->source = SOURCE_LANE;
    lane->ctx = ctx;
    lane->fd = fd;
    lane->kind = kind;
    TAILQ_INIT(&lane->sending);
    lane->in_size = kind == LANE_CONTROL ? AHEAD_BYTES : FRAME_BYTES;
    lane->in = malloc(lane->in_size);
    struct epoll_event e = {.events = 0, .data.ptr = &lane->source};
    if (!lane->in || epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
        free(lane->in);
        free(lane);
        return NULL;
    }
    set_options(ctx, fd);
    return lane;
}

void tcp_lane_close(struct tcp_lane *lane)
{
    struct tcp *ctx = lane->ctx;
    if (lane->fd < 0) {
        return;
    }
    /* A forked child may have a copy of the descriptor: epoll would go on telling of it, and closing ours would reset
     * nothing. So it is taken out by hand, and reset by name (AF_UNSPEC), which also throws away what lies in the
     * socket. */
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, lane->fd, NULL);
    (void)setsockopt(lane->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)connect(lane->fd, &none, sizeof none);
    close(lane->fd);
    lane->fd = -1;
    if (ctx->hot == lane) {
        ctx->hot = NULL;
    }
    if (lane->dirty) {
        TAILQ_REMOVE(&ctx->dirty, lane, dirty_link);
        lane->dirty = false;
    }
    tcp_not_lazy(lane);
    if (lane->linked) {
        TAILQ_REMOVE(&ctx->strangers, lane, link);
        lane->linked = false;
        ctx->stranger_count--;
    }
    TAILQ_INSERT_TAIL(&ctx->dead_lanes, lane, link);
}

static void tell_end(struct tcp_connection *c, enum pair_state was, int status, const char *why)
{
    struct tcp *ctx = c->ctx;
    if (was == PAIR_OPEN) {
        ctx->events.closed(ctx->env, &c->head, status, why);
    } else if (!c->head.incoming) {
        ctx->events.connected(ctx->env, &c->head, status, why);
    }
}

void tcp_end(struct tcp_connection *c, int status, const char *why, bool tell)
{
    struct tcp *ctx = c->ctx;
    enum pair_state was = c->state;
    if (was == PAIR_ENDED) {
        return;
    }
    c->state = PAIR_ENDED;
    TAILQ_REMOVE(&ctx->connections, c, link);
    ctx->connection_count--;
    ctx->making_count -= was == PAIR_MAKING && c->head.incoming;
    ctx->stats.resets += was == PAIR_OPEN && tell;
    ctx->stats.connect_errors += was == PAIR_MAKING && !c->head.incoming && tell;
    if (c->wanting) {
        TAILQ_REMOVE(&ctx->wanting, c, wanting_link);
        c->wanting = false;
    }
    for (int i = 0; i < 2; i++) {
        if (c->lane[i]) {
            tcp_lane_close(c->lane[i]);
        }
    }
    TAILQ_INSERT_TAIL(&ctx->dead, c, link);
    tcp_reads_end(c);
    tcp_serves_end(c);
    if (tell) {
        tell_end(c, was, status, why);
    }
}

void tcp_protocol(struct tcp_lane *lane, const char *why)
{
    if (lane->fd < 0) {
        return;
    }
    lane->ctx->stats.protocol++;
    tcp_end(lane->c, -EPROTO, why, true);
}

void tcp_bury(struct tcp *ctx)
{
    struct tcp_connection *c;
    struct tcp_lane *lane;
    while ((lane = TAILQ_FIRST(&ctx->dead_lanes))) {
        TAILQ_REMOVE(&ctx->dead_lanes, lane, link);
        free(lane->message.data);
        free(lane->now.data);
        free(lane->later.data);
        free(lane->in);
        free(lane);
    }
    while ((c = TAILQ_FIRST(&ctx->dead))) {
        TAILQ_REMOVE(&ctx->dead, c, link);
        free(c->requests);
        free(c->serves);
        free(c);
    }
}
