#include "store/shell/dispatch.h"

#include "store/shell/buffers.h"
#include "store/shell/liveness.h"
#include "store/shell/log.h"
#include "store/shell/peers.h"
#include "store/shell/query.h"
#include "store/shell/session.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An event that can't be kept is an effect that never ends: there is nothing left to serve with. */
static struct later *later_add(struct server *s)
{
    if (s->n_later == s->later_size) {
        unsigned size = s->later_size ? 2 * s->later_size : 16;
        struct later *l = realloc(s->later, size * sizeof(*l));
        if (!l) {
            log_event(LOG_ERROR, "no memory for the node's own events: it ends");
            abort();
        }
        s->later = l;
        s->later_size = size;
    }
    struct later *l = &s->later[s->n_later++];
    *l = (struct later){0};
    return l;
}

static void run_commit(struct server *s, struct batch *batch)
{
    int status;
    s->ask_touches = true;
    if (!commit_submit(s->commit, batch, &status))
        return;
    struct later *l = later_add(s);
    l->kind = EV_COMMITTED;
    l->status = status;
}

static void run_scan(struct server *s, const struct node_command *c)
{
    uint64_t *pinned = calloc(((size_t)c->n_slots + 63) / 64 + 1, sizeof(*pinned));
    if (!pinned) {
        log_event(LOG_ERROR, "no memory to scan %u slots: the node ends", c->n_slots);
        abort();
    }
    scan_begin(&s->scanner, c->slots, c->n_slots);
    for (unsigned i = 0; i < s->n_sessions; i++)
        if (!s->sessions[i]->dead)
            scan_table(&s->scanner, &s->sessions[i]->pins);
    scan_end(&s->scanner, c->slots, c->n_slots, pinned);
    struct later *l = later_add(s);
    l->kind = EV_SCANNED;
    l->scan = c->scan;
    l->pinned = pinned;
}

static bool pins_one(struct server *s, const struct session *c, const uint32_t *slots, uint32_t n)
{
    uint64_t pinned = 0;
    _Static_assert(REVOKE_MAX <= 64, "one word has a bit for each");
    scan_begin(&s->scanner, slots, n);
    scan_table(&s->scanner, &c->pins);
    scan_end(&s->scanner, slots, n, &pinned);
    return pinned != 0;
}

/* Only through a pidfd: a pid may be another process's by now. */
static void run_revoke(struct server *s, struct session *caller, const struct node_command *c)
{
    int signalled = 0;
    for (unsigned i = 0; c->n_slots && i < s->n_sessions; i++) {
        struct session *other = s->sessions[i];
        bool own = other == caller || (other->pid == caller->pid && other->start_time == caller->start_time);
        if (own || other->dead || other->pid_fd < 0 || !pins_one(s, other, c->slots, c->n_slots))
            continue;
        if (syscall(SYS_pidfd_send_signal, other->pid_fd, SIGKILL, NULL, 0) == 0) {
            log_often(LOG_WARNING, "session %llu (%s) was ended: its pin was revoked", (unsigned long long)other->id,
                      other->name);
            signalled++;
        }
    }
    session_answer(caller, c->message, signalled, 0);
}

static void run_session_command(struct server *s, struct session *session, const struct node_command *c)
{
    switch (c->kind) {
    case CMD_REPLY:
        session_reply(session, c->reply);
        break;
    case CMD_CLOSED:
        session_close(session, true);
        break;
    case CMD_REFUSE:
        session_refuse(session, c->flag);
        break;
    case CMD_REVOKE:
        run_revoke(s, session, c);
        break;
    case CMD_QUERY:
        query_run(session, (const struct msg_query *)c->message);
        break;
    case CMD_PULL:
        if (c->message->op == MSG_STAT)
            peers_stat(s->peers, session, (const struct msg_key *)c->message);
        else
            peers_pull(s->peers, session, (const struct msg_pull *)c->message);
        break;
    case CMD_CANCEL_PULL:
        peers_cancel_pull(s->peers, session, (const struct msg_cancel *)c->message);
        break;
    case CMD_BUFFER:
        buffers_request(session, (const struct msg_buffer *)c->message);
        break;
    case CMD_AWAIT_HOMES:
        peers_await_homes(s->peers, session, (const struct msg_published *)c->message);
        break;
    case CMD_GROW:
        session_grow(session, c->n_slots, c->reply);
        break;
    default:
        break;
    }
}

static void run_command(struct server *s, const struct node_command *c)
{
    static const enum log_level levels[] = {LOG_ERROR, LOG_WARNING, LOG_INFO};
    struct session *session;
    switch (c->kind) {
    case CMD_COMMIT:
        run_commit(s, c->batch);
        break;
    case CMD_SCAN:
        run_scan(s, c);
        break;
    case CMD_LOG:
        log_often(c->level >= 0 && c->level < 3 ? levels[c->level] : LOG_INFO, "%s", c->text);
        break;
    case CMD_STOPPED:
        s->stopped = true;
        break;
    case CMD_PUBLISHED:
    case CMD_LEASED:
    case CMD_RENEWED:
    case CMD_RECALL:
    case CMD_SERVE:
        peers_command(s->peers, c);
        break;
    default:
        session = sessions_find(s, c->session);
        if (c->session == NODE_PULLER && c->kind == CMD_REPLY)
            peers_reply(s->peers, c->reply);
        else if (session)
            run_session_command(s, session, c);
    }
}

static void give(struct server *s, const struct node_event *ev)
{
    s->dispatching = true;
    server_clock(s);
    node_event(s->node, ev, s->now);
    for (const struct node_command *c = node_command(s->node); c; c = node_command(s->node))
        run_command(s, c);
    s->dispatching = false;
}

static void give_later(struct server *s, const struct later *l)
{
    struct node_event ev = {
        .kind = l->kind, .session = l->session, .status = l->status, .scan = l->scan, .pinned = l->pinned};
    if (l->kind == EV_COMMITTED)
        s->commit_error = l->status;
    give(s, &ev);
    free(l->pinned);
}

void dispatch(struct server *s, const struct node_event *ev)
{
    if (s->dispatching) {
        struct later *l = later_add(s);
        l->kind = ev->kind;
        l->session = ev->session;
        l->status = ev->status;
        return;
    }
    s->turn_due = true;
    give(s, ev);
    s->followed = s->n_later > 0;
    while (s->later_at < s->n_later) {
        struct later l = s->later[s->later_at++];
        give_later(s, &l);
    }
    s->later_at = s->n_later = 0;
    s->timer_at = node_timer(s->node);
}

bool dispatch_turn(struct server *s)
{
    if (!s->turn_due)
        return false;
    struct node_event ev = {.kind = EV_TURN};
    dispatch(s, &ev);
    /* A commit that was done at once, or a scan, may have made something else possible. */
    s->turn_due = s->followed;
    return true;
}

bool dispatch_committed(struct server *s)
{
    int status;
    if (!commit_take(s->commit, &status))
        return false;
    s->commit_error = status;
    struct node_event ev = {.kind = EV_COMMITTED, .status = status};
    dispatch(s, &ev);
    query_committed(s);
    return true;
}
