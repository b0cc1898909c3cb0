/* error.h: the calling thread's last error, as berth_error shows it. */
#ifndef BERTH_STORE_ERROR_H
#define BERTH_STORE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

/* Records a negative error with a sentence of its own (cause first, then what to do) and returns it. */
int berth_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Records an error whose sentence is berth_error_text's: cheap enough for a miss. */
int berth_fail_plain(int code);

/* Whom the thread's last call of the node could not ask, as far as it is known: berth_fail_plain of BERTH_EUNSURE and
 * -ETIMEDOUT names it. "": nobody. */
void berth_unasked(const char *name);

/* Whether the node refused the thread's last look at peers for a namespace that it does not have: the next
 * berth_fail_plain(-EINVAL) says so. */
void berth_unknown_namespace(bool is);
#define NO_NAMESPACE "the node has no namespace with the key's id: take the id from berth_namespace"

/* Adds figures to the error just recorded. */
void berth_fail_figures(const uint64_t figure[4]);

#endif
