/* cmd_top.c: berth top: what a node does, drawn anew on a terminal, or a view for each interval. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
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
    {"interval", 'i', "DURATION", "time between two views, 10ms to 1h; default 1s"},
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

static volatile sig_atomic_t ended; /* q, Ctrl-C, a signal that asks to end, nobody who reads */
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

/* One look at keys and output, until `then` at most, and until the output takes something where `writes`. Signals come
 * during it, but not between the look at `ended` and the wait. What it sees at the output; it ends by `ended`. */
static short look(struct top *t, int64_t then, bool writes)
{
    sigset_t set, open;
    int64_t left = then - cli_now();
    left = left > 0 ? left : 0;
    struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    struct pollfd all[] = {{.fd = t->keys ? STDIN_FILENO : -1, .events = POLLIN},
                           {.fd = STDOUT_FILENO, .events = writes ? POLLOUT : 0}};
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &open);
    int n = ended ? 0 : ppoll(all, 2, &time, &open);
    sigprocmask(SIG_SETMASK, &open, NULL);
    if (n > 0 && all[0].revents && wants_end(t))
        ended = 1;
    return n > 0 ? all[1].revents : 0;
}

static void wait_until(struct top *t, int64_t then)
{
    while (!ended && cli_now() < then) {
        if (look(t, then, false)) {
            cli.pipe_closed = true; /* who read the views has gone */
            ended = 1;
        }
    }
}

/* ---- output ---- */

/* All of it, unless it is to end: who reads may take nothing, and then keys and signals must be seen all the same,
 * which a write that has begun would not let through. A pipe that has room takes PIPE_BUF bytes at once. 0, or an exit
 * code. */
static int put(struct top *t, const char *text, size_t n)
{
    while (n > 0 && !ended) {
        if (!look(t, INT64_MAX, true))
            continue;
        ssize_t done = write(STDOUT_FILENO, text, n < PIPE_BUF ? n : PIPE_BUF);
        if (done > 0) {
            text += done;
            n -= (size_t)done;
        } else if (done < 0 && errno == EPIPE) {
            cli.pipe_closed = true;
            ended = 1;
        } else if (done < 0 && errno != EINTR && errno != EAGAIN) {
            cli_warn("cannot write to standard output: %s", strerror(errno));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

/* Each line over the old one, cut at the screen's edge. */
static void draw(FILE *f, const char *text)
{
    struct winsize w = {0};
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 1 ? w.ws_row - 1 : 60;
    int columns = w.ws_col > 0 ? w.ws_col : 100;
    fputs("\033[H", f);
    for (int i = 0; i < rows && *text; i++) {
        int n = (int)strcspn(text, "\n");
        fprintf(f, "%.*s\033[K\n", n < columns ? n : columns, text);
        text += n + (text[n] == '\n');
    }
    fputs("\033[J", f);
}

/* Names in a report are another program's: nothing of them is for a terminal to act on. */
static void make_plain(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~'))
            text[i] = '?';
    }
}

static void render(FILE *f, const struct top *t, const json_t *view)
{
    char *lines = NULL;
    size_t size = 0;
    if (cli.json) {
        json_dumpf(view, f, JSON_ENSURE_ASCII);
        fputc('\n', f);
        return;
    }
    FILE *all = open_memstream(&lines, &size);
    if (!all)
        return;
    top_print(all, view);
    if (fclose(all) == 0) {
        make_plain(lines, size);
        if (t->screen)
            draw(f, lines);
        else
            fprintf(f, "%s\n", lines);
    }
    free(lines);
}

static int show(struct top *t, const json_t *view)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail(-ENOMEM, NULL, strerror(ENOMEM));
    render(f, t, view);
    int rc = fclose(f) == 0 ? put(t, text, size) : cli_fail(-ENOMEM, NULL, strerror(ENOMEM));
    free(text);
    return rc;
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
        wait_until(t, due);
        if (ended || (rc = cli_report_of(b, BERTH_STATUS, NULL, &is)))
            break;
        int64_t now = cli_now();
        json_t *view = top_view(was, is, now - read_at);
        rc = show(t, view);
        json_decref(view);
        json_decref(was);
        was = is;
        read_at = now;
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
    rc = t.screen ? put(&t, "\033[2J", 4) : CLI_OK;
    rc = rc ? rc : watch(b, &t);
    give_back();
    berth_close(b);
    return rc;
}
