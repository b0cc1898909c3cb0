/* copy_avx512.c: the copy kernel for CPUs with AVX512. Only copy.c calls it, once it knows. */
#include "store/copy.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif

#define XXH_VECTOR XXH_AVX512
#define KERNEL(name) name##_avx512
#define VECTOR __m512i
#define VECTOR_LOAD(p) _mm512_loadu_si512((const __m512i *)(p))
#define VECTOR_STREAM(p, v) _mm512_stream_si512((__m512i *)(p), v)
#include "store/copy_kernel.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
