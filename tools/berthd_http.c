/* berthd_http.c: see berthd_http.h. libmicrohttpd runs without a thread: its epoll descriptor is watched by the node's
 * loop, so that a handler reads the node's figures without a lock. */
#include "tools/berthd_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/msg.h"
#include "store/shell/log.h"

#define CONNECTIONS 128u /* all come from this host: no limit for one address is any other than this */
#define CONNECTION_BYTES 16384u
#define IDLE_SECONDS 2u
#define TICK_MS 250u
#define TURNS 64 /* rounds of libmicrohttpd for one wake-up: bounded, the node has other work */

struct http {
    struct MHD_Daemon *daemon;
    struct server *server;
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* to unlink; "" for a port */
};

/* ---- address ---- */

static int parse_unix(struct http_address *a, const char *path, char *why, size_t why_size)
{
    if (!*path || strlen(path) >= sizeof a->local.sun_path) {
        snprintf(why, why_size, "metrics: the socket's path has 1 to %zu bytes", sizeof a->local.sun_path - 1);
        return -EINVAL;
    }
    a->local.sun_family = AF_UNIX;
    strcpy(a->local.sun_path, path);
    a->size = sizeof a->local;
    return 0;
}

static int parse_port(const char *text, in_port_t *port)
{
    char *end;
    unsigned long n = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 65536;
    if (n > 65535 || *end)
        return -EINVAL;
    *port = htons((in_port_t)n);
    return 0;
}

static bool is_loopback(struct http_address *a, const char *host, in_port_t port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->room;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->room;
    if (!strcmp(host, "localhost"))
        host = "127.0.0.1";
    if (!strcmp(host, "[::1]")) {
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        a->size = sizeof *v6;
        return true;
    }
    struct in_addr ip;
    if (inet_pton(AF_INET, host, &ip) != 1 || ntohl(ip.s_addr) >> 24 != 127)
        return false;
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port, .sin_addr = ip};
    a->size = sizeof *v4;
    return true;
}

int http_address(struct http_address *a, const char *text, char *why, size_t why_size)
{
    *a = (struct http_address){0};
    if (!*text || !strcmp(text, "off")) {
        a->off = true;
        return 0;
    }
    if (!strncmp(text, "unix:", 5))
        return parse_unix(a, text + 5, why, why_size);
    char host[64];
    in_port_t port;
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || (size_t)(colon - text) >= sizeof host || parse_port(colon + 1, &port)) {
        snprintf(why, why_size, "metrics: '%s' is neither off, HOST:PORT nor unix:PATH", text);
        return -EINVAL;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    if (is_loopback(a, host, port))
        return 0;
    snprintf(why, why_size,
             "metrics: '%s' can be reached from other hosts and there is no login: use 127.0.0.1, [::1] or unix:PATH",
             text);
    return -EINVAL;
}

/* ---- listening ---- */

/* A socket file that nobody listens on is what a killed daemon left. */
static void unlink_stale(const struct sockaddr_un *local)
{
    struct stat st;
    if (lstat(local->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)local, sizeof *local) && errno == ECONNREFUSED)
        unlink(local->sun_path);
    close(fd);
}

static int listen_on(const struct http_address *a, unsigned mode)
{
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int one = 1, error;
    bool local = a->any.sa_family == AF_UNIX;
    if (local)
        unlink_stale(&a->local);
    else
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    mode = mode & 040 ? mode | 020 : mode; /* to connect takes the right to write, as for the node's own socket */
    /* The file is made with the socket's mode, less the umask: there is no moment at which it is open to more. */
    if ((local && fchmod(fd, mode & 0777)) || bind(fd, &a->any, a->size) ||
        (local && chmod(a->local.sun_path, mode & 0777)) || listen(fd, CONNECTIONS)) {
        error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

static void log_listening(const struct http_address *a, int fd)
{
    if (a->any.sa_family == AF_UNIX) {
        log_event(LOG_INFO, "metrics on unix:%s", a->local.sun_path);
        return;
    }
    struct sockaddr_storage room;
    socklen_t size = sizeof room;
    char host[INET6_ADDRSTRLEN] = "?";
    if (getsockname(fd, (struct sockaddr *)&room, &size))
        return;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&room;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&room;
    bool six = room.ss_family == AF_INET6;
    inet_ntop(room.ss_family, six ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, host, sizeof host);
    log_event(LOG_INFO, six ? "metrics on http://[%s]:%u/metrics" : "metrics on http://%s:%u/metrics", host,
              ntohs(six ? v6->sin6_port : v4->sin_port));
}

/* ---- answering ---- */

/* Takes text over. */
static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, char *text, const char *type)
{
    struct MHD_Response *r = text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET ", " MHD_HTTP_METHOD_HEAD);
    enum MHD_Result queued = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *method, const char *url)
{
    log_often(LOG_INFO, "refused %.32s '%.512s' on the metrics socket: %u", method, url, status);
    return answer(c, status,
                  strdup(status == MHD_HTTP_NOT_FOUND ? "no such path: there are /metrics and /healthz\n"
                                                      : "only GET and HEAD are served\n"),
                  "text/plain; charset=utf-8");
}

static enum MHD_Result healthz(struct http *h, struct MHD_Connection *c)
{
    char why[256] = "", *text;
    int bad = server_health(h->server, why, sizeof why);
    if (asprintf(&text, "%s\n", why) < 0)
        return MHD_NO;
    return answer(c, bad ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, text, "text/plain; charset=utf-8");
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct http *h = arg;
    (void)version;
    (void)upload;
    (void)upload_size;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) /* of HEAD the body is left out */
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, method, url);
    if (!strcmp(url, "/metrics"))
        return answer(c, MHD_HTTP_OK, server_report(h->server, QUERY_METRICS, NULL),
                      "text/plain; version=0.0.4; charset=utf-8");
    if (!strcmp(url, "/healthz"))
        return healthz(h, c);
    return refuse(c, MHD_HTTP_NOT_FOUND, method, url);
}

static void http_log(void *arg, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));
static void http_log(void *arg, const char *format, va_list ap)
{
    char line[512];
    (void)arg;
    int n = vsnprintf(line, sizeof line, format, ap);
    while (n > 0 && n < (int)sizeof line && line[n - 1] == '\n')
        line[--n] = '\0';
    log_often(LOG_INFO, "metrics: %s", line);
}

/* ---- on the node's loop ---- */

static void turn(void *arg)
{
    struct http *h = arg;
    MHD_UNSIGNED_LONG_LONG wait = 0;
    int i = 0;
    /* A time-out of 0 means that it has work that its descriptor does not show. */
    do
        MHD_run(h->daemon);
    while (++i < TURNS && MHD_get_timeout(h->daemon, &wait) == MHD_YES && wait == 0);
}

static struct MHD_Daemon *start_daemon(struct http *h, int fd)
{
    /* The logger comes first: it has the errors of the options behind it. */
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER,
                            http_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                            IDLE_SECONDS, MHD_OPTION_END);
}

static int watch(struct http *h, struct server *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return -EIO;
    int rc = server_watch(s, info->epoll_fd, turn, h);
    /* Connections that idle make no descriptor readable: time ends them. */
    return rc < 0 ? rc : server_every(s, TICK_MS, turn, h);
}

int http_start(struct http **out, struct server *s, const struct http_address *a, const char *text, unsigned mode,
               char *why, size_t why_size)
{
    if (a->off) {
        *out = NULL;
        return 0;
    }
    struct http *h = calloc(1, sizeof *h);
    int fd = h ? listen_on(a, mode) : -ENOMEM, rc = fd;
    if (fd < 0)
        goto free_http;
    if (a->any.sa_family == AF_UNIX)
        strcpy(h->path, a->local.sun_path);
    h->server = s;
    h->daemon = start_daemon(h, fd);
    if (!h->daemon) {
        rc = -EIO;
        close(fd);
        goto unlink_socket;
    }
    if ((rc = watch(h, s)) < 0)
        goto stop_daemon;
    log_listening(a, fd);
    *out = h;
    return 0;
stop_daemon:
    MHD_stop_daemon(h->daemon);
unlink_socket:
    if (*h->path)
        unlink(h->path);
free_http:
    snprintf(why, why_size, "cannot serve metrics at '%s': %s", text, strerror(-rc));
    free(h);
    return rc;
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->daemon);
    if (*h->path)
        unlink(h->path);
    free(h);
}
