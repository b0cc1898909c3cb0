/* pull_room.c: waiting for room in the local pool. A reservation is shared by all who pull the key, the time that each
 * waits is not.
 */
#include "replication/pull_internal.h"

#include <errno.h>

/* When an item without a deadline has waited long enough. Room may have been lacking before it came: its time is its
 * own, whoever it shares the reservation with. */
static int64_t room_end(const struct fetch *f, const struct item *i)
{
    return (i->came > f->full_since ? i->came : f->full_since) + PULL_ROOM_NS;
}

static bool for_ever(const struct fetch *f, const struct item *i)
{
    return i->request->deadline == INT64_MAX && i->round <= f->round;
}

int64_t fetch_room_until(const struct puller *p, const struct fetch *f)
{
    int64_t until = p->mono + PULL_ROOM_NS;
    for (const struct list *n = f->items.next; n != &f->items; n = n->next) {
        const struct item *i = CONTAINER(n, struct item, node);
        int64_t end = for_ever(f, i) ? room_end(f, i) : until;
        until = end < until ? end : until;
    }
    return until;
}

/* Room is waited for as by a put: to the deadline, and without one for PULL_ROOM_NS. */
bool fetch_waits_for_room(struct puller *p, struct fetch *f, int status)
{
    if (status != -EAGAIN) {
        return false;
    }
    for (struct list *n = f->items.next, *next; n != &f->items; n = next) {
        next = n->next;
        struct item *i = CONTAINER(n, struct item, node);
        if (for_ever(f, i) && p->mono >= room_end(f, i)) {
            fetch_detach(p, f, i, BERTH_EFULL);
        }
    }
    f->reserving = fetch_wanted(f);
    if (f->reserving) {
        out_add(p, &f->reserve, CMD_PULL_RESERVE);
    } else {
        fetch_stop(p, f, AFTER_END, BERTH_EFULL);
    }
    return true;
}
