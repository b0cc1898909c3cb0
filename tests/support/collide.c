/* collide.c: XXH3-64 of 17 to 32 bytes adds, for each 16 of them, the folded product of their two words, after each was
 * mixed with its own constant: a product does not tell its factors' order, so they can be exchanged. */
#include "tests/support/collide.h"

#include "index/lookup_hash.h"

#include <stdio.h>
#include <string.h>

static uint64_t word(const uint8_t *at)
{
    uint64_t w;
    memcpy(&w, at, sizeof w);
    return w;
}

static void exchange(uint8_t *half, const uint8_t *secret, uint64_t seed)
{
    uint64_t low = word(secret) + seed, high = word(secret + 8) - seed;
    uint64_t a = word(half) ^ low, b = word(half + 8) ^ high;
    a ^= high;
    b ^= low;
    memcpy(half, &b, sizeof b);
    memcpy(half + 8, &a, sizeof a);
}

void collide(uint8_t out[COLLIDE_BYTES], const uint8_t key[COLLIDE_BYTES], uint64_t seed, uint32_t ns, unsigned which)
{
    seed += ns * UINT64_C(0x9e3779b97f4a7c15); /* as lookup_hash has it */
    memcpy(out, key, COLLIDE_BYTES);
    for (unsigned i = 0; i < 2; i++) {
        if (which & 1u << i)
            exchange(out + i * 16u, XXH3_kSecret + i * 16u, seed);
    }
}

void collide_texts(char key[COLLIDE_BYTES + 1], char other[3][COLLIDE_BYTES + 1], uint64_t seed, uint32_t ns)
{
    bool whole = false;
    for (unsigned n = 0; !whole; n++) {
        snprintf(key, COLLIDE_BYTES + 1, "a key that is attacked %09u", n);
        whole = strlen(key) == COLLIDE_BYTES;
        for (unsigned i = 0; i < 3; i++) {
            uint8_t made[COLLIDE_BYTES];
            collide(made, (const uint8_t *)key, seed, ns, i + 1);
            memcpy(other[i], made, sizeof made);
            other[i][COLLIDE_BYTES] = '\0';
            whole = whole && memchr(made, 0, sizeof made) == NULL;
        }
    }
}
