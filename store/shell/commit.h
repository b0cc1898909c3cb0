/* commit.h: the executor of commits: on the loop's thread where a batch is small, else on a thread of its own.
 *
 * A small batch takes a few microseconds, less than waking another thread; a large one would keep every client waiting.
 * One batch at a time (index_ops.commit).
 */
#ifndef BERTH_SHELL_COMMIT_H
#define BERTH_SHELL_COMMIT_H

#include "index/index.h"

struct commit;

/* `sleeping`: set while the loop may block; then a commit that ends on the thread makes commit_fd readable. inline_max:
 * operations up to which a batch is done at once; UINT32_MAX: there is no thread. 0, -ENOMEM, -EAGAIN. */
int commit_create(struct commit **out, const struct index_ops *ops, void *ix, uint32_t inline_max,
                  _Atomic uint32_t *sleeping);
/* Waits for a commit that runs. NULL is passed over. */
void commit_destroy(struct commit *c);
int commit_fd(const struct commit *c);
void commit_rung(struct commit *c); /* commit_fd is readable: makes it quiet again */

/* Applies b: true if it is done (*status is its result), false if commit_take will have it. */
bool commit_submit(struct commit *c, struct batch *b, int *status);
/* The batch that the thread has finished, or NULL. */
struct batch *commit_take(struct commit *c, int *status);
bool commit_done(const struct commit *c); /* whether commit_take has one */
/* Whether one was submitted and not taken yet. */
bool commit_running(const struct commit *c);
/* Applies b after whatever runs, at once: for what the shell itself must know to be in the index. */
int commit_now(struct commit *c, const struct batch *b);

#endif
