/* call.c: requests out, replies in. Waiting stands in wait.c. */
#include "store/call.h"

#include "store/client.h"
#include "store/touch.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The node answers at the deadline, and says more than that it is over: what was found, how much room there is. On its
 * way that takes a while, and a node that does not answer at all, because it is stopped, is waited for as long: a fifth
 * of the time that there was, within these. */
#define SLACK_MIN_NS INT64_C(10000000)
#define SLACK_MAX_NS INT64_C(50000000)

int calls_init(struct berth *b)
{
    struct calls *e = &b->calls;
    e->reply = malloc(RING_MESSAGE_MAX);
    if (!e->reply) {
        return -ENOMEM;
    }
    pthread_mutex_init(&e->drain, NULL);
    e->next_limit = INT64_MAX;
    e->spin_ns = CALL_SPIN_NS;
    e->few_cpus = sysconf(_SC_NPROCESSORS_ONLN) <= 2;
    e->socket = e->wake_fd = e->doorbell = e->joining = FD_NONE;
    return 0;
}

void calls_free(struct berth *b)
{
    while (b->calls.first) {
        struct call *c = b->calls.first;
        b->calls.first = c->next;
        free(c);
    }
    free(b->calls.reply);
    pthread_mutex_destroy(&b->calls.drain);
}

struct call *call_new(enum msg_op op, size_t bytes)
{
    struct call *c = malloc(sizeof *c + bytes);
    if (!c) {
        return NULL;
    }
    memset(c, 0, sizeof *c + bytes);
    *call_head(c) = (struct msg_head){.bytes = (uint32_t)bytes, .op = (uint16_t)op, .deadline = INT64_MAX};
    return c;
}

static int64_t slack(int64_t left)
{
    return left / 5 < SLACK_MIN_NS ? SLACK_MIN_NS : left / 5 < SLACK_MAX_NS ? left / 5 : SLACK_MAX_NS;
}

void call_deadline(struct berth *b, struct call *c, int64_t deadline)
{
    int64_t now = client_now();
    call_head(c)->deadline = deadline < 0 ? 0 : deadline;
    if (deadline == BERTH_FOREVER) {
        c->limit = INT64_MAX;
        return;
    }
    bool none = deadline <= 0;
    int64_t more = slack(deadline > now ? deadline - now : 0);
    c->limit = none ? now + b->timeout_ns : (deadline > now ? deadline : now);
    c->limit = none || c->limit > INT64_MAX - more ? c->limit : c->limit + more;
    c->limit_code = none ? BERTH_ENODE : -ETIMEDOUT;
}

void call_until(struct call *c, int64_t deadline)
{
    int64_t now = client_now();
    if (deadline > BERTH_NOW && deadline < INT64_MAX - SLACK_MAX_NS) {
        c->limit = (deadline > now ? deadline : now) + SLACK_MAX_NS;
        c->limit_code = -ETIMEDOUT;
    }
}

/* ThreadSanitizer does not know pthread_mutex_clocklock: its build waits by the wall clock. */
static int lock_until(pthread_mutex_t *lock, int64_t deadline)
{
#if BERTH_MAP_ONCE
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    deadline += (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - client_now();
#endif
    struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
#if BERTH_MAP_ONCE
    return pthread_mutex_timedlock(lock, &until);
#else
    return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until);
#endif
}

bool call_lock(pthread_mutex_t *lock, int64_t deadline)
{
    return (deadline == BERTH_FOREVER ? pthread_mutex_lock(lock) : lock_until(lock, deadline)) == 0;
}

/* ---- the list ---- */

static struct call **chain_of(struct calls *e, uint64_t id)
{
    return &e->chain[id % CALL_CHAINS];
}

static void list_append(struct calls *e, struct call *c)
{
    struct call **chain = chain_of(e, call_head(c)->id);
    c->chain = *chain;
    *chain = c;
    c->next = NULL;
    c->prev = e->last;
    *(e->last ? &e->last->next : &e->first) = c;
    e->last = c;
    e->count++;
    atomic_fetch_add_explicit(&e->quick, call_head(c)->op != MSG_PULL, memory_order_relaxed);
}

static void list_unlink(struct calls *e, struct call *c)
{
    struct call **chain = chain_of(e, call_head(c)->id);
    while (*chain != c) {
        chain = &(*chain)->chain;
    }
    *chain = c->chain;
    if (e->unsent == c) {
        e->unsent = c->next;
    }
    *(c->prev ? &c->prev->next : &e->first) = c->next;
    *(c->next ? &c->next->prev : &e->last) = c->prev;
    e->count--;
    atomic_fetch_sub_explicit(&e->quick, call_head(c)->op != MSG_PULL, memory_order_relaxed);
}

static struct call *list_find(struct calls *e, uint64_t id)
{
    struct call *c = *chain_of(e, id);
    while (c && call_head(c)->id != id) {
        c = c->chain;
    }
    return c;
}

/* ---- out ---- */

/* The node sets node_sleeping, then looks at the ring once more; here the ring was filled first. One of the two sees
 * the other. Taking the flag down spares the callers that come before the node is awake another bell. */
void calls_bell(struct berth *b)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&b->ring->node_sleeping, memory_order_relaxed) &&
        atomic_exchange_explicit(&b->ring->node_sleeping, 0, memory_order_seq_cst)) {
        uint64_t one = 1;
        if (!calls_lost(b) && write(b->calls.doorbell.fd, &one, sizeof one) < 0) {
            return; /* full: it has been rung */
        }
    }
}

void calls_push(struct berth *b)
{
    struct calls *e = &b->calls;
    bool pushed = false;
    struct call *c = e->unsent;
    for (; c && e->state == CALLS_UP && !e->broken; c = c->next) {
        if (c->sent) {
            continue;
        }
        int rc = ring_push(&e->requests, c->message, call_head(c)->bytes);
        if (rc) {
            e->broken |= rc == -EPROTO;
            break;
        }
        c->sent = true;
        c->place = e->requests.mine;
        pushed = true;
    }
    e->unsent = c;
    if (pushed && !e->quiet) {
        calls_bell(b);
    }
}

int call_submit(struct berth *b, struct call *c)
{
    struct calls *e = &b->calls;
    if (e->state == CALLS_ENDED) {
        int code = e->ended;
        grant_came(b, c->pages, c->want, NULL, 0);
        free(c);
        return berth_fail_plain(code);
    }
    touch_flush(b, thread_self());
    int64_t now = client_now();
    struct msg_head *head = call_head(c);
    head->id = ++e->last_id;
    head->stamp = (uint64_t)now;
    if (!c->limit) {
        c->limit = now + b->timeout_ns;
        c->limit_code = BERTH_ENODE;
    }
    c->abandoned = !c->done;
    list_append(e, c);
    if (!e->unsent) {
        e->unsent = c;
    }
    int64_t look = c->limit < now + b->timeout_ns ? c->limit : now + b->timeout_ns;
    if (!c->abandoned && look < e->next_limit) {
        e->next_limit = look;
    }
    atomic_store_explicit(&b->ring->client_cpu, (uint32_t)sched_getcpu(), memory_order_relaxed);
    calls_push(b);
    if (e->unsent || look < e->look) {
        calls_poke(b);
    }
    return 0;
}

/* ---- in ---- */

/* Tokens behind a reply, as many as are really there and lie in the pool. */
static const struct msg_token *reply_tokens(struct berth *b, const struct msg_reply *r, uint32_t bytes, uint32_t *n)
{
    const struct msg_token *t = (const struct msg_token *)(r + 1);
    uint32_t room = (bytes - (uint32_t)sizeof *r) / (uint32_t)sizeof *t;
    *n = r->status < 0 ? 0 : r->count < room ? r->count : room;
    for (uint32_t i = 0; i < *n; i++) {
        uint64_t end = (uint64_t)t[i].page * PAGE_BYTES + r->figure[0];
        if (r->figure[0] > OBJECT_MAX || end > b->pool_bytes || !tokens_add(&b->tokens, &t[i])) {
            *n = i;
        }
    }
    return t;
}

/* What a reply gives goes into the books before anybody is told: the first slot of a grant, or the one of a draft, is
 * the caller's, if it still waits. */
static void settle(struct berth *b, struct call *c, const struct msg_reply *r, uint32_t bytes)
{
    uint32_t op = call_head(c)->op, n = 0, first = 0;
    const struct msg_token *t = NULL;
    if (op == MSG_PUT) {
        tokens_remove(&b->tokens, &((struct msg_put *)c->message)->token);
    }
    if (op == MSG_GRANT || op == MSG_PUT || op == MSG_CREATE) {
        t = reply_tokens(b, r, bytes, &n);
        first = n && op != MSG_PUT && !c->abandoned;
        grant_came(b, op == MSG_CREATE ? 0 : c->pages, c->want, t + first, n - first);
    }
    if (op == MSG_SEAL && r->status >= 0) {
        const struct msg_seal *m = (const struct msg_seal *)c->message;
        const struct msg_member *member = (const struct msg_member *)(m + 1);
        for (uint32_t i = 0; i < m->count; i++) {
            tokens_remove(&b->tokens, &member[i].token);
        }
    }
}

static void answer(struct berth *b, const struct msg_reply *r, uint32_t bytes)
{
    pthread_mutex_lock(&b->lock);
    struct call *c = bytes >= sizeof *r ? list_find(&b->calls, r->head.id) : NULL;
    if (c && c->sent) {
        list_unlink(&b->calls, c);
        settle(b, c, r, bytes);
        if (c->done) {
            c->done(b, c, r->status, r, bytes);
        }
        free(c);
    }
    pthread_mutex_unlock(&b->lock);
}

bool calls_drain(struct berth *b)
{
    struct calls *e = &b->calls;
    bool any = false;
    long n;
    while (e->state == CALLS_UP && (n = ring_pop(&e->replies, e->reply)) != 0) {
        if (n < 0) {
            pthread_mutex_lock(&b->lock);
            e->broken = true;
            pthread_mutex_unlock(&b->lock);
            return any;
        }
        answer(b, (const struct msg_reply *)e->reply, (uint32_t)n);
        any = true;
    }
    if (any) {
        pthread_mutex_lock(&b->lock);
        calls_push(b);
        pthread_mutex_unlock(&b->lock);
    }
    return any;
}

/* ---- giving up ---- */

static void drop(struct berth *b, struct call *c)
{
    if (call_head(c)->op == MSG_GRANT || call_head(c)->op == MSG_PUT) {
        grant_came(b, c->pages, c->want, NULL, 0);
    }
    list_unlink(&b->calls, c);
    free(c);
}

void call_abandon(struct call *c)
{
    c->done = NULL;
    c->abandoned = true;
}

static void give_up(struct berth *b, struct call *c, int code)
{
    call_done *done = c->done;
    bool never = !c->sent && call_head(c)->op != MSG_ABORT;
    call_abandon(c);
    if (done) {
        done(b, c, code, NULL, 0);
    }
    if (!never) {
        return;
    }
    if (call_head(c)->op == MSG_PUT) { /* it never left: its slot is as good as before */
        grant_came(b, c->pages, 0, &((struct msg_put *)c->message)->token, 1);
    }
    drop(b, c);
}

/* Whether this call has waited long enough, or when to look again. */
static int call_late(const struct berth *b, const struct call *c, int64_t now, int64_t *look)
{
    const struct calls *e = &b->calls;
    int64_t from = (int64_t)((const struct msg_head *)c->message)->stamp;
    bool taken = c->sent && e->state == CALLS_UP &&
                 atomic_load_explicit(&b->ring->request_head, memory_order_relaxed) >= c->place;
    *look = c->limit;
    if (now >= c->limit) {
        return c->limit_code;
    }
    if (taken) {
        return 0;
    }
    from = e->state == CALLS_DOWN && e->down_since > from ? e->down_since : from;
    if (now - from >= b->timeout_ns) {
        return BERTH_ENODE;
    }
    *look = from + b->timeout_ns < c->limit ? from + b->timeout_ns : c->limit;
    return 0;
}

void calls_expire(struct berth *b, int64_t now)
{
    struct calls *e = &b->calls;
    if (now < e->next_limit) {
        return;
    }
    e->next_limit = INT64_MAX;
    for (struct call *c = e->first, *next; c; c = next) {
        next = c->next;
        if (c->abandoned) {
            continue;
        }
        int64_t look;
        int code = call_late(b, c, now, &look);
        if (code) {
            give_up(b, c, code);
        } else if (look < e->next_limit) {
            e->next_limit = look;
        }
    }
}

void calls_end(struct berth *b, int code)
{
    struct calls *e = &b->calls;
    e->state = CALLS_ENDED;
    e->ended = code;
    while (e->first) {
        struct call *c = e->first;
        if (c->done) {
            c->done(b, c, code, NULL, 0);
        }
        list_unlink(e, c);
        free(c);
    }
}

int calls_resume(struct berth *b)
{
    struct calls *e = &b->calls;
    for (struct call *c = e->first, *next; c; c = next) {
        next = c->next;
        if (c->abandoned) {
            if (call_head(c)->op == MSG_PUT) {
                tokens_remove(&b->tokens, &((struct msg_put *)c->message)->token);
            }
            drop(b, c);
            continue;
        }
        call_head(c)->flags |= c->sent ? MSG_AGAIN : 0;
        c->sent = false;
    }
    uint32_t n = b->tokens.count;
    struct call *c = call_new(MSG_RESUME, sizeof(struct msg_tokens) + n * sizeof(struct msg_token));
    if (!c) {
        return -ENOMEM;
    }
    struct msg_tokens *m = (struct msg_tokens *)c->message;
    m->count = n;
    memcpy(m + 1, b->tokens.token, n * sizeof(struct msg_token));
    m->head.id = ++e->last_id;
    m->head.stamp = (uint64_t)client_now();
    ring_push(&e->requests, m, m->head.bytes); /* the ring is empty */
    c->sent = c->abandoned = true;
    c->place = e->requests.mine;
    list_append(e, c);
    e->unsent = e->first;
    e->next_limit = 0;
    calls_push(b);
    calls_bell(b);
    return 0;
}

/* ---- synchronous ---- */

static void finish(struct berth *b, struct call *c, int status, const struct msg_reply *reply, uint32_t bytes)
{
    struct call_result *r = c->arg;
    if (reply) {
        r->reply = *reply;
    }
    r->status = r->take ? r->take(b, r->arg, status, reply, bytes) : status;
    atomic_store_explicit(&r->finished, true, memory_order_release);
    calls_wake(b, r);
}

static bool is_finished(void *arg)
{
    return atomic_load_explicit(&((struct call_result *)arg)->finished, memory_order_acquire);
}

/* Who leads gives up what is late, but may itself be stopped or in a signal handler: each sees to its own deadline. */
static void expire_own(struct berth *b, struct call_result *r)
{
    if (!is_finished(r)) {
        pthread_mutex_lock(&b->lock);
        b->calls.next_limit = 0;
        calls_expire(b, client_now());
        pthread_mutex_unlock(&b->lock);
    }
}

int call_run(struct berth *b, struct call *c, struct call_result *r, call_take *take, void *arg)
{
    int cancel;
    *r = (struct call_result){.take = take, .arg = arg};
    berth_unasked("");                                       /* of an earlier call */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* a cancelled thread would keep the lock */
    c->done = finish;
    c->arg = r;
    pthread_mutex_lock(&b->lock);
    b->calls.quiet = b->server != NULL; /* who waits does the node's work, or rings before it sleeps */
    int rc = call_submit(b, c);
    int64_t limit = rc ? 0 : c->limit;
    b->calls.quiet = false;
    if (rc) {
        r->status = take ? take(b, arg, rc, NULL, 0) : rc;
    }
    pthread_mutex_unlock(&b->lock);
    while (rc == 0 && !is_finished(r)) {
        calls_wait(b, r, is_finished, r, limit);
        expire_own(b, r);
    }
    pthread_setcancelstate(cancel, NULL);
    return r->status;
}
