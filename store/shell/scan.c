#include "store/shell/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int pin_table_open(struct pin_table *t, int fd, uint32_t acknowledged)
{
    struct pins_file *map = NULL;
    if (BERTH_MAP_ONCE) {
        map = map_shared(fd, sizeof(struct pins_file), PROT_READ | PROT_WRITE);
        if (!map)
            return -errno;
    }
    t->fd = fd;
    t->acknowledged = acknowledged;
    t->map = map;
    return 0;
}

void pin_table_close(struct pin_table *t)
{
    if (t->fd < 0)
        return;
    unmap_shared(t->map, sizeof(struct pins_file));
    close(t->fd);
    t->fd = -1;
    t->map = NULL;
}

/* pread until n bytes or the end of the file. */
static long read_at(int fd, void *out, size_t n, off_t at)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = pread(fd, (char *)out + got, n - got, at + (off_t)got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        got += (size_t)r;
    }
    return (long)got;
}

long pins_used(const struct pin_table *t)
{
    uint32_t used = 0;
    if (t->map) {
        used = atomic_load(&t->map->high_water);
    } else {
        long n = read_at(t->fd, &used, sizeof(used), offsetof(struct pins_file, high_water));
        if (n < 0)
            return n;
        if (n < (long)sizeof(used))
            return 0;
    }
    return used < t->acknowledged ? used : t->acknowledged;
}

long pins_read(const struct pin_table *t, uint32_t first, uint32_t *out, uint32_t n)
{
    if (t->map) {
        for (uint32_t i = 0; i < n; i++)
            out[i] = atomic_load(&t->map->entry[first + i]);
        return n;
    }
    off_t at = (off_t)(offsetof(struct pins_file, entry) + first * sizeof(uint32_t));
    long got = read_at(t->fd, out, n * sizeof(uint32_t), at);
    return got < 0 ? got : got / (long)sizeof(uint32_t);
}

static void lane_add(const struct stat_lane *lane, struct lane_sums *sums)
{
    for (unsigned i = 0; i < LANE_COUNTERS; i++)
        sums->counter[i] += atomic_load_explicit(&lane->counter[i], memory_order_relaxed);
    for (unsigned i = 0; i < 32; i++)
        sums->get_ns[i] += atomic_load_explicit(&lane->get_ns[i], memory_order_relaxed);
}

void pins_lanes(const struct pin_table *t, struct lane_sums *sums)
{
    for (unsigned i = 0; i < STAT_LANES; i++) {
        if (t->map) {
            lane_add(&t->map->lane[i], sums);
            continue;
        }
        struct stat_lane lane;
        off_t at = (off_t)(offsetof(struct pins_file, lane) + i * sizeof(lane));
        if (read_at(t->fd, &lane, sizeof(lane), at) == (long)sizeof(lane))
            lane_add(&lane, sums);
    }
}

int pins_locked(const struct pin_table *t)
{
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(t->fd, F_OFD_GETLK, &fl) != 0)
        return -errno;
    return fl.l_type != F_UNLCK;
}

int scanner_create(struct scanner *sc, uint32_t n_slots)
{
    size_t words = ((size_t)n_slots + 63) / 64 + 1;
    sc->n_slots = n_slots;
    sc->asked = calloc(words, sizeof(uint64_t));
    sc->found = calloc(words, sizeof(uint64_t));
    sc->entries = calloc(SCAN_CHUNK, sizeof(uint32_t));
    if (sc->asked && sc->found && sc->entries)
        return 0;
    scanner_destroy(sc);
    return -ENOMEM;
}

void scanner_destroy(struct scanner *sc)
{
    free(sc->asked);
    free(sc->found);
    free(sc->entries);
    *sc = (struct scanner){0};
}

static bool bit_test(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* The node stored RETIRED before; a client stores its entry before it loads the state word. With a full barrier
 * between either pair, the client sees RETIRED or the scan sees the entry (PROTOCOLS rule 2). A build for
 * ThreadSanitizer, which knows no fences, has sequentially consistent accesses throughout instead. */
static void scan_fence(void)
{
#if !BERTH_MAP_ONCE
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

void scan_begin(struct scanner *sc, const uint32_t *slots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (slots[i] < sc->n_slots)
            bit_set(sc->asked, slots[i]);
    scan_fence();
}

static void scan_entries(struct scanner *sc, long n)
{
    for (long i = 0; i < n; i++) {
        uint32_t slot = sc->entries[i] - 1; /* 0 becomes the greatest: out of range */
        if (slot < sc->n_slots && bit_test(sc->asked, slot))
            bit_set(sc->found, slot);
    }
}

static void scan_unreadable(struct scanner *sc)
{
    memcpy(sc->found, sc->asked, (((size_t)sc->n_slots + 63) / 64) * sizeof(uint64_t));
}

void scan_table(struct scanner *sc, const struct pin_table *t)
{
    long used = pins_used(t);
    if (used < 0)
        scan_unreadable(sc);
    for (long at = 0; at < used;) {
        uint32_t want = used - at < SCAN_CHUNK ? (uint32_t)(used - at) : SCAN_CHUNK;
        long n = pins_read(t, (uint32_t)at, sc->entries, want);
        if (n < 0)
            scan_unreadable(sc);
        if (n <= 0)
            return;
        scan_entries(sc, n);
        at += n;
    }
}

void scan_end(struct scanner *sc, const uint32_t *slots, uint32_t n, uint64_t *pinned)
{
    memset(pinned, 0, ((size_t)n + 63) / 64 * sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++)
        if (slots[i] < sc->n_slots && bit_test(sc->found, slots[i]))
            bit_set(pinned, i);
    for (uint32_t i = 0; i < n; i++) {
        if (slots[i] >= sc->n_slots)
            continue;
        sc->asked[slots[i] / 64] = 0;
        sc->found[slots[i] / 64] = 0;
    }
}

int scan_each(struct scanner *sc, const struct pin_table *t, void (*each)(void *arg, uint32_t slot), void *arg)
{
    long used = pins_used(t);
    long n = used < 0 ? used : 0;
    for (long at = 0; at < used; at += n) {
        uint32_t want = used - at < SCAN_CHUNK ? (uint32_t)(used - at) : SCAN_CHUNK;
        n = pins_read(t, (uint32_t)at, sc->entries, want);
        if (n <= 0)
            break;
        for (long i = 0; i < n; i++) {
            uint32_t slot = sc->entries[i] - 1;
            if (slot >= sc->n_slots || bit_test(sc->found, slot))
                continue;
            bit_set(sc->found, slot);
            each(arg, slot);
        }
    }
    memset(sc->found, 0, (((size_t)sc->n_slots + 63) / 64) * sizeof(uint64_t));
    return n < 0 ? (int)n : 0;
}
