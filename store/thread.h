/* thread.h: what the library keeps for each thread: where it looks for a free pin entry, its stat lane, its last touches. */
#ifndef BERTH_STORE_THREAD_H
#define BERTH_STORE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#define THREAD_TOUCHES 16u /* gets whose touches go to the node together */

struct client_thread {
    bool started;
    bool shared;     /* its lane is the last one, which all threads beyond have together */
    uint8_t strangers;
    uint8_t n_touches;
    uint32_t lane;
    uint32_t cursor; /* entry to try first */
    uint32_t home;   /* where its entries begin: others' releases do not send it below */
    uint32_t gets;
    uint32_t last_touch;
    uint64_t handle; /* whose touches stand below */
    uint32_t touch[THREAD_TOUCHES];
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
