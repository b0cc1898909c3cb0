/* amount.h: numbers as sentences have them. */
#ifndef BERTH_STORE_AMOUNT_H
#define BERTH_STORE_AMOUNT_H

#include <stdint.h>

#define AMOUNT_SIZE 32u

/* "12.50 GiB", "128 MiB", "8.0 MiB", "64 KiB", "100 B": with the digits that tell needed from free. Returns out. */
const char *amount(uint64_t bytes, char out[AMOUNT_SIZE]);

/* What a word in the singular takes behind a count: "1 object", "2 objects". */
static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#endif
