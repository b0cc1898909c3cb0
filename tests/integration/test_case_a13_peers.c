/* Case A13 with peers: one access counts once, at the reader and under its own label at the node that served it. */
#include "tests/support/duo.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define A 0
#define B 1
#define KEYS 10
#define SECONDS(n) ((n)*INT64_C(1000000000))

static struct duo d;

struct counts {
    double gets, hits, pulled, misses, exists;
};

static struct counts counts(unsigned node)
{
    return (struct counts){daemon_number(d.b[node], "local.gets"), daemon_number(d.b[node], "local.hits"),
                           daemon_number(d.b[node], "local.pulled"), daemon_number(d.b[node], "local.misses"),
                           daemon_number(d.b[node], "local.exists")};
}

/* What has come since, to the unit. */
static struct counts expect(unsigned node, struct counts was, int hits, int pulled, int misses)
{
    struct counts now = counts(node);
    assert_int_equal(now.hits - was.hits, hits);
    assert_int_equal(now.pulled - was.pulled, pulled);
    assert_int_equal(now.misses - was.misses, misses);
    assert_int_equal(now.gets - was.gets, hits + pulled + misses);
    return now;
}

static double cli_number(const json_t *doc, const char *path)
{
    char part[64];
    while (path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        doc = json_object_get(doc, part);
        path = path[n] ? path + n + 1 : NULL;
    }
    assert_non_null(doc);
    return json_number_value(doc);
}

/* The command line and the metrics say what the status says. */
static void agree(unsigned node, const char *path, const char *metric)
{
    char *text = duo_cli_status(&d, node);
    json_t *doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    double want = daemon_number(d.b[node], path);
    assert_int_equal(cli_number(doc, path), want);
    assert_int_equal(duo_metric(&d, node, metric), want);
    json_decref(doc);
    free(text);
}

static int get(unsigned node, const char *key, unsigned flags)
{
    struct berth_view v;
    int rc = berth_get(d.b[node], key_of(key), &v, flags, berth_deadline(SECONDS(10)));
    if (rc == 0) {
        assert_true(payload_is(v.data, v.size, key));
        berth_release(d.b[node], &v, 1);
    }
    return rc;
}

static void one_access_counts_once(void **state)
{
    struct berth_key there = key_of("k1");
    struct berth_cursor cursor = {0};
    struct berth_entry entries[16];
    char key[16];
    uint8_t present;
    (void)state;
    duo_start(&d);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        duo_put(&d, A, key, 3000);
    }
    duo_becomes(&d, A, "remote.gets", 1); /* of the greeting */
    struct counts a = counts(A), b = counts(B);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(get(A, key, 0), 0);
        assert_int_equal(get(B, key, BERTH_PEERS), 0);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "no%d", i);
        assert_int_equal(get(A, key, 0), -ENOENT);
        assert_int_equal(berth_exists(d.b[A], &there, 1, &present, 0), 1);
    }
    assert_true(berth_list(d.b[A], 0, "k", 1, &cursor, entries, 16) == KEYS);
    a = expect(A, a, 10, 0, 5);
    b = expect(B, b, 0, 10, 0);
    assert_int_equal(a.exists, 5);
    duo_becomes(&d, A, "remote.gets", 11); /* when the leases are given back */
    assert_int_equal(daemon_number(d.b[A], "remote.by.b.gets"), 11);
    assert_int_equal(daemon_number(d.b[A], "counters.lease_uses"), 11);
    agree(A, "local.hits", "berth_local_hits_total");
    agree(A, "local.misses", "berth_local_misses_total");
    agree(A, "local.gets", "berth_local_gets_total");
    agree(A, "remote.by.b.gets", "berth_remote_gets_total{peer=\"b\"}");
    agree(B, "local.pulled", "berth_local_pulled_total");
    agree(B, "local.gets", "berth_local_gets_total");
    agree(B, "pull.by.a.moved_bytes", "berth_pull_source_bytes_total{peer=\"a\",transport=\"tcp\"}");
    agree(B, "pull.moved_bytes", "berth_pull_moved_bytes_total");
    agree(B, "pull.by.a.moved_bytes", "berth_pull_moved_bytes_total"); /* there is no other source */
    agree(A, "remote.by.b.bytes_sent", "berth_remote_sent_bytes_total{peer=\"b\"}");
    assert_int_equal(daemon_number(d.b[A], "remote.by.b.bytes_sent"), daemon_number(d.b[B], "pull.by.a.moved_bytes"));
    assert_int_equal(daemon_number(d.b[A], "remote.by.b.leases_given"), daemon_number(d.b[B], "pull.by.a.leases_got"));
    agree(A, "remote.by.b.leases_given", "berth_remote_leases_total{peer=\"b\"}");
    agree(B, "pull.failed_by.absent", "berth_pull_failed_total{cause=\"absent\"}");
    duo_end(&d);
}

static long queued(unsigned node, uint16_t opcode, const char *key, unsigned flags)
{
    static uint8_t buffer[4096];
    struct berth_queue *q;
    struct berth_view v = {0};
    struct berth_range range = {.offset = 10, .size = 20, .data = buffer};
    struct berth_op *done = NULL, op = {.opcode = opcode,
                                        .key = key_of(key),
                                        .flags = flags,
                                        .data = buffer,
                                        .size = sizeof buffer,
                                        .view = &v,
                                        .ranges = &range,
                                        .n = opcode == BERTH_OP_GET_RANGE,
                                        .deadline = berth_deadline(SECONDS(10))};
    assert_int_equal(berth_queue_open(d.b[node], 1, &q), 0);
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, &done, 1, berth_deadline(SECONDS(20))), 1);
    berth_release(d.b[node], &v, 1);
    berth_queue_close(q);
    return op.result;
}

/* Every other way to read, of a key that only the peer has, of one that is here, and of one that nobody has. */
static void every_way_to_read(void **state)
{
    static const uint16_t ops[] = {BERTH_OP_GET, BERTH_OP_GET_INTO, BERTH_OP_GET_RANGE};
    struct berth_view v[4];
    uint8_t buffer[4096];
    (void)state;
    duo_start(&d);
    struct counts b = counts(B);
    for (unsigned i = 0; i < 3; i++) {
        char key[16];
        snprintf(key, sizeof key, "q%u", i);
        duo_put(&d, A, key, 1000);
        assert_true(queued(B, ops[i], key, BERTH_PEERS) >= 0);
        b = expect(B, b, 0, 1, 0);
        assert_true(queued(B, ops[i], key, BERTH_PEERS) >= 0);
        b = expect(B, b, 1, 0, 0);
        assert_int_equal(queued(B, ops[i], "nobody", BERTH_PEERS), -ENOENT);
        b = expect(B, b, 0, 0, 1);
        assert_int_equal(queued(B, ops[i], "nobody", 0), -ENOENT);
        b = expect(B, b, 0, 0, 1);
    }
    const char *name[] = {"m0", "m1", "m2", "m3"};
    struct berth_key keys[4];
    for (unsigned i = 0; i < 4; i++) {
        keys[i] = key_of(name[i]);
        if (i < 3) {
            duo_put(&d, i == 0 ? B : A, name[i], 1000);
        }
    }
    assert_int_equal(berth_get_many(d.b[B], keys, 4, v, BERTH_PEERS, berth_deadline(SECONDS(10))), 3);
    berth_release(d.b[B], v, 4);
    b = expect(B, b, 1, 2, 1);
    assert_int_equal(berth_prefix(d.b[A], keys, 4, v, BERTH_PEERS, berth_deadline(SECONDS(10))), 3);
    berth_release(d.b[A], v, 3);
    duo_put(&d, A, "into", 1000);
    assert_int_equal(berth_get_into(d.b[B], key_of("into"), buffer, sizeof buffer, BERTH_PEERS, BERTH_FOREVER), 1000);
    b = expect(B, b, 0, 1, 0);
    assert_int_equal(get(B, "nobody", BERTH_PEERS), -ENOENT);
    expect(B, b, 0, 0, 1);
    duo_end(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_access_counts_once), cmocka_unit_test(every_way_to_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
