/* region_lock.h: who has a region directory, and what dead nodes left beside it.
 *
 * The lock is an OFD lock on the file `lock`: it goes with the last descriptor, however the node ends. The file holds
 * one line "berth-lock PID START PIDNS KIND": PID 0 after a clean stop, and from the moment that the lock is first
 * taken until the region is whole: it is the sign of a region that a start leaves which is killed in between. PIDNS
 * tells whether PID means anything here; KIND is `private` for a region that its node removes at the end, else `kept`.
 */
#ifndef BERTH_SHELL_REGION_LOCK_H
#define BERTH_SHELL_REGION_LOCK_H

#include <stdbool.h>
#include <stddef.h>

/* Takes the lock of a directory that is or may become a region (region_ours.h), writes its line if it has none, waits
 * until the process that had it is gone: its lock is free at once, while its sockets and its NIC may still read
 * (PROTOCOLS rule 19). A descriptor; -EBUSY, with the pid in why[]; another errno. */
int region_lock(int dir_fd, const char *path, char *why, size_t why_size);
/* Writes this process into it. 0 or a negative errno. */
int region_lock_stamp(int lock_fd, bool is_private);
/* A clean stop: there is no process to wait for. */
void region_lock_clear(int lock_fd);

/* Removes directories beside `path` that are regions of dead nodes of this user without a living client: private
 * ones, and with `kept` also those whose node did not stop cleanly. Others are never touched. How many went. */
unsigned region_leftovers(const char *path, int dir_fd, bool kept);

/* Removes a region's files, its subdirectories where they are empty, and its lock if asked. Nothing else. */
void region_remove_files(int dir_fd, bool lock_too);
/* Removes all pin files, and nothing else there: of a region that ends with its node. */
void region_remove_clients(int dir_fd);

#endif
