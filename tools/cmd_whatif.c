/* cmd_whatif.c: berth whatif: the hit ratio against capacity, from the node's simulations. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_option whatif_options[] = {
    {"lineage", 0, "TAG", "only of this tag, as stat shows it; of a namespace: -N NAME, '' is the default one"},
    {0},
};

static int set(void *arg, const char *name, const char *value)
{
    (void)name;
    return cli_number("--lineage", value, 1, UINT64_MAX, arg);
}

static const json_t *find(const json_t *list, const char *name, const char *value)
{
    size_t i;
    const json_t *o;
    json_array_foreach((json_t *)list, i, o)
    {
        const char *is = json_string_value(json_object_get(o, name));
        if (is && !strcmp(is, value))
            return o;
    }
    return NULL;
}

static void print_ratio(const json_t *curve, size_t i)
{
    const json_t *r = json_object_get(json_array_get(curve, i), "hit_ratio");
    if (json_is_real(r))
        printf(" %7.2f %%", 100 * json_real_value(r));
    else
        printf(" %9s", "-");
}

static void print_line(const char *name, const json_t *sums)
{
    const json_t *curve = json_object_get(sums, "since_start");
    printf("%-24.24s %12" JSON_INTEGER_FORMAT, name, cli_json_int(sums, "references"));
    for (size_t i = 0; i < json_array_size(curve); i++)
        print_ratio(curve, i);
    putchar('\n');
}

static void print_all(const json_t *report)
{
    char size[24];
    const json_t *all = json_object_get(report, "all"), *since = json_object_get(all, "since_start"),
                 *recent = json_object_get(all, "recent");
    printf("%12s %11s %9s\n", "capacity", "since start", "recently");
    for (size_t i = 0; i < json_array_size(since); i++) {
        printf("%12s  ", cli_bytes(size, (uint64_t)cli_json_int(json_array_get(since, i), "capacity_bytes")));
        print_ratio(since, i);
        print_ratio(recent, i);
        puts(i == 1 ? "  as it is" : "");
    }
}

static void print_list(const json_t *list, const char *title, const char *name)
{
    size_t i;
    const json_t *o;
    if (json_array_size(list) == 0)
        return;
    printf("\n%-24s %12s %9s %9s %9s %9s\n", title, "references", "x 1/2", "x 1", "x 2", "x 4");
    json_array_foreach((json_t *)list, i, o)
    {
        const char *text = json_string_value(json_object_get(o, name));
        print_line(text ? (*text ? text : "(default)") : "(unknown)", o);
    }
}

static void print(const json_t *report)
{
    print_all(report);
    print_list(json_object_get(report, "namespaces"), "namespace", "namespace");
    print_list(json_object_get(report, "lineages"), "lineage", "lineage");
    double rate = json_real_value(json_object_get(report, "sample_rate"));
    if (rate < 1)
        printf("\nOne tree of prefixes in %.0f is simulated: figures are estimates, but for the hit ratio of all since "
               "the start as it is.\n",
               1 / rate);
    else
        puts("\nAll trees of prefixes are simulated.");
}

/* Only the entry that was asked for is left. */
static int choose(json_t *report, const char *list, const char *name, const char *value)
{
    const json_t *o = find(json_object_get(report, list), name, value);
    if (!o)
        return cli_fail(-ENOENT, *value ? value : "the default namespace",
                        "no reference to it was simulated, or others had more");
    json_t *one = json_array();
    json_array_append(one, (json_t *)o);
    json_object_set_new(report, list, one);
    json_object_set_new(report, strcmp(list, "lineages") ? "lineages" : "namespaces", json_array());
    return 0;
}

static int check(uint64_t lineage)
{
    if (cli.ns_given && lineage)
        return cli_usage("-N or --lineage, not both: figures are by one or the other");
    return strlen(cli.ns) > 63 ? cli_usage("-N: a namespace's name has at most 63 bytes") : 0;
}

int cmd_whatif(int argc, char **argv)
{
    uint64_t lineage = 0; /* not given */
    struct berth *b;
    json_t *report;
    char tag[24];
    int first = cli_parse(argc, argv, whatif_options, set, &lineage);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    int rc = check(lineage);
    if (rc || (rc = cli_open(&b, BERTH_OPEN_READER, NULL)))
        return rc;
    rc = cli_report_of(b, BERTH_WHATIF, NULL, &report);
    berth_close(b);
    if (rc)
        return rc;
    snprintf(tag, sizeof tag, "%" PRIu64, lineage);
    if (cli.ns_given)
        rc = choose(report, "namespaces", "namespace", cli.ns);
    else if (lineage)
        rc = choose(report, "lineages", "lineage", tag);
    if (!rc && cli.json) {
        cli_json_print(report);
        return CLI_OK;
    }
    if (!rc)
        print(report);
    json_decref(report);
    return rc;
}
