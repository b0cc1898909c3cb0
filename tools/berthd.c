/* berthd.c: the daemon: configuration, one server, signals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "store/amount.h"
#include "store/berth.h"
#include "store/fd.h"
#include "store/shell/log.h"
#include "store/shell/reload.h"
#include "tools/berthd_config.h"
#include "tools/berthd_http.h"
#include "tools/start_code.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static struct server *_Atomic running; /* for the handler: set while server_stop may be called */
static _Atomic int stop_signal;        /* lock-free; asked by the threads that populate the pool too */

/* A second signal finds the stop under way and changes nothing: the last commit is never skipped. */
static void on_stop(int number)
{
    int saved = errno;
    stop_signal = number;
    struct server *s = running;
    if (s)
        server_stop(s);
    errno = saved;
}

/* A pipe, because the configuration is read again on the node's thread and not in a handler. */
static int hangups[2] = {-1, -1};

static void on_hangup(int number)
{
    int saved = errno;
    (void)number;
    if (write(hangups[1], "", 1) < 0) { /* full: one that is still to be read is enough */
    }
    errno = saved;
}

static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&stop.sa_mask);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    struct sigaction hangup = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    sigemptyset(&hangup.sa_mask);
    sigaction(SIGHUP, &hangup, NULL);
    sigaction(SIGXCPU, &stop, NULL);
    /* Sent by mistake, or by a timer that was inherited: by default each ends a process, here amid a commit. */
    static const int ignored[] = {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM,   SIGVTALRM,
                                  SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT, SIGXFSZ};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        signal(i, SIG_IGN);
}

/* sd_notify's protocol: a datagram to the socket that the service manager names. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to, size) < 0)
        log_event(LOG_WARNING, "cannot tell NOTIFY_SOCKET '%s': %s", path, strerror(errno));
    close(fd);
}

/* ---- progress of the prefault ---- */

struct prefault {
    int64_t start, shown;
    bool terminal, visible;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nothing for the first second; then a moving line for a person, a line in the log every five seconds otherwise. */
static void show_prefault(void *arg, uint64_t done, uint64_t total)
{
    struct prefault *p = arg;
    int64_t now = now_ns(), every = p->terminal ? 100000000 : 5000000000;
    if (now - p->start < 1000000000 || !total || (p->shown && now - p->shown < every))
        return;
    p->shown = now;
    double percent = 100.0 * (double)done / (double)total;
    if (!p->terminal) {
        log_event(LOG_INFO, "populating the pool: %llu of %llu MiB (%.0f%%)", (unsigned long long)(done >> 20),
                  (unsigned long long)(total >> 20), percent);
        return;
    }
    fprintf(stderr, "\rpopulating the pool: %llu of %llu MiB (%.0f%%)\033[K", (unsigned long long)(done >> 20),
            (unsigned long long)(total >> 20), percent);
    p->visible = true;
}

static bool stop_asked(void *arg)
{
    (void)arg;
    return stop_signal != 0;
}

/* ---- reload ---- */

struct reload {
    struct server *server;
    int argc;
    char **argv;
};

/* As at the start: flags, environment, file. What is wrong with them is logged, and all stays as it was. */
static void reload_due(void *arg)
{
    static struct berthd_config fresh;
    const struct reload *r = arg;
    char drop[16], why[512] = "";
    while (read(hangups[0], drop, sizeof drop) > 0)
        continue;
    int rc = config_load(&fresh, r->argc, r->argv, environ, why, sizeof why);
    rc = rc < 0 ? rc : server_reload(r->server, &fresh.settings, why, sizeof why);
    if (rc < 0)
        log_event(LOG_ERROR, "the configuration was not reloaded, nothing has changed: %s", why);
    else
        log_event(LOG_INFO, "configuration reloaded: %d settings have changed", rc);
}

/* ---- serving ---- */

static int fail(int error, const char *why)
{
    log_event(LOG_ERROR, "%s", *why ? why : berth_error_text(error));
    return start_code(error);
}

static int create(struct server **s, struct settings *settings, char *why, size_t why_size)
{
    struct prefault shown = {.start = now_ns(), .terminal = isatty(STDERR_FILENO)};
    struct mem_progress progress = {.report = show_prefault, .stop = stop_asked, .arg = &shown};
    settings->progress = &progress;
    int rc = server_create(s, settings, why, why_size);
    settings->progress = NULL;
    if (shown.visible)
        fputs("\r\033[K", stderr);
    return rc;
}

static int run(struct server *s, const struct settings *settings)
{
    running = s;
    if (stop_signal) /* it came before there was a server to stop */
        server_stop(s);
    char pool[AMOUNT_SIZE];
    log_event(LOG_INFO, "ready: socket %s, region %s, pool %s", settings->socket, settings->region,
              amount(settings->pool, pool));
    notify("READY=1");
    int rc = server_run(s);
    running = NULL;
    notify("STOPPING=1");
    return rc;
}

static int serve(struct settings *settings, int argc, char **argv)
{
    char why[1024] = "";
    struct http_address address;
    struct server *s;
    struct http *http;
    int rc = http_address(&address, settings->metrics, why, sizeof why);
    if (rc < 0)
        return fail(rc, why);
    if (pipe2(hangups, O_CLOEXEC | O_NONBLOCK) < 0)
        return fail(-errno, "no pipe for signals");
    catch_signals();
    rc = create(&s, settings, why, sizeof why);
    if (rc == -ECANCELED && stop_signal) {
        log_event(LOG_INFO, "stopped before it was ready");
        return 0;
    }
    if (rc < 0)
        return fail(rc, why);
    rc = http_start(&http, s, &address, settings->metrics, settings->mode, why, sizeof why);
    if (rc < 0) {
        int code = fail(rc, why);
        server_discard(s);
        return code;
    }
    struct reload reload = {.server = s, .argc = argc, .argv = argv};
    if (server_watch(s, hangups[0], reload_due, &reload) < 0)
        log_event(LOG_WARNING, "SIGHUP will not reload the configuration: its pipe can't be watched");
    rc = run(s, settings);
    server_destroy(s);
    http_stop(http); /* its descriptor was watched until now */
    if (rc < 0)
        return fail(rc, "");
    log_event(LOG_INFO, "stopped");
    return 0;
}

int main(int argc, char **argv)
{
    static struct berthd_config config;
    char why[512] = "";
    if (fd_hold_stdio() < 0) /* a log line must not go into a file of the region */
        return EXIT_FAILED;
    int rc = config_load(&config, argc, argv, environ, why, sizeof why);
    if (rc < 0) {
        char escaped[4 * sizeof why];
        escape_bytes(escaped, sizeof escaped, why, strlen(why));
        fprintf(stderr, "berthd: %s\n", escaped);
        return rc == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
    }
    if (config.help)
        config_help();
    else if (config.version)
        printf("berthd %s\n", berth_version_string());
    else if (config.print)
        config_print(&config);
    else {
        log_set_level((enum log_level)config.settings.log_level);
        log_set_format((enum log_format)config.settings.log_format);
        return serve(&config.settings, argc, argv);
    }
    return fflush(stdout) || ferror(stdout) ? EXIT_FAILED : 0;
}
