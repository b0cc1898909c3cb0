/* trace.h: a trace of prompts: when each came and which blocks it is made of.
 *
 * On disk one JSON object a line, {"timestamp", "input_length", "output_length", "hash_ids"}: milliseconds, tokens,
 * tokens, and one number a block of the prompt; equal numbers mean equal blocks behind equal prefixes.
 */
#ifndef BERTH_TOOLS_REPLAY_TRACE_H
#define BERTH_TOOLS_REPLAY_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_BLOCKS_MAX 65536u                 /* of one request: what one prefix call takes */
#define TRACE_LINE_MAX (64u * TRACE_BLOCKS_MAX) /* bytes; no id has more than 19 digits */

struct trace_request {
    uint64_t timestamp_ms;
    uint64_t first; /* index into blocks */
    uint32_t n_blocks;
    uint32_t input_length;
    uint32_t output_length;
};

struct trace {
    struct trace_request *requests;
    uint64_t *blocks; /* of all requests, in order */
    size_t n_requests, n_blocks;
    size_t request_room, block_room;
    uint64_t distinct; /* different blocks: after trace_finish */
    uint32_t longest;  /* blocks of the longest request: after trace_finish */
};

/* Reads a whole stream; every line must be a request as above, of at least these fields, without a field twice and
 * without a block twice. 0; -EINVAL (why[] has the line's number and what is wrong with it, or says that there is
 * no request); -ENOMEM; -EIO. On an error nothing is left allocated. name is used in sentences. */
int trace_read(struct trace *t, FILE *in, const char *name, char *why, size_t why_size);

/* One line without its end. 0, -EINVAL with the reason in why[], -ENOMEM; then nothing was added. */
int trace_parse(struct trace *t, const char *line, size_t size, char *why, size_t why_size);

/* Adds a request of n blocks. 0 or -ENOMEM. */
int trace_add(struct trace *t, const struct trace_request *r, const uint64_t *blocks, uint32_t n);

/* Counts distinct blocks and finds the longest request. 0 or -ENOMEM. */
int trace_finish(struct trace *t);

void trace_free(struct trace *t);

#endif
