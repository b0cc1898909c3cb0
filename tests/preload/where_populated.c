/* Says where threads are when they ask for pages: each MADV_POPULATE_WRITE adds a line "CPU ADDRESS BYTES" to the file
 * that TEST_WHERE_POPULATED names. The call itself goes on to the kernel as it is.
 */
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

SHOWN int madvise(void *at, size_t bytes, int advice)
{
    const char *path = advice == MADV_POPULATE_WRITE ? getenv("TEST_WHERE_POPULATED") : NULL;
    int rc = (int)syscall(SYS_madvise, at, bytes, advice);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%d %zu %zu\n", sched_getcpu(), (size_t)at, bytes);
        close(fd);
    }
    return rc;
}
