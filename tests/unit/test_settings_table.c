/* test_settings_table.c: the ranges of the table are those of the parser; durations have one parser. */
#include "store/berth.h"
#include "store/duration.h"
#include "store/shell/settings.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct settings s;
static char why[300];

/* Where a number stands in a setting's value. */
static void with_number(const char *name, const char *number, char *out, size_t size)
{
    static const char *const before[][2] = {{"verify", "1/"}, {"peers", "x=tcp://127.0.0.1:1*"}, {"share", "x="}};
    out[0] = '\0';
    for (unsigned i = 0; i < sizeof before / sizeof *before; i++) {
        if (strcmp(name, before[i][0]) == 0)
            snprintf(out, size, "%s", before[i][1]);
    }
    snprintf(out + strlen(out), size - strlen(out), "%s", number);
}

static int set_number(const char *name, const char *number)
{
    char value[128];
    with_number(name, number, value, sizeof value);
    settings_init(&s);
    return settings_set(&s, name, value, ORIGIN_FLAG, "here", why, sizeof why);
}

/* The next number below or above one, in the smallest unit of its kind. */
static void beside(const char *number, int step, char *out, size_t size)
{
    uint64_t bytes;
    int64_t ns;
    double percent;
    if (strchr(number, '%')) {
        assert_int_equal(sscanf(number, "%lf", &percent), 1);
        snprintf(out, size, "%.4f%%", percent + step * 0.0001);
    } else if (duration_parse(number, &ns) == 0) {
        snprintf(out, size, "%lldns", (long long)(ns + step));
    } else {
        assert_int_equal(berth_parse_size(number, &bytes), 0);
        snprintf(out, size, "%llu", (unsigned long long)bytes + (unsigned long long)step);
    }
}

static void check_end(const char *name, const char *number, int step)
{
    char out[64];
    uint64_t bytes;
    if (set_number(name, number) != 0)
        fail_msg("%s = %s is in its range, and refused: %s", name, number, why);
    bool zero = step < 0 && (berth_parse_size(number, &bytes) == 0 ? bytes == 0 : strcmp(number, "0s") == 0);
    beside(number, step, out, sizeof out);
    if (!zero && set_number(name, out) == 0)
        fail_msg("%s = %s is outside of its range, and taken", name, out);
}

/* Whether one of the words that a value is made of stands for a number. */
static bool has_number(const char *value)
{
    static const char *const kinds[] = {"N", "SIZE", "DURATION", "PERCENT", "WEIGHT"};
    static const char between[] = "[]|*/,.=:";
    for (const char *at = value; *at; at += strspn(at, between)) {
        size_t n = strcspn(at, between);
        for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            if (strlen(kinds[k]) == n && memcmp(at, kinds[k], n) == 0)
                return true;
        }
        at += n;
    }
    return false;
}

/* Every number of the table says its range, and the parser keeps to it. */
static void ranges_are_as_documented(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < settings_count; i++) {
        const char *name = settings_table[i].name, *range = settings_table[i].range;
        char least[32] = "", most[32] = "", word[32] = "";
        bool number = has_number(settings_table[i].value);
        if (number != (*range != '\0'))
            fail_msg("%s: %s has the range '%s'", name, settings_table[i].value, range);
        if (!number)
            continue;
        if (sscanf(range, "from %31s", least) != 1 && sscanf(range, "%31s to %31s", least, most) != 2)
            assert_int_equal(sscanf(range, "%31s %31s to %31s", word, least, most), 3);
        check_end(name, least, -1);
        if (*most)
            check_end(name, most, 1);
    }
}

static void durations_have_one_parser(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        int64_t ns;
        int e;
    } cases[] = {{"1ns", 1, 0},
                 {"1.5us", 1500, 0},
                 {"500ms", 500000000, 0},
                 {"0s", 0, 0},
                 {"5m", INT64_C(300000000000), 0},
                 {"2h", INT64_C(7200000000000), 0},
                 {"1d", INT64_C(86400000000000), 0},
                 {"106751d", INT64_C(9223286400000000000), 0},
                 {"106752d", 0, -ERANGE},
                 {"1D", 0, -EINVAL},
                 {"1", 0, -EINVAL},
                 {"", 0, -EINVAL},
                 {"-1s", 0, -EINVAL},
                 {"1.2345s", 0, -EINVAL},
                 {"1 s", 0, -EINVAL}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ns = 0;
        assert_int_equal(duration_parse(cases[i].text, &ns), cases[i].e);
        assert_int_equal(ns, cases[i].ns);
    }
    settings_init(&s);
    assert_int_equal(settings_set(&s, "tombstones", "1d", ORIGIN_FLAG, "", why, sizeof why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_as_documented),
                                       cmocka_unit_test(durations_have_one_parser)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
