#include "tools/bench/bench_buffer.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

uint8_t *bench_buffer(uint64_t bytes)
{
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_DONTFORK);
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}
