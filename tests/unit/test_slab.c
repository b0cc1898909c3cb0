/* test_slab.c: random lives of pools of many shapes, every invariant proven after every step; recovery of damaged
 * directories; windows. The seed is printed; BERTH_TEST_SEED sets it. */
#include "store/slab.h"
#include "store/slot.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static uint64_t seed, state;

static uint64_t draw(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
    return draw() % n;
}

struct pool {
    struct slabs_config config;
    struct slabs *slabs;
    uint32_t usable, limit; /* headers that grow has given, and may give */
    uint32_t *owner;        /* by page: slot + 1 */
    uint32_t *live;         /* slots in use */
    uint32_t *place; /* by slot: index in live */
    uint32_t n_live;
};

static int grow(void *env, uint32_t n)
{
    struct pool *p = env;
    if (n > p->limit)
        return -ENOSPC;
    if (n > p->usable)
        p->usable = n;
    return 0;
}

static void *fake(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static uint64_t pool_pages(const struct pool *p)
{
    return p->config.pool_bytes / PAGE_BYTES;
}

static void pool_open(struct pool *p, uint64_t bytes, uint64_t mr, uint32_t headers)
{
    static const uint32_t classes[] = {17, 300, 77};
    *p = (struct pool){.limit = headers};
    p->config = (struct slabs_config){
        .pool_bytes = bytes,
        .mr_bytes = mr,
        .classes = classes,
        .n_classes = 3,
        .max_headers = headers,
        .headers = fake((size_t)headers * sizeof(struct slot_header)),
        .dir = fake(bytes / UNIT_BYTES * sizeof(struct slab_entry)),
        .grow = grow,
        .env = p,
    };
    p->owner = fake(pool_pages(p) * sizeof *p->owner);
    p->live = fake(((size_t)headers + 1) * sizeof *p->live);
    p->place = fake(((size_t)headers + 1) * sizeof *p->place);
    assert_int_equal(slabs_create(&p->slabs, &p->config), 0);
}

static void pool_close(struct pool *p)
{
    slabs_destroy(p->slabs);
    munmap(p->place, ((size_t)p->config.max_headers + 1) * sizeof *p->place);
    munmap(p->live, ((size_t)p->config.max_headers + 1) * sizeof *p->live);
    munmap(p->owner, pool_pages(p) * sizeof *p->owner);
    munmap(p->config.dir, p->config.pool_bytes / UNIT_BYTES * sizeof(struct slab_entry));
    munmap(p->config.headers, (size_t)p->config.max_headers * sizeof(struct slot_header));
}

static void prove(const struct pool *p)
{
    const char *wrong = slabs_check(p->slabs);
    if (wrong != NULL)
        fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
}

/* A slot as the core takes it: nobody else's pages, one MR, header FREE and within what grow gave. */
static uint32_t take(struct pool *p, uint32_t pages)
{
    int why = 1;
    uint32_t slot = slabs_alloc(p->slabs, pages, &why);
    if (slot == SLOT_NONE) {
        assert_true(why == 0 || why == -ENOSPC);
        return slot;
    }
    struct slot_header *h = &p->config.headers[slot];
    uint64_t mr = p->config.mr_bytes / PAGE_BYTES;
    assert_true(slot < p->usable);
    assert_int_equal(word_state(slot_load(h)), SLOT_FREE);
    assert_int_equal(slabs_slot_pages(p->slabs, slot), pages);
    assert_true((uint64_t)h->page + pages <= pool_pages(p));
    assert_true(h->page / mr == (h->page + pages - 1) / mr);
    for (uint32_t i = 0; i < pages; i++) {
        assert_int_equal(p->owner[h->page + i], 0);
        p->owner[h->page + i] = slot + 1;
    }
    slot_store(h, word_gen(slot_load(h)), SLOT_WRITING);
    p->place[slot] = p->n_live;
    p->live[p->n_live++] = slot;
    return slot;
}

static void give(struct pool *p, uint32_t index)
{
    uint32_t slot = p->live[index];
    struct slot_header *h = &p->config.headers[slot];
    uint32_t pages = slabs_slot_pages(p->slabs, slot);
    for (uint32_t i = 0; i < pages; i++)
        p->owner[h->page + i] = 0;
    slot_store(h, word_gen(slot_load(h)) + 1, SLOT_FREE);
    slabs_free(p->slabs, slot);
    p->live[index] = p->live[--p->n_live];
    p->place[p->live[index]] = index;
}

static uint32_t index_of(const struct pool *p, uint32_t slot)
{
    assert_true(slot < p->config.max_headers && p->place[slot] < p->n_live);
    assert_int_equal(p->live[p->place[slot]], slot);
    return p->place[slot];
}

static uint64_t any_size(const struct pool *p)
{
    uint64_t most = p->config.mr_bytes < p->config.pool_bytes ? p->config.mr_bytes : p->config.pool_bytes;
    uint64_t size = below(UINT64_C(1) << (10 + below(21)));
    return size < most ? size : most;
}

/* Empties a window while others allocate, as the core does; the block must then be there. */
static void evict_window(struct pool *p, uint32_t pages, uint32_t shift)
{
    struct slabs_window w;
    uint32_t slot = p->live[below(p->n_live)];
    if (pages == 0 || !slabs_window(p->slabs, slot, pages, shift, &w))
        return;
    uint64_t mr = p->config.mr_bytes / UNIT_BYTES;
    uint32_t page = p->config.headers[slot].page;
    assert_true(w.unit <= page / UNIT_PAGES && page / UNIT_PAGES < w.unit + w.units);
    assert_true(w.units >= slabs_units_for(p->slabs, pages));
    assert_true(w.unit / mr == (w.unit + w.units - 1) / mr);

    slabs_close(p->slabs, &w);
    prove(p);
    uint64_t cursor = 0;
    uint32_t victim, last = 0;
    while ((victim = slabs_window_next(p->slabs, &w, &cursor)) != SLOT_NONE) {
        page = p->config.headers[victim].page;
        assert_true(page >= last && page / UNIT_PAGES >= w.unit && page / UNIT_PAGES < w.unit + w.units);
        last = page + 1;
        give(p, index_of(p, victim));
        uint32_t other = below(4) == 0 ? take(p, slabs_pages_for(p->slabs, any_size(p) / 64)) : SLOT_NONE;
        if (other != SLOT_NONE) {
            page = p->config.headers[other].page;
            assert_false(page / UNIT_PAGES >= w.unit && page / UNIT_PAGES < w.unit + w.units);
        }
        if (below(16) == 0)
            prove(p);
    }
    slabs_open(p->slabs, &w);
    prove(p);
    int why;
    uint32_t got = slabs_alloc(p->slabs, pages, &why);
    assert_true(got != SLOT_NONE || why == -ENOSPC);
    if (got != SLOT_NONE)
        slabs_free(p->slabs, got);
}

static void live(struct pool *p, unsigned steps, unsigned every)
{
    for (unsigned i = 0; i < steps; i++) {
        unsigned kind = (unsigned)below(100);
        if (kind < 60 || p->n_live == 0)
            take(p, slabs_pages_for(p->slabs, any_size(p)));
        else if (kind < 96)
            give(p, (uint32_t)below(p->n_live));
        else
            evict_window(p, slabs_pages_for(p->slabs, any_size(p)), (uint32_t)below(3));
        if (i % every == 0)
            prove(p);
    }
    prove(p);
}

static void same_slots(const struct pool *p, struct slabs *s)
{
    uint64_t cursor = 0, n = 0;
    uint32_t slot, last = 0;
    while ((slot = slabs_next(s, &cursor)) != SLOT_NONE) {
        uint32_t page = p->config.headers[slot].page;
        assert_true(page >= last);
        last = page + 1;
        assert_int_equal(p->owner[page], slot + 1);
        assert_int_equal(slabs_slot_pages(s, slot), slabs_slot_pages(p->slabs, slot));
        n++;
    }
    assert_int_equal(n, p->n_live);
}

static void reopen(struct pool *p)
{
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p->config), 0);
    assert_int_equal(slabs_recover(again), 0);
    same_slots(p, again);
    slabs_destroy(p->slabs);
    p->slabs = again;
    prove(p);
}

static void lives_of(uint64_t bytes, uint64_t mr, uint32_t headers, unsigned steps, unsigned every)
{
    struct pool p;
    pool_open(&p, bytes, mr, headers);
    for (int round = 0; round < 3; round++) {
        live(&p, steps / 3, every);
        reopen(&p);
    }
    while (p.n_live > 0)
        give(&p, (uint32_t)below(p.n_live));
    prove(&p);
    struct slabs_usage u;
    slabs_usage(p.slabs, &u);
    assert_int_equal(u.free_bytes, bytes);
    assert_int_equal(u.used_bytes + u.slabs + u.runs, 0);
    pool_close(&p);
}

static void random_small(void **unused)
{
    (void)unused;
    lives_of(2 * MIB, 1024 * MIB, 512, 3000, 1);
    lives_of(6 * MIB, 2 * MIB, 300, 2000, 1);
    lives_of(64 * MIB, 64 * MIB, 16384, 1500, 1);
}

static void random_odd_mr(void **unused)
{
    (void)unused;
    lives_of(410 * MIB, 10 * MIB, 60000, 600, 1);
    lives_of(2048 * MIB, 66 * MIB, 8000, 600, 1); /* headers run out before the pool does */
}

static void random_terabyte(void **unused)
{
    (void)unused;
    lives_of(1024 * 1024 * MIB, 1024 * MIB, 1u << 20, 300, 100);
}

static void sizes_and_waste(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 4096 * MIB, 1024 * MIB, 1u << 20);
    assert_int_equal(slabs_pages_for(p.slabs, 0), 1);
    assert_int_equal(slabs_pages_for(p.slabs, 1), 1);
    assert_int_equal(slabs_pages_for(p.slabs, 4097), 2);
    assert_int_equal(slabs_pages_for(p.slabs, 17 * PAGE_BYTES), 17);
    assert_int_equal(slabs_pages_for(p.slabs, 2 * MIB), 512);
    assert_int_equal(slabs_pages_for(p.slabs, 1024 * MIB), 262144);
    assert_int_equal(slabs_pages_for(p.slabs, 1024 * MIB + 1), 0);
    assert_int_equal(slabs_pages_for(p.slabs, UINT64_MAX), 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t size = any_size(&p);
        uint32_t pages = slabs_pages_for(p.slabs, size), units = slabs_units_for(p.slabs, pages);
        assert_true(pages * (uint64_t)PAGE_BYTES >= size);
        assert_int_equal(slabs_pages_for(p.slabs, pages * (uint64_t)PAGE_BYTES), pages);
        if (size > 64 * 1024)
            assert_true((double)pages * PAGE_BYTES <= 1.26 * (double)size + PAGE_BYTES);
        if (units > 0 && pages % UNIT_PAGES != 0)
            assert_true((units & (units - 1)) == 0 && units <= 32);
        if (size < 64 * MIB && below(20) == 0) {
            assert_int_not_equal(take(&p, pages), SLOT_NONE);
            give(&p, 0);
        }
    }
    assert_int_equal(slabs_alloc(p.slabs, 0, NULL), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 13, NULL), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, UINT32_MAX, NULL), SLOT_NONE);
    pool_close(&p);
}

static void bad_configs(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 2 * MIB, 2 * MIB, 512);
    struct slabs *s = NULL;
    struct slabs_config c = p.config;
    c.pool_bytes = 3 * MIB;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    c = p.config;
    c.pool_bytes = 0;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    c = p.config;
    c.mr_bytes = 0;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    uint32_t zero = 0;
    c = p.config;
    c.classes = &zero;
    c.n_classes = 1;
    assert_int_equal(slabs_create(&s, &c), -EINVAL);
    assert_null(s);
    pool_close(&p);
}

static void no_headers(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 8 * MIB, 8 * MIB, 600);
    int why = 0;
    assert_int_not_equal(take(&p, 1), SLOT_NONE);
    for (int i = 0; i < 511; i++)
        assert_int_not_equal(take(&p, 1), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 1, &why), SLOT_NONE);
    assert_int_equal(why, -ENOSPC); /* the pool has room, the headers do not */
    p.limit = 512;
    assert_int_equal(slabs_alloc(p.slabs, 512, &why), SLOT_NONE);
    assert_int_equal(why, -ENOSPC);
    prove(&p);
    p.limit = 600;
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 512, &why), SLOT_NONE);
    assert_int_equal(why, 0); /* now it is the pool */
    prove(&p);
    pool_close(&p);
}

/* Rule 32's point: making room for one object costs no more than its block, whatever fills the pool. */
static void windows(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 1024 * MIB, 1024 * MIB, 262144);
    while (take(&p, 1) != SLOT_NONE)
        continue;
    assert_int_equal(p.n_live, 262144);
    static const struct {
        uint64_t bytes;
        uint32_t most;
    } ask[] = {{64 << 10, 1}, {1 * MIB, 1}, {2 * MIB, 1}, {5 * MIB, 8}, {16 * MIB, 8}, {100 * MIB, 50}, {700 * MIB, 350}};
    for (unsigned i = 0; i < sizeof ask / sizeof *ask; i++) {
        struct slabs_window w;
        uint32_t pages = slabs_pages_for(p.slabs, ask[i].bytes), slot = p.live[p.n_live / 2];
        assert_int_equal(slabs_alloc(p.slabs, pages, NULL), SLOT_NONE);
        assert_true(slabs_window(p.slabs, slot, pages, 0, &w));
        assert_true(w.units <= ask[i].most);
        slabs_close(p.slabs, &w);
        uint64_t cursor = 0;
        for (uint32_t v; (v = slabs_window_next(p.slabs, &w, &cursor)) != SLOT_NONE;)
            give(&p, index_of(&p, v));
        assert_int_equal(slabs_alloc(p.slabs, pages, NULL), SLOT_NONE); /* closed */
        slabs_open(p.slabs, &w);
        uint32_t got = take(&p, pages);
        assert_int_not_equal(got, SLOT_NONE);
        prove(&p);
        give(&p, index_of(&p, got));
        while (take(&p, 1) != SLOT_NONE)
            continue;
    }
    struct slabs_window w;
    uint32_t shifts = 0, pages = slabs_pages_for(p.slabs, 100 * MIB);
    while (slabs_window(p.slabs, p.live[131072], pages, shifts, &w))
        shifts++;
    assert_int_equal(shifts, 50);
    assert_false(slabs_window(p.slabs, p.live[0], 13, 0, &w));
    assert_false(slabs_window(p.slabs, SLOT_NONE - 1, 1, 0, &w));
    pool_close(&p);
}

/* A window that is closed twice opens with the second open. */
static void windows_overlap(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    while (take(&p, 512) != SLOT_NONE)
        continue;
    struct slabs_window a = {.unit = 2, .units = 4}, b = {.unit = 4, .units = 6};
    slabs_close(p.slabs, &a);
    slabs_close(p.slabs, &b);
    uint64_t cursor = 0;
    struct slabs_window all = {.unit = 2, .units = 8};
    for (uint32_t v; (v = slabs_window_next(p.slabs, &all, &cursor)) != SLOT_NONE;)
        give(&p, index_of(&p, v));
    assert_int_equal(slabs_alloc(p.slabs, 512, NULL), SLOT_NONE);
    slabs_open(p.slabs, &b);
    prove(&p);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    assert_int_equal(slabs_alloc(p.slabs, 512, NULL), SLOT_NONE);
    slabs_open(p.slabs, &a);
    prove(&p);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(take(&p, 512), SLOT_NONE);
    prove(&p);
    pool_close(&p);
}

/* Whatever a directory says: no crash, no overlap, every invariant, and slabs whose entries are whole keep their slots. */
static void damage_one(uint64_t bytes, uint64_t mr, uint32_t headers)
{
    struct pool p;
    pool_open(&p, bytes, mr, headers);
    live(&p, 150, 50);
    uint32_t n_units = (uint32_t)(bytes / UNIT_BYTES), entry = (uint32_t)below(n_units);
    unsigned times = 1 + (unsigned)below(3);
    for (unsigned i = 0; i < times; i++) {
        uint8_t *at = (uint8_t *)&p.config.dir[entry];
        if (below(4) == 0)
            p.config.dir[entry] = p.config.dir[below(n_units)];
        else
            at[below(12)] = (uint8_t)draw();
        if (below(3) == 0)
            entry = (uint32_t)below(n_units);
        if (below(3) == 0 && p.n_live > 0)
            p.config.headers[p.live[below(p.n_live)]].page = (uint32_t)draw();
    }
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p.config), 0);
    slabs_recover(again);
    slabs_destroy(p.slabs);
    p.slabs = again;
    prove(&p);
    memset(p.owner, 0, pool_pages(&p) * sizeof *p.owner);
    p.n_live = 0;
    uint64_t cursor = 0;
    for (uint32_t slot; (slot = slabs_next(again, &cursor)) != SLOT_NONE;) {
        uint32_t page = p.config.headers[slot].page;
        for (uint32_t i = 0; i < slabs_slot_pages(again, slot); i++) {
            assert_int_equal(p.owner[page + i], 0);
            p.owner[page + i] = slot + 1;
        }
        p.place[slot] = p.n_live;
        p.live[p.n_live++] = slot;
    }
    live(&p, 60, 1);
    pool_close(&p);
}

static void recover_damaged(void **unused)
{
    (void)unused;
    for (int i = 0; i < 150; i++) {
        damage_one(64 * MIB, 64 * MIB, 16384);
        damage_one(82 * MIB, 10 * MIB, 4000);
    }
}

static void recover_drops(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    take(&p, 1);
    take(&p, 512);
    take(&p, 1024);
    uint64_t word = slot_load(&p.config.headers[p.live[2]]);
    p.config.dir[2].units = 40; /* the run of two units would leave the pool */
    struct slabs *again;
    assert_int_equal(slabs_create(&again, &p.config), 0);
    assert_int_equal(slabs_recover(again), 1);
    assert_null(slabs_check(again));
    assert_true(slabs_is_slot(again, p.live[0]) && slabs_is_slot(again, p.live[1]));
    assert_false(slabs_is_slot(again, p.live[2]));
    assert_int_equal(p.config.dir[2].kind, UNIT_FREE);
    uint32_t slot = slabs_alloc(again, 1024, NULL);
    assert_int_equal(slot, p.live[2]);
    assert_int_equal(slot_load(&p.config.headers[slot]), slot_word(word_gen(word) + 1, SLOT_FREE));
    slabs_destroy(again);
    pool_close(&p);
}

static void wreck(struct slab_entry *dir, int how)
{
    struct slab_entry *slab = &dir[0], *run = &dir[2]; /* a slab of one unit, a run of two */
    switch (how) {
    case 0: slab->slot_pages = 0; break;
    case 1: slab->slot_pages = 513; break;
    case 2: slab->header = 16383; break;
    case 3: slab->header = UINT32_MAX; break;
    case 4: slab->pool = 1; break;
    case 5: slab->units = 0; break;
    case 6: slab->units = 3; break;
    case 7: slab->kind = 77; break;
    case 8: slab->kind = UNIT_RUN; break;
    case 9: run->units = 1; break;
    case 10: run->units = 40; break;
    case 11: run->kind = UNIT_SLAB; run->slot_pages = 1; break;
    case 12: dir[3].kind = UNIT_FREE; break;
    default: run->units = 3; run->slot_pages = 1536; dir[4].kind = UNIT_BODY; break; /* across two MRs */
    }
}

static void recover_contradictions(void **unused)
{
    (void)unused;
    for (int how = 0; how < 14; how++) {
        struct pool p;
        struct slabs *again;
        pool_open(&p, 64 * MIB, 8 * MIB, 16384);
        take(&p, 1);
        take(&p, 512);
        take(&p, 1024);
        wreck(p.config.dir, how);
        assert_int_equal(slabs_create(&again, &p.config), 0);
        assert_int_equal(slabs_recover(again), 1);
        assert_null(slabs_check(again));
        assert_int_equal(slabs_is_slot(again, p.live[0]), how > 8);
        assert_true(slabs_is_slot(again, p.live[1]));
        assert_int_equal(slabs_is_slot(again, p.live[2]), how <= 8);
        slabs_destroy(again);
        pool_close(&p);
    }
}

/* A node killed between the last slot's FREE and the directory leaves a slab without a used slot. */
static void recover_empty_slab(void **unused)
{
    (void)unused;
    struct pool p;
    struct slabs *again;
    pool_open(&p, 64 * MIB, 64 * MIB, 16384);
    take(&p, 1);
    slot_store(&p.config.headers[p.live[0]], 1, SLOT_FREE);
    assert_int_equal(slabs_create(&again, &p.config), 0);
    assert_int_equal(slabs_recover(again), 0);
    assert_null(slabs_check(again));
    struct slabs_usage u;
    slabs_usage(again, &u);
    assert_int_equal(u.free_units, 32);
    assert_int_equal(u.largest_bytes, 64 * MIB);
    slabs_destroy(again);
    pool_close(&p);
}

/* Same calls, same slots, wherever memory lies. */
static void deterministic(void **unused)
{
    (void)unused;
    struct pool a, b;
    uint64_t from = draw();
    state = from;
    pool_open(&a, 128 * MIB, 128 * MIB, 32768);
    live(&a, 800, 400);
    state = from;
    pool_open(&b, 128 * MIB, 128 * MIB, 32768);
    live(&b, 800, 400);
    assert_int_equal(a.n_live, b.n_live);
    assert_memory_equal(a.live, b.live, a.n_live * sizeof *a.live);
    pool_close(&a);
    pool_close(&b);
}

/* The path of a put: allocate and free on a nearly full pool of 4 KiB objects, in random order. Prints, never fails. */
static void speed(void **unused)
{
    (void)unused;
    struct pool p;
    pool_open(&p, 512 * MIB, 512 * MIB, 131072);
    while (take(&p, 1) != SLOT_NONE)
        continue;
    struct timespec t0, t1;
    unsigned n = 1000000, k = 64;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (unsigned i = 0; i < n; i += k) {
        uint32_t first = (uint32_t)below(p.n_live - k);
        for (unsigned j = 0; j < k; j++)
            slabs_free(p.slabs, p.live[first + j]);
        for (unsigned j = 0; j < k; j++)
            p.live[first + j] = slabs_alloc(p.slabs, 1, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    double ns = (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
    print_message("alloc + free of 4 KiB: %.0f ns\n", ns / n);
    for (uint32_t i = 0; i < p.n_live; i++)
        slot_store(&p.config.headers[p.live[i]], 1, SLOT_FREE);
    pool_close(&p);
}

int main(void)
{
    const char *given = getenv("BERTH_TEST_SEED");
    seed = state = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs),     cmocka_unit_test(sizes_and_waste), cmocka_unit_test(random_small),
        cmocka_unit_test(random_odd_mr),   cmocka_unit_test(random_terabyte), cmocka_unit_test(no_headers),
        cmocka_unit_test(windows),         cmocka_unit_test(windows_overlap), cmocka_unit_test(recover_damaged),
        cmocka_unit_test(recover_drops), cmocka_unit_test(recover_contradictions), cmocka_unit_test(recover_empty_slab),  cmocka_unit_test(deterministic),   cmocka_unit_test(speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
