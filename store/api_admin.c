/* api_admin.c: namespace, stat, list, remove, hold, drop, query, revoke, and small helpers. */
#include "store/build.h"
#include "store/pull.h"
#include "store/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Submits, or says that there was no memory to build it. */
static int run(struct berth *b, struct call *c, call_take *take, void *arg)
{
    struct call_result r;
    if (!c) {
        return berth_fail_plain(-ENOMEM);
    }
    int rc = call_run(b, c, &r, take, arg);
    return rc < 0 ? client_fail_reply(b, &r) : rc;
}

/* ---- namespaces ---- */

static bool good_name(const char *name, size_t n)
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n <= NAME_MAX_BYTES && strspn(name, set) == n;
}

struct named {
    uint32_t ns;
};

static int take_namespace(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    (void)bytes;
    if (status < 0) {
        return status;
    }
    uint32_t ns = (uint32_t)r->counter;
    uint32_t n = atomic_load_explicit(&b->n_kept, memory_order_relaxed);
    if (!(status & (int)MSG_NAMESPACE_REPLACEABLE) && n < KEPT_NAMESPACES && !client_keeps(b, ns)) {
        b->kept[n] = ns;
        atomic_store_explicit(&b->n_kept, n + 1, memory_order_release);
    }
    ((struct named *)arg)->ns = ns;
    return 0;
}

int berth_namespace(struct berth *b, const char *name, uint32_t *ns)
{
    int rc = client_check_any(b);
    if (rc) {
        return rc;
    }
    size_t n = name ? strlen(name) : 0;
    if (!name || !ns || !good_name(name, n)) {
        return berth_fail(-EINVAL, "a namespace's name has 1 to %u of [a-zA-Z0-9._-], or none for the default",
                          NAME_MAX_BYTES);
    }
    if (n == 0) {
        *ns = 0;
        return 0;
    }
    if (b->remote) {
        return remote_namespace(name, ns);
    }
    struct call *c = call_new(MSG_NAMESPACE, sizeof(struct msg_namespace) + n);
    if (c) {
        struct msg_namespace *m = (struct msg_namespace *)c->message;
        m->name_size = (uint32_t)n;
        memcpy(m + 1, name, n);
    }
    struct named named;
    rc = run(b, c, take_namespace, &named);
    if (rc == 0) {
        *ns = named.ns;
    } else if (rc == -EEXIST) {
        return berth_fail(rc, "the id of the namespace '%s' is another one's: choose another name", name);
    }
    return rc;
}

/* ---- one key ---- */

struct stat_said {
    struct berth_stat *stat;
    char unasked[64];
};

static int take_stat(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct stat_said *said = arg;
    if (status == BERTH_EUNSURE) {
        pull_unasked(r, bytes, 0, said->unasked);
    }
    return status == BERTH_KEPT ? status : build_take_stat(b, said->stat, status, r, bytes);
}

/* The status, not recorded. */
static int stat_once(struct berth *b, const struct berth_key *key, uint16_t flags, int64_t deadline,
                     struct berth_stat *st, struct call_result *r)
{
    struct stat_said said = {.stat = st};
    struct call *c = build_key(MSG_STAT, key, NULL);
    if (!c) {
        return r->status = -ENOMEM;
    }
    call_head(c)->flags |= flags;
    if (deadline) {
        call_deadline(b, c, deadline);
    }
    int rc = call_run(b, c, r, take_stat, &said);
    berth_unasked(said.unasked);
    return rc;
}

static int check_stat(struct berth *b, const struct berth_key *key, const struct berth_stat *st)
{
    int rc = client_check_key_any(b, key);
    return rc || st ? rc : berth_fail(-EINVAL, "no place for the result was given");
}

int berth_stat_peers(struct berth *b, struct berth_key key, struct berth_stat *st, int64_t deadline)
{
    struct call_result r = {0};
    int rc = check_stat(b, &key, st);
    if (rc) {
        return rc;
    }
    bool now = deadline <= BERTH_NOW;
    rc = now && b->remote ? -ENOENT : BERTH_KEPT;
    for (unsigned i = 0; i < PULL_TRIES && rc == BERTH_KEPT; i++) { /* it was on its way into the index */
        rc = stat_once(b, &key, now ? 0 : MSG_PEERS, now ? 0 : deadline, st, &r);
    }
    if (now && rc == -ENOENT) {
        return pull_fail_now();
    }
    if (rc == -ENOENT) {
        return berth_fail_asked(rc);
    }
    return rc == BERTH_KEPT ? berth_fail_plain(BERTH_ENOTNOW) : rc < 0 ? client_fail_reply(b, &r) : rc;
}

int berth_stat(struct berth *b, struct berth_key key, struct berth_stat *st)
{
    struct call_result r = {0};
    int rc = check_stat(b, &key, st);
    if (rc) {
        return rc;
    }
    rc = stat_once(b, &key, 0, 0, st, &r);
    return rc < 0 ? client_fail_reply(b, &r) : rc;
}

int berth_remove(struct berth *b, struct berth_key key, const struct berth_version *expected)
{
    int rc = client_check_key(b, &key);
    return rc ? rc : run(b, build_key(MSG_REMOVE, &key, expected), NULL, NULL);
}

int berth_hold(struct berth *b, struct berth_key key, const char *label, int64_t ttl_ns)
{
    int rc = client_check_key(b, &key);
    rc = rc ? rc : build_check_label(label);
    if (rc) {
        return rc;
    }
    if (ttl_ns < 0) {
        return berth_fail(-EINVAL, "a negative time to live: 0 has no end");
    }
    return run(b, build_hold(MSG_HOLD, &key, label, ttl_ns), NULL, NULL);
}

int berth_drop(struct berth *b, struct berth_key key, const char *label)
{
    int rc = client_check_key(b, &key);
    rc = rc ? rc : build_check_label(label);
    return rc ? rc : run(b, build_hold(MSG_DROP, &key, label, 0), NULL, NULL);
}

int berth_revoke(struct berth *b, struct berth_key key)
{
    int rc = client_check_key(b, &key);
    return rc ? rc : run(b, build_key(MSG_REVOKE, &key, NULL), NULL, NULL);
}

/* ---- purge ---- */

_Static_assert(BERTH_PURGE_LINEAGE == (int)PURGE_LINEAGE && BERTH_PURGE_NAMESPACE == (int)PURGE_NAMESPACE &&
                   BERTH_PURGE_PREFIX == (int)PURGE_PREFIX,
               "kinds of purges");

static int take_purged(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct msg_purged *out = arg;
    (void)b;
    if (status < 0) {
        return status;
    }
    if (bytes < sizeof *r + sizeof *out) {
        return -EPROTO;
    }
    memcpy(out, r + 1, sizeof *out);
    return 0;
}

static int check_purge(const struct berth_purge *p)
{
    if (!p || p->kind < BERTH_PURGE_LINEAGE || p->kind > BERTH_PURGE_PREFIX) {
        return berth_fail(-EINVAL, "a purge is of a lineage, of a namespace or of a prefix");
    }
    bool lineage = p->kind == BERTH_PURGE_LINEAGE, prefix = p->kind == BERTH_PURGE_PREFIX;
    if (lineage != (p->lineage != 0)) {
        return berth_fail(-EINVAL, "a purge of a lineage has one that is not 0, another purge has none");
    }
    if (lineage && p->ns) {
        return berth_fail(-EINVAL, "a purge of a lineage is of all namespaces");
    }
    if (prefix != (p->prefix_size != 0) || p->prefix_size > KEY_MAX || (prefix && !p->prefix)) {
        return berth_fail(-EINVAL, "a purge of a prefix has one of 1 to %u bytes, another purge has none", KEY_MAX);
    }
    return 0;
}

int berth_purge(struct berth *b, const struct berth_purge *what, int64_t deadline, struct berth_purged *purged)
{
    int rc = client_check(b);
    rc = rc ? rc : check_purge(what);
    if (rc) {
        return rc;
    }
    struct msg_purged did = {0};
    struct call *c = call_new(MSG_PURGE, sizeof(struct msg_purge) + what->prefix_size);
    if (c) {
        struct msg_purge *m = (struct msg_purge *)c->message;
        m->lineage = what->lineage;
        m->kind = (uint32_t)what->kind;
        m->ns = what->ns;
        m->prefix_size = (uint16_t)what->prefix_size;
        if (what->prefix_size) {
            memcpy(m + 1, what->prefix, what->prefix_size);
        }
        call_deadline(b, c, deadline <= BERTH_NOW ? 1 : deadline);
    }
    rc = run(b, c, take_purged, &did);
    if (rc == 0 && purged) {
        *purged = (struct berth_purged){
            .removed = did.removed, .bytes = did.bytes, .held = did.held, .drafts = did.drafts, .untold = did.untold};
    }
    return rc;
}

/* ---- list ---- */

struct listing {
    struct berth_cursor *cursor;
    struct berth_entry *entries;
    size_t n, got;
};

static bool list_entry(struct berth_entry *e, const uint8_t **at, const uint8_t *end)
{
    struct msg_stat m;
    if ((size_t)(end - *at) < sizeof m) {
        return false;
    }
    memcpy(&m, *at, sizeof m);
    size_t room = (m.key_size + 7u) & ~7u;
    if (m.key_size < 1 || m.key_size > KEY_MAX || (size_t)(end - *at) - sizeof m < room) {
        return false;
    }
    *e = (struct berth_entry){.version = {.counter = m.counter, .region = m.region},
                              .size = m.size,
                              .slot_bytes = m.slot_bytes,
                              .lineage = m.lineage,
                              .created_us = m.created_us,
                              .n_holds = m.holds,
                              .key_size = m.key_size};
    memcpy(e->key, *at + sizeof m, m.key_size);
    *at += sizeof m + room;
    return true;
}

static int take_list(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct listing *l = arg;
    (void)b;
    if (status < 0) {
        return status;
    }
    const uint8_t *at = (const uint8_t *)(r + 1), *end = (const uint8_t *)r + bytes;
    for (uint32_t i = 0; i < r->count; i++) {
        if (l->got == l->n || !list_entry(&l->entries[l->got], &at, end)) {
            return -EPROTO;
        }
        l->got++;
    }
    if (r->count) {
        const struct berth_entry *last = &l->entries[l->got - 1];
        l->cursor->key_size = last->key_size;
        memcpy(l->cursor->key, last->key, last->key_size);
    }
    l->cursor->done = !(r->head.flags & MSG_HAS_MORE);
    return 0;
}

static struct call *build_list(uint32_t ns, const void *prefix, size_t prefix_size, const struct berth_cursor *cursor,
                               size_t max)
{
    struct call *c = call_new(MSG_LIST, sizeof(struct msg_list) + prefix_size + cursor->key_size);
    if (c) {
        struct msg_list *m = (struct msg_list *)c->message;
        m->ns = ns;
        m->max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
        m->prefix_size = (uint16_t)prefix_size;
        m->after_size = (uint16_t)cursor->key_size;
        if (prefix_size) {
            memcpy(m + 1, prefix, prefix_size);
        }
        memcpy((uint8_t *)(m + 1) + prefix_size, cursor->key, cursor->key_size);
    }
    return c;
}

long berth_list(struct berth *b, uint32_t ns, const void *prefix, size_t prefix_size, struct berth_cursor *cursor,
                struct berth_entry *entries, size_t n)
{
    int rc = client_check(b);
    if (rc) {
        return rc;
    }
    if (prefix_size > KEY_MAX || (prefix_size && !prefix) || !cursor || cursor->key_size > KEY_MAX || (n && !entries)) {
        return berth_fail(-EINVAL, "a prefix or cursor of more than %u bytes, or an array that is NULL", KEY_MAX);
    }
    struct listing l = {.cursor = cursor, .entries = entries, .n = n};
    while (l.got < n && !cursor->done) {
        rc = run(b, build_list(ns, prefix, prefix_size, cursor, n - l.got), take_list, &l);
        if (rc < 0) {
            return rc;
        }
    }
    return (long)l.got;
}

/* ---- reports ---- */

struct text {
    char *data;
    size_t used, whole;
    bool more;
};

static int take_text(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct text *t = arg;
    (void)b;
    if (status < 0) {
        return status;
    }
    size_t n = bytes - sizeof *r;
    if (t->used == 0) {
        t->whole = r->figure[0];
        t->data = t->whole < SIZE_MAX ? malloc(t->whole + 1) : NULL;
    }
    if (!t->data) {
        return -ENOMEM;
    }
    if (n > t->whole - t->used || (n == 0 && t->used < t->whole)) {
        return -EPROTO;
    }
    memcpy(t->data + t->used, r + 1, n);
    t->used += n;
    t->data[t->used] = '\0';
    return 0;
}

static struct call *build_query(enum berth_question what, const struct berth_key *key, size_t offset)
{
    size_t n = key ? key->size : 0;
    struct call *c = call_new(MSG_QUERY, sizeof(struct msg_query) + n);
    if (c) {
        struct msg_query *m = (struct msg_query *)c->message;
        m->what = (uint32_t)what;
        m->offset = (uint32_t)offset;
        m->ns = key ? key->ns : 0;
        m->key_size = (uint16_t)n;
        if (n) {
            memcpy(m + 1, key->data, n);
        }
    }
    return c;
}

/* The node makes a text once, at offset 0, and keeps it for the rest. */
static int read_text(struct berth *b, enum berth_question what, const struct berth_key *key, struct text *t)
{
    int rc;
    do {
        rc = run(b, build_query(what, key, t->used), take_text, t);
    } while (rc >= 0 && t->used < t->whole);
    if (rc < 0) {
        free(t->data);
    }
    return rc;
}

int berth_query(struct berth *b, enum berth_question what, const struct berth_key *key, char **text)
{
    int rc = key ? client_check_key(b, key) : client_check(b);
    if (rc) {
        return rc;
    }
    if (what == BERTH_WHY && !key) {
        return berth_fail(-EINVAL, "no key was given to tell of");
    }
    if ((unsigned)what >= QUERY_KINDS || !text) {
        return berth_fail(-EINVAL, "question %u is not known, or no place for the answer was given", (unsigned)what);
    }
    struct text t = {0};
    pthread_mutex_lock(&b->query_lock);
    rc = read_text(b, what, key, &t);
    pthread_mutex_unlock(&b->query_lock);
    if (rc >= 0) {
        *text = t.data;
    }
    return rc < 0 ? rc : 0;
}

/* ---- helpers ---- */

int64_t berth_deadline(int64_t ns_from_now)
{
    int64_t now = client_now();
    return ns_from_now > INT64_MAX - now ? BERTH_FOREVER : now + ns_from_now > 0 ? now + ns_from_now : 1;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *berth_version_string(void)
{
    return TEXT(BERTH_VERSION_MAJOR) "." TEXT(BERTH_VERSION_MINOR) "." TEXT(BERTH_VERSION_PATCH);
}
