/* test_pins.c: pin tables at work: growth to the last entry, views that change hands, and clients that lose their
 * descriptors while they read on.
 */
#include "tests/support/child.h"
#include "tests/support/daemon.h"
#include "tests/support/draw.h"

#include "store/client.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 20000u
#define MANY 10000u
#define BATCH 65536u
#define THREADS 4
#define BOXES 16
#define KEYS 400
#define ROUNDS 4000

static struct daemon d;

static int put(struct berth *b, const char *key, size_t size)
{
    char *data = malloc(size);
    payload_fill(data, size, key);
    int e = berth_put(b, key_of(key), data, size, NULL);
    free(data);
    return e;
}

/* Puts that turn the whole pool over. */
static void turn_over(struct berth *b, const char *name, int n)
{
    char key[32];
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s-%d", name, i);
        assert_int_equal(put(b, key, SIZE), 0);
    }
}

static bool nothing_retired(void *arg)
{
    return daemon_number(arg, "slots.retired") == 0;
}

static bool one_attached(void *arg)
{
    return daemon_number(arg, "node.attached") == 1;
}

/* ---- growth ---- */

/* Where the node has acknowledged a segment it scans it: a pin far behind the first one counts. */
static void test_a_pin_far_out_counts(void **state)
{
    (void)state;
    static struct berth_view v[MANY], last;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "hoarder"), *other = daemon_open(&d, "filler");
    assert_int_equal(put(b, "common", 100), 0);
    assert_int_equal(put(b, "last", SIZE), 0);
    assert_int_equal(b->pin_entries, PINS_SEGMENT);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(berth_get(b, key_of("common"), &v[i], 0, BERTH_FOREVER), 0);
    }
    assert_int_equal(berth_get(b, key_of("last"), &last, 0, BERTH_FOREVER), 0);
    assert_true(b->pin_entries > MANY && last.entry >= MANY - PINS_SEGMENT);
    berth_release(b, v, MANY);
    assert_int_equal(berth_remove(other, key_of("last"), NULL), 0);
    turn_over(other, "after", 800);
    daemon_retired(other, 1);
    assert_true(payload_is(last.data, last.size, "last"));
    daemon_kill(&d); /* and the next node knows how far the table goes */
    daemon_again(&d);
    turn_over(other, "again", 800);
    daemon_retired(other, 1);
    assert_true(payload_is(last.data, last.size, "last"));
    berth_release(b, &last, 1);
    assert_true(eventually(nothing_retired, other, 10000));
    berth_close(other);
    berth_close(b);
    daemon_end(&d);
}

static void test_a_full_table_says_so(void **state)
{
    (void)state;
    struct berth_key *keys = calloc(BATCH, sizeof *keys);
    struct berth_view *v = calloc(PINS_CAPACITY, sizeof *v), more[2];
    struct berth_key two[2] = {key_of("common"), key_of("common")};
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "hoarder"), *other = daemon_open(&d, "other");
    assert_int_equal(put(b, "common", 100), 0);
    for (unsigned i = 0; i < BATCH; i++) {
        keys[i] = key_of("common");
    }
    for (unsigned at = 0; at < PINS_CAPACITY; at += BATCH) {
        assert_int_equal(berth_get_many(b, keys, BATCH, v + at, 0, BERTH_FOREVER), BATCH);
    }
    assert_int_equal(b->pin_entries, PINS_CAPACITY);
    assert_int_equal(berth_get(b, two[0], more, 0, BERTH_FOREVER), BERTH_EPINS);
    assert_int_equal(berth_get_many(b, two, 2, more, 0, BERTH_FOREVER), 0);
    assert_true(more[0].status == BERTH_EPINS && more[1].status == BERTH_EPINS && !more[0].data);
    berth_release(b, v + 77, 1);
    assert_int_equal(berth_prefix(b, two, 2, more, 0, BERTH_FOREVER), BERTH_EPINS); /* and gives the one back */
    assert_int_equal(berth_get(b, two[0], more, 0, BERTH_FOREVER), 0);
    berth_release(b, more, 1);
    assert_int_equal(berth_get(other, two[0], more, 0, BERTH_FOREVER), 0); /* another handle has its own */
    berth_release(other, more, 1);
    berth_release(b, v, PINS_CAPACITY);
    assert_int_equal(berth_remove(b, two[0], NULL), 0);
    assert_true(eventually(nothing_retired, b, 10000));
    berth_close(other);
    berth_close(b);
    daemon_end(&d);
    free(v);
    free(keys);
}

/* ---- views that change hands ---- */

struct box {
    pthread_mutex_t lock;
    struct berth_view view; /* data NULL: empty */
    int key;
};

static struct box box[BOXES];
static struct berth *shared;
static _Atomic int failures;

static void name_of(char *out, int key)
{
    snprintf(out, 16, "key-%d", key);
}

static void check_and_release(struct berth_view *v, int key)
{
    char name[16];
    name_of(name, key);
    failures += v->size != SIZE || !payload_is(v->data, v->size, name);
    berth_release(shared, v, 1);
}

/* Gets or makes a key, leaves the view in a box, and releases the one that somebody left there. */
static void *exchange(void *arg)
{
    uint64_t x = (uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        int key = (int)((x >> 33) % KEYS);
        struct box *at = &box[(x >> 20) % BOXES];
        struct berth_view v;
        char name[16];
        name_of(name, key);
        if (berth_get(shared, key_of(name), &v, 0, BERTH_FOREVER) != 0) {
            int e = put(shared, name, SIZE);
            failures += e < 0 && e != BERTH_EFULL;
            continue;
        }
        pthread_mutex_lock(&at->lock);
        struct berth_view theirs = at->view;
        int their_key = at->key;
        at->view = v;
        at->key = key;
        pthread_mutex_unlock(&at->lock);
        if (theirs.data) {
            check_and_release(&theirs, their_key);
        }
    }
    return NULL;
}

/* The pool holds half of the keys, so that slots are used again all the time. */
static void test_any_thread_releases_any_view(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    daemon_start(&d, (const char *[]){"--pool", "4MiB", NULL});
    shared = daemon_open(&d, "threads");
    for (int i = 0; i < BOXES; i++) {
        pthread_mutex_init(&box[i].lock, NULL);
    }
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, exchange, (void *)(uintptr_t)draw()), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    for (int i = 0; i < BOXES; i++) {
        if (box[i].view.data) {
            check_and_release(&box[i].view, box[i].key);
        }
    }
    assert_int_equal(failures, 0);
    assert_true(daemon_number(shared, "counters.evicted") > KEYS);
    for (uint32_t i = 0; i < PINS_CAPACITY; i++) {
        assert_int_equal(shared->pins->entry[i], 0);
    }
    assert_true(eventually(nothing_retired, shared, 10000));
    assert_int_equal(query_number(shared, BERTH_CHECK, "differences"), 0);
    berth_close(shared);
    daemon_end(&d);
}

/* ---- clients that lose their descriptors ---- */

static bool is_pipe(int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    return strncmp(target, "pipe:", 5) == 0;
}

/* What closefrom(3) does in daemons of the old kind; the pipes to the test stay. */
static void close_from_3(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        if (!is_pipe(fd)) {
            close(fd);
        }
    }
}

static int closer(void *arg)
{
    (void)arg;
    struct berth *b = NULL;
    struct berth_view v, w;
    CHECK(berth_open(&b, d.node, NULL) == 0);
    CHECK(put(b, "other", SIZE) == 0 && put(b, "kept", SIZE) == 0);
    CHECK(berth_get(b, key_of("kept"), &v, 0, BERTH_FOREVER) == 0);
    close_from_3();
    CHECK(berth_get(b, key_of("other"), &w, 0, BERTH_FOREVER) == 0); /* reads need no descriptor */
    CHECK(payload_is(w.data, w.size, "other"));
    berth_release(b, &w, 1);
    child_tell('c');
    while (child_hear() == 'v') {
        CHECK(payload_is(v.data, v.size, "kept"));
        child_tell('y');
    }
    return 0;
}

static void still_reads(struct child *c)
{
    parent_tell(c, 'v');
    assert_int_equal(parent_hear(c, 20000), 'y');
}

static void test_pins_outlive_descriptors(void **state)
{
    (void)state;
    struct child c;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    child_start(&c, closer, NULL);
    assert_int_equal(parent_hear(&c, 20000), 'c');
    struct berth *b = daemon_open(&d, "filler");
    assert_true(eventually(one_attached, b, 20000));
    assert_int_equal(berth_remove(b, key_of("kept"), NULL), 0);
    turn_over(b, "after", 800);
    daemon_retired(b, 1);
    still_reads(&c);
    daemon_kill(&d); /* the next node finds the lock held, by nothing but a mapping */
    daemon_again(&d);
    turn_over(b, "again", 800);
    daemon_retired(b, 1);
    still_reads(&c);
    child_kill(&c);
    assert_true(eventually(nothing_retired, b, 20000));
    berth_close(b);
    daemon_end(&d);
}

/* A hang-up is a reason to look, not proof: pins and drafts of a client that lost its socket are there when it is back.
 */
static void test_a_lost_socket_is_made_again(void **state)
{
    (void)state;
    struct berth_view v;
    struct berth_draft draft;
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "loser"), *other = daemon_open(&d, "filler");
    assert_int_equal(put(b, "kept", SIZE), 0);
    assert_int_equal(berth_get(b, key_of("kept"), &v, 0, BERTH_FOREVER), 0);
    assert_int_equal(berth_create(b, key_of("draft"), SIZE, NULL, &draft), 0);
    uint64_t session = b->session;
    assert_int_equal(shutdown(b->calls.socket.fd, SHUT_RDWR), 0);
    assert_true(eventually(one_attached, other, 20000));
    assert_int_equal(berth_remove(other, key_of("kept"), NULL), 0);
    turn_over(other, "after", 800);
    daemon_retired(other, 1);
    payload_fill(draft.data, SIZE, "draft");
    assert_int_equal(berth_seal(b, &draft, 1), 0);
    assert_true(b->session == session);
    assert_true(payload_is(v.data, v.size, "kept"));
    berth_release(b, &v, 1);
    assert_true(eventually(nothing_retired, b, 10000));
    berth_close(other);
    berth_close(b);
    daemon_end(&d);
}

/* A client whose ring makes no sense gives its connection up, of which the node knows nothing yet: before its first
 * request not even from the ring.
 */
static void test_a_spoilt_ring_is_made_again(void **state)
{
    (void)state;
    struct berth_view v;
    struct berth_open_opts o = {.size = sizeof o, .timeout_ns = 5000000000};
    daemon_start(&d, (const char *[]){"--pool", "8MiB", NULL});
    struct berth *b = daemon_open(&d, "loser"), *fresh;
    assert_int_equal(put(b, "kept", SIZE), 0);
    assert_int_equal(berth_get(b, key_of("kept"), &v, 0, BERTH_FOREVER), 0);
    atomic_fetch_add(&b->ring->request_head, 1);
    uint64_t session = b->session;
    assert_int_equal(put(b, "next", SIZE), 0);
    assert_true(b->session == session && payload_is(v.data, v.size, "kept"));
    assert_int_equal(berth_open(&fresh, d.node, &o), 0);
    atomic_fetch_add(&fresh->ring->request_head, 1);
    session = fresh->session;
    assert_int_equal(put(fresh, "first", SIZE), 0);
    assert_true(fresh->session == session);
    berth_release(b, &v, 1);
    berth_close(fresh);
    berth_close(b);
    daemon_end(&d);
}

int main(void)
{
    draw_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pin_far_out_counts),         cmocka_unit_test(test_a_full_table_says_so),
        cmocka_unit_test(test_any_thread_releases_any_view), cmocka_unit_test(test_pins_outlive_descriptors),
        cmocka_unit_test(test_a_lost_socket_is_made_again),  cmocka_unit_test(test_a_spoilt_ring_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
