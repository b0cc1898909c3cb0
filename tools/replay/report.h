/* report.h: what a replay says at its end: a JSON document, or a table that fits 80 columns. */
#ifndef BERTH_TOOLS_REPLAY_REPORT_H
#define BERTH_TOOLS_REPLAY_REPORT_H

#include "tools/replay/client.h"

struct replay_report {
    const struct trace *trace;
    const struct replay_counts *sum;
    const char *name; /* of the trace: its file, or the kind that was generated */
    bool generated;
    uint64_t seed;     /* of a generated one */
    uint64_t capacity; /* blocks; 0: the node was not ours */
    uint64_t block_size;
    const char *policy;
    unsigned clients;
    bool embedded;
    uint64_t evictions;
    double seconds;
};

void report_json(const struct replay_report *r);
void report_table(const struct replay_report *r);

#endif
