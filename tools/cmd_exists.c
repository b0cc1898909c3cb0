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

static void show(struct cli_results *r, const struct cli_key *key, int rc)
{
    bool known = rc == 0 || rc == -ENOENT;
    if (!cli.json)
        printf("%s\t%s\n", rc == 0 ? "yes" : known ? "no" : "unsure", key->text);
    if (rc == 0)
        cli_results_ok(r, key, json_pack("{s:b}", "present", 1));
    else if (known)
        cli_results_note(r, key, -ENOENT, CLI_NO_KEY); /* a "no" is an answer */
    else
        cli_results_fail(r, key, rc, NULL);
}

/* One after the other: each has an answer, or a reason of its own why there is none. */
static int ask_peers(struct berth *b, const struct cli_key *keys, const struct berth_key *k, size_t n)
{
    int64_t deadline = cli_deadline();
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++) {
        struct berth_stat st;
        show(&r, &keys[i], r.node_gone ? BERTH_ENODE : berth_stat_peers(b, k[i], &st, deadline));
    }
    return cli_results_end(&r);
}

static int ask(struct berth *b, const struct cli_key *keys, const struct berth_key *k, uint8_t *present, size_t n,
               bool peers)
{
    long found = peers ? 0 : berth_exists(b, k, n, present, 0);
    if (peers || found == BERTH_EUNSURE || found == BERTH_ENOTNOW)
        return ask_peers(b, keys, k, n);
    if (found < 0)
        return cli_fail_last((int)found, NULL);
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++)
        show(&r, &keys[i], present[i] ? 0 : -ENOENT);
    return cli_results_end(&r);
}

static int ask_for(struct berth *b, const struct cli_key *keys, size_t n, uint32_t ns, bool peers)
{
    struct berth_key *k = calloc(n, sizeof *k);
    uint8_t *present = calloc(n, 1);
    int rc = 0;
    for (size_t i = 0; k && i < n; i++)
        k[i] = cli_berth_key(&keys[i], ns);
    if (k && present)
        rc = ask(b, keys, k, present, n, peers);
    else
        rc = cli_fail(-ENOMEM, NULL, "no memory for the keys");
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
        rc = ask_for(b, keys, (size_t)(argc - first), ns, peers);
        berth_close(b);
    }
    free(keys);
    return rc;
}
