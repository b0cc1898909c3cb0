#include "tests/support/relay.h"
#include "tests/support/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WIRES 64u
#define ROOM (64u << 10)
#define TICK_MS 2
#define BYTE INT64_C(1000000000)
#define GREETING 32u /* its ninth byte says which lane it is */

/* One way of one connection. */
struct flow {
    int from, to;
    enum relay_way way;
    uint8_t data[ROOM];
    size_t at, end;
    int64_t credit; /* BYTEths of bytes that may go now */
    uint64_t heard;
};

struct wire {
    bool used;
    enum relay_lane lane;
    struct flow flow[2];
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
}

/* Small buffers, or what is held would have gone through already. */
static void small(int fd)
{
    int bytes = 64 << 10, one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

static void drop(struct relay *r, struct wire *w)
{
    if (w->used) {
        close(w->flow[0].from);
        close(w->flow[0].to);
        w->used = false;
        atomic_fetch_sub(&r->open, 1);
    }
}

static void take(struct relay *r, struct wire *wires)
{
    int near = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    struct sockaddr_in a = loopback(r->target);
    struct wire *w = NULL;
    for (unsigned i = 0; i < WIRES && !w; i++) {
        w = wires[i].used ? NULL : &wires[i];
    }
    if (near < 0 || !w) {
        close(near);
        return;
    }
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    small(near);
    if (connect(far, (struct sockaddr *)&a, sizeof a) != 0) {
        close(far);
        close(near);
        return;
    }
    small(far);
    w->used = true;
    w->lane = RELAY_CONTROL;
    for (unsigned i = 0; i < 2; i++) {
        struct flow *f = &w->flow[i];
        f->from = i ? far : near;
        f->to = i ? near : far;
        f->way = i ? RELAY_BACK : RELAY_OUT;
        f->at = f->end = 0;
        f->heard = 0;
        f->credit = 0;
    }
    atomic_fetch_add(&r->accepted, 1);
    atomic_fetch_add(&r->open, 1);
}

/* What may go now: the rate's share of the time that has passed. */
static size_t allowance(struct relay *r, const struct wire *w, struct flow *f, int64_t passed)
{
    int64_t rate = atomic_load(&r->rate[w->lane][f->way]);
    if (rate == RELAY_FREE || f->heard <= GREETING) {
        f->credit = 0;
        return ROOM;
    }
    if (rate == RELAY_HOLD) {
        f->credit = 0;
        return 0;
    }
    int64_t most = (rate / 10 + 1) * BYTE;
    f->credit += rate * passed;
    f->credit = f->credit < most ? f->credit : most;
    return f->credit > 0 ? (size_t)(f->credit / BYTE) : 0;
}

/* false: it has ended. */
static bool move(struct relay *r, struct wire *w, struct flow *f, int64_t passed)
{
    if (f->at == f->end) {
        ssize_t n = recv(f->from, f->data, sizeof f->data, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            return false;
        }
        f->at = 0;
        f->end = n > 0 ? (size_t)n : 0;
        if (f->heard <= 8 && f->heard + f->end > 8 && f->way == RELAY_OUT) {
            w->lane = f->data[8 - f->heard] ? RELAY_BULK : RELAY_CONTROL;
        }
        f->heard += f->end;
    }
    size_t may = allowance(r, w, f, passed);
    size_t n = f->end - f->at < may ? f->end - f->at : may;
    ssize_t sent = n > 0 ? send(f->to, f->data + f->at, n, MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN) {
        return false;
    }
    if (sent > 0) {
        f->at += (size_t)sent;
        f->credit -= sent * BYTE;
        atomic_fetch_add(&r->moved[w->lane][f->way], (uint64_t)sent);
    }
    return true;
}

static void *run(void *arg)
{
    struct relay *r = arg;
    struct wire *wires = calloc(WIRES, sizeof *wires);
    int64_t last = now_ns();
    while (!atomic_load(&r->stop)) {
        struct pollfd fds[1 + 2 * WIRES] = {{.fd = r->listener, .events = POLLIN}};
        nfds_t n = 1;
        for (unsigned i = 0; i < WIRES; i++) {
            for (unsigned k = 0; wires[i].used && k < 2; k++) {
                struct flow *f = &wires[i].flow[k];
                if (f->at == f->end) {
                    fds[n++] = (struct pollfd){.fd = f->from, .events = POLLIN};
                }
            }
        }
        poll(fds, n, TICK_MS);
        int64_t now = now_ns(), passed = now - last;
        last = now;
        bool cut = atomic_load(&r->cut);
        for (unsigned i = 0; i < WIRES; i++) {
            struct wire *w = &wires[i];
            if (w->used && (cut || !move(r, w, &w->flow[0], passed) || !move(r, w, &w->flow[1], passed))) {
                drop(r, w);
            }
        }
        if (cut) {
            atomic_store(&r->cut, false);
        }
        if (fds[0].revents & POLLIN) {
            take(r, wires);
        }
    }
    for (unsigned i = 0; i < WIRES; i++) {
        drop(r, &wires[i]);
    }
    free(wires);
    return NULL;
}

void relay_start(struct relay *r, uint16_t target)
{
    int one = 1;
    memset(r, 0, sizeof *r);
    r->target = target;
    r->port = free_port();
    struct sockaddr_in a = loopback(r->port);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&a, sizeof a), 0);
    int bytes = 64 << 10;
    setsockopt(r->listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    assert_int_equal(listen(r->listener, 64), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

void relay_stop(struct relay *r)
{
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    close(r->listener);
}

void relay_rate(struct relay *r, enum relay_lane lane, enum relay_way way, int64_t rate)
{
    atomic_store(&r->rate[lane][way], rate);
}

void relay_all(struct relay *r, int64_t rate)
{
    for (unsigned i = 0; i < 4; i++) {
        atomic_store(&r->rate[i / 2][i % 2], rate);
    }
}
