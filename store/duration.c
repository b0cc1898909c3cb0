/* duration.c: the arithmetic is exact: no floating point. */
#include "store/duration.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define PLACES 3u
#define SECOND UINT64_C(1000000000)

const char *fixed_parse(const char *text, unsigned places, uint64_t *out)
{
    uint64_t n = 0;
    bool any = false, fraction = false;
    for (; isdigit((unsigned char)*text) || (*text == '.' && !fraction); text++) {
        if (*text == '.') {
            fraction = true;
            continue;
        }
        any = true;
        if (fraction && places == 0)
            return NULL;
        if (n > UINT64_MAX / 100)
            return NULL;
        n = n * 10 + (uint64_t)(*text - '0');
        places -= fraction;
    }
    for (; places > 0; places--) {
        if (n > UINT64_MAX / 10)
            return NULL;
        n *= 10;
    }
    *out = n;
    return any ? text : NULL;
}

int duration_parse(const char *text, int64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1},          {"us", 1000},         {"ms", 1000000},      {"s", SECOND},
                 {"m", 60 * SECOND}, {"h", 3600 * SECOND}, {"d", 86400 * SECOND}};
    uint64_t milli;
    const char *end = fixed_parse(text, PLACES, &milli);
    if (!end)
        return -EINVAL;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        unsigned __int128 all = (unsigned __int128)milli * units[i].ns / 1000;
        if (all > INT64_MAX)
            return -ERANGE;
        *ns = (int64_t)all;
        return 0;
    }
    return -EINVAL;
}
