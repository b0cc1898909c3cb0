/* baton.c: see baton.h. */
#include "store/shell/baton.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PARK_NS INT64_C(200000)        /* what is left undone waits so long at most .. */
#define PARK_MAX_NS INT64_C(100000000) /* .. but while one caller drives on, nothing is: its end ends the park */
#define CLOSE_NS INT64_C(50000)        /* callers that come within this of each other spare the node's thread */
#define GAP_MAX_NS INT64_C(150000)     /* one pause does not make a caller a stranger */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool take(struct baton *b)
{
    return atomic_load_explicit(&b->taken, memory_order_relaxed) == 0 && atomic_exchange(&b->taken, 1) == 0;
}

static bool callers_are_close(struct baton *b)
{
    return atomic_load_explicit(&b->gap_ns, memory_order_relaxed) < CLOSE_NS;
}

bool baton_take(struct baton *b)
{
    if (!take(b))
        return false;
    int64_t gap = now_ns() - atomic_load_explicit(&b->given, memory_order_relaxed);
    int64_t mean = atomic_load_explicit(&b->gap_ns, memory_order_relaxed);
    gap = gap < GAP_MAX_NS ? gap : GAP_MAX_NS;
    atomic_store_explicit(&b->gap_ns, mean + (gap - mean) / 4, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->drives, 1, memory_order_relaxed);
    return true;
}

/* The baton first, then a look at the park; the node's thread says how long it parks first, then looks at the baton.
 * One of the two sees the other. */
bool baton_give(struct baton *b)
{
    atomic_store_explicit(&b->given, now_ns(), memory_order_relaxed);
    atomic_store(&b->taken, 0);
    int64_t parked = atomic_load(&b->parked_ns);
    if (parked && (parked > PARK_NS || !callers_are_close(b)))
        baton_unpark(b);
    return parked != 0;
}

void baton_leave(struct baton *b)
{
    atomic_store(&b->taken, 0);
}

void baton_unpark(struct baton *b)
{
    atomic_fetch_add(&b->unpark, 1);
    syscall(SYS_futex, &b->unpark, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool expects_a_caller(struct baton *b)
{
    return callers_are_close(b) && now_ns() - atomic_load_explicit(&b->given, memory_order_relaxed) < CLOSE_NS;
}

/* A long park is ended by the caller whose drive it outlasts, who gives the baton back and then looks at parked_ns. So
 * nobody parks for long who finds the baton free: then that look may have been before. */
void baton_regain(struct baton *b)
{
    int64_t ns = PARK_NS;
    uint64_t drive = atomic_load_explicit(&b->drives, memory_order_relaxed);
    for (;;) {
        uint32_t seen = atomic_load(&b->unpark);
        atomic_store(&b->parked_ns, ns);
        bool expected = expects_a_caller(b);
        if (!expected && take(b))
            break;
        int64_t wait = expected ? PARK_NS : ns;
        struct timespec ts = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
        syscall(SYS_futex, &b->unpark, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
        uint64_t latest = atomic_load_explicit(&b->drives, memory_order_relaxed);
        bool same = latest == drive && atomic_load_explicit(&b->taken, memory_order_relaxed);
        ns = !same ? PARK_NS : 2 * ns < PARK_MAX_NS ? 2 * ns : PARK_MAX_NS;
        drive = latest;
    }
    atomic_store(&b->parked_ns, 0);
}
