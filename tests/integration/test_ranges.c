/* Segments and ranges through the API: every size at a border, verification that looks at what it must and no more,
 * bounds, queues, groups, and a daemon that restarts. */
#include "index/lookup.h"
#include "store/client.h"
#include "tests/support/child.h"
#include "tests/support/embedded.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB 1024u

static uint8_t *content(size_t n)
{
    uint8_t *p = malloc(n + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(i * 31 + i / 4096);
    }
    return p;
}

static struct berth_put_opts in_segments(uint32_t segment)
{
    return (struct berth_put_opts){.size = sizeof(struct berth_put_opts), .segment = segment};
}

static void put_segments(struct berth *b, const char *name, size_t size, uint32_t segment)
{
    struct berth_put_opts o = in_segments(segment);
    uint8_t *data = content(size);
    assert_int_equal(berth_put(b, key_of(name), data, size, &o), 0);
    free(data);
}

/* What `checksum` of an object with segments is. */
static uint64_t list_checksum(const uint8_t *data, size_t size, uint32_t segment)
{
    static uint64_t list[BERTH_SEGMENTS_MAX];
    size_t n = 0;
    for (size_t at = 0; at < size; at += segment) {
        list[n++] = berth_checksum(data + at, size - at < segment ? size - at : segment);
    }
    return berth_checksum(list, n * sizeof *list);
}

static void expect_segments(struct berth *b, const char *name, size_t size, uint32_t segment)
{
    struct berth_view v;
    struct berth_stat st;
    uint8_t *data = content(size);
    assert_int_equal(berth_get(b, key_of(name), &v, BERTH_VERIFY, BERTH_NOW), 0);
    assert_int_equal(v.size, size);
    assert_memory_equal(v.data, data, size);
    assert_int_equal(v.checksum, list_checksum(data, size, segment));
    assert_int_equal(berth_stat(b, key_of(name), &st), 0);
    assert_int_equal(st.segment, segment);
    assert_int_equal(st.checksum, v.checksum);
    berth_release(b, &v, 1);
    free(data);
}

static void sizes_at_borders(void **state)
{
    (void)state;
    static const uint32_t segments[] = {4 * KIB, 8 * KIB, 64 * KIB, 1u << 30};
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 65535, 65536, 65537, 300000};
    for (unsigned s = 0; s < sizeof segments / sizeof segments[0]; s++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char name[32];
            struct berth_draft d;
            struct berth_put_opts o = in_segments(segments[s]);
            snprintf(name, sizeof name, "put-%u-%u", s, i);
            put_segments(embedded, name, sizes[i], segments[s]);
            expect_segments(embedded, name, sizes[i], segments[s]);
            snprintf(name, sizeof name, "draft-%u-%u", s, i);
            uint8_t *data = content(sizes[i]);
            assert_int_equal(berth_create(embedded, key_of(name), sizes[i], &o, &d), 0);
            assert_int_equal(d.segment, segments[s]);
            memcpy(d.data, data, sizes[i]);
            assert_int_equal(berth_seal(embedded, &d, 1), 0);
            expect_segments(embedded, name, sizes[i], segments[s]);
            free(data);
        }
    }
}

static void as_many_as_possible(void **state)
{
    (void)state;
    struct berth_put_opts o = in_segments(4096);
    put_segments(embedded, "whole", 4 * MIB, 4096);
    expect_segments(embedded, "whole", 4 * MIB, 4096);
    uint8_t *data = content(4 * MIB + 1);
    assert_int_equal(berth_put(embedded, key_of("more"), data, 4 * MIB + 1, &o), -EINVAL);
    expect_error(-EINVAL);
    struct berth_draft d;
    assert_int_equal(berth_create(embedded, key_of("more"), 4 * MIB + 1, &o, &d), -EINVAL);
    static const uint32_t segments[] = {1, 2048, 4095, 4097, 12288, UINT32_MAX, 1u << 31};
    for (unsigned i = 0; i < sizeof segments / sizeof segments[0]; i++) {
        o.segment = segments[i];
        assert_int_equal(berth_put(embedded, key_of("more"), data, 1, &o), -EINVAL);
    }
    struct berth_range r = {.offset = 4 * MIB - 1, .size = 1, .data = data};
    assert_int_equal(berth_get_range(embedded, key_of("whole"), &r, 1, BERTH_VERIFY, 0), 1);
    free(data);
    put_segments(embedded, "less", 4 * MIB - 1, 4096);
    expect_segments(embedded, "less", 4 * MIB - 1, 4096);
}

/* Keys that fit a header only where it needs no cell, and one that never does. */
static void keys_of_every_kind(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 66, 67, 69, 70, 71, 130, BERTH_KEY_MAX};
    struct berth_put_opts o = in_segments(4096);
    uint8_t bytes[BERTH_KEY_MAX], *data = content(10000), present;
    memset(bytes, 'k', sizeof bytes);
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct berth_key key = {.data = bytes, .size = lengths[i]}, other = key;
        struct berth_view v;
        assert_int_equal(berth_put(embedded, key, data, 10000, &o), 0);
        assert_int_equal(berth_put(embedded, key, data, 10000, &o), BERTH_KEPT);
        assert_int_equal(berth_get(embedded, key, &v, BERTH_VERIFY, 0), 0);
        berth_release(embedded, &v, 1);
        assert_int_equal(berth_get(embedded, key, &v, 0, 0), 0); /* the short way */
        berth_release(embedded, &v, 1);
        assert_int_equal(berth_get_many(embedded, &key, 1, &v, 0, 0), 1);
        berth_release(embedded, &v, 1);
        assert_int_equal(berth_exists(embedded, &key, 1, &present, 0), 1);
        uint8_t spoilt[BERTH_KEY_MAX];
        memcpy(spoilt, bytes, sizeof bytes);
        spoilt[lengths[i] - 1]++;
        other.data = spoilt;
        assert_int_equal(berth_get(embedded, other, &v, 0, 0), -ENOENT);
    }
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct berth_key key = {.data = bytes, .size = lengths[i]};
        assert_int_equal(berth_remove(embedded, key, NULL), 0);
    }
    free(data);
}

/* ---- ranges ---- */

static void ranges_of_every_kind(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    uint8_t *data = content(SIZE), *out = malloc(4 * SIZE);
    put_new("plain", data, SIZE);
    put_segments(embedded, "parts", SIZE, 4096);
    static const struct {
        uint64_t offset, size;
    } parts[] = {{0, 0},       {SIZE, 0}, {0, 1},         {SIZE - 1, 1},  {4095, 2},
                 {4096, 4096}, {0, SIZE}, {50000, 20000}, {50000, 20000}, {12288, 1}};
    enum { N = sizeof parts / sizeof parts[0] };
    for (unsigned k = 0; k < 4; k++) {
        struct berth_range r[N];
        uint8_t *at = out;
        memset(out, 0xee, 4 * SIZE);
        for (unsigned i = 0; i < N; i++) {
            r[i] = (struct berth_range){.offset = parts[i].offset, .size = parts[i].size, .data = at};
            at += parts[i].size;
        }
        r[0].data = NULL;
        long n = berth_get_range(embedded, key_of(k % 2 ? "plain" : "parts"), r, N, k / 2 ? BERTH_VERIFY : 0, 0);
        assert_int_equal(n, at - out);
        for (unsigned i = 1; i < N; i++) {
            assert_memory_equal(r[i].data, data + r[i].offset, r[i].size);
        }
        assert_int_equal(*at, 0xee);
    }
    free(out);
    free(data);
}

static void ranges_out_of_bounds(void **state)
{
    (void)state;
    char out[16] = "untouched";
    put_new("k", "0123456789", 10);
    static const struct {
        uint64_t offset, size;
    } bad[] = {{0, 11}, {10, 1}, {11, 0}, {5, 6}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct berth_range r[2] = {{.size = 5, .data = out},
                                   {.offset = bad[i].offset, .size = bad[i].size, .data = out}};
        struct berth_error_info e;
        assert_int_equal(berth_get_range(embedded, key_of("k"), r, 2, 0, 0), -ERANGE);
        berth_error(embedded, &e);
        assert_int_equal(e.figure[0], 10);
        assert_int_equal(e.figure[1], 1);
        assert_int_equal(e.figure[2], bad[i].offset);
        assert_int_equal(e.figure[3], bad[i].size);
        assert_string_equal(out, "untouched");
    }
    struct berth_range r = {.size = 1, .data = out}, nowhere = {.size = 1};
    assert_int_equal(berth_get_range(embedded, key_of("k"), &r, 0, 0, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("k"), NULL, 1, 0, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &r, BERTH_RANGES_MAX + 1, 0, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &nowhere, 1, 0, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &r, 1, BERTH_FRESH, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &r, 1, BERTH_SAME_GROUP, 0), -EINVAL);
    assert_int_equal(berth_get_range(embedded, key_of("none"), &r, 1, 0, 0), -ENOENT);
    assert_int_equal(berth_get_range(NULL, key_of("k"), &r, 1, 0, 0), -EINVAL);
    assert_string_equal(out, "untouched");
}

/* A byte of segment 2 is another: what touches it is refused, and nothing else. */
static void verified_as_far_as_touched(void **state)
{
    (void)state;
    struct berth_view v;
    uint8_t *out = malloc(100000);
    put_segments(embedded, "k", 100000, 16 * KIB);
    assert_int_equal(berth_get(embedded, key_of("k"), &v, 0, 0), 0);
    uint8_t *bad = embedded->writable + ((const uint8_t *)v.data - embedded->pool) + 40 * KIB;
    ++*bad;
    struct berth_range before = {.offset = 0, .size = 32 * KIB, .data = out},
                       behind = {.offset = 48 * KIB, .size = 1, .data = out},
                       inside = {.offset = 32 * KIB, .size = 1, .data = out},
                       across = {.offset = 32 * KIB - 1, .size = 2, .data = out},
                       empty = {.offset = 33 * KIB, .size = 0}, both[] = {before, behind}, one[] = {before, inside};
    assert_int_equal(berth_get_range(embedded, key_of("k"), both, 2, BERTH_VERIFY, 0), 32 * KIB + 1);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &empty, 1, BERTH_VERIFY, 0), 0);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &inside, 1, 0, 0), 1);
    memset(out, 0xee, 100000);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &inside, 1, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(berth_get_range(embedded, key_of("k"), &across, 1, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(berth_get_range(embedded, key_of("k"), one, 2, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(out[0], 0xee);
    struct berth_view again;
    assert_int_equal(berth_get(embedded, key_of("k"), &again, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(berth_get_into(embedded, key_of("k"), out, 100000, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    --*bad;
    assert_int_equal(berth_get_range(embedded, key_of("k"), &across, 1, BERTH_VERIFY, 0), 2);
    berth_release(embedded, &v, 1);
    put_new("plain", out, 100000); /* without segments all of it is looked at */
    assert_int_equal(berth_get(embedded, key_of("plain"), &v, 0, 0), 0);
    bad = embedded->writable + ((const uint8_t *)v.data - embedded->pool) + 40 * KIB;
    ++*bad;
    assert_int_equal(berth_get_range(embedded, key_of("plain"), &before, 1, BERTH_VERIFY, 0), BERTH_ECORRUPT);
    assert_int_equal(berth_get_range(embedded, key_of("plain"), &before, 1, 0, 0), 32 * KIB);
    --*bad;
    berth_release(embedded, &v, 1);
    free(out);
}

/* ---- drafts ---- */

static void checksums_of_the_caller(void **state)
{
    (void)state;
    struct berth_put_opts o = in_segments(4096);
    struct berth_draft d;
    struct berth_view v;
    uint8_t *data = content(10000);
    uint64_t list[3];
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        const char *name = wrong ? "wrong" : "right";
        assert_int_equal(berth_create(embedded, key_of(name), 10000, &o, &d), 0);
        for (unsigned i = 0; i < 3; i++) {
            size_t n = i < 2 ? 4096 : 10000 - 8192;
            list[i] = berth_copy((uint8_t *)d.data + i * 4096, data + i * 4096, n) + (wrong && i == 1);
        }
        d.flags = BERTH_HAS_CHECKSUM;
        assert_int_equal(berth_seal(embedded, &d, 1), -EINVAL); /* one for all of it is not enough */
        d.segments = list;
        assert_int_equal(berth_seal(embedded, &d, 1), 0);
        assert_int_equal(berth_get(embedded, key_of(name), &v, BERTH_VERIFY, 0), wrong ? BERTH_ECORRUPT : 0);
        berth_release(embedded, &v, wrong ? 0 : 1);
    }
    free(data);
}

/* A group whose lists are far more than a ring holds at once, beside members without segments. */
static void groups(void **state)
{
    (void)state;
    enum { N = 60, SIZE = 512 * KIB };
    static struct berth_draft d[N];
    struct berth_put_opts o = in_segments(4096);
    char name[16];
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "g%u", i);
        assert_int_equal(berth_create(embedded, key_of(name), i % 3 ? SIZE : 100, i % 3 ? &o : NULL, &d[i]), 0);
        payload_fill(d[i].data, d[i].size, name);
    }
    assert_int_equal(berth_seal(embedded, d, N), 0);
    for (unsigned i = 0; i < N; i++) {
        struct berth_view v;
        snprintf(name, sizeof name, "g%u", i);
        assert_int_equal(berth_get(embedded, key_of(name), &v, BERTH_VERIFY, 0), 0);
        assert_true(payload_is(v.data, v.size, name));
        berth_release(embedded, &v, 1);
    }
}

static long run_op(struct berth_queue *q, struct berth_op op)
{
    static struct berth_op at;
    struct berth_op *out = NULL;
    at = op;
    assert_int_equal(berth_submit(q, &at, 1), 1);
    assert_int_equal(berth_reap(q, &out, 1, berth_deadline(INT64_C(10000000000))), 1);
    return at.result;
}

static void queues(void **state)
{
    (void)state;
    struct berth_put_opts o = in_segments(4096);
    struct berth_queue *q;
    struct berth_draft d;
    struct berth_stat st;
    uint8_t *data = content(10000), out[100];
    struct berth_range r[2] = {{.offset = 4090, .size = 10, .data = out},
                               {.offset = 9990, .size = 10, .data = out + 10}};
    assert_int_equal(berth_queue_open(embedded, 4, &q), 0);
    assert_int_equal(
        run_op(q,
               (struct berth_op){.opcode = BERTH_OP_PUT, .key = key_of("put"), .data = data, .size = 10000, .put = &o}),
        0);
    assert_int_equal(
        run_op(q,
               (struct berth_op){
                   .opcode = BERTH_OP_CREATE, .key = key_of("draft"), .size = 10000, .put = &o, .draft = &d}),
        0);
    memcpy(d.data, data, 10000);
    assert_int_equal(run_op(q, (struct berth_op){.opcode = BERTH_OP_SEAL, .draft = &d, .n = 1}), 0);
    expect_segments(embedded, "put", 10000, 4096);
    expect_segments(embedded, "draft", 10000, 4096);
    assert_int_equal(
        run_op(q,
               (struct berth_op){
                   .opcode = BERTH_OP_GET_RANGE, .key = key_of("put"), .ranges = r, .n = 2, .flags = BERTH_VERIFY}),
        20);
    assert_memory_equal(out, data + 4090, 10);
    assert_memory_equal(out + 10, data + 9990, 10);
    r[1].offset++;
    assert_int_equal(
        run_op(q, (struct berth_op){.opcode = BERTH_OP_GET_RANGE, .key = key_of("put"), .ranges = r, .n = 2}), -ERANGE);
    assert_int_equal(run_op(q, (struct berth_op){.opcode = BERTH_OP_STAT, .key = key_of("put"), .stat = &st}), 0);
    assert_int_equal(st.segment, 4096);
    berth_queue_close(q);
    free(data);
}

/* ---- a daemon ---- */

struct sealing {
    struct berth *b;
    struct berth_draft *draft;
    int result;
};

static void *seal_it(void *arg)
{
    struct sealing *s = arg;
    s->result = berth_seal(s->b, s->draft, 1);
    return NULL;
}

static void eviction_and_restarts(void **state)
{
    (void)state;
    static const char *const flags[] = {"--pool", "32MiB", "--lock", "off", NULL};
    struct daemon d;
    struct berth_put_opts o = in_segments(4096);
    daemon_start(&d, flags);
    struct berth *b = daemon_open(&d, "test");
    struct berth_draft draft;
    assert_int_equal(berth_create(b, key_of("draft"), 1000000, &o, &draft), 0);
    uint8_t *data = content(1000000);
    memcpy(draft.data, data, 1000000);
    for (unsigned i = 0; i < 100; i++) { /* far more than the pool: the cells of what goes are used again */
        char name[16];
        snprintf(name, sizeof name, "e%u", i);
        put_segments(b, name, 1000000, 4096);
    }
    expect_segments(b, "e99", 1000000, 4096);
    for (unsigned i = 0; i < 2; i++) {
        if (i) {
            daemon_kill(&d);
        } else {
            assert_int_equal(daemon_stop(&d), 0);
        }
        daemon_again(&d);
        expect_segments(b, "e99", 1000000, 4096);
        assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    }
    struct sealing s = {.b = b, .draft = &draft};
    pthread_t thread;
    daemon_kill(&d);
    assert_int_equal(pthread_create(&thread, NULL, seal_it, &s), 0); /* the list goes again as the seal does */
    daemon_again(&d);
    pthread_join(thread, NULL);
    assert_int_equal(s.result, 0);
    expect_segments(b, "draft", 1000000, 4096);
    assert_int_equal(query_number(b, BERTH_CHECK, "differences"), 0);
    berth_close(b);
    free(data);
    daemon_end(&d);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, embedded_open, embedded_close)
    const struct CMUnitTest tests[] = {
        CASE(sizes_at_borders),
        CASE(as_many_as_possible),
        CASE(keys_of_every_kind),
        CASE(ranges_of_every_kind),
        CASE(ranges_out_of_bounds),
        CASE(verified_as_far_as_touched),
        CASE(checksums_of_the_caller),
        CASE(groups),
        CASE(queues),
        cmocka_unit_test(eviction_and_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
