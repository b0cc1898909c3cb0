/* cmd_hold.c: berth hold and berth drop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_option hold_options[] = {
    {"label", 'l', "LABEL", "the hold's name, 1 to 63 bytes; has to be given"},
    {"ttl", 0, "DURATION", "ends by itself after this time; default never"},
    {0},
};
const struct cli_option drop_options[] = {
    {"label", 'l', "LABEL", "the hold's name; has to be given"},
    {0},
};

struct hold {
    const char *label;
    int64_t ttl_ns;
};

static int set(void *arg, const char *name, const char *value)
{
    struct hold *h = arg;
    if (!strcmp(name, "ttl")) {
        int rc = cli_duration("--ttl", value, &h->ttl_ns);
        return rc || h->ttl_ns > 0 ? rc : cli_usage(CLI_TTL_NONE, value);
    }
    if (!*value || strlen(value) > BERTH_LABEL_MAX)
        return cli_usage("--label: a label has 1 to %u bytes", BERTH_LABEL_MAX);
    h->label = value;
    return 0;
}

/* Of a drop it may be the label that is unknown. */
static const char *missing(struct berth *b, bool drop)
{
    return drop ? cli_missing_here(b,
                                   "no such key on this node, or no hold of that label: a hold is dropped at the node "
                                   "that has it (-n)",
                                   CLI_NO_KEY ", or no hold of that label")
                : cli_missing_here(b, CLI_COPY_ELSEWHERE, CLI_NO_KEY);
}

static int each_key(struct berth *b, const struct hold *h, bool drop, const struct cli_key *keys, size_t n, uint32_t ns)
{
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++) {
        struct berth_key key = cli_berth_key(&keys[i], ns);
        int rc = r.node_gone ? BERTH_ENODE
                 : drop      ? berth_drop(b, key, h->label)
                             : berth_hold(b, key, h->label, h->ttl_ns);
        if (rc < 0)
            cli_results_fail(&r, &keys[i], rc, rc == -ENOENT ? missing(b, drop) : NULL);
        else
            cli_results_ok(&r, &keys[i], NULL);
    }
    return cli_results_end(&r);
}

static int run(int argc, char **argv, const struct cli_option *options, bool drop)
{
    struct hold h = {0};
    int first = cli_parse(argc, argv, options, set, &h);
    if (first <= 0)
        return -first;
    if (!h.label)
        return cli_usage("--label is missing");
    struct cli_key *keys;
    struct berth *b;
    uint32_t ns;
    int rc = cli_keys(argv + first, (size_t)(argc - first), &keys);
    if (rc)
        return rc;
    if (!(rc = cli_open(&b, 0, &ns))) {
        rc = each_key(b, &h, drop, keys, (size_t)(argc - first), ns);
        berth_close(b);
    }
    free(keys);
    return rc;
}

int cmd_hold(int argc, char **argv)
{
    return run(argc, argv, hold_options, false);
}

int cmd_drop(int argc, char **argv)
{
    return run(argc, argv, drop_options, true);
}
