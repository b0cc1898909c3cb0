/* zeroed.h: small pieces of memory that come and go with every call. */
#ifndef BERTH_STORE_ZEROED_H
#define BERTH_STORE_ZEROED_H

#include <stdlib.h>
#include <string.h>

/* As calloc(1, bytes). glibc before 2.41 takes nothing for calloc from what it keeps at hand for the thread (pieces of
 * up to 1032 bytes), so that every one that was freed there is looked for in the arena: 100 ns and more. */
static inline void *zeroed(size_t bytes)
{
    void *p = malloc(bytes);
    __asm__ volatile("" : : "r"(p) : "memory"); /* or gcc makes a calloc of the two */
    return p ? memset(p, 0, bytes) : NULL;
}

#endif
