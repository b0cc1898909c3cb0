/* peers_pull_report.c: what is said of what this node takes from others: counters, causes, phases, sources. */
#include "store/shell/peers_pull.h"

#include "store/shell/report.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct pull_histogram) == sizeof(struct node_histogram) &&
                   offsetof(struct pull_histogram, bucket) == offsetof(struct node_histogram, bucket),
               "reported as the core's are");

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static const char *transport_of(const struct pull_source *s)
{
    return s->transport ? s->transport : "none";
}

static struct node_histogram histogram_of(const struct pull_histogram *h)
{
    struct node_histogram out;
    memcpy(&out, h, sizeof out);
    return out;
}

/* ---- status ---- */

static json_t *source_json(const struct pull_source *s)
{
    json_t *o = json_object(), *faults = json_object();
    json_object_set_new(o, "transport", json_string(transport_of(s)));
    put(o, "leases_got", s->leases);
    put(o, "reads", s->reads);
    put(o, "transfers_done", s->transfers);
    put(o, "moved_bytes", s->bytes);
    put(o, "copied_bytes", s->copied);
    put(o, "in_flight_bytes", s->in_flight);
    for (unsigned i = 0; i < PULL_FAULTS; i++)
        put(faults, pull_fault_names[i], s->fault[i]);
    json_object_set_new(o, "faults", faults);
    return o;
}

static json_t *by_json(const struct peers *p)
{
    json_t *by = json_object();
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct pull_source s;
        pull_source(p->pull->puller, (uint16_t)i, &s);
        if (i != p->self)
            json_object_set_new(by, p->members[i].name, source_json(&s));
    }
    return by;
}

static json_t *now_json(const struct pull_status *st)
{
    json_t *o = json_object();
    put(o, "requests", st->requests);
    put(o, "keys", st->keys);
    put(o, "transfers", st->transfers);
    put(o, "questions", st->rpcs);
    put(o, "reads", st->reads);
    put(o, "in_flight_bytes", st->window_bytes);
    put(o, "leases", st->leases.good);
    put(o, "leases_used", st->leases.used);
    put(o, "leased_bytes", st->leases.bytes);
    return o;
}

json_t *pull_part_report(const struct peers *p)
{
    if (!p || !p->pull || !p->pull->puller)
        return json_null();
    struct pull_status st;
    json_t *o = json_object(), *causes = json_object(), *phases = json_object();
    pull_status(p->pull->puller, &st);
    for (unsigned i = 0; i < PULL_COUNTERS; i++)
        put(o, pull_counter_names[i], st.counter[i]);
    for (unsigned i = 0; i < PULL_CAUSES; i++)
        put(causes, pull_cause_names[i], st.cause[i]);
    for (unsigned i = 0; i < PULL_PHASES; i++) {
        struct node_histogram h = histogram_of(&st.phase[i]);
        json_object_set_new(phases, pull_phase_names[i], report_histogram_json(&h));
    }
    json_object_set_new(o, "failed_by", causes);
    json_object_set_new(o, "phases", phases);
    json_object_set_new(o, "now", now_json(&st));
    json_object_set_new(o, "by", by_json(p));
    return o;
}

/* ---- metrics ---- */

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP berth_pull_%s %s\n# TYPE berth_pull_%s %s\n", name, help, name, type);
}

static void counters(FILE *f, const struct pull_status *st)
{
    static const struct {
        enum pull_counter which;
        const char *name, *help;
    } all[] = {
        {PULL_DONE, "keys_total", "Keys that pulls brought, or found here by then."},
        {PULL_DONE_BYTES, "key_bytes_total", "Sizes of the objects that were brought."},
        {PULL_SHARED, "shared_total", "Keys that joined the transfer of another request."},
        {PULL_TRANSFERS, "transfers_total", "Transfers whose bytes were of use."},
        {PULL_VERIFIED, "verified_total", "Transfers whose checksum was compared."},
        {PULL_UNVERIFIED, "unverified_total", "Transfers taken without comparing the checksum."},
        {PULL_MOVED_BYTES, "moved_bytes_total", "Payload bytes that came, in vain too."},
        {PULL_COPIED_BYTES, "copied_bytes_total", "Of these, copied into their destination by a CPU of this node."},
        {PULL_LEASE_HITS, "lease_hits_total", "Transfers that began under a lease that was here already."},
        {PULL_ASKS, "asks_total", "Questions to homes."},
        {PULL_LEASES, "lease_requests_total", "Requests for leases."},
        {PULL_GRANTS, "leases_total", "Leases that came."},
        {PULL_RENEWS, "renewals_total", "Requests to renew a lease."},
        {PULL_RELEASES, "releases_total", "Leases given back."},
        {PULL_READS, "reads_total", "Reads that were posted."},
        {PULL_STALE, "stale_total", "Transfers whose lease or generation was over."},
        {PULL_MISMATCHES, "mismatches_total", "Wrong checksums."},
        {PULL_NEXT_SOURCE, "next_source_total", "Sources passed over."},
        {PULL_RPC_TIMEOUTS, "timeouts_total", "Requests to peers without an answer in time."},
        {PULL_BAD_ANSWERS, "bad_answers_total", "Answers of peers that were refused."},
    };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        head(f, all[i].name, "counter", all[i].help);
        fprintf(f, "berth_pull_%s %" PRIu64 "\n", all[i].name, st->counter[all[i].which]);
    }
    head(f, "failed_total", "counter", "Keys that pulls did not bring, by cause.");
    for (unsigned i = 0; i < PULL_CAUSES; i++)
        fprintf(f, "berth_pull_failed_total{cause=\"%s\"} %" PRIu64 "\n", pull_cause_names[i], st->cause[i]);
}

static void gauges(FILE *f, const struct pull_status *st)
{
    const struct {
        const char *name, *help;
        uint64_t value;
    } all[] = {
        {"requests", "Requests under way.", st->requests},
        {"transfers", "Transfers under way.", st->transfers},
        {"in_flight_bytes", "Bytes asked for that have not come.", st->window_bytes},
        {"leases", "Leases that this node has of peers.", st->leases.good},
    };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        head(f, all[i].name, "gauge", all[i].help);
        fprintf(f, "berth_pull_%s %" PRIu64 "\n", all[i].name, all[i].value);
    }
}

/* One family of the sources: a line a member. at: of a uint64_t in struct pull_source. */
static void by_source(FILE *f, const struct peers *p, const char *name, const char *type, const char *help, size_t at)
{
    head(f, name, type, help);
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct pull_source s;
        uint64_t v;
        pull_source(p->pull->puller, (uint16_t)i, &s);
        memcpy(&v, (const uint8_t *)&s + at, sizeof v);
        if (i != p->self) /* a name has no byte that a label would have to escape */
            fprintf(f, "berth_pull_%s{peer=\"%s\",transport=\"%s\"} %" PRIu64 "\n", name, p->members[i].name,
                    transport_of(&s), v);
    }
}

static void faults(FILE *f, const struct peers *p)
{
    head(f, "source_faults_total", "counter", "What went wrong with the peer as a source, by kind.");
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct pull_source s;
        pull_source(p->pull->puller, (uint16_t)i, &s);
        for (unsigned k = 0; i != p->self && k < PULL_FAULTS; k++)
            fprintf(f, "berth_pull_source_faults_total{peer=\"%s\",fault=\"%s\"} %" PRIu64 "\n", p->members[i].name,
                    pull_fault_names[k], s.fault[k]);
    }
}

#define BY_SOURCE(name, type, field, help) by_source(f, p, name, type, help, offsetof(struct pull_source, field))

void pull_part_metrics(const struct peers *p, FILE *f)
{
    struct pull_status st;
    if (!p->pull || !p->pull->puller)
        return;
    pull_status(p->pull->puller, &st);
    counters(f, &st);
    gauges(f, &st);
    BY_SOURCE("source_bytes_total", "counter", bytes, "Payload bytes that came from the peer, in vain too.");
    BY_SOURCE("source_copied_bytes_total", "counter", copied, "Of these, copied by a CPU of this node.");
    BY_SOURCE("source_reads_total", "counter", reads, "Reads that were posted to the peer.");
    BY_SOURCE("source_transfers_total", "counter", transfers, "Transfers from the peer whose bytes were of use.");
    BY_SOURCE("source_leases_total", "counter", leases, "Leases that the peer gave.");
    BY_SOURCE("source_in_flight_bytes", "gauge", in_flight, "Bytes asked of the peer that have not come.");
    faults(f, p);
    head(f, "phase_seconds", "histogram",
         "Time of pulls by phase: prepare and total of keys, the others of transfers.");
    for (unsigned i = 0; i < PULL_PHASES; i++)
        report_histogram(f, "pull_phase_seconds", "phase", pull_phase_names[i], st.phase[i].bucket, 40,
                         (double)st.phase[i].sum_ns / 1e9);
}
