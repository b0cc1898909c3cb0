/* offline.h: a look at a region that no node has open. */
#ifndef BERTH_SHELL_OFFLINE_H
#define BERTH_SHELL_OFFLINE_H

#include <stddef.h>

/* Compares index, slots and lookup of the region directory as a node's CHECK does, and changes none of them. *text is
 * the report, malloc'd JSON, the caller's. It holds the region's lock meanwhile: a node that starts then is refused.
 * Errors, with a sentence in why: -EBUSY (a node has it open), -ENOENT (no region there), -EACCES (another user's),
 * -EPROTO (files of another format), -EBADMSG (a damaged index, or that of another pool), -ENOMEM, another errno of the
 * files. Any thread. */
int offline_check(const char *directory, char **text, char *why, size_t why_size);

#endif
