/* embedded.h: an embedded node for a test, and what most tests do with it. */
#ifndef BERTH_TESTS_EMBEDDED_H
#define BERTH_TESTS_EMBEDDED_H

#include "tests/support/daemon.h"

#define EMBEDDED_NODE "embedded:?pool=64MiB&lock=off&log-level=error"
#define MIB (1u << 20)

extern struct berth *embedded; /* the handle of the test that runs */

/* Set-up and tear-down: after each test the node is asked whether index, slots and lookup agree. */
int embedded_open(void **state);
int embedded_close(void **state);

void put_new(const char *name, const void *data, size_t size);
void expect(const char *name, const void *data, size_t size);
void expect_absent(const char *name);
void expect_error(int code); /* the thread's last error, complete */

#endif
