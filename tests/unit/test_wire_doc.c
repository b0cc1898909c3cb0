/* docs/formats.md, "Peer messages": every message has its section, its example decodes to what the example says,
 * field by field, and the fields are those of the section's table or of the parts that several messages share.
 *
 * A fault prints what the section should say. $BERTH_SOURCE is the source tree.
 */
#include "tests/support/doc_page.h"
#include "tests/support/wire_case.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 64u

struct row {
    char bytes[32]; /* a number, or the name of the field that says it */
    char name[32];
};

struct table {
    struct row row[ROWS];
    unsigned n;
};

static char *page, *section; /* whole file; "Peer messages" of it, ended by a 0 */
static struct table head, parts;

/* Rows "| bytes | field | meaning |" of all tables of this text; those with an asterisk name parts and are left out. */
static void read_tables(struct table *t, const char *text)
{
    t->n = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        struct row row;
        if (sscanf(line, "| %31[^|]| %31[^|]|", row.bytes, row.name) != 2 || row.name[0] == '*')
            continue;
        row.bytes[strlen(row.bytes) - 1] = '\0';
        row.name[strlen(row.name) - 1] = '\0';
        if (strcmp(row.bytes, "bytes") == 0 || row.bytes[0] == '-')
            continue;
        assert_true(t->n < ROWS);
        t->row[t->n++] = row;
    }
}

static int setup(void **unused)
{
    (void)unused;
    page = doc_page("formats.md");
    if (!page)
        return -1;
    section = doc_between(page, "\n## Peer messages\n", "\n## ");
    char *text = doc_between(section, "\n### Head\n", "\n### ");
    read_tables(&head, text);
    free(text);
    text = doc_between(section, "\n### Parts\n", "\n### ");
    read_tables(&parts, text);
    free(text);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    free(section);
    free(page);
    return 0;
}

static bool has_row(const struct table *t, const char *name, size_t bytes, bool text)
{
    for (unsigned i = 0; i < t->n; i++) {
        bool number = isdigit((unsigned char)t->row[i].bytes[0]);
        if (strcmp(t->row[i].name, name) == 0 && (number ? strtoul(t->row[i].bytes, NULL, 10) == bytes : text))
            return true;
    }
    return false;
}

/* The name is the longest that a table knows at this place: names and values both may have blanks. */
static const char *known_name(const struct table *own, const char *said, size_t bytes)
{
    static char name[40];
    for (size_t n = strlen(said) < 39 ? strlen(said) : 39; n > 0; n--) {
        if (said[n] != ' ' && said[n] != '\0')
            continue;
        memcpy(name, said, n);
        name[n] = '\0';
        if (has_row(own, name, bytes, true) || has_row(&parts, name, bytes, true))
            return name;
    }
    return NULL;
}

/* Each field of the example is in a table, with so many bytes, and each numbered row of the own table is in the
 * example, in this order. */
static void fields_are_tabled(const char *op, const char *example, const struct table *own)
{
    unsigned at = 0, row = 0;
    char *copy = strdup(example), *save = NULL;
    assert_non_null(copy);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save), at++) {
        char *bar = strstr(line, " | ");
        size_t bytes = (size_t)(bar - strchr(line, ':') - 1) / 3;
        if (at < head.n) { /* the head's fields, all and in this order */
            assert_memory_equal(bar + 3, head.row[at].name, strlen(head.row[at].name));
            assert_int_equal(bytes, strtoul(head.row[at].bytes, NULL, 10));
            continue;
        }
        const char *name = known_name(own, bar + 3, bytes);
        if (!name)
            fail_msg("%s: no table has '%s' of %zu bytes", op, bar + 3, bytes);
        if (row < own->n && strcmp(name, own->row[row].name) == 0)
            row++;
    }
    if (row < own->n)
        fail_msg("%s: '%s' is not in the example, or not in this order", op, own->row[row].name);
    assert_true(at >= head.n);
    free(copy);
}

static void check(unsigned op)
{
    static struct wire_case w;
    static uint8_t bytes[WIRE_MESSAGE_MAX], again[WIRE_MESSAGE_MAX];
    char title[64];
    snprintf(title, sizeof title, "\n### %s (%u)\n", wire_name(op), op);
    char *text = doc_between(section, title, "\n### ");
    char *example = doc_between(text, "\n```\n", "```\n");
    size_t n = doc_bytes(example, bytes, sizeof bytes);
    struct wire_reader r;
    int err = wire_open(&r, &w.m, bytes, n);
    if (err)
        fail_msg("%s: the example is refused: %s", wire_name(op), wire_fault_text(r.fault));
    assert_int_equal(wire_case_decode(&w, bytes, n), 0);
    assert_int_equal(w.m.head.op, op);
    char *said;
    size_t said_size;
    FILE *file = open_memstream(&said, &said_size);
    assert_non_null(file);
    assert_int_equal(wire_case_describe(&w, bytes, file), n);
    fclose(file);
    if (strcmp(said, example) != 0)
        fail_msg("%s: the bytes of the example say:\n%s", wire_name(op), said);
    assert_int_equal(wire_case_encode(&w, again, sizeof again), n);
    assert_memory_equal(again, bytes, n);
    struct table own;
    read_tables(&own, text);
    fields_are_tabled(wire_name(op), example, &own);
    free(said);
    free(example);
    free(text);
}

static void test_examples(void **unused)
{
    (void)unused;
    for (const unsigned *op = wire_case_ops; *op; op++)
        check(*op);
}

/* No section for a message that there is not. */
static void test_titles(void **unused)
{
    (void)unused;
    unsigned sections = 0, ops = 0;
    for (const char *at = section; (at = strstr(at, "\n### ")); at++)
        sections++;
    while (wire_case_ops[ops])
        ops++;
    assert_int_equal(sections, ops + 2); /* Head, Parts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples), cmocka_unit_test(test_titles)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
