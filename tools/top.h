/* top.h: what happened at a node between two of its status reports. */
#ifndef BERTH_TOOLS_TOP_H
#define BERTH_TOOLS_TOP_H

#include "tools/cli.h"

/* Two reports as cli_report_of has them, ns apart, as a document with "schema" and "command": {seconds, restarted, pid,
 * sessions, pool, operations, bytes, phases, leases, evicted, errors}. A counter that went back, as those of a node
 * that was started again do, counts from 0: nothing is negative. Fields that a report lacks are 0. The caller gives it
 * back. */
json_t *top_view(const json_t *was, const json_t *is, int64_t ns);

/* The view in lines for people. Names in it are printed as they are. */
void top_print(FILE *f, const json_t *view);

#endif
