/* bench_iperf3.c: iperf3 beside a run of pulls, where it is installed. */
#include "tools/bench/bench_pull.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX (256u << 10) /* of its report */
#define TRIES 40u             /* to reach the server while it starts */
#define TRY_NS 25000000L

static pid_t spawn(char *const argv[], int out)
{
    pid_t parent = getpid(), pid = fork();
    int null;

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(out >= 0 ? out : null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

static char *read_all(int fd)
{
    char *text = malloc(TEXT_MAX);
    size_t have = 0;
    ssize_t n;

    while (text && have < TEXT_MAX - 1 && (n = read(fd, text + have, TEXT_MAX - 1 - have)) > 0)
        have += (size_t)n;
    if (text)
        text[have] = 0;
    return text;
}

/* Its report's bytes a second; 0 where it has none: the server was not there yet. */
static double client(const char *port, unsigned seconds, uint64_t block)
{
    char time[16], length[24];
    char *argv[] = {"iperf3", "-c", "127.0.0.1", "-p", (char *)port, "-J", "-t", time, "-l", length, NULL};
    int out[2];
    double bits = 0;
    char *text;
    json_t *report;
    pid_t pid;

    snprintf(time, sizeof(time), "%u", seconds);
    snprintf(length, sizeof(length), "%" PRIu64, block);
    if (pipe2(out, O_CLOEXEC))
        return 0;
    pid = spawn(argv, out[1]);
    close(out[1]);
    text = pid > 0 ? read_all(out[0]) : NULL;
    close(out[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    report = text ? json_loads(text, 0, NULL) : NULL;
    bits = json_number_value(
        json_object_get(json_object_get(json_object_get(report, "end"), "sum_received"), "bits_per_second"));
    json_decref(report);
    free(text);
    return bits / 8;
}

double bench_iperf3(unsigned seconds, uint64_t block)
{
    char port[8];
    char *argv[] = {"iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, NULL};
    double rate = 0;
    pid_t server;

    if (system("command -v iperf3 >/dev/null 2>&1") != 0)
        return 0;
    snprintf(port, sizeof(port), "%u", 20000u + (unsigned)(bench_now() / 1000 % 20000));
    server = spawn(argv, -1);
    for (unsigned i = 0; server > 0 && rate <= 0 && i < TRIES; i++) {
        struct timespec t = {.tv_nsec = TRY_NS};

        nanosleep(&t, NULL);
        rate = client(port, seconds, block < 4096 ? 4096 : block > (1u << 20) ? 1u << 20 : block);
        if (waitpid(server, NULL, WNOHANG) == server)
            server = 0;
    }
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    return rate;
}
