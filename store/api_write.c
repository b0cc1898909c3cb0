/* api_write.c: put, create, seal, abort. */
#include "store/await.h"
#include "store/build.h"
#include "store/read.h"

#include <errno.h>

#define PUT_TRIES 3u /* a granted slot that is no longer this client's costs a try */

/* Nothing needs to be copied for a key that will be kept anyway. */
static bool kept_already(struct berth *b, const struct berth_key *key)
{
    struct client_thread *t = thread_self();
    bool kept = client_keeps(b, key->ns) && read_there(b, t, key);
    if (kept) {
        stat_add(b, t, LANE_KEPT, 1);
    }
    return kept;
}

static int ask_grant(struct berth *b, const struct berth_key *key, uint32_t pages, size_t size, uint32_t count,
                     int64_t deadline, struct msg_token *out)
{
    struct call *c = build_grant(b, key, pages, size, count, deadline);
    struct call_result r;
    struct granted g = {.size = size};
    if (!c) {
        pthread_mutex_lock(&b->lock);
        grant_came(b, pages, count, NULL, 0);
        pthread_mutex_unlock(&b->lock);
        return berth_fail_plain(-ENOMEM);
    }
    int rc = call_run(b, c, &r, build_take_granted, &g);
    if (rc < 0) {
        return client_fail_reply(b, &r);
    }
    *out = g.token;
    return 0;
}

/* A slot to copy into: one at hand, or asked for. What lies at hand for other sizes goes back before the pool is called
 * full. */
static int get_grant(struct berth *b, const struct berth_key *key, size_t size, int64_t deadline, struct msg_token *out)
{
    uint32_t pages = grant_pages(size);
    for (bool again = false;; again = true) {
        pthread_mutex_lock(&b->lock);
        bool have = grant_take(b, pages, out);
        uint32_t count = have ? 0 : grant_ask(b, pages);
        pthread_mutex_unlock(&b->lock);
        int rc = have ? 0 : ask_grant(b, key, pages, size, count, deadline, out);
        if ((rc != BERTH_EFULL && rc != BERTH_EQUOTA) || again) {
            return rc;
        }
        pthread_mutex_lock(&b->lock);
        bool any = grant_return_all(b);
        pthread_mutex_unlock(&b->lock);
        if (!any) {
            return rc;
        }
    }
}

static int put_once(struct berth *b, const struct berth_key *key, const void *data, size_t size,
                    const struct berth_put_opts *opts)
{
    struct msg_token token;
    int rc = get_grant(b, key, size, build_deadline(opts), &token);
    if (rc) {
        return rc;
    }
    uint64_t sums[SEGMENTS_MAX];
    uint64_t checksum = build_copy(b, &token, data, size, build_shift(opts ? opts->segment : 0), sums);
    struct call *c = build_put(b, key, size, opts, &token, checksum, sums);
    if (!c) {
        pthread_mutex_lock(&b->lock);
        grant_came(b, grant_pages(size), 0, &token, 1);
        pthread_mutex_unlock(&b->lock);
        return berth_fail_plain(-ENOMEM);
    }
    pthread_mutex_lock(&b->lock);
    call_until(c, build_deadline(opts));
    c->want = grant_want(b, c->pages);
    ((struct msg_put *)c->message)->want = c->want;
    pthread_mutex_unlock(&b->lock);
    struct call_result r;
    rc = call_run(b, c, &r, NULL, NULL);
    return rc < 0 ? client_fail_reply(b, &r) : rc;
}

/* After a put, create or seal that returned rc: until the homes have it; of a key that was kept, whether they hold what
 * is here for good. */
static int published(struct berth *b, const struct berth_key *key, const struct berth_draft *d, size_t n,
                     int64_t deadline, int rc)
{
    bool asked;
    struct call_result r;
    struct call *c = build_published(key, rc == BERTH_KEPT, d, n, &asked);
    if (!asked) {
        return rc;
    }
    if (c) {
        call_deadline(b, c, deadline);
    }
    rc = build_take_published(c ? call_run(b, c, &r, NULL, NULL) : -ENOMEM, rc);
    return rc < 0 ? berth_fail_plain(rc) : rc;
}

static int put_any(struct berth *b, const struct berth_key *key, const void *data, size_t size,
                   const struct berth_put_opts *opts)
{
    int rc = BERTH_ESTALE;
    for (unsigned i = 0; i < PUT_TRIES && rc == BERTH_ESTALE; i++) {
        rc = put_once(b, key, data, size, opts);
    }
    return rc;
}

int berth_put(struct berth *b, struct berth_key key, const void *data, size_t size, const struct berth_put_opts *opts)
{
    int rc = build_check_put(b, &key, size, opts, BERTH_PUBLISHED);
    if (rc) {
        return rc;
    }
    if (size && !data) {
        return berth_fail(-EINVAL, "%zu bytes of no data: give a pointer", size);
    }
    rc = kept_already(b, &key) ? BERTH_KEPT : put_any(b, &key, data, size, opts);
    bool wait = opts && (opts->flags & BERTH_PUBLISHED);
    for (unsigned i = 0; rc >= 0 && wait; i++) {
        int kept = rc;
        rc = published(b, &key, NULL, 0, opts->deadline, rc);
        if (rc != BERTH_EVERSION || kept != BERTH_KEPT || i == PUT_TRIES) {
            return rc;
        }
        /* A removal stands above what it was kept on, and the node gives that up: now it is put. */
        rc = put_any(b, &key, data, size, opts);
    }
    return rc;
}

/* One CREATE; what lies at hand for other sizes goes back before the pool is called full. */
static int create_once(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                       struct berth_draft *d)
{
    struct created created = {
        .draft = d, .size = size, .segment = opts ? opts->segment : 0, .flags = opts ? opts->flags : 0};
    struct call_result r = {0};
    for (bool again = false;; again = true) {
        struct call *c = build_create(b, key, size, opts);
        if (!c) {
            return berth_fail_plain(-ENOMEM);
        }
        int rc = call_run(b, c, &r, build_take_created, &created);
        if ((rc != BERTH_EFULL && rc != BERTH_EQUOTA) || again) {
            return rc < 0 ? client_fail_reply(b, &r) : rc;
        }
        pthread_mutex_lock(&b->lock);
        bool any = grant_return_all(b);
        pthread_mutex_unlock(&b->lock);
        if (!any) {
            return client_fail_reply(b, &r);
        }
    }
}

/* The same, after the other writer where the options ask for that. */
static int create_any(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                      struct berth_draft *d)
{
    int rc;
    while ((rc = create_once(b, key, size, opts, d)) == MSG_WRITING) {
        rc = await_writer(b, key, build_deadline(opts));
        if (rc) {
            return rc < 0 ? berth_fail_plain(rc) : rc;
        }
    }
    return rc;
}

int berth_create(struct berth *b, struct berth_key key, size_t size, const struct berth_put_opts *opts,
                 struct berth_draft *d)
{
    int rc = build_check_put(b, &key, size, opts, BERTH_JOIN | BERTH_PUBLISHED);
    if (rc) {
        return rc;
    }
    if (!d) {
        return berth_fail(-EINVAL, "no place for the draft was given");
    }
    *d = (struct berth_draft){.status = BERTH_KEPT}; /* no draft yet: abort passes it over, a write through it faults */
    bool asks = opts && (opts->flags & BERTH_PUBLISHED);
    rc = kept_already(b, &key) ? BERTH_KEPT : create_any(b, &key, size, opts, d);
    for (unsigned i = 0; rc == BERTH_KEPT && asks; i++) {
        rc = published(b, &key, NULL, 0, berth_deadline(b->timeout_ns), rc);
        if (rc != BERTH_EVERSION || i == PUT_TRIES) {
            return rc;
        }
        rc = create_any(b, &key, size, opts, d);
    }
    if (rc == 0) {
        build_map_pages(d->data, size);
    }
    return rc;
}

int berth_seal(struct berth *b, struct berth_draft *d, size_t n)
{
    int rc = client_check(b);
    rc = rc ? rc : build_check_drafts(b, d, n);
    if (rc) {
        return rc;
    }
    if (build_without_draft(d, n) == n) {
        return (int)n;
    }
    rc = build_sums(b, d, n);
    if (rc) {
        return berth_fail_plain(rc);
    }
    struct sealed sealed = {.drafts = d, .n = n};
    struct call_result r;
    struct call *c = build_seal(b, d, n);
    if (!c) {
        return berth_fail_plain(-ENOMEM);
    }
    rc = call_run(b, c, &r, build_take_sealed, &sealed);
    return rc < 0 ? client_fail_reply(b, &r) : published(b, NULL, d, n, berth_deadline(b->timeout_ns), rc);
}

/* The slots are no longer this client's from here on: should the node restart before it answers, it frees what is not
 * named to it. */
static int abort_some(struct berth *b, struct berth_draft *d, size_t n)
{
    struct call *c = build_abort(d, n);
    struct call_result r;
    if (!c) {
        return berth_fail_plain(-ENOMEM);
    }
    pthread_mutex_lock(&b->lock);
    build_forget(b, c);
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < n; i++) {
        d[i].data = NULL;
    }
    int rc = call_run(b, c, &r, NULL, NULL);
    return rc < 0 ? client_fail_reply(b, &r) : 0;
}

int berth_abort(struct berth *b, struct berth_draft *d, size_t n)
{
    int rc = client_check(b);
    if (rc) {
        return rc;
    }
    if (n && !d) {
        return berth_fail(-EINVAL, "%zu drafts, but no array of them", n);
    }
    for (size_t i = 0; i < n; i += BERTH_GROUP_MAX) {
        size_t part = n - i < BERTH_GROUP_MAX ? n - i : BERTH_GROUP_MAX;
        int one = abort_some(b, d + i, part);
        rc = rc ? rc : one;
    }
    return rc;
}
