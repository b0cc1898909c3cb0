/* doc_page.h: a page of docs/ for tests that hold it against the code. $BERTH_SOURCE is the source tree. */
#ifndef BERTH_TESTS_DOC_PAGE_H
#define BERTH_TESTS_DOC_PAGE_H

#include <stddef.h>
#include <stdint.h>

/* The whole of docs/NAME; NULL with a line printed if it can't be read. The caller's to free. */
char *doc_page(const char *name);

/* What stands between the first `begin` and the next `end`, or the text's end; fails the test where there is no
 * `begin`. The caller's to free. */
char *doc_between(const char *from, const char *begin, const char *end);

/* The bytes of an example: in hex between ':' and '|' of each line. */
size_t doc_bytes(const char *example, uint8_t *out, size_t room);

#endif
