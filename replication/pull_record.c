/* pull_record.c: what each transfer's time was spent on, and whose fault it was when it failed. */
#include "replication/pull_internal.h"

#include <errno.h>

static void spend(struct fetch *f, enum pull_phase phase, int64_t ns)
{
    f->record.phase_ns[phase] += ns;
    f->visited |= 1u << phase;
}

static int64_t within(int64_t t, int64_t from, int64_t to)
{
    return t < from ? from : t > to ? to : t;
}

/* The transport has a window and a queue of its own before the transfer, and its last bytes lie there before anybody
 * here sees it. What it did not say of is transfer. */
static void spend_transfer(struct puller *p, struct fetch *f)
{
    int64_t began = within(f->began ? f->began : f->since, f->since, p->mono);
    int64_t ended = within(f->ended ? f->ended : p->mono, began, p->mono);
    spend(f, PULL_QUEUE, began - f->since);
    spend(f, PULL_TRANSFER, ended - began);
    spend(f, PULL_COMPLETE, p->mono - ended);
}

void fetch_phase(struct puller *p, struct fetch *f, enum pull_phase next)
{
    int64_t ns = p->mono - f->since;
    if (f->phase == PULL_TRANSFER) {
        spend_transfer(p, f);
    } else if (f->phase != PULL_PAUSE || ns > 0) { /* every step begins there; one that does not stay was not in it */
        spend(f, f->phase, ns);
    }
    f->phase = next;
    f->since = p->mono;
}

void fetch_phases_end(struct puller *p, struct fetch *f)
{
    fetch_phase(p, f, PULL_PREPARE);
    for (unsigned i = PULL_PREPARE + 1; i < PULL_TOTAL; i++) {
        if (f->visited >> i & 1) {
            histogram_add(&p->phase[i], f->record.phase_ns[i]);
        }
    }
    f->visited = 0;
}

void seek_phase(struct puller *p, struct seek *s, enum pull_phase next)
{
    for (struct list *n = s->fetches.next; n != &s->fetches; n = n->next) {
        fetch_phase(p, CONTAINER(n, struct fetch, in_seek), next);
    }
}

void source_fault(struct puller *p, uint16_t member, enum pull_fault fault)
{
    if (member < p->config.n_members) {
        p->members[member].sums.fault[fault]++;
    }
}

void fetch_fault_at(struct puller *p, struct fetch *f, enum pull_fault fault)
{
    source_fault(p, f->record.member, fault);
}

enum pull_cause cause_of(const struct fetch *f, int status)
{
    switch (status) {
    case -ENOENT:
        return CAUSE_ABSENT;
    case BERTH_EUNSURE:
        return f && f->source_lost ? CAUSE_LOST : CAUSE_UNSURE;
    case BERTH_ENOTNOW:
        return f && f->stale > PULL_STALE_MAX ? CAUSE_STALE : CAUSE_REFUSED;
    case BERTH_ECORRUPT:
        return CAUSE_CORRUPT;
    case BERTH_ELINEAGE:
        return CAUSE_LINEAGE;
    case -ETIMEDOUT:
        return f && f->reserving ? CAUSE_ROOM : CAUSE_DEADLINE;
    case -ECANCELED:
        return CAUSE_CANCELED;
    case BERTH_EFULL:
    case BERTH_EQUOTA:
    case BERTH_EINDEXFULL:
    case -ENOSPC:
    case -EAGAIN:
        return CAUSE_ROOM;
    default:
        return CAUSE_OTHER;
    }
}
