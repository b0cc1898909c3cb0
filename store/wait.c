/* wait.c: waiting for replies: one thread leads and completes everybody's calls, the others sleep. */
#include "store/call.h"
#include "store/client.h"
#include "store/shell/server.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_MIN_NS INT64_C(2000)
#define ROOM_NS INT64_C(1000000) /* nobody rings when the request ring gets room: look again after this */
#define DRIVE_NS INT64_C(1000000000)
#define BACKOFF_FIRST_NS INT64_C(2000000)
#define BACKOFF_MAX_NS INT64_C(200000000)
#define JOIN_NS INT64_C(2000000000) /* how long one try to attach again waits for the node's answer */

static struct timespec to_timespec(int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* ---- who follows ---- */

static void waiter_wake(struct waiter *w)
{
    atomic_store_explicit(&w->word, 1, memory_order_release);
    syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void calls_wake(struct berth *b, const void *key)
{
    for (struct waiter *w = b->calls.waiters; w; w = w->next) {
        if (w->key == key) {
            waiter_wake(w);
        }
    }
    if (b->calls.leading == key) {
        calls_poke(b);
    }
}

bool calls_lost(const struct berth *b)
{
    return !fd_is_ours(&b->ring_fd);
}

void calls_poke(struct berth *b)
{
    uint64_t one = 1;
    if (b->calls.driving) {
        server_poke(b->server);
    }
    if (b->calls.dozing && !calls_lost(b) && write(b->calls.wake_fd.fd, &one, sizeof one) < 0) {
        return; /* full: poll returns anyway */
    }
}

static void waiter_remove(struct berth *b, struct waiter *w)
{
    struct waiter **at = &b->calls.waiters;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
}

/* The one who led goes: another must lead. Whoever registers after this look finds `drain` free. */
static void pass_on(struct berth *b)
{
    pthread_mutex_lock(&b->lock);
    if (b->calls.waiters) {
        waiter_wake(b->calls.waiters);
    }
    pthread_mutex_unlock(&b->lock);
}

static void follow(struct berth *b, const void *key, bool (*ready)(void *arg), void *arg, int64_t until)
{
    struct waiter w = {.key = key};
    pthread_mutex_lock(&b->lock);
    w.next = b->calls.waiters;
    b->calls.waiters = &w;
    pthread_mutex_unlock(&b->lock);
    /* Registered first, then a look whether somebody still leads: who leads looks at the list after it stopped. */
    bool nobody = pthread_mutex_trylock(&b->calls.drain) == 0;
    if (nobody) {
        pthread_mutex_unlock(&b->calls.drain);
    } else if (!ready(arg)) {
        int64_t left = until == INT64_MAX ? INT64_MAX : until - client_now();
        struct timespec ts = to_timespec(left);
        syscall(SYS_futex, &w.word, FUTEX_WAIT_PRIVATE, 0, left == INT64_MAX ? NULL : &ts, NULL, 0);
    }
    pthread_mutex_lock(&b->lock);
    waiter_remove(b, &w);
    pthread_mutex_unlock(&b->lock);
}

/* ---- who leads ---- */

static bool reply_there(const struct calls *e)
{
    return atomic_load_explicit(e->replies.tail, memory_order_acquire) != e->replies.mine;
}

static bool node_awake_elsewhere(const struct berth *b)
{
    return !atomic_load_explicit(&b->ring->node_sleeping, memory_order_relaxed) &&
           atomic_load_explicit(&b->ring->node_cpu, memory_order_relaxed) != (uint32_t)sched_getcpu();
}

/* Waking this core costs more than the wait it replaces, if the node is awake on another one. What spinning has brought
 * so far says how long it is worth. */
static bool spin(struct berth *b, int64_t until)
{
    struct calls *e = &b->calls;
    bool far = e->few_cpus && atomic_load_explicit(&e->quick, memory_order_relaxed) == 0;
    if (e->state != CALLS_UP || far || !node_awake_elsewhere(b)) {
        return false;
    }
    int64_t end = client_now() + e->spin_ns;
    end = end < until ? end : until;
    do {
        for (unsigned i = 0; i < 32; i++) {
            if (reply_there(e)) {
                e->spin_ns += (CALL_SPIN_NS - e->spin_ns) / 4;
                return true;
            }
            __builtin_ia32_pause();
        }
    } while (client_now() < end && node_awake_elsewhere(b));
    e->spin_ns = e->spin_ns / 2 > SPIN_MIN_NS ? e->spin_ns / 2 : SPIN_MIN_NS;
    return false;
}

/* Under the lock, by who leads. */
static void hang_up(struct berth *b)
{
    struct calls *e = &b->calls;
    if (e->state != CALLS_UP) {
        return;
    }
    if (b->server || b->remote) { /* what ends in this process does not come back */
        calls_end(b, BERTH_ENODE);
        return;
    }
    e->state = CALLS_DOWN;
    e->down_since = e->next_try = client_now();
    e->backoff = BACKOFF_FIRST_NS;
    e->next_limit = 0;
    e->broken = false;
}

/* Under the lock: when something is to be done though nobody rings. */
static int64_t next_look(const struct calls *e, int64_t until, int64_t now)
{
    until = e->next_limit < until ? e->next_limit : until;
    if (e->state == CALLS_UP && e->unsent && now + ROOM_NS < until) {
        until = now + ROOM_NS;
    }
    if (e->state == CALLS_DOWN) {
        int64_t join = e->joining.fd < 0 ? e->next_try : e->join_until;
        until = join < until ? join : until;
    }
    return e->broken ? now : until;
}

void calls_quiet(struct berth *b)
{
    uint64_t count;
    if (!calls_lost(b) && read(b->calls.wake_fd.fd, &count, sizeof count) < 0) {
        return; /* somebody else has read it */
    }
}

/* The application has closed the descriptors: nobody here can be woken any more, and there is nothing to attach with.
 * What is mapped goes on. */
static void end_lost(struct berth *b)
{
    pthread_mutex_lock(&b->lock);
    if (b->calls.state != CALLS_ENDED) {
        calls_end(b, -EBADF);
    }
    pthread_mutex_unlock(&b->lock);
}

/* After the welcome the socket carries nothing but bytes that wake: its end says that the other side has gone. */
static void look_at_socket(struct berth *b)
{
    char byte;
    if (!fd_is_ours(&b->calls.socket)) {
        end_lost(b);
        return;
    }
    ssize_t n = recv(b->calls.socket.fd, &byte, 1, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        return;
    }
    /* Its last replies count. */
    calls_drain(b);
    pthread_mutex_lock(&b->lock);
    hang_up(b);
    pthread_mutex_unlock(&b->lock);
}

/* Others that change what is waited for, or until when, write into the eventfd from here on. */
static int64_t begin_doze(struct berth *b, int64_t until, int64_t now)
{
    struct calls *e = &b->calls;
    pthread_mutex_lock(&b->lock);
    e->look = next_look(e, until, now);
    e->dozing = true;
    pthread_mutex_unlock(&b->lock);
    atomic_store_explicit(&b->ring->client_sleeping, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    return e->look;
}

static void end_doze(struct berth *b)
{
    atomic_store_explicit(&b->ring->client_sleeping, 0, memory_order_relaxed);
    pthread_mutex_lock(&b->lock);
    b->calls.dozing = false;
    pthread_mutex_unlock(&b->lock);
}

static void doze(struct berth *b, bool (*ready)(void *arg), void *arg, int64_t until)
{
    struct calls *e = &b->calls;
    if (calls_lost(b)) {
        end_lost(b);
        return;
    }
    int64_t now = client_now();
    int64_t look = begin_doze(b, until, now);
    struct pollfd fds[2] = {{.fd = e->wake_fd.fd, .events = POLLIN},
                            {.fd = e->state == CALLS_UP ? e->socket.fd : e->joining.fd, .events = POLLIN}};
    if (!reply_there(e) && !ready(arg)) {
        struct timespec ts = to_timespec(look - now);
        ppoll(fds, 2, look == INT64_MAX ? NULL : &ts, NULL);
    }
    end_doze(b);
    if (fds[0].revents) {
        calls_quiet(b);
    }
    if (fds[1].revents && e->state == CALLS_UP) {
        look_at_socket(b);
    }
}

/* What a try to attach again has come to: as attach_end has it, or -EAGAIN while it is under way. */
static int join_step(struct berth *b, int64_t now)
{
    struct calls *e = &b->calls;
    if (e->joining.fd < 0) {
        int rc = now < e->next_try ? -EAGAIN : attach_begin(b);
        if (rc < 0) {
            return rc == -EAGAIN && now >= e->next_try ? -ECONNREFUSED : rc; /* its queue is full */
        }
        fd_keep(&e->joining, rc);
        e->join_until = now + JOIN_NS;
        return -EAGAIN;
    }
    int rc = fd_is_ours(&e->joining) ? attach_end(b, e->joining.fd) : -ECONNRESET;
    if (rc == -EAGAIN && now < e->join_until) {
        return rc;
    }
    attach_over(b);
    if (rc == 1) {
        e->joining = FD_NONE;
    } else {
        fd_drop(&e->joining);
    }
    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* Bounded by each call's own limit: there is no end to trying. */
static void reconnect(struct berth *b, int64_t now)
{
    struct calls *e = &b->calls;
    int rc = e->state == CALLS_DOWN ? join_step(b, now) : -EAGAIN;
    if (rc == -EAGAIN) {
        return;
    }
    pthread_mutex_lock(&b->lock);
    if (rc == 1) {
        ring_request_producer(&e->requests, b->ring);
        ring_reply_consumer(&e->replies, b->ring);
        e->state = CALLS_UP;
        b->attachments++;
        atomic_store_explicit(&b->n_kept, 0, memory_order_relaxed);
        rc = calls_resume(b);
    } else if (rc == 0) {
        atomic_store_explicit(b->life, LIFE_GONE, memory_order_relaxed);
        calls_end(b, BERTH_ERESTART);
    }
    if (rc == -EBADF) {
        calls_end(b, rc);
    } else if (rc < 0) {
        e->state = CALLS_DOWN;
        e->next_try = client_now() + e->backoff;
        e->backoff = 2 * e->backoff < BACKOFF_MAX_NS ? 2 * e->backoff : BACKOFF_MAX_NS;
    }
    pthread_mutex_unlock(&b->lock);
}

static void tend(struct berth *b)
{
    int64_t now = client_now();
    reconnect(b, now);
    pthread_mutex_lock(&b->lock);
    if (b->calls.broken) {
        hang_up(b);
    }
    calls_expire(b, now);
    calls_push(b);
    pthread_mutex_unlock(&b->lock);
}

/* ---- doing the node's work ---- */

struct driven {
    struct berth *b;
    bool (*ready)(void *arg);
    void *arg;
};

static bool drive_over(void *arg)
{
    const struct driven *d = arg;
    return reply_there(&d->b->calls) || d->ready(d->arg);
}

static void set_driving(struct berth *b, bool driving)
{
    pthread_mutex_lock(&b->lock);
    b->calls.driving = driving;
    pthread_mutex_unlock(&b->lock);
}

/* An embedded node whose thread sleeps: who waits does its work. Now and then a look whether the node has hung up,
 * which nothing else would show here. */
static bool drive(struct berth *b, bool (*ready)(void *arg), void *arg, int64_t until)
{
    struct calls *e = &b->calls;
    struct driven d = {.b = b, .ready = ready, .arg = arg};
    if (!b->server || e->state != CALLS_UP) {
        return false;
    }
    int64_t now = client_now();
    pthread_mutex_lock(&b->lock);
    int64_t look = next_look(e, until, now);
    e->look = look = look < now + DRIVE_NS ? look : now + DRIVE_NS;
    e->driving = true;
    pthread_mutex_unlock(&b->lock);
    bool drove = server_drive(b->server, drive_over, &d, look);
    set_driving(b, false);
    if (drove && client_now() >= look) {
        look_at_socket(b);
    }
    return drove;
}

static void set_leading(struct berth *b, const void *key)
{
    pthread_mutex_lock(&b->lock);
    b->calls.leading = key;
    pthread_mutex_unlock(&b->lock);
}

static void lead(struct berth *b, bool (*ready)(void *arg), void *arg, int64_t until)
{
    while (!ready(arg)) {
        if (calls_drain(b)) {
            continue;
        }
        if (until != INT64_MAX && client_now() >= until) {
            return;
        }
        if (drive(b, ready, arg, until)) {
            tend(b);
            continue;
        }
        calls_bell(b);
        if (!spin(b, until)) {
            doze(b, ready, arg, until);
            tend(b);
        }
    }
}

void calls_wait(struct berth *b, const void *key, bool (*ready)(void *arg), void *arg, int64_t until)
{
    bool alone = true;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* a cancelled thread would keep the lead, or the node */
    while (!ready(arg) && (until == INT64_MAX || client_now() < until)) {
        if (pthread_mutex_trylock(&b->calls.drain) == 0) {
            set_leading(b, key);
            lead(b, ready, arg, until);
            set_leading(b, NULL);
            pthread_mutex_unlock(&b->calls.drain);
        } else {
            calls_bell(b);
            follow(b, key, ready, arg, until);
        }
        alone = false;
    }
    if (!alone) {
        pass_on(b);
    }
    pthread_setcancelstate(cancel, NULL);
}

void calls_poll(struct berth *b, bool socket_too)
{
    if (pthread_mutex_trylock(&b->calls.drain) == 0) {
        if (!calls_drain(b) && socket_too && b->calls.state == CALLS_UP) {
            look_at_socket(b);
        }
        tend(b);
        pthread_mutex_unlock(&b->calls.drain);
        pass_on(b);
    }
}
