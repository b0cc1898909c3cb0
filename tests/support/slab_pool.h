/* slab_pool.h: a pool over memory that costs nothing (no reserve, touched where it is used), with a model beside it
 * of who has which page, and random lives of it. Failed expectations end the test. */
#ifndef BERTH_TESTS_SLAB_POOL_H
#define BERTH_TESTS_SLAB_POOL_H

#include "store/slab.h"

#define MIB (1ull << 20)

struct pool {
    struct slabs_config config;
    struct slabs *slabs;
    uint32_t usable, limit; /* headers that grow has given, and may give */
    uint32_t *owner;        /* by page: slot + 1 */
    uint32_t *live;         /* slots in use */
    uint32_t *place;        /* by slot: index in live */
    uint32_t n_live;
};

/* From BERTH_TEST_SEED or the clock, printed. */
void pool_seed(void);
/* Draws that follow begin at `from`. */
void pool_seed_at(uint64_t from);
uint64_t pool_draw(void);
uint64_t below(uint64_t n);

void pool_open(struct pool *p, uint64_t bytes, uint64_t mr, uint32_t headers);
void pool_close(struct pool *p);
uint64_t pool_pages(const struct pool *p);
/* slabs_check. */
void prove(const struct pool *p);

/* A slot as the core takes it: nobody else's pages, one MR, header FREE and within what grow gave; SLOT_NONE. */
uint32_t take(struct pool *p, uint32_t pages);
/* Gives live[index] back. */
void give(struct pool *p, uint32_t index);
uint32_t index_of(const struct pool *p, uint32_t slot);
uint64_t any_size(const struct pool *p);
/* Takes, gives and evicts windows at random, and proves every `every` steps. */
void live(struct pool *p, unsigned steps, unsigned every);

#endif
