#include "tools/replay/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int refuse(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int refuse(char *why, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return -EINVAL;
}

static int reserve(void **array, size_t *room, size_t wanted, size_t element)
{
    size_t grown = *room ? *room : 1024;
    void *moved;

    if (wanted <= *room)
        return 0;
    while (grown < wanted)
        grown *= 2;
    moved = reallocarray(*array, grown, element);
    if (!moved)
        return -ENOMEM;
    *array = moved;
    *room = grown;
    return 0;
}

int trace_add(struct trace *t, const struct trace_request *r, const uint64_t *blocks, uint32_t n)
{
    void *requests = t->requests, *all = t->blocks;
    int error;

    error = reserve(&requests, &t->request_room, t->n_requests + 1, sizeof(*t->requests));
    t->requests = requests;
    if (error)
        return error;
    error = reserve(&all, &t->block_room, t->n_blocks + n, sizeof(*t->blocks));
    t->blocks = all;
    if (error)
        return error;
    if (n)
        memcpy(t->blocks + t->n_blocks, blocks, n * sizeof(*blocks));
    t->requests[t->n_requests] = *r;
    t->requests[t->n_requests].first = t->n_blocks;
    t->requests[t->n_requests].n_blocks = n;
    t->n_requests++;
    t->n_blocks += n;
    return 0;
}

static int field(const json_t *object, const char *name, uint64_t max, uint64_t *out, char *why, size_t why_size)
{
    const json_t *value = json_object_get(object, name);

    if (!value)
        return refuse(why, why_size, "it has no '%s'", name);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
        return refuse(why, why_size, "'%s' is no integer of 0 to %" PRIu64, name, max);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static bool has_twice(const uint64_t *ids, uint32_t n, uint64_t *scratch)
{
    memcpy(scratch, ids, n * sizeof(*ids));
    qsort(scratch, n, sizeof(*scratch), compare_ids);
    for (uint32_t i = 1; i < n; i++)
        if (scratch[i] == scratch[i - 1])
            return true;
    return false;
}

/* ids has room for twice the array's length. */
static int parse_ids(const json_t *array, uint64_t *ids, uint32_t n, char *why, size_t why_size)
{
    for (uint32_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return refuse(why, why_size, "'hash_ids' has a member that is no integer of 0 or more, the %u. one", i + 1);
        ids[i] = (uint64_t)json_integer_value(id);
    }
    if (n && has_twice(ids, n, ids + n))
        return refuse(why, why_size, "'hash_ids' has a block twice");
    return 0;
}

static int parse_object(struct trace *t, const json_t *object, char *why, size_t why_size)
{
    const json_t *array = json_object_get(object, "hash_ids");
    uint64_t timestamp, input, output, *ids;
    struct trace_request r;
    uint32_t n;
    int error;

    if (!json_is_object(object))
        return refuse(why, why_size, "it is no JSON object");
    error = field(object, "timestamp", INT64_MAX / 1000000, &timestamp, why, why_size);
    if (!error)
        error = field(object, "input_length", UINT32_MAX, &input, why, why_size);
    if (!error)
        error = field(object, "output_length", UINT32_MAX, &output, why, why_size);
    if (error)
        return error;
    if (!json_is_array(array) || json_array_size(array) > TRACE_BLOCKS_MAX)
        return refuse(why, why_size, "'hash_ids' is no array of at most %u numbers", TRACE_BLOCKS_MAX);
    n = (uint32_t)json_array_size(array);
    ids = calloc(2 * (size_t)n + 1, sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    error = parse_ids(array, ids, n, why, why_size);
    if (!error) {
        r = (struct trace_request){
            .timestamp_ms = timestamp, .input_length = (uint32_t)input, .output_length = (uint32_t)output};
        error = trace_add(t, &r, ids, n);
    }
    free(ids);
    return error;
}

int trace_parse(struct trace *t, const char *line, size_t size, char *why, size_t why_size)
{
    json_error_t reason;
    json_t *object = json_loadb(line, size, JSON_REJECT_DUPLICATES, &reason);
    int error;

    if (!object)
        return refuse(why, why_size, "it is no JSON: %s", reason.text);
    error = parse_object(t, object, why, why_size);
    json_decref(object);
    return error;
}

/* 1: a line, without its end; 0: there is no more. What is no trace may have no line ends at all. */
static int read_line(FILE *in, char **line, size_t *room, size_t *size, char *why, size_t why_size)
{
    void *bytes = *line;
    int error = 0, c;

    for (*size = 0; (c = getc_unlocked(in)) != EOF && c != '\n'; (*line)[(*size)++] = (char)c) {
        if (*size == TRACE_LINE_MAX)
            return refuse(why, why_size, "it is longer than %u bytes", TRACE_LINE_MAX);
        error = reserve(&bytes, room, *size + 1, 1);
        *line = bytes;
        if (error)
            return error;
    }
    return !ferror(in) && (c != EOF || *size > 0);
}

static int read_lines(struct trace *t, FILE *in, const char *name, char *why, size_t why_size)
{
    char *line = NULL, reason[200] = "";
    size_t room = 0, number = 0, n;
    int more, error;

    do {
        number++;
        more = read_line(in, &line, &room, &n, reason, sizeof(reason));
        error = more > 0 ? trace_parse(t, line ? line : "", n, reason, sizeof(reason)) : more;
    } while (more > 0 && !error);
    free(line);
    if (error == -EINVAL)
        snprintf(why, why_size, "line %zu of '%s' is no request: %s", number, name, reason);
    if (!error && ferror(in)) {
        snprintf(why, why_size, "'%s' can't be read: %s", name, strerror(errno));
        error = -EIO;
    }
    return error;
}

int trace_read(struct trace *t, FILE *in, const char *name, char *why, size_t why_size)
{
    int error;

    memset(t, 0, sizeof(*t));
    error = read_lines(t, in, name, why, why_size);
    if (!error && t->n_requests == 0)
        error = refuse(why, why_size, "'%s' has no request", name);
    if (!error)
        error = trace_finish(t);
    if (!error && t->n_blocks == 0)
        error = refuse(why, why_size, "'%s' has no block: 'hash_ids' of every request is empty", name);
    if (error == -ENOMEM)
        snprintf(why, why_size, "'%s' does not fit into memory", name);
    if (error)
        trace_free(t);
    return error;
}

int trace_finish(struct trace *t)
{
    uint64_t *sorted = malloc((t->n_blocks + 1) * sizeof(*sorted));

    if (!sorted)
        return -ENOMEM;
    if (t->n_blocks)
        memcpy(sorted, t->blocks, t->n_blocks * sizeof(*sorted));
    qsort(sorted, t->n_blocks, sizeof(*sorted), compare_ids);
    t->distinct = 0;
    for (size_t i = 0; i < t->n_blocks; i++)
        t->distinct += i == 0 || sorted[i] != sorted[i - 1];
    free(sorted);
    t->longest = 0;
    for (size_t i = 0; i < t->n_requests; i++)
        if (t->requests[i].n_blocks > t->longest)
            t->longest = t->requests[i].n_blocks;
    return 0;
}

void trace_free(struct trace *t)
{
    free(t->requests);
    free(t->blocks);
    memset(t, 0, sizeof(*t));
}
