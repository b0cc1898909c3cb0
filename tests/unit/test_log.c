/* test_log.c: escaping and its inverse; one event is one line, one write, and nothing foreign in it. */
#include "store/shell/log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void escapes(void **unused)
{
    (void)unused;
    char out[64];
    assert_int_equal(escape_bytes(out, sizeof out, "a b~", 4), 4);
    assert_string_equal(out, "a b~");
    assert_int_equal(escape_bytes(out, sizeof out, "\\\n\0\x7f\xff", 5), 18);
    assert_string_equal(out, "\\\\\\x0a\\x00\\x7f\\xff");
    assert_int_equal(escape_bytes(out, sizeof out, "", 0), 0);
    assert_string_equal(out, "");
}

static void cut_before_what_does_not_fit(void **unused)
{
    (void)unused;
    char out[8];
    memset(out, '#', sizeof out);
    assert_int_equal(escape_bytes(out, 5, "ab\n", 3), 2);
    assert_string_equal(out, "ab");
    assert_int_equal(out[5], '#');
    assert_int_equal(escape_bytes(out, 7, "ab\n", 3), 6);
    assert_int_equal(escape_bytes(out, 1, "ab", 2), 0);
    assert_int_equal(escape_bytes(out, 0, "ab", 2), 0);
}

static void unescapes(void **unused)
{
    (void)unused;
    uint8_t out[8];
    assert_int_equal(unescape_bytes(out, sizeof out, "a\\n\\t\\r\\0\\\\\\xfF"), 7);
    assert_memory_equal(out, "a\n\t\r\0\\\xff", 7);
    assert_int_equal(unescape_bytes(out, sizeof out, ""), 0);
    static const char *const bad[] = {"\\", "\\q", "\\x", "\\x1", "\\xg0", "\\x0g", "123456789"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(unescape_bytes(out, sizeof out, bad[i]), -EINVAL);
}

static void there_and_back(void **unused)
{
    (void)unused;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 2000; i++) {
        uint8_t in[480], back[480];
        char text[4 * sizeof in + 1];
        size_t n = (size_t)rand() % (sizeof in + 1);
        for (size_t k = 0; k < n; k++)
            in[k] = (uint8_t)rand();
        size_t length = escape_bytes(text, sizeof text, in, n);
        assert_int_equal(strlen(text), length);
        assert_int_equal(unescape_bytes(back, sizeof back, text), (long)n);
        assert_memory_equal(in, back, n);
    }
}

/* What log_event writes to stderr meanwhile. */
static size_t capture(char *out, size_t size, enum log_level level, const char *foreign)
{
    int pipes[2], old = dup(STDERR_FILENO);
    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    dup2(pipes[1], STDERR_FILENO);
    log_event(level, "client '%s' left", foreign);
    dup2(old, STDERR_FILENO);
    close(old);
    ssize_t n = read(pipes[0], out, size - 1);
    close(pipes[0]);
    close(pipes[1]);
    out[n < 0 ? 0 : n] = '\0';
    return n < 0 ? 0 : (size_t)n;
}

static void one_line(void **unused)
{
    (void)unused;
    static char line[32768], name[20000];
    log_set_level(LOG_INFO);
    size_t n = capture(line, sizeof line, LOG_WARNING, "x\n2026 error forged\x1b[2J");
    assert_int_equal(line[n - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    assert_non_null(strstr(line, "Z warning client 'x\\x0a2026 error forged\\x1b[2J' left\n"));
    assert_int_equal(line[4], '-');
    assert_int_equal(line[10], 'T');
    assert_int_equal(capture(line, sizeof line, LOG_DEBUG, "x"), 0);

    memset(name, 0xee, sizeof name - 1);
    n = capture(line, sizeof line, LOG_ERROR, name);
    assert_true(n > 1000 && line[n - 1] == '\n');
    log_set_level(LOG_ERROR);
    assert_int_equal(capture(line, sizeof line, LOG_WARNING, "x"), 0);
}

/* ---- what comes often ---- */

#define SPAN_NS (LOG_SPAN_S * INT64_C(1000000000))

static int64_t mono_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int capture_pipe[2], capture_old;

static void begin_capture(void)
{
    capture_old = dup(STDERR_FILENO);
    assert_int_equal(pipe2(capture_pipe, O_NONBLOCK), 0);
    dup2(capture_pipe[1], STDERR_FILENO);
}

/* What was written since; how many lines. */
static unsigned end_capture(char *out, size_t size)
{
    dup2(capture_old, STDERR_FILENO);
    ssize_t n = read(capture_pipe[0], out, size - 1);
    out[n < 0 ? 0 : n] = '\0';
    close(capture_pipe[0]);
    close(capture_pipe[1]);
    close(capture_old);
    unsigned lines = 0;
    for (const char *at = out; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines;
}

static void refused(int pid)
{
    log_often(LOG_WARNING, "a client was refused (pid %d)", pid);
}

static void repeats_are_summed(void **unused)
{
    (void)unused;
    static char text[65536];
    log_set_level(LOG_WARNING);
    begin_capture();
    for (int i = 0; i < 118; i++)
        refused(7);
    log_often(LOG_ERROR, "another kind"); /* is not late */
    log_often(LOG_INFO, "not wanted");
    assert_int_equal(end_capture(text, sizeof text), 2);
    assert_non_null(strstr(text, " warning a client was refused (pid 7)\n"));
    assert_non_null(strstr(text, " error another kind\n"));
    begin_capture();
    log_sums(mono_now()); /* the span is not over */
    assert_int_equal(end_capture(text, sizeof text), 0);
    begin_capture();
    log_sums(mono_now() + SPAN_NS);
    assert_int_equal(end_capture(text, sizeof text), 1);
    assert_non_null(strstr(text, " warning 117 more like this in 10 s: a client was refused (pid 7)\n"));
    begin_capture();
    log_sums(mono_now() + 2 * SPAN_NS); /* once */
    refused(7);
    assert_int_equal(end_capture(text, sizeof text), 1); /* a new span: at once again */
    log_sums(INT64_MAX);
}

static void distinct_sentences_are_distinct(void **unused)
{
    (void)unused;
    static char text[65536];
    begin_capture();
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 100; i++)
            refused(i);
    assert_int_equal(end_capture(text, sizeof text), LOG_DISTINCT);
    assert_non_null(strstr(text, "(pid 0)\n"));
    assert_non_null(strstr(text, "(pid 15)\n"));
    begin_capture();
    log_sums(INT64_MAX);
    assert_int_equal(end_capture(text, sizeof text), 1);
    assert_non_null(strstr(text, "284 more like this in 10 s: a client was refused (pid 99)\n"));
}

static void debug_is_whole(void **unused)
{
    (void)unused;
    static char text[65536];
    log_set_level(LOG_DEBUG);
    begin_capture();
    for (int i = 0; i < 100; i++)
        log_often(LOG_DEBUG, "a detail");
    assert_int_equal(end_capture(text, sizeof text), 100);
    log_set_level(LOG_WARNING);
}

static void more_kinds_than_places(void **unused)
{
    (void)unused;
    static char text[65536];
    static const char formats[LOG_KINDS + 8][4]; /* each another format; empty sentences */
    begin_capture();
    for (unsigned i = 0; i < LOG_KINDS + 8; i++) {
        const char *format = formats[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
        log_often(LOG_WARNING, format);
#pragma GCC diagnostic pop
    }
    assert_int_equal(end_capture(text, sizeof text), LOG_KINDS + 8); /* none is lost */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),
        cmocka_unit_test(cut_before_what_does_not_fit),
        cmocka_unit_test(unescapes),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(one_line),
        cmocka_unit_test(repeats_are_summed),
        cmocka_unit_test(distinct_sentences_are_distinct),
        cmocka_unit_test(debug_is_whole),
        cmocka_unit_test(more_kinds_than_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
