/* settings_value.c: one parser a kind of value, used alike for flags, variables, files and URLs. */
#include "store/shell/settings_value.h"

#include "store/berth.h"
#include "store/duration.h"
#include "store/evict.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* 16 TiB less a unit: a page's number has 32 bits. */
#define POOL_MAX ((UINT64_C(1) << 44) - UNIT_BYTES)

#define LEASE_LEAST_NS 100000000 /* a shorter one is over before much of a transfer is */
#define MEMORY_LEAST_NS INT64_C(1000000000)
#define DAY_NS (86400 * INT64_C(1000000000))

static const char *const lock_names[] = {"off", "auto", "required", NULL};
static const char *const populate_names[] = {"on", "off", NULL};
static const char *const shrink_names[] = {"refuse", "drop", "drop-held", NULL};
static const char *const level_names[] = {"error", "warning", "info", "debug", NULL};

static const char *const format_names[] = {"text", "json", NULL};
static const char *const strict_names[] = {"no", "yes", NULL};
static const char *const trust_names[] = {"host", "network", NULL};

static int parse_name(const char *const *names, const char *text)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
    }
    return -EINVAL;
}

#define BARE_LEAST PAGE_BYTES /* without a unit: whoever writes less means MiB or GiB */
#define BARE_POOL_LEAST UNIT_BYTES

static bool has_unit(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && isalpha((unsigned char)text[n - 1]);
}

/* -EDOM: below `bare` bytes and without a unit. */
static int parse_units(const char *text, uint64_t bare, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t bytes;
    int e = berth_parse_size(text, &bytes);
    if (e != 0)
        return e;
    if (bytes > 0 && bytes < bare && !has_unit(text))
        return -EDOM;
    if (bytes < least || bytes > most)
        return -ERANGE;
    *out = bytes;
    return 0;
}

static int parse_size(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    return parse_units(text, BARE_LEAST, least, most, out);
}

static int parse_auto(const char *text, uint64_t least, uint64_t *out)
{
    if (strcmp(text, "auto") != 0)
        return parse_size(text, least, INT64_MAX, out);
    *out = 0;
    return 0;
}

static int parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t n = 0;
    if (*text == '\0')
        return -EINVAL;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text))
            return -EINVAL;
        if (n > UINT32_MAX)
            return -ERANGE;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    if (n < least || n > most)
        return -ERANGE;
    *out = n;
    return 0;
}

#define PERCENT_PLACES 4u
#define PERCENT_WHOLE UINT64_C(1000000) /* 100 % */

static bool parse_percent(const char *text, uint64_t *out)
{
    const char *end = fixed_parse(text, PERCENT_PLACES, out);
    return end != NULL && strcmp(end, "%") == 0;
}

int value_check_share(const char *text)
{
    uint64_t n;
    if (strchr(text, '%') == NULL)
        return parse_size(text, 1, INT64_MAX, &n);
    if (!parse_percent(text, &n))
        return -EINVAL;
    return n == 0 || n > PERCENT_WHOLE ? -ERANGE : 0;
}

uint64_t value_share(const char *text, uint64_t pool)
{
    uint64_t n = 0;
    if (parse_percent(text, &n))
        return (uint64_t)((unsigned __int128)pool * n / PERCENT_WHOLE);
    berth_parse_size(text, &n);
    return n;
}

static int parse_duration(const char *text, int64_t least, int64_t most, int64_t *out)
{
    int64_t ns;
    int e = duration_parse(text, &ns);
    if (e == 0 && (ns < least || ns > most))
        return -ERANGE;
    if (e == 0)
        *out = ns;
    return e;
}

static int parse_text(const char *text, char *out, size_t size)
{
    size_t n = strlen(text);
    if (n == 0)
        return -EINVAL;
    if (n >= size)
        return -ERANGE;
    memcpy(out, text, n + 1);
    return 0;
}

/* Without authentication nothing but this host may ask: an address that is no loopback address is refused. */
bool address_is_loopback(const char *text)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (colon == NULL || parse_count(colon + 1, 0, 65535, &port) != 0)
        return false;
    size_t n = (size_t)(colon - text);
    if ((n == 9 && memcmp(text, "localhost", n) == 0) || (n == 5 && memcmp(text, "[::1]", n) == 0))
        return true;
    unsigned a, b, c;
    int end = 0;
    return sscanf(text, "127.%3u.%3u.%3u%n", &a, &b, &c, &end) == 3 && (size_t)end == n && a < 256 && b < 256 &&
           c < 256;
}

static int parse_metrics(const char *text, char *out, size_t size)
{
    bool file = strncmp(text, "unix:", 5) == 0 && text[5] != '\0';
    if (strcmp(text, "off") != 0 && !file && !address_is_loopback(text))
        return -EINVAL;
    return parse_text(text, out, size);
}

static int parse_class(struct settings *s, char *text)
{
    uint64_t bytes;
    int e = parse_units(text, 0, 1, OBJECT_MAX, &bytes); /* of a kind of object: any number may be meant */
    if (e != 0)
        return e;
    if (s->n_classes == SETTINGS_CLASSES)
        return -ERANGE;
    s->classes[s->n_classes++] = (uint32_t)((bytes + PAGE_BYTES - 1) / PAGE_BYTES);
    return 0;
}

int parse_list(struct settings *s, const char *text, int (*one)(struct settings *s, char *piece))
{
    char piece[SETTINGS_PIECE];
    if (strcmp(text, "none") == 0)
        return 0;
    for (;;) {
        size_t n = strcspn(text, ",");
        if (n >= sizeof piece)
            return -EINVAL;
        memcpy(piece, text, n);
        piece[n] = '\0';
        int e = one(s, piece);
        if (e != 0 || text[n] == '\0')
            return e;
        text += n + 1;
    }
}

static int parse_classes(struct settings *s, const char *text)
{
    return parse_list(s, text, parse_class);
}

static int parse_mode(const char *text, uint32_t *out)
{
    static const struct {
        const char *text;
        uint32_t mode;
    } modes[] = {{"0600", 0600}, {"600", 0600}, {"0640", 0640}, {"640", 0640}};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].text, text) == 0) {
            *out = modes[i].mode;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_policy(const char *text, char *out, size_t size)
{
    return evict_find(text) == NULL ? -EINVAL : parse_text(text, out, size);
}

static int parse_range(const char *text, uint64_t least, uint64_t most, uint32_t *out)
{
    uint64_t n;
    int e = parse_count(text, least, most, &n);
    if (e == 0)
        *out = (uint32_t)n;
    return e;
}

static int parse_small(const char *text, uint64_t most, uint32_t *out)
{
    return parse_range(text, 0, most, out);
}

static int parse_choice(const char *const *names, const char *text, uint32_t *out)
{
    int choice = parse_name(names, text);
    if (choice >= 0)
        *out = (uint32_t)choice;
    return choice < 0 ? choice : 0;
}

static int parse_lock(const char *text, enum mem_lock *out)
{
    int lock = parse_name(lock_names, text);
    if (lock >= 0)
        *out = (enum mem_lock)lock;
    return lock < 0 ? lock : 0;
}

static int parse_objects(const char *text, uint64_t *out)
{
    if (strcmp(text, "auto") != 0)
        return parse_count(text, 1, SLOT_NONE - 1, out);
    *out = 0;
    return 0;
}

/* What makes the node one of several. */
static int parse_peering(struct settings *s, unsigned index, const char *text)
{
    switch (index) {
    case SET_NAME:
        return parse_node_name(text, s->name, sizeof s->name);
    case SET_CLUSTER:
        return parse_node_name(text, s->cluster, sizeof s->cluster);
    case SET_LISTEN:
        return parse_listen(text, s->listen, sizeof s->listen);
    case SET_PEER_TRUST:
        return parse_choice(trust_names, text, &s->peer_trust);
    case SET_PEERS:
        return parse_peers(s, text);
    case SET_HOMES:
        return parse_range(text, 1, 3, &s->homes);
    case SET_LEASE:
        return parse_duration(text, LEASE_LEAST_NS, LEASE_TTL_LIMIT_NS, &s->lease_ns);
    case SET_LEASE_QUOTA:
        return value_check_share(text);
    case SET_VERIFY:
        return parse_verify(text, &s->verify);
    case SET_TOMBSTONES:
        return parse_duration(text, MEMORY_LEAST_NS, DAY_NS, &s->tombstone_ns);
    case SET_FRESH:
        return parse_duration(text, MEMORY_LEAST_NS, DAY_NS, &s->fresh_ns);
    case SET_REPLACEABLE:
        return parse_list(s, text, parse_replaceable);
    case SET_SHARE:
        return parse_list(s, text, parse_share);
    default:
        return -EINVAL;
    }
}

int value_parse(struct settings *s, unsigned index, const char *text)
{
    switch ((enum setting_index)index) {
    case SET_REGION:
        return parse_text(text, s->region, sizeof s->region);
    case SET_SOCKET:
        return parse_text(text, s->socket, sizeof s->socket);
    case SET_METRICS:
        return parse_metrics(text, s->metrics, sizeof s->metrics);
    case SET_POLICY:
        return parse_policy(text, s->policy, sizeof s->policy);
    case SET_POOL:
        return parse_units(text, BARE_POOL_LEAST, 1, POOL_MAX, &s->pool);
    case SET_MR_SIZE:
        return parse_units(text, BARE_POOL_LEAST, 1, POOL_MAX, &s->mr_size);
    case SET_INDEX_SIZE:
        return parse_auto(text, 256u << 10, &s->index_size);
    case SET_MAX_OBJECTS:
        return parse_objects(text, &s->max_objects);
    case SET_HIGH:
    case SET_LOW:
    case SET_DRAFT_QUOTA:
        return value_check_share(text);
    case SET_PIN_QUOTA:
        return parse_size(text, 0, INT64_MAX, &s->pin_quota);
    case SET_CLASS:
        return parse_classes(s, text);
    case SET_POPULATE:
        return parse_choice(populate_names, text, &s->populate);
    case SET_SHRINK:
        return parse_choice(shrink_names, text, &s->shrink);
    case SET_LOCK:
        return parse_lock(text, &s->lock);
    case SET_THREADS:
        return parse_small(text, 64, &s->threads);
    case SET_NUMA:
        return parse_numa(s, text);
    case SET_NUMA_STRICT:
        return parse_choice(strict_names, text, &s->numa_strict);
    case SET_SPIN:
        return parse_small(text, 1000000, &s->spin_us);
    case SET_MODE:
        return parse_mode(text, &s->mode);
    case SET_QUARANTINE:
        return parse_duration(text, 0, DAY_NS, &s->quarantine_ns);
    case SET_LOG_LEVEL:
        return parse_choice(level_names, text, &s->log_level);
    case SET_LOG_FORMAT:
        return parse_choice(format_names, text, &s->log_format);
    default:
        return parse_peering(s, index, text);
    }
}

/* ---- showing ---- */

/* In the largest binary unit that leaves a whole number: what value_parse reads back to the same byte. */
static int show_size(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (unit < 4 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    const char *name = unit == 0 && bytes > 0 && bytes < BARE_LEAST ? "B" : units[unit];
    return snprintf(out, size, "%llu%s", (unsigned long long)bytes, name);
}

static void show_classes(const struct settings *s, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (uint32_t i = 0; i < s->n_classes && at + 24 < size; i++) {
        if (i > 0)
            out[at++] = ',';
        at += (size_t)show_size((uint64_t)s->classes[i] * PAGE_BYTES, out + at, size - at);
    }
}

static void show_duration(int64_t ns, char *out, size_t size)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    unsigned unit = 0;
    while (unit < 3 && ns > 0 && ns % 1000 == 0) {
        ns /= 1000;
        unit++;
    }
    snprintf(out, size, "%lld%s", (long long)ns, units[unit]);
}

static const uint64_t *size_field(const struct settings *s, unsigned index)
{
    switch (index) {
    case SET_POOL:
        return &s->pool;
    case SET_MR_SIZE:
        return &s->mr_size;
    case SET_INDEX_SIZE:
        return &s->index_size;
    case SET_HIGH:
        return &s->high;
    case SET_LOW:
        return &s->low;
    case SET_DRAFT_QUOTA:
        return &s->draft_quota;
    case SET_LEASE_QUOTA:
        return &s->lease_quota;
    case SET_PIN_QUOTA:
        return &s->pin_quota;
    default:
        return NULL;
    }
}

bool settings_share(const struct settings *s, unsigned index, uint64_t *bytes)
{
    bool is = index == SET_HIGH || index == SET_LOW || index == SET_DRAFT_QUOTA || index == SET_LEASE_QUOTA;
    if (is)
        *bytes = *size_field(s, index);
    return is;
}

/* The low mark that follows the high one was said nowhere. */
static bool share_was_said(const struct settings *s, unsigned index)
{
    return index != SET_LOW || s->source[SET_LOW].origin != ORIGIN_DEFAULT ||
           s->source[SET_HIGH].origin == ORIGIN_DEFAULT;
}

static const char *text_field(const struct settings *s, unsigned index)
{
    switch (index) {
    case SET_REGION:
        return s->region;
    case SET_SOCKET:
        return s->socket;
    case SET_METRICS:
        return s->metrics;
    case SET_POLICY:
        return s->policy;
    case SET_POPULATE:
        return populate_names[s->populate];
    case SET_SHRINK:
        return shrink_names[s->shrink];
    case SET_LOCK:
        return lock_names[s->lock];
    case SET_NUMA_STRICT:
        return strict_names[s->numa_strict];
    case SET_LOG_LEVEL:
        return level_names[s->log_level];
    case SET_LOG_FORMAT:
        return format_names[s->log_format];
    case SET_NAME:
        return s->name;
    case SET_CLUSTER:
        return s->cluster;
    case SET_LISTEN:
        return s->listen;
    case SET_PEER_TRUST:
        return trust_names[s->peer_trust];
    default:
        return NULL;
    }
}

void settings_value(const struct settings *s, unsigned index, char *out, size_t size)
{
    const uint64_t *bytes = size_field(s, index);
    const char *text = text_field(s, index);
    uint64_t share;
    if (settings_share(s, index, &share) && share_was_said(s, index))
        snprintf(out, size, "%s", s->source[index].text);
    else if (bytes != NULL)
        show_size(*bytes, out, size);
    else if (text != NULL)
        snprintf(out, size, "%s", text);
    else if (index == SET_MAX_OBJECTS)
        snprintf(out, size, "%llu", (unsigned long long)s->max_objects);
    else if (index == SET_CLASS)
        show_classes(s, out, size);
    else if (index == SET_THREADS)
        snprintf(out, size, "%u", s->threads);
    else if (index == SET_SPIN)
        snprintf(out, size, "%u", s->spin_us);
    else if (index == SET_MODE)
        snprintf(out, size, "%04o", s->mode);
    else if (index == SET_QUARANTINE || index == SET_LEASE)
        show_duration(index == SET_LEASE ? s->lease_ns : s->quarantine_ns, out, size);
    else if (index == SET_TOMBSTONES || index == SET_FRESH)
        show_duration(index == SET_FRESH ? s->fresh_ns : s->tombstone_ns, out, size);
    else if (index == SET_NUMA)
        show_numa(s, out, size);
    else if (index == SET_PEERS)
        show_peers(s, out, size);
    else if (index == SET_REPLACEABLE)
        show_replaceable(s, out, size);
    else if (index == SET_SHARE)
        show_shares(s, out, size);
    else if (index == SET_HOMES)
        snprintf(out, size, "%u", s->homes);
    else if (index == SET_VERIFY)
        show_verify(s->verify, out, size);
    else if (size > 0)
        out[0] = '\0';
}
