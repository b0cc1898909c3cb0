/* cmd_purge.c: berth purge --lineage TAG | [-N NAME] --prefix PREFIX | -N NAME --all. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "store/amount.h"
#include "tools/cli.h"

const struct cli_option purge_options[] = {
    {"lineage", 0, "TAG", "objects with this tag, as stat shows it, in every namespace"},
    {"prefix", 0, "PREFIX", "keys that begin so, in the namespace of -N"},
    {"all", 0, NULL, "all of the namespace that -N names; -N '' is the default one"},
    {0},
};

struct purge {
    struct berth_purge what;
    struct cli_key prefix;
    unsigned given;
};

static int set(void *arg, const char *name, const char *value)
{
    struct purge *p = arg;
    p->given++;
    if (!strcmp(name, "lineage")) {
        p->what.kind = BERTH_PURGE_LINEAGE;
        return cli_number("--lineage", value, 1, UINT64_MAX, &p->what.lineage);
    }
    if (!strcmp(name, "all")) {
        p->what.kind = BERTH_PURGE_NAMESPACE;
        return 0;
    }
    p->what.kind = BERTH_PURGE_PREFIX;
    int rc = cli_key(value, &p->prefix);
    p->what.prefix = p->prefix.data;
    p->what.prefix_size = p->prefix.size;
    return rc;
}

/* The id of a namespace that is there: a purge makes none. */
static int find_namespace(uint32_t *ns)
{
    struct berth *reader;
    int rc = cli_open(&reader, BERTH_OPEN_READER, ns);
    if (rc == 0)
        berth_close(reader);
    return rc;
}

static void print(const struct berth_purged *did)
{
    char size[24];
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "removed", json_integer((json_int_t)did->removed));
        json_object_set_new(doc, "bytes", json_integer((json_int_t)did->bytes));
        json_object_set_new(doc, "held", json_integer((json_int_t)did->held));
        json_object_set_new(doc, "drafts", json_integer((json_int_t)did->drafts));
        json_object_set_new(doc, "untold", json_integer((json_int_t)did->untold));
        cli_json_print(doc);
        return;
    }
    printf("%" PRIu64 " removed (%s)\n", did->removed, cli_bytes(size, did->bytes));
    if (did->held)
        printf("%" PRIu64 " held, and passed over\n", did->held);
    if (did->drafts)
        printf("%" PRIu64 " draft%s that can't be sealed any more\n", did->drafts, plural(did->drafts));
    if (did->untold)
        printf("%" PRIu64 " of them from this node only: too many removals wait for other nodes\n", did->untold);
}

/* Nothing that is left out makes it more. */
static int check(const struct purge *p)
{
    if (p->given == 0)
        return cli_usage("say what goes: --lineage TAG, --prefix PREFIX in the namespace of -N, or --all of the "
                         "namespace that -N names");
    if (p->given > 1)
        return cli_usage("--lineage, --prefix and --all can't be combined: give one of them, once");
    if (p->what.kind == BERTH_PURGE_LINEAGE && cli.ns_given)
        return cli_usage("--lineage is of every namespace, and -N of one: leave -N out, or purge with -N NAME --all");
    if (p->what.kind == BERTH_PURGE_NAMESPACE && !cli.ns_given)
        return cli_usage("--all is all of one namespace: name it with -N NAME (-N '' is the default one)");
    return 0;
}

int cmd_purge(int argc, char **argv)
{
    struct purge p = {0};
    struct berth_purged did;
    struct berth *b;
    int first = cli_parse(argc, argv, purge_options, set, &p);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    int rc = check(&p);
    if (rc || (rc = find_namespace(&p.what.ns)) || (rc = cli_open(&b, 0, NULL)))
        return rc;
    int error = berth_purge(b, &p.what, cli_deadline(), &did);
    if (error < 0)
        rc = cli_fail_last(error, NULL);
    else
        print(&did);
    berth_close(b);
    return rc;
}
