/* tcp_connect.c: from an address, or a stranger at the door, to a pair of lanes.
 *
 * The connecting side opens the control lane and greets; the accepting side answers with a token drawn for this pair;
 * the connecting side opens the bulk lane and shows the token. Everything before that is bounded in number and in
 * time, and what does not begin as a greeting does is closed at its first wrong byte.
 */
#include "replication/tcp_internal.h"

#include "store/fd.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKLOG 128
#define ACCEPTS_MAX 16 /* a round */
#define ACCEPT_PAUSE_NS 100000000LL
#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

int tcp_listen(struct tcp *ctx, char *why, size_t why_size)
{
    const char *text = ctx->config.listen;
    union tcp_address *a = &ctx->listen;
    socklen_t size = sizeof *a;
    int on = 1, buffer = (int)ctx->config.socket_buffer;
    int e = tcp_address_parse(text, ctx->config.any_address ? TCP_USE_ANY : TCP_USE_LISTEN, a, why, why_size);
    if (e < 0) {
        return e;
    }
    ctx->listen_fd = fd_above_stdio(socket(a->any.sa_family, SOCKET_FLAGS, 0));
    if (ctx->listen_fd < 0) {
        goto failed;
    }
    /* Without it a restarted daemon would wait for old connections of its port to be forgotten. */
    (void)setsockopt(ctx->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (buffer) {
        /* Before the handshake: it fixes the scale of the window. */
        (void)setsockopt(ctx->listen_fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    }
    if (bind(ctx->listen_fd, &a->any, tcp_address_size(a)) == 0 && listen(ctx->listen_fd, BACKLOG) == 0 &&
        getsockname(ctx->listen_fd, &a->any, &size) == 0) {
        return 0;
    }
failed:
    e = errno;
    tcp_listen_sentence(text, e, why, why_size);
    return -e;
}

/* ---- greetings ---- */

static int greet(struct tcp_lane *lane, bool accepting, const uint8_t *token)
{
    uint8_t bytes[GREETING_BYTES];
    struct greeting g = {.accepting = accepting, .lane = (uint8_t)lane->kind};
    if (token) {
        memcpy(g.token, token, TOKEN_BYTES);
    }
    greeting_encode(bytes, &g);
    /* A fresh socket has room for 32 bytes. */
    return send(lane->fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes ? 0 : -ECONNRESET;
}

static struct tcp_connection *new_connection(struct tcp *ctx, const union tcp_address *a, struct tcp_lane *control)
{
    struct tcp_connection *c = calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    c->ctx = ctx;
    c->address = *a;
    (void)tcp_address_print(a, c->head.peer, sizeof c->head.peer);
    c->lane[LANE_CONTROL] = control;
    control->c = c;
    c->due = tcp_now() + ctx->config.connect_timeout_ns;
    TAILQ_INIT(&c->small);
    TAILQ_INIT(&c->bulk);
    TAILQ_INSERT_TAIL(&ctx->connections, c, link);
    ctx->connection_count++;
    tcp_due(ctx, c->due);
    return c;
}

static bool on_this_host(const struct tcp_lane *lane)
{
    union tcp_address here, there;
    socklen_t n = sizeof here, m = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(lane->fd, &here.any, &n) == 0 && getpeername(lane->fd, &there.any, &m) == 0 &&
           (tcp_address_same_host(&here, &there) ||
            (tcp_address_is_loopback(&here) && tcp_address_is_loopback(&there)));
}

void tcp_unpace(int fd)
{
    static const char cubic[] = "cubic", reno[] = "reno";
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cubic, sizeof cubic - 1) != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
    }
}

static void pair_open(struct tcp_connection *c)
{
    struct tcp *ctx = c->ctx;
    c->state = PAIR_OPEN;
    c->same_host = on_this_host(c->lane[LANE_BULK]);
    for (int i = 0; i < 2; i++) {
        if (c->same_host) {
            tcp_unpace(c->lane[i]->fd);
        }
        c->lane[i]->stage = LANE_OPEN;
        tcp_arm(c->lane[i], EPOLLIN);
    }
    if (c->head.incoming) {
        ctx->making_count--;
        ctx->stats.accepted++;
        ctx->events.accepted(ctx->env, &c->head);
    } else {
        ctx->events.connected(ctx->env, &c->head, 0, "");
    }
}

/* ---- strangers ---- */

static void send_away(struct tcp_lane *stranger)
{
    stranger->ctx->stats.strangers++;
    tcp_lane_close(stranger);
}

static struct tcp_connection *oldest_half_pair(struct tcp *ctx)
{
    struct tcp_connection *c;
    TAILQ_FOREACH(c, &ctx->connections, link)
    {
        if (c->state == PAIR_MAKING && c->head.incoming) {
            return c;
        }
    }
    return NULL;
}

/* Who is honest is done in milliseconds: the oldest goes. */
static void make_room(struct tcp *ctx)
{
    if (ctx->stranger_count + ctx->making_count < ctx->config.unfinished) {
        return;
    }
    struct tcp_lane *stranger = TAILQ_FIRST(&ctx->strangers);
    struct tcp_connection *half = ctx->making_count ? oldest_half_pair(ctx) : NULL;
    ctx->stats.crowded_out++;
    if (half && (!stranger || half->due < stranger->due)) {
        tcp_end(half, -ECONNRESET, "too many unfinished connections", false);
    } else if (stranger) {
        tcp_lane_close(stranger);
    }
}

static void take_in(struct tcp *ctx, int fd)
{
    make_room(ctx);
    struct tcp_lane *lane = tcp_lane_new(ctx, fd, LANE_CONTROL);
    if (!lane) {
        close(fd);
        return;
    }
    lane->incoming = true;
    lane->stage = LANE_GREETING;
    lane->due = tcp_now() + ctx->config.connect_timeout_ns;
    lane->linked = true;
    TAILQ_INSERT_TAIL(&ctx->strangers, lane, link);
    ctx->stranger_count++;
    tcp_due(ctx, lane->due);
    tcp_arm(lane, EPOLLIN);
}

static void pause_listener(struct tcp *ctx, bool off)
{
    struct epoll_event e = {.events = off ? 0 : EPOLLIN, .data.ptr = &ctx->listener};
    epoll_ctl(ctx->epoll_fd, EPOLL_CTL_MOD, ctx->listen_fd, &e);
    ctx->listener_off = off;
    if (off) {
        ctx->listen_due = tcp_now() + ACCEPT_PAUSE_NS;
        tcp_due(ctx, ctx->listen_due);
    }
}

void tcp_accept(struct tcp *ctx)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = fd_above_stdio(accept4(ctx->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd >= 0) {
            take_in(ctx, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* The listener would stay readable, and this thread would spin. */
            pause_listener(ctx, true);
        }
        if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

/* A stranger's lane becomes a connection's. */
static void adopt(struct tcp_lane *lane, enum lane_kind kind)
{
    TAILQ_REMOVE(&lane->ctx->strangers, lane, link);
    lane->linked = false;
    lane->ctx->stranger_count--;
    lane->kind = kind;
    lane->in_at = lane->in_end = 0;
    if (kind == LANE_BULK) {
        lane->in_size = FRAME_BYTES;
    }
}

static void begin_pair(struct tcp_lane *lane)
{
    struct tcp *ctx = lane->ctx;
    union tcp_address a;
    socklen_t size = sizeof a;
    memset(&a, 0, sizeof a);
    if (ctx->connection_count >= ctx->config.connections) {
        ctx->stats.crowded_out++;
        tcp_lane_close(lane);
        return;
    }
    uint8_t token[TOKEN_BYTES];
    struct tcp_connection *c = NULL;
    if (getpeername(lane->fd, &a.any, &size) == 0 && getrandom(token, sizeof token, 0) == (ssize_t)sizeof token) {
        c = new_connection(ctx, &a, lane);
    }
    if (!c) {
        send_away(lane);
        return;
    }
    memcpy(c->token, token, sizeof token);
    c->head.incoming = true;
    ctx->making_count++;
    adopt(lane, LANE_CONTROL);
    lane->stage = LANE_WAITING;
    tcp_arm(lane, EPOLLRDHUP);
    if (greet(lane, true, c->token) < 0) {
        tcp_end(c, -ECONNRESET, "", false);
    }
}

static bool same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0;
    for (unsigned i = 0; i < TOKEN_BYTES; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

static void finish_pair(struct tcp_lane *lane, const uint8_t *token)
{
    struct tcp *ctx = lane->ctx;
    struct tcp_connection *c;
    TAILQ_FOREACH(c, &ctx->connections, link)
    {
        if (c->state == PAIR_MAKING && c->head.incoming && same_token(c->token, token)) {
            break;
        }
    }
    if (!c) {
        send_away(lane);
        return;
    }
    adopt(lane, LANE_BULK);
    lane->c = c;
    c->lane[LANE_BULK] = lane;
    if (greet(lane, true, c->token) < 0) {
        tcp_end(c, -ECONNRESET, "", false);
        return;
    }
    pair_open(c);
}

static void stranger_greeted(struct tcp_lane *lane, const struct greeting *g)
{
    static const uint8_t none[TOKEN_BYTES];
    if (g->lane == LANE_BULK) {
        finish_pair(lane, g->token);
    } else if (memcmp(g->token, none, sizeof none) == 0) {
        begin_pair(lane);
    } else {
        send_away(lane);
    }
}

/* ---- going out ---- */

static void failed(struct tcp_connection *c, int error, const char *what)
{
    char why[TRANSPORT_WHY_MAX];
    snprintf(why, sizeof why, "cannot connect to '%s': %s", c->head.peer, what ? what : strerror(error));
    tcp_end(c, -error, why, true);
}

/* Begins to connect; -errno. */
static int reach(struct tcp *ctx, const union tcp_address *a, enum lane_kind kind, struct tcp_lane **out)
{
    int fd = fd_above_stdio(socket(a->any.sa_family, SOCKET_FLAGS, 0));
    if (fd < 0) {
        return -errno;
    }
    struct tcp_lane *lane = tcp_lane_new(ctx, fd, kind);
    if (!lane) {
        close(fd);
        return -ENOMEM;
    }
    if (connect(fd, &a->any, tcp_address_size(a)) != 0 && errno != EINPROGRESS) {
        int e = -errno;
        tcp_lane_close(lane);
        return e;
    }
    lane->stage = LANE_CONNECTING;
    tcp_arm(lane, EPOLLOUT);
    *out = lane;
    return 0;
}

int tcp_connect(void *arg, const char *peer, void *user, struct connection **out, char *why, size_t why_size)
{
    struct tcp *ctx = arg;
    union tcp_address a;
    struct tcp_lane *lane;
    int e = tcp_address_parse(peer, TCP_USE_DIGITS, &a, why, why_size);
    if (e < 0) {
        return e;
    }
    if (ctx->connection_count >= ctx->config.connections) {
        snprintf(why, why_size, "cannot connect to '%s': there are %u peers already", peer, ctx->connection_count);
        return -EAGAIN;
    }
    tcp_enter(ctx);
    struct tcp_connection *c = NULL;
    e = reach(ctx, &a, LANE_CONTROL, &lane);
    if (e == 0 && !(c = new_connection(ctx, &a, lane))) {
        tcp_lane_close(lane);
        e = -ENOMEM;
    }
    if (e < 0) {
        snprintf(why, why_size, "cannot connect to '%s': %s", peer, strerror(-e));
    } else {
        c->head.user = user;
        ctx->stats.connects++;
        *out = &c->head;
    }
    tcp_leave(ctx);
    return e;
}

/* The accepting side's greeting has come, on a lane that we opened. */
static void answered(struct tcp_lane *lane, const struct greeting *g)
{
    struct tcp_connection *c = lane->c;
    lane->in_at = lane->in_end = 0;
    if (lane->kind == LANE_BULK) {
        if (same_token(g->token, c->token)) {
            pair_open(c);
        } else {
            failed(c, EPROTO, "it answered with another pair's token");
        }
        return;
    }
    memcpy(c->token, g->token, TOKEN_BYTES);
    lane->stage = LANE_WAITING;
    tcp_arm(lane, EPOLLRDHUP);
    struct tcp_lane *bulk;
    int e = reach(c->ctx, &c->address, LANE_BULK, &bulk);
    if (e < 0) {
        failed(c, -e, NULL);
        return;
    }
    bulk->c = c;
    c->lane[LANE_BULK] = bulk;
}

static void reached(struct tcp_lane *lane)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(lane->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error != 0) {
        failed(lane->c, error, NULL);
        return;
    }
    lane->stage = LANE_GREETING;
    tcp_arm(lane, EPOLLIN);
    if (greet(lane, false, lane->kind == LANE_BULK ? lane->c->token : NULL) < 0) {
        failed(lane->c, ECONNRESET, "it closed the connection");
    }
}

static void no_greeting(struct tcp_lane *lane, const char *what)
{
    if (lane->c) {
        failed(lane->c, EPROTO, what);
    } else {
        send_away(lane);
    }
}

static void hear_greeting(struct tcp_lane *lane)
{
    struct greeting g;
    ssize_t n = recv(lane->fd, lane->in + lane->in_end, GREETING_BYTES - lane->in_end, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        no_greeting(lane, "it closed the connection");
        return;
    }
    lane->in_end += (uint32_t)n;
    if (!greeting_begins(lane->in, lane->in_end, !lane->incoming)) {
        no_greeting(lane, "what answers there is not Berth");
    } else if (lane->in_end == GREETING_BYTES) {
        if (greeting_decode(lane->in, &g) < 0 || (!lane->incoming && g.lane != lane->kind)) {
            no_greeting(lane, "what answers there does not greet as Berth does");
        } else if (lane->incoming) {
            stranger_greeted(lane, &g);
        } else {
            answered(lane, &g);
        }
    }
}

void tcp_lane_made(struct tcp_lane *lane, uint32_t events)
{
    (void)events;
    switch (lane->stage) {
    case LANE_CONNECTING:
        reached(lane);
        break;
    case LANE_GREETING:
        hear_greeting(lane);
        break;
    case LANE_WAITING:
        if (lane->c->head.incoming) {
            lane->ctx->stats.strangers++;
        }
        failed(lane->c, ECONNRESET, "it closed the connection");
        break;
    case LANE_OPEN:
        break;
    }
}

/* ---- time ---- */

static void connection_overdue(struct tcp_connection *c, int64_t now)
{
    struct tcp *ctx = c->ctx;
    if (c->state == PAIR_OPEN) {
        tcp_reads_overdue(c, now);
        return;
    }
    if (c->due > now) {
        tcp_due(ctx, c->due);
        return;
    }
    char what[64];
    snprintf(what, sizeof what, "no answer within %lld ms", (long long)(ctx->config.connect_timeout_ns / 1000000));
    ctx->stats.strangers += c->head.incoming;
    failed(c, ETIMEDOUT, what);
}

void tcp_overdue(struct tcp *ctx, int64_t now)
{
    struct tcp_lane *lane;
    struct tcp_connection *c, *next;
    while ((lane = TAILQ_FIRST(&ctx->strangers)) && lane->due <= now) {
        send_away(lane);
    }
    if (lane) {
        tcp_due(ctx, lane->due);
    }
    if (ctx->listener_off && ctx->listen_due <= now) {
        pause_listener(ctx, false);
    } else if (ctx->listener_off) {
        tcp_due(ctx, ctx->listen_due);
    }
    for (c = TAILQ_FIRST(&ctx->connections); c; c = next) {
        next = TAILQ_NEXT(c, link);
        connection_overdue(c, now);
        if (next && next->state == PAIR_ENDED) {
            next = TAILQ_FIRST(&ctx->connections); /* a callback ended it: its link leads elsewhere */
        }
    }
}
