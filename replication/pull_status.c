/* pull_status.c: names, counts, invariants. */
#include "replication/pull_internal.h"

#include <string.h>

const char *const pull_phase_names[PULL_PHASES] = {
    [PULL_PREPARE] = "prepare",   [PULL_HOME] = "home",         [PULL_ADMIT] = "admit",
    [PULL_PAUSE] = "wait",        [PULL_REGISTER] = "register", [PULL_QUEUE] = "queue",
    [PULL_TRANSFER] = "transfer", [PULL_COMPLETE] = "complete", [PULL_PROOF] = "verify",
    [PULL_PUBLISH] = "publish",   [PULL_TOTAL] = "total",
};

const char *const pull_cause_names[PULL_CAUSES] = {
    [CAUSE_ABSENT] = "absent",   [CAUSE_UNSURE] = "unsure",     [CAUSE_LOST] = "lost",
    [CAUSE_STALE] = "stale",     [CAUSE_REFUSED] = "refused",   [CAUSE_CORRUPT] = "corrupt",
    [CAUSE_LINEAGE] = "lineage", [CAUSE_DEADLINE] = "deadline", [CAUSE_CANCELED] = "canceled",
    [CAUSE_ROOM] = "room",       [CAUSE_OTHER] = "other",
};

const char *const pull_fault_names[PULL_FAULTS] = {
    [FAULT_LOST] = "lost",
    [FAULT_STALE] = "stale",
    [FAULT_REFUSED] = "refused",
    [FAULT_CORRUPT] = "corrupt",
};

const char *const pull_counter_names[PULL_COUNTERS] = {
    [PULL_DONE] = "done",
    [PULL_DONE_BYTES] = "done_bytes",
    [PULL_FAILED] = "failed",
    [PULL_SHARED] = "shared",
    [PULL_TRANSFERS] = "transfers_done",
    [PULL_LEASE_HITS] = "lease_hits",
    [PULL_ASKS] = "asks",
    [PULL_ASK_KEYS] = "ask_keys",
    [PULL_LEASES] = "lease_requests",
    [PULL_LEASE_KEYS] = "lease_keys",
    [PULL_GRANTS] = "leases_got",
    [PULL_RENEWS] = "renews",
    [PULL_STATES] = "states",
    [PULL_RELEASES] = "releases",
    [PULL_READS] = "reads",
    [PULL_READ_BYTES] = "read_bytes",
    [PULL_MOVED_BYTES] = "moved_bytes",
    [PULL_COPIED_BYTES] = "copied_bytes",
    [PULL_CANCELLED_READS] = "cancelled_reads",
    [PULL_LATE] = "late",
    [PULL_STALE] = "stale",
    [PULL_MISMATCHES] = "mismatches",
    [PULL_CORRUPT] = "corrupt",
    [PULL_NEXT_SOURCE] = "next_source",
    [PULL_WAITS] = "waits",
    [PULL_VERIFIED] = "verified",
    [PULL_UNVERIFIED] = "unverified",
    [PULL_RPC_TIMEOUTS] = "rpc_timeouts",
    [PULL_BAD_ANSWERS] = "bad_answers",
};

void pull_status(const struct puller *p, struct pull_status *out)
{
    *out = (struct pull_status){.requests = p->requests.count,
                                .keys = p->n_keys,
                                .transfers = p->fetches_by_id.count,
                                .seeks = p->n_seeks,
                                .rpcs = p->rpcs.count,
                                .reads = p->reads.count,
                                .window_bytes = p->flying,
                                .floors = p->floors.count};
    for (const struct list *n = p->fetches.next; n != &p->fetches; n = n->next) {
        const struct fetch *f = CONTAINER(n, struct fetch, all);
        out->reserves += f->reserved || f->reserving;
        out->hashes += f->hashing;
        out->seals += f->state == FETCH_SEAL;
    }
    memcpy(out->counter, p->counter, sizeof out->counter);
    memcpy(out->cause, p->cause, sizeof out->cause);
    memcpy(out->phase, p->phase, sizeof out->phase);
    leases_usage(p->leases, &out->leases);
}

void pull_source(const struct puller *p, uint16_t member, struct pull_source *out)
{
    *out = (struct pull_source){0};
    if (member < p->config.n_members) {
        *out = p->members[member].sums;
        out->in_flight = p->members[member].flying;
        out->transport = p->members[member].transport;
    }
}

static const char *check_fetch(const struct fetch *f, uint64_t *flying, uint64_t *reads, uint64_t *seeking)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (const struct list *r = f->reads.next; r != &f->reads; r = r->next) {
        bytes += CONTAINER(r, struct read, node)->length;
        n++;
    }
    *flying += bytes;
    *reads += n;
    *seeking += f->seek != NULL;
    if (bytes != f->flying || n != f->n_reads) {
        return "a transfer's READs are not those that it counts";
    }
    if (list_empty(&f->items) && f->state != FETCH_QUIET && f->state != FETCH_SEAL) {
        return "nobody waits for a transfer that goes on";
    }
    if ((f->state == FETCH_SEEK) != (f->seek != NULL)) {
        return "a transfer that seeks has no seek, or another has one";
    }
    if (f->state == FETCH_READ && !f->flow && !f->blocked && f->unposted > 0) {
        return "a transfer is forgotten";
    }
    return f->state == FETCH_STATE && !f->rpc ? "nobody was asked for a slot's state" : NULL;
}

/* Each sum by source or cause is its counter. */
static const char *check_sums(const struct puller *p)
{
    struct pull_source all = {0};
    uint64_t failed = 0;
    for (uint16_t i = 0; i < p->config.n_members; i++) {
        const struct pull_source *s = &p->members[i].sums;
        all.leases += s->leases;
        all.reads += s->reads;
        all.transfers += s->transfers;
        all.bytes += s->bytes;
        all.copied += s->copied;
        all.fault[FAULT_STALE] += s->fault[FAULT_STALE];
    }
    for (unsigned i = 0; i < PULL_CAUSES; i++) {
        failed += p->cause[i];
    }
    const uint64_t *c = p->counter;
    if (all.leases != c[PULL_GRANTS] || all.reads != c[PULL_READS] || all.transfers != c[PULL_TRANSFERS] ||
        all.bytes != c[PULL_MOVED_BYTES] || all.copied != c[PULL_COPIED_BYTES] ||
        all.fault[FAULT_STALE] != c[PULL_STALE]) {
        return "the sources' sums are not the counters";
    }
    if (failed != c[PULL_FAILED] || c[PULL_TRANSFERS] > c[PULL_VERIFIED] + c[PULL_UNVERIFIED]) {
        return "the causes are not the failures, or transfers were neither verified nor not";
    }
    return p->phase[PULL_TOTAL].count != c[PULL_DONE] + c[PULL_FAILED] ? "the phases' keys are not those done" : NULL;
}

const char *pull_check(const struct puller *p)
{
    uint64_t flying = 0, reads = 0, seeking = 0, by_member = 0, small = 0;
    for (const struct list *n = p->fetches.next; n != &p->fetches; n = n->next) {
        const char *bad = check_fetch(CONTAINER(n, struct fetch, all), &flying, &reads, &seeking);
        if (bad) {
            return bad;
        }
    }
    for (uint16_t i = 0; i < p->config.n_members; i++) {
        by_member += p->members[i].flying;
        small += p->members[i].small;
    }
    if (flying != p->flying || flying != by_member || small != p->small || small > flying || reads != p->reads.count) {
        return "the windows' bytes are not those of the READs";
    }
    if (p->n_seeks > seeking || p->n_seeks != p->seeks.count) {
        return "a seek has no transfer";
    }
    uint64_t timers = p->config.n_members + p->requests.count + p->fetches_by_id.count + p->rpcs.count;
    if (timers != p->n_timers) {
        return "the timers' places are not those of what may set one";
    }
    struct leases_usage u;
    leases_usage(p->leases, &u);
    return u.granted - u.ended != u.good ? "leases are lost" : check_sums(p);
}
