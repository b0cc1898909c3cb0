/* amount.h: a number of bytes as sentences have it. */
#ifndef BERTH_STORE_AMOUNT_H
#define BERTH_STORE_AMOUNT_H

#include <stdint.h>

#define AMOUNT_SIZE 32u

/* "12.50 GiB", "128 MiB", "8.0 MiB", "64 KiB", "100 B": with the digits that tell needed from free. Returns out. */
const char *amount(uint64_t bytes, char out[AMOUNT_SIZE]);

#endif
