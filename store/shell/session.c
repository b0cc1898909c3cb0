#include "store/shell/session.h"

#include "store/berth.h"
#include "store/shell/buffers.h"
#include "store/shell/dispatch.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/peers.h"
#include "store/shell/trim.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOUCH_CHUNK 256u

struct session *session_make(struct server *s, uint64_t id)
{
    struct session *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->message = malloc(RING_MESSAGE_MAX);
    if (!c->message) {
        free(c);
        return NULL;
    }
    c->server = s;
    c->id = id;
    c->pid_fd = c->socket_fd = c->bell_fd = c->wake_fd = c->pins.fd = c->offered_fd = -1;
    TAILQ_INIT(&c->buffers);
    return c;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void watch_drop(struct watch **w)
{
    watch_close(*w);
    *w = NULL;
}

static void session_release(struct session *c)
{
    session_disconnect(c);
    watch_drop(&c->pid_watch);
    close_fd(&c->pid_fd);
    pin_table_close(&c->pins);
    free(c->text);
    c->text = NULL;
}

void session_unmake(struct session *c)
{
    session_release(c);
    trim_freed(c->server);
    free(c->message);
    free(c);
}

/* Place of the first session whose id is not below. */
static unsigned place_of(const struct server *s, uint64_t id)
{
    unsigned low = 0, high = s->n_sessions;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (s->sessions[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sessions_insert(struct session *c)
{
    struct server *s = c->server;
    if (s->n_sessions == SESSIONS_MAX)
        return -EUSERS;
    unsigned at = place_of(s, c->id);
    memmove(&s->sessions[at + 1], &s->sessions[at], (s->n_sessions - at) * sizeof(s->sessions[0]));
    s->sessions[at] = c;
    s->n_sessions++;
    return 0;
}

struct session *sessions_find(struct server *s, uint64_t id)
{
    if (s->last_found < s->n_sessions && s->sessions[s->last_found]->id == id)
        return s->sessions[s->last_found];
    unsigned at = place_of(s, id);
    if (at == s->n_sessions || s->sessions[at]->id != id)
        return NULL;
    s->last_found = at;
    return s->sessions[at];
}

/* Another process (a child that was forked at a bad moment) still has the file: it is unlinked when that has gone,
 * or at the next start. */
static void leftover_keep(struct server *s, struct session *c)
{
    if (s->n_leftovers == LEFTOVERS_MAX)
        return;
    s->leftovers[s->n_leftovers++] = (struct leftover){.id = c->id, .fd = c->pins.fd};
    unmap_shared(c->pins.map, sizeof(struct pins_file));
    c->pins.map = NULL;
    c->pins.fd = -1;
}

void session_close(struct session *c, bool remove_file)
{
    struct server *s = c->server;
    unsigned at = place_of(s, c->id);
    s->n_sessions--;
    memmove(&s->sessions[at], &s->sessions[at + 1], (s->n_sessions - at) * sizeof(s->sessions[0]));
    pins_lanes(&c->pins, &s->gone);
    if (remove_file && !liveness_unlink(s, c->id, c->pins.fd))
        leftover_keep(s, c);
    session_release(c);
    c->closed = true;
    c->grave = s->buried;
    s->buried = c;
}

void sessions_free(struct server *s)
{
    while (s->buried) {
        struct session *c = s->buried;
        s->buried = c->grave;
        free(c->message);
        free(c);
    }
}

void session_connect(struct session *c, struct ring_shared *ring, int wake_fd)
{
    c->ring = ring;
    c->wake_fd = wake_fd;
    ring_request_consumer(&c->requests, ring);
    ring_reply_producer(&c->replies, ring);
    c->touched = 0;
    c->pending = 0;
    c->owed_bytes = c->owed_count = c->owed_largest = 0;
    memset(c->owed, 0, sizeof(c->owed));
    c->wake = c->leaving = false;
    c->attached = true;
}

void session_disconnect(struct session *c)
{
    peers_session_gone(c->server->peers, c->id);
    buffers_drop(c);
    watch_drop(&c->socket_watch);
    watch_drop(&c->bell_watch);
    close_fd(&c->socket_fd);
    close_fd(&c->bell_fd);
    close_fd(&c->wake_fd);
    unmap_shared(c->ring, sizeof(*c->ring));
    c->ring = NULL;
    c->attached = false;
}

/* ---- touches ---- */

static uint32_t touches_copy(const struct session *c, uint64_t from, uint32_t n, uint32_t *out)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t touch = atomic_load_explicit(&c->ring->touch[(from + i) % RING_TOUCHES], memory_order_relaxed);
        uint32_t child = touch & TOUCH_CHILD, slot = (touch & ~TOUCH_CHILD) - 1;
        if (slot < c->server->region.super->max_headers)
            out[found++] = slot | child;
    }
    return found;
}

bool session_touches(struct session *c)
{
    uint64_t tail = atomic_load_explicit(&c->ring->touch_tail, memory_order_acquire);
    if (tail == c->touched)
        return false;
    if (tail - c->touched > RING_TOUCHES)
        c->touched = tail - RING_TOUCHES; /* overwritten ones are lost: they were the oldest */
    while (c->touched != tail) {
        uint32_t slots[TOUCH_CHUNK];
        uint32_t n = tail - c->touched < TOUCH_CHUNK ? (uint32_t)(tail - c->touched) : TOUCH_CHUNK;
        struct node_event ev = {.kind = EV_TOUCH, .session = c->id, .slots = slots};
        ev.n_slots = touches_copy(c, c->touched, n, slots);
        c->touched += n;
        if (ev.n_slots)
            dispatch(c->server, &ev);
        if (!c->attached)
            break;
    }
    return true;
}

/* ---- requests ---- */

static uint32_t padded(uint32_t n)
{
    return (n + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
}

/* Whether a reply of up to n bytes fits beside all that is owed, with the pad that the largest of them may need
 * where the ring wraps. -EPROTO: the client's index is impossible. */
static int reply_fits(const struct session *c, uint32_t n)
{
    uint64_t used = c->replies.mine - atomic_load_explicit(c->replies.head, memory_order_acquire);
    if (used > c->replies.size)
        return -EPROTO;
    uint64_t pad = n > c->owed_largest ? n : c->owed_largest;
    return used + c->owed_bytes + n + pad <= c->replies.size;
}

_Static_assert(RING_REPLY_BYTES / RING_ALIGN / 2 <= OWED_SLOTS / 2, "a reply takes two units at least");

/* By id, open addressing: one that waits long is in nobody's way. The place of this id, or the free one where it would
 * stand. */
static uint32_t owed_place(const struct session *c, uint64_t id)
{
    uint32_t i = id & (OWED_SLOTS - 1);
    while (c->owed[i].bytes && c->owed[i].id != id)
        i = (i + 1) & (OWED_SLOTS - 1);
    return i;
}

static void owed_add(struct session *c, uint64_t id, uint32_t bytes)
{
    c->owed[owed_place(c, id)] = (struct owed){.id = id, .bytes = bytes};
    c->owed_bytes += bytes;
    c->owed_count++;
    if (bytes > c->owed_largest)
        c->owed_largest = bytes;
}

static bool owed_settle(struct session *c, uint64_t id)
{
    uint32_t i = owed_place(c, id);
    if (!c->owed[i].bytes)
        return false;
    c->owed_bytes -= c->owed[i].bytes;
    if (--c->owed_count == 0)
        c->owed_largest = 0;
    /* Whoever was placed past the hole must still be found: moved back, unless its home lies behind the hole. */
    for (uint32_t k = (i + 1) & (OWED_SLOTS - 1); c->owed[k].bytes; k = (k + 1) & (OWED_SLOTS - 1)) {
        uint32_t home = c->owed[k].id & (OWED_SLOTS - 1);
        if (((k - home) & (OWED_SLOTS - 1)) >= ((k - i) & (OWED_SLOTS - 1))) {
            c->owed[i] = c->owed[k];
            i = k;
        }
    }
    c->owed[i].bytes = 0;
    return true;
}

/* Whether the pending message can be handed over now: 1, 0, -EPROTO. Of two with one id the second waits until the
 * first is answered. */
static int pending_can_go(struct session *c)
{
    const struct msg_head *m = (const struct msg_head *)c->message;
    return c->owed[owed_place(c, m->id)].bytes ? 0 : reply_fits(c, c->pending_reply);
}

int session_next(struct session *c)
{
    const struct msg_head *m = (const struct msg_head *)c->message;
    if (!c->pending) {
        long n = ring_pop(&c->requests, c->message);
        if (n <= 0)
            return (int)n;
        c->pending = (uint32_t)n;
        c->pending_status = msg_check(m, c->pending);
        c->pending_reply = padded(c->pending_status ? (uint32_t)sizeof(struct msg_reply) : msg_reply_max(m));
    }
    return pending_can_go(c);
}

const struct msg_head *session_take(struct session *c)
{
    const struct msg_head *m = (const struct msg_head *)c->message;
    c->pending = 0;
    c->taken_stamp = (int64_t)m->stamp;
    owed_add(c, m->id, c->pending_reply);
    if (c->pending_status) {
        session_answer(c, m, c->pending_status, 0);
        return NULL;
    }
    if (m->op == MSG_DETACH) {
        c->leaving = true; /* dead when it hangs up: until then it may be taking its mappings down */
        session_answer(c, m, 0, 0);
        return NULL;
    }
    return m;
}

static void request_hand_over(struct session *c)
{
    const struct msg_head *m = session_take(c);
    if (!m)
        return;
    int cpu = (int)atomic_load_explicit(&c->ring->client_cpu, memory_order_relaxed);
    struct node_event ev = {
        .kind = EV_REQUEST, .session = c->id, .place = region_place_of(&c->server->region, cpu), .message = m};
    dispatch(c->server, &ev);
}

bool session_requests(struct session *c)
{
    unsigned taken = 0;
    while (taken < SESSION_TURN && c->attached && !c->leaving && node_session_ready(c->server->node, c->id)) {
        int next = session_next(c);
        if (next < 0) {
            liveness_cut(c, "its ring is broken");
            return true;
        }
        if (next == 0)
            break;
        /* What it touched before this request counts before it: both were stored in this order. */
        session_touches(c);
        if (!c->attached)
            break;
        request_hand_over(c);
        taken++;
    }
    return taken > 0;
}

bool session_has_work(struct session *c)
{
    const struct node *n = c->server->node;
    if (!c->attached || c->leaving || (n && !node_session_ready(n, c->id)))
        return false;
    if (c->pending)
        return pending_can_go(c) != 0;
    return atomic_load(c->requests.tail) != c->requests.mine;
}

bool session_stalled(const struct session *c)
{
    return c->attached && c->pending && reply_fits(c, c->pending_reply) == 0;
}

/* ---- replies ---- */

void session_reply(struct session *c, const struct msg_reply *r)
{
    if (!c->attached || !owed_settle(c, r->head.id))
        return;
    int error = ring_push(&c->replies, r, r->head.bytes);
    c->wake = true;
    if (error && c->server->node)
        liveness_cut(c, "its reply ring is broken");
    else if (error)
        c->leaving = true;
}

void session_answer(struct session *c, const struct msg_head *request, int32_t status, uint64_t counter)
{
    struct msg_reply r = {
        .head = {.bytes = sizeof(r), .op = request->op, .id = request->id}, .status = status, .counter = counter};
    r.head.stamp = (uint64_t)server_clock(c->server);
    session_reply(c, &r);
}

void session_wake(struct session *c)
{
    c->wake = false;
    /* Taken down here, so that it is rung once a sleep and not once a pass until it has woken. */
    if (!c->attached || !atomic_load(&c->ring->client_sleeping) || !atomic_exchange(&c->ring->client_sleeping, 0))
        return;
    /* The client may fill its eventfd and make it blocking again at any moment. That is its own user's loss, but
     * another user's must not stop the node: a socket can be written without waiting, whatever its flags say. */
    struct pollfd p = {.fd = c->wake_fd, .events = POLLOUT};
    uint64_t one = 1;
    if (c->foreign)
        send(c->socket_fd, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (poll(&p, 1, 0) == 1 && write(c->wake_fd, &one, sizeof(one)) < 0)
        log_event(LOG_DEBUG, "eventfd of session %llu can't be rung: %s", (unsigned long long)c->id, strerror(errno));
}

/* ---- the pin table ---- */

void session_grow(struct session *c, uint32_t entries, const struct msg_reply *r)
{
    struct msg_reply reply = *r;
    if (entries > c->pins.acknowledged && entries <= PINS_CAPACITY) {
        /* Allocated now, so that a full tmpfs is an answer here and not a SIGBUS in the client. */
        off_t end = (off_t)(offsetof(struct pins_file, entry) + entries * sizeof(uint32_t));
        if (fallocate(c->pins.fd, 0, 0, end) == 0)
            c->pins.acknowledged = entries;
        else
            reply.status = BERTH_EPINS;
    }
    reply.counter = c->pins.acknowledged;
    session_reply(c, &reply);
}

void session_refuse(struct session *c, bool refuse)
{
    uint32_t word = refuse;
    if (c->pins.map)
        atomic_store(&c->pins.map->refuse, word);
    else if (pwrite(c->pins.fd, &word, sizeof(word), offsetof(struct pins_file, refuse)) < 0)
        log_often(LOG_WARNING, "pin file of session %llu can't be written: %s", (unsigned long long)c->id,
                  strerror(errno));
}
