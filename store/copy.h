/* copy.h: copies into the pool fused with their checksum, and the checksum of bytes that come piece by piece. The
 * kernels are one text (copy_kernel.h) compiled three times; the best that the CPU has is chosen at run time.
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

/* XXH3-64 of pieces, one behind the other, by the best kernel: as berth_checksum of all of them together. One thread at
 * a time. */
struct checksum;
struct checksum *checksum_create(void);  /* begun; NULL: no memory */
void checksum_free(struct checksum *c);  /* c may be NULL */
void checksum_begin(struct checksum *c); /* anew */
void checksum_add(struct checksum *c, const void *data, size_t n);
uint64_t checksum_sum(const struct checksum *c); /* of all since its begin; more may be added */

/* Their kernels; a state is any kernel's. */
void add_sse2(struct checksum *c, const void *data, size_t n);
void add_avx2(struct checksum *c, const void *data, size_t n);
void add_avx512(struct checksum *c, const void *data, size_t n);
uint64_t sum_sse2(const struct checksum *c);
uint64_t sum_avx2(const struct checksum *c);
uint64_t sum_avx512(const struct checksum *c);

#endif
