/* A wall clock that is stepped: TEST_WALL_CLOCK names a file with the seconds, an int64_t, that it is off. Whoever has
 * mapped the file steps it. The other clocks are as they are.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

static const int64_t *off;

__attribute__((constructor)) static void find_file(void)
{
    const char *path = getenv("TEST_WALL_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, fd, 0);
    off = at == MAP_FAILED ? NULL : at;
    if (fd >= 0) {
        close(fd);
    }
}

SHOWN int clock_gettime(clockid_t id, struct timespec *t)
{
    long rc = syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && off && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        t->tv_sec += *(const volatile int64_t *)off;
    }
    return (int)rc;
}

SHOWN time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) {
        *out = t.tv_sec;
    }
    return t.tv_sec;
}

SHOWN int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return 0;
}
