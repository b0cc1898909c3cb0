/* query.h: QUERY: a text of any length, handed over in parts of one message each. */
#ifndef BERTH_SHELL_QUERY_H
#define BERTH_SHELL_QUERY_H

#include "store/shell/state.h"

void query_run(struct session *c, const struct msg_query *q);
/* A commit has ended: CHECKs that waited for a moment without one. */
void query_committed(struct server *s);

#endif
