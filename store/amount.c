#include "store/amount.h"

#include <stdio.h>

const char *amount(uint64_t bytes, char out[AMOUNT_SIZE])
{
    const uint64_t kib = 1u << 10, mib = 1u << 20, gib = 1u << 30;
    uint64_t unit = bytes >= mib ? mib : kib;
    const char *name = unit == mib ? "MiB" : "KiB";
    if (bytes >= gib)
        snprintf(out, AMOUNT_SIZE, "%.2f GiB", (double)bytes / (double)gib);
    else if (bytes < kib)
        snprintf(out, AMOUNT_SIZE, "%u B", (unsigned)bytes);
    else if (bytes % unit == 0 && bytes >= 10 * unit)
        snprintf(out, AMOUNT_SIZE, "%u %s", (unsigned)(bytes / unit), name);
    else
        snprintf(out, AMOUNT_SIZE, "%.1f %s", (double)bytes / (double)unit, name);
    return out;
}
