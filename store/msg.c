/* msg.c: see msg.h. */
#include "store/msg.h"

#include <errno.h>

/* Whether `fixed` bytes and what the message's own fields announce behind them are exactly its length. */
static int exact(const struct msg_head *m, uint64_t fixed, uint64_t more)
{
    return m->bytes == fixed + more ? 0 : -EINVAL;
}

static int short_of(const struct msg_head *m, uint64_t fixed)
{
    return m->bytes < fixed;
}

static int bad_key(uint32_t size)
{
    return size < 1 || size > KEY_MAX;
}

static int check_object(const struct msg_object *o)
{
    if (bad_key(o->key_size) || o->size > OBJECT_MAX) {
        return -EINVAL;
    }
    return o->segment == 0 || segments_possible(o->size, o->segment) ? 0 : -EINVAL;
}

static int check_grant(const struct msg_head *m)
{
    const struct msg_grant *g = (const struct msg_grant *)m;
    if (short_of(m, sizeof *g) || g->count < 1 || g->count > 64 || g->size > OBJECT_MAX) {
        return -EINVAL;
    }
    return g->key_size > KEY_MAX || g->reserved != 0 ? -EINVAL : exact(m, sizeof *g, g->key_size);
}

static int check_put(const struct msg_head *m)
{
    const struct msg_put *p = (const struct msg_put *)m;
    if (short_of(m, sizeof *p) || p->want > 4 || p->reserved != 0) {
        return -EINVAL;
    }
    int rc = check_object(&p->object);
    return rc ? rc : exact(m, sizeof *p, p->object.key_size + (uint64_t)msg_put_sums(p) * sizeof(uint64_t));
}

static int check_create(const struct msg_head *m)
{
    const struct msg_create *c = (const struct msg_create *)m;
    if (short_of(m, sizeof *c) || c->object.checksum != 0) {
        return -EINVAL;
    }
    int rc = check_object(&c->object);
    return rc ? rc : exact(m, sizeof *c, c->object.key_size);
}

static int check_sums(const struct msg_head *m)
{
    const struct msg_sums *s = (const struct msg_sums *)m;
    if (short_of(m, sizeof *s) || s->count < 1 || s->count > SEGMENTS_MAX || s->reserved != 0) {
        return -EINVAL;
    }
    return exact(m, sizeof *s, (uint64_t)s->count * sizeof(uint64_t));
}

static int check_wait(const struct msg_head *m)
{
    const struct msg_wait *w = (const struct msg_wait *)m;
    if (short_of(m, sizeof *w) || w->count < 1 || w->count > MSG_WAIT_KEYS ||
        (w->flags & ~(MSG_WAIT_WRITTEN | MSG_WAIT_RUN)) != 0) {
        return -EINVAL;
    }
    const uint8_t *at = (const uint8_t *)(w + 1), *end = (const uint8_t *)m + m->bytes;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct msg_wait_key *k = (const struct msg_wait_key *)(const void *)at;
        size_t left = (size_t)(end - at);
        if (left < sizeof *k || bad_key(k->key_size) || k->reserved != 0 ||
            left - sizeof *k < ((k->key_size + 7u) & ~7u)) {
            return -EINVAL;
        }
        msg_wait_next(&at);
    }
    return at == end ? 0 : -EINVAL;
}

static int check_pull_key(const struct msg_pull *p, const struct msg_pull_key *k, size_t left)
{
    if (left < sizeof *k || bad_key(k->key_size)) {
        return -EINVAL;
    }
    size_t more = ((k->key_size + 7u) & ~7u) + (size_t)k->n_ranges * sizeof(struct msg_pull_range);
    bool placed = k->to || k->room || k->n_ranges;
    if (left - sizeof *k < more || (p->kind == MSG_PULL_REPLICA && placed) || k->to > MSG_PULL_PLACE_MAX ||
        k->room > MSG_PULL_PLACE_MAX || (k->n_ranges && (k->to || k->room))) {
        return -EINVAL;
    }
    const struct msg_pull_range *r = msg_pull_ranges(k);
    for (uint32_t i = 0; i < k->n_ranges; i++) {
        if (r[i].offset > OBJECT_MAX || r[i].length > OBJECT_MAX || r[i].to > MSG_PULL_PLACE_MAX) {
            return -EINVAL;
        }
    }
    return 0;
}

static int check_pull(const struct msg_head *m)
{
    const struct msg_pull *p = (const struct msg_pull *)m;
    if (short_of(m, sizeof *p) || p->count < 1 || p->count > MSG_PULL_KEYS || (p->flags & ~MSG_PULL_FLAGS) != 0 ||
        p->kind >= MSG_PULL_KINDS || (p->kind == MSG_PULL_REPLICA) != (p->buffer == 0)) {
        return -EINVAL;
    }
    if (p->kind != MSG_PULL_REPLICA && p->buffer > (p->kind == MSG_PULL_BUFFER ? UINT64_MAX / 2 : UINT32_MAX)) {
        return -EINVAL;
    }
    const uint8_t *end = (const uint8_t *)m + m->bytes;
    const struct msg_pull_key *k = (const struct msg_pull_key *)(p + 1);
    for (uint32_t i = 0; i < p->count; i++) {
        int rc = check_pull_key(p, k, (size_t)(end - (const uint8_t *)k));
        if (rc) {
            return rc;
        }
        k = msg_pull_next(k);
    }
    return (const uint8_t *)k == end ? 0 : -EINVAL;
}

static int check_buffer(const struct msg_head *m)
{
    const struct msg_buffer *p = (const struct msg_buffer *)m;
    if (m->bytes != sizeof *p) {
        return -EINVAL;
    }
    if (p->kind == MSG_BUFFER_UNREGISTER) {
        return p->number && !p->cookie && !p->offset && !p->bytes ? 0 : -EINVAL;
    }
    bool placed = p->offset % PAGE_BYTES == 0 && p->offset <= MSG_PULL_PLACE_MAX && p->bytes <= MSG_PULL_PLACE_MAX;
    return p->kind == MSG_BUFFER_REGISTER && !p->number && p->bytes && placed ? 0 : -EINVAL;
}

static int check_published(const struct msg_head *m)
{
    const struct msg_published *p = (const struct msg_published *)m;
    if (short_of(m, sizeof *p) || p->key_size > KEY_MAX || p->count > GROUP_MAX || !p->key_size == !p->count ||
        (p->count && (p->ns || m->flags & MSG_ANEW))) {
        return -EINVAL;
    }
    return exact(m, sizeof *p, p->key_size + p->count * sizeof(struct msg_token));
}

static int check_cancel(const struct msg_head *m)
{
    return exact(m, sizeof(struct msg_cancel), 0);
}

static int check_seal(const struct msg_head *m)
{
    const struct msg_seal *s = (const struct msg_seal *)m;
    if (short_of(m, sizeof *s) || s->count < 1 || s->count > GROUP_MAX || s->reserved != 0) {
        return -EINVAL;
    }
    return exact(m, sizeof *s, (uint64_t)s->count * sizeof(struct msg_member));
}

static int check_tokens(const struct msg_head *m)
{
    const struct msg_tokens *t = (const struct msg_tokens *)m;
    if (short_of(m, sizeof *t) || t->count > 2 * GROUP_MAX || t->reserved != 0) {
        return -EINVAL;
    }
    return exact(m, sizeof *t, (uint64_t)t->count * sizeof(struct msg_token));
}

static int check_key(const struct msg_head *m)
{
    const struct msg_key *k = (const struct msg_key *)m;
    if (short_of(m, sizeof *k) || bad_key(k->key_size) || k->reserved != 0) {
        return -EINVAL;
    }
    if (m->op != MSG_REMOVE && (k->counter != 0 || k->region != 0)) {
        return -EINVAL;
    }
    return exact(m, sizeof *k, k->key_size);
}

static int check_purge(const struct msg_head *m)
{
    const struct msg_purge *p = (const struct msg_purge *)m;
    if (short_of(m, sizeof *p) || p->kind < PURGE_LINEAGE || p->kind >= PURGE_KINDS || p->prefix_size > KEY_MAX ||
        p->reserved[0] || p->reserved[1] || p->reserved[2]) {
        return -EINVAL;
    }
    bool lineage = p->kind == PURGE_LINEAGE, prefix = p->kind == PURGE_PREFIX;
    if (lineage != (p->lineage != 0) || prefix != (p->prefix_size != 0) || (lineage && p->ns)) {
        return -EINVAL; /* never more than was meant */
    }
    return exact(m, sizeof *p, p->prefix_size);
}

static int check_hold(const struct msg_head *m)
{
    const struct msg_hold *h = (const struct msg_hold *)m;
    if (short_of(m, sizeof *h) || bad_key(h->key_size) || h->label_size < 1 || h->label_size > LABEL_MAX) {
        return -EINVAL;
    }
    if (h->ttl_ns < 0 || (m->op == MSG_DROP && h->ttl_ns != 0)) {
        return -EINVAL;
    }
    return exact(m, sizeof *h, (uint64_t)h->key_size + h->label_size);
}

static int check_list(const struct msg_head *m)
{
    const struct msg_list *l = (const struct msg_list *)m;
    if (short_of(m, sizeof *l) || l->max < 1 || l->prefix_size > KEY_MAX || l->after_size > KEY_MAX ||
        l->reserved != 0) {
        return -EINVAL;
    }
    return exact(m, sizeof *l, (uint64_t)l->prefix_size + l->after_size);
}

/* Of a namespace's name: it is kept as text, here and in settings. */
static int name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

static int check_namespace(const struct msg_head *m)
{
    const struct msg_namespace *n = (const struct msg_namespace *)m;
    if (short_of(m, sizeof *n) || n->name_size < 1 || n->name_size > NAME_MAX_BYTES || n->reserved != 0) {
        return -EINVAL;
    }
    int rc = exact(m, sizeof *n, n->name_size);
    for (uint32_t i = 0; rc == 0 && i < n->name_size; i++) {
        rc = name_byte(((const char *)(n + 1))[i]) ? 0 : -EINVAL;
    }
    return rc;
}

static int check_grow(const struct msg_head *m)
{
    const struct msg_grow *g = (const struct msg_grow *)m;
    if (short_of(m, sizeof *g) || g->entries < 1 || g->entries > PINS_CAPACITY || g->reserved != 0) {
        return -EINVAL;
    }
    return exact(m, sizeof *g, 0);
}

static int check_query(const struct msg_head *m)
{
    const struct msg_query *q = (const struct msg_query *)m;
    if (short_of(m, sizeof *q) || q->what >= QUERY_KINDS || q->key_size > KEY_MAX || q->reserved != 0 ||
        (q->what == QUERY_WHY && q->key_size == 0)) {
        return -EINVAL;
    }
    return exact(m, sizeof *q, q->key_size);
}

static int check_detach(const struct msg_head *m)
{
    return exact(m, sizeof *m, 0);
}

static int (*const checks[MSG_CODES])(const struct msg_head *m) = {
    [MSG_GRANT] = check_grant,         [MSG_PUT] = check_put,
    [MSG_CREATE] = check_create,       [MSG_SEAL] = check_seal,
    [MSG_ABORT] = check_tokens,        [MSG_REMOVE] = check_key,
    [MSG_PURGE] = check_purge,         [MSG_HOLD] = check_hold,
    [MSG_DROP] = check_hold,           [MSG_STAT] = check_key,
    [MSG_LIST] = check_list,           [MSG_FIND] = check_key,
    [MSG_NAMESPACE] = check_namespace, [MSG_GROW] = check_grow,
    [MSG_QUERY] = check_query,         [MSG_RESUME] = check_tokens,
    [MSG_DETACH] = check_detach,       [MSG_REVOKE] = check_key,
    [MSG_SUMS] = check_sums,           [MSG_WAIT] = check_wait,
    [MSG_PULL] = check_pull,           [MSG_CANCEL] = check_cancel,
    [MSG_BUFFER] = check_buffer,       [MSG_PUBLISHED] = check_published,
};

int msg_check(const struct msg_head *m, uint32_t bytes)
{
    if (bytes < sizeof *m || bytes > RING_MESSAGE_MAX || m->bytes != bytes) {
        return -EINVAL;
    }
    int own = m->op == MSG_CREATE ? MSG_JOIN : m->op == MSG_STAT ? MSG_PEERS : m->op == MSG_PUBLISHED ? MSG_ANEW : 0;
    if ((m->flags & ~(MSG_AGAIN | own)) != 0) {
        return -EINVAL;
    }
    if (m->op >= MSG_CANCEL && m->op < MSG_CODES && !checks[m->op]) {
        return -EOPNOTSUPP;
    }
    if (m->op >= MSG_CODES || !checks[m->op] || m->deadline < 0) {
        return -EINVAL;
    }
    return checks[m->op](m);
}

uint32_t msg_reply_max(const struct msg_head *m)
{
    const uint32_t fixed = sizeof(struct msg_reply);
    switch (m->op) {
    case MSG_GRANT:
        return fixed + ((const struct msg_grant *)m)->count * (uint32_t)sizeof(struct msg_token);
    case MSG_PUT:
        return fixed + ((const struct msg_put *)m)->want * (uint32_t)sizeof(struct msg_token);
    case MSG_CREATE:
    case MSG_FIND:
        return fixed + (uint32_t)sizeof(struct msg_token);
    case MSG_PURGE:
        return fixed + (uint32_t)sizeof(struct msg_purged);
    case MSG_SEAL:
        return fixed + (((const struct msg_seal *)m)->count + 7) / 8;
    case MSG_WAIT:
        return fixed + ((const struct msg_wait *)m)->count;
    case MSG_PULL:
        return fixed + ((const struct msg_pull *)m)->count * msg_pulled_bytes(((const struct msg_pull *)m)->flags) +
               (uint32_t)sizeof(struct msg_unasked);
    case MSG_STAT:
        return fixed + (uint32_t)sizeof(struct msg_stat) + KEY_MAX +
               HOLDS_MAX * ((uint32_t)sizeof(struct msg_stat_hold) + LABEL_MAX + 1);
    case MSG_LIST:
    case MSG_QUERY:
        return RING_MESSAGE_MAX;
    default:
        return fixed;
    }
}
