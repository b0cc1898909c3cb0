#include "tests/support/doc_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *doc_page(const char *name)
{
    const char *source = getenv("BERTH_SOURCE");
    char path[4096];
    snprintf(path, sizeof path, "%s/docs/%s", source ? source : ".", name);
    FILE *file = fopen(path, "r");
    if (!file) {
        printf("no %s: is $BERTH_SOURCE the source tree?\n", path);
        return NULL;
    }
    size_t room = 1u << 20;
    char *page = calloc(1, room);
    size_t n = page ? fread(page, 1, room - 1, file) : 0;
    fclose(file);
    assert_true(n > 0);
    return page;
}

char *doc_between(const char *from, const char *begin, const char *end)
{
    const char *at = strstr(from, begin);
    if (!at)
        fail_msg("the page has no '%s'", begin);
    at += strlen(begin);
    const char *stop = strstr(at, end);
    char *found = stop ? strndup(at, (size_t)(stop - at)) : strdup(at);
    assert_non_null(found);
    return found;
}

size_t doc_bytes(const char *example, uint8_t *out, size_t room)
{
    size_t n = 0;
    for (const char *line = example; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *p = strchr(line, ':');
        assert_non_null(p);
        unsigned byte;
        int used;
        for (p++; sscanf(p, " %2x%n", &byte, &used) == 1 && *p == ' '; p += used) {
            assert_true(n < room);
            out[n++] = (uint8_t)byte;
        }
        assert_memory_equal(p, " | ", 3);
    }
    return n;
}
