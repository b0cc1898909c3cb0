/* berthd_config.c: see berthd_config.h. Precedence is settings_set's: flag, environment, file, default. */
#include "tools/berthd_config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/berth.h"
#include "store/shell/log.h"
#include "store/shell/settings_value.h"
#include "tools/abbreviated.h"

#define OPTIONS_MAX 64u
#define LINE_SIZE 1024
#define FILE_MAX_BYTES (1u << 20)

/* ---- INI ---- */

/* inih tells a handler neither the line nor a long section name whole, so the reader that feeds it keeps both. */
struct ini {
    struct berthd_config *c;
    FILE *file;
    unsigned line;
    char section[LINE_SIZE];
    char *why;
    size_t why_size;
    int error; /* the first */
};

static int ini_fail(struct ini *in, int error, const char *sentence)
{
    if (!in->error) {
        snprintf(in->why, in->why_size, "%s:%u: %s", in->c->file, in->line, sentence);
        in->error = error;
    }
    return 0;
}

static const char *namespace_of(const char *section)
{
    if (strncmp(section, "namespace", 9) || !isspace((unsigned char)section[9]))
        return NULL;
    section += 9;
    while (isspace((unsigned char)*section))
        section++;
    return section;
}

static void enter_section(struct ini *in, const char *text)
{
    const char *end = strchr(text, ']');
    if (!end) {
        ini_fail(in, -EINVAL, "a section without its closing bracket");
        return;
    }
    snprintf(in->section, sizeof in->section, "%.*s", (int)(end - text), text);
    if (strcmp(in->section, "node") && strcmp(in->section, "peers") && !namespace_of(in->section)) {
        char sentence[LINE_SIZE + 96];
        snprintf(sentence, sizeof sentence, "unknown section '%s': there are [node], [peers] and [namespace NAME]",
                 in->section);
        ini_fail(in, -EINVAL, sentence);
    }
}

static char *read_line(char *out, int size, void *arg)
{
    struct ini *in = arg;
    if (in->error || !fgets(out, size, in->file))
        return NULL;
    in->line++;
    size_t n = strlen(out);
    if (ftello(in->file) > (off_t)FILE_MAX_BYTES) {
        ini_fail(in, -EINVAL, "the file has grown above 1 MiB while it was read");
        return NULL;
    }
    /* inih would take the rest of a longer line for another one. */
    if (n + 1 == (size_t)size && out[n - 1] != '\n') {
        ini_fail(in, -EINVAL, "the line is too long");
        return NULL;
    }
    const char *text = out;
    while (isspace((unsigned char)*text))
        text++;
    if (*text == '[')
        enter_section(in, text + 1);
    return in->error ? NULL : out;
}

static int ini_value(void *arg, const char *section, const char *name, const char *value)
{
    struct ini *in = arg;
    char where[256], sentence[300], message[400];
    (void)section;
    if (in->error)
        return 0;
    snprintf(where, sizeof where, "%s:%u", in->c->file, in->line);
    const char *space = namespace_of(in->section);
    int rc;
    if (!*in->section) {
        snprintf(message, sizeof message, "'%s' stands before any section: begin with [node]", name);
        return ini_fail(in, -EINVAL, message);
    }
    if (space)
        rc = settings_namespace(&in->c->settings, space, name, value, where, sentence, sizeof sentence);
    else if (!strcmp(in->section, "peers"))
        rc = settings_peer(&in->c->settings, name, value, where, sentence, sizeof sentence);
    else
        rc = settings_set(&in->c->settings, name, value, ORIGIN_FILE, where, sentence, sizeof sentence);
    return rc < 0 ? ini_fail(in, rc, sentence) : 1;
}

/* Not of a pipe or a device, whose end may never come; /dev/null says that there is none. Opening doesn't wait. */
static FILE *open_file(const char *path, char *why, size_t why_size)
{
    struct stat st, null;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_size, "cannot read '%s': %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) &&
               !(S_ISCHR(st.st_mode) && stat("/dev/null", &null) == 0 && null.st_rdev == st.st_rdev)) {
        snprintf(why, why_size, "cannot read '%s': it is not a regular file", path);
    } else if (st.st_size > (off_t)FILE_MAX_BYTES) {
        snprintf(why, why_size, "cannot read '%s': it has %lld bytes, a configuration at most %u", path,
                 (long long)st.st_size, FILE_MAX_BYTES);
    } else {
        FILE *file = fdopen(fd, "r");
        if (file)
            return file;
        snprintf(why, why_size, "cannot read '%s': %s", path, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static int load_file(struct berthd_config *c, char *why, size_t why_size)
{
    struct ini in = {.c = c, .why = why, .why_size = why_size};
    in.file = open_file(c->file, why, why_size);
    if (!in.file)
        return -EINVAL;
    ini_use_stack = false;
    ini_max_line = LINE_SIZE;
    ini_initial_alloc = LINE_SIZE;
    ini_allow_multiline = false; /* an indented line is a key of its own, not more of the last value */
    int rc = ini_parse_stream(read_line, &in, ini_value, &in);
    if (ferror(in.file)) {
        snprintf(why, why_size, "cannot read '%s': %s", c->file, strerror(EIO));
        in.error = -EIO;
    } else if (rc > 0 && !in.error) {
        in.line = (unsigned)rc;
        ini_fail(&in, -EINVAL, "neither a section, a comment nor 'name = value'");
    } else if (rc < 0 && !in.error) {
        ini_fail(&in, -ENOMEM, "no memory to read it");
    }
    fclose(in.file);
    return in.error;
}

/* ---- environment ---- */

static void variable_name(char *out, size_t size, const char *setting)
{
    snprintf(out, size, "BERTH_%s", setting);
    for (char *c = out; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static const struct setting *variable_setting(const char *name, size_t n)
{
    char want[64];
    for (unsigned i = 0; i < settings_count; i++) {
        variable_name(want, sizeof want, settings_table[i].name);
        if (strlen(want) == n && !memcmp(want, name, n))
            return &settings_table[i];
    }
    return NULL;
}

/* What somebody else sets: the node's address for clients; the seed of tests; and what Kubernetes gives every container
 * beside a Service that is called berth. */
static bool foreign_variable(const char *name, size_t n)
{
    static const char *const whole[] = {"BERTH_NODE", "BERTH_SEED", "BERTH_PORT", "BERTH_SERVICE_HOST",
                                        "BERTH_SERVICE_PORT"};
    static const char *const begins[] = {"BERTH_PORT_", "BERTH_SERVICE_PORT_"};
    for (unsigned i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strlen(whole[i]) == n && !memcmp(name, whole[i], n))
            return true;
    for (unsigned i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(name, begins[i], strlen(begins[i])))
            return true;
    return false;
}

static int load_variable(struct berthd_config *c, const char *entry, char *why, size_t why_size)
{
    const char *value = strchr(entry, '=');
    if (!value || strncmp(entry, "BERTH_", 6) || foreign_variable(entry, (size_t)(value - entry)))
        return 0;
    size_t n = (size_t)(value - entry);
    const struct setting *s = variable_setting(entry, n);
    if (!s) {
        snprintf(why, why_size, "unknown variable '%.*s': unset it, or see berthd --help", (int)(n < 200 ? n : 200),
                 entry);
        return -EINVAL;
    }
    char where[80], sentence[300];
    snprintf(where, sizeof where, "$%.*s", (int)n, entry);
    int rc = settings_set(&c->settings, s->name, value + 1, ORIGIN_ENVIRONMENT, where, sentence, sizeof sentence);
    if (rc < 0)
        snprintf(why, why_size, "%s: %s", where, sentence);
    return rc;
}

/* ---- flags ---- */

enum { FLAG_CONFIG = 1000, FLAG_PRINT, FLAG_HELP, FLAG_VERSION };

static void make_options(struct option *out)
{
    unsigned n = 0;
    _Static_assert(SETTINGS + 5 <= OPTIONS_MAX, "there is room for a flag of each");
    for (; n < settings_count; n++)
        out[n] = (struct option){settings_table[n].name, required_argument, NULL, (int)n + 1};
    out[n++] = (struct option){"config", required_argument, NULL, FLAG_CONFIG};
    out[n++] = (struct option){"print-config", no_argument, NULL, FLAG_PRINT};
    out[n++] = (struct option){"help", no_argument, NULL, FLAG_HELP};
    out[n++] = (struct option){"version", no_argument, NULL, FLAG_VERSION};
    out[n] = (struct option){0};
}

static int load_flag(struct berthd_config *c, int flag, char **argv, char *why, size_t why_size)
{
    switch (flag) {
    case FLAG_CONFIG:
        c->file = optarg;
        return 0;
    case FLAG_PRINT:
        c->print = true;
        return 0;
    case FLAG_HELP:
        c->help = true;
        return 0;
    case FLAG_VERSION:
        c->version = true;
        return 0;
    case '?':
    case ':':
        snprintf(why, why_size, flag == '?' ? "unknown option '%s': see berthd --help" : "'%s' needs a value",
                 argv[optind - 1]);
        return -EINVAL;
    default:
        break;
    }
    char where[80], sentence[300];
    snprintf(where, sizeof where, "--%s", settings_table[flag - 1].name);
    int rc = settings_set(&c->settings, settings_table[flag - 1].name, optarg, ORIGIN_FLAG, where, sentence,
                          sizeof sentence);
    if (rc < 0)
        snprintf(why, why_size, "%s: %s", where, sentence);
    return rc;
}

static int load_flags(struct berthd_config *c, int argc, char **argv, char *why, size_t why_size)
{
    struct option options[OPTIONS_MAX];
    make_options(options);
    int flag;
    opterr = 0;
    optind = 0;
    int index = 0;
    while ((flag = getopt_long(argc, argv, ":", options, &index)) != -1) {
        const char *typed = flag == '?' || flag == ':' ? NULL : abbreviated(argv, options[index].name);
        if (typed) {
            snprintf(why, why_size, "unknown option '%s': see berthd --help", typed);
            return -EINVAL;
        }
        int rc = load_flag(c, flag, argv, why, why_size);
        if (rc < 0)
            return rc;
    }
    if (optind < argc) {
        snprintf(why, why_size, "'%s' is no option: settings are given as --name VALUE", argv[optind]);
        return -EINVAL;
    }
    return 0;
}

int config_load(struct berthd_config *c, int argc, char **argv, char **environment, char *why, size_t why_size)
{
    *c = (struct berthd_config){0};
    settings_init(&c->settings);
    int rc = load_flags(c, argc, argv, why, why_size);
    if (rc < 0 || c->help || c->version)
        return rc;
    for (char **e = environment; *e; e++)
        if ((rc = load_variable(c, *e, why, why_size)) < 0)
            return rc;
    if (!c->file && !access(BERTHD_CONFIG, F_OK))
        c->file = BERTHD_CONFIG;
    if (c->file && (rc = load_file(c, why, why_size)) < 0)
        return rc;
    return settings_finish(&c->settings, why, why_size);
}

/* ---- what is shown ---- */

static void print_origin(const struct settings *s, unsigned i)
{
    static const char *const names[] = {[ORIGIN_DEFAULT] = "default",
                                        [ORIGIN_FILE] = "file",
                                        [ORIGIN_ENVIRONMENT] = "environment",
                                        [ORIGIN_URL] = "url",
                                        [ORIGIN_FLAG] = "flag"};
    char where[4 * sizeof s->source[0].where];
    escape_bytes(where, sizeof where, s->source[i].where, strlen(s->source[i].where));
    printf("%s%s%s", names[s->source[i].origin], *where ? " " : "", where);
}

static void print_peers(const struct settings *s)
{
    if (s->n_peers == 0)
        return;
    printf("\n[peers] ; ");
    print_origin(s, SET_PEERS);
    putchar('\n');
    for (uint32_t i = 0; i < s->n_peers; i++) {
        const struct settings_peer *p = &s->peers[i];
        printf("%s =%s%s", p->name, *p->address ? " " : "", p->address);
        if (*p->address && p->weight != 1)
            printf(" %u", p->weight);
        putchar('\n');
    }
}

void config_print(const struct berthd_config *c)
{
    const struct settings *s = &c->settings;
    printf("; %s\n[node]\n", c->file ? c->file : "no file was read");
    for (unsigned i = 0; i < settings_count; i++) {
        char value[300], line[400];
        if (i == SET_PEERS && s->n_peers > 0)
            continue; /* a section of its own, whatever its length */
        settings_value(s, i, value, sizeof value);
        snprintf(line, sizeof line, "%s = %s", settings_table[i].name, value);
        printf("%-48s ; ", line);
        print_origin(s, i);
        uint64_t bytes;
        if (settings_share(s, i, &bytes))
            printf(", %llu bytes", (unsigned long long)bytes);
        putchar('\n');
    }
    print_peers(s);
    for (uint32_t i = 0; i < s->n_namespaces; i++) {
        printf("\n[namespace %s]\nreplaceable = %s\n", s->namespaces[i].name,
               s->namespaces[i].replaceable ? "yes" : "no");
        if (s->shares[i][0])
            printf("share = %-40s ; %llu bytes\n", s->shares[i], (unsigned long long)s->namespaces[i].share_bytes);
    }
}

void config_help(void)
{
    printf("berthd [--config FILE] [--SETTING VALUE ..]\n\n"
           "Serves one region of shared memory; see berth for the tool.\n\n"
           "  --config FILE        settings of an INI file; default %s if it exists\n"
           "  --print-config       print every setting with its origin, start nothing\n"
           "  --help               this\n"
           "  --version            print the version\n\n"
           "Settings: as flag --NAME, as variable BERTH_NAME (capitals, _ for -), as key in [node] of the INI file;\n"
           "flags win over variables, variables over the file. [namespace NAME] takes replaceable = yes|no and\n"
           "share = SIZE|PERCENT, [peers] takes NAME = tcp://HOST:PORT [WEIGHT], one a line, this node among them.\n"
           "Sizes: K M G KiB MiB GiB are binary, KB MB GB decimal. Durations: ns us ms s m h d, as 500ms.\n\n",
           BERTHD_CONFIG);
    for (unsigned i = 0; i < settings_count; i++) {
        const struct setting *s = &settings_table[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", s->name, s->value);
        printf("  %-26s ", left);
        if (strlen(left) > 26)
            printf("\n%29s", "");
        printf("%s", s->doc);
        printf(" (%s%sdefault %s)\n", s->range, *s->range ? ", " : "", s->fallback);
    }
    puts("\nExit codes: 0 clean stop, 1 failure, 2 command line or configuration, 5 refused (region in use, files\n"
         "in its directory that are none of a node, an address in use, no space, memory that can't be locked).");
}
