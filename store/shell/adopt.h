/* adopt.h: sessions of an earlier incarnation of the node on this region. */
#ifndef BERTH_SHELL_ADOPT_H
#define BERTH_SHELL_ADOPT_H

#include "store/shell/state.h"

/* Before EV_START: a pin file whose lock is held belongs to a client that lives: its session goes on (EV_ADOPT), its
 * pins count, and it will attach again by itself. A free one is unlinked. 0 or a negative errno. */
int adopt_sessions(struct server *s);

#endif
