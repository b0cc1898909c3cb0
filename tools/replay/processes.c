#include "tools/replay/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void wait_for_end(int fd)
{
    char byte;

    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
}

static int client_process(struct processes *p, unsigned index)
{
    const struct replay_job *job = p->job;
    struct replay_client *client;
    int error;

    close_end(&p->ready[0]);
    close_end(&p->node_up[1]);
    close_end(&p->go[1]);
    wait_for_end(p->node_up[0]);
    if (atomic_load(&job->shared->stop))
        return 0;
    error = replay_client_open(&client, job, job->shared->url, &job->shared->client[index]);
    if (error)
        atomic_store(&job->shared->stop, 1);
    (void)!write(p->ready[1], "", 1);
    wait_for_end(p->go[0]);
    if (error)
        return error;
    error = replay_client_run(client);
    replay_client_close(client);
    return error;
}

static int fork_one(struct processes *p, unsigned index)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        _exit(client_process(p, index) ? 1 : 0);
    }
    p->child[index] = pid;
    p->pidfd[index] = (int)syscall(SYS_pidfd_open, pid, 0);
    p->n++;
    return 0;
}

int processes_fork(struct processes *p, const struct replay_job *job, unsigned n)
{
    int error = 0;

    *p = (struct processes){.job = job, .ready = {-1, -1}, .node_up = {-1, -1}, .go = {-1, -1}};
    if (pipe2(p->ready, O_CLOEXEC) < 0 || pipe2(p->node_up, O_CLOEXEC) < 0 || pipe2(p->go, O_CLOEXEC) < 0)
        return -errno;
    fflush(NULL);
    while (!error && p->n < n)
        error = fork_one(p, p->n);
    close_end(&p->ready[1]);
    close_end(&p->node_up[0]);
    close_end(&p->go[0]);
    return error;
}

void processes_open(struct processes *p)
{
    struct pollfd fds[PROCESSES_MAX + 1] = {{.fd = p->ready[0], .events = POLLIN}};
    unsigned ready = 0;
    char byte;

    for (unsigned i = 0; i < p->n; i++)
        fds[i + 1] = (struct pollfd){.fd = p->pidfd[i], .events = POLLIN};
    close_end(&p->node_up[1]);
    while (ready < p->n) {
        if (poll(fds, p->n + 1, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents & POLLIN)
            ready += read(p->ready[0], &byte, 1) == 1;
        for (unsigned i = 0; i < p->n; i++)
            if (fds[i + 1].revents) {
                atomic_store(&p->job->shared->stop, 1);
                return;
            }
    }
}

void processes_go(struct processes *p)
{
    close_end(&p->go[1]);
}

unsigned processes_join(struct processes *p, void (*each)(void *arg, uint64_t requests), void *arg)
{
    unsigned failed = 0;

    close_end(&p->node_up[1]);
    close_end(&p->go[1]);
    for (unsigned i = 0; i < p->n; i++) {
        struct pollfd ended = {.fd = p->pidfd[i], .events = POLLIN};
        int status = 0;

        while (poll(&ended, 1, 100) <= 0)
            each(arg, atomic_load(&p->job->shared->next));
        waitpid(p->child[i], &status, 0);
        close(p->pidfd[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            atomic_store(&p->job->shared->stop, 1);
            failed++;
        }
    }
    close_end(&p->ready[0]);
    close_end(&p->ready[1]);
    close_end(&p->node_up[0]);
    close_end(&p->go[0]);
    return failed;
}
