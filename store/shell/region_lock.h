/* region_lock.h: who has a region directory, and what dead nodes left beside it.
 *
 * The lock is an OFD lock on the file `lock`: it goes with the last descriptor, however the node ends. The file holds
 * one line "berth-lock PID START PIDNS KIND": PID 0 after a clean stop, and from the moment that the lock is first
 * taken until the region is whole: it is the sign of a region that a start leaves which is killed in between. PIDNS
 * tells whether PID means anything here; KIND is `private` for a region that its node removes at the end, else `kept`.
 */
#ifndef BERTH_SHELL_REGION_LOCK_H
#define BERTH_SHELL_REGION_LOCK_H

#include "store/memkind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes the lock of a directory that is or may become a region (region_ours.h), writes its line if it has none (of that
 * kind: a private region that a start leaves unfinished is a private one too), waits until the process that had it is
 * gone: its lock is free at once, while its sockets and its NIC may still read (PROTOCOLS rule 19). Where who has the
 * lock was killed or is ending, it waits for it, 2 s at most; never for one that lives. A descriptor; -EBUSY, with the
 * pid in why[]; -ECANCELED: progress, which may be NULL, said stop; another errno. */
int region_lock(int dir_fd, const char *path, bool is_private, const struct mem_progress *progress, char *why,
                size_t why_size);
/* Writes this process into it. 0 or a negative errno. */
int region_lock_stamp(int lock_fd, bool is_private);
/* A clean stop: there is no process to wait for. */
void region_lock_clear(int lock_fd);

/* Regions of this user beside another, on its file system, whose node does not run and that no client uses. */
struct region_beside {
    uint64_t left_bytes;    /* allocated by private ones, which nobody starts over again */
    uint64_t kept_bytes;    /* by the others */
    uint64_t largest_bytes; /* by the largest of the others */
    unsigned n_kept;        /* how many others */
    char largest[512];      /* path of the largest of the others; "": there is none */
};
/* Looks, and changes nothing. */
void region_beside(const char *path, int dir_fd, struct region_beside *out);
/* Removes the private ones of them. Others are never touched: a node may start again over its region, however it
 * ended. How many went. */
unsigned region_leftovers(const char *path, int dir_fd);
/* Bytes that the files of a region have on their file system. */
uint64_t region_allocated(int dir_fd);

/* Removes a region's files, its subdirectories where they are empty, and its lock if asked. Nothing else. */
void region_remove_files(int dir_fd, bool lock_too);
/* Removes all pin files, and nothing else there: of a region that ends with its node. */
void region_remove_clients(int dir_fd);

#endif
