/* peers_pull_watch.c: who writes a key that is waited for and that no home knows: every member is asked, and this
 * node's own core. Homes hear of what is sealed, so nothing else says that a writer has given up, or is at it at all.
 *
 * LEASE with WAIT of one key: the owner answers when it is sealed there, or its writer is lost, at once where nobody
 * writes it. What it grants is given back: the pull finds it through the homes, in a moment. Bounds: one such question
 * a transfer that waits, WATCH_NS long, to each member.
 */
#include "store/berth.h"
#include "store/shell/peers_pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_NS INT64_C(1000000000)
#define WATCH_SLACK_NS INT64_C(500000000) /* an answer's way back */

struct watching {
    struct taking *part;
    uint64_t id;    /* of the WATCH */
    uint32_t waits; /* answers that are to come */
};

struct watch_reply {
    struct watching *watching;
    uint16_t member;
};

static void watching_leave(struct watching *w)
{
    if (--w->waits == 0)
        free(w);
}

/* One answer less is to come. Any context. */
static void tell_watched(struct watching *w, int status)
{
    struct told *t = pull_told_plain(w->part, EV_PULL_WATCHED, w->id, status);
    t->ev.n = w->waits - 1;
    watching_leave(w);
}

static void give_back(struct peers *p, uint16_t member, uint64_t lease)
{
    struct wire_message m;
    struct wire_writer w;
    struct link *l = link_of(p, member);
    memset(&m, 0, sizeof m);
    m.head.op = WIRE_RELEASE;
    struct wire_item item = {.release = {.lease = lease}};
    if (l && wire_begin(&w, p->buffer, sizeof p->buffer, &m) == 0 && wire_add(&w, &item) == 0) {
        long n = wire_end(&w);
        if (n > 0)
            link_tell(l, p->buffer, (size_t)n);
    }
}

static void answered(void *arg, int32_t status, const struct wire_message *m, struct wire_reader *items)
{
    struct watch_reply *r = arg;
    struct wire_item item;
    if (status == 0 && m && wire_next(items, &item) == 1) {
        status = item.leased.status;
        if (status == 0)
            give_back(r->watching->part->peers, r->member, item.leased.lease.id);
    } else {
        status = status ? status : -ECONNRESET;
    }
    tell_watched(r->watching, status);
    free(r);
}

static void ask_member(struct watching *w, uint16_t member, const struct key_ref *key, int64_t until)
{
    struct peers *p = w->part->peers;
    struct watch_reply *r = pull_memory(sizeof *r);
    struct wire_message m;
    struct wire_writer out;
    struct wire_item item;
    memset(&m, 0, sizeof m);
    memset(&item, 0, sizeof item);
    m.head.op = WIRE_LEASE;
    m.head.flags = WIRE_WAIT;
    item.key = *key;
    *r = (struct watch_reply){.watching = w, .member = member};
    w->waits++;
    int e = wire_begin(&out, p->buffer, sizeof p->buffer, &m);
    e = e ? e : wire_add(&out, &item);
    long n = e ? e : wire_end(&out);
    if (n < 0 || link_ask(p, member, p->buffer, (size_t)n, until, until, answered, r) < 0) {
        w->waits--;
        free(r);
    }
}

static void waited(void *arg, unsigned state)
{
    tell_watched(arg, state == WAIT_READY     ? 0
                      : state == WAIT_ABORTED ? BERTH_EABORTED
                      : state == WAIT_DIED    ? BERTH_EDIED
                                              : -ENOENT);
}

static void dropped(void *arg)
{
    watching_leave(arg);
}

void pull_watch(struct taking *q, const struct pull_command *c)
{
    struct peers *p = q->peers;
    struct watching *w = pull_memory(sizeof *w);
    int64_t until = peers_mono(p) + WATCH_NS;
    *w = (struct watching){.part = q, .id = c->id, .waits = 1};
    for (uint32_t i = 0; i < p->n_members; i++) {
        if (i != p->self && p->members[i].link)
            ask_member(w, (uint16_t)i, &c->keys[0].key, until + WATCH_SLACK_NS);
    }
    if (p->client) /* no core: nothing is written here */
        tell_watched(w, -ENOENT);
    else
        core_wait(q, &c->keys[0].key, false, until, waited, dropped, w); /* has the place that w began with */
}
