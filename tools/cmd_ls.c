/* cmd_ls.c: berth ls [PREFIX]. A listing may be long: it is printed as it comes, in JSON too. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "store/shell/log.h"
#include "tools/cli.h"

const struct cli_option ls_options[] = {
    {"long", 'l', NULL, "with size, holds, time and version"},
    {"limit", 0, "N", "stop after N keys"},
    {0},
};

#define BATCH 128
#define VERSION_WIDTH 24

struct ls {
    struct berth *b;
    uint32_t ns;
    struct cli_key prefix;
    bool details;
    uint64_t limit, shown;
};

static int set(void *arg, const char *name, const char *value)
{
    struct ls *l = arg;
    if (!strcmp(name, "limit"))
        return cli_number("--limit", value, 1, INT64_MAX, &l->limit);
    l->details = true;
    return 0;
}

static void print_json(const struct berth_entry *e, const char *key, bool first)
{
    json_t *item =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "key", key, "size", (json_int_t)e->size, "slot_bytes",
                  (json_int_t)e->slot_bytes, "holds", (json_int_t)e->n_holds, "created_us", (json_int_t)e->created_us,
                  "lineage", cli_json_hex(e->lineage), "version", cli_json_version(e->version));
    fputs(first ? "" : ", ", stdout);
    json_dumpf(item, stdout, JSON_ENSURE_ASCII);
    json_decref(item);
}

static void print_long(const struct berth_entry *e, const char *key)
{
    char when[32], version[48];
    snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, e->version.counter, e->version.region);
    printf("%12" PRIu64 " %5" PRIu32 "  %-23s  %-*s  %s\n", e->size, e->n_holds, cli_date(when, e->created_us),
           VERSION_WIDTH, version, key);
}

static void print(struct ls *l, const struct berth_entry *e)
{
    char key[CLI_KEY_TEXT];
    uint32_t size = e->key_size < BERTH_KEY_MAX ? e->key_size : BERTH_KEY_MAX;
    escape_bytes(key, sizeof key, e->key, size);
    if (cli.json)
        print_json(e, key, !l->shown);
    else if (l->details)
        print_long(e, key);
    else
        puts(key);
    l->shown++;
}

static long list(struct ls *l)
{
    static struct berth_entry entries[BATCH];
    struct berth_cursor cursor = {0};
    for (;;) {
        uint64_t left = l->limit ? l->limit - l->shown : BATCH;
        long n = left ? berth_list(l->b, l->ns, l->prefix.data, l->prefix.size, &cursor, entries,
                                   left < BATCH ? left : BATCH)
                      : 0;
        if (n <= 0)
            return n;
        for (long i = 0; i < n; i++)
            print(l, &entries[i]);
        if (ferror(stdout))
            return 0; /* main says why */
    }
}

static int run(struct ls *l)
{
    if (cli.json)
        printf("{\"schema\": %d, \"command\": \"%s\", \"entries\": [", CLI_SCHEMA, cli.command);
    else if (l->details && isatty(STDOUT_FILENO))
        printf("%12s %5s  %-23s  %-*s  %s\n", "size", "holds", "created", VERSION_WIDTH, "version", "key");
    long rc = list(l);
    if (rc >= 0) {
        if (cli.json)
            puts("]}");
        return CLI_OK;
    }
    char sentence[256];
    cli_last_sentence((int)rc, sentence, sizeof sentence);
    int code = cli_exit_code((int)rc);
    if (cli.json) { /* the document was begun: end it with the error inside */
        json_t *error = cli_json_error((int)rc, sentence);
        fputs("], \"error\": ", stdout);
        json_dumpf(error, stdout, JSON_ENSURE_ASCII);
        printf(", \"exit\": %d}\n", code);
        json_decref(error);
    }
    cli_flush();
    cli_warn_error((int)rc, NULL, sentence);
    return code;
}

int cmd_ls(int argc, char **argv)
{
    struct ls l = {0};
    int first = cli_parse(argc, argv, ls_options, set, &l);
    if (first <= 0)
        return -first;
    if (argc - first > 1)
        return cli_usage("one prefix at most");
    int rc = argc > first && *argv[first] ? cli_key(argv[first], &l.prefix) : 0;
    if (rc || (rc = cli_open(&l.b, BERTH_OPEN_READER, &l.ns)))
        return rc;
    rc = run(&l);
    berth_close(l.b);
    return rc;
}
