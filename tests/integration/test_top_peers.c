/* berth top at a node that pulls and at the one that it pulls from: the views' sums are what was moved. And the metrics
 * of both are what Prometheus takes. */
#include "tests/support/duo.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 20
#define SIZE 50000
#define SECONDS(n) ((n)*INT64_C(1000000000))

static struct duo d;

static FILE *top(unsigned node)
{
    const char *bin = getenv("BERTH_BIN");
    char command[700];
    snprintf(command, sizeof command, "exec %s/berth --node %s top --json -i 30ms -c 2000",
             bin ? bin : "build/release/bin", d.daemon[node].node);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    return f;
}

static json_t *next_view(FILE *f)
{
    static char line[1 << 16];
    if (!fgets(line, sizeof line, f)) {
        fail_msg("no view");
    }
    json_t *view = json_loads(line, 0, NULL);
    assert_non_null(view);
    return view;
}

static json_int_t count(const json_t *view, const char *a, const char *b, const char *c)
{
    const json_t *o = json_object_get(json_object_get(view, a), b);
    o = c ? json_object_get(o, c) : o;
    return json_integer_value(json_object_get(o, "count"));
}

static json_int_t of_peer(const json_t *view, const char *peer, const char *way)
{
    const json_t *by = json_object_get(json_object_get(view, "bytes"), "by");
    return json_integer_value(json_object_get(json_object_get(json_object_get(by, peer), way), "count"));
}

struct sums {
    json_int_t in, out, copied, pulled, pulls, transfers, served;
};

/* Views until these have come; they must be no more. */
static void add_up(FILE *f, const char *peer, bool pulls, struct sums *s)
{
    for (unsigned i = 0; i < 600 && (pulls ? s->pulled < KEYS : s->out < KEYS * SIZE); i++) {
        json_t *v = next_view(f);
        s->in += of_peer(v, peer, "in");
        s->out += of_peer(v, peer, "out");
        s->copied += of_peer(v, peer, "copied");
        assert_int_equal(of_peer(v, peer, "in"), count(v, "bytes", "in", NULL));
        assert_int_equal(of_peer(v, peer, "out"), count(v, "bytes", "out", NULL));
        s->pulled += count(v, "operations", "pulled", NULL);
        s->pulls += count(v, "operations", "pulls", NULL);
        s->transfers += count(v, "phases", "pull", "transfer");
        s->served += count(v, "phases", "service", NULL);
        json_decref(v);
    }
}

/* It ends when nobody reads: pclose closes first, then waits. */
static void end_top(FILE *f)
{
    pclose(f);
}

static void what_was_moved(void **state)
{
    struct sums a = {0}, b = {0};
    char key[16];
    (void)state;
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "t%u", i);
        duo_put(&d, 0, key, SIZE);
    }
    FILE *at_a = top(0), *at_b = top(1);
    json_decref(next_view(at_a)); /* both have read the first status */
    json_decref(next_view(at_b));
    for (unsigned i = 0; i < KEYS; i++) {
        struct berth_view v;
        snprintf(key, sizeof key, "t%u", i);
        assert_int_equal(berth_get(d.b[1], key_of(key), &v, BERTH_PEERS, berth_deadline(SECONDS(10))), 0);
        berth_release(d.b[1], &v, 1);
    }
    add_up(at_b, "a", true, &b);
    add_up(at_a, "b", false, &a);
    assert_int_equal(b.pulled, KEYS);
    assert_int_equal(b.pulls, KEYS);
    assert_int_equal(b.in, KEYS * SIZE);
    assert_int_equal(b.copied, KEYS * SIZE);
    assert_int_equal(b.transfers, KEYS);
    assert_int_equal(b.out, 0);
    assert_int_equal(a.out, KEYS * SIZE);
    assert_int_equal(a.served, KEYS);
    assert_int_equal(a.in, 0);
    end_top(at_a);
    end_top(at_b);
}

/* ---- metrics ---- */

struct family {
    char name[96], type[16];
    const char *help;
};

static struct family family[400];
static unsigned families;

static const struct family *family_of(const char *name, size_t n)
{
    for (unsigned i = 0; i < families; i++) {
        if (strlen(family[i].name) == n && strncmp(family[i].name, name, n) == 0) {
            return &family[i];
        }
    }
    return NULL;
}

static bool ends(const char *name, size_t n, const char *with)
{
    size_t m = strlen(with);
    return n > m && strncmp(name + n - m, with, m) == 0;
}

/* Each says in a sentence of its own what it is. */
static void check_help(const char *help)
{
    if (strstr(help, "(null)") || strlen(help) < 12 || help[strlen(help) - 1] != '.') {
        fail_msg("no sentence: %s", help);
    }
    for (unsigned i = 0; i < families; i++) {
        assert_string_not_equal(family[i].help, help);
    }
}

/* A sample's family stands before it, with HELP and TYPE; a counter is called so. */
static void check_sample(const char *line)
{
    static const char *const parts[] = {"_bucket", "_sum", "_count"};
    size_t n = strcspn(line, "{ ");
    const struct family *of = family_of(line, n);
    for (unsigned i = 0; i < 3 && !of; i++) {
        of = ends(line, n, parts[i]) ? family_of(line, n - strlen(parts[i])) : NULL;
        of = of && strcmp(of->type, "histogram") == 0 ? of : NULL;
    }
    if (!of || strcmp(of->name, family[families - 1].name) != 0) {
        fail_msg("a sample of another family: %s", line);
    }
    if ((strcmp(of->type, "counter") == 0) != ends(line, n, "_total")) {
        fail_msg("a counter is called so: %s", line);
    }
    if (strtod(line + strcspn(line, " ") + 1, NULL) < 0) {
        fail_msg("negative: %s", line);
    }
}

static void check_metrics(unsigned node)
{
    static char *series[4000];
    char *text = NULL, *rest;
    unsigned n = 0;
    families = 0;
    assert_int_equal(berth_query(d.b[node], BERTH_METRICS, NULL, &text), 0);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct family *f = &family[families];
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_true(families < 399);
            assert_null(family_of(line + 7, strcspn(line + 7, " ")));
            assert_int_equal(sscanf(line, "# HELP %95s %15s", f->name, f->type), 2);
            f->help = strchr(line + 7, ' ') + 1;
            check_help(f->help);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            char name[96];
            assert_int_equal(sscanf(line, "# TYPE %95s %15s", name, f->type), 2);
            assert_string_equal(name, f->name);
            families++;
        } else {
            check_sample(line);
            *strrchr(line, ' ') = '\0';
            for (unsigned i = 0; i < n; i++) {
                assert_string_not_equal(series[i], line);
            }
            assert_true(n < 4000);
            series[n++] = line;
        }
    }
    free(text);
}

static void metrics(void **state)
{
    (void)state;
    check_metrics(0);
    check_metrics(1);
}

static int start(void **state)
{
    (void)state;
    duo_start(&d);
    return 0;
}

static int end(void **state)
{
    (void)state;
    duo_end(&d);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_moved), cmocka_unit_test(metrics)};
    return cmocka_run_group_tests(tests, start, end);
}
