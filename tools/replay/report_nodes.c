/* report_nodes.c: what a replay over several nodes says of them. */
#include "tools/replay/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "store/amount.h"
#include "tools/cli.h"

static void set_int(json_t *o, const char *name, uint64_t n)
{
    json_object_set_new(o, name, json_integer((json_int_t)n));
}

/* ---- JSON ---- */

static json_t *kinds_json(const struct replay_counts *c)
{
    json_t *o = json_object();

    for (unsigned i = 0; i < REPLAY_KINDS && c->kind[i].code; i++)
        set_int(o, berth_error_name(c->kind[i].code), c->kind[i].n);
    return o;
}

/* What stands for the whole replay and for each node. */
static void set_counts(json_t *o, const struct replay_counts *c)
{
    set_int(o, "wire_bytes", c->wire_bytes);
    set_int(o, "surplus_bytes", c->surplus_bytes);
    set_int(o, "ask_requests", c->asks);
    set_int(o, "lease_requests", c->leases);
    set_int(o, "overdue", c->overdue);
    json_object_set_new(o, "errors", kinds_json(c));
}

static json_t *node_json(const struct replay_report *r, unsigned i)
{
    const struct replay_counts *c = &r->node[i];
    char name[16];
    json_t *o = json_object();

    snprintf(name, sizeof(name), "n%u", i);
    json_object_set_new(o, "name", json_string(name));
    set_int(o, "requests", c->requests);
    set_int(o, "references", c->references);
    set_int(o, "local_hits", c->hits);
    set_int(o, "remote_hits", c->remote_hits);
    set_int(o, "misses", c->misses);
    json_object_set_new(o, "hit_ratio", json_real(report_hit_ratio(c)));
    set_int(o, "evictions", c->evicted);
    set_int(o, "verified_bytes", c->verified_bytes);
    set_int(o, "bad_bytes", c->bad_bytes);
    set_int(o, "kills", r->result->node_kills[i]);
    set_counts(o, c);
    return o;
}

void report_nodes_json(const struct replay_report *r, json_t *document)
{
    json_t *list = json_array();

    set_int(document, "nodes", r->nodes);
    set_int(document, "deadline_ns", (uint64_t)r->deadline_ns);
    set_counts(document, r->sum);
    set_int(document, "kills", r->result->kills);
    set_int(document, "restarts_warm", r->result->warm);
    set_int(document, "restarts_cold", r->result->cold);
    set_int(document, "requests_cut", r->result->cut);
    for (unsigned i = 0; i < r->nodes; i++)
        json_array_append_new(list, node_json(r, i));
    json_object_set_new(document, "node", list);
}

/* ---- a table ---- */

static void row(const char *name, const struct replay_counts *c)
{
    char a[32], b[32], d[32], e[24], f[32];

    printf("  %-8s%12s%13s%12s%9.2f %%%13s%9s\n", name, report_grouped(a, c->hits), report_grouped(b, c->remote_hits),
           report_grouped(d, c->misses), 100 * report_hit_ratio(c), cli_bytes(e, c->wire_bytes),
           report_grouped(f, c->leases));
}

static void print_errors(const struct replay_counts *c, bool kills)
{
    if (!c->kind[0].code)
        return;
    printf("  %-16s", "reads failed");
    for (unsigned i = 0; i < REPLAY_KINDS && c->kind[i].code; i++)
        printf("%s%" PRIu64 " %s", i ? ", " : "", c->kind[i].n, berth_error_name(c->kind[i].code));
    puts(kills ? "\n                  expected while a node is away; each was taken as a miss" : "");
}

void report_nodes_table(const struct replay_report *r)
{
    const struct nodes_result *n = r->result;
    char name[16];

    if (n->kills)
        printf("  %-16s%" PRIu64 " node%s, %" PRIu64 " request%s cut; started again warm %" PRIu64 ", cold %" PRIu64
               "\n",
               "killed", n->kills, plural(n->kills), n->cut, plural(n->cut), n->warm, n->cold);
    print_errors(r->sum, n->kills);
    if (r->sum->overdue)
        printf("  %-16s%" PRIu64 " read%s from peers ended long after the deadline\n", "overdue", r->sum->overdue,
               plural(r->sum->overdue));
    printf("\n  %-8s%12s%13s%12s%11s%13s%9s\n", "node", "local hits", "remote hits", "misses", "hit ratio",
           "on the wire", "LEASEs");
    for (unsigned i = 0; i < r->nodes; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        row(name, &r->node[i]);
    }
    row("all", r->sum);
    putchar('\n');
}
