#include "store/shell/listen.h"

#include "store/shell/handshake.h"
#include "store/shell/log.h"
#include "store/shell/state.h"
#include "store/shell/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct guest {
    struct listener *listener;
    int socket; /* -1: free */
    struct watch *watch;
    int64_t since;
};

struct listener {
    struct server *server;
    int fd; /* -1: an embedded node's */
    struct watch *watch;
    bool paused;
    dev_t device; /* of the socket as it was made */
    ino_t inode;
    bool stolen; /* somebody put another socket there: said once */
    struct guest guests[GUESTS_MAX];
    unsigned n_guests;
};

/* ---- guests ---- */

static void guest_leave(struct guest *g)
{
    struct listener *l = g->listener;
    watch_close(g->watch);
    g->watch = NULL;
    g->socket = -1;
    l->n_guests--;
    if (l->paused && l->watch) {
        l->paused = false;
        watch_resume(l->watch);
    }
}

static void guest_ready(void *arg, int events)
{
    struct guest *g = arg;
    struct server *s = g->listener->server;
    int socket = g->socket;
    (void)events;
    char byte;
    if (recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
        return;
    guest_leave(g);
    if (handshake(s, socket) == -EAGAIN)
        listener_add(s->listener, socket);
}

void listener_add(struct listener *l, int socket)
{
    struct guest *g = NULL;
    for (unsigned i = 0; i < GUESTS_MAX && !g; i++)
        if (l->guests[i].socket < 0)
            g = &l->guests[i];
    if (!g) {
        handshake_refuse(socket, -EAGAIN, "too many clients attach at this moment: try again");
        return;
    }
    g->watch = watch_open(&l->server->loop, socket, UV_READABLE | UV_DISCONNECT, guest_ready, g);
    if (!g->watch) {
        close(socket);
        return;
    }
    g->socket = socket;
    g->since = server_clock(l->server);
    l->n_guests++;
}

static void listener_ready(void *arg, int events)
{
    struct listener *l = arg;
    (void)events;
    while (l->n_guests < GUESTS_MAX) {
        int socket = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket >= 0) {
            listener_add(l, socket);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN)
            log_often(LOG_ERROR, "no client can be accepted: %s", strerror(errno));
        if (errno == EAGAIN)
            return;
        break;
    }
    /* Full, or out of descriptors: whoever waits would wake the node without end. */
    l->paused = true;
    watch_pause(l->watch);
}

/* ---- the socket ---- */

/* Whether a node answers there. */
static bool answers(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    int error = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
    close(fd);
    return error != ECONNREFUSED && error != ENOENT;
}

static int bind_error(const char *path, int error, char *why, size_t why_size)
{
    if (error == EADDRINUSE)
        snprintf(why, why_size, "another node answers at '%s': stop it, or choose another --socket", path);
    else
        snprintf(why, why_size, "socket '%s' can't be made: %s", path, strerror(error));
    return -error;
}

/* To connect is to write, whatever is said afterwards: whom the files may be read by may write the socket. */
static uint32_t socket_mode(const struct settings *set)
{
    return set->mode & 040 ? set->mode | 020 : set->mode;
}

/* A mode given to the socket before bind is the mode that the file begins with: it is never open wider than asked. */
static int bind_socket(int fd, const struct sockaddr_un *address, uint32_t mode)
{
    if (fchmod(fd, mode) != 0)
        return errno;
    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
        return 0;
    if (errno != EADDRINUSE)
        return errno;
    struct stat st;
    if (lstat(address->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return EEXIST;
    if (answers(address))
        return EADDRINUSE;
    unlink(address->sun_path);
    return bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
}

static int listener_bind(struct listener *l, char *why, size_t why_size)
{
    const struct settings *set = &l->server->settings;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(set->socket) >= sizeof(address.sun_path))
        return bind_error(set->socket, ENAMETOOLONG, why, why_size);
    memcpy(address.sun_path, set->socket, strlen(set->socket));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return bind_error(set->socket, errno, why, why_size);
    int error = bind_socket(fd, &address, socket_mode(set));
    if (!error && (chmod(set->socket, socket_mode(set)) != 0 || listen(fd, 128) != 0 || stat(set->socket, &st) != 0)) {
        error = errno;
        unlink(set->socket);
    }
    struct watch *watch = error ? NULL : watch_open(&l->server->loop, fd, UV_READABLE, listener_ready, l);
    if (!watch) {
        close(fd);
        return bind_error(set->socket, error ? error : ENOMEM, why, why_size);
    }
    l->fd = fd;
    l->watch = watch;
    l->paused = false;
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return 0;
}

int listener_open(struct listener **out, struct server *s, char *why, size_t why_size)
{
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return bind_error(s->settings.socket, ENOMEM, why, why_size);
    l->server = s;
    l->fd = -1;
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        l->guests[i].socket = -1;
        l->guests[i].listener = l;
    }
    int error = s->settings.embedded ? 0 : listener_bind(l, why, why_size);
    if (error) {
        free(l);
        return error;
    }
    *out = l;
    return 0;
}

/* 1: it is there; 0: nothing is; -1: something else is. */
static int linked(const struct listener *l)
{
    struct stat st;
    if (lstat(l->server->settings.socket, &st) != 0)
        return errno == ENOENT ? 0 : -1;
    return st.st_dev == l->device && st.st_ino == l->inode ? 1 : -1;
}

static void listener_unbind(struct listener *l)
{
    watch_close(l->watch);
    l->watch = NULL;
    close(l->fd);
    l->fd = -1;
}

void listener_close(struct listener *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        int socket = l->guests[i].socket;
        if (socket < 0)
            continue;
        guest_leave(&l->guests[i]);
        close(socket);
    }
    if (l->fd >= 0) {
        if (linked(l) == 1)
            unlink(l->server->settings.socket);
        listener_unbind(l);
    }
    free(l);
}

static void listener_remake(struct listener *l)
{
    char why[256];
    int there = linked(l);
    if (there < 0 && !l->stolen)
        log_often(LOG_ERROR,
                  "socket '%s' is another one now: new clients don't reach this node; stop the other, then remove "
                  "the socket",
                  l->server->settings.socket);
    l->stolen = there < 0;
    if (there != 0)
        return;
    int old = l->fd;
    struct watch *watch = l->watch;
    if (listener_bind(l, why, sizeof(why)) != 0) {
        log_often(LOG_ERROR, "socket '%s' was removed and can't be made again: %s", l->server->settings.socket, why);
        return;
    }
    watch_close(watch);
    close(old);
    log_often(LOG_WARNING,
              "socket '%s' was removed by another process and is made again: keep clean-up services (logind, "
              "tmpfiles) from its directory",
              l->server->settings.socket);
}

void listener_tend(struct listener *l)
{
    int64_t now = server_clock(l->server);
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        struct guest *g = &l->guests[i];
        int socket = g->socket;
        if (socket < 0 || now - g->since < GUEST_PATIENCE_NS)
            continue;
        guest_leave(g);
        handshake_refuse(socket, -ETIMEDOUT, "no hello came within 5 seconds");
    }
    if (l->fd < 0)
        return;
    if (l->paused && l->n_guests < GUESTS_MAX) {
        l->paused = false;
        watch_resume(l->watch);
    }
    listener_remake(l);
}

int listener_waits(const struct listener *l)
{
    return l->n_guests > 0;
}
