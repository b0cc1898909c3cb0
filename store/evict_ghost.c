/* evict_ghost.c: see evict_ghost.h. */
#include "store/evict_ghost.h"

#include <errno.h>
#include <sys/mman.h>

#define SET 8u
#define GHOSTS_MIN 1024u
#define TICK_SHIFT 6u
#define TICK_MASK 0xffffffu
#define TICKS_OLD 0x800000u /* an older one may be a younger one of the next round */

int ghosts_init(struct ghosts *g, uint32_t max_slots)
{
    uint32_t n = GHOSTS_MIN;
    while (n < GHOSTS_MAX && n / 4 < max_slots) {
        n *= 2;
    }
    g->bytes = n * sizeof *g->at;
    /* All of it at once: nobody asks for room later, and a node close to its memory's limit has none to give. */
    g->at = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    g->mask = n - 1;
    if (g->at == MAP_FAILED) {
        g->at = NULL;
        return -ENOMEM;
    }
    return 0;
}

void ghosts_free(struct ghosts *g)
{
    if (g->at) {
        munmap(g->at, g->bytes);
        g->at = NULL;
    }
}

uint32_t ghosts_shift(const struct ghosts *g, uint64_t live)
{
    uint32_t shift = 0;
    while (live >> shift > (g->mask + 1u) / 4) {
        shift++;
    }
    return shift;
}

static uint32_t ticks(uint64_t stamp)
{
    return (uint32_t)(stamp >> TICK_SHIFT) & TICK_MASK;
}

static uint32_t ticks_ago(uint64_t entry, uint64_t now)
{
    return (ticks(now) - (uint32_t)(entry >> 8)) & TICK_MASK;
}

static uint64_t *set_of(const struct ghosts *g, uint64_t key)
{
    return &g->at[(uint32_t)key & g->mask & ~(SET - 1)];
}

void ghosts_add(struct ghosts *g, uint64_t key, uint64_t last, uint64_t now, uint8_t class, uint8_t uses)
{
    uint64_t *set = set_of(g, key), *to = set, tag = key >> 32;
    for (uint32_t i = 0; i < SET; i++) {
        if (set[i] == 0 || set[i] >> 32 == tag) {
            to = &set[i];
            break;
        }
        if (ticks_ago(set[i], now) > ticks_ago(*to, now)) {
            to = &set[i];
        }
    }
    *to = tag << 32 | (uint64_t)ticks(last) << 8 | (uint64_t) class << 4 | uses;
}

static uint64_t *entry_of(const struct ghosts *g, uint64_t key)
{
    uint64_t *set = set_of(g, key), tag = key >> 32;
    for (uint32_t i = 0; i < SET; i++) {
        if (set[i] && set[i] >> 32 == tag) {
            return &set[i];
        }
    }
    return NULL;
}

bool ghosts_find(struct ghosts *g, uint64_t key, uint64_t now, struct ghost *out)
{
    const uint64_t *entry = entry_of(g, key);
    if (!entry) {
        return false;
    }
    uint32_t ago = ticks_ago(*entry, now);
    *out = (struct ghost){
        .age = (uint64_t)ago << TICK_SHIFT, .class = (uint8_t)(*entry >> 4 & 15), .uses = (uint8_t)(*entry & 15)};
    return ago < TICKS_OLD;
}

bool ghosts_take(struct ghosts *g, uint64_t key, uint64_t now, struct ghost *out)
{
    bool known = ghosts_find(g, key, now, out);
    uint64_t *entry = entry_of(g, key);
    if (entry) {
        *entry = 0;
    }
    return known;
}
