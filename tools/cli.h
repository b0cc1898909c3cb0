/* cli.h: what the subcommands of `berth` share: options, exit codes, errors, JSON, keys, progress.
 *
 * A subcommand is `int cmd_NAME(int argc, char **argv)` with argv[0] its name; it returns an exit code. Its options are
 * a table `NAME_options`, from which parsing, help, completion and `berth help --json` are made, and which berth.c's
 * command table names.
 *
 * What people read goes to stdout, errors to stderr as one line. With --json stdout carries one JSON document with
 * "schema" and "command", on an error too ("error": {code, name, sentence}); the line on stderr stays.
 */
#ifndef BERTH_TOOLS_CLI_H
#define BERTH_TOOLS_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "store/berth.h"

#define CLI_SCHEMA 1

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_FOUND = 3,
    CLI_NO_NODE = 4,
    CLI_REFUSED = 5, /* full, busy, held, read-only, quota, permission */
    CLI_TIMED_OUT = 6
};

struct cli_option {    /* tables end with a NULL name */
    const char *name;  /* "label": --label L or --label=L */
    char letter;       /* 'l', or 0 */
    const char *value; /* placeholder in help; NULL: takes no value */
    const char *doc;
};

struct cli_command {
    const char *name;
    const char *operands; /* "KEY [FILE|-]" */
    const char *doc;      /* one line */
    const struct cli_option *options;
    int (*run)(int argc, char **argv);
    const char *notes; /* a paragraph of its help, or NULL */
    /* The i-th value that its operand may have; false: there are no more. NULL: any. */
    bool (*choice)(unsigned i, const char **name, const char **doc);
};
extern const struct cli_command cli_commands[]; /* berth.c; ends with a NULL name */

/* The options that every command takes, before or behind its name: -n, -N, -t, --json, --help. */
extern const struct cli_option common_options[];

struct cli {
    const char *node; /* -n URL; NULL: as berth_open has it */
    const char *ns;   /* -N NAME; "" is the default */
    bool ns_given;
    int64_t timeout_ns;  /* -t; 0: the library's */
    bool json;           /* --json */
    bool pipe_closed;    /* who read our output has gone: end as SIGPIPE would, quietly */
    int write_error;     /* the first of cli_flush; 0: none */
    const char *command; /* "berth" before one was found */
};
extern struct cli cli;

int cmd_put(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_exists(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_purge(int argc, char **argv);
int cmd_why(int argc, char **argv);
int cmd_whatif(int argc, char **argv);
int cmd_hold(int argc, char **argv);
int cmd_drop(int argc, char **argv);
int cmd_pins(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
bool bench_choice(unsigned i, const char **name, const char **doc);
int cmd_replay(int argc, char **argv);
extern const struct cli_option put_options[], get_options[], exists_options[], ls_options[], stat_options[],
    rm_options[], purge_options[], why_options[], whatif_options[], hold_options[], drop_options[], pins_options[],
    status_options[], top_options[], check_options[], bench_options[], replay_options[];

/* ---- options ---- */

/* Parses a command's arguments: common options into `cli`, the others by set(arg, name, value) (value NULL where the
 * option takes none), which returns 0 or an exit code after it reported the error. argv is permuted. Returns the index
 * of the first operand (> 0); or 0 after --help was served; or minus an exit code: int first = cli_parse(argc, argv,
 * put_options, set, &o); if (first <= 0) return -first; Options behind "--" are operands. */
int cli_parse(int argc, char **argv, const struct cli_option *options,
              int (*set)(void *arg, const char *name, const char *value), void *arg);

/* The same, but ends at the first operand: for options before the command's name. */
int cli_parse_leading(int argc, char **argv, const struct cli_option *options,
                      int (*set)(void *arg, const char *name, const char *value), void *arg);

/* By name, or NULL. */
const struct cli_command *cli_find(const char *name);
/* Help of a command, or of all (NULL): text, or JSON with --json. Made from the tables, in help.c. */
void cli_help(const struct cli_command *command);
/* A bash completion script on stdout. */
void cli_completion(void);

/* Values of options. 0, or CLI_USAGE after the error was reported with the option's name and the accepted form. */
int cli_size(const char *option, const char *text, uint64_t *bytes);          /* 64KiB, 1G */
int cli_duration(const char *option, const char *text, int64_t *ns);          /* 500ms, 1s, 5m, 2h; ns us ms s m h d */
#define CLI_TTL_NONE "--ttl: '%s' is no time at all: leave it out for no end" /* of put and hold */
int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *n); /* decimal or 0x */

/* ---- errors ---- */

#define CLI_NO_KEY "no such key" /* the sentence of a key that is not there, in every command */

/* The exit code of a negative error. */
int cli_exit_code(int error);

/* Reports an error that ends the command: "berth: put: BERTH_EFULL: 'subject': sentence" on stderr, with --json the
 * document on stdout. subject may be NULL; it is escaped. Returns the exit code. */
int cli_fail(int error, const char *subject, const char *sentence) __attribute__((warn_unused_result));
/* The same with berth_error()'s sentence of the last library call. */
int cli_fail_last(int error, const char *subject) __attribute__((warn_unused_result));
/* As cli_fail with another exit code than the error's own: a file that is missing is not a key that is missing. */
int cli_report(int error, int code, const char *subject, const char *sentence);
/* That sentence, or the error's own where the last call had another; returns out. */
const char *cli_last_sentence(int error, char *out, size_t size);
/* A wrong command line: the message, a pointer to --help, exit code CLI_USAGE. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2), warn_unused_result));
/* Only an error's line on stderr, as cli_fail has it: with the name that the documents go by. */
void cli_warn_error(int error, const char *subject, const char *sentence);
/* Only the line on stderr: "berth: put: ..."; the message is escaped. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the node ---- */

/* Flags for cli_open where keys are only read. With --peers a namespace that this node has not met is made here: its
 * objects may be elsewhere. */
uint32_t cli_reader(bool peers);

/* Opens the node of -n with flags (BERTH_OPEN_READER or 0) and resolves -N into *ns (may be NULL). 0, or an exit code
 * after the error was reported; then there is no handle. */
int cli_open(struct berth **b, uint32_t flags, uint32_t *ns);
/* Deadline of a call: -t from now, else BERTH_FOREVER. */
int64_t cli_deadline(void);
/* Whether the node has peers; false also where it does not say, or there is none. */
bool cli_has_peers(struct berth *b);
/* What a missing key's sentence is: with a word of --peers where the node has peers and they were not asked. */
const char *cli_missing(struct berth *b, bool asked_peers);
/* The same of what peers are never asked for (rm, hold, drop, pins): hint where the node has peers, else plain. */
const char *cli_missing_here(struct berth *b, const char *hint, const char *plain);
#define CLI_COPY_ELSEWHERE \
    "no such key on this node: do it at a node that has a copy (-n), or get it here first (get --peers)"
/* Whether the node is embedded and its region goes with this process. */
bool cli_node_is_passing(void);

/* ---- keys ---- */

#define CLI_KEY_TEXT (4 * BERTH_KEY_MAX + 1) /* the longest key, escaped */

struct cli_key {
    uint8_t data[BERTH_KEY_MAX];
    uint32_t size;
    char text[CLI_KEY_TEXT]; /* escaped: what is printed and accepted back */
};

/* A key from the command line: \xNN, \\, \n, \t, \r, \0 stand for bytes; 1 to 480 bytes. 0, or CLI_USAGE after the
 * error was reported. */
int cli_key(const char *argument, struct cli_key *key);
/* n keys, malloc'd, from argv. */
int cli_keys(char **argv, size_t n, struct cli_key **keys);
struct berth_key cli_berth_key(const struct cli_key *key, uint32_t ns);

/* ---- JSON ---- */

/* {"schema": 1, "command": ...}, for the caller to fill. */
json_t *cli_json(void);
/* A string; bytes that are no UTF-8 are escaped. */
json_t *cli_json_text(const char *text);
/* {"code", "name", "sentence"}, and "figures" as berth_error() has them, where the last call left some of this
 * error. */
json_t *cli_json_error(int error, const char *sentence);
/* What was printed so far is seen now. An error is kept for the end of the command: stdio forgets its number. */
void cli_flush(void);
/* Prints a document as one line and gives it back. */
void cli_json_print(json_t *document);
/* "counter:region", as --version takes it; 64 bit numbers in hexadecimal, which JSON's integers can't hold. */
json_t *cli_json_version(struct berth_version v);
json_t *cli_json_hex(uint64_t n);

/* A report of the node as a document with "schema" and "command". 0, or an exit code after the error was reported. */
int cli_report_of(struct berth *b, enum berth_question what, const struct berth_key *key, json_t **report);
/* The same of a report's text. */
int cli_report_text(const char *text, json_t **report);
/* A number below a path of objects, "pool/used_bytes"; 0 where there is none. */
json_int_t cli_json_int(const json_t *document, const char *path);

/* Results of a command that takes several keys: every failed key is listed. The first failure decides, but "not found"
 * gives way to any other: it is an answer, and what is said to be unknown or refused is none. */
struct cli_results {
    json_t *list;    /* with --json */
    int exit, error; /* of the failure that decides */
    char sentence[256];
    bool node_gone; /* ask no more: the other keys would each wait for it again */
};
void cli_results_begin(struct cli_results *r);
/* A key that went well; detail (may be NULL) is taken over. */
void cli_results_ok(struct cli_results *r, const struct cli_key *key, json_t *detail);
/* A key that failed; sentence NULL: the library's last. */
void cli_results_fail(struct cli_results *r, const struct cli_key *key, int error, const char *sentence);
/* The same without a line on stderr: what the command says of it stands on stdout. */
void cli_results_note(struct cli_results *r, const struct cli_key *key, int error, const char *sentence);
/* Prints the document, returns the exit code. */
int cli_results_end(struct cli_results *r);

/* ---- progress and figures ---- */

/* A line on stderr, for what takes longer than a second, when stderr is a terminal; else nothing at all. */
struct cli_progress {
    const char *what;
    uint64_t total; /* 0: unknown */
    int64_t start, shown;
    bool terminal, visible, bytes;
};
void cli_progress_begin(struct cli_progress *p, const char *what, uint64_t total, bool bytes);
void cli_progress_at(struct cli_progress *p, uint64_t done);
void cli_progress_end(struct cli_progress *p);

int64_t cli_now(void); /* CLOCK_MONOTONIC ns */
/* "1.5 GiB", "640 B"; "1.2 ms". Return out. */
const char *cli_bytes(char out[24], uint64_t n);
const char *cli_time(char out[24], uint64_t ns);
/* "2026-01-31 23:59:59 UTC" of microseconds since 1970, or "?". Returns out. */
const char *cli_date(char out[32], uint64_t us);

#endif
