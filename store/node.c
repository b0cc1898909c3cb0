/* node.c: the core's event loop, commands, phases, status. */
#include "store/node_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES (64u << 10)

void node_phase(struct node *n, enum node_phase phase, int64_t ns)
{
    struct node_histogram *h = &n->phase[phase];
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    unsigned bucket = v ? 63 - (unsigned)__builtin_clzll(v) : 0;
    h->count++;
    h->sum_ns += v;
    h->bucket[bucket < 40 ? bucket : 39]++;
}

void *arena_take(struct node *n, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (!n->arena || n->arena->room - n->arena->used < bytes) {
        size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct chunk *c = malloc(sizeof *c + room);
        if (!c) {
            return NULL;
        }
        *c = (struct chunk){.next = n->arena, .room = room};
        n->arena = c;
    }
    void *p = n->arena->data + n->arena->used;
    n->arena->used += bytes;
    return p;
}

/* Everything that the commands of the last event pointed to; one chunk stays for the next. */
static void arena_reset(struct node *n)
{
    while (n->arena && n->arena->next) {
        struct chunk *c = n->arena;
        n->arena = c->next;
        free(c);
    }
    if (n->arena) {
        n->arena->used = 0;
    }
}

struct node_command *command_add(struct node *n, enum node_command_kind kind, uint64_t session)
{
    if (n->n_commands == n->commands_room) {
        uint32_t room = n->commands_room ? n->commands_room * 2 : 64;
        struct node_command *c = realloc(n->commands, room * sizeof *c);
        if (!c) {
            return NULL;
        }
        n->commands = c;
        n->commands_room = room;
    }
    struct node_command *c = &n->commands[n->n_commands++];
    *c = (struct node_command){.kind = kind, .session = session};
    return c;
}

void node_log(struct node *n, int level, const char *format, ...)
{
    char *text = arena_take(n, 320);
    struct node_command *c = text ? command_add(n, CMD_LOG, 0) : NULL;
    if (!c) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, 320, format, args);
    va_end(args);
    c->level = level;
    c->text = text;
}

struct msg_reply *reply_add(struct node *n, uint64_t session, const struct msg_head *head, int32_t status,
                            uint32_t extra)
{
    struct msg_reply *r = n->silent ? NULL : arena_take(n, sizeof *r + extra);
    struct node_command *c = r ? command_add(n, CMD_REPLY, session) : NULL;
    if (!c) {
        return NULL;
    }
    memset(r, 0, sizeof *r + extra);
    r->head.bytes = (uint32_t)sizeof *r + extra;
    r->head.op = head->op;
    r->head.id = head->id;
    r->head.stamp = (uint64_t)n->now.mono;
    r->status = status;
    c->reply = r;
    return r;
}

void reply_shrink(struct msg_reply *r, uint32_t extra)
{
    r->head.bytes = (uint32_t)sizeof *r + extra;
}

static enum node_counter refusal_counter(int32_t status)
{
    switch (status) {
    case BERTH_EFULL:
        return NODE_REFUSED_FULL;
    case BERTH_EINDEXFULL:
        return NODE_REFUSED_INDEX;
    case BERTH_EHELD:
        return NODE_REFUSED_HELD;
    case BERTH_ESTALE:
        return NODE_REFUSED_STALE;
    case BERTH_EQUOTA:
        return NODE_REFUSED_QUOTA;
    case BERTH_EREADONLY:
        return NODE_REFUSED_READONLY;
    case -ETIMEDOUT:
        return NODE_TIMEOUTS;
    default:
        return NODE_REFUSED_OTHER;
    }
}

void refuse(struct node *n, uint64_t session, const struct msg_head *head, int32_t status)
{
    n->counters[refusal_counter(status)]++;
    reply_add(n, session, head, status, 0);
}

/* A client's stamp is its own claim: only a plausible one counts. */
static int64_t since_stamp(const struct node *n, const struct msg_head *head)
{
    uint64_t now = (uint64_t)n->now.mono, ns = now - head->stamp;
    return head->stamp && head->stamp <= now && ns < UINT64_C(3600000000000) ? (int64_t)ns : -1;
}

void answered(struct node *n, const struct msg_head *head)
{
    int64_t ns = since_stamp(n, head);
    if (ns >= 0) {
        node_phase(n, PHASE_TOTAL, ns);
    }
}

static bool side_arrays(struct node *n)
{
    size_t one = ((size_t)n->max_headers * sizeof(uint32_t) + 4095) & ~(size_t)4095;
    n->side_bytes = one * 2 + n->max_headers;
    /* Reserved, not allocated: a page of it comes with the first slot that needs it. */
    uint8_t *p = mmap(NULL, n->side_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return false;
    }
    n->next = (uint32_t *)p;
    n->prev = (uint32_t *)(p + one);
    n->mark = p + one * 2;
    return true;
}

static int create_parts(struct node *n)
{
    const struct node_config *c = &n->c;
    struct slabs_config sc = {.pool_bytes = c->super->pool_bytes,
                              .mr_bytes = c->super->mr_bytes,
                              .classes = c->classes,
                              .n_classes = c->n_classes,
                              .max_headers = c->super->max_headers,
                              .headers = c->headers,
                              .dir = c->dir,
                              .grow = c->grow_headers,
                              .env = c->env};
    int e = slabs_create(&n->slabs, &sc);
    if (e == 0) {
        e = tails_create(&n->tails, c->tails, c->n_tails, c->grow_tails, c->env);
    }
    if (e == 0 && (!side_arrays(n) || !work_init(n) || !pending_init(&n->pending) || !pending_init(&n->writing))) {
        e = -ENOMEM;
    }
    e = e ? e : leases_init(n);
    if (e == 0 && !fates_init(n)) {
        e = -ENOMEM;
    }
    struct evict_env env = {.key = slot_key_tag, .arg = n};
    if (e == 0 && !(n->evict = n->policy->create(n->max_headers, &env))) {
        e = -ENOMEM;
    }
    if (e == 0 && !(n->whatif = whatif_create(n->policy, n->max_headers, n->c.high_bytes, n->c.low_bytes))) {
        e = -ENOMEM;
    }
    return e;
}

int node_create(struct node **out, const struct node_config *config)
{
    const struct evict_policy *policy = evict_find(config->policy);
    if (!policy || config->low_bytes > config->high_bytes) {
        return -EINVAL;
    }
    struct node *n = calloc(1, sizeof *n);
    if (!n) {
        return -ENOMEM;
    }
    n->c = *config;
    n->c.tombstone_ns = config->tombstone_ns > 0 ? config->tombstone_ns : TOMBSTONE_NS;
    n->policy = policy;
    n->max_headers = config->super->max_headers;
    struct slot_list empty = {SLOT_NONE, SLOT_NONE, 0};
    n->fresh = n->waiting = n->leased = n->orphan.drafts = empty;
    n->waiters_end = &n->waiters;
    int e = create_parts(n);
    if (e) {
        node_destroy(n);
        return e;
    }
    *out = n;
    return 0;
}

void node_destroy(struct node *n)
{
    if (!n) {
        return;
    }
    waits_free(n);
    while (n->n_sessions) {
        session_free(n, n->session[n->n_sessions - 1]);
    }
    free(n->session);
    while (n->waiters) {
        struct waiter *w = n->waiters;
        n->waiters = w->next;
        free(w->message);
        free(w);
    }
    if (n->evict) {
        n->policy->destroy(n->evict);
    }
    whatif_destroy(n->whatif);
    tombs_free(n);
    fates_free(n);
    work_free(n);
    pending_free(&n->pending);
    leases_free(n);
    pending_free(&n->writing);
    if (n->next) {
        munmap(n->next, n->side_bytes);
    }
    slabs_destroy(n->slabs);
    tails_destroy(n->tails);
    while (n->arena) {
        struct chunk *c = n->arena;
        n->arena = c->next;
        free(c);
    }
    free(n->scan_slots);
    free(n->expiries);
    free(n->names);
    free(n->commands);
    free(n);
}

static void start(struct node *n)
{
    n->fates.since_us = n->now.wall_us;
    n->start_status = recover(n);
    if (n->start_status == 0) {
        n->start_status = names_configure(n);
    }
}

static void request_event(struct node *n, const struct node_event *ev)
{
    struct session *s = session_find(n, ev->session);
    if (!s || !s->attached || s->stalled) {
        return; /* its connection went while the message was on its way: it is sent again */
    }
    int64_t ns = since_stamp(n, ev->message);
    if (ns >= 0) {
        node_phase(n, PHASE_QUEUE, ns);
    }
    s->place = ev->place;
    request_run(n, s, ev->message, n->now.mono);
}

static void scanned_event(struct node *n, const struct node_event *ev)
{
    if (n->scanning == SCAN_NOTHING || ev->scan != n->scan_id) {
        return;
    }
    if (n->scanning == SCAN_RETIRED) {
        retire_scanned(n, ev->pinned);
    } else {
        evict_scanned(n, ev->pinned);
    }
}

static void limits_event(struct node *n, const struct node_limits *l)
{
    n->c.high_bytes = l->high_bytes;
    n->c.low_bytes = l->low_bytes;
    n->c.draft_quota = l->draft_quota;
    whatif_limits(n->whatif, l->high_bytes, l->low_bytes);
    n->c.pin_quota = l->pin_quota;
    n->c.quarantine_ns = l->quarantine_ns;
    n->drain_at = 0; /* what was in use for the old watermark says nothing of the new one */
}

static void touch_event(struct node *n, const struct node_event *ev)
{
    n->request++;
    /* A client's word: slots that are not in the policy, or are none, are passed over there. */
    n->policy->touch(n->evict, ev->slots, ev->n_slots, n->request);
    node_whatif_used(n, ev);
}

/* The clock is handed in with events: what an event took shows when the next one comes. */
static void phase_of_last(struct node *n, int64_t now)
{
    int64_t ns = now - n->now.mono;
    if (!n->now.mono) {
        return;
    }
    if (n->last_event == EV_REQUEST) {
        node_phase(n, PHASE_DECIDE, ns);
    } else if (n->last_event == EV_COMMITTED) {
        for (uint32_t i = 0; i < n->last_answers; i++) {
            node_phase(n, PHASE_PUBLISH, ns);
        }
    }
}

static void housekeeping(struct node *n)
{
    session_timers(n);
    expiry_run(n);
    horizon_turn(n);
    window_settle(n);
    evict_watermark(n);
    waiters_run(n);
    waits_expire(n);
    tombs_turn(n);
    purges_turn(n);
    retire_turn(n);
}

static void stop_turn(struct node *n)
{
    if (n->stopping && !n->stopped && !n->flying && n->open->n_effects == 0 && batch_count(n->open->batch) == 0) {
        n->stopped = true;
        command_add(n, CMD_STOPPED, 0);
    }
}

/* What comes by the hundred thousand a second: an EV_TURN follows, which does the rest. */
static bool frequent(enum node_event_kind kind)
{
    return kind == EV_REQUEST || kind == EV_TOUCH || kind == EV_ADOPT || kind >= EV_SEEN;
}

/* What other nodes are the cause of. */
static void peer_event_of(struct node *n, const struct node_event *ev)
{
    if (ev->kind == EV_SEEN) {
        counter_seen(n, ev->counter);
    } else if (ev->kind == EV_DROP_COPY) {
        evict_copy(n, ev->key, ev->counter, ev->region);
    } else if (ev->kind == EV_TAKE) {
        take_event(n, ev);
    } else if (ev->kind == EV_KNOWN) {
        tombs_known(n, ev);
    } else if (ev->kind == EV_NOTE) {
        note_event(n, ev->meta, ev->counter);
    } else {
        lease_event(n, ev->kind, ev->lease);
    }
}

static void stop_event(struct node *n)
{
    n->stopping = true;
    horizon_stop(n);
}

void node_event(struct node *n, const struct node_event *ev, struct node_now now)
{
    arena_reset(n);
    n->n_commands = n->command_at = n->told = 0;
    phase_of_last(n, now.mono);
    n->now = now;
    n->last_event = ev->kind;
    switch (ev->kind) {
    case EV_START:
        start(n);
        break;
    case EV_ADOPT:
    case EV_ATTACH:
    case EV_DETACHED:
    case EV_DEAD:
    case EV_PINNED:
        session_event(n, ev);
        break;
    case EV_REQUEST:
        request_event(n, ev);
        break;
    case EV_TOUCH:
        touch_event(n, ev);
        break;
    case EV_COMMITTED:
        work_committed(n, n->flying ? n->flying->batch : NULL, ev->status);
        break;
    case EV_SCANNED:
        scanned_event(n, ev);
        break;
    case EV_LIMITS:
        limits_event(n, ev->limits);
        break;
    case EV_TICK:
        break;
    case EV_TURN:
        work_turn(n);
        break;
    case EV_STOP:
        stop_event(n);
        break;
    case EV_SEEN:
    case EV_LEASE:
    case EV_RENEW:
    case EV_RELEASE:
    case EV_PEER_GONE:
    case EV_SERVE_BEGIN:
    case EV_SERVE_END:
    case EV_DROP_COPY:
    case EV_TAKE:
    case EV_KNOWN:
    case EV_NOTE:
        peer_event_of(n, ev);
        break;
    }
    if (!frequent(ev->kind)) {
        housekeeping(n);
    }
    stop_turn(n);
}

const struct node_command *node_command(struct node *n)
{
    return n->command_at < n->n_commands ? &n->commands[n->command_at++] : NULL;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t node_timer(const struct node *n)
{
    int64_t t = INT64_MAX;
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        if (n->session[i]->dead) {
            t = earlier(t, n->session[i]->quarantine_end);
        }
    }
    if (n->orphan.drafts.count) {
        t = earlier(t, n->orphan.quarantine_end);
    }
    if (n->waiting.count) {
        t = earlier(t, n->rescan_at);
    }
    if (n->waiters) {
        t = earlier(t, n->retry_at);
        for (const struct waiter *w = n->waiters; w; w = w->next) {
            t = w->message->deadline ? earlier(t, w->message->deadline) : t;
        }
    }
    if (n->waits) {
        t = earlier(t, n->wait_at);
    }
    if (n->draining && n->drain_at > n->now.mono) {
        t = earlier(t, n->drain_at);
    }
    t = earlier(t, retire_timer(n));
    t = earlier(t, tombs_timer(n));
    t = earlier(t, purges_timer(n));
    if (n->n_expiries) {
        t = earlier(t, n->now.mono + (n->expiries[0].boot - n->now.boot));
    }
    if (n->lease.n_heap) {
        t = earlier(t, n->now.mono + (leases_end(n) - n->now.raw));
    }
    if (n->lease.closed_until) {
        t = earlier(t, n->now.mono + (n->lease.closed_until - n->now.boot));
    }
    return t;
}

int node_started(const struct node *n, const char **why)
{
    *why = n->start_why;
    return n->start_status;
}
