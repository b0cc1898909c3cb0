/* cli.c: options, values, errors, node and keys of `berth`; what it prints stands in cli_output.c. */
#include "tools/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "store/duration.h"
#include "store/shell/log.h"
#include "tools/abbreviated.h"
#include "tools/start_code.h"

struct cli cli = {.ns = "", .command = "berth"};

const struct cli_option common_options[] = {
    {"node", 'n', "URL", "unix:PATH, tcp://HOST:PORT or embedded:; else $BERTH_NODE, else the default socket"},
    {"namespace", 'N', "NAME", "the keys' namespace; without it, or with '', the default one"},
    {"timeout", 't', "DURATION", "how long to wait for the node, as 500ms, 1s, 5m; default 30s"},
    {"json", 0, NULL, "one JSON document on stdout"},
    {"help", 'h', NULL, "this"},
    {0},
};

#define CLI_OPTIONS_MAX 40

struct parser {
    const struct cli_option *option[CLI_OPTIONS_MAX];
    struct option longs[CLI_OPTIONS_MAX + 1];
    char shorts[2 * CLI_OPTIONS_MAX + 3];
    int n;
};

static void add_options(struct parser *p, const struct cli_option *options)
{
    for (const struct cli_option *o = options; o && o->name && p->n < CLI_OPTIONS_MAX; o++) {
        p->option[p->n] = o;
        p->longs[p->n] = (struct option){o->name, o->value ? required_argument : no_argument, NULL, 256 + p->n};
        p->n++;
        if (o->letter) {
            size_t end = strlen(p->shorts);
            p->shorts[end] = o->letter;
            p->shorts[end + 1] = o->value ? ':' : '\0';
            p->shorts[end + 2] = '\0';
        }
    }
}

static const struct cli_option *option_of(const struct parser *p, int c)
{
    if (c >= 256)
        return p->option[c - 256];
    for (int i = 0; i < p->n; i++)
        if (p->option[i]->letter == c)
            return p->option[i];
    return NULL;
}

static int set_common(const char *name, const char *value)
{
    if (!strcmp(name, "node"))
        cli.node = value;
    else if (!strcmp(name, "json"))
        cli.json = true;
    else if (!strcmp(name, "namespace")) {
        cli.ns = value;
        cli.ns_given = true;
    } else if (!strcmp(name, "timeout"))
        return cli_duration("--timeout", value, &cli.timeout_ns);
    return 0;
}

static bool is_common(const struct cli_option *o)
{
    return o >= common_options && o < common_options + sizeof common_options / sizeof *common_options;
}

static int parse(int argc, char **argv, struct parser *p, int (*set)(void *arg, const char *name, const char *value),
                 void *arg)
{
    int c;
    optind = 0; /* GNU: begin anew, argv is another one */
    opterr = 0;
    while ((c = getopt_long(argc, argv, p->shorts, p->longs, NULL)) != -1) {
        if (c == '?' || c == ':') {
            const char *what = optopt && optopt < 256 ? NULL : argv[optind - 1];
            char letter[3] = {'-', (char)optopt, 0};
            return -cli_usage(c == '?' ? "unknown option '%s'" : "option '%s' needs a value", what ? what : letter);
        }
        const struct cli_option *o = option_of(p, c);
        const char *typed = c >= 256 ? abbreviated(argv, o->name) : NULL;
        if (typed)
            return -cli_usage("unknown option '%.*s'", (int)strcspn(typed, "="), typed);
        if (!strcmp(o->name, "help")) {
            optind = -1;
            return 0;
        }
        int rc = is_common(o) ? set_common(o->name, optarg) : set(arg, o->name, optarg);
        if (rc)
            return -rc;
    }
    return optind;
}

int cli_parse(int argc, char **argv, const struct cli_option *options,
              int (*set)(void *arg, const char *name, const char *value), void *arg)
{
    struct parser p = {.shorts = ":"};
    add_options(&p, options);
    add_options(&p, common_options);
    int first = parse(argc, argv, &p, set, arg);
    if (optind < 0)
        cli_help(cli_find(cli.command));
    return first;
}

int cli_parse_leading(int argc, char **argv, const struct cli_option *options,
                      int (*set)(void *arg, const char *name, const char *value), void *arg)
{
    struct parser p = {.shorts = "+:"};
    add_options(&p, options);
    add_options(&p, common_options);
    int first = parse(argc, argv, &p, set, arg);
    if (optind < 0)
        cli_help(NULL);
    return first;
}

const struct cli_command *cli_find(const char *name)
{
    for (const struct cli_command *c = cli_commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

/* ---- values ---- */

int cli_size(const char *option, const char *text, uint64_t *bytes)
{
    int rc = berth_parse_size(text, bytes);
    if (!rc)
        return 0;
    return cli_usage("%s: '%s' is %s: use bytes, or K M G KiB MiB GiB (binary), KB MB GB (decimal)", option, text,
                     rc == -ERANGE ? "too large" : "no size");
}

int cli_duration(const char *option, const char *text, int64_t *ns)
{
    int rc = duration_parse(text, ns);
    return rc ? cli_usage("%s: '%s' is %s: use " DURATION_UNITS, option, text,
                          rc == -ERANGE ? "too long" : "no duration")
              : 0;
}

int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *n)
{
    char *end = NULL;
    errno = 0;
    int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    unsigned long long v = isdigit((unsigned char)*text) ? strtoull(text, &end, base) : 0;
    if (!end || *end || errno || v < min || v > max)
        return cli_usage("%s: '%s' is no number from %llu to %llu", option, text, (unsigned long long)min,
                         (unsigned long long)max);
    *n = v;
    return 0;
}

/* ---- errors ---- */

int cli_exit_code(int error)
{
    switch (error) {
    case -ENOENT:
    case BERTH_EABORTED:
    case BERTH_EDIED:
        return CLI_NOT_FOUND;
    case BERTH_ENODE:
    case BERTH_EUNSURE:
    case BERTH_EUNKNOWN:
    case BERTH_ERESTART:
    case BERTH_EFORMAT:
        return CLI_NO_NODE;
    case BERTH_EFULL:
    case BERTH_EINDEXFULL:
    case BERTH_EHELD:
    case BERTH_EREADONLY:
    case BERTH_EQUOTA:
    case BERTH_EPINS:
    case BERTH_EHOLDS:
    case BERTH_EVERSION:
    case BERTH_ELINEAGE:
    case BERTH_EHASH:
    case BERTH_EGROUP:
    case BERTH_EBUSY_RING:
    case BERTH_ENOTNOW:
    case -E2BIG:
    case -ENOSPC:
    case -EUSERS:
    case -EEXIST:
    case -EACCES:
    case -EPERM:
    case -EBUSY:
    case -EAGAIN:
        return CLI_REFUSED;
    case -ETIMEDOUT:
    case BERTH_EUNPUBLISHED:
        return CLI_TIMED_OUT;
    case -EINVAL:
    case -ERANGE:
    case -EOPNOTSUPP:
        return CLI_USAGE;
    default:
        return error < 0 ? CLI_FAILED : CLI_OK;
    }
}

void cli_warn(const char *format, ...)
{
    char message[4096], line[4 * sizeof message];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    /* Backslashes stand in keys that are escaped already; what is foreign here is control bytes and the like. */
    size_t n = 0;
    for (const char *c = message; *c; c++) {
        if (*c == '\\')
            line[n++] = '\\';
        else
            n += escape_bytes(line + n, sizeof line - n, c, 1);
    }
    line[n] = '\0';
    if (!strcmp(cli.command, "berth"))
        fprintf(stderr, "berth: %s\n", line);
    else
        fprintf(stderr, "berth: %s: %s\n", cli.command, line);
}

void cli_warn_error(int error, const char *subject, const char *sentence)
{
    if (subject)
        cli_warn("%s: '%s': %s", berth_error_name(error), subject, sentence);
    else
        cli_warn("%s: %s", berth_error_name(error), sentence);
}

static void report_document(int error, int code, const char *subject, const char *sentence)
{
    if (cli.json) {
        json_t *doc = cli_json();
        if (subject)
            json_object_set_new(doc, "subject", cli_json_text(subject));
        json_object_set_new(doc, "error", cli_json_error(error, sentence));
        json_object_set_new(doc, "exit", json_integer(code));
        cli_json_print(doc);
    }
}

int cli_report(int error, int code, const char *subject, const char *sentence)
{
    report_document(error, code, subject, sentence);
    cli_warn_error(error, subject, sentence);
    return code;
}

int cli_fail(int error, const char *subject, const char *sentence)
{
    int code = cli_exit_code(error);
    return cli_report(error, code ? code : CLI_FAILED, subject, sentence);
}

const char *cli_last_sentence(int error, char *out, size_t size)
{
    struct berth_error_info e = {0};
    int last = berth_error(NULL, &e);
    const char *own = berth_error_text(error), *sentence = last == error && *e.sentence ? e.sentence : own;
    if (error == -ENOENT && !strcmp(sentence, own))
        sentence = CLI_NO_KEY;
    snprintf(out, size, "%s", sentence);
    return out;
}

int cli_fail_last(int error, const char *subject)
{
    char sentence[256];
    return cli_fail(error, subject, cli_last_sentence(error, sentence, sizeof sentence));
}

int cli_usage(const char *format, ...)
{
    char message[2400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    report_document(-EINVAL, CLI_USAGE, NULL, message);
    cli_warn("%s", message); /* nobody's answer: a name would say no more than its help does */
    bool known = cli_find(cli.command) != NULL;
    fprintf(stderr, "Try 'berth %s%s--help'.\n", known ? cli.command : "", known ? " " : "");
    return CLI_USAGE;
}

/* ---- the node ---- */

/* The settings of the embedded node that the command starts; NULL: it starts none. */
static const char *embedded_settings(void)
{
    const char *node = cli.node ? cli.node : getenv("BERTH_NODE");
    return node && !strncmp(node, "embedded:", 9) ? node + 9 : NULL;
}

/* An embedded node that does not start is refused as berthd is. */
static int fail_open(int error)
{
    bool starts = embedded_settings() != NULL;
    char sentence[256];
    cli_last_sentence(error, sentence, sizeof sentence);
    const char *path = cli.node && !strncmp(cli.node, "unix:", 5) ? cli.node + 5 : cli.node;
    const char *subject = path && strstr(sentence, path) ? NULL : cli.node; /* said once */
    return starts ? cli_report(error, start_code(error), subject, sentence) : cli_fail(error, subject, sentence);
}

uint32_t cli_reader(bool peers)
{
    return peers ? 0 : BERTH_OPEN_READER;
}

int cli_open(struct berth **b, uint32_t flags, uint32_t *ns)
{
    struct berth_open_opts opts = {.size = sizeof opts, .name = "berth", .timeout_ns = cli.timeout_ns, .flags = flags};
    struct berth *handle;
    int rc = berth_open(&handle, cli.node, &opts);
    if (rc < 0)
        return fail_open(rc);
    uint32_t id = 0;
    if (ns && *cli.ns) {
        rc = berth_namespace(handle, cli.ns, &id);
        if (rc < 0) { /* a reader finds names and makes none */
            bool unknown = rc == BERTH_EREADONLY && (flags & BERTH_OPEN_READER);
            int code = unknown ? cli_fail(-ENOENT, cli.ns, "no such namespace") : cli_fail_last(rc, cli.ns);
            berth_close(handle);
            return code;
        }
    }
    if (ns)
        *ns = id;
    *b = handle;
    return 0;
}

bool cli_node_is_passing(void)
{
    const char *s = embedded_settings();
    return s && strncmp(s, "region=", 7) != 0 && !strstr(s, "?region=") && !strstr(s, "&region=");
}

int64_t cli_deadline(void)
{
    return cli.timeout_ns ? berth_deadline(cli.timeout_ns) : BERTH_FOREVER;
}

bool cli_has_peers(struct berth *b)
{
    char *text = NULL;
    if (berth_query(b, BERTH_STATUS, NULL, &text) < 0)
        return false;
    json_t *report = json_loads(text, 0, NULL);
    bool has = json_array_size(json_object_get(report, "peers")) > 1;
    json_decref(report);
    free(text);
    return has;
}

/* Asked once for all keys. */
static bool once_has_peers(struct berth *b)
{
    static int has = -1;
    if (has < 0)
        has = cli_has_peers(b);
    return has;
}

const char *cli_missing(struct berth *b, bool asked_peers)
{
    return !asked_peers && once_has_peers(b) ? "no such key on this node: --peers asks its peers, too" : CLI_NO_KEY;
}

const char *cli_missing_here(struct berth *b, const char *hint, const char *plain)
{
    return once_has_peers(b) ? hint : plain;
}

/* ---- keys ---- */

int cli_key(const char *argument, struct cli_key *key)
{
    size_t room = strlen(argument) + 1; /* unescaping never makes a text longer */
    uint8_t *bytes = malloc(room);
    if (!bytes)
        return cli_fail(-ENOMEM, NULL, "no memory for a key");
    long n = unescape_bytes(bytes, room, argument);
    int rc = 0;
    if (n < 0)
        rc = cli_usage("key '%s': bytes are written \\xNN, and a backslash \\\\", argument);
    else if (n == 0)
        rc = cli_usage("an empty key: keys have 1 to %u bytes", BERTH_KEY_MAX);
    else if (n > (long)BERTH_KEY_MAX)
        rc = cli_usage("a key of %ld bytes: keys have 1 to %u bytes", n, BERTH_KEY_MAX);
    if (!rc) {
        memcpy(key->data, bytes, (size_t)n);
        key->size = (uint32_t)n;
        escape_bytes(key->text, sizeof key->text, bytes, (size_t)n);
    }
    free(bytes);
    return rc;
}

int cli_keys(char **argv, size_t n, struct cli_key **keys)
{
    if (!n)
        return cli_usage("a key is missing");
    struct cli_key *k = calloc(n, sizeof *k);
    if (!k)
        return cli_fail(-ENOMEM, NULL, "no memory for the keys");
    for (size_t i = 0; i < n; i++) {
        int rc = cli_key(argv[i], &k[i]);
        if (rc) {
            free(k);
            return rc;
        }
    }
    *keys = k;
    return 0;
}

struct berth_key cli_berth_key(const struct cli_key *key, uint32_t ns)
{
    return (struct berth_key){.data = key->data, .size = key->size, .ns = ns};
}
