/* peers_serve_report.c: what is said of leases and transfers that this node gives. */
#include "store/shell/peers_serve_internal.h"

#include "store/shell/log.h"
#include "store/shell/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void peers_holder(const struct peers *p, const struct node_lease_info *l, char *out, size_t size)
{
    const struct link *link = p ? link_serial((struct peers *)p, l->connection) : NULL;
    if (p && l->peer < p->n_members)
        snprintf(out, size, "%s", p->members[l->peer].name);
    else if (link)
        escape_bytes(out, size, link->other.node, strlen(link->other.node));
    else
        snprintf(out, size, "a client that is gone");
}

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static struct serve_sums all(const struct peers *p)
{
    struct serve_sums sum = {0};
    for (uint32_t i = 0; p && p->serve && i <= p->n_members; i++) {
        const struct serve_sums *x = &p->serve->sums[i];
        sum.serves += x->serves;
        sum.served += x->served;
        sum.bytes += x->bytes;
        sum.service_ns += x->service_ns;
        sum.leases += x->leases;
        sum.lease_refusals += x->lease_refusals;
        sum.gets += x->gets;
        sum.refused += x->refused;
        sum.broken += x->broken;
        sum.recalls += x->recalls;
        sum.reports += x->reports;
        sum.found += x->found;
    }
    return sum;
}

static void put_sums(json_t *o, const struct serve_sums *x)
{
    put(o, "serves", x->serves);
    put(o, "served", x->served);
    put(o, "bytes_sent", x->bytes);
    put(o, "service_ns", x->service_ns);
    put(o, "refused", x->refused);
    put(o, "broken_off", x->broken);
    put(o, "recalls", x->recalls);
    put(o, "corrupt_reports", x->reports);
    put(o, "corrupt_found", x->found);
}

json_t *peers_remote_report(const struct peers *p, const struct node_status *st)
{
    struct serve_sums sum = all(p);
    json_t *o = json_object(), *by = json_object();
    put(o, "gets", st->counter[NODE_LEASE_USES]);
    put(o, "leases", st->leases);
    put(o, "leased_bytes", st->leased_bytes);
    put(o, "leased_idle_bytes", st->leased_idle_bytes);
    put(o, "leases_given", st->counter[NODE_LEASES]);
    put(o, "leases_refused", st->counter[NODE_LEASE_REFUSED]);
    put(o, "serving", st->serves);
    put(o, "closed_ns", st->closed_ns > 0 ? (uint64_t)st->closed_ns : 0);
    put_sums(o, &sum);
    if (p && p->serve)
        json_object_set_new(o, "service", report_histogram_json(&p->serve->service));
    for (uint32_t i = 0; p && p->serve && i <= p->n_members; i++) {
        json_t *x = json_object();
        put(x, "gets", p->serve->sums[i].gets);
        put(x, "leases_given", p->serve->sums[i].leases);
        put(x, "leases_refused", p->serve->sums[i].lease_refusals);
        put_sums(x, &p->serve->sums[i]);
        if (i != p->self)
            json_object_set_new(by, i < p->n_members ? p->members[i].name : "", x);
        else
            json_decref(x);
    }
    json_object_set_new(o, "by", by); /* member; the empty name: clients that are none */
    return o;
}

/* ---- metrics ---- */

static void gauge(FILE *f, const char *name, const char *help, uint64_t v)
{
    fprintf(f, "# HELP berth_%s %s\n# TYPE berth_%s gauge\nberth_%s %" PRIu64 "\n", name, help, name, name, v);
}

/* The empty label: clients that are no members. */
static void counters(FILE *f, const struct peers *p, const char *name, const char *help, size_t at)
{
    fprintf(f, "# HELP berth_remote_%s_total %s\n# TYPE berth_remote_%s_total counter\n", name, help, name);
    for (uint32_t i = 0; i <= p->n_members; i++) {
        uint64_t v;
        memcpy(&v, (const uint8_t *)&p->serve->sums[i] + at, sizeof v);
        if (i != p->self)
            fprintf(f, "berth_remote_%s_total{peer=\"%s\"} %" PRIu64 "\n", name,
                    i < p->n_members ? p->members[i].name : "", v);
    }
}

#define COUNTER(name, field, help) counters(f, p, name, help, offsetof(struct serve_sums, field))

void serve_part_metrics(const struct peers *p, FILE *f)
{
    struct node_status st;
    node_status(p->server->node, &st);
    COUNTER("gets", gets, "Gets of the peer from this node's copies, as it reported them with its releases.");
    gauge(f, "leases", "Leases that peers have.", st.leases);
    gauge(f, "leased_bytes", "Slot bytes that leases keep.", st.leased_bytes);
    gauge(f, "leased_idle_bytes", "Slot bytes that only idle leases keep.", st.leased_idle_bytes);
    gauge(f, "serving", "Transfers to peers under way.", st.serves);
    COUNTER("leases", leases, "Leases given to the peer.");
    COUNTER("lease_refusals", lease_refusals, "Leases that the peer asked for and did not get of what is here.");
    COUNTER("serves", serves, "Transfers to the peer that began.");
    COUNTER("served", served, "Transfers that the peer received whole.");
    COUNTER("sent_bytes", bytes, "Payload bytes of those.");
    COUNTER("reads_refused", refused, "Reads without a lease, or outside of it.");
    COUNTER("broken_off", broken, "Transfers that were given up, or whose connection ended.");
    COUNTER("recalls", recalls, "Leases asked back.");
    COUNTER("corrupt_reports", reports, "Objects that the peer said were damaged.");
    COUNTER("corrupt_found", found, "Of those the ones that were.");
    fputs("# HELP berth_remote_service_seconds Time of transfers to peers, from the admission until they had it all.\n"
          "# TYPE berth_remote_service_seconds histogram\n",
          f);
    report_histogram(f, "remote_service_seconds", "direction", "out", p->serve->service.bucket, 40,
                     (double)p->serve->service.sum_ns / 1e9);
}
