/* top_view.c: the difference of two status reports. */
#include <string.h>

#include "tools/top.h"

#define BUCKETS 40u /* of every histogram in a report */

/* ---- differences ---- */

static uint64_t amount(const json_t *n)
{
    json_int_t v = json_integer_value(n);
    return v > 0 ? (uint64_t)v : 0;
}

/* What a counter has grown by; one that is less than it was began anew at 0. */
static uint64_t grown_from(uint64_t was, uint64_t is)
{
    return is >= was ? is - was : is;
}

static uint64_t grown(const json_t *was, const json_t *is, const char *path)
{
    json_int_t a = cli_json_int(was, path), b = cli_json_int(is, path);
    return grown_from(a > 0 ? (uint64_t)a : 0, b > 0 ? (uint64_t)b : 0);
}

static void put(json_t *o, const char *name, uint64_t v)
{
    json_object_set_new(o, name, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static json_t *rate(uint64_t n, double seconds)
{
    json_t *o = json_object();
    put(o, "count", n);
    json_object_set_new(o, "per_second", json_real(seconds > 0 ? (double)n / seconds : 0));
    return o;
}

static void put_rates(json_t *to, const json_t *was, const json_t *is, double seconds, const char *const (*list)[2])
{
    for (; (*list)[0]; list++)
        json_object_set_new(to, (*list)[0], rate(grown(was, is, (*list)[1]), seconds));
}

/* ---- operations ---- */

static json_t *operations(const json_t *was, const json_t *is, double seconds)
{
    static const char *const list[][2] = {{"hits", "local/hits"},
                                          {"pulled", "local/pulled"},
                                          {"misses", "local/misses"},
                                          {"exists", "local/exists"},
                                          {"puts", "counters/puts"},
                                          {"kept", "counters/puts_kept"},
                                          {"replaced", "counters/replaced"},
                                          {"removed", "counters/removed"},
                                          {"stats", "counters/stats"},
                                          {"lists", "counters/lists"},
                                          {"holds", "counters/holds"},
                                          {"drops", "counters/drops"},
                                          {"waits", "counters/waits"},
                                          {"pulls", "pull/done"},
                                          {"shared", "pull/shared"},
                                          {"peer_gets", "remote/gets"},
                                          {NULL, NULL}};
    json_t *o = json_object();
    put_rates(o, was, is, seconds, list);
    return o;
}

/* ---- bytes ---- */

static const json_t *below(const json_t *o, const char *part, const char *name)
{
    return json_object_get(json_object_get(json_object_get(o, part), "by"), name);
}

/* in: from the peer by pulls; copied: of these by a CPU of the node; out: to it. */
static json_t *peer_bytes(const json_t *was, const json_t *is, const char *name, double seconds, uint64_t sum[3])
{
    const json_t *pull[2] = {below(was, "pull", name), below(is, "pull", name)};
    const json_t *out[2] = {below(was, "remote", name), below(is, "remote", name)};
    uint64_t n[3] = {grown(pull[0], pull[1], "moved_bytes"), grown(pull[0], pull[1], "copied_bytes"),
                     grown(out[0], out[1], "bytes_sent")};
    static const char *const names[] = {"in", "copied", "out"};
    json_t *o = json_object();
    const char *transport = json_string_value(json_object_get(pull[1], "transport"));
    json_object_set_new(o, "transport", cli_json_text(transport ? transport : "none"));
    for (unsigned i = 0; i < 3; i++) {
        json_object_set_new(o, names[i], rate(n[i], seconds));
        sum[i] += n[i];
    }
    return o;
}

/* The sources are those that serve or are served: members, and the empty name for clients that are none. */
static json_t *bytes(const json_t *was, const json_t *is, double seconds)
{
    static const char *const local[][2] = {
        {"local_read", "local/hit_bytes"}, {"local_written", "local/put_bytes"}, {NULL, NULL}};
    json_t *o = json_object(), *by = json_object(), *served = json_object_get(json_object_get(is, "remote"), "by");
    uint64_t sum[3] = {0};
    const char *name;
    json_t *peer;
    put_rates(o, was, is, seconds, local);
    json_object_foreach(served, name, peer) json_object_set_new(by, name, peer_bytes(was, is, name, seconds, sum));
    json_object_set_new(o, "in", rate(sum[0], seconds));
    json_object_set_new(o, "copied", rate(sum[1], seconds));
    json_object_set_new(o, "out", rate(sum[2], seconds));
    json_object_set_new(o, "by", by);
    return o;
}

/* ---- phases ---- */

static uint64_t quantile(const uint64_t bucket[BUCKETS], uint64_t count, double q)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS && count; i++) {
        seen += bucket[i];
        if ((double)seen >= q * (double)count)
            return UINT64_C(2) << i;
    }
    return 0;
}

/* The histogram of what came between: count, p50, p99, the time in all. */
static json_t *phase(const json_t *was, const json_t *is)
{
    const json_t *a = json_object_get(was, "buckets"), *b = json_object_get(is, "buckets");
    bool anew = cli_json_int(is, "count") < cli_json_int(was, "count");
    uint64_t bucket[BUCKETS], count = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        uint64_t before = anew ? 0 : amount(json_array_get(a, i));
        bucket[i] = grown_from(before, amount(json_array_get(b, i)));
        count += bucket[i];
    }
    json_t *o = json_object();
    put(o, "count", count);
    put(o, "p50_ns", quantile(bucket, count, 0.5));
    put(o, "p99_ns", quantile(bucket, count, 0.99));
    put(o, "sum_ns", grown(was, is, "sum_ns"));
    return o;
}

/* Each phase's share of the time of all but the total, which is their sum. */
static void put_shares(json_t *phases)
{
    const char *name;
    json_t *p;
    double all = 0;
    json_object_foreach(phases, name, p) all +=
        strcmp(name, "total") ? (double)amount(json_object_get(p, "sum_ns")) : 0;
    json_object_foreach(phases, name, p)
    {
        double part = (double)amount(json_object_get(p, "sum_ns"));
        if (strcmp(name, "total"))
            json_object_set_new(p, "share", json_real(all > 0 ? part / all : 0));
    }
}

static json_t *phases(const json_t *was, const json_t *is)
{
    json_t *o = json_object(), *p;
    const char *name;
    json_object_foreach((json_t *)is, name, p) json_object_set_new(o, name, phase(json_object_get(was, name), p));
    put_shares(o);
    return o;
}

static json_t *all_phases(const json_t *was, const json_t *is)
{
    json_t *o = json_object();
    const json_t *pull[2] = {json_object_get(was, "pull"), json_object_get(is, "pull")};
    json_object_set_new(o, "request", phases(json_object_get(was, "phases"), json_object_get(is, "phases")));
    json_object_set_new(o, "pull", phases(json_object_get(pull[0], "phases"), json_object_get(pull[1], "phases")));
    json_object_set_new(o, "service",
                        phase(json_object_get(json_object_get(was, "remote"), "service"),
                              json_object_get(json_object_get(is, "remote"), "service")));
    return o;
}

/* ---- leases, evictions, errors ---- */

static uint64_t gauge(const json_t *is, const char *path)
{
    json_int_t n = cli_json_int(is, path);
    return n > 0 ? (uint64_t)n : 0;
}

static json_t *leases(const json_t *was, const json_t *is, double seconds)
{
    static const char *const list[][2] = {{"gave", "remote/leases_given"}, {"got", "pull/leases_got"}, {NULL, NULL}};
    json_t *o = json_object();
    put(o, "given", gauge(is, "remote/leases"));
    put(o, "given_bytes", gauge(is, "remote/leased_bytes"));
    put(o, "serving", gauge(is, "remote/serving"));
    put(o, "held", gauge(is, "pull/now/leases"));
    put(o, "held_bytes", gauge(is, "pull/now/leased_bytes"));
    put(o, "in_flight_bytes", gauge(is, "pull/now/in_flight_bytes"));
    put_rates(o, was, is, seconds, list);
    return o;
}

static json_t *errors(const json_t *was, const json_t *is, double seconds)
{
    static const char *const list[][2] = {{"refused_full", "counters/refused_full"},
                                          {"refused_index_full", "counters/refused_index_full"},
                                          {"refused_held", "counters/refused_held"},
                                          {"refused_stale", "counters/refused_stale"},
                                          {"refused_quota", "counters/refused_quota"},
                                          {"refused_read_only", "counters/refused_read_only"},
                                          {"refused_other", "counters/refused_other"},
                                          {"timeouts", "counters/timeouts"},
                                          {"commits_failed", "counters/commits_failed"},
                                          {"aborted_writes", "counters/aborted_writes"},
                                          {"verify_failed", "local/verify_failed"},
                                          {"leases_refused", "remote/leases_refused"},
                                          {"reads_refused", "remote/refused"},
                                          {"broken_off", "remote/broken_off"},
                                          {"peer_timeouts", "pull/rpc_timeouts"},
                                          {"bad_answers", "pull/bad_answers"},
                                          {"mismatches", "pull/mismatches"},
                                          {NULL, NULL}};
    json_t *o = json_object(), *n, *was_by = json_object_get(json_object_get(was, "pull"), "failed_by");
    const char *cause;
    char name[64];
    put_rates(o, was, is, seconds, list);
    json_object_foreach(json_object_get(json_object_get(is, "pull"), "failed_by"), cause, n)
    {
        snprintf(name, sizeof name, "pull_%s", cause);
        json_object_set_new(
            o, name, rate(grown(was_by, json_object_get(json_object_get(is, "pull"), "failed_by"), cause), seconds));
    }
    return o;
}

json_t *top_view(const json_t *was, const json_t *is, int64_t ns)
{
    static const char *const evictions[][2] = {
        {"objects", "counters/evicted"}, {"bytes", "counters/evicted_bytes"}, {NULL, NULL}};
    double seconds = (double)ns / 1e9;
    json_t *o = cli_json(), *pool = json_object(), *evicted = json_object();
    json_object_set_new(o, "seconds", json_real(seconds));
    json_object_set_new(o, "restarted", json_boolean(gauge(was, "node/pid") != gauge(is, "node/pid")));
    put(o, "pid", gauge(is, "node/pid"));
    put(o, "sessions", gauge(is, "node/sessions"));
    put(pool, "bytes", gauge(is, "pool/bytes"));
    put(pool, "used_bytes", gauge(is, "pool/used_bytes"));
    put(pool, "objects", gauge(is, "slots/objects"));
    put(pool, "held", gauge(is, "slots/held"));
    json_object_set_new(o, "pool", pool);
    json_object_set_new(o, "operations", operations(was, is, seconds));
    json_object_set_new(o, "bytes", bytes(was, is, seconds));
    json_object_set_new(o, "phases", all_phases(was, is));
    json_object_set_new(o, "leases", leases(was, is, seconds));
    put_rates(evicted, was, is, seconds, evictions);
    json_object_set_new(o, "evicted", evicted);
    json_object_set_new(o, "errors", errors(was, is, seconds));
    return o;
}
