/* cmd_check.c: berth check: every difference between index, slots and lookup; exit 1 if there is one. */
#include <errno.h>
#include <inttypes.h>

#include "tools/cli.h"

const struct cli_option check_options[] = {{0}};

static int set(void *arg, const char *name, const char *value)
{
    (void)arg;
    (void)value;
    return cli_usage("unknown option '--%s'", name);
}

static void print(const json_t *report)
{
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(report, "sentences"), i, line) printf("%s\n", json_string_value(line));
    if (json_is_string(json_object_get(report, "invariant")))
        printf("%s\n", json_string_value(json_object_get(report, "invariant")));
    printf("%" PRIi64 " records, %" PRIi64 " ready slots, %" PRIi64 " lookup entries (%" PRIi64
           " keys in the index only): "
           "%" PRIi64 " differences\n",
           (int64_t)cli_json_int(report, "records"), (int64_t)cli_json_int(report, "slots_ready"),
           (int64_t)cli_json_int(report, "lookup_entries"), (int64_t)cli_json_int(report, "index_only"),
           (int64_t)cli_json_int(report, "differences"));
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
    fflush(stdout);
    cli_warn("%s", what);
    return CLI_FAILED;
}

int cmd_check(int argc, char **argv)
{
    int first = cli_parse(argc, argv, check_options, set, NULL);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    struct berth *b;
    json_t *report;
    int rc = cli_open(&b, BERTH_OPEN_READER, NULL);
    if (rc)
        return rc;
    if (!(rc = cli_report_of(b, BERTH_CHECK, NULL, &report))) {
        rc = show(report);
        json_decref(report);
    }
    berth_close(b);
    return rc;
}
