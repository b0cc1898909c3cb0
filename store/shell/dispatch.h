/* dispatch.h: events into the core, its commands carried out. */
#ifndef BERTH_SHELL_DISPATCH_H
#define BERTH_SHELL_DISPATCH_H

#include "store/shell/state.h"

/* Hands an event to the core, carries out what it commands, then the events that came of that. Called while commands
 * are being carried out, it keeps an event without pointers for afterwards. */
void dispatch(struct server *s, const struct node_event *ev);
/* EV_TURN, if anything has happened since the last. Whether it was given. */
bool dispatch_turn(struct server *s);
/* Gives the core the commit that the executor has finished. Whether there was one. */
bool dispatch_committed(struct server *s);

#endif
