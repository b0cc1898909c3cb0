/* The pin table and the lock-free read over a table, headers and a pin file in plain memory, without a node: what a get
 * finds, and what it does while slots are retired and used again under it. */
#include "store/find.h"
#include "store/read.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define SLOTS 512u
#define SEED 0x1234u

static uint64_t seed;
static struct berth *b;
static struct slot_header *headers;
static uint64_t *payload; /* a page a slot, of which the first word says whose it is */

static void *zeroed(size_t bytes)
{
    bytes = (bytes + 4095) & ~(size_t)4095;
    void *p = aligned_alloc(4096, bytes);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    uint64_t bytes = lookup_bytes(SLOTS);
    void *table = zeroed(bytes);
    const uint8_t uuid[16] = {0};
    lookup_format(table, bytes, uuid, SEED);
    b = zeroed(sizeof *b);
    assert_int_equal(lookup_attach(&b->lookup, table, bytes), 0);
    headers = zeroed(SLOTS * sizeof *headers);
    payload = zeroed(SLOTS * PAGE_BYTES);
    b->lookup.headers = headers;
    b->lookup.n_headers = SLOTS;
    b->pool = (const uint8_t *)payload;
    b->pool_bytes = SLOTS * PAGE_BYTES;
    b->life = zeroed(sizeof *b->life);
    *b->life = LIFE_LIVE;
    b->pins = zeroed(sizeof *b->pins);
    b->ring = zeroed(sizeof *b->ring);
    atomic_store(&b->pin_entries, PINS_SEGMENT);
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->grow_lock, NULL);
    b->calls.state = CALLS_ENDED; /* there is no node to ask */
    b->calls.ended = BERTH_ENODE;
    client_thread.handle = NULL; /* of an earlier handle, perhaps at the same address */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(b->lookup.super);
    free(headers);
    free(payload);
    free(b->life);
    free(b->pins);
    free(b->ring);
    free(b);
    return 0;
}

static struct berth_key key_of(const uint64_t *name)
{
    return (struct berth_key){.data = name, .size = sizeof *name};
}

static struct key_hash hash_of(const uint64_t *name)
{
    return lookup_hash(SEED, (struct key_ref){.data = name, .size = sizeof *name});
}

static void fill(uint32_t slot, uint64_t name)
{
    struct slot_header *h = &headers[slot];
    memcpy(h->key, &name, sizeof name);
    h->key_size = sizeof name;
    h->size = 8;
    h->page = slot;
    h->version = name;
    __atomic_store_n(&payload[slot * (PAGE_BYTES / 8)], name, __ATOMIC_RELAXED);
}

static void publish_slot(uint32_t slot, uint64_t name)
{
    fill(slot, name);
    slot_store(&headers[slot], word_gen(slot_load(&headers[slot])), SLOT_READY);
    assert_true(lookup_store(&b->lookup, hash_of(&name), SLOT_NONE, slot));
}

static unsigned pinned(void)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < PINS_CAPACITY; i++) {
        n += atomic_load(&b->pins->entry[i]) != 0;
    }
    return n;
}

static void hash_is_the_nodes(void **state)
{
    (void)state;
    static uint8_t key[KEY_MAX];
    for (uint32_t size = 1; size <= KEY_MAX; size++) {
        key[size - 1] = (uint8_t)(size * 31);
        struct berth_key k = {.data = key, .size = size, .ns = size % 3};
        struct wanted w;
        struct key_hash h = lookup_hash(SEED, (struct key_ref){.data = key, .size = size, .ns = size % 3});
        find_start(&b->lookup, &w, &k);
        assert_int_equal(w.tag, h.home >> 32);
        assert_ptr_equal(w.home, &b->lookup.buckets[h.home & b->lookup.mask]);
    }
}

static void bytes_compare(void **state)
{
    (void)state;
    uint8_t x[KEY_INLINE], y[KEY_INLINE];
    for (uint32_t n = 1; n <= KEY_INLINE; n++) {
        for (uint32_t i = 0; i < n; i++) {
            x[i] = y[i] = (uint8_t)(i * 7 + n);
        }
        assert_true(find_bytes_equal(x, y, n));
        for (uint32_t i = 0; i < n; i++) {
            y[i] ^= 0x40;
            assert_false(find_bytes_equal(x, y, n));
            y[i] ^= 0x40;
        }
    }
}

static void get_pins_and_release_clears(void **state)
{
    (void)state;
    struct berth_view v[40];
    for (uint64_t name = 0; name < 40; name++) {
        publish_slot((uint32_t)name, name);
    }
    for (uint64_t name = 0; name < 40; name++) {
        assert_int_equal(berth_get(b, key_of(&name), &v[name], 0, 0), 0);
        assert_int_equal(v[name].slot, name);
        assert_int_equal(*(const uint64_t *)v[name].data, name);
        assert_int_equal(atomic_load(&b->pins->entry[v[name].entry]), name + 1);
        assert_true(atomic_load(&b->pins->high_water) > v[name].entry);
    }
    assert_int_equal(pinned(), 40);
    berth_release(b, v, 40);
    assert_int_equal(pinned(), 0);
    berth_release(b, v, 40); /* data is NULL: passed over */
    uint64_t absent = 1000;
    assert_int_equal(berth_get(b, key_of(&absent), v, 0, 0), -ENOENT);
    assert_int_equal(pinned(), 0);
}

/* get, released before the next get, uses one entry for ever. */
static void released_entry_is_taken_again(void **state)
{
    (void)state;
    struct berth_view v;
    uint64_t name = 3;
    publish_slot(3, name);
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(berth_get(b, key_of(&name), &v, 0, 0), 0);
        berth_release(b, &v, 1);
    }
    assert_int_equal(atomic_load(&b->pins->high_water), client_thread.home + 1);
}

static void full_table_says_so(void **state)
{
    (void)state;
    uint64_t name = 5;
    publish_slot(5, name);
    struct berth_view *v = calloc(PINS_SEGMENT + 1, sizeof *v);
    assert_non_null(v);
    for (unsigned i = 0; i < PINS_SEGMENT; i++) {
        assert_int_equal(berth_get(b, key_of(&name), &v[i], 0, 0), 0);
    }
    assert_int_equal(berth_get(b, key_of(&name), &v[PINS_SEGMENT], 0, 0), BERTH_EPINS);
    struct berth_key keys[2] = {key_of(&name), key_of(&name)};
    berth_release(b, &v[9], 1);
    assert_int_equal(berth_prefix(b, keys, 2, &v[9], 0, 0), BERTH_EPINS);
    assert_int_equal(pinned(), PINS_SEGMENT - 1); /* nothing of a failed prefix stays */
    assert_int_equal(berth_get_many(b, keys, 2, &v[9], 0, 0), 1);
    assert_int_equal(v[10].status, BERTH_EPINS);
    free(v);
}

static void over_quota(void **state)
{
    (void)state;
    uint64_t name = 5;
    struct berth_view v;
    struct berth_key key = key_of(&name);
    publish_slot(5, name);
    atomic_store(&b->pins->refuse, 1);
    assert_int_equal(berth_get(b, key, &v, 0, 0), BERTH_EQUOTA);
    assert_int_equal(berth_prefix(b, &key, 1, &v, 0, 0), BERTH_EQUOTA);
    assert_int_equal(berth_get_many(b, &key, 1, &v, 0, 0), 0);
    assert_int_equal(v.status, BERTH_EQUOTA);
    assert_int_equal(pinned(), 0);
}

static void other_lineage(void **state)
{
    (void)state;
    uint64_t name = 5;
    struct berth_view v;
    struct berth_key key = key_of(&name);
    publish_slot(5, name);
    headers[5].lineage = 9;
    assert_int_equal(berth_get(b, key, &v, 0, 0), 0);
    berth_release(b, &v, 1);
    b->lineage = 8;
    assert_int_equal(berth_get(b, key, &v, 0, 0), BERTH_ELINEAGE);
    assert_int_equal(berth_prefix(b, &key, 1, &v, 0, 0), 0);
    assert_int_equal(pinned(), 0);
}

/* An entry with the key's tag that leads to another key: the walk goes on behind it. */
static void tag_collision(void **state)
{
    (void)state;
    uint64_t name = 5, other = 6;
    struct berth_view v;
    struct key_hash hash = hash_of(&name);
    fill(6, other);
    slot_store(&headers[6], 1, SLOT_READY);
    assert_true(lookup_store(&b->lookup, hash, SLOT_NONE, 6)); /* under name's hash */
    assert_int_equal(berth_get(b, key_of(&name), &v, 0, 0), -ENOENT);
    publish_slot(5, name);
    assert_int_equal(berth_get(b, key_of(&name), &v, 0, 0), 0);
    assert_int_equal(v.slot, 5);
    assert_int_equal(pinned(), 1);
    struct berth_key key = key_of(&name);
    uint8_t present;
    assert_int_equal(berth_exists(b, &key, 1, &present, 0), 1);
    struct berth_view w;
    assert_int_equal(berth_get_many(b, &key, 1, &w, 0, 0), 1);
    assert_int_equal(w.slot, 5);
}

static void unready_slots_are_not_read(void **state)
{
    (void)state;
    static const enum slot_state states[] = {SLOT_FREE, SLOT_WRITING, SLOT_RETIRED};
    uint64_t name = 5;
    struct berth_view v;
    struct berth_key key = key_of(&name);
    uint8_t present;
    publish_slot(5, name);
    for (unsigned i = 0; i < 3; i++) {
        slot_store(&headers[5], 1, states[i]);
        assert_int_equal(berth_get(b, key, &v, 0, 0), -ENOENT);
        assert_int_equal(berth_prefix(b, &key, 1, &v, 0, 0), 0);
        assert_int_equal(berth_exists(b, &key, 1, &present, 0), 0);
        assert_int_equal(pinned(), 0);
    }
}

/* A member counts as ready when its leader's state word says so, and when the link is gone. */
static void group_is_ready_with_its_leader(void **state)
{
    (void)state;
    uint64_t member = 5, leader = 6;
    struct berth_view v;
    uint8_t present;
    struct berth_key key = key_of(&member);
    publish_slot(5, member);
    publish_slot(6, leader);
    atomic_store(&headers[5].group, 6 + 1);
    slot_store(&headers[6], 1, SLOT_WRITING);
    assert_int_equal(berth_get(b, key, &v, 0, 0), -ENOENT);
    assert_int_equal(berth_exists(b, &key, 1, &present, 0), 0);
    slot_store(&headers[6], 1, SLOT_READY);
    assert_int_equal(berth_get(b, key, &v, 0, 0), 0);
    berth_release(b, &v, 1);
    assert_int_equal(berth_exists(b, &key, 1, &present, 0), 1);
    slot_store(&headers[6], 1, SLOT_RETIRED); /* replaced since, and the link went before */
    atomic_store(&headers[5].group, 0);
    assert_int_equal(berth_get(b, key, &v, 0, 0), 0);
    berth_release(b, &v, 1);
    atomic_store(&headers[5].group, UINT64_MAX); /* a link that leads nowhere */
    assert_int_equal(berth_get(b, key, &v, 0, 0), -ENOENT);
}

static void prefix_ends_at_the_first_gap(void **state)
{
    (void)state;
    uint64_t names[100];
    struct berth_key keys[100];
    struct berth_view v[100];
    for (uint64_t i = 0; i < 100; i++) {
        names[i] = i;
        keys[i] = key_of(&names[i]);
        if (i != 70) {
            publish_slot((uint32_t)i, i);
        }
    }
    memset(v, 0x5a, sizeof v);
    assert_int_equal(berth_prefix(b, keys, 100, v, 0, 0), 70);
    assert_int_equal(pinned(), 70);
    for (unsigned i = 0; i < 70; i++) {
        assert_int_equal(v[i].slot, i);
    }
    static struct berth_view untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    for (unsigned i = 70; i < 100; i++) {
        assert_memory_equal(&v[i], &untouched, sizeof untouched);
    }
    /* Deepest first, the first of the prefix last; each says that the next is its parent. */
    assert_int_equal(atomic_load(&b->ring->touch_tail), 70);
    for (unsigned i = 0; i < 70; i++) {
        assert_int_equal(atomic_load(&b->ring->touch[i]), (69 - i + 1) | (i < 69 ? TOUCH_CHILD : 0));
    }
    berth_release(b, v, 70);
    assert_int_equal(berth_get_many(b, keys, 100, v, BERTH_NO_TOUCH, 0), 99);
    assert_null(v[70].data);
    assert_int_equal(v[70].status, -ENOENT);
    assert_int_equal(atomic_load(&b->ring->touch_tail), 70);
    berth_release(b, v, 100);
    assert_int_equal(pinned(), 0);
}

/* ---- slots that are used again under readers ---- */

#define READERS 2u
#define NAMES 16u

static _Atomic bool stop;
static _Atomic uint64_t reuses;

static bool node_sees_pin(uint32_t slot)
{
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t high = atomic_load_explicit(&b->pins->high_water, memory_order_acquire);
    for (uint32_t i = 0; i < high; i++) {
        if (atomic_load_explicit(&b->pins->entry[i], memory_order_acquire) == slot + 1) {
            return true;
        }
    }
    return false;
}

/* What the node does with a slot, without an index: out of lookup, RETIRED, fence, scan, FREE, and a new object in it.
 */
static void reuse(uint32_t slot, uint64_t *owner)
{
    uint64_t old = owner[slot], name = (uint64_t)(rand() % (int)NAMES);
    for (uint32_t i = 0; i < NAMES; i++) {
        if (owner[i] == name) {
            return;
        }
    }
    if (old < NAMES) {
        lookup_clear(&b->lookup, hash_of(&old), slot);
    }
    uint64_t gen = word_gen(slot_load(&headers[slot]));
    slot_store(&headers[slot], gen, SLOT_RETIRED);
    while (node_sees_pin(slot)) {
        if (atomic_load(&stop)) {
            return;
        }
    }
    slot_store(&headers[slot], gen + 1, SLOT_WRITING);
    fill(slot, name);
    owner[slot] = name;
    slot_store(&headers[slot], gen + 1, SLOT_READY);
    lookup_store(&b->lookup, hash_of(&name), SLOT_NONE, slot);
    atomic_fetch_add(&reuses, 1);
}

static void *play_node(void *arg)
{
    uint64_t owner[NAMES];
    (void)arg;
    memset(owner, 0xff, sizeof owner);
    while (!atomic_load(&stop)) {
        reuse((uint32_t)rand() % (NAMES / 2), owner);
    }
    return NULL;
}

struct reader {
    uint64_t found, wrong;
    unsigned many;
};

static void look(struct reader *r, const struct berth_view *v, uint64_t name)
{
    for (unsigned i = 0; i < 20; i++) {
        uint64_t seen = __atomic_load_n((const uint64_t *)v->data, __ATOMIC_RELAXED);
        r->wrong += seen != name || v->version.counter != name;
    }
    r->found++;
}

static void *play_reader(void *arg)
{
    struct reader *r = arg;
    uint64_t names[NAMES];
    struct berth_key keys[NAMES];
    for (uint64_t i = 0; i < NAMES; i++) {
        names[i] = i;
        keys[i] = key_of(&names[i]);
    }
    while (!atomic_load(&stop)) {
        struct berth_view v[NAMES];
        if (r->many) {
            berth_get_many(b, keys, NAMES, v, 0, 0);
            for (unsigned i = 0; i < NAMES; i++) {
                if (v[i].data) {
                    look(r, &v[i], names[i]);
                }
            }
            berth_release(b, v, NAMES);
            continue;
        }
        for (unsigned i = 0; i < NAMES; i++) {
            if (berth_get(b, keys[i], v, 0, 0) == 0) {
                look(r, v, names[i]);
                berth_release(b, v, 1);
            }
        }
    }
    return NULL;
}

static void no_pinned_slot_is_used_again(void **state)
{
    (void)state;
    struct reader readers[READERS] = {{.many = 0}, {.many = 1}};
    pthread_t node, thread[READERS];
    struct timespec start, t;
    atomic_store(&stop, false);
    atomic_store(&reuses, 0);
    assert_int_equal(pthread_create(&node, NULL, play_node, NULL), 0);
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, play_reader, &readers[i]), 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    do { /* a bounded time, or enough */
        clock_gettime(CLOCK_MONOTONIC, &t);
        sched_yield();
    } while (t.tv_sec - start.tv_sec < 3 && atomic_load(&reuses) < 200000);
    atomic_store(&stop, true);
    pthread_join(node, NULL);
    uint64_t found = 0;
    for (unsigned i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(readers[i].wrong, 0);
        found += readers[i].found;
    }
    print_message("%llu reads over %llu reuses\n", (unsigned long long)found, (unsigned long long)atomic_load(&reuses));
    assert_true(found > 0);
    assert_true(atomic_load(&reuses) > 0);
    assert_int_equal(pinned(), 0);
}

int main(void)
{
    struct timespec t;
    const char *given = getenv("BERTH_SEED");
    clock_gettime(CLOCK_REALTIME, &t);
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)t.tv_nsec;
    print_message("seed %llu\n", (unsigned long long)seed);
    srand((unsigned)seed);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(hash_is_the_nodes),
        CASE(bytes_compare),
        CASE(get_pins_and_release_clears),
        CASE(released_entry_is_taken_again),
        CASE(full_table_says_so),
        CASE(over_quota),
        CASE(other_lineage),
        CASE(tag_collision),
        CASE(unready_slots_are_not_read),
        CASE(group_is_ready_with_its_leader),
        CASE(prefix_ends_at_the_first_gap),
        CASE(no_pinned_slot_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
