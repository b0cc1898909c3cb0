/* copy_kernel.h: the text of one copy kernel. The including file selects the instruction set, defines XXH_VECTOR, and
 * KERNEL(name), VECTOR, VECTOR_LOAD and VECTOR_STREAM.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

/* Stores past the cache: what is put is read by others, if at all, and the lines of dst need not be fetched first. */
static void stream(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t head = (size_t)(-(uintptr_t)dst & (sizeof(VECTOR) - 1));
    head = head < n ? head : n;
    memcpy(dst, src, head);
    dst += head;
    src += head;
    n -= head;
    size_t i = 0;
    for (; i + 4 * sizeof(VECTOR) <= n; i += 4 * sizeof(VECTOR)) {
        VECTOR a = VECTOR_LOAD(src + i);
        VECTOR b = VECTOR_LOAD(src + i + sizeof(VECTOR));
        VECTOR c = VECTOR_LOAD(src + i + 2 * sizeof(VECTOR));
        VECTOR d = VECTOR_LOAD(src + i + 3 * sizeof(VECTOR));
        VECTOR_STREAM(dst + i, a);
        VECTOR_STREAM(dst + i + sizeof(VECTOR), b);
        VECTOR_STREAM(dst + i + 2 * sizeof(VECTOR), c);
        VECTOR_STREAM(dst + i + 3 * sizeof(VECTOR), d);
    }
    memcpy(dst + i, src + i, n - i);
}

uint64_t KERNEL(copy)(void *dst, const void *src, size_t n)
{
    if (n <= COPY_SMALL) {
        if (n > 0) { /* src may be NULL of nothing */
            memcpy(dst, src, n);
        }
        return XXH3_64bits(src, n);
    }
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t done = 0; done < n; done += COPY_PIECE) {
        size_t piece = n - done < COPY_PIECE ? n - done : COPY_PIECE;
        stream((uint8_t *)dst + done, (const uint8_t *)src + done, piece);
        XXH3_64bits_update(&state, (const uint8_t *)src + done, piece);
    }
#ifndef COPY_NO_FENCE
    /* Stores past the cache are not ordered before a later release store: without this a reader that sees the seal may
     * read what the slot held before (PROTOCOLS rule 15). */
    _mm_sfence();
#endif
    return XXH3_64bits_digest(&state);
}

uint64_t KERNEL(checksum)(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

void KERNEL(add)(struct checksum *c, const void *data, size_t n)
{
    XXH3_64bits_update((XXH3_state_t *)(void *)c, data, n);
}

uint64_t KERNEL(sum)(const struct checksum *c)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)c);
}
