/* cmd_stat.c: berth stat KEY.. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/shell/log.h"
#include "tools/cli.h"

const struct cli_option stat_options[] = {
    {"peers", 'p', NULL, "of what is not here, what the node's peers say"},
    {0},
};

#define HOLDS_SHOWN 16u

static int set(void *arg, const char *name, const char *value)
{
    (void)name;
    (void)value;
    *(bool *)arg = true;
    return 0;
}

static uint32_t holds_shown(const struct berth_stat *st)
{
    return st->n_holds < HOLDS_SHOWN ? st->n_holds : HOLDS_SHOWN;
}

/* Whole seconds until its ttl has passed, rounded up; 0: it has. */
static uint64_t ttl_left_s(const struct berth_stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* created_us is of the node's host, which is this one */
    uint64_t now_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    uint64_t old_us = now_us > st->created_us ? now_us - st->created_us : 0, all_us = (uint64_t)st->ttl_s * 1000000;
    return old_us < all_us ? (all_us - old_us + 999999) / 1000000 : 0;
}

static json_t *detail(const struct berth_stat *st)
{
    json_t *holds = json_array();
    for (uint32_t i = 0; i < holds_shown(st); i++) {
        char label[4 * BERTH_LABEL_MAX + 1];
        escape_bytes(label, sizeof label, st->holds[i].label, strnlen(st->holds[i].label, BERTH_LABEL_MAX));
        json_array_append_new(holds,
                              json_pack("{s:s, s:I}", "label", label, "ttl_ns", (json_int_t)st->holds[i].ttl_ns));
    }
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:o}", "size", (json_int_t)st->size,
        "segment", (json_int_t)st->segment, "slot_bytes", (json_int_t)st->slot_bytes, "version",
        cli_json_version(st->version), "checksum", cli_json_hex(st->checksum), "lineage", cli_json_hex(st->lineage),
        "created_us", (json_int_t)st->created_us, "slot", (json_int_t)st->slot, "generation",
        (json_int_t)st->generation, "priority", st->priority, "tier", st->tier, "ttl_s", (json_int_t)st->ttl_s,
        "namespace_id", (json_int_t)st->ns, "n_holds", (json_int_t)st->n_holds, "holds", holds);
    if (st->ttl_s)
        json_object_set_new(o, "ttl_left_s", json_integer((json_int_t)ttl_left_s(st)));
    return o;
}

static void print_holds(const struct berth_stat *st)
{
    for (uint32_t i = 0; i < holds_shown(st); i++) {
        char label[4 * BERTH_LABEL_MAX + 1], left[24];
        escape_bytes(label, sizeof label, st->holds[i].label, strnlen(st->holds[i].label, BERTH_LABEL_MAX));
        if (st->holds[i].ttl_ns)
            printf("  hold        %s, %s left\n", label, cli_time(left, (uint64_t)st->holds[i].ttl_ns));
        else
            printf("  hold        %s\n", label);
    }
    if (st->n_holds > HOLDS_SHOWN)
        printf("  holds       %" PRIu32 " in all\n", st->n_holds);
}

static void print_ttl(const struct berth_stat *st)
{
    uint64_t left = ttl_left_s(st);
    if (left)
        printf("  ttl         %" PRIu32 " s, %" PRIu64 " s left; then it may be evicted before others\n", st->ttl_s,
               left);
    else
        printf("  ttl         %" PRIu32 " s, passed: it may be evicted before others\n", st->ttl_s);
}

static void print(const struct cli_key *key, const struct berth_stat *st)
{
    char size[24], slot[24], segment[24], when[32];
    printf("%s\n", key->text);
    printf("  size        %" PRIu64 " (%s)", st->size, cli_bytes(size, st->size));
    if (st->slot_bytes) /* of a node of another host only what its lease says is known */
        printf(", takes %s", cli_bytes(slot, st->slot_bytes));
    putchar('\n');
    if (st->segment)
        printf("  segments    %" PRIu64 " of %s\n", (st->size + st->segment - 1) / st->segment,
               cli_bytes(segment, st->segment));
    printf("  version     %" PRIu64 ":%" PRIu64 "\n", st->version.counter, st->version.region);
    printf("  checksum    0x%016" PRIx64 "\n", st->checksum);
    printf("  lineage     0x%016" PRIx64 "\n", st->lineage);
    if (st->slot_bytes) {
        printf("  created     %s\n", cli_date(when, st->created_us));
        printf("  slot        %" PRIu32 ", generation %" PRIu64 "\n", st->slot, st->generation);
        printf("  priority    %u\n", st->priority);
    }
    if (st->ttl_s)
        print_ttl(st);
    print_holds(st);
}

static int stat_one(struct berth *b, const struct cli_key *key, uint32_t ns, bool peers, struct berth_stat *st)
{
    struct berth_key k = cli_berth_key(key, ns);
    return peers ? berth_stat_peers(b, k, st, cli_deadline()) : berth_stat(b, k, st);
}

static int ask(struct berth *b, const struct cli_key *keys, size_t n, uint32_t ns, bool peers)
{
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++) {
        struct berth_stat st;
        int rc = r.node_gone ? BERTH_ENODE : stat_one(b, &keys[i], ns, peers, &st);
        if (rc < 0) {
            cli_results_fail(&r, &keys[i], rc, rc == -ENOENT ? cli_missing(b, peers) : NULL);
            continue;
        }
        if (!cli.json)
            print(&keys[i], &st);
        cli_results_ok(&r, &keys[i], cli.json ? detail(&st) : NULL);
    }
    return cli_results_end(&r);
}

int cmd_stat(int argc, char **argv)
{
    bool peers = false;
    int first = cli_parse(argc, argv, stat_options, set, &peers);
    if (first <= 0)
        return -first;
    struct cli_key *keys;
    struct berth *b;
    uint32_t ns;
    int rc = cli_keys(argv + first, (size_t)(argc - first), &keys);
    if (rc)
        return rc;
    if (!(rc = cli_open(&b, cli_reader(peers), &ns))) {
        rc = ask(b, keys, (size_t)(argc - first), ns, peers);
        berth_close(b);
    }
    free(keys);
    return rc;
}
