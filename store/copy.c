/* copy.c: the kernel for every x86-64, and the choice between the kernels. */
#include "store/copy.h"

#include "store/berth.h"

#include <emmintrin.h>
#include <stdlib.h>

#define XXH_VECTOR XXH_SSE2
#define KERNEL(name) name##_sse2
#define VECTOR __m128i
#define VECTOR_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define VECTOR_STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
#include "store/copy_kernel.h"

uint64_t berth_copy(void *dst, const void *src, size_t n)
{
    if (__builtin_cpu_supports("avx512f")) {
        return copy_avx512(dst, src, n);
    }
    return __builtin_cpu_supports("avx2") ? copy_avx2(dst, src, n) : copy_sse2(dst, src, n);
}

uint64_t berth_checksum(const void *data, size_t n)
{
    if (__builtin_cpu_supports("avx512f")) {
        return checksum_avx512(data, n);
    }
    return __builtin_cpu_supports("avx2") ? checksum_avx2(data, n) : checksum_sse2(data, n);
}

struct checksum *checksum_create(void)
{
    /* The kernels load its words as wide as they compute. */
    struct checksum *c = aligned_alloc(64, (sizeof(XXH3_state_t) + 63) / 64 * 64);
    if (c) {
        XXH3_INITSTATE((XXH3_state_t *)(void *)c);
        checksum_begin(c);
    }
    return c;
}

void checksum_free(struct checksum *c)
{
    free(c);
}

void checksum_begin(struct checksum *c)
{
    XXH3_64bits_reset((XXH3_state_t *)(void *)c);
}

void checksum_add(struct checksum *c, const void *data, size_t n)
{
    if (__builtin_cpu_supports("avx512f")) {
        add_avx512(c, data, n);
    } else if (__builtin_cpu_supports("avx2")) {
        add_avx2(c, data, n);
    } else {
        add_sse2(c, data, n);
    }
}

uint64_t checksum_sum(const struct checksum *c)
{
    if (__builtin_cpu_supports("avx512f")) {
        return sum_avx512(c);
    }
    return __builtin_cpu_supports("avx2") ? sum_avx2(c) : sum_sse2(c);
}
