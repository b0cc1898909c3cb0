/* cmd_exists.c: berth exists KEY.. */
#include <errno.h>
#include <stdlib.h>

#include "tools/cli.h"

const struct cli_option exists_options[] = {
    {"peers", 'p', NULL, "on the node's peers, too"},
    {0},
};

static int set(void *arg, const char *name, const char *value)
{
    (void)name;
    (void)value;
    *(bool *)arg = true;
    return 0;
}

static void show(struct cli_results *r, const struct cli_key *key, bool present)
{
    if (!cli.json)
        printf("%s\t%s\n", present ? "yes" : "no", key->text);
    if (present)
        cli_results_ok(r, key, json_pack("{s:b}", "present", 1));
    else
        cli_results_note(r, key, -ENOENT, CLI_NO_KEY); /* a "no" is an answer */
}

/* One after the other: as berth_exists, or the first error. */
static long exists_at_peers(struct berth *b, const struct berth_key *keys, size_t n, uint8_t *present)
{
    int64_t deadline = cli_deadline();
    long found = 0;
    for (size_t i = 0; i < n; i++) {
        struct berth_stat st;
        int rc = berth_stat_peers(b, keys[i], &st, deadline);
        if (rc < 0 && rc != -ENOENT)
            return rc;
        present[i] = rc == 0;
        found += rc == 0;
    }
    return found;
}

static int ask(struct berth *b, const struct cli_key *keys, size_t n, uint32_t ns, bool peers)
{
    struct berth_key *k = calloc(n, sizeof *k);
    uint8_t *present = calloc(n, 1);
    int rc = 0;
    if (!k || !present) {
        rc = cli_fail(-ENOMEM, NULL, "no memory for the keys");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        k[i] = cli_berth_key(&keys[i], ns);
    long found = peers ? exists_at_peers(b, k, n, present) : berth_exists(b, k, n, present, 0);
    if (found < 0) {
        rc = cli_fail_last((int)found, NULL);
        goto out;
    }
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++)
        show(&r, &keys[i], present[i]);
    rc = cli_results_end(&r);
out:
    free(present);
    free(k);
    return rc;
}

int cmd_exists(int argc, char **argv)
{
    bool peers = false;
    int first = cli_parse(argc, argv, exists_options, set, &peers);
    if (first <= 0)
        return -first;
    struct cli_key *keys;
    struct berth *b;
    uint32_t ns;
    int rc = cli_keys(argv + first, (size_t)(argc - first), &keys);
    if (rc)
        return rc;
    if (!(rc = cli_open(&b, BERTH_OPEN_READER, &ns))) {
        rc = ask(b, keys, (size_t)(argc - first), ns, peers);
        berth_close(b);
    }
    free(keys);
    return rc;
}
