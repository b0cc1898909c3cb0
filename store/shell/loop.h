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

#endif
