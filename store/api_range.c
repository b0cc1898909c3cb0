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

/* Where the node is in this process its transport writes into the caller's memory, and no slot is needed. */
static long pull_out(struct berth *b, struct client_thread *t, const struct berth_key *key, void *buffer, size_t size,
                     unsigned flags, int64_t deadline)
{
    unsigned local = flags & ~PULL_READ_FLAGS;
    long rc = -ENOENT;
    bool look = !(flags & BERTH_FRESH);
    for (unsigned i = 0; i < PULL_TRIES; i++) {
        rc = look ? copy_out(b, t, key, buffer, size, local, deadline) : -ENOENT;
        rc = rc == -ENOENT ? pull_into(b, key, buffer, size, flags, deadline) : rc;
        if (rc != PULL_IS_HERE) {
            return rc;
        }
        look = true;
    }
    return berth_fail_plain(BERTH_ENOTNOW);
}

long berth_get_into(struct berth *b, struct berth_key key, void *buffer, size_t size, unsigned flags, int64_t deadline)
{
    if (remote_is(b)) {
        return remote_get_into(b, &key, buffer, size, flags, deadline);
    }
    int rc = read_check_get(b, &key, buffer ? buffer : size ? NULL : "", flags);
    if (rc) {
        return rc;
    }
    struct client_thread *t = thread_self();
    if ((flags & (BERTH_PEERS | BERTH_WAIT)) == BERTH_PEERS && pull_direct(b)) {
        return pull_out(b, t, &key, buffer, size, flags, deadline);
    }
    return copy_out(b, t, &key, buffer, size, flags, deadline);
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

/* Whether all of them lie in the object. Their sum can't overflow: each is at most an object. */
static int check_bounds(const struct slot_header *h, const struct berth_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct berth_range *r = &ranges[i];
        if (r->offset > h->size || r->size > h->size - r->offset) {
            uint64_t figure[4] = {h->size, i, r->offset, r->size};
            berth_fail(-ERANGE, "range %zu, %llu bytes from %llu on, goes beyond the object's %u", i,
                       (unsigned long long)r->size, (unsigned long long)r->offset, h->size);
            berth_fail_figures(figure);
            return -ERANGE;
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
    int rc = check_bounds(h, ranges, n);
    if (rc || !(flags & BERTH_VERIFY) || !touch_segments(h, ranges, n, &touched) || read_whole(b, h, &touched)) {
        return rc;
    }
    stat_add(b, t, LANE_VERIFY_FAILED, 1);
    return berth_fail_plain(BERTH_ECORRUPT);
}

long berth_get_range(struct berth *b, struct berth_key key, const struct berth_range *ranges, size_t n, unsigned flags,
                     int64_t deadline)
{
    struct found f;
    int rc = remote_is(b) ? 0 : read_check_get(b, &key, "", flags);
    rc = rc ? rc : check_ranges(ranges, n);
    if (rc) {
        return rc;
    }
    if (remote_is(b)) {
        return remote_get_range(b, &key, ranges, n, flags, deadline);
    }
    struct client_thread *t = thread_self();
    rc = read_pin(b, t, &key, flags & ~(unsigned)BERTH_VERIFY, deadline, &f);
    if (rc) {
        return rc;
    }
    const struct slot_header *h = find_header(&b->lookup, f.slot);
    long copied = 0;
    rc = accept(b, t, h, ranges, n, flags);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (ranges[i].size) {
            memcpy(ranges[i].data, read_payload(b, h) + ranges[i].offset, ranges[i].size);
            copied += (long)ranges[i].size;
        }
    }
    pin_drop(b, t, f.entry);
    return rc ? rc : copied;
}
