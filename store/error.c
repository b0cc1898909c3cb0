/* error.c: names, sentences, and the thread's last error. */
#include "store/error.h"

#include "store/berth.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int number;
    const char *name, *sentence;
} own[] = {
#define BERTH_ERROR_ROW(code, number, sentence) {number, #code, sentence},
    BERTH_ERRORS(BERTH_ERROR_ROW)
#undef BERTH_ERROR_ROW
};

/* A sentence that is empty stands for berth_error_text's. */
static __thread struct berth_error_info last;
static __thread char unasked[64];
static __thread bool nameless;

int berth_fail_plain(int code)
{
    last.code = code;
    last.sentence[0] = '\0';
    memset(last.figure, 0, sizeof last.figure);
    if (code == BERTH_EUNSURE && unasked[0]) {
        snprintf(last.sentence, sizeof last.sentence,
                 "member '%s', which may have it, can't be reached: whether it exists is not known", unasked);
    } else if (code == -ETIMEDOUT && unasked[0]) {
        snprintf(last.sentence, sizeof last.sentence,
                 "it did not come in time: member '%s', which may have it, can't be reached", unasked);
    } else if (code == -EINVAL && nameless) {
        snprintf(last.sentence, sizeof last.sentence, "%s", NO_NAMESPACE);
    }
    nameless = false;
    return code;
}

void berth_unasked(const char *name)
{
    unasked[0] = '\0';
    if (*name) {
        snprintf(unasked, sizeof unasked, "%s", name);
    }
}

void berth_unknown_namespace(bool is)
{
    nameless = is;
}

int berth_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    berth_fail_plain(code);
    vsnprintf(last.sentence, sizeof last.sentence, format, args);
    va_end(args);
    return code;
}

void berth_fail_figures(const uint64_t figure[4])
{
    memcpy(last.figure, figure, sizeof last.figure);
}

static int own_index(int code)
{
    int number = code < 0 ? -code : code;
    for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (own[i].number == number) {
            return (int)i;
        }
    }
    return -1;
}

const char *berth_error_name(int code)
{
    int i = own_index(code);
    if (i >= 0) {
        return own[i].name;
    }
    const char *name = code == 0 ? "OK" : strerrorname_np(code < 0 ? -(unsigned)code : (unsigned)code);
    return name ? name : "UNKNOWN";
}

/* The errno values that calls return often, in the words of this library. */
static const char *known(int number)
{
    switch (number) {
    case ENOENT:
        return "no such key here";
    case ETIMEDOUT:
        return "the deadline passed before it was done: allow more time";
    case EINVAL:
        return "an argument is out of range: see the function's manual page";
    case EAGAIN:
        return "the node has as many of these under way as it takes: ask for fewer at a time, or again later";
    case ERANGE:
        return "a range goes beyond the object: ask for its size first";
    case EBADF:
        return "the application closed the handle's descriptors: open the handle again";
    case EOPNOTSUPP:
        return "a later version has this: leave the flag or operation out";
    default:
        return NULL;
    }
}

const char *berth_error_text(int code)
{
    int i = own_index(code);
    if (i >= 0) {
        return own[i].sentence;
    }
    if (code == 0) {
        return "no error";
    }
    unsigned number = code < 0 ? -(unsigned)code : (unsigned)code;
    const char *text = number < 4096 ? known((int)number) : NULL;
    if (!text) {
        text = strerrordesc_np((int)number);
    }
    return text ? text : "unknown error";
}

int berth_error(struct berth *b, struct berth_error_info *e)
{
    (void)b;
    if (e) {
        *e = last;
        e->name = berth_error_name(last.code);
        if (!e->sentence[0]) {
            snprintf(e->sentence, sizeof e->sentence, "%s", berth_error_text(last.code));
        }
    }
    return last.code;
}
