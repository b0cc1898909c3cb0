/* trim.h: memory that clients have left goes back to the system.
 *
 * A connection of a client or a stranger takes some 100 KiB of heap. When many have gone the allocator keeps what they
 * had, as pages between what is still in use: of a process that serves for months that is the most there ever was. So
 * berthd gives them back now and then. An embedded node does not: the heap is the application's.
 */
#ifndef BERTH_SHELL_TRIM_H
#define BERTH_SHELL_TRIM_H

struct server;

#define TRIM_AFTER 16u /* sessions and connections that have gone since: what fewer of them have left may stay */

/* One of them has been freed. */
void trim_freed(struct server *s);
/* From housekeeping: gives back, where it is worth it. A millisecond or so. */
void trim_tend(struct server *s);

#endif
