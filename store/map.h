/* map.h: shared mappings of a region's files.
 *
 * Every mapping is MADV_DONTFORK: a forked child that went on using its parent's pins or drafts would read slots that
 * the parent has given back (PROTOCOLS rule 6).
 *
 * A build with -DBERTH_MAP_ONCE=1 maps each file once in a process, read-write, and hands the same address to everyone
 * who asks, counted. A node and its clients in one process then touch the same addresses, so that ThreadSanitizer,
 * which knows only addresses, sees the races between them. Protection is not enforced there: it is a build for tests.
 */
#ifndef BERTH_STORE_MAP_H
#define BERTH_STORE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifndef BERTH_MAP_ONCE
#define BERTH_MAP_ONCE 0
#endif

/* Maps the first `bytes` of fd with prot (PROT_READ, PROT_WRITE). The descriptor may be closed afterwards. NULL:
 * errno. */
void *map_shared(int fd, uint64_t bytes, int prot);

#define HUGE_BYTES UINT64_C(2097152)

/* Puts bytes [from, to) of a mapping by map_shared on huge pages, as far as whole ones fit and the kernel (6.1 on) has
 * them; every other mapping of the file follows at its next fault. Each HUGE_BYTES must have memory already, if only a
 * page. A hint: what can't be is left as it is, and all that follows; then false. */
bool map_collapse(void *map, uint64_t from, uint64_t to);

/* Undoes one map_shared: its address and bytes. NULL is passed over. */
void unmap_shared(void *map, uint64_t bytes);

#endif
