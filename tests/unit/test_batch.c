/* Batches: what was added comes back in order, as copies, encoded as the tables have it. */
#include "index/batch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int setup(void **state)
{
    *state = batch_create();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    batch_destroy(*state);
    return 0;
}

static void test_order_and_copies(void **state)
{
    struct batch *b = *state;
    char key[16] = "first";
    struct record r = {.slot = 3, .counter = 17, .ready = true}, out;
    struct key_ref parsed;
    assert_int_equal(batch_count(b), 0);
    assert_false(batch_has_put(b));
    assert_int_equal(batch_delete(b, (struct key_ref){key, 5, 2}), 0);
    assert_false(batch_has_put(b));
    assert_int_equal(batch_put(b, (struct key_ref){key, 5, 2}, &r), 0);
    assert_true(batch_has_put(b));
    memset(key, 0, sizeof key);
    r.counter = 0;
    assert_int_equal(batch_count(b), 2);
    struct batch_op op = batch_at(b, 0);
    assert_int_equal(op.kind, BATCH_DELETE);
    assert_int_equal(op.value_size, 0);
    op = batch_at(b, 1);
    assert_int_equal(op.kind, BATCH_PUT);
    assert_int_equal(record_key_parse(op.key, op.key_size, &parsed), 0);
    assert_int_equal(parsed.ns, 2);
    assert_int_equal(parsed.size, 5);
    assert_memory_equal(parsed.data, "first", 5);
    assert_int_equal(record_decode(op.value, op.value_size, &out), 0);
    assert_int_equal(out.counter, 17);
}

static void test_many(void **state)
{
    struct batch *b = *state;
    char key[KEY_MAX];
    for (unsigned round = 0; round < 2; round++) {
        struct record r = {.slot = 1};
        for (unsigned i = 0; i < 3000; i++) {
            memset(key, (int)(i & 0xff), sizeof key);
            r.counter = i;
            assert_int_equal(batch_put(b, (struct key_ref){key, 1 + i % KEY_MAX, i}, &r), 0);
        }
        assert_int_equal(batch_count(b), 3000);
        for (unsigned i = 0; i < 3000; i++) {
            struct batch_op op = batch_at(b, i);
            struct key_ref parsed;
            struct record out;
            assert_int_equal(record_key_parse(op.key, op.key_size, &parsed), 0);
            assert_int_equal(parsed.ns, i);
            assert_int_equal(parsed.size, 1 + i % KEY_MAX);
            memset(key, (int)(i & 0xff), sizeof key);
            assert_memory_equal(parsed.data, key, parsed.size);
            assert_int_equal(record_decode(op.value, op.value_size, &out), 0);
            assert_int_equal(out.counter, i);
        }
        batch_clear(b);
        assert_int_equal(batch_count(b), 0);
        assert_false(batch_has_put(b));
    }
}

static void test_session(void **state)
{
    struct batch *b = *state;
    struct session_row row = {.applied = 7, .start_time = 8, .pid = -9, .uid = 10, .name = "worker 1"}, out;
    uint64_t session;
    assert_int_equal(batch_session(b, 0x0102030405060708, &row), 0);
    assert_int_equal(batch_end_session(b, 5), 0);
    struct batch_op op = batch_at(b, 0);
    assert_memory_equal(op.key, "\1\2\3\4\5\6\7\x08", 8);
    assert_int_equal(batch_parse_session(op.key, op.key_size, op.value, op.value_size, &session, &out), 0);
    assert_int_equal(session, 0x0102030405060708);
    assert_memory_equal(&row, &out, sizeof row);
    assert_int_equal(batch_parse_session(op.key, 7, op.value, op.value_size, &session, &out), -EBADMSG);
    assert_int_equal(batch_parse_session(op.key, 8, op.value, SESSION_FIXED - 1, &session, &out), -EBADMSG);
    uint8_t value[SESSION_FIXED + NAME_MAX_BYTES + 1];
    memset(value, 'x', sizeof value);
    assert_int_equal(batch_parse_session(op.key, 8, value, sizeof value, &session, &out), -EBADMSG);
    assert_int_equal(batch_parse_session(op.key, 8, value, sizeof value - 1, &session, &out), 0);
    assert_int_equal(strlen(out.name), NAME_MAX_BYTES);
    value[SESSION_FIXED] = 0; /* a name that ends before its end */
    assert_int_equal(batch_parse_session(op.key, 8, value, sizeof value - 1, &session, &out), -EBADMSG);
    assert_int_equal(batch_at(b, 1).kind, BATCH_END_SESSION);
    assert_memory_equal(batch_at(b, 1).key, "\0\0\0\0\0\0\0\5", 8);
}

static void test_namespace(void **state)
{
    struct batch *b = *state;
    char name[NAME_MAX_BYTES + 1];
    uint32_t id, flags;
    assert_int_equal(batch_namespace(b, "kv", 3, 4), 0);
    assert_int_equal(batch_namespace(b, "", 0, 0), 0);
    struct batch_op op = batch_at(b, 0);
    assert_int_equal(batch_parse_namespace(op.key, op.key_size, op.value, op.value_size, name, &id, &flags), 0);
    assert_string_equal(name, "kv");
    assert_int_equal(id, 3);
    assert_int_equal(flags, 4);
    assert_int_equal(batch_parse_namespace(op.key, 2, op.value, 8, name, &id, &flags), -EBADMSG);
    assert_int_equal(batch_parse_namespace(op.key, 0, op.value, 8, name, &id, &flags), -EBADMSG);
    assert_int_equal(batch_parse_namespace("a\0b", 4, op.value, 8, name, &id, &flags), -EBADMSG);
    assert_int_equal(batch_parse_namespace(op.key, 3, op.value, 7, name, &id, &flags), -EBADMSG);
    op = batch_at(b, 1);
    assert_int_equal(batch_parse_namespace(op.key, op.key_size, op.value, op.value_size, name, &id, &flags), 0);
    assert_string_equal(name, "");
}

static void test_meta(void **state)
{
    struct batch *b = *state;
    uint64_t value;
    for (unsigned i = 0; i < META_NUMBERS; i++) {
        assert_int_equal(batch_meta(b, (enum meta_number)i, i + 100), 0);
        struct batch_op op = batch_at(b, i);
        assert_int_equal(op.kind, BATCH_META);
        assert_int_equal(op.key_size, strlen(meta_name((enum meta_number)i)));
        assert_int_equal(batch_parse_number(op.value, op.value_size, &value), 0);
        assert_int_equal(value, i + 100);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(meta_name((enum meta_number)i), meta_name((enum meta_number)k));
    }
    assert_int_equal(batch_meta(b, META_NUMBERS, 1), -EINVAL);
    assert_int_equal(batch_count(b), META_NUMBERS);
    assert_int_equal(batch_parse_number("1234567", 7, &value), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_and_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_session, setup, teardown),
        cmocka_unit_test_setup_teardown(test_namespace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_meta, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
