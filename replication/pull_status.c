/* pull_status.c: names, counts, invariants. */
#include "replication/pull_internal.h"

#include <string.h>

const char *const pull_phase_names[PULL_PHASES] = {
    [PULL_PREPARE] = "prepare", [PULL_REGISTER] = "register", [PULL_ADMIT] = "admit",
    [PULL_QUEUE] = "queue",     [PULL_TRANSFER] = "transfer", [PULL_COMPLETE] = "complete",
    [PULL_PROOF] = "verify",    [PULL_PUBLISH] = "publish",   [PULL_TOTAL] = "total",
};

const char *const pull_counter_names[PULL_COUNTERS] = {
    [PULL_DONE] = "done",
    [PULL_DONE_BYTES] = "done_bytes",
    [PULL_FAILED] = "failed",
    [PULL_SHARED] = "shared",
    [PULL_LEASE_HITS] = "lease_hits",
    [PULL_ASKS] = "asks",
    [PULL_ASK_KEYS] = "ask_keys",
    [PULL_LEASES] = "leases",
    [PULL_LEASE_KEYS] = "lease_keys",
    [PULL_RENEWS] = "renews",
    [PULL_STATES] = "states",
    [PULL_RELEASES] = "releases",
    [PULL_READS] = "reads",
    [PULL_READ_BYTES] = "read_bytes",
    [PULL_CANCELLED_READS] = "cancelled_reads",
    [PULL_LATE] = "late",
    [PULL_STALE] = "stale",
    [PULL_MISMATCHES] = "mismatches",
    [PULL_CORRUPT] = "corrupt",
    [PULL_NEXT_SOURCE] = "next_source",
    [PULL_WAITS] = "waits",
    [PULL_VERIFIED] = "verified",
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
    memcpy(out->phase, p->phase, sizeof out->phase);
    leases_usage(p->leases, &out->leases);
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
    return u.granted - u.ended != u.good ? "leases are lost" : NULL;
}
