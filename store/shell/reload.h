/* reload.h: settings that change under a running node. */
#ifndef BERTH_SHELL_RELOAD_H
#define BERTH_SHELL_RELOAD_H

#include "store/shell/server.h"

/* Takes over what of the settings can change while the node runs: high, low, draft-quota, pin-quota, quarantine,
 * spin-us, log-level, log-format; each change is logged. Where another one differs nothing changes: -EINVAL, and why
 * names it and says what to do. On the node's thread. Returns how many changed. */
int server_reload(struct server *s, const struct settings *fresh, char *why, size_t why_size);

#endif
