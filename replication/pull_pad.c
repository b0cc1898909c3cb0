/* pull_pad.c: ranges that begin or end within a segment: what lacks of their segments is read too, beside the caller's
 * memory, so that each range can be proved by its own segments and by nothing else of the object. Where there is no
 * pool that the whole could come into, an object without segments is treated as one that has a single segment.
 *
 * Bounds: SCRATCH_ONE bytes beside one transfer, SCRATCH_ALL beside all of them, PARTS_MAX parts to hash.
 */
#include "replication/pull_internal.h"

#define SCRATCH_ONE (16u << 20)
#define SCRATCH_ALL (64u << 20)

struct padding {
    struct pull_range *out; /* NULL: only counted */
    uint32_t n;
    uint64_t size, segment; /* of the object, and of a segment of it */
    uint64_t at;            /* object bytes: end of the stretch that is being made; it begins with a segment */
    bool open;
    uint64_t scratch; /* bytes given */
    uint64_t parts;
};

static void add(struct padding *d, uint64_t offset, uint64_t length, uint64_t to)
{
    if (length == 0) {
        return;
    }
    if (d->out) {
        d->out[d->n] = (struct pull_range){.offset = offset, .length = length, .to = to};
    }
    d->n++;
    d->parts += length / d->segment + 2;
}

static void gap(struct padding *d, uint64_t offset, uint64_t end)
{
    add(d, offset, end - offset, RANGE_SCRATCH | d->scratch);
    d->scratch += end - offset;
}

static uint64_t segment_end(const struct padding *d, uint64_t at)
{
    uint64_t end = (at + d->segment - 1) & ~(d->segment - 1);
    return end < d->size ? end : d->size;
}

static void pad(struct padding *d, const struct fetch *f)
{
    for (uint32_t i = 0; i < f->n_asked; i++) {
        const struct pull_range *r = &f->asked[i];
        if (r->length == 0) {
            continue;
        }
        uint64_t first = r->offset & ~(d->segment - 1);
        if (d->open && r->offset >= d->at && first < d->at) { /* in the segment that the stretch ends in */
            gap(d, d->at, r->offset);
        } else {
            if (d->open) {
                gap(d, d->at, segment_end(d, d->at));
            }
            gap(d, first, r->offset);
        }
        add(d, r->offset, r->length, r->to);
        d->at = r->offset + r->length;
        d->open = true;
    }
    if (d->open) {
        gap(d, d->at, segment_end(d, d->at));
    }
}

void pad_drop(struct puller *p, struct fetch *f)
{
    p->scratch -= f->n_scratch;
    free(f->scratch);
    free(f->padded);
    f->scratch = NULL;
    f->padded = NULL;
    f->n_scratch = 0;
    f->ranges = f->asked;
    f->n_ranges = f->n_asked;
}

bool pad_ranges(struct puller *p, struct fetch *f)
{
    const struct lease_terms *t = &f->lease->terms;
    struct padding count = {.size = t->size, .segment = UINT64_C(1) << prove_shift(t)}, fill = count;
    bool pool = p->config.self != PULL_MEMBER_NONE;
    if ((t->n_sums == 0 && pool) || f->destination != PULL_BUFFER) {
        return false;
    }
    pad(&count, f);
    if (count.scratch > SCRATCH_ONE || count.scratch > SCRATCH_ALL - p->scratch || count.parts > PARTS_MAX) {
        return false;
    }
    fill.out = f->padded = malloc((count.n + 1) * sizeof *f->padded);
    f->scratch = malloc(count.scratch + 1);
    if (!f->padded || !f->scratch) {
        pad_drop(p, f);
        return false;
    }
    pad(&fill, f);
    f->n_scratch = count.scratch;
    p->scratch += count.scratch;
    f->ranges = f->padded;
    f->n_ranges = fill.n;
    return true;
}
