/* report.h: what the node says of itself: status, pins and check as JSON ("schema": 1), metrics as Prometheus text. */
#ifndef BERTH_SHELL_REPORT_H
#define BERTH_SHELL_REPORT_H

#include "store/shell/state.h"

#include <jansson.h>
#include <stdio.h>

/* The text of enum msg_what, malloc'd; NULL: no memory, or no such report. key: of PINS or WHY, or NULL. */
char *report_make(struct server *s, unsigned what, const struct key_ref *key);

/* Local reads of every session that is or was. */
void report_lanes(const struct server *s, struct lane_sums *out);
/* The core's status, with what clients settled without it in its counters. */
void report_node(const struct server *s, struct node_status *out);

/* Index, slots and lookup compared; broken: an invariant of the core that does not hold, or NULL. NULL: no memory. */
char *report_check(const struct region *r, uint32_t headers_used, const char *broken);

/* report_pins.c, report_why.c, report_numa.c, report_whatif.c, prometheus.c */
json_t *report_numa(const struct server *s, const struct node_status *st);
char *report_pins(struct server *s, const struct key_ref *key);
char *report_why(const struct server *s, const struct key_ref *key);
char *report_whatif(const struct server *s);
json_t *report_whatif_totals(const struct server *s);
void report_whatif_metrics(const struct server *s, FILE *f);
char *report_metrics(struct server *s);

/* {count, sum_ns, mean_ns, p50_ns, p99_ns, p999_ns, buckets}: buckets without the zeros at their end. */
json_t *report_histogram_json(const struct node_histogram *h);
/* One label's series of the histogram berth_NAME, whose HELP and TYPE stand before it. sum: seconds. */
void report_histogram(FILE *f, const char *name, const char *key, const char *value, const uint64_t *bucket, unsigned n,
                      double sum);

/* Mean and quantile q (0 to 1) of a histogram, in ns: the upper end of the bucket that it falls in. */
double histogram_mean(const struct node_histogram *h);
uint64_t histogram_quantile(const uint64_t *bucket, unsigned n, double q);

#endif
