/* region_ours.h: whether a directory is a region, before anything in it is changed.
 *
 * Signs of a region, each enough: the line of its lock file (a start writes it before anything else), the magic of
 * slots or lookup, the tables of its index, a pin file. They stay where other files of it are damaged, cut short or
 * missing.
 */
#ifndef BERTH_SHELL_REGION_OURS_H
#define BERTH_SHELL_REGION_OURS_H

#include <stdbool.h>
#include <stddef.h>

/* 0: the directory may be taken: it is empty, or has a sign of a region and under the names of a region's files
 * nothing but plain files and directories. A lock file without a byte, and directories `clients` and `index` without a
 * file, are what a start leaves that is killed at once: they count as nothing. -ENOTEMPTY: why[] names the first file,
 * by its name, that is not a region's. Another errno: it can't be read. Changes nothing, and opens no pipe or device.
 */
int region_ours(int dir_fd, const char *path, char *why, size_t why_size);

/* Whether `name` is that of a pin file, and the file of fd one: its magic, its size, or nothing in it yet. */
bool region_is_pins(const char *name, int fd);

#endif
