#include "tests/support/draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t state;

uint64_t draw_seed(void)
{
    const char *given = getenv("BERTH_SEED");
    state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)state);
    return state;
}

uint64_t draw(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t draw_below(uint32_t n)
{
    return (uint32_t)((draw() >> 32) % n);
}
