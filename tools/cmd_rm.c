/* cmd_rm.c: berth rm KEY.. [--version C:R]. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_option rm_options[] = {
    {"version", 0, "C:R", "only this version, as stat shows it; one key"},
    {0},
};

struct rm {
    struct berth_version version;
    bool expected;
};

static int set(void *arg, const char *name, const char *value)
{
    struct rm *r = arg;
    char *end = NULL, *last = NULL;
    (void)name;
    errno = 0;
    r->version.counter = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
    r->version.region = end && *end == ':' && isdigit((unsigned char)end[1]) ? strtoull(end + 1, &last, 10) : 0;
    if (!last || *last || errno)
        return cli_usage("--version: '%s' is no version: use COUNTER:REGION, as stat shows it", value);
    r->expected = true;
    return 0;
}

static int remove_keys(struct berth *b, const struct rm *o, const struct cli_key *keys, size_t n, uint32_t ns)
{
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++) {
        int rc =
            r.node_gone ? BERTH_ENODE : berth_remove(b, cli_berth_key(&keys[i], ns), o->expected ? &o->version : NULL);
        if (rc < 0)
            cli_results_fail(&r, &keys[i], rc,
                             rc == -ENOENT ? cli_missing_here(b, CLI_COPY_ELSEWHERE, CLI_NO_KEY) : NULL);
        else
            cli_results_ok(&r, &keys[i], NULL);
    }
    return cli_results_end(&r);
}

int cmd_rm(int argc, char **argv)
{
    struct rm o = {0};
    int first = cli_parse(argc, argv, rm_options, set, &o);
    if (first <= 0)
        return -first;
    if (o.expected && argc - first > 1)
        return cli_usage("--version belongs to one key, and there are %d", argc - first);
    struct cli_key *keys;
    struct berth *b;
    uint32_t ns;
    int rc = cli_keys(argv + first, (size_t)(argc - first), &keys);
    if (rc)
        return rc;
    if (!(rc = cli_open(&b, 0, &ns))) {
        rc = remove_keys(b, &o, keys, (size_t)(argc - first), ns);
        berth_close(b);
    }
    free(keys);
    return rc;
}
