#include "tools/bench/bench.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tools/cli.h"

#define SETTLE_SECONDS 0.5 /* what opening and spinning leave behind */

/* ns on a CPU of all threads of a process, to which /proc/PID/task/TID/schedstat says it. */
static int cpu_ns(pid_t pid, uint64_t *ns)
{
    char path[320];
    struct dirent *entry;
    uint64_t sum = 0, one;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (!tasks)
        return -errno;
    while ((entry = readdir(tasks))) {
        FILE *f;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        if (fscanf(f, "%" SCNu64, &one) == 1)
            sum += one;
        fclose(f);
    }
    closedir(tasks);
    *ns = sum;
    return 0;
}

static int node_pid(struct bench *b, pid_t *pid)
{
    char *text = NULL;
    json_t *status;
    int error;

    if (!b->url) {
        *pid = b->node.pid;
        return 0;
    }
    error = berth_query(b->b, BERTH_STATUS, NULL, &text);
    if (error)
        return error;
    status = json_loads(text, 0, NULL);
    *pid = (pid_t)json_integer_value(json_object_get(json_object_get(status, "node"), "pid"));
    json_decref(status);
    free(text);
    return *pid > 0 ? 0 : -ESRCH;
}

static void pass(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void report(const struct bench *b, double seconds, double cpu_seconds)
{
    double share = cpu_seconds / seconds;

    if (!cli.json) {
        printf("%s: %s, %llu objects, one client attached\n  %-10s %.3f ms a second, %.3f %% of a core\n",
               b->which->name, b->which->doc, (unsigned long long)b->objects, "CPU", 1e3 * share, 1e2 * share);
        cli_flush();
        return;
    }
    bench_report(b, &(struct bench_result){.unit = "idle",
                                           .timed = 1,
                                           .seconds = seconds,
                                           .baseline = "one_core_cpu_ns_per_second",
                                           .figure = 1e9 * share,
                                           .value = 1e9});
}

static int measure(struct bench *b, pid_t pid)
{
    uint64_t before, after;
    double seconds;
    int64_t begin;
    int error;

    pass(SETTLE_SECONDS);
    begin = bench_now();
    error = cpu_ns(pid, &before);
    if (error)
        return error;
    pass(b->seconds);
    error = cpu_ns(pid, &after);
    if (error)
        return error;
    seconds = (double)(bench_now() - begin) / 1e9;
    report(b, seconds, (double)(after - before) / 1e9);
    return 0;
}

/* A node with its objects and one client attached, that does nothing: its share of a core. */
int bench_idle(struct bench *b)
{
    int code = bench_open(b, b->objects, 0), error;
    pid_t pid;

    if (code)
        return code;
    code = bench_fill(b);
    if (code)
        return bench_close(b, code);
    error = node_pid(b, &pid);
    if (!error)
        error = measure(b, pid);
    if (error)
        code = cli_fail(error, b->which->name, "the node's process can't be found in /proc");
    return bench_close(b, code);
}
