/* peers_pull_report.c: what is said of what this node takes from others. */
#include "store/shell/peers_pull.h"

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static json_t *phase_json(const struct pull_histogram *h)
{
    json_t *o = json_object();
    put(o, "count", h->count);
    json_object_set_new(o, "mean_ns", json_real(h->count ? (double)h->sum_ns / (double)h->count : 0));
    return o;
}

json_t *pull_part_report(const struct peers *p)
{
    struct pull_status st;
    if (!p || !p->pull)
        return json_null();
    pull_status(p->pull->puller, &st);
    json_t *o = json_object(), *phases = json_object();
    for (unsigned i = 0; i < PULL_COUNTERS; i++)
        put(o, pull_counter_names[i], st.counter[i]);
    put(o, "open_requests", st.requests);
    put(o, "open_reads", st.reads);
    put(o, "leases_good", st.leases.good);
    put(o, "leased_bytes", st.leases.bytes);
    for (unsigned i = 0; i < PULL_PHASES; i++)
        json_object_set_new(phases, pull_phase_names[i], phase_json(&st.phase[i]));
    json_object_set_new(o, "phases", phases);
    return o;
}
