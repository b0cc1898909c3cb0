#include "tools/replay/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"

#define BAR 40

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

double report_hit_ratio(const struct replay_counts *c)
{
    return c->references ? (double)(c->hits + c->remote_hits) / (double)c->references : 0;
}

static double bound_ratio(const struct replay_report *r)
{
    return r->sum->references ? (double)r->bound / (double)r->sum->references : 0;
}

static uint64_t moved(const struct replay_counts *c)
{
    return c->verified_bytes + c->written_bytes;
}

static void set_int(json_t *o, const char *name, uint64_t n)
{
    json_object_set_new(o, name, json_integer((json_int_t)n));
}

static json_t *phases(const struct replay_counts *c)
{
    json_t *o = json_object();

    for (unsigned i = 0; i < REPLAY_PHASES; i++)
        set_int(o, replay_phase_names[i], c->phase_ns[i]);
    return o;
}

static void set_load(json_t *o, const struct replay_report *r)
{
    json_object_set_new(o, "trace", json_string(r->name));
    json_object_set_new(o, "generated", json_boolean(r->generated));
    if (r->generated)
        set_int(o, "seed", r->seed);
    json_object_set_new(o, "policy", r->capacity ? json_string(r->policy) : json_null());
    json_object_set_new(o, "capacity_blocks", r->capacity ? json_integer((json_int_t)r->capacity) : json_null());
    set_int(o, "block_size", r->block_size);
    set_int(o, "clients", r->clients);
    set_int(o, "distinct_blocks", r->trace->distinct);
}

void report_json(const struct replay_report *r)
{
    const struct replay_counts *c = r->sum;
    json_t *o = cli_json();

    set_load(o, r);
    set_int(o, "requests", c->requests);
    set_int(o, "references", c->references);
    set_int(o, "local_hits", c->hits);
    set_int(o, "remote_hits", c->remote_hits);
    set_int(o, "misses", c->misses);
    set_int(o, "kept", c->kept);
    json_object_set_new(o, "hit_ratio", json_real(report_hit_ratio(c)));
    if (r->bounded) {
        set_int(o, "bound_hits", r->bound);
        json_object_set_new(o, "bound_hit_ratio", json_real(bound_ratio(r)));
    }
    set_int(o, "evictions", r->evictions);
    set_int(o, "verified_bytes", c->verified_bytes);
    set_int(o, "bad_bytes", c->bad_bytes);
    set_int(o, "written_bytes", c->written_bytes);
    json_object_set_new(o, "seconds", json_real(r->seconds));
    json_object_set_new(o, "bytes_per_second", json_real(rate((double)moved(c), r->seconds)));
    json_object_set_new(o, "request_ns", stat_json(&c->request));
    json_object_set_new(o, "phase_ns", phases(c));
    if (r->nodes)
        report_nodes_json(r, o);
    cli_json_print(o);
}

const char *report_grouped(char out[32], uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, n), at = 0;

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

static void print_phases(const struct replay_counts *c)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < REPLAY_PHASES; i++)
        sum += c->phase_ns[i];
    printf("  where the time went\n");
    for (unsigned i = 0; i < REPLAY_PHASES && sum; i++) {
        if (i == REPLAY_PULL && !c->phase_ns[i])
            continue;
        double share = (double)c->phase_ns[i] / (double)sum;
        int bar = (int)(share * BAR + 0.5);

        printf("    %-12s%6.1f %%%s%.*s\n", replay_phase_names[i], 100 * share, bar ? "  " : "", bar,
               "########################################");
    }
}

/* This program as it can be called again from here. */
static const char *berth_name(void)
{
    const char *name = program_invocation_name;
    char here[1024];
    size_t length;

    if (!getcwd(here, sizeof(here)))
        return name;
    length = strlen(here);
    return strncmp(name, here, length) == 0 && name[length] == '/' ? name + length + 1 : name;
}

/* A command that goes on in the next line where it would pass 80 columns. */
static void print_command(const char *what, const char *command)
{
    size_t column = 6;

    printf("    %s:\n      ", what);
    for (const char *word = command; *word;) {
        size_t length = strcspn(word, " ");

        if (word != command && column + 1 + length > 78) {
            printf(" \\\n        ");
            column = 8;
        } else if (word != command) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, word);
        column += length;
        word += length + strspn(word + length, " ");
    }
    putchar('\n');
}

/* This replay again, with another capacity (0: the default): what was no default is said. */
static void write_load(char *out, size_t size, const char *berth, const struct replay_report *r, uint64_t capacity)
{
    FILE *f = fmemopen(out, size, "w");

    if (!f)
        return;
    fprintf(f, "%s replay %s%s", berth, r->generated ? "--generate " : "", r->name);
    if (r->generated && r->trace->n_requests != REPLAY_REQUESTS)
        fprintf(f, " --requests %" PRIu64, (uint64_t)r->trace->n_requests);
    if (r->generated && r->seed != REPLAY_SEED)
        fprintf(f, " --seed %" PRIu64, r->seed);
    if (r->block_size != REPLAY_BLOCK_SIZE)
        fprintf(f, " --block-size %" PRIu64, r->block_size);
    if (capacity)
        fprintf(f, " --capacity-blocks %" PRIu64, capacity);
    fclose(f);
}

static void print_next(const struct replay_report *r)
{
    const char *berth = berth_name();
    char load[1240] = "", command[2400], how[32] = "";

    if (r->embedded)
        snprintf(how, sizeof(how), " --embedded");
    else if (r->nodes)
        snprintf(how, sizeof(how), " --nodes %u", r->nodes);

    write_load(load, sizeof(load), berth, r, r->capacity ? 2 * r->capacity : 1000);
    printf("  three things to try next\n");
    snprintf(command, sizeof(command), "%s%s", load, how);
    print_command(r->capacity ? "twice the room" : "a node of its own, with room for 1,000 blocks", command);
    /* Several clients need more room than one, which the default has. */
    write_load(load, sizeof(load), berth, r, r->nodes ? r->capacity : 0);
    if (r->nodes)
        snprintf(command, sizeof(command), "%s%s%s", load, how, r->kills ? "" : " --kill 500");
    else if (r->clients > 1)
        snprintf(command, sizeof(command), "%s --clients 1", load);
    else
        snprintf(command, sizeof(command), "%s --clients 4", load);
    print_command(r->kills         ? "the same nodes, and none is killed"
                  : r->nodes       ? "nodes that are killed and start again"
                  : r->clients > 1 ? "one client alone"
                                   : "four clients at the same time, in processes of their own",
                  command);
    snprintf(command, sizeof(command), "%s bench local-get --objects 1000000", berth);
    print_command("what one read costs", command);
}

static void print_load(const struct replay_report *r)
{
    char a[32], b[32], c[24];

    printf("  %-16s%s requests, %s blocks of %s", "load", report_grouped(a, r->sum->requests),
           report_grouped(b, r->sum->references), cli_bytes(c, r->block_size));
    printf("\n  %-16s%s", "trace", r->name);
    if (r->generated)
        printf(", generated with seed %" PRIu64, r->seed);
    putchar('\n');
    if (r->capacity)
        printf("  %-16s%s block%s of %s different one%s\n", "capacity", report_grouped(a, r->capacity),
               r->capacity == 1 ? "" : "s", report_grouped(b, r->trace->distinct), r->trace->distinct == 1 ? "" : "s");
    printf("  %-16s%s%s%s\n", "evicted", report_grouped(a, r->evictions), r->capacity ? ", policy " : "",
           r->capacity ? r->policy : "");
}

void report_table(const struct replay_report *r)
{
    const struct replay_counts *c = r->sum;
    char a[32], b[32];

    print_load(r);
    printf("  %-16s%.2f %%  (%s of %s blocks)\n", "hit ratio", 100 * report_hit_ratio(c),
           report_grouped(a, c->hits + c->remote_hits), report_grouped(b, c->references));
    if (r->bounded)
        printf("  %-16s%.2f %%, known all that comes; the hit ratio is %.1f %% of it\n", "offline bound",
               100 * bound_ratio(r), r->bound ? 100 * report_hit_ratio(c) / bound_ratio(r) : 100.0);
    printf("  %-16s%s, %s bytes bad\n", "verified", cli_bytes(a, c->verified_bytes), report_grouped(b, c->bad_bytes));
    printf("  %-16s%s\n", "written", cli_bytes(a, c->written_bytes));
    printf("  %-16s%s/s, %.0f requests/s, %.2f s, ", "throughput",
           cli_bytes(a, (uint64_t)rate((double)moved(c), r->seconds)), rate((double)c->requests, r->seconds),
           r->seconds);
    if (r->nodes) /* one client each */
        printf("nodes: %u, at once: %u\n", r->nodes, r->clients);
    else
        printf("clients: %u%s\n", r->clients, r->embedded ? " (embedded)" : "");
    printf("  %-16sp50 %s, ", "request", cli_time(a, (uint64_t)stat_percentile(&c->request, 0.5)));
    printf("p99 %s\n", cli_time(a, (uint64_t)stat_percentile(&c->request, 0.99)));
    if (r->nodes)
        report_nodes_table(r);
    print_phases(c);
    print_next(r);
    cli_flush();
}
