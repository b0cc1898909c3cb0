/* cmd_get.c: berth get KEY [-o FILE]: written from the pool, nothing is copied on the way. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli.h"

const struct cli_option get_options[] = {
    {"output", 'o', "FILE", "write to a file instead of stdout"},
    {"force", 'f', NULL, "write binary to a terminal, too"},
    {"verify", 0, NULL, "compare the checksum first"},
    {0},
};

#define CHUNK (4u << 20)

struct get {
    const char *output;
    bool force, verify;
};

static int set(void *arg, const char *name, const char *value)
{
    struct get *g = arg;
    if (!strcmp(name, "output"))
        g->output = value;
    else if (!strcmp(name, "force"))
        g->force = true;
    else if (!strcmp(name, "verify"))
        g->verify = true;
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

static int to_file(const struct get *g, const struct cli_key *key, const struct berth_view *v)
{
    int fd = open(g->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_output(g->output, -errno);
    int rc = write_all(fd, v->data, v->size);
    if (close(fd) && !rc)
        rc = -errno;
    if (rc)
        return fail_output(g->output, rc);
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "key", json_string(key->text));
        json_object_set_new(doc, "size", json_integer((json_int_t)v->size));
        json_object_set_new(doc, "version", cli_json_version(v->version));
        json_object_set_new(doc, "checksum", cli_json_hex(v->checksum));
        json_object_set_new(doc, "output", cli_json_text(g->output));
        cli_json_print(doc);
    }
    return CLI_OK;
}

static int to_stdout(const struct get *g, const struct berth_view *v)
{
    if (isatty(STDOUT_FILENO) && !g->force && !is_text(v->data, v->size))
        return cli_usage("the object is binary and stdout is a terminal: use -o FILE, a pipe, or --force");
    int rc = write_all(STDOUT_FILENO, v->data, v->size);
    if (rc == -EPIPE) {
        cli.pipe_closed = true;
        return CLI_OK;
    }
    return rc ? fail_output(NULL, rc) : CLI_OK;
}

int cmd_get(int argc, char **argv)
{
    struct get g = {0};
    struct cli_key key;
    int first = cli_parse(argc, argv, get_options, set, &g);
    if (first <= 0)
        return -first;
    if (argc - first != 1)
        return cli_usage(argc == first ? "a key is missing" : "one key at a time");
    if (g.output && !strcmp(g.output, "-"))
        g.output = NULL;
    int rc = cli_key(argv[first], &key);
    if (rc)
        return rc;
    if (cli.json && !g.output)
        return cli_usage("--json and the object cannot share stdout: add -o FILE");
    struct berth *b;
    struct berth_view v;
    uint32_t ns;
    if ((rc = cli_open(&b, BERTH_OPEN_READER, &ns)))
        return rc;
    rc = berth_get(b, cli_berth_key(&key, ns), &v, g.verify ? BERTH_VERIFY : 0, cli_deadline());
    if (rc < 0) {
        rc = cli_fail_last(rc, key.text);
    } else {
        rc = g.output ? to_file(&g, &key, &v) : to_stdout(&g, &v);
        berth_release(b, &v, 1);
    }
    berth_close(b);
    return rc;
}
