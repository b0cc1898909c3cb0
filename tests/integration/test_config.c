/* test_config.c: configuration files with bytes changed, cut off, doubled: berthd --print-config says what is wrong
 * with them (2), or that nothing is (0), and never anything else.
 */
#include "tests/support/draw.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define FILES 200u
#define WALL_S 5 /* on a busy machine fewer files do */

static const char whole[] = "; a node\n[node]\npool = 64MiB\nhigh = 95%\nlow = 90%\nclass = 96KiB,1.5MiB\n"
                            "draft-quota = 10%\npin-quota = 1GiB\nmode = 0640\nquarantine = 250ms\nlock = auto\n"
                            "socket = /tmp/berth-config.sock\nregion = /dev/shm/berth-config\nmetrics = 127.0.0.1:0\n"
                            "log-level = debug\nname = a\nhomes = 2\nlease = 2s\nlease-quota = 25%\nverify = 1/8\n"
                            "[peers]\na = tcp://127.0.0.1:7401\nb-2.x = tcp://[::1]:7402 3\n[namespace "
                            "models]\nreplaceable = yes\n[namespace x.y_z-1]\nreplaceable = no\n";
static char path[64];

static size_t mutate(char *text, size_t n, size_t room)
{
    static const char special[] = "[]=;#%,:\n\r\t \0\"\\-+.eE\xff\x80";
    for (uint32_t i = 1 + draw_below(4); i > 0; i--) {
        size_t at = draw_below((uint32_t)n), length = draw_below((uint32_t)(n - at) + 1);
        switch (draw_below(6)) {
        case 0:
            text[at] = (char)draw();
            break;
        case 1:
            text[at] = special[draw_below(sizeof special - 1)];
            break;
        case 2:
            text[at] ^= (char)(1u << draw_below(8));
            break;
        case 3:
            n = draw_below(8) ? n : at + 1;
            break;
        case 4: /* a piece twice */
            if (n + length <= room) {
                memmove(text + at + length, text + at, n - at);
                n += length;
            }
            break;
        default: /* a byte many times: a long line, a large number */
            memset(text + at, text[at], length);
        }
    }
    return n;
}

static void write_file(const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
}

static void drop_test_variables(void)
{
    unsetenv("BERTH_BIN"); /* berthd refuses variables that it does not know */
    unsetenv("BERTH_SOURCE");
    unsetenv("BERTH_SEED");
    unsetenv("BERTH_NODE");
}

static int print_config(void)
{
    const char *bin = getenv("BERTH_BIN");
    char program[512];
    int status;
    snprintf(program, sizeof program, "%s/berthd", bin ? bin : "build/release/bin");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        drop_test_variables();
        execl(program, program, "--config", path, "--print-config", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_mutated_files(void **state)
{
    (void)state;
    char text[4 * sizeof whole];
    unsigned good = 0, bad = 0;
    time_t end = time(NULL) + WALL_S;
    snprintf(path, sizeof path, "/tmp/berth-config-%d.ini", (int)getpid());
    write_file(whole, sizeof whole - 1);
    assert_int_equal(print_config(), 0);
    for (unsigned i = 0; i < FILES && time(NULL) < end; i++) {
        memcpy(text, whole, sizeof whole);
        size_t n = mutate(text, sizeof whole - 1, sizeof text);
        write_file(text, n);
        int e = print_config();
        good += e == 0;
        bad += e == 2;
        if (e != 0 && e != 2) {
            fail_msg("exit %d with %s", e, path); /* which stays, to be looked at */
        }
    }
    assert_true(good + bad > 10 && bad > 0);
    unlink(path);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutated_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
