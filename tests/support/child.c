#include "tests/support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/berth.h"

static int to_parent, from_parent;

void child_start(struct child *c, int (*body)(void *arg), void *arg)
{
    int down[2], up[2];
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(down[1]);
        close(up[0]);
        from_parent = down[0];
        to_parent = up[1];
        _exit(body(arg));
    }
    close(down[0]);
    close(up[1]);
    c->to = down[1];
    c->from = up[0];
}

void child_tell(char what)
{
    CHECK(write(to_parent, &what, 1) == 1);
}

char child_hear(void)
{
    char what = 0;
    return read(from_parent, &what, 1) == 1 ? what : 0;
}

char parent_hear(struct child *c, int timeout_ms)
{
    struct pollfd p = {.fd = c->from, .events = POLLIN};
    char what = 0;
    if (poll(&p, 1, timeout_ms) != 1) {
        fail_msg("a client said nothing for %d ms", timeout_ms);
    }
    return read(c->from, &what, 1) == 1 ? what : 0;
}

void parent_tell(struct child *c, char what)
{
    assert_int_equal(write(c->to, &what, 1), 1);
}

int child_wait(struct child *c)
{
    int status = 0;
    waitpid(c->pid, &status, 0);
    close(c->to);
    close(c->from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_kill(struct child *c)
{
    kill(c->pid, SIGKILL);
    child_wait(c);
}

_Noreturn void child_failed(const char *file, int line, const char *what)
{
    struct berth_error_info e = {.name = "none"};
    berth_error(NULL, &e);
    fprintf(stderr, "%s:%d: in a client: %s (last error: %s: %s)\n", file, line, what, e.name, e.sentence);
    _exit(99);
}
