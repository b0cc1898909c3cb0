/* cmd_bench.c: `berth bench`: options and dispatch; a family of cases is a file of tools/bench. */
#include "tools/cli.h"

#include <errno.h>
#include <string.h>

#include "store/shell/settings_value.h"
#include "tools/bench/bench.h"

const struct bench_case bench_cases[] = {
    {"local-get", "get and release, against the same read without its pin", bench_local_get, 4096, 10000, 1, true,
     false, false},
    {"local-get-batch", "get_many and release, a key", bench_local_get_batch, 4096, 1000000, 32, true, false, false},
    {"exists", "exists of many, a key", bench_exists, 4096, 1000000, 128, true, false, false},
    {"prefix", "a prefix pinned and released, a call", bench_prefix, 4096, 1000000, 256, true, false, false},
    {"put", "put from a cold source", bench_put, 2 << 20, 0, 1, false, false, false},
    {"put-batch", "small puts through a queue", bench_put_batch, 4096, 100000, 64, false, false, false},
    {"put-group", "create, fill and seal in groups of depth", bench_put_group, 65536, 0, 32, false, false, false},
    {"idle", "what a node costs that nobody asks", bench_idle, 4096, 10000, 1, false, false, false},
    {"overhead", "what counters and samples cost a get", bench_overhead, 4096, 1000000, 1, false, false, false},
    {"pull", "pulls from another node, against raw send and sendfile", bench_pull, 64 << 10, 0, 1, false, true, false},
    {"pull-batch", "keys pulled together into the pool, a call of depth keys", bench_pull_batch, 64 << 10, 0, 256,
     false, true, false},
    {"pull-fair", "4 KiB pulls during a large one, against the same alone", bench_pull_fair, 1 << 30, 0, 1, false, true,
     false},
    {"scale", "many objects in a pool that is not populated: get, put, metadata, restart", bench_scale, 0, 1000000, 64,
     false, false, true},
    {"prefault", "a pool gets its pages, against MADV_POPULATE_WRITE by as many threads", bench_prefault, 256 << 20, 0,
     1, true, false, false},
    {0}};

const struct cli_option bench_options[] = {
    {"size", 's', "SIZE", "bytes of an object; default by case"},
    {"depth", 'd', "N", "keys a call, operations in flight, or members of a group; default by case"},
    {"threads", 'T', "N", "readers; with more than one the baseline is one; default 1"},
    {"objects", 'o', "N", "objects in the pool; default by case"},
    {"seconds", 0, "N", "how long to measure; default 5"},
    {"key-size", 0, "N", "bytes of a key, 8 to 480; default 32"},
    {"evict", 0, NULL, "puts: begin with a full pool, so that every put evicts"},
    {"may-evict", 0, NULL, "with -n: go on where that pushes out what others have put; else fewer objects, or none"},
    {"pause", 0, "DURATION", "put: work between two puts, so that the node has gone to sleep; default 0s"},
    {"transport", 0, "NAME", "pulls: tcp, the only one there is"},
    {"lease", 0, "warm|cold", "pulls: leases are good before it is timed, or each pull needs one; default warm"},
    {"verify", 0, "always|1/N|lease", "pulls: checksums of all, of 1 in N, or none; default always"},
    {"home", 0, "owner|reader|other", "pulls: the node that knows where the keys are; default owner"},
    {"replica", 0, NULL, "pull: into the reader's pool, each key once, and not into the caller's buffer"},
    {"pool", 0, "SIZE", "scale: bytes of the pool, reserved and not populated; without --objects as many as it holds"},
    {"pin", 0, NULL, "pulls: owner and reader on a CPU each"},
    {0}};

static int number(const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *out)
{
    char option[32];
    snprintf(option, sizeof option, "--%s", name);
    return cli_number(option, value, min, max, out);
}

static int small_number(const char *name, const char *value, uint64_t min, uint64_t max, unsigned *out)
{
    uint64_t n;
    int code = number(name, value, min, max, &n);

    if (!code)
        *out = (unsigned)n;
    return code;
}

static int set_size(const char *value, uint64_t *size)
{
    int code = cli_size("--size", value, size);

    if (!code && *size > BERTH_OBJECT_MAX)
        return cli_usage("--size: an object has at most 1GiB");
    return code;
}

static int one_of(const char *name, const char *value, const char *const words[], int *out)
{
    char all[64] = "";
    size_t used = 0;

    for (int i = 0; words[i]; i++) {
        if (!strcmp(value, words[i])) {
            *out = i;
            return 0;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    return cli_usage("--%s: '%s' is none of %s", name, value, all);
}

static int set_verify(const char *value, struct bench_pulls *o)
{
    uint32_t n;

    if (parse_verify(value, &n))
        return cli_usage("--verify: '%s' is none of always, 1/N, lease", value);
    show_verify(n, o->verify, sizeof o->verify);
    return 0;
}

static int set_pulls(struct bench_pulls *o, const char *name, const char *value)
{
    static const char *const transports[] = {"tcp", NULL}, *const leases[] = {"warm", "cold", NULL},
                             *const homes[] = {"owner", "reader", "other", NULL};
    int which = 0, code = 0;

    o->given = true;
    if (!strcmp(name, "transport"))
        return one_of(name, value, transports, &which);
    if (!strcmp(name, "lease")) {
        code = one_of(name, value, leases, &which);
        o->cold = which == 1;
    } else if (!strcmp(name, "home")) {
        code = one_of(name, value, homes, &which);
        o->home = (enum bench_home)which;
    } else if (!strcmp(name, "verify")) {
        code = set_verify(value, o);
    } else {
        *(strcmp(name, "pin") ? &o->replica : &o->pin) = true;
    }
    return code;
}

static bool of_pulls(const char *name)
{
    static const char *const names[] = {"transport", "lease", "verify", "home", "replica", "pin"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static int set(void *arg, const char *name, const char *value)
{
    struct bench *o = arg;

    if (!strcmp(name, "size"))
        return set_size(value, &o->size);
    if (!strcmp(name, "depth"))
        return small_number(name, value, 1, BENCH_QUEUE, &o->depth);
    if (!strcmp(name, "threads"))
        return small_number(name, value, 1, 64, &o->threads);
    if (!strcmp(name, "objects"))
        return number(name, value, 1, UINT32_MAX / 2, &o->objects);
    if (!strcmp(name, "seconds"))
        return small_number(name, value, 1, 3600, &o->seconds);
    if (!strcmp(name, "key-size"))
        return small_number(name, value, 8, BENCH_KEY_MAX, &o->key_size);
    if (!strcmp(name, "pool"))
        return cli_size("--pool", value, &o->pool);
    if (!strcmp(name, "pause"))
        return cli_duration("--pause", value, &o->pause_ns);
    if (of_pulls(name))
        return set_pulls(&o->pulls, name, value);
    *(strcmp(name, "evict") ? &o->may_evict : &o->evict) = true;
    return 0;
}

bool bench_choice(unsigned i, const char **name, const char **doc)
{
    if (i >= sizeof bench_cases / sizeof *bench_cases - 1)
        return false;
    *name = bench_cases[i].name;
    *doc = bench_cases[i].doc;
    return true;
}

static int no_case(void)
{
    char names[256];
    size_t used = 0;

    for (const struct bench_case *c = bench_cases; c->name && used < sizeof names; c++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", c->name);
    return cli_usage("it needs a case: %s", names);
}

static const struct bench_case *find(const char *name)
{
    for (const struct bench_case *c = bench_cases; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static int check(const struct bench_case *c, const struct bench *o)
{
    if (o->threads > 1 && !c->threads)
        return cli_usage("'%s' has one thread: leave --threads out", c->name);
    if (o->evict && c->run != bench_put && c->run != bench_put_batch && c->run != bench_put_group)
        return cli_usage("'%s' puts nothing: leave --evict out", c->name);
    if (o->evict && o->url)
        return cli_usage("--evict needs a node of its own: leave -n out");
    if (o->may_evict && !o->url)
        return cli_usage("--may-evict is for a node that -n names");
    if (o->pause_ns && (c->run != bench_put || o->depth > 1))
        return cli_usage("--pause is for 'put' at depth 1");
    if (o->pulls.given && !c->pulls)
        return cli_usage("'%s' pulls nothing: leave --transport, --lease, --verify, --home, --replica and --pin out",
                         c->name);
    if (o->pool && !c->scales)
        return cli_usage("'%s' has the pool that its objects need: leave --pool out", c->name);
    if (c->run == bench_prefault && (o->url || o->size < BENCH_PREFAULT_LEAST))
        return cli_usage("'prefault' needs no node: leave -n out; and --size is 2MiB or more");
    if ((c->pulls || c->scales) && o->url)
        return cli_usage("'%s' has nodes of its own: leave -n out", c->name);
    if (c->pulls && o->size == 0)
        return cli_usage("--size: nothing moves for objects of 0 bytes");
    if (c->run == bench_pull_batch && o->depth > BERTH_PULL_MAX)
        return cli_usage("--depth: at most %u keys are pulled together", BERTH_PULL_MAX);
    if (c->run != bench_pull && (o->pulls.replica || o->pulls.cold))
        return cli_usage("'%s' has its own way with leases: leave --lease and --replica out", c->name);
    if (c->run == bench_pull_fair && o->depth > 1)
        return cli_usage("'pull-fair' has depth 1");
    if (o->depth > BERTH_GROUP_MAX && (c->run == bench_put || c->run == bench_put_batch || c->run == bench_put_group))
        return cli_usage("--depth: at most %u puts are under way, or members of a group", BERTH_GROUP_MAX);
    if (c->run == bench_local_get && o->depth > 1)
        return cli_usage("'local-get' has depth 1: use local-get-batch");
    return 0;
}

static int run(const struct bench_case *c, const struct bench *options, bool size_given)
{
    struct bench b = *options;

    b.which = c;
    b.size = size_given ? b.size : c->size;
    b.objects_given = b.objects != 0;
    b.objects = b.objects ? b.objects : c->objects;
    b.depth = b.depth ? b.depth : c->depth;
    return c->run(&b);
}

int cmd_bench(int argc, char **argv)
{
    struct bench options = {.threads = 1, .key_size = 32, .seconds = 5, .size = UINT64_MAX, .pulls.verify = "always"};
    int first = cli_parse(argc, argv, bench_options, set, &options), code = 0;

    if (first <= 0)
        return -first;
    options.url = cli.node;
    if (first == argc)
        return no_case();
    for (int i = first; i < argc && !code; i++) {
        if (!find(argv[i]))
            return cli_usage("there is no case '%s'", argv[i]);
        code = check(find(argv[i]), &options);
    }
    for (int i = first; i < argc && !code; i++)
        code = run(find(argv[i]), &options, options.size != UINT64_MAX);
    return code;
}
