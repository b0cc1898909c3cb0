/* test_scan.c: scans of pin tables against a model, hostile tables included. */
#include "store/shell/scan.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SLOTS 5000u
#define TABLES 3u

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % n;
}

struct table {
    struct pin_table pins;
    struct pins_file *file; /* the client's side */
    int fd;
};

static void table_open(struct table *t, uint32_t acknowledged)
{
    t->fd = memfd_create("pins", MFD_CLOEXEC);
    assert_true(t->fd >= 0);
    assert_int_equal(ftruncate(t->fd, sizeof(struct pins_file)), 0);
    t->file = map_shared(t->fd, sizeof(struct pins_file), PROT_READ | PROT_WRITE);
    assert_non_null(t->file);
    assert_int_equal(pin_table_open(&t->pins, dup(t->fd), acknowledged), 0);
}

static void table_close(struct table *t)
{
    pin_table_close(&t->pins);
    unmap_shared(t->file, sizeof(struct pins_file));
    close(t->fd);
}

static void pin(struct table *t, uint32_t entry, uint32_t slot)
{
    if (atomic_load(&t->file->high_water) <= entry)
        atomic_store(&t->file->high_water, entry + 1);
    atomic_store(&t->file->entry[entry], slot + 1);
}

static bool scanned(struct scanner *sc, struct table *t, unsigned n, uint32_t slot)
{
    uint64_t pinned = ~UINT64_C(0);
    scan_begin(sc, &slot, 1);
    for (unsigned i = 0; i < n; i++)
        scan_table(sc, &t[i].pins);
    scan_end(sc, &slot, 1, &pinned);
    assert_int_equal(pinned >> 1, 0);
    return pinned;
}

static void random_pins_match_a_model(void **unused)
{
    (void)unused;
    static uint8_t model[SLOTS];
    static uint32_t slots[SLOTS];
    struct table t[TABLES];
    struct scanner sc;
    assert_int_equal(scanner_create(&sc, SLOTS), 0);
    for (unsigned i = 0; i < TABLES; i++)
        table_open(&t[i], 2 * PINS_SEGMENT);
    for (unsigned round = 0; round < 20; round++) {
        memset(model, 0, sizeof(model));
        for (unsigned i = 0; i < TABLES; i++) {
            memset((void *)t[i].file->entry, 0, 2 * PINS_SEGMENT * sizeof(uint32_t));
            for (uint32_t pins = below(300); pins > 0; pins--) {
                uint32_t slot = below(SLOTS);
                pin(&t[i], below(2 * PINS_SEGMENT), slot);
            }
            for (uint32_t e = 0; e < 2 * PINS_SEGMENT; e++)
                if (t[i].file->entry[e])
                    model[t[i].file->entry[e] - 1] = 1;
        }
        uint32_t n = 0;
        uint64_t pinned[SLOTS / 64 + 1];
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            if (below(3) == 0)
                slots[n++] = slot;
        scan_begin(&sc, slots, n);
        for (unsigned i = 0; i < TABLES; i++)
            scan_table(&sc, &t[i].pins);
        scan_end(&sc, slots, n, pinned);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(pinned[i / 64] >> (i % 64) & 1, model[slots[i]]);
    }
    for (unsigned i = 0; i < TABLES; i++)
        table_close(&t[i]);
    scanner_destroy(&sc);
}

static void only_acknowledged_entries_below_the_mark_count(void **unused)
{
    (void)unused;
    struct table t;
    struct scanner sc;
    assert_int_equal(scanner_create(&sc, SLOTS), 0);
    table_open(&t, PINS_SEGMENT);
    pin(&t, PINS_SEGMENT - 1, 7);
    pin(&t, PINS_SEGMENT, 8);
    assert_true(scanned(&sc, &t, 1, 7));
    assert_false(scanned(&sc, &t, 1, 8));
    t.pins.acknowledged = 2 * PINS_SEGMENT;
    assert_true(scanned(&sc, &t, 1, 8));
    atomic_store(&t.file->high_water, 5);
    assert_false(scanned(&sc, &t, 1, 7));
    table_close(&t);
    scanner_destroy(&sc);
}

static void hostile_tables_do_no_harm(void **unused)
{
    (void)unused;
    struct table t;
    struct scanner sc;
    assert_int_equal(scanner_create(&sc, SLOTS), 0);
    table_open(&t, PINS_CAPACITY);
    memset((void *)t.file->entry, 0xff, sizeof(t.file->entry));
    atomic_store(&t.file->high_water, UINT32_MAX);
    assert_false(scanned(&sc, &t, 1, 3));
    atomic_store(&t.file->entry[9], SLOTS + 1); /* one beyond the last */
    assert_false(scanned(&sc, &t, 1, SLOTS - 1));
    if (!BERTH_MAP_ONCE) {
        pin(&t, 100, 3);
        assert_true(scanned(&sc, &t, 1, 3));
        assert_int_equal(ftruncate(t.fd, 64), 0);
        assert_false(scanned(&sc, &t, 1, 3)); /* cut off: its owner's loss */
    }
    table_close(&t);
    scanner_destroy(&sc);
}

static void a_table_that_cannot_be_read_pins_everything(void **unused)
{
    (void)unused;
    struct table t;
    struct scanner sc;
    if (BERTH_MAP_ONCE)
        return;
    assert_int_equal(scanner_create(&sc, SLOTS), 0);
    table_open(&t, PINS_SEGMENT);
    assert_false(scanned(&sc, &t, 1, 3));
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_int_equal(dup2(fd, t.pins.fd), t.pins.fd);
    close(fd);
    assert_true(scanned(&sc, &t, 1, 3));
    table_close(&t);
    scanner_destroy(&sc);
}

static void count(void *arg, uint32_t slot)
{
    uint32_t *seen = arg;
    seen[slot]++;
}

static void each_slot_comes_once_and_lanes_add_up(void **unused)
{
    (void)unused;
    uint32_t seen[SLOTS] = {0};
    struct table t;
    struct scanner sc;
    struct lane_sums sums = {.counter = {[LANE_HITS] = 5}};
    assert_int_equal(scanner_create(&sc, SLOTS), 0);
    table_open(&t, PINS_SEGMENT);
    pin(&t, 0, 12);
    pin(&t, 1, 12);
    pin(&t, 2, 4999);
    assert_int_equal(scan_each(&sc, &t.pins, count, seen), 0);
    assert_int_equal(seen[12], 1);
    assert_int_equal(seen[4999], 1);
    assert_false(scanned(&sc, &t, 1, 13)); /* nothing is left behind in the scanner */
    atomic_store(&t.file->lane[0].counter[LANE_HITS], 10);
    atomic_store(&t.file->lane[STAT_LANES - 1].counter[LANE_HITS], 100);
    atomic_store(&t.file->lane[3].get_ns[31], 2);
    pins_lanes(&t.pins, &sums);
    assert_int_equal(sums.counter[LANE_HITS], 115);
    assert_int_equal(sums.get_ns[31], 2);
    table_close(&t);
    scanner_destroy(&sc);
}

static void a_lock_is_seen_through_another_description(void **unused)
{
    (void)unused;
    char path[] = "/tmp/berth-scan-XXXXXX";
    int holder = mkstemp(path);
    assert_true(holder >= 0);
    assert_int_equal(ftruncate(holder, sizeof(struct pins_file)), 0);
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(holder, F_OFD_SETLK, &fl), 0);
    struct pin_table t;
    assert_int_equal(pin_table_open(&t, open(path, O_RDWR | O_CLOEXEC), PINS_SEGMENT), 0);
    assert_int_equal(pins_locked(&t), 1);
    if (!BERTH_MAP_ONCE) {
        /* The mapping keeps the lock after the descriptor is gone. */
        void *map = map_shared(holder, sizeof(struct pins_file), PROT_READ | PROT_WRITE);
        close(holder);
        assert_int_equal(pins_locked(&t), 1);
        unmap_shared(map, sizeof(struct pins_file));
    } else {
        close(holder);
    }
    assert_int_equal(pins_locked(&t), 0);
    pin_table_close(&t);
    unlink(path);
}

int main(void)
{
    const char *seed = getenv("BERTH_SEED");
    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u ^ (uint64_t)getpid();
    state |= 1;
    printf("seed %llu\n", (unsigned long long)state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pins_match_a_model),
        cmocka_unit_test(only_acknowledged_entries_below_the_mark_count),
        cmocka_unit_test(hostile_tables_do_no_harm),
        cmocka_unit_test(a_table_that_cannot_be_read_pins_everything),
        cmocka_unit_test(each_slot_comes_once_and_lanes_add_up),
        cmocka_unit_test(a_lock_is_seen_through_another_description),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
