/* settings_namespaces.c: what is set of namespaces: which are replaceable, and their shares of the pool. */
#include "store/amount.h"
#include "store/evict.h"
#include "store/shell/log.h"
#include "store/shell/settings_value.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHARES_MAX 63u

_Static_assert(SHARES_MAX == EVICT_SHARES && SETTINGS_NAMESPACES == 256, "sentences say so");

static bool name_is_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= NAME_MAX_BYTES && name[n] == '\0';
}

int namespace_find(struct settings *s, const char *name, struct node_namespace **out)
{
    if (!name_is_valid(name))
        return -EINVAL;
    for (uint32_t i = 0; i < s->n_namespaces; i++) {
        *out = &s->namespaces[i];
        if (strcmp((*out)->name, name) == 0)
            return 0;
    }
    if (s->n_namespaces == SETTINGS_NAMESPACES)
        return -ERANGE;
    *out = &s->namespaces[s->n_namespaces++];
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return 0;
}

/* format: with one %s. */
__attribute__((format(printf, 3, 0))) static int refuse(char *why, size_t size, const char *format, const char *foreign)
{
    char shown[100];
    escape_bytes(shown, sizeof shown, foreign, strlen(foreign));
    snprintf(why, size, format, shown);
    return -EINVAL;
}

/* ---- replaceable ---- */

/* Whoever takes this setting for a switch would have a namespace of that name, and none that is replaceable. */
static bool is_switch(const char *piece)
{
    static const char *const words[] = {"yes", "no", "true", "false", "on", "off"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(piece, words[i]) == 0)
            return true;
    }
    return false;
}

int parse_replaceable(struct settings *s, char *piece)
{
    struct node_namespace *n;
    int e = is_switch(piece) ? -EINVAL : namespace_find(s, piece, &n);
    if (e == 0)
        n->replaceable = true;
    return e;
}

void show_replaceable(const struct settings *s, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (uint32_t i = 0; i < s->n_namespaces && at < size; i++) {
        if (s->namespaces[i].replaceable)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? "," : "", s->namespaces[i].name);
    }
}

/* ---- shares of the pool ---- */

static int set_share(struct settings *s, const struct node_namespace *n, const char *value)
{
    char *share = s->shares[n - s->namespaces];
    uint32_t others = 0;
    for (uint32_t i = 0; i < s->n_namespaces; i++)
        others += s->shares[i][0] != '\0' && s->shares[i] != share;
    if (others == SHARES_MAX)
        return -EUSERS;
    snprintf(share, sizeof s->shares[0], "%s", value);
    return 0;
}

int parse_share(struct settings *s, char *piece)
{
    struct node_namespace *n;
    char *value = strchr(piece, '=');
    if (value == NULL || strlen(value) > sizeof s->shares[0])
        return -EINVAL;
    *value++ = '\0';
    int e = value_check_share(value);
    if (e != 0)
        return e;
    e = namespace_find(s, piece, &n);
    return e == -ERANGE ? -EUSERS : e != 0 ? e : set_share(s, n, value);
}

void show_shares(const struct settings *s, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (uint32_t i = 0; i < s->n_namespaces && at < size; i++) {
        if (s->shares[i][0])
            at += (size_t)snprintf(out + at, size - at, "%s%s=%s", at > 0 ? "," : "", s->namespaces[i].name,
                                   s->shares[i]);
    }
}

int finish_shares(struct settings *s, char *why, size_t why_size)
{
    char all[AMOUNT_SIZE], high[AMOUNT_SIZE];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_namespaces; i++) {
        uint64_t bytes = s->shares[i][0] ? value_share(s->shares[i], s->pool) : 0;
        s->namespaces[i].share_bytes = bytes;
        sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    if (sum > s->high) {
        snprintf(why, why_size, "the shares of namespaces are %s together, and 'high' is %s: give them less",
                 amount(sum, all), amount(s->high, high));
        return -EINVAL;
    }
    return 0;
}

/* ---- sections of the file ---- */

/* As a piece of the setting; whose flag or variable says otherwise has the last word. */
static int section_share(struct settings *s, const char *name, const char *value, const char *where, char *why,
                         size_t why_size)
{
    struct node_namespace *n;
    int e = value_check_share(value);
    if (e == -EDOM)
        return refuse(why, why_size,
                      "'share' is '%s': without a unit it is bytes, and too few to be meant: write a unit, as 8GiB, or "
                      "a percentage, as 30%%",
                      value);
    if (e != 0)
        return refuse(
            why, why_size,
            "'share' is '%s': write a size, or a percentage of the pool above 0 and at most 100%%; all shares "
            "together are at most 'high'",
            value);
    if (namespace_find(s, name, &n) != 0)
        return refuse(why, why_size, "namespace '%s' is one too many: 256 can be configured", name);
    if (s->source[SET_SHARE].origin > ORIGIN_FILE)
        return 0;
    if (set_share(s, n, value) != 0)
        return refuse(why, why_size, "namespace '%s' is one too many: 63 can have a share", name);
    s->source[SET_SHARE].origin = ORIGIN_FILE;
    settings_where(s->source[SET_SHARE].where, sizeof s->source[0].where, where, true);
    return 0;
}

int settings_namespace(struct settings *s, const char *name, const char *key, const char *value, const char *where,
                       char *why, size_t why_size)
{
    struct node_namespace *n;
    if (!name_is_valid(name))
        return refuse(why, why_size, "namespace '%s': a name has 1 to 63 of the characters a-z A-Z 0-9 . _ -", name);
    if (strcmp(key, "share") == 0)
        return section_share(s, name, value, where, why, why_size);
    if (strcmp(key, "replaceable") != 0)
        return refuse(why, why_size, "unknown key '%s': a namespace has 'replaceable' and 'share'", key);
    bool yes = strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "no") != 0)
        return refuse(why, why_size, "'replaceable' is '%s': write yes or no", value);
    if (namespace_find(s, name, &n) != 0)
        return refuse(why, why_size, "namespace '%s' is one too many: 256 can be configured", name);
    if (s->source[SET_REPLACEABLE].origin <= ORIGIN_FILE) {
        s->source[SET_REPLACEABLE].origin = ORIGIN_FILE;
        settings_where(s->source[SET_REPLACEABLE].where, sizeof s->source[0].where, where, true);
        n->replaceable = yes;
    }
    n->replaceable |= yes; /* what a flag or a variable names is so, whatever a section says */
    return 0;
}
