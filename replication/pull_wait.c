/* pull_wait.c: who waits for a transfer: items that join one, and leave it. */
#include "replication/pull_internal.h"
#include "store/zeroed.h"

#include <errno.h>
#include <string.h>

bool fetch_wanted(const struct fetch *f)
{
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        if (CONTAINER(n, struct item, node)->round <= f->round) {
            return true;
        }
    }
    return false;
}

bool fetch_hold(struct fetch *f)
{
    f->hold = true;
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        f->hold = f->hold && !CONTAINER(n, struct item, node)->released;
    }
    return f->hold;
}

void fetch_detach(struct puller *p, struct fetch *f, struct item *i, int status)
{
    list_remove(&i->node);
    item_done(p, i, status == BERTH_ELINEAGE ? f : NULL, status);
}

/* After items have left: the last one takes the transfer with it, unless it is past every return. */
static void thin(struct puller *p, struct fetch *f)
{
    if (f->state == FETCH_ENDED || f->state == FETCH_SEAL) {
        return;
    }
    if (!fetch_wanted(f)) {
        fetch_stop(p, f, AFTER_END, -ECANCELED);
        return;
    }
    if (f->flow) {
        flow_remove(p, f);
        flow_add(p, f);
    }
    if (f->hold && !fetch_hold(f)) {
        fetch_release(p, f);
    }
}

/* A buffer is the caller's again when nothing writes to it any more; a slot of the pool is not the caller's at all. */
void fetch_leave(struct puller *p, struct item *i, int status)
{
    struct fetch *f = i->fetch;
    if (!f) {
        item_done(p, i, NULL, status);
    } else if (f->destination == PULL_BUFFER) {
        i->left = i->left ? i->left : status;
        fetch_stop(p, f, AFTER_END, status);
    } else {
        bool all = p->config.unsafe & UNSAFE_KEEP_WAITERS;
        fetch_detach(p, f, i, status);
        if (all && f->state != FETCH_ENDED && f->state != FETCH_SEAL) {
            fetch_stop(p, f, AFTER_END, -ECANCELED);
        } else {
            thin(p, f);
        }
    }
}

static struct fetch *find_replica(struct puller *p, const struct keybox *key)
{
    for (struct pull_link *l = pull_table_first(&p->fetches_by_key, key->hash); l; l = pull_table_next(l)) {
        struct fetch *f = CONTAINER(l, struct fetch, by_key);
        if (key_same(f->key, key)) {
            return f;
        }
    }
    return NULL;
}

static bool copy_ranges(struct fetch *f, const struct pull_key *k)
{
    f->asked = f->ranges = &f->whole;
    f->n_asked = f->n_ranges = 1;
    if (k->n_ranges == 0) {
        return true;
    }
    struct pull_range *r = malloc(k->n_ranges * sizeof *r);
    if (!r) {
        return false;
    }
    memcpy(r, k->ranges, k->n_ranges * sizeof *r);
    f->asked = f->ranges = r;
    f->n_asked = f->n_ranges = k->n_ranges;
    return true;
}

static struct fetch *fetch_new(struct puller *p, const struct item *i, const struct pull_key *k, struct keybox *key)
{
    struct fetch *f = timer_room(p) ? zeroed(sizeof *f) : NULL;
    if (!f || !copy_ranges(f, k)) {
        free(f);
        return NULL;
    }
    p->n_timers++;
    f->id = ++p->serial;
    f->key = key_keep(key);
    f->destination = i->request->destination;
    f->target = (struct pull_target){.kind = f->destination, .name = k->buffer, .at = k->to};
    f->room = k->room;
    f->here = k->here;
    f->timer.kind = TIMER_FETCH;
    f->record.member = PULL_MEMBER_NONE;
    f->phase = PULL_PREPARE;
    f->since = p->mono;
    list_init(&f->items);
    list_init(&f->reads);
    list_push(&p->fetches, &f->all);
    pull_table_add(&p->fetches_by_id, &f->by_id, f->id);
    if (f->destination == PULL_REPLICA) {
        pull_table_add(&p->fetches_by_key, &f->by_key, key->hash);
    }
    return f;
}

/* A transfer under way serves a newcomer, but one that is being given up, or that began before a FRESH was asked for:
 * then another begins when it has ended. */
static void join(struct puller *p, struct item *i, const struct pull_key *k, struct fetch *f)
{
    bool fresh = (i->request->flags & PULL_FRESH) && f->state != FETCH_PAUSE;
    bool late = (f->state == FETCH_QUIET && f->after == AFTER_END) || fresh;
    bool other = f->lease && i->request->lineage && f->lease->terms.lineage != i->request->lineage;
    p->counter[PULL_SHARED]++;
    if (i->request->flags & PULL_FRESH) {
        f->here = k->here;
    }
    i->fetch = f;
    i->round = f->round + late;
    i->late = true;
    list_push(&f->items, &i->node);
    if (late) {
        return;
    }
    if (other) {
        fetch_detach(p, f, i, BERTH_ELINEAGE);
        return;
    }
    if (f->lease || (f->seek && f->seek->held)) {
        item_located(p, i);
    }
    if (f->hold && !fetch_hold(f)) {
        fetch_release(p, f);
    } else if (f->state == FETCH_PAUSE && (i->request->flags & (PULL_WAIT | PULL_FRESH)) != PULL_WAIT) {
        fetch_again(p, f);
    } else if (f->seek && f->seek->parked) {
        item_parked(p, i);
    }
}

void fetch_join(struct puller *p, struct item *i, const struct pull_key *k, struct keybox *key)
{
    struct fetch *f = i->request->destination == PULL_REPLICA ? find_replica(p, key) : NULL;
    if (f) {
        join(p, i, k, f);
        return;
    }
    if (!(f = fetch_new(p, i, k, key))) {
        item_done(p, i, NULL, -ENOMEM);
        return;
    }
    i->fetch = f;
    list_push(&f->items, &i->node);
    fetch_begin(p, f);
}
