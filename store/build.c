/* build.c: see build.h. */
#include "store/build.h"

#include "store/amount.h"
#include "store/stat.h"

#include <emmintrin.h>
#include <errno.h>
#include <string.h>

#define FAULT_AROUND (64u << 10) /* what Linux maps at once for a read */

/* ---- checks ---- */

static int check_segment(uint32_t segment, size_t size)
{
    bool power = segment >= BERTH_SEGMENT_MIN && (segment & (segment - 1)) == 0;
    if (segment == 0 || (power && segments_possible(size, build_shift(segment)))) {
        return 0;
    }
    if (!power || segment > 1u << SEGMENT_SHIFT_MAX) {
        return berth_fail(-EINVAL, "a segment of %u bytes: a power of two from %u to %u is possible", segment,
                          BERTH_SEGMENT_MIN, 1u << SEGMENT_SHIFT_MAX);
    }
    return berth_fail(-EINVAL, "%zu bytes in segments of %u: an object has at most %u, choose larger ones", size,
                      segment, BERTH_SEGMENTS_MAX);
}

static int check_opts(const struct berth_put_opts *o, size_t size, uint32_t flags)
{
    if (!o) {
        return 0;
    }
    if (o->size != sizeof *o) {
        return berth_fail(-EINVAL, "options of %zu bytes: set size to sizeof(struct berth_put_opts)", o->size);
    }
    if ((o->flags & ~flags) || o->deadline < 0) {
        return berth_fail(-EINVAL, "options have a flag that is not known here, or a negative deadline");
    }
    if (o->parent && (!o->parent->data || o->parent->size - 1 >= BERTH_KEY_MAX)) {
        return berth_fail(-EINVAL, "the parent's key has %u bytes: 1 to %u are possible", o->parent->size,
                          BERTH_KEY_MAX);
    }
    return size > OBJECT_MAX ? 0 : check_segment(o->segment, size); /* what is too large is refused as that */
}

int build_check_put(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                    uint32_t flags)
{
    int rc = client_check_key(b, key);
    rc = rc ? rc : check_opts(opts, size, flags);
    if (rc) {
        return rc;
    }
    if (!b->writable) {
        return client_fail_readonly(b);
    }
    if (size > b->object_max) {
        uint64_t figure[4] = {b->object_max};
        char asked[AMOUNT_SIZE], most[AMOUNT_SIZE];
        berth_fail(-E2BIG,
                   "an object of %s: this node takes at most %s: split it, or give the node a larger pool or mr-size",
                   amount(size, asked), amount(b->object_max, most));
        berth_fail_figures(figure);
        return -E2BIG;
    }
    return 0;
}

int build_check_drafts(const struct berth *b, const struct berth_draft *d, size_t n)
{
    if (n < 1 || n > BERTH_GROUP_MAX || !d) {
        return berth_fail(-EINVAL, "%zu drafts in one call: 1 to %u are possible", n, BERTH_GROUP_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if (!d[i].data && d[i].status == BERTH_KEPT) {
            continue; /* create has kept its key: no draft */
        }
        if (!d[i].data || (d[i].flags & ~(BERTH_HAS_CHECKSUM | BERTH_PUBLISHED))) {
            return berth_fail(-EINVAL, "draft %zu has no data, or a flag that is not known", i);
        }
        if ((uint64_t)d[i].page * PAGE_BYTES + d[i].size > b->pool_bytes || d[i].size > OBJECT_MAX) {
            return berth_fail(-EINVAL, "draft %zu is not as berth_create made it", i);
        }
        int rc = check_segment(d[i].segment, d[i].size);
        if (rc) {
            return rc;
        }
        if (d[i].segment && (d[i].flags & BERTH_HAS_CHECKSUM) && !d[i].segments) {
            return berth_fail(-EINVAL, "draft %zu has segments: give the checksum of each, or none", i);
        }
    }
    return 0;
}

int build_check_label(const char *label)
{
    if (!label || !*label || strlen(label) > BERTH_LABEL_MAX) {
        return berth_fail(-EINVAL, "a label has 1 to %u bytes", BERTH_LABEL_MAX);
    }
    return 0;
}

/* ---- requests ---- */

struct call *build_grant(struct berth *b, const struct berth_key *key, uint32_t pages, size_t size, uint32_t count,
                         int64_t deadline)
{
    struct call *c = call_new(MSG_GRANT, sizeof(struct msg_grant) + key->size);
    if (c) {
        struct msg_grant *m = (struct msg_grant *)c->message;
        m->size = (uint32_t)size;
        m->count = count;
        m->ns = key->ns;
        m->key_size = (uint16_t)key->size;
        memcpy(m + 1, key->data, key->size);
        c->pages = pages;
        c->want = count;
        call_deadline(b, c, deadline);
    }
    return c;
}

static struct msg_object object_of(const struct berth *b, const struct berth_key *key, size_t size,
                                   const struct berth_put_opts *opts, uint64_t checksum)
{
    struct msg_object o = {.checksum = checksum,
                           .lineage = b->lineage,
                           .size = (uint32_t)size,
                           .ns = key->ns,
                           .key_size = (uint16_t)key->size};
    if (opts) {
        o.lineage = opts->lineage ? opts->lineage : o.lineage;
        o.parent = opts->parent ? berth_checksum(opts->parent->data, opts->parent->size) : 0;
        o.ttl_s = opts->ttl_s;
        o.priority = opts->priority;
        o.segment = build_shift(opts->segment);
    }
    return o;
}

struct call *build_put(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts,
                       const struct msg_token *token, uint64_t checksum, const uint64_t *sums)
{
    size_t list = opts ? segments_of(size, build_shift(opts->segment)) * sizeof *sums : 0;
    struct call *c = call_new(MSG_PUT, sizeof(struct msg_put) + key->size + list);
    if (c) {
        struct msg_put *m = (struct msg_put *)c->message;
        m->token = *token;
        m->object = object_of(b, key, size, opts, checksum);
        memcpy(m + 1, key->data, key->size);
        memcpy((uint8_t *)(m + 1) + key->size, sums, list);
        c->pages = grant_pages(size);
    }
    return c;
}

struct call *build_create(struct berth *b, const struct berth_key *key, size_t size, const struct berth_put_opts *opts)
{
    struct call *c = call_new(MSG_CREATE, sizeof(struct msg_create) + key->size);
    if (c) {
        struct msg_create *m = (struct msg_create *)c->message;
        m->object = object_of(b, key, size, opts, 0);
        m->head.flags = opts && (opts->flags & BERTH_JOIN) ? MSG_JOIN : 0;
        memcpy(m + 1, key->data, key->size);
        call_deadline(b, c, build_deadline(opts));
    }
    return c;
}

static struct msg_token draft_token(const struct berth_draft *d)
{
    return (struct msg_token){.gen = d->generation, .slot = d->slot, .page = d->page};
}

static void sum_segments(const uint8_t *data, size_t size, uint8_t shift, uint64_t *sums)
{
    uint32_t n = segments_of(size, shift);
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)i << shift, part = (size_t)1 << shift;
        sums[i] = berth_checksum(data + at, size - at < part ? size - at : part);
    }
}

/* Nobody waits for its answer; but it goes again after a restart, unlike what was abandoned. */
static void sums_done(struct berth *b, struct call *c, int status, const struct msg_reply *r, uint32_t bytes)
{
    (void)b;
    (void)c;
    (void)status;
    (void)r;
    (void)bytes;
}

static int send_sums(struct berth *b, struct berth_draft *d)
{
    uint32_t count = segments_of(d->size, build_shift(d->segment));
    struct call *c = call_new(MSG_SUMS, sizeof(struct msg_sums) + count * sizeof(uint64_t));
    if (!c) {
        return -ENOMEM;
    }
    struct msg_sums *m = (struct msg_sums *)c->message;
    uint64_t *sums = (uint64_t *)(m + 1);
    m->token = draft_token(d);
    m->count = count;
    if (d->flags & BERTH_HAS_CHECKSUM) {
        memcpy(sums, d->segments, count * sizeof *sums);
    } else {
        sum_segments(b->pool + (uint64_t)d->page * PAGE_BYTES, d->size, build_shift(d->segment), sums);
    }
    d->checksum = berth_checksum(sums, count * sizeof *sums);
    c->done = sums_done;
    pthread_mutex_lock(&b->lock);
    call_submit(b, c); /* where it can't be sent the seal can't be either, and says why */
    pthread_mutex_unlock(&b->lock);
    return 0;
}

int build_sums(struct berth *b, struct berth_draft *d, size_t n)
{
    /* The caller may have filled its slots with stores past the cache (PROTOCOLS rule 15). */
    _mm_sfence();
    for (size_t i = 0; i < n; i++) {
        if (!d[i].data) {
            continue;
        }
        d[i].checksum = d[i].segment ? berth_checksum(NULL, 0) : d[i].checksum;
        int rc = d[i].segment && d[i].size ? send_sums(b, &d[i]) : 0;
        if (rc) {
            return rc;
        }
    }
    return 0;
}

size_t build_without_draft(const struct berth_draft *d, size_t n)
{
    size_t without = 0;
    for (size_t i = 0; i < n; i++) {
        without += !d[i].data;
    }
    return without;
}

struct call *build_seal(struct berth *b, const struct berth_draft *d, size_t n)
{
    struct call *c = call_new(MSG_SEAL, sizeof(struct msg_seal) + n * sizeof(struct msg_member));
    if (!c) {
        return NULL;
    }
    struct msg_seal *m = (struct msg_seal *)c->message;
    struct msg_member *member = (struct msg_member *)(m + 1);
    /* The caller may have filled its slots with stores past the cache (PROTOCOLS rule 15). */
    _mm_sfence();
    for (size_t i = 0; i < n; i++) {
        if (d[i].data) {
            struct msg_member *to = &member[m->count++];
            to->token = draft_token(&d[i]);
            to->checksum = d[i].flags & BERTH_HAS_CHECKSUM || d[i].segment
                               ? d[i].checksum
                               : berth_checksum(b->pool + (uint64_t)d[i].page * PAGE_BYTES, d[i].size);
        }
    }
    m->head.bytes = (uint32_t)(sizeof *m + m->count * sizeof *member);
    return c;
}

struct call *build_abort(const struct berth_draft *d, size_t n)
{
    uint32_t count = 0;
    struct call *c = call_new(MSG_ABORT, sizeof(struct msg_tokens) + n * sizeof(struct msg_token));
    if (!c) {
        return NULL;
    }
    struct msg_tokens *m = (struct msg_tokens *)c->message;
    struct msg_token *token = (struct msg_token *)(m + 1);
    for (size_t i = 0; i < n; i++) {
        if (d[i].data) {
            token[count++] = draft_token(&d[i]);
        }
    }
    m->count = count;
    m->head.bytes = (uint32_t)(sizeof *m + count * sizeof *token);
    return c;
}

void build_forget(struct berth *b, const struct call *abort)
{
    const struct msg_tokens *m = (const struct msg_tokens *)abort->message;
    const struct msg_token *token = (const struct msg_token *)(m + 1);
    for (uint32_t i = 0; i < m->count; i++) {
        tokens_remove(&b->tokens, &token[i]);
    }
}

struct call *build_key(enum msg_op op, const struct berth_key *key, const struct berth_version *expected)
{
    struct call *c = call_new(op, sizeof(struct msg_key) + key->size);
    if (c) {
        struct msg_key *m = (struct msg_key *)c->message;
        m->counter = expected ? expected->counter : 0;
        m->region = expected ? expected->region : 0;
        m->ns = key->ns;
        m->key_size = (uint16_t)key->size;
        memcpy(m + 1, key->data, key->size);
    }
    return c;
}

struct call *build_hold(enum msg_op op, const struct berth_key *key, const char *label, int64_t ttl_ns)
{
    size_t n = strlen(label);
    struct call *c = call_new(op, sizeof(struct msg_hold) + key->size + n);
    if (c) {
        struct msg_hold *m = (struct msg_hold *)c->message;
        m->ttl_ns = ttl_ns;
        m->ns = key->ns;
        m->key_size = (uint16_t)key->size;
        m->label_size = (uint16_t)n;
        memcpy(m + 1, key->data, key->size);
        memcpy((uint8_t *)(m + 1) + key->size, label, n);
    }
    return c;
}

static uint16_t tokens_of(const struct berth_draft *d, size_t n, struct msg_token *out)
{
    uint16_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (d[i].status == 0 && d[i].flags & BERTH_PUBLISHED) {
            out[count++] = draft_token(&d[i]);
        }
    }
    return count;
}

struct call *build_published(const struct berth_key *key, bool kept, const struct berth_draft *d, size_t n, bool *asked)
{
    struct msg_token tokens[BERTH_GROUP_MAX];
    uint16_t count = key ? 0 : tokens_of(d, n, tokens);
    size_t bytes = key ? key->size : count * sizeof *tokens;
    *asked = key || count;
    struct call *c = *asked ? call_new(MSG_PUBLISHED, sizeof(struct msg_published) + bytes) : NULL;
    if (c) {
        struct msg_published *m = (struct msg_published *)c->message;
        m->ns = key ? key->ns : 0;
        m->key_size = (uint16_t)(key ? key->size : 0);
        m->count = count;
        m->head.flags |= kept ? MSG_ANEW : 0;
        memcpy(m + 1, key ? key->data : tokens, bytes);
    }
    return c;
}

/* Time that is over, or a node that has gone, takes nothing of the put away. */
int build_take_published(int status, int put)
{
    if (status >= 0) {
        return put;
    }
    return status == BERTH_EVERSION ? status : BERTH_EUNPUBLISHED;
}

/* ---- replies ---- */

/* The first token behind a reply, if the engine has entered it. */
static int first_token(struct berth *b, size_t size, const struct msg_reply *r, uint32_t bytes, struct msg_token *t)
{
    if (bytes < sizeof *r + sizeof *t || r->figure[0] < size) {
        return -EPROTO;
    }
    memcpy(t, r + 1, sizeof *t);
    if (!tokens_has(&b->tokens, t)) { /* one too many, or none of this pool's */
        grant_give_back(b, t, 1);
        return -EMFILE;
    }
    return 0;
}

int build_take_granted(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct granted *g = arg;
    return status < 0 ? status : first_token(b, g->size, r, bytes, &g->token);
}

int build_take_created(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    const struct created *c = arg;
    struct msg_token t;
    int rc = status ? status : first_token(b, c->size, r, bytes, &t);
    if (rc == 0) {
        *c->draft = (struct berth_draft){.data = b->writable + (uint64_t)t.page * PAGE_BYTES,
                                         .size = c->size,
                                         .status = r->figure[1] == MSG_WRITING ? BERTH_WRITING : 0,
                                         .flags = c->flags & BERTH_PUBLISHED,
                                         .segment = c->segment,
                                         .generation = t.gen,
                                         .slot = t.slot,
                                         .page = t.page};
    }
    return rc;
}

/* After these the drafts may be sealed again. */
static bool keeps_drafts(int status)
{
    return status == BERTH_ENODE || status == -ETIMEDOUT || status == BERTH_EINDEXFULL || status == -ENOMEM;
}

int build_take_sealed(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    const struct sealed *s = arg;
    if (status < 0 && keeps_drafts(status)) {
        return status;
    }
    size_t without = build_without_draft(s->drafts, s->n), k = 0; /* k counts those that the node was asked for */
    const uint8_t *kept = (const uint8_t *)(r + 1);
    bool bits = r && bytes >= sizeof *r + (s->n - without + 7) / 8;
    for (size_t i = 0; i < s->n; i++) {
        struct berth_draft *d = &s->drafts[i];
        if (!d->data) {
            continue;
        }
        if (status < 0) {
            struct msg_token t = draft_token(d);
            grant_give_back(b, &t, 1);
        }
        d->status = status < 0 ? status : bits && (kept[k / 8] >> (k % 8) & 1) ? BERTH_KEPT : 0;
        d->data = NULL;
        k++;
    }
    return status < 0 ? status : status + (int)without;
}

static const uint8_t *cut(const uint8_t **at, const uint8_t *end, size_t n)
{
    const uint8_t *p = *at;
    if ((size_t)(end - p) < n) {
        return NULL;
    }
    *at = p + n;
    return p;
}

static size_t padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static int stat_holds(struct berth_stat *st, const uint8_t *at, const uint8_t *end)
{
    for (uint32_t i = 0; i < st->n_holds && i < 16; i++) {
        struct msg_stat_hold h;
        const uint8_t *p = cut(&at, end, sizeof h);
        if (!p) {
            return -EPROTO;
        }
        memcpy(&h, p, sizeof h);
        p = h.label_size <= BERTH_LABEL_MAX ? cut(&at, end, padded(h.label_size)) : NULL;
        if (!p) {
            return -EPROTO;
        }
        memcpy(st->holds[i].label, p, h.label_size);
        st->holds[i].label[h.label_size] = '\0';
        st->holds[i].ttl_ns = h.ttl_ns;
    }
    return 0;
}

int build_take_stat(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct msg_stat m;
    (void)b;
    if (status < 0) {
        return status;
    }
    const uint8_t *at = (const uint8_t *)(r + 1), *end = (const uint8_t *)r + bytes;
    const uint8_t *p = cut(&at, end, sizeof m);
    if (!p) {
        return -EPROTO;
    }
    memcpy(&m, p, sizeof m);
    if (m.segment > SEGMENT_SHIFT_MAX || !cut(&at, end, padded(m.key_size))) {
        return -EPROTO;
    }
    struct berth_stat out = {.version = {.counter = m.counter, .region = m.region},
                             .size = m.size,
                             .slot_bytes = m.slot_bytes,
                             .checksum = m.checksum,
                             .lineage = m.lineage,
                             .created_us = m.created_us,
                             .generation = m.generation,
                             .slot = m.slot,
                             .ttl_s = m.ttl_s,
                             .ns = m.ns,
                             .n_holds = m.holds,
                             .priority = m.priority,
                             .tier = m.tier,
                             .segment = m.segment ? 1u << m.segment : 0,
                             .key_size = m.key_size};
    int rc = stat_holds(&out, at, end);
    if (rc == 0) {
        *(struct berth_stat *)arg = out;
    }
    return rc;
}

/* The kernel maps the pages around one that is read, but only the one that is written: a look ahead saves most of the
 * faults of a mapping's first use, which cost several times the copy. */
void build_map_pages(const void *start, size_t size)
{
    const volatile uint8_t *p = start;
    for (size_t i = 0; i < size; i += FAULT_AROUND) {
        (void)p[i];
    }
}

static uint64_t copy_segments(uint8_t *to, const uint8_t *data, size_t size, uint8_t shift, uint64_t *sums)
{
    uint32_t n = segments_of(size, shift);
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)i << shift, part = (size_t)1 << shift;
        sums[i] = berth_copy(to + at, data + at, size - at < part ? size - at : part);
    }
    return berth_checksum(sums, n * sizeof *sums);
}

uint64_t build_copy(struct berth *b, const struct msg_token *token, const void *data, size_t size, uint8_t shift,
                    uint64_t *sums)
{
    struct client_thread *t = thread_self();
    uint8_t *to = b->writable + (uint64_t)token->page * PAGE_BYTES;
    int64_t start = client_now();
    build_map_pages(to, size);
    uint64_t checksum = shift ? copy_segments(to, data, size, shift, sums) : berth_copy(to, data, size);
    stat_add(b, t, LANE_PUTS, 1);
    stat_add(b, t, LANE_PUT_BYTES, size);
    stat_add(b, t, LANE_COPY_NS, (uint64_t)(client_now() - start));
    return checksum;
}
