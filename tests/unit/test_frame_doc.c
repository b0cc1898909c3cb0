/* docs/formats.md, "Frames of the TCP transport": each example decodes to what it says, field by field, in the order
 * and of the sizes of the table; the examples have every type of frame, and both greetings.
 *
 * A fault prints what the example should say. $BERTH_SOURCE is the source tree.
 */
#include "replication/tcp_frame.h"
#include "tests/support/doc_page.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *page, *section;

static int setup(void **unused)
{
    (void)unused;
    page = doc_page("formats.md");
    if (!page)
        return -1;
    section = doc_between(page, "\n## Frames of the TCP transport\n", "\n## ");
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    free(section);
    free(page);
    return 0;
}

/* What is said of one example, and the table's row that is due. */
struct said {
    FILE *file;
    const uint8_t *data;
    size_t at;
    const char *row;
};

/* Offset and hex of the field's bytes, whose number is the table's; the table's next row must have this name. */
static size_t field(struct said *s, const char *name)
{
    unsigned bytes = 0;
    char row[32] = "";
    s->row = strchr(s->row, '\n');
    assert_non_null(s->row);
    assert_int_equal(sscanf(++s->row, "| %u | %31[^|]|", &bytes, row), 2);
    row[strlen(row) - 1] = '\0';
    assert_string_equal(row, name);
    fprintf(s->file, "%zu:", s->at);
    for (unsigned i = 0; i < bytes; i++)
        fprintf(s->file, " %02x", s->data[s->at + i]);
    fprintf(s->file, " | %s ", name);
    s->at += bytes;
    return bytes;
}

static void number(struct said *s, const char *name, uint64_t v)
{
    field(s, name);
    fprintf(s->file, "%" PRIu64 "\n", v);
}

static void text(struct said *s, const char *name, const uint8_t *bytes, bool letters)
{
    size_t n = field(s, name);
    for (size_t i = 0; i < n; i++)
        fprintf(s->file, letters ? "%c" : "%02x", bytes[i]);
    fputc('\n', s->file);
}

static void greeting(struct said *s)
{
    struct greeting g;
    uint8_t again[GREETING_BYTES];
    assert_int_equal(greeting_decode(s->data, &g), 0);
    text(s, "magic", s->data, true);
    number(s, "lane", g.lane);
    number(s, "reserved", 0);
    text(s, "token", g.token, false);
    assert_int_equal(s->at, GREETING_BYTES);
    greeting_encode(again, &g);
    assert_memory_equal(again, s->data, sizeof again);
}

static unsigned frame(struct said *s)
{
    struct frame f;
    const char *why = "";
    uint8_t again[FRAME_BYTES];
    if (frame_decode(s->data, &f, &why) < 0)
        fail_msg("the example is refused: %s", why);
    number(s, "type", f.type);
    number(s, "flags", f.flags);
    number(s, "reserved", 0);
    number(s, "length", f.length);
    number(s, "request", f.request);
    number(s, "lease", f.lease);
    number(s, "generation", f.generation);
    number(s, "offset", f.offset);
    number(s, "bytes", f.bytes);
    number(s, "allowed", f.allowed);
    assert_int_equal(s->at, FRAME_BYTES);
    frame_encode(again, &f);
    assert_memory_equal(again, s->data, sizeof again);
    return 1u << f.type | (f.flags & FRAME_ERROR ? 1 : 0);
}

/* The examples of a part of the section; a bit for each type that they had. */
static unsigned examples(const char *title, size_t bytes, unsigned *count)
{
    char *part = doc_between(section, title, "\n### "), *at = part;
    char *table = strstr(part, "|---|---|---|");
    unsigned had = 0;
    assert_non_null(table);
    for (*count = 0; (at = strstr(at, "\n```\n")); ++*count) {
        char *example = doc_between(at, "\n```\n", "```\n"), *says = NULL;
        uint8_t data[FRAME_BYTES];
        size_t size;
        assert_int_equal(doc_bytes(example, data, sizeof data), bytes);
        struct said s = {.file = open_memstream(&says, &size), .data = data, .row = table};
        assert_non_null(s.file);
        if (bytes == GREETING_BYTES)
            greeting(&s);
        else
            had |= frame(&s);
        fclose(s.file);
        if (strcmp(says, example) != 0)
            fail_msg("the bytes of the example say:\n%s", says);
        at += strlen("\n```\n") + strlen(example) + strlen("```");
        free(says);
        free(example);
    }
    free(part);
    return had;
}

static void test_greetings(void **unused)
{
    (void)unused;
    unsigned count;
    examples("\n### Greeting\n", GREETING_BYTES, &count);
    assert_int_equal(count, 2);
}

/* Every type from MESSAGE to DATA, and a DATA with ERROR. */
static void test_frames(void **unused)
{
    (void)unused;
    unsigned count;
    assert_int_equal(examples("\n### Frame\n", FRAME_BYTES, &count), (2u << FRAME_DATA) - 1);
    assert_true(count > FRAME_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greetings), cmocka_unit_test(test_frames)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
