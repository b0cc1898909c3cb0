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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),   cmocka_unit_test(cut_before_what_does_not_fit),
        cmocka_unit_test(unescapes), cmocka_unit_test(there_and_back),
        cmocka_unit_test(one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
