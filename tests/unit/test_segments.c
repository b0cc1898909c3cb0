/* Segments at the core: cells of tails from create to the slot's end, what a seal accepts, what a restart restores. */
#include "tests/support/core.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB (1u << 20)

static struct node_namespace replaceable[] = {{.name = "r", .replaceable = true}};

static void with_namespace(struct core *c)
{
    c->config.namespaces = replaceable;
    c->config.n_namespaces = 1;
}

static uint64_t sum_of(uint32_t i)
{
    return (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t list_checksum(uint32_t n)
{
    static uint64_t list[SEGMENTS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        list[i] = sum_of(i);
    }
    return XXH3_64bits(list, n * sizeof *list);
}

static const char *key_of(uint32_t n)
{
    static char key[KEY_MAX + 1];
    memset(key, 'k', n);
    key[n] = '\0';
    return key;
}

static struct msg_token token_in(const struct msg_reply *r)
{
    return *(const struct msg_token *)(r + 1);
}

static struct msg_token create(struct core *c, const char *key, uint32_t size, uint8_t shift, uint32_t ns)
{
    uint32_t n = (uint32_t)strlen(key);
    struct msg_create *m = (struct msg_create *)core_message(c, MSG_CREATE, (uint32_t)sizeof *m + n);
    m->object = (struct msg_object){.size = size, .ns = ns, .key_size = (uint16_t)n, .segment = shift};
    memcpy(m + 1, key, n);
    const struct msg_reply *r = core_request(c, 1, &m->head);
    assert_non_null(r);
    assert_int_equal(r->status, 0);
    return token_in(r);
}

static int sums(struct core *c, uint64_t session, struct msg_token t, uint32_t n)
{
    struct msg_sums *m = (struct msg_sums *)core_message(c, MSG_SUMS, (uint32_t)(sizeof *m + n * sizeof(uint64_t)));
    m->token = t;
    m->count = n;
    for (uint32_t i = 0; i < n; i++) {
        ((uint64_t *)(m + 1))[i] = sum_of(i);
    }
    return core_request(c, session, &m->head)->status;
}

static int seal(struct core *c, struct msg_token t, uint64_t checksum)
{
    struct msg_seal *m = (struct msg_seal *)core_message(c, MSG_SEAL, sizeof *m + sizeof(struct msg_member));
    m->count = 1;
    *(struct msg_member *)(m + 1) = (struct msg_member){.token = t, .checksum = checksum};
    const struct msg_reply *r = core_request(c, 1, &m->head);
    return r ? r->status : 1000;
}

static int put(struct core *c, const char *key, uint32_t size, uint8_t shift, uint32_t ns, uint64_t checksum)
{
    struct msg_token t;
    uint32_t n = (uint32_t)strlen(key), count = segments_of(size, shift);
    int e = core_grant(c, 1, size, &t);
    struct msg_put *m = (struct msg_put *)core_message(c, MSG_PUT, (uint32_t)sizeof *m + n + count * 8);
    m->token = t;
    m->object =
        (struct msg_object){.checksum = checksum, .size = size, .ns = ns, .key_size = (uint16_t)n, .segment = shift};
    memcpy(m + 1, key, n);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t sum = sum_of(i);
        memcpy((uint8_t *)(m + 1) + n + i * 8, &sum, 8);
    }
    return e ? e : core_request(c, 1, &m->head)->status;
}

/* The object is there, and its list is what was sent. */
static void expect(struct core *c, const char *key, uint32_t ns, uint32_t count)
{
    uint32_t slot = core_find(c, key, ns), n;
    assert_true(slot != SLOT_NONE);
    const uint64_t *list = lookup_sums(&c->lookup, &c->headers[slot], &n);
    assert_int_equal(n, count);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(list[i], sum_of(i));
    }
    assert_true(lookup_key_equal(&c->lookup, &c->headers[slot],
                                 (struct key_ref){.data = key, .size = (uint32_t)strlen(key), .ns = ns}));
}

/* Sizes at the borders of a segment, and keys around those that fit the header: all of them are there after a crash. */
static void test_sizes_and_keys(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 4095, 4096, 4097, 8 * 4096, 8 * 4096 + 1, 1024 * 4096};
    static const uint32_t keys[] = {1, 65, 66, 67, 68, 69, 70, 71, 130, 131, 194, KEY_MAX};
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    for (unsigned crash = 0; crash < 2; crash++) {
        for (unsigned k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0] - (k > 0); i++) {
                char key[KEY_MAX + 1];
                uint32_t n = segments_of(sizes[i], 12);
                strcpy(key, key_of(keys[k]));
                key[0] = (char)('a' + i); /* those of one length differ in the first byte only */
                if (!crash && i % 2) {
                    assert_int_equal(put(&c, key, sizes[i], 12, 0, list_checksum(n)), 0);
                } else if (!crash) {
                    struct msg_token t = create(&c, key, sizes[i], 12, 0);
                    assert_int_equal(n ? sums(&c, 1, t, n) : 0, 0);
                    assert_int_equal(seal(&c, t, list_checksum(n)), 0);
                }
                expect(&c, key, 0, n);
            }
        }
        core_check(&c);
        if (!crash) {
            core_crash(&c, (uint64_t[]){1}, 1);
        }
    }
    core_close(&c);
}

static void with_little_lookup(struct core *c)
{
    lookup_format(c->lookup_map, lookup_bytes(8), c->super.uuid, 42);
    assert_int_equal(lookup_attach(&c->lookup, c->lookup_map, lookup_bytes(8)), 0);
}

/* Keys that found no room in lookup: their objects are as good as others. */
static void test_index_only(void **state)
{
    (void)state;
    struct core c;
    char key[8];
    core_open(&c, 64 * MIB, with_little_lookup);
    core_attach(&c, 1);
    for (unsigned crash = 0; crash < 2; crash++) {
        for (unsigned i = 0; i < 200; i++) {
            snprintf(key, sizeof key, "%u", i);
            assert_int_equal(crash ? 0 : put(&c, key, 5000, 12, 0, list_checksum(2)), 0);
            expect(&c, key, 0, 2);
        }
        struct node_status s;
        node_status(c.node, &s);
        assert_true(crash || s.counter[NODE_INDEX_ONLY] > 0);
        core_check(&c);
        core_crash(&c, (uint64_t[]){1}, 1);
    }
    core_close(&c);
}

/* A key whose last bytes are those of a cell's number is no key of the object that has that cell. */
static void test_a_cell_is_no_key(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    assert_int_equal(put(&c, key_of(70), 5000, 12, 0, list_checksum(2)), 0);
    uint32_t slot = core_find(&c, key_of(70), 0);
    uint8_t other[70];
    memcpy(other, (const uint8_t *)&c.headers[slot] + offsetof(struct slot_header, key), 70);
    assert_false(lookup_key_equal(&c.lookup, &c.headers[slot], (struct key_ref){.data = other, .size = 70}));
    core_close(&c);
}

static void test_seals_that_prove_nothing(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    core_attach(&c, 2);
    struct msg_token t = create(&c, "a", 10000, 12, 0), plain = create(&c, "p", 10000, 0, 0), grant;
    assert_int_equal(core_grant(&c, 1, 100, &grant), 0);
    assert_int_equal(seal(&c, t, list_checksum(3)), BERTH_ECORRUPT); /* the list never came */
    core_check(&c);
    assert_int_equal(sums(&c, 2, t, 3), BERTH_ESTALE); /* another's draft */
    assert_int_equal(sums(&c, 1, grant, 3), BERTH_ESTALE);
    assert_int_equal(sums(&c, 1, plain, 3), -EINVAL);
    assert_int_equal(sums(&c, 1, t, 2), -EINVAL);
    assert_int_equal(sums(&c, 1, t, 4), -EINVAL);
    assert_int_equal(sums(&c, 1, t, 3), 0);
    assert_int_equal(sums(&c, 1, t, 3), 0); /* again */
    assert_int_equal(seal(&c, t, list_checksum(2)), BERTH_ECORRUPT);
    assert_int_equal(core_find(&c, "a", 0), SLOT_NONE);
    c.hold_commits = true;
    assert_int_equal(seal(&c, t, list_checksum(3)), 1000);
    assert_int_equal(sums(&c, 1, t, 3), BERTH_ESTALE); /* what is at the committer is no longer written */
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    expect(&c, "a", 0, 3);
    assert_int_equal(sums(&c, 1, t, 3), BERTH_ESTALE);
    assert_int_equal(put(&c, "b", 10000, 12, 0, list_checksum(2)), BERTH_ECORRUPT);
    assert_int_equal(core_find(&c, "b", 0), SLOT_NONE);
    core_check(&c);
    core_close(&c);
}

/* Abort, death, keep, replace, remove and failed commits: node_check counts the cells each time. */
static void test_cells_come_back(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_namespace);
    core_attach(&c, 1);
    core_attach(&c, 2);
    struct msg_token t = create(&c, key_of(70), 10000, 12, 0);
    struct msg_tokens *m = (struct msg_tokens *)core_message(&c, MSG_ABORT, sizeof *m + sizeof t);
    m->count = 1;
    memcpy(m + 1, &t, sizeof t);
    assert_int_equal(core_request(&c, 1, &m->head)->status, 1);
    core_check(&c);
    assert_int_equal(put(&c, "k", 10000, 12, 0, list_checksum(3)), 0);
    assert_int_equal(put(&c, "k", 10000, 12, 0, list_checksum(3)), BERTH_KEPT);
    core_check(&c);
    assert_int_equal(put(&c, "k", 10000, 12, 1, list_checksum(3)), 0);
    uint32_t old = core_find(&c, "k", 1);
    c.pinned[old] = 1;
    assert_int_equal(put(&c, "k", 4 * MIB, 12, 1, list_checksum(1024)), 0);
    core_check(&c);
    uint32_t n;
    assert_non_null(lookup_sums(&c.lookup, &c.headers[old], &n)); /* of a reader of the old one */
    core_crash(&c, (uint64_t[]){1, 2}, 2);
    core_check(&c);
    core_attach(&c, 1);
    core_attach(&c, 2);
    c.pinned[old] = 0;
    core_tick(&c, 2000000000);
    core_check(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k", 0), 0);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "k", 1), 0);
    create(&c, "dies", 10000, 12, 0);
    core_event(&c, (struct node_event){.kind = EV_DEAD, .session = 1});
    core_tick(&c, 2000000000);
    core_check(&c);
    struct node_status s;
    node_status(c.node, &s);
    assert_int_equal(s.objects + s.drafts + s.retired, 0);
    core_close(&c);
}

/* A put whose commit failed, of a key that is pending, comes twice: its first cells are not lost. */
static void test_stalled_put(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    core_attach(&c, 2);
    struct msg_token t;
    assert_int_equal(core_create(&c, 2, "k", 10, 0, &t), 0);
    c.hold_commits = true;
    assert_int_equal(core_seal(&c, 2, &t, 1), 1000);
    assert_int_equal(core_grant(&c, 1, 10000, &t), 0);
    struct msg_put *m = (struct msg_put *)core_message(&c, MSG_PUT, (uint32_t)sizeof *m + 1 + 24);
    m->token = t;
    m->object = (struct msg_object){.checksum = list_checksum(3), .size = 10000, .key_size = 1, .segment = 12};
    memcpy(m + 1, "k", 1);
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t sum = sum_of(i);
        memcpy((uint8_t *)(m + 1) + 1 + i * 8, &sum, 8);
    }
    uint64_t id = m->head.id;
    assert_null(core_request(&c, 1, &m->head));
    c.fail_commits = 1;
    c.hold_commits = false;
    core_commit(&c);
    core_turn(&c);
    assert_int_equal(core_reply(&c, id)->status, 0);
    expect(&c, "k", 0, 3);
    core_check(&c);
    core_close(&c);
}

/* What a node that was killed, or a stray write, left: the record that its cells do not prove is dropped, the others
 * stay, and no cell is lost. */
static void test_restart_with_damage(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 6; what++) {
        struct core c;
        core_open(&c, 64 * MIB, NULL);
        core_attach(&c, 1);
        assert_int_equal(put(&c, "good", 10000, 12, 0, list_checksum(3)), 0);
        assert_int_equal(put(&c, "bad", 10000, 12, 0, list_checksum(3)), 0);
        struct slot_header *h = &c.headers[core_find(&c, "bad", 0)];
        uint32_t good = c.headers[core_find(&c, "good", 0)].tail;
        switch (what) {
        case 0:
            c.tails[h->tail * TAIL_CELL + 8]++;
            break;
        case 1:
            h->tail = UINT32_MAX;
            break;
        case 2:
            h->tail = good; /* another's */
            break;
        case 3:
            h->tier_segment = 13;
            break;
        case 4:
            atomic_fetch_and(&h->flags, (uint8_t)~SLOT_TAIL);
            break;
        default:
            h->size = 9000;
            break;
        }
        core_crash(&c, (uint64_t[]){1}, 1);
        uint32_t bad = core_find(&c, "bad", 0);
        uint32_t kept = core_find(&c, "good", 0);
        if (what == 2) { /* which of them is met first has the cells */
            assert_true((bad == SLOT_NONE) != (kept == SLOT_NONE));
        } else {
            assert_int_equal(bad, SLOT_NONE);
            expect(&c, "good", 0, 3);
        }
        core_tick(&c, 2000000000);
        core_check(&c);
        core_close(&c);
    }
}

/* A draft's list survives the node: a seal that was sent again finds it. */
static void test_draft_over_restart(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    struct msg_token t = create(&c, key_of(69), 10000, 12, 0);
    assert_int_equal(sums(&c, 1, t, 3), 0);
    core_crash(&c, (uint64_t[]){1}, 1);
    core_attach(&c, 1);
    core_check(&c);
    assert_int_equal(seal(&c, t, list_checksum(3)), 0);
    expect(&c, key_of(69), 0, 3);
    core_check(&c);
    core_close(&c);
}

static uint32_t limit;

static int grow_to_limit(void *env, uint32_t n)
{
    (void)env;
    return n > limit ? -ENOSPC : 0;
}

static void with_few_cells(struct core *c)
{
    c->config.grow_tails = grow_to_limit;
    limit = 200;
}

/* No cells left: refused, and nothing of it stays. */
static void test_cells_run_out(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, with_few_cells);
    core_attach(&c, 1);
    assert_int_equal(put(&c, "a", 4 * MIB, 12, 0, list_checksum(1024)), 0);
    assert_int_equal(put(&c, "b", 4 * MIB, 12, 0, list_checksum(1024)), BERTH_EFULL);
    core_check(&c);
    assert_int_equal(put(&c, "b", 4 * MIB, 16, 0, list_checksum(64)), 0);
    core_check(&c);
    assert_int_equal(core_key(&c, 1, MSG_REMOVE, "a", 0), 0);
    core_tick(&c, 2000000000);
    assert_int_equal(put(&c, "c", 4 * MIB, 12, 0, list_checksum(1024)), 0);
    core_check(&c);
    core_close(&c);
}

/* The check of a region names cells and lists that are not as they were sealed. */
static void report(void *arg, const char *sentence)
{
    snprintf(arg, 256, "%s", sentence);
}

static void expect_difference(struct core *c, const char *what)
{
    struct check_result r;
    struct node_status s;
    char sentence[256] = "";
    node_status(c->node, &s);
    assert_int_equal(check_region(&lmdb_ops, c->index, &c->lookup, s.slabs.headers_used, report, sentence, &r), 0);
    assert_true(r.differences > 0);
    assert_non_null(strstr(sentence, what));
    assert_non_null(node_check(c->node));
}

static void test_check_names_it(void **state)
{
    (void)state;
    struct core c;
    core_open(&c, 64 * MIB, NULL);
    core_attach(&c, 1);
    assert_int_equal(put(&c, "a", 10000, 12, 0, list_checksum(3)), 0);
    assert_int_equal(put(&c, "b", 10000, 12, 0, list_checksum(3)), 0);
    struct slot_header *h = &c.headers[core_find(&c, "b", 0)];
    uint32_t tail = h->tail;
    c.tails[tail * TAIL_CELL]++;
    expect_difference(&c, "checksums of the segments of record 'b'");
    c.tails[tail * TAIL_CELL]--;
    h->tail = c.headers[core_find(&c, "a", 0)].tail;
    expect_difference(&c, "another record's too");
    h->tail = UINT32_MAX;
    expect_difference(&c, "cells of record 'b'");
    h->tail = tail + 1; /* nobody's */
    assert_non_null(node_check(c.node));
    h->tail = tail;
    core_check(&c);
    core_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_keys),
        cmocka_unit_test(test_a_cell_is_no_key),
        cmocka_unit_test(test_seals_that_prove_nothing),
        cmocka_unit_test(test_cells_come_back),
        cmocka_unit_test(test_stalled_put),
        cmocka_unit_test(test_restart_with_damage),
        cmocka_unit_test(test_draft_over_restart),
        cmocka_unit_test(test_cells_run_out),
        cmocka_unit_test(test_check_names_it),
        cmocka_unit_test(test_index_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
