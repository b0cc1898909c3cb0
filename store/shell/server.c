#include "store/shell/server.h"

#include "store/amount.h"
#include "store/fd.h"
#include "store/shell/adopt.h"
#include "store/shell/dispatch.h"
#include "store/shell/handshake.h"
#include "store/shell/listen.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/loop.h"
#include "store/shell/peers.h"
#include "store/shell/region_pages.h"
#include "store/shell/report.h"
#include "store/shell/session.h"
#include "store/shell/settings_value.h"
#include "store/shell/space.h"
#include "store/shell/state.h"
#include "store/shell/trim.h"
#include "store/shell/watch.h"
#include "store/where.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COMMIT_INLINE 64u  /* operations: above, a thread does it */
#define OFFSETS_NS 1000000 /* how old the other clocks' distance from CLOCK_MONOTONIC may be */
#define FDS_WANTED 8192u   /* five a session, and the node's own */
#define LOOP_FDS 6u        /* what an event loop begins with */
#define PROGRESS_NS 1000000000LL

struct hook {
    struct hook *next;
    struct watch *watch;
    uv_timer_t timer;
    void (*call)(void *arg);
    void *arg;
};

/* ---- clocks ---- */

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t server_clock(struct server *s)
{
    int64_t mono = clock_ns(CLOCK_MONOTONIC);
    if (mono - s->offsets_read > OFFSETS_NS) {
        s->boot_offset = clock_ns(CLOCK_BOOTTIME) - mono;
        struct timespec raw;
        int without = clock_gettime(CLOCK_MONOTONIC_RAW, &raw); /* then `raw` is CLOCK_MONOTONIC */
        s->raw_offset = without ? 0 : (int64_t)raw.tv_sec * 1000000000 + raw.tv_nsec - mono;
        s->wall_offset_us = (clock_ns(CLOCK_REALTIME) - mono) / 1000;
        s->offsets_read = mono;
    }
    s->now.mono = mono;
    s->now.boot = mono + s->boot_offset;
    s->now.raw = mono + s->raw_offset; /* at most a tenth of OFFSETS_NS off: a lease has its grace for that */
    s->now.wall_us = (uint64_t)(mono / 1000 + s->wall_offset_us);
    return mono;
}

/* ---- now and then ---- */

struct pinned_sum {
    const struct server *server;
    uint64_t bytes;
};

static void pinned_add(void *arg, uint32_t slot)
{
    struct pinned_sum *sum = arg;
    sum->bytes += (sum->server->region.headers[slot].size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void quotas(struct server *s)
{
    for (unsigned i = 0; i < s->n_sessions; i++) {
        struct session *c = s->sessions[i];
        struct pinned_sum sum = {.server = s};
        if (c->dead || scan_each(&s->scanner, &c->pins, pinned_add, &sum) != 0)
            continue;
        struct node_event ev = {.kind = EV_PINNED, .session = c->id, .bytes = sum.bytes};
        dispatch(s, &ev);
    }
}

static bool needs_look(const struct server *s)
{
    return liveness_needs_looks(s) || listener_waits(s->listener) || (s->settings.pin_quota && s->n_sessions);
}

static void look_due(uv_timer_t *timer)
{
    struct server *s = timer->data;
    liveness_look_all(s);
    listener_tend(s->listener);
    if (s->settings.pin_quota)
        quotas(s);
}

void server_look_soon(struct server *s)
{
    if (!uv_is_active((uv_handle_t *)&s->look) && needs_look(s)) {
        uv_update_time(&s->loop);
        uv_timer_start(&s->look, look_due, LOOK_MS, 0);
    }
}

/* Files of the region that are gone from their directory: the node goes on with what it has mapped, and says so
 * once. */
static void housekeeping_due(uv_timer_t *timer)
{
    struct server *s = timer->data;
    char why[sizeof(s->unlinked)] = "";
    int error = region_linked(&s->region, why, sizeof(why));
    if (error && strcmp(why, s->unlinked) != 0)
        log_often(LOG_ERROR, "%s", why);
    memcpy(s->unlinked, why, sizeof(why));
    if (!error)
        s->unlinked[0] = 0;
    listener_tend(s->listener);
    trim_tend(s);
    log_sums(server_clock(s));
    server_look_soon(s); /* a node that is never idle looks too */
}

/* ---- from other threads ---- */

static void async_ready(uv_async_t *async)
{
    struct server *s = async->data;
    int sockets[GUESTS_MAX];
    pthread_mutex_lock(&s->connect_lock);
    unsigned n = s->n_connects;
    memcpy(sockets, s->connects, n * sizeof(sockets[0]));
    s->n_connects = 0;
    pthread_mutex_unlock(&s->connect_lock);
    for (unsigned i = 0; i < n; i++)
        listener_add(s->listener, sockets[i]);
}

void server_stop(struct server *s)
{
    atomic_store(&s->stop, 1);
    uv_async_send(&s->async);
}

int server_connect(struct server *s)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -errno;
    pthread_mutex_lock(&s->connect_lock);
    bool room = s->n_connects < GUESTS_MAX;
    if (room)
        s->connects[s->n_connects++] = pair[1];
    pthread_mutex_unlock(&s->connect_lock);
    if (!room) {
        close(pair[0]);
        close(pair[1]);
        return -EAGAIN;
    }
    uv_async_send(&s->async);
    return pair[0];
}

/* ---- hooks ---- */

static struct hook *hook_add(struct server *s, void (*call)(void *arg), void *arg)
{
    struct hook *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->call = call;
    h->arg = arg;
    h->next = s->hooks;
    s->hooks = h;
    return h;
}

static void hook_ready(void *arg, int events)
{
    struct hook *h = arg;
    (void)events;
    h->call(h->arg);
}

static void hook_tick(uv_timer_t *timer)
{
    struct hook *h = timer->data;
    h->call(h->arg);
}

int server_watch(struct server *s, int fd, void (*ready)(void *arg), void *arg)
{
    struct hook *h = hook_add(s, ready, arg);
    if (!h)
        return -ENOMEM;
    h->watch = watch_open(&s->loop, fd, UV_READABLE, hook_ready, h);
    return h->watch ? 0 : -EINVAL; /* the hook stays, silent, until the server goes */
}

int server_every(struct server *s, unsigned period_ms, void (*tick)(void *arg), void *arg)
{
    struct hook *h = hook_add(s, tick, arg);
    if (!h)
        return -ENOMEM;
    uv_timer_init(&s->loop, &h->timer);
    h->timer.data = h;
    return uv_timer_start(&h->timer, hook_tick, period_ms, period_ms);
}

/* ---- reports ---- */

char *server_report(struct server *s, unsigned what, const struct key_ref *key)
{
    return report_make(s, what, key);
}

int server_health(struct server *s, char *why, size_t why_size)
{
    if (s->unlinked[0])
        snprintf(why, why_size, "%s", s->unlinked);
    else if (s->commit_error)
        snprintf(why, why_size, "the last commit failed: %s",
                 s->commit_error == -ENOSPC ? "the index map is full, raise index-size" : strerror(-s->commit_error));
    else
        snprintf(why, why_size, "ok");
    return s->unlinked[0] || s->commit_error ? -1 : 0;
}

/* ---- create ---- */

struct populating {
    int64_t told;
};

static void populated(void *arg, uint64_t done, uint64_t total)
{
    struct populating *p = arg;
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now - p->told < PROGRESS_NS || done == total)
        return;
    p->told = now;
    log_event(LOG_INFO, "populating the pool: %llu of %llu MiB", (unsigned long long)(done >> 20),
              (unsigned long long)(total >> 20));
}

/* Five descriptors a session are more than the usual soft limit of 1,024 allows; the hard one is the
 * administrator's. An application's limits are its own. */
static void raise_descriptors(const struct server *s)
{
    struct rlimit l;
    if (s->settings.embedded || getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= FDS_WANTED)
        return;
    l.rlim_cur = l.rlim_max < FDS_WANTED ? l.rlim_max : FDS_WANTED;
    setrlimit(RLIMIT_NOFILE, &l);
}

/* libuv aborts the process when it can't have the first ones. */
static int open_loop(struct server *s)
{
    int error = fd_room(LOOP_FDS);
    if (!error)
        error = uv_loop_init(&s->loop);
    if (error)
        return error;
    error = uv_async_init(&s->loop, &s->async, async_ready);
    if (error) {
        uv_loop_close(&s->loop);
        return error;
    }
    uv_timer_init(&s->loop, &s->housekeeping);
    uv_timer_init(&s->loop, &s->look);
    s->async.data = s->housekeeping.data = s->look.data = s;
    return uv_timer_start(&s->housekeeping, housekeeping_due, HOUSEKEEPING_MS, HOUSEKEEPING_MS);
}

static void handle_close(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void close_loop(struct server *s)
{
    for (struct hook *h = s->hooks; h; h = h->next)
        watch_close(h->watch);
    uv_walk(&s->loop, handle_close, NULL);
    while (uv_run(&s->loop, UV_RUN_DEFAULT) != 0)
        continue;
    uv_loop_close(&s->loop);
    while (s->hooks) {
        struct hook *h = s->hooks;
        s->hooks = h->next;
        free(h);
    }
}

static int open_region(struct server *s, char *why, size_t why_size)
{
    struct populating p = {.told = clock_ns(CLOCK_MONOTONIC)};
    struct mem_progress progress = {.report = populated, .arg = &p};
    const struct mem_progress *told = s->settings.progress ? s->settings.progress : &progress;
    return region_open(&s->region, &s->settings, s->settings.embedded ? NULL : told, why, why_size);
}

/* Without CLOCK_MONOTONIC_RAW leases run by a clock that NTP may slew (chrony by 8 % at most). */
static bool has_raw_clock(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC_RAW, &t) == 0;
}

static int open_node(struct server *s)
{
    struct region *r = &s->region;
    struct node_config config = {.super = r->super,
                                 .headers = r->headers,
                                 .dir = r->dir,
                                 .lookup = &r->lookup,
                                 .tails = r->tails,
                                 .n_tails = r->n_tails,
                                 .grow_headers = region_grow_headers,
                                 .grow_tails = region_grow_tails,
                                 .env = r,
                                 .index = &lmdb_ops,
                                 .ix = r->index,
                                 .classes = s->settings.classes,
                                 .n_classes = s->settings.n_classes,
                                 .high_bytes = s->settings.high,
                                 .low_bytes = s->settings.low,
                                 .policy = s->settings.policy,
                                 .quarantine_ns = s->settings.quarantine_ns,
                                 .draft_quota = s->settings.draft_quota,
                                 .pin_quota = s->settings.pin_quota,
                                 .namespaces = s->settings.namespaces,
                                 .n_namespaces = s->settings.n_namespaces,
                                 .places = r->numa.places,
                                 .n_places = r->numa.n_places,
                                 .publish = peers_wanted(s),
                                 .tombstone_ns = s->settings.tombstone_ns,
                                 .lease = {.ttl_ns = s->settings.lease_ns,
                                           .peer_bytes = s->settings.lease_quota,
                                           .rho_ppm = has_raw_clock() ? 0 : LEASE_RHO_LIMIT_PPM},
                                 .first = r->first,
                                 .clean = r->clean,
                                 .shrunk = r->dropped > 0};
    return node_create(&s->node, &config);
}

static uint32_t inline_max(void)
{
    cpu_set_t cpus;
    bool alone = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2;
    return alone ? UINT32_MAX : COMMIT_INLINE;
}

static int open_parts(struct server *s, char *why, size_t why_size)
{
    int error = commit_create(&s->commit, &lmdb_ops, s->region.index, inline_max(), &s->sleeping);
    if (!error)
        error = scanner_create(&s->scanner, s->region.super->max_headers);
    if (!error)
        error = open_node(s);
    if (!error)
        error = loop_open(s);
    if (!error)
        error = handshake_prepare(s);
    if (error)
        snprintf(why, why_size, "the node can't be set up: %s", strerror(-error));
    return error;
}

/* Sessions that live first, so that recovery leaves them what is theirs; then what the index and the slots say. */
static int recover(struct server *s, char *why, size_t why_size)
{
    struct node_event ev = {.kind = EV_START};
    const char *sentence = "";
    s->next_session = lmdb_ops.meta(s->region.index, META_NEXT_SESSION);
    if (s->next_session == 0)
        s->next_session = 1;
    s->session_limit = s->first_session = s->next_session;
    int error = adopt_sessions(s);
    if (error) {
        snprintf(why, why_size, "pin tables in '%s/clients' can't be taken over: %s", s->region.path, strerror(-error));
        return error;
    }
    dispatch(s, &ev);
    error = node_started(s->node, &sentence);
    if (error)
        snprintf(why, why_size, "%s", sentence);
    s->started = error == 0;
    return error;
}

/* An application that asked for nothing is told, not warned. */
static void say_numa(const struct server *s, const struct region *r)
{
    char placed[300];
    bool asked = !s->settings.embedded || s->settings.source[SET_NUMA].origin != ORIGIN_DEFAULT;
    numa_placed(&r->numa.plan, placed, sizeof placed);
    if (r->numa.note[0] != '\0')
        log_event(asked ? LOG_WARNING : LOG_INFO, "%s", r->numa.note);
    else if (r->numa.plan.n > 0)
        log_event(LOG_INFO, "the pool's pages are on the NUMA nodes asked for: %s%s", placed,
                  r->numa.plan.moved ? " (some were moved there)" : "");
}

/* How it began, and what about the region its administrator should know. An application chose no memory limit. */
static void say_region(struct server *s)
{
    struct region *r = &s->region;
    log_event(r->lost || r->dropped > 0 ? LOG_WARNING : LOG_INFO, "region '%s', start %llu: %s", r->path,
              (unsigned long long)r->incarnation, r->began);
    region_pages(r, &s->settings);
    if (!space_in_memory(r->dir_fd))
        log_event(LOG_WARNING,
                  "region '%s' is not on tmpfs, ramfs or hugetlbfs: every write may go to disk: name a --region below "
                  "/dev/shm",
                  r->path);
    if (s->settings.lock == MEM_LOCK_AUTO && !r->locked)
        log_event(s->settings.embedded ? LOG_INFO : LOG_WARNING, "%s", r->lock_note);
    say_numa(s, r);
}

static int open_rest(struct server *s, char *why, size_t why_size)
{
    int error = open_parts(s, why, why_size);
    if (!error)
        error = recover(s, why, why_size);
    if (!error)
        error = listener_open(&s->listener, s, why, why_size);
    if (!error)
        error = peers_open(&s->peers, s, why, why_size);
    return error;
}

int server_create(struct server **out, const struct settings *settings, char *why, size_t why_size)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s) {
        snprintf(why, why_size, "no memory for the node");
        return -ENOMEM;
    }
    s->settings = *settings;
    s->timer_fd = -1;
    s->drive_until = INT64_MAX;
    for (unsigned i = 0; i < 4; i++)
        s->ro_fds[i] = -1;
    pthread_mutex_init(&s->connect_lock, NULL);
    raise_descriptors(s);
    server_clock(s);
    int error = open_loop(s);
    if (error) {
        snprintf(why, why_size, "no event loop can be had: %s", strerror(-error));
        goto free_server;
    }
    if (!settings->embedded)
        error = where_prepare(settings->socket, &s->made_socket_dir, why, why_size);
    if (!error)
        error = open_region(s, why, why_size);
    if (error)
        goto unmake_directory;
    error = open_rest(s, why, why_size);
    if (error) {
        server_discard(s);
        return error;
    }
    say_region(s);
    *out = s;
    return 0;

unmake_directory:
    if (s->made_socket_dir)
        where_unmake(s->settings.socket);
    close_loop(s);
free_server:
    pthread_mutex_destroy(&s->connect_lock);
    free(s);
    return error;
}

/* ---- run, destroy ---- */

int server_run(struct server *s)
{
    loop_run(s);
    return s->commit_error;
}

static void close_sessions(struct server *s)
{
    while (s->n_sessions)
        session_close(s->sessions[s->n_sessions - 1], false);
    sessions_free(s);
    for (unsigned i = 0; i < s->n_leftovers; i++)
        close(s->leftovers[i].fd);
    for (unsigned i = 0; i < s->n_connects; i++)
        close(s->connects[i]);
}

void server_destroy(struct server *s)
{
    if (!s)
        return;
    /* One that never ran has decided things at its start that the index should know. */
    if (s->started && !s->stopped && s->listener) {
        atomic_store(&s->stop, 1);
        loop_run(s);
    }
    peers_close(s->peers);
    s->peers = NULL;
    listener_close(s->listener);
    close_sessions(s);
    loop_close(s);
    commit_destroy(s->commit);
    handshake_release(s);
    node_destroy(s->node);
    scanner_destroy(&s->scanner);
    close_loop(s);
    bool clean = s->discarded ? s->region.clean : s->stopped; /* a start that failed leaves the mark as it was */
    region_close(&s->region, clean && !s->commit_error);
    log_sums(INT64_MAX);
    pthread_mutex_destroy(&s->connect_lock);
    free(s->later);
    free(s);
}

void server_discard(struct server *s)
{
    char socket[sizeof s->settings.socket];
    bool made = s->made_socket_dir;
    memcpy(socket, s->settings.socket, sizeof socket);
    s->region.remove |= s->region.first;
    s->discarded = true;
    server_destroy(s);
    if (made)
        where_unmake(socket);
}
