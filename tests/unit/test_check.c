/* check_region: silent about a region where index, slots and lookup agree, and names each thing that is damaged. */
#include "index/check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEADERS 64u
#define OBJECTS 40u /* slots 0 .. have one each */
#define CELLS 64u
#define LONG_KEY 7u /* this one's key lies in tails */

/* An index of rows in memory: what check reads of one is `each`. */
struct row {
    bool there, undecodable;
    struct key_ref key;
    char bytes[KEY_MAX];
    struct record r;
};

struct fixture {
    struct lookup l;
    void *map;
    struct slot_header *headers;
    uint8_t *tails;
    struct row rows[OBJECTS + 1];
    int fail;
    char report[4096];
    struct check_result result;
};

static int rows_each(void *ix, int (*each)(void *, struct key_ref, const struct record *), void *arg)
{
    struct fixture *f = ix;
    int rc = 0;
    for (unsigned i = 0; i <= OBJECTS && rc == 0; i++) {
        struct row *w = &f->rows[i];
        w->key.data = w->bytes;
        if (w->there)
            rc = each(arg, w->key, w->undecodable ? NULL : &w->r);
    }
    return f->fail ? f->fail : rc;
}

static const struct index_ops rows_ops = {.name = "rows", .each = rows_each};

static void make_object(struct fixture *f, uint32_t i)
{
    struct row *w = &f->rows[i];
    struct slot_header *h = &f->headers[i];
    int n = snprintf(w->bytes, sizeof w->bytes, "key %u\n", i);
    if (i == LONG_KEY) {
        memset(w->bytes + n, 'x', 200);
        n += 200;
    }
    w->there = true;
    w->key = (struct key_ref){.data = w->bytes, .size = (uint32_t)n, .ns = 3};
    w->r = (struct record){.counter = i + 1,
                           .checksum = i + 2,
                           .lineage = i + 3,
                           .generation = i + 4,
                           .slot = i,
                           .size = i,
                           .ready = true,
                           .n_holds = i % 2};
    h->key_size = (uint16_t)n;
    h->ns = 3;
    memcpy((uint8_t *)h + offsetof(struct slot_header, key), w->bytes, (size_t)(n <= 70 ? n : 66));
    if (n > 70) {
        h->tail = 5;
        memcpy(f->tails + 5 * TAIL_CELL, w->bytes + KEY_HEAD, (size_t)n - KEY_HEAD);
    }
    h->size = i;
    h->version = i + 1;
    h->checksum = i + 2;
    h->lineage = i + 3;
    atomic_store(&h->flags, (uint8_t)((i % 2 ? SLOT_HELD : 0) | (n > 70 ? SLOT_TAIL : 0)));
    slot_store(h, i + 4, SLOT_READY);
    assert_true(lookup_store(&f->l, lookup_hash(f->l.seed, w->key), SLOT_NONE, i));
}

static int setup(void **out)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint64_t bytes = lookup_bytes(1000);
    static const uint8_t uuid[16];
    f->headers = aligned_alloc(128, HEADERS * sizeof *f->headers);
    memset(f->headers, 0, HEADERS * sizeof *f->headers);
    f->tails = calloc(CELLS, TAIL_CELL);
    if (posix_memalign(&f->map, 4096, bytes) != 0)
        return -1;
    lookup_format(f->map, bytes, uuid, 77);
    f->l = (struct lookup){.headers = f->headers, .tails = f->tails, .n_headers = HEADERS, .n_tails = CELLS};
    if (lookup_attach(&f->l, f->map, bytes) != 0)
        return -1;
    for (uint32_t i = 0; i < OBJECTS; i++)
        make_object(f, i);
    slot_store(&f->headers[OBJECTS], 1, SLOT_WRITING); /* of no concern to the index */
    slot_store(&f->headers[OBJECTS + 1], 1, SLOT_RETIRED);
    *out = f;
    return 0;
}

static int teardown(void **in)
{
    struct fixture *f = *in;
    free(f->map);
    free(f->headers);
    free(f->tails);
    free(f);
    return 0;
}

static void take(void *arg, const char *sentence)
{
    struct fixture *f = arg;
    size_t used = strlen(f->report);
    snprintf(f->report + used, sizeof f->report - used, "%s;", sentence);
}

static void check(struct fixture *f)
{
    struct check_result quiet;
    f->report[0] = 0;
    assert_int_equal(check_region(&rows_ops, f, &f->l, HEADERS, take, f, &f->result), 0);
    assert_int_equal(check_region(&rows_ops, f, &f->l, HEADERS, NULL, NULL, &quiet), 0);
    assert_memory_equal(&quiet, &f->result, sizeof quiet);
}

static void expect(struct fixture *f, uint64_t differences, const char *report)
{
    check(f);
    assert_string_equal(f->report, report);
    assert_int_equal(f->result.differences, differences);
}

static void test_agree(void **s)
{
    struct fixture *f = *s;
    expect(f, 0, "");
    assert_int_equal(f->result.records, OBJECTS);
    assert_int_equal(f->result.slots_ready, OBJECTS);
    assert_int_equal(f->result.lookup_entries, OBJECTS);
    assert_int_equal(f->result.index_only, 0);
}

static void test_slot(void **s)
{
    struct fixture *f = *s;
    f->rows[2].r.slot = HEADERS;
    expect(f, 3,
           "slot 64 of record 'key 2\\x0a' is beyond the 64 headers in use;"
           "slot 2 with key 'key 2\\x0a' is ready but has no record;lookup entry of slot 2 has no record;");
    f->rows[2].r.slot = 2;
    f->rows[2].r.generation++;
    expect(f, 1, "generation of record 'key 2\\x0a' is 7 in the index, 6 in the header of slot 2;");
    f->rows[2].r.generation--;
    slot_store(&f->headers[2], 6, SLOT_RETIRED);
    expect(f, 1, "slot 2 of record 'key 2\\x0a' is in state 3 and not ready;");
    slot_store(&f->headers[2], 6, SLOT_READY);
    expect(f, 0, "");
}

static void test_header_fields(void **s)
{
    struct fixture *f = *s;
    struct slot_header *h = &f->headers[2];
    h->key[1]++;
    expect(f, 1, "key of record 'key 2\\x0a' is another in the header of slot 2;");
    h->key[1]--;
    h->ns++;
    expect(f, 1, "key of record 'key 2\\x0a' is another in the header of slot 2;");
    h->ns--;
    h->size++;
    expect(f, 1, "size of record 'key 2\\x0a' is 2 in the index, 3 in the header of slot 2;");
    h->size--;
    h->version++;
    expect(f, 1, "version of record 'key 2\\x0a' is 3 in the index, 4 in the header of slot 2;");
    h->version--;
    h->region++;
    expect(f, 1, "region of record 'key 2\\x0a' is 0 in the index, 1 in the header of slot 2;");
    h->region--;
    h->checksum++;
    expect(f, 1, "checksum of record 'key 2\\x0a' is 4 in the index, 5 in the header of slot 2;");
    h->checksum--;
    h->lineage++;
    expect(f, 1, "lineage of record 'key 2\\x0a' is 5 in the index, 6 in the header of slot 2;");
    h->lineage--;
    atomic_store(&h->flags, SLOT_HELD);
    expect(f, 1, "record 'key 2\\x0a' has 0 holds in the index, but the header of slot 2 says held;");
    atomic_store(&h->flags, 0);
    atomic_store(&f->headers[3].flags, 0);
    expect(f, 1, "record 'key 3\\x0a' has 1 hold in the index, but the header of slot 3 says not held;");
    atomic_store(&f->headers[3].flags, SLOT_HELD);
    f->tails[5 * TAIL_CELL + 60]++;
    check(f);
    assert_int_equal(f->result.differences, 1);
    assert_memory_equal(f->report, "key of record 'key 7\\x0axxxxx", 27);
    f->tails[5 * TAIL_CELL + 60]--;
    f->headers[LONG_KEY].tail = UINT32_MAX;
    check(f);
    assert_int_equal(f->result.differences, 1);
    f->headers[LONG_KEY].tail = 5;
    expect(f, 0, "");
}

static void test_records(void **s)
{
    struct fixture *f = *s;
    struct row *spare = &f->rows[OBJECTS];
    f->rows[2].there = false;
    expect(f, 2, "slot 2 with key 'key 2\\x0a' is ready but has no record;lookup entry of slot 2 has no record;");
    f->headers[2].key_size = 0;
    expect(f, 2, "slot 2 with key '' is ready but has no record;lookup entry of slot 2 has no record;");
    f->headers[2].key_size = 6;
    f->rows[2].there = true;
    f->rows[2].undecodable = true;
    expect(f, 3,
           "record 'key 2\\x0a' of namespace 3 cannot be decoded: the index is damaged, remove the region;"
           "slot 2 with key 'key 2\\x0a' is ready but has no record;lookup entry of slot 2 has no record;");
    f->rows[2].undecodable = false;
    *spare = f->rows[2];
    strcpy(spare->bytes, "ke\\");
    spare->key.size = 3;
    expect(
        f, 3,
        "slot 2 of record 'ke\\\\' is another record's too;key of record 'ke\\\\' is another in the header of slot 2;"
        "record 'ke\\\\' of slot 2 is missing in lookup;");
    spare->there = false;
    memset(spare->bytes, 0, sizeof spare->bytes); /* the longest name that there can be */
    spare->there = spare->undecodable = true;
    spare->key.size = KEY_MAX;
    check(f);
    assert_int_equal(
        strlen(f->report),
        4 * KEY_MAX + strlen("record '' of namespace 3 cannot be decoded: the index is damaged, remove the region;"));
}

static void test_lookup(void **s)
{
    struct fixture *f = *s;
    struct key_hash hash = lookup_hash(f->l.seed, f->rows[2].key);
    struct lookup_bucket *home = &f->l.buckets[hash.home & f->l.mask];
    lookup_clear(&f->l, hash, 2);
    expect(f, 1, "record 'key 2\\x0a' of slot 2 is missing in lookup;");
    atomic_store(&home->ask, 1);
    expect(f, 0, "");
    assert_int_equal(f->result.index_only, 1);
    atomic_store(&home->ask, 0);
    assert_true(lookup_store(&f->l, hash, SLOT_NONE, 2));
    struct key_hash stray = {.home = 1};
    assert_true(lookup_store(&f->l, stray, SLOT_NONE, OBJECTS));
    expect(f, 1, "lookup entry of slot 40 has no record;");
    lookup_clear(&f->l, stray, OBJECTS);
    assert_true(lookup_store(&f->l, stray, SLOT_NONE, 2));
    expect(f, 1, "slot 2 has more than one lookup entry;");
    lookup_clear(&f->l, stray, 2);
    assert_true(lookup_store(&f->l, stray, SLOT_NONE, HEADERS));
    expect(f, 1, "lookup entry of slot 64 is beyond the 64 headers in use;");
    lookup_clear(&f->l, stray, HEADERS);
    expect(f, 0, "");
}

static void test_errors(void **s)
{
    struct fixture *f = *s;
    struct check_result before, out;
    memset(&out, 0x5a, sizeof out);
    before = out;
    f->fail = -EBADMSG;
    assert_int_equal(check_region(&rows_ops, f, &f->l, HEADERS, NULL, NULL, &out), -EIO);
    f->fail = -ENOMEM;
    assert_int_equal(check_region(&rows_ops, f, &f->l, HEADERS, NULL, NULL, &out), -ENOMEM);
    assert_memory_equal(&before, &out, sizeof out);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_agree),   TEST(test_slot),   TEST(test_header_fields),
        TEST(test_records), TEST(test_lookup), TEST(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
