/* cmd_why.c: berth why KEY..: whether a key is here, and what last became of it or of a put of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_option why_options[] = {{0}};

static int set(void *arg, const char *name, const char *value)
{
    (void)arg;
    (void)value;
    return cli_usage("unknown option '--%s'", name);
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static const struct {
    const char *what, *need, *sentence;
} sentences[] = {
    {"removed", "", "it was removed"},
    {"purged", "", "a purge removed it"},
    {"evicted", "high_watermark", "it was evicted: the pool was above its high watermark"},
    {"evicted", "same_size", "it was evicted: an object of its size needed the room"},
    {"evicted", "other_size", "it was evicted: an object of another size needed the room"},
    {"outdated", "", "it was a copy, of what was removed or replaced at another node"},
    {"put_failed", "", "a put of it failed"},
    {"given_up", "", "its writer gave it up before it was sealed"},
    {"writer_ended", "", "its writer ended before it was sealed"},
    {"shrunk", "", "the start with a smaller pool dropped it: it lay beyond the new end"},
    {"lost", "", "the start dropped it: the region no longer had its bytes"},
};

static const char *sentence_of(const json_t *last)
{
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++)
        if (!strcmp(text_of(last, "what"), sentences[i].what) && !strcmp(text_of(last, "need"), sentences[i].need))
            return sentences[i].sentence;
    return "it went";
}

static void print_last(const json_t *last, bool here)
{
    char when[32];
    const json_t *error = json_object_get(last, "error");
    printf("  %s%s, %s%s%s\n", here ? "before: " : "", sentence_of(last),
           cli_date(when, (uint64_t)cli_json_int(last, "when_us")), error ? ": " : "",
           error ? text_of(error, "sentence") : "");
}

static void print(const struct cli_key *key, const json_t *report)
{
    char when[32], size[24];
    const json_t *here = json_object_get(report, "here"), *last = json_object_get(report, "last");
    printf("%s\n", key->text);
    if (json_is_object(here))
        printf("  it is here: %s, sealed %s, version %s\n", cli_bytes(size, (uint64_t)cli_json_int(here, "bytes")),
               cli_date(when, (uint64_t)cli_json_int(here, "created_us")), text_of(here, "version"));
    if (json_is_true(json_object_get(report, "being_written")))
        printf("  it is being written\n");
    if (json_is_object(last)) {
        bool later = cli_json_int(last, "when_us") > cli_json_int(here, "created_us");
        print_last(last, json_is_object(here) && !later);
    }
    if (!strcmp(text_of(report, "state"), "unknown"))
        printf("  nothing is remembered of it since the node's start, %s\n",
               cli_date(when, (uint64_t)cli_json_int(report, "since_us")));
}

static int tell(struct berth *b, const struct cli_key *keys, size_t n, uint32_t ns)
{
    struct cli_results r;
    cli_results_begin(&r);
    for (size_t i = 0; i < n; i++) {
        char *text = NULL;
        struct berth_key key = cli_berth_key(&keys[i], ns);
        int rc = r.node_gone ? BERTH_ENODE : berth_query(b, BERTH_WHY, &key, &text);
        json_t *report = rc < 0 ? NULL : json_loads(text, 0, NULL);
        free(text);
        if (!report) {
            cli_results_fail(&r, &keys[i], rc < 0 ? rc : -EPROTO, rc < 0 ? NULL : "the node's report is no JSON");
            continue;
        }
        if (!cli.json)
            print(&keys[i], report);
        json_object_del(report, "schema");
        json_object_del(report, "key");
        if (!strcmp(text_of(report, "state"), "unknown")) {
            cli_results_note(&r, &keys[i], -ENOENT, "nothing is remembered of it");
            json_decref(report);
        } else {
            cli_results_ok(&r, &keys[i], report);
        }
    }
    return cli_results_end(&r);
}

int cmd_why(int argc, char **argv)
{
    int first = cli_parse(argc, argv, why_options, set, NULL);
    if (first <= 0)
        return -first;
    struct cli_key *keys;
    struct berth *b;
    uint32_t ns;
    int rc = cli_keys(argv + first, (size_t)(argc - first), &keys);
    if (rc)
        return rc;
    if (!(rc = cli_open(&b, BERTH_OPEN_READER, &ns))) {
        rc = tell(b, keys, (size_t)(argc - first), ns);
        berth_close(b);
    }
    free(keys);
    return rc;
}
