/* prometheus.c: metrics in Prometheus' text format, version 0.0.4. */
#include "store/shell/report.h"

#include "store/shell/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What each of node_counter_names counts. */
static const char *const counter_help[NODE_COUNTERS] = {
    [NODE_PUTS] = "Objects of this node's clients that were sealed and committed.",
    [NODE_PUT_BYTES] = "Payload bytes of the objects that were put.",
    [NODE_KEPT] = "Puts whose key existed: the existing object was kept.",
    [NODE_REPLACED] = "Puts that replaced an object.",
    [NODE_REMOVED] = "Objects removed by rm, berth_remove or a peer's removal.",
    [NODE_EVICTED] = "Objects evicted to make room.",
    [NODE_EVICTED_BYTES] = "Slot bytes of evicted objects.",
    [NODE_ABORTED_WRITES] = "Drafts of clients that ended before they sealed them.",
    [NODE_ABORTS] = "Drafts that clients gave back unsealed.",
    [NODE_GRANTS] = "Slots granted to clients for puts to come.",
    [NODE_CREATES] = "Drafts given to clients that asked for one by key.",
    [NODE_SEALS] = "Seals committed; one may be of a group of objects.",
    [NODE_GROUPS] = "Of these, seals of two or more objects.",
    [NODE_FINDS] = "Keys that clients asked the node for, as lookup could not say.",
    [NODE_STATS] = "Requests for what the index knows of a key.",
    [NODE_LISTS] = "Requests for a part of a listing of keys.",
    [NODE_HOLDS] = "Holds set on objects.",
    [NODE_DROPS] = "Holds dropped.",
    [NODE_REFUSED_FULL] = "Requests refused with BERTH_EFULL: there was no room in the pool.",
    [NODE_REFUSED_INDEX] = "Requests refused with BERTH_EINDEXFULL: there was no room in the index.",
    [NODE_REFUSED_HELD] = "Requests refused with BERTH_EHELD: the object has a hold.",
    [NODE_REFUSED_STALE] = "Requests refused with BERTH_ESTALE: the draft was no longer the client's.",
    [NODE_REFUSED_QUOTA] = "Requests refused with BERTH_EQUOTA: above draft-quota.",
    [NODE_REFUSED_READONLY] = "Requests refused with BERTH_EREADONLY: of a client that may only read.",
    [NODE_REFUSED_OTHER] = "Requests refused for any other reason.",
    [NODE_TIMEOUTS] = "Requests whose deadline passed while they waited.",
    [NODE_COMMITS] = "Commits of the index.",
    [NODE_COMMIT_OPS] = "Changes of the index in these commits.",
    [NODE_COMMIT_FAILED] = "Commits that failed.",
    [NODE_SCANS] = "Looks at the pins of slots, for those that nobody reads any more.",
    [NODE_SCANNED_SLOTS] = "Slots looked at so.",
    [NODE_RETIRED] = "Slots whose object went while somebody might still read it.",
    [NODE_FREED] = "Slots given back for use by others.",
    [NODE_STALLS] = "Requests that waited for a commit of their own key.",
    [NODE_INDEX_ONLY] = "Keys that found no room in lookup, now: reads of them ask the node.",
    [NODE_WAITS] = "Requests to wait until keys are there.",
    [NODE_HOLDS_EXPIRED] = "Holds that ended by their time.",
    [NODE_SESSIONS_OPENED] = "Clients that attached.",
    [NODE_SESSIONS_DEAD] = "Clients that ended.",
    [NODE_RECOVERED] = "Objects that this start found and kept.",
    [NODE_RECOVERED_DROPPED] = "Records that this start dropped.",
    [NODE_LEASES] = "Leases given to peers.",
    [NODE_LEASE_REFUSED] = "Leases refused to peers, above lease-quota or another bound.",
    [NODE_LEASE_RENEWALS] = "Leases renewed for peers.",
    [NODE_LEASE_RELEASES] = "Leases that peers gave back.",
    [NODE_LEASE_EXPIRED] = "Leases that ended by the clock.",
    [NODE_LEASE_RECALLS] = "Leases asked back from peers.",
    [NODE_LEASE_USES] = "Gets under leases, as peers reported them.",
    [NODE_SERVES] = "Transfers of objects to peers begun.",
    [NODE_COPIES_DROPPED] = "Copies of other nodes' objects dropped, as these were removed or replaced there.",
    [NODE_HOLDS_LOST] = "Of these, copies that had a hold.",
    [NODE_TAKEN] = "Objects and removals that took a greater version, as another node's was greater.",
    [NODE_TOMBSTONES_KNOWN] = "Removals that all homes of their key have acknowledged.",
    [NODE_TOMBSTONES_LOST] = "Removals forgotten before that, as there were too many.",
    [NODE_COPIES] = "Objects of other nodes that were pulled into the pool; not among the puts.",
    [NODE_COPY_BYTES] = "Payload bytes of the objects that were pulled into the pool.",
    [NODE_PURGES] = "Purges begun.",
    [NODE_PURGED] = "Objects that purges removed.",
    [NODE_PASTS_TOLD] = "Keys of which this node, as a home, heard that another node evicted them.",
    [NODE_PASTS_NOTED] = "Objects put here of which a home knew an eviction elsewhere.",
};

static void gauge(FILE *f, const char *name, const char *help, uint64_t v)
{
    fprintf(f, "# HELP berth_%s %s\n# TYPE berth_%s gauge\nberth_%s %" PRIu64 "\n", name, help, name, name, v);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t v)
{
    fprintf(f, "# HELP berth_%s_total %s\n# TYPE berth_%s_total counter\nberth_%s_total %" PRIu64 "\n", name, help,
            name, name, v);
}

/* A label's value: backslash, quote and newline are escaped; other bytes of names have been checked or are the
 * node's. */
static void label(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fprintf(f, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", f);
        else
            fputc(*text, f);
    }
}

static void pool(FILE *f, const struct server *s, const struct node_status *st)
{
    gauge(f, "pool_bytes", "Bytes of the pool.", s->region.pool.bytes);
    gauge(f, "pool_used_bytes", "Bytes of slots in use.", st->slabs.used_bytes);
    gauge(f, "pool_free_bytes", "Bytes of free units and free slots.", st->slabs.free_bytes);
    gauge(f, "pool_largest_free_bytes", "Largest object that fits without evicting.", st->slabs.largest_bytes);
    gauge(f, "sealed_bytes", "Slot bytes of sealed objects.", st->sealed_bytes);
    gauge(f, "object_bytes", "Payload bytes of sealed objects.", st->object_bytes);
    gauge(f, "draft_bytes", "Slot bytes granted or being written.", st->draft_bytes);
    gauge(f, "retired_bytes", "Slot bytes that wait for readers.", st->retired_bytes);
    gauge(f, "objects", "Sealed objects.", st->objects);
    gauge(f, "drafts", "Slots being written.", st->drafts);
    gauge(f, "grants", "Slots granted for puts to come.", st->grants);
    gauge(f, "retired", "Slots that wait for readers.", st->retired);
    gauge(f, "held", "Objects with a hold.", st->held);
    gauge(f, "tombstones", "Removals that are remembered.", st->tombstones);
    gauge(f, "tombstones_unknown", "Of these, those that not all homes have acknowledged.", st->tombstones_unknown);
    counter(f, "numa_spilled", "Slots given on another NUMA node than their client's, for want of room.",
            st->slabs.spilled);
    gauge(f, "purges_under_way", "Purges that are not done.", st->purges);
    gauge(f, "waiting", "Requests that wait for room.", st->waiting);
    gauge(f, "index_map_bytes", "Bytes of the index map.", st->index.map_bytes);
    gauge(f, "index_used_bytes", "Bytes of the index map in use.", st->index.used_bytes);
    gauge(f, "index_records", "Records in the index.", st->index.records);
    gauge(f, "high_bytes", "High watermark.", st->high_bytes);
    gauge(f, "low_bytes", "Low watermark.", st->low_bytes);
    gauge(f, "incarnation", "Starts of the node on this region.", s->region.incarnation);
    gauge(f, "healthy", "1 if nothing of the region is missing and the last commit went well.",
          !s->unlinked[0] && !s->commit_error);
}

static void pages(FILE *f, const struct region_pages *p)
{
    const struct {
        const char *name;
        const struct region_part_pages *part;
    } parts[] = {{"pool", &p->pool}, {"lookup", &p->lookup}, {"slots", &p->slots}};
    fputs("# HELP berth_pages_bytes What of a part of the region could lie on pages of 2 MiB at the start.\n"
          "# TYPE berth_pages_bytes gauge\n",
          f);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        fprintf(f, "berth_pages_bytes{part=\"%s\"} %" PRIu64 "\n", parts[i].name, parts[i].part->bytes);
    fputs("# HELP berth_pages_huge_bytes What of it did; of a part that could not be looked at there is none.\n"
          "# TYPE berth_pages_huge_bytes gauge\n",
          f);
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].part->unknown)
            fprintf(f, "berth_pages_huge_bytes{part=\"%s\"} %" PRIu64 "\n", parts[i].name, parts[i].part->huge_bytes);
    }
}

/* One series for each namespace of the configuration that has a share: EVICT_SHARES at most. */
static void share_gauge(FILE *f, const struct server *s, const char *name, const char *help, bool used)
{
    struct node_share x;
    fprintf(f, "# HELP berth_%s %s\n# TYPE berth_%s gauge\n", name, help, name);
    for (uint32_t i = 0; i < node_share(s->node, i, &x); i++) {
        fprintf(f, "berth_%s{namespace=\"", name);
        label(f, x.name);
        fprintf(f, "\"} %" PRIu64 "\n", used ? x.bytes : x.limit);
    }
}

static void sessions(FILE *f, const struct server *s)
{
    uint64_t attached = 0, living = 0;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        attached += s->sessions[i]->attached;
        living += !s->sessions[i]->dead;
    }
    gauge(f, "sessions", "Sessions whose process lives.", living);
    gauge(f, "sessions_attached", "Sessions with a connection.", attached);
}

void report_histogram(FILE *f, const char *name, const char *key, const char *value, const uint64_t *bucket, unsigned n,
                      double sum)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < n; i++) {
        count += bucket[i];
        /* Powers of four are fine enough to be looked at and few enough to be kept. */
        if (i % 2 == 0)
            continue;
        fprintf(f, "berth_%s_bucket{%s=\"", name, key);
        label(f, value);
        fprintf(f, "\",le=\"%.9g\"} %" PRIu64 "\n", (double)(UINT64_C(2) << i) / 1e9, count);
    }
    fprintf(f, "berth_%s_bucket{%s=\"", name, key);
    label(f, value);
    fprintf(f, "\",le=\"+Inf\"} %" PRIu64 "\nberth_%s_sum{%s=\"", count, name, key);
    label(f, value);
    fprintf(f, "\"} %.9g\nberth_%s_count{%s=\"", sum, name, key);
    label(f, value);
    fprintf(f, "\"} %" PRIu64 "\n", count);
}

static void phases(FILE *f, const struct node_status *st)
{
    fputs(
        "# HELP berth_request_phase_seconds Time of requests by phase.\n# TYPE berth_request_phase_seconds histogram\n",
        f);
    for (unsigned i = 0; i < PHASES; i++) {
        const struct node_histogram *h = &st->phase[i];
        report_histogram(f, "request_phase_seconds", "phase", node_phase_names[i], h->bucket, 40,
                         (double)h->sum_ns / 1e9);
    }
}

static void local(FILE *f, const struct server *s)
{
    struct lane_sums sums;
    report_lanes(s, &sums);
    const uint64_t *c = sums.counter;
    counter(f, "local_gets", "Gets of this node's clients: hits, pulled and misses.",
            c[LANE_HITS] + c[LANE_PULLED] + c[LANE_MISSES]);
    counter(f, "local_hits", "Gets that found their key in this node's pool.", c[LANE_HITS]);
    counter(f, "local_pulled", "Gets whose key came from a peer.", c[LANE_PULLED]);
    counter(f, "local_misses", "Gets that got nothing.", c[LANE_MISSES]);
    counter(f, "local_hit_bytes", "Bytes of hits.", c[LANE_HIT_BYTES]);
    counter(f, "local_pulled_bytes", "Bytes of gets whose key came from a peer.", c[LANE_PULLED_BYTES]);
    counter(f, "local_exists", "Keys asked for by exists.", c[LANE_EXISTS]);
    counter(f, "local_verify_failed", "Gets whose payload did not match its checksum.", c[LANE_VERIFY_FAILED]);
    counter(f, "local_retries", "Pins taken again because the slot changed.", c[LANE_RETRIES]);
    counter(f, "local_asks", "Misses that asked the node.", c[LANE_ASKS]);
    counter(f, "local_puts", "Puts copied by clients.", c[LANE_PUTS]);
    counter(f, "local_put_bytes", "Bytes of those puts.", c[LANE_PUT_BYTES]);
    counter(f, "local_copy_ns", "Nanoseconds in those copies.", c[LANE_COPY_NS]);
    double sum = 0;
    for (unsigned i = 0; i < 32; i++)
        sum += (double)sums.get_ns[i] * 1.5 * (double)(UINT64_C(1) << i) / 1e9;
    fputs("# HELP berth_local_get_seconds Time of one local get in 1,024; the sum is an estimate from the buckets.\n"
          "# TYPE berth_local_get_seconds histogram\n",
          f);
    report_histogram(f, "local_get_seconds", "sampled", "1/1024", sums.get_ns, 32, sum);
}

char *report_metrics(struct server *s)
{
    struct node_status st;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    report_node(s, &st);
    pool(f, s, &st);
    pages(f, &s->region.pages);
    share_gauge(f, s, "share_bytes", "Share of the pool of a namespace.", false);
    share_gauge(f, s, "share_used_bytes", "Slot bytes of its sealed objects, above its share too.", true);
    report_whatif_metrics(s, f);
    sessions(f, s);
    for (unsigned i = 0; i < NODE_COUNTERS; i++) {
        void (*one)(FILE *, const char *, const char *, uint64_t) = i == NODE_INDEX_ONLY ? gauge : counter;
        one(f, node_counter_names[i], counter_help[i], st.counter[i]);
    }
    phases(f, &st);
    local(f, s);
    peers_metrics(s->peers, f);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}
