/* embedded.c: see embedded.h. */
#include "tests/support/embedded.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct berth *embedded;

int embedded_open(void **state)
{
    (void)state;
    struct berth_open_opts o = {.size = sizeof o, .name = "test"};
    return berth_open(&embedded, EMBEDDED_NODE, &o);
}

int embedded_close(void **state)
{
    (void)state;
    char *text = NULL; /* whatever the test did: index, slots and lookup agree */
    int rc = berth_query(embedded, BERTH_CHECK, NULL, &text);
    bool clean = rc == 0 && strstr(text, "\"differences\": 0") && strstr(text, "\"invariant\": null");
    if (!clean) {
        print_message("%d %s\n", rc, text ? text : "");
    }
    free(text);
    berth_close(embedded);
    return clean ? 0 : -1;
}

void put_new(const char *name, const void *data, size_t size)
{
    assert_int_equal(berth_put(embedded, key_of(name), data, size, NULL), 0);
}

void expect(const char *name, const void *data, size_t size)
{
    struct berth_view v;
    assert_int_equal(berth_get(embedded, key_of(name), &v, BERTH_VERIFY, BERTH_NOW), 0);
    assert_int_equal(v.size, size);
    assert_memory_equal(v.data, data, size);
    assert_int_equal(v.checksum, berth_checksum(data, size));
    berth_release(embedded, &v, 1);
    assert_null(v.data);
}

void expect_absent(const char *name)
{
    struct berth_view v;
    assert_int_equal(berth_get(embedded, key_of(name), &v, 0, BERTH_NOW), -ENOENT);
}

void expect_error(int code)
{
    struct berth_error_info e;
    assert_int_equal(berth_error(embedded, &e), code);
    assert_int_equal(e.code, code);
    assert_string_equal(e.name, berth_error_name(code));
    assert_true(e.sentence[0] != '\0');
}
