/* size.c: sizes as people write them. The arithmetic is exact: a fraction counts only if whole bytes come out. */
#include "store/berth.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define DIGITS_MAX 24u /* significant digits; 2^64 has 20 */

struct number { /* digits * 10^exponent */
    unsigned __int128 digits;
    long exponent;
};

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
};

/* Zeros wait until a digit follows, so that 1.50000000000000000000000000 is as short as 1.5. */
static int parse_digits(const char **text, struct number *n)
{
    const char *p = *text;
    unsigned any = 0, significant = 0;
    long zeros = 0;
    bool fraction = false;
    for (;; p++) {
        if (*p == '.' && !fraction) {
            fraction = true;
            continue;
        }
        if (!isdigit((unsigned char)*p)) {
            break;
        }
        any++;
        n->exponent -= fraction;
        if (*p == '0') {
            zeros += 1;
            continue;
        }
        for (; n->digits && zeros > 0 && significant < DIGITS_MAX; zeros--, significant++) {
            n->digits *= 10;
        }
        if (++significant > DIGITS_MAX) {
            return -ERANGE;
        }
        n->digits = n->digits * 10 + (unsigned)(*p - '0');
        zeros = 0;
    }
    n->exponent += n->digits ? zeros : 0;
    *text = p;
    return any ? 0 : -EINVAL;
}

static int parse_exponent(const char **text, struct number *n)
{
    const char *p = *text;
    if (*p != 'e' && *p != 'E') {
        return 0;
    }
    bool minus = p[1] == '-';
    p += 1 + (p[1] == '-' || p[1] == '+');
    if (!isdigit((unsigned char)*p)) {
        return -EINVAL;
    }
    long e = 0;
    for (; isdigit((unsigned char)*p); p++) {
        e = e < 100000 ? e * 10 + (*p - '0') : e;
    }
    n->exponent += minus ? -e : e;
    *text = p;
    return 0;
}

static int parse_unit(const char *text, uint64_t *unit)
{
    while (*text == ' ' || *text == '\t') {
        text++;
    }
    for (unsigned i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(text, units[i].name) == 0) {
            *unit = units[i].bytes;
            return 0;
        }
    }
    return -EINVAL;
}

int berth_parse_size(const char *text, uint64_t *bytes)
{
    struct number n = {0};
    uint64_t unit;
    if (!text || !bytes) {
        return -EINVAL;
    }
    int rc = parse_digits(&text, &n);
    rc = rc ? rc : parse_exponent(&text, &n);
    rc = rc ? rc : parse_unit(text, &unit);
    if (rc) {
        return rc;
    }
    unsigned __int128 value = n.digits * unit; /* below 10^24 * 2^40 < 2^120 */
    for (; value && n.exponent > 0; n.exponent--) {
        value *= 10;
        if (value > UINT64_MAX) {
            return -ERANGE;
        }
    }
    for (; value && n.exponent < 0; n.exponent++) {
        if (value % 10) {
            return -EINVAL;
        }
        value /= 10;
    }
    if (value > UINT64_MAX) {
        return -ERANGE;
    }
    *bytes = (uint64_t)value;
    return 0;
}
