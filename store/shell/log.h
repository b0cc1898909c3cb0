/* log.h: one event a line on stderr: time, level, message; every byte that is not printable ASCII is escaped as \xNN.
 * As JSON a line is {"time": "2026-11-30T03:40:10.123Z", "level": "info", "message": "..."}, the message escaped
 * likewise.
 */
#ifndef BERTH_SHELL_LOG_H
#define BERTH_SHELL_LOG_H

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

enum log_format { LOG_TEXT, LOG_JSON };

void log_set_level(enum log_level level);
void log_set_format(enum log_format format);
/* Formats, escapes the whole message, writes one line with one write. */
void log_event(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Escapes n bytes into out (always NUL-terminated): printable ASCII but \ stays, others become \xNN, \ becomes \\. What
 * does not fit is cut before the byte that does not. Returns the length. */
size_t escape_bytes(char *out, size_t size, const void *data, size_t n);
/* The inverse, for keys on a command line: \xNN, \\, \n, \t, \r, \0; -EINVAL for another escape or too long, else
 * length. */
long unescape_bytes(void *out, size_t size, const char *text);

#endif
