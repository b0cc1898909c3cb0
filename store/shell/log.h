/* log.h: one event a line on stderr: time, level, message; every byte that is not printable ASCII is escaped as \xNN.
 * As JSON a line is {"time": "2026-11-30T03:40:10.123Z", "level": "info", "message": "..."}, the message escaped
 * likewise.
 */
#ifndef BERTH_SHELL_LOG_H
#define BERTH_SHELL_LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

enum log_format { LOG_TEXT, LOG_JSON };

void log_set_level(enum log_level level);
void log_set_format(enum log_format format);
/* Formats, escapes the whole message, writes one line with one write. */
void log_event(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for what a client, a peer or a stranger can cause as often as it likes. In a span of LOG_SPAN_S from the
 * first line of a format and level on, LOG_DISTINCT different sentences of it are logged at once; whatever repeats one
 * of them, or is beyond, is counted, and said in one line at the end of the span, with the last sentence. So a kind of
 * event has at most LOG_DISTINCT + 1 lines in a span, and its first line is never late. Which formats there are does
 * not depend on who calls: LOG_KINDS is above their number, one more than that would be logged as by log_event. Debug
 * lines are all written: who asks for them wants each. Any thread. */
#define LOG_SPAN_S 10
#define LOG_DISTINCT 16
#define LOG_KINDS 32
void log_often(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says the sums of the spans that are over at this CLOCK_MONOTONIC time: called once in a while, so that a sum is not
 * left unsaid until the next event. INT64_MAX: of all. */
void log_sums(int64_t mono_ns);

/* Escapes n bytes into out (always NUL-terminated): printable ASCII but \ stays, others become \xNN, \ becomes \\. What
 * does not fit is cut before the byte that does not. Returns the length. */
size_t escape_bytes(char *out, size_t size, const void *data, size_t n);
/* The inverse, for keys on a command line: \xNN, \\, \n, \t, \r, \0; -EINVAL for another escape or too long, else
 * length. */
long unescape_bytes(void *out, size_t size, const char *text);

#endif
