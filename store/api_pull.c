/* api_pull.c: see pull.h. */
#include "store/pull.h"

#include "store/await.h"

#include <errno.h>
#include <string.h>

#define LOOK_NS INT64_C(100000000) /* between two questions to peers for a key that nobody has yet */

static uint32_t padded(uint32_t n)
{
    return (n + 7) & ~7u;
}

static uint16_t flags_of(unsigned flags, bool prefix)
{
    return (uint16_t)((flags & BERTH_VERIFY ? MSG_PULL_VERIFY : 0) | (flags & BERTH_WAIT ? MSG_PULL_WAIT : 0) |
                      (flags & BERTH_FRESH ? MSG_PULL_FRESH : 0) | (prefix ? MSG_PULL_PREFIX : 0));
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

struct call *pull_build_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
                             int64_t deadline)
{
    static uint8_t nothing; /* an address for 0 bytes */
    struct call *c = begin(b, (uint32_t)(sizeof(struct msg_pull) + sizeof(struct msg_pull_key)) + padded(key->size),
                           flags, false, deadline);
    if (!c) {
        return NULL;
    }
    struct msg_pull *m = (struct msg_pull *)c->message;
    m->count = 1;
    m->kind = MSG_PULL_BUFFER;
    m->buffer = (uint64_t)(uintptr_t)(buffer ? buffer : &nothing);
    add_key((uint8_t *)(m + 1), key, size < OBJECT_MAX ? size : OBJECT_MAX);
    c->limit = INT64_MAX;
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

struct outcome {
    struct msg_pulled *pulled;
    uint32_t n;
};

static int take_outcome(struct berth *b, void *arg, int status, const struct msg_reply *r, uint32_t bytes)
{
    const struct outcome *o = arg;
    (void)b;
    return pull_outcome(status, r, bytes, o->n, o->pulled);
}

static int run(struct berth *b, struct call *c, uint32_t n, struct msg_pulled *pulled)
{
    struct call_result r;
    struct outcome o = {.pulled = pulled, .n = n};
    return c ? call_run(b, c, &r, take_outcome, &o) : -ENOMEM;
}

int pull_keys(struct berth *b, const struct berth_key *keys, const uint32_t *index, uint32_t n, unsigned flags,
              bool prefix, int64_t deadline, struct msg_pulled *pulled, uint32_t *taken)
{
    if (deadline <= BERTH_NOW) { /* there is no time to ask anybody */
        *taken = n < MSG_PULL_KEYS ? n : MSG_PULL_KEYS;
        return -ETIMEDOUT;
    }
    struct call *c = pull_build(b, keys, index, n, flags, prefix, deadline, taken);
    return run(b, c, *taken, pulled);
}

int pull_key(struct berth *b, const struct berth_key *key, unsigned flags, int64_t deadline)
{
    for (;;) {
        struct msg_pulled pulled;
        uint32_t taken = 1;
        uint8_t state = WAIT_OPEN;
        int rc = pull_keys(b, key, NULL, 1, flags & ~(unsigned)BERTH_WAIT, false, deadline, &pulled, &taken);
        rc = rc ? rc : pulled.status;
        if (rc != -ENOENT || !(flags & BERTH_WAIT)) {
            return rc < 0 ? rc : 0;
        }
        int64_t look = berth_deadline(LOOK_NS);
        rc = await_keys(b, key, NULL, 1, 0, look < deadline ? look : deadline, &state, &taken);
        if (rc || state == WAIT_READY) {
            return rc;
        }
        if (await_over(deadline)) {
            return -ETIMEDOUT;
        }
    }
}

long pull_too_large(uint64_t object, size_t size)
{
    uint64_t figure[4] = {object};
    berth_fail(-ENOSPC, "the object has %llu bytes, the buffer %zu: give a larger one", (unsigned long long)object,
               size);
    berth_fail_figures(figure);
    return -ENOSPC;
}

long pull_into(struct berth *b, const struct berth_key *key, void *buffer, size_t size, unsigned flags,
               int64_t deadline)
{
    struct msg_pulled pulled = {0};
    if (deadline <= BERTH_NOW) {
        return berth_fail_plain(-ETIMEDOUT);
    }
    int rc = run(b, pull_build_into(b, key, buffer, size, flags, deadline), 1, &pulled);
    rc = rc ? rc : pulled.status;
    if (rc == -ENOSPC) {
        return pull_too_large(pulled.size, size);
    }
    if (rc < 0) {
        return berth_fail_plain(rc);
    }
    return rc == BERTH_KEPT ? PULL_IS_HERE : (long)pulled.size;
}
