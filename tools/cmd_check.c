/* cmd_check.c: berth check: every difference between index, slots and lookup; exit 1 if there is one. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "store/amount.h"
#include "store/shell/offline.h"
#include "tools/cli.h"

const struct cli_option check_options[] = {
    {"region", 0, "DIR", "a region that no node has open, instead of a node"},
    {0},
};

static int set(void *arg, const char *name, const char *value)
{
    (void)name;
    *(const char **)arg = value;
    return 0;
}

/* Of a region whose node has stopped, or can't start. */
static int offline(const char *region, json_t **report)
{
    char why[512], *text;
    int rc = offline_check(region, &text, why, sizeof why);
    if (rc < 0)
        return cli_report(rc, rc == -EBUSY ? CLI_REFUSED : CLI_FAILED, NULL, why);
    rc = cli_report_text(text, report);
    free(text);
    return rc;
}

static void print(const json_t *report)
{
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(report, "sentences"), i, line) printf("%s\n", json_string_value(line));
    if (json_is_string(json_object_get(report, "invariant")))
        printf("%s\n", json_string_value(json_object_get(report, "invariant")));
    uint64_t records = (uint64_t)cli_json_int(report, "records"), ready = (uint64_t)cli_json_int(report, "slots_ready"),
             entries = (uint64_t)cli_json_int(report, "lookup_entries"),
             only = (uint64_t)cli_json_int(report, "index_only"),
             differences = (uint64_t)cli_json_int(report, "differences");
    printf("%" PRIu64 " record%s, %" PRIu64 " ready slot%s, %" PRIu64 " lookup entr%s (%" PRIu64
           " key%s in the index only): %" PRIu64 " difference%s\n",
           records, plural(records), ready, plural(ready), entries, entries == 1 ? "y" : "ies", only, plural(only),
           differences, plural(differences));
}

/* What is wrong, or NULL. The node's own "error" gives way to ours, which every document has in one form. */
static const char *verdict(json_t *report, char *out, size_t size)
{
    const char *error = json_string_value(json_object_get(report, "error"));
    const char *what = NULL;
    if (error) {
        snprintf(out, size, "the check could not be finished: %s", error);
        what = out;
    } else if (cli_json_int(report, "differences")) {
        what = "index, slots and lookup differ: stop the node and start it again, which repairs lookup";
    } else if (json_is_string(json_object_get(report, "invariant"))) {
        what = "an invariant of the node does not hold: stop it and start it again";
    }
    json_object_del(report, "error");
    return what;
}

static int show(json_t *report)
{
    char room[256];
    const char *what = verdict(report, room, sizeof room);
    if (cli.json && what) {
        json_object_set_new(report, "error", cli_json_error(-EUCLEAN, what));
        json_object_set_new(report, "exit", json_integer(CLI_FAILED));
    }
    if (cli.json)
        cli_json_print(json_incref(report));
    else
        print(report);
    if (!what)
        return CLI_OK;
    cli_flush();
    cli_warn_error(-EUCLEAN, NULL, what);
    return CLI_FAILED;
}

int cmd_check(int argc, char **argv)
{
    const char *region = NULL;
    int first = cli_parse(argc, argv, check_options, set, &region);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    struct berth *b = NULL;
    json_t *report;
    int rc = region ? offline(region, &report) : cli_open(&b, BERTH_OPEN_READER, NULL);
    if (rc)
        return rc;
    if (region || !(rc = cli_report_of(b, BERTH_CHECK, NULL, &report))) {
        rc = show(report);
        json_decref(report);
    }
    berth_close(b);
    return rc;
}
