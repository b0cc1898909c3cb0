/* clock.c: what a node's clocks say. All of a host's run at its own rate; CLOCK_MONOTONIC is slewed besides; RAW and
 * MONOTONIC stand still while the host sleeps, and BOOTTIME too while a virtual machine is stopped. */
#include "tests/sim/nodes/nodes.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

static int64_t at_rate(int64_t ns, int32_t ppm)
{
    return ns + ns / 1000000 * ppm + ns % 1000000 * ppm / 1000000;
}

static int64_t awake(const struct member_node *n)
{
    int64_t now = n->asleep_at ? n->asleep_at : world->now;
    return now - world->began - n->slept - n->uncounted;
}

int64_t clock_mono(const struct member_node *n)
{
    return n->mono_base + at_rate(awake(n), n->mono_ppm);
}

static int64_t clock_raw(const struct member_node *n)
{
    return n->raw_base + at_rate(awake(n), n->raw_ppm);
}

static int64_t clock_boot(const struct member_node *n)
{
    return n->boot_base + at_rate(awake(n) + n->slept, n->mono_ppm);
}

int64_t clock_world(const struct member_node *n, int64_t mono)
{
    if (mono == INT64_MAX)
        return INT64_MAX;
    int64_t left = mono - clock_mono(n);
    return left <= 0 ? world->now : world->now + left + left / 1000 * (n->mono_ppm < 0 ? -n->mono_ppm : 0) / 1000 + 1;
}

struct node_now clock_now(const struct member_node *n)
{
    struct node_now now = {.mono = clock_mono(n),
                           .boot = clock_boot(n),
                           .raw = clock_raw(n),
                           .wall_us = UINT64_C(1700000000000000) + (uint64_t)(world->now - world->began) / 1000 +
                                      n->number * 7000u};
    if (lies(LIE_CLOCK))
        now.raw = now.mono;
    return now;
}

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    struct member_node *n = world ? world->in : NULL;
    if (!n)
        return __real_clock_gettime(id, t);
    if (n->preempt && --n->preempt == 0)
        world->now += 1 + (int64_t)below(12) * MS;
    int64_t ns = id == CLOCK_MONOTONIC_RAW ? clock_raw(n) : id == CLOCK_BOOTTIME ? clock_boot(n) : clock_mono(n);
    if (id == CLOCK_BOOTTIME && lies(LIE_ASLEEP))
        ns -= at_rate(n->slept, n->mono_ppm);
    *t = (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
    return 0;
}

/* The home's hash seed. */
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags)
{
    uint64_t r = draw();
    (void)flags;
    memset(buf, 0, n);
    memcpy(buf, &r, n < sizeof r ? n : sizeof r);
    return (ssize_t)n;
}
