/* log.c: events on stderr. Whatever a client, a peer or a file had a say in is escaped: a line is always one event,
 * and a terminal never gets a control byte from it. */
#include "store/shell/log.h"

#include "store/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX 2048
#define STAMP_MAX 96
#define END_MAX 4 /* quote, brace, line */

/* A library in somebody's process says what went wrong and no more; berthd sets its own level. */
static _Atomic int threshold = LOG_WARNING;

static _Atomic int shape = LOG_TEXT;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void log_set_format(enum log_format format)
{
    atomic_store_explicit(&shape, (int)format, memory_order_relaxed);
}

static size_t stamp(char *out, size_t size, enum log_level level, bool json)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    struct timespec now;
    struct tm utc;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    const char *format = json ? "{\"time\": \"%s.%03ldZ\", \"level\": \"%s\", \"message\": \"" : "%s.%03ldZ %s ";
    return (size_t)snprintf(out, size, format, date, now.tv_nsec / 1000000, names[level]);
}

static size_t plain(char *out, const char *text, size_t n)
{
    memcpy(out, text, n);
    out[n] = '\n';
    return n + 1;
}

/* Printable ASCII already: two characters of it mean something in a JSON string. */
static size_t quote(char *out, const char *text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\')
            out[at++] = '\\';
        out[at++] = text[i];
    }
    memcpy(out + at, "\"}\n", 3);
    return at + 3;
}

static bool is_wanted(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed) && level <= LOG_DEBUG;
}

static void write_line(enum log_level level, const char *message, size_t length)
{
    bool json = atomic_load_explicit(&shape, memory_order_relaxed) == LOG_JSON;
    char text[4 * MESSAGE_MAX + 1], line[STAMP_MAX + 2 * sizeof text + END_MAX];
    size_t at = stamp(line, STAMP_MAX, level, json);
    length = escape_bytes(text, sizeof text, message, length);
    at += json ? quote(line + at, text, length) : plain(line + at, text, length);
    while (write(STDERR_FILENO, line, at) < 0 && errno == EINTR)
        continue;
}

static size_t form(char message[MESSAGE_MAX], const char *format, va_list args) __attribute__((format(printf, 2, 0)));

static size_t form(char message[MESSAGE_MAX], const char *format, va_list args)
{
    int n = vsnprintf(message, MESSAGE_MAX, format, args);
    return n < 0 ? 0 : (size_t)n < MESSAGE_MAX ? (size_t)n : MESSAGE_MAX - 1;
}

void log_event(enum log_level level, const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    if (!is_wanted(level))
        return;
    va_start(args, format);
    size_t n = form(message, format, args);
    va_end(args);
    write_line(level, message, n);
}

/* ---- what comes often ---- */

struct kind {
    const char *format; /* NULL: a free place */
    enum log_level level;
    int64_t began; /* CLOCK_MONOTONIC ns; the span's first line */
    bool open;
    unsigned n_said;
    uint64_t said[LOG_DISTINCT]; /* hashes of sentences */
    unsigned long long more;     /* not logged */
    size_t last_size;
    char last[MESSAGE_MAX]; /* of those the last */
};

static struct kind kinds[LOG_KINDS];
static pthread_mutex_t kinds_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash_of(const char *text, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void close_span(struct kind *k, int64_t now)
{
    if (!k->open || now - k->began < LOG_SPAN_S * INT64_C(1000000000))
        return;
    if (k->more > 0 && is_wanted(k->level)) {
        char text[MESSAGE_MAX];
        int n = snprintf(text, sizeof text, "%llu more like this in %d s: %.*s", k->more, LOG_SPAN_S, (int)k->last_size,
                         k->last);
        write_line(k->level, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
    }
    k->open = false;
    k->more = 0;
    k->n_said = 0;
}

static struct kind *kind_of(const char *format, enum log_level level)
{
    for (unsigned i = 0; i < LOG_KINDS; i++) {
        struct kind *k = &kinds[i];
        if (k->format == NULL)
            *k = (struct kind){.format = format, .level = level};
        if (k->format == format && k->level == level)
            return k;
    }
    return NULL;
}

/* Whether the sentence is to be written now; else it is counted. */
static bool is_due(struct kind *k, const char *message, size_t n)
{
    int64_t now = clock_mono();
    uint64_t hash = hash_of(message, n);
    bool is_new = true;
    close_span(k, now);
    if (!k->open)
        k->began = now;
    k->open = true;
    for (unsigned i = 0; i < k->n_said && is_new; i++)
        is_new = k->said[i] != hash;
    if (is_new && k->n_said < LOG_DISTINCT) {
        k->said[k->n_said++] = hash;
        return true;
    }
    k->more++;
    k->last_size = n;
    memcpy(k->last, message, n);
    return false;
}

void log_often(enum log_level level, const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    if (!is_wanted(level))
        return;
    va_start(args, format);
    size_t n = form(message, format, args);
    va_end(args);
    bool due = true;
    /* Not waited for: in a child of a fork nobody may be there to give it back. */
    if (level != LOG_DEBUG && pthread_mutex_trylock(&kinds_lock) == 0) {
        struct kind *k = kind_of(format, level);
        due = k == NULL || is_due(k, message, n);
        pthread_mutex_unlock(&kinds_lock);
    }
    if (due)
        write_line(level, message, n);
}

void log_sums(int64_t mono_ns)
{
    if (pthread_mutex_trylock(&kinds_lock) != 0)
        return;
    for (unsigned i = 0; i < LOG_KINDS && kinds[i].format != NULL; i++)
        close_span(&kinds[i], mono_ns);
    pthread_mutex_unlock(&kinds_lock);
}

size_t escape_bytes(char *out, size_t size, const void *data, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = data;
    size_t at = 0;
    if (size == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        char piece[4] = {'\\', 'x', digits[in[i] >> 4], digits[in[i] & 15]};
        size_t length = sizeof piece;
        if (in[i] == '\\') {
            piece[1] = '\\';
            length = 2;
        } else if (in[i] >= 0x20 && in[i] < 0x7f) {
            piece[0] = (char)in[i];
            length = 1;
        }
        if (at + length >= size)
            break;
        memcpy(out + at, piece, length);
        at += length;
    }
    out[at] = '\0';
    return at;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of the escape at *text, behind its backslash; -1 if it is none. Moves *text behind it. */
static int escape_value(const char **text)
{
    char c = *(*text)++;
    switch (c) {
    case '\\':
        return '\\';
    case 'n':
        return '\n';
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case '0':
        return 0;
    case 'x':
        break;
    default:
        return -1;
    }
    int high = hex((*text)[0]);
    int low = high < 0 ? -1 : hex((*text)[1]);
    *text += low < 0 ? 0 : 2;
    return low < 0 ? -1 : high << 4 | low;
}

long unescape_bytes(void *out, size_t size, const char *text)
{
    uint8_t *bytes = out;
    size_t at = 0;
    while (*text != '\0') {
        int value = (uint8_t)*text++;
        if (value == '\\' && (value = escape_value(&text)) < 0)
            return -EINVAL;
        if (at == size)
            return -EINVAL;
        bytes[at++] = (uint8_t)value;
    }
    return (long)at;
}
