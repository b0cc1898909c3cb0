/* remote.c: see remote.h. */
#include "store/shell/remote.h"

#include "store/clock.h"
#include "store/fd.h"
#include "store/map.h"
#include "store/shell/peers_client.h"
#include "store/shell/session.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SCHEME "tcp://"
#define CLOSE_NS INT64_C(1000000000) /* what a resolver that does not answer may hold close up */
#define STALL_MS 1u                  /* a look at a reply ring that has no room */
#define DESCRIPTORS 8u               /* of the loop, the transport, the ring */

enum remote_state {
    REMOTE_OPENS,
    REMOTE_READY,
    REMOTE_QUIET, /* no pull any more, and none comes */
    REMOTE_ENDED  /* the thread is about to return */
};

struct remote {
    struct server *server; /* of it: settings, loop, peers, one session; no core */
    struct session *session;
    uv_timer_t timer;
    pthread_t thread;
    int bell; /* of the session's bell: it outlives the session */
    int64_t timeout_ns;
    char address[SETTINGS_ADDRESS], name[SETTINGS_NODE_NAME];
    _Atomic uint32_t stop;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    enum remote_state state;
    bool left; /* who opened or closed it waits no more: the thread frees it */
    int status;
    char why[TRANSPORT_WHY_MAX];
};

/* ---- requests ---- */

/* Of a client there is none: the time-out stands for it. */
static void ask_stat(struct remote *r, const struct msg_key *m)
{
    if (m->head.deadline != INT64_MAX || r->timeout_ns == INT64_MAX) {
        peers_stat(r->server->peers, r->session, m);
        return;
    }
    struct msg_key *own = malloc(m->head.bytes);
    if (!own) {
        session_answer(r->session, &m->head, -ENOMEM, 0);
        return;
    }
    memcpy(own, m, m->head.bytes);
    own->head.deadline = clock_mono() + r->timeout_ns;
    peers_stat(r->server->peers, r->session, own);
    free(own);
}

static void serve(struct remote *r, const struct msg_head *m)
{
    struct peers *p = r->server->peers;
    if (m->op == MSG_PULL && ((const struct msg_pull *)m)->kind == MSG_PULL_BUFFER)
        peers_pull(p, r->session, (const struct msg_pull *)m);
    else if (m->op == MSG_CANCEL)
        peers_cancel_pull(p, r->session, (const struct msg_cancel *)m);
    else if (m->op == MSG_STAT)
        ask_stat(r, (const struct msg_key *)m);
    else
        session_answer(r->session, m, -EOPNOTSUPP, 0);
}

static void take_requests(struct remote *r)
{
    struct session *c = r->session;
    for (unsigned i = 0; i < SESSION_TURN && c->attached && !c->leaving; i++) {
        int next = session_next(c);
        if (next < 0)
            c->leaving = true; /* the application has written over its own memory */
        if (next <= 0)
            return;
        const struct msg_head *m = session_take(c);
        if (m)
            serve(r, m);
    }
}

/* ---- the loop ---- */

static void woken(uv_timer_t *timer)
{
    (void)timer;
}

static void rung(void *arg, int events)
{
    struct remote *r = arg;
    uint64_t count;
    (void)events;
    if (read(r->session->bell_fd, &count, sizeof count) < 0)
        return; /* rung out already */
}

/* Milliseconds to sleep; 0: there is something to do. */
static uint64_t rest(struct remote *r)
{
    struct session *c = r->session;
    if (session_has_work(c) || peers_busy(r->server->peers) || atomic_load(&r->stop))
        return 0;
    if (session_stalled(c))
        return STALL_MS;
    int64_t at = peers_timer(r->server->peers), now = clock_mono();
    if (at == INT64_MAX)
        return 60000;
    return at <= now ? 0 : (uint64_t)((at - now + 999999) / 1000000);
}

/* The flag first, then the look: whoever fills the ring after the look sees the flag and rings. */
static void sleep_a_while(struct remote *r)
{
    struct session *c = r->session;
    atomic_store(&c->ring->node_sleeping, 1);
#if !BERTH_MAP_ONCE
    atomic_thread_fence(memory_order_seq_cst);
#endif
    uint64_t ms = rest(r);
    if (ms) {
        uv_update_time(&r->server->loop);
        uv_timer_start(&r->timer, woken, ms, 0);
    }
    uv_run(&r->server->loop, ms ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    uv_timer_stop(&r->timer);
    atomic_store(&c->ring->node_sleeping, 0);
    atomic_store_explicit(&c->ring->node_cpu, (uint32_t)sched_getcpu(), memory_order_relaxed);
}

static void set_state(struct remote *r, enum remote_state state, int status, const char *why)
{
    pthread_mutex_lock(&r->lock);
    r->state = state;
    if (status) {
        r->status = status;
        snprintf(r->why, sizeof r->why, "%s", why);
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Whether the members are known, or will never be. */
static bool opened(struct remote *r)
{
    const struct peers_client *c = r->server->peers->client;
    if (c->state == CLIENT_READY)
        set_state(r, REMOTE_READY, 0, "");
    else if (c->state == CLIENT_FAILED)
        set_state(r, REMOTE_OPENS, c->status, c->why);
    return c->state == CLIENT_READY || c->state == CLIENT_FAILED;
}

static void handle_close(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void free_all(struct remote *r)
{
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    if (r->bell >= 0)
        close(r->bell);
    free(r->server);
    free(r);
}

/* What can be waited for by others first: pulls, then the socket, then what a resolver may hold up. */
static void end(struct remote *r)
{
    struct server *s = r->server;
    struct session *c = r->session;
    peers_close(s->peers);
    s->peers = NULL;
    s->n_sessions = 0;
    if (c)
        session_unmake(c);
    r->session = NULL;
    set_state(r, REMOTE_QUIET, 0, "");
    uv_walk(&s->loop, handle_close, NULL);
    while (uv_loop_close(&s->loop) == UV_EBUSY)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static void *run(void *arg)
{
    struct remote *r = arg;
    bool known = false;
    while (!atomic_load(&r->stop)) {
        take_requests(r);
        peers_turn(r->server->peers);
        known = known || opened(r);
        session_wake(r->session);
        sleep_a_while(r);
    }
    end(r);
    pthread_mutex_lock(&r->lock);
    bool left = r->left;
    r->state = REMOTE_ENDED;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (left)
        free_all(r);
    return NULL;
}

/* ---- open ---- */

static int set_one(struct settings *s, char *part, char *why, size_t why_size)
{
    static const char *const names[] = {"cluster", "verify", "peer-trust"};
    char *value = strchr(part, '=');
    bool known = false;
    if (value)
        *value++ = '\0';
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        known |= strcmp(part, names[i]) == 0;
    if (value && known)
        return settings_set(s, part, value, ORIGIN_URL, SCHEME, why, why_size);
    snprintf(why, why_size, "'%.100s' is no setting of " SCHEME ": cluster=NAME, verify=.. and peer-trust=network are",
             part);
    return -EINVAL;
}

static int read_url(struct remote *r, const char *url, char *why, size_t why_size)
{
    struct settings *s = &r->server->settings;
    char *copy = strdup(url), *rest;
    int e = copy ? 0 : -ENOMEM;
    settings_init(s);
    if (e < 0) {
        snprintf(why, why_size, "no memory for the client");
        return e;
    }
    rest = strchr(copy, '?');
    if (rest)
        *rest++ = '\0';
    if (strlen(copy) >= sizeof r->address) {
        snprintf(why, why_size, "an address of %zu bytes: at most %zu are possible", strlen(copy),
                 sizeof r->address - 1);
        e = -EINVAL;
    }
    snprintf(r->address, sizeof r->address, "%.*s", (int)sizeof r->address - 1, copy);
    for (char *part; e == 0 && (part = strsep(&rest, "&"));)
        e = *part ? set_one(s, part, why, why_size) : 0;
    free(copy);
    return e;
}

static int dup_of(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return copy < 0 ? -errno : copy;
}

/* The handle's ring, as a node's session has it. */
static int make_session(struct remote *r, const struct remote_config *config, int *socket, int *doorbell)
{
    struct session *c = session_make(r->server, 1);
    int pair[2], e = c ? 0 : -ENOMEM;
    if (e < 0)
        return e;
    r->session = c;
    c->pid = getpid();
    sessions_insert(c); /* there is room: it is the first */
    struct ring_shared *ring = map_shared(config->ring, sizeof *ring, PROT_READ | PROT_WRITE);
    if (!ring)
        return -errno;
    session_connect(c, ring, dup_of(config->wake));
    if (c->wake_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return c->wake_fd < 0 ? c->wake_fd : -errno;
    c->socket_fd = fd_above_stdio(pair[1]);
    *socket = fd_above_stdio(pair[0]);
    c->bell_fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    *doorbell = c->bell_fd < 0 ? -1 : dup_of(c->bell_fd);
    r->bell = c->bell_fd < 0 ? -1 : dup_of(c->bell_fd);
    if (c->socket_fd < 0 || *socket < 0 || *doorbell < 0 || r->bell < 0)
        return -EMFILE;
    c->bell_watch = watch_open(&r->server->loop, c->bell_fd, UV_READABLE, rung, r);
    return c->bell_watch ? 0 : -ENOMEM;
}

static int make_loop(struct remote *r)
{
    int e = fd_room(DESCRIPTORS);
    e = e ? e : uv_loop_init(&r->server->loop);
    if (e)
        return e;
    return uv_timer_init(&r->server->loop, &r->timer);
}

static struct remote *make(const struct remote_config *config)
{
    struct remote *r = calloc(1, sizeof *r);
    pthread_condattr_t attr;
    if (!r)
        return NULL;
    r->server = calloc(1, sizeof *r->server);
    if (!r->server) {
        free(r);
        return NULL;
    }
    r->bell = -1;
    r->timeout_ns = config->timeout_ns;
    snprintf(r->name, sizeof r->name, "%s", config->name);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

/* Signals are the application's: its threads take them. */
static int start_thread(struct remote *r)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_setname_np(r->thread, "berth-remote");
    return -error;
}

static int start(struct remote *r, const struct remote_config *config, int *socket, int *doorbell, char *why,
                 size_t why_size)
{
    struct client_target target = {.address = r->address, .name = r->name};
    int e = make_loop(r);
    if (e < 0) {
        snprintf(why, why_size, "no event loop can be had: %s", strerror(-e));
        return e;
    }
    e = make_session(r, config, socket, doorbell);
    if (e < 0)
        snprintf(why, why_size, "the client can't be set up: %s", strerror(-e));
    e = e ? e : peers_open_client(&r->server->peers, r->server, &target, why, why_size);
    if (e == 0) {
        e = start_thread(r);
        if (e < 0)
            snprintf(why, why_size, "the client's thread can't be started: %s", strerror(-e));
    }
    if (e == 0)
        return 0;
    end(r);
    return e;
}

/* Until there is an outcome or the time is up: whether there is one. Under the lock. */
static bool await(struct remote *r, bool (*is)(const struct remote *r), int64_t timeout_ns)
{
    int64_t until = timeout_ns < INT64_MAX - clock_mono() ? clock_mono() + timeout_ns : INT64_MAX;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int e = 0;
    while (!is(r) && e != ETIMEDOUT)
        e = until == INT64_MAX ? pthread_cond_wait(&r->changed, &r->lock)
                               : pthread_cond_timedwait(&r->changed, &r->lock, &t);
    return is(r);
}

static bool has_outcome(const struct remote *r)
{
    return r->state >= REMOTE_READY || r->status < 0;
}

static bool is_quiet(const struct remote *r)
{
    return r->state >= REMOTE_QUIET;
}

static bool has_ended(const struct remote *r)
{
    return r->state == REMOTE_ENDED;
}

void remote_stop(struct remote *r)
{
    uint64_t one = 1;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->stop, 1);
    if (write(r->bell, &one, sizeof one) < 0)
        one = 0; /* full: it is rung */
    await(r, is_quiet, INT64_MAX);
    bool ended = await(r, has_ended, CLOSE_NS);
    r->left = !ended;
    pthread_t thread = r->thread;
    pthread_mutex_unlock(&r->lock);
    if (ended) {
        pthread_join(thread, NULL);
        free_all(r);
    } else {
        pthread_detach(thread);
    }
}

/* What the caller can do something about keeps its name. */
static int outcome(int status)
{
    switch (status) {
    case -EINVAL:
    case -EACCES:
    case -EUSERS:
    case -ENOMEM:
    case -EMFILE:
    case BERTH_EFORMAT:
        return status;
    default:
        return BERTH_ENODE;
    }
}

/* Without the address once more. */
static const char *cause(const struct remote *r)
{
    char start[sizeof r->address + 24];
    int n = snprintf(start, sizeof start, "cannot connect to '%s': ", r->address + strlen(SCHEME));
    return strncmp(r->why, start, (size_t)n) == 0 ? r->why + n : r->why;
}

static void fail(const struct remote *r, int e, char *why, size_t why_size)
{
    const char *said = cause(r);
    bool named = strstr(said, r->address) != NULL; /* once is enough */
    if (outcome(e) != BERTH_ENODE)
        snprintf(why, why_size, "%.250s", r->why);
    else
        snprintf(why, why_size, "%s%.80s%s%.250s: start a node there, or name another member's listen address",
                 named ? "" : "no node at '", named ? "" : r->address, named ? "" : "': ", said);
}

int remote_start(struct remote **out, const struct remote_config *config, int *socket, int *doorbell, char *why,
                 size_t why_size)
{
    *socket = *doorbell = -1;
    snprintf(why, why_size, "no memory for the client");
    struct remote *r = make(config);
    int e = r ? read_url(r, config->url, why, why_size) : -ENOMEM;
    if (e == 0) {
        /* The loop's own descriptors are made here and nowhere later: no standard stream's number is theirs. */
        int held = fd_hold_stdio();
        e = held < 0 ? held : start(r, config, socket, doorbell, why, why_size);
        if (held >= 0)
            fd_release_stdio(held);
    }
    if (e < 0) {
        if (r)
            free_all(r);
        return outcome(e);
    }
    pthread_mutex_lock(&r->lock);
    bool known = await(r, has_outcome, config->timeout_ns);
    e = known ? r->status : BERTH_ENODE;
    if (!known)
        snprintf(why, why_size, "no node at '%s': no answer in time", r->address);
    else if (e < 0)
        fail(r, e, why, why_size);
    pthread_mutex_unlock(&r->lock);
    if (e < 0) {
        remote_stop(r);
        return outcome(e);
    }
    *out = r;
    return 0;
}
