#include "store/shell/watch.h"

#include <stdlib.h>

struct watch {
    uv_poll_t poll;
    int events;
    void (*ready)(void *arg, int events);
    void *arg;
};

static void watch_fired(uv_poll_t *poll, int status, int events)
{
    struct watch *w = poll->data;
    /* An error of the descriptor is a reason to look too: the owner finds out by using it. */
    w->ready(w->arg, status < 0 ? w->events : events);
}

static void watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

struct watch *watch_open(uv_loop_t *loop, int fd, int events, void (*ready)(void *arg, int events), void *arg)
{
    struct watch *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->events = events;
    w->ready = ready;
    w->arg = arg;
    if (uv_poll_init(loop, &w->poll, fd) != 0) {
        free(w);
        return NULL;
    }
    w->poll.data = w;
    if (uv_poll_start(&w->poll, events, watch_fired) != 0) {
        uv_close((uv_handle_t *)&w->poll, watch_closed);
        return NULL;
    }
    return w;
}

void watch_close(struct watch *w)
{
    if (w)
        uv_close((uv_handle_t *)&w->poll, watch_closed);
}

void watch_pause(struct watch *w)
{
    uv_poll_stop(&w->poll);
}

void watch_resume(struct watch *w)
{
    uv_poll_start(&w->poll, w->events, watch_fired);
}
