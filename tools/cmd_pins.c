/* cmd_pins.c: berth pins [KEY] [--revoke KEY]: who pins, holds and leases what. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

const struct cli_option pins_options[] = {
    {"revoke", 0, "KEY", "end the processes that pin it: a pin can't be taken from one that lives"},
    {0},
};

struct pins {
    const char *revoke;
};

static int set(void *arg, const char *name, const char *value)
{
    (void)name;
    ((struct pins *)arg)->revoke = value;
    return 0;
}

static const char *text_of(const json_t *item, const char *name)
{
    const char *text = json_string_value(json_object_get(item, name));
    return text ? text : "?";
}

static void print_session(const json_t *session)
{
    size_t i;
    json_t *pin;
    json_array_foreach(json_object_get(session, "pins"), i, pin)
    {
        char bytes[24];
        bool retired = !strcmp(text_of(pin, "state"), "retired");
        printf("pin   %-16s pid %-8" PRIi64 " %10s  %s%s\n", text_of(session, "name"),
               (int64_t)cli_json_int(session, "pid"), cli_bytes(bytes, (uint64_t)cli_json_int(pin, "bytes")),
               text_of(pin, "key"), retired ? " (removed, waits for this pin)" : "");
    }
}

static void print_hold(const json_t *hold)
{
    char left[24] = "no end", bytes[24];
    json_int_t ttl = cli_json_int(hold, "ttl_ns");
    if (ttl > 0)
        cli_time(left, (uint64_t)ttl);
    printf("hold  %-16s %-12s %10s  %s\n", text_of(hold, "label"), left,
           cli_bytes(bytes, (uint64_t)cli_json_int(hold, "bytes")), text_of(hold, "key"));
}

static void print_lease(const json_t *lease)
{
    char left[24] = "over", bytes[24];
    json_int_t ns = cli_json_int(lease, "left_ns");
    if (ns > 0)
        cli_time(left, (uint64_t)ns);
    bool removed = !strcmp(text_of(lease, "state"), "retired");
    printf("lease %-16s %-12s %10s  %s%s%s\n", text_of(lease, "holder"), left,
           cli_bytes(bytes, (uint64_t)cli_json_int(lease, "bytes")), text_of(lease, "key"),
           json_is_true(json_object_get(lease, "in_flight")) ? " (in flight)" : "",
           removed ? " (removed, waits for this lease)" : "");
}

static void print(const json_t *report)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(report, "sessions"), i, item) print_session(item);
    json_array_foreach(json_object_get(report, "holds"), i, item) print_hold(item);
    json_array_foreach(json_object_get(report, "leases"), i, item) print_lease(item);
    if (json_is_true(json_object_get(report, "truncated")))
        puts("and more");
}

static const char *missing(struct berth *b)
{
    return cli_missing_here(b, "no such key on this node: ask a node that has a copy (-n)", CLI_NO_KEY);
}

static int show(struct berth *b, const struct cli_key *key, uint32_t ns)
{
    struct berth_key k;
    json_t *report;
    if (key)
        k = cli_berth_key(key, ns);
    int rc = cli_report_of(b, BERTH_PINS, key ? &k : NULL, &report);
    if (rc)
        return rc;
    if (json_is_false(json_object_get(report, "found")))
        rc = cli_fail(-ENOENT, key->text, missing(b));
    else if (cli.json)
        cli_json_print(json_incref(report));
    else
        print(report);
    json_decref(report);
    return rc;
}

static int revoke(struct berth *b, const struct cli_key *key, uint32_t ns)
{
    int n = berth_revoke(b, cli_berth_key(key, ns));
    if (n < 0)
        return n == -ENOENT ? cli_fail(n, key->text, missing(b)) : cli_fail_last(n, key->text);
    if (cli.json) {
        json_t *doc = cli_json();
        json_object_set_new(doc, "key", json_string(key->text));
        json_object_set_new(doc, "signalled", json_integer(n));
        cli_json_print(doc);
    } else {
        printf("%d process%s signalled\n", n, n == 1 ? "" : "es");
    }
    return CLI_OK;
}

int cmd_pins(int argc, char **argv)
{
    struct pins o = {0};
    int first = cli_parse(argc, argv, pins_options, set, &o);
    if (first <= 0)
        return -first;
    if (argc - first > 1 || (o.revoke && argc > first))
        return cli_usage("one key at most");
    const char *argument = o.revoke ? o.revoke : argc > first ? argv[first] : NULL;
    struct cli_key key;
    struct berth *b;
    uint32_t ns;
    int rc = argument ? cli_key(argument, &key) : 0;
    if (rc || (rc = cli_open(&b, 0, &ns)))
        return rc;
    rc = o.revoke ? revoke(b, &key, ns) : show(b, argument ? &key : NULL, ns);
    berth_close(b);
    return rc;
}
