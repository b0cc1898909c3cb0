/* Removals, and puts of one key at the same time, over several nodes that are killed and started again: what was
 * removed does not come back from a node that still has it, and of two puts one is everybody's in the end (PROTOCOLS
 * rules 28 and 29). */
#include "tests/support/berthds.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 12u
#define BYTES 4096u
#define SECONDS(n) ((n)*INT64_C(1000000000))

static uint8_t payload[BYTES];

static void put(unsigned node, const char *key)
{
    payload_fill(payload, sizeof payload, key);
    assert_int_equal(berth_put(berthds.b[node], key_of(key), payload, sizeof payload, NULL), 0);
}

static int get(unsigned node, const char *key, unsigned flags)
{
    struct berth_view v;
    int rc = berth_get(berthds.b[node], key_of(key), &v, flags, berth_deadline(SECONDS(5)));
    if (rc == 0) {
        assert_true(payload_is(v.data, v.size, key));
        berth_release(berthds.b[node], &v, 1);
    }
    return rc;
}

struct look {
    unsigned node, flags;
    const char *key;
    int want, rc;
};

static bool answers(void *arg)
{
    struct look *l = arg;
    l->rc = get(l->node, l->key, l->flags);
    return l->rc == l->want;
}

static void becomes(unsigned node, const char *key, unsigned flags, int want)
{
    struct look l = {.node = node, .flags = flags, .key = key, .want = want};
    if (!eventually(answers, &l, BERTHDS_SOON_MS)) {
        fail_msg("n%u says %d of %s, not %d", node, l.rc, key, want);
    }
}

struct number {
    unsigned node;
    const char *path;
    double want;
};

static bool reads(void *arg)
{
    const struct number *x = arg;
    return daemon_number(berthds.b[x->node], x->path) == x->want;
}

static void comes_to(unsigned node, const char *path, double want)
{
    struct number x = {node, path, want};
    if (!eventually(reads, &x, BERTHDS_SOON_MS)) {
        fail_msg("n%u: %s is %g and not %g", node, path, daemon_number(berthds.b[node], path), want);
    }
}

static char text[KEYS][16];

/* Keys that n0 has put and n1 has a copy of. */
static void make_copies(const char *name)
{
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof text[i], "%s/%u", name, i);
        put(0, text[i]);
    }
    berthds_quiet();
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(get(1, text[i], BERTH_PEERS), 0);
    }
    berthds_quiet();
}

/* The homes are stopped while n0 removes and is killed: nobody has heard of it but n0's index. */
static void test_remover_is_killed(void **unused)
{
    (void)unused;
    berthds_start(3, 2, "1h", "60s");
    make_copies("gone");
    berthds_freeze(1, true);
    berthds_freeze(2, true);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(berth_remove(berthds.b[0], key_of(text[i]), NULL), 0);
    }
    berthds_kill(0);
    berthds_freeze(1, false);
    berthds_freeze(2, false);
    berthds_again(0);
    berthds_quiet();
    comes_to(0, "slots.tombstones_unknown", 0);
    assert_true(daemon_number(berthds.b[0], "slots.tombstones") == KEYS);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(get(2, text[i], BERTH_PEERS), -ENOENT);
        assert_int_equal(get(0, text[i], BERTH_PEERS), -ENOENT);
    }
    berthds_kill(1); /* its copies are told of anew, and go */
    berthds_again(1);
    berthds_quiet();
    for (unsigned i = 0; i < KEYS; i++) {
        becomes(1, text[i], 0, -ENOENT);
        assert_int_equal(get(2, text[i], BERTH_PEERS), -ENOENT);
    }
    put(0, text[0]); /* the key is free */
    becomes(2, text[0], BERTH_PEERS, 0);
    berthds_end();
}

/* Homes that begin anew are told of removals as of objects. */
static void test_homes_restart(void **unused)
{
    (void)unused;
    berthds_start(3, 2, "1h", "60s");
    make_copies("again");
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(berth_remove(berthds.b[0], key_of(text[i]), NULL), 0);
    }
    comes_to(0, "slots.tombstones_unknown", 0);
    berthds_kill(0);
    berthds_kill(1);
    berthds_kill(2);
    berthds_again(1); /* with its copies; who removed them is not there */
    berthds_again(2);
    for (unsigned i = 0; i < KEYS; i++) {
        int rc = get(2, text[i], BERTH_PEERS);
        if (rc != 0 && rc != BERTH_EUNSURE) { /* nobody can know better, and nobody says that it is nowhere */
            fail_msg("%s while its remover is away: %d", text[i], rc);
        }
    }
    berthds_again(0);
    berthds_quiet();
    for (unsigned node = 1; node < 3; node++) { /* each tells of its copies anew */
        berthds_kill(node);
        berthds_again(node);
    }
    berthds_quiet();
    for (unsigned i = 0; i < KEYS; i++) {
        becomes(1, text[i], 0, -ENOENT);
        becomes(2, text[i], 0, -ENOENT);
        assert_int_equal(get(0, text[i], BERTH_PEERS), -ENOENT);
    }
    berthds_end();
}

/* Nobody is started again: copies elsewhere go while the removal is remembered. */
static void test_copies_go(void **unused)
{
    (void)unused;
    berthds_start(3, 2, "4s", "60s");
    make_copies("copy");
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(berth_remove(berthds.b[i % 2], key_of(text[i]), NULL),
                         0); /* by its owner, or by who has a copy */
    }
    for (unsigned i = 0; i < KEYS; i++) {
        becomes(0, text[i], 0, -ENOENT);
        becomes(1, text[i], 0, -ENOENT);
        assert_int_equal(get(2, text[i], BERTH_PEERS), -ENOENT);
    }
    berthds_end();
}

/* ---- puts on a copy of a key that was removed elsewhere ---- */

static int put_published(unsigned node, const char *key)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED, .deadline = berth_deadline(SECONDS(10))};
    return berth_put(berthds.b[node], key_of(key), payload, sizeof payload, &o);
}

static int queue_put(unsigned node, const char *key)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED, .deadline = berth_deadline(SECONDS(10))};
    struct berth_op op = {.opcode = BERTH_OP_PUT,
                          .key = key_of(key),
                          .data = payload,
                          .size = sizeof payload,
                          .put = &o},
                    *done;
    struct berth_queue *q;
    assert_int_equal(berth_queue_open(berthds.b[node], 1, &q), 0);
    assert_int_equal(berth_submit(q, &op, 1), 1);
    assert_int_equal(berth_reap(q, &done, 1, berth_deadline(SECONDS(20))), 1);
    berth_queue_close(q);
    return (int)op.result;
}

static int create_and_seal(unsigned node, const char *key)
{
    struct berth_put_opts o = {.size = sizeof o, .flags = BERTH_PUBLISHED};
    struct berth_draft d;
    int rc = berth_create(berthds.b[node], key_of(key), sizeof payload, &o, &d);
    if (rc == 0) {
        memcpy(d.data, payload, sizeof payload);
        rc = berth_seal(berthds.b[node], &d, 1);
    }
    return rc;
}

/* n0 has removed what n1 has a copy of, or had put; n1 is no home and has not heard: who asks for BERTH_PUBLISHED
 * learns of it, and what is put is put. */
static void test_put_after_removal(void **unused)
{
    (void)unused;
    static int (*const puts[])(unsigned, const char *) = {put_published, queue_put, create_and_seal};
    unsigned told = 0;
    berthds_start(3, 1, "1h", "60s");
    make_copies("dead");
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(berth_remove(berthds.b[0], key_of(text[i]), NULL), 0);
    }
    comes_to(0, "slots.tombstones_unknown", 0);
    for (unsigned i = 0; i < KEYS; i++) {
        payload_fill(payload, sizeof payload, text[i]);
        if (berthds_home(1, key_of(text[i]))) {
            becomes(1, text[i], 0, -ENOENT); /* of what it knows itself no put is kept */
            assert_int_equal(berth_put(berthds.b[1], key_of(text[i]), payload, sizeof payload, NULL), 0);
            becomes(2, text[i], BERTH_PEERS, 0);
            continue;
        }
        told++;
        assert_int_equal(get(1, text[i], 0), 0);
        assert_int_equal(puts[i % 3](1, text[i]), 0);
        assert_int_equal(get(2, text[i], BERTH_PEERS), 0);
        assert_int_equal(put_published(1, text[i]), BERTH_KEPT); /* and now it is */
    }
    assert_true(told > 0 && told < KEYS);
    berthds_kill(1);
    berthds_again(1);
    assert_int_equal(put_published(1, text[0]), BERTH_KEPT); /* of a key that this run has not told of itself */
    berthds_quiet();
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(get(1, text[i], 0), 0);
    }
    berthds_end();
}

/* A hold is of this node's key: a removal at another one ends it, and it shows. */
static void test_hold_on_a_copy(void **unused)
{
    (void)unused;
    berthds_start(2, 2, "1h", "60s");
    make_copies("held");
    assert_int_equal(berth_hold(berthds.b[1], key_of(text[0]), "mine", 0), 0);
    assert_int_equal(berth_remove(berthds.b[0], key_of(text[0]), NULL), 0);
    becomes(1, text[0], 0, -ENOENT);
    comes_to(1, "counters.holds_lost", 1);
    assert_true(daemon_says(&berthds.d[1], ", held: 1", BERTHDS_SOON_MS));
    berthds_end();
}

/* ---- two puts of one key ---- */

static struct {
    struct berth_version version;
    unsigned by;
} seen[KEYS][64]; /* a key's versions, and whose bytes they are */
static unsigned n_seen[KEYS];
static pthread_barrier_t together;

static void *put_all(void *arg)
{
    unsigned node = *(unsigned *)arg;
    uint8_t mine[BYTES];
    memset(mine, (int)node + 1, sizeof mine);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[16];
        struct berth_key k = {
            .data = key, .size = (uint32_t)snprintf(key, sizeof key, "both/%u", i), .ns = berthds.ns[node]};
        pthread_barrier_wait(&together);
        int rc = berth_put(berthds.b[node], k, mine, sizeof mine, NULL);
        if (rc) {
            return (void *)(intptr_t)rc;
        }
    }
    return NULL;
}

/* Equal versions are equal bytes, whoever reads and whenever. */
static void note(unsigned i, const struct berth_view *v)
{
    unsigned by = *(const uint8_t *)v->data;
    for (unsigned k = 0; k < v->size; k++) {
        assert_int_equal(((const uint8_t *)v->data)[k], by);
    }
    for (unsigned k = 0; k < n_seen[i]; k++) {
        if (seen[i][k].version.counter == v->version.counter && seen[i][k].version.region == v->version.region) {
            assert_int_equal(seen[i][k].by, by);
            return;
        }
    }
    assert_true(n_seen[i] < 64);
    seen[i][n_seen[i]].version = v->version;
    seen[i][n_seen[i]++].by = by;
}

static bool one_version(void *arg)
{
    unsigned i = *(unsigned *)arg;
    struct berth_version first = {0};
    bool same = true;
    char key[16];
    int size = snprintf(key, sizeof key, "both/%u", i);
    for (unsigned node = 0; node < 3; node++) {
        struct berth_view v;
        struct berth_key k = {.data = key, .size = (uint32_t)size, .ns = berthds.ns[node]};
        int rc = berth_get(berthds.b[node], k, &v, BERTH_PEERS, berth_deadline(SECONDS(5)));
        if (rc) {
            return false;
        }
        note(i, &v);
        same = same && (node == 0 || (v.version.counter == first.counter && v.version.region == first.region));
        first = v.version;
        berth_release(berthds.b[node], &v, 1);
    }
    return same;
}

static void test_two_puts(void **unused)
{
    (void)unused;
    pthread_t thread[2];
    unsigned who[2] = {0, 1};
    berthds_start(3, 2, "1h", "1s");
    assert_int_equal(pthread_barrier_init(&together, NULL, 2), 0);
    for (unsigned t = 0; t < 2; t++) {
        assert_int_equal(pthread_create(&thread[t], NULL, put_all, &who[t]), 0);
    }
    for (unsigned t = 0; t < 2; t++) {
        void *rc;
        pthread_join(thread[t], &rc);
        assert_null(rc); /* a put is its own node's: it returns when that has it */
    }
    pthread_barrier_destroy(&together);
    for (unsigned i = 0; i < KEYS; i++) {
        if (!eventually(one_version, &i, BERTHDS_SOON_MS)) {
            fail_msg("both/%u has several versions still", i);
        }
    }
    berthds_quiet();
    for (unsigned i = 0; i < KEYS; i++) {
        assert_true(one_version(&i));
    }
    double renewed = 0;
    for (unsigned node = 0; node < 3; node++) {
        renewed += daemon_number(berthds.b[node], "home.renewed");
    }
    assert_true(renewed > 0);
    berthds_end();
}

/* A home has heard of the removal: its good lease on what was removed serves no further pull. */
static void test_leases_end(void **unused)
{
    uint8_t into[BYTES];
    const struct berth_put_opts published = {
        .size = sizeof published, .flags = BERTH_PUBLISHED, .deadline = berth_deadline(SECONDS(20))};
    (void)unused;
    berthds_start(2, 2, "1h", "60s");
    put(0, "gone");
    put(0, "again");
    berthds_quiet();
    assert_int_equal(berth_get_into(berthds.b[1], key_of("gone"), into, BYTES, BERTH_PEERS, berth_deadline(SECONDS(5))),
                     BYTES);
    assert_int_equal(get(1, "again", BERTH_PEERS), 0);
    assert_int_equal(berth_remove(berthds.b[0], key_of("gone"), NULL), 0);
    assert_int_equal(berth_remove(berthds.b[0], key_of("again"), NULL), 0);
    comes_to(0, "slots.tombstones_unknown", 0);
    assert_int_equal(berth_get_into(berthds.b[1], key_of("gone"), into, BYTES, BERTH_PEERS, berth_deadline(SECONDS(5))),
                     -ENOENT);
    payload_fill(payload, sizeof payload, "again");
    assert_int_equal(berth_put(berthds.b[0], key_of("again"), payload, sizeof payload, &published), 0);
    assert_int_equal(get(1, "again", BERTH_PEERS), 0);
    berthds_end();
}

static void *third; /* registered with n2, so that nothing comes into its pool */

static long third_gets(const char *key)
{
    return berth_get_into(berthds.b[2], key_of(key), third, BYTES, BERTH_PEERS, berth_deadline(SECONDS(5)));
}

static bool is_nowhere(void *key)
{
    return third_gets(key) == -ENOENT;
}

/* Neither home nor remover: it hears of nothing, and each of its reads uses the lease that it has. That lasts for the
 * setting's 5 s all the same, and no other is had. */
static void test_leases_of_others_last(void **unused)
{
    char key[16];
    unsigned from = 0;
    uint32_t id;
    (void)unused;
    berthds_start(3, 1, "1h", "60s");
    assert_int_equal(berth_buffer_alloc(berthds.b[2], BYTES, &third, &id), 0);
    do {
        snprintf(key, sizeof key, "third/%u", from++);
    } while (!berthds_home(0, key_of(key)));
    put(0, key);
    berthds_quiet();
    assert_int_equal(third_gets(key), BYTES);
    assert_int_equal(berth_remove(berthds.b[0], key_of(key), NULL), 0);
    int64_t removed_at = berth_deadline(0);
    assert_true(eventually(is_nowhere, key, 20000));
    assert_true(berth_deadline(0) - removed_at < SECONDS(8)); /* 5 s, and time to ask on a busy machine */
    assert_int_equal(third_gets(key), -ENOENT);
    berthds_end();
}

/* ---- away for long ---- */

/* A key whose homes are n0 and n2. */
static void name_key(char out[16], const char *name, unsigned *from)
{
    do {
        snprintf(out, 16, "%s/%u", name, (*from)++);
    } while (berthds_home(1, key_of(out)));
}

static char removed[16], kept[16], own[16];

/* n1 has copies of two, and has put one. */
static void three_keys(void)
{
    unsigned from = 0;
    berthds_start(3, 2, "1s", "60s");
    name_key(removed, "removed", &from);
    name_key(kept, "kept", &from);
    name_key(own, "own", &from);
    put(0, removed);
    put(0, kept);
    put(1, own);
    berthds_quiet();
    assert_int_equal(get(1, removed, BERTH_PEERS), 0);
    assert_int_equal(get(1, kept, BERTH_PEERS), 0);
    berthds_quiet();
}

static bool is_past(void *time)
{
    return berth_deadline(0) >= *(const int64_t *)time;
}

static void test_away_for_long(void **unused)
{
    (void)unused;
    three_keys();
    berthds_kill(1);
    assert_int_equal(berth_remove(berthds.b[0], key_of(removed), NULL), 0);
    comes_to(0, "slots.tombstones_unknown", 0);
    comes_to(0, "slots.tombstones", 0); /* nobody remembers */
    berthds_again(1);
    assert_true(daemon_says(&berthds.d[1], "was away from the others", BERTHDS_SOON_MS));
    berthds_quiet();
    assert_int_equal(get(1, kept, 0), 0);
    assert_int_equal(get(1, removed, 0), -ENOENT);
    assert_int_equal(get(2, removed, BERTH_PEERS), -ENOENT);
    assert_int_equal(get(1, own, 0), -ENOENT); /* nobody can say that it was not removed */
    berthds_kill(1);
    berthds_again(1); /* a short absence */
    berthds_quiet();
    assert_int_equal(get(1, kept, 0), 0);
    berthds_end();
}

/* A node that has been confirmed was in touch: should it be killed at once, it is not away for long again, and what it
 * has put since is not asked about. */
static void test_killed_once_confirmed(void **unused)
{
    char key[16];
    unsigned from = 0;
    (void)unused;
    berthds_start(3, 2, "4s", "60s"); /* what is noted in passing is a 16th of that too old at most */
    put(1, "first");
    berthds_quiet();
    berthds_kill(1);
    int64_t until = berth_deadline(SECONDS(5)); /* the time itself is what it is about */
    assert_true(eventually(is_past, &until, BERTHDS_SOON_MS));
    berthds_again(1);
    assert_true(daemon_says(&berthds.d[1], "homes have confirmed", BERTHDS_SOON_MS));
    name_key(key, "since", &from);
    put(1, key);
    put(1, "last"); /* the note's commit is no later than this one's */
    berthds_kill(1);
    berthds_again(1);
    assert_int_equal(get(1, key, 0), 0);
    assert_int_equal(daemon_number(berthds.b[1], "home.held"), 0);
    berthds_quiet();
    assert_int_equal(get(1, key, 0), 0);
    berthds_end();
}

/* All are stopped for longer than removals are remembered: nobody could confirm anything, and nothing is lost; what was
 * removed before stays so. */
static void test_all_away_for_long(void **unused)
{
    (void)unused;
    three_keys();
    assert_int_equal(berth_remove(berthds.b[0], key_of(removed), NULL), 0);
    becomes(1, removed, 0, -ENOENT);
    for (unsigned i = 0; i < 3; i++) {
        berthds_kill(i);
    }
    int64_t until = berth_deadline(SECONDS(2)); /* the time itself is what it is about */
    assert_true(eventually(is_past, &until, BERTHDS_SOON_MS));
    for (unsigned i = 0; i < 3; i++) {
        berthds_again(i);
    }
    assert_true(daemon_says(&berthds.d[1], "all members were stopped", BERTHDS_SOON_MS));
    berthds_quiet();
    assert_int_equal(get(1, kept, 0), 0);
    assert_int_equal(get(1, own, 0), 0);
    assert_int_equal(get(2, own, BERTH_PEERS), 0);
    assert_int_equal(get(2, removed, BERTH_PEERS), -ENOENT);
    berthds_end();
}

/* As above, but the node does not end: its host sleeps, as far as the others can see. */
static void test_asleep_for_long(void **unused)
{
    (void)unused;
    three_keys();
    berthds_freeze(1, true);
    assert_true(daemon_says(&berthds.d[0], "peer 'n1' is down", BERTHDS_SOON_MS));
    assert_true(daemon_says(&berthds.d[2], "peer 'n1' is down", BERTHDS_SOON_MS));
    assert_int_equal(berth_remove(berthds.b[0], key_of(removed), NULL), 0);
    comes_to(0, "slots.tombstones_unknown", 0);
    comes_to(0, "slots.tombstones", 0); /* nobody remembers */
    berthds_freeze(1, false);
    assert_true(daemon_says(&berthds.d[1], "was out of sight", BERTHDS_SOON_MS));
    becomes(1, removed, 0, -ENOENT);
    berthds_quiet();
    assert_int_equal(get(1, kept, 0), 0);
    assert_int_equal(get(1, own, 0), 0); /* its homes list it still */
    assert_int_equal(get(2, own, BERTH_PEERS), 0);
    assert_int_equal(get(2, removed, BERTH_PEERS), -ENOENT);
    berthds_end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remover_is_killed), cmocka_unit_test(test_homes_restart),
        cmocka_unit_test(test_copies_go),         cmocka_unit_test(test_put_after_removal),
        cmocka_unit_test(test_hold_on_a_copy),    cmocka_unit_test(test_two_puts),
        cmocka_unit_test(test_leases_end),        cmocka_unit_test(test_leases_of_others_last),
        cmocka_unit_test(test_away_for_long),     cmocka_unit_test(test_killed_once_confirmed),
        cmocka_unit_test(test_asleep_for_long),   cmocka_unit_test(test_all_away_for_long),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
