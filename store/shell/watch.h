/* watch.h: a descriptor that libuv polls for a callback. It lives on its own, so that whoever owns the descriptor can
 * go in the middle of a turn of the loop.
 */
#ifndef BERTH_SHELL_WATCH_H
#define BERTH_SHELL_WATCH_H

#include <uv.h>

struct watch;

/* Calls ready(arg, events) when fd is in one of the UV_READABLE | UV_DISCONNECT events. NULL: no memory or a
 * descriptor that can't be polled. The descriptor must stay open until watch_close. */
struct watch *watch_open(uv_loop_t *loop, int fd, int events, void (*ready)(void *arg, int events), void *arg);
/* No callback comes after it. NULL is passed over. */
void watch_close(struct watch *w);
void watch_pause(struct watch *w);
void watch_resume(struct watch *w);

#endif
