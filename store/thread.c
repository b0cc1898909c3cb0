/* thread.c: see thread.h. Lanes are numbered through the process: a thread has the same one in every handle. */
#include "store/thread.h"

#include "store/layout.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* Threads begin this far apart in a pin table, on cache lines of their own. */
#define CURSOR_STRIDE (PINS_SEGMENT / STAT_LANES)
/* Not at the same offset in their page as the thread's counters: a load whose low 12 address bits are those of a store
 * before it waits for that store. */
#define CURSOR_OFFSET (CURSOR_STRIDE / 2)

_Static_assert(STAT_LANES == 64, "one word has a bit for each lane");

__thread struct client_thread client_thread = {.fast = THREAD_NOBODY};

/* Of this process: a forked child has one thread of its parent's, and counts anew in handles of its own. */
static _Atomic uint64_t lanes_taken;
static _Atomic uint32_t sharers;
static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;

static void thread_end(void *value)
{
    struct client_thread *t = value;
    if (!t->shared) {
        atomic_fetch_and_explicit(&lanes_taken, ~(UINT64_C(1) << t->lane), memory_order_release);
    }
    t->started = false;
    t->handle = NULL;
    t->fast = THREAD_NOBODY;
}

/* Of the parent's threads only the one that forked is here. It starts over when it next needs a lane: its old one, or
 * its cursor, may be what another thread of the child has by then. */
static void forget_parents(void)
{
    atomic_store_explicit(&lanes_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&sharers, 0, memory_order_relaxed);
    client_thread = (struct client_thread){.fast = THREAD_NOBODY};
    pthread_setspecific(end_key, NULL);
}

static void make_key(void)
{
    pthread_key_create(&end_key, thread_end);
    pthread_atfork(NULL, NULL, forget_parents);
}

static uint32_t take_lane(void)
{
    uint64_t taken = atomic_load_explicit(&lanes_taken, memory_order_relaxed);
    for (;;) {
        uint32_t lane = ~taken ? (uint32_t)__builtin_ctzll(~taken) : STAT_LANES - 1;
        if (lane == STAT_LANES - 1) {
            return lane;
        }
        /* Acquire: the counters that the lane's last owner stored are read, then added to, by this thread. */
        if (atomic_compare_exchange_weak_explicit(&lanes_taken, &taken, taken | UINT64_C(1) << lane,
                                                  memory_order_acquire, memory_order_relaxed)) {
            return lane;
        }
    }
}

void thread_start(struct client_thread *t)
{
    pthread_once(&end_once, make_key);
    t->lane = take_lane();
    t->lane_at = (uint32_t)(offsetof(struct pins_file, lane) + t->lane * sizeof(struct stat_lane));
    t->shared = t->lane == STAT_LANES - 1;
    uint32_t place = t->shared ? t->lane + atomic_fetch_add_explicit(&sharers, 1, memory_order_relaxed) : t->lane;
    t->cursor = t->home = place % STAT_LANES * CURSOR_STRIDE + CURSOR_OFFSET;
    t->started = true;
    pthread_setspecific(end_key, t);
}
