/* cmd_get.c: berth get KEY [-o FILE]: written from the pool, nothing is copied on the way; ranges are copied first. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"

const struct cli_option get_options[] = {
    {"output", 'o', "FILE", "write to a file instead of stdout"},
    {"force", 'f', NULL, "write binary to a terminal, too"},
    {"verify", 0, NULL, "compare the checksum first, of ranges those of the segments that they touch"},
    {"range", 'r', "OFFSET:LENGTH", "this part alone, and one behind the other where it is given again"},
    {"peers", 'p', NULL, "pull it from the node's peers where it is not here"},
    {"wait", 'w', "DURATION", "how long to wait for a key that is not there"},
    {0},
};

#define CHUNK (4u << 20)

struct get {
    const char *output;
    bool force, verify, peers;
    int64_t wait_ns;
    struct berth_range *ranges;
    size_t n_ranges;
};

/* OFFSET:LENGTH; where it is copied to comes later. */
static int add_range(struct get *g, const char *text)
{
    const char *colon = strchr(text, ':');
    struct berth_range r = {0};
    char offset[64];
    if (!colon || (size_t)(colon - text) >= sizeof offset)
        return cli_usage("--range: '%s' is no OFFSET:LENGTH, as 64KiB:4KiB", text);
    memcpy(offset, text, (size_t)(colon - text));
    offset[colon - text] = '\0';
    int rc = cli_size("--range", offset, &r.offset);
    rc = rc ? rc : cli_size("--range", colon + 1, &r.size);
    if (rc)
        return rc;
    if (r.size > BERTH_OBJECT_MAX)
        return cli_usage("--range: '%s' is longer than any object can be, %llu bytes: give less", text,
                         (unsigned long long)BERTH_OBJECT_MAX);
    if (g->n_ranges == BERTH_RANGES_MAX)
        return cli_usage("--range: '%s' is one too many: %u at a time", text, (unsigned)BERTH_RANGES_MAX);
    struct berth_range *more = realloc(g->ranges, (g->n_ranges + 1) * sizeof *more);
    if (!more)
        return cli_fail(-ENOMEM, NULL, "no memory for the ranges");
    g->ranges = more;
    g->ranges[g->n_ranges++] = r;
    return 0;
}

static int set(void *arg, const char *name, const char *value)
{
    struct get *g = arg;
    if (!strcmp(name, "output"))
        g->output = value;
    else if (!strcmp(name, "force"))
        g->force = true;
    else if (!strcmp(name, "verify"))
        g->verify = true;
    else if (!strcmp(name, "peers"))
        g->peers = true;
    else if (!strcmp(name, "range"))
        return add_range(g, value);
    else if (!strcmp(name, "wait"))
        return cli_duration("--wait", value, &g->wait_ns);
    return 0;
}

/* Control bytes can do to a terminal what its user did not ask for. */
static bool is_text(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if ((p[i] < ' ' || p[i] > '~') && !memchr("\n\t\r", p[i], 3))
            return false;
    return true;
}

static int write_all(int fd, const uint8_t *p, uint64_t n)
{
    struct cli_progress progress;
    cli_progress_begin(&progress, "get", n, true);
    uint64_t done = 0;
    while (done < n) {
        ssize_t rc = write(fd, p + done, n - done < CHUNK ? n - done : CHUNK);
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc < 0) {
            int error = -errno;
            cli_progress_end(&progress);
            return error;
        }
        done += (uint64_t)rc;
        cli_progress_at(&progress, done);
    }
    cli_progress_end(&progress);
    return 0;
}

static int fail_output(const char *file, int error)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "cannot write it: %s", strerror(-error));
    return cli_report(error, CLI_FAILED, file ? file : "standard output", sentence);
}

/* What is written: an object in place, or a copy of ranges, which has no version to tell. */
struct content {
    const void *data;
    uint64_t size;
    const struct berth_view *view;
};

static int to_file(const struct get *g, const struct cli_key *key, const struct content *c)
{
    int fd = open(g->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_output(g->output, -errno);
    int rc = write_all(fd, c->data, c->size);
    if (close(fd) && !rc)
        rc = -errno;
    if (rc)
        return fail_output(g->output, rc);
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "key", json_string(key->text));
        json_object_set_new(doc, "size", json_integer((json_int_t)c->size));
        if (c->view) {
            json_object_set_new(doc, "version", cli_json_version(c->view->version));
            json_object_set_new(doc, "checksum", cli_json_hex(c->view->checksum));
        }
        json_object_set_new(doc, "output", cli_json_text(g->output));
        cli_json_print(doc);
    }
    return CLI_OK;
}

static int to_stdout(const struct get *g, const struct content *c)
{
    if (isatty(STDOUT_FILENO) && !g->force && !is_text(c->data, c->size))
        return cli_usage("the object is binary and stdout is a terminal: use -o FILE, a pipe, or --force");
    int rc = write_all(STDOUT_FILENO, c->data, c->size);
    if (rc == -EPIPE) {
        cli.pipe_closed = true;
        return CLI_OK;
    }
    return rc ? fail_output(NULL, rc) : CLI_OK;
}

static int to_output(const struct get *g, const struct cli_key *key, const struct content *c)
{
    return g->output ? to_file(g, key, c) : to_stdout(g, c);
}

static unsigned flags_of(const struct get *g)
{
    return (g->verify ? BERTH_VERIFY : 0u) | (g->wait_ns ? BERTH_WAIT : 0u) | (g->peers ? BERTH_PEERS : 0u);
}

static int64_t deadline_of(const struct get *g)
{
    return g->wait_ns ? berth_deadline(g->wait_ns) : cli_deadline();
}

/* What there is to do about a key that is not there, or did not come in time. */
static int fail_get(const struct get *g, struct berth *b, int error, const struct cli_key *key)
{
    char sentence[256], in[24];
    cli_last_sentence(error, sentence, sizeof sentence);
    bool plain = !strcmp(sentence, berth_error_text(error));
    if (error == -ENOENT)
        return cli_fail(error, key->text, cli_missing(b, g->peers));
    if (error != -ETIMEDOUT || !plain)
        return cli_fail(error, key->text, sentence);
    if (!g->wait_ns)
        return cli_fail(error, key->text, "its node or a peer did not answer in time: allow more (-t)");
    bool hint = !g->peers && cli_has_peers(b);
    snprintf(sentence, sizeof sentence, "it did not come within %s: allow more time (--wait)%s",
             cli_time(in, (uint64_t)g->wait_ns), hint ? ", or ask the node's peers, too (--peers)" : "");
    return cli_fail(error, key->text, sentence);
}

/* From a node of another host there is no view: its size first, then a copy. One that was replaced meanwhile by a
 * larger one is asked for again. */
static int get_copy(const struct get *g, struct berth *b, const struct cli_key *key, uint32_t ns)
{
    struct berth_key k = cli_berth_key(key, ns);
    int64_t deadline = deadline_of(g);
    uint8_t *bytes = NULL;
    uint64_t room = 0;
    for (;;) {
        long n = berth_get_into(b, k, bytes, room, flags_of(g), deadline);
        struct berth_error_info e;
        if (n >= 0) {
            struct content c = {.data = bytes, .size = (uint64_t)n};
            int rc = to_output(g, key, &c);
            free(bytes);
            return rc;
        }
        berth_error(b, &e);
        free(bytes);
        if (n != -ENOSPC || e.figure[0] <= room)
            return fail_get(g, b, (int)n, key);
        room = e.figure[0];
        bytes = malloc(room);
        if (!bytes)
            return cli_fail(-ENOMEM, key->text, "no memory for a copy: ask for ranges of it");
    }
}

static int get_object(const struct get *g, struct berth *b, const struct cli_key *key, uint32_t ns)
{
    struct berth_view v;
    int rc = berth_get(b, cli_berth_key(key, ns), &v, flags_of(g), deadline_of(g));
    if (rc == -EOPNOTSUPP)
        return get_copy(g, b, key, ns);
    if (rc < 0)
        return fail_get(g, b, rc, key);
    struct content c = {.data = v.data, .size = v.size, .view = &v};
    rc = to_output(g, key, &c);
    berth_release(b, &v, 1);
    return rc;
}

static int get_ranges(const struct get *g, struct berth *b, const struct cli_key *key, uint32_t ns)
{
    uint64_t size = 0;
    for (size_t i = 0; i < g->n_ranges; i++)
        size += g->ranges[i].size;
    uint8_t *bytes = malloc(size ? size : 1), *at = bytes;
    if (!bytes)
        return cli_fail(-ENOMEM, key->text, "no memory for the ranges: ask for less at a time");
    for (size_t i = 0; i < g->n_ranges; i++) {
        g->ranges[i].data = at;
        at += g->ranges[i].size;
    }
    long n = berth_get_range(b, cli_berth_key(key, ns), g->ranges, g->n_ranges, flags_of(g), deadline_of(g));
    int rc = n < 0 ? fail_get(g, b, (int)n, key) : 0;
    if (!rc)
        rc = to_output(g, key, &(struct content){.data = bytes, .size = size});
    free(bytes);
    return rc;
}

static int run(struct get *g, int argc, char **argv, int first)
{
    struct cli_key key;
    struct berth *b;
    uint32_t ns;
    if (argc - first != 1)
        return cli_usage(argc == first ? "a key is missing" : "one key at a time");
    if (g->output && !strcmp(g->output, "-"))
        g->output = NULL;
    int rc = cli_key(argv[first], &key);
    if (rc)
        return rc;
    if (cli.json && !g->output)
        return cli_usage("--json and the object cannot share stdout: add -o FILE");
    if ((rc = cli_open(&b, cli_reader(g->peers), &ns)))
        return rc;
    rc = g->n_ranges ? get_ranges(g, b, &key, ns) : get_object(g, b, &key, ns);
    berth_close(b);
    return rc;
}

int cmd_get(int argc, char **argv)
{
    struct get g = {0};
    int first = cli_parse(argc, argv, get_options, set, &g);
    int rc = first <= 0 ? -first : run(&g, argc, argv, first);
    free(g.ranges);
    return rc;
}
