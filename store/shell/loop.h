/* loop.h: the turn of the node: rings, timers, commits; polling while that pays, sleeping otherwise. */
#ifndef BERTH_SHELL_LOOP_H
#define BERTH_SHELL_LOOP_H

#include "store/shell/state.h"

/* The timer of the core and the executor's signal. 0 or a negative errno. */
int loop_open(struct server *s);
void loop_close(struct server *s);
/* Takes the most that it may spin from the settings. */
void loop_spin(struct server *s);
/* Until the core says that it has stopped. */
void loop_run(struct server *s);
/* A caller's thread turns the loop instead of the node's (baton.h) until done(arg), `until` (CLOCK_MONOTONIC ns), or
 * the node stops. False at once where the node's thread is at work, or is not to be shared. */
bool loop_drive(struct server *s, bool (*done)(void *arg), void *arg, int64_t until);

#endif
