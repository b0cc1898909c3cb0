#include "store/shell/liveness.h"

#include "store/fd.h"
#include "store/shell/buffers.h"
#include "store/shell/dispatch.h"
#include "store/shell/log.h"
#include "store/shell/session.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

uint64_t process_start_time(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    /* The name, field 2, may hold anything but ends with the last parenthesis. */
    char *at = strrchr(text, ')');
    for (unsigned field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* The process that a pidfd is of; -1: it is no pidfd, or that of one that has ended. 0: not seen from here. */
static long pidfd_pid(int fd)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return -1;
    ssize_t n = read(info, text, sizeof(text) - 1);
    close(info);
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, "\nPid:");
    return at ? strtol(at + 5, NULL, 10) : -1;
}

int peer_pidfd(int socket, int offered, pid_t pid)
{
    int fd;
    socklen_t size = sizeof(fd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
        return fd_above_stdio(fd);
    if (offered >= 0 && pidfd_pid(offered) == (long)pid)
        return fd_above_stdio(fcntl(offered, F_DUPFD_CLOEXEC, 0));
    return pid > 0 ? fd_above_stdio((int)syscall(SYS_pidfd_open, pid, 0)) : -1;
}

static bool process_ended(const struct session *c)
{
    struct pollfd p = {.fd = c->pid_fd, .events = POLLIN};
    return c->pid_fd >= 0 && poll(&p, 1, 0) == 1;
}

static void session_dead(struct session *c)
{
    struct node_event ev = {.kind = EV_DEAD, .session = c->id, .status = c->leaving};
    if (c->attached)
        session_disconnect(c);
    c->dead = true;
    log_event(LOG_DEBUG, "session %llu (%s, pid %d) has ended", (unsigned long long)c->id, c->name, (int)c->pid);
    dispatch(c->server, &ev);
}

void liveness_look(struct session *c)
{
    if (c->dead || c->closed)
        return;
    if (c->leaving || process_ended(c) || pins_locked(&c->pins) == 0)
        session_dead(c);
}

static void session_lost(struct session *c)
{
    struct node_event ev = {.kind = EV_DETACHED, .session = c->id};
    if (!c->attached)
        return;
    session_disconnect(c);
    dispatch(c->server, &ev);
    liveness_look(c);
}

void liveness_cut(struct session *c, const char *cause)
{
    log_often(LOG_WARNING, "session %llu (%s, pid %d) was disconnected: %s", (unsigned long long)c->id, c->name,
              (int)c->pid, cause);
    session_lost(c);
}

/* What it had asked for before it went: at most a ring full, and no further than to a request that waits for a
 * commit. */
static void last_requests(struct session *c)
{
    for (unsigned i = 0; i < RING_REQUEST_BYTES / RING_ALIGN / SESSION_TURN; i++)
        if (!c->attached || c->server->stopping || !session_requests(c))
            break;
}

static void process_ready(void *arg, int events)
{
    struct session *c = arg;
    (void)events;
    last_requests(c);
    watch_close(c->pid_watch);
    c->pid_watch = NULL;
    if (!c->dead && !c->closed)
        session_dead(c);
}

/* A read of nothing is the other end's close. */
static bool hung_up(const struct session *c, int events)
{
    char byte;
    ssize_t n = recv(c->socket_fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return (events & UV_DISCONNECT) || n == 0 || (n < 0 && errno != EAGAIN);
}

static void socket_ready(void *arg, int events)
{
    struct session *c = arg;
    int said = 0;
    if (!(events & UV_DISCONNECT) && (said = buffers_receive(c)) < 0) {
        liveness_cut(c, "it said something after hello that is no buffer");
        return;
    }
    if (said > 0 || !hung_up(c, events))
        return;
    last_requests(c);
    session_lost(c);
}

int liveness_watch_process(struct session *c)
{
    if (c->pid_fd < 0)
        return 0;
    c->pid_watch = watch_open(&c->server->loop, c->pid_fd, UV_READABLE, process_ready, c);
    return c->pid_watch ? 0 : -ENOMEM;
}

int liveness_watch_socket(struct session *c)
{
    c->socket_watch = watch_open(&c->server->loop, c->socket_fd, UV_READABLE | UV_DISCONNECT, socket_ready, c);
    return c->socket_watch ? 0 : -ENOMEM;
}

static bool needs_looks(const struct session *c)
{
    return !c->dead && (!c->attached || c->pid_fd < 0);
}

bool liveness_needs_looks(const struct server *s)
{
    if (s->n_leftovers)
        return true;
    for (unsigned i = 0; i < s->n_sessions; i++)
        if (needs_looks(s->sessions[i]))
            return true;
    return false;
}

static void leftovers_look(struct server *s)
{
    for (unsigned i = s->n_leftovers; i-- > 0;) {
        if (!liveness_unlink(s, s->leftovers[i].id, s->leftovers[i].fd))
            continue;
        close(s->leftovers[i].fd);
        s->leftovers[i] = s->leftovers[--s->n_leftovers];
    }
}

bool liveness_look_all(struct server *s)
{
    leftovers_look(s);
    /* Backwards: one that has ended may go from the list. */
    for (unsigned i = s->n_sessions; i-- > 0;)
        if (i < s->n_sessions && needs_looks(s->sessions[i]))
            liveness_look(s->sessions[i]);
    return liveness_needs_looks(s);
}

bool liveness_unlink(struct server *s, uint64_t id, int fd)
{
    char name[32];
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
    if (fcntl(fd, F_OFD_SETLK, &fl) != 0)
        return false;
    if (unlinkat(s->region.clients_fd, name, 0) != 0 && errno != ENOENT)
        log_often(LOG_WARNING, "pin file '%s/clients/%s' can't be removed: %s", s->region.path, name, strerror(errno));
    return true;
}
