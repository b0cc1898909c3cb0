/* api_range.c: copies out of an object: get_into, get_range. */
#include "store/pull.h"
#include "store/read.h"
#include "store/remote.h"

#include <errno.h>
#include <string.h>

static long copy_out(struct berth *b, struct client_thread *t, const struct berth_key *key, void *buffer, size_t size,
                     unsigned flags, int64_t deadline)
{
    struct found f;
    int rc = read_pin(b, t, key, flags, deadline, &f);
    if (rc) {
        return rc;
    }
    const struct slot_header *h = find_header(&b->lookup, f.slot);
    uint64_t n = h->size;
    if (n <= size && n) {
        memcpy(buffer, read_payload(b, h), n);
    }
    pin_drop(b, t, f.entry);
    return n <= size ? (long)n : pull_too_large(n, size);
}

struct reading {
    struct pull_out out;
    const struct berth_key *key;
    unsigned flags;
    int64_t deadline;
};

static long copy_ranges(struct berth *b, struct client_thread *t, const struct reading *r, unsigned flags);

static long copy_any(struct berth *b, struct client_thread *t, const struct reading *r, unsigned flags)
{
    return r->out.ranges ? copy_ranges(b, t, r, flags)
                         : copy_out(b, t, r->key, r->out.buffer, r->out.size, flags, r->deadline);
}

/* A registration that an attachment took with it has been made again. */
static bool placed_again(struct berth *b, const struct reading *r, struct pull_place *place)
{
    uint64_t before = place->attachment;
    return place->kind == MSG_PULL_REGISTERED && pull_out_place(b, &r->out, r->deadline, place) &&
           place->attachment != before;
}

static long missed(struct berth *b, struct client_thread *t, long rc)
{
    read_count_missed(b, t);
    return rc;
}

/* Where the node can write into this memory no slot is needed, and nothing is copied. */
static long pull_out(struct berth *b, struct client_thread *t, const struct reading *r, struct pull_place *place)
{
    unsigned local = r->flags & ~(PULL_READ_FLAGS | (unsigned)BERTH_WAIT), turn = 0;
    bool look = !(r->flags & BERTH_FRESH);
    for (unsigned tries = 0; tries < PULL_TRIES;) {
        long rc = look ? copy_any(b, t, r, local | READ_LOOK) : -ENOENT;
        if (rc != -ENOENT) {
            return rc;
        }
        look = true;
        rc = pull_into(b, r->key, &r->out, place, r->flags, r->deadline);
        if (rc >= 0) {
            read_count_pulled(b, t, (uint64_t)rc);
            return rc;
        }
        if (rc == PULL_NOT_SO && !placed_again(b, r, place)) {
            return copy_any(b, t, r, r->flags);
        }
        if (rc == PULL_NOT_SO || rc == PULL_IS_HERE) {
            tries++;
            continue;
        }
        if (rc != -ENOENT || !(r->flags & BERTH_WAIT)) {
            return missed(b, t, rc);
        }
        int why = pull_pause(b, r->key, turn++, r->deadline); /* without peers the node does not wait */
        if (why) {
            return missed(b, t, berth_fail_plain(why));
        }
    }
    return missed(b, t, berth_fail_plain(BERTH_ENOTNOW));
}

static long read_out(struct berth *b, const struct reading *r)
{
    struct client_thread *t = thread_self();
    struct pull_place place;
    if ((r->flags & BERTH_PEERS) && pull_out_place(b, &r->out, r->deadline, &place)) {
        return pull_out(b, t, r, &place);
    }
    return copy_any(b, t, r, r->flags);
}

long berth_get_into(struct berth *b, struct berth_key key, void *buffer, size_t size, unsigned flags, int64_t deadline)
{
    if (remote_is(b)) {
        return remote_get_into(b, &key, buffer, size, flags, deadline);
    }
    int rc = read_check_get(b, &key, buffer ? buffer : size ? NULL : "", flags);
    struct reading r = {.out = {.buffer = buffer, .size = size}, .key = &key, .flags = flags, .deadline = deadline};
    return rc ? rc : read_out(b, &r);
}

long read_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags, unsigned count,
               int64_t deadline)
{
    int rc = read_check_get(b, key, buffer ? buffer : size ? NULL : "", flags);
    return rc ? rc : copy_out(b, thread_self(), key, buffer, size, flags | count, deadline);
}

/* ---- ranges ---- */

static int check_ranges(const struct berth_range *ranges, size_t n)
{
    if (n < 1 || n > BERTH_RANGES_MAX || !ranges) {
        return berth_fail(-EINVAL, "%zu ranges in one call: 1 to %u are possible", n, BERTH_RANGES_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].size && !ranges[i].data) {
            return berth_fail(-EINVAL, "range %zu has %llu bytes, but no place for them", i,
                              (unsigned long long)ranges[i].size);
        }
    }
    return 0;
}

/* The segments that they touch, in *touched; whether there are any bytes at all. */
static bool touch_segments(const struct slot_header *h, const struct berth_range *ranges, size_t n,
                           struct read_segments *touched)
{
    uint32_t shift = slot_segment(h);
    bool any = false;
    *touched = (struct read_segments){{0}};
    for (size_t i = 0; i < n; i++) {
        any |= ranges[i].size > 0;
        if (!shift || !ranges[i].size) {
            continue;
        }
        uint64_t last = (ranges[i].offset + ranges[i].size - 1) >> shift;
        for (uint64_t s = ranges[i].offset >> shift; s <= last && s < SEGMENTS_MAX; s++) {
            touched->bits[s / 64] |= UINT64_C(1) << (s % 64);
        }
    }
    return any;
}

static int accept(struct berth *b, struct client_thread *t, const struct slot_header *h,
                  const struct berth_range *ranges, size_t n, unsigned flags)
{
    struct read_segments touched;
    int rc = pull_check_bounds(h->size, ranges, n); /* their sum can't overflow then: each is at most an object */
    if (rc || !(flags & BERTH_VERIFY) || !touch_segments(h, ranges, n, &touched) || read_whole(b, h, &touched)) {
        return rc;
    }
    stat_add(b, t, LANE_VERIFY_FAILED, 1);
    return berth_fail_plain(BERTH_ECORRUPT);
}

static long copy_ranges(struct berth *b, struct client_thread *t, const struct reading *r, unsigned flags)
{
    const struct berth_range *ranges = r->out.ranges;
    struct found f;
    int rc = read_pin(b, t, r->key, flags & ~(unsigned)BERTH_VERIFY, r->deadline, &f);
    if (rc) {
        return rc;
    }
    const struct slot_header *h = find_header(&b->lookup, f.slot);
    long copied = 0;
    rc = accept(b, t, h, ranges, r->out.n, flags);
    for (size_t i = 0; rc == 0 && i < r->out.n; i++) {
        if (ranges[i].size) {
            memcpy(ranges[i].data, read_payload(b, h) + ranges[i].offset, ranges[i].size);
            copied += (long)ranges[i].size;
        }
    }
    pin_drop(b, t, f.entry);
    return rc ? rc : copied;
}

long berth_get_range(struct berth *b, struct berth_key key, const struct berth_range *ranges, size_t n, unsigned flags,
                     int64_t deadline)
{
    int rc = remote_is(b) ? 0 : read_check_get(b, &key, "", flags);
    rc = rc ? rc : check_ranges(ranges, n);
    if (rc == 0 && remote_is(b)) {
        return remote_get_range(b, &key, ranges, n, flags, deadline);
    }
    struct reading r = {.out = {.ranges = ranges, .n = n}, .key = &key, .flags = flags, .deadline = deadline};
    return rc ? rc : read_out(b, &r);
}

long read_range(struct berth *b, const struct berth_key *key, const struct berth_range *ranges, size_t n,
                unsigned flags, unsigned count, int64_t deadline)
{
    int rc = read_check_get(b, key, "", flags);
    rc = rc ? rc : check_ranges(ranges, n);
    struct reading r = {.out = {.ranges = ranges, .n = n}, .key = key, .flags = flags, .deadline = deadline};
    return rc ? rc : copy_ranges(b, thread_self(), &r, flags | count);
}
