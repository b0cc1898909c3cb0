#include "tools/replay/trace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int read_text(struct trace *t, const char *text, char why[300])
{
    FILE *in = fmemopen((void *)text, strlen(text), "r");
    int error;

    assert_non_null(in);
    why[0] = 0;
    error = trace_read(t, in, "sample", why, 300);
    fclose(in);
    return error;
}

static void requests_are_read_in_order(void **state)
{
    struct trace t;
    char why[300];

    (void)state;
    assert_int_equal(
        read_text(&t,
                  "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [7, 8]}\n"
                  "{\"hash_ids\": [7, 8, 9], \"timestamp\": 27, \"output_length\": 0, \"input_length\": 1500}\n"
                  "{\"timestamp\": 30, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": [], \"more\": 1}",
                  why),
        0);
    assert_int_equal(t.n_requests, 3);
    assert_int_equal(t.n_blocks, 5);
    assert_int_equal(t.distinct, 3);
    assert_int_equal(t.longest, 3);
    assert_int_equal(t.requests[1].timestamp_ms, 27);
    assert_int_equal(t.requests[1].input_length, 1500);
    assert_int_equal(t.requests[1].first, 2);
    assert_int_equal(t.requests[1].n_blocks, 3);
    assert_int_equal(t.blocks[4], 9);
    assert_int_equal(t.requests[2].n_blocks, 0);
    trace_free(&t);
}

static void bad_lines_are_named(void **state)
{
    static const struct {
        const char *line, *reason;
    } bad[] = {
        {"", "it is no JSON"},
        {"[]", "it is no JSON object"},
        {"{\"timestamp\": 0", "it is no JSON"},
        {"{\"timestamp\": 0} x", "it is no JSON"},
        {"{\"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}", "it has no 'timestamp'"},
        {"{\"timestamp\": 1.5, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}",
         "'timestamp' is no integer"},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}",
         "'timestamp' is no integer"},
        {"{\"timestamp\": 1, \"input_length\": \"1\", \"output_length\": 1, \"hash_ids\": []}", "'input_length' is no"},
        {"{\"timestamp\": 1, \"input_length\": 4294967296, \"output_length\": 1, \"hash_ids\": []}",
         "'input_length' is no"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"hash_ids\": []}", "it has no 'output_length'"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}", "'hash_ids' is no array"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 4}", "'hash_ids' is no array"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1, \"2\"]}", "the 2. one"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [-1]}", "the 1. one"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [5, 6, 5]}", "a block twice"},
        {"{\"timestamp\": 1, \"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}",
         "duplicate"},
        {"{\"timestamp\": 99999999999999999999, \"input_length\": 1}", "it is no JSON"},
    };
    const char *good = "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 5, \"hash_ids\": [1]}\n";

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[1024], why[300];
        struct trace t;

        snprintf(text, sizeof(text), "%s%s%s\n%s", good, good, bad[i].line, good);
        assert_int_equal(read_text(&t, text, why), -EINVAL);
        if (!strstr(why, "line 3 of 'sample' is no request") || !strstr(why, bad[i].reason))
            fail_msg("'%s': %s", bad[i].line, why);
        assert_null(t.requests);
        assert_null(t.blocks);
    }
}

static void an_empty_trace_is_refused(void **state)
{
    struct trace t;
    char why[300] = "";
    FILE *in = fopen("/dev/null", "r");

    (void)state;
    assert_non_null(in);
    assert_int_equal(trace_read(&t, in, "nothing", why, sizeof(why)), -EINVAL);
    assert_string_equal(why, "'nothing' has no request");
    fclose(in);
}

static void a_trace_without_blocks_is_refused(void **state)
{
    const char *empty = "{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}\n";
    char text[300], why[300];
    struct trace t;

    (void)state;
    snprintf(text, sizeof(text), "%s%s", empty, empty);
    assert_int_equal(read_text(&t, text, why), -EINVAL);
    assert_string_equal(why, "'sample' has no block: 'hash_ids' of every request is empty");
    assert_null(t.requests);
}

/* What is no trace may have no line end at all. */
static void a_line_has_a_limit(void **state)
{
    const char *good = "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 5, \"hash_ids\": [1]}";
    char *text = malloc(TRACE_LINE_MAX + 2), why[300];
    struct trace t;

    (void)state;
    assert_non_null(text);
    for (unsigned more = 0; more < 2; more++) {
        snprintf(text, TRACE_LINE_MAX + 2, "%*s", (int)(TRACE_LINE_MAX + more), good);
        assert_int_equal(read_text(&t, text, why), more ? -EINVAL : 0);
        trace_free(&t);
    }
    assert_string_equal(why, "line 1 of 'sample' is no request: it is longer than 4194304 bytes");
    free(text);
}

static void a_request_has_a_limit(void **state)
{
    size_t size = 12 * (TRACE_BLOCKS_MAX + 2), at;
    char *line = malloc(size), why[200] = "";
    struct trace t = {0};

    (void)state;
    assert_non_null(line);
    at = (size_t)snprintf(line, size, "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0");
    for (unsigned i = 1; i < TRACE_BLOCKS_MAX; i++)
        at += (size_t)snprintf(line + at, size - at, ",%u", i);
    at += (size_t)snprintf(line + at, size - at, "]}");
    assert_int_equal(trace_parse(&t, line, at, why, sizeof(why)), 0);
    assert_int_equal(t.n_blocks, TRACE_BLOCKS_MAX);
    at += (size_t)snprintf(line + at - 2, size - at, ",%u]}", TRACE_BLOCKS_MAX) - 2;
    assert_int_equal(trace_parse(&t, line, at, why, sizeof(why)), -EINVAL);
    assert_non_null(strstr(why, "no array of at most 65536"));
    assert_int_equal(t.n_requests, 1);
    trace_free(&t);
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read_in_order), cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(an_empty_trace_is_refused),  cmocka_unit_test(a_trace_without_blocks_is_refused),
        cmocka_unit_test(a_line_has_a_limit),         cmocka_unit_test(a_request_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
