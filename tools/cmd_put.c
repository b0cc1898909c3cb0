/* cmd_put.c: berth put KEY [FILE|-].
 *
 * A file whose size is known is read straight into the slot that it will stay in. A pipe is gathered first: a slot must
 * have its size before the first byte. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli.h"

const struct cli_option put_options[] = {
    {"lineage", 0, "TAG", "tag of the model and layout that made it"},
    {"priority", 0, "N", "0 to 255, default 0; more is kept longer"},
    {"ttl", 0, "DURATION", "may be evicted first after this time, of whole seconds; default never"},
    {"parent", 0, "KEY", "the object before this one in its prefix"},
    {"segment", 0, "SIZE", "checksums for parts of this size: a power of two, 4 KiB or more, 1,024 parts at most"},
    {"wait", 'w', "DURATION", "how long to wait for room"},
    {"published", 0, NULL, "return when all homes of the key know of it, so that each node finds it; within -t"},
    {0},
};

#define CHUNK (4u << 20)
#define PIPE_START (1u << 20)

struct put {
    struct berth *b;
    uint32_t ns;
    struct cli_key key, parent;
    struct berth_key parent_key;
    struct berth_put_opts opts;
    int64_t wait_ns;
    const char *file; /* for messages */
    int fd;
};

#define SECOND INT64_C(1000000000)

static int set_ttl(const char *value, uint32_t *ttl_s)
{
    int64_t ns = 0;
    int rc = cli_duration("--ttl", value, &ns);
    if (rc)
        return rc;
    if (ns == 0)
        return cli_usage(CLI_TTL_NONE, value);
    if (ns % SECOND)
        return cli_usage("--ttl: '%s' is no whole number of seconds: use 1s or more, as 90s or 5m", value);
    if (ns / SECOND > UINT32_MAX)
        return cli_usage("--ttl: '%s' is too long: use at most %us, or leave it out for no end", value, UINT32_MAX);
    *ttl_s = (uint32_t)(ns / SECOND);
    return 0;
}

static int set(void *arg, const char *name, const char *value)
{
    struct put *p = arg;
    uint64_t n = 0;
    int rc = 0;
    if (!strcmp(name, "lineage")) {
        rc = cli_number("--lineage", value, 0, UINT64_MAX, &p->opts.lineage);
    } else if (!strcmp(name, "priority")) {
        rc = cli_number("--priority", value, 0, 255, &n);
        p->opts.priority = (uint8_t)n;
    } else if (!strcmp(name, "ttl")) {
        rc = set_ttl(value, &p->opts.ttl_s);
    } else if (!strcmp(name, "segment")) {
        rc = cli_size("--segment", value, &n);
        if (!rc && (n < BERTH_SEGMENT_MIN || n > BERTH_OBJECT_MAX || (n & (n - 1))))
            rc = cli_usage("--segment: '%s' is no power of two from 4KiB to 1GiB", value);
        p->opts.segment = (uint32_t)n;
    } else if (!strcmp(name, "parent")) {
        rc = cli_key(value, &p->parent);
    } else if (!strcmp(name, "published")) {
        p->opts.flags |= BERTH_PUBLISHED;
    } else if (!strcmp(name, "wait")) {
        rc = cli_duration("--wait", value, &p->wait_ns);
    }
    return rc;
}

static int fail_file(const struct put *p, int error, const char *what)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s: %s", what, strerror(-error));
    return cli_report(error, CLI_FAILED, p->file, sentence);
}

/* Where it is read from: 0, or an exit code. */
static int open_input(struct put *p, const char *file)
{
    if (file && strcmp(file, "-")) {
        p->file = file;
        p->fd = open(file, O_RDONLY | O_CLOEXEC);
        return p->fd < 0 ? fail_file(p, -errno, "cannot open the file") : 0;
    }
    if (!file && isatty(STDIN_FILENO))
        return cli_usage("a file is missing: name one, or pipe the object in");
    p->file = "standard input";
    p->fd = STDIN_FILENO;
    return 0;
}

/* Reads up to n bytes, less at the end only. */
static ssize_t read_full(int fd, uint8_t *to, size_t n, uint64_t before, struct cli_progress *progress)
{
    size_t have = 0;
    while (have < n) {
        ssize_t got = read(fd, to + have, n - have < CHUNK ? n - have : CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
        cli_progress_at(progress, before + have);
    }
    return (ssize_t)have;
}

static int done(const struct put *p, int kept, uint64_t size)
{
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "key", json_string(p->key.text));
        json_object_set_new(doc, "size", json_integer((json_int_t)size));
        json_object_set_new(doc, "kept", json_boolean(kept == BERTH_KEPT));
        cli_json_print(doc);
    } else if (kept == BERTH_KEPT) {
        cli_warn("'%s' existed and was kept", p->key.text);
    }
    if (cli_node_is_passing())
        cli_warn("'%s' ends with this command: the region of embedded: goes with its process, unless ?region=DIR names "
                 "one",
                 p->key.text);
    return CLI_OK;
}

static int fill(struct put *p, struct berth_draft *d, uint64_t size)
{
    struct cli_progress progress;
    cli_progress_begin(&progress, "put", size, true);
    ssize_t n = read_full(p->fd, d->data, size, 0, &progress);
    uint8_t beyond;
    if (n == (ssize_t)size) {
        ssize_t more = read_full(p->fd, &beyond, 1, size, &progress);
        n = more > 0 ? -ESTALE : more < 0 ? more : n;
    } else if (n >= 0) {
        n = -ESTALE;
    }
    cli_progress_end(&progress);
    return n < 0 ? (int)n : 0;
}

/* Adds the names of members that are not up to `names`; how many there are. */
static unsigned members_away(struct berth *b, char *names, size_t room)
{
    char *text = NULL;
    if (berth_query(b, BERTH_STATUS, NULL, &text) < 0)
        return 0;
    json_t *report = json_loads(text, 0, NULL), *peer;
    size_t i, at = 0;
    unsigned n = 0;
    json_array_foreach(json_object_get(report, "peers"), i, peer)
    {
        const char *state = json_string_value(json_object_get(peer, "state"));
        const char *name = json_string_value(json_object_get(peer, "name"));
        if (!state || !name || !strcmp(state, "self") || !strcmp(state, "up"))
            continue;
        int more = snprintf(names + at, room - at, "%s'%s'", n++ ? ", " : "", name);
        at = more < 0 || at + (size_t)more >= room ? at : at + (size_t)more;
        names[at] = '\0';
    }
    json_decref(report);
    free(text);
    return n;
}

/* What was put and is not published: who is waited for, and what there is to do. */
static int fail_put(struct put *p, int error)
{
    char sentence[512], names[256] = "";
    if (error != BERTH_EUNPUBLISHED)
        return cli_fail_last(error, p->key.text);
    unsigned n = members_away(p->b, names, sizeof names);
    if (n)
        snprintf(sentence, sizeof sentence,
                 "it was put here, but member%s %s, which may be %s, %s not up: %s told when %s back (berth status "
                 "says why); give a longer -t to wait for that",
                 n > 1 ? "s" : "", names, n > 1 ? "its homes" : "a home of it", n > 1 ? "are" : "is",
                 n > 1 ? "they are" : "it is", n > 1 ? "they are" : "it is");
    else
        snprintf(sentence, sizeof sentence,
                 "it was put here, but not all of its homes have acknowledged it in time: they go on to be told; give "
                 "a longer -t to wait for that");
    return cli_fail(error, p->key.text, sentence);
}

/* A file of `size` bytes, into a draft. */
static int put_file(struct put *p, uint64_t size)
{
    struct berth_key key = cli_berth_key(&p->key, p->ns);
    struct berth_draft d = {0};
    int rc = berth_create(p->b, key, size, &p->opts, &d);
    if (rc < 0)
        return cli_fail_last(rc, p->key.text);
    if (rc == BERTH_KEPT)
        return done(p, rc, size);
    rc = fill(p, &d, size);
    if (rc < 0) {
        berth_abort(p->b, &d, 1);
        return fail_file(p, rc, rc == -ESTALE ? "the file changed while it was read" : "cannot read the file");
    }
    rc = berth_seal(p->b, &d, 1);
    if (rc < 0)
        return fail_put(p, rc);
    return done(p, rc ? BERTH_KEPT : 0, size);
}

/* Gathers a pipe to its end. The size, or a negative error. */
static ssize_t gather(struct put *p, uint8_t **out)
{
    struct cli_progress progress;
    size_t room = PIPE_START, have = 0;
    uint8_t *bytes = malloc(room);
    ssize_t n = bytes ? 0 : -ENOMEM;
    cli_progress_begin(&progress, "put", 0, true);
    while (n >= 0) {
        n = read_full(p->fd, bytes + have, room - have, have, &progress);
        if (n < 0)
            break;
        have += (size_t)n;
        if (have < room)
            break;
        if (have > BERTH_OBJECT_MAX) {
            n = -E2BIG;
            break;
        }
        uint8_t *more = realloc(bytes, 2 * room);
        n = more ? n : -ENOMEM;
        bytes = more ? more : bytes;
        room *= 2;
    }
    cli_progress_end(&progress);
    if (n < 0) {
        free(bytes);
        return n;
    }
    *out = bytes;
    return (ssize_t)have;
}

/* The wait for homes is then bounded as that of a file, and not by the wait for room. */
static int put_published(struct put *p, const uint8_t *bytes, size_t n)
{
    struct berth_draft d = {0};
    int rc = berth_create(p->b, cli_berth_key(&p->key, p->ns), n, &p->opts, &d);
    if (rc)
        return rc;
    if (n)
        memcpy(d.data, bytes, n);
    rc = berth_seal(p->b, &d, 1);
    return rc > 0 ? BERTH_KEPT : rc;
}

static int put_pipe(struct put *p)
{
    uint8_t *bytes;
    ssize_t n = gather(p, &bytes);
    if (n == -E2BIG)
        return cli_fail(-E2BIG, p->file, "it is larger than any object can be (1 GiB): split it");
    if (n < 0)
        return fail_file(p, (int)n, "cannot read it");
    int rc = p->opts.flags & BERTH_PUBLISHED
                 ? put_published(p, bytes, (size_t)n)
                 : berth_put(p->b, cli_berth_key(&p->key, p->ns), bytes, (size_t)n, &p->opts);
    free(bytes);
    return rc < 0 ? fail_put(p, rc) : done(p, rc, (uint64_t)n);
}

/* Bytes from where a regular file stands to its end; -1: not known before it was read. */
static int64_t known_size(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return -1;
    off_t at = lseek(fd, 0, SEEK_CUR);
    /* Files of /proc and /sys say 0 and have bytes all the same. */
    return at < 0 || st.st_size <= at ? -1 : st.st_size - at;
}

int cmd_put(int argc, char **argv)
{
    struct put p = {.opts = {.size = sizeof p.opts}, .fd = -1};
    int first = cli_parse(argc, argv, put_options, set, &p);
    if (first <= 0)
        return -first;
    if (argc - first < 1 || argc - first > 2)
        return cli_usage(argc == first ? "a key is missing" : "one key and one file at most");
    int rc = cli_key(argv[first], &p.key);
    if (rc || (rc = open_input(&p, argc - first > 1 ? argv[first + 1] : NULL)))
        return rc;
    if ((rc = cli_open(&p.b, 0, &p.ns)))
        goto close_input;
    if (p.parent.size) {
        p.parent_key = cli_berth_key(&p.parent, p.ns);
        p.opts.parent = &p.parent_key;
    }
    p.opts.deadline = p.wait_ns ? berth_deadline(p.wait_ns) : BERTH_NOW;
    int64_t size = known_size(p.fd);
    rc = size > (int64_t)BERTH_OBJECT_MAX
             ? cli_fail(-E2BIG, p.file, "it is larger than any object can be (1 GiB): split it")
         : size >= 0 ? put_file(&p, (uint64_t)size)
                     : put_pipe(&p);
    berth_close(p.b);
close_input:
    if (p.fd > STDIN_FILENO)
        close(p.fd);
    return rc;
}
