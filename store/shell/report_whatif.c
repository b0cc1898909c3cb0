/* report_whatif.c: hit ratios that other capacities would have. */
#include "store/shell/report.h"

#include "store/shell/log.h"
#include "store/whatif.h"

#include <stdio.h>
#include <string.h>

static json_t *ratio(double hits, double references)
{
    return references > 0 ? json_real(hits / references) : json_null();
}

static json_t *curve(const struct whatif_report *w, const struct whatif_sums *s)
{
    json_t *list = json_array();
    for (unsigned i = 0; i <= WHATIF_SIMS; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "scale", json_real(w->scale[i]));
        json_object_set_new(o, "capacity_bytes", json_integer((json_int_t)(w->scale[i] * (double)w->capacity)));
        json_object_set_new(o, "hit_ratio", ratio(s->hits[i], s->references));
        json_array_append_new(list, o);
    }
    return list;
}

static void put_sums(json_t *o, const struct whatif_report *w, const struct whatif_sums *all,
                     const struct whatif_sums *recent)
{
    json_object_set_new(o, "references", json_integer((json_int_t)all->references));
    json_object_set_new(o, "since_start", curve(w, all));
    json_object_set_new(o, "recent", curve(w, recent));
}

static json_t *entry_json(const struct whatif_report *w, const struct whatif_entry *e)
{
    json_t *o = json_object();
    json_object_set_new(o, "error_references", json_integer((json_int_t)e->error));
    put_sums(o, w, &e->all, &e->recent);
    return o;
}

static json_t *namespaces_json(const struct server *s, const struct whatif_report *w)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < WHATIF_TOP; i++) {
        if (!w->ns[i].used)
            continue;
        json_t *o = entry_json(w, &w->ns[i]);
        const char *name = w->ns[i].id ? node_namespace_name(s->node, (uint32_t)w->ns[i].id) : "";
        char text[4 * NAME_MAX_BYTES + 1];
        escape_bytes(text, sizeof(text), name ? name : "", name ? strlen(name) : 0);
        json_object_set_new(o, "namespace_id", json_integer((json_int_t)w->ns[i].id));
        json_object_set_new(o, "namespace", name ? json_string(text) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

/* Tags are any 64 bits: text, as JSON's integers may not hold them. */
static json_t *lineages_json(const struct whatif_report *w)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < WHATIF_TOP; i++) {
        if (!w->lineage[i].used)
            continue;
        json_t *o = entry_json(w, &w->lineage[i]);
        json_object_set_new(o, "lineage", json_sprintf("%llu", (unsigned long long)w->lineage[i].id));
        json_array_append_new(list, o);
    }
    return list;
}

static void put_totals(json_t *o, const struct whatif_report *w)
{
    json_object_set_new(o, "sample_rate", json_real(1.0 / (double)(UINT64_C(1) << w->shift)));
    json_object_set_new(o, "requests", json_integer((json_int_t)w->requests));
    json_object_set_new(o, "requests_sampled", json_integer((json_int_t)w->sampled));
    json_object_set_new(o, "bytes", json_integer((json_int_t)w->bytes));
    json_object_set_new(o, "bytes_max", json_integer((json_int_t)w->bytes_max));
}

json_t *report_whatif_totals(const struct server *s)
{
    struct whatif_report w;
    json_t *o = json_object();
    node_whatif(s->node, false, &w);
    put_totals(o, &w);
    return o;
}

static void ratio_lines(FILE *f, const struct whatif_report *w, const char *over, const struct whatif_sums *s)
{
    for (unsigned i = 0; i <= WHATIF_SIMS && s->references > 0; i++)
        fprintf(f, "berth_whatif_hit_ratio{scale=\"%g\",over=\"%s\"} %.9g\n", w->scale[i], over,
                s->hits[i] / s->references);
}

void report_whatif_metrics(const struct server *s, FILE *f)
{
    struct whatif_report w;
    node_whatif(s->node, false, &w);
    fputs("# HELP berth_whatif_hit_ratio Hit ratio that so many times the high watermark would have.\n"
          "# TYPE berth_whatif_hit_ratio gauge\n",
          f);
    ratio_lines(f, &w, "start", &w.all);
    ratio_lines(f, &w, "recent", &w.recent);
    fprintf(f,
            "# HELP berth_whatif_sample_rate Share of the trees of prefixes that is simulated.\n"
            "# TYPE berth_whatif_sample_rate gauge\nberth_whatif_sample_rate %.9g\n",
            1.0 / (double)(UINT64_C(1) << w.shift));
}

char *report_whatif(const struct server *s)
{
    struct whatif_report w;
    json_t *o = json_object();
    node_whatif(s->node, true, &w);
    json_object_set_new(o, "schema", json_integer(1));
    json_object_set_new(o, "capacity_bytes", json_integer((json_int_t)w.capacity));
    put_totals(o, &w);
    json_object_set_new(o, "all", json_object());
    put_sums(json_object_get(o, "all"), &w, &w.all, &w.recent);
    json_object_set_new(o, "namespaces", namespaces_json(s, &w));
    json_object_set_new(o, "lineages", lineages_json(&w));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}
