/* top_print.c: a view of `berth top` in lines. */
#include <inttypes.h>
#include <string.h>

#include "store/amount.h"
#include "tools/top.h"

static uint64_t number(const json_t *o, const char *path)
{
    json_int_t n = cli_json_int(o, path);
    return n > 0 ? (uint64_t)n : 0;
}

static double per_second(const json_t *rate)
{
    double v = json_number_value(json_object_get(rate, "per_second"));
    return v > 0 ? v : 0;
}

static const char *speed(char out[32], const json_t *rate)
{
    char bytes[24];
    double v = per_second(rate);
    snprintf(out, 32, "%s/s", cli_bytes(bytes, v < 9e18 ? (uint64_t)v : INT64_MAX));
    return out;
}

/* Counts that are small are shown as they are; of others digits behind the point say nothing. */
static const char *count_of(char out[24], double v)
{
    snprintf(out, 24, v >= 100 || v == 0 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v);
    return out;
}

static void print_head(FILE *f, const json_t *v)
{
    char a[24], b[24];
    uint64_t bytes = number(v, "pool/bytes"), used = number(v, "pool/used_bytes");
    fprintf(f, "node      pid %" PRIu64 ", %" PRIu64 " session%s, over %.2f s%s\n", number(v, "pid"),
            number(v, "sessions"), plural(number(v, "sessions")), json_number_value(json_object_get(v, "seconds")),
            json_is_true(json_object_get(v, "restarted")) ? "; it was started again" : "");
    fprintf(f, "pool      %s used of %s (%.1f%%), %" PRIu64 " object%s, %" PRIu64 " held\n", cli_bytes(a, used),
            cli_bytes(b, bytes), bytes ? 100.0 * (double)used / (double)bytes : 0, number(v, "pool/objects"),
            plural(number(v, "pool/objects")), number(v, "pool/held"));
}

/* So many in a line, names padded to `width` but for the last. */
static void print_rates(FILE *f, const char *title, const json_t *rates, unsigned in_line, int width, bool only_some)
{
    const char *name;
    json_t *rate;
    unsigned n = 0;
    char figure[24];
    json_object_foreach((json_t *)rates, name, rate)
    {
        if (only_some && number(rate, "count") == 0)
            continue;
        if (n % in_line == 0)
            fprintf(f, "%s%-10s", n ? "\n" : "", n ? "" : title);
        bool last = n % in_line == in_line - 1;
        fprintf(f, "%9s %-*s", count_of(figure, per_second(rate)), last ? 0 : width, name);
        n++;
    }
    if (n)
        fputc('\n', f);
    else
        fprintf(f, "%-10s%9s\n", title, "none");
}

static void print_bytes(FILE *f, const json_t *bytes)
{
    const char *name;
    json_t *peer;
    char a[32], b[32], c[32];
    fprintf(f, "%-20s %14s %14s %14s\n", "bytes", "in", "copied", "out");
    fprintf(f, "%-20s %14s %14s %14s\n", "  local", speed(a, json_object_get(bytes, "local_written")),
            speed(b, json_object_get(bytes, "local_written")), speed(c, json_object_get(bytes, "local_read")));
    json_object_foreach(json_object_get(bytes, "by"), name, peer)
    {
        const char *transport = json_string_value(json_object_get(peer, "transport"));
        char who[64];
        int n = snprintf(who, sizeof who, "  %.40s", *name ? name : "clients");
        if (transport && strcmp(transport, "none") != 0) /* none: nothing has been moved yet */
            snprintf(who + n, sizeof who - (size_t)n, " (%.8s)", transport);
        fprintf(f, "%-20s %14s %14s %14s\n", who, speed(a, json_object_get(peer, "in")),
                speed(b, json_object_get(peer, "copied")), speed(c, json_object_get(peer, "out")));
    }
}

static const char *time_of(char out[24], const json_t *phase, const char *which)
{
    uint64_t ns = number(phase, which);
    if (number(phase, "count") == 0)
        snprintf(out, 24, "-");
    else if (ns < 1000)
        snprintf(out, 24, "< 1 us");
    else
        cli_time(out, ns);
    return out;
}

static void print_phase(FILE *f, const char *name, const json_t *p, double seconds)
{
    char p50[24], p99[24], n[24];
    double share = json_number_value(json_object_get(p, "share"));
    fprintf(f, "  %-18s %14s %14s %14s", name, count_of(n, seconds > 0 ? (double)number(p, "count") / seconds : 0),
            time_of(p50, p, "p50_ns"), time_of(p99, p, "p99_ns"));
    if (json_object_get(p, "share"))
        fprintf(f, " %7.1f%%", 100 * share);
    fputc('\n', f);
}

/* Phases in which nothing was are left out, so that what there is stays on one screen. */
static void print_phases(FILE *f, const char *title, const json_t *phases, double seconds)
{
    const char *name;
    json_t *p;
    fprintf(f, "%-20s %14s %14s %14s %8s\n", title, "per second", "p50", "p99", "share");
    json_object_foreach((json_t *)phases, name, p)
    {
        if (number(p, "count"))
            print_phase(f, name, p, seconds);
    }
}

static void print_leases(FILE *f, const json_t *v)
{
    char a[24], b[24], c[24], n[24], m[24];
    const json_t *l = json_object_get(v, "leases"), *evicted = json_object_get(v, "evicted");
    fprintf(f, "leases    given %" PRIu64 " (%s, %s new/s), %" PRIu64 " transfer%s out\n", number(l, "given"),
            cli_bytes(a, number(l, "given_bytes")), count_of(n, per_second(json_object_get(l, "gave"))),
            number(l, "serving"), plural(number(l, "serving")));
    fprintf(f, "          held %" PRIu64 " (%s, %s new/s), %s in flight\n", number(l, "held"),
            cli_bytes(b, number(l, "held_bytes")), count_of(m, per_second(json_object_get(l, "got"))),
            cli_bytes(c, number(l, "in_flight_bytes")));
    fprintf(f, "evicted   %s objects/s, %s\n", count_of(n, per_second(json_object_get(evicted, "objects"))),
            speed((char[32]){0}, json_object_get(evicted, "bytes")));
}

void top_print(FILE *f, const json_t *v)
{
    const json_t *phases = json_object_get(v, "phases");
    double seconds = json_number_value(json_object_get(v, "seconds"));
    print_head(f, v);
    print_rates(f, "per second", json_object_get(v, "operations"), 4, 11, false);
    print_bytes(f, json_object_get(v, "bytes"));
    print_leases(f, v);
    print_rates(f, "errors/s", json_object_get(v, "errors"), 3, 19, true);
    print_phases(f, "request phases", json_object_get(phases, "request"), seconds);
    if (json_object_size(json_object_get(phases, "pull"))) {
        print_phases(f, "pull phases", json_object_get(phases, "pull"), seconds);
        print_phase(f, "service to peers", json_object_get(phases, "service"), seconds);
    }
}
