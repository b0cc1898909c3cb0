#include "store/shell/report.h"

#include "index/check.h"
#include "store/shell/log.h"
#include "store/shell/peers.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASSES_SHOWN 64u

/* Counters that clients write may say anything: what JSON's integers can't hold is cut. */
static json_t *number(uint64_t v)
{
    return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, number(v));
}

static void put_text(json_t *o, const char *name, const char *text)
{
    char escaped[1024];
    escape_bytes(escaped, sizeof(escaped), text, strlen(text));
    json_object_set_new(o, name, json_string(escaped));
}

double histogram_mean(const struct node_histogram *h)
{
    return h->count ? (double)h->sum_ns / (double)h->count : 0;
}

uint64_t histogram_quantile(const uint64_t *bucket, unsigned n, double q)
{
    uint64_t count = 0, seen = 0;
    for (unsigned i = 0; i < n; i++)
        count += bucket[i];
    if (!count)
        return 0;
    double wanted = q * (double)count;
    for (unsigned i = 0; i < n; i++) {
        seen += bucket[i];
        if ((double)seen >= wanted)
            return UINT64_C(2) << i;
    }
    return UINT64_C(1) << n;
}

void report_lanes(const struct server *s, struct lane_sums *out)
{
    *out = s->gone;
    for (unsigned i = 0; i < s->n_sessions; i++)
        pins_lanes(&s->sessions[i]->pins, out);
}

static json_t *pages_json(const struct region_pages *p)
{
    const struct {
        const char *name;
        const struct region_part_pages *part;
    } parts[] = {{"pool", &p->pool}, {"lookup", &p->lookup}, {"slots", &p->slots}};
    json_t *all = json_object();
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *o = json_object();
        put(o, "bytes", parts[i].part->bytes);
        put(o, "huge_bytes", parts[i].part->huge_bytes);
        json_object_set_new(o, "known", json_boolean(!parts[i].part->unknown));
        json_object_set_new(all, parts[i].name, o);
    }
    return all;
}

static json_t *region_json(const struct server *s)
{
    const struct region *r = &s->region;
    json_t *o = json_object();
    char uuid[33];
    for (unsigned i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", r->super->uuid[i]);
    put_text(o, "path", r->path);
    json_object_set_new(o, "uuid", json_string(uuid));
    put(o, "incarnation", r->incarnation);
    put_text(o, "began", r->began);
    json_object_set_new(o, "pages", pages_json(&r->pages));
    json_object_set_new(o, "locked", json_boolean(r->locked));
    put_text(o, "lock_note", r->lock_note);
    put_text(o, "problem", s->unlinked);
    return o;
}

static json_t *pool_json(const struct server *s, const struct node_status *st)
{
    json_t *o = json_object();
    put(o, "bytes", s->region.pool.bytes);
    put(o, "used_bytes", st->slabs.used_bytes);
    put(o, "free_bytes", st->slabs.free_bytes);
    put(o, "largest_free_bytes", st->slabs.largest_bytes);
    put(o, "sealed_bytes", st->sealed_bytes);
    put(o, "object_bytes", st->object_bytes);
    put(o, "waste_bytes", st->sealed_bytes - st->object_bytes);
    put(o, "draft_bytes", st->draft_bytes);
    put(o, "retired_bytes", st->retired_bytes);
    put(o, "high_bytes", st->high_bytes);
    put(o, "low_bytes", st->low_bytes);
    put(o, "page_bytes", s->region.pool.page_bytes);
    return o;
}

/* Slot sizes that are in use, and those that were learned. */
static json_t *classes_json(const struct server *s)
{
    struct slabs_class class[CLASSES_SHOWN];
    uint32_t n = node_classes(s->node, class, CLASSES_SHOWN);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *o = json_object();
        put(o, "bytes", class[i].bytes);
        put(o, "slab_bytes", class[i].slab_bytes);
        put(o, "slots", class[i].slots);
        put(o, "used", class[i].used);
        json_object_set_new(o, "learned", json_boolean(class[i].learned));
        json_object_set_new(o, "in_use", json_boolean(class[i].is_class));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *slots_json(const struct server *s, const struct node_status *st)
{
    json_t *o = json_object();
    put(o, "objects", st->objects);
    put(o, "drafts", st->drafts);
    put(o, "grants", st->grants);
    put(o, "retired", st->retired);
    put(o, "held", st->held);
    put(o, "tombstones", st->tombstones);
    put(o, "tombstones_unknown", st->tombstones_unknown);
    put(o, "slabs", st->slabs.slabs);
    put(o, "runs", st->slabs.runs);
    put(o, "free_units", st->slabs.free_units);
    put(o, "headers_used", st->slabs.headers_used);
    put(o, "headers_max", s->region.super->max_headers);
    json_object_set_new(o, "classes", classes_json(s));
    return o;
}

/* What objects cost beside their payload and the index. */
static json_t *metadata_json(const struct server *s, const struct node_status *st)
{
    json_t *o = json_object();
    put(o, "header_bytes", st->slabs.headers_used * sizeof(struct slot_header));
    put(o, "state_bytes", st->slabs.headers_used * st->slot_state_bytes);
    put(o, "lookup_bytes", s->region.lookup_bytes);
    return o;
}

/* Namespaces that have a share of the pool, by name. */
static json_t *shares_json(const struct server *s)
{
    json_t *o = json_object();
    struct node_share x;
    for (uint32_t i = 0; i < node_share(s->node, i, &x); i++) {
        json_t *share = json_object();
        put(share, "share_bytes", x.limit);
        put(share, "used_bytes", x.bytes);
        json_object_set_new(o, x.name, share);
    }
    return o;
}

/* What `berth why` can tell. */
static json_t *remembered_json(const struct node_status *st)
{
    json_t *o = json_object();
    put(o, "keys", st->remembered);
    put(o, "max_keys", st->remembered_max);
    put(o, "bytes", st->remembered_bytes);
    return o;
}

static json_t *index_json(const struct node_status *st)
{
    json_t *o = json_object();
    put(o, "map_bytes", st->index.map_bytes);
    put(o, "used_bytes", st->index.used_bytes);
    put(o, "records", st->index.records);
    return o;
}

void report_node(const struct server *s, struct node_status *out)
{
    struct lane_sums sums;
    report_lanes(s, &sums);
    node_status(s->node, out);
    out->counter[NODE_KEPT] += sums.counter[LANE_KEPT];
}

static json_t *counters_json(const struct node_status *st)
{
    json_t *o = json_object();
    for (unsigned i = 0; i < NODE_COUNTERS; i++)
        put(o, node_counter_names[i], st->counter[i]);
    return o;
}

static json_t *local_json(const struct server *s)
{
    struct lane_sums sums;
    json_t *o = json_object();
    report_lanes(s, &sums);
    const uint64_t *c = sums.counter;
    put(o, "gets", c[LANE_HITS] + c[LANE_PULLED] + c[LANE_MISSES]);
    put(o, "hits", c[LANE_HITS]);
    put(o, "pulled", c[LANE_PULLED]);
    put(o, "misses", c[LANE_MISSES]);
    put(o, "hit_bytes", c[LANE_HIT_BYTES]);
    put(o, "pulled_bytes", c[LANE_PULLED_BYTES]);
    put(o, "exists", c[LANE_EXISTS]);
    put(o, "verify_failed", c[LANE_VERIFY_FAILED]);
    put(o, "retries", c[LANE_RETRIES]);
    put(o, "asks", c[LANE_ASKS]);
    put(o, "puts", c[LANE_PUTS]);
    put(o, "put_bytes", c[LANE_PUT_BYTES]);
    put(o, "copy_ns", c[LANE_COPY_NS]);
    put(o, "samples", c[LANE_SAMPLES]);
    put(o, "get_p50_ns", histogram_quantile(sums.get_ns, 32, 0.5));
    put(o, "get_p99_ns", histogram_quantile(sums.get_ns, 32, 0.99));
    put(o, "get_p999_ns", histogram_quantile(sums.get_ns, 32, 0.999));
    return o;
}

json_t *report_histogram_json(const struct node_histogram *h)
{
    json_t *p = json_object(), *buckets = json_array();
    unsigned used = 40;
    put(p, "count", h->count);
    put(p, "sum_ns", h->sum_ns);
    json_object_set_new(p, "mean_ns", json_real(histogram_mean(h)));
    put(p, "p50_ns", histogram_quantile(h->bucket, 40, 0.5));
    put(p, "p99_ns", histogram_quantile(h->bucket, 40, 0.99));
    put(p, "p999_ns", histogram_quantile(h->bucket, 40, 0.999));
    while (used > 0 && h->bucket[used - 1] == 0)
        used--;
    for (unsigned i = 0; i < used; i++)
        json_array_append_new(buckets, number(h->bucket[i]));
    json_object_set_new(p, "buckets", buckets);
    return p;
}

static json_t *phases_json(const struct node_status *st)
{
    json_t *o = json_object();
    for (unsigned i = 0; i < PHASES; i++)
        json_object_set_new(o, node_phase_names[i], report_histogram_json(&st->phase[i]));
    return o;
}

static json_t *sessions_json(const struct server *s)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < s->n_sessions; i++) {
        const struct session *c = s->sessions[i];
        json_t *o = json_object();
        put(o, "session", c->id);
        put_text(o, "name", c->name);
        put(o, "pid", (uint64_t)c->pid);
        put(o, "uid", c->uid);
        json_object_set_new(o, "attached", json_boolean(c->attached));
        json_object_set_new(o, "writable", json_boolean(c->writable));
        json_object_set_new(o, "ended", json_boolean(c->dead));
        put(o, "pin_entries", c->pins.acknowledged);
        put(o, "owed_replies", c->owed_count);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *settings_json(const struct settings *s)
{
    static const char *const origins[] = {"default", "file", "environment", "url", "flag"};
    json_t *list = json_object();
    for (unsigned i = 0; i < settings_count; i++) {
        char value[512];
        uint64_t bytes;
        json_t *o = json_object();
        settings_value(s, i, value, sizeof(value));
        put_text(o, "value", value);
        if (settings_share(s, i, &bytes))
            put(o, "bytes", bytes);
        json_object_set_new(o, "origin", json_string(origins[s->source[i].origin]));
        put_text(o, "where", s->source[i].where);
        json_object_set_new(list, settings_table[i].name, o);
    }
    return list;
}

static json_t *node_json(const struct server *s)
{
    json_t *o = json_object();
    uint64_t living = 0, attached = 0;
    for (unsigned i = 0; i < s->n_sessions; i++) {
        living += !s->sessions[i]->dead;
        attached += s->sessions[i]->attached;
    }
    put(o, "pid", (uint64_t)getpid());
    put(o, "sessions", living);
    put(o, "attached", attached);
    put(o, "sleeps", s->sleeps);
    put(o, "passes", s->passes);
    put(o, "spin_budget_ns", (uint64_t)s->budget_ns);
    return o;
}

static char *text_of(json_t *o)
{
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    return text;
}

static char *report_status(const struct server *s)
{
    struct node_status st;
    json_t *o = json_object();
    report_node(s, &st);
    put(o, "schema", 1);
    json_object_set_new(o, "node", node_json(s));
    json_object_set_new(o, "region", region_json(s));
    json_object_set_new(o, "pool", pool_json(s, &st));
    json_object_set_new(o, "numa", report_numa(s, &st));
    json_object_set_new(o, "slots", slots_json(s, &st));
    json_object_set_new(o, "index", index_json(&st));
    json_object_set_new(o, "local", local_json(s));
    json_object_set_new(o, "counters", counters_json(&st));
    json_object_set_new(o, "phases", phases_json(&st));
    put(o, "waiting", st.waiting);
    put(o, "purges", st.purges);
    json_object_set_new(o, "metadata", metadata_json(s, &st));
    json_object_set_new(o, "remembered", remembered_json(&st));
    json_object_set_new(o, "whatif", report_whatif_totals(s));
    json_object_set_new(o, "shares", shares_json(s));
    json_object_set_new(o, "sessions", sessions_json(s));
    json_object_set_new(o, "peers", peers_report(s->peers));
    json_object_set_new(o, "home", home_part_report(s->peers));
    json_object_set_new(o, "pull", pull_part_report(s->peers));
    json_object_set_new(o, "remote", peers_remote_report(s->peers, &st));
    json_object_set_new(o, "settings", settings_json(&s->settings));
    return text_of(o);
}

#define DIFFERENCES_MAX 1000u

static void difference(void *arg, const char *sentence)
{
    json_t *list = arg;
    if (json_array_size(list) < DIFFERENCES_MAX)
        json_array_append_new(list, json_string(sentence)); /* its key bytes are escaped already */
}

char *report_check(const struct region *region, uint32_t headers_used, const char *broken)
{
    struct check_result r = {0};
    json_t *o = json_object();
    json_t *list = json_array();
    int error = check_region(&lmdb_ops, region->index, &region->lookup, headers_used, difference, list, &r);
    put(o, "schema", 1);
    json_object_set_new(o, "error", error ? json_string(strerror(-error)) : json_null());
    put(o, "records", r.records);
    put(o, "slots_ready", r.slots_ready);
    put(o, "lookup_entries", r.lookup_entries);
    put(o, "index_only", r.index_only);
    put(o, "differences", r.differences);
    json_object_set_new(o, "sentences", list);
    json_object_set_new(o, "invariant", broken ? json_string(broken) : json_null());
    return text_of(o);
}

char *report_make(struct server *s, unsigned what, const struct key_ref *key)
{
    struct node_status st;
    switch (what) {
    case QUERY_STATUS:
        return report_status(s);
    case QUERY_PINS:
        return report_pins(s, key);
    case QUERY_WHY:
        return key ? report_why(s, key) : NULL;
    case QUERY_WHATIF:
        return report_whatif(s);
    case QUERY_CHECK:
        report_node(s, &st);
        return report_check(&s->region, st.slabs.headers_used, node_check(s->node));
    case QUERY_METRICS:
        return report_metrics(s);
    default:
        return NULL;
    }
}
