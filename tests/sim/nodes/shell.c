/* shell.c: a node without libuv, sockets and files: events into the core, its commands carried out, the peers' turns.
 * Commits take time now and then, or fail; a node may die at any event. */
#include "tests/sim/nodes/nodes.h"

#include "store/shell/resolver.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 4u /* of a node, before others have theirs */

/* ---- what the peers' code calls ---- */

static struct member_node *node_of(struct server *s)
{
    return (struct member_node *)((char *)s - offsetof(struct member_node, server));
}

int64_t server_clock(struct server *s)
{
    s->now = clock_now(node_of(s));
    return s->now.mono;
}

struct session *sessions_find(struct server *s, uint64_t id)
{
    struct member_node *n = node_of(s);
    return n->up && n->session_id == id ? &n->session : NULL;
}

void session_reply(struct session *c, const struct msg_reply *r)
{
    client_reply(node_of(c->server), r);
}

void session_answer(struct session *c, const struct msg_head *request, int32_t status, uint64_t counter)
{
    struct msg_reply r = {.head = *request, .status = status, .counter = counter};
    r.head.bytes = sizeof r;
    client_reply(node_of(c->server), &r);
}

bool session_has_work(struct session *c)
{
    (void)c;
    return false; /* the client's requests are given to the core as they are made */
}

struct watch *watch_open(uv_loop_t *loop, int fd, int events, void (*ready)(void *arg, int events), void *arg)
{
    (void)fd, (void)events, (void)ready, (void)arg;
    return (struct watch *)loop; /* readable is set by node_turn */
}

void watch_close(struct watch *w)
{
    (void)w;
}

/* Addresses here are digits: nobody is asked for a name. */
struct resolver *resolver_open(uv_loop_t *loop, void (*answered)(void *arg), void *arg)
{
    (void)answered, (void)arg;
    return (struct resolver *)loop;
}

void resolver_close(struct resolver *r)
{
    (void)r;
}

int resolver_ask(struct resolver *r, const struct transport *transport, const char *address, struct question **out)
{
    (void)r, (void)transport, (void)address, (void)out;
    return -EAGAIN;
}

bool question_answered(struct question *q, struct resolved *out)
{
    (void)q, (void)out;
    return false;
}

void question_drop(struct question *q)
{
    (void)q;
}

static __attribute__((format(printf, 2, 0))) void log_line(enum log_level level, const char *format, va_list ap)
{
    char line[160];
    if (!world->o.notes)
        return;
    vsnprintf(line, sizeof line, format, ap);
    note("log %d: %s", (int)level, line);
}

void log_event(enum log_level level, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    log_line(level, format, ap);
    va_end(ap);
}

void log_often(enum log_level level, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    log_line(level, format, ap);
    va_end(ap);
}

size_t escape_bytes(char *out, size_t size, const void *data, size_t n)
{
    n = n < size ? n : size - 1;
    memcpy(out, data, n);
    out[n] = '\0';
    return n;
}

/* ---- commands of the core ---- */

static struct later *later(struct member_node *n, enum node_event_kind kind)
{
    if (n->n_later == sizeof n->later / sizeof n->later[0])
        abort();
    struct later *l = &n->later[n->n_later++];
    *l = (struct later){.kind = kind};
    return l;
}

static void run_commit(struct member_node *n, struct batch *b)
{
    if (n->flying)
        violation("node %u: a commit is asked for while one is under way", n->number);
    if (chance(4)) {
        n->flying = b;
        n->commit_at = world->now + (int64_t)below(400) * US;
        return;
    }
    bool fails = !world->calm && chance(600);
    world->faults[FAULT_COMMIT] += fails;
    later(n, EV_COMMITTED)->status = fails ? -ENOSPC : memory_ops.commit(n->index, b);
}

static void run_scan(struct member_node *n, const struct node_command *k)
{
    struct later *l = later(n, EV_SCANNED);
    l->scan = k->scan;
    l->pinned = calloc(k->n_slots / 64 + 1, sizeof *l->pinned);
    for (uint32_t v = 0; v < VIEWS; v++) {
        for (uint32_t i = 0; n->view[v].slot && i < k->n_slots; i++) {
            if (k->slots[i] == n->view[v].slot - 1)
                l->pinned[i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
}

static void run_published(struct member_node *n, const struct node_command *k)
{
    struct publish_stat st;
    publish_stat(n->server.peers->home->publish, &st);
    peers_command(n->server.peers, k);
    shadow_published(n, k->published, k->n_published, (int64_t)st.told + 1);
}

static void run_reply(struct member_node *n, const struct node_command *k)
{
    if (k->session == NODE_PULLER)
        peers_reply(n->server.peers, k->reply);
    else if (k->session == n->session_id)
        client_reply(n, k->reply);
}

static void run_command(struct member_node *n, const struct node_command *k)
{
    switch (k->kind) {
    case CMD_COMMIT:
        run_commit(n, k->batch);
        break;
    case CMD_SCAN:
        run_scan(n, k);
        break;
    case CMD_PUBLISHED:
        run_published(n, k);
        break;
    case CMD_LEASED:
    case CMD_RENEWED:
        lie_leased(n, k);
        break;
    case CMD_RECALL:
    case CMD_SERVE:
        peers_command(n->server.peers, k);
        break;
    case CMD_PULL:
        peers_pull(n->server.peers, &n->session, (const struct msg_pull *)k->message);
        break;
    case CMD_CANCEL_PULL:
        peers_cancel_pull(n->server.peers, &n->session, (const struct msg_cancel *)k->message);
        break;
    case CMD_REPLY:
    case CMD_GROW:
        run_reply(n, k);
        break;
    case CMD_STOPPED:
        n->server.stopped = true;
        break;
    default:
        break;
    }
}

void node_give(struct member_node *n, const struct node_event *ev)
{
    struct server *s = &n->server;
    s->dispatching = true;
    node_event(s->node, ev, clock_now(n));
    for (const struct node_command *k; (k = node_command(s->node));)
        run_command(n, k);
    s->dispatching = false;
}

static void see_bytes(struct member_node *n, const struct msg_token *t, uint32_t put)
{
    uint8_t *at = n->pool + (uint64_t)t->page * PAGE_BYTES;
    page_used(n, t->page, t->gen, put);
    if (put_same(put, at, 0, world->put[put].size))
        return;
    world->reached++;
    if (world->o.trusting)
        put_fill(put, at); /* counted once, and not where this copy is read again */
    else
        violation("node %u seals a copy of key %u with other bytes than were sealed", n->number, world->put[put].key);
}

/* A replica is being sealed: its bytes are those of the version that it names. */
static void see_seal(struct member_node *n, const struct msg_head *m)
{
    const struct node_seal_origin *o = (const struct node_seal_origin *)m;
    if (m->op != NODE_SEAL_ORIGIN)
        return;
    uint32_t put = put_find(o->counter, o->region);
    if (put == NONE)
        violation("node %u seals a copy under version %llu of %llx, which nobody sealed", n->number,
                  (unsigned long long)o->counter, (unsigned long long)o->region);
    else
        see_bytes(n, &o->token, put);
}

void dispatch(struct server *s, const struct node_event *ev)
{
    struct member_node *n = node_of(s);
    if (!n->up)
        return; /* its process is gone: what is freed now has no effect */
    if (s->dispatching) {
        later(n, ev->kind)->status = ev->status;
        return;
    }
    if (ev->kind == EV_REQUEST && ev->session == NODE_PULLER)
        see_seal(n, ev->message);
    s->turn_due = true;
    node_give(n, ev);
    s->followed = n->n_later > 0;
    for (unsigned i = 0; i < n->n_later; i++) {
        struct later l = n->later[i];
        node_give(n, &(struct node_event){.kind = l.kind, .status = l.status, .scan = l.scan, .pinned = l.pinned});
        free(l.pinned);
    }
    n->n_later = 0;
}

/* ---- turns ---- */

static bool take_requests(struct member_node *n)
{
    struct queued *q;
    bool any = false;
    while ((q = TAILQ_FIRST(&n->queue)) && node_session_ready(n->server.node, n->session_id)) {
        TAILQ_REMOVE(&n->queue, q, entry);
        dispatch(&n->server, &(struct node_event){.kind = EV_REQUEST, .session = n->session_id, .message = &q->head});
        free(q);
        any = true;
    }
    return any;
}

void node_request(struct member_node *n, const struct msg_head *m)
{
    struct queued *q = malloc(offsetof(struct queued, head) + m->bytes);
    if (!q)
        abort();
    if (msg_check(m, m->bytes))
        violation("msg_check refuses a message of op %u that is as it should be", m->op);
    memcpy(&q->head, m, m->bytes);
    TAILQ_INSERT_TAIL(&n->queue, q, entry);
    n->due = world->now;
}

static bool one_turn(struct member_node *n)
{
    struct server *s = &n->server;
    bool any = false;
    server_clock(s); /* as a pass of the shell begins: peers_turn goes by it */
    if (n->flying && n->commit_at <= world->now) {
        bool fails = !world->calm && chance(100);
        int e = fails ? -ENOSPC : memory_ops.commit(n->index, n->flying);
        world->faults[FAULT_COMMIT] += fails;
        n->flying = NULL;
        dispatch(s, &(struct node_event){.kind = EV_COMMITTED, .status = e});
        any = true;
    }
    s->peers->readable = s->peers->readable || loop_ready(s->peers->context);
    lie_turn(n);
    any |= take_requests(n);
    any |= peers_turn(s->peers);
    if (node_timer(s->node) <= clock_mono(n))
        dispatch(s, &(struct node_event){.kind = EV_TICK});
    if (s->turn_due) {
        s->turn_due = false;
        dispatch(s, &(struct node_event){.kind = EV_TURN});
        s->turn_due = s->followed; /* as the shell: a commit or a scan may have made something else possible */
        any = true;
    }
    return any;
}

void node_turn(struct member_node *n)
{
    world->in = n;
    world->steps++;
    for (uint32_t i = 0; i < TURNS && world->violations == 0 && one_turn(n); i++)
        ;
    if (n->doomed && n->flying && !n->stopping && !world->calm)
        fault_doomed(n);
    if (n->up)
        node_due(n);
    world->in = NULL;
}

static void sooner(int64_t *due, int64_t at)
{
    if (at < *due)
        *due = at;
}

void node_due(struct member_node *n)
{
    struct server *s = &n->server;
    int64_t due = n->flying ? n->commit_at : INT64_MAX;
    int64_t mono = node_timer(s->node);
    sooner(&mono, peers_timer(s->peers));
    sooner(&due, clock_world(n, mono));
    if (peers_busy(s->peers) || loop_ready(s->peers->context) ||
        (!TAILQ_EMPTY(&n->queue) && node_session_ready(s->node, n->session_id)))
        sooner(&due, world->now + 1 * US);
    n->due = due < n->away_until ? n->away_until : due;
}
