/* node.c: the core's event loop, commands, phases, status. */
#include "store/node_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES (64u << 10)

const char *const node_counter_names[NODE_COUNTERS] = {
    [NODE_PUTS] = "puts",
    [NODE_PUT_BYTES] = "put_bytes",
    [NODE_KEPT] = "puts_kept",
    [NODE_REPLACED] = "replaced",
    [NODE_REMOVED] = "removed",
    [NODE_EVICTED] = "evicted",
    [NODE_EVICTED_BYTES] = "evicted_bytes",
    [NODE_ABORTED_WRITES] = "aborted_writes",
    [NODE_ABORTS] = "aborts",
    [NODE_GRANTS] = "grants",
    [NODE_CREATES] = "creates",
    [NODE_SEALS] = "seals",
    [NODE_GROUPS] = "groups",
    [NODE_FINDS] = "finds",
    [NODE_STATS] = "stats",
    [NODE_LISTS] = "lists",
    [NODE_HOLDS] = "holds",
    [NODE_DROPS] = "drops",
    [NODE_REFUSED_FULL] = "refused_full",
    [NODE_REFUSED_INDEX] = "refused_index_full",
    [NODE_REFUSED_HELD] = "refused_held",
    [NODE_REFUSED_STALE] = "refused_stale",
    [NODE_REFUSED_QUOTA] = "refused_quota",
    [NODE_REFUSED_READONLY] = "refused_read_only",
    [NODE_REFUSED_OTHER] = "refused_other",
    [NODE_TIMEOUTS] = "timeouts",
    [NODE_COMMITS] = "commits",
    [NODE_COMMIT_OPS] = "commit_operations",
    [NODE_COMMIT_FAILED] = "commits_failed",
    [NODE_SCANS] = "scans",
    [NODE_SCANNED_SLOTS] = "scanned_slots",
    [NODE_RETIRED] = "retired",
    [NODE_FREED] = "freed",
    [NODE_STALLS] = "stalls",
    [NODE_INDEX_ONLY] = "index_only",
    [NODE_WAITS] = "waits",
    [NODE_HOLDS_EXPIRED] = "holds_expired",
    [NODE_SESSIONS_OPENED] = "sessions_opened",
    [NODE_SESSIONS_DEAD] = "sessions_ended",
    [NODE_RECOVERED] = "recovered",
    [NODE_RECOVERED_DROPPED] = "recovered_dropped",
};

const char *const node_phase_names[PHASES] = {"queue", "space", "decide", "batch", "commit", "publish", "total"};

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
    if (e == 0 && !(n->evict = n->policy->create(n->max_headers))) {
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
    n->policy = policy;
    n->max_headers = config->super->max_headers;
    struct slot_list empty = {SLOT_NONE, SLOT_NONE, 0};
    n->fresh = n->waiting = n->orphan.drafts = empty;
    n->waiters_end = &n->waiters;
    n->next_ns = 1;
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
    work_free(n);
    pending_free(&n->pending);
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

static void touch_event(struct node *n, const struct node_event *ev)
{
    n->request++;
    for (uint32_t i = 0; i < ev->n_slots; i++) {
        /* A client's word: a slot that is not in the policy is passed over there. */
        if (ev->slots[i] < n->max_headers) {
            n->policy->touch(n->evict, &ev->slots[i], 1, n->request);
        }
    }
}

/* The clock is handed in with events: what an event took shows when the next one comes. */
static void phase_of_last(struct node *n, int64_t ns)
{
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
    window_settle(n);
    evict_watermark(n);
    waiters_run(n);
    waits_expire(n);
    retire_turn(n);
}

static void stop_turn(struct node *n)
{
    if (n->stopping && !n->stopped && !n->flying && n->open->n_effects == 0 && batch_count(n->open->batch) == 0) {
        n->stopped = true;
        command_add(n, CMD_STOPPED, 0);
    }
}

void node_event(struct node *n, const struct node_event *ev, struct node_now now)
{
    arena_reset(n);
    n->n_commands = n->command_at = 0;
    if (n->now.mono) {
        phase_of_last(n, now.mono - n->now.mono);
    }
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
    case EV_TICK:
        break;
    case EV_TURN:
        work_turn(n);
        break;
    case EV_STOP:
        n->stopping = true;
        break;
    }
    if (ev->kind != EV_REQUEST && ev->kind != EV_TOUCH && ev->kind != EV_ADOPT) {
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
    if (n->n_expiries) {
        t = earlier(t, n->now.mono + (n->expiries[0].boot - n->now.boot));
    }
    return t;
}

int node_started(const struct node *n, const char **why)
{
    *why = n->start_why;
    return n->start_status;
}

void node_status(const struct node *n, struct node_status *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->counter, n->counters, sizeof out->counter);
    memcpy(out->phase, n->phase, sizeof out->phase);
    slabs_usage(n->slabs, &out->slabs);
    n->c.index->usage(n->c.ix, &out->index);
    out->objects = n->objects;
    out->sealed_bytes = n->sealed_bytes;
    out->object_bytes = n->object_bytes;
    out->drafts = n->drafts;
    out->draft_bytes = n->draft_bytes;
    out->grants = n->grants;
    out->retired = n->fresh.count + (uint64_t)n->waiting.count;
    out->retired_bytes = n->retired_bytes;
    out->held = n->held;
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        out->sessions += !n->session[i]->dead;
    }
    out->high_bytes = n->c.high_bytes;
    out->low_bytes = n->c.low_bytes;
    out->waiting = n->n_waiters;
}
