/* pull_prove.c: from completed to consumable: checksums, and what a wrong one means (rules 21 and 22). */
#include "replication/pull_internal.h"

#include <errno.h>
#include <xxhash.h>

/* The ranges, in the caller's order, are the whole object from its first byte to its last. */
static bool covers_all(const struct fetch *f)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        if (f->ranges[i].length && f->ranges[i].offset != at) {
            return false;
        }
        at += f->ranges[i].length;
    }
    return at == f->record.size;
}

/* Every stretch of ranges that follow each other begins and ends with a segment. */
static bool covers_segments(const struct fetch *f)
{
    const struct lease_terms *t = &f->lease->terms;
    uint64_t mask = (UINT64_C(1) << t->segment_log2) - 1, at = 0, parts = 0;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        const struct pull_range *r = &f->ranges[i];
        if (r->length == 0) {
            continue;
        }
        bool ended = (at & mask) == 0 || at == t->size;
        if (r->offset != at && (!ended || (r->offset & mask) != 0)) {
            return false;
        }
        at = r->offset + r->length;
        parts += (r->length >> t->segment_log2) + 2;
    }
    return ((at & mask) == 0 || at == t->size) && parts <= PARTS_MAX;
}

/* The checksum of an object with segments is that of their list: it proves no payload by itself. */
bool prove_ranges(const struct fetch *f)
{
    return f->lease->terms.n_sums ? covers_segments(f) : covers_all(f);
}

/* Each request's own share counts, also where several wait for one transfer. Where a completion proves nothing by
 * itself, everything is verified: "lease only" is refused there. */
bool prove_wanted(struct puller *p, const struct fetch *f)
{
    if (p->config.unsafe & UNSAFE_NO_VERIFY) {
        return false;
    }
    bool want = !p->members[f->lease->member].proven;
    for (struct list *n = f->items.next; n != &f->items; n = n->next) {
        const struct request *r = CONTAINER(n, struct item, node)->request;
        want = want || (r->flags & PULL_VERIFY) || (r->sample && p->sample_turn++ % r->sample == 0);
    }
    return want;
}

static void accept(struct puller *p, struct fetch *f, bool verified)
{
    f->record.verified = verified;
    p->counter[verified ? PULL_VERIFIED : PULL_UNVERIFIED] += !fetch_only_looks(f);
    fetch_accept(p, f);
}

static void mismatch(struct puller *p, struct fetch *f)
{
    p->counter[PULL_MISMATCHES]++;
    fetch_phase(p, f, PULL_COMPLETE);
    f->state = FETCH_STATE;
    if (!rpc_state(p, f)) {
        fetch_fault(p, f, BERTH_EUNSURE);
    }
}

static void judge(struct puller *p, struct fetch *f, bool match)
{
    if (match) {
        accept(p, f, true);
    } else {
        mismatch(p, f);
    }
}

/* ---- what to hash ---- */

static void add_part(struct fetch *f, uint64_t at, uint64_t length, bool last)
{
    bool scratch = at & RANGE_SCRATCH;
    f->parts[f->n_parts++] = (struct pull_part){
        .at = scratch ? at & ~RANGE_SCRATCH : f->target.at + at, .length = length, .last = last, .scratch = scratch};
}

static void plan_segments(struct fetch *f)
{
    const struct lease_terms *t = &f->lease->terms;
    uint32_t shift = prove_shift(t);
    uint64_t segment = UINT64_C(1) << shift;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        const struct pull_range *r = &f->ranges[i];
        for (uint64_t done = 0; done < r->length;) {
            uint64_t at = r->offset + done, left = segment - (at & (segment - 1));
            uint64_t n = left < r->length - done ? left : r->length - done;
            bool last = n == left || at + n == t->size;
            add_part(f, r->to + done, n, last);
            if (last) {
                f->expect[f->n_sums++] = t->n_sums ? t->sums[at >> shift] : t->checksum;
            }
            done += n;
        }
    }
}

static void plan_whole(struct fetch *f)
{
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        if (f->ranges[i].length) {
            add_part(f, f->ranges[i].to, f->ranges[i].length, false);
        }
    }
    f->parts[f->n_parts - 1].last = true;
    f->expect[f->n_sums++] = f->record.checksum;
}

static uint64_t parts_needed(const struct fetch *f)
{
    const struct lease_terms *t = &f->lease->terms;
    uint64_t parts = f->n_ranges;
    for (uint32_t i = 0; i < f->n_ranges; i++) {
        parts += (f->ranges[i].length >> prove_shift(t)) + 2;
    }
    return parts;
}

static bool plan(struct fetch *f)
{
    uint64_t room = parts_needed(f);
    free(f->parts);
    free(f->expect);
    f->parts = malloc(room * sizeof *f->parts);
    f->expect = malloc(room * sizeof *f->expect);
    f->n_parts = f->n_sums = 0;
    if (!f->parts || !f->expect) {
        return false;
    }
    if (f->lease->terms.n_sums || f->ranges != f->asked) {
        plan_segments(f);
    } else {
        plan_whole(f);
    }
    return true;
}

bool prove_sure(const struct puller *p, const struct fetch *f)
{
    bool sure = f->lease && !p->members[f->lease->member].proven;
    for (const struct list *n = f->items.next; n != &f->items; n = n->next) {
        const struct request *r = CONTAINER(n, struct item, node)->request;
        sure = sure || (r->flags & PULL_VERIFY) || r->sample == 1;
    }
    return sure;
}

void prove_begin(struct puller *p, struct fetch *f)
{
    fetch_phase(p, f, PULL_PROOF);
    if (!f->verifiable || !(f->padded || prove_wanted(p, f))) {
        accept(p, f, false);
    } else if (f->total == 0) {
        judge(p, f, f->record.size > 0 || f->record.checksum == XXH3_64bits("", 0));
    } else if (f->has_piece_sum && f->lease->terms.n_sums == 0) {
        judge(p, f, f->piece_sum == f->record.checksum);
    } else if (!plan(f)) {
        fetch_stop(p, f, AFTER_END, -ENOMEM);
    } else {
        f->state = FETCH_HASH;
        f->hashing = true;
        out_add(p, &f->hash, CMD_PULL_HASH);
    }
}

void prove_hashed(struct puller *p, const struct pull_event *ev)
{
    struct fetch *f = fetch_find(p, ev->id);
    if (!f || !f->hashing) {
        return;
    }
    f->hashing = false;
    if (f->state == FETCH_QUIET) {
        fetch_quiet(p, f);
        return;
    }
    if (ev->status < 0 || ev->n != f->n_sums || !ev->sums) {
        fetch_stop(p, f, AFTER_END, ev->status < 0 ? ev->status : -EIO);
        return;
    }
    bool match = true;
    for (uint32_t i = 0; i < f->n_sums; i++) {
        match = match && ev->sums[i] == f->expect[i];
    }
    judge(p, f, match);
}

/* Rule 21. A wrong checksum within the lease's time: the slot was used again for all that (STALE), or these bytes were
 * damaged on their way (READ once more), or they are wrong where they lie (CORRUPT). */
void prove_stated(struct puller *p, struct fetch *f, int status, uint64_t generation)
{
    if (f->state != FETCH_STATE) {
        return;
    }
    if (status == -ENOENT || (status == 0 && generation != f->lease->terms.generation)) {
        fetch_stale(p, f);
    } else if (status < 0) {
        fetch_fault(p, f, BERTH_EUNSURE);
    } else if (f->rereads++ == 0) {
        read_begin(p, f);
    } else {
        p->counter[PULL_CORRUPT]++;
        f->corrupt_terms = f->lease->terms;
        f->corrupt_terms.sums = NULL;
        f->corrupt_terms.n_sums = 0;
        f->corrupt_member = f->lease->member;
        lease_end(p->leases, f->lease);
        out_add(p, &f->corrupt, CMD_PULL_CORRUPT);
        fetch_fault(p, f, BERTH_ECORRUPT);
    }
}
