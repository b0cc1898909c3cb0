/* Objects with segments between nodes: replicas that keep them, ranges that are proved by the segments that they touch,
 * one damaged segment, a list that lies. */
#include "store/client.h"
#include "tests/support/nodes.h"
#include "tests/support/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB 1024u
#define UNTIL berth_deadline(SECONDS(20))

static bool payload_part(const uint8_t *part, uint64_t at, uint64_t n, size_t size, const char *key)
{
    uint8_t *data = malloc(size + 1);
    assert_non_null(data);
    payload_fill(data, size, key);
    bool same = memcmp(part, data + at, n) == 0;
    free(data);
    return same;
}

static void expect_replica(unsigned i, unsigned from, const char *key, size_t size, uint32_t segment)
{
    struct berth_view v;
    struct berth_stat a, b;
    struct berth_range r = {.offset = size / 2, .size = size - size / 2, .data = malloc(size + 1)};
    assert_int_equal(berth_get(node[i], key_of(key), &v, BERTH_PEERS | BERTH_VERIFY, UNTIL), 0);
    assert_int_equal(v.size, size);
    assert_true(payload_is(v.data, v.size, key));
    berth_release(node[i], &v, 1);
    assert_int_equal(berth_stat(node[i], key_of(key), &b), 0);
    assert_int_equal(berth_stat(node[from], key_of(key), &a), 0);
    assert_int_equal(b.segment, segment);
    assert_int_equal(a.checksum, b.checksum);
    assert_int_equal(a.version.counter, b.version.counter);
    assert_int_equal(a.version.region, b.version.region);
    assert_int_equal(berth_get_range(node[i], key_of(key), &r, 1, BERTH_VERIFY, BERTH_NOW), r.size);
    assert_true(payload_part(r.data, r.offset, r.size, size, key));
    free(r.data);
}

static void replicas_keep_segments(void **state)
{
    static const uint32_t segments[] = {4 * KIB, 64 * KIB};
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 300000, 4u << 20};
    (void)state;
    nodes_open(2, "");
    for (unsigned s = 0; s < 2; s++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char key[32];
            snprintf(key, sizeof key, "k%u-%u", s, i);
            nodes_put(0, key, sizes[i], segments[s]);
        }
    }
    nodes_settle(0);
    for (unsigned s = 0; s < 2; s++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char key[32];
            snprintf(key, sizeof key, "k%u-%u", s, i);
            expect_replica(1, 0, key, sizes[i], segments[s]);
        }
    }
}

/* A replica serves others as its origin does. */
static void from_a_replica(void **state)
{
    (void)state;
    nodes_open(3, "");
    nodes_put(0, "far", 100000, 4 * KIB);
    nodes_settle(0);
    expect_replica(1, 0, "far", 100000, 4 * KIB);
    nodes_settle(1);
    nodes_end(0);
    expect_replica(2, 1, "far", 100000, 4 * KIB);
}

static void many_and_prefix(void **state)
{
    enum { N = 256 };
    static char name[N][16];
    static struct berth_key keys[N];
    static struct berth_view v[N];
    (void)state;
    nodes_open(2, "");
    for (unsigned i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "m%u", i);
        keys[i] = key_of(name[i]);
        nodes_put(0, name[i], 20000 + i, i % 3 ? 4 * KIB : 0);
    }
    nodes_settle(0);
    assert_int_equal(berth_prefix(node[1], keys, 100, v, BERTH_PEERS | BERTH_VERIFY, UNTIL), 100);
    berth_release(node[1], v, 100);
    assert_int_equal(berth_get_many(node[1], keys, N, v, BERTH_PEERS | BERTH_VERIFY, UNTIL), N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(v[i].size, 20000 + i);
        assert_true(payload_is(v[i].data, v[i].size, name[i]));
    }
    berth_release(node[1], v, N);
}

#define SIZE (256u * KIB)

/* Ranges at odd places, each in memory with a guard on both sides. */
static long get_ranges(unsigned i, const char *key, const uint64_t (*at)[2], size_t n, unsigned flags)
{
    struct berth_range r[8];
    static uint8_t memory[8][SIZE + 2];
    memset(memory, 0xee, sizeof memory);
    for (size_t k = 0; k < n; k++) {
        r[k] = (struct berth_range){.offset = at[k][0], .size = at[k][1], .data = &memory[k][1]};
    }
    long rc = berth_get_range(node[i], key_of(key), r, n, flags, UNTIL);
    for (size_t k = 0; k < n && rc >= 0; k++) {
        assert_true(payload_part(r[k].data, at[k][0], at[k][1], SIZE, key));
        assert_int_equal(memory[k][0], 0xee);
        assert_int_equal(memory[k][1 + at[k][1]], 0xee);
    }
    return rc;
}

struct sent {
    double before, want;
};

/* The owner counts a transfer when it hears that all of it has come. */
static bool has_sent(void *arg)
{
    struct sent *s = arg;
    return nodes_sent(0) - s->before >= s->want;
}

static void expect_sent(double before, double want)
{
    struct sent s = {.before = before, .want = want};
    assert_true(eventually(has_sent, &s, 20000));
    assert_int_equal(nodes_sent(0) - before, want);
}

static void ranges_come_alone(void **state)
{
    static const uint64_t one[][2] = {{40000, 10}}, some[][2] = {{5, 3}, {100, 8000}, {8100, 1}, {200000, 50000}},
                          all[][2] = {{0, SIZE}}, back[][2] = {{70000, 10}, {69000, 2000}, {1, 1}, {0, 0}},
                          beyond[][2] = {{SIZE - 1, 2}};
    struct berth_error_info e;
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "parts", SIZE, 4 * KIB);
    nodes_settle(0);
    double before = nodes_sent(0);
    assert_int_equal(get_ranges(1, "parts", one, 1, BERTH_PEERS | BERTH_VERIFY), 10);
    expect_sent(before, 4 * KIB); /* its segment, and nothing else */
    assert_int_equal(get_ranges(1, "parts", some, 4, BERTH_PEERS | BERTH_VERIFY), 58004);
    assert_int_equal(get_ranges(1, "parts", back, 4, BERTH_PEERS), 2011);
    assert_int_equal(get_ranges(1, "parts", all, 1, BERTH_PEERS | BERTH_VERIFY), SIZE);
    assert_int_equal(get_ranges(1, "parts", beyond, 1, BERTH_PEERS), -ERANGE);
    berth_error(node[1], &e);
    assert_int_equal(e.figure[0], SIZE);
    assert_int_equal(berth_get(node[1], key_of("parts"), &v, 0, BERTH_NOW), -ENOENT); /* no room was taken */
}

/* Of an object without segments no part can be proved by itself: it comes whole, into the pool. */
static void ranges_without_segments(void **state)
{
    static const uint64_t one[][2] = {{40000, 10}};
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "whole", SIZE, 0);
    nodes_settle(0);
    assert_int_equal(get_ranges(1, "whole", one, 1, BERTH_PEERS), 10); /* the setting is: always */
    assert_int_equal(berth_get(node[1], key_of("whole"), &v, 0, BERTH_NOW), 0);
    berth_release(node[1], &v, 1);
}

static void ranges_on_lease_only(void **state)
{
    static const uint64_t one[][2] = {{40000, 10}};
    struct berth_view v;
    (void)state;
    nodes_open(2, "&verify=lease");
    nodes_put(0, "plain", SIZE, 0);
    nodes_put(0, "segs", SIZE, 4 * KIB);
    nodes_settle(0);
    double before = nodes_sent(0);
    assert_int_equal(get_ranges(1, "plain", one, 1, BERTH_PEERS), 10);
    assert_int_equal(get_ranges(1, "segs", one, 1, BERTH_PEERS), 10);
    expect_sent(before, 20);
    assert_int_equal(berth_get(node[1], key_of("plain"), &v, 0, BERTH_NOW), -ENOENT);
}

static void one_damaged_segment(void **state)
{
    static const uint64_t before[][2] = {{0, 40 * KIB}}, after[][2] = {{44 * KIB, 100 * KIB}, {1000, 50}},
                          on[][2] = {{44 * KIB - 1, 2}};
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "hurt", SIZE, 4 * KIB);
    nodes_put(0, "hurt too", SIZE, 4 * KIB);
    nodes_settle(0);
    nodes_damage(0, "hurt", 42 * KIB);
    nodes_damage(0, "hurt too", SIZE - 1);
    assert_int_equal(get_ranges(1, "hurt", before, 1, BERTH_PEERS | BERTH_VERIFY), 40 * KIB);
    assert_int_equal(get_ranges(1, "hurt", after, 2, BERTH_PEERS | BERTH_VERIFY), 100 * KIB + 50);
    assert_int_equal(get_ranges(1, "hurt", on, 1, BERTH_PEERS | BERTH_VERIFY), BERTH_ECORRUPT);
    assert_int_equal(berth_get(node[1], key_of("hurt too"), &v, BERTH_PEERS | BERTH_VERIFY, UNTIL), BERTH_ECORRUPT);
}

/* Writes into a file that this process has mapped for reading only. */
static void write_behind(const void *address, uint64_t word)
{
    char line[512], path[256] = "";
    uintptr_t begin, end, offset, at = (uintptr_t)address;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNxPTR " %*s %*s %255s", &begin, &end, &offset, path) ==
                4 &&
            at >= begin && at < end) {
            break;
        }
    }
    fclose(maps);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &word, sizeof word, (off_t)(at - begin + offset)), sizeof word);
    close(fd);
}

/* The owner's list is not the one that its object's checksum proves. */
static void lying_sums(void **state)
{
    static const uint64_t one[][2] = {{0, 10}};
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "lies", SIZE, 4 * KIB);
    nodes_settle(0);
    assert_int_equal(berth_get(node[0], key_of("lies"), &v, 0, BERTH_NOW), 0);
    const struct slot_header *h = &node[0]->lookup.headers[v.slot];
    const uint8_t *sums = (const uint8_t *)node[0]->tails.base + (size_t)h->tail * TAIL_CELL;
    write_behind(sums + 8, 12345);
    assert_int_equal(get_ranges(1, "lies", one, 1, BERTH_PEERS | BERTH_VERIFY), BERTH_ENOTNOW);
    assert_int_equal(berth_get(node[1], key_of("lies"), &(struct berth_view){0}, BERTH_PEERS, UNTIL), BERTH_ENOTNOW);
    uint64_t right = berth_checksum((const uint8_t *)v.data + 4 * KIB, 4 * KIB);
    write_behind(sums + 8, right);
    assert_int_equal(get_ranges(1, "lies", one, 1, BERTH_PEERS | BERTH_VERIFY), 10);
    berth_release(node[0], &v, 1);
}

static bool is_gone(void *key)
{
    struct berth_view v;
    int rc = berth_get(node[0], key_of(key), &v, 0, BERTH_NOW);
    if (rc == 0) {
        berth_release(node[0], &v, 1);
    }
    return rc == -ENOENT;
}

/* The bytes are right and the list is not: no range of it can be verified by anybody, and a report says so. */
static void damaged_list_is_found(void **state)
{
    static struct remote r;
    char address[128];
    struct wire_lease l;
    struct berth_view v;
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "list", SIZE, 4 * KIB);
    remote_address(node[0], address, sizeof address);
    remote_open(&r, address, "stranger");
    assert_int_equal(remote_lease(&r, "list", 0, &l), 0);
    assert_int_equal(berth_get(node[0], key_of("list"), &v, 0, BERTH_NOW), 0);
    const struct slot_header *h = &node[0]->lookup.headers[v.slot];
    write_behind((const uint8_t *)node[0]->tails.base + (size_t)h->tail * TAIL_CELL + 8, 12345);
    berth_release(node[0], &v, 1);
    remote_corrupt(&r, "list", &l);
    assert_true(eventually(is_gone, "list", 20000));
    assert_int_equal(daemon_number(node[0], "remote.corrupt_found"), 1);
    remote_close(&r);
}

static long reap_one(struct berth_queue *q, struct berth_op *op)
{
    struct berth_op *out = NULL;
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, UNTIL), 1);
    return op->result;
}

static void queues(void **state)
{
    static uint8_t buffer[SIZE];
    struct berth_queue *q;
    struct berth_range r[] = {{.offset = 9000, .size = 5000, .data = buffer},
                              {.offset = 100, .size = 50, .data = buffer + 6000}};
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "q0", SIZE, 4 * KIB);
    nodes_put(0, "q1", SIZE, 0);
    nodes_settle(0);
    assert_int_equal(berth_queue_open(node[1], 8, &q), 0);
    for (unsigned i = 0; i < 2; i++) {
        const char *key = i ? "q1" : "q0";
        struct berth_op op = {.opcode = BERTH_OP_GET_RANGE,
                              .key = key_of(key),
                              .ranges = r,
                              .n = 2,
                              .flags = BERTH_PEERS | BERTH_VERIFY,
                              .deadline = UNTIL};
        assert_int_equal(reap_one(q, &op), 5050);
        assert_true(payload_part(buffer, 9000, 5000, SIZE, key));
        assert_true(payload_part(buffer + 6000, 100, 50, SIZE, key));
        op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                               .key = key_of(key),
                               .data = buffer,
                               .size = SIZE,
                               .flags = BERTH_PEERS | BERTH_VERIFY,
                               .deadline = UNTIL};
        assert_int_equal(reap_one(q, &op), SIZE);
        assert_true(payload_is(buffer, SIZE, key));
    }
    berth_queue_close(q);
}

/* By the wire: more lists than one message has room for, and slots that there is no lease on. */
static void sums_by_hand(void **state)
{
    static struct remote r;
    static struct wire_item items[WIRE_KEYS_MAX];
    char address[128];
    struct wire_lease l;
    struct wire_message m = {.head = {.op = WIRE_SUMS}};
    (void)state;
    nodes_open(2, "");
    nodes_put(0, "long", 4u << 20, 4 * KIB);
    remote_address(node[0], address, sizeof address);
    remote_open(&r, address, "stranger");
    assert_int_equal(remote_lease(&r, "long", 0, &l), 0);
    for (unsigned i = 0; i < WIRE_KEYS_MAX; i++) {
        items[i].sums.slot = l.slot;
        items[i].sums.generation = l.generation;
    }
    assert_int_equal(remote_ask(&r, &m, items, WIRE_KEYS_MAX), 0);
    assert_int_equal(r.n, (WIRE_MESSAGE_MAX - WIRE_HEAD - 8) / (8 + 8 * 1024));
    assert_int_equal(r.item[0].summed.n, 1024);
    items[0].sums.generation++;
    items[1].sums.slot = l.slot + 1;
    items[2].sums.slot = UINT32_MAX - 1;
    assert_int_equal(remote_ask(&r, &m, items, 3), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(r.item[i].summed.status, BERTH_ESTALE);
    }
    remote_close(&r);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, nodes_close)
    const struct CMUnitTest tests[] = {
        CASE(replicas_keep_segments),
        CASE(from_a_replica),
        CASE(many_and_prefix),
        CASE(ranges_come_alone),
        CASE(ranges_without_segments),
        CASE(ranges_on_lease_only),
        CASE(one_damaged_segment),
        CASE(lying_sums),
        CASE(damaged_list_is_found),
        CASE(queues),
        CASE(sums_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
