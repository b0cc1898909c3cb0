/* copy_avx2.c: the copy kernel for CPUs with AVX2. Only copy.c calls it, once it knows. */
#include "store/copy.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR XXH_AVX2
#define KERNEL(name) name##_avx2
#define VECTOR __m256i
#define VECTOR_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define VECTOR_STREAM(p, v) _mm256_stream_si256((__m256i *)(p), v)
#include "store/copy_kernel.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
