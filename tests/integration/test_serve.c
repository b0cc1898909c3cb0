/* test_serve.c: what a node gives to its peers: leases, transfers under them, and what becomes of both. */
#include "store/layout.h"
#include "store/slot.h"
#include "tests/support/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* After what it uses. */
#include "tests/support/served.h"

static void test_lease_read_release(void **unused)
{
    struct wire_lease l;
    (void)unused;
    start("5s", "50%");
    put("large", 3 * MIB + 123);
    put("small", 100);
    remote_open(&reader, address, "reader");
    const char *keys[] = {"small", "large"};
    for (int i = 0; i < 2; i++) {
        leases_ok(&reader, keys[i], &l);
        assert_int_equal(l.size, i ? 3 * MIB + 123 : 100);
        assert_int_equal(l.duration, 5000 * MS);
        reads_well(&reader, keys[i], &l);
        assert_int_equal(remote_read(&reader, &l, 7, l.size - 9, got), 0); /* a part of it */
        remote_release(&reader, l.id, 2);
        assert_int_equal(remote_read(&reader, &l, 0, l.size, got), BERTH_ESTALE);
    }
    assert_int_equal(remote_lease(&reader, "absent", 0, &l), -ENOENT);
    expect_at_least("remote.served", 4);
    expect_number("remote.gets", 4);
    expect_number("remote.bytes_sent", 2.0 * (3 * MIB + 123) - 9 + 100 + 91);
    expect_number("remote.refused", 2);
    expect_number("remote.leases", 0);
    expect_number("local.hits", 0); /* a peer's get counts once, under its own label */
    remote_close(&reader);
    end();
}

static void test_reads_outside(void **unused)
{
    struct wire_lease l, m;
    (void)unused;
    start("5s", "50%");
    put("one", 10000);
    put("two", 10000);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "one", &l);
    leases_ok(&reader, "two", &m);
    assert_int_equal(remote_read(&reader, &l, 0, 10001, got), -EINVAL);
    assert_int_equal(remote_read(&reader, &l, 1, 10000, got), -EINVAL);
    struct wire_lease bad = l;
    bad.offset = m.offset; /* another's bytes, though leased as well */
    assert_int_equal(remote_read(&reader, &bad, 0, 10000, got), -EINVAL);
    bad = l;
    bad.offset -= 1;
    assert_int_equal(remote_read(&reader, &bad, 0, 1, got), -EINVAL);
    bad = l;
    bad.generation++;
    assert_int_equal(remote_read(&reader, &bad, 0, 10000, got), BERTH_ESTALE);
    bad = l;
    bad.id ^= UINT64_C(1) << 40;
    assert_int_equal(remote_read(&reader, &bad, 0, 10000, got), BERTH_ESTALE);
    expect_number("remote.serving", 0); /* what was refused is not in use */
    remote_open(&other, address, "other");
    assert_int_equal(remote_read(&other, &l, 0, 10000, got), BERTH_ESTALE); /* not its lease */
    assert_int_equal(remote_renew(&other, l.id, true), BERTH_ESTALE);
    remote_release(&other, l.id, 1);
    leases_ok(&other, "two", &m); /* the release has come before this */
    reads_well(&reader, "one", &l);
    expect_number("remote.gets", 0);
    remote_close(&other);
    remote_close(&reader);
    end();
}

/* ---- the end of leases ---- */

static double left_of(const char *key)
{
    char *text = NULL;
    double left = -1;
    size_t i;
    json_t *one;
    assert_int_equal(berth_query(b, BERTH_PINS, NULL, &text), 0);
    json_t *root = json_loads(text, 0, NULL);
    json_array_foreach(json_object_get(root, "leases"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "key")), key) == 0) {
            left = json_number_value(json_object_get(one, "left_ns"));
            assert_string_equal(json_string_value(json_object_get(one, "holder")), "reader");
        }
    }
    json_decref(root);
    free(text);
    return left;
}

static void test_removed_while_leased(void **unused)
{
    struct wire_lease l, n;
    uint64_t word;
    (void)unused;
    start("1s", "50%");
    put("gone", 5 * MIB);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "gone", &l);
    double left = left_of("gone");
    assert_true(left > 0 && left <= 1260e6 + 1e6);
    assert_int_equal(berth_remove(b, key_of("gone"), NULL), 0);
    assert_int_equal(remote_lease(&reader, "gone", 0, &n), -ENOENT);
    assert_int_equal(remote_state(&reader, l.slot, l.generation, &word), 0);
    assert_int_equal(word, slot_word(l.generation, SLOT_RETIRED));
    reads_well(&reader, "gone", &l);
    assert_int_equal(remote_renew(&reader, l.id, false), BERTH_ESTALE);
    assert_int_equal(remote_renew(&reader, l.id, true), 0);
    reads_well(&reader, "gone", &l);
    expect_number("slots.retired", 1);
    /* Room for it is there only when the lease has ended; until then its bytes are what they were. */
    struct wanted over = {"counters.leases_expired", 1};
    while (!reached(&over)) {
        int status = remote_read(&reader, &l, 0, l.size, got);
        assert_true(status == BERTH_ESTALE || (status == 0 && payload_is(got, l.size, "gone")));
    }
    expect_at_least("counters.freed", 1);
    assert_int_equal(remote_read(&reader, &l, 0, l.size, got), BERTH_ESTALE);
    assert_int_equal(remote_state(&reader, l.slot, l.generation, &word), -ENOENT);
    remote_close(&reader);
    end();
}

/* With the first bytes, in the middle of the transport's turn. */
static void die(struct transfer *t, uint64_t offset, const void *at, size_t n)
{
    (void)t, (void)offset, (void)at, (void)n;
    kill(getpid(), SIGKILL);
}

/* A reader in another process, which is killed while it is being sent to. */
static void half_a_read(void)
{
    struct wire_lease l;
    struct transfer t;
    struct iovec at;
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "big", &l);
    remote_post(&reader, &t, &at, &l, got);
    t.progress = die;
    remote_until(&reader, remote_has_read, &t);
    _exit(1);
}

static void test_killed_reader(void **unused)
{
    int status;
    (void)unused;
    start("2s", "100%");
    put("big", 12 * MIB);
    pid_t pid = fork();
    if (pid == 0) {
        half_a_read();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    expect_at_least("remote.broken_off", 1);
    expect_number("remote.serving", 0);
    expect_number("remote.leases", 1); /* what is in the sockets may still be on its way */
    assert_int_equal(berth_remove(b, key_of("big"), NULL), 0);
    expect_number("slots.retired", 1);
    payload_fill(payload, 12 * MIB, "next");
    assert_int_equal(berth_put(b, key_of("next"), payload, 12 * MIB, NULL), BERTH_EFULL);
    expect_at_least("counters.leases_expired", 1);
    expect_at_least("counters.freed", 1);
    assert_int_equal(berth_put(b, key_of("next"), payload, 12 * MIB, NULL), 0);
    end();
}

/* Given back while its bytes are on their way, and then the connection is reset: they may lie in sockets yet, so the
 * slot is not free at once but when the lease would have ended (rule 23). */
static void test_released_and_reset(void **unused)
{
    struct wire_lease l;
    struct transfer t;
    struct iovec at;
    (void)unused;
    start("4s", "100%");
    put("big", 12 * MIB);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "big", &l);
    remote_post(&reader, &t, &at, &l, got);
    remote_release(&reader, l.id, 1);
    expect_at_least("remote.serving", 1); /* the reader takes nothing: its sockets are full */
    expect_at_least("counters.lease_releases", 1);
    assert_int_equal(berth_remove(b, key_of("big"), NULL), 0);
    remote_close(&reader);
    expect_at_least("remote.broken_off", 1);
    expect_number("remote.serving", 0);
    int64_t until = berth_deadline(INT64_C(2000000000)); /* the quarantine of every slot is over by then */
    while (berth_deadline(0) < until) {
        daemon_retired(b, 1);
    }
    payload_fill(payload, 12 * MIB, "next");
    assert_int_equal(berth_put(b, key_of("next"), payload, 12 * MIB, NULL), BERTH_EFULL);
    expect_at_least("counters.freed", 1);
    assert_int_equal(berth_put(b, key_of("next"), payload, 12 * MIB, NULL), 0);
    end();
}

/* Until so little of the lease is left, the reader's messages being answered meanwhile. */
static void wait_left(const char *key, double ns)
{
    while (left_of(key) > ns) {
        remote_turn(&reader, 20);
    }
}

static void test_renew(void **unused)
{
    struct wire_lease l;
    (void)unused;
    start("1s", "50%");
    put("kept", 1000);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "kept", &l);
    for (int i = 0; i < 5; i++) { /* to beyond the first end */
        assert_int_equal(remote_renew(&reader, l.id, true), 0);
        assert_int_equal(reader.item[0].renewed.duration, 1000 * MS);
        wait_left("kept", 600e6);
    }
    reads_well(&reader, "kept", &l);
    expect_number("counters.leases_expired", 0);
    remote_close(&reader);
    end();
}

/* ---- bounds ---- */

static bool was_recalled(void *remote)
{
    return ((struct remote *)remote)->n_recalled >= 2;
}

/* An eighth of 16 MiB may be kept by idle leases. */
static void test_recall(void **unused)
{
    struct wire_lease l[5];
    char key[16];
    (void)unused;
    start("5s", "100%");
    remote_open(&reader, address, "reader");
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", i);
        put(key, MIB);
        leases_ok(&reader, key, &l[i]);
        assert_int_equal(remote_renew(&reader, l[i].id, false), 0); /* idle from now on */
    }
    assert_true(remote_until(&reader, was_recalled, &reader));
    assert_int_equal(reader.recalled[0], l[0].id);
    assert_int_equal(reader.recalled[1], l[1].id);
    expect_at_least("remote.recalls", 2);
    assert_int_equal(remote_renew(&reader, l[0].id, false), BERTH_ESTALE);
    reads_well(&reader, "k0", &l[0]); /* good until its end all the same */
    remote_release(&reader, l[0].id, 0);
    remote_close(&reader);
    end();
}

static void test_quota(void **unused)
{
    struct wire_lease l, n;
    (void)unused;
    start("5s", "3M");
    put("a", 2 * MIB);
    put("b", 2 * MIB);
    remote_open(&reader, address, "reader");
    remote_open(&other, address, "other");
    leases_ok(&reader, "a", &l);
    assert_int_equal(remote_lease(&reader, "b", 0, &n), BERTH_EQUOTA);
    leases_ok(&other, "b", &n); /* a peer's bound is its own */
    remote_release(&reader, l.id, 1);
    leases_ok(&reader, "b", &n);
    expect_at_least("remote.leases_refused", 1);
    assert_int_equal(remote_lease(&reader, "none", 0, &n), -ENOENT);
    expect_number("counters.leases_given", 3);
    assert_int_equal(daemon_metric(b, "berth_remote_leases_total{peer=\"\"}"), 3);
    assert_int_equal(daemon_metric(b, "berth_remote_lease_refusals_total{peer=\"\"}"), 1);
    remote_close(&other);
    remote_close(&reader);
    end();
}

static void test_hundreds(void **unused)
{
    static struct wire_item item[WIRE_LEASES_MAX];
    static char key[256][16];
    static uint64_t ids[768];
    struct wire_message m = {.head = {.op = WIRE_LEASE}};
    (void)unused;
    start("5s", "100%");
    for (int i = 0; i < 256; i++) {
        snprintf(key[i], sizeof key[i], "k%d", i);
        put(key[i], 64);
        item[i] = (struct wire_item){.key = {.data = key[i], .size = (uint32_t)strlen(key[i])}};
    }
    remote_open(&reader, address, "reader");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(remote_ask(&reader, &m, item, 256), 0);
        assert_int_equal(reader.n, 256);
        for (int i = 0; i < 256; i++) {
            assert_int_equal(reader.item[i].leased.status, 0);
            ids[256 * round + i] = reader.item[i].leased.lease.id;
            struct wire_lease l = reader.item[i].leased.lease;
            if (i % 50 == 0) {
                reads_well(&reader, key[i], &l);
            }
        }
        if (round == 0) { /* reads_well has answered nothing, but took the items' place */
            expect_number("remote.leases", 256);
        }
    }
    for (int i = 0; i < 768; i++) {
        item[i] = (struct wire_item){.renew = {.lease = i == 700 ? 1 : ids[i], .in_flight = true}};
    }
    m = (struct wire_message){.head = {.op = WIRE_RENEW}}; /* in three parts to the core, one answer */
    assert_int_equal(remote_ask(&reader, &m, item, 768), 0);
    assert_int_equal(reader.n, 768);
    for (int i = 0; i < 768; i++) {
        assert_int_equal(reader.item[i].renewed.status, i == 700 ? BERTH_ESTALE : 0);
    }
    for (int i = 0; i < 768; i++) {
        item[i] = (struct wire_item){.release = {.lease = ids[i], .uses = 1}};
    }
    m = (struct wire_message){.head = {.op = WIRE_RELEASE}};
    remote_tell(&reader, &m, item, 768);
    expect_at_least("remote.gets", 768);
    expect_number("remote.leases", 0);
    remote_close(&reader);
    end();
}

/* The longest run from the first key: what comes behind it is not kept. */
static void test_prefix(void **unused)
{
    struct wire_message m = {.head = {.op = WIRE_LEASE, .flags = WIRE_PREFIX}};
    const char *keys[] = {"a", "b", "none", "c"};
    struct wire_item item[4];
    (void)unused;
    start("5s", "50%");
    for (int i = 0; i < 4; i++) {
        item[i] = (struct wire_item){.key = {.data = keys[i], .size = (uint32_t)strlen(keys[i])}};
        if (i != 2) {
            put(keys[i], 100);
        }
    }
    remote_open(&reader, address, "reader");
    assert_int_equal(remote_ask(&reader, &m, item, 4), 0);
    assert_int_equal(reader.n, 2);
    expect_at_least("counters.lease_releases", 1);
    expect_number("remote.leases", 2);
    assert_int_equal(remote_ask(&reader, &m, item + 2, 2), 0);
    assert_int_equal(reader.n, 0);
    remote_close(&reader);
    end();
}

/* ---- hostile ---- */

static bool is_down(void *remote)
{
    return ((struct remote *)remote)->down;
}

/* A right LEASE with one thing spoilt ends the connection, and nothing else. */
static void spoilt(uint32_t at, uint8_t byte)
{
    struct wire_message m = {.head = {.op = WIRE_LEASE, .id = 5, .time_left = 1000 * MS}};
    struct wire_item item = {.key = {.data = "key", .size = 3}};
    uint8_t bytes[256];
    struct wire_writer w;
    remote_open(&reader, address, "spoiler");
    assert_int_equal(wire_begin(&w, bytes, sizeof bytes, &m), 0);
    assert_int_equal(wire_add(&w, &item), 0);
    long n = wire_end(&w);
    bytes[at < 256 ? at : (uint32_t)n - 512 + at] = byte;
    remote_send(&reader, bytes, (size_t)n);
    assert_true(remote_until(&reader, is_down, &reader));
    remote_close(&reader);
}

static void test_hostile(void **unused)
{
    struct wire_lease l;
    uint64_t word;
    (void)unused;
    start("5s", "50%");
    put("key", 1000);
    remote_open(&other, address, "other");
    leases_ok(&other, "key", &l);
    spoilt(8, 0);   /* no keys */
    spoilt(8, 2);   /* two, but there is one */
    spoilt(4, 255); /* no op */
    spoilt(7, 128); /* no flag */
    spoilt(12, 1);
    spoilt(48 + 4, 200); /* in the first item: a key larger than the message */
    spoilt(0, 200);
    assert_int_equal(remote_state(&other, UINT32_MAX - 1, 0, &word), -ENOENT);
    assert_int_equal(remote_state(&other, l.slot + 1, 0, &word), -ENOENT);
    struct wire_lease none = l;
    none.version.counter ^= 1;
    remote_corrupt(&other, "key", &none);
    remote_corrupt(&other, "no such key", &l);
    for (uint64_t id = 1; id < 2000; id++) {
        if (l.id != id << 24) { /* 0 is no id */
            remote_release(&other, l.id ^ id << 24, UINT32_MAX);
        }
    }
    reads_well(&other, "key", &l);
    expect_number("remote.gets", 0);
    expect_number("remote.leases", 1);
    remote_close(&other);
    end();
}

/* ---- a node that comes back ---- */

static void test_restart(void **unused)
{
    struct wire_lease l;
    (void)unused;
    start("2s", "100%");
    put("old", 12 * MIB);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "old", &l);
    daemon_kill(&d);
    remote_close(&reader);
    berth_close(b);
    daemon_again(&d);
    open_node();
    remote_open(&reader, address, "reader");
    assert_int_equal(remote_read(&reader, &l, 0, l.size, got), BERTH_ESTALE);
    assert_int_equal(remote_renew(&reader, l.id, true), BERTH_ESTALE);
    double closed = daemon_number(b, "remote.closed_ns");
    assert_true(closed > 0 && closed < 10e9);
    assert_int_equal(berth_remove(b, key_of("old"), NULL), 0);
    payload_fill(payload, 12 * MIB, "new");
    assert_int_equal(berth_put(b, key_of("new"), payload, 12 * MIB, NULL), BERTH_EFULL); /* at once: not yet */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    struct berth_put_opts wait = {.size = sizeof wait, .deadline = (int64_t)(t.tv_sec + 20) * 1000000000};
    assert_int_equal(berth_put(b, key_of("new"), payload, 12 * MIB, &wait), 0);
    expect_number("remote.closed_ns", 0);
    remote_close(&reader); /* it has answered no PING meanwhile */
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "new", &l);
    reads_well(&reader, "new", &l);
    remote_close(&reader);
    end();
}

/* ---- what is said of it ---- */

static void says(const char *command, const char *text)
{
    static char out[1 << 16];
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, sizeof out - 1, f);
    out[n] = '\0';
    assert_int_equal(pclose(f), 0);
    if (!strstr(out, text)) {
        fail_msg("%s: no '%s' in: %s", command, text, out);
    }
}

static void test_reports(void **unused)
{
    struct wire_lease l;
    char command[700];
    const char *bin = getenv("BERTH_BIN");
    (void)unused;
    start("5s", "50%");
    put("shown", 1000);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "shown", &l);
    snprintf(command, sizeof command, "%s/berth --node %s pins", bin ? bin : "build/release/bin", d.node);
    says(command, "lease reader ");
    says(command, "shown (in flight)"); /* as every lease begins */
    reads_well(&reader, "shown", &l);
    expect_at_least("remote.served", 1);
    assert_int_equal(daemon_metric(b, "berth_remote_sent_bytes_total{peer=\"\"}"), 1000);
    assert_int_equal(daemon_metric(b, "berth_leases"), 1);
    assert_int_equal(daemon_metric(b, "berth_remote_gets_total{peer=\"\"}"), 0);
    assert_int_equal(berth_remove(b, key_of("shown"), NULL), 0);
    remote_close(&reader);
    expect_at_least("counters.removed", 1);
    says(command, "removed, waits for this lease");
    end();
}

/* ---- damage ---- */

static void damage(const struct wire_lease *l)
{
    char path[160];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/pool-0", d.region);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t at = (off_t)(l->offset + l->size / 2);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Of segments the last is not whole. */
static void corrupt_of(uint32_t segment)
{
    const struct berth_put_opts opts = {.size = sizeof opts, .segment = segment};
    struct wire_lease good, bad, n;
    struct berth_view v;
    start("5s", "50%");
    assert_int_equal(berth_put(b, key_of("good"), payload, 3 * MIB + 100, &opts), 0);
    assert_int_equal(berth_put(b, key_of("bad"), payload, 3 * MIB + 100, &opts), 0);
    remote_open(&reader, address, "reader");
    leases_ok(&reader, "good", &good);
    leases_ok(&reader, "bad", &bad);
    remote_corrupt(&reader, "good", &good); /* a lie */
    assert_true(daemon_says(&d, "but its checksum is right", SOON_MS));
    damage(&bad);
    for (int i = 0; i < 3; i++) {
        remote_corrupt(&reader, "bad", &bad);
        remote_corrupt(&reader, "good", &good);
    }
    assert_true(daemon_says(&d, "it is taken out of use", SOON_MS));
    expect_at_least("counters.copies_dropped", 1);
    expect_at_least("remote.corrupt_reports", 7);
    expect_number("remote.corrupt_found", 1);
    expect_at_least("counters.retired", 1);
    assert_int_equal(remote_lease(&reader, "bad", 0, &n), -ENOENT);
    assert_int_equal(berth_get(b, key_of("bad"), &v, 0, BERTH_NOW), -ENOENT);
    assert_int_equal(berth_get(b, key_of("good"), &v, 0, BERTH_NOW), 0);
    berth_release(b, &v, 1);
    daemon_retired(b, 1); /* the lease on it goes on */
    char *said = strstr(d.text, "but its checksum is right");
    assert_null(strstr(said + 1, "but its checksum is right")); /* once */
    remote_close(&reader);
    end();
}

static void test_corrupt(void **unused)
{
    (void)unused;
    corrupt_of(0);
    corrupt_of(4096);
}

/* ---- main ---- */

static int make_buffers(void **unused)
{
    static uint8_t buffers[2][13 * MIB];
    (void)unused;
    payload = buffers[0];
    got = buffers[1];
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lease_read_release),
                                       cmocka_unit_test(test_reads_outside),
                                       cmocka_unit_test(test_removed_while_leased),
                                       cmocka_unit_test(test_killed_reader),
                                       cmocka_unit_test(test_released_and_reset),
                                       cmocka_unit_test(test_renew),
                                       cmocka_unit_test(test_recall),
                                       cmocka_unit_test(test_quota),
                                       cmocka_unit_test(test_hundreds),
                                       cmocka_unit_test(test_prefix),
                                       cmocka_unit_test(test_hostile),
                                       cmocka_unit_test(test_restart),
                                       cmocka_unit_test(test_reports),
                                       cmocka_unit_test(test_corrupt)};
    return cmocka_run_group_tests(tests, make_buffers, NULL);
}
