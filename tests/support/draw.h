/* draw.h: numbers under a seed that the test prints: $BERTH_SEED, or of the clock. */
#ifndef BERTH_TESTS_DRAW_H
#define BERTH_TESTS_DRAW_H

#include <stdint.h>

uint64_t draw_seed(void); /* once, from main: prints and returns it */
uint64_t draw(void);
uint32_t draw_below(uint32_t n); /* 0 .. n - 1 */

#endif
