/* relay.h: a wire between two nodes that a test can slow down, hold and cut: a thread that listens on a port and passes
 * on what comes to another, lane by lane of the TCP transport.
 *
 * A node is put behind it by having the relay's port in the members' list and listening on its own. Whoever connects
 * through it is at the near end.
 */
#ifndef BERTH_TESTS_RELAY_H
#define BERTH_TESTS_RELAY_H

#include "tests/support/ports.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RELAY_FREE 0
#define RELAY_HOLD (-1)

enum relay_lane { RELAY_CONTROL, RELAY_BULK };
enum relay_way { RELAY_OUT, RELAY_BACK }; /* from who connected; to it */

struct relay {
    uint16_t port;                   /* of 127.0.0.1, listened on */
    uint16_t target;                 /* of 127.0.0.1, passed on to */
    _Atomic int64_t rate[2][2];      /* [lane][way]: bytes per second, RELAY_FREE or RELAY_HOLD */
    _Atomic uint64_t moved[2][2];    /* bytes so far */
    _Atomic unsigned accepted, open; /* connections so far, and now */
    _Atomic bool cut;                /* set by the test: all connections are closed, then it is false again */
    atomic_bool stop;
    int listener;
    pthread_t thread;
};

void relay_start(struct relay *r, uint16_t target);
void relay_stop(struct relay *r); /* closes what is open */

void relay_rate(struct relay *r, enum relay_lane lane, enum relay_way way, int64_t rate);
void relay_all(struct relay *r, int64_t rate);

#endif
