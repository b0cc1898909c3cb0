/* cmd_status.c: berth status: one screen for people, the node's whole report with --json. */
#include <inttypes.h>
#include <string.h>

#include "store/amount.h"
#include "tools/cli.h"

const struct cli_option status_options[] = {{0}};

static int set(void *arg, const char *name, const char *value)
{
    (void)arg;
    (void)value;
    return cli_usage("unknown option '--%s'", name);
}

static uint64_t at(const json_t *report, const char *path)
{
    json_int_t n = cli_json_int(report, path);
    return n > 0 ? (uint64_t)n : 0;
}

static const char *text_at(const json_t *report, const char *part, const char *name)
{
    const char *text = json_string_value(json_object_get(json_object_get(report, part), name));
    return text ? text : "";
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_node(const json_t *r)
{
    uint64_t living = at(r, "node/sessions"), others = living ? living - 1 : 0; /* one asks for this */
    printf("node      pid %" PRIu64 ", %" PRIu64 " session%s beside this one\n", at(r, "node/pid"), others,
           plural(others));
    printf("region    %s: %s\n", text_at(r, "region", "path"), text_at(r, "region", "began"));
    if (*text_at(r, "region", "problem"))
        printf("problem   %s\n", text_at(r, "region", "problem"));
    if (*text_at(r, "region", "lock_note"))
        printf("memory    %s\n", text_at(r, "region", "lock_note"));
}

static void print_peers(const json_t *r)
{
    size_t i;
    json_t *peer;
    char a[24], b[24], c[24];
    json_array_foreach(json_object_get(r, "peers"), i, peer)
    {
        const char *why = json_string_value(json_object_get(peer, "why"));
        const char *state = json_string_value(json_object_get(peer, "state"));
        bool up = state && strcmp(state, "up") == 0;
        if (state && strcmp(state, "self") == 0 && why && *why)
            printf("peer      %s is this node: %s\n", json_string_value(json_object_get(peer, "name")), why);
        if (!state || strcmp(state, "self") == 0)
            continue;
        printf("peer      %s at %s: %s", json_string_value(json_object_get(peer, "name")),
               json_string_value(json_object_get(peer, "address")), state);
        uint64_t rtt = at(peer, "rtt_ns");
        if (up)
            printf(", start %" PRIu64 ", rtt %s, %s in, %s out\n", at(peer, "incarnation"),
                   rtt ? cli_time(a, rtt) : "not measured", cli_bytes(b, at(peer, "bytes_in")),
                   cli_bytes(c, at(peer, "bytes_out")));
        else
            printf("%s%s\n", why && *why ? ": " : "", why ? why : "");
    }
}

/* What this node knows of where keys are, and what others may read here. Nothing where there are no peers. */
static void print_home(const json_t *r)
{
    char a[24], b[24];
    if (!json_is_object(json_object_get(r, "home")))
        return;
    printf("home      %" PRIu64 " key%s known (%s of %s), %" PRIu64 " refused for room; %" PRIu64
           " member%s still to tell it\n",
           at(r, "home/entries"), plural(at(r, "home/entries")), cli_bytes(a, at(r, "home/bytes")),
           cli_bytes(b, at(r, "home/room_bytes")), at(r, "home/full"), at(r, "home/missing"),
           plural(at(r, "home/missing")));
    printf("          of this node's changes %" PRIu64 " wait%s for a home; %" PRIu64 " of %zu members know all %s%s\n",
           at(r, "home/queued"), at(r, "home/queued") == 1 ? "s" : "", at(r, "home/current"),
           json_array_size(json_object_get(r, "peers")), at(r, "home/queued") ? "but these" : "of them",
           at(r, "home/held") ? "; held: it was away for long, its homes have not confirmed its objects" : "");
    printf("leases    %" PRIu64 " given to peers keep%s %s (%s of it idle); %" PRIu64 " transfer%s under way; %" PRIu64
           " refused, %" PRIu64 " asked back\n",
           at(r, "remote/leases"), at(r, "remote/leases") == 1 ? "s" : "", cli_bytes(a, at(r, "remote/leased_bytes")),
           cli_bytes(b, at(r, "remote/leased_idle_bytes")), at(r, "remote/serving"), plural(at(r, "remote/serving")),
           at(r, "remote/leases_refused"), at(r, "remote/recalls"));
}

/* How much lies on pages of 2 MiB, as at the start. Nothing where none of it could, or the kernel did not say. */
static void print_pages(const json_t *r)
{
    static const char *const parts[] = {"pool", "lookup", "slots"};
    const json_t *pages = json_object_get(json_object_get(r, "region"), "pages");
    char has[24], all[24];
    const char *before = "pages     on 2 MiB: ";
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *part = json_object_get(pages, parts[i]);
        uint64_t bytes = at(part, "bytes"), huge = at(part, "huge_bytes");
        if (!bytes || !json_is_true(json_object_get(part, "known")))
            continue;
        printf("%s%s %s of %s", before, parts[i], cli_bytes(has, huge), cli_bytes(all, bytes));
        before = ", ";
    }
    if (*before == ',')
        puts("");
}

/* Where the pool's pages were found. Nothing where no NUMA node was asked for. */
static void print_numa(const json_t *r)
{
    const json_t *numa = json_object_get(r, "numa");
    const char *note = json_string_value(json_object_get(numa, "note")), *node;
    char a[24];
    json_t *bytes;
    if (json_array_size(json_object_get(numa, "parts")) == 0)
        return;
    printf("numa     ");
    json_object_foreach(json_object_get(numa, "found_bytes"), node, bytes)
        printf(" node %s: %s;", node, cli_bytes(a, (uint64_t)json_integer_value(bytes)));
    printf(" %s; %" PRIu64 " slot%s spilled\n",
           json_is_true(json_object_get(numa, "as_asked")) ? "as asked" : "not as asked", at(r, "numa/spilled"),
           plural(at(r, "numa/spilled")));
    if (note && *note)
        printf("          %s\n", note);
}

/* How many sizes slots have, and which of them the node learned. */
static void print_classes(const json_t *r)
{
    const json_t *list = json_object_get(json_object_get(r, "slots"), "classes"), *c;
    size_t i, learned = 0;
    char a[24];
    json_array_foreach(list, i, c) learned += json_is_true(json_object_get(c, "learned"));
    printf("          slots of %zu size%s, %.1f%% waste; %zu learned%s", json_array_size(list),
           plural(json_array_size(list)), percent(at(r, "pool/waste_bytes"), at(r, "pool/sealed_bytes")), learned,
           learned > 0 ? ":" : "");
    json_array_foreach(list, i, c)
    {
        if (json_is_true(json_object_get(c, "learned")))
            printf(" %s", cli_bytes(a, at(c, "bytes")));
    }
    putchar('\n');
}

/* Of namespaces that have one. */
static void print_shares(const json_t *r)
{
    const char *name;
    json_t *share;
    char a[24], b[24];
    json_object_foreach(json_object_get(r, "shares"), name, share)
    {
        printf("share     %s: %s used of %s\n", name, cli_bytes(a, at(share, "used_bytes")),
               cli_bytes(b, at(share, "share_bytes")));
    }
}

static void print_space(const json_t *r)
{
    char a[24], b[24], c[24];
    uint64_t bytes = at(r, "pool/bytes"), used = at(r, "pool/used_bytes");
    printf("pool      %s used of %s (%.1f%%), %s free, largest %s\n", cli_bytes(a, used), cli_bytes(b, bytes),
           percent(used, bytes), cli_bytes(c, at(r, "pool/free_bytes")),
           cli_bytes((char[24]){0}, at(r, "pool/largest_free_bytes")));
    print_pages(r);
    print_numa(r);
    printf("objects   %" PRIu64 ", %s in %s of slots; %" PRIu64 " held\n", at(r, "slots/objects"),
           cli_bytes(a, at(r, "pool/object_bytes")), cli_bytes(b, at(r, "pool/sealed_bytes")), at(r, "slots/held"));
    print_classes(r);
    print_shares(r);
    printf("          %" PRIu64 " draft%s (%s), %" PRIu64 " retired and still pinned (%s)\n", at(r, "slots/drafts"),
           plural(at(r, "slots/drafts")), cli_bytes(a, at(r, "pool/draft_bytes")), at(r, "slots/retired"),
           cli_bytes(b, at(r, "pool/retired_bytes")));
    printf("index     %" PRIu64 " record%s, %s used of %s (%.1f%%)\n", at(r, "index/records"),
           plural(at(r, "index/records")), cli_bytes(a, at(r, "index/used_bytes")),
           cli_bytes(b, at(r, "index/map_bytes")), percent(at(r, "index/used_bytes"), at(r, "index/map_bytes")));
}

/* Nothing where there was none. */
static void print_purges(const json_t *r)
{
    uint64_t n = at(r, "counters/purges"), objects = at(r, "counters/purged"), going = at(r, "purges");
    if (n || going)
        printf("purged    %" PRIu64 " object%s; %" PRIu64 " purge%s begun, %" PRIu64 " under way\n", objects,
               plural(objects), n, plural(n), going);
}

static void print_traffic(const json_t *r)
{
    char a[24], b[24];
    uint64_t hits = at(r, "local/hits"), gets = at(r, "local/gets"), pulled = at(r, "local/pulled");
    printf("reads     %" PRIu64 ", hit ratio %.1f%%, %s; ", gets, percent(hits, gets),
           cli_bytes(a, at(r, "local/hit_bytes")));
    if (pulled)
        printf("from peers %" PRIu64 " (%.1f%%), %s; ", pulled, percent(pulled, gets),
               cli_bytes(b, at(r, "local/pulled_bytes")));
    if (at(r, "local/samples"))
        printf("p50 %s, p99 %s\n", cli_time(a, at(r, "local/get_p50_ns")), cli_time(b, at(r, "local/get_p99_ns")));
    else
        puts("not sampled yet");
    printf("puts      %" PRIu64 " (%s), %" PRIu64 " kept, %" PRIu64 " replaced, %" PRIu64 " removed\n",
           at(r, "counters/puts"), cli_bytes(a, at(r, "counters/put_bytes")), at(r, "counters/puts_kept"),
           at(r, "counters/replaced"), at(r, "counters/removed"));
    if (at(r, "counters/copies"))
        printf("copies    %" PRIu64 " (%s) of objects of other nodes were kept here\n", at(r, "counters/copies"),
               cli_bytes(a, at(r, "counters/copy_bytes")));
    print_purges(r);
    printf("evicted   %" PRIu64 " (%s)\n", at(r, "counters/evicted"), cli_bytes(a, at(r, "counters/evicted_bytes")));
    printf("refused   %" PRIu64 " full, %" PRIu64 " index full, %" PRIu64 " held, %" PRIu64 " quota; %" PRIu64
           " timed out\n",
           at(r, "counters/refused_full"), at(r, "counters/refused_index_full"), at(r, "counters/refused_held"),
           at(r, "counters/refused_quota"), at(r, "counters/timeouts"));
}

/* A quantile is the upper end of a histogram's step: digits below a microsecond would say more than is known. */
static const char *phase_time(char out[24], const json_t *phase, const char *name)
{
    uint64_t ns = at(phase, name);
    if (!at(phase, "count"))
        snprintf(out, 24, "-");
    else if (ns < 1000)
        snprintf(out, 24, "< 1 us");
    else
        cli_time(out, ns);
    return out;
}

/* Transfers from and to each peer that had any. */
static void print_transfers(const json_t *r)
{
    const char *name;
    json_t *peer, *in = json_object_get(json_object_get(r, "pull"), "by");
    char a[24], b[24], c[24];
    json_object_foreach(in, name, peer)
    {
        json_t *out = json_object_get(json_object_get(json_object_get(r, "remote"), "by"), name);
        if (!at(peer, "reads") && !at(out, "serves"))
            continue;
        printf("moved     %s: %s in (%" PRIu64 " transfer%s, %s, %s by a CPU), %s out (%" PRIu64 ")\n", name,
               cli_bytes(a, at(peer, "moved_bytes")), at(peer, "transfers_done"), plural(at(peer, "transfers_done")),
               json_string_value(json_object_get(peer, "transport")), cli_bytes(b, at(peer, "copied_bytes")),
               cli_bytes(c, at(out, "bytes_sent")), at(out, "served"));
    }
}

static void print_pulls(const json_t *r)
{
    const char *cause;
    json_t *n, *pull = json_object_get(r, "pull");
    if (!at(pull, "done") && !at(pull, "failed"))
        return;
    printf("pulls     %" PRIu64 " key%s, %" PRIu64 " of them shared a transfer; %" PRIu64
           " transfer%s verified, %" PRIu64 " not; failed %" PRIu64,
           at(pull, "done"), plural(at(pull, "done")), at(pull, "shared"), at(pull, "verified"),
           plural(at(pull, "verified")), at(pull, "unverified"), at(pull, "failed"));
    const char *between = ":";
    json_object_foreach(json_object_get(pull, "failed_by"), cause, n)
    {
        if (json_integer_value(n) == 0)
            continue;
        printf("%s %" PRIu64 " %s", between, (uint64_t)json_integer_value(n), cause);
        between = ",";
    }
    puts("");
}

static void print_phases(const char *title, const json_t *phases)
{
    const char *name;
    json_t *phase;
    printf("%-12s %12s %10s %10s\n", title, "count", "p50", "p99");
    json_object_foreach((json_t *)phases, name, phase)
    {
        char p50[24], p99[24];
        printf("%-12s %12" PRIu64 " %10s %10s\n", name, at(phase, "count"), phase_time(p50, phase, "p50_ns"),
               phase_time(p99, phase, "p99_ns"));
    }
}

int cmd_status(int argc, char **argv)
{
    int first = cli_parse(argc, argv, status_options, set, NULL);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    struct berth *b;
    json_t *report;
    int rc = cli_open(&b, BERTH_OPEN_READER, NULL);
    if (rc)
        return rc;
    rc = cli_report_of(b, BERTH_STATUS, NULL, &report);
    berth_close(b);
    if (rc)
        return rc;
    if (cli.json) {
        cli_json_print(report);
        return CLI_OK;
    }
    print_node(report);
    print_peers(report);
    print_home(report);
    print_space(report);
    print_traffic(report);
    print_pulls(report);
    print_transfers(report);
    print_phases("phase", json_object_get(report, "phases"));
    if (at(report, "pull/done") || at(report, "pull/failed"))
        print_phases("pull phase", json_object_get(json_object_get(report, "pull"), "phases"));
    json_decref(report);
    return CLI_OK;
}
