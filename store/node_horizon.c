/* node_horizon.c: the lease horizon (PROTOCOLS rule 19).
 *
 * A node that dies leaves leases that its successor knows nothing of. Before a lease is answered, the index therefore
 * has a CLOCK_BOOTTIME by which it will have ended, with room for a clock that is slewed against `raw`. The horizon is
 * moved in steps, ahead of need while leases are out; a request that needs a greater one waits for that commit and is
 * decided after it. A node that starts before the horizon uses no slot again that was in use: each counts as leased
 * until then. Region and boot are the same there, or the index would have started empty.
 */
#include "store/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* No horizon is further ahead than this, whatever the configuration: a greater one in the index is no horizon. */
#define HORIZON_LIMIT_NS INT64_C(120000000000)

/* On CLOCK_BOOTTIME, for a time on `raw`: chrony slews by 8 % at most. */
static int64_t on_boot_clock(int64_t ns)
{
    return ns + ns / 4;
}

/* How far ahead of now the horizon must lie for a lease of this ttl. */
static int64_t reach(const struct node *n, int64_t ttl)
{
    return on_boot_clock(lease_hold(n, ttl));
}

/* A step beyond what is needed: a greater one would save commits, and cost the next node more time after a crash. */
static bool ask(struct node *n, int64_t ttl)
{
    struct lease_table *t = &n->lease;
    if (t->horizon_asked) {
        return true;
    }
    int64_t horizon = n->now.boot + reach(n, ttl) + reach(n, n->c.lease.ttl_ns);
    if (batch_meta(n->open->batch, META_LEASE_HORIZON, (uint64_t)horizon)) {
        return false;
    }
    n->open->horizon = horizon;
    t->horizon_asked = true;
    return true;
}

static bool covered(const struct node *n, const struct lease_event *ev)
{
    return n->lease.horizon >= n->now.boot + reach(n, lease_ttl(n, ev->ttl_ns));
}

/* ---- requests that wait ---- */

static size_t bytes_of(enum node_event_kind kind, const struct lease_event *ev)
{
    size_t bytes = sizeof(struct lease_wait);
    if (kind == EV_RENEW) {
        return bytes + ev->n * sizeof *ev->ref;
    }
    for (uint32_t i = 0; i < ev->n; i++) {
        bytes += sizeof *ev->keys + (ev->keys[i].size <= KEY_MAX ? ev->keys[i].size : 0);
    }
    return bytes;
}

static void copy_keys(struct lease_wait *w, const struct lease_event *ev)
{
    struct key_ref *key = (struct key_ref *)w->data;
    uint8_t *at = w->data + ev->n * sizeof *key;
    for (uint32_t i = 0; i < ev->n; i++) {
        key[i] = ev->keys[i];
        uint32_t size = key[i].size <= KEY_MAX && key[i].data ? key[i].size : 0;
        if (size) {
            memcpy(at, key[i].data, size);
        }
        key[i].data = size ? at : NULL; /* none: refused when its turn comes */
        at += size;
    }
    w->ev.keys = key;
}

static int32_t wait_for_horizon(struct node *n, enum node_event_kind kind, const struct lease_event *ev)
{
    struct lease_table *t = &n->lease;
    size_t bytes = bytes_of(kind, ev);
    if (t->wait_bytes + bytes > LEASE_WAIT_BYTES) {
        return -EAGAIN;
    }
    struct lease_wait *w = ask(n, lease_ttl(n, ev->ttl_ns)) ? malloc(bytes) : NULL;
    if (!w) {
        return -ENOMEM;
    }
    *w = (struct lease_wait){.kind = (int)kind, .bytes = bytes, .tries = LEASE_TRIES, .ev = *ev};
    if (kind == EV_RENEW) {
        memcpy(w->data, ev->ref, ev->n * sizeof *ev->ref);
        w->ev.ref = (const struct lease_ref *)w->data;
    } else {
        copy_keys(w, ev);
    }
    *t->waits_end = w;
    t->waits_end = &w->next;
    t->wait_bytes += bytes;
    return 0;
}

static void wait_free(struct lease_table *t, struct lease_wait **at)
{
    struct lease_wait *w = *at;
    *at = w->next;
    if (t->waits_end == &w->next) {
        t->waits_end = at;
    }
    t->wait_bytes -= w->bytes;
    free(w);
}

static void deferred_drop(struct node *n, const struct lease_event *gone)
{
    struct lease_table *t = &n->lease;
    for (struct lease_wait **at = &t->waits; *at;) {
        if ((*at)->ev.peer == gone->peer && (*at)->ev.connection == gone->connection) {
            wait_free(t, at); /* nobody would hear the answer, and nobody would give the leases back */
        } else {
            at = &(*at)->next;
        }
    }
}

void horizon_free(struct node *n)
{
    while (n->lease.waits) {
        wait_free(&n->lease, &n->lease.waits);
    }
}

/* ---- events ---- */

static int32_t check(const struct node *n, enum node_event_kind kind, const struct lease_event *ev)
{
    bool counted = kind != EV_PEER_GONE && kind != EV_SERVE_END;
    bool given = kind == EV_LEASE ? ev->keys != NULL : ev->ref != NULL;
    if (counted && (ev->n == 0 || ev->n > LEASE_KEYS_MAX || !given || (kind == EV_LEASE && ev->flags))) {
        return -EINVAL;
    }
    return n->start_status || n->stopping ? BERTH_ENODE : 0;
}

void lease_event(struct node *n, enum node_event_kind kind, const struct lease_event *ev)
{
    bool asks = kind == EV_LEASE || kind == EV_RENEW;
    int32_t status = ev ? check(n, kind, ev) : -EINVAL;
    if (status == -EINVAL || (status && asks)) {
        if (ev && asks) {
            lease_refuse(n, kind, ev, status);
        }
        return;
    }
    if (kind == EV_PEER_GONE) {
        deferred_drop(n, ev);
    }
    if (!asks || covered(n, ev)) {
        lease_run(n, kind, ev);
        return;
    }
    status = wait_for_horizon(n, kind, ev);
    if (status) {
        lease_refuse(n, kind, ev, status);
    }
}

/* Runs what waited, in its order, as if it had come now. After a commit that failed each waits for another, a bounded
 * number of times: a put that found no room may have failed it. */
void horizon_committed(struct node *n, int64_t horizon, int32_t status)
{
    struct lease_table *t = &n->lease;
    if (horizon == 0) {
        return;
    }
    t->horizon_asked = false;
    t->ahead_at = status ? n->now.mono + HORIZON_RETRY_NS : 0;
    t->horizon = status == 0 && horizon > t->horizon ? horizon : t->horizon;
    for (struct lease_wait **at = &t->waits; *at;) {
        struct lease_wait *w = *at;
        enum node_event_kind kind = (enum node_event_kind)w->kind;
        if (n->stopping) {
            lease_refuse(n, kind, &w->ev, BERTH_ENODE);
        } else if (covered(n, &w->ev)) {
            lease_run(n, kind, &w->ev);
        } else if (--w->tries && ask(n, lease_ttl(n, w->ev.ttl_ns))) {
            at = &w->next;
            continue;
        } else {
            lease_refuse(n, kind, &w->ev, -EAGAIN);
        }
        wait_free(t, at);
    }
}

static void open_up(struct node *n)
{
    n->lease.closed_until = 0;
    for (uint32_t slot = n->leased.head, next; slot != SLOT_NONE; slot = next) {
        next = n->next[slot];
        if (!slot_leased(n, slot)) {
            list_remove(n, &n->leased, slot);
            list_push(n, &n->fresh, slot);
        }
    }
    n->retry_at = n->now.mono; /* who waited for room finds some */
    for (struct waiter *w = n->waiters; w; w = w->next) {
        w->tried = 0;
    }
}

void horizon_turn(struct node *n)
{
    struct lease_table *t = &n->lease;
    leases_expire(n);
    leases_recall_idle(n);
    if (t->closed_until && n->now.boot >= t->closed_until) {
        open_up(n);
    }
    /* Ahead of need, while leases are out: so requests seldom wait. */
    int64_t usual = reach(n, n->c.lease.ttl_ns);
    if (t->count && !n->stopping && n->now.mono >= t->ahead_at && t->horizon < n->now.boot + usual + usual / 2) {
        ask(n, n->c.lease.ttl_ns);
    }
}

void horizon_recover(struct node *n)
{
    struct lease_table *t = &n->lease;
    int64_t horizon = (int64_t)n->c.index->meta(n->c.ix, META_LEASE_HORIZON);
    if (horizon < 0 || horizon > n->now.boot + HORIZON_LIMIT_NS) {
        node_log(n, 1, "the index has a lease horizon that can't be: slots in use are used again after %lld s",
                 (long long)(HORIZON_LIMIT_NS / 1000000000));
        horizon = n->now.boot + HORIZON_LIMIT_NS;
    }
    t->horizon = horizon;
    t->closed_until = horizon > n->now.boot ? horizon : 0;
}

/* A clean stop with nothing leased leaves nothing to wait for. */
void horizon_stop(struct node *n)
{
    const struct lease_table *t = &n->lease;
    bool moved = t->horizon > n->now.boot || t->horizon_asked;
    if (moved && t->count == 0 && t->closed_until == 0) {
        batch_meta(n->open->batch, META_LEASE_HORIZON, 0);
    }
}
