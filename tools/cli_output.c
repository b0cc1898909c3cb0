/* cli_output.c: what `berth` prints: JSON documents, results by key, progress, figures. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/shell/log.h"
#include "tools/cli.h"

/* ---- JSON ---- */

json_t *cli_json(void)
{
    return json_pack("{s:i, s:s}", "schema", CLI_SCHEMA, "command", cli.command);
}

json_t *cli_json_text(const char *text)
{
    json_t *s = json_string(text);
    if (s)
        return s;
    char escaped[4096];
    escape_bytes(escaped, sizeof escaped, text, strlen(text));
    return json_string(escaped);
}

json_t *cli_json_error(int error, const char *sentence)
{
    json_t *o = json_pack("{s:i, s:s, s:o}", "code", error, "name", berth_error_name(error), "sentence",
                          cli_json_text(sentence));
    struct berth_error_info e;
    if (berth_error(NULL, &e) != error || !(e.figure[0] | e.figure[1] | e.figure[2] | e.figure[3]))
        return o;
    json_t *figures = json_array();
    for (unsigned i = 0; i < 4; i++)
        json_array_append_new(figures, json_integer((json_int_t)e.figure[i]));
    json_object_set_new(o, "figures", figures);
    return o;
}

void cli_json_print(json_t *document)
{
    json_dumpf(document, stdout, JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(document);
}

void cli_flush(void)
{
    if (fflush(stdout) != 0 && cli.write_error == 0)
        cli.write_error = errno;
}

json_t *cli_json_version(struct berth_version v)
{
    return json_sprintf("%" PRIu64 ":%" PRIu64, v.counter, v.region);
}

json_t *cli_json_hex(uint64_t n)
{
    return json_sprintf("0x%016" PRIx64, n);
}

/* ---- reports ---- */

int cli_report_of(struct berth *b, enum berth_question what, const struct berth_key *key, json_t **report)
{
    char *text;
    int rc = berth_query(b, what, key, &text);
    if (rc < 0)
        return cli_fail_last(rc, NULL);
    rc = cli_report_text(text, report);
    free(text);
    return rc;
}

int cli_report_text(const char *text, json_t **report)
{
    json_t *fields = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(fields)) {
        json_decref(fields);
        return cli_fail(BERTH_EFORMAT, NULL, "the node's report is no JSON object: use the same release of both");
    }
    *report = cli_json();
    json_object_update_missing(*report, fields);
    json_decref(fields);
    return 0;
}

json_int_t cli_json_int(const json_t *document, const char *path)
{
    char name[64];
    for (;;) {
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        document = json_object_get(document, name);
        if (!path[n])
            return json_integer_value(document);
        path += n + 1;
    }
}

/* ---- results by key ---- */

void cli_results_begin(struct cli_results *r)
{
    *r = (struct cli_results){.list = cli.json ? json_array() : NULL};
}

void cli_results_ok(struct cli_results *r, const struct cli_key *key, json_t *detail)
{
    if (!r->list) {
        json_decref(detail);
        return;
    }
    json_t *item = json_pack("{s:s}", "key", key->text);
    if (detail) {
        json_object_update(item, detail);
        json_decref(detail);
    }
    json_array_append_new(r->list, item);
}

void cli_results_fail(struct cli_results *r, const struct cli_key *key, int error, const char *sentence)
{
    char last[256];
    if (!sentence)
        sentence = cli_last_sentence(error, last, sizeof last);
    cli_warn_error(error, key->text, sentence);
    cli_results_note(r, key, error, sentence);
}

void cli_results_note(struct cli_results *r, const struct cli_key *key, int error, const char *sentence)
{
    if (r->list)
        json_array_append_new(r->list,
                              json_pack("{s:s, s:o}", "key", key->text, "error", cli_json_error(error, sentence)));
    r->node_gone |= error == BERTH_ENODE;
    if (r->exit && (r->exit != CLI_NOT_FOUND || cli_exit_code(error) == CLI_NOT_FOUND))
        return;
    int code = cli_exit_code(error);
    r->exit = code ? code : CLI_FAILED;
    r->error = error;
    snprintf(r->sentence, sizeof r->sentence, "%s", sentence);
}

int cli_results_end(struct cli_results *r)
{
    if (!r->list)
        return r->exit;
    json_t *doc = cli_json();
    json_object_set_new(doc, "results", r->list);
    if (r->exit) {
        json_object_set_new(doc, "error", cli_json_error(r->error, r->sentence));
        json_object_set_new(doc, "exit", json_integer(r->exit));
    }
    cli_json_print(doc);
    return r->exit;
}

/* ---- progress ---- */

#define SHOW_AFTER_NS INT64_C(1000000000)
#define SHOW_EVERY_NS INT64_C(100000000)

int64_t cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void cli_progress_begin(struct cli_progress *p, const char *what, uint64_t total, bool bytes)
{
    *p = (struct cli_progress){.what = what, .total = total, .bytes = bytes, .terminal = isatty(STDERR_FILENO)};
    p->start = p->terminal ? cli_now() : 0;
}

static const char *amount(const struct cli_progress *p, char out[24], uint64_t n)
{
    if (p->bytes)
        return cli_bytes(out, n);
    snprintf(out, 24, "%" PRIu64, n);
    return out;
}

void cli_progress_at(struct cli_progress *p, uint64_t done)
{
    if (!p->terminal)
        return;
    int64_t now = cli_now();
    if (now - p->start < SHOW_AFTER_NS || now - p->shown < SHOW_EVERY_NS)
        return;
    char have[24], all[24], rate[24];
    amount(p, have, done);
    amount(p, rate, (uint64_t)((double)done * 1e9 / (double)(now - p->start)));
    if (p->total)
        fprintf(stderr, "\r%s: %s of %s (%u%%), %s/s\033[K", p->what, have, amount(p, all, p->total),
                (unsigned)(100.0 * (double)done / (double)p->total), rate);
    else
        fprintf(stderr, "\r%s: %s, %s/s\033[K", p->what, have, rate);
    p->shown = now;
    p->visible = true;
}

void cli_progress_end(struct cli_progress *p)
{
    if (p->visible)
        fputs("\r\033[K", stderr);
    p->visible = false;
}

/* ---- figures ---- */

const char *cli_bytes(char out[24], uint64_t n)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    unsigned u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(out, 24, u && v < 100 ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return out;
}

const char *cli_date(char out[32], uint64_t us)
{
    time_t t = (time_t)(us / 1000000);
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S UTC", &tm))
        snprintf(out, 32, "?");
    return out;
}

const char *cli_time(char out[24], uint64_t ns)
{
    if (ns < 1000)
        snprintf(out, 24, "%" PRIu64 " ns", ns);
    else if (ns < 1000000)
        snprintf(out, 24, "%.1f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(out, 24, "%.1f ms", (double)ns / 1e6);
    else
        snprintf(out, 24, "%.2f s", (double)ns / 1e9);
    return out;
}
