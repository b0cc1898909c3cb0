/* loop.c: polling or sleeping.
 *
 * A wake-up through the kernel costs tens of microseconds in each direction, a poll of a ring in shared memory a few
 * nanoseconds. So after work the node polls on for a while; how long is learnt: a request that comes soon after the
 * node fell asleep makes it longer, one that comes late makes it shorter, down to none. On the CPU that the client runs
 * on polling would only keep the client from running.
 *
 * The same of peers, with a budget of its own: after something came from them, or was sent, the node looks for more
 * for a while. Not where it has just answered a client of its own CPU, who is to run now; nor where the client that
 * asks spins on the other of two CPUs, which the peer may need.
 */
#include "store/shell/loop.h"

#include "store/shell/baton.h"
#include "store/shell/dispatch.h"
#include "store/shell/peers.h"
#include "store/shell/session.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define POLL_LIBUV_NS 20000 /* sockets and timers wait at most so long while the node is busy */
#define LOOK_NS 50000 /* and so long while callers drive, who look while they wait rather than when they are done */
#define BUDGET_FIRST_NS 10000
#define WAKE_NS \
    30000 /* what a wake-up takes: a peer's answer that the node slept for was there so long before, about */
#define ELSEWHERE_NS 1000000
#define ASK_NS 1000000            /* a reader tells of its gets at least so often while there are puts */
#define STALL_FIRST_NS 1000000    /* first sleep while a session waits for room in its reply ring .. */
#define STALL_MAX_NS 1000000000LL /* .. and the longest: each is twice the last */

/* A full barrier: what this side stored is visible before it loads what the other side stored. A build for
 * ThreadSanitizer, which knows no fences, makes do with the sequentially consistent accesses around it. */
static void full_barrier(void)
{
#if !BERTH_MAP_ONCE
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* ---- what sleeps and wakes ---- */

static void timer_ready(void *arg, int events)
{
    struct server *s = arg;
    uint64_t fired;
    (void)events;
    if (read(s->timer_fd, &fired, sizeof(fired)) == (ssize_t)sizeof(fired))
        s->timer_set = 0;
}

static void commit_ready(void *arg, int events)
{
    struct server *s = arg;
    (void)events;
    commit_rung(s->commit);
}

void loop_spin(struct server *s)
{
    /* Not those that this process may use: a node tied to one CPU may well poll while its clients run on others. */
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bool alone = cpus < 2;
    s->few_cpus = cpus <= 2;
    s->budget_max_ns = alone ? 0 : (int64_t)s->settings.spin_us * 1000;
}

int loop_open(struct server *s)
{
    s->timer_at = INT64_MAX;
    s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (s->timer_fd < 0)
        return -errno;
    s->timer_watch = watch_open(&s->loop, s->timer_fd, UV_READABLE, timer_ready, s);
    s->commit_watch = watch_open(&s->loop, commit_fd(s->commit), UV_READABLE, commit_ready, s);
    if (!s->timer_watch || !s->commit_watch)
        return -ENOMEM;
    loop_spin(s);
    return 0;
}

void loop_close(struct server *s)
{
    watch_close(s->timer_watch);
    watch_close(s->commit_watch);
    if (s->timer_fd >= 0)
        close(s->timer_fd);
    s->timer_fd = -1;
}

static void run_libuv(struct server *s, uv_run_mode mode)
{
    uv_run(&s->loop, mode);
    s->polled = server_clock(s);
    s->cpu = sched_getcpu();
}

/* Clients spin only while the node is awake on another CPU. */
static void tell_cpu(struct server *s)
{
    for (unsigned i = 0; i < s->n_sessions; i++) {
        struct session *c = s->sessions[i];
        if (c->attached && atomic_load_explicit(&c->ring->node_cpu, memory_order_relaxed) != (uint32_t)s->cpu)
            atomic_store_explicit(&c->ring->node_cpu, (uint32_t)s->cpu, memory_order_relaxed);
    }
}

/* ---- one pass ---- */

/* What is read between puts counts before the next one (touch.h). Each question is a line that every reader loads anew,
 * so that there is none more often than ASK_NS, but for one before the node sleeps. */
static void ask_touches(struct server *s)
{
    s->ask_touches = false;
    s->asks++;
    s->asked = s->now.mono;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        struct session *c = s->sessions[i];
        if (c->attached) /* nobody else writes it */
            atomic_store_explicit(&c->ring->touch_asked, s->asks, memory_order_relaxed);
    }
}

static bool take_touches(struct server *s)
{
    bool any = false;
    for (unsigned i = 0; i < s->n_sessions; i++)
        if (s->sessions[i]->attached)
            any |= session_touches(s->sessions[i]);
    return any;
}

/* The last session that had work: what it says of its CPU and its time decides whether polling pays. */
static struct session *take_requests(struct server *s)
{
    struct session *last = NULL;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        struct session *c = s->sessions[i];
        if (c->attached && session_requests(c))
            last = c;
    }
    return last;
}

static bool shares_cpu(const struct server *s, const struct session *c)
{
    return c->attached && (int)atomic_load_explicit(&c->ring->client_cpu, memory_order_relaxed) == s->cpu;
}

static void wake_clients(struct server *s)
{
    bool fenced = false;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        if (!s->sessions[i]->wake)
            continue;
        if (!fenced)
            full_barrier();
        fenced = true;
        session_wake(s->sessions[i]);
        if (shares_cpu(s, s->sessions[i]))
            s->peers_active = 0;
    }
}

/* Time between the last work and this request, on the client's word as far as that is possible. */
static void learn(struct server *s, const struct session *c)
{
    int64_t came = c->taken_stamp > s->active && c->taken_stamp < s->now.mono ? c->taken_stamp : s->now.mono;
    int64_t gap = came - s->active;
    if (s->slept && gap < s->budget_max_ns) {
        s->budget_ns = s->budget_ns ? 2 * s->budget_ns : BUDGET_FIRST_NS;
        if (s->budget_ns > s->budget_max_ns)
            s->budget_ns = s->budget_max_ns;
    } else if (s->slept && s->budget_ns) {
        s->budget_ns = s->budget_ns > BUDGET_FIRST_NS ? s->budget_ns / 2 : 0;
    }
    s->slept = false;
    s->patience_ns = shares_cpu(s, c) ? 0 : s->budget_ns;
    s->elsewhere = shares_cpu(s, c) || s->pulled ? 0 : s->now.mono;
    s->pulled = false;
}

static void learn_peers(struct server *s)
{
    if (!s->peers_slept || !s->peers_active)
        return;
    if (server_clock(s) - s->peers_active - WAKE_NS < s->budget_max_ns)
        s->peers_budget_ns = s->peers_budget_ns ? s->budget_max_ns : BUDGET_FIRST_NS;
    else
        s->peers_budget_ns = s->peers_budget_ns > BUDGET_FIRST_NS ? s->peers_budget_ns / 2 : 0;
}

static bool turn_peers(struct server *s)
{
    if (!peers_turn(s->peers))
        return false;
    if (peers_heard(s->peers))
        learn_peers(s);
    s->peers_slept = false;
    s->peers_active = s->now.mono;
    return true;
}

static bool awaits_peers(const struct server *s, int64_t now)
{
    if (!s->peers || (s->few_cpus && now - s->elsewhere < ELSEWHERE_NS) || now - s->peers_active >= s->peers_budget_ns)
        return false;
    return !s->driven || peers_light(s->peers);
}

static bool pass(struct server *s)
{
    s->passes++;
    bool work = take_touches(s);
    struct session *last = take_requests(s);
    work |= dispatch_committed(s);
    if (s->timer_at <= server_clock(s)) {
        struct node_event ev = {.kind = EV_TICK};
        dispatch(s, &ev);
    }
    work |= turn_peers(s);
    work |= dispatch_turn(s);
    if (s->ask_touches && s->now.mono - s->asked >= ASK_NS)
        ask_touches(s);
    wake_clients(s);
    if (last)
        learn(s, last);
    if (work || last) {
        s->active = s->now.mono;
        s->stalled_ns = 0;
    }
    sessions_free(s);
    return work || last;
}

/* ---- sleep ---- */

static void announce(struct server *s, uint32_t sleeping)
{
    atomic_store(&s->sleeping, sleeping);
    for (unsigned i = 0; i < s->n_sessions; i++) {
        struct session *c = s->sessions[i];
        if (c->attached)
            atomic_store(&c->ring->node_sleeping, sleeping);
    }
}

/* Whether something came before the clients saw that the node sleeps; also sets how long it may sleep at most where
 * a client does not read its replies, because making room there rings no bell. */
static bool anything(struct server *s)
{
    bool stalled = false;
    full_barrier();
    if (commit_done(s->commit) || s->turn_due || peers_busy(s->peers) || atomic_load(&s->stop) != (uint32_t)s->stopping)
        return true;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        if (session_has_work(s->sessions[i]))
            return true;
        stalled |= session_stalled(s->sessions[i]);
    }
    if (!stalled)
        s->stalled_ns = 0;
    else if (s->stalled_ns == 0)
        s->stalled_ns = STALL_FIRST_NS;
    else if (s->stalled_ns < STALL_MAX_NS)
        s->stalled_ns *= 2;
    return false;
}

static void set_timer(struct server *s)
{
    int64_t at = s->timer_at;
    int64_t now = server_clock(s), peers_at = peers_timer(s->peers);
    if (peers_at < at)
        at = peers_at;
    if (s->drive_until < at)
        at = s->drive_until;
    if (s->stalled_ns && now + s->stalled_ns < at)
        at = now + s->stalled_ns;
    if (at < 1)
        at = 1;
    int64_t wanted = at == INT64_MAX ? 0 : at;
    /* Pulls move the time at every turn. Too early costs one look at the next time; setting it costs as much each. */
    if (wanted == s->timer_set || (s->timer_set && (wanted == 0 || wanted > s->timer_set)))
        return;
    struct itimerspec t = {.it_value = {.tv_sec = wanted / 1000000000, .tv_nsec = wanted % 1000000000}};
    timerfd_settime(s->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
    s->timer_set = wanted;
}

/* When libuv's next timer is due, in its milliseconds. */
static uint64_t timer_time(struct server *s)
{
    int timeout = uv_backend_timeout(&s->loop);
    return timeout < 0 ? UINT64_MAX : uv_now(&s->loop) + (uint64_t)timeout;
}

/* The node's thread of an embedded node sleeps without the baton. Waiting is not libuv's then, so libuv must have told
 * the kernel what it waits for: it ran, and the pass after that found nothing. Callers that drive meanwhile add nothing
 * to that: an embedded node has no listener, and all its descriptors are watched before the first call. */
static void sleep_without_baton(struct server *s)
{
    struct pollfd fd = {.fd = uv_backend_fd(&s->loop), .events = POLLIN};
    uv_update_time(&s->loop);
    int timeout = uv_backend_timeout(&s->loop); /* which timer_time tells as a time */
    s->poll_until = timer_time(s);
    s->flushed = false;
    baton_leave(&s->baton);
    poll(&fd, 1, timeout);
    baton_regain(&s->baton);
    run_libuv(s, UV_RUN_NOWAIT);
}

static void sleep_until_something(struct server *s)
{
    bool apart = s->shared && !s->driven;
    if (apart && !s->flushed) {
        run_libuv(s, UV_RUN_NOWAIT);
        s->flushed = true;
        return;
    }
    if (s->ask_touches)
        ask_touches(s);
    announce(s, 1);
    if (!anything(s)) {
        set_timer(s);
        server_look_soon(s);
        s->sleeps++;
        s->slept = s->peers_slept = true;
        if (apart)
            sleep_without_baton(s);
        else
            run_libuv(s, UV_RUN_ONCE);
        tell_cpu(s);
    }
    announce(s, 0);
}

/* Between passes: polls while that pays, else sleeps. */
static void rest(struct server *s, bool work)
{
    int64_t now = s->now.mono;
    s->flushed &= !work;
    if (now - s->polled > (s->driven && !work ? POLL_LIBUV_NS / 2 : POLL_LIBUV_NS) && !s->flushed) {
        run_libuv(s, UV_RUN_NOWAIT);
        tell_cpu(s);
    } else if (!work && awaits_peers(s, now)) {
        peers_look(s->peers);
    } else if (!work && now - s->active >= s->patience_ns) {
        sleep_until_something(s);
    } else if (!work) {
        cpu_relax();
    }
}

static void begin_stop(struct server *s)
{
    struct node_event ev = {.kind = EV_STOP};
    s->stopping = true;
    peers_stop(s->peers);
    dispatch(s, &ev);
}

void loop_run(struct server *s)
{
    if (s->shared)
        baton_regain(&s->baton);
    s->cpu = sched_getcpu();
    s->active = s->polled = server_clock(s);
    while (!s->stopped) {
        if (atomic_load_explicit(&s->stop, memory_order_relaxed) && !s->stopping)
            begin_stop(s);
        rest(s, pass(s));
    }
    if (s->shared)
        baton_leave(&s->baton);
}

/* ---- a caller's turn ---- */

/* Leaves the node as it is when its thread sleeps: whoever gives it work rings. */
static void end_drive(struct server *s)
{
    announce(s, 1);
    s->driven = false;
    s->drive_until = INT64_MAX;
    bool left = anything(s) || atomic_load(&s->stop);
    set_timer(s);
    server_look_soon(s);
    left |= timer_time(s) < s->poll_until; /* the node's thread sleeps by an older one */
    if (!baton_give(&s->baton) && left)
        uv_async_send(&s->async);
}

/* A call that is answered in its first pass has looked at no socket. Callers that follow each other keep the node's
 * thread away, so that peers would wait for as long as they do. What came is the next pass's, whoever makes it: this
 * caller has its answer. */
static void look_at_sockets(struct server *s)
{
    if (s->now.mono - s->polled > LOOK_NS && !s->stopped) {
        run_libuv(s, UV_RUN_NOWAIT);
        tell_cpu(s);
    }
}

bool loop_drive(struct server *s, bool (*done)(void *arg), void *arg, int64_t until)
{
    if (!s->shared || atomic_load(&s->stop) || !baton_take(&s->baton))
        return false;
    if (s->stopped) {
        baton_leave(&s->baton);
        return false;
    }
    announce(s, 0);
    s->driven = true;
    s->drive_until = until;
    s->cpu = sched_getcpu();
    for (;;) {
        bool work = pass(s);
        if (done(arg) || s->stopped || atomic_load_explicit(&s->stop, memory_order_relaxed) || s->now.mono >= until)
            break;
        rest(s, work);
    }
    look_at_sockets(s);
    end_drive(s);
    return true;
}
