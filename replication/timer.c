/* timer.c: see timer.h. */
#include "replication/timer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

int timers_reserve(struct timers *ts, uint32_t n)
{
    if (n <= ts->room) {
        return 0;
    }
    uint32_t room = ts->room ? ts->room : 64;
    while (room < n) {
        room *= 2;
    }
    struct timer **heap = realloc(ts->heap, room * sizeof(*heap));
    if (!heap) {
        return -ENOMEM;
    }
    ts->heap = heap;
    ts->room = room;
    return 0;
}

void timers_destroy(struct timers *ts)
{
    free(ts->heap);
    *ts = (struct timers){0};
}

static bool before(const struct timer *a, const struct timer *b)
{
    return a->when != b->when ? a->when < b->when : a->turn < b->turn;
}

static void place(struct timers *ts, struct timer *t, uint32_t at)
{
    ts->heap[at] = t;
    t->at = at + 1;
}

static void up(struct timers *ts, struct timer *t, uint32_t at)
{
    while (at > 0 && before(t, ts->heap[(at - 1) / 2])) {
        place(ts, ts->heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    place(ts, t, at);
}

static void down(struct timers *ts, struct timer *t, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < ts->count && before(ts->heap[child + 1], ts->heap[child])) {
            child++;
        }
        if (child >= ts->count || !before(ts->heap[child], t)) {
            break;
        }
        place(ts, ts->heap[child], at);
        at = child;
    }
    place(ts, t, at);
}

void timers_clear(struct timers *ts, struct timer *t)
{
    if (t->at == 0) {
        return;
    }
    uint32_t at = t->at - 1;
    struct timer *last = ts->heap[--ts->count];
    t->at = 0;
    if (last != t) {
        down(ts, last, at);
        up(ts, last, last->at - 1);
    }
}

void timers_set(struct timers *ts, struct timer *t, int64_t when)
{
    timers_clear(ts, t);
    if (when == INT64_MAX || ts->count >= ts->room) {
        return;
    }
    t->when = when;
    t->turn = ++ts->turn;
    up(ts, t, ts->count++);
}

struct timer *timers_due(struct timers *ts, int64_t now)
{
    struct timer *t = ts->count ? ts->heap[0] : NULL;
    if (!t || t->when > now) {
        return NULL;
    }
    timers_clear(ts, t);
    return t;
}

int64_t timers_next(const struct timers *ts)
{
    return ts->count ? ts->heap[0]->when : INT64_MAX;
}
