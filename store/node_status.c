/* node_status.c: the core's counters and gauges for reports. */
#include "store/node_internal.h"

#include <string.h>

const char *const node_counter_names[NODE_COUNTERS] = {
    [NODE_PUTS] = "puts",
    [NODE_PUT_BYTES] = "put_bytes",
    [NODE_KEPT] = "puts_kept",
    [NODE_REPLACED] = "replaced",
    [NODE_REMOVED] = "removed",
    [NODE_EVICTED] = "evicted",
    [NODE_EVICTED_BYTES] = "evicted_bytes",
    [NODE_ABORTED_WRITES] = "aborted_writes",
    [NODE_ABORTS] = "aborts",
    [NODE_GRANTS] = "grants",
    [NODE_CREATES] = "creates",
    [NODE_SEALS] = "seals",
    [NODE_GROUPS] = "groups",
    [NODE_FINDS] = "finds",
    [NODE_STATS] = "stats",
    [NODE_LISTS] = "lists",
    [NODE_HOLDS] = "holds",
    [NODE_DROPS] = "drops",
    [NODE_REFUSED_FULL] = "refused_full",
    [NODE_REFUSED_INDEX] = "refused_index_full",
    [NODE_REFUSED_HELD] = "refused_held",
    [NODE_REFUSED_STALE] = "refused_stale",
    [NODE_REFUSED_QUOTA] = "refused_quota",
    [NODE_REFUSED_READONLY] = "refused_read_only",
    [NODE_REFUSED_OTHER] = "refused_other",
    [NODE_TIMEOUTS] = "timeouts",
    [NODE_COMMITS] = "commits",
    [NODE_COMMIT_OPS] = "commit_operations",
    [NODE_COMMIT_FAILED] = "commits_failed",
    [NODE_SCANS] = "scans",
    [NODE_SCANNED_SLOTS] = "scanned_slots",
    [NODE_RETIRED] = "retired",
    [NODE_FREED] = "freed",
    [NODE_STALLS] = "stalls",
    [NODE_INDEX_ONLY] = "index_only",
    [NODE_WAITS] = "waits",
    [NODE_HOLDS_EXPIRED] = "holds_expired",
    [NODE_SESSIONS_OPENED] = "sessions_opened",
    [NODE_SESSIONS_DEAD] = "sessions_ended",
    [NODE_RECOVERED] = "recovered",
    [NODE_RECOVERED_DROPPED] = "recovered_dropped",
    [NODE_LEASES] = "leases_given",
    [NODE_LEASE_REFUSED] = "leases_refused",
    [NODE_LEASE_RENEWALS] = "lease_renewals",
    [NODE_LEASE_RELEASES] = "lease_releases",
    [NODE_LEASE_EXPIRED] = "leases_expired",
    [NODE_LEASE_RECALLS] = "lease_recalls",
    [NODE_LEASE_USES] = "lease_uses",
    [NODE_SERVES] = "serves",
    [NODE_COPIES_DROPPED] = "copies_dropped",
    [NODE_HOLDS_LOST] = "holds_lost",
    [NODE_TAKEN] = "versions_taken",
    [NODE_TOMBSTONES_KNOWN] = "tombstones_known",
    [NODE_TOMBSTONES_LOST] = "tombstones_lost",
    [NODE_COPIES] = "copies",
    [NODE_COPY_BYTES] = "copy_bytes",
    [NODE_PURGES] = "purges",
    [NODE_PURGED] = "purged",
    [NODE_PASTS_TOLD] = "pasts_told",
    [NODE_PASTS_NOTED] = "pasts_noted",
};

const char *const node_phase_names[PHASES] = {"queue", "space", "decide", "batch", "commit", "publish", "total"};

void node_status(const struct node *n, struct node_status *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->counter, n->counters, sizeof out->counter);
    memcpy(out->phase, n->phase, sizeof out->phase);
    slabs_usage(n->slabs, &out->slabs);
    n->c.index->usage(n->c.ix, &out->index);
    out->objects = n->objects;
    out->sealed_bytes = n->sealed_bytes;
    out->object_bytes = n->object_bytes;
    out->drafts = n->drafts;
    out->draft_bytes = n->draft_bytes;
    out->grants = n->grants;
    out->retired = n->fresh.count + (uint64_t)n->waiting.count + n->leased.count;
    out->retired_bytes = n->retired_bytes;
    out->held = n->held;
    out->tombstones = (uint64_t)n->tombs.ending.count + n->tombs.waiting.count;
    out->tombstones_unknown = n->tombs.waiting.count;
    out->leases = n->lease.count;
    out->leased_bytes = n->lease.bytes;
    out->leased_idle_bytes = n->lease.idle_bytes + n->lease.asked_bytes;
    out->serves = n->lease.serves;
    out->closed_ns = n->lease.closed_until ? n->lease.closed_until - n->now.boot : 0;
    for (uint32_t i = 0; i < n->n_sessions; i++) {
        out->sessions += !n->session[i]->dead && n->session[i]->id != NODE_PULLER;
    }
    out->high_bytes = n->c.high_bytes;
    out->low_bytes = n->c.low_bytes;
    out->waiting = n->n_waiters;
    out->purges = n->n_purges;
    out->slot_state_bytes = n->policy->slot_bytes + n->side_bytes / n->max_headers;
    out->remembered = n->fates.count;
    out->remembered_max = FATES_MAX;
    out->remembered_bytes = FATES_MAX * sizeof(struct fate);
}

uint32_t node_classes(const struct node *n, struct slabs_class *out, uint32_t max)
{
    return slabs_classes(n->slabs, out, max);
}

uint64_t node_holds_lost(const struct node *n)
{
    return n->counters[NODE_HOLDS_LOST];
}

uint64_t node_lease_uses(const struct node *n)
{
    return n->counters[NODE_LEASE_USES];
}

uint64_t node_meta(const struct node *n, enum meta_number which)
{
    return n->c.index->meta(n->c.ix, which);
}
