#include "tools/replay/content.h"

#include <string.h>

/* Word i is seed + i * STEP: the seeds of two blocks are no small multiple of STEP apart, so no block and no shifted
 * block looks like another. Eight words at a time keep up with memory. */
#define STEP 0x9e3779b97f4a7c15u

typedef uint64_t words __attribute__((vector_size(64), aligned(8), may_alias));

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void content_key(uint64_t block, uint64_t size, uint8_t key[CONTENT_KEY])
{
    uint64_t word[4] = {mix(block + STEP), mix(size + 2 * STEP), 0, 0};

    word[2] = mix(word[0] ^ word[1]);
    word[3] = mix(word[2] + STEP);
    memcpy(key, word, CONTENT_KEY);
}

static void first_words(words *w, uint64_t block)
{
    uint64_t seed = mix(block + 3 * STEP);

    for (unsigned i = 0; i < 8; i++)
        (*w)[i] = seed + i * STEP;
}

void content_fill(void *data, uint64_t size, uint64_t block)
{
    words w, *at = data;

    first_words(&w, block);
    for (; size >= sizeof(w); size -= sizeof(w)) {
        *at++ = w;
        w += 8 * STEP;
    }
    memcpy(at, &w, size);
}

static uint64_t different(const uint8_t *a, const uint8_t *b, uint64_t n)
{
    uint64_t bad = 0;

    for (uint64_t i = 0; i < n; i++)
        bad += a[i] != b[i];
    return bad;
}

static uint64_t count_bad(const void *data, uint64_t size, uint64_t block)
{
    const uint8_t *at = data;
    uint64_t bad = 0;
    words w;

    first_words(&w, block);
    for (; size >= sizeof(w); size -= sizeof(w)) {
        bad += different(at, (const uint8_t *)&w, sizeof(w));
        at += sizeof(w);
        w += 8 * STEP;
    }
    return bad + different(at, (const uint8_t *)&w, size);
}

uint64_t content_bad(const void *data, uint64_t size, uint64_t block)
{
    const words *at = data;
    uint64_t left = size, any = 0;
    words w, wrong = {0};

    first_words(&w, block);
    for (; left >= sizeof(w); left -= sizeof(w)) {
        wrong |= *at++ ^ w;
        w += 8 * STEP;
    }
    for (unsigned i = 0; i < 8; i++)
        any |= wrong[i];
    if (any || memcmp(at, &w, left) != 0)
        return count_bad(data, size, block);
    return 0;
}
