/* docs/formats.md, "Messages of clients that are about peers": the tables are the structures, and the examples are
 * messages that the node takes, with the values that they say. $BERTH_SOURCE is the source tree. */
#include "store/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct field {
    const char *section, *name;
    size_t offset, bytes;
};

#define FIELD(section, name, type, member)                                               \
    {                                                                                    \
        section, name, offsetof(struct type, member), sizeof(((struct type *)0)->member) \
    }

/* In the order of the document. */
static const struct field fields[] = {
    FIELD("Head of a request", "bytes", msg_head, bytes),
    FIELD("Head of a request", "op", msg_head, op),
    FIELD("Head of a request", "flags", msg_head, flags),
    FIELD("Head of a request", "id", msg_head, id),
    FIELD("Head of a request", "deadline", msg_head, deadline),
    FIELD("Head of a request", "stamp", msg_head, stamp),
    FIELD("Head of an answer", "head", msg_reply, head),
    FIELD("Head of an answer", "status", msg_reply, status),
    FIELD("Head of an answer", "count", msg_reply, count),
    FIELD("Head of an answer", "counter", msg_reply, counter),
    FIELD("Head of an answer", "region", msg_reply, region),
    FIELD("Head of an answer", "figures", msg_reply, figure),
    FIELD("PULL (35)", "*head*", msg_pull, head),
    FIELD("PULL (35)", "count", msg_pull, count),
    FIELD("PULL (35)", "flags", msg_pull, flags),
    FIELD("PULL (35)", "kind", msg_pull, kind),
    FIELD("PULL (35)", "buffer", msg_pull, buffer),
    FIELD("PULL (35)", "lineage", msg_pull, lineage),
    FIELD("PULL (35)", "route", msg_pull_key, route),
    FIELD("PULL (35)", "to", msg_pull_key, to),
    FIELD("PULL (35)", "room", msg_pull_key, room),
    FIELD("PULL (35)", "namespace", msg_pull_key, ns),
    FIELD("PULL (35)", "key size", msg_pull_key, key_size),
    FIELD("PULL (35)", "ranges", msg_pull_key, n_ranges),
    FIELD("PULL (35)", "offset", msg_pull_range, offset),
    FIELD("PULL (35)", "length", msg_pull_range, length),
    FIELD("PULL (35)", "to", msg_pull_range, to),
    FIELD("PULL (35)", "status", msg_pulled, status),
    FIELD("PULL (35)", "member", msg_pulled, member),
    FIELD("PULL (35)", "flags", msg_pulled, flags),
    FIELD("PULL (35)", "size", msg_pulled, size),
    FIELD("PULL (35)", "moved", msg_pulled, moved),
    FIELD("PULL (35)", "copied", msg_pulled, copied),
    FIELD("PULL (35)", "counter", msg_pulled, counter),
    FIELD("PULL (35)", "region", msg_pulled, region),
    FIELD("PULL (35)", "source", msg_pull_record, source),
    FIELD("PULL (35)", "transport", msg_pull_record, transport),
    FIELD("PULL (35)", "lease", msg_pull_record, lease),
    FIELD("PULL (35)", "requests", msg_pull_record, requests),
    FIELD("PULL (35)", "stale", msg_pull_record, stale),
    FIELD("PULL (35)", "phases", msg_pull_record, phase_ns),
    FIELD("PULL (35)", "unasked", msg_unasked, name),
    FIELD("PURGE (33)", "*head*", msg_purge, head),
    FIELD("PURGE (33)", "lineage", msg_purge, lineage),
    FIELD("PURGE (33)", "kind", msg_purge, kind),
    FIELD("PURGE (33)", "namespace", msg_purge, ns),
    FIELD("PURGE (33)", "prefix size", msg_purge, prefix_size),
    FIELD("PURGE (33)", "reserved", msg_purge, reserved),
    FIELD("PURGE (33)", "removed", msg_purged, removed),
    FIELD("PURGE (33)", "bytes", msg_purged, bytes),
    FIELD("PURGE (33)", "held", msg_purged, held),
    FIELD("PURGE (33)", "drafts", msg_purged, drafts),
    FIELD("PURGE (33)", "untold", msg_purged, untold),
    FIELD("STAT (9)", "*head*", msg_key, head),
    FIELD("STAT (9)", "counter", msg_key, counter),
    FIELD("STAT (9)", "region", msg_key, region),
    FIELD("STAT (9)", "namespace", msg_key, ns),
    FIELD("STAT (9)", "key size", msg_key, key_size),
    FIELD("STAT (9)", "reserved", msg_key, reserved),
    FIELD("STAT (9)", "counter", msg_stat, counter),
    FIELD("STAT (9)", "region", msg_stat, region),
    FIELD("STAT (9)", "checksum", msg_stat, checksum),
    FIELD("STAT (9)", "lineage", msg_stat, lineage),
    FIELD("STAT (9)", "created", msg_stat, created_us),
    FIELD("STAT (9)", "generation", msg_stat, generation),
    FIELD("STAT (9)", "size", msg_stat, size),
    FIELD("STAT (9)", "slot bytes", msg_stat, slot_bytes),
    FIELD("STAT (9)", "slot", msg_stat, slot),
    FIELD("STAT (9)", "ttl", msg_stat, ttl_s),
    FIELD("STAT (9)", "holds", msg_stat, holds),
    FIELD("STAT (9)", "namespace", msg_stat, ns),
    FIELD("STAT (9)", "key size", msg_stat, key_size),
    FIELD("STAT (9)", "priority", msg_stat, priority),
    FIELD("STAT (9)", "tier", msg_stat, tier),
    FIELD("STAT (9)", "segment", msg_stat, segment),
    FIELD("QUERY (14)", "*head*", msg_query, head),
    FIELD("QUERY (14)", "what", msg_query, what),
    FIELD("QUERY (14)", "offset", msg_query, offset),
    FIELD("QUERY (14)", "namespace", msg_query, ns),
    FIELD("QUERY (14)", "key size", msg_query, key_size),
    FIELD("QUERY (14)", "reserved", msg_query, reserved),
    FIELD("CANCEL (32)", "*head*", msg_cancel, head),
    FIELD("CANCEL (32)", "target", msg_cancel, target),
    FIELD("BUFFER (37)", "*head*", msg_buffer, head),
    FIELD("BUFFER (37)", "kind", msg_buffer, kind),
    FIELD("BUFFER (37)", "number", msg_buffer, number),
    FIELD("BUFFER (37)", "cookie", msg_buffer, cookie),
    FIELD("BUFFER (37)", "offset", msg_buffer, offset),
    FIELD("BUFFER (37)", "bytes", msg_buffer, bytes),
    FIELD("PUBLISHED (38)", "*head*", msg_published, head),
    FIELD("PUBLISHED (38)", "namespace", msg_published, ns),
    FIELD("PUBLISHED (38)", "key size", msg_published, key_size),
    FIELD("PUBLISHED (38)", "count", msg_published, count),
    FIELD("PUBLISHED (38)", "generation", msg_token, gen),
    FIELD("PUBLISHED (38)", "slot", msg_token, slot),
    FIELD("PUBLISHED (38)", "page", msg_token, page),
};

static char *page, *section;

static char *between(char *from, const char *begin, const char *end)
{
    char *at = strstr(from, begin);
    if (!at) {
        fail_msg("there is no '%s'", begin);
        return NULL;
    }
    at += strlen(begin);
    char *stop = strstr(at, end);
    return stop ? strndup(at, (size_t)(stop - at)) : strdup(at);
}

static int setup(void **state)
{
    (void)state;
    const char *source = getenv("BERTH_SOURCE");
    char path[4096];
    snprintf(path, sizeof path, "%s/docs/formats.md", source ? source : ".");
    FILE *file = fopen(path, "re");
    if (!file) {
        printf("no %s: is $BERTH_SOURCE the source tree?\n", path);
        return -1;
    }
    page = calloc(1, 1u << 20);
    assert_non_null(page);
    assert_true(fread(page, 1, (1u << 20) - 1, file) > 0);
    fclose(file);
    section = between(page, "\n## Messages of clients that are about peers\n", "\n## ");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(section);
    free(page);
    return 0;
}

/* Every row of the section's tables, one after the other, is the next field. */
static void tables(void **state)
{
    (void)state;
    char title[64] = "";
    unsigned at = 0, n = sizeof fields / sizeof fields[0];
    for (char *line = section; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char name[64];
        size_t offset, bytes;
        sscanf(line, "### %63[^\n]", title);
        if (sscanf(line, "| %zu | %zu | %63[^|]|", &offset, &bytes, name) != 3) {
            continue;
        }
        name[strlen(name) - 1] = '\0';
        assert_true(at < n);
        assert_string_equal(title, fields[at].section);
        assert_string_equal(name, fields[at].name);
        if (offset != fields[at].offset || bytes != fields[at].bytes) {
            fail_msg("%s: '%s' has %zu bytes from %zu on", title, name, fields[at].bytes, fields[at].offset);
        }
        at++;
    }
    assert_int_equal(at, n);
}

/* The bytes of a title's example; each line's number is its place, and a number that it says is what the bytes are. */
static size_t example(const char *title, uint8_t *out, size_t room)
{
    char heading[64];
    snprintf(heading, sizeof heading, "\n### %s\n", title);
    char *text = between(section, heading, "\n### "), *lines = between(text, "\n```\n", "```\n");
    size_t n = 0;
    for (char *line = lines; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        size_t place, first = n;
        unsigned byte;
        int used;
        assert_int_equal(sscanf(line, "%zu:%n", &place, &used), 1);
        assert_int_equal(place, n);
        for (line += used; sscanf(line, " %2x%n", &byte, &used) == 1; line += used) {
            assert_true(n < room);
            out[n++] = (uint8_t)byte;
        }
        char *end = strchr(line, '\n'), *last = end;
        while (last[-1] != ' ') {
            last--;
        }
        uint64_t value = 0, said = strtoull(last, &last, 10);
        for (size_t i = n - first; n - first <= 8 && i-- > 0;) {
            value = value << 8 | out[first + i];
        }
        if (last == end && n - first <= 8 && value != said) {
            fail_msg("%s: at %zu the bytes say %llu", title, first, (unsigned long long)value);
        }
    }
    free(lines);
    free(text);
    return n;
}

static _Alignas(8) uint8_t bytes[1024];

static void take(const char *title, unsigned op)
{
    size_t n = example(title, bytes, sizeof bytes);
    const struct msg_head *m = (const struct msg_head *)(const void *)bytes;
    assert_int_equal(m->op, op);
    assert_int_equal(msg_check(m, (uint32_t)n), 0);
}

static void examples(void **state)
{
    (void)state;
    take("PULL (35)", MSG_PULL);
    const struct msg_pull *p = (const struct msg_pull *)(const void *)bytes;
    const struct msg_pull_key *k = (const struct msg_pull_key *)(p + 1);
    assert_int_equal(p->kind, MSG_PULL_REGISTERED);
    assert_int_equal(p->flags, MSG_PULL_VERIFY | MSG_PULL_WAIT);
    assert_memory_equal(msg_pull_name(k), "block/1", 7);
    assert_int_equal(msg_pull_ranges(k)[1].to, 8192);
    k = msg_pull_next(k);
    assert_memory_equal(msg_pull_name(k), "block/22", 8);
    assert_int_equal(k->room, 1u << 20);
    take("PURGE (33)", MSG_PURGE);
    const struct msg_purge *g = (const struct msg_purge *)(const void *)bytes;
    assert_true(g->kind == PURGE_PREFIX && g->ns == 2 && g->prefix_size == 6);
    assert_memory_equal(g + 1, "block/", 6);
    take("STAT (9)", MSG_STAT);
    assert_int_equal(((const struct msg_head *)(const void *)bytes)->flags, MSG_PEERS);
    assert_memory_equal((const struct msg_key *)(const void *)bytes + 1, "block/1", 7);
    take("QUERY (14)", MSG_QUERY);
    assert_int_equal(((const struct msg_query *)(const void *)bytes)->what, QUERY_WHATIF);
    take("CANCEL (32)", MSG_CANCEL);
    take("BUFFER (37)", MSG_BUFFER);
    assert_int_equal(((const struct msg_buffer *)(const void *)bytes)->kind, MSG_BUFFER_REGISTER);
    take("PUBLISHED (38)", MSG_PUBLISHED);
    const struct msg_published *w = (const struct msg_published *)(const void *)bytes;
    assert_int_equal(((const struct msg_token *)(w + 1))->slot, 5);
}

/* QUERY's text has every kind that there is; this has to be told of the next one. */
static void every_query(void **state)
{
    (void)state;
    char *text = between(section, "\n### QUERY (14)\n", "\n### "), last[32];
    snprintf(last, sizeof last, "| what | 0..%d |", QUERY_KINDS - 1);
    assert_non_null(strstr(text, last));
    snprintf(last, sizeof last, " %d whatif", QUERY_WHATIF);
    assert_non_null(strstr(text, last));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables), cmocka_unit_test(examples),
                                       cmocka_unit_test(every_query)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
