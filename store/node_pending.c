/* node_pending.c: the keys with an uncommitted effect: open addressing, linear probing, deletion by moving back. */
#include "store/node_internal.h"

#include <stdlib.h>

#define FIRST_ROOM 4096u

bool pending_init(struct pending *p)
{
    *p = (struct pending){.mask = FIRST_ROOM - 1};
    p->key = calloc(FIRST_ROOM, sizeof *p->key);
    p->uses = calloc(FIRST_ROOM, sizeof *p->uses);
    return p->key && p->uses;
}

void pending_free(struct pending *p)
{
    free(p->key);
    free(p->uses);
    p->key = NULL;
    p->uses = NULL;
}

static uint64_t stored(uint64_t key)
{
    return key ? key : 1; /* 0 is the empty place; sharing a key only means waiting */
}

static uint32_t place_of(const struct pending *p, uint64_t key)
{
    uint32_t i = (uint32_t)(key >> 17) & p->mask;
    while (p->key[i] && p->key[i] != key) {
        i = (i + 1) & p->mask;
    }
    return i;
}

bool pending_has(const struct pending *p, uint64_t key)
{
    return p->key[place_of(p, stored(key))] != 0;
}

static bool grow(struct pending *p)
{
    struct pending bigger = {.mask = p->mask * 2 + 1};
    bigger.key = calloc((size_t)bigger.mask + 1, sizeof *bigger.key);
    bigger.uses = calloc((size_t)bigger.mask + 1, sizeof *bigger.uses);
    if (!bigger.key || !bigger.uses) {
        pending_free(&bigger);
        return false;
    }
    for (uint32_t i = 0; i <= p->mask; i++) {
        if (p->key[i]) {
            uint32_t at = place_of(&bigger, p->key[i]);
            bigger.key[at] = p->key[i];
            bigger.uses[at] = p->uses[i];
            bigger.count++;
        }
    }
    pending_free(p);
    p->key = bigger.key;
    p->uses = bigger.uses;
    p->mask = bigger.mask;
    p->count = bigger.count;
    return true;
}

bool pending_add(struct pending *p, uint64_t key)
{
    if (p->count * 2 > p->mask && !grow(p)) {
        return false;
    }
    key = stored(key);
    uint32_t i = place_of(p, key);
    p->count += p->key[i] == 0;
    p->key[i] = key;
    p->uses[i]++;
    return true;
}

void pending_drop(struct pending *p, uint64_t key)
{
    uint32_t i = place_of(p, stored(key));
    if (p->key[i] == 0 || --p->uses[i] > 0) {
        return;
    }
    p->count--;
    /* Whoever probed past the hole must still be found: move back each entry whose home is not behind the hole. */
    for (uint32_t j = (i + 1) & p->mask; p->key[j]; j = (j + 1) & p->mask) {
        uint32_t home = (uint32_t)(p->key[j] >> 17) & p->mask;
        if (((j - home) & p->mask) >= ((j - i) & p->mask)) {
            p->key[i] = p->key[j];
            p->uses[i] = p->uses[j];
            i = j;
        }
    }
    p->key[i] = 0;
    p->uses[i] = 0;
}
