/* What an operation is told of the pull that brought its bytes. */
#include "tests/support/duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIZE 200000u
#define SECONDS(n) ((n)*INT64_C(1000000000))

static struct duo d;

static long run(struct berth *b, struct berth_op *op)
{
    struct berth_queue *q;
    struct berth_op *done = NULL;
    op->deadline = op->deadline ? op->deadline : berth_deadline(SECONDS(10));
    assert_int_equal(berth_queue_open(b, 1, &q), 0);
    assert_int_equal(berth_submit(q, op, 1), 1);
    assert_int_equal(berth_reap(q, &done, 1, berth_deadline(SECONDS(20))), 1);
    berth_queue_close(q);
    return op->result;
}

static void phases_add_up(const struct berth_record *r)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < BERTH_PHASE_TOTAL; i++) {
        assert_true(r->phase_ns[i] >= 0);
        sum += r->phase_ns[i];
    }
    assert_int_equal(sum, r->phase_ns[BERTH_PHASE_TOTAL]);
    assert_true(sum > 0 && sum < SECONDS(10));
}

static void pulled_from_a(const struct berth_record *r)
{
    assert_string_equal(r->source, "a");
    assert_string_equal(r->transport, "tcp");
    assert_int_equal(r->member, 0);
    assert_int_equal(r->bytes, SIZE);
    assert_int_equal(r->copied, SIZE);
    assert_true(r->lease != 0);
    assert_true(r->requests >= 1);
    assert_int_equal(r->flags & ~BERTH_RECORD_VERIFIED, 0);
    phases_add_up(r);
    assert_true(r->phase_ns[BERTH_PHASE_TRANSFER] > 0);
}

static void here(const struct berth_record *r)
{
    assert_string_equal(r->source, "");
    assert_string_equal(r->transport, "");
    assert_int_equal(r->flags, BERTH_RECORD_LOCAL);
    assert_int_equal(r->member, UINT16_MAX);
    assert_int_equal(r->bytes + r->copied, 0);
}

static void of_reads(void **state)
{
    static uint8_t buffer[SIZE];
    struct berth_record r;
    struct berth_view v;
    struct berth_range range = {.offset = 5, .size = 1000, .data = buffer};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "r%u", i);
        duo_put(&d, 0, key, SIZE);
    }
    struct berth_op op = {
        .opcode = BERTH_OP_GET, .key = key_of("r0"), .view = &v, .flags = BERTH_PEERS | BERTH_VERIFY, .record = &r};
    for (unsigned i = 0; i < 2; i++) {
        memset(&r, 0xee, sizeof r);
        op.deadline = 0;
        assert_int_equal(run(d.b[1], &op), 0);
        assert_true(payload_is(v.data, v.size, "r0"));
        berth_release(d.b[1], &v, 1);
        if (i == 0) {
            pulled_from_a(&r);
            assert_true(r.flags & BERTH_RECORD_VERIFIED);
            assert_true(r.phase_ns[BERTH_PHASE_HOME] + r.phase_ns[BERTH_PHASE_ADMIT] > 0);
        } else {
            here(&r);
        }
        assert_int_equal(r.copied_out, 0);
    }
    op = (struct berth_op){.opcode = BERTH_OP_GET_INTO,
                           .key = key_of("r1"),
                           .data = buffer,
                           .size = SIZE,
                           .flags = BERTH_PEERS,
                           .record = &r};
    assert_int_equal(run(d.b[1], &op), SIZE);
    pulled_from_a(&r);
    assert_int_equal(r.copied_out, SIZE);
    op = (struct berth_op){.opcode = BERTH_OP_GET_RANGE,
                           .key = key_of("r2"),
                           .ranges = &range,
                           .n = 1,
                           .flags = BERTH_PEERS,
                           .record = &r};
    assert_int_equal(run(d.b[1], &op), 1000);
    pulled_from_a(&r);
    assert_int_equal(r.copied_out, 1000);
    op = (struct berth_op){.opcode = BERTH_OP_GET, .key = key_of("r1"), .view = &v, .record = &r};
    assert_int_equal(run(d.b[1], &op), 0);
    berth_release(d.b[1], &v, 1);
    here(&r);
    op = (struct berth_op){
        .opcode = BERTH_OP_GET, .key = key_of("nobody"), .view = &v, .flags = BERTH_PEERS, .record = &r};
    assert_int_equal(run(d.b[1], &op), -ENOENT);
    assert_int_equal(r.bytes, 0);
    assert_string_equal(r.source, "");
    assert_true(r.phase_ns[BERTH_PHASE_TOTAL] > 0);
}

static void of_pulls(void **state)
{
    struct berth_record r[4], one;
    struct berth_key keys[4] = {key_of("p0"), key_of("p1"), key_of("nobody"), key_of("p2")};
    (void)state;
    duo_put(&d, 0, "p0", SIZE);
    duo_put(&d, 0, "p1", SIZE);
    duo_put(&d, 1, "p2", SIZE);
    double before = daemon_number(d.b[1], "pull.moved_bytes");
    struct berth_op op = {.opcode = BERTH_OP_PULL, .data = keys, .n = 4, .record = r};
    assert_int_equal(run(d.b[1], &op), 3);
    pulled_from_a(&r[0]);
    pulled_from_a(&r[1]);
    assert_int_equal(r[2].bytes, 0);
    here(&r[3]);
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .key = key_of("p1"), .record = &one};
    assert_int_equal(run(d.b[1], &op), BERTH_KEPT);
    here(&one);
    assert_int_equal(daemon_number(d.b[1], "pull.moved_bytes") - before, 2 * SIZE);
    assert_int_equal(daemon_number(d.b[1], "pull.by.a.moved_bytes"), daemon_number(d.b[1], "pull.moved_bytes"));
    /* Without a record the same reply is as short as before; and the most that one message can ask for has room. */
    static char name[BERTH_PULL_MAX][8];
    static struct berth_key many[BERTH_PULL_MAX];
    static struct berth_record all[BERTH_PULL_MAX];
    for (unsigned i = 0; i < BERTH_PULL_MAX; i++) {
        snprintf(name[i], sizeof name[i], "z%u", i);
        many[i] = i == 255 ? key_of("p0") : key_of(name[i]);
    }
    op = (struct berth_op){.opcode = BERTH_OP_PULL, .data = many, .n = BERTH_PULL_MAX, .record = all};
    assert_int_equal(run(d.b[1], &op), 1);
    here(&all[255]);
}

static int start(void **state)
{
    (void)state;
    duo_start(&d);
    return 0;
}

static int end(void **state)
{
    (void)state;
    duo_end(&d);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_reads), cmocka_unit_test(of_pulls)};
    return cmocka_run_group_tests(tests, start, end);
}
