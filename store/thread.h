/* thread.h: what the library keeps for each thread: where it looks for a free pin entry, its stat lane, its last
 * touches. */
#ifndef BERTH_STORE_THREAD_H
#define BERTH_STORE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#define THREAD_TURN 16u /* gets after which more than a store is due */

struct berth;

#define THREAD_NOBODY ((const struct berth *)(uintptr_t)1) /* no handle, not even one that is NULL */

struct client_thread {
    /* what every get needs */
    const struct berth *fast; /* whose gets take the short way: the handle, but for a get that is to be timed */
    uint32_t n;               /* touches kept */
    uint32_t cursor;          /* pin entry to try first */
    _Alignas(16) uint32_t touch[THREAD_TURN]; /* slot + 1; 0: no touch */
    uint32_t asked;                           /* the node's question that was answered last */

    const struct berth *handle; /* whose gets count here; NULL: a thread without a lane of its own has none */
    uint32_t home;              /* where its pin entries begin: others' releases do not send the cursor below */
    uint32_t lane;
    uint32_t lane_at; /* its bytes in a pin file */
    uint32_t turns;
    bool started;
    bool shared; /* its lane is the last one, which all threads beyond have together */
    uint8_t strangers;
    uint64_t room[4]; /* of the last pull that found no room in the node's pool: its figures; [0] 0: none did since */
};

/* initial-exec: one load, no call, from the shared library too. */
extern __thread struct client_thread client_thread __attribute__((tls_model("initial-exec")));

/* Takes a lane and a cursor of its own; both go back when the thread ends. */
void thread_start(struct client_thread *t);

static inline struct client_thread *thread_self(void)
{
    struct client_thread *t = &client_thread;
    if (__builtin_expect(!t->started, 0)) {
        thread_start(t);
    }
    return t;
}

#endif
