/* generate.h: makes a trace with the sharing and the reuse times of three kinds of load.
 *
 * Sessions begin as a Poisson process. Each takes one of a few shared prefixes (system prompts, tool descriptions or
 * documents; the i-th is taken with weight 1/i), adds a text of its own, and then comes back for a number of turns
 * (geometric) after a think time (log-normal), each time with its whole history, the answer and a new text
 * (log-normal). Prompts are cut into blocks of 512 tokens; the last block, if it is not full, is never the same twice.
 *
 *            prefixes  of tokens      own text  turns  think time  text a turn  sessions a second
 *   chat            8      200-2,000     1,500      5        45 s          700                1
 *   agents          4    4,000-8,000     2,000     15         4 s          900              0.3
 *   batch          24   8,000-32,000       300      1           -            -                4
 *
 * (texts and think times are medians; sigma is 0.9). A session ends at 128,000 tokens. The same kind, seed and number
 * of requests give the same trace with the same C library.
 */
#ifndef BERTH_TOOLS_REPLAY_GENERATE_H
#define BERTH_TOOLS_REPLAY_GENERATE_H

#include "tools/replay/trace.h"

#include <stdbool.h>

extern const char *const generate_kinds[]; /* "chat", "agents", "batch", NULL */

bool generate_has(const char *kind);

/* Requests in order of time. 0; -EINVAL: no such kind; -ENOMEM. On an error nothing is left allocated. */
int generate_trace(struct trace *t, const char *kind, uint64_t seed, uint32_t requests);

#endif
