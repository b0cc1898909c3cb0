/* slab_pool.c: see slab_pool.h. */
#include "tests/support/slab_pool.h"

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

static uint64_t seed, state;

uint64_t pool_draw(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t below(uint64_t n)
{
    return pool_draw() % n;
}

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

uint64_t pool_pages(const struct pool *p)
{
    return p->config.pool_bytes / PAGE_BYTES;
}

void pool_open(struct pool *p, uint64_t bytes, uint64_t mr, uint32_t headers)
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

void pool_close(struct pool *p)
{
    slabs_destroy(p->slabs);
    munmap(p->place, ((size_t)p->config.max_headers + 1) * sizeof *p->place);
    munmap(p->live, ((size_t)p->config.max_headers + 1) * sizeof *p->live);
    munmap(p->owner, pool_pages(p) * sizeof *p->owner);
    munmap(p->config.dir, p->config.pool_bytes / UNIT_BYTES * sizeof(struct slab_entry));
    munmap(p->config.headers, (size_t)p->config.max_headers * sizeof(struct slot_header));
}

void prove(const struct pool *p)
{
    const char *wrong = slabs_check(p->slabs);
    if (wrong != NULL)
        fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
}

uint32_t take(struct pool *p, uint32_t pages)
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

void give(struct pool *p, uint32_t index)
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

uint32_t index_of(const struct pool *p, uint32_t slot)
{
    assert_true(slot < p->config.max_headers && p->place[slot] < p->n_live);
    assert_int_equal(p->live[p->place[slot]], slot);
    return p->place[slot];
}

uint64_t any_size(const struct pool *p)
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

void live(struct pool *p, unsigned steps, unsigned every)
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

void pool_seed(void)
{
    const char *given = getenv("BERTH_TEST_SEED");
    seed = state = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
}

void pool_seed_at(uint64_t from)
{
    state = from;
}
