#include "tests/support/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define READY_MS 60000

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* berthd refuses variables that it does not know, and the tests have some of their own. */
static void clean_environment(void)
{
    for (size_t i = 0; environ[i];) {
        size_t n = strcspn(environ[i], "=");
        if (strncmp(environ[i], "BERTH_", 6) != 0) {
            i++;
        } else {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)n, environ[i]);
            if (n >= sizeof name || unsetenv(name) != 0) {
                i++;
            }
        }
    }
}

static void enter_cgroup(const char *directory)
{
    char path[256];
    snprintf(path, sizeof path, "%s/cgroup.procs", directory);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) {
        dprintf(2, "%s: %s\n", path, strerror(errno));
        _exit(126);
    }
    close(fd);
}

static void run(const struct daemon *d, int log)
{
    const char *bin = getenv("BERTH_BIN");
    char path[512];
    const char *argv[32] = {path, "--region", d->region, "--socket", d->socket};
    int n = 5;
    for (int i = 0; d->extra[i]; i++) {
        argv[n++] = d->extra[i];
    }
    snprintf(path, sizeof path, "%s/berthd", bin ? bin : "build/release/bin");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("BERTH_BIN"); /* berthd refuses variables that it does not know */
    unsetenv("BERTH_SOURCE");
    dup2(log, 2);
    clean_environment();
    if (d->cgroup) {
        enter_cgroup(d->cgroup);
    }
    if (d->before) {
        d->before();
    }
    execv(path, (char *const *)argv);
    dprintf(2, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

/* Reads what there is, waiting at most so long for the first byte. false: the other end is closed. */
static bool read_log(struct daemon *d, int timeout_ms)
{
    struct pollfd p = {.fd = d->log, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0) {
        return true;
    }
    if (d->text_size > sizeof d->text / 2) { /* the newer half is enough */
        memmove(d->text, d->text + sizeof d->text / 4, d->text_size - sizeof d->text / 4);
        d->text_size -= sizeof d->text / 4;
    }
    ssize_t n = read(d->log, d->text + d->text_size, sizeof d->text - d->text_size - 1);
    if (n > 0) {
        d->text_size += (size_t)n;
        d->text[d->text_size] = 0;
    }
    return n > 0;
}

bool daemon_says(struct daemon *d, const char *text, int timeout_ms)
{
    int64_t end = now_ms() + timeout_ms;
    while (!strstr(d->text, text)) {
        int64_t left = end - now_ms();
        if (left < 0 || !read_log(d, (int)left)) {
            return strstr(d->text, text);
        }
    }
    return true;
}

int daemon_try(struct daemon *d)
{
    int log[2], status = 0;
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    fcntl(log[1], F_SETPIPE_SZ, 1 << 20);
    if (d->log > 0) {
        close(d->log);
    }
    d->text_size = 0;
    d->text[0] = 0;
    d->log = log[0];
    d->pid = fork();
    if (d->pid == 0) {
        run(d, log[1]);
    }
    close(log[1]);
    if (daemon_says(d, "ready: ", READY_MS)) {
        return 0;
    }
    waitpid(d->pid, &status, 0);
    d->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void daemon_again(struct daemon *d)
{
    int e = daemon_try(d);
    if (e) {
        fail_msg("berthd ended with %d: %s", e, d->text);
    }
}

void daemon_start(struct daemon *d, const char *const *extra)
{
    *d = (struct daemon){0};
    snprintf(d->dir, sizeof d->dir, "/dev/shm/berth-test-XXXXXX");
    assert_non_null(mkdtemp(d->dir));
    snprintf(d->region, sizeof d->region, "%s/region", d->dir);
    snprintf(d->socket, sizeof d->socket, "%s/sock", d->dir);
    snprintf(d->node, sizeof d->node, "unix:%s", d->socket);
    for (int i = 0; extra && extra[i]; i++) {
        d->extra[i] = extra[i];
    }
    daemon_again(d);
}

int daemon_stop(struct daemon *d)
{
    int status = 0;
    if (d->pid) {
        kill(d->pid, SIGTERM);
        waitpid(d->pid, &status, 0);
        d->pid = 0;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void daemon_kill(struct daemon *d)
{
    kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    d->pid = 0;
}

void daemon_end(struct daemon *d)
{
    char command[128];
    int code = daemon_stop(d);
    if (code) {
        print_error("berthd ended with %d: %s\n", code, d->text);
    }
    assert_int_equal(code, 0);
    close(d->log);
    snprintf(command, sizeof command, "rm -rf %s", d->dir);
    assert_int_equal(system(command), 0);
}

struct berth *daemon_open(const struct daemon *d, const char *name)
{
    struct berth *b = NULL;
    struct berth_open_opts o = {.size = sizeof o, .name = name};
    int e = berth_open(&b, d->node, &o);
    if (e) {
        struct berth_error_info info = {0};
        berth_error(NULL, &info);
        fail_msg("berth_open: %s: %s", info.name, info.sentence);
    }
    return b;
}

double query_number(struct berth *b, enum berth_question what, const char *path)
{
    char *text = NULL, copy[256];
    assert_int_equal(berth_query(b, what, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL), *at = root;
    assert_non_null(root);
    snprintf(copy, sizeof copy, "%s", path);
    char *save = NULL;
    for (char *part = strtok_r(copy, ".", &save); part && at; part = strtok_r(NULL, ".", &save)) {
        at = json_object_get(at, part);
    }
    if (!at) {
        fail_msg("no '%s' in %s", path, text);
    }
    double v = json_number_value(at);
    json_decref(root);
    free(text);
    return v;
}

double daemon_number(struct berth *b, const char *path)
{
    return query_number(b, BERTH_STATUS, path);
}

double daemon_metric(struct berth *b, const char *line)
{
    char *text = NULL, start[160];
    assert_int_equal(berth_query(b, BERTH_METRICS, NULL, &text), 0);
    snprintf(start, sizeof start, "\n%s ", line);
    const char *at = strstr(text, start);
    if (!at) {
        fail_msg("no metric '%s'", line);
        return 0;
    }
    double v = strtod(at + strlen(start), NULL);
    free(text);
    return v;
}

bool eventually(bool (*is)(void *arg), void *arg, int timeout_ms)
{
    int64_t end = now_ms() + timeout_ms;
    while (!is(arg)) {
        if (now_ms() > end) {
            return false;
        }
        poll(NULL, 0, 5);
    }
    return true;
}

struct retired {
    struct berth *b;
    unsigned n;
};

static bool are_retired(void *arg)
{
    const struct retired *r = arg;
    return daemon_number(r->b, "slots.retired") == r->n;
}

void daemon_retired(struct berth *b, unsigned n)
{
    struct retired r = {.b = b, .n = n};
    if (!eventually(are_retired, &r, 10000)) {
        fail_msg("%.0f slots are retired, not %u", daemon_number(b, "slots.retired"), n);
    }
}

struct berth_key key_of(const char *text)
{
    return (struct berth_key){.data = text, .size = (uint32_t)strlen(text)};
}

static uint64_t word_at(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

void payload_fill(void *data, size_t size, const char *key)
{
    uint64_t seed = berth_checksum(key, strlen(key));
    for (size_t i = 0; i < size; i += 8) {
        uint64_t w = word_at(seed, i);
        memcpy((char *)data + i, &w, size - i < 8 ? size - i : 8);
    }
}

bool payload_is(const void *data, size_t size, const char *key)
{
    uint64_t seed = berth_checksum(key, strlen(key));
    for (size_t i = 0; i < size; i += 8) {
        uint64_t w = word_at(seed, i);
        if (memcmp((const char *)data + i, &w, size - i < 8 ? size - i : 8) != 0) {
            return false;
        }
    }
    return true;
}
