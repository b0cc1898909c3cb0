/* api_pull.c: see pull.h. */
#include "store/pull.h"

#include "store/await.h"
#include "store/read.h"

#include <errno.h>
#include <string.h>

#define LOOK_NS INT64_C(2000000)       /* between two questions to peers for a key that nobody has yet: doubled .. */
#define LOOK_MAX_NS INT64_C(100000000) /* .. up to here */

static uint32_t padded(uint32_t n)
{
    return (n + 7) & ~7u;
}

static uint16_t flags_of(unsigned flags, bool prefix)
{
    return (uint16_t)((flags & BERTH_VERIFY ? MSG_PULL_VERIFY : 0) | (flags & BERTH_WAIT ? MSG_PULL_WAIT : 0) |
                      (flags & BERTH_FRESH ? MSG_PULL_FRESH : 0) | (prefix ? MSG_PULL_PREFIX : 0) |
                      (flags & PULL_WANT_RECORD ? MSG_PULL_RECORD : 0));
}

static struct call *begin(struct berth *b, uint32_t bytes, unsigned flags, bool prefix, int64_t deadline)
{
    struct call *c = call_new(MSG_PULL, bytes);
    if (c) {
        struct msg_pull *m = (struct msg_pull *)c->message;
        m->flags = flags_of(flags, prefix);
        m->lineage = b->lineage;
        call_deadline(b, c, deadline);
    }
    return c;
}

static uint8_t *add_key(uint8_t *at, const struct berth_key *key, uint64_t room)
{
    struct msg_pull_key k = {.route = key->route, .room = room, .ns = key->ns, .key_size = (uint16_t)key->size};
    memcpy(at, &k, sizeof k);
    memcpy(at + sizeof k, key->data, key->size);
    return at + sizeof k + padded(key->size);
}

struct call *pull_build(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n,
                        unsigned flags, bool prefix, int64_t deadline, uint32_t *taken)
{
    uint32_t bytes = sizeof(struct msg_pull), count = 0;
    for (; count < n && count < MSG_PULL_KEYS; count++) {
        uint32_t more = (uint32_t)sizeof(struct msg_pull_key) + padded(keys[index ? index[count] : count].size);
        if (bytes + more > RING_MESSAGE_MAX) {
            break;
        }
        bytes += more;
    }
    struct call *c = begin(b, bytes, flags, prefix, deadline);
    if (!c) {
        return NULL;
    }
    struct msg_pull *m = (struct msg_pull *)c->message;
    uint8_t *at = (uint8_t *)(m + 1);
    m->count = *taken = count;
    for (uint32_t i = 0; i < count; i++) {
        at = add_key(at, &keys[index ? index[i] : i], 0);
    }
    return c;
}

/* Ranges lie in one place together: from the lowest address to the highest end. */
static void ranges_span(const struct berth_range *r, size_t n, uintptr_t *low, uintptr_t *high)
{
    *low = UINTPTR_MAX;
    *high = 0;
    for (size_t i = 0; i < n; i++) {
        uintptr_t at = (uintptr_t)r[i].data;
        if (r[i].size && at < *low) {
            *low = at;
        }
        if (r[i].size && at + r[i].size > *high) {
            *high = at + r[i].size;
        }
    }
    *low = *low < *high ? *low : *high;
}

bool pull_out_place(struct berth *b, const struct pull_out *o, int64_t deadline, struct pull_place *out)
{
    uintptr_t low, high;
    if (!o->ranges) {
        return pull_place(b, o->buffer, o->size, deadline, out);
    }
    for (size_t i = 0; i < o->n; i++) {
        if (o->ranges[i].offset > OBJECT_MAX || o->ranges[i].size > OBJECT_MAX) {
            return false; /* the object says what is wrong with it */
        }
    }
    ranges_span(o->ranges, o->n, &low, &high);
    return o->n <= MSG_PULL_RANGES && high - low <= MSG_PULL_PLACE_MAX / 2 &&
           pull_place(b, high ? (const void *)low : NULL, high - low, deadline, out);
}

static void add_ranges(struct msg_pull_key *k, const struct pull_out *o, uint64_t to)
{
    struct msg_pull_range *r = (struct msg_pull_range *)(uintptr_t)msg_pull_ranges(k);
    uintptr_t low, high;
    ranges_span(o->ranges, o->n, &low, &high);
    for (size_t i = 0; i < o->n; i++) {
        uint64_t at = o->ranges[i].size ? to + ((uintptr_t)o->ranges[i].data - low) : 0;
        r[i] = (struct msg_pull_range){.offset = o->ranges[i].offset, .length = o->ranges[i].size, .to = at};
    }
}

struct call *pull_build_into(struct berth *b, const struct berth_key *key, const struct pull_out *o,
                             const struct pull_place *place, unsigned flags, int64_t deadline)
{
    size_t bytes = sizeof(struct msg_pull) + sizeof(struct msg_pull_key) + padded(key->size) +
                   (o->ranges ? o->n * sizeof(struct msg_pull_range) : 0);
    struct call *c = begin(b, (uint32_t)bytes, flags, false, deadline);
    if (!c) {
        return NULL;
    }
    struct msg_pull *m = (struct msg_pull *)c->message;
    struct msg_pull_key *k = (struct msg_pull_key *)(m + 1);
    m->count = 1;
    m->kind = (uint16_t)place->kind;
    m->buffer = place->buffer;
    add_key((uint8_t *)k, key, o->ranges ? 0 : o->size < OBJECT_MAX ? o->size : OBJECT_MAX);
    if (o->ranges) {
        k->n_ranges = (uint16_t)o->n;
        add_ranges(k, o, place->to);
    } else {
        k->to = place->to;
    }
    c->limit = place->kind == MSG_PULL_BUFFER ? INT64_MAX : c->limit;
    return c;
}

int pull_outcome(int status, const struct msg_reply *r, uint32_t bytes, uint32_t n, struct msg_pulled *out)
{
    if (status < 0) {
        return status;
    }
    if (!r || r->count != n || bytes < sizeof *r + n * sizeof *out) {
        return -EPROTO;
    }
    memcpy(out, r + 1, n * sizeof *out);
    return 0;
}

void pull_unasked(const struct msg_reply *r, uint32_t bytes, uint32_t n, char out[64])
{
    uint32_t plain = (uint32_t)sizeof *r + n * msg_pulled_bytes(0), more = sizeof(struct msg_unasked);
    uint32_t recorded = (uint32_t)sizeof *r + n * msg_pulled_bytes(MSG_PULL_RECORD);
    out[0] = '\0';
    if (r && (bytes == plain + more || bytes == recorded + more)) {
        memcpy(out, (const uint8_t *)r + bytes - more, 63);
        out[63] = '\0';
    }
}

_Static_assert(BERTH_PHASES == MSG_PULL_PHASES, "phases are passed on in their order");

static void fill_record(const struct msg_pulled *p, const struct msg_pull_record *m, struct berth_record *out)
{
    *out = (struct berth_record){.bytes = p->moved, .copied = p->copied, .member = p->member};
    out->flags = (p->flags & MSG_PULLED_VERIFIED ? BERTH_RECORD_VERIFIED : 0u) |
                 (p->flags & MSG_PULLED_SHARED ? BERTH_RECORD_SHARED : 0u) |
                 (p->flags & MSG_PULLED_LOCAL ? BERTH_RECORD_LOCAL : 0u);
    memcpy(out->source, m->source, sizeof out->source - 1);
    memcpy(out->transport, m->transport, sizeof out->transport - 1);
    out->lease = m->lease;
    out->requests = m->requests;
    out->stale = m->stale;
    memcpy(out->phase_ns, m->phase_ns, sizeof m->phase_ns);
}

void pull_records(const struct msg_reply *r, uint32_t bytes, uint32_t n, struct berth_record *out)
{
    const struct msg_pulled *p = (const struct msg_pulled *)(r + 1);
    const struct msg_pull_record *m = (const struct msg_pull_record *)(p + n), none = {.lease = 0};
    bool there = bytes >= sizeof *r + n * msg_pulled_bytes(MSG_PULL_RECORD);
    for (uint32_t i = 0; i < n; i++) {
        fill_record(&p[i], there ? &m[i] : &none, &out[i]);
    }
}

void pull_record_local(struct berth_record *out)
{
    *out = (struct berth_record){.member = UINT16_MAX, .flags = BERTH_RECORD_LOCAL};
}

struct outcome {
    struct msg_pulled *pulled;
    uint32_t n;
    char unasked[64];
};

static int take_outcome(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    struct outcome *o = arg;
    (void)b;
    pull_unasked(r, bytes, o->n, o->unasked);
    return pull_outcome(status, r, bytes, o->n, o->pulled);
}

int pull_run(struct berth *b, struct call *c, uint32_t n, struct msg_pulled *pulled)
{
    struct call_result r;
    struct outcome o = {.pulled = pulled, .n = n};
    struct client_thread *t = thread_self();
    int rc = c ? call_run(b, c, &r, take_outcome, &o) : -ENOMEM;
    t->room[0] = 0;
    if (rc == 0) {
        memcpy(t->room, (uint64_t[]){r.reply.counter, r.reply.region, r.reply.figure[0], r.reply.figure[1]},
               sizeof t->room);
    }
    berth_unasked(o.unasked);
    berth_unknown_namespace(rc == -EINVAL && !b->remote); /* all else that can be wrong has been checked here */
    return rc;
}

int pull_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, unsigned flags,
              bool prefix, int64_t deadline, struct msg_pulled *pulled, uint32_t *taken)
{
    if (deadline <= BERTH_NOW) { /* there is no time to ask anybody */
        *taken = n < MSG_PULL_KEYS ? n : MSG_PULL_KEYS;
        return -ETIMEDOUT;
    }
    struct call *c = pull_build(b, keys, index, n, flags, prefix, deadline, taken);
    return pull_run(b, c, *taken, pulled);
}

int pull_pause(struct berth *b, const struct berth_key *key, unsigned turn, int64_t deadline)
{
    uint8_t state = WAIT_OPEN;
    uint32_t taken = 1;
    int64_t ns = LOOK_NS << (turn < 16 ? turn : 16), look = berth_deadline(ns < LOOK_MAX_NS ? ns : LOOK_MAX_NS);
    if (await_over(deadline)) {
        return -ETIMEDOUT;
    }
    int rc = await_keys(b, key, NULL, 1, 0, look < deadline ? look : deadline, &state, &taken);
    return rc ? rc : state == WAIT_ABORTED || state == WAIT_DIED ? await_error(state) : 0;
}

/* The node waits, for peers and for what is put here. Where it does not, because it has no peers, it is waited here. */
int pull_key(struct berth *b, const struct berth_key *key, unsigned flags, int64_t deadline)
{
    for (unsigned turn = 0;; turn++) {
        struct msg_pulled pulled;
        uint32_t taken = 1;
        int rc = pull_keys(b, key, NULL, 1, flags, false, deadline, &pulled, &taken);
        rc = rc ? rc : pulled.status;
        if (rc != -ENOENT || !(flags & BERTH_WAIT)) {
            return rc;
        }
        rc = pull_pause(b, key, turn, deadline);
        if (rc || read_there(b, thread_self(), key)) {
            return rc ? rc : BERTH_KEPT;
        }
    }
}

int pull_check_flags(unsigned flags)
{
    if ((flags & BERTH_LOCAL) && (flags & BERTH_PEERS)) {
        return berth_fail(-EINVAL, "BERTH_LOCAL looks here alone, BERTH_PEERS elsewhere too: leave one of them out");
    }
    return pull_flags_agree(flags) ? 0 : berth_fail(-EINVAL, "BERTH_FRESH asks peers: set BERTH_PEERS too");
}

int pull_fail_now(void)
{
    return berth_fail(-ETIMEDOUT, "it is not here, and with the deadline BERTH_NOW no other node is asked: give them "
                                  "time, as berth_deadline(1000000000), or ask without BERTH_PEERS");
}

long pull_too_large(uint64_t object, size_t size)
{
    uint64_t figure[4] = {object};
    berth_fail(-ENOSPC, "the object is larger than the buffer, %llu bytes beside %zu: give a larger one",
               (unsigned long long)object, size);
    berth_fail_figures(figure);
    return -ENOSPC;
}

int pull_check_bounds(uint64_t size, const struct berth_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct berth_range *r = &ranges[i];
        if (r->offset > size || r->size > size - r->offset) {
            uint64_t figure[4] = {size, i, r->offset, r->size};
            berth_fail(-ERANGE, "range %zu, bytes %llu from %llu on, goes beyond the object's %llu", i,
                       (unsigned long long)r->size, (unsigned long long)r->offset, (unsigned long long)size);
            berth_fail_figures(figure);
            return -ERANGE;
        }
    }
    return 0;
}

long pull_into_result(const struct pull_out *o, int rc, const struct msg_pulled *pulled)
{
    if (rc == -EBADF || rc == -EOPNOTSUPP) { /* a buffer that is registered no more; ranges that prove nothing */
        return PULL_NOT_SO;
    }
    if (rc) {
        return rc == BERTH_KEPT ? PULL_IS_HERE : rc;
    }
    long bytes = o->ranges ? 0 : (long)pulled->size;
    for (size_t i = 0; o->ranges && i < o->n; i++) {
        bytes += (long)o->ranges[i].size;
    }
    return bytes;
}

long pull_into(struct berth *b, const struct berth_key *key, const struct pull_out *o, const struct pull_place *place,
               unsigned flags, int64_t deadline)
{
    struct msg_pulled pulled = {0};
    if (deadline <= BERTH_NOW) {
        return pull_fail_now();
    }
    int rc = pull_run(b, pull_build_into(b, key, o, place, flags, deadline), 1, &pulled);
    rc = rc ? rc : pulled.status;
    if (rc == -ENOSPC) {
        return pull_too_large(pulled.size, o->size);
    }
    if (rc == -ERANGE && pull_check_bounds(pulled.size, o->ranges, o->n)) {
        return rc;
    }
    long result = pull_into_result(o, rc, &pulled);
    return result < 0 && result > PULL_IS_HERE ? berth_fail_asked((int)result) : result;
}
