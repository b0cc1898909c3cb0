/* duration.h: durations as people write them, in one way for settings, URLs and the tool. */
#ifndef BERTH_STORE_DURATION_H
#define BERTH_STORE_DURATION_H

#include <stdint.h>

#define DURATION_UNITS "a number with ns, us, ms, s, m, h or d, as 500ms or 5m"

/* "12.5" as 12500000 with 6 places. Returns what follows; NULL: no number, or one that is too large or too exact. */
const char *fixed_parse(const char *text, unsigned places, uint64_t *out);

/* Digits, a fraction of three places at most, and a unit: ns, us, ms, s, m, h, d. 0, -EINVAL (it is none), -ERANGE
 * (it has more nanoseconds than *ns). */
int duration_parse(const char *text, int64_t *ns);

#endif
