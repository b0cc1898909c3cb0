/* cmd_top.c: berth top: what a node does, drawn anew on a terminal, or a view for each interval. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/top.h"

#define INTERVAL_MIN INT64_C(10000000)      /* 10 ms */
#define INTERVAL_MAX INT64_C(3600000000000) /* 1 h */
#define SILENCE INT64_C(5000000000)         /* a node that says nothing for so long is gone, unless -t says else */

const struct cli_option top_options[] = {
    {"interval", 'i', "TIME", "time between two views, 10ms to 1h (1s)"},
    {"count", 'c', "N", "end after N views"},
    {0},
};

struct top {
    int64_t interval; /* ns */
    uint64_t count;   /* views; 0: until it is ended */
    bool screen;      /* stdout is a terminal */
    bool keys;        /* stdin, too */
};

static int set(void *arg, const char *name, const char *value)
{
    struct top *t = arg;
    if (!strcmp(name, "count"))
        return cli_number("--count", value, 1, UINT32_MAX, &t->count);
    int rc = cli_duration("--interval", value, &t->interval);
    if (rc == 0 && (t->interval < INTERVAL_MIN || t->interval > INTERVAL_MAX))
        return cli_usage("--interval: '%s' is not from 10ms to 1h", value);
    return rc;
}

/* ---- the terminal ---- */

static volatile sig_atomic_t ended; /* Ctrl-C or a signal that asks to end */
static volatile sig_atomic_t raw;   /* the terminal is to be given back */
static struct termios before;

static void give_back(void)
{
    if (raw) {
        raw = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
}

/* The terminal is given back here, too: a second signal ends the process as it would any other, also while it waits for
 * a node that says nothing. */
static void on_signal(int which)
{
    int error = errno;
    (void)which;
    ended = 1;
    give_back();
    errno = error;
}

static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
}

/* A key is seen without its line being ended, and not shown. */
static void take_keys(struct top *t)
{
    struct termios now;
    if (!t->keys || tcgetattr(STDIN_FILENO, &before) < 0)
        return;
    now = before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    raw = tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

/* q, or the end of input. */
static bool wants_end(struct top *t)
{
    char key[16];
    ssize_t n = read(STDIN_FILENO, key, sizeof key);
    if (n <= 0)
        t->keys = false;
    return n > 0 && (memchr(key, 'q', (size_t)n) || memchr(key, 'Q', (size_t)n));
}

/* One look at keys and output, `left` ns at most, during which signals come: between the look at `ended` and the wait
 * they do not. True: it is to end now. */
static bool look(struct top *t, int64_t left, const sigset_t *open)
{
    struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    struct pollfd all[] = {{.fd = t->keys ? STDIN_FILENO : -1, .events = POLLIN}, {.fd = STDOUT_FILENO}};
    int n = ended ? 0 : ppoll(all, 2, &time, open);
    if (n > 0 && all[1].revents & (POLLERR | POLLHUP | POLLNVAL))
        return true; /* who read the views has gone */
    return ended || (n > 0 && all[0].revents && wants_end(t));
}

static bool wait_until(struct top *t, int64_t then)
{
    sigset_t set, open;
    bool end = false;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &open);
    for (int64_t left; !end && (left = then - cli_now()) > 0;)
        end = look(t, left, &open);
    sigprocmask(SIG_SETMASK, &open, NULL);
    return end || ended;
}

/* Each line over the old one, cut at the screen's edge. */
static void draw(const char *text)
{
    struct winsize w = {0};
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 1 ? w.ws_row - 1 : 60;
    int columns = w.ws_col > 0 ? w.ws_col : 100;
    fputs("\033[H", stdout);
    for (int i = 0; i < rows && *text; i++) {
        int n = (int)strcspn(text, "\n");
        printf("%.*s\033[K\n", n < columns ? n : columns, text);
        text += n + (text[n] == '\n');
    }
    fputs("\033[J", stdout);
}

static int show(const struct top *t, const json_t *view)
{
    char *text = NULL;
    size_t size = 0;
    if (cli.json) {
        cli_json_print(json_incref((json_t *)view));
    } else if (!t->screen) {
        top_print(stdout, view);
        putchar('\n');
    } else {
        FILE *f = open_memstream(&text, &size);
        if (!f)
            return cli_fail(-ENOMEM, NULL, strerror(ENOMEM));
        top_print(f, view);
        if (fclose(f) == 0)
            draw(text);
        free(text);
    }
    fflush(stdout);
    return CLI_OK;
}

/* ---- views ---- */

static int watch(struct berth *b, struct top *t)
{
    json_t *was = NULL, *is = NULL;
    int rc = cli_report_of(b, BERTH_STATUS, NULL, &was);
    int64_t read_at = cli_now(), due = read_at;
    for (uint64_t n = 0; rc == 0 && (!t->count || n < t->count); n++) {
        due += t->interval;
        if (due < read_at) /* the node was slow: no views are made up for */
            due = read_at + t->interval;
        if (wait_until(t, due) || (rc = cli_report_of(b, BERTH_STATUS, NULL, &is)))
            break;
        int64_t now = cli_now();
        json_t *view = top_view(was, is, now - read_at);
        rc = show(t, view);
        json_decref(view);
        json_decref(was);
        was = is;
        read_at = now;
        if (ferror(stdout))
            break; /* finish() says why */
    }
    json_decref(was);
    return ended ? CLI_OK : rc;
}

int cmd_top(int argc, char **argv)
{
    struct top t = {.interval = 1000000000};
    int first = cli_parse(argc, argv, top_options, set, &t);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    struct berth *b;
    if (!cli.timeout_ns)
        cli.timeout_ns = SILENCE;
    int rc = cli_open(&b, BERTH_OPEN_READER, NULL);
    if (rc)
        return rc;
    t.screen = !cli.json && isatty(STDOUT_FILENO);
    t.keys = t.screen && isatty(STDIN_FILENO);
    catch_signals();
    take_keys(&t);
    if (t.screen)
        fputs("\033[2J", stdout);
    rc = watch(b, &t);
    give_back();
    if (ended && ferror(stdout)) { /* it was being written when the signal came, to somebody who took nothing */
        __fpurge(stdout);
        clearerr(stdout);
    }
    berth_close(b);
    return rc;
}
