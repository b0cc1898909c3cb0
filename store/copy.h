/* copy.h: copies into the pool fused with their checksum. The kernels are one text (copy_kernel.h) compiled three
 * times; the best that the CPU has is chosen at run time.
 */
#ifndef BERTH_STORE_COPY_H
#define BERTH_STORE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Up to this many bytes an ordinary copy is faster than stores past the cache. */
#define COPY_SMALL 4096u
/* What is copied, then hashed while it is still in the first-level cache. */
#define COPY_PIECE (16u << 10)

uint64_t copy_sse2(void *dst, const void *src, size_t n);
uint64_t copy_avx2(void *dst, const void *src, size_t n);
uint64_t copy_avx512(void *dst, const void *src, size_t n);
uint64_t checksum_sse2(const void *data, size_t n);
uint64_t checksum_avx2(const void *data, size_t n);
uint64_t checksum_avx512(const void *data, size_t n);

#endif
