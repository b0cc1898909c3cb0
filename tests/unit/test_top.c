/* The views of `berth top`: differences of reports that are right, of a node that was started again, and of what is no
 * report at all. */
#include "tools/top.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct cli_command cli_commands[] = {{0}}; /* of the program, which has a main of its own */

static json_t *report(const char *text)
{
    json_t *o = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(o);
    return o;
}

static json_t *view_of(const char *was, const char *is, int64_t ns)
{
    json_t *a = report(was), *b = report(is), *v = top_view(a, b, ns);
    json_decref(a);
    json_decref(b);
    assert_non_null(v);
    return v;
}

static double at(const json_t *v, const char *path)
{
    char name[64];
    for (;;) {
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        v = json_object_get(v, name);
        if (!path[n]) {
            assert_true(json_is_number(v));
            return json_number_value(v);
        }
        path += n + 1;
    }
}

/* No figure below 0, at any depth; and the lines can be made. */
static void sound(const json_t *v)
{
    const char *name;
    json_t *o;
    json_object_foreach((json_t *)v, name, o)
    {
        assert_true(!json_is_number(o) || json_number_value(o) >= 0);
        sound(o);
    }
}

static void printable(const json_t *v)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    top_print(f, v);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "request phases"));
    free(text);
}

static void differences(void **state)
{
    (void)state;
    json_t *v = view_of(
        "{\"node\": {\"pid\": 7}, \"local\": {\"hits\": 10}, \"phases\": {"
        "\"commit\": {\"count\": 2, \"sum_ns\": 100, \"buckets\": [0, 2]}, \"queue\": {\"count\": 1, \"sum_ns\": 10}},"
        "\"pull\": {\"by\": {\"b\": {\"moved_bytes\": 5}}}, \"remote\": {\"by\": {\"b\": {\"bytes_sent\": 1}, \"\": "
        "{}}}}",
        "{\"node\": {\"pid\": 7}, \"local\": {\"hits\": 30}, \"phases\": {"
        "\"commit\": {\"count\": 102, \"sum_ns\": 400, \"buckets\": [0, 3, 0, 99]}, \"queue\": {\"count\": 1, "
        "\"sum_ns\": "
        "110},"
        "\"total\": {\"sum_ns\": 9}},"
        "\"pull\": {\"by\": {\"b\": {\"moved_bytes\": 105}}}, \"remote\": {\"by\": {\"b\": {\"bytes_sent\": 1}, \"\": "
        "{}}}}",
        500000000);
    sound(v);
    printable(v);
    assert_true(at(v, "operations/hits/count") == 20 && at(v, "operations/hits/per_second") == 40);
    assert_true(at(v, "bytes/in/count") == 100 && at(v, "bytes/by/b/in/count") == 100 && at(v, "bytes/out/count") == 0);
    assert_true(at(v, "phases/request/commit/count") == 100);
    assert_true(at(v, "phases/request/commit/p50_ns") == 16 && at(v, "phases/request/commit/p99_ns") == 16);
    assert_true(at(v, "phases/request/commit/share") == 0.75 && at(v, "phases/request/queue/share") == 0.25);
    assert_false(json_is_true(json_object_get(v, "restarted")));
    json_decref(v);
}

static void started_again(void **state)
{
    (void)state;
    json_t *v = view_of(
        "{\"node\": {\"pid\": 7}, \"local\": {\"hits\": 10}, \"phases\": {\"commit\": {\"count\": 9, \"sum_ns\": 100, "
        "\"buckets\": [0, 2, 7]}}}",
        "{\"node\": {\"pid\": 8}, \"local\": {\"hits\": 3}, \"phases\": {\"commit\": {\"count\": 3, \"sum_ns\": 30, "
        "\"buckets\": [0, 3]}}}",
        1000000000);
    sound(v);
    assert_true(json_is_true(json_object_get(v, "restarted")));
    assert_true(at(v, "operations/hits/count") == 3);
    assert_true(at(v, "phases/request/commit/count") == 3 && at(v, "phases/request/commit/sum_ns") == 30);
    json_decref(v);
}

static void no_reports(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "3",
        "null",
        "\"x\"",
        "{\"local\": 7, \"phases\": [1, 2], \"pull\": \"x\", \"remote\": {\"by\": [3]}}",
        "{\"local\": {\"hits\": -9223372036854775807}, \"remote\": {\"by\": {\"b\": 1, \"c\": []}}, \"pull\": {\"by\": "
        "null,"
        "\"failed_by\": {\"a very long name of a cause that nobody has ever heard of before, nor will again\": -1},"
        "\"phases\": {\"x\": 1, \"y\": {\"buckets\": {}}, \"total\": {\"buckets\": [\"a\", -5, 1e30]}}}}",
        "{\"local\": {\"hits\": 9223372036854775807}, \"phases\": {\"a\": {\"count\": 9223372036854775807, \"sum_ns\": "
        "9223372036854775807, \"buckets\": [9223372036854775807, "
        "9223372036854775807,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}}"};
    (void)state;
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (unsigned k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            json_t *v = view_of(texts[i], texts[k], (int64_t)i - 1);
            json_object_del(v, "seconds");
            sound(v);
            printable(v);
            json_decref(v);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(differences), cmocka_unit_test(started_again),
                                       cmocka_unit_test(no_reports)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
