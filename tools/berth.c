/* berth.c: the command table, from which dispatch, help, completion and `berth help --json` are made, and main. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "store/fd.h"
#include "tools/cli.h"

static int cmd_help(int argc, char **argv);
static int cmd_completion(int argc, char **argv);
static const struct cli_option no_options[] = {{0}};

#define OWN_NODE "It starts a berthd of its own and ignores $BERTH_NODE; -n URL takes a node that runs instead."
#define BENCH_NOTES                                                                                             \
    OWN_NODE " On that it puts no more than fits without evicting what is there, and removes it again. --json " \
             "prints one document for each CASE, a line each."
#define REPLAY_NOTES                                                                                                \
    OWN_NODE " Its blocks stay there, and may push out what others have put. One client with room for few "         \
             "requests (16 of the longest) waits for eviction after each: then two runs give the same hits. "       \
             "Otherwise the node evicts while the next request is under way, and a few hits come and go. "          \
             "--nodes N starts N processes with a node each: a block that another node has is read from it into a " \
             "buffer, and no copy is kept; a block that nobody has is put where the request is. With --kill a "     \
             "request that a killed node had is not counted, and while it is away its turns are the others'."

#define PURGE_NOTES                                                                                                \
    "Objects that are held stay, and are counted; drafts that were open fail when they are sealed; what is put "   \
    "meanwhile or later stays. Views of what goes stay valid. The node goes on with a purge that is interrupted, " \
    "over a restart too."
#define WHY_NOTES                                                                                               \
    "What the node remembers since its start of the last 65,536 keys, about; no other node is asked. A key of " \
    "which nothing is known is exit code 3."

#define WHATIF_NOTES                                                                                                 \
    "From simulations over keys only, of whole trees of prefixes, with the node's own policy. Recently: references " \
    "count half after 262,144 more. A namespace or lineage without a simulated reference is exit code 3."

#define TOP_NOTES                                                                                            \
    "Each view is the difference of two reads of `berth status`. On a terminal it is drawn anew until q or " \
    "Ctrl-C; elsewhere each is a block of lines. --json prints one document for each, a line each."

const struct cli_command cli_commands[] = {
    {"put", "KEY [FILE|-]", "put an object from a file or a pipe", put_options, cmd_put, NULL, NULL},
    {"get", "KEY", "write an object to stdout or a file", get_options, cmd_get, NULL, NULL},
    {"exists", "KEY..", "say which keys are there", exists_options, cmd_exists, NULL, NULL},
    {"ls", "[PREFIX]", "list keys", ls_options, cmd_ls, NULL, NULL},
    {"stat", "KEY..", "show what the index knows of keys", stat_options, cmd_stat, NULL, NULL},
    {"rm", "KEY..", "remove keys", rm_options, cmd_rm, NULL, NULL},
    {"purge", "", "remove all keys of a lineage, of a namespace or with a prefix", purge_options, cmd_purge,
     PURGE_NOTES, NULL},
    {"why", "KEY..", "say what became of keys: here, evicted, removed, or why a put failed", why_options, cmd_why,
     WHY_NOTES, NULL},
    {"whatif", "", "show the hit ratio that half, twice and four times the capacity would have", whatif_options,
     cmd_whatif, WHATIF_NOTES, NULL},
    {"hold", "KEY.. --label LABEL", "hold keys under a label: neither evicted nor removed", hold_options, cmd_hold,
     NULL, NULL},
    {"drop", "KEY.. --label LABEL", "drop holds", drop_options, cmd_drop, NULL, NULL},
    {"pins", "[KEY]", "show who pins, holds and leases what", pins_options, cmd_pins, NULL, NULL},
    {"status", "", "show pool, index, sessions and times on one screen", status_options, cmd_status, NULL, NULL},
    {"top", "", "watch operations, phases, bytes by source, leases and errors per second", top_options, cmd_top,
     TOP_NOTES, NULL},
    {"check", "", "compare index, slots and lookup", check_options, cmd_check, NULL, NULL},
    {"bench", "CASE..", "measure", bench_options, cmd_bench, BENCH_NOTES, bench_choice},
    {"replay", "[TRACE]", "replay a trace and verify every byte", replay_options, cmd_replay, REPLAY_NOTES, NULL},
    {"help", "[COMMAND]", "explain a command", no_options, cmd_help, NULL, NULL},
    {"completion", "", "print a completion script for bash", no_options, cmd_completion, NULL, NULL},
    {0},
};

static int no_set(void *arg, const char *name, const char *value)
{
    (void)arg;
    (void)value;
    return cli_usage("unknown option '--%s'", name);
}

static int cmd_help(int argc, char **argv)
{
    int first = cli_parse(argc, argv, no_options, no_set, NULL);
    if (first <= 0)
        return -first;
    const struct cli_command *about = NULL;
    if (argc - first > 1)
        return cli_usage("one command at a time");
    if (argc > first && !(about = cli_find(argv[first])))
        return cli_usage("unknown command '%s'", argv[first]);
    cli_help(about);
    return CLI_OK;
}

static int cmd_completion(int argc, char **argv)
{
    int first = cli_parse(argc, argv, no_options, no_set, NULL);
    if (first <= 0)
        return -first;
    if (argc > first)
        return cli_usage("takes no operand");
    cli_completion();
    return CLI_OK;
}

static const struct cli_option leading_options[] = {
    {"version", 'V', NULL, "print the version"},
    {0},
};

static int set_leading(void *arg, const char *name, const char *value)
{
    (void)value;
    if (!strcmp(name, "version"))
        *(bool *)arg = true;
    return 0;
}

static int print_version(void)
{
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "version", json_string(berth_version_string()));
        cli_json_print(doc);
    } else {
        printf("berth %s\n", berth_version_string());
    }
    return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
    bool version = false;
    int first = cli_parse_leading(argc, argv, leading_options, set_leading, &version);
    if (first <= 0)
        return -first;
    if (version)
        return print_version();
    if (first == argc)
        return cli_usage("a command is missing");
    const struct cli_command *c = cli_find(argv[first]);
    if (!c)
        return cli_usage("unknown command '%s'", argv[first]);
    cli.command = c->name;
    return c->run(argc - first, argv + first);
}

/* An error in an option that stands before --json must be JSON, too. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--json"))
            return true;
    return false;
}

/* What was written may still be in stdio's buffer: a full disk shows only here. A reader that has gone (`berth ls |
 * head`) is no error to talk about: the shell sees the signal that would have ended us, but the handle was closed
 * before. */
static int finish(int code)
{
    cli_flush();
    bool failed = cli.write_error != 0 || ferror(stdout); /* of a write in printf stdio keeps no number */
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (cli.pipe_closed || (failed && poll(&out, 1, 0) == 1 && (out.revents & POLLERR))) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (!failed)
        return code;
    cli_warn("cannot write to standard output: %s", strerror(cli.write_error != 0 ? cli.write_error : EIO));
    return code ? code : CLI_FAILED;
}

int main(int argc, char **argv)
{
    if (fd_hold_stdio() < 0)
        return CLI_FAILED;
    signal(SIGPIPE, SIG_IGN);
    cli.json = wants_json(argc, argv);
    return finish(dispatch(argc, argv));
}
