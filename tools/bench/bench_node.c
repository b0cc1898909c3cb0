#include "tools/bench/bench_node.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BERTHD_USAGE 2 /* its exit codes */
#define BERTHD_REFUSED 5
#define PAGE UINT64_C(4096)
#define MIB (UINT64_C(1) << 20)
#define SLAB_MAX (64 * MIB)
#define STOP_SECONDS 60
#define SETTING_TEXT 24
#define SETTINGS 7
#define MORE_TEXT 512

struct setting_pair {
    const char *name;
    char value[SETTING_TEXT];
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

uint64_t bench_slot_bytes(uint64_t size)
{
    return size ? round_up(size, PAGE) : PAGE;
}

/* Fixed classes are 4, 5, 6 and 7 times a power of two pages, and 1, 2 and 3 pages. */
static bool fixed_class(uint64_t slot_bytes)
{
    uint64_t pages = slot_bytes / PAGE;

    while (pages > 7 && pages % 2 == 0)
        pages /= 2;
    return pages <= 7;
}

/* Slabs of another class, the last slab of this one, 2 % that a slot leaves of a slab: room for all of it, so that only
 * the watermark decides what is evicted. */
static uint64_t pool_bytes(const struct bench_node_config *c)
{
    uint64_t bytes = (c->slots + c->room_slots) * c->slot_bytes;
    uint64_t slab = bytes / 16 < SLAB_MAX ? bytes / 16 : SLAB_MAX;

    return c->pool ? c->pool : round_up(bytes + bytes / 16 + 2 * slab + 16 * MIB, 2 * MIB);
}

static unsigned make_settings(const struct bench_node_config *c, struct setting_pair out[SETTINGS])
{
    uint64_t pool = pool_bytes(c), high = c->high_slots ? c->high_slots * c->slot_bytes : pool;
    uint64_t low = c->high_slots ? c->low_slots * c->slot_bytes : pool;
    unsigned n = 0;

    out[n].name = "pool";
    snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64, pool);
    out[n].name = "high";
    snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64, high);
    out[n].name = "low";
    snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64, low);
    out[n].name = "draft-quota";
    snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64, pool);
    out[n].name = "max-objects";
    snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64,
             c->headers ? c->headers : (c->slots + c->room_slots) * 9 / 8 + 32768);
    if (!fixed_class(c->slot_bytes)) {
        out[n].name = "class";
        snprintf(out[n++].value, SETTING_TEXT, "%" PRIu64, c->slot_bytes);
    }
    if (c->policy) {
        out[n].name = "policy";
        snprintf(out[n++].value, SETTING_TEXT, "%s", c->policy);
    }
    return n;
}

void bench_node_settings(const struct bench_node_config *config, char *out, size_t size)
{
    struct setting_pair pairs[SETTINGS];
    unsigned n = make_settings(config, pairs);
    size_t used = 0;

    out[0] = 0;
    for (unsigned i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%c%s=%s", i ? '&' : '?', pairs[i].name, pairs[i].value);
    for (const char *const *more = config->more; more && *more && used < size; more++)
        used += (size_t)snprintf(out + used, size - used, "&%s", *more);
}

/* ---- the keeper ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void run_berthd(const struct bench_node *n, const struct bench_node_config *config)
{
    char exe[4096], region[96], flags[SETTINGS][32], more[BENCH_NODE_MORE][MORE_TEXT];
    struct setting_pair pairs[SETTINGS];
    char *argv[10 + 2 * SETTINGS + BENCH_NODE_MORE];
    unsigned count = make_settings(config, pairs), argc = 0;
    ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 8);
    char *base;

    if (length < 0)
        _exit(127);
    exe[length] = 0;
    base = strrchr(exe, '/') + 1;
    memcpy(base, "berthd", sizeof("berthd"));
    snprintf(region, sizeof(region), "%s/region", n->dir);
    argv[argc++] = exe;
    argv[argc++] = (char *)"--config";
    argv[argc++] = (char *)"/dev/null";
    argv[argc++] = (char *)"--region";
    argv[argc++] = region;
    argv[argc++] = (char *)"--socket";
    argv[argc++] = (char *)n->url + strlen("unix:");
    argv[argc++] = (char *)"--log-level";
    argv[argc++] = (char *)"error";
    for (unsigned i = 0; i < count; i++) {
        snprintf(flags[i], sizeof(flags[i]), "--%s", pairs[i].name);
        argv[argc++] = flags[i];
        argv[argc++] = pairs[i].value;
    }
    for (unsigned i = 0; config->more && config->more[i] && i < BENCH_NODE_MORE; i++) {
        snprintf(more[i], MORE_TEXT, "--%s", config->more[i]);
        argv[argc++] = more[i];
    }
    argv[argc] = NULL;
    execv(exe, argv);
    fprintf(stderr, "berth: '%s' can't be run: %s\n", exe, strerror(errno));
    _exit(127);
}

/* The node's settings are those of the run alone: neither a file's nor the environment's. */
static void clean_environment(const struct bench_node *n)
{
    char path[96];

    for (unsigned i = 0; environ[i];) {
        char name[64];
        size_t length = strcspn(environ[i], "=");

        if (strncmp(environ[i], "BERTH_", 6) != 0 || length >= sizeof(name)) {
            i++;
            continue;
        }
        memcpy(name, environ[i], length);
        name[length] = 0;
        unsetenv(name);
    }
    snprintf(path, sizeof(path), "%s/notify", n->dir);
    setenv("NOTIFY_SOCKET", path, 1);
}

static pid_t spawn_berthd(const struct bench_node *n, const struct bench_node_config *config)
{
    pid_t keeper = getpid(), pid = fork();
    int null;

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != keeper)
        _exit(127);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    clean_environment(n);
    run_berthd(n, config);
    _exit(127);
}

/* Where berthd says that it is ready, as it does to a service manager. */
static int open_notify(const struct bench_node *n)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", n->dir);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        _exit(127);
    return fd;
}

static bool says_ready(int notify)
{
    char message[256];
    ssize_t n = recv(notify, message, sizeof(message) - 1, MSG_DONTWAIT);

    if (n <= 0)
        return false;
    message[n] = 0;
    return strstr(message, "READY=1") != NULL;
}

/* Waits until berthd has ended, at most so long; true if it has. */
static bool wait_end(pid_t pid, int pidfd, int timeout_ms, int *status)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (poll(&p, 1, timeout_ms) < 0 && errno == EINTR)
        ;
    return waitpid(pid, status, WNOHANG) == pid;
}

static void end_berthd(pid_t pid, int pidfd, int *status)
{
    kill(pid, SIGTERM);
    if (wait_end(pid, pidfd, STOP_SECONDS * 1000, status))
        return;
    kill(pid, SIGKILL);
    waitpid(pid, status, 0);
}

/* What it inherits would otherwise stay open behind those who closed it. */
static void close_others(unsigned a, unsigned b)
{
    unsigned low = a < b ? a : b, high = a < b ? b : a;

    close_range(STDERR_FILENO + 1, low - 1, 0);
    close_range(low + 1, high - 1, 0);
    close_range(high + 1, UINT32_MAX, 0);
}

/* Until the client says stop or is gone, or berthd has ended, which all is false; true: until it says restart. */
static bool watch(struct pollfd p[3], pid_t pid, int report)
{
    bool gone = false;
    char word;

    p[0].revents = 0; /* of the one before */
    while (!gone && !p[0].revents && !p[1].revents) {
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            return false;
        if (p[2].revents && says_ready(p[2].fd))
            gone = write(report, &pid, sizeof(pid)) != sizeof(pid);
    }
    return !gone && !p[1].revents && read(p[0].fd, &word, 1) == 1;
}

/* One berthd from start to end. */
static bool keep_one(const struct bench_node *n, const struct bench_node_config *config, struct pollfd p[3], int report,
                     int *status)
{
    pid_t pid = spawn_berthd(n, config);
    bool again;

    if (pid < 0)
        _exit(127);
    p[1] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    again = watch(p, pid, report);
    if (p[1].revents)
        waitpid(pid, status, 0);
    else
        end_berthd(pid, p[1].fd, status);
    close(p[1].fd);
    return again && *status == 0;
}

static void keep(const struct bench_node *n, const struct bench_node_config *config, int stop, int report)
{
    struct pollfd p[3] = {{.fd = stop, .events = POLLIN}};
    int status = 0, ignored;
    pid_t none = 0;

    close_others((unsigned)stop, (unsigned)report);
    setsid(); /* an interrupt from the terminal is for the client, which then ends us */
    signal(SIGPIPE, SIG_IGN);
    p[2] = (struct pollfd){.fd = open_notify(n), .events = POLLIN};
    while (keep_one(n, config, p, report, &status) && write(report, &none, sizeof(none)) == sizeof(none))
        ;
    ignored = nftw(n->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)ignored; /* nobody is left to hear of it */
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* ---- the client's side ---- */

static int spawn_keeper(struct bench_node *n, const struct bench_node_config *config)
{
    int stop[2], report[2], error;

    if (pipe2(stop, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(report, O_CLOEXEC) < 0) {
        error = -errno;
        goto close_stop;
    }
    fflush(NULL);
    n->keeper = fork();
    if (n->keeper == 0) {
        keep(n, config, stop[0], report[1]);
    }
    error = n->keeper < 0 ? -errno : 0;
    close(report[1]);
    if (error)
        goto close_report;
    close(stop[0]);
    n->stop = stop[1];
    n->report = report[0];
    return 0;
close_report:
    close(report[0]);
close_stop:
    close(stop[0]);
    close(stop[1]);
    return error;
}

static int connect_when_ready(struct bench_node *n, const char *name, struct berth **b, char *why, size_t why_size)
{
    struct berth_open_opts opts = {.size = sizeof(opts), .name = name};
    struct berth_error_info e;
    int error;

    if (read(n->report, &n->pid, sizeof(n->pid)) != sizeof(n->pid)) {
        snprintf(why, why_size, "berthd ended while it started: its message stands above");
        return BERTH_ENODE;
    }
    error = berth_open(b, n->url, &opts);
    if (error) {
        berth_error(NULL, &e);
        snprintf(why, why_size, "%s", e.sentence);
    }
    return error;
}

int bench_node_start(struct bench_node *n, const struct bench_node_config *config, const char *name, struct berth **b,
                     char *why, size_t why_size)
{
    int error;

    *n = (struct bench_node){.stop = -1, .report = -1, .exit = -1, .dir = "/dev/shm/berth-run-XXXXXX"};
    if (!mkdtemp(n->dir)) {
        error = -errno;
        snprintf(why, why_size, "no directory can be made on /dev/shm: %s", strerror(-error));
        return error;
    }
    snprintf(n->url, sizeof(n->url), "unix:%s/socket", n->dir);
    error = spawn_keeper(n, config);
    if (error) {
        snprintf(why, why_size, "no process can be started: %s", strerror(-error));
        rmdir(n->dir);
        return error;
    }
    error = connect_when_ready(n, name, b, why, why_size);
    if (error)
        bench_node_stop(n);
    if (error == BERTH_ENODE && n->exit == BERTHD_REFUSED)
        return -ENOSPC;
    return error == BERTH_ENODE && n->exit == BERTHD_USAGE ? -EINVAL : error;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int bench_node_restart(struct bench_node *n, int64_t *ns)
{
    pid_t none;

    if (write(n->stop, "r", 1) != 1 || read(n->report, &none, sizeof(none)) != sizeof(none) || none)
        return -EIO;
    *ns = now_ns();
    if (read(n->report, &n->pid, sizeof(n->pid)) != sizeof(n->pid))
        return -EIO;
    *ns = now_ns() - *ns;
    return 0;
}

int bench_node_stop(struct bench_node *n)
{
    int status;

    close(n->stop);
    close(n->report);
    while (waitpid(n->keeper, &status, 0) < 0)
        if (errno != EINTR)
            return -EIO;
    n->exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return n->exit == 0 ? 0 : -EIO;
}
