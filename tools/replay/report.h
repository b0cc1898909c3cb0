/* report.h: what a replay says at its end: a JSON document, or a table that fits 80 columns. */
#ifndef BERTH_TOOLS_REPLAY_REPORT_H
#define BERTH_TOOLS_REPLAY_REPORT_H

#include "tools/replay/client.h"
#include "tools/replay/nodes.h"

#include <jansson.h>

/* Defaults, which a command that is printed leaves out. */
#define REPLAY_BLOCK_SIZE 16384u
#define REPLAY_REQUESTS 4000u
#define REPLAY_SEED 1u

struct replay_report {
    const struct trace *trace;
    const struct replay_counts *sum;
    const char *name; /* of the trace: its file, or the kind that was generated */
    bool generated;
    uint64_t seed;     /* of a generated one */
    uint64_t capacity; /* blocks; 0: the node was not ours */
    uint64_t block_size;
    const char *policy;
    bool bounded;   /* whether there is .. */
    uint64_t bound; /* .. the most hits that any policy can have */
    unsigned clients;
    bool embedded;
    uint64_t evictions;
    double seconds;
    unsigned nodes;                    /* 0: one node, and nothing of peers is said */
    const struct replay_counts *node;  /* of each */
    const struct nodes_result *result; /* kills and restarts */
    bool kills;                        /* they were asked for */
    int64_t deadline_ns;
};

/* Hits of both kinds, of all references. */
double report_hit_ratio(const struct replay_counts *c);
/* 1234567 as 1,234,567. Returns out. */
const char *report_grouped(char out[32], uint64_t n);

void report_json(const struct replay_report *r);
void report_table(const struct replay_report *r);

/* Of several nodes, in both forms: what belongs to the whole replay and to each of them. */
void report_nodes_json(const struct replay_report *r, json_t *document);
void report_nodes_table(const struct replay_report *r);

#endif
